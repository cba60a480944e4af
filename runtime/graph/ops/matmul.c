// matmul.c: products, attention, softmax and int8: shape inference, gradient, builder call.

#include "op_util.h"

#include "graph/activation_words.h"

#include <math.h>

// ---- matmul -------------------------------------------------------------------------------------------------------

// matmul: batched product of the last two dimensions, alpha * op(a) op(b), op transposes where trans_a or trans_b is
// set.
//   in  0 a (…,M,K)   1 b (…,K,N), the same leading dimensions
//   out 0 (…,M,N)
// Gradient: two matmul nodes.

static dt_status matmul_infer(dt_graph *g, dt_node_id id) {
    dt_shape a = dt_op_in_shape(g, id, 0), b = dt_op_in_shape(g, id, 1);
    dt_attrs at = g->nodes[id].attrs;
    bool fits = a.n >= 2 && a.n == b.n;
    for (int i = 0; fits && i < a.n - 2; i++) fits = a.d[i] == b.d[i];
    if (!fits) return dt_op_fail(g, id, "leading dimensions differ");
    int64_t m = a.d[a.n - 2 + (at.matmul.trans_a != 0)], ka = a.d[a.n - 1 - (at.matmul.trans_a != 0)];
    int64_t n = b.d[b.n - 1 - (at.matmul.trans_b != 0)], kb = b.d[b.n - 2 + (at.matmul.trans_b != 0)];
    if (ka != kb) return dt_op_fail(g, id, "inner dimensions %lld and %lld differ", (long long)ka, (long long)kb);
    a.d[a.n - 2] = m;
    a.d[a.n - 1] = n;
    return dt_op_shaped(g, id, &a);
}

// C = alpha A B:  dA = alpha dC B^T,  dB = alpha A^T dC; a transposed operand swaps the factors.
static dt_status matmul_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_value a = n.in[0], b = n.in[1], dy = dt_grad_get(ctx, n.out[0]);
    bool ta = n.attrs.matmul.trans_a, tb = n.attrs.matmul.trans_b;
    float alpha = n.attrs.matmul.alpha;
    if (dt_grad_wanted(ctx, a)) {
        dt_grad_give(ctx, a, ta ? dt_matmul(g, b, dy, tb, true, alpha) : dt_matmul(g, dy, b, false, !tb, alpha));
    }
    if (dt_grad_wanted(ctx, b)) {
        dt_grad_give(ctx, b, tb ? dt_matmul(g, dy, a, true, ta, alpha) : dt_matmul(g, a, dy, !ta, false, alpha));
    }
    return g->status;
}

static double matmul_flops(const dt_graph *g, const dt_node *n) {
    const dt_shape *a = &dt_info_of(g, n->in[0])->shape;
    return 2.0 * (double)a->d[n->attrs.matmul.trans_a ? a->n - 2 : a->n - 1]; // K
}

static void matmul_print(const dt_node *n, FILE *out) {
    fprintf(out, "%s%s", n->attrs.matmul.trans_a ? " aT" : "", n->attrs.matmul.trans_b ? " bT" : "");
    if (n->attrs.matmul.alpha != 1.0f) fprintf(out, " x%g", (double)n->attrs.matmul.alpha);
}

DT_OP_DEFINE(matmul, .infer = matmul_infer, .grad = matmul_grad, .flops = matmul_flops, .print = matmul_print);

dt_value dt_matmul(dt_graph *g, dt_value a, dt_value b, bool trans_a, bool trans_b, float alpha) {
    dt_attrs at = {.matmul = {trans_a, trans_b, alpha}};
    return dt_graph_apply(g, DT_OP_matmul, NULL, (dt_value[]){a, b}, 2, &at);
}

// ---- linear -------------------------------------------------------------------------------------------------------

// linear: y = act(x W^T + b).
//   in  0 x (…,I)   1 weight (O,I)   2 bias (O), optional
//   out 0 y (…,O)   1 what went into a fused GELU in training, else none
// Backward reads x and weight, and y when a ReLU is fused; gives dx, dweight, dbias. Exact GELU is
// fused in inference graphs only, its tanh form in training by a pass of its own (dt_pass_fuse_gelu).

