// cuda_dnn_graph.c: the cuDNN graphs of the five kinds of description. See cuda_dnn_graph.h.
//
// cuDNN takes a graph made of descriptors: tensors (type, dimensions, strides, an id), the operations between them,
// and the graph. Tensors between two operations are virtual and have ids from VIRTUAL_ID on.
//
// Graphs
//   CONV_FWD    conv [-> + bias] [-> relu | gelu], or conv -> sums of y and y^2 for each channel (GEN_STATS)
//   CONV_DGRAD, CONV_WGRAD  one operation
//   normed      x * gain + shift -> relu in front of CONV_FWD with sums or CONV_WGRAD. fp32 in between, fp16 in front
//               of the convolution. Precompiled engines require gain and shift in fp16 and, in CONV_FWD, the sums
//   SDPA_FWD    cuDNN's unified operation with statistics
//   SDPA_BWD    the 18 operations that cuDNN recognizes as flash attention's backward pass (9.19 refuses the unified
//               operation for it): rowsum(dy*y), P = exp(scale q k' - lse), dv = P' dy, dS = P (dy v' - rowsum) scale,
//               dk = dS' q, dq32 += dS k, dq = dq32. That sum has no fixed order. Deterministic: dq = dS k, for which
//               cuDNN keeps dS in its workspace. Engine notes do not tell the two apart, so the graph must
#include "backend/cuda/cuda_dnn_graph.h"

#include "backend/cuda/cuda_dnn.h"
#include "graph/activation_words.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { VIRTUAL_ID = 1000 };

typedef cudnnBackendDescriptor_t descriptor;

// ---- errors: cuDNN forgets its text with the next call, so it is kept at once ----------------------
static _Thread_local char last_error[512];

cudnnStatus_t dt_dnn_note(cudnnStatus_t s, const char *doing) {
    if (s == CUDNN_STATUS_SUCCESS) return s;
    char text[400] = "";
    cudnnGetLastErrorString(text, sizeof text); // must be read before the next call
    snprintf(last_error, sizeof last_error, "%s: %s%s%s", doing, cudnnGetErrorString(s), text[0] ? ": " : "", text);
    return s;
}

void dt_dnn_note_text(const char *text) {
    snprintf(last_error, sizeof last_error, "%s", text);
}

const char *dt_cudnn_last_error(void) {
    return last_error;
}

// ---- descriptors: the first failure is kept, later calls do nothing ---------------------------------
static descriptor cuda_dnn_graph_make(dt_dnn_graph *g, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    g->status = g->n_made < DT_DNN_MAX_DESCRIPTORS // the array of made descriptors is full: a bug
                    ? dt_dnn_note(cudnnBackendCreateDescriptor(type, &d), "creating a descriptor")
                    : CUDNN_STATUS_INTERNAL_ERROR;
    if (g->status != CUDNN_STATUS_SUCCESS) return d; // d may be NULL: later calls return at once
    g->made[g->n_made++] = d;
    return d;
}

static void set(dt_dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t n, const void *value) {
    if (g->status != CUDNN_STATUS_SUCCESS) return;
    g->status = dt_dnn_note(cudnnBackendSetAttribute(d, name, type, n, value), "setting an attribute");
}

static void set_int(dt_dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, int64_t n, const int64_t *v) {
    set(g, d, name, CUDNN_TYPE_INT64, n, v);
}
static void set_type(dt_dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, cudnnDataType_t v) {
    set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &v);
}
static void set_float(dt_dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, float v) {
    set(g, d, name, CUDNN_TYPE_FLOAT, 1, &v);
}
static void set_desc(dt_dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor v) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v);
}

static void cuda_dnn_graph_finish(dt_dnn_graph *g, descriptor d, const char *what) {
    if (g->status == CUDNN_STATUS_SUCCESS) g->status = dt_dnn_note(cudnnBackendFinalize(d), what);
}

