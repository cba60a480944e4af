// matmul: batched product of the last two dimensions, alpha * op(a) op(b), op transposing if asked.
//   in  0 a (…,M,K)   1 b (…,K,N), the same leading dimensions
//   out 0 (…,M,N)
// Gradient: two matmul nodes.
#include "op_util.h"

static dt_status matmul_infer(dt_graph *g, dt_node_id id) {
    dt_shape a = dt_op_in_shape(g, id, 0), b = dt_op_in_shape(g, id, 1);
    dt_attrs at = g->nodes[id].attrs;
    bool fits = a.n >= 2 && a.n == b.n;
    for (int i = 0; fits && i < a.n - 2; i++) fits = a.d[i] == b.d[i];
    if (!fits) return dt_op_fail(g, id, "leading dimensions differ");
    int64_t m = a.d[a.n - 2 + (at.matmul.trans_a != 0)], ka = a.d[a.n - 1 - (at.matmul.trans_a != 0)];
    int64_t n = b.d[b.n - 1 - (at.matmul.trans_b != 0)], kb = b.d[b.n - 2 + (at.matmul.trans_b != 0)];
    if (ka != kb) return dt_op_fail(g, id, "inner dimensions %lld and %lld differ", (long long)ka, (long long)kb);
    a.d[a.n - 2] = m;
    a.d[a.n - 1] = n;
    return dt_op_shaped(g, id, &a);
}

// C = alpha A B:  dA = alpha dC B^T,  dB = alpha A^T dC; a transposed operand swaps the factors.
static dt_status matmul_grad(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    dt_node n = g->nodes[id];
    dt_value a = n.in[0], b = n.in[1], dy = dt_grad_get(ctx, n.out[0]);
    bool ta = n.attrs.matmul.trans_a, tb = n.attrs.matmul.trans_b;
    float alpha = n.attrs.matmul.alpha;
    if (dt_grad_wanted(ctx, a)) {
        dt_grad_give(ctx, a, ta ? dt_matmul(g, b, dy, tb, true, alpha) : dt_matmul(g, dy, b, false, !tb, alpha));
    }
    if (dt_grad_wanted(ctx, b)) {
        dt_grad_give(ctx, b, tb ? dt_matmul(g, dy, a, true, ta, alpha) : dt_matmul(g, a, dy, !ta, false, alpha));
    }
    return g->status;
}

DT_OP_DEFINE(matmul, matmul_infer, matmul_grad);

dt_value dt_matmul(dt_graph *g, dt_value a, dt_value b, bool trans_a, bool trans_b, float alpha) {
    dt_attrs at = {.matmul = {trans_a, trans_b, alpha}};
    return dt_graph_apply(g, DT_OP_matmul, NULL, (dt_value[]){a, b}, 2, &at);
}
