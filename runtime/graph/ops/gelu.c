// gelu: x/2 (1 + erf(x/sqrt 2)) (Hendrycks & Gimpel, 2016), or where attrs.activation.kind says gelu_tanh the same
// authors' x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), which is PyTorch's approximate='tanh'.
//   in  0 x
//   out 0 y
// Backward reads x; gives dx.
#include "graph/activation_words.h"
#include "op_util.h"

static dt_status gelu_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 1, 0, 0);
}

DT_OP_DEFINE(gelu, dt_op_same, gelu_grad);

dt_value dt_gelu(dt_graph *g, dt_value x) {
    return dt_activate(g, DT_ACTIVATION_gelu, x);
}

dt_value dt_gelu_tanh(dt_graph *g, dt_value x) {
    return dt_activate(g, DT_ACTIVATION_gelu_tanh, x);
}
