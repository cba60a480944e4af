// conv_kernels.h: convolutions for which cuDNN has no engine. Plain loops with one thread per output (weight
// gradients: one block per weight) and f32 sums in a fixed order: correct, repeatable and slow. x, y NHWC; w KRSC.
#ifndef DT_CONV_KERNELS_H
#define DT_CONV_KERNELS_H

#include "backend/cuda/kernels/kernel_math.h"

enum { DT_CONV_THREADS = 128 };

typedef struct dt_conv_args {
    const void *x, *w, *y, *bias; // what the direction reads; bias may be NULL
    void *out;                    // y, dx or dw
    int64_t n, h, width, c, k, out_h, out_w;
    int rows, cols, stride[2], dilation[2], pad[2];
    int groups, type, act; // act: 0 none, 1 ReLU, 2 GELU (dt_activation)
} dt_conv_args;

// The input position that output o and tap combine on an axis; -1: outside.
DT_FN int64_t dt_conv_meet(const dt_conv_args *a, int axis, int64_t o, int tap, int64_t size) {
    const int64_t i = o * a->stride[axis] - a->pad[axis] + (int64_t)tap * a->dilation[axis];
    return i >= 0 && i < size ? i : -1;
}
// The output position that input i and tap contribute to on an axis; -1: none.
DT_FN int64_t dt_conv_meet_out(const dt_conv_args *a, int axis, int64_t i, int tap, int64_t size) {
    const int64_t at = i + a->pad[axis] - (int64_t)tap * a->dilation[axis];
    if (at < 0 || at % a->stride[axis]) return -1;
    return at / a->stride[axis] < size ? at / a->stride[axis] : -1;
}

DT_KERNEL(conv_fwd, dt_conv_args) {
    DT_THREADS(t) {
        const int64_t total = a->n * a->out_h * a->out_w * a->k;
        const int64_t cg = a->c / a->groups, kg = a->k / a->groups;
        for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < total; i += DT_GRID * DT_BLOCK_DIM) {
            const int64_t k = i % a->k, q = i / a->k % a->out_w, p = i / a->k / a->out_w % a->out_h;
            const int64_t n = i / a->k / a->out_w / a->out_h, first = k / kg * cg;
            float sum = 0.0f;
            for (int r = 0; r < a->rows; r++) {
                for (int s = 0; s < a->cols; s++) {
                    const int64_t h = dt_conv_meet(a, 0, p, r, a->h);
                    const int64_t w = dt_conv_meet(a, 1, q, s, a->width);
                    if (h < 0 || w < 0) continue;
                    const int64_t x_at = ((n * a->h + h) * a->width + w) * a->c + first;
                    const int64_t w_at = ((k * a->rows + r) * a->cols + s) * cg;
                    for (int64_t c = 0; c < cg; c++)
                        sum += dt_get(a->x, a->type, x_at + c) * dt_get(a->w, a->type, w_at + c);
                }
            }
            if (a->bias) sum += dt_get(a->bias, a->type, k);
            if (a->act == 1) sum = sum < 0.0f ? 0.0f : sum;
            if (a->act == 2) sum = 0.5f * sum * erfcf(sum * -0.70710678118654752f);
            dt_put(a->out, a->type, i, sum);
        }
    }
}

DT_KERNEL(conv_dgrad, dt_conv_args) {
    DT_THREADS(t) {
        const int64_t total = a->n * a->h * a->width * a->c;
        const int64_t cg = a->c / a->groups, kg = a->k / a->groups;
        for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < total; i += DT_GRID * DT_BLOCK_DIM) {
            const int64_t c = i % a->c, w = i / a->c % a->width, h = i / a->c / a->width % a->h;
            const int64_t n = i / a->c / a->width / a->h, first = c / cg * kg;
            float sum = 0.0f;
            for (int r = 0; r < a->rows; r++) {
                for (int s = 0; s < a->cols; s++) {
                    const int64_t p = dt_conv_meet_out(a, 0, h, r, a->out_h);
                    const int64_t q = dt_conv_meet_out(a, 1, w, s, a->out_w);
                    if (p < 0 || q < 0) continue;
                    const int64_t y_at = ((n * a->out_h + p) * a->out_w + q) * a->k;
                    for (int64_t k = first; k < first + kg; k++)
                        sum +=
                            dt_get(a->y, a->type, y_at + k) *
                            dt_get(a->w, a->type, ((k * a->rows + r) * a->cols + s) * cg + c % cg);
                }
            }
            dt_put(a->out, a->type, i, sum);
        }
    }
}

// One block per weight, of DT_CONV_THREADS threads.
DT_KERNEL(conv_wgrad, dt_conv_args) {
    DT_SHARED(float, sum, DT_CONV_THREADS);
    const int64_t cg = a->c / a->groups, kg = a->k / a->groups;
    const int64_t ci = DT_BLOCK % cg, tap = DT_BLOCK / cg % (a->rows * a->cols);
    const int64_t k = DT_BLOCK / cg / (a->rows * a->cols), c = k / kg * cg + ci;
    const int r = (int)(tap / a->cols), s = (int)(tap % a->cols);
    DT_THREADS(t) {
        float mine = 0.0f;
        const int64_t total = a->n * a->out_h * a->out_w;
        for (int64_t i = t; i < total; i += DT_CONV_THREADS) {
            const int64_t h = dt_conv_meet(a, 0, i / a->out_w % a->out_h, r, a->h);
            const int64_t w = dt_conv_meet(a, 1, i % a->out_w, s, a->width);
            if (h < 0 || w < 0) continue;
            const int64_t n = i / a->out_w / a->out_h;
            mine += dt_get(a->y, a->type, i * a->k + k) *
                    dt_get(a->x, a->type, ((n * a->h + h) * a->width + w) * a->c + c);
        }
        sum[t] = mine;
    }
    for (int half = DT_CONV_THREADS / 2; half > 0; half /= 2) {
        DT_THREADS(t) {
            if (t < half) sum[t] += sum[t + half];
        }
    }
    DT_THREADS(t) {
        if (t == 0) dt_put(a->out, a->type, DT_BLOCK, sum[0]);
    }
}

#endif
