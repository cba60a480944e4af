// mul_cpu.c: y = a * b (graph/ops/mul.c says how b may repeat; dt_times how that is seen here).
//
//   same shape   any layout, in place
//   a row        a DENSE (rows, cols)
//   channels     a BLOCKED, (images, blocks, pixels, block); b one row of channels, or one for each image
//
// Rows of b are widened to f32 in scratch, padded to whole blocks. Backward sums a * dy into the same places, each
// block of an image by one thread, or for rows in a fixed number of runs which are added in order: the bits do not
// depend on the number of threads.
#include "backend/cpu/custom_kernel.h"

#include <string.h>

enum { RUNS = 16 };

typedef struct mul_state {
    int type;
    dt_times t;
    int64_t block, blocks; // of a channel form
    int64_t padded;        // floats of a row in scratch
    const dt_simd_elementwise *simd;
} mul_state;

static int64_t rows_of_b(const mul_state *st) {
    return st->t.each ? st->t.images : 1;
}

// a: the larger operand; b: what repeats.
static dt_status mul_cpu_read_shapes(dt_kernel_instance *s, const dt_value_info *a, const dt_value_info *b) {
    mul_state *st = dt_custom_prepare(s, sizeof *st);
    st->simd = dt_simd_get()->elementwise;
    if (!dt_times_of(&a->shape, &b->shape, &st->t))
        return dt_custom_fail(s, "the second shape does not repeat over the first");
    if (dt_row_type(b->dtype) < 0) return dt_custom_fail(s, "cannot multiply by %s", dt_dtype_name(b->dtype));
    st->block = st->padded = st->t.cols;
    if (!st->t.channels) return DT_OK;
    st->block = dt_simd_get()->width;
    st->blocks = (st->t.cols + st->block - 1) / st->block;
    st->padded = st->blocks * st->block;
    return DT_OK;
}

static dt_status mul_cpu_prepare_forward(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    DT_TRY(mul_cpu_read_shapes(s, a, b));
    mul_state *st = s->state;
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){a, dt_instance_out(s, 0)}, 2));
    s->inplace_in = 0;
    if (st->t.same && b->kind == DT_V_TEMP && b->dtype == a->dtype) {
        st->t.cols = dt_layout_elements(layout, &a->shape);
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        return DT_OK;
    }
    st->t.same = false;
    if (st->t.channels) s->in_layout[0] = s->out_layout[0] = dt_custom_blocked();
    s->scratch_bytes = (size_t)(rows_of_b(st) * st->padded) * sizeof(float);
    return DT_OK;
}

typedef struct mul_call {
    const mul_state *st;
    void *y;
    const void *a, *b; // backward: b is dy
    float *rows;       // rows of b, or their sums
} mul_call;

static void range_same(const void *ctx, int64_t begin, int64_t end) {
    const mul_call *c = ctx;
    const int t = c->st->type;
    c->st->simd->mul[t](dt_row_at_mut(t, c->y, begin), dt_row_at(t, c->a, begin), dt_row_at(t, c->b, begin),
                        end - begin);
}

// Item i: a block of an image, or one of RUNS runs of rows.
typedef struct mul_item {
    int64_t at, rows; // first element, rows
    int64_t factor;   // its row of b, in scratch
} mul_item;
static mul_item item_of(const mul_state *st, int64_t i) {
    if (st->t.channels) {
        const int64_t image = i / st->blocks, block = i % st->blocks;
        return (mul_item){i * st->t.rows * st->block, st->t.rows,
                          (st->t.each ? image * st->padded : 0) + block * st->block};
    }
    const int64_t begin = st->t.rows * i / RUNS, end = st->t.rows * (i + 1) / RUNS;
    return (mul_item){begin * st->t.cols, end - begin, 0};
}
static int64_t n_items(const mul_state *st) {
    return st->t.channels ? st->t.images * st->blocks : RUNS;
}

