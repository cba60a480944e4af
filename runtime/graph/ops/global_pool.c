// global_pool: mean over the image.
//   in  0 x (N,C,H,W)
//   out 0 y (N,C)
// Backward reads only the gradient; gives dx.
#include "op_util.h"

static dt_status global_pool_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    if (x.n != 4) return dt_op_fail(g, id, "wants (N,C,H,W)");
    dt_shape y = dt_shape2(x.d[0], x.d[1]);
    return dt_op_shaped(g, id, &y);
}

static dt_status global_pool_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 0, 0);
}

DT_OP_DEFINE(global_pool, global_pool_infer, global_pool_grad);

dt_value dt_global_pool(dt_graph *g, dt_value x) {
    return dt_graph_apply(g, DT_OP_global_pool, NULL, &x, 1, NULL);
}
