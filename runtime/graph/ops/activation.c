// activation: elementwise functions of one input, by attrs.activation.kind, in PyTorch's forms.
//   sigmoid       1 / (1 + exp(-x))
//   hardsigmoid   min(max(x / 6 + 1/2, 0), 1)
//   silu          x sigmoid(x)
//   hardswish     x hardsigmoid(x)
//   relu6         min(max(x, 0), 6)
//   in  0 x
//   out 0 y
// Backward reads x; gives dx.
#include "op_util.h"

static dt_status grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 1, 0, 0);
}

DT_OP_DEFINE(activation, dt_op_same, grad);

dt_value dt_activate(dt_graph *g, dt_activation kind, dt_value x) {
    const dt_attrs a = {.activation = {kind}};
    return dt_graph_apply(g, DT_OP_activation, NULL, &x, 1, &a);
}
