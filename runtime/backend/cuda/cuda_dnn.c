// cuda_dnn.c: cuDNN's backend API, as much of it as five kinds of graph need. See cuda_dnn.h.
//
// cuDNN wants a graph of operations made of descriptors: tensors (type, dimensions, strides, an id), the
// operations between them, the graph. Its heuristics then list engine configurations; one of them becomes a
// plan, and a plan runs on a set of (id, pointer). A description always gives the same graph, so graphs and
// their lists are kept for the life of the context: choosing among ten configurations asks once.
//
// A finished plan has a text, cuDNN's JSON with the machine code of what was compiled in it. A plan made of
// that text needs neither heuristics nor compiler. cuDNN refuses the text of another version or architecture;
// that it belongs to the graph that would be built today is ours to see: everything that a graph's descriptors
// are told is hashed, and the hash stands before the JSON.
//
// Ids are positions in the caller's pointer array + 1. What lies between two operations is virtual and gets
// ids from VIRTUAL_ID on. All descriptors of a graph live as long as it does.
//
// Which configurations count: none that sums in low precision, none that rounds fp32 inputs (tensor cores on
// fp32 are TF32) unless asked, in fp32 none by Winograd with large tiles, which loses digits, only
// deterministic ones where asked. Fallback engines come
// after the heuristics', and behind the favourite what cuDNN compiles at run time comes last: a second each.
//
// Graphs
//   CONV_FWD    conv [-> + bias] [-> relu | gelu], or conv -> sums of y and y^2 a channel (GEN_STATS)
//   CONV_DGRAD, CONV_WGRAD  one operation
//   SDPA_FWD    cuDNN's unified operation with statistics
//   SDPA_BWD    the 18 operations in which cuDNN recognises flash attention's backward (the unified operation
//               for backward is refused by 9.19): rowsum(dy*y), P = exp(scale q k' - lse), dv = P' dy,
//               dS = P (dy v' - rowsum) scale, dk = dS' q, dq32 += dS k, dq = dq32. That sum is in no order;
//               deterministic: dq = dS k, for which cuDNN keeps dS in its workspace (no note of an engine tells
//               the two apart, so the graph must)
// Attention needs cuDNN 9.16: versions before it give wrong gradients where tk is no multiple of 128.
//
// Rejected: cudnn-frontend (C++, and these five graphs are all that is needed); the older cudnnConvolution*
// calls (deprecated, no fused bias and activation in bf16).
#include "backend/cuda/cuda_dnn.h"

#include "base/hash.h"

#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VIRTUAL_ID = 1000, DQ32_ID = 10, SDPA_VERSION = 91600 };
enum { MAX_DESCRIPTORS = 96, MAX_OPS = 20, MAX_CONFIGS = 96, MAX_TENSORS = 16 };

typedef cudnnBackendDescriptor_t descriptor;

typedef struct dnn_config {
    descriptor config, engine;
    int64_t engine_index;
    bool runtime, tensor_core;
} dnn_config;

// One description's graph and the configurations that serve it.
typedef struct dnn_graph {
    struct dnn_graph *next;
    dt_dnn_desc desc;
    descriptor made[MAX_DESCRIPTORS]; // everything, to be destroyed in the end
    int n_made;
    descriptor ops[MAX_OPS];
    int n_ops;
    descriptor graph;
    int64_t next_virtual;
    int n_ptr;   // caller's pointers; ids 1 … n_ptr
    float scale; // host scalars, passed by value: ids n_ptr+1 (scale) and n_ptr+2 (one)
    int n_scalars;
    uint64_t hash; // of all that the descriptors were told
    bool asked;    // for configurations
    dnn_config config[MAX_CONFIGS];
    int n_configs;
    cudnnStatus_t status; // first failure
} dnn_graph;

struct dt_cudnn {
    cudnnHandle_t handle; // NULL without a device
    descriptor device;    // NULL with one
    dnn_graph *graphs;
};

struct dt_cudnn_plan {
    descriptor plan;
    const dnn_graph *graph;
};

