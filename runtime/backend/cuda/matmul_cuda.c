// matmul_cuda.c: products by cuBLASLt.

#include "backend/cuda/kernels/elementwise_kernels.h"
#include "backend/cuda/kernels/weights_kernels.h"
#include "backend/cuda/weights_cuda.h"
#include "graph/activation_words.h"

// ---- linear -------------------------------------------------------------------------------------------------------

// Y = act(x W^T + b) by cuBLASLt, with x flattened to (rows, I), DENSE.
//
// The forward matmul's epilogue adds the bias, ReLU and the tanh form of GELU. Exact GELU (inference only) is a custom
// kernel behind it, because cuBLASLt has the tanh form only. Backward: dx = dy W, and dW = dy^T x goes straight into
// the f32 flat buffer, where it overwrites or adds. The same matmul produces db, the sum over dy's rows, in f32
// (through scratch if it adds, since the epilogue overwrites). If cuBLASLt has no algorithm with an epilogue, custom
// kernels do its work. In training the tanh form is the epilogue of the preceding matmul, which also outputs the
// GELU's input as output 1. Its slope is the epilogue of the matmul that makes dx behind it (passes/fuse.c). A
// fused ReLU has a gradient: dy is first masked by y > 0 into scratch.
//
// Scratch of the backward kernel instance: [ workspace | masked dy | db, or its partial sums ]

typedef struct linear_state {
    const dt_cuda_plan *forward, *data, *weights;
    const dt_cuda_pack *pack, *bias_pack;
    int64_t rows, n_in, n_out;   // x (rows, n_in), W (n_out, n_in)
    bool has_bias, masked, gelu; // gelu: exact, in a kernel of its own
    bool gelu_tanh;              // in a separate kernel, for want of a bias or an algorithm
    bool slope_behind;           // backward: GELU's slope in a custom kernel
    bool bias_beside;            // backward: the matmul of dW produces db
    int type;
    size_t at_dy, at_db;
} linear_state;

static linear_state *linear_cuda_start(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *w) {
    linear_state *st = dt_cuda_prepare_dense(s, sizeof *st);
    st->n_out = w->shape.d[0];
    st->n_in = w->shape.d[1];
    st->rows = dt_shape_elements(&x->shape) / st->n_in; // leading dimensions are rows
    return st;
}

static dt_gemm_desc linear_cuda_matmul(const dt_kernel_instance *s, dt_dtype type, int64_t m, int64_t n, int64_t k) {
    const dt_cuda *c = dt_cuda_of(s);
    return (dt_gemm_desc){.m = m,
                          .n = n,
                          .k = k,
                          .lda = k, // row-major, packed: leading dimension is the number of columns
                          .ldb = n,
                          .ldd = n,
                          .batch = 1,
                          .type = type,
                          .out_type = type,
                          .bias_type = type,
                          .alpha = 1.0f,
                          .tf32 = c->tf32,
                          .deterministic = c->deterministic};
}

// *out is NULL if cuBLASLt has no such matmul.
static dt_status try_plan(dt_kernel_instance *s, const dt_gemm_desc *d, const dt_cuda_plan **out) {
    DT_TRY(dt_cuda_kept(s, dt_cuda_plan_gemm(dt_cuda_of(s)->plans, d, out)));
    if (*out && s->scratch_bytes < dt_cuda_align((*out)->workspace_bytes)) // plans run one after another: one workspace
        s->scratch_bytes = dt_cuda_align((*out)->workspace_bytes);
    return DT_OK;
}

static dt_status linear_cuda_plan(dt_kernel_instance *s, const dt_gemm_desc *d, const dt_cuda_plan **out) {
    DT_TRY(try_plan(s, d, out));
    return *out ? DT_OK : dt_cuda_fail(s, "cuBLASLt has no matmul for it");
}

