// elementwise_cuda.c: kernels over elements, host side.

#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/elementwise_kernels.h"
#include "backend/cuda/kernels/shape_kernels.h"
#include "base/hash.h"
#include "graph/activation_words.h"

// ---- elementwise --------------------------------------------------------------------------------------------------

// Host side of the ops that are one kernel over elements (ReLU, GELU, activation, scale), and
// map_run. Any layout, in place.

// dt_map_args with one or two operands
typedef struct map_state {
    int type, x_at, d_at; // operands' positions; d_at < 0: one operand
    int64_t n;
    float alpha;
} map_state;

// Operands and output 0 have the first operand's layout and share a float type. Output 0 may take over operand
// `inplace`. The state is a map_state.
static dt_status elementwise_cuda_prepare(dt_kernel_instance *s, int x_at, int d_at, int inplace) {
    const dt_layout layout = s->in_layout[x_at];
    const dt_value_info *x = dt_instance_in(s, x_at), *d = d_at < 0 ? NULL : dt_instance_in(s, d_at);
    map_state *st = dt_cuda_prepare(s, sizeof *st);
    if (!x || (d_at >= 0 && !d)) return dt_cuda_fail(s, "an operand is missing"); // inference may have dropped it
    DT_TRY(dt_cuda_type(s, &st->type, x, d, dt_instance_out(s, 0)));
    st->n = dt_shape_elements(&x->shape);
    st->x_at = x_at, st->d_at = d_at;
    // number of the activation, or factor
    st->alpha = s->node->op == DT_OP_scale ? s->node->attrs.scale.alpha : s->node->attrs.activation.number;
    s->in_layout[x_at] = s->out_layout[0] = layout;
    if (d) s->in_layout[d_at] = layout;
    s->inplace_in = inplace;
    return DT_OK;
}

static void map_run(const dt_kernel_instance *s, const dt_run *r, dt_cuda_kernel k) {
    const map_state *st = s->state;
    const dt_map_args a = {.x = r->in[st->x_at],
                           .d = st->d_at < 0 ? NULL : r->in[st->d_at], // NULL: unary
                           .out = r->out[0],
                           .n = st->n,
                           .type = st->type,
                           .alpha = st->alpha};
    dt_cuda *c = dt_cuda_of(s);
    dt_cuda_launch(c, k, dt_cuda_grid_flat(c, st->n), &a, r->stream);
}

static dt_status elementwise_cuda_prepare_forward(dt_kernel_instance *s) {
    return elementwise_cuda_prepare(s, 0, -1, 0);
}
static dt_status prepare_gelu_bwd(dt_kernel_instance *s) {
    const int dy_at = dt_cuda_pos_grad(s, 0);
    return elementwise_cuda_prepare(s, 0, dy_at, dy_at);
}
static dt_status prepare_relu_bwd(dt_kernel_instance *s) {
    const int dy_at = dt_cuda_pos_grad(s, 0);
    return elementwise_cuda_prepare(s, dt_cuda_pos_out(s, 0), dy_at, dy_at); // ReLU reads y in place of x
}

static void elementwise_cuda_run_scale(const dt_kernel_instance *s, const dt_run *r) {
    map_run(s, r, DT_K_scale_fwd);
}
static void run_activation(const dt_kernel_instance *s, const dt_run *r) {
    static const dt_cuda_kernel kernels[DT_N_ACTIVATIONS][2] = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = {DT_K_##id##_fwd, DT_K_##id##_bwd},
#include "graph/activations.def"
#undef ACTIVATION
    };
    map_run(s, r, kernels[s->node->attrs.activation.kind][s->node->backward]);
}