static void add_op(dt_dnn_graph *g, descriptor op, const char *what) {
    cuda_dnn_graph_finish(g, op, what); // finalized operations only
    if (g->status == CUDNN_STATUS_SUCCESS) g->ops[g->n_ops++] = op;
}

// ---- tensors ---------------------------------------------------------------------------------------
static cudnnDataType_t cuda_dnn_graph_data_type(dt_dtype t) {
    return t == DT_BF16 ? CUDNN_DATA_BFLOAT16 : t == DT_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

// id 0: virtual.
static descriptor cuda_dnn_graph_tensor(dt_dnn_graph *g, cudnnDataType_t type, int64_t id, const int64_t *dims,
                                        const int64_t *strides, bool by_value) {
    descriptor d = cuda_dnn_graph_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t align = by_value ? 4 : 16; // bytes: cuDNN's kernels want 16
    const bool is_virtual = id == 0;
    if (is_virtual) id = VIRTUAL_ID + g->next_virtual++; // ids must be unique in the graph
    set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set_int(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims); // dimensions: always four
    set_int(g, d, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_int(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value) set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    cuda_dnn_graph_finish(g, d, "a tensor");
    return d;
}

// (n,c,h,w) stored as NHWC. A weight (K,C,R,S) stored as KRSC has the same form.
static descriptor image(dt_dnn_graph *g, cudnnDataType_t type, int64_t id, int64_t n, int64_t c, int64_t h, int64_t w) {
    // strides of NHWC: c is the fastest
    return cuda_dnn_graph_tensor(g, type, id, (const int64_t[]){n, c, h, w}, (const int64_t[]){h * w * c, 1, w * c, c},
                                 false);
}

static descriptor cuda_dnn_graph_scalar(dt_dnn_graph *g, int64_t id) {
    static const int64_t one[4] = {1, 1, 1, 1};
    g->n_scalars++; // counted behind the pointers (dt_cudnn_run)
    return cuda_dnn_graph_tensor(g, CUDNN_DATA_FLOAT, id, one, one, true);
}

// ---- operations ------------------------------------------------------------------------------------
static void pointwise(dt_dnn_graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor y) {
    descriptor p = cuda_dnn_graph_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(g, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT); // math in f32
    cuda_dnn_graph_finish(g, p, "a pointwise mode");
    descriptor op = cuda_dnn_graph_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b); // NULL: unary
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op, "a pointwise operation");
}

static void cuda_dnn_graph_matmul(dt_dnn_graph *g, descriptor a, descriptor b, descriptor c) {
    descriptor m = cuda_dnn_graph_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    cuda_dnn_graph_finish(g, m, "a matmul's type");
    descriptor op = cuda_dnn_graph_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    add_op(g, op, "a matmul");
}

static void cuda_dnn_graph_reshape(dt_dnn_graph *g, descriptor x, descriptor y) { // cuDNN's name of a transposition
    descriptor op = cuda_dnn_graph_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op, "a transposition");
}

static void cuda_dnn_graph_sum(dt_dnn_graph *g, descriptor x, descriptor y) {
    const cudnnReduceTensorOp_t add = CUDNN_REDUCE_TENSOR_ADD;
    descriptor r = cuda_dnn_graph_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &add);
    set_type(g, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    cuda_dnn_graph_finish(g, r, "a sum's kind");
    descriptor op = cuda_dnn_graph_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    add_op(g, op, "a sum");
}

static void channel_sums(dt_dnn_graph *g, descriptor y, descriptor sums, descriptor squares) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM; // sum and sum of squares
    descriptor op = cuda_dnn_graph_make(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set_type(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums);
    set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    add_op(g, op, "sums of channels");
}