// ---- errors ----------------------------------------------------------------------------------------
static _Thread_local char last_error[512];

static cudnnStatus_t note(cudnnStatus_t s, const char *doing) {
    if (s == CUDNN_STATUS_SUCCESS) return s;
    char text[400] = "";
    cudnnGetLastErrorString(text, sizeof text);
    snprintf(last_error, sizeof last_error, "%s: %s%s%s", doing, cudnnGetErrorString(s),
             text[0] ? ": " : "", text);
    return s;
}

static int code_of(cudnnStatus_t s) {
    return s == CUDNN_STATUS_SUCCESS ? 0 : DT_CUDNN_ERROR + (int)s;
}

// Of what is not supported, that is not for want of a driver, a runtime or a part of cuDNN.
bool dt_cudnn_is_refusal(int error) {
    const int s = error - DT_CUDNN_ERROR, category = s / 1000 * 1000;
    if (s == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER ||
        s == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART ||
        s == CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING ||
        s == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE)
        return false;
    return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

const char *dt_cudnn_error_text(int error) {
    return cudnnGetErrorString((cudnnStatus_t)(error - DT_CUDNN_ERROR));
}

const char *dt_cudnn_last_error(void) {
    return last_error;
}

int dt_cudnn_version(void) {
    return (int)cudnnGetVersion();
}

// ---- descriptors: the first failure is kept, later calls do nothing ---------------------------------
static uint64_t place_of(const dnn_graph *g, descriptor d) {
    for (int i = 0; i < g->n_made; i++)
        if (g->made[i] == d) return (uint64_t)i;
    return MAX_DESCRIPTORS;
}

// Into the graph's hash: which descriptor is told what. Descriptors count by their place, not their address.
static void mix(dnn_graph *g, uint64_t at, int name, cudnnBackendAttributeType_t type, int64_t n,
                const void *value) {
    uint64_t words[MAX_OPS + 4] = {g->hash, at, (uint64_t)name, (uint64_t)type};
    const size_t size = type == CUDNN_TYPE_INT64     ? sizeof(int64_t)
                        : type == CUDNN_TYPE_BOOLEAN ? sizeof(bool)
                                                     : sizeof(float); // numbers and enums
    for (int64_t i = 0; i < n && i < MAX_OPS; i++) {
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
            words[i + 4] = place_of(g, ((const descriptor *)value)[i]);
        else
            memcpy(&words[i + 4], (const char *)value + size * (size_t)i, size);
    }
    g->hash = dt_hash64(words, sizeof words);
}

static descriptor make(dnn_graph *g, cudnnBackendDescriptorType_t type) {
    descriptor d = NULL;
    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    g->status = g->n_made < MAX_DESCRIPTORS
                    ? note(cudnnBackendCreateDescriptor(type, &d), "creating a descriptor")
                    : CUDNN_STATUS_INTERNAL_ERROR;
    if (g->status != CUDNN_STATUS_SUCCESS) return d;
    mix(g, (uint64_t)g->n_made, (int)type, 0, 0, NULL);
    g->made[g->n_made++] = d;
    return d;
}

static void set(dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (g->status != CUDNN_STATUS_SUCCESS) return;
    g->status = note(cudnnBackendSetAttribute(d, name, type, n, value), "setting an attribute");
    if (type != CUDNN_TYPE_HANDLE) mix(g, place_of(g, d), (int)name, type, n, value);
}

static void set_int(dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, int64_t n,
                    const int64_t *v) {
    set(g, d, name, CUDNN_TYPE_INT64, n, v);
}
static void set_type(dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name,
                     cudnnDataType_t v) {
    set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &v);
}
static void set_float(dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, float v) {
    set(g, d, name, CUDNN_TYPE_FLOAT, 1, &v);
}
static void set_desc(dnn_graph *g, descriptor d, cudnnBackendAttributeName_t name, descriptor v) {
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v);
}

