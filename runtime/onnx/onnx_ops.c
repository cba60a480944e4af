// onnx_ops.c: each op of the graph as nodes of ONNX, operator set 17
// (https://github.com/onnx/onnx/blob/v1.12.0/docs/Operators.md). What an op is: graph/ops/<op>.c.
#include "graph/activation_words.h"
#include "onnx_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Names of the inputs that a node has: in[i]; NULL where it is absent. A convolution with a batch norm in it has other
// weights than the checkpoint (fold).
static dt_status name_inputs(dt_onnx_writer *w, const dt_node *n, const char *in[64]) {
    // emit_conv2d makes both tensors; those of the checkpoint would be dead initialisers in the file
    const bool folded = n->op == DT_OP_conv2d && n->attrs.conv2d.fold_bn;
    for (int i = 0; i < n->n_in; i++) {
        in[i] = NULL;
        if (folded && (i == 1 || i == 2)) continue;
        if (n->in[i] != DT_NONE) DT_TRY(dt_onnx_value(w, n->in[i], &in[i]));
    }
    return DT_OK;
}

static const dt_shape *onnx_ops_shape_of(const dt_onnx_writer *w, dt_value v) {
    return &dt_info_of(w->g, v)->shape;
}

static const char *out_of(const dt_onnx_writer *w, const dt_node *n, int i) {
    return w->names[n->out[i]];
}

// ---- activations -----------------------------------------------------------------------------------
// Operators of the same meaning; `number` is their alpha where an activation has one.
#define SAME_IN_ONNX(id, type, ...)                                                                                    \
    static void onnx_##id(dt_onnx_writer *w, const char *x, float number, const char *out) {                           \
        DT_ONNX_NODE(w, type, out, x);                                                                                 \
        __VA_ARGS__;                                                                                                   \
    }
SAME_IN_ONNX(relu, "Relu")
SAME_IN_ONNX(sigmoid, "Sigmoid")
SAME_IN_ONNX(hardswish, "HardSwish")
SAME_IN_ONNX(tanh, "Tanh")
SAME_IN_ONNX(softplus, "Softplus")
SAME_IN_ONNX(erf, "Erf")
SAME_IN_ONNX(leaky_relu, "LeakyRelu", dt_onnx_float(w, "alpha", number))
SAME_IN_ONNX(elu, "Elu", dt_onnx_float(w, "alpha", number))
// x/2 (1 + inner)
static void finish_gelu(dt_onnx_writer *w, const char *x, const char *inner, const char *out) {
    inner = DT_ONNX_NODE(w, "Add", NULL, inner, dt_onnx_scalar(w, 1)); // 1 + inner
    inner = DT_ONNX_NODE(w, "Mul", NULL, x, inner);                    // x (1 + inner)
    DT_ONNX_NODE(w, "Mul", out, inner, dt_onnx_scalar(w, 0.5f));
}
// inner: erf(x / sqrt 2)
// Operator set 17 has no Gelu (20 has): Div, Erf, Add, Mul, Mul, as torch.onnx writes it and onnxruntime fuses.
static void onnx_gelu(dt_onnx_writer *w, const char *x, float number, const char *out) {
    const char *inner = DT_ONNX_NODE(w, "Div", NULL, x, dt_onnx_scalar(w, 1.4142135624f));
    finish_gelu(w, x, DT_ONNX_NODE(w, "Erf", NULL, inner), out);
}
// inner: tanh(sqrt(2/pi) (x + 0.044715 x^3))
static void onnx_gelu_tanh(dt_onnx_writer *w, const char *x, float number, const char *out) {
    const char *cube = DT_ONNX_NODE(w, "Mul", NULL, x, x); // no Pow: exact for either sign
    cube = DT_ONNX_NODE(w, "Mul", NULL, cube, x);
    cube = DT_ONNX_NODE(w, "Mul", NULL, cube, dt_onnx_scalar(w, 0.044715f));
    const char *inner = DT_ONNX_NODE(w, "Add", NULL, x, cube);
    inner = DT_ONNX_NODE(w, "Mul", NULL, inner, dt_onnx_scalar(w, 0.7978845608f));
    finish_gelu(w, x, DT_ONNX_NODE(w, "Tanh", NULL, inner), out);
}
static void onnx_hardsigmoid(dt_onnx_writer *w, const char *x, float number, const char *out) {
    DT_ONNX_NODE(w, "HardSigmoid", out, x);
    dt_onnx_float(w, "alpha", 1.0f / 6); // PyTorch's slope; ONNX's default is 0.2, and beta's is 1/2 in both
}
static void onnx_silu(dt_onnx_writer *w, const char *x, float number, const char *out) {
    DT_ONNX_NODE(w, "Mul", out, x, DT_ONNX_NODE(w, "Sigmoid", NULL, x)); // no Swish before operator set 24
}
static void onnx_relu6(dt_onnx_writer *w, const char *x, float number, const char *out) {
    const char *low = dt_onnx_scalar(w, 0); // min and max are inputs since operator set 11
    DT_ONNX_NODE(w, "Clip", out, x, low, dt_onnx_scalar(w, 6));
}
static void onnx_heaviside(dt_onnx_writer *w, const char *x, float number, const char *out) {
    DT_ONNX_NODE(w, "Cast", out, DT_ONNX_NODE(w, "Greater", NULL, x, dt_onnx_scalar(w, 0)));
    dt_onnx_int(w, "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT); // Greater gives bool: 1 above 0, else 0, and 0 of NaN
}

// number: of an ACTIVATION_WITH
static void emit_act(dt_onnx_writer *w, const char *x, dt_activation kind, float number, const char *out) {
    // by activations.def: one that has no onnx_<id> above stops the build
    static void (*const forms[DT_N_ACTIVATIONS])(dt_onnx_writer *, const char *, float, const char *) = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = onnx_##id,
#include "graph/activations.def"
#undef ACTIVATION
    };
    if (kind != DT_ACTIVATION_none) forms[kind](w, x, number, out);
}

