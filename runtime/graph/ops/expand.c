// expand: repeats x along dimensions in which it has one element.   sum: adds x up along dimensions.
//   in  0 x
//   out 0 attrs.reshape.shape: of as many dimensions; expand: x's sizes where those are not 1; sum: x's sizes, or 1
// Each is the other's gradient.
#include "op_util.h"

static dt_status expand_infer(dt_graph *g, dt_node_id id, bool widens) {
    const dt_shape x = dt_op_in_shape(g, id, 0), y = g->nodes[id].attrs.reshape.shape;
    bool fits = x.n == y.n;
    for (int i = 0; fits && i < x.n; i++) fits = x.d[i] == y.d[i] || (widens ? x.d[i] : y.d[i]) == 1;
    if (fits && dt_dtype_is_float(dt_op_in_dtype(g, id, 0))) return dt_op_shaped(g, id, &y);
    char text[96];
    return dt_op_fail(g, id, "does not fit %s", dt_shape_print(&y, text, sizeof text));
}
static dt_status infer_expand(dt_graph *g, dt_node_id id) {
    return expand_infer(g, id, true);
}
static dt_status infer_sum(dt_graph *g, dt_node_id id) {
    return expand_infer(g, id, false);
}

static dt_status grad_expand(dt_grad_ctx *ctx, dt_node_id id) {
    const dt_node n = ctx->g->nodes[id];
    const dt_shape x = ctx->g->values[n.in[0]].shape;
    dt_grad_give(ctx, n.in[0], dt_sum(ctx->g, dt_grad_get(ctx, n.out[0]), x));
    return ctx->g->status;
}
static dt_status grad_sum(dt_grad_ctx *ctx, dt_node_id id) {
    const dt_node n = ctx->g->nodes[id];
    const dt_shape x = ctx->g->values[n.in[0]].shape;
    dt_grad_give(ctx, n.in[0], dt_expand(ctx->g, dt_grad_get(ctx, n.out[0]), x));
    return ctx->g->status;
}

DT_OP_DEFINE(expand, infer_expand, grad_expand);
DT_OP_DEFINE(sum, infer_sum, grad_sum);

static dt_value expand_apply(dt_graph *g, dt_op op, dt_value x, const dt_shape *shape) {
    const dt_attrs a = {.reshape = {*shape}};
    if (x == DT_NONE || dt_shape_equal(&dt_info_of(g, x)->shape, shape)) return x;
    return dt_graph_apply(g, op, NULL, &x, 1, &a);
}
dt_value dt_expand(dt_graph *g, dt_value x, dt_shape shape) {
    return expand_apply(g, DT_OP_expand, x, &shape);
}
dt_value dt_sum(dt_graph *g, dt_value x, dt_shape shape) {
    return expand_apply(g, DT_OP_sum, x, &shape);
}
