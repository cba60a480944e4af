// arc_margin.h: the arithmetic of the op arc_margin, for the CPU's kernel and the GPU's.
#ifndef DT_GRAPH_ARC_MARGIN_H
#define DT_GRAPH_ARC_MARGIN_H

#include <math.h>

#ifdef __CUDACC__
#define DT_ARC_FN static __device__ __forceinline__
#else
#define DT_ARC_FN static inline __attribute__((unused))
#endif

// Of the logit x of a sample's class; *slope: its derivative by x.
DT_ARC_FN float dt_arc_margin_of(float x, float margin, float scale, float *slope) {
    const float c = fminf(fmaxf(x / scale, -1.0f), 1.0f), s = sqrtf(1.0f - c * c);
    const float cm = cosf(margin), sm = sinf(margin);
    *slope = 1.0f;
    if (c < -cm) return scale * (c - margin * sm); // angle + margin > pi
    *slope = cm + sm * c / fmaxf(s, 1e-4f);
    return scale * (c * cm - s * sm);
}

#endif
