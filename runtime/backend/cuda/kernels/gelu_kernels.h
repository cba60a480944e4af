// gelu_kernels.h: GELU, y = x Phi(x); backward reads x: dx = dy (Phi(x) + x phi(x)). And y = alpha x. Elementwise: any
// layout, in place. Exact form: in f32 Phi by erfc, which keeps its digits far to the left; in bf16 and f16, where that
// would take longer than the memory access, Phi of -|x| as 2 to a polynomial, within 5e-5 of its value down to x = -6
// and constant (1e-9) from there on. The tanh form uses (1 + tanh u) / 2 for Phi, with u = sqrt(2/pi) (x + 0.044715
// x^3), which is 1 / (1 + exp(-2u)).
//
// Moves (E bytes per element, n elements): forward and scale 2nE, backward 3nE.
#ifndef DT_GELU_KERNELS_H
#define DT_GELU_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

DT_FN float dt_normal_cdf(float x) {
    return 0.5f * erfcf(-0.70710678118654752f * x);
}
// |x|, at most 6; NaN stays.
DT_FN float dt_gelu_reach(float x) {
    return fabsf(x) > 6.0f ? 6.0f : fabsf(x);
}
// Phi(-z) for 0 <= z <= 6: the polynomial of degree 6 whose largest error is the least.
DT_FN float dt_normal_tail(float z) {
    float p = 2.2990056e-05f;
    p = fmaf(p, z, -0.0006111002f);
    p = fmaf(p, z, 0.0071955686f);
    p = fmaf(p, z, -0.051185355f);
    p = fmaf(p, z, -0.46127188f);
    p = fmaf(p, z, -1.1501743f);
    return dt_exp2(fmaf(p, z, -1.0000647f));
}
DT_FN float dt_gelu(int T, float x) {
    if (T == DT_F32) return x * dt_normal_cdf(x);
    const float z = dt_gelu_reach(x);
    return fmaf(-z, dt_normal_tail(z), fmaxf(x, 0.0f));
}
DT_FN float dt_gelu_map(const dt_map_args *a, int T, float x, float d) {
    return dt_gelu(T, x);
}
DT_FN float dt_gelu_slope_map(const dt_map_args *a, int T, float x, float d) {
    if (T == DT_F32) return d * (dt_normal_cdf(x) + x * (0.39894228040143268f * expf(-0.5f * x * x)));
    const float z = dt_gelu_reach(x); // the slope at -z, and 1 minus it at z
    const float left = fmaf(z * -0.39894228040143268f, dt_exp2(z * z * -0.72134752f), dt_normal_tail(z));
    return d * (x < 0.0f ? left : 1.0f - left);
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
DT_FN float dt_gelu_tanh_map(const dt_map_args *a, int T, float x, float d) {
    return dt_gelu_tanh(x);
}
DT_FN float dt_gelu_tanh_slope_map(const dt_map_args *a, int T, float x, float d) {
    return d * dt_gelu_tanh_slope(x);
}

DT_FN float dt_scaled(const dt_map_args *a, int T, float x, float d) {
    return a->alpha * x;
}

DT_MAP_KERNEL(gelu_fwd, dt_gelu_map, 0)
DT_MAP_KERNEL(gelu_bwd, dt_gelu_slope_map, 1)
DT_MAP_KERNEL(gelu_tanh_fwd, dt_gelu_tanh_map, 0)
DT_MAP_KERNEL(gelu_tanh_bwd, dt_gelu_tanh_slope_map, 1)
DT_MAP_KERNEL(scale_fwd, dt_scaled, 0)

#endif
