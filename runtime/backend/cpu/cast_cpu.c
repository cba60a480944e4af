// cast_cpu.c: f32 <-> bf16 (nearest even) in any layout. Its gradient is a cast.
#include "backend/cpu/custom_kernel.h"

typedef struct cast_state {
    int from, to; // row types
    int64_t n;
    const dt_simd_elementwise *simd;
} cast_state;

static dt_status cast_cpu_prepare(dt_kernel_instance *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    cast_state *st = dt_custom_prepare(s, sizeof(*st));
    st->from = dt_row_type(x->dtype);
    st->to = dt_row_type(y->dtype);
    if (st->from < 0 || st->to < 0 || st->from == st->to)
        return dt_custom_fail(s, "no cast from %s to %s on the CPU", dt_dtype_name(x->dtype), dt_dtype_name(y->dtype));
    st->n = dt_layout_elements(layout, &x->shape);
    st->simd = dt_simd_get()->elementwise;
    s->in_layout[0] = s->out_layout[0] = layout;
    return DT_OK;
}

static void cast_cpu_range(const void *ctx, int64_t begin, int64_t end) {
    const dt_one_to_one *c = ctx;
    const cast_state *st = c->state;
    void *y = dt_row_at_mut(st->to, c->y, begin);
    const void *x = dt_row_at(st->from, c->x, begin);
    if (st->to == DT_ROW_BF16)
        st->simd->to_bf16(y, x, end - begin);
    else
        st->simd->to_f32(y, x, end - begin);
}

static void cast_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const cast_state *st = s->state;
    dt_custom_ranges(s->threads, st->n, cast_cpu_range, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

const dt_kernel dt_cpu_cast = {cast_cpu_prepare, cast_cpu_run, dt_custom_destroy};
