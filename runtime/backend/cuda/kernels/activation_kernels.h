// activation_kernels.h: the functions of the op activation (graph/ops/activation.c) and dy times their slopes.
// Elementwise: any layout, in place.
//
// Moves (E bytes per element, n elements): forward 2nE, backward 3nE.
#ifndef DT_ACTIVATION_KERNELS_H
#define DT_ACTIVATION_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

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

#define DT_ACTIVATION_MAP(name)                                                                    \
    DT_FN float dt_##name##_map(const dt_map_args *a, float x, float d) {                          \
        return dt_##name(x);                                                                       \
    }                                                                                              \
    DT_FN float dt_##name##_slope_map(const dt_map_args *a, float x, float d) {                    \
        return d * dt_##name##_slope(x);                                                           \
    }
DT_ACTIVATION_MAP(sigmoid)
DT_ACTIVATION_MAP(hardsigmoid)
DT_ACTIVATION_MAP(silu)
DT_ACTIVATION_MAP(hardswish)
DT_ACTIVATION_MAP(relu6)

DT_MAP_KERNEL(sigmoid_fwd, dt_sigmoid_map, 0)
DT_MAP_KERNEL(sigmoid_bwd, dt_sigmoid_slope_map, 1)
DT_MAP_KERNEL(hardsigmoid_fwd, dt_hardsigmoid_map, 0)
DT_MAP_KERNEL(hardsigmoid_bwd, dt_hardsigmoid_slope_map, 1)
DT_MAP_KERNEL(silu_fwd, dt_silu_map, 0)
DT_MAP_KERNEL(silu_bwd, dt_silu_slope_map, 1)
DT_MAP_KERNEL(hardswish_fwd, dt_hardswish_map, 0)
DT_MAP_KERNEL(hardswish_bwd, dt_hardswish_slope_map, 1)
DT_MAP_KERNEL(relu6_fwd, dt_relu6_map, 0)
DT_MAP_KERNEL(relu6_bwd, dt_relu6_slope_map, 1)

#endif