const dt_kernel dt_cuda_relu = {elementwise_cuda_prepare_forward, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_relu_bwd = {prepare_relu_bwd, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_gelu = {elementwise_cuda_prepare_forward, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_gelu_bwd = {prepare_gelu_bwd, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_activation = {elementwise_cuda_prepare_forward, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_activation_bwd = {prepare_gelu_bwd, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_scale = {elementwise_cuda_prepare_forward, elementwise_cuda_run_scale, dt_cuda_destroy};

// ---- add ----------------------------------------------------------------------------------------------------------

// Host side of y = a + b. If b has a's shape, any layout works, in place. Otherwise b lacks leading
// dimensions and is added to each of the `outer` slices of a (DENSE). b may be f32 beside a narrower a: a parameter.
// The backward pass sums dy over the leading dimensions to get b's gradient (kernels/elementwise_kernels.h).

// blocks of a sum: a constant, so sums depend on shapes alone; rows of a thread
enum { SUM_BLOCKS = 512, SUM_ROWS = 4, FLOW_ROWS = 8 };

typedef struct add_state {
    map_state map; // same shape
    bool same;
    int type, row_type;
    dt_cols c;
} add_state;

// Returns whether b has the trailing dimensions of a. Leading dimensions of length 1 in b are ignored.
static bool add_cuda_trailing(const dt_shape *a, const dt_shape *b) {
    int skip = 0;
    while (skip < b->n && b->d[skip] == 1) skip++; // from the right, as NumPy broadcasts
    const int n = b->n - skip;
    if (n > a->n) return false;
    for (int i = 0; i < n; i++)
        if (b->d[skip + i] != a->d[a->n - n + i]) return false;
    return true;
}

static dt_status add_cuda_prepare_forward(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    add_state *st = dt_cuda_prepare(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, a, dt_instance_out(s, 0)));
    st->row_type = b->dtype;
    if (b->dtype != DT_F32 && b->dtype != a->dtype)
        return dt_cuda_fail(s, "cannot add %s to %s: insert a cast", dt_dtype_name(b->dtype), dt_dtype_name(a->dtype));
    s->inplace_in = 0;
    // a parameter of a's shape is DENSE, a may be NHWC
    st->same = dt_shape_equal(&a->shape, &b->shape) && b->kind == DT_V_TEMP && b->dtype == a->dtype;
    if (st->same) {
        st->map = (map_state){.type = st->type, .d_at = 1, .n = dt_shape_elements(&a->shape)};
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        return DT_OK;
    }
    if (!add_cuda_trailing(&a->shape, &b->shape))
        return dt_cuda_fail(s, "the second shape is not the end of the first");
    const int64_t inner = dt_shape_elements(&b->shape);
    st->c = dt_cols_flow(inner ? dt_shape_elements(&a->shape) / inner : 0, inner, FLOW_ROWS); // inner 0: nothing to do
    s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = dt_dense();
    return DT_OK;
}

static void add_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const add_state *st = s->state; // its first member is what map_run reads
    if (st->same) {
        map_run(s, r, DT_K_add_same);
        return;
    }
    const dt_add_args a = {
        .c = st->c, .x = r->in[0], .row = r->in[1], .out = r->out[0], .type = st->type, .row_type = st->row_type};
    dt_cuda_launch(dt_cuda_of(s), DT_K_add_row, dt_cols_grid(&a.c), &a, r->stream);
}

static dt_status add_cuda_prepare_backward(dt_kernel_instance *s) {
    const dt_value_info *dy = dt_instance_in(s, dt_cuda_pos_grad(s, 0)), *db = dt_instance_out(s, 1);
    add_state *st = dt_cuda_prepare(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, dy, NULL));
    s->in_layout[dt_cuda_pos_grad(s, 0)] = s->out_layout[1] = dt_dense();
    if (!dt_dtype_is_float(db->dtype) || !add_cuda_trailing(&dy->shape, &db->shape))
        return dt_cuda_fail(s, "the second gradient is not the end of the first, in floats");
    const int64_t inner = dt_shape_elements(&db->shape);
    st->c = dt_cols_make(inner ? dt_shape_elements(&dy->shape) / inner : 0, inner, SUM_BLOCKS, SUM_ROWS);
    st->row_type = db->dtype;
    // one chunk: the sum goes to db directly
    if (st->c.n_chunks > 1) s->scratch_bytes = (size_t)(st->c.n_chunks * st->c.padded) * sizeof(float);
    return DT_OK;
}

static void add_cuda_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const add_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    const dt_add_args a = {.c = st->c,
                           .x = r->in[dt_cuda_pos_grad(s, 0)],
                           .out = r->out[1],
                           .partial = st->c.n_chunks > 1 ? r->scratch : NULL,
                           .type = st->type,
                           .row_type = st->row_type,
                           .accumulate = r->accumulate >> 1 & 1}; // bit 1
    dt_cuda_launch(c, DT_K_sum_rows, dt_cols_grid(&a.c), &a, r->stream);
    if (!a.partial) return;                                                     // a single chunk: done
    const dt_cuda_grid g = {.blocks = (st->c.cols + 31) / 32, .threads = 1024}; // second kernel: chunks in order
    dt_cuda_launch(c, DT_K_sum_chunks, g, &a, r->stream);
}

const dt_kernel dt_cuda_add = {add_cuda_prepare_forward, add_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_add_bwd = {add_cuda_prepare_backward, add_cuda_run_backward, dt_cuda_destroy};

// ---- mul ----------------------------------------------------------------------------------------------------------

// Host side of y = a * b (graph/ops/elementwise.c; kernels/elementwise_kernels.h), and of add_branch, which multiplies,
// drops and adds (graph/ops/elementwise.c). Factors of channels want NHWC, which makes them columns; a repeated row wants
// DENSE. b may be f32 beside a narrower a: a parameter.

enum { MUL_CUDA_SUM_BLOCKS = 512, MUL_CUDA_SUM_ROWS = 4, MUL_CUDA_FLOW_ROWS = 8 };

typedef struct mul_state {
    map_state map; // same shape; map_run reads it
    dt_times t;
    dt_mul_args a; // without pointers
} mul_state;

// Of what a factor multiplies, also of a network's input, which is DENSE elsewhere.
static dt_layout mul_cuda_layout_of(const mul_state *st) {
    return (dt_layout){.kind = st->t.channels ? DT_NHWC : DT_DENSE}; // NHWC: channels are columns
}

static dt_status mul_cuda_read_shapes(dt_kernel_instance *s, const dt_value_info *a, const dt_value_info *b) {
    mul_state *st = dt_cuda_prepare(s, sizeof *st);
    if (!a || !b || !dt_times_of(&a->shape, &b->shape, &st->t))
        return dt_cuda_fail(s, "the second shape does not repeat over the first");
    if (!dt_dtype_is_float(b->dtype)) return dt_cuda_fail(s, "cannot multiply by %s", dt_dtype_name(b->dtype));
    // row numbers are int32 in the kernel
    if (st->t.images * st->t.rows >= INT32_MAX) return dt_cuda_fail(s, "more than 2^31 rows");
    st->a.row_type = b->dtype;
    st->a.each = st->t.each;
    st->a.image = dt_quot_of(st->t.rows > 0 ? st->t.rows : 1); // rows of an image, for factors per image
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
        st->map = (map_state){.type = st->a.type, .d_at = 1, .n = dt_shape_elements(&a->shape)};
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        return DT_OK;
    }
    st->t.same = false;
    s->in_layout[0] = s->out_layout[0] = mul_cuda_layout_of(st);
    if (!st->t.channels) s->in_layout[1] = dt_dense(); // factors are DENSE rows
    st->a.c = dt_cols_flow(st->t.images * st->t.rows, st->t.cols, MUL_CUDA_FLOW_ROWS);
    return DT_OK;
}

static void mul_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const mul_state *st = s->state;
    if (st->t.same) {
        map_run(s, r, DT_K_mul_same);
        return;
    }
    dt_mul_args a = st->a;
    a.x = r->in[0], a.row = r->in[1], a.out = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), DT_K_mul_rows, dt_cols_grid(&a.c), &a, r->stream);
}

