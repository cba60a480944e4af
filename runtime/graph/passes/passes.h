// passes.h: rewrites of the graph. Each is idempotent and keeps names, because random numbers depend on them.
// Training:  build -> fuse -> differentiate -> amp -> fuse_gelu -> fuse_norm_add -> dead_code
//            [-> recompute] [-> relu_bits] [-> fuse_norm_act]
// Inference: build -> fold_bn -> fuse -> amp -> fuse_norm_add -> dead_code
//            [-> fuse_residual] [-> int8]
#ifndef DT_GRAPH_PASSES_H
#define DT_GRAPH_PASSES_H

#include "graph/ir.h"

// batch_norm (+ add) + relu (+ max_pool) -> one batch_norm node; linear + relu/gelu -> attrs.act.
// Only if the values between them have no other reader and are no outputs.
dt_status dt_pass_fuse(dt_graph *g);
// Inference: conv2d + batch_norm -> conv2d with fold_bn; + relu -> attrs.act.
dt_status dt_pass_fold_bn(dt_graph *g);
// Activations and their gradients of LOW and FOLLOW ops to `half` (bf16 or f16); casts before FULL ops. half = DT_F32
// does nothing. PARAM, BUFFER, GRAD, STAT stay f32; so do batch statistics and saved moments.
dt_status dt_pass_amp(dt_graph *g, dt_dtype half);
// Training: linear + gelu in the tanh form, and gelu's gradient + the linear.bwd before it.
dt_status dt_pass_fuse_gelu(dt_graph *g);
// add + layer_norm -> one layer_norm that makes both; layer_norm.bwd + the add of its result and another gradient.
dt_status dt_pass_fuse_norm_add(dt_graph *g);
dt_status dt_pass_dead_code(dt_graph *g);
// Training, last: activation checkpointing, which recomputes activations for backward (recompute.c). DT_E_USAGE where
// no node has a name.
typedef struct dt_recompute_opts {
    size_t limit;             // bytes; what is below it stays
    const char *const *names; // only nodes of these names (POSIX extended regular expressions)
    int n_names;              // 0: any
} dt_recompute_opts;
dt_status dt_pass_recompute(dt_graph *g, const dt_recompute_opts *o);
// Training, where a backend has it in dt_backend.passes: a batch_norm with residual and ReLU saves a bit for
// each element, and its gradient reads that instead of y; and it reads two gradients of y in place of their sum.
dt_status dt_pass_relu_bits(dt_graph *g);
// Training, where a backend has it in dt_backend.passes: batch_norm + activation or gelu -> one batch_norm, and so
// their gradients.
dt_status dt_pass_fuse_norm_act(dt_graph *g);
// Inference, where a backend has it in dt_backend.passes: conv2d + add (+ relu) -> one conv2d.
dt_status dt_pass_fuse_residual(dt_graph *g);

// Inference in int8, after dt_pass_fuse_residual: int8.c.
typedef struct dt_int8_value {
    const char *name; // of an activation
    float scale;      // real values are scale times stored ones
    bool negative;    // has negative values: stored as -127..127 and not as 0..255
} dt_int8_value;
typedef struct dt_int8_layer {
    const char *name;    // of a conv2d or linear node
    int64_t n;           // output channels
    const float *weight; // scale of each; NULL: the layer stays f32
} dt_int8_layer;
typedef struct dt_int8 {
    dt_int8_value *values;
    dt_int8_layer *layers;
    int n_values, n_layers;
} dt_int8;
// DT_E_USAGE naming the layer or value that the graph has and q lacks, or that has another number of channels.
dt_status dt_pass_int8(dt_graph *g, const dt_int8 *q);
// Whether the node is one that dt_pass_int8 can convert.
bool dt_int8_is_layer(const dt_graph *g, const dt_node *n);

#endif