static void finish(dnn_graph *g, descriptor d, const char *what) {
    if (g->status == CUDNN_STATUS_SUCCESS) g->status = note(cudnnBackendFinalize(d), what);
}

static void add_op(dnn_graph *g, descriptor op, const char *what) {
    finish(g, op, what);
    if (g->status == CUDNN_STATUS_SUCCESS) g->ops[g->n_ops++] = op;
}

// ---- tensors ---------------------------------------------------------------------------------------
static cudnnDataType_t data_type(dt_dtype t) {
    return t == DT_BF16 ? CUDNN_DATA_BFLOAT16 : t == DT_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

// id 0: virtual.
static descriptor tensor(dnn_graph *g, cudnnDataType_t type, int64_t id, const int64_t *dims,
                         const int64_t *strides, bool by_value) {
    descriptor d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t align = by_value ? 4 : 16;
    const bool is_virtual = id == 0;
    if (is_virtual) id = VIRTUAL_ID + g->next_virtual++;
    set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set_int(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims);
    set_int(g, d, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    set_int(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_int(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align);
    set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value) set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(g, d, "a tensor");
    return d;
}

// (n,c,h,w) stored NHWC; a weight (K,C,R,S) stored KRSC is the same.
static descriptor image(dnn_graph *g, cudnnDataType_t type, int64_t id, int64_t n, int64_t c,
                        int64_t h, int64_t w) {
    return tensor(g, type, id, (const int64_t[]){n, c, h, w},
                  (const int64_t[]){h * w * c, 1, w * c, c}, false);
}

static descriptor scalar(dnn_graph *g, int64_t id) {
    static const int64_t one[4] = {1, 1, 1, 1};
    g->n_scalars++;
    return tensor(g, CUDNN_DATA_FLOAT, id, one, one, true);
}

// ---- operations ------------------------------------------------------------------------------------
static void pointwise(dnn_graph *g, cudnnPointwiseMode_t mode, descriptor x, descriptor b,
                      descriptor y) {
    descriptor p = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(g, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    finish(g, p, "a pointwise mode");
    descriptor op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op, "a pointwise operation");
}

static void product(dnn_graph *g, descriptor a, descriptor b, descriptor c) {
    descriptor m = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_type(g, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(g, m, "a product's type");
    descriptor op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    add_op(g, op, "a product");
}

static void reshape(dnn_graph *g, descriptor x, descriptor y) {
    descriptor op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op, "a transposition");
}

static void sum(dnn_graph *g, descriptor x, descriptor y) {
    const cudnnReduceTensorOp_t add = CUDNN_REDUCE_TENSOR_ADD;
    descriptor r = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &add);
    set_type(g, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(g, r, "a sum's kind");
    descriptor op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    add_op(g, op, "a sum");
}

static void channel_sums(dnn_graph *g, descriptor y, descriptor sums, descriptor squares) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    descriptor op = make(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set_type(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums);
    set_desc(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    add_op(g, op, "sums of channels");
}

// ---- convolution -----------------------------------------------------------------------------------
// Attribute names of the three directions, in the order of dt_dnn_kind.
static const struct {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
} conv_names[3] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static descriptor window(dnn_graph *g, const dt_window *w) {
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t dims = 2, begin[2] = {w->pad_begin[0], w->pad_begin[1]},
                  end[2] = {w->pad_end[0], w->pad_end[1]}, stride[2] = {w->stride[0], w->stride[1]},
                  dilation[2] = {w->dilation[0], w->dilation[1]};
    descriptor d = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &dims);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, begin);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, end);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, stride);
    set_int(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, dilation);
    finish(g, d, "a convolution's window");
    return d;
}

