// autodiff.h: reverse mode over the static graph.
//
// dt_graph_differentiate walks the forward nodes backwards from the loss and calls each op's
// gradient. Gradients of a value that is used several times are summed by `add` nodes in the order in
// which they arise, except gradients of parameters: their producers all add into the gradient buffer.
// Afterwards graph->grads lists the GRAD values in the order in which backward finishes them (a
// parameter used twice counts at its last use): the order of the flat buffers.
#ifndef DT_GRAPH_AUTODIFF_H
#define DT_GRAPH_AUTODIFF_H

#include "graph/ir.h"

// DT_E_USAGE when there is no loss, an op on the way has no gradient, or a parameter does not reach
// the loss.
dt_status dt_graph_differentiate(dt_graph *g);

// ---- for the ops' grad functions -------------------------------------------------------------------
typedef struct dt_grad_ctx {
    dt_graph *g;
    dt_value *grad_of; // by value: accumulated gradient so far, or DT_NONE
    bool *needs_grad;  // by value
} dt_grad_ctx;

// Whether the forward input i of the node needs a gradient.
bool dt_grad_wanted(const dt_grad_ctx *ctx, dt_value fwd_input);
// Gradient of a forward output; DT_NONE when nothing depends on it.
dt_value dt_grad_get(const dt_grad_ctx *ctx, dt_value fwd_output);
// Adds `grad` to the gradient of `fwd_input` (emits an add node from the second on).
void dt_grad_give(dt_grad_ctx *ctx, dt_value fwd_input, dt_value grad);
// The standard case: one backward node of the same op. Bit i of save_in / save_out: the
// backward node reads forward input / output i. Creates TEMP or GRAD outputs for all wanted inputs
// whose bit in no_grad is clear, with the input's shape and dtype.
dt_status dt_grad_default(dt_grad_ctx *ctx, dt_node_id id, uint32_t save_in, uint32_t save_out, uint32_t no_grad);
// dt_op_rules.grad of ops whose backward always reads the same tensors: dt_grad_default with the masks of the op's row.
dt_status dt_grad_saved(dt_grad_ctx *ctx, dt_node_id id);
// Appends a backward node of another op, whose inputs are given: forward inputs, forward outputs, gradients of those.
// Its output `out` becomes the gradient of fwd_input. Attributes are the node's.
dt_status dt_grad_by(dt_grad_ctx *ctx, dt_node_id id, dt_op op, const dt_value *in, int n_fwd_in, int out,
                     dt_value fwd_input);

#endif
