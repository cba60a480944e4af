// scale: alpha x.
//   in  0 x
//   out 0 alpha x
// Gradient: scale by alpha.
#include "op_util.h"

static dt_status scale_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_node n = ctx->g->nodes[id];
    dt_value dy = dt_grad_get(ctx, n.out[0]);
    dt_grad_give(ctx, n.in[0], dt_scale(ctx->g, dy, n.attrs.scale.alpha));
    return ctx->g->status;
}

DT_OP_DEFINE(scale, dt_op_same, scale_grad);

dt_value dt_scale(dt_graph *g, dt_value x, float alpha) {
    dt_attrs a = {.scale = {alpha}};
    return dt_graph_apply(g, DT_OP_scale, NULL, &x, 1, &a);
}
