// mul_cuda.c: host side of y = a * b (graph/ops/mul.c; kernels/mul_kernels.h), and of add_branch, which multiplies,
// drops and adds (graph/ops/add_branch.c). Factors of channels want NHWC, which makes them columns; a repeated row wants
// DENSE. b may be f32 beside a narrower a: a parameter.
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/add_kernels.h"
#include "backend/cuda/kernels/mul_kernels.h"
#include "base/hash.h"

enum { MUL_CUDA_SUM_BLOCKS = 512, MUL_CUDA_SUM_ROWS = 4, MUL_CUDA_FLOW_ROWS = 8 };

typedef struct mul_state {
    dt_map_state map; // same shape; dt_map_run reads it
    dt_times t;
    dt_mul_args a; // without pointers
} mul_state;

// Of what a factor multiplies, also of a network's input, which is DENSE elsewhere.
static dt_layout mul_cuda_layout_of(const mul_state *st) {
    return (dt_layout){.kind = st->t.channels ? DT_NHWC : DT_DENSE};
}

static dt_status mul_cuda_read_shapes(dt_kernel_instance *s, const dt_value_info *a, const dt_value_info *b) {
    mul_state *st = dt_cuda_prepare(s, sizeof *st);
    if (!a || !b || !dt_times_of(&a->shape, &b->shape, &st->t))
        return dt_cuda_fail(s, "the second shape does not repeat over the first");
    if (!dt_dtype_is_float(b->dtype)) return dt_cuda_fail(s, "cannot multiply by %s", dt_dtype_name(b->dtype));
    if (st->t.images * st->t.rows >= INT32_MAX) return dt_cuda_fail(s, "more than 2^31 rows");
    st->a.row_type = b->dtype;
    st->a.each = st->t.each;
    st->a.image = dt_quot_of(st->t.rows > 0 ? st->t.rows : 1);
    return DT_OK;
}

static dt_status mul_cuda_prepare_forward(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    DT_TRY(mul_cuda_read_shapes(s, a, b));
    mul_state *st = s->state;
    DT_TRY(dt_cuda_type(s, &st->a.type, a, dt_instance_out(s, 0)));
    s->inplace_in = 0;
    if (st->t.same && b->kind == DT_V_TEMP && b->dtype == a->dtype) {
        st->map = (dt_map_state){.type = st->a.type, .d_at = 1, .n = dt_shape_elements(&a->shape)};
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        return DT_OK;
    }
    st->t.same = false;
    s->in_layout[0] = s->out_layout[0] = mul_cuda_layout_of(st);
    if (!st->t.channels) s->in_layout[1] = dt_dense();
    st->a.c = dt_cols_flow(st->t.images * st->t.rows, st->t.cols, MUL_CUDA_FLOW_ROWS);
    return DT_OK;
}

static void mul_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const mul_state *st = s->state;
    if (st->t.same) {
        dt_map_run(s, r, DT_K_mul_same);
        return;
    }
    dt_mul_args a = st->a;
    a.x = r->in[0], a.row = r->in[1], a.out = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), DT_K_mul_rows, dt_cols_grid(&a.c), &a, r->stream);
}

static void divide_sums(dt_kernel_instance *s) {
    mul_state *st = s->state;
    const dt_times *t = &st->t;
    if (t->each) {
        st->a.c = dt_cols_make(t->rows, t->cols, 1, 1);
        st->a.c.n_chunks = t->images;
        return;
    }
    st->a.c = dt_cols_make(t->images * t->rows, t->cols, MUL_CUDA_SUM_BLOCKS, MUL_CUDA_SUM_ROWS);
    if (st->a.c.n_chunks > 1) s->scratch_bytes = (size_t)(st->a.c.n_chunks * st->a.c.padded) * sizeof(float);
}

// out: at which output the sums are.
static void run_sums(const dt_kernel_instance *s, const dt_run *r, dt_cuda_kernel k, dt_mul_args *a, int out) {
    dt_cuda *c = dt_cuda_of(s);
    a->out = r->out[out];
    a->partial = s->scratch_bytes ? r->scratch : NULL;
    a->accumulate = r->accumulate >> out & 1;
    dt_cuda_launch(c, k, dt_cols_grid(&a->c), a, r->stream);
    if (!a->partial) return;
    const dt_add_args sum = {.c = a->c,
                             .out = a->out,
                             .partial = a->partial,
                             .type = a->type,
                             .row_type = a->row_type,
                             .accumulate = a->accumulate};
    const dt_cuda_grid g = {.blocks = (a->c.cols + 31) / 32, .threads = 1024};
    dt_cuda_launch(c, DT_K_sum_chunks, g, &sum, r->stream);
}

