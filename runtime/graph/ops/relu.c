// relu: max(x, 0).
//   in  0 x
//   out 0 y
// Backward reads y; gives dx.
#include "graph/activation_words.h"
#include "op_util.h"

static dt_status relu_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 0, 1, 0);
}

DT_OP_DEFINE(relu, dt_op_same, relu_grad);

dt_value dt_relu(dt_graph *g, dt_value x) {
    return dt_activate(g, DT_ACTIVATION_relu, x);
}
