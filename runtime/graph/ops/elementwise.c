// elementwise.c: ops that go over elements: shape inference, gradient, builder call.

#include "op_util.h"

#include "graph/activation_words.h"

// ---- activation ---------------------------------------------------------------------------------------------------

// activation: elementwise functions of one input, by attrs.activation.kind, in PyTorch's forms: those of
// activations.def that have no op of their own.
//   in  0 x
//   out 0 y
// Backward reads x; gives dx.

static void activation_print(const dt_node *n, FILE *out) {
    dt_op_print_act(n->attrs.activation.kind, out);
}

DT_OP_DEFINE(activation, .infer = dt_op_same, .grad = dt_grad_saved, .save_in = 1, .print = activation_print);

static const struct {
    const char *name;
    dt_op op;
    float number;
} kinds[DT_N_ACTIVATIONS] = {
    [DT_ACTIVATION_none] = {"", DT_OP_COUNT, 0},
#define ACTIVATION(id, op, at_zero, help)     [DT_ACTIVATION_##id] = {#id, DT_OP_##op, 0},
#define ACTIVATION_WITH(id, key, unset, help) [DT_ACTIVATION_##id] = {#id, DT_OP_activation, unset},
#include "graph/activations.def"
#undef ACTIVATION
};

const char *dt_activation_name(dt_activation kind) {
    return kinds[kind].name;
}

dt_value dt_activate(dt_graph *g, dt_activation kind, dt_value x) {
    return dt_activate_with(g, kind, x, kinds[kind].number);
}

dt_value dt_activate_with(dt_graph *g, dt_activation kind, dt_value x, float number) {
    const dt_attrs a = {.activation = {kind, number}};
    return kind == DT_ACTIVATION_none ? x : dt_graph_apply(g, kinds[kind].op, NULL, &x, 1, &a);
}

// ---- relu ---------------------------------------------------------------------------------------------------------

// relu: max(x, 0).
//   in  0 x
//   out 0 y
// Backward reads y; gives dx.

DT_OP_DEFINE(relu, .infer = dt_op_same, .grad = dt_grad_saved, .save_out = 1);

dt_value dt_relu(dt_graph *g, dt_value x) {
    return dt_activate(g, DT_ACTIVATION_relu, x);
}

// ---- gelu ---------------------------------------------------------------------------------------------------------

// gelu: x/2 (1 + erf(x/sqrt 2)) (Hendrycks & Gimpel, 2016), or where attrs.activation.kind is gelu_tanh the same
// authors' x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), which is PyTorch's approximate='tanh'.
//   in  0 x
//   out 0 y
// Backward reads x; gives dx.

DT_OP_DEFINE(gelu, .infer = dt_op_same, .grad = dt_grad_saved, .save_in = 1, .print = activation_print);

dt_value dt_gelu(dt_graph *g, dt_value x) {
    return dt_activate(g, DT_ACTIVATION_gelu, x);
}

dt_value dt_gelu_tanh(dt_graph *g, dt_value x) {
    return dt_activate(g, DT_ACTIVATION_gelu_tanh, x);
}

// ---- add ----------------------------------------------------------------------------------------------------------

// add: a + b; b may lack leading dimensions of a and is repeated over them.
//   in  0 a   1 b (shape of a, or its last dimensions)
//   out 0 (shape of a)
// Gradient of a: the gradient itself. Of b, same shape: the gradient itself; else a backward node that
// reads only the gradient and gives out 1, its sum over the missing dimensions.

static dt_status add_infer(dt_graph *g, dt_node_id id) {
    dt_shape a = dt_op_in_shape(g, id, 0), b = dt_op_in_shape(g, id, 1);
    int extra = a.n - b.n;
    if (extra < 0) return dt_op_fail(g, id, "the second has more dimensions than the first");
    for (int i = 0; i < b.n; i++) {
        if (b.d[i] != a.d[extra + i]) return dt_op_fail(g, id, "shapes differ");
    }
    return dt_op_shaped(g, id, &a);
}

static dt_status add_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_value dy = dt_grad_get(ctx, n.out[0]), b = n.in[1];
    dt_grad_give(ctx, n.in[0], dy); // the gradient itself, no node
    if (!dt_grad_wanted(ctx, b)) return g->status;
    if (g->values[b].kind != DT_V_PARAM && dt_shape_equal(&g->values[b].shape, &g->values[dy].shape)) {
        dt_grad_give(ctx, b, dy);
        return g->status;
    }
    return dt_grad_default(ctx, id, 0, 0, 1);
}

