// reshape: the same elements, in row-major order, under another shape.
//   in  0 x
//   out 0 attrs.reshape.shape (a single -1 is worked out)
// Gradient: reshape back.
#include "op_util.h"

static dt_status reshape_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), y = g->nodes[id].attrs.reshape.shape;
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < y.n; i++) {
        if (y.d[i] == -1 && open < 0) {
            open = i;
        } else if (y.d[i] < 1 || __builtin_mul_overflow(known, y.d[i], &known)) {
            return dt_op_fail(g, id, "sizes must be positive, one may be -1");
        }
    }
    int64_t n = dt_shape_elements(&x);
    if (open >= 0) y.d[open] = n / known;
    if (dt_shape_elements(&y) != n) {
        char text[96];
        return dt_op_fail(g, id, "does not fit into %s", dt_shape_print(&y, text, sizeof text));
    }
    g->nodes[id].attrs.reshape.shape = y;
    return dt_op_shaped(g, id, &y);
}

static dt_status reshape_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_shape x = g->values[n.in[0]].shape;
    dt_grad_give(ctx, n.in[0], dt_reshape(g, dt_grad_get(ctx, n.out[0]), x));
    return g->status;
}

DT_OP_DEFINE(reshape, reshape_infer, reshape_grad);

dt_value dt_reshape(dt_graph *g, dt_value x, dt_shape shape) {
    dt_attrs a = {.reshape = {shape}};
    return dt_graph_apply(g, DT_OP_reshape, NULL, &x, 1, &a);
}
