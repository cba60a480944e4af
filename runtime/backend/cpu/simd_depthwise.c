// simd_depthwise.c: the weight gradient of a depthwise convolution (see simd.h: dt_depthwise). A vector is a channel block
// of a pixel. For a row of the output and one of the kernel, a sum for each column of the kernel stays in a register.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

enum { MOST = DT_DEPTHWISE_MOST };

// Adds x dy to the sums of the kernel's columns [from, to), for the outputs of columns [begin, end).
INLINE void sum_row(vf *sum, const dt_depthwise *d, int64_t x_row, int64_t y_row, int64_t begin,
                    int64_t end, int from, int to, int bf16) {
    vf s[MOST];
    for (int k = from; k < to; k++) s[k] = sum[k];
    for (int64_t c = begin; c < end; c++) {
        const vf dy = vload(d->dy, (y_row + c) * VW, bf16);
        const int64_t x = x_row + c * d->win->stride[1] - d->win->pad_begin[1];
        for (int k = from; k < to; k++) s[k] += vload(d->x, (x + k) * VW, bf16) * dy;
    }
    for (int k = from; k < to; k++) sum[k] = s[k];
}

// The outputs whose column k of the kernel lies in the image: [*begin, *end).
INLINE void range_of(const dt_depthwise *d, int k, int64_t *begin, int64_t *end) {
    const int64_t at = k - d->win->pad_begin[1], stride = d->win->stride[1];
    *begin = at < 0 ? (-at + stride - 1) / stride : 0;
    *end = at < d->in_w ? (d->in_w - 1 - at) / stride + 1 : 0;
    if (*end > d->out_w) *end = d->out_w;
}

INLINE void weights(const dt_depthwise *d, int kw, int bf16) {
    int64_t begin[MOST], end[MOST], inner = 0, rest = d->out_w;
    for (int k = 0; k < kw; k++) {
        range_of(d, k, &begin[k], &end[k]);
        inner = begin[k] > inner ? begin[k] : inner;
        rest = end[k] < rest ? end[k] : rest;
    }
    if (rest < inner) rest = inner;
    for (int64_t row = 0; row < d->out_h; row++)
        for (int r = 0; r < d->win->kernel[0]; r++) {
            const int64_t in = row * d->win->stride[0] - d->win->pad_begin[0] + r;
            vf sum[MOST];
            if (in < 0 || in >= d->in_h) continue;
            for (int k = 0; k < kw; k++) {
                sum[k] = (vf){0};
                const int64_t left = end[k] < inner ? end[k] : inner;
                const int64_t right = begin[k] > rest ? begin[k] : rest;
                sum_row(sum, d, in * d->in_w, row * d->out_w, begin[k], left, k, k + 1, bf16);
                sum_row(sum, d, in * d->in_w, row * d->out_w, right, end[k], k, k + 1, bf16);
            }
            sum_row(sum, d, in * d->in_w, row * d->out_w, inner, rest, 0, kw, bf16);
            for (int k = 0; k < kw; k++) {
                float *to = d->dw + (r * kw + k) * VW;
                vst(to, vld(to) + sum[k]);
            }
        }
}

#define WEIGHTS(kw, bf16)                                                                          \
    static void weights##kw##_##bf16(const dt_depthwise *d) {                                      \
        weights(d, kw, bf16);                                                                      \
    }
WEIGHTS(5, 0)
WEIGHTS(5, 1)
WEIGHTS(7, 0)
WEIGHTS(7, 1)

const dt_simd_depthwise DT_SIMD(dt_simd_depthwise) = {{weights5_0, weights5_1},
                                                      {weights7_0, weights7_1}};
