// gelu_kernels.h: exact GELU, y = x Phi(x); backward reads x: dx = dy (Phi(x) + x phi(x)). And y = alpha x.
// Elementwise: any layout, in place. Phi by erfc, which keeps its digits far to the left.
//
// Moves (E bytes an element, n elements): forward and scale 2nE, backward 3nE.
#ifndef DT_GELU_KERNELS_H
#define DT_GELU_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

DT_FN float dt_normal_cdf(float x) {
    return 0.5f * erfcf(-0.70710678118654752f * x);
}
DT_FN float dt_gelu_of(const dt_map_args *a, float x, float d) {
    (void)a, (void)d;
    return x * dt_normal_cdf(x);
}
DT_FN float dt_gelu_slope(const dt_map_args *a, float x, float d) {
    (void)a;
    return d * (dt_normal_cdf(x) + x * (0.39894228040143268f * expf(-0.5f * x * x)));
}
DT_FN float dt_scaled(const dt_map_args *a, float x, float d) {
    (void)d;
    return a->alpha * x;
}

DT_MAP_KERNEL(gelu_fwd, dt_gelu_of, 0)
DT_MAP_KERNEL(gelu_bwd, dt_gelu_slope, 1)
DT_MAP_KERNEL(scale_fwd, dt_scaled, 0)

#endif
