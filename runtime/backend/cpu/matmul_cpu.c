// matmul_cpu.c: products by oneDNN.

#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_shim.h"
#include "backend/cpu/dnnl_weights.h"
#include "base/core.h"
#include "graph/activation_words.h"

// ---- linear -------------------------------------------------------------------------------------------------------

// Y = act(x W^T + b) as oneDNN matmuls over x flattened to (rows, I), DENSE.
//
// oneDNN's matmul was faster than its inner product in every direction, most of all for small batches. The
// weight gradient dy^T x goes straight to the flat buffer (dense f32), overwriting or adding, without a reorder.
// Forward and dx read packed weights in the activations' type.
//
// A fused ReLU has a gradient: dy is first masked by y > 0 into scratch. A fused GELU is oneDNN's in inference.
// In training (output 1, attrs.dgelu; the tanh form, see passes/fuse.c) it is the same loop, with the same
// bits, as the gelu op.
//
// Scratch of backward: [ scratchpad | masked dy | db ]

typedef struct linear_state {
    dt_dnnl_op *forward, *data, *weights, *weights_add; // weights_add: the same product, added to the flat buffer
    dt_weight_pack *pack;
    int64_t rows, n_in, n_out; // x (rows, n_in), W (n_out, n_in), y (rows, n_out)
    bool has_bias, masked;     // masked: backward of a fused ReLU
    int type;                  // DT_ROW_*
    size_t at_dy, at_db;       // offsets in scratch, bytes
} linear_state;

static void linear_cpu_destroy(dt_kernel_instance *s) {
    linear_state *st = s->state;
    if (!st) return;
    dt_dnnl_op_destroy(st->forward);
    dt_dnnl_op_destroy(st->data);
    dt_dnnl_op_destroy(st->weights);
    dt_dnnl_op_destroy(st->weights_add);
    dt_weight_pack_destroy(st->pack);
    dt_custom_destroy(s);
}

static linear_state *linear_cpu_start(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    // backward: x, or dx where x is not needed
    const dt_value_info *x = n->in[0] != DT_NONE ? dt_instance_in(s, 0) : dt_instance_out(s, 0);
    const dt_value_info *w = n->in[1] != DT_NONE ? dt_instance_in(s, 1) : dt_instance_out(s, 1);
    linear_state *st = dt_custom_prepare(s, sizeof *st);
    st->n_out = w->shape.d[0];
    st->n_in = w->shape.d[1];
    st->rows = dt_shape_elements(&x->shape) / st->n_in; // leading dimensions are rows
    st->type = dt_row_type(x->dtype);
    return st;
}

// ---- forward ---------------------------------------------------------------------------------------
static dt_status linear_cpu_build_forward(dt_kernel_instance *s, linear_state *st) {
    static const dt_fold no_fold = {.on = false};
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    st->has_bias = s->node->n_in > 2 && dt_instance_in(s, 2);
    dt_dnnl_matmul m = {.a = dt_dnnl_matrix(x->dtype, st->rows, st->n_in),
                        // oneDNN chooses the packed format of W^T
                        .b = dt_dnnl_any(x->dtype, 2, (int64_t[]){st->n_in, st->n_out}),
                        .dst = dt_dnnl_matrix(y->dtype, st->rows, st->n_out),
                        .alpha = 1.0f};
    // output 1: GELU is a loop of its own, which needs its input
    if (s->node->n_out == 1) m.after.act = s->node->attrs.linear.act;
    if (st->has_bias) m.bias = dt_dnnl_matrix(DT_F32, 1, st->n_out);
    DT_TRY(dt_dnnl_op_create_matmul(&st->forward, &env, &m));
    // W (n_out, n_in) read as (n_in, n_out)
    const dt_dnnl_tensor dense = dt_dnnl_transposed(DT_F32, st->n_in, st->n_out);
    s->scratch_bytes = dt_dnnl_op_scratch_bytes(st->forward);
    return dt_weight_pack_create(&st->pack, s, &s->packs[s->n_packs++], s->node->in[1], &dense,
                                 dt_dnnl_op_md(st->forward, 1), NULL, &no_fold);
}

static void linear_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const linear_state *st = s->state;
    void *dst = r->out[s->node->n_out > 1]; // output 1: x W^T + b before the GELU
    const void *with[] = {r->in[0], r->packed[0], st->has_bias ? r->in[2] : dst, dst};
    dt_dnnl_op_run(st->forward, r->replica, with, r->scratch); // without bias the third is the last
    if (s->node->n_out > 1) {
        const dt_map gelu = {.type = st->type,
                             .unary = dt_simd_get()->elementwise->activation[DT_ACTIVATION_gelu_tanh][st->type],
                             .y = r->out[0],
                             .x = dst};
        dt_custom_map(s->threads, st->rows * st->n_out, &gelu);
    }
}

