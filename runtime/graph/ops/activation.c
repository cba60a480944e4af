// activation: elementwise functions of one input, by attrs.activation.kind, in PyTorch's forms: those of activations.def
// that have no op of their own.
//   in  0 x
//   out 0 y
// Backward reads x; gives dx.
#include "graph/activation_words.h"
#include "op_util.h"

static dt_status activation_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 1, 0, 0);
}

DT_OP_DEFINE(activation, dt_op_same, activation_grad);

static const struct {
    const char *name;
    dt_op op;
    float number;
} kinds[DT_N_ACTIVATIONS] = {
    [DT_ACTIVATION_none] = {"", DT_OP_COUNT, 0},
#define ACTIVATION(id, op, at_zero, help)     [DT_ACTIVATION_##id] = {#id, DT_OP_##op, 0},
#define ACTIVATION_WITH(id, key, unset, help) [DT_ACTIVATION_##id] = {#id, DT_OP_activation, unset},
#include "graph/activations.def"
#undef ACTIVATION
};

const char *dt_activation_name(dt_activation kind) {
    return kinds[kind].name;
}

dt_value dt_activate(dt_graph *g, dt_activation kind, dt_value x) {
    return dt_activate_with(g, kind, x, kinds[kind].number);
}

dt_value dt_activate_with(dt_graph *g, dt_activation kind, dt_value x, float number) {
    const dt_attrs a = {.activation = {kind, number}};
    return kind == DT_ACTIVATION_none ? x : dt_graph_apply(g, kinds[kind].op, NULL, &x, 1, &a);
}
