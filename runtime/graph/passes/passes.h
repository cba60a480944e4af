// passes.h: rewrites of the graph. Each is idempotent and keeps names, because random numbers depend on them.
// Training:  build -> fuse -> differentiate -> amp -> fuse_gelu -> fuse_norm_add -> dead_code
//            [-> recompute] [-> relu_bits]
// Inference: build -> fold_bn -> fuse -> amp -> fuse_norm_add -> dead_code
#ifndef DT_GRAPH_PASSES_H
#define DT_GRAPH_PASSES_H

#include "graph/ir.h"

// batch_norm (+ add) + relu (+ max_pool) -> one batch_norm node; linear + relu/gelu -> attrs.act.
// Only if the values between them have no other reader and are no outputs.
dt_status dt_pass_fuse(dt_graph *g);
// Inference: conv2d + batch_norm -> conv2d with fold_bn; + relu -> attrs.act.
dt_status dt_pass_fold_bn(dt_graph *g);
// Activations and their gradients of LOW and FOLLOW ops to `low`; casts before FULL ops. low = DT_F32
// does nothing. PARAM, BUFFER, GRAD, STAT stay f32; so do batch statistics and saved moments.
dt_status dt_pass_amp(dt_graph *g, dt_dtype low);
// Training: linear + gelu in the tanh form, and gelu's gradient + the linear.bwd before it.
dt_status dt_pass_fuse_gelu(dt_graph *g);
// add + layer_norm -> one layer_norm that makes both; layer_norm.bwd + the add of its result and another gradient.
dt_status dt_pass_fuse_norm_add(dt_graph *g);
dt_status dt_pass_dead_code(dt_graph *g);
// Training, last: drops activations and makes them again for backward (recompute.c). DT_E_USAGE where no node has a name.
typedef struct dt_recompute_opts {
    size_t limit;             // bytes; what is below it stays
    const char *const *names; // only nodes of these names (POSIX extended regular expressions)
    int n_names;              // 0: any
} dt_recompute_opts;
dt_status dt_pass_recompute(dt_graph *g, const dt_recompute_opts *o);
// Training, called by plans of backends with dt_backend.relu_bits: a batch_norm with residual and ReLU saves a bit for
// each element, and its gradient reads that instead of y.
dt_status dt_pass_relu_bits(dt_graph *g);

#endif
