// dropout: zeroes with probability p and scales what stays by 1/(1-p); in graphs that drop (elsewhere
// the builder returns x itself); with `whole` (stochastic depth) all of a sample at once. The mask is a function of seed, step, slot, element and the node's
// name, so it is never stored.
//   in  0 x
//   out 0 y
// Backward makes the mask again from the forward node's name and reads only the gradient; gives dx.
#include "op_util.h"

static dt_status dropout_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 0, 0);
}

DT_OP_DEFINE(dropout, dt_op_same, dropout_grad);

static dt_value dropout_apply(dt_graph *g, const char *name, dt_value x, float p, bool whole) {
    if (x == DT_NONE || p == 0.0f) return x;
    if (!(p > 0.0f && p < 1.0f)) return dt_graph_fail(g, "dropout %s: p = %g is not in [0, 1)", name, (double)p);
    dt_attrs a = {.dropout = {p, whole}};
    return dt_graph_apply(g, DT_OP_dropout, name, &x, 1, &a);
}

dt_value dt_dropout(dt_graph *g, const char *name, dt_value x, float p) {
    return g->drops ? dropout_apply(g, name, x, p, false) : x;
}

dt_value dt_drop_path(dt_graph *g, const char *name, dt_value x, float p) {
    return g->training ? dropout_apply(g, name, x, p, true) : x;
}