static dt_status mul_cuda_prepare_backward(dt_kernel_instance *s) {
    const int dy_at = dt_cuda_pos_grad(s, 0);
    const dt_value_info *a = dt_instance_in(s, 0), *dy = dt_instance_in(s, dy_at);
    DT_TRY(mul_cuda_read_shapes(s, a, dt_instance_out(s, 1)));
    mul_state *st = s->state;
    DT_TRY(dt_cuda_type(s, &st->a.type, a, dy));
    s->in_layout[0] = s->in_layout[dy_at] = mul_cuda_layout_of(st);
    if (!st->t.channels) s->out_layout[1] = dt_dense();
    divide_sums(s);
    return DT_OK;
}

static void mul_cuda_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const mul_state *st = s->state;
    dt_mul_args a = st->a;
    a.x = r->in[0], a.row = r->in[dt_cuda_pos_grad(s, 0)];
    run_sums(s, r, DT_K_mul_sums, &a, 1);
}

const dt_kernel dt_cuda_mul = {mul_cuda_prepare_forward, mul_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_mul_bwd = {mul_cuda_prepare_backward, mul_cuda_run_backward, dt_cuda_destroy};

// ---- add_branch --------------------------------------------------------------------------------------
enum { Y, X, SCALE };

// a_at: y or its gradient.
static dt_status prepare_branch(dt_kernel_instance *s, int a_at) {
    const dt_value_info *a = dt_instance_in(s, a_at), *scale = dt_instance_in(s, SCALE);
    const dt_shape *shape = &a->shape;
    const dt_value_info one = {
        .dtype = DT_F32, .shape = shape->n == 4 ? dt_shape3(shape->d[1], 1, 1) : dt_shape1(shape->d[shape->n - 1])};
    DT_TRY(mul_cuda_read_shapes(s, a, scale ? scale : &one));
    mul_state *st = s->state;
    DT_TRY(dt_cuda_type(s, &st->a.type, a, dt_instance_in(s, Y), dt_instance_in(s, X), dt_instance_out(s, 0)));
    s->in_layout[Y] = s->in_layout[X] = s->in_layout[a_at] = s->out_layout[0] = mul_cuda_layout_of(st);
    const int64_t samples = shape->d[0], rows = st->t.images * st->t.rows;
    st->a.image = dt_quot_of(rows > samples ? rows / samples : 1);
    st->a.purpose = dt_hash32(dt_graph_origin(s->graph, s->node)->name);
    st->a.p = s->node->attrs.dropout.p;
    st->a.c = dt_cols_flow(rows, st->t.cols, MUL_CUDA_FLOW_ROWS);
    s->inplace_in = a_at;
    return DT_OK;
}
static dt_status prepare_branch_forward(dt_kernel_instance *s) {
    return prepare_branch(s, Y);
}
static dt_status prepare_branch_backward(dt_kernel_instance *s) {
    DT_TRY(prepare_branch(s, dt_cuda_pos_grad(s, 0)));
    if (s->node->out[SCALE] != DT_NONE) divide_sums(s);
    return DT_OK;
}

static dt_mul_args branch_args(const dt_kernel_instance *s, const dt_run *r, const void *other) {
    dt_mul_args a = ((const mul_state *)s->state)->a;
    a.x = r->in[Y], a.row = r->in[SCALE], a.other = other, a.step = r->step;
    return a;
}
static void run_branch_forward(const dt_kernel_instance *s, const dt_run *r) {
    dt_mul_args a = branch_args(s, r, r->in[X]);
    a.out = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), DT_K_branch_fwd, dt_cols_grid(&a.c), &a, r->stream);
}
static void run_branch_backward(const dt_kernel_instance *s, const dt_run *r) {
    dt_mul_args a = branch_args(s, r, r->in[dt_cuda_pos_grad(s, 0)]);
    a.dx = r->out[0];
    run_sums(s, r, DT_K_branch_bwd, &a, SCALE);
}

const dt_kernel dt_cuda_add_branch = {prepare_branch_forward, run_branch_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_add_branch_bwd = {prepare_branch_backward, run_branch_backward, dt_cuda_destroy};