static void build_conv(dnn_graph *g) {
    const dt_dnn_desc *d = &g->desc;
    const cudnnDataType_t t = data_type(d->type), f32 = CUDNN_DATA_FLOAT;
    const int64_t rows = d->win.kernel[0], cols = d->win.kernel[1];
    const bool fused = d->kind == DT_DNN_CONV_FWD && (d->bias || d->act != DT_ACT_NONE);
    // positions of x, w, y in the caller's pointers
    static const int at[3][3] = {{1, 2, 3}, {3, 2, 1}, {1, 3, 2}};
    const int *id = at[d->kind];
    g->n_ptr = 3 + (d->sums ? 2 : d->bias);
    descriptor x = image(g, t, id[0], d->n, d->c, d->h, d->w);
    descriptor w = image(g, t, id[1], d->k, d->c / d->groups, rows, cols);
    descriptor y = image(g, fused ? f32 : t, fused ? 0 : id[2], d->n, d->k, d->out_h, d->out_w);
    descriptor op = make(g, conv_names[d->kind].op);
    set_desc(g, op, conv_names[d->kind].x, x);
    set_desc(g, op, conv_names[d->kind].w, w);
    set_desc(g, op, conv_names[d->kind].y, y);
    set_desc(g, op, conv_names[d->kind].conv, window(g, &d->win));
    set_float(g, op, conv_names[d->kind].alpha, 1.0f);
    set_float(g, op, conv_names[d->kind].beta, 0.0f);
    add_op(g, op, "a convolution");
    if (d->kind != DT_DNN_CONV_FWD) return;
    if (d->sums) {
        channel_sums(g, y, image(g, f32, 4, 1, d->k, 1, 1), image(g, f32, 5, 1, d->k, 1, 1));
        return;
    }
    if (d->bias) {
        const bool last = d->act == DT_ACT_NONE;
        descriptor bias = image(g, t, 4, 1, d->k, 1, 1);
        descriptor z = image(g, last ? t : f32, last ? id[2] : 0, d->n, d->k, d->out_h, d->out_w);
        pointwise(g, CUDNN_POINTWISE_ADD, y, bias, z);
        y = z;
    }
    if (d->act != DT_ACT_NONE)
        pointwise(g, d->act == DT_ACT_RELU ? CUDNN_POINTWISE_RELU_FWD : CUDNN_POINTWISE_GELU_FWD, y,
                  NULL, image(g, t, id[2], d->n, d->k, d->out_h, d->out_w));
}

// ---- attention -------------------------------------------------------------------------------------
// (n, heads, rows, d) with strides s for n, head, row; or transposed, (n, heads, d, rows).
static descriptor heads_of(dnn_graph *g, cudnnDataType_t type, int64_t id, int64_t rows,
                           const int64_t s[3], bool transposed) {
    const dt_dnn_desc *d = &g->desc;
    const int64_t dims[2][4] = {{d->n, d->heads, rows, d->d}, {d->n, d->heads, d->d, rows}};
    const int64_t strides[2][4] = {{s[0], s[1], s[2], 1}, {s[0], s[1], 1, s[2]}};
    return tensor(g, type, id, dims[transposed], strides[transposed], false);
}

// A number a row, f32, dense.
static descriptor row_numbers(dnn_graph *g, int64_t id) {
    const dt_dnn_desc *d = &g->desc;
    return tensor(g, CUDNN_DATA_FLOAT, id, (const int64_t[]){d->n, d->heads, d->tq, 1},
                  (const int64_t[]){d->heads * d->tq, d->tq, 1, 1}, false);
}

// Scores (n, heads, tq, tk), virtual; or the transpose.
static descriptor scores(dnn_graph *g, cudnnDataType_t type, bool transposed) {
    const dt_dnn_desc *d = &g->desc;
    const int64_t all = d->heads * d->tq * d->tk, one = d->tq * d->tk;
    const int64_t dims[2][4] = {{d->n, d->heads, d->tq, d->tk}, {d->n, d->heads, d->tk, d->tq}};
    const int64_t strides[2][4] = {{all, one, d->tk, 1}, {all, one, 1, d->tk}};
    return tensor(g, type, 0, dims[transposed], strides[transposed], false);
}