static void mul_cpu_forward_item(const void *ctx, int64_t i, int64_t end) {
    const mul_call *c = ctx;
    const int t = c->st->type;
    const mul_item m = item_of(c->st, i);
    c->st->simd->mul_rows[t](dt_row_at_mut(t, c->y, m.at), dt_row_at(t, c->a, m.at), c->rows + m.factor, m.rows,
                             c->st->block);
}

static void mul_cpu_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const mul_state *st = s->state;
    const mul_call c = {st, r->out[0], r->in[0], r->in[1], r->scratch};
    if (st->t.same) {
        dt_custom_ranges(s->threads, st->t.cols, range_same, &c);
        return;
    }
    const int t = dt_row_type(dt_instance_in(s, 1)->dtype);
    memset(c.rows, 0, s->scratch_bytes);
    for (int64_t i = 0; i < rows_of_b(st); i++) {
        const void *b = dt_row_at(t, r->in[1], i * st->t.cols);
        if (t == DT_ROW_F32)
            memcpy(c.rows + i * st->padded, b, (size_t)st->t.cols * sizeof(float));
        else
            st->simd->to_f32(c.rows + i * st->padded, b, st->t.cols);
    }
    dt_custom_items(s->threads, n_items(st), mul_cpu_forward_item, &c);
}

// ---- backward: the gradient of b -------------------------------------------------------------------
static dt_status mul_cpu_prepare_backward(dt_kernel_instance *s) {
    const int dy_at = dt_pos_grad(s, 0);
    const dt_value_info *a = dt_instance_in(s, 0), *dy = dt_instance_in(s, dy_at), *db = dt_instance_out(s, 1);
    DT_TRY(mul_cpu_read_shapes(s, a, db));
    mul_state *st = s->state;
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){a, dy}, 2));
    if (st->t.channels) s->in_layout[0] = s->in_layout[dy_at] = dt_custom_blocked();
    s->scratch_bytes = (size_t)((st->t.channels ? st->t.images : RUNS) * st->padded) * sizeof(float);
    return DT_OK;
}

// Each item has sums of its own: a row of scratch for an image, or for a run.
static void backward_item(const void *ctx, int64_t i, int64_t end) {
    const mul_call *c = ctx;
    const mul_state *st = c->st;
    const mul_item m = item_of(st, i);
    float *sum = c->rows + (st->t.channels ? i * st->block : i * st->padded);
    memset(sum, 0, (size_t)st->block * sizeof *sum);
    st->simd->mul_rows_sum[st->type](sum, dt_row_at(st->type, c->a, m.at), dt_row_at(st->type, c->b, m.at), m.rows,
                                     st->block);
}

static void mul_cpu_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const mul_state *st = s->state;
    const mul_call c = {st, NULL, r->in[0], r->in[dt_pos_grad(s, 0)], r->scratch};
    const dt_value_info *db = dt_instance_out(s, 1);
    dt_custom_items(s->threads, n_items(st), backward_item, &c);
    const int64_t sums = st->t.channels ? st->t.images : RUNS, rows = rows_of_b(st);
    for (int64_t i = rows; i < sums; i++) st->simd->accumulate[DT_ROW_F32](c.rows, c.rows + i * st->padded, st->t.cols);
    for (int64_t i = 0; i < rows; i++) {
        const float *sum = c.rows + i * st->padded;
        void *to = dt_row_at_mut(dt_row_type(db->dtype), r->out[1], i * st->t.cols);
        if (r->accumulate >> 1 & 1)
            st->simd->accumulate[DT_ROW_F32](to, sum, st->t.cols);
        else if (db->dtype == DT_BF16)
            st->simd->to_bf16(to, sum, st->t.cols);
        else
            memcpy(to, sum, (size_t)st->t.cols * sizeof *sum);
    }
}

const dt_kernel dt_cpu_mul = {mul_cpu_prepare_forward, mul_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_mul_bwd = {mul_cpu_prepare_backward, mul_cpu_run_backward, dt_custom_destroy};
