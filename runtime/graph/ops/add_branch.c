// add_branch: the end of a residual block, x + y, where y first gets a factor of each channel (layer scale) and is zero
// for some samples (stochastic depth, as dropout with `whole`). One node in graphs with dt_graph.adds_branches, else mul,
// dropout and add: each step is rounded to the type, so the bits are the same.
//   in  0 y   1 x (shape of y)   2 scale, or none: (D), or of an image (C,1,1)
//   out 0 (shape of y)
// Attributes: dropout; p = 0 drops nothing. The gradient of x is that of the output. The backward node reads the scale
// and, if that is trained, y; gives dy and the scale's.
#include "op_util.h"

static dt_status add_branch_infer(dt_graph *g, dt_node_id id) {
    const dt_shape y = dt_op_in_shape(g, id, 0), x = dt_op_in_shape(g, id, 1);
    if (y.n < 2 || !dt_shape_equal(&y, &x)) return dt_op_fail(g, id, "shapes differ");
    if (dt_op_has_in(g, id, 2)) {
        const dt_shape scale = dt_op_in_shape(g, id, 2);
        dt_times t;
        if (scale.n == y.n || !dt_times_of(&y, &scale, &t))
            return dt_op_fail(g, id, "wants one factor a channel, (C,1,1) or (D)");
    }
    return dt_op_shaped(g, id, &y);
}

static dt_status add_branch_grad(dt_grad_ctx *ctx, dt_node_id id) {
    const dt_node n = ctx->g->nodes[id];
    const dt_value scale = n.in[2];
    dt_grad_give(ctx, n.in[1], dt_grad_get(ctx, n.out[0]));
    if (!dt_grad_wanted(ctx, n.in[0]) && !dt_grad_wanted(ctx, scale)) return ctx->g->status;
    return dt_grad_default(ctx, id, dt_grad_wanted(ctx, scale) ? 1 | 4 : 4, 0, 2);
}

DT_OP_DEFINE(add_branch, add_branch_infer, add_branch_grad);

dt_value dt_add_branch(dt_graph *g, const char *name, dt_value x, dt_value y, dt_value scale, float p) {
    const dt_attrs a = {.dropout = {g->training ? p : 0, true}};
    if (g->adds_branches && (scale != DT_NONE || a.dropout.p > 0))
        return dt_graph_apply(g, DT_OP_add_branch, name, (dt_value[]){y, x, scale}, 3, &a);
    if (scale != DT_NONE) y = dt_mul(g, y, scale);
    return dt_add(g, dt_drop_path(g, name, y, p), x);
}
