// simd_rows.h: vector kernels over one row (softmax, attention, layer norm) and over one tile of a reorder,
// with the rules of simd.h. Rows have any length. Sums are f32.
#ifndef DT_BACKEND_CPU_SIMD_ROWS_H
#define DT_BACKEND_CPU_SIMD_ROWS_H

#include "backend/cpu/simd.h"

typedef struct dt_norm_row {
    int64_t n;
    const void *x, *dy; // dy: backward
    void *y;            // forward: y; backward: dx (NULL: not wanted)
    const float *scale, *shift;
    float eps;
    float mean, rstd;       // out forward, in backward
    float *dscale, *dshift; // backward: added to; NULL: not wanted
} dt_norm_row;

// A tile of pixels by at most `width` channels, to copy between two layouts. On each side element (channel c,
// pixel p) is at c * channel_stride + p * pixel_stride (in elements). A side of pixels has channel stride 1, a
// side of planes has pixel stride 1.
typedef struct dt_reorder_tile {
    const void *src;
    void *dst;
    int64_t src_stride, dst_stride; // planes: channel stride; pixels: pixel stride
    int n_channels;                 // read
    int n_stored;                   // pixels written: channels written, the rest of them zero
    int64_t n_pixels;
} dt_reorder_tile;

typedef struct dt_simd_rows {
    void (*softmax[DT_ROW_TYPES])(void *y, const void *x, int64_t n);
    void (*softmax_bwd[DT_ROW_TYPES])(void *dx, const void *y, const void *dy, int64_t n);
    // p = softmax(s); returns log(sum(exp(s))); s is overwritten
    float (*attend[DT_ROW_TYPES])(void *p, float *s, int64_t n);
    // p = exp(s - lse), ds = p (dp - sum(p dp)); s is overwritten
    void (*attend_bwd[DT_ROW_TYPES])(void *p, void *ds, float *s, const float *dp, float lse, int64_t n);
    void (*norm[DT_ROW_TYPES])(dt_norm_row *r);
    void (*norm_bwd[DT_ROW_TYPES])(const dt_norm_row *r);
    // [source type][destination type]
    void (*planes_to_pixels[DT_ROW_TYPES][DT_ROW_TYPES])(const dt_reorder_tile *t);
    void (*pixels_to_planes[DT_ROW_TYPES][DT_ROW_TYPES])(const dt_reorder_tile *t);
    void (*pixels_to_pixels[DT_ROW_TYPES][DT_ROW_TYPES])(const dt_reorder_tile *t);
    // k rows, an even number, of 64 columns as bf16, two rows element by element: a column of oneDNN's BA16a64b2a.
    // Rows of `from` lie `stride` apart.
    void (*pack_pairs)(uint16_t *to, const float *from, int64_t k, int64_t stride);
} dt_simd_rows;

#endif
