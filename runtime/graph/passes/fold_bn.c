// fold_bn.c: inference graphs only. With running statistics a batch norm is an affine map of each channel, so it folds
// into weight and bias of the convolution before it: y = conv(x, w s) + (b - mean) s + shift,
// s = scale / sqrt(var + eps). The pass only stores the parameters' ids in the attributes of the convolution. The backend
// folds when it packs the weight, so that new parameters need no new plan. A ReLU after it becomes the convolution's
// activation.
//
// The convolution keeps its name and its place, and its output becomes that of the last node.
#include "graph/activation_words.h"
#include "graph/passes/passes.h"

#include <stdlib.h>

// `conv` takes over the output of `next`, which dies.
static void take_output(dt_graph *g, dt_node *conv, dt_node *next) {
    dt_graph_swap_value_names(g, conv->out[0], next->out[0]);
    g->values[conv->out[0]].producer = DT_NONE;
    dt_graph_set_out(g, conv, 0, next->out[0]);
    next->dead = true;
}

// What is packed is a parameter; an ONNX file may have constants there.
static bool is_packable(const dt_graph *g, dt_value v) {
    return v == DT_NONE || g->values[v].kind == DT_V_PARAM;
}

static void fold_bn_node(dt_graph *g, const dt_node_id *readers, dt_node *conv) {
    if (conv->attrs.conv2d.act != DT_ACTIVATION_none) return;
    dt_node *bn = dt_graph_reader(g, readers, conv->out[0], DT_OP_batch_norm);
    bool relu_in_bn = false;
    if (bn && !conv->attrs.conv2d.fold_bn && bn->in[0] == conv->out[0] && bn->n_in == 5 &&
        !bn->attrs.batch_norm.training && !bn->attrs.batch_norm.pool && is_packable(g, bn->in[1]) &&
        is_packable(g, bn->in[2]) && (conv->n_in < 3 || is_packable(g, conv->in[2]))) {
        conv->attrs.conv2d.fold_bn = 1;
        conv->attrs.conv2d.bn_scale = bn->in[1];
        conv->attrs.conv2d.bn_shift = bn->in[2];
        conv->attrs.conv2d.bn_mean = bn->in[3];
        conv->attrs.conv2d.bn_var = bn->in[4];
        conv->attrs.conv2d.bn_eps = bn->attrs.batch_norm.eps;
        relu_in_bn = bn->attrs.batch_norm.relu;
        take_output(g, conv, bn);
    }
    dt_node *relu = relu_in_bn ? NULL : dt_graph_reader(g, readers, conv->out[0], DT_OP_relu);
    if (relu) take_output(g, conv, relu);
    if (relu || relu_in_bn) conv->attrs.conv2d.act = DT_ACTIVATION_relu;
}

dt_status dt_pass_fold_bn(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    if (g->training) return DT_OK;
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        dt_node *n = &g->nodes[id];
        if (!n->dead && !n->backward && n->op == DT_OP_conv2d) fold_bn_node(g, readers, n);
    }
    free(readers);
    return DT_OK;
}