DT_OP_DEFINE(add, .infer = add_infer, .grad = add_grad);

dt_value dt_add(dt_graph *g, dt_value a, dt_value b) {
    return dt_graph_apply(g, DT_OP_add, NULL, (dt_value[]){a, b}, 2, NULL);
}

// ---- add branch ---------------------------------------------------------------------------------------------------

// add_branch: the end of a residual block, x + y, where y first gets a factor of each channel (layer scale) and is zero
// for some samples (stochastic depth, as dropout with `whole`). One node in graphs with dt_graph.adds_branches, else
// mul, dropout and add: each step is rounded to the type, so the bits are the same.
//   in  0 y   1 x (shape of y)   2 scale, or none: (D), or of an image (C,1,1)
//   out 0 (shape of y)
// Attributes: dropout; p = 0 drops nothing. The gradient of x is that of the output. The backward node reads the scale
// and, if that is trained, y; gives dy and the scale's.

static dt_status add_branch_infer(dt_graph *g, dt_node_id id) {
    const dt_shape y = dt_op_in_shape(g, id, 0), x = dt_op_in_shape(g, id, 1);
    if (y.n < 2 || !dt_shape_equal(&y, &x)) return dt_op_fail(g, id, "shapes differ");
    if (dt_op_has_in(g, id, 2)) {
        const dt_shape scale = dt_op_in_shape(g, id, 2);
        dt_times t;
        if (scale.n == y.n || !dt_times_of(&y, &scale, &t))
            return dt_op_fail(g, id, "wants one factor per channel, (C,1,1) or (D)");
    }
    return dt_op_shaped(g, id, &y);
}

static dt_status add_branch_grad(dt_grad_ctx *ctx, dt_node_id id) {
    const dt_node n = ctx->g->nodes[id];
    const dt_value scale = n.in[2];
    dt_grad_give(ctx, n.in[1], dt_grad_get(ctx, n.out[0])); // of the residual stream: unchanged
    if (!dt_grad_wanted(ctx, n.in[0]) && !dt_grad_wanted(ctx, scale)) return ctx->g->status;
    return dt_grad_default(ctx, id, dt_grad_wanted(ctx, scale) ? 1 | 4 : 4, 0, 2);
}

static void dropout_print(const dt_node *n, FILE *out) {
    fprintf(out, " p %g", (double)n->attrs.dropout.p);
}

DT_OP_DEFINE(add_branch, .infer = add_branch_infer, .grad = add_branch_grad, .print = dropout_print);

dt_value dt_add_branch(dt_graph *g, const char *name, dt_value x, dt_value y, dt_value scale, float p) {
    const dt_attrs a = {.dropout = {g->training ? p : 0, true}};
    if (g->adds_branches && (scale != DT_NONE || a.dropout.p > 0))
        return dt_graph_apply(g, DT_OP_add_branch, name, (dt_value[]){y, x, scale}, 3, &a);
    if (scale != DT_NONE) y = dt_mul(g, y, scale);
    return dt_add(g, dt_drop_path(g, name, y, p), x);
}

// ---- mul ----------------------------------------------------------------------------------------------------------

// mul: a * b, element by element.
//   in  0 a   1 b: the shape of a; or (D), a's last dimension, repeated over the others; or, a being (N,C,H,W), a factor
//       of each channel, (C,1,1) or (1,C,1,1), or of each channel of each image, (N,C,1,1)
//   out 0 (shape of a)
// Gradient of a: mul of the gradient and b. Of b, same shape: mul of the gradient and a; else a backward node that
// reads a and gives out 1, the sum of the product over what b was repeated over.

static dt_status mul_infer(dt_graph *g, dt_node_id id) {
    dt_shape a = dt_op_in_shape(g, id, 0), b = dt_op_in_shape(g, id, 1);
    dt_times t;
    if (!dt_dtype_is_float(dt_op_in_dtype(g, id, 0))) return dt_op_fail(g, id, "wants floating tensors");
    if (!dt_times_of(&a, &b, &t))
        return dt_op_fail(g, id,
                          "wants the second of the same shape, or its last dimension, or one factor per channel: "
                          "(C,1,1) or (N,C,1,1)");
    return dt_op_shaped(g, id, &a);
}

static dt_status mul_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_value dy = dt_grad_get(ctx, n.out[0]), a = n.in[0], b = n.in[1];
    if (dt_grad_wanted(ctx, a)) dt_grad_give(ctx, a, dt_mul(g, dy, b));
    if (!dt_grad_wanted(ctx, b)) return g->status;
    if (g->values[b].kind != DT_V_PARAM && dt_shape_equal(&g->values[b].shape, &g->values[a].shape)) {
        dt_grad_give(ctx, b, dt_mul(g, dy, a));
        return g->status;
    }
    return dt_grad_default(ctx, id, 1, 0, 1);
}

