// max_pool: largest value of each window; padding counts as minus infinity.
//   in  0 x (N,C,H,W)
//   out 0 y (N,C,H',W')   1 argmax u8 (N,C,H',W'): position in the window, row * kernel_w + column
// Backward reads argmax only (x's shape is that of the output); gives dx.
#include "op_util.h"

static dt_status max_pool_infer(dt_graph *g, dt_node_id id) {
    dt_shape y;
    DT_TRY(dt_op_infer_pool(g, id, &y));
    const dt_window w = g->nodes[id].attrs.pool.win;
    if ((int64_t)w.kernel[0] * w.kernel[1] > 255) // argmax is u8
        return dt_op_fail(g, id, "a window holds at most 255 places");
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &y);
    dt_op_add_out(g, id, 1, "argmax", DT_U8, &y);
    return g->status;
}

static dt_status max_pool_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 2, 0);
}

DT_OP_DEFINE(max_pool, max_pool_infer, max_pool_grad);

dt_value dt_max_pool(dt_graph *g, dt_value x, int kernel, int stride, int pad) {
    dt_attrs a = {.pool = {.win = dt_op_window_square(kernel, stride, pad)}};
    return dt_graph_apply(g, DT_OP_max_pool, NULL, &x, 1, &a);
}

dt_value dt_max_pool_window(dt_graph *g, dt_value x, const dt_window *w) {
    const dt_attrs a = {.pool = {.win = *w}};
    return dt_graph_apply(g, DT_OP_max_pool, NULL, &x, 1, &a);
}
