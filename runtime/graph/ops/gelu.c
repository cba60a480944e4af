// gelu: x/2 (1 + erf(x/sqrt 2)) (Hendrycks & Gimpel, 2016), or with attrs.gelu.tanh the same authors'
// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), which is PyTorch's approximate='tanh'.
//   in  0 x
//   out 0 y
// Backward reads x; gives dx.
#include "op_util.h"

static dt_status grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 1, 0, 0);
}

DT_OP_DEFINE(gelu, dt_op_same, grad);

dt_value dt_gelu(dt_graph *g, dt_value x) {
    return dt_graph_apply(g, DT_OP_gelu, NULL, &x, 1, NULL);
}

dt_value dt_gelu_tanh(dt_graph *g, dt_value x) {
    const dt_attrs a = {.gelu = {1}};
    return dt_graph_apply(g, DT_OP_gelu, NULL, &x, 1, &a);
}
