// transpose: dimension i of the output is dimension perm[i] of the input.
//   in  0 x
//   out 0 permuted
// Gradient: transpose by the inverse permutation.
#include "op_util.h"

#include <string.h>

static dt_status transpose_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), y = x;
    dt_attrs a = g->nodes[id].attrs;
    unsigned seen = 0;
    for (int i = 0; i < x.n; i++) {
        int from = a.transpose.perm[i];
        if (from < 0 || from >= x.n || seen >> from & 1) return dt_op_fail(g, id, "bad permutation");
        seen |= 1u << from;
        y.d[i] = x.d[from];
    }
    return dt_op_shaped(g, id, &y);
}

static dt_status transpose_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    int inverse[DT_MAX_DIMS] = {0};
    for (int i = 0; i < g->values[n.in[0]].shape.n; i++) inverse[n.attrs.transpose.perm[i]] = i;
    dt_grad_give(ctx, n.in[0], dt_transpose(g, dt_grad_get(ctx, n.out[0]), inverse));
    return g->status;
}

DT_OP_DEFINE(transpose, transpose_infer, transpose_grad);

dt_value dt_transpose(dt_graph *g, dt_value x, const int *perm) {
    if (x == DT_NONE) return DT_NONE;
    dt_attrs a = {0};
    memcpy(a.transpose.perm, perm, (size_t)dt_info_of(g, x)->shape.n * sizeof *perm);
    return dt_graph_apply(g, DT_OP_transpose, NULL, &x, 1, &a);
}
