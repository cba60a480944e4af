// dropout: zeroes with probability p and scales what stays by 1/(1-p); in graphs that drop (elsewhere
// the builder returns x itself). The mask is a function of seed, step, slot, element and the node's
// name, so it is never stored.
//   in  0 x
//   out 0 y
// Backward makes the mask again from the forward node's name and reads only the gradient; gives dx.
#include "op_util.h"

static dt_status grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 0, 0);
}

DT_OP_DEFINE(dropout, dt_op_same, grad);

dt_value dt_dropout(dt_graph *g, const char *name, dt_value x, float p) {
    if (x == DT_NONE || !g->drops || p == 0.0f) return x;
    if (!(p > 0.0f && p < 1.0f))
        return dt_graph_fail(g, "dropout %s: p = %g is not in [0, 1)", name, (double)p);
    dt_attrs a = {.dropout = {p}};
    return dt_graph_apply(g, DT_OP_dropout, name, &x, 1, &a);
}