// ---- forward ---------------------------------------------------------------------------------------
static dt_status plan_forward(dt_kernel_instance *s, linear_state *st, const dt_value_info *x) {
    const dt_activation act = s->node->attrs.linear.act;
    dt_gemm_desc d = linear_cuda_matmul(s, x->dtype, st->rows, st->n_out, st->n_in);
    d.trans_b = true; // y = x W^T
    d.ldb = st->n_in;
    st->gelu = act == DT_ACTIVATION_gelu;
    if (act == DT_ACTIVATION_gelu_tanh && st->has_bias) { // the epilogue wants a bias
        d.epilogue = s->node->n_out > 1 ? DT_GEMM_BIAS_GELU_AUX : DT_GEMM_BIAS_GELU;
        DT_TRY(try_plan(s, &d, &st->forward));
        if (st->forward) return DT_OK;
    }
    st->gelu_tanh = act == DT_ACTIVATION_gelu_tanh;
    // cuBLASLt has no epilogue of ReLU alone here: it gets a packed bias of zeros
    d.epilogue = act == DT_ACTIVATION_relu   ? DT_GEMM_BIAS_RELU
                 : st->has_bias && !st->gelu ? DT_GEMM_BIAS
                                             : DT_GEMM_NONE;
    return linear_cuda_plan(s, &d, &st->forward);
}

static dt_status linear_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    linear_state *st = linear_cuda_start(s, x, dt_instance_in(s, 1));
    const bool relu = s->node->attrs.linear.act == DT_ACTIVATION_relu;
    DT_TRY(dt_cuda_type(s, &st->type, x, y));
    st->has_bias = s->node->n_in > 2 && s->node->in[2] != DT_NONE;
    DT_TRY(plan_forward(s, st, x));
    if (!dt_cuda_pack_is_copy(dt_instance_in(s, 1), x->dtype)) // a 16-bit or reordered copy
        st->pack = dt_cuda_pack_weight(s, s->node->in[1], x->dtype, NULL, NULL);
    if ((relu && !st->has_bias) || (st->has_bias && x->dtype != DT_F32)) // zeros, or the bias in the activations' type
        st->bias_pack = dt_cuda_pack_bias(s, st->has_bias ? s->node->in[2] : DT_NONE, st->n_out, x->dtype, NULL);
    return DT_OK;
}

static void linear_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const linear_state *st = s->state;
    const void *w = st->pack ? r->packed[0] : r->in[1];
    const void *bias = st->bias_pack ? r->packed[st->pack != NULL] : st->has_bias ? r->in[2] : NULL;
    void *before = s->node->n_out > 1 ? r->out[1] : NULL; // the input of the GELU
    void *y = st->gelu_tanh && before ? before : r->out[0];
    // aux: the GELU's input
    dt_cuda_run_gemm(s, st->forward, r->in[0], w, y, false, st->gelu ? NULL : bias, st->gelu_tanh ? NULL : before, r);
    dt_cuda *c = dt_cuda_of(s);
    const int64_t n = st->rows * st->n_out;
    if (st->gelu_tanh) {
        const dt_map_args a = {.x = y, .out = r->out[0], .n = n, .type = st->type};
        dt_cuda_launch(c, DT_K_gelu_tanh_fwd, dt_cuda_grid_flat(c, n), &a, r->stream);
    }
    if (!st->gelu) return;
    // exact GELU adds the bias itself
    const dt_bias_gelu_args a = {
        .x = r->out[0], .bias = bias, .n = n, .n_cols = st->n_out, .type = st->type, .bias_type = st->type};
    dt_cuda_launch(c, DT_K_bias_gelu, dt_cuda_grid_flat(c, n), &a, r->stream);
}

const dt_kernel dt_cuda_linear = {linear_cuda_prepare, linear_cuda_run, dt_cuda_destroy};