static void divide_sums(dt_kernel_instance *s) {
    mul_state *st = s->state;
    const dt_times *t = &st->t;
    if (t->each) { // a factor per image: one chunk for each image, no partial sums
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
enum { Y, X, SCALE }; // inputs of add_branch

// a_at: y or its gradient.
static dt_status prepare_branch(dt_kernel_instance *s, int a_at) {
    const dt_value_info *a = dt_instance_in(s, a_at), *scale = dt_instance_in(s, SCALE);
    const dt_shape *shape = &a->shape;
    // no scale: a factor of ones, which the kernel does not read
    const dt_value_info one = {
        .dtype = DT_F32, .shape = shape->n == 4 ? dt_shape3(shape->d[1], 1, 1) : dt_shape1(shape->d[shape->n - 1])};
    DT_TRY(mul_cuda_read_shapes(s, a, scale ? scale : &one));
    mul_state *st = s->state;
    DT_TRY(dt_cuda_type(s, &st->a.type, a, dt_instance_in(s, Y), dt_instance_in(s, X), dt_instance_out(s, 0)));
    s->in_layout[Y] = s->in_layout[X] = s->in_layout[a_at] = s->out_layout[0] = mul_cuda_layout_of(st);
    const int64_t samples = shape->d[0], rows = st->t.images * st->t.rows; // rows of a sample, for drop path
    st->a.image = dt_quot_of(rows > samples ? rows / samples : 1);
    // the forward node's name: backward draws the same numbers
    st->a.purpose = dt_hash32(dt_graph_origin(s->graph, s->node)->name);
    st->a.p = s->node->attrs.dropout.p;
    st->a.c = dt_cols_flow(rows, st->t.cols, MUL_CUDA_FLOW_ROWS);
    s->inplace_in = a_at; // y's memory, or its gradient's
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
    a.x = r->in[Y], a.row = r->in[SCALE], a.other = other, a.step = r->step; // scale NULL: no factor
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

// ---- cast ---------------------------------------------------------------------------------------------------------

// Host side of cast (any layout; its gradient is a cast) and of image normalization: u8 or f32 pixels
// (N,H,W,C) to NHWC activations, mixed where the step has a mixing plan (kernels/shape_kernels.h).

static dt_cuda_grid cast_cuda_grid_of(int64_t n) {
    const int64_t blocks = (n + 4095) / 4096; // 4,096 elements per block
    return (dt_cuda_grid){.blocks = blocks > 0 ? blocks : 1, .threads = 256};
}

void dt_cuda_convert(dt_cuda *c, void *out, dt_dtype to, const void *x, dt_dtype from, int64_t n, void *stream) {
    const dt_convert_args a = {.x = x, .out = out, .from = from, .to = to, .n = n};
    dt_cuda_launch(c, DT_K_cast_fwd, cast_cuda_grid_of(n), &a, stream);
}

static dt_status prepare_cast(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    dt_convert_args *a = dt_cuda_prepare(s, sizeof *a);
    if (!dt_dtype_is_float(y->dtype) || !dt_dtype_is_float(x->dtype) || x->dtype == y->dtype)
        return dt_cuda_fail(s, "no cast from %s to %s", dt_dtype_name(x->dtype), dt_dtype_name(y->dtype));
    a->from = x->dtype, a->to = y->dtype;
    a->n = dt_shape_elements(&x->shape);
    s->in_layout[0] = s->out_layout[0] = layout;
    return DT_OK;
}

static dt_status prepare_normalize(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    dt_convert_args *a = dt_cuda_prepare(s, sizeof *a);
    const bool is_f32 = x->dtype == DT_F32;
    // the argument struct has room for that many
    if ((x->dtype != DT_U8 && !is_f32) || x->shape.n != 4 || !dt_dtype_is_float(y->dtype) ||
        x->shape.d[3] > DT_NORMALIZE_CHANNELS)
        return dt_cuda_fail(s, "wants u8 or f32 (N,H,W,C) with at most %d channels", (int)DT_NORMALIZE_CHANNELS);
    a->from = x->dtype, a->to = y->dtype;
    a->n = dt_shape_elements(&x->shape);
    a->channels = (int)x->shape.d[3];
    for (int c = 0; c < a->channels; c++) {
        const double std = s->node->attrs.image_normalize.std[c];
        const float mean = s->node->attrs.image_normalize.mean[c];
        a->scale[c] = (float)(1.0 / (is_f32 ? std : 255.0 * std)); // x / 255 included
        a->shift[c] = is_f32 ? mean : (float)(-(double)mean / std);
    }
    if (s->node->n_in > 1) { // input 1: the mix plan
        a->samples = x->shape.d[0];
        a->sample = x->shape.d[0] > 0 ? a->n / x->shape.d[0] : 0;
        a->chunks = (a->sample + 4095) / 4096; // chunks of 4,096 values per image
        // values of an image are counted in int32
        if (a->sample >= (int64_t)1 << 31) return dt_cuda_fail(s, "images of 2^31 values cannot be mixed");
        a->by_channels = dt_quot_of(a->channels), a->by_width = dt_quot_of(x->shape.d[2]);
        s->in_layout[1] = dt_dense();
    }
    s->in_layout[0] = dt_dense(); // (N,H,W,C) as it comes
    s->out_layout[0] = (dt_layout){.kind = DT_NHWC};
    return DT_OK;
}

static void run_with(const dt_kernel_instance *s, const dt_run *r, dt_cuda_kernel k) {
    dt_convert_args a = *(const dt_convert_args *)s->state;
    a.x = r->in[0], a.out = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), k, cast_cuda_grid_of(a.n), &a, r->stream);
}
static void run_cast(const dt_kernel_instance *s, const dt_run *r) {
    run_with(s, r, DT_K_cast_fwd);
}
static void cast_cuda_run_normalize(const dt_kernel_instance *s, const dt_run *r) {
    if (s->node->n_in == 1) { // no mix plan
        run_with(s, r, DT_K_normalize);
        return;
    }
    dt_convert_args a = *(const dt_convert_args *)s->state;
    a.x = r->in[0], a.plan = r->in[1], a.out = r->out[0];
    const dt_cuda_grid grid = {.blocks = a.samples * a.chunks, .threads = 256};
    dt_cuda_launch(dt_cuda_of(s), DT_K_normalize_mixed, grid, &a, r->stream);
}

const dt_kernel dt_cuda_cast = {prepare_cast, run_cast, dt_cuda_destroy};
const dt_kernel dt_cuda_image_normalize = {prepare_normalize, cast_cuda_run_normalize, dt_cuda_destroy};

// ---- dropout ------------------------------------------------------------------------------------------------------

// Host side of dropout, forward and backward, in place (kernels/elementwise_kernels.h).

enum { BLOCK_ELEMENTS = 2048, BLOCK_DRAWS = 512 }; // elements of a block; draws of four numbers

typedef struct dropout_state {
    dt_dropout_args a; // without pointers
    int in_at;
    bool nhwc;
} dropout_state;

static dt_status dropout_cuda_prepare_at(dt_kernel_instance *s, int in_at) {
    const dt_layout layout = s->in_layout[in_at];
    const dt_value_info *x = dt_instance_in(s, in_at);
    dropout_state *st = dt_cuda_prepare(s, sizeof *st);
    dt_dropout_args *a = &st->a;
    DT_TRY(dt_cuda_type(s, &a->type, x, dt_instance_out(s, 0)));
    const int64_t n = dt_shape_elements(&x->shape);
    st->in_at = in_at;
    st->nhwc = layout.kind == DT_NHWC;
    a->samples = x->shape.n ? x->shape.d[0] : n; // a scalar counts as a sample of its own
    a->per_sample = a->samples ? n / a->samples : 0;
    a->tiles = (a->per_sample + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    if (st->nhwc) {
        if (a->per_sample >= INT32_MAX) return dt_cuda_fail(s, "more than 2^31 elements per sample");
        a->channels = (uint32_t)x->shape.d[1]; // NHWC: a thread draws for four pixels of a channel
        a->pixels = (uint32_t)(a->per_sample / x->shape.d[1]);
        a->draws = a->pixels % 4 ? (a->pixels + 2) / 4 + 1 : a->pixels / 4; // an unaligned plane touches one draw more
        a->tiles = ((int64_t)a->channels * a->draws + BLOCK_DRAWS - 1) / BLOCK_DRAWS;
    }
    a->purpose = dt_hash32(dt_graph_origin(s->graph, s->node)->name);
    a->p = s->node->attrs.dropout.p;
    a->whole = s->node->attrs.dropout.whole; // whole: all of a sample or nothing
    s->in_layout[in_at] = s->out_layout[0] = layout;
    s->inplace_in = in_at;
    return DT_OK;
}
static dt_status dropout_cuda_prepare_forward(dt_kernel_instance *s) {
    return dropout_cuda_prepare_at(s, 0);
}
static dt_status dropout_cuda_prepare_backward(dt_kernel_instance *s) {
    return dropout_cuda_prepare_at(s, dt_cuda_pos_grad(s, 0));
}

static void dropout_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const dropout_state *st = s->state;
    dt_dropout_args a = st->a;
    a.x = r->in[st->in_at], a.out = r->out[0], a.step = r->step;
    const dt_cuda_grid g = {.blocks = a.samples * a.tiles, .threads = BLOCK_ELEMENTS / 8}; // 8 elements per thread
    if (g.blocks) dt_cuda_launch(dt_cuda_of(s), st->nhwc ? DT_K_dropout_nhwc : DT_K_dropout, g, &a, r->stream);
}

const dt_kernel dt_cuda_dropout = {dropout_cuda_prepare_forward, dropout_cuda_run, dt_cuda_destroy};
const dt_kernel dt_cuda_dropout_bwd = {dropout_cuda_prepare_backward, dropout_cuda_run, dt_cuda_destroy};
