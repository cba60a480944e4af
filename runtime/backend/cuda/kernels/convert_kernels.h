// convert_kernels.h: other element types: cast, and pixels to normalized activations. Both are elementwise: images
// come as u8 or f32 (N,H,W,C) and are written as NHWC. If the step has a mixing plan, each pixel is first mixed with
// the next sample's (batch/mix_plan.h), with the CPU's bits: u8 in integers.
//
//   u8      x * scale[c] + shift[c]       scale = 1 / (255 std), shift = -mean / std
//   f32     (x - shift[c]) * scale[c]     scale = 1 / std, shift = mean: the difference first, as a mean may be large
//
// Moves n (E_in + E_out); mixed, at most n (2 E_in + E_out).
#ifndef DT_CONVERT_KERNELS_H
#define DT_CONVERT_KERNELS_H

#include "backend/cuda/kernels/block_math.h"
#include "batch/mix_plan.h"

enum { DT_NORMALIZE_CHANNELS = 64 };

typedef struct dt_convert_args {
    const void *x;
    void *out;
    int64_t n;
    int from, to;
    int channels;
    float scale[DT_NORMALIZE_CHANNELS], shift[DT_NORMALIZE_CHANNELS];
    // mixed
    const dt_mix_row *plan;          // by sample
    int64_t samples, sample, chunks; // elements per sample, blocks per sample
    dt_quot by_channels, by_width;
} dt_convert_args;

// Eight elements from i, of which `left` exist; V: all exist, and i is a multiple of eight. u8 becomes numbers.
DT_FN void dt_convert_load(const void *p, int type, int V, int64_t i, int64_t left, float x[8]) {
    if (type == DT_U8) {
        int b[8];
        dt_get8_bytes((const uint8_t *)p + i, V, left, b);
        for (int k = 0; k < 8; k++) x[k] = (float)b[k];
    } else {
        dt_get8_row(p, type, V, i, left, x);
    }
}
DT_FN void dt_cast_thread(const dt_convert_args *a, int64_t i, int F, int T) {
    float x[8];
    const int64_t left = a->n - i;
    if (left <= 0) return;
    dt_convert_load(a->x, F, left >= 8, i, left, x);
    dt_put8_row(a->out, T, left >= 8, i, left, x);
}
// A block converts 2 * 2048 elements.
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

// Eight elements, the first of channel c.
DT_FN void dt_normalize8(const dt_convert_args *a, int c, const float *scale, const float *shift, int F, float x[8]) {
    for (int k = 0; k < 8; k++) {
        x[k] = F == DT_U8 ? fmaf(x[k], scale[c], shift[c]) : (x[k] - shift[c]) * scale[c];
        c = c + 1 == a->channels ? 0 : c + 1;
    }
}
DT_FN void dt_normalize_thread(const dt_convert_args *a, int64_t i, const float *scale, const float *shift, int F,
                               int T) {
    float x[8];
    const int64_t left = a->n - i;
    if (left <= 0) return;
    dt_convert_load(a->x, F, left >= 8, i, left, x);
    dt_normalize8(a, (int)(i % a->channels), scale, shift, F, x);
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

// ---- mixed -----------------------------------------------------------------------------------------
DT_FN float dt_blend_byte(float x, float next, int own) {
    return (float)(((uint32_t)x * (uint32_t)own + (uint32_t)next * (uint32_t)(DT_MIX_ONE - own) + DT_MIX_ONE / 2) >>
                   16);
}
// Two products and a sum, each rounded: no fused multiply-add, as on the CPU.
DT_FN float dt_blend_real(float x, float next, int own) {
    const float share = (float)own / DT_MIX_ONE;
#ifdef __CUDACC__
    return __fadd_rn(__fmul_rn(x, share), __fmul_rn(next, 1.0f - share));
#else
    const volatile float mine = x * share, other = next * (1.0f - share);
    return mine + other;
#endif
}

// Elements o .. o + 7 of a sample. A sample whose length is no multiple of eight goes element by element.
DT_FN void dt_mix_thread(const dt_convert_args *a, int64_t j, int64_t o, const float *scale, const float *shift, int F,
                         int T) {
    float x[8], next[8];
    const int64_t left = a->sample - o, i = j * a->sample + o;
    if (left <= 0) return;
    const int V = a->sample % 8 == 0;
    const dt_mix_row m = a->plan[j];
    int64_t pixel = dt_div(a->by_channels, o);
    const int channel = (int)(o - pixel * a->channels);
    dt_convert_load(a->x, F, V, i, left, x);
    if (m.own != DT_MIX_ONE || (m.y0 < m.y1 && m.x0 < m.x1)) {
        int c = channel, row = (int)dt_div(a->by_width, pixel);
        int col = (int)(pixel - (int64_t)row * a->by_width.d);
        dt_convert_load(a->x, F, V, (j + 1 < a->samples ? i + a->sample : o), left, next);
        for (int k = 0; k < 8; k++) {
            if (row >= m.y0 && row < m.y1 && col >= m.x0 && col < m.x1)
                x[k] = next[k];
            else if (m.own != DT_MIX_ONE)
                x[k] = F == DT_U8 ? dt_blend_byte(x[k], next[k], m.own) : dt_blend_real(x[k], next[k], m.own);
            if (++c < a->channels) continue;
            c = 0;
            if (++col == (int)a->by_width.d) col = 0, row++;
        }
    }
    dt_normalize8(a, channel, scale, shift, F, x);
    dt_put8_row(a->out, T, V, i, left, x);
}
// `chunks` blocks per sample, of 2 * 2048 elements each.
DT_KERNEL(normalize_mixed, dt_convert_args) {
    DT_SHARED(float, scale, DT_NORMALIZE_CHANNELS);
    DT_SHARED(float, shift, DT_NORMALIZE_CHANNELS);
    DT_THREADS(t) {
        if (t < a->channels) scale[t] = a->scale[t], shift[t] = a->shift[t];
    }
    DT_THREADS(t) {
        const int64_t j = DT_BLOCK / a->chunks, chunk = DT_BLOCK - j * a->chunks;
        for (int u = 0; u < 2; u++) {
            const int64_t o = ((chunk * 2 + u) * DT_BLOCK_DIM + t) * 8;
            if (a->from == DT_U8)
                DT_TYPED(T, a->to, dt_mix_thread(a, j, o, scale, shift, DT_U8, T));
            else
                DT_TYPED(T, a->to, dt_mix_thread(a, j, o, scale, shift, DT_F32, T));
        }
    }
}

#endif