static void build_sdpa_forward(dnn_graph *g) {
    const dt_dnn_desc *d = &g->desc;
    const cudnnDataType_t t = data_type(d->type);
    g->n_ptr = 5;
    descriptor op = make(g, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC,
             heads_of(g, t, 1, d->tq, d->stride_q, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
             heads_of(g, t, 2, d->tk, d->stride_k, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC,
             heads_of(g, t, 3, d->tk, d->stride_v, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC,
             heads_of(g, t, 4, d->tq, d->stride_y, false));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, row_numbers(g, 5));
    set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scalar(g, 6));
    add_op(g, op, "attention");
}

static void build_sdpa_backward(dnn_graph *g) {
    const dt_dnn_desc *d = &g->desc;
    const cudnnDataType_t t = data_type(d->type), f32 = CUDNN_DATA_FLOAT;
    const int64_t dense[3] = {d->heads * d->tq * d->d, d->tq * d->d, d->d};
    g->n_ptr = 11;
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
    descriptor scale = scalar(g, 12), one = scalar(g, 13);

    descriptor dyy = heads_of(g, f32, 0, d->tq, dense, false), raw = row_numbers(g, 0);
    pointwise(g, CUDNN_POINTWISE_MUL, dy, y, dyy);
    sum(g, dyy, raw);
    pointwise(g, CUDNN_POINTWISE_MUL, raw, one,
              row_sum); // cuDNN's pattern has dropout's scale here

    descriptor s = scores(g, f32, false), scaled = scores(g, f32, false);
    descriptor shifted = scores(g, f32, false), p = scores(g, f32, false), pt = scores(g, t, true);
    product(g, q, kt, s);
    pointwise(g, CUDNN_POINTWISE_MUL, s, scale, scaled);
    pointwise(g, CUDNN_POINTWISE_SUB, scaled, lse, shifted);
    pointwise(g, CUDNN_POINTWISE_EXP, shifted, NULL, p);
    reshape(g, p, pt);
    product(g, pt, dy, dv);

    descriptor dp = scores(g, f32, false), centred = scores(g, f32, false);
    descriptor weighted = scores(g, f32, false), ds = scores(g, f32, false);
    descriptor dst = scores(g, t, true);
    product(g, dy, vt, dp);
    pointwise(g, CUDNN_POINTWISE_SUB, dp, row_sum, centred);
    pointwise(g, CUDNN_POINTWISE_MUL, centred, p, weighted);
    pointwise(g, CUDNN_POINTWISE_MUL, weighted, scale, ds);
    reshape(g, ds, dst);
    product(g, dst, q, dk);

    descriptor k = heads_of(g, t, 0, d->tk, d->stride_k, false);
    reshape(g, kt, k);
    if (d->deterministic) {
        product(g, ds, k, dq);
        return;
    }
    descriptor dq32 = heads_of(g, f32, DQ32_ID, d->tq, dense, false);
    product(g, ds, k, dq32);
    pointwise(g, CUDNN_POINTWISE_IDENTITY, dq32, NULL, dq);
}

// ---- a description's graph and its configurations ---------------------------------------------------
static bool wanted(const dt_dnn_desc *d, const cudnnBackendNumericalNote_t *notes, int64_t n,
                   dnn_config *c) {
    for (int64_t i = 0; i < n; i++) {
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
            c->tensor_core = true;
            if (d->type == DT_F32 && !d->tf32) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
            if (d->type != DT_F32 || !d->tf32) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
            return false;
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            if (d->deterministic) return false;
            break;
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            if (d->type == DT_F32) return false;
            break;
        default:
            break;
        }
    }
    return true;
}

