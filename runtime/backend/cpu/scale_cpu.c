// scale_cpu.c: y = alpha x. Any layout, in place. Its gradient is a scale node.
#include "backend/cpu/custom_kernel.h"

typedef struct scale_state {
    int type;
    int64_t n;
    float alpha;
    const dt_simd_elementwise *simd;
} scale_state;

static dt_status prepare(dt_kernel_instance *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_instance_in(s, 0);
    scale_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, dt_instance_out(s, 0)}, 2));
    st->n = dt_layout_elements(layout, &x->shape);
    st->alpha = s->node->attrs.scale.alpha;
    st->simd = dt_simd_get()->elementwise;
    s->in_layout[0] = s->out_layout[0] = layout;
    s->inplace_in = 0;
    return DT_OK;
}

typedef struct scale_call {
    const scale_state *st;
    void *y;
    const void *x;
} scale_call;

static void range(const void *ctx, int64_t begin, int64_t end) {
    const scale_call *c = ctx;
    int t = c->st->type;
    c->st->simd->scale[t](dt_row_at_mut(t, c->y, begin), dt_row_at(t, c->x, begin), c->st->alpha,
                          end - begin);
}

static void run(const dt_kernel_instance *s, const dt_run *r) {
    scale_call c = {s->state, r->out[0], r->in[0]};
    dt_custom_ranges(s->threads, c.st->n, range, &c);
}

const dt_kernel dt_cpu_scale = {prepare, run, dt_custom_destroy};
