// mse: squared error, mean over a sample's elements.
//   in  0 x   1 target f32, same shape   2 weight f32 (N)
//   out 0 STAT sum of weight[n] * loss_n   1 STAT sum of weight
// Backward reads x, target, weight (no gradient comes in); gives the gradient of input 0.
#include "op_util.h"

static dt_status infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), t = dt_op_in_shape(g, id, 1);
    if (!dt_shape_equal(&x, &t) || dt_op_in_dtype(g, id, 1) != DT_F32) {
        return dt_op_fail(g, id, "wants an f32 target of the prediction's shape");
    }
    return dt_op_add_loss(g, id);
}

static dt_status grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 7, 0, 6);
}

DT_OP_DEFINE(mse, infer, grad);

dt_value dt_mse(dt_graph *g, dt_value x, dt_value target, dt_value weight) {
    if (x == DT_NONE || target == DT_NONE || weight == DT_NONE) return DT_NONE;
    dt_attrs a = {.loss = {0}};
    return dt_graph_apply(g, DT_OP_mse, NULL, (dt_value[]){x, target, weight}, 3, &a);
}