static void add_config(dnn_graph *g, descriptor config) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0, n_notes = 0, n_behaviour = 0;
    dnn_config c = {.config = config};
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &c.engine)) c.engine = NULL;
    bool ok = c.engine &&
              !cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &c.engine) &&
              !cudnnBackendGetAttribute(c.engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                        CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                        &n_notes, notes) &&
              !cudnnBackendGetAttribute(c.engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                        1, &n, &c.engine_index);
    if (ok && !cudnnBackendGetAttribute(c.engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                        CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                        &n_behaviour, behaviour)) {
        for (int64_t i = 0; i < n_behaviour; i++)
            if (behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) c.runtime = true;
    }
    if (ok && wanted(&g->desc, notes, n_notes, &c) && g->n_configs < MAX_CONFIGS) {
        g->config[g->n_configs++] = c;
        return;
    }
    if (c.engine) cudnnBackendDestroyDescriptor(c.engine);
    cudnnBackendDestroyDescriptor(config);
}

static cudnnStatus_t ask_heuristics(dt_cudnn *c, dnn_graph *g, cudnnBackendHeurMode_t mode) {
    descriptor h = NULL, found[MAX_CONFIGS];
    int64_t n = 0, n_found = 0;
    cudnnStatus_t s = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &h);
    if (s) return note(s, "asking for engines");
    s = cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g->graph);
    if (!s)
        s = cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (!s && c->device)
        s = cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->device);
    if (!s) s = cudnnBackendFinalize(h);
    if (!s)
        s = cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL);
    if (n > MAX_CONFIGS) n = MAX_CONFIGS;
    for (int64_t i = 0; i < n; i++) {
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &found[i])) n = i;
    }
    if (!s && n > 0)
        s = cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &n_found, found);
    note(s, "asking for engines");
    for (int64_t i = 0; i < n; i++) {
        if (!s && i < n_found)
            add_config(g, found[i]);
        else
            cudnnBackendDestroyDescriptor(found[i]);
    }
    cudnnBackendDestroyDescriptor(h);
    return s;
}

// The favourite, what is precompiled, the rest: each in cuDNN's order.
static void put_compiled_last(dnn_graph *g) {
    dnn_config sorted[MAX_CONFIGS];
    int n = 0;
    for (int runtime = 0; runtime < 2; runtime++)
        for (int i = 1; i < g->n_configs; i++)
            if (g->config[i].runtime == runtime) sorted[n++] = g->config[i];
    memcpy(g->config + 1, sorted, (size_t)n * sizeof *sorted);
}

static void destroy_graph(dnn_graph *g) {
    for (int i = 0; i < g->n_configs; i++) {
        cudnnBackendDestroyDescriptor(g->config[i].config);
        cudnnBackendDestroyDescriptor(g->config[i].engine);
    }
    while (g->n_made > 0) cudnnBackendDestroyDescriptor(g->made[--g->n_made]);
    free(g);
}

static void build(dt_cudnn *c, dnn_graph *g) {
    switch (g->desc.kind) {
    case DT_DNN_SDPA_FWD:
        build_sdpa_forward(g);
        break;
    case DT_DNN_SDPA_BWD:
        build_sdpa_backward(g);
        break;
    default:
        build_conv(g);
    }
    g->graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops,
        g->ops);
    if (c->handle)
        set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->handle);
    finish(g, g->graph, "the graph");
}

static int graph_of(dt_cudnn *c, const dt_dnn_desc *d, dnn_graph **out) {
    for (dnn_graph *g = c->graphs; g; g = g->next) {
        if (dt_dnn_desc_equal(&g->desc, d)) {
            *out = g;
            return 0;
        }
    }
    dnn_graph *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->desc = *d;
    build(c, g);
    if (g->status != CUDNN_STATUS_SUCCESS) {
        const int code = code_of(g->status);
        destroy_graph(g);
        return code;
    }
    g->next = c->graphs;
    c->graphs = g;
    *out = g;
    return 0;
}

// The graph with its configurations.
static int configs_of(dt_cudnn *c, const dt_dnn_desc *d, dnn_graph **out) {
    int code = graph_of(c, d, out);
    if (code || (*out)->asked) return code;
    // an error of one mode matters where nothing is found, and is more than a refusal
    const int first = code_of(ask_heuristics(c, *out, CUDNN_HEUR_MODE_A));
    code = code_of(ask_heuristics(c, *out, CUDNN_HEUR_MODE_FALLBACK));
    if (first && !dt_cudnn_is_refusal(first)) code = first;
    if (code && !(*out)->n_configs && !dt_cudnn_is_refusal(code)) return code;
    put_compiled_last(*out);
    (*out)->asked = true;
    return 0;
}