DT_OP_DEFINE(mul, .infer = mul_infer, .grad = mul_grad);

dt_value dt_mul(dt_graph *g, dt_value a, dt_value b) {
    return dt_graph_apply(g, DT_OP_mul, NULL, (dt_value[]){a, b}, 2, NULL);
}

// ---- scale --------------------------------------------------------------------------------------------------------

// scale: alpha x.
//   in  0 x
//   out 0 alpha x
// Gradient: scale by alpha.

static dt_status scale_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_node n = ctx->g->nodes[id];
    dt_value dy = dt_grad_get(ctx, n.out[0]);
    dt_grad_give(ctx, n.in[0], dt_scale(ctx->g, dy, n.attrs.scale.alpha));
    return ctx->g->status;
}

static void scale_print(const dt_node *n, FILE *out) {
    fprintf(out, " x%g", (double)n->attrs.scale.alpha);
}

DT_OP_DEFINE(scale, .infer = dt_op_same, .grad = scale_grad, .print = scale_print);

dt_value dt_scale(dt_graph *g, dt_value x, float alpha) {
    dt_attrs a = {.scale = {alpha}};
    return dt_graph_apply(g, DT_OP_scale, NULL, &x, 1, &a);
}

// ---- dropout ------------------------------------------------------------------------------------------------------

// dropout: zeroes with probability p and scales what stays by 1/(1-p); in graphs that drop (elsewhere the builder
// returns x itself); with `whole` (stochastic depth) all of a sample at once. The mask is a function of seed, step,
// slot, element and the node's name, so it is never stored.
//   in  0 x
//   out 0 y
// Backward makes the mask again from the forward node's name and reads only the gradient; gives dx.

DT_OP_DEFINE(dropout, .infer = dt_op_same, .grad = dt_grad_saved, .print = dropout_print);

static dt_value dropout_apply(dt_graph *g, const char *name, dt_value x, float p, bool whole) {
    if (x == DT_NONE || p == 0.0f) return x;
    if (!(p > 0.0f && p < 1.0f)) return dt_graph_fail(g, "dropout %s: p = %g is not in [0, 1)", name, (double)p);
    dt_attrs a = {.dropout = {p, whole}};
    return dt_graph_apply(g, DT_OP_dropout, name, &x, 1, &a);
}

dt_value dt_dropout(dt_graph *g, const char *name, dt_value x, float p) {
    return g->drops ? dropout_apply(g, name, x, p, false) : x;
}

dt_value dt_drop_path(dt_graph *g, const char *name, dt_value x, float p) {
    return g->training ? dropout_apply(g, name, x, p, true) : x;
}

// ---- cast ---------------------------------------------------------------------------------------------------------

// cast: another floating type.
//   in  0 x, floating
//   out 0 x as attrs.cast.to
// Gradient: cast back to x's type.

static dt_status cast_infer(dt_graph *g, dt_node_id id) {
    dt_shape s = dt_op_in_shape(g, id, 0);
    dt_dtype to = g->nodes[id].attrs.cast.to;
    if (!dt_dtype_is_float(dt_op_in_dtype(g, id, 0)) || !dt_dtype_is_float(to)) {
        return dt_op_fail(g, id, "converts between floating types only");
    }
    dt_op_add_out(g, id, 0, NULL, to, &s);
    return g->status;
}

static dt_status cast_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_node n = ctx->g->nodes[id];
    dt_dtype back = ctx->g->values[n.in[0]].dtype;
    dt_grad_give(ctx, n.in[0], dt_cast(ctx->g, dt_grad_get(ctx, n.out[0]), back));
    return ctx->g->status;
}

static void cast_print(const dt_node *n, FILE *out) {
    fprintf(out, " %s", dt_dtype_name(n->attrs.cast.to));
}

DT_OP_DEFINE(cast, .infer = cast_infer, .grad = cast_grad, .flops = dt_op_no_flops, .print = cast_print);

dt_value dt_cast(dt_graph *g, dt_value x, dt_dtype to) {
    if (x == DT_NONE || dt_info_of(g, x)->dtype == to) return x;
    dt_attrs a = {.cast = {to}};
    return dt_graph_apply(g, DT_OP_cast, NULL, &x, 1, &a);
}
