// relu_kernels.h: y = max(x, 0); backward reads y: dx = y > 0 ? dy : 0. NaN passes. Elementwise: any layout, in place.
//
// Moves (E bytes per element, n elements): forward 2nE, backward 3nE.
#ifndef DT_RELU_KERNELS_H
#define DT_RELU_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

DT_FN float dt_relu_map(const dt_map_args *a, int T, float x, float d) {
    (void)a, (void)T, (void)d;
    return x < 0.0f ? 0.0f : x;
}
// y: the forward's output
DT_FN float dt_relu_slope_map(const dt_map_args *a, int T, float y, float d) {
    return y > 0.0f ? d : 0.0f;
}

DT_MAP_KERNEL(relu_fwd, dt_relu_map, 0)
DT_MAP_KERNEL(relu_bwd, dt_relu_slope_map, 1)

#endif
