// activation_kernels.h: the functions of the op activation (graph/ops/activation.c) and dy times their slopes.
// Elementwise: any layout, in place. In bf16 and f16 sigmoid is made of the device's fast functions, which take less time
// than the memory access. Batch norm has all of them inside.
//
// Moves (E bytes per element, n elements): forward 2nE, backward 3nE.
#ifndef DT_ACTIVATION_KERNELS_H
#define DT_ACTIVATION_KERNELS_H

#include "backend/cuda/kernels/gelu_kernels.h"
#include "backend/cuda/kernels/relu_kernels.h"
#include "graph/activation_words.h"

DT_FN float dt_clamped(float x, float top) {
    return x < 0.0f ? 0.0f : x > top ? top : x;
}
DT_FN float dt_sigmoid(int T, float x) {
    if (T == DT_F32) return 1.0f / (1.0f + expf(-x));
    return dt_inverse(1.0f + dt_exp2(x * -1.44269504f));
}
DT_FN float dt_sigmoid_slope(int T, float x) {
    const float s = dt_sigmoid(T, x);
    return s * (1.0f - s);
}
DT_FN float dt_hardsigmoid(int T, float x) {
    return dt_clamped(x + 3.0f, 6.0f) * 0.166666667f;
}
DT_FN float dt_hardsigmoid_slope(int T, float x) {
    return x > -3.0f && x < 3.0f ? 0.166666667f : 0.0f;
}
DT_FN float dt_silu(int T, float x) {
    return x * dt_sigmoid(T, x);
}
DT_FN float dt_silu_slope(int T, float x) {
    const float s = dt_sigmoid(T, x);
    return s + x * s * (1.0f - s);
}
DT_FN float dt_hardswish(int T, float x) {
    return x * dt_hardsigmoid(T, x);
}
DT_FN float dt_hardswish_slope(int T, float x) {
    return x >= 3.0f ? 1.0f : x > -3.0f ? x * 0.333333333f + 0.5f : 0.0f;
}
DT_FN float dt_relu6(int T, float x) {
    return dt_clamped(x, 6.0f);
}
DT_FN float dt_relu6_slope(int T, float x) {
    return x > 0.0f && x < 6.0f ? 1.0f : 0.0f;
}
DT_FN float dt_tanh(int T, float x) {
    return tanhf(x);
}
DT_FN float dt_tanh_slope(int T, float x) {
    const float t = tanhf(x);
    return 1.0f - t * t;
}
DT_FN float dt_softplus(int T, float x) {
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(x > 0.0f ? -x : x));
}
DT_FN float dt_softplus_slope(int T, float x) {
    return dt_sigmoid(T, x);
}
DT_FN float dt_erf(int T, float x) {
    return erff(x);
}
DT_FN float dt_erf_slope(int T, float x) {
    return 1.12837917f * expf(-x * x);
}
DT_FN float dt_heaviside(int T, float x) {
    return x > 0.0f ? 1.0f : 0.0f;
}
DT_FN float dt_heaviside_slope(int T, float x) {
    return 0.0f;
}
DT_FN float dt_leaky_relu(int T, float x, float slope) {
    return x > 0.0f ? x : slope * x;
}
DT_FN float dt_leaky_relu_slope(int T, float x, float slope) {
    return x > 0.0f ? 1.0f : slope;
}
DT_FN float dt_elu(int T, float x, float alpha) {
    return x > 0.0f ? x : alpha * expm1f(x);
}
DT_FN float dt_elu_slope(int T, float x, float alpha) {
    return x > 0.0f ? 1.0f : alpha * expf(x);
}

#define DT_MAPS(name, ...)                                                                                             \
    DT_FN float dt_##name##_map(const dt_map_args *a, int T, float x, float d) {                                       \
        return dt_##name(__VA_ARGS__);                                                                                 \
    }                                                                                                                  \
    DT_FN float dt_##name##_slope_map(const dt_map_args *a, int T, float x, float d) {                                 \
        return d * dt_##name##_slope(__VA_ARGS__);                                                                     \
    }                                                                                                                  \
    DT_MAP_KERNEL(name##_fwd, dt_##name##_map, 0)                                                                      \
    DT_MAP_KERNEL(name##_bwd, dt_##name##_slope_map, 1)
#define DT_MAPS_activation(name) DT_MAPS(name, T, x)
#define DT_MAPS_relu(name)       // relu_kernels.h, gelu_kernels.h
#define DT_MAPS_gelu(name)
#define ACTIVATION(id, op, at_zero, help)     DT_MAPS_##op(id)
#define ACTIVATION_WITH(id, key, unset, help) DT_MAPS(id, T, x, a->alpha)
#include "graph/activations.def"
#undef ACTIVATION

// ---- inside another kernel, with the bits of those above -------------------------------------------
// x becomes the activation's values there; or, with `slope`, d is multiplied by its slopes at x. Both are rounded to T.
DT_FN void dt_activate_as(const dt_map_args *a, int act, int T, int slope, float x[8], float d[8]) {
    switch (act) {
#define ACTIVATION(id, op, at_zero, help)                                                                              \
    case DT_ACTIVATION_##id:                                                                                           \
        for (int k = 0; k < 8; k++)                                                                                    \
            if (slope)                                                                                                 \
                d[k] = dt_##id##_slope_map(a, T, x[k], d[k]);                                                          \
            else                                                                                                       \
                x[k] = dt_##id##_map(a, T, x[k], 0.0f);                                                                \
        break;
#include "graph/activations.def"
#undef ACTIVATION
    }
}
DT_FN void dt_activate8(int act, float alpha, int T, int slope, float x[8], float d[8]) {
    dt_map_args a;
    a.alpha = alpha;
    if (T == DT_F32)
        dt_activate_as(&a, act, DT_F32, slope, x, d);
    else // those of 16 bits are alike
        dt_activate_as(&a, act, DT_BF16, slope, x, d);
    dt_round8(T, slope ? d : x);
}

#endif
