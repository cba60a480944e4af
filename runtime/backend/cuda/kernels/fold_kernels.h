// fold_kernels.h: blocks of stride x stride pixels of an NHWC image become the channels of one pixel (cuda_desc.c): channel
// (y * stride + x) * c + k of folded pixel (i, j) is channel k of pixel (i * stride + y - pad, j * stride + x - pad). What lies
// outside the image, and channels up to the next multiple of eight, are zero.
//
// Moves nE read, n'E written.
#ifndef DT_FOLD_KERNELS_H
#define DT_FOLD_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

typedef struct dt_fold_args {
    const void *x;
    void *out;
    int64_t n;             // groups of eight channels that are written
    int64_t height, width; // of the image
    int c, stride, pad_down, pad_across;
    dt_quot groups, across, down; // groups of a pixel, pixels of a row, rows of a folded image
    dt_quot by_c, by_stride;
    int type;
} dt_fold_args;

// A thread's eight channels.
DT_KERNEL(fold_stride, dt_fold_args) {
    DT_THREADS(t) {
        for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < a->n; i += DT_GRID * DT_BLOCK_DIM) {
            const int64_t pixel = dt_div(a->groups, i), row = dt_div(a->across, pixel);
            const int64_t image = dt_div(a->down, row);
            const int64_t y0 = (row - image * a->down.d) * a->stride - a->pad_down;
            const int64_t x0 = (pixel - row * a->across.d) * a->stride - a->pad_across;
            const int64_t channel = (i - pixel * a->groups.d) * 8, at = dt_div(a->by_c, channel);
            int c = (int)(channel - at * a->c), down = (int)dt_div(a->by_stride, at);
            int across = (int)at - down * a->stride;
            float v[8];
            for (int k = 0; k < 8; k++) {
                const int64_t y = y0 + down, x = x0 + across;
                const int inside = down < a->stride && y >= 0 && y < a->height && x >= 0 && x < a->width;
                const int64_t from = ((image * a->height + y) * a->width + x) * a->c + c;
                v[k] = inside ? dt_get(a->x, a->type, from) : 0.0f;
                if (++c == a->c) c = 0, across++;
                if (across == a->stride) across = 0, down++;
            }
            dt_put8(a->out, a->type, 8 * i, v);
        }
    }
}

#endif