// What comes before a fused activation gets a name of its own.
static const char *before(const char *out, dt_activation act) {
    return act == DT_ACTIVATION_none ? out : NULL;
}

static dt_status emit_activation(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    emit_act(w, in[0], n->attrs.activation.kind, n->attrs.activation.number, out_of(w, n, 0));
    return DT_OK;
}
#define emit_relu emit_activation // by the names in ops.def
#define emit_gelu emit_activation

static dt_status emit_mul(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "Mul", out_of(w, n, 0), in[0], in[1]);
    return DT_OK;
}

static dt_status emit_softmax(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "Softmax", out_of(w, n, 0), in[0]); // since set 13 over one axis; before, over all from it on
    dt_onnx_int(w, "axis", -1);
    return DT_OK;
}

static dt_status emit_l2_normalize(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "LpNormalization", out_of(w, n, 0), in[0]); // without PyTorch's eps of 1e-12
    dt_onnx_int(w, "axis", -1);
    dt_onnx_int(w, "p", 2);
    return DT_OK;
}

// ---- convolution, pooling, norms ---------------------------------------------------------------------
// Sizes are (height, width); pads all begins, then all ends.
static void add_window(dt_onnx_writer *w, const dt_window *win, bool dilated) {
    const int64_t kernel[] = {win->kernel[0], win->kernel[1]};
    const int64_t stride[] = {win->stride[0], win->stride[1]};
    const int64_t dilation[] = {win->dilation[0], win->dilation[1]};
    const int64_t pads[] = {win->pad_begin[0], win->pad_begin[1], win->pad_end[0], win->pad_end[1]};
    dt_onnx_ints(w, "kernel_shape", kernel, 2);
    dt_onnx_ints(w, "strides", stride, 2);
    if (dilated) dt_onnx_ints(w, "dilations", dilation, 2); // AveragePool has none until set 19
    dt_onnx_ints(w, "pads", pads, 4);
}