// ---- backward --------------------------------------------------------------------------------------
static dt_status plan_backward(dt_kernel_instance *s, linear_state *st, dt_dtype type) {
    const dt_node *n = s->node;
    if (n->out[0] != DT_NONE) {
        dt_gemm_desc d = linear_cuda_matmul(s, type, st->rows, st->n_in, st->n_out); // dx = dy W
        if (n->attrs.linear.dgelu) {
            d.epilogue = DT_GEMM_DGELU;
            DT_TRY(try_plan(s, &d, &st->data));
            st->slope_behind = !st->data; // no algorithm with the epilogue
            d.epilogue = DT_GEMM_NONE;
        }
        if (!st->data) DT_TRY(linear_cuda_plan(s, &d, &st->data));
    }
    if (n->out[1] != DT_NONE) {
        dt_gemm_desc d = linear_cuda_matmul(s, type, st->n_out, st->n_in, st->rows); // dW = dy^T x
        d.trans_a = true;
        d.lda = st->n_out;
        d.out_type = d.bias_type = DT_F32; // f32: the flat buffer
        d.epilogue = DT_GEMM_BGRAD;
        if (st->has_bias) DT_TRY(try_plan(s, &d, &st->weights));
        st->bias_beside = st->weights != NULL; // the epilogue sums dy's rows
        d.epilogue = DT_GEMM_NONE;
        if (!st->weights) DT_TRY(linear_cuda_plan(s, &d, &st->weights));
    }
    return DT_OK;
}

static dt_status linear_cuda_prepare_bwd(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    const int y = dt_cuda_pos_out(s, 0);
    const dt_value_info *dy = dt_instance_in(s, dt_cuda_pos_grad(s, 0));
    // the shapes of x and W, or of their gradients
    linear_state *st = linear_cuda_start(s, n->in[0] != DT_NONE ? dt_instance_in(s, 0) : dt_instance_out(s, 0),
                                         n->in[1] != DT_NONE ? dt_instance_in(s, 1) : dt_instance_out(s, 1));
    if (n->attrs.linear.act > DT_ACTIVATION_relu || (n->attrs.linear.act && n->in[y] == DT_NONE))
        return dt_cuda_fail(s, "the gradient of a fused GELU needs its input, that of a fused ReLU "
                               "its output; fuse GELU for inference only");
    DT_TRY(dt_cuda_type(s, &st->type, dy, dt_instance_in(s, 0)));
    st->masked = n->attrs.linear.act == DT_ACTIVATION_relu;
    st->has_bias = n->n_out > 2 && n->out[2] != DT_NONE;
    DT_TRY(plan_backward(s, st, dy->dtype));
    if (st->data && !dt_cuda_pack_is_copy(dt_instance_in(s, 1), dy->dtype))
        st->pack = dt_cuda_pack_weight(s, n->in[1], dy->dtype, NULL, NULL);
    st->at_dy = s->scratch_bytes; // the workspace comes first
    st->at_db = st->at_dy;
    if (st->masked) st->at_db += dt_cuda_align((size_t)(st->rows * st->n_out) * dt_dtype_size(dy->dtype));
    s->scratch_bytes = st->at_db;
    if (st->has_bias)
        // db in scratch, if it is added
        s->scratch_bytes += st->bias_beside ? dt_cuda_align((size_t)st->n_out * sizeof(float))
                                            : dt_cuda_column_bytes(st->rows, st->n_out);
    return DT_OK;
}

