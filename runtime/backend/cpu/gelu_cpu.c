// gelu_cpu.c: GELU, y = x Phi(x), exact or in the tanh form; backward reads x. Any layout, in place.
#include "backend/cpu/own_kernel.h"

typedef struct gelu_state {
    int type;
    int64_t n;
    void (*forward)(void *y, const void *x, int64_t n);
    void (*backward)(void *dx, const void *x, const void *dy, int64_t n);
} gelu_state;

static void choose(gelu_state *st, const dt_site *s) {
    const dt_simd_elementwise *simd = dt_simd_get()->elementwise;
    const bool tanh = s->node->attrs.gelu.tanh;
    st->forward = tanh ? simd->gelu_tanh[st->type] : simd->gelu[st->type];
    st->backward = tanh ? simd->gelu_tanh_bwd[st->type] : simd->gelu_bwd[st->type];
}

static dt_status prepare_forward(dt_site *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_site_in(s, 0), *y = dt_site_out(s, 0);
    gelu_state *st = dt_own_prepare(s, sizeof(*st));
    DT_TRY(dt_own_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    st->n = dt_layout_elements(layout, &x->shape);
    choose(st, s);
    s->in_layout[0] = s->out_layout[0] = layout;
    s->inplace_in = 0;
    return DT_OK;
}

typedef struct gelu_call {
    const gelu_state *st;
    void *out;
    const void *x, *dy; // forward: no dy
} gelu_call;

static void forward_range(const void *ctx, int64_t begin, int64_t end) {
    const gelu_call *c = ctx;
    int t = c->st->type;
    c->st->forward(dt_row_at_mut(t, c->out, begin), dt_row_at(t, c->x, begin), end - begin);
}

static void run_forward(const dt_site *s, const dt_run *r) {
    gelu_call c = {s->state, r->out[0], r->in[0], NULL};
    dt_own_ranges(s->threads, c.st->n, forward_range, &c);
}

static dt_status prepare_backward(dt_site *s) {
    int dy_at = dt_pos_grad(s, 0);
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_site_in(s, 0), *dy = dt_site_in(s, dy_at);
    gelu_state *st = dt_own_prepare(s, sizeof(*st));
    DT_TRY(dt_own_type(s, &st->type, (const dt_value_info *[]){x, dy, dt_site_out(s, 0)}, 3));
    st->n = dt_layout_elements(layout, &x->shape);
    choose(st, s);
    s->in_layout[0] = s->in_layout[dy_at] = s->out_layout[0] = layout;
    s->inplace_in = dy_at;
    return DT_OK;
}

static void backward_range(const void *ctx, int64_t begin, int64_t end) {
    const gelu_call *c = ctx;
    int t = c->st->type;
    c->st->backward(dt_row_at_mut(t, c->out, begin), dt_row_at(t, c->x, begin),
                    dt_row_at(t, c->dy, begin), end - begin);
}

static void run_backward(const dt_site *s, const dt_run *r) {
    gelu_call c = {s->state, r->out[0], r->in[0], r->in[dt_pos_grad(s, 0)]};
    dt_own_ranges(s->threads, c.st->n, backward_range, &c);
}

const dt_kernel dt_cpu_gelu = {prepare_forward, run_forward, dt_own_destroy};
const dt_kernel dt_cpu_gelu_bwd = {prepare_backward, run_backward, dt_own_destroy};
