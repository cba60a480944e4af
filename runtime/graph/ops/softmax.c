// softmax: over the last dimension.
//   in  0 x (…,D)
//   out 0 y (…,D)
// Backward reads y; gives dx.
#include "op_util.h"

static dt_status softmax_infer(dt_graph *g, dt_node_id id) {
    if (dt_op_in_shape(g, id, 0).n < 1) return dt_op_fail(g, id, "wants (…,D)");
    return dt_op_same(g, id);
}

static dt_status softmax_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 1, 0);
}

DT_OP_DEFINE(softmax, softmax_infer, softmax_grad);

dt_value dt_softmax(dt_graph *g, dt_value x) {
    if (x == DT_NONE) return DT_NONE;
    dt_attrs a = {.concat = {dt_info_of(g, x)->shape.n - 1}};
    return dt_graph_apply(g, DT_OP_softmax, NULL, &x, 1, &a);
}