// ---- backward --------------------------------------------------------------------------------------
static dt_status build_data(dt_kernel_instance *s, linear_state *st, const dt_dnnl_env *env, dt_dtype type) {
    static const dt_fold no_fold = {.on = false};
    const int64_t d[2] = {st->n_out, st->n_in};
    const dt_dnnl_matmul m = {.a = dt_dnnl_matrix(type, st->rows, st->n_out),
                              .b = dt_dnnl_any(type, 2, d), // packed W for dx = dy W
                              .dst = dt_dnnl_matrix(dt_instance_out(s, 0)->dtype, st->rows, st->n_in),
                              .alpha = 1.0f};
    DT_TRY(dt_dnnl_op_create_matmul(&st->data, env, &m));
    const dt_dnnl_tensor dense = dt_dnnl_matrix(DT_F32, st->n_out, st->n_in);
    return dt_weight_pack_create(&st->pack, s, &s->packs[s->n_packs++], s->node->in[1], &dense,
                                 dt_dnnl_op_md(st->data, 1), NULL, &no_fold);
}

static dt_status build_weights(dt_kernel_instance *s, linear_state *st, const dt_dnnl_env *env, dt_dtype type) {
    dt_dnnl_matmul m = {.a = dt_dnnl_transposed(type, st->n_out, st->rows), // dy^T
                        .b = dt_dnnl_matrix(dt_instance_in(s, 0)->dtype, st->rows, st->n_in),
                        .dst = dt_dnnl_matrix(DT_F32, st->n_out, st->n_in), // the flat buffer's layout, f32
                        .alpha = 1.0f};
    DT_TRY(dt_dnnl_op_create_matmul(&st->weights, env, &m));
    m.after.add = 1; // oneDNN's sum post-op: dst += product
    return dt_dnnl_op_create_matmul(&st->weights_add, env, &m);
}

static dt_status linear_cpu_build_backward(dt_kernel_instance *s, linear_state *st) {
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    const dt_node *n = s->node;
    const int y = n->n_fwd_in, dy = n->n_fwd_in + n->n_fwd_out; // positions of forward output 0 and of its gradient
    const dt_dtype type = dt_instance_in(s, dy)->dtype;
    if (n->attrs.linear.act > DT_ACTIVATION_relu || (n->attrs.linear.act && n->in[y] == DT_NONE)) {
        return dt_instance_fail(s, "the gradient of a fused GELU needs its input, that of a fused ReLU "
                                   "its output; fuse GELU for inference only");
    }
    st->masked = n->attrs.linear.act == DT_ACTIVATION_relu;
    st->has_bias = n->n_out > 2 && n->out[2] != DT_NONE;
    if (n->out[0] != DT_NONE) DT_TRY(build_data(s, st, &env, type));    // NONE: x needs no gradient
    if (n->out[1] != DT_NONE) DT_TRY(build_weights(s, st, &env, type)); // NONE: the weight is frozen
    dt_dnnl_op *const ops[] = {st->data, st->weights, st->weights_add};
    for (int i = 0; i < 3; i++) {
        const size_t b = dt_dnnl_op_scratch_bytes(ops[i]); // the primitives run one after another
        if (b > st->at_dy) st->at_dy = b;
    }
    const size_t dy_bytes = (size_t)(st->rows * st->n_out) * dt_dtype_size(type);
    st->at_db = st->at_dy + (st->masked ? dt_align_up(dy_bytes, 64) : 0);
    s->scratch_bytes = st->at_db + dt_align_up((size_t)st->n_out * sizeof(float), 64);
    return DT_OK;
}

static dt_status linear_cpu_prepare(dt_kernel_instance *s) {
    linear_state *st = linear_cpu_start(s); // frees what was made
    dt_status status = s->node->backward ? linear_cpu_build_backward(s, st) : linear_cpu_build_forward(s, st);
    if (status == DT_OK) return DT_OK;
    linear_cpu_destroy(s);
    return dt_fail_context(status, "linear '%s'", s->node->name);
}

// db = sum of dy's rows. Threads divide the columns, so rows are added in order.
static void sum_rows(const linear_state *st, float *db, const void *dy, int threads) {
    const int64_t n = st->rows * st->n_out;
// a fork costs more than a short sum
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && n > 32768)
    for (int t = 0; t < threads; t++) {
        int64_t b, e;
        dt_cpu_share(st->n_out, 32, t, threads, &b, &e); // 32 columns: two cache lines of f32
        for (int64_t i = b; i < e; i++) db[i] = 0.0f;    // not memset: a thread writes its own columns only
        for (int64_t row = 0; row < st->rows; row++) {
            const void *from = dt_row_at(st->type, dy, row * st->n_out + b);
            dt_simd_get()->elementwise->accumulate[st->type](db + b, from, e - b);
        }
    }
}

