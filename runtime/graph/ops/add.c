// add: a + b; b may lack leading dimensions of a and is repeated over them.
//   in  0 a   1 b (shape of a, or its last dimensions)
//   out 0 (shape of a)
// Gradient of a: the gradient itself. Of b, same shape: the gradient itself; else a backward node that
// reads only the gradient and gives out 1, its sum over the missing dimensions.
#include "op_util.h"

static dt_status add_infer(dt_graph *g, dt_node_id id) {
    dt_shape a = dt_op_in_shape(g, id, 0), b = dt_op_in_shape(g, id, 1);
    int extra = a.n - b.n;
    if (extra < 0) return dt_op_fail(g, id, "the second has more dimensions than the first");
    for (int i = 0; i < b.n; i++) {
        if (b.d[i] != a.d[extra + i]) return dt_op_fail(g, id, "shapes differ");
    }
    return dt_op_shaped(g, id, &a);
}

static dt_status add_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_value dy = dt_grad_get(ctx, n.out[0]), b = n.in[1];
    dt_grad_give(ctx, n.in[0], dy);
    if (!dt_grad_wanted(ctx, b)) return g->status;
    if (g->values[b].kind != DT_V_PARAM && dt_shape_equal(&g->values[b].shape, &g->values[dy].shape)) {
        dt_grad_give(ctx, b, dy);
        return g->status;
    }
    return dt_grad_default(ctx, id, 0, 0, 1);
}

DT_OP_DEFINE(add, add_infer, add_grad);

dt_value dt_add(dt_graph *g, dt_value a, dt_value b) {
    return dt_graph_apply(g, DT_OP_add, NULL, (dt_value[]){a, b}, 2, NULL);
}
