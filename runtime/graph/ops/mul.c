// mul: a * b, element by element.
//   in  0 a   1 b: the shape of a; or (D), a's last dimension, repeated over the others; or, a being (N,C,H,W), a factor
//       of each channel, (C,1,1) or (1,C,1,1), or of each channel of each image, (N,C,1,1)
//   out 0 (shape of a)
// Gradient of a: mul of the gradient and b. Of b, same shape: mul of the gradient and a; else a backward node that reads
// a and gives out 1, the sum of the product over what b was repeated over.
#include "op_util.h"

static dt_status mul_infer(dt_graph *g, dt_node_id id) {
    dt_shape a = dt_op_in_shape(g, id, 0), b = dt_op_in_shape(g, id, 1);
    dt_times t;
    if (!dt_dtype_is_float(dt_op_in_dtype(g, id, 0))) return dt_op_fail(g, id, "wants floating tensors");
    if (!dt_times_of(&a, &b, &t))
        return dt_op_fail(g, id,
                          "wants the second of the same shape, or its last dimension, or one factor "
                          "a channel: (C,1,1) or (N,C,1,1)");
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

DT_OP_DEFINE(mul, mul_infer, mul_grad);

dt_value dt_mul(dt_graph *g, dt_value a, dt_value b) {
    return dt_graph_apply(g, DT_OP_mul, NULL, (dt_value[]){a, b}, 2, NULL);
}
