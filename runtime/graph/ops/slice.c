// slice: elements [begin, end) of an axis.
//   in  0 x
//   out 0 (…, end - begin, …)
// Backward reads only the gradient; gives dx, zero outside the slice.
#include "op_util.h"

static dt_status slice_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    dt_attrs a = g->nodes[id].attrs;
    int axis = a.slice.axis;
    if (axis < 0 || axis >= x.n) return dt_op_fail(g, id, "has no axis %d", axis);
    if (a.slice.begin < 0 || a.slice.end <= a.slice.begin || a.slice.end > x.d[axis]) {
        return dt_op_fail(g, id, "[%lld, %lld) is not inside axis %d", (long long)a.slice.begin, (long long)a.slice.end,
                          axis);
    }
    x.d[axis] = a.slice.end - a.slice.begin;
    return dt_op_shaped(g, id, &x);
}

static dt_status slice_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 0, 0);
}

DT_OP_DEFINE(slice, slice_infer, slice_grad);

dt_value dt_slice(dt_graph *g, dt_value x, int axis, int64_t begin, int64_t end) {
    dt_attrs a = {.slice = {axis, begin, end}};
    return dt_graph_apply(g, DT_OP_slice, NULL, &x, 1, &a);
}
