// resize_kernels.h: the op resize over NHWC. A thread takes eight channels of a pixel: of the result forward, made of two
// pixels of two rows; backward of x, where it gathers from the pixels that may be made of its own (no atomics).
//
// Moves (E bytes per element, x n elements, y m): nE + mE, the rest is served by the cache.
#ifndef DT_RESIZE_KERNELS_H
#define DT_RESIZE_KERNELS_H

#include "backend/cuda/kernels/block_math.h"
#include "graph/resize_taps.h"

typedef struct dt_resize_args {
    dt_cols c; // rows: pixels of the image that is written
    const void *x;
    void *out;
    int type, mode;
    float step[2];
    int in[2], to[2];     // height and width of x and of y
    dt_quot across, down; // of the image that is written
} dt_resize_args;

DT_FN void dt_resize_place(const dt_resize_args *a, int64_t pixel, int64_t *image, int at[2]) {
    const int64_t line = dt_div(a->across, pixel);
    *image = dt_div(a->down, line);
    at[1] = (int)(pixel - line * a->across.d);
    at[0] = (int)(line - *image * a->down.d);
}
DT_FN void dt_resize_add(const dt_resize_args *a, const dt_cols_share *s, int64_t pixel, float weight, float sum[8],
                         int T, int V) {
    float x[8];
    dt_get8_row(a->x, T, V, pixel * a->c.cols + s->col, s->left, x);
    for (int k = 0; k < 8; k++) sum[k] += weight * x[k];
}
DT_FN float dt_resize_weight(const dt_taps *t, int at) {
    return (t->at[0] == at ? t->weight[0] : 0.0f) + (t->at[1] == at ? t->weight[1] : 0.0f);
}

DT_FN void dt_resize_fwd_thread(const dt_resize_args *a, const dt_cols_share *s, int T, int V) {
    for (int64_t p = s->row; p < s->end; p += s->step) {
        int64_t image;
        int at[2];
        float sum[8];
        dt_resize_place(a, p, &image, at);
        const dt_taps down = dt_resize_taps(a->mode, a->step[0], at[0], a->in[0]);
        const dt_taps across = dt_resize_taps(a->mode, a->step[1], at[1], a->in[1]);
        for (int k = 0; k < 8; k++) sum[k] = 0.0f;
        for (int k = 0; k < 4; k++)
            dt_resize_add(a, s, (image * a->in[0] + down.at[k / 2]) * a->in[1] + across.at[k % 2],
                          down.weight[k / 2] * across.weight[k % 2], sum, T, V);
        dt_put8_row(a->out, T, V, p * a->c.cols + s->col, s->left, sum);
    }
}
DT_FN void dt_resize_bwd_thread(const dt_resize_args *a, const dt_cols_share *s, int T, int V) {
    for (int64_t p = s->row; p < s->end; p += s->step) {
        int64_t image;
        int at[2], begin[2], end[2];
        float sum[8];
        dt_resize_place(a, p, &image, at);
        for (int d = 0; d < 2; d++) dt_resize_users(a->step[d], at[d], a->in[d], a->to[d], &begin[d], &end[d]);
        for (int k = 0; k < 8; k++) sum[k] = 0.0f;
        for (int r = begin[0]; r < end[0]; r++) {
            const dt_taps down = dt_resize_taps(a->mode, a->step[0], r, a->in[0]);
            const float weight = dt_resize_weight(&down, at[0]);
            for (int q = begin[1]; q < end[1] && weight != 0.0f; q++) {
                const dt_taps across = dt_resize_taps(a->mode, a->step[1], q, a->in[1]);
                const float w = weight * dt_resize_weight(&across, at[1]);
                if (w != 0.0f) dt_resize_add(a, s, (image * a->to[0] + r) * a->to[1] + q, w, sum, T, V);
            }
        }
        dt_put8_row(a->out, T, V, p * a->c.cols + s->col, s->left, sum);
    }
}
DT_COLS_KERNEL(resize_fwd, dt_resize_args, dt_resize_fwd_thread)
DT_COLS_KERNEL(resize_bwd, dt_resize_args, dt_resize_bwd_thread)

#endif
