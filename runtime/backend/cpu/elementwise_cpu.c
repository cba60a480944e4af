// elementwise_cpu.c: kernels over elements, on the CPU.

#include "backend/cpu/custom_kernel.h"
#include "base/hash.h"
#include "graph/activation_words.h"

#include <string.h>

// ---- activation ---------------------------------------------------------------------------------------------------

// ReLU, GELU (exact, or the tanh form) and the op activation in any layout, in place.
//
// ReLU's gradient reads the output, the others' the input. NaN passes through all. What is not 0 at 0 does not keep the
// zeros of padding channels, so where there are such the layout is DENSE.

typedef struct activation_state {
    int x_at, d_at; // inputs that are read: x (backward ReLU: y), and backward dy
    int64_t n;      // elements in memory, padding channels included
    dt_map map;     // function and number; pointers come with each run
} activation_state;

static const float at_zero[DT_N_ACTIVATIONS] = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = at_zero,
#include "graph/activations.def"
#undef ACTIVATION
};

static dt_layout activation_cpu_layout_of(const dt_node *node, dt_layout l, const dt_shape *x) {
    if (node->backward || l.kind != DT_BLOCKED) return l; // dy's padding channels are 0, and so is their gradient
    return at_zero[node->attrs.activation.kind] == 0 || x->d[1] % l.block == 0 ? l : dt_dense();
}

static dt_status activation_cpu_prepare(dt_kernel_instance *s) {
    const dt_node *node = s->node;
    // input 0 of forward and backward; ReLU's output at its place
    const int x_at = node->backward && node->op == DT_OP_relu ? dt_pos_out(s, 0) : 0;
    const int d_at = node->backward ? dt_pos_grad(s, 0) : x_at; // forward: d is x again
    const dt_value_info *x = dt_instance_in(s, x_at), *d = dt_instance_in(s, d_at);
    // keeps the layout of what comes in: no reorder
    const dt_layout layout = activation_cpu_layout_of(node, s->in_layout[x_at], &x->shape);
    activation_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->map.type, (const dt_value_info *[]){x, d, dt_instance_out(s, 0)}, 3));
    st->x_at = x_at;
    st->d_at = d_at;
    st->n = dt_layout_elements(layout, &x->shape);
    const dt_simd_elementwise *simd = dt_simd_get()->elementwise;
    const dt_activation kind = node->attrs.activation.kind;
    st->map.number = node->attrs.activation.number; // slope, alpha or the like of the activation
    if (node->backward)
        st->map.binary = simd->activation_bwd[kind][st->map.type];
    else
        st->map.unary = simd->activation[kind][st->map.type];
    s->in_layout[x_at] = s->in_layout[d_at] = s->out_layout[0] = layout;
    s->inplace_in = d_at; // dy's memory becomes dx, x's becomes y
    return DT_OK;
}

static void activation_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const activation_state *st = s->state;
    dt_map m = st->map; // a copy: threads of several worker groups share the state
    m.y = r->out[0];
    m.x = r->in[st->x_at];
    m.d = r->in[st->d_at];
    dt_custom_map(s->threads, st->n, &m);
}

const dt_kernel dt_cpu_relu = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_relu_bwd = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_gelu = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_gelu_bwd = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_activation = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_activation_bwd = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};

// ---- add ----------------------------------------------------------------------------------------------------------

// Y = a + b. b has a's shape (any layout, in place), or lacks leading dimensions and is added to
// each of the `outer` slices of a (DENSE). b may be f32 with a bf16 a, if it is a parameter.
//
// Backward sums dy over the leading dimensions and adds that to b's gradient. Threads divide the columns and
// each adds the slices in order, so the bits do not depend on the number of threads.

typedef struct add_state {
    int type;
    bool wide;            // b is f32, a is bf16
    int64_t outer, inner; // y is (outer, inner), b is (inner)
    dt_dtype sum_type;    // backward: of b's gradient
    const dt_simd_elementwise *simd;
} add_state;

// NumPy's broadcasting, from the right
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
    st->wide = st->type == DT_ROW_BF16 && b->dtype == DT_F32; // a bias stays f32 beside bf16 activations
    if (!st->wide && b->dtype != a->dtype)
        return dt_custom_fail(s, "cannot add %s to %s: insert a cast", dt_dtype_name(b->dtype),
                              dt_dtype_name(a->dtype));
    s->inplace_in = 0;                                                  // a's memory becomes y
    if (dt_shape_equal(&a->shape, &b->shape) && b->kind == DT_V_TEMP) { // two activations; a parameter is DENSE
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        st->outer = 1;
        st->inner = dt_layout_elements(layout, &a->shape);
        return DT_OK;
    }
    if (!add_cpu_trailing(&a->shape, &b->shape))
        return dt_custom_fail(s, "the second shape is not the end of the first");
    st->inner = dt_shape_elements(&b->shape);
    st->outer = st->inner ? dt_shape_elements(&a->shape) / st->inner : 0; // an empty b: nothing to do
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
        int64_t at = begin % st->inner, n = st->inner - at; // b begins again after `inner` elements
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
    dt_custom_ranges(s->threads, c.st->outer * c.st->inner, forward_range, &c); // threads take ranges of y, not of b
}

