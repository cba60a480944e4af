// activation_kernels.h: the functions of the op activation (graph/ops/activation.c) and dy times their slopes.
// Elementwise: any layout, in place.
//
// Moves (E bytes per element, n elements): forward 2nE, backward 3nE.
#ifndef DT_ACTIVATION_KERNELS_H
#define DT_ACTIVATION_KERNELS_H

#include "backend/cuda/kernels/block_math.h"
#include "graph/activation_words.h"

DT_FN float dt_clamped(float x, float top) {
    return x < 0.0f ? 0.0f : x > top ? top : x;
}
DT_FN float dt_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}
DT_FN float dt_sigmoid_slope(float x) {
    const float s = dt_sigmoid(x);
    return s * (1.0f - s);
}
DT_FN float dt_hardsigmoid(float x) {
    return dt_clamped(x + 3.0f, 6.0f) * 0.166666667f;
}
DT_FN float dt_hardsigmoid_slope(float x) {
    return x > -3.0f && x < 3.0f ? 0.166666667f : 0.0f;
}
DT_FN float dt_silu(float x) {
    return x * dt_sigmoid(x);
}
DT_FN float dt_silu_slope(float x) {
    const float s = dt_sigmoid(x);
    return s + x * s * (1.0f - s);
}
DT_FN float dt_hardswish(float x) {
    return x * dt_hardsigmoid(x);
}
DT_FN float dt_hardswish_slope(float x) {
    return x >= 3.0f ? 1.0f : x > -3.0f ? x * 0.333333333f + 0.5f : 0.0f;
}
DT_FN float dt_relu6(float x) {
    return dt_clamped(x, 6.0f);
}
DT_FN float dt_relu6_slope(float x) {
    return x > 0.0f && x < 6.0f ? 1.0f : 0.0f;
}
DT_FN float dt_tanh(float x) {
    return tanhf(x);
}
DT_FN float dt_tanh_slope(float x) {
    const float t = tanhf(x);
    return 1.0f - t * t;
}
DT_FN float dt_softplus(float x) {
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(x > 0.0f ? -x : x));
}
DT_FN float dt_softplus_slope(float x) {
    return dt_sigmoid(x);
}
DT_FN float dt_erf(float x) {
    return erff(x);
}
DT_FN float dt_erf_slope(float x) {
    return 1.12837917f * expf(-x * x);
}
DT_FN float dt_heaviside(float x) {
    return x > 0.0f ? 1.0f : 0.0f;
}
DT_FN float dt_heaviside_slope(float x) {
    return 0.0f;
}
DT_FN float dt_leaky_relu(float x, float slope) {
    return x > 0.0f ? x : slope * x;
}
DT_FN float dt_leaky_relu_slope(float x, float slope) {
    return x > 0.0f ? 1.0f : slope;
}
DT_FN float dt_elu(float x, float alpha) {
    return x > 0.0f ? x : alpha * expm1f(x);
}
DT_FN float dt_elu_slope(float x, float alpha) {
    return x > 0.0f ? 1.0f : alpha * expf(x);
}

#define DT_MAPS(name, ...)                                                                         \
    DT_FN float dt_##name##_map(const dt_map_args *a, int T, float x, float d) {                   \
        return dt_##name(__VA_ARGS__);                                                             \
    }                                                                                              \
    DT_FN float dt_##name##_slope_map(const dt_map_args *a, int T, float x, float d) {             \
        return d * dt_##name##_slope(__VA_ARGS__);                                                 \
    }                                                                                              \
    DT_MAP_KERNEL(name##_fwd, dt_##name##_map, 0)                                                  \
    DT_MAP_KERNEL(name##_bwd, dt_##name##_slope_map, 1)
#define DT_MAPS_activation(name) DT_MAPS(name, x)
#define DT_MAPS_relu(name)       // relu_kernels.h, gelu_kernels.h
#define DT_MAPS_gelu(name)
#define ACTIVATION(id, op, at_zero, help)     DT_MAPS_##op(id)
#define ACTIVATION_WITH(id, key, unset, help) DT_MAPS(id, x, a->alpha)
#include "graph/activations.def"
#undef ACTIVATION

#endif