// relu(x gain + shift), virtual. id: gain's; shift has the next one.
static descriptor normed(dt_dnn_graph *g, descriptor x, int64_t id) {
    const dt_dnn_desc *d = &g->desc;
    const cudnnDataType_t t = cuda_dnn_graph_data_type(d->type), f32 = CUDNN_DATA_FLOAT;
    descriptor gain = image(g, t, id, 1, d->c, 1, 1), shift = image(g, t, id + 1, 1, d->c, 1, 1);
    descriptor scaled = image(g, f32, 0, d->n, d->c, d->h, d->w); // f32 between the operations
    descriptor shifted = image(g, f32, 0, d->n, d->c, d->h, d->w);
    descriptor y = image(g, t, 0, d->n, d->c, d->h, d->w); // back to the type of the convolution's input
    pointwise(g, CUDNN_POINTWISE_MUL, x, gain, scaled);
    pointwise(g, CUDNN_POINTWISE_ADD, scaled, shift, shifted);
    pointwise(g, CUDNN_POINTWISE_RELU_FWD, shifted, NULL, y);
    return y;
}

// Attribute names of the three directions, in the order of dt_dnn_kind.
#define CONV(op, attr, x, w, y)                                                                                        \
    {                                                                                                                  \
        CUDNN_BACKEND_OPERATION_CONVOLUTION_##op##_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_##x,          \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_##w, CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_##y,              \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_ALPHA,      \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##attr##_BETA                                                             \
    }
static const struct {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
} conv_names[3] = {CONV(FORWARD, FORWARD, X, W, Y), CONV(BACKWARD_DATA, BWD_DATA, DX, W, DY),
                   CONV(BACKWARD_FILTER, BWD_FILTER, X, DW, DY)};

static descriptor window(dt_dnn_graph *g, const dt_window *w) {
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION; // not flipped: as in PyTorch
    const int64_t dims = 2, begin[2] = {w->pad_begin[0], w->pad_begin[1]}, end[2] = {w->pad_end[0], w->pad_end[1]},
                  stride[2] = {w->stride[0], w->stride[1]}, dilation[2] = {w->dilation[0], w->dilation[1]};
    descriptor d = cuda_dnn_graph_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT); // accumulates in f32
    set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dims);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, begin);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, end);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, stride);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, dilation);
    cuda_dnn_graph_finish(g, d, "a convolution's window");
    return d;
}

static void build_conv(dt_dnn_graph *g) {
    const dt_dnn_desc *d = &g->desc;
    const cudnnDataType_t t = cuda_dnn_graph_data_type(d->type), f32 = CUDNN_DATA_FLOAT;
    const int64_t rows = d->win.kernel[0], cols = d->win.kernel[1];
    // f32 between convolution, bias and activation
    const bool fused = d->kind == DT_DNN_CONV_FWD && (d->bias || d->act != DT_ACTIVATION_none);
    // positions of x, w, y in the caller's pointers
    static const int at[3][3] = {{1, 2, 3}, {3, 2, 1}, {1, 3, 2}};
    const int *id = at[d->kind];
    descriptor x = image(g, t, id[0], d->n, d->c, d->h, d->w);
    if (d->normed) x = normed(g, x, g->n_ptr - 1); // gain and shift are the last two pointers
    descriptor w = image(g, t, id[1], d->k, d->c / d->groups, rows, cols);
    // virtual if an operation follows
    descriptor y = image(g, fused ? f32 : t, fused ? 0 : id[2], d->n, d->k, d->out_h, d->out_w);
    descriptor op = cuda_dnn_graph_make(g, conv_names[d->kind].op);
    set_desc(g, op, conv_names[d->kind].x, x);
    set_desc(g, op, conv_names[d->kind].w, w);
    set_desc(g, op, conv_names[d->kind].y, y);
    set_desc(g, op, conv_names[d->kind].conv, window(g, &d->win));
    set_float(g, op, conv_names[d->kind].alpha, 1.0f);
    set_float(g, op, conv_names[d->kind].beta, 0.0f); // beta 0: overwrites
    add_op(g, op, "a convolution");
    if (d->kind != DT_DNN_CONV_FWD) return;
    if (d->sums) {
        channel_sums(g, y, image(g, f32, 4, 1, d->k, 1, 1), image(g, f32, 5, 1, d->k, 1, 1));
        return;
    }
    if (d->bias) {
        const bool last = d->act == DT_ACTIVATION_none;
        descriptor bias = image(g, t, 4, 1, d->k, 1, 1);
        // the last operation writes y
        descriptor z = image(g, last ? t : f32, last ? id[2] : 0, d->n, d->k, d->out_h, d->out_w);
        pointwise(g, CUDNN_POINTWISE_ADD, y, bias, z);
        y = z;
    }
    assert(d->act <= DT_ACTIVATION_gelu); // passes fuse no other
    if (d->act != DT_ACTIVATION_none)
        pointwise(g, d->act == DT_ACTIVATION_relu ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_GELU_FWD, y, NULL,
                  image(g, t, id[2], d->n, d->k, d->out_h, d->out_w));
}

