// bce: binary cross-entropy of logits, mean over a sample's elements.
//   in  0 logits   1 target f32, same shape   2 weight f32 (N)
//   out 0 STAT sum of weight[n] * loss_n   1 STAT sum of weight
// Backward reads logits, target, weight (no gradient comes in); gives the gradient of input 0.
#include "op_util.h"

DT_OP_DEFINE(bce, dt_op_infer_elementwise_loss, dt_op_grad_loss);

dt_value dt_bce(dt_graph *g, dt_value logits, dt_value target, dt_value weight) {
    if (logits == DT_NONE || target == DT_NONE || weight == DT_NONE) return DT_NONE;
    dt_attrs a = {.loss = {0}};
    return dt_graph_apply(g, DT_OP_bce, NULL, (dt_value[]){logits, target, weight}, 3, &a);
}
