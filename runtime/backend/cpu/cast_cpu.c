// cast_cpu.c: f32 <-> bf16 (nearest even) in any layout, and u8 -> f32 or bf16. Its gradient is a cast.
#include "backend/cpu/custom_kernel.h"

#include <string.h>

typedef struct cast_state {
    dt_dtype from;
    int to; // row type
    int64_t n;
    const dt_simd_elementwise *simd;
} cast_state;

static dt_status prepare(dt_kernel_instance *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    cast_state *st = dt_custom_prepare(s, sizeof(*st));
    st->from = x->dtype;
    st->to = dt_row_type(y->dtype);
    if (st->to < 0 || (dt_row_type(x->dtype) < 0 && x->dtype != DT_U8))
        return dt_custom_fail(s, "no cast from %s to %s on the CPU", dt_dtype_name(x->dtype),
                              dt_dtype_name(y->dtype));
    st->n = dt_layout_elements(layout, &x->shape);
    st->simd = dt_simd_get()->elementwise;
    s->in_layout[0] = s->out_layout[0] = layout;
    s->inplace_in = x->dtype == y->dtype ? 0 : -1;
    return DT_OK;
}

static void range(const void *ctx, int64_t begin, int64_t end) {
    const dt_one_to_one *c = ctx;
    const cast_state *st = c->state;
    int64_t n = end - begin;
    void *y = dt_row_at_mut(st->to, c->y, begin);
    if (st->from == DT_U8) {
        st->simd->u8_plane[st->to](y, (const uint8_t *)c->x + begin, 1, 0, 1, 0, n);
        return;
    }
    int from = dt_row_type(st->from);
    const void *x = dt_row_at(from, c->x, begin);
    if (from == st->to) {
        if (y != x) memcpy(y, x, (size_t)n * dt_row_size(from));
    } else if (from == DT_ROW_F32)
        st->simd->to_bf16(y, x, n);
    else
        st->simd->to_f32(y, x, n);
}

static void run(const dt_kernel_instance *s, const dt_run *r) {
    const cast_state *st = s->state;
    dt_custom_ranges(s->threads, st->n, range, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

const dt_kernel dt_cpu_cast = {prepare, run, dt_custom_destroy};
