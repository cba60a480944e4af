// cast: another floating type.
//   in  0 x, floating
//   out 0 x as attrs.cast.to
// Gradient: cast back to x's type.
#include "op_util.h"

static dt_status cast_infer(dt_graph *g, dt_node_id id) {
    dt_shape s = dt_op_in_shape(g, id, 0);
    dt_dtype to = g->nodes[id].attrs.cast.to;
    if (!dt_dtype_is_float(dt_op_in_dtype(g, id, 0)) || !dt_dtype_is_float(to)) {
        return dt_op_fail(g, id, "converts between floating types only");
    }
    dt_op_add_out(g, id, 0, NULL, to, &s);
    return g->status;
}

static dt_status cast_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_node n = ctx->g->nodes[id];
    dt_dtype back = ctx->g->values[n.in[0]].dtype;
    dt_grad_give(ctx, n.in[0], dt_cast(ctx->g, dt_grad_get(ctx, n.out[0]), back));
    return ctx->g->status;
}

DT_OP_DEFINE(cast, cast_infer, cast_grad);

dt_value dt_cast(dt_graph *g, dt_value x, dt_dtype to) {
    if (x == DT_NONE || dt_info_of(g, x)->dtype == to) return x;
    dt_attrs a = {.cast = {to}};
    return dt_graph_apply(g, DT_OP_cast, NULL, &x, 1, &a);
}