// (n, heads, rows, d) with strides s for n, head and row; or its transpose, (n, heads, d, rows).
static descriptor heads_of(dt_dnn_graph *g, cudnnDataType_t type, int64_t id, int64_t rows, const int64_t s[3],
                           bool transposed) {
    const dt_dnn_desc *d = &g->desc;
    const int64_t dims[2][4] = {{d->n, d->heads, rows, d->d}, {d->n, d->heads, d->d, rows}};
    const int64_t strides[2][4] = {{s[0], s[1], s[2], 1}, {s[0], s[1], 1, s[2]}}; // transposed by strides: no copy
    return cuda_dnn_graph_tensor(g, type, id, dims[transposed], strides[transposed], false);
}

// One number for each row, f32, dense.
static descriptor row_numbers(dt_dnn_graph *g, int64_t id) {
    const dt_dnn_desc *d = &g->desc;
    return cuda_dnn_graph_tensor(g, CUDNN_DATA_FLOAT, id, (const int64_t[]){d->n, d->heads, d->tq, 1},
                                 (const int64_t[]){d->heads * d->tq, d->tq, 1, 1}, false);
}

// Scores (n, heads, tq, tk), virtual; or their transpose.
static descriptor scores(dt_dnn_graph *g, cudnnDataType_t type, bool transposed) {
    const dt_dnn_desc *d = &g->desc;
    const int64_t all = d->heads * d->tq * d->tk, one = d->tq * d->tk; // elements of all heads of a sample, of one head
    const int64_t dims[2][4] = {{d->n, d->heads, d->tq, d->tk}, {d->n, d->heads, d->tk, d->tq}};
    const int64_t strides[2][4] = {{all, one, d->tk, 1}, {all, one, 1, d->tk}};
    return cuda_dnn_graph_tensor(g, type, 0, dims[transposed], strides[transposed], false);
}