static dt_status add_cpu_prepare_backward(dt_kernel_instance *s) {
    const dt_value_info *dy = dt_instance_in(s, dt_pos_grad(s, 0)), *db = dt_instance_out(s, 1);
    add_state *st = dt_custom_prepare(s, sizeof(*st));
    st->simd = dt_simd_get()->elementwise;
    DT_TRY(dt_custom_type(s, &st->type, &dy, 1));
    // b's gradient is f32 for a parameter, bf16 for an activation
    if (dt_row_type(db->dtype) < 0 || !add_cpu_trailing(&dy->shape, &db->shape))
        return dt_custom_fail(s, "the second gradient is not the end of the first, in f32 or bf16");
    st->inner = dt_shape_elements(&db->shape);
    st->outer = st->inner ? dt_shape_elements(&dy->shape) / st->inner : 0;
    st->sum_type = db->dtype;
    // narrow sums and gradients that accumulate need an f32 sum first
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
    for (int64_t o = 0; o < st->outer; o++) // in order of the slices: a fixed order of additions
        st->simd->accumulate[st->type](sum, dt_row_at(st->type, c->dy, o * st->inner + begin), end - begin);
    // rounded once, after all additions
    if (c->narrow) st->simd->to_bf16((uint16_t *)c->narrow + begin, sum, end - begin);
    if (c->there) st->simd->accumulate[DT_ROW_F32](c->there + begin, sum, end - begin);
}

static void add_cpu_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const add_state *st = s->state;
    const bool narrow = st->sum_type == DT_BF16, adds = r->accumulate >> 1 & 1; // bit 1: output 1 adds to what is there
    sum_call c = {.st = st,
                  .sum = narrow || adds ? r->scratch : r->out[1], // the result itself where it is f32 and not added to
                  .narrow = narrow ? r->out[1] : NULL,
                  .there = adds ? r->out[1] : NULL,
                  .dy = r->in[dt_pos_grad(s, 0)]};
    dt_custom_ranges(s->threads, st->inner, sum_range, &c); // divides columns
}

const dt_kernel dt_cpu_add = {add_cpu_prepare_forward, add_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_add_bwd = {add_cpu_prepare_backward, add_cpu_run_backward, dt_custom_destroy};

// ---- mul ----------------------------------------------------------------------------------------------------------

// Y = a * b (graph/ops/elementwise.c: how b may repeat; dt_times: the form of repetition here).
//
//   same shape   any layout, in place
//   a row        a DENSE (rows, cols)
//   channels     a BLOCKED, (images, blocks, pixels, block); b one row of channels, or one for each image
//
// Rows of b are widened to f32 in scratch, padded to whole blocks. Backward sums a * dy into the same places, each
// block of an image by one thread, or for rows in a fixed number of runs which are added in order: the bits do not
// depend on the number of threads.

enum { RUNS = 16 }; // runs of rows, whatever the number of threads

typedef struct mul_state {
    int type; // kinds of repetition, with rows, columns, images
    dt_times t;
    int64_t block, blocks; // of a channel form
    int64_t padded;        // floats of a row in scratch
    const dt_simd_elementwise *simd;
} mul_state;

static int64_t rows_of_b(const mul_state *st) {
    return st->t.each ? st->t.images : 1; // one row per image, or one for all
}

// a: the larger operand; b: what repeats.
static dt_status mul_cpu_read_shapes(dt_kernel_instance *s, const dt_value_info *a, const dt_value_info *b) {
    mul_state *st = dt_custom_prepare(s, sizeof *st);
    st->simd = dt_simd_get()->elementwise;
    if (!dt_times_of(&a->shape, &b->shape, &st->t)) // repetition that no kernel here has
        return dt_custom_fail(s, "the second shape does not repeat over the first");
    if (dt_row_type(b->dtype) < 0) return dt_custom_fail(s, "cannot multiply by %s", dt_dtype_name(b->dtype));
    st->block = st->padded = st->t.cols; // rows: a block is a whole row
    if (!st->t.channels) return DT_OK;
    st->block = dt_simd_get()->width;
    st->blocks = (st->t.cols + st->block - 1) / st->block;
    st->padded = st->blocks * st->block; // padding channels multiply by 0
    return DT_OK;
}

static dt_status mul_cpu_prepare_forward(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    DT_TRY(mul_cpu_read_shapes(s, a, b));
    mul_state *st = s->state;
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){a, dt_instance_out(s, 0)}, 2));
    s->inplace_in = 0;
    if (st->t.same && b->kind == DT_V_TEMP && b->dtype == a->dtype) { // same shape and type, any layout
        st->t.cols = dt_layout_elements(layout, &a->shape);
        s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = layout;
        return DT_OK;
    }
    st->t.same = false; // a parameter of the same shape is DENSE: read as rows
    if (st->t.channels) s->in_layout[0] = s->out_layout[0] = dt_custom_blocked(); // channels repeat over pixels
    s->scratch_bytes = (size_t)(rows_of_b(st) * st->padded) * sizeof(float);      // f32 copy of b
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
        return (mul_item){i * st->t.rows * st->block, st->t.rows, // blocks follow each other in memory, images too
                          (st->t.each ? image * st->padded : 0) + block * st->block};
    }
    // begins and ends depend on RUNS only
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
    memset(c.rows, 0, s->scratch_bytes); // padding stays 0
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
    // one row of sums per image or run
    s->scratch_bytes = (size_t)((st->t.channels ? st->t.images : RUNS) * st->padded) * sizeof(float);
    return DT_OK;
}

