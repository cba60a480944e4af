// resize_taps.h: of which two places along an axis an element of the op resize is made, and with which weights: for
// both backends and the tests, in PyTorch's f32 arithmetic.
#ifndef DT_GRAPH_RESIZE_TAPS_H
#define DT_GRAPH_RESIZE_TAPS_H

#include "graph/resize_mode.h"

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define DT_TAPS_FN static __device__ __forceinline__
#else
#define DT_TAPS_FN static inline __attribute__((unused))
#endif

typedef struct dt_taps {
    int at[2];
    float weight[2]; // their sum is 1
} dt_taps;

// Of element i where the source has n and `step` of them for each.
DT_TAPS_FN dt_taps dt_resize_taps(int mode, float step, int i, int n) {
    const float at = (float)i;
    float from = mode == DT_RESIZE_NEAREST         ? floorf(at * step)
                 : mode == DT_RESIZE_NEAREST_EXACT ? floorf((at + 0.5f) * step)
                 : mode == DT_RESIZE_BILINEAR      ? (at + 0.5f) * step - 0.5f
                                                   : at * step;
    dt_taps t;
    if (!(from > 0.0f)) from = 0.0f;
    t.at[0] = from < (float)(n - 1) ? (int)from : n - 1;
    t.at[1] = t.at[0] < n - 1 ? t.at[0] + 1 : t.at[0];
    t.weight[1] = from < (float)(n - 1) ? from - (float)t.at[0] : 0.0f;
    t.weight[0] = 1.0f - t.weight[1];
    return t;
}
// Elements of the result that may be made of element i: *begin to *end - 1 of n_out.
DT_TAPS_FN void dt_resize_users(float step, int i, int n, int n_out, int *begin, int *end) {
    const float low = step > 0.0f ? floorf((float)(i - 1) / step) - 2.0f : 0.0f;
    const float high = step > 0.0f ? ceilf((float)(i + 2) / step) + 3.0f : (float)n_out;
    *begin = i == 0 || low < 0.0f ? 0 : (int)low;
    *end = i == n - 1 || high > (float)n_out ? n_out : (int)high;
}

#endif
