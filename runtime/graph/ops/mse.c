// mse: squared error, mean over a sample's elements.
//   in  0 x   1 target f32, same shape   2 weight f32 (N)
//   out 0 STAT sum of weight[n] * loss_n   1 STAT sum of weight
// Backward reads x, target, weight (no gradient comes in); gives the gradient of input 0.
#include "op_util.h"

DT_OP_DEFINE(mse, dt_op_infer_elementwise_loss, dt_op_grad_loss);

dt_value dt_mse(dt_graph *g, dt_value x, dt_value target, dt_value weight) {
    if (x == DT_NONE || target == DT_NONE || weight == DT_NONE) return DT_NONE;
    dt_attrs a = {.loss = {0}};
    return dt_graph_apply(g, DT_OP_mse, NULL, (dt_value[]){x, target, weight}, 3, &a);
}