// The convolution's weight and bias with its batch norm in them (dt_pass_fold_bn).
static dt_status onnx_ops_fold(dt_onnx_writer *w, const dt_node *n, const char **weight, const char **bias) {
    const int params[] = {n->attrs.conv2d.bn_scale, n->attrs.conv2d.bn_shift, n->attrs.conv2d.bn_mean,
                          n->attrs.conv2d.bn_var};
    const float *bn[4], *from, *b = NULL;
    for (int i = 0; i < 4; i++) DT_TRY(dt_onnx_weights(w, params[i], &bn[i]));
    DT_TRY(dt_onnx_weights(w, n->in[1], &from));
    if (n->n_in > 2 && n->in[2] != DT_NONE) DT_TRY(dt_onnx_weights(w, n->in[2], &b));
    const dt_shape *shape = onnx_ops_shape_of(w, n->in[1]), out = dt_shape1(shape->d[0]); // (K,C/groups,R,S)
    const int64_t each = dt_shape_elements(shape) / shape->d[0]; // weights of an output channel
    float *to = dt_arena_alloc(&w->arena, (size_t)dt_shape_elements(shape) * sizeof *to);
    float *shift = dt_arena_alloc(&w->arena, (size_t)shape->d[0] * sizeof *shift);
    for (int64_t k = 0; k < shape->d[0]; k++) {
        const float s = bn[0][k] / sqrtf(bn[3][k] + n->attrs.conv2d.bn_eps); // scale / sqrt(var + eps)
        for (int64_t i = 0; i < each; i++) to[k * each + i] = s * from[k * each + i];
        shift[k] = ((b ? b[k] : 0) - bn[2][k]) * s + bn[1][k]; // (bias - mean) s + shift
    }
    const char *name = dt_info_of(w->g, n->in[1])->name;
    if (w->g->n_stages > 0) // used several times, each with statistics of its own
        name = dt_arena_printf(&w->arena, "%s.weight", n->name);
    *weight = dt_onnx_tensor(w, name, shape, to);
    *bias = dt_onnx_tensor(w, dt_arena_printf(&w->arena, "%s.bias", n->name), &out, shift);
    return DT_OK;
}

static dt_status emit_conv2d(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const dt_activation act = n->attrs.conv2d.act;
    const char *weight = in[1], *bias = n->n_in > 2 ? in[2] : NULL; // NULL with a batch norm: folded below
    if (n->attrs.conv2d.fold_bn) DT_TRY(onnx_ops_fold(w, n, &weight, &bias));
    const char *y = DT_ONNX_NODE(w, "Conv", before(out_of(w, n, 0), act), in[0], weight, bias);
    add_window(w, &n->attrs.conv2d.win, true);
    dt_onnx_int(w, "group", n->attrs.conv2d.groups); // depthwise: as many as channels
    emit_act(w, y, act, 0, out_of(w, n, 0));         // a fused activation has no number
    return DT_OK;
}

static dt_status emit_conv_transpose(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const int *more = n->attrs.conv2d.more;
    DT_ONNX_NODE(w, "ConvTranspose", out_of(w, n, 0), in[0], in[1]); // its bias is an add of the graph
    add_window(w, &n->attrs.conv2d.win, true);
    dt_onnx_int(w, "group", n->attrs.conv2d.groups);
    dt_onnx_ints(w, "output_padding", (const int64_t[]){more[0], more[1]}, 2); // rows and columns behind
    return DT_OK;
}

static dt_status emit_batch_norm(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    // fused behind the norm, in this order: add, relu, pool
    const bool relu = n->attrs.batch_norm.relu, pool = n->attrs.batch_norm.pool, add = n->n_in > 5;
    const char *out = out_of(w, n, 0);
    const char *y =
        // in: x, scale, shift, running mean and variance; the last part of the chain has the name `out`
        DT_ONNX_NODE(w, "BatchNormalization", add || relu || pool ? NULL : out, in[0], in[1], in[2], in[3], in[4]);
    dt_onnx_float(w, "epsilon", n->attrs.batch_norm.eps);
    if (add) y = DT_ONNX_NODE(w, "Add", relu || pool ? NULL : out, y, in[5]);
    if (relu) y = DT_ONNX_NODE(w, "Relu", pool ? NULL : out, y);
    if (pool) {
        DT_ONNX_NODE(w, "MaxPool", out, y);
        add_window(w, &n->attrs.batch_norm.win, true);
    }
    return DT_OK;
}

static dt_status emit_max_pool(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "MaxPool", out_of(w, n, 0), in[0]); // its second output, indices, is left out as our argmax is
    add_window(w, &n->attrs.pool.win, true);
    return DT_OK;
}