// ---- public ----------------------------------------------------------------------------------------
static cudnnStatus_t describe_device(dt_cudnn *c, const char *json) {
    cudnnStatus_t s = note(
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->device), "a device");
    if (!s)
        s = note(cudnnBackendSetAttribute(c->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json),
                 "the device's description");
    return s ? s : note(cudnnBackendFinalize(c->device), "the device's description");
}

int dt_cudnn_open(dt_cudnn **out, const char *device_json) {
    dt_cudnn *c = calloc(1, sizeof *c);
    if (!c) abort();
    const cudnnStatus_t s = device_json ? describe_device(c, device_json)
                                        : note(cudnnCreate(&c->handle), "cudnnCreate");
    if (s) {
        c->handle = NULL;
        dt_cudnn_close(c);
        c = NULL;
    }
    *out = c;
    return code_of(s);
}

void dt_cudnn_close(dt_cudnn *c) {
    if (!c) return;
    while (c->graphs) {
        dnn_graph *g = c->graphs;
        c->graphs = g->next;
        destroy_graph(g);
    }
    if (c->device) cudnnBackendDestroyDescriptor(c->device);
    if (c->handle) cudnnDestroy(c->handle);
    free(c);
}

int dt_cudnn_choices(dt_cudnn *c, const dt_dnn_desc *d, int *n) {
    dnn_graph *g = NULL;
    *n = 0;
    if ((d->kind == DT_DNN_SDPA_FWD || d->kind == DT_DNN_SDPA_BWD) &&
        cudnnGetVersion() < SDPA_VERSION)
        return 0;
    const int code = configs_of(c, d, &g);
    if (code == 0) *n = g->n_configs;
    return dt_cudnn_is_refusal(code) ? 0 : code;
}

int dt_cudnn_compiled(dt_cudnn *c, const dt_dnn_desc *d) {
    dnn_graph *g = NULL;
    int n = 0;
    if (configs_of(c, d, &g)) return 0;
    while (n < g->n_configs && g->config[g->n_configs - 1 - n].runtime) n++;
    return n;
}

int dt_cudnn_choice_text(dt_cudnn *c, const dt_dnn_desc *d, int choice, char *text, size_t cap) {
    dnn_graph *g = NULL;
    const int code = configs_of(c, d, &g);
    if (code) return code;
    if (choice < 0 || choice >= g->n_configs) return code_of(CUDNN_STATUS_BAD_PARAM);
    const dnn_config *f = &g->config[choice];
    snprintf(text, cap, "engine %lld, %s%s", (long long)f->engine_index,
             f->runtime ? "compiled at run time" : "precompiled",
             f->tensor_core ? ", tensor cores" : "");
    return 0;
}

// A plan made of a configuration, or of its text.
static int finish_plan(dt_cudnn *c, const dnn_graph *g, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t n, const void *value,
                       dt_cudnn_plan **out, size_t *workspace_bytes) {
    descriptor p = NULL;
    int64_t count = 0, bytes = 0;
    cudnnStatus_t s =
        note(cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p), "a plan");
    if (!s && c->handle)
        s = note(cudnnBackendSetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                          &c->handle),
                 "a plan");
    if (!s && c->device)
        s = note(cudnnBackendSetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c->device),
                 "a plan");
    if (!s) s = note(cudnnBackendSetAttribute(p, name, type, n, value), "a plan");
    if (!s) s = note(cudnnBackendFinalize(p), "a plan");
    if (!s)
        s = note(cudnnBackendGetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count, &bytes),
                 "a plan's workspace");
    if (s) {
        if (p) cudnnBackendDestroyDescriptor(p);
        return code_of(s);
    }
    *out = calloc(1, sizeof **out);
    if (!*out) abort();
    **out = (dt_cudnn_plan){p, g};
    *workspace_bytes = (size_t)bytes;
    return 0;
}

