// convert_kernels.h: other element types: cast, and pixels to normalised activations. Both are elementwise: u8 or f32
// images come as (N,H,W,C), and what is written is NHWC.
//
//   bytes   x * scale[c] + shift[c]       scale = 1 / (255 std), shift = -mean / std
//   f32     (x - shift[c]) * scale[c]     scale = 1 / std, shift = mean: the difference first, as a mean may be large
//
// Moves n (E_in + E_out).
#ifndef DT_CONVERT_KERNELS_H
#define DT_CONVERT_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

enum { DT_NORMALIZE_CHANNELS = 64 };

typedef struct dt_convert_args {
    const void *x;
    void *out;
    int64_t n;
    int from, to;
    int channels;
    float scale[DT_NORMALIZE_CHANNELS], shift[DT_NORMALIZE_CHANNELS];
} dt_convert_args;

// Eight elements from i, of which `left` are there; bytes as numbers.
DT_FN void dt_convert_load(const void *p, int type, int64_t i, int64_t left, float x[8]) {
    if (type == DT_U8) {
        int b[8];
        dt_get8_bytes((const uint8_t *)p + i, left >= 8, left, b);
        for (int k = 0; k < 8; k++) x[k] = (float)b[k];
    } else {
        dt_get8_row(p, type, left >= 8, i, left, x);
    }
}
DT_FN void dt_cast_thread(const dt_convert_args *a, int64_t i, int F, int T) {
    float x[8];
    const int64_t left = a->n - i;
    if (left <= 0) return;
    dt_convert_load(a->x, F, i, left, x);
    dt_put8_row(a->out, T, left >= 8, i, left, x);
}
// A block has 2 * 2048 elements.
DT_KERNEL(cast_fwd, dt_convert_args) {
    DT_THREADS(t) {
        for (int u = 0; u < 2; u++) {
            const int64_t i = ((DT_BLOCK * 2 + u) * DT_BLOCK_DIM + t) * 8;
            if (a->from == DT_F32)
                DT_TYPED(T, a->to, dt_cast_thread(a, i, DT_F32, T));
            else if (a->to == DT_F32)
                dt_cast_thread(a, i, a->from, DT_F32);
            else
                dt_cast_thread(a, i, a->from, a->to);
        }
    }
}

DT_FN void dt_normalize_thread(const dt_convert_args *a, int64_t i, const float *scale,
                               const float *shift, int F, int T) {
    float x[8];
    const int64_t left = a->n - i;
    if (left <= 0) return;
    int c = (int)(i % a->channels);
    dt_convert_load(a->x, F, i, left, x);
    for (int k = 0; k < 8; k++) {
        x[k] = F == DT_U8 ? fmaf(x[k], scale[c], shift[c]) : (x[k] - shift[c]) * scale[c];
        c = c + 1 == a->channels ? 0 : c + 1;
    }
    dt_put8_row(a->out, T, left >= 8, i, left, x);
}
DT_KERNEL(normalize, dt_convert_args) {
    DT_SHARED(float, scale, DT_NORMALIZE_CHANNELS);
    DT_SHARED(float, shift, DT_NORMALIZE_CHANNELS);
    DT_THREADS(t) {
        if (t < a->channels) scale[t] = a->scale[t], shift[t] = a->shift[t];
    }
    DT_THREADS(t) {
        for (int u = 0; u < 2; u++) {
            const int64_t i = ((DT_BLOCK * 2 + u) * DT_BLOCK_DIM + t) * 8;
            if (a->from == DT_U8)
                DT_TYPED(T, a->to, dt_normalize_thread(a, i, scale, shift, DT_U8, T));
            else
                DT_TYPED(T, a->to, dt_normalize_thread(a, i, scale, shift, DT_F32, T));
        }
    }
}

#endif