static void linear_cuda_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const linear_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    const void *dy = r->in[dt_cuda_pos_grad(s, 0)];
    if (st->masked) {
        const dt_map_args a = {.x = r->in[dt_cuda_pos_out(s, 0)],
                               .d = dy,
                               .out = (char *)r->scratch + st->at_dy,
                               .n = st->rows * st->n_out,
                               .type = st->type};
        dt_cuda_launch(c, DT_K_relu_bwd, dt_cuda_grid_flat(c, a.n), &a, r->stream);
        dy = a.out; // all products read the masked gradient
    }
    const bool add_bias = r->accumulate >> 2 & 1;
    if (st->weights) {
        // the epilogue overwrites: to scratch if db adds
        float *db = add_bias ? (float *)((char *)r->scratch + st->at_db) : r->out[2];
        dt_cuda_run_gemm(s, st->weights, dy, r->in[0], r->out[1], r->accumulate >> 1 & 1, st->bias_beside ? db : NULL,
                         NULL, r);
        if (st->bias_beside && add_bias) dt_cuda_flat_add(s->backend, r->out[2], db, st->n_out, r->stream);
    }
    if (st->has_bias && !st->bias_beside)
        dt_cuda_sum_columns(c, dy, (dt_dtype)st->type, st->rows, st->n_out, r->out[2], add_bias,
                            (char *)r->scratch + st->at_db, r->stream);
    if (!st->data) return;
    const void *z = s->node->attrs.linear.dgelu ? r->in[s->node->n_in - 1] : NULL; // the last input: GELU's argument
    dt_cuda_run_gemm(s, st->data, dy, st->pack ? r->packed[0] : r->in[1], r->out[0], false, NULL,
                     st->slope_behind ? NULL : (void *)z, r);
    if (st->slope_behind) {
        // in place: dx times the slope
        const dt_map_args a = {.x = z, .d = r->out[0], .out = r->out[0], .n = st->rows * st->n_in, .type = st->type};
        dt_cuda_launch(c, DT_K_gelu_tanh_bwd, dt_cuda_grid_flat(c, a.n), &a, r->stream);
    }
}

const dt_kernel dt_cuda_linear_bwd = {linear_cuda_prepare_bwd, linear_cuda_run_bwd, dt_cuda_destroy};

// ---- matmul -------------------------------------------------------------------------------------------------------

// C = alpha op(a) op(b) over leading batch dimensions, by cuBLASLt, DENSE. Transposition is a flag and
// copies nothing. The gradient is two matmul nodes (graph/ops/matmul.c), so there is no backward kernel.

static dt_status matmul_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1), *c = dt_instance_out(s, 0);
    const int n = a->shape.n, trans_a = s->node->attrs.matmul.trans_a, trans_b = s->node->attrs.matmul.trans_b;
    const dt_cuda *cuda = dt_cuda_of(s);
    const dt_cuda_plan *plan = NULL;
    int type;
    dt_cuda_prepare(s, 0);
    s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = dt_dense();
    DT_TRY(dt_cuda_type(s, &type, a, b, c));
    dt_gemm_desc d = {.m = c->shape.d[n - 2],
                      .n = c->shape.d[n - 1],
                      .k = a->shape.d[trans_a ? n - 2 : n - 1], // the summed dimension
                      .lda = a->shape.d[n - 1],
                      .ldb = b->shape.d[n - 1],
                      .ldd = c->shape.d[n - 1],
                      .batch = 1,
                      .trans_a = trans_a,
                      .trans_b = trans_b,
                      .type = a->dtype,
                      .out_type = c->dtype,
                      .bias_type = c->dtype,
                      .alpha = s->node->attrs.matmul.alpha,
                      .tf32 = cuda->tf32,
                      .deterministic = cuda->deterministic};
    for (int i = 0; i < n - 2; i++) d.batch *= a->shape.d[i]; // leading dimensions: equal in a and b
    d.stride_a = a->shape.d[n - 2] * a->shape.d[n - 1];
    d.stride_b = b->shape.d[n - 2] * b->shape.d[n - 1];
    d.stride_d = d.m * d.n; // dense matrices, one after another
    DT_TRY(dt_cuda_kept(s, dt_cuda_plan_gemm(cuda->plans, &d, &plan)));
    if (!plan) return dt_cuda_fail(s, "cuBLASLt has no matmul for it");
    dt_cuda_destroy(s);      // the state of dt_cuda_prepare is not needed
    s->state = (void *)plan; // the table's
    s->scratch_bytes = dt_cuda_align(plan->workspace_bytes);
    return DT_OK;
}

static void matmul_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    dt_cuda_run_gemm(s, s->state, r->in[0], r->in[1], r->out[0], false, NULL, NULL, r);
}

const dt_kernel dt_cuda_matmul = {matmul_cuda_prepare, matmul_cuda_run, NULL};