static dt_status emit_avg_pool(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "AveragePool", out_of(w, n, 0), in[0]);
    add_window(w, &n->attrs.pool.win, false);
    dt_onnx_int(w, "count_include_pad", n->attrs.pool.count_include_pad); // ONNX's default is 0, PyTorch's 1
    return DT_OK;
}

static dt_status emit_global_pool(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "ReduceMean", out_of(w, n, 0), in[0]);
    dt_onnx_ints(w, "axes", (const int64_t[]){2, 3}, 2); // an attribute until set 18
    dt_onnx_int(w, "keepdims", 0);                       // (N,C,H,W) to (N,C)
    return DT_OK;
}

static dt_status emit_layer_norm(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const char *x = in[0];
    if (n->n_in > 3) // x + residual is an output too
        x = DT_ONNX_NODE(w, "Add", n->out[3] == DT_NONE ? NULL : out_of(w, n, 3), x, in[3]);
    DT_ONNX_NODE(w, "LayerNormalization", out_of(w, n, 0), x, in[1], in[2]); // since set 17, the youngest op here
    dt_onnx_int(w, "axis", -1);
    dt_onnx_float(w, "epsilon", n->attrs.layer_norm.eps);
    return DT_OK;
}

// ---- linear algebra --------------------------------------------------------------------------------
// (…,A,B) to (…,B,A): MatMul has no flag for a transposed operand.
static const char *swap_last(dt_onnx_writer *w, const char *x, int n_dims) {
    int64_t perm[DT_MAX_DIMS];
    for (int i = 0; i < n_dims; i++) perm[i] = i;
    perm[n_dims - 1] = n_dims - 2; // the batch stays in front
    perm[n_dims - 2] = n_dims - 1;
    const char *y = DT_ONNX_NODE(w, "Transpose", NULL, x);
    dt_onnx_ints(w, "perm", perm, n_dims);
    return y;
}

static dt_status emit_linear(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const dt_activation act = n->attrs.linear.act;
    const char *out = out_of(w, n, 0), *bias = n->n_in > 2 ? in[2] : NULL, *y;
    // Gemm takes matrices only; of (…,I) the same is MatMul and Add
    if (onnx_ops_shape_of(w, n->in[0])->n == 2) {
        y = DT_ONNX_NODE(w, "Gemm", before(out, act), in[0], in[1], bias);
        dt_onnx_int(w, "transB", 1); // weight (O,I), as PyTorch keeps it
    } else {
        y = DT_ONNX_NODE(w, "MatMul", bias ? NULL : before(out, act), in[0], swap_last(w, in[1], 2));
        if (bias) y = DT_ONNX_NODE(w, "Add", before(out, act), y, bias);
    }
    emit_act(w, y, act, 0, out);
    return DT_OK;
}

static dt_status emit_matmul(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const int n_dims = onnx_ops_shape_of(w, n->in[0])->n;
    const char *a = n->attrs.matmul.trans_a ? swap_last(w, in[0], n_dims) : in[0];
    const char *b = n->attrs.matmul.trans_b ? swap_last(w, in[1], n_dims) : in[1];
    const char *y = DT_ONNX_NODE(w, "MatMul", NULL, a, b);
    DT_ONNX_NODE(w, "Mul", out_of(w, n, 0), y, dt_onnx_scalar(w, n->attrs.matmul.alpha)); // also by 1: runtimes drop it
    return DT_OK;
}

// softmax(scale q k^T) v of (N,H,T,D)
static void onnx_ops_attend(dt_onnx_writer *w, const char *const *qkv, float scale, const char *out) {
    const char *scores = DT_ONNX_NODE(w, "MatMul", NULL, qkv[0], swap_last(w, qkv[1], 4)); // (N,H,Tq,Tk)
    scores = DT_ONNX_NODE(w, "Mul", NULL, scores, dt_onnx_scalar(w, scale));
    scores = DT_ONNX_NODE(w, "Softmax", NULL, scores); // over Tk
    dt_onnx_int(w, "axis", -1);
    DT_ONNX_NODE(w, "MatMul", out, scores, qkv[2]);
}