static dt_status linear_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), w = dt_op_in_shape(g, id, 1);
    if (x.n < 1 || w.n != 2 || x.d[x.n - 1] != w.d[1]) {
        return dt_op_fail(g, id, "wants x (…,I) and weight (O,I)");
    }
    if (dt_op_has_in(g, id, 2)) {
        dt_shape b = dt_op_in_shape(g, id, 2);
        if (b.n != 1 || b.d[0] != w.d[0]) return dt_op_fail(g, id, "bias must be (O)");
    }
    x.d[x.n - 1] = w.d[0];
    return dt_op_shaped(g, id, &x);
}

static dt_status linear_grad(dt_grad_ctx *ctx, dt_node_id id) {
    bool relu = ctx->g->nodes[id].attrs.linear.act == DT_ACTIVATION_relu;
    return dt_grad_default(ctx, id, 3, relu ? 1 : 0, 0);
}

static double linear_flops(const dt_graph *g, const dt_node *n) {
    return 2.0 * (double)dt_info_of(g, n->in[1])->shape.d[1];
}

static void linear_print(const dt_node *n, FILE *out) {
    dt_op_print_act(n->attrs.linear.act, out);
    if (n->attrs.linear.dgelu) fprintf(out, " dgelu");
}

DT_OP_DEFINE(linear, .infer = linear_infer, .grad = linear_grad, .flops = linear_flops, .print = linear_print);

dt_value dt_linear_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias) {
    dt_value in[3] = {x, weight, bias};
    dt_attrs a = {.linear = {DT_ACTIVATION_none}};
    return dt_graph_apply(g, DT_OP_linear, name, in, bias == DT_NONE ? 2 : 3, &a);
}

dt_value dt_linear(dt_graph *g, const char *name, dt_value x, int64_t out, bool bias) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    dt_shape s = dt_info_of(g, x)->shape;
    if (s.n < 1 || out < 1) return dt_graph_fail(g, "linear %s: wants x (…,I), outputs >= 1", name);
    if (!name) name = dt_graph_unique_name(g, "linear");
    int64_t inputs = s.d[s.n - 1];
    dt_init init = {DT_INIT_UNIFORM, (float)(1.0 / sqrt((double)inputs))};
    dt_value w = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), dt_shape2(out, inputs), init, true);
    dt_value b = DT_NONE;
    if (bias) b = dt_param(g, dt_arena_printf(&g->arena, "%s.bias", name), dt_shape1(out), init, false);
    return dt_linear_with(g, name, x, w, b);
}

// ---- sdpa ---------------------------------------------------------------------------------------------------------

// sdpa: scaled dot-product attention, softmax(scale q k^T) v (Vaswani et al., 2017), in two forms.
//   apart   in  0 q (N,H,Tq,D)   1 k (N,H,Tk,D)   2 v (N,H,Tk,D)     out 0 y (N,H,Tq,D)
//   packed  in  0 qkv (N,T,3*H*D): q, k, v of one projection, heads within each, attrs.sdpa.heads = H
//                                                                    out 0 y (N,T,H*D)
//   both    out 1 lse f32 (N,H,Tq): log of the sum of exponentials of each row
// Backward reads q, k, v (or qkv), y and lse; gives their gradients in the same form. The scores are
// never stored (Dao et al., 2022). The packed form is what a projection writes and the next one reads:
// nothing is cut, transposed or joined in between. Kernels see both forms through backend/sdpa_view.h.

static dt_status infer_packed(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    int64_t heads = g->nodes[id].attrs.sdpa.heads;
    if (heads < 1 || x.n != 3 || x.d[2] % (3 * heads)) {
        return dt_op_fail(g, id, "wants qkv (N,T,3*heads*D), there are %d heads", (int)heads);
    }
    dt_shape y = dt_shape3(x.d[0], x.d[1], x.d[2] / 3), lse = dt_shape3(x.d[0], heads, x.d[1]);
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &y);
    dt_op_add_out(g, id, 1, "lse", DT_F32, &lse);
    return g->status;
}

static dt_status sdpa_infer(dt_graph *g, dt_node_id id) {
    if (!dt_op_has_in(g, id, 1)) return infer_packed(g, id);
    if (!dt_op_has_in(g, id, 2)) return dt_op_fail(g, id, "wants q, k and v, or one packed tensor");
    dt_shape q = dt_op_in_shape(g, id, 0), k = dt_op_in_shape(g, id, 1), v = dt_op_in_shape(g, id, 2);
    bool fits =
        q.n == 4 && k.n == 4 && dt_shape_equal(&k, &v) && q.d[0] == k.d[0] && q.d[1] == k.d[1] && q.d[3] == k.d[3];
    if (!fits) return dt_op_fail(g, id, "wants q (N,H,Tq,D), k and v (N,H,Tk,D)");
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &q);
    q.n = 3;
    dt_op_add_out(g, id, 1, "lse", DT_F32, &q);
    return g->status;
}

