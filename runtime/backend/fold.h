// fold.h: the batch norm that a convolution's weight and bias contain once packed (graph/passes/fuse.c).
#ifndef DT_BACKEND_FOLD_H
#define DT_BACKEND_FOLD_H

#include "graph/ir.h"

// w * gain, (bias - mean) * gain + shift with gain = scale / sqrt(var + eps).
typedef struct dt_fold {
    bool on;
    dt_value scale, shift, mean, var;
    float eps;
} dt_fold;

static inline dt_fold dt_fold_of(const dt_node *n) {
    return (dt_fold){.on = n->attrs.conv2d.fold_bn,
                     .scale = n->attrs.conv2d.bn_scale,
                     .shift = n->attrs.conv2d.bn_shift,
                     .mean = n->attrs.conv2d.bn_mean,
                     .var = n->attrs.conv2d.bn_var,
                     .eps = n->attrs.conv2d.bn_eps};
}

#endif
