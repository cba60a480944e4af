// dropout_kernels.h: y = keep ? x / (1 - p) : 0, and the same function of dy backward. The mask is never stored. It is
// recomputed, with the CPU's bits (base/rng.h), from (seed, step, slot, name, element within the sample in NCHW
// order). Seed, step and slot are read from the step block on the device, so one captured graph serves every step.
//
//   dropout        DENSE, a sample's elements in logical order: two Philox blocks make eight elements
//   dropout_nhwc   4-d images, channels innermost: a Philox block makes four pixels of a channel
//
// Moves 2nE.
#ifndef DT_DROPOUT_KERNELS_H
#define DT_DROPOUT_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

typedef struct dt_dropout_args {
    const void *x;
    void *out;
    const dt_step_block *step;
    int64_t samples, per_sample;
    int64_t tiles;                    // blocks per sample
    uint32_t channels, pixels, draws; // nhwc; draws: Philox blocks that have elements of a channel
    uint32_t purpose;
    int type, whole;
    float p;
} dt_dropout_args;

DT_FN void dt_dropout_8(const dt_dropout_args *a, uint32_t sample, int64_t first, float x[8]) {
    const float gain = 1.0f / (1.0f - a->p);
    float u[8];
    for (int h = 0; h < 2; h++)
        dt_uniform4(a->step->seed, a->step->slot + sample, a->step->step, a->purpose,
                    a->whole ? 0 : (uint32_t)(first / 4 + h), u + 4 * h);
    for (int k = 1; k < 8 && a->whole; k++) u[k] = u[0];
    for (int k = 0; k < 8; k++) x[k] *= u[k] >= a->p ? gain : 0.0f;
}
// A block takes 2048 elements of one sample.
DT_KERNEL(dropout, dt_dropout_args) {
    DT_THREADS(t) {
        const int64_t sample = DT_BLOCK / a->tiles;
        const int64_t i = (DT_BLOCK % a->tiles * DT_BLOCK_DIM + t) * 8, left = a->per_sample - i;
        if (left > 0) {
            const int64_t at = sample * a->per_sample + i;
            float x[8];
            if (a->per_sample % 8 == 0) {
                dt_get8(a->x, a->type, at, x);
                dt_dropout_8(a, (uint32_t)sample, i, x);
                dt_put8(a->out, a->type, at, x);
            } else {
                dt_get8_row(a->x, a->type, 0, at, left, x);
                dt_dropout_8(a, (uint32_t)sample, i, x);
                dt_put8_row(a->out, a->type, 0, at, left, x);
            }
        }
    }
}
// A thread makes two draws. Neighbours have neighbouring channels of about the same pixels.
DT_KERNEL(dropout_nhwc, dt_dropout_args) {
    DT_THREADS(t) {
        const uint32_t sample = (uint32_t)(DT_BLOCK / a->tiles), n = a->channels * a->draws;
        const float gain = 1.0f / (1.0f - a->p);
        for (int k = 0; k < 2; k++) {
            const uint32_t i = ((uint32_t)(DT_BLOCK % a->tiles) * 2 + k) * DT_BLOCK_DIM + t;
            if (i >= n) continue;
            const uint32_t c = i % a->channels, begin = c * a->pixels;
            const uint32_t quad = begin / 4 + i / a->channels;
            float u[4];
            dt_uniform4(a->step->seed, a->step->slot + sample, a->step->step, a->purpose, a->whole ? 0 : quad, u);
            for (int j = 1; j < 4 && a->whole; j++) u[j] = u[0];
            for (int j = 0; j < 4; j++) {
                const uint32_t pixel = quad * 4 + j - begin; // large: another channel's
                if (pixel >= a->pixels) continue;
                const int64_t at = sample * a->per_sample + (int64_t)pixel * a->channels + c;
                const float x = dt_get(a->x, a->type, at);
                dt_put(a->out, a->type, at, x * (u[j] >= a->p ? gain : 0.0f));
            }
        }
    }
}

#endif