static void build_sdpa_forward(dt_dnn_graph *g) {
    const dt_dnn_desc *d = &g->desc;
    const cudnnDataType_t t = cuda_dnn_graph_data_type(d->type);
    descriptor op = cuda_dnn_graph_make(g, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, heads_of(g, t, 1, d->tq, d->stride_q, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, heads_of(g, t, 2, d->tk, d->stride_k, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, heads_of(g, t, 3, d->tk, d->stride_v, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, heads_of(g, t, 4, d->tq, d->stride_y, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, row_numbers(g, 5)); // log-sum-exp per row, for backward
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, cuda_dnn_graph_scalar(g, 6));
    add_op(g, op, "attention");
}

static void build_sdpa_backward(dt_dnn_graph *g) {
    const dt_dnn_desc *d = &g->desc;
    const cudnnDataType_t t = cuda_dnn_graph_data_type(d->type), f32 = CUDNN_DATA_FLOAT;
    const int64_t dense[3] = {d->heads * d->tq * d->d, d->tq * d->d, d->d}; // q's shape, dense
    descriptor q = heads_of(g, t, 1, d->tq, d->stride_q, false);
    descriptor kt = heads_of(g, t, 2, d->tk, d->stride_k, true);
    descriptor vt = heads_of(g, t, 3, d->tk, d->stride_v, true);
    descriptor y = heads_of(g, t, 4, d->tq, d->stride_y, false);
    descriptor dy = heads_of(g, t, 5, d->tq, d->stride_y, false);
    descriptor lse = row_numbers(g, 6);
    descriptor dq = heads_of(g, t, 7, d->tq, d->stride_q, false);
    descriptor dk = heads_of(g, t, 8, d->tk, d->stride_k, false);
    descriptor dv = heads_of(g, t, 9, d->tk, d->stride_v, false);
    descriptor row_sum = row_numbers(g, 11);
    descriptor scale = cuda_dnn_graph_scalar(g, 12), one = cuda_dnn_graph_scalar(g, 13);

    descriptor dyy = heads_of(g, f32, 0, d->tq, dense, false), raw = row_numbers(g, 0);
    pointwise(g, CUDNN_POINTWISE_MUL, dy, y, dyy);
    cuda_dnn_graph_sum(g, dyy, raw);
    pointwise(g, CUDNN_POINTWISE_MUL, raw, one,
              row_sum); // dropout's scale in cuDNN's pattern

    descriptor s = scores(g, f32, false), scaled = scores(g, f32, false);
    descriptor shifted = scores(g, f32, false), p = scores(g, f32, false), pt = scores(g, t, true);
    cuda_dnn_graph_matmul(g, q, kt, s);
    pointwise(g, CUDNN_POINTWISE_MUL, s, scale, scaled);
    pointwise(g, CUDNN_POINTWISE_SUB, scaled, lse, shifted);
    pointwise(g, CUDNN_POINTWISE_EXP, shifted, NULL, p);
    cuda_dnn_graph_reshape(g, p, pt);
    cuda_dnn_graph_matmul(g, pt, dy, dv);

    descriptor dp = scores(g, f32, false), centred = scores(g, f32, false);
    descriptor weighted = scores(g, f32, false), ds = scores(g, f32, false);
    descriptor dst = scores(g, t, true);
    cuda_dnn_graph_matmul(g, dy, vt, dp);
    pointwise(g, CUDNN_POINTWISE_SUB, dp, row_sum, centred);
    pointwise(g, CUDNN_POINTWISE_MUL, centred, p, weighted);
    pointwise(g, CUDNN_POINTWISE_MUL, weighted, scale, ds);
    cuda_dnn_graph_reshape(g, ds, dst);
    cuda_dnn_graph_matmul(g, dst, q, dk); // dk = dS' q

    descriptor k = heads_of(g, t, 0, d->tk, d->stride_k, false);
    cuda_dnn_graph_reshape(g, kt, k); // k as rows, for dq
    if (d->deterministic) {
        cuda_dnn_graph_matmul(g, ds, k, dq);
        return;
    }
    descriptor dq32 = heads_of(g, f32, DT_DNN_DQ32_ID, d->tq, dense, false);
    cuda_dnn_graph_matmul(g, ds, k, dq32); // accumulates in f32, without a fixed order
    pointwise(g, CUDNN_POINTWISE_IDENTITY, dq32, NULL, dq);
}

// ---- the whole -------------------------------------------------------------------------------------
cudnnStatus_t dt_dnn_graph_build(dt_dnn_graph *g, const dt_dnn_desc *d, cudnnHandle_t handle) {
    g->desc = *d;
    g->n_ptr = dt_dnn_pointers(d);
    switch (d->kind) {
    case DT_DNN_SDPA_FWD:
        build_sdpa_forward(g);
        break;
    case DT_DNN_SDPA_BWD:
        build_sdpa_backward(g);
        break;
    case DT_DNN_CONV_FWD:
    case DT_DNN_CONV_DGRAD:
    case DT_DNN_CONV_WGRAD:
        build_conv(g);
    }
    g->graph = cuda_dnn_graph_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
    // no handle: a check without a device
    if (handle) set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    cuda_dnn_graph_finish(g, g->graph, "the graph");
    return g->status;
}

void dt_dnn_graph_destroy(dt_dnn_graph *g) {
    while (g->n_made > 0) cudnnBackendDestroyDescriptor(g->made[--g->n_made]); // in reverse order of creation
}