// Each item has sums of its own: a row of scratch for an image, or for a run.
static void backward_item(const void *ctx, int64_t i, int64_t end) {
    const mul_call *c = ctx;
    const mul_state *st = c->st;
    const mul_item m = item_of(st, i);
    // an image's blocks lie side by side: i counts them
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
    // in order of images or runs; row 0 is the total
    for (int64_t i = rows; i < sums; i++) st->simd->accumulate[DT_ROW_F32](c.rows, c.rows + i * st->padded, st->t.cols);
    for (int64_t i = 0; i < rows; i++) {
        const float *sum = c.rows + i * st->padded;
        void *to = dt_row_at_mut(dt_row_type(db->dtype), r->out[1], i * st->t.cols); // place of row i in db
        if (r->accumulate >> 1 & 1)
            // a parameter's gradient: f32, accumulates over micro-batches
            st->simd->accumulate[DT_ROW_F32](to, sum, st->t.cols);
        else if (db->dtype == DT_BF16)
            st->simd->to_bf16(to, sum, st->t.cols);
        else
            memcpy(to, sum, (size_t)st->t.cols * sizeof *sum);
    }
}

const dt_kernel dt_cpu_mul = {mul_cpu_prepare_forward, mul_cpu_run_forward, dt_custom_destroy};
const dt_kernel dt_cpu_mul_bwd = {mul_cpu_prepare_backward, mul_cpu_run_backward, dt_custom_destroy};

// ---- cast ---------------------------------------------------------------------------------------------------------

// F32 <-> bf16 (nearest even) in any layout. Its gradient is a cast.

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
    if (st->from < 0 || st->to < 0 || st->from == st->to) // f16 exists on GPUs only
        return dt_custom_fail(s, "no cast from %s to %s on the CPU", dt_dtype_name(x->dtype), dt_dtype_name(y->dtype));
    st->n = dt_layout_elements(layout, &x->shape);
    st->simd = dt_simd_get()->elementwise;
    s->in_layout[0] = s->out_layout[0] = layout; // element by element: layouts do not matter
    return DT_OK;
}

static void cast_cpu_range(const void *ctx, int64_t begin, int64_t end) {
    const dt_one_to_one *c = ctx;
    const cast_state *st = c->state;
    void *y = dt_row_at_mut(st->to, c->y, begin);
    const void *x = dt_row_at(st->from, c->x, begin);
    if (st->to == DT_ROW_BF16) // to nearest, ties to even
        st->simd->to_bf16(y, x, end - begin);
    else
        st->simd->to_f32(y, x, end - begin);
}

static void cast_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const cast_state *st = s->state;
    dt_custom_ranges(s->threads, st->n, cast_cpu_range, &(dt_one_to_one){st, r->out[0], r->in[0]});
}

const dt_kernel dt_cpu_cast = {cast_cpu_prepare, cast_cpu_run, dt_custom_destroy};

// ---- scale --------------------------------------------------------------------------------------------------------

// Y = alpha x. Any layout, in place. Its gradient is a scale node.

typedef struct scale_state {
    int64_t n;
    dt_map map;
} scale_state;

