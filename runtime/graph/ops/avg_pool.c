// avg_pool: mean of each window; with attrs.pool.count_include_pad padding counts as zeros that are part of the mean.
//   in  0 x (N,C,H,W)
//   out 0 y (N,C,H',W')
// Backward reads only the gradient; gives dx.
#include "op_util.h"

static dt_status avg_pool_infer(dt_graph *g, dt_node_id id) {
    dt_shape y;
    DT_TRY(dt_op_infer_pool(g, id, &y));
    return dt_op_shaped(g, id, &y);
}

static dt_status avg_pool_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 0, 0);
}

DT_OP_DEFINE(avg_pool, avg_pool_infer, avg_pool_grad);

dt_value dt_avg_pool(dt_graph *g, dt_value x, int kernel, int stride, int pad) {
    const dt_window w = dt_op_window_square(kernel, stride, pad);
    return dt_avg_pool_window(g, x, &w, true);
}

dt_value dt_avg_pool_window(dt_graph *g, dt_value x, const dt_window *w, bool count_include_pad) {
    const dt_attrs a = {.pool = {.win = *w, .count_include_pad = count_include_pad}};
    return dt_graph_apply(g, DT_OP_avg_pool, NULL, &x, 1, &a);
}
