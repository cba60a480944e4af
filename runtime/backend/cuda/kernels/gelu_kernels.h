// gelu_kernels.h: GELU, y = x Phi(x); backward reads x: dx = dy (Phi(x) + x phi(x)). And y = alpha x. Elementwise: any
// layout, in place. Exact form: Phi by erfc, which keeps its digits far to the left. The tanh form uses
// (1 + tanh u) / 2 for Phi, with u = sqrt(2/pi) (x + 0.044715 x^3), which is 1 / (1 + exp(-2u)).
//
// Moves (E bytes per element, n elements): forward and scale 2nE, backward 3nE.
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
    return d * (dt_normal_cdf(x) + x * (0.39894228040143268f * expf(-0.5f * x * x)));
}

DT_FN float dt_gelu_gate(float x) {
    return 1.0f / (1.0f + expf(-1.59576912160573071f * (x + 0.044715f * x * x * x)));
}
DT_FN float dt_gelu_tanh(float x) {
    return x * dt_gelu_gate(x);
}
DT_FN float dt_gelu_tanh_slope(float x) {
    const float s = dt_gelu_gate(x);
    return s + x * s * (1.0f - s) * (1.59576912160573071f * (1.0f + 0.134145f * x * x));
}
DT_FN float dt_gelu_tanh_map(const dt_map_args *a, float x, float d) {
    (void)a, (void)d;
    return dt_gelu_tanh(x);
}
DT_FN float dt_gelu_tanh_slope_map(const dt_map_args *a, float x, float d) {
    return d * dt_gelu_tanh_slope(x);
}

DT_FN float dt_scaled(const dt_map_args *a, float x, float d) {
    return a->alpha * x;
}

DT_MAP_KERNEL(gelu_fwd, dt_gelu_of, 0)
DT_MAP_KERNEL(gelu_bwd, dt_gelu_slope, 1)
DT_MAP_KERNEL(gelu_tanh_fwd, dt_gelu_tanh_map, 0)
DT_MAP_KERNEL(gelu_tanh_bwd, dt_gelu_tanh_slope_map, 1)
DT_MAP_KERNEL(scale_fwd, dt_scaled, 0)

#endif
