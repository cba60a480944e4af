// concat: joins tensors along an axis; the other dimensions are equal.
//   in  0… x_i
//   out 0 (…, sum of the x_i along axis, …)
// Gradient: a slice for each input.
#include "op_util.h"

static dt_status concat_infer(dt_graph *g, dt_node_id id) {
    dt_shape y = dt_op_in_shape(g, id, 0);
    int axis = g->nodes[id].attrs.concat.axis;
    if (axis < 0 || axis >= y.n) return dt_op_fail(g, id, "has no axis %d", axis);
    for (int i = 1; i < g->nodes[id].n_in; i++) {
        if (!dt_op_has_in(g, id, i)) return dt_op_fail(g, id, "input %d is missing", i);
        dt_shape x = dt_op_in_shape(g, id, i);
        bool fits = x.n == y.n;
        for (int d = 0; fits && d < x.n; d++) fits = d == axis || x.d[d] == y.d[d];
        if (!fits) return dt_op_fail(g, id, "shapes differ outside axis %d", axis);
        y.d[axis] += x.d[axis];
    }
    return dt_op_shaped(g, id, &y);
}

static dt_status concat_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_value dy = dt_grad_get(ctx, n.out[0]);
    int axis = n.attrs.concat.axis;
    int64_t at = 0;
    for (int i = 0; i < n.n_in; i++) {
        int64_t size = g->values[n.in[i]].shape.d[axis];
        if (dt_grad_wanted(ctx, n.in[i])) {
            dt_grad_give(ctx, n.in[i], dt_slice(g, dy, axis, at, at + size));
        }
        at += size;
    }
    return g->status;
}

DT_OP_DEFINE(concat, concat_infer, concat_grad);

dt_value dt_concat(dt_graph *g, const dt_value *x, int n, int axis) {
    for (int i = 0; i < n; i++) {
        if (x[i] == DT_NONE) return DT_NONE;
    }
    dt_attrs a = {.concat = {axis}};
    return dt_graph_apply(g, DT_OP_concat, NULL, x, n, &a);
}
