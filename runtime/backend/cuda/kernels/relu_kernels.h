// relu_kernels.h: y = max(x, 0); backward reads y: dx = y > 0 ? dy : 0. NaN passes. Elementwise: any
// layout, in place.
#ifndef DT_RELU_KERNELS_H
#define DT_RELU_KERNELS_H

#include "backend/cuda/kernels/kernel_math.h"

typedef struct dt_relu_args {
    const void *x, *dy; // backward: x is the forward's y
    void *out;
    int64_t n;
    int type;
} dt_relu_args;

DT_KERNEL(relu_fwd, dt_relu_args) {
    DT_THREADS(t) {
        const int64_t stride = DT_GRID * DT_BLOCK_DIM * 8;
        for (int64_t i = (DT_BLOCK * DT_BLOCK_DIM + t) * 8; i < a->n; i += stride) {
            float x[8];
            dt_get8_part(a->x, a->type, i, a->n, 0.0f, x);
            for (int k = 0; k < 8; k++) x[k] = x[k] < 0.0f ? 0.0f : x[k];
            dt_put8_part(a->out, a->type, i, a->n, x);
        }
    }
}

DT_KERNEL(relu_bwd, dt_relu_args) {
    DT_THREADS(t) {
        const int64_t stride = DT_GRID * DT_BLOCK_DIM * 8;
        for (int64_t i = (DT_BLOCK * DT_BLOCK_DIM + t) * 8; i < a->n; i += stride) {
            float y[8], d[8];
            dt_get8_part(a->x, a->type, i, a->n, 0.0f, y);
            dt_get8_part(a->dy, a->type, i, a->n, 0.0f, d);
            for (int k = 0; k < 8; k++) d[k] = y[k] > 0.0f ? d[k] : 0.0f;
            dt_put8_part(a->out, a->type, i, a->n, d);
        }
    }
}

#endif