static dt_status emit_sdpa(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    static const int64_t swap[] = {0, 2, 1, 3}; // (N,T,H,D) and (N,H,T,D), either way
    const int64_t heads = n->attrs.sdpa.heads, width = onnx_ops_shape_of(w, n->in[0])->d[2] / 3;
    if (heads == 0) { // q, k and v come apart, (N,H,T,D) each
        onnx_ops_attend(w, in, n->attrs.sdpa.scale, out_of(w, n, 0));
        return DT_OK;
    }
    const char *parts[3], *split = dt_onnx_vector(w, (int64_t[]){width, width, width}, 3);
    const char *apart = dt_onnx_vector(w, (int64_t[]){0, 0, heads, width / heads}, 4); // 0: N and T as they are
    parts[0] = DT_ONNX_NODE(w, "Split", NULL, in[0], split);                           // q, k, v of (N,T,3 width)
    dt_onnx_int(w, "axis", 2);
    parts[1] = dt_onnx_add_output(w);
    parts[2] = dt_onnx_add_output(w);
    for (int i = 0; i < 3; i++) { // (N,T,width) to (N,heads,T,width/heads)
        parts[i] = DT_ONNX_NODE(w, "Reshape", NULL, parts[i], apart);
        parts[i] = DT_ONNX_NODE(w, "Transpose", NULL, parts[i]);
        dt_onnx_ints(w, "perm", swap, 4);
    }
    const char *y = dt_arena_printf(&w->arena, "%s.heads", n->name);
    onnx_ops_attend(w, parts, n->attrs.sdpa.scale, y);
    y = DT_ONNX_NODE(w, "Transpose", NULL, y);
    dt_onnx_ints(w, "perm", swap, 4);
    DT_ONNX_NODE(w, "Reshape", out_of(w, n, 0), y, dt_onnx_vector(w, (int64_t[]){0, 0, width}, 3)); // heads joined
    return DT_OK;
}

static dt_status emit_add(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "Add", out_of(w, n, 0), in[0], in[1]);
    return DT_OK;
}

static dt_status emit_scale(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    DT_ONNX_NODE(w, "Mul", out_of(w, n, 0), in[0], dt_onnx_scalar(w, n->attrs.scale.alpha));
    return DT_OK;
}

// ---- shapes ----------------------------------------------------------------------------------------
static dt_status emit_concat(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const char *list[65] = {NULL}; // 64 inputs (ops.def) and the end
    for (int i = 0; i < n->n_in; i++) list[i] = in[i];
    dt_onnx_node(w, "Concat", out_of(w, n, 0), list);
    dt_onnx_int(w, "axis", n->attrs.concat.axis);
    return DT_OK;
}

static dt_status emit_slice(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const char *begin = dt_onnx_vector(w, &n->attrs.slice.begin, 1);
    const char *end = dt_onnx_vector(w, &n->attrs.slice.end, 1);
    const char *axis = dt_onnx_vector(w, (int64_t[]){n->attrs.slice.axis}, 1);
    // input 4, steps, is left out: 1
    DT_ONNX_NODE(w, "Slice", out_of(w, n, 0), in[0], begin, end, axis);
    return DT_OK;
}

static dt_status emit_transpose(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    int64_t perm[DT_MAX_DIMS];
    const int n_dims = onnx_ops_shape_of(w, n->in[0])->n;
    for (int i = 0; i < n_dims; i++) perm[i] = n->attrs.transpose.perm[i]; // int64, as ONNX has them
    DT_ONNX_NODE(w, "Transpose", out_of(w, n, 0), in[0]);
    dt_onnx_ints(w, "perm", perm, n_dims);
    return DT_OK;
}

static dt_status emit_reshape(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    dt_shape to = *onnx_ops_shape_of(w, n->out[0]);
    const int at = dt_onnx_samples_at(w, n->out[0]);
    if (at >= 0) to.d[at] = -1; // N is open: worked out by the reader
    DT_ONNX_NODE(w, "Reshape", out_of(w, n, 0), in[0], dt_onnx_vector(w, to.d, to.n));
    return DT_OK;
}

