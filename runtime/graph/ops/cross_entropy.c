// cross_entropy: softmax cross-entropy with hard or soft targets and label smoothing.
//   in  0 logits (N,K)   1 target i32 (N) or f32 (N,K)   2 weight f32 (N)
//   out 0 STAT sum of weight[n] * loss_n   1 STAT sum of weight
// Backward reads logits, target, weight (no gradient comes in); gives dlogits of out 0.
#include "op_util.h"

static dt_status infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), t = dt_op_in_shape(g, id, 1);
    dt_dtype type = dt_op_in_dtype(g, id, 1);
    bool hard = type == DT_I32 && t.n == 1 && t.d[0] == x.d[0];
    bool soft = type == DT_F32 && dt_shape_equal(&t, &x);
    if (x.n != 2 || !(hard || soft)) {
        return dt_op_fail(g, id, "wants logits (N,K), target i32 (N) or f32 (N,K)");
    }
    return dt_op_add_loss(g, id);
}

static dt_status grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 7, 0, 6);
}

DT_OP_DEFINE(cross_entropy, infer, grad);

dt_value dt_cross_entropy(dt_graph *g, dt_value logits, dt_value target, dt_value weight,
                          float smoothing) {
    if (logits == DT_NONE || target == DT_NONE || weight == DT_NONE) return DT_NONE;
    dt_attrs a = {.loss = {.smoothing = smoothing}};
    return dt_graph_apply(g, DT_OP_cross_entropy, NULL, (dt_value[]){logits, target, weight}, 3,
                          &a);
}