static dt_status scale_cpu_prepare(dt_kernel_instance *s) {
    dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_instance_in(s, 0);
    scale_state *st = dt_custom_prepare(s, sizeof(*st));
    dt_map *m = &st->map;
    DT_TRY(dt_custom_type(s, &m->type, (const dt_value_info *[]){x, dt_instance_out(s, 0)}, 2));
    st->n = dt_layout_elements(layout, &x->shape);
    m->number = s->node->attrs.scale.alpha; // the gradient is a scale by the same alpha
    m->unary = dt_simd_get()->elementwise->scale[m->type];
    s->in_layout[0] = s->out_layout[0] = layout;
    s->inplace_in = 0;
    return DT_OK;
}

static void scale_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const scale_state *st = s->state;
    dt_map m = st->map;
    m.y = r->out[0], m.x = r->in[0]; // elements on both sides
    dt_custom_map(s->threads, st->n, &m);
}

const dt_kernel dt_cpu_scale = {scale_cpu_prepare, scale_cpu_run, dt_custom_destroy};

// ---- dropout ------------------------------------------------------------------------------------------------------

// Y = keep ? x / (1 - p) : 0. Backward applies the same function to dy. The mask is a pure
// function of (seed, step, slot, forward node's name, logical element within the sample), so backward computes
// it again. DENSE, so that memory order is the logical order.

typedef struct dropout_state {
    int type, in_at, whole; // whole: all of a sample or nothing (stochastic depth)
    float p;
    uint32_t purpose;
    int64_t per_sample, n; // elements
    const dt_simd_elementwise *simd;
} dropout_state;

static dt_status dropout_cpu_prepare(dt_kernel_instance *s) {
    const dt_node *node = s->node;
    const int in_at = node->backward ? dt_pos_grad(s, 0) : 0;
    const dt_value_info *x = dt_instance_in(s, in_at);
    dropout_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){x, dt_instance_out(s, 0)}, 2));
    st->in_at = in_at;
    st->p = node->attrs.dropout.p;
    st->whole = node->attrs.dropout.whole;
    // the forward node's name: backward draws the same numbers
    st->purpose = dt_hash32(dt_graph_origin(s->graph, node)->name);
    st->n = dt_shape_elements(&x->shape);
    st->per_sample = x->shape.n ? st->n / x->shape.d[0] : 1;
    st->simd = dt_simd_get()->elementwise;
    s->inplace_in = in_at; // backward: dy's memory becomes dx
    return DT_OK;
}

typedef struct dropout_call {
    const dropout_state *st;
    const dt_step_block *step;
    void *y;
    const void *x;
} dropout_call;

static void dropout_cpu_range(const void *ctx, int64_t begin, int64_t end) {
    const dropout_call *c = ctx;
    const dropout_state *st = c->st;
    while (begin < end) {
        int64_t sample = begin / st->per_sample, at = begin % st->per_sample; // element counted within its sample
        int64_t n = st->per_sample - at, lead = at % 4;                       // Philox gives four numbers per block
        if (n > end - begin) n = end - begin;
        // slot in the global batch: independent of ranks
        dt_rng rng = {c->step->seed, c->step->slot + (uint32_t)sample, c->step->step, st->purpose};
        const void *x = dt_row_at(st->type, c->x, begin);
        void *y = dt_row_at_mut(st->type, c->y, begin);
        if (st->whole) {
            const bool keep = dt_rng_uniform(&rng, 0) >= st->p;                      // one number for the whole sample
            st->simd->scale[st->type](y, x, keep ? 1.0f / (1.0f - st->p) : 0.0f, n); // 1 / (1 - p): the mean stays
        } else if (lead) { // starts inside a block of four numbers: go to its end
            if (n > 4 - lead) n = 4 - lead;
            for (int64_t i = 0; i < n; i++) {
                bool keep = dt_rng_uniform(&rng, (uint32_t)(at + i)) >= st->p; // one call per number: at most three
                st->simd->scale[st->type](dt_row_at_mut(st->type, y, i), dt_row_at(st->type, x, i),
                                          keep ? 1.0f / (1.0f - st->p) : 0.0f, 1);
            }
        } else
            st->simd->dropout[st->type](y, x, &rng, st->p, (uint32_t)at, n); // from here on whole blocks of four
        begin += n;
    }
}

static void dropout_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const dropout_state *st = s->state;
    dropout_call c = {st, r->step, r->out[0], r->in[st->in_at]};
    dt_custom_ranges(s->threads, st->n, dropout_cpu_range, &c);
}

const dt_kernel dt_cpu_dropout = {dropout_cpu_prepare, dropout_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_dropout_bwd = {dropout_cpu_prepare, dropout_cpu_run, dt_custom_destroy};