// q k^T and its product with v: 2 Tk each. Backward: q k^T again, and two products for each of its factors.
static double sdpa_flops(const dt_graph *g, const dt_node *n) {
    const bool packed = n->attrs.sdpa.heads > 0;
    return 4.0 * (double)dt_info_of(g, n->in[packed ? 0 : 1])->shape.d[packed ? 1 : 2];
}

static void sdpa_print(const dt_node *n, FILE *out) {
    fprintf(out, " scale %g", (double)n->attrs.sdpa.scale);
    if (n->attrs.sdpa.heads) fprintf(out, " packed, %d heads", n->attrs.sdpa.heads);
}

DT_OP_DEFINE(sdpa, .infer = sdpa_infer, .grad = dt_grad_saved, .save_in = 7, .save_out = 3, .flops = sdpa_flops,
             .backward_flops = 2.5, .print = sdpa_print);

dt_value dt_sdpa(dt_graph *g, dt_value q, dt_value k, dt_value v, float scale) {
    dt_attrs a = {.sdpa = {.scale = scale}};
    return dt_graph_apply(g, DT_OP_sdpa, NULL, (dt_value[]){q, k, v}, 3, &a);
}

dt_value dt_sdpa_packed(dt_graph *g, const char *name, dt_value qkv, int heads, float scale) {
    dt_attrs a = {.sdpa = {.scale = scale, .heads = heads}};
    return dt_graph_apply(g, DT_OP_sdpa, name, &qkv, 1, &a);
}

// ---- softmax ------------------------------------------------------------------------------------------------------

// softmax: over the last dimension.
//   in  0 x (…,D)
//   out 0 y (…,D)
// Backward reads y; gives dx.

DT_OP_DEFINE(softmax, .infer = dt_op_rows, .grad = dt_grad_saved, .save_out = 1);

dt_value dt_softmax(dt_graph *g, dt_value x) {
    if (x == DT_NONE) return DT_NONE;
    dt_attrs a = {.concat = {dt_info_of(g, x)->shape.n - 1}};
    return dt_graph_apply(g, DT_OP_softmax, NULL, &x, 1, &a);
}

// ---- quantize -----------------------------------------------------------------------------------------------------

// quantize: to 8 bits and back, y = round(x / scale) within the type, or y = x scale. conv2d_int8, linear_int8:
// conv2d and linear whose x, weight and residual are 8 bits (attrs.h, dt_int8_scales); y is 8 bits or f32.
//   in  0 x, f32; or u8 or i8
//   out 0 y of type attrs.to
// Only passes/int8.c makes these, in inference: the other two have no shape inference, and none has a gradient.

static dt_status quantize_infer(dt_graph *g, dt_node_id id) {
    const dt_shape s = dt_op_in_shape(g, id, 0);
    const dt_dtype from = dt_op_in_dtype(g, id, 0), to = g->nodes[id].attrs.quantize.to;
    const dt_dtype low = from == DT_F32 ? to : from, high = from == DT_F32 ? from : to;
    if ((low != DT_U8 && low != DT_I8) || high != DT_F32) return dt_op_fail(g, id, "converts f32 to 8 bits or back");
    dt_op_add_out(g, id, 0, NULL, to, &s);
    return g->status;
}

static dt_status no_shape(dt_graph *g, dt_node_id id) {
    return dt_op_fail(g, id, "is made of a conv2d or linear that has its shape");
}

static void quantize_print(const dt_node *n, FILE *out) {
    fprintf(out, " %s x%g", dt_dtype_name(n->attrs.quantize.to), (double)n->attrs.quantize.scale);
}

DT_OP_DEFINE(quantize, .infer = quantize_infer, .flops = dt_op_no_flops, .print = quantize_print);
DT_OP_DEFINE(conv2d_int8, .infer = no_shape, .flops = dt_op_conv2d_flops, .print = dt_op_conv2d_print);
DT_OP_DEFINE(linear_int8, .infer = no_shape, .flops = linear_flops, .print = linear_print);