static void linear_cpu_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const linear_state *st = s->state;
    const int y = s->node->n_fwd_in;
    char *scratch = r->scratch;
    const void *dy = r->in[y + s->node->n_fwd_out];
    if (st->masked) {
        const dt_map mask = {.type = st->type,
                             .binary = dt_simd_get()->elementwise->activation_bwd[DT_ACTIVATION_relu][st->type],
                             .y = scratch + st->at_dy,
                             .x = r->in[y],
                             .d = dy};
        dt_custom_map(s->threads, st->rows * st->n_out, &mask);
        dy = scratch + st->at_dy; // dw, db and dx all read the masked gradient
    }
    if (st->weights) {
        const bool add = r->accumulate >> 1 & 1; // bit 1: output 1
        dt_dnnl_op_run(add ? st->weights_add : st->weights, r->replica, (const void *[]){dy, r->in[0], r->out[1]},
                       scratch);
    }
    if (st->has_bias) {
        float *db = (float *)(scratch + st->at_db);
        sum_rows(st, db, dy, s->threads);
        dt_cpu_store_sum(r->out[2], db, st->n_out, r->accumulate >> 2 & 1);
    }
    if (st->data) {
        dt_dnnl_op_run(st->data, r->replica, (const void *[]){dy, r->packed[0], r->out[0]}, scratch);
        if (s->node->attrs.linear.dgelu) { // dx is the gradient of GELU's output: times its slope
            const dt_map gelu = {.type = st->type,
                                 .binary =
                                     dt_simd_get()->elementwise->activation_bwd[DT_ACTIVATION_gelu_tanh][st->type],
                                 .y = r->out[0],
                                 .x = r->in[s->node->n_in - 1], // the last input: x before the GELU
                                 .d = r->out[0]};
            dt_custom_map(s->threads, st->rows * st->n_in, &gelu);
        }
    }
}

const dt_kernel dt_cpu_linear = {linear_cpu_prepare, linear_cpu_run, linear_cpu_destroy};
const dt_kernel dt_cpu_linear_bwd = {linear_cpu_prepare, linear_cpu_run_bwd, linear_cpu_destroy};

// ---- matmul -------------------------------------------------------------------------------------------------------

// C = alpha op(a) op(b) over leading batch dimensions, as oneDNN matmuls.
//
// Tensors are seen as (batch, rows, cols). Transposes are strides, so nothing is copied. The gradient is made
// of two matmul nodes (graph/ops/matmul.c), so there is no backward kernel.

typedef struct matrix {
    dt_dtype type;
    int64_t batch, rows, cols; // as stored
    bool trans;                // read transposed
} matrix;

static matrix matrix_of(const dt_value_info *v, bool trans) { // the last two dimensions; leading ones are the batch
    const dt_shape *s = &v->shape;
    matrix m = {.type = v->dtype, .batch = 1, .cols = s->d[s->n - 1], .trans = trans};
    m.rows = s->d[s->n - 2];
    for (int i = 0; i < s->n - 2; i++) m.batch *= s->d[i];
    return m;
}

static dt_dnnl_tensor matmul_cpu_tensor_of(const matrix *m) {
    dt_dnnl_tensor t = {.format = DT_DNNL_STRIDED, .type = m->type, .n = 3};
    t.d[0] = m->batch;
    t.d[1] = m->trans ? m->cols : m->rows;
    t.d[2] = m->trans ? m->rows : m->cols; // the transposed view swaps sizes and strides
    t.stride[0] = m->rows * m->cols;
    t.stride[1] = m->trans ? 1 : m->cols; // 1: a column of the stored matrix is a row here
    t.stride[2] = m->trans ? m->cols : 1;
    return t;
}

static void matmul_cpu_destroy(dt_kernel_instance *s) {
    dt_dnnl_op_destroy(s->state);
    s->state = NULL;
}

static dt_status matmul_cpu_prepare(dt_kernel_instance *s) {
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    dt_custom_prepare(s, 0);
    // oneDNN would accept some mixtures and round differently
    if (a->dtype != b->dtype) return dt_instance_fail(s, "both operands need one type; add a cast");
    const matrix ma = matrix_of(a, s->node->attrs.matmul.trans_a);
    const matrix mb = matrix_of(b, s->node->attrs.matmul.trans_b);
    const matrix mc = matrix_of(dt_instance_out(s, 0), false);
    const dt_dnnl_matmul m = {.a = matmul_cpu_tensor_of(&ma),
                              .b = matmul_cpu_tensor_of(&mb),
                              .dst = matmul_cpu_tensor_of(&mc),
                              .alpha = s->node->attrs.matmul.alpha};
    dt_dnnl_op *op = NULL;
    dt_status st = dt_dnnl_op_create_matmul(&op, &env, &m);
    if (st != DT_OK) return dt_fail_context(st, "matmul '%s'", s->node->name);
    s->state = op;
    s->scratch_bytes = dt_dnnl_op_scratch_bytes(op);
    return DT_OK;
}

static void matmul_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    // arguments a, b, dst
    dt_dnnl_op_run(s->state, r->replica, (const void *[]){r->in[0], r->in[1], r->out[0]}, r->scratch);
}

const dt_kernel dt_cpu_matmul = {matmul_cpu_prepare, matmul_cpu_run, matmul_cpu_destroy};
