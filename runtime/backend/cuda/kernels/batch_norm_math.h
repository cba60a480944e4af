// batch_norm_math.h: what batch norm forward and backward share: their arguments, the places of a thread's constants,
// bits and windows, and the normalization. Batch norm comes with fused residual, ReLU and 2x2 max-pool, or with another
// activation, over NHWC, that is, over a matrix of pixels and channels; (N,C) is the same matrix with N pixels. The
// kernels are in batch_norm_kernels.h and batch_norm_backward_kernels.h.
//
// Second passes run in the opposite direction of first ones, so that they begin with what those left in the cache. The
// bytes moved in the kernels' headers (n elements of E bytes) do not count what is still cached. A kernel between the
// passes (bn_finish, bn_bwd_finish) makes each channel's constants. If the sums came with the data, each block makes
// them for its own channels, and the blocks of the first chunk write them out. Where statistics are those of all ranks,
// that kernel runs twice: it writes sums, which are added over the ranks, and then takes these.
#ifndef DT_BATCH_NORM_MATH_H
#define DT_BATCH_NORM_MATH_H

#include "backend/cuda/kernels/elementwise_kernels.h"

// Threads per block of a pass over x, and of kernels that do all passes. bn_finish, bn_bwd_finish: 1024.
enum { DT_BN_THREADS = 256, DT_BN_SMALL_THREADS = 512 };
enum { DT_BN_TILE = 256 }; // the largest number of channels of a block
typedef enum dt_bn_mask {
    DT_BN_NONE, // g = dy
    DT_BN_OF_X, // dy where the normalized x is above zero
    DT_BN_BITS, // dy where the forward pass has set a bit
    DT_BN_SLOPE // dy times an activation's slope at the normalized x
} dt_bn_mask;

typedef struct dt_bn_args {
    dt_cols c;                             // rows: pixels; with pool: windows
    const void *x, *residual, *dy, *other; // other: a gradient to add to dy, or NULL
    const uint8_t *argmax_in, *bits_in;
    void *out, *dresidual;                      // out: y or dx
    uint8_t *argmax, *bits;                     // may be NULL
    float *partial;                             // (n_chunks, 2, padded)
    float *consts;                              // (5, padded): mean, gain, shift; backward k1, k2
    const float *mean, *invstd, *scale, *shift; // first backward pass: saved values, parameters
    int type, relu, mask;
    int act; // an activation other than the fused ReLU; 0: none
    float alpha;
    // pool
    int64_t height, width, out_h, out_w;
    dt_quot across, down; // windows per row, rows of windows per image
} dt_bn_args;

typedef struct dt_bn_finish_args {
    dt_cols c;     // of the first pass
    int64_t count; // values per channel
    const void *x;
    const float *sums;                                       // (2, cols) of x and of its squares (bn_apply_sums)
    const float *partial, *scale, *shift, *mean_in, *var_in; // in: running; backward: saved
    float *consts, *saved_mean, *saved_invstd, *saved_shift; // may be NULL
    float *out1, *out2; // STAT mean, variance; backward dscale, dshift; may be NULL
    // Sums (2, cols) that are added over ranks, or NULL. They are only written, or, once `joined`, read instead of partial
    // ones; count is then that of all ranks.
    double *shared;
    int joined;
    int type, training, add1, add2;
    float eps;
} dt_bn_finish_args;

// The arguments of each pass, for one kernel that does them all. consts and partial are not used.
typedef struct dt_bn_once_args {
    dt_bn_args sums, apply; // apply.out NULL: no last pass
    dt_bn_finish_args finish;
    int pool;
} dt_bn_once_args;

// y = relu(x gain + shift), which y's reader computes.
typedef struct dt_bn_leave_args {
    dt_bn_finish_args finish;
    void *gain, *shift; // of finish.type
} dt_bn_leave_args;

// The constants of a thread's first channel. The next kind of constant lies `step` further.
typedef struct dt_bn_place {
    const float *p;
    int64_t step;
} dt_bn_place;
DT_FN dt_bn_place dt_bn_place_of(const dt_bn_args *a, int64_t col) {
    dt_bn_place at;
    at.p = a->consts + col;
    at.step = a->c.padded;
    return at;
}
// In shared memory: (kinds, DT_BN_TILE), for the block's channels.
DT_FN dt_bn_place dt_bn_place_here(const float *consts, const dt_cols_share *s, int t) {
    dt_bn_place at;
    at.p = consts + (t & (s->tx - 1)) * 8;
    at.step = DT_BN_TILE;
    return at;
}

// ---- pixels, windows, channels ---------------------------------------------------------------------
DT_FN float dt_bn_normal(float x, float mean, float gain, float shift) {
    return fmaf(x - mean, gain, shift);
}

// The index of the byte with the bits of a thread's channels in pixel `row`.
DT_FN int64_t dt_bn_bits_at(const dt_bn_args *a, const dt_cols_share *s, int64_t row) {
    return row * ((a->c.cols + 7) / 8) + s->col / 8;
}

// The first element of window w's upper left pixel, before the channel; and its row and column.
DT_FN int64_t dt_bn_window(const dt_bn_args *a, int64_t w, int64_t *row, int64_t *col) {
    const int64_t line = dt_div(a->across, w), image = dt_div(a->down, line);
    *col = 2 * (w - line * a->across.d);
    *row = 2 * (line - image * a->down.d);
    return ((image * a->height + *row) * a->width + *col) * a->c.cols;
}

DT_FN void dt_bn_fetch_window(const dt_bn_args *a, const dt_cols_share *s, int64_t at, int T, int V, dt_raw8 raw[4]) {
    const int64_t pixel = a->c.cols, line = a->width * a->c.cols;
    for (int p = 0; p < 4; p++) raw[p] = dt_fetch8_row(a->x, T, V, at + s->col + p % 2 * pixel + p / 2 * line, s->left);
}

// Channel t of the block; c.cols or more: there is none.
DT_FN int64_t dt_bn_channel(const dt_cols_share *s, int t) {
    return s->col - (t & (s->tx - 1)) * 8 + t;
}
DT_FN void dt_bn_keep(float *consts, int t, const float *k, int n) {
    for (int i = 0; i < n; i++) consts[i * DT_BN_TILE + t] = k[i];
}

#endif