// Dimensions that stay are 1 in the shape, so samples may be any number; a row may become one of each sample.
static dt_status emit_expand(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const dt_shape *x = onnx_ops_shape_of(w, n->in[0]);
    dt_shape to = *onnx_ops_shape_of(w, n->out[0]);
    const bool repeats = dt_onnx_samples_at(w, n->out[0]) == 0 && dt_onnx_samples_at(w, n->in[0]) == -1 &&
                         to.d[0] == dt_graph_samples(w->g);
    for (int i = 0; i < to.n; i++)
        if (to.d[i] == x->d[i]) to.d[i] = 1; // as numpy broadcasts: keeps x's size
    DT_ONNX_NODE(w, "Expand", out_of(w, n, 0), in[0],
                 repeats ? dt_onnx_sample_shape(w, &to) : dt_onnx_vector(w, to.d, to.n));
    return DT_OK;
}

static dt_status emit_sum(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const dt_shape *x = onnx_ops_shape_of(w, n->in[0]), *y = onnx_ops_shape_of(w, n->out[0]);
    int64_t axes[DT_MAX_DIMS];
    int k = 0;
    for (int i = 0; i < x->n; i++)
        if (x->d[i] != y->d[i]) axes[k++] = i;
    DT_ONNX_NODE(w, "ReduceSum", out_of(w, n, 0), in[0], dt_onnx_vector(w, axes, k)); // keepdims is 1 if unset
    return DT_OK;
}

static dt_status emit_resize(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const dt_resize_mode mode = n->attrs.resize.mode;
    const bool linear = mode == DT_RESIZE_BILINEAR || mode == DT_RESIZE_BILINEAR_CORNERS; // ONNX's "linear" of images
    const dt_shape *x = onnx_ops_shape_of(w, n->in[0]), *y = onnx_ops_shape_of(w, n->out[0]), four = dt_shape1(4);
    const char *scales = "", *sizes = ""; // one is given, the other empty (roi always is)
    float *scale = dt_arena_alloc(&w->arena, 4 * sizeof *scale);
    bool whole = dt_onnx_samples_at(w, n->out[0]) == 0 && y->d[0] == dt_graph_samples(w->g);
    for (int d = 0; d < 4; d++) {
        const float from = (float)x->d[d], to = (float)y->d[d];
        // samples and channels stay
        const float step = d < 2 ? 1 : n->attrs.resize.step[d - 2];
        const bool exact = d < 2 || mode == DT_RESIZE_BILINEAR_CORNERS || step == from / to;
        scale[d] = exact ? to / from : 1 / step;
        whole &= exact; // the step follows from the sizes
        // readers round down: a size that is meant must not fall below it
        while (scale[d] * from < to) scale[d] = nextafterf(scale[d], INFINITY);
    }
    if (whole) // the step is that of the sizes: readers compute the same
        sizes = dt_onnx_sample_shape(w, y);
    else
        scales = dt_onnx_tensor(w, NULL, &four, scale);
    DT_ONNX_NODE(w, "Resize", out_of(w, n, 0), in[0], "", scales, sizes);
    dt_onnx_text(w, "mode", linear ? "linear" : "nearest");
    dt_onnx_text(w, "coordinate_transformation_mode",
                 mode == DT_RESIZE_NEAREST            ? "asymmetric" // PyTorch's floor(i step)
                 : mode == DT_RESIZE_BILINEAR_CORNERS ? "align_corners"
                                                      : "half_pixel");
    dt_onnx_text(w, "nearest_mode", mode == DT_RESIZE_NEAREST ? "floor" : "round_prefer_ceil");
    return DT_OK;
}

