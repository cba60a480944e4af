// relu_cpu.c: y = max(x, 0); backward reads y: dx = y > 0 ? dy : 0. Any layout, in place. NaN passes.
#include "backend/cpu/own_kernel.h"

typedef struct relu_state {
    int type;
    int64_t n;
    const dt_simd_elementwise *simd;
} relu_state;

static dt_status prepare_forward(dt_site *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_site_in(s, 0), *y = dt_site_out(s, 0);
    relu_state *st = dt_own_prepare(s, sizeof(*st));
    DT_TRY(dt_own_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    st->n = dt_layout_elements(layout, &x->shape);
    st->simd = dt_simd_get()->elementwise;
    s->in_layout[0] = s->out_layout[0] = layout;
    s->inplace_in = 0;
    return DT_OK;
}

typedef struct relu_call {
    const relu_state *st;
    void *out;
    const void *y, *dy; // forward: y is x
} relu_call;

static void forward_range(const void *ctx, int64_t begin, int64_t end) {
    const relu_call *c = ctx;
    int t = c->st->type;
    c->st->simd->relu[t](dt_row_at_mut(t, c->out, begin), dt_row_at(t, c->y, begin), end - begin);
}

static void run_forward(const dt_site *s, const dt_run *r) {
    relu_call c = {s->state, r->out[0], r->in[0], NULL};
    dt_own_ranges(s->threads, c.st->n, forward_range, &c);
}

static dt_status prepare_backward(dt_site *s) {
    int y_at = dt_pos_out(s, 0), dy_at = dt_pos_grad(s, 0);
    dt_layout layout = s->in_layout[y_at];
    const dt_value_info *y = dt_site_in(s, y_at), *dy = dt_site_in(s, dy_at);
    relu_state *st = dt_own_prepare(s, sizeof(*st));
    DT_TRY(dt_own_type(s, &st->type, (const dt_value_info *[]){y, dy, dt_site_out(s, 0)}, 3));
    st->n = dt_layout_elements(layout, &y->shape);
    st->simd = dt_simd_get()->elementwise;
    s->in_layout[y_at] = s->in_layout[dy_at] = s->out_layout[0] = layout;
    s->inplace_in = dy_at;
    return DT_OK;
}

static void backward_range(const void *ctx, int64_t begin, int64_t end) {
    const relu_call *c = ctx;
    int t = c->st->type;
    c->st->simd->relu_bwd[t](dt_row_at_mut(t, c->out, begin), dt_row_at(t, c->y, begin),
                             dt_row_at(t, c->dy, begin), end - begin);
}

static void run_backward(const dt_site *s, const dt_run *r) {
    relu_call c = {s->state, r->out[0], r->in[dt_pos_out(s, 0)], r->in[dt_pos_grad(s, 0)]};
    dt_own_ranges(s->threads, c.st->n, backward_range, &c);
}

const dt_kernel dt_cpu_relu = {prepare_forward, run_forward, dt_own_destroy};
const dt_kernel dt_cpu_relu_bwd = {prepare_backward, run_backward, dt_own_destroy};