int dt_cudnn_plan_create(dt_cudnn *c, const dt_dnn_desc *d, int choice, dt_cudnn_plan **out,
                         size_t *workspace_bytes) {
    dnn_graph *g = NULL;
    *out = NULL;
    const int code = configs_of(c, d, &g);
    if (code) return code;
    if (choice < 0 || choice >= g->n_configs) return code_of(CUDNN_STATUS_BAD_PARAM);
    return finish_plan(c, g, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                       1, &g->config[choice].config, out, workspace_bytes);
}

// ---- plans as text ---------------------------------------------------------------------------------
enum { HASH_DIGITS = 16 };

int dt_cudnn_plan_text(const dt_cudnn_plan *p, char **text) {
    int64_t n = 0, got = 0;
    *text = NULL;
    cudnnStatus_t s = cudnnBackendGetAttribute(
        p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &n, NULL);
    if (s || n < 1) return code_of(note(s, "a plan's text"));
    char *all = calloc(1, HASH_DIGITS + 1 + (size_t)n + 1);
    if (!all) abort();
    dt_hash_hex(p->graph->hash, all);
    all[HASH_DIGITS] = ' ';
    s = cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, n, &got, all + HASH_DIGITS + 1);
    if (s)
        free(all);
    else
        *text = all;
    return code_of(note(s, "a plan's text"));
}

int dt_cudnn_plan_restore(dt_cudnn *c, const dt_dnn_desc *d, const char *text, dt_cudnn_plan **out,
                          size_t *workspace_bytes) {
    dnn_graph *g = NULL;
    char hash[HASH_DIGITS + 1];
    *out = NULL;
    const int code = graph_of(c, d, &g);
    if (code) return code;
    dt_hash_hex(g->hash, hash);
    if (strncmp(text, hash, HASH_DIGITS) != 0 || text[HASH_DIGITS] != ' ') {
        snprintf(last_error, sizeof last_error, "a plan's text: it is of another graph");
        return code_of(CUDNN_STATUS_BAD_PARAM);
    }
    const char *json = text + HASH_DIGITS + 1;
    return finish_plan(c, g, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                       (int64_t)strlen(json), json, out, workspace_bytes);
}

void dt_cudnn_plan_destroy(dt_cudnn_plan *p) {
    if (!p) return;
    cudnnBackendDestroyDescriptor(p->plan);
    free(p);
}

int dt_cudnn_run(dt_cudnn *c, dt_cudnn_plan *p, void *const *ptr, void *workspace, void *stream) {
    const dnn_graph *g = p->graph;
    float scale = g->desc.scale, one = 1.0f;
    int64_t ids[MAX_TENSORS];
    void *data[MAX_TENSORS];
    const bool no_dq32 = g->desc.kind == DT_DNN_SDPA_BWD && g->desc.deterministic;
    int n = 0;
    for (int i = 0; i < g->n_ptr + g->n_scalars; i++) {
        if (no_dq32 && i + 1 == DQ32_ID) continue;
        ids[n] = i + 1;
        data[n++] = i < g->n_ptr ? ptr[i] : i == g->n_ptr ? (void *)&scale : (void *)&one;
    }
    descriptor v = NULL;
    cudnnStatus_t s = note(cudnnSetStream(c->handle, stream), "cudnnSetStream");
    if (!s)
        s = note(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &v), "a run");
    if (!s)
        s = cudnnBackendSetAttribute(v, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n,
                                     ids);
    if (!s)
        s = cudnnBackendSetAttribute(v, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                     n, data);
    if (!s)
        s = cudnnBackendSetAttribute(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                     &workspace);
    if (!s) s = cudnnBackendFinalize(v);
    if (!s) s = cudnnBackendExecute(c->handle, p->plan, v);
    if (v) cudnnBackendDestroyDescriptor(v);
    return code_of(note(s, "running a plan"));
}