// ---- pixels ----------------------------------------------------------------------------------------
// (v - mean) * (1 / std), with the 255 of bytes in both: the difference first, which loses no digits of a large mean.
static dt_status emit_image_normalize(dt_onnx_writer *w, const dt_node *n, const char *const *in) {
    const int channels = n->attrs.image_normalize.channels;
    const bool bytes = dt_info_of(w->g, n->in[0])->dtype == DT_U8;
    const dt_shape each = dt_shape3(channels, 1, 1);
    float *factor = dt_arena_alloc(&w->arena, (size_t)channels * sizeof *factor);
    float *mean = dt_arena_alloc(&w->arena, (size_t)channels * sizeof *mean);
    const char *x = in[0];
    if (n->n_in > 1 && n->in[1] != DT_NONE) return dt_fail(DT_E_USAGE, "%s: mixing samples has no ONNX form", n->name);
    if (!w->o->preprocess) return DT_OK; // its output is the file's input
    for (int c = 0; c < channels; c++) {
        factor[c] = 1 / n->attrs.image_normalize.std[c] / (bytes ? 255 : 1); // mean and std are of 0..1
        mean[c] = n->attrs.image_normalize.mean[c] * (bytes ? 255 : 1);
    }
    if (bytes) {
        x = DT_ONNX_NODE(w, "Cast", NULL, x);
        dt_onnx_int(w, "to", ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    }
    x = DT_ONNX_NODE(w, "Transpose", NULL, x);
    dt_onnx_ints(w, "perm", (const int64_t[]){0, 3, 1, 2}, 4); // (N,H,W,C) to (N,C,H,W)
    x = DT_ONNX_NODE(w, "Sub", NULL, x, dt_onnx_tensor(w, NULL, &each, mean));
    DT_ONNX_NODE(w, "Mul", out_of(w, n, 0), x, dt_onnx_tensor(w, NULL, &each, factor));
    return DT_OK;
}

// Elements of all samples side by side: a reshape that keeps their number keeps samples apart.
static int64_t run_of_samples(const dt_shape *s, int at) {
    int64_t n = 1;
    for (int i = at; i < s->n; i++) n *= s->d[i];
    return n;
}
// A result keeps samples apart, in one of its dimensions; in an output each is one row.
static bool mixes_samples(const dt_onnx_writer *w, const dt_node *n) {
    const dt_value y = n->out[0];
    const int at = dt_onnx_samples_at(w, y);
    bool apart = true;
    for (int i = 0; i < n->n_in; i++) {
        const int from = n->in[i] == DT_NONE ? -1 : dt_onnx_samples_at(w, n->in[i]);
        if (from == -1) continue; // a weight or constant
        apart &= at >= 0;         // -1: samples are gone (a mean over them), -2: several dimensions depend on N
        if (apart && n->op == DT_OP_reshape)
            apart = run_of_samples(onnx_ops_shape_of(w, n->in[i]), from) == run_of_samples(onnx_ops_shape_of(w, y), at);
    }
    for (int i = 0; i < w->g->n_outputs; i++)
        if (w->g->outputs[i].value == y) apart &= at == 0 && onnx_ops_shape_of(w, y)->d[0] == dt_graph_samples(w->g);
    return !apart;
}

typedef dt_status (*emitter)(dt_onnx_writer *w, const dt_node *n, const char *const *in);
// Ops without a form in ONNX. An op of ops.def that is neither here nor has a function above stops the build.
#define emit_image_augment   NULL // only in training
#define emit_cast            NULL // of mixed precision: what is exported is the f32 graph
#define emit_sync_batch_norm NULL // only in training
#define emit_dropout         NULL // only where graphs drop: in training and for dtrain predict --mc
#define emit_add_branch      NULL // only in graphs with dt_graph.adds_branches, which an export does not set
#define emit_loss            NULL // a statistic, which no output reads
#define emit_arc_margin      NULL // only in training, as the next
#define emit_triplet         NULL
#define emit_quantize        NULL // int8 has the CPU's own scales, as the next two
#define emit_conv2d_int8     NULL
#define emit_linear_int8     NULL
static const emitter emitters[DT_OP_COUNT] = {
#define OP(id, ...) emit_##id,
#include "graph/ops.def"
#undef OP
};

bool dt_onnx_has_form(dt_op op) {
    return emitters[op] != NULL;
}

dt_status dt_onnx_emit(dt_onnx_writer *w, const dt_node *n) {
    const char *in[64]; // as many as concat may have
    if (!emitters[n->op])
        return dt_fail(DT_E_USAGE, "op %s of %s has no ONNX form: this network cannot be exported", dt_op_name(n->op),
                       n->name);
    if (mixes_samples(w, n))
        return dt_fail(DT_E_USAGE, "op %s of %s mixes samples, which has no ONNX form here", dt_op_name(n->op),
                       n->name);
    DT_TRY(name_inputs(w, n, in));
    return emitters[n->op](w, n, in);
}
