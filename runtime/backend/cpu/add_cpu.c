// add_cpu.c: y = a + b. b has a's shape (any layout, in place), or lacks leading dimensions and is added to
// each of the `outer` slices of a (DENSE). b may be f32 with a bf16 a, if it is a parameter.
//
// Backward sums dy over the leading dimensions and adds that to b's gradient. Threads divide the columns and
// each adds the slices in order, so the bits do not depend on the number of threads.
#include "backend/cpu/custom_kernel.h"

#include <string.h>

typedef struct add_state {
    int type;
    bool wide;            // b is f32, a is bf16
    int64_t outer, inner; // y is (outer, inner), b is (inner)
    dt_dtype sum_type;    // backward: of b's gradient
    const dt_simd_elementwise *simd;
} add_state;

// Whether b is a's trailing dimensions (leading ones of length 1 in b are ignored).
static bool add_cpu_trailing(const dt_shape *a, const dt_shape *b) {
    int skip = 0;
    while (skip < b->n && b->d[skip] == 1) skip++;
    int n = b->n - skip;
    if (n > a->n) return false;
    for (int i = 0; i < n; i++)
        if (b->d[skip + i] != a->d[a->n - n + i]) return false;
    return true;
}

static dt_status add_cpu_prepare_forward(dt_kernel_instance *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    add_state *st = dt_custom_prepare(s, sizeof(*st));
    st->simd = dt_simd_get()->elementwise;
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){a, dt_instance_out(s, 0)}, 2));
    st->wide = st->type == DT_ROW_BF16 && b->dtype == DT_F32;
    if (!st->wide && b->dtype != a->dtype)
        return dt_custom_fail(s, "cannot add %s to %s: insert a cast", dt_dtype_name(b->dtype),
                              dt_dtype_name(a->dtype));
    s->inplace_in = 0;
    if (dt_shape_equal(&a->shape, &b->shape) && b->kind == DT_V_TEMP) {
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        st->outer = 1;
        st->inner = dt_layout_elements(layout, &a->shape);
        return DT_OK;
    }
    if (!add_cpu_trailing(&a->shape, &b->shape))
        return dt_custom_fail(s, "the second shape is not the end of the first");
    st->inner = dt_shape_elements(&b->shape);
    st->outer = st->inner ? dt_shape_elements(&a->shape) / st->inner : 0;
    return DT_OK;
}

typedef struct add_call {
    const add_state *st;
    void *y;
    const void *a, *b;
} add_call;

// Elements [begin, end) of y (outer, inner), slice by slice, since b repeats.
static void forward_range(const void *ctx, int64_t begin, int64_t end) {
    const add_call *c = ctx;
    const add_state *st = c->st;
    int t = st->type;
    while (begin < end) {
        int64_t at = begin % st->inner, n = st->inner - at;
        if (n > end - begin) n = end - begin;
        void *y = dt_row_at_mut(t, c->y, begin);
        const void *a = dt_row_at(t, c->a, begin);
        if (st->wide)
            st->simd->add_wide[t](y, a, (const float *)c->b + at, n);
        else
            st->simd->add[t](y, a, dt_row_at(t, c->b, at), n);
        begin += n;
    }
}

static void add_cpu_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    add_call c = {s->state, r->out[0], r->in[0], r->in[1]};
    dt_custom_ranges(s->threads, c.st->outer * c.st->inner, forward_range, &c);
}

static dt_status add_cpu_prepare_backward(dt_kernel_instance *s) {
    const dt_value_info *dy = dt_instance_in(s, dt_pos_grad(s, 0)), *db = dt_instance_out(s, 1);
    add_state *st = dt_custom_prepare(s, sizeof(*st));
    st->simd = dt_simd_get()->elementwise;
    DT_TRY(dt_custom_type(s, &st->type, &dy, 1));
    if (dt_row_type(db->dtype) < 0 || !add_cpu_trailing(&dy->shape, &db->shape))
        return dt_custom_fail(s, "the second gradient is not the end of the first, in f32 or bf16");
    st->inner = dt_shape_elements(&db->shape);
    st->outer = st->inner ? dt_shape_elements(&dy->shape) / st->inner : 0;
    st->sum_type = db->dtype;
    if (db->dtype == DT_BF16 || db->kind == DT_V_GRAD) s->scratch_bytes = (size_t)st->inner * sizeof(float);
    return DT_OK;
}

typedef struct sum_call {
    const add_state *st;
    float *sum;
    void *narrow; // bf16 result, or NULL
    float *there; // the complete sum is added to this; or NULL
    const void *dy;
} sum_call;

static void sum_range(const void *ctx, int64_t begin, int64_t end) {
    const sum_call *c = ctx;
    const add_state *st = c->st;
    float *sum = c->sum + begin;
    memset(sum, 0, (size_t)(end - begin) * sizeof(float));
    for (int64_t o = 0; o < st->outer; o++)
        st->simd->accumulate[st->type](sum, dt_row_at(st->type, c->dy, o * st->inner + begin), end - begin);
    if (c->narrow) st->simd->to_bf16((uint16_t *)c->narrow + begin, sum, end - begin);
    if (c->there) st->simd->accumulate[DT_ROW_F32](c->there + begin, sum, end - begin);
}

static void add_cpu_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const add_state *st = s->state;
    const bool narrow = st->sum_type == DT_BF16, adds = r->accumulate >> 1 & 1;
    sum_call c = {.st = st,
                  .sum = narrow || adds ? r->scratch : r->out[1],
                  .narrow = narrow ? r->out[1] : NULL,
                  .there = adds ? r->out[1] : NULL,
                  .dy = r->in[dt_pos_grad(s, 0)]};
    dt_custom_ranges(s->threads, st->inner, sum_range, &c);
}

const dt_kernel dt_cpu_add = {add_cpu_prepare_forward, add_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_add_bwd = {add_cpu_prepare_backward, add_cpu_run_backward, dt_custom_destroy};
