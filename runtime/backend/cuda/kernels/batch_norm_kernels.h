// batch_norm_kernels.h: batch norm with fused residual, ReLU and 2x2 max-pool over NHWC, that is over a matrix
// of pixels and channels; (N,C) is the same matrix with N pixels.
//
//   forward    bn_stats      x -> per chunk of pixels and channel: mean and sum of squares about it
//              bn_finish     chunks -> mean, gain, shift of each channel; saved and STAT outputs
//              bn_apply      y = relu((x - mean) gain + shift + residual), or bn_apply_pool
//              bn_apply_sums or bn_apply_pool_sums: all three, where x comes with its sums
//              bn_leave      gain and shift alone, where y's reader applies them, and what it needs for dy
//              bn_small      all three, where a block can hold a few channels' pixels in its cache
//   backward   bn_bwd_sums   sum(g), sum(g (x - mean)) per chunk, or _pool; writes dresidual = g
//              bn_bwd_finish dscale, dshift; the constants of the second pass
//              bn_bwd_apply  dx = gain g - k1 - k2 (x - mean), or _pool
//              bn_bwd_small  all three
//              bn_bwd_apply_sums  the last pass alone, where g comes with dscale and dshift
//
// g is dy behind the ReLU. Without residual the mask is made again from x, mean, gain and shift, by the
// instructions of the forward pass, which saves reading anything; behind a residual the forward pass writes a bit for
// each element, which the first pass reads, and the second pass reads the g that the first has written as
// dresidual. A pixel's bits begin at a byte: (pixels, ceil(C/8)) bytes, channel c being bit c % 8 of byte c / 8, so that
// a thread's eight channels are a byte of its own. With a pool g goes where argmax says.
//
// Statistics: a thread sums about the first value that it sees, threads and chunks are combined as (mean, sum of
// squares about the mean) by Chan, Golub, LeVeque 1979, relative to x's first pixel. So neither a mean far from
// zero nor an outlier costs digits. Chunks are combined in double. The second passes walk in the opposite
// direction, so that they begin with what the first passes have left in the cache.
//
// Or x comes with the sums of each channel and of its squares, made in f32 by the convolution that wrote it
// (each block makes the constants of its channels from them). There a mean far from zero does cost digits: the variance is off by mean^2 / variance
// times the error of an f32 sum, 1e-7 to 1e-6 when it is made tile by tile. At a mean of ten deviations that is
// a fraction of what fp16 rounds, at a hundred it is more than that; convolutions of normalised activations have
// means of a few deviations. A variance that comes out below zero counts as zero.
//
// Moves, n elements of E bytes: forward 2nE read + nE written, + nE with residual, + n/8 written with bits; with pool
// 2nE + nE/4 + n/4. Backward: 4nE + nE; behind a residual and ReLU 4nE + n/8 + 2nE; with pool (2n + n/2) E + n/2 read + nE written.
// What of x and dy still lies in the second-level cache in the second pass comes off that.
#ifndef DT_BATCH_NORM_KERNELS_H
#define DT_BATCH_NORM_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

// Threads of a pass over x; of the kernels that do all passes. bn_finish, bn_bwd_finish: 1024.
enum { DT_BN_THREADS = 256, DT_BN_SMALL_THREADS = 512 };
enum { DT_BN_TILE = 256 }; // most channels of a block
typedef enum dt_bn_mask {
    DT_BN_NONE, // g = dy
    DT_BN_OF_X, // dy where the normalised x is above zero
    DT_BN_BITS  // dy where the forward pass has set a bit
} dt_bn_mask;

typedef struct dt_bn_args {
    dt_cols c; // rows: pixels; with pool: windows
    const void *x, *residual, *dy;
    const uint8_t *argmax_in, *bits_in;
    void *out, *dresidual;                      // out: y or dx
    uint8_t *argmax, *bits;                     // may be NULL
    float *partial;                             // (n_chunks, 2, padded)
    float *consts;                              // (5, padded): mean, gain, shift; backward k1, k2
    const float *mean, *invstd, *scale, *shift; // first backward pass: saved ones and parameters
    int type, relu, mask;
    // pool
    int64_t height, width, out_h, out_w;
    dt_quot across, down; // windows a row, rows of windows an image
} dt_bn_args;

typedef struct dt_bn_finish_args {
    dt_cols c;     // of the first pass
    int64_t count; // values a channel
    const void *x;
    const float *sums;            // (2, cols) of x and of its squares (bn_apply_sums)
    const float *dscale, *dshift; // as they come with g (bn_bwd_apply_sums)
    const float *partial, *scale, *shift, *mean_in, *var_in; // in: running; backward: saved
    float *consts, *saved_mean, *saved_invstd;
    float *out1, *out2; // STAT mean, variance; backward dscale, dshift; may be NULL
    int type, training, add1, add2;
    float eps;
} dt_bn_finish_args;

// All passes in one kernel: the arguments of each; consts and partial are not used.
typedef struct dt_bn_once_args {
    dt_bn_args sums, apply; // apply.out NULL: the last pass is left out
    dt_bn_finish_args finish;
    int pool;
} dt_bn_once_args;

// y = relu(x gain + shift), left to who reads y.
typedef struct dt_bn_leave_args {
    dt_bn_finish_args finish;
    void *gain, *shift; // of finish.type
    float *norm[4];     // mean, 1/std, scale and shift again, for whoever makes g; NULL: nobody
} dt_bn_leave_args;

// The constants of a thread's first channel; the next kind lies `step` further.
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
// In shared memory: (kinds, DT_BN_TILE) of the block's channels.
DT_FN dt_bn_place dt_bn_place_here(const float *consts, const dt_cols_share *s, int t) {
    dt_bn_place at;
    at.p = consts + (t & (s->tx - 1)) * 8;
    at.step = DT_BN_TILE;
    return at;
}

// ---- statistics ------------------------------------------------------------------------------------
typedef struct dt_bn_moments {
    float n, mean[8], m2[8];
} dt_bn_moments;

DT_FN void dt_bn_stats_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_moments *m, int T,
                              int V) {
    float pivot[8], first[8], sum[8], sq[8], x[8];
    const int64_t step = s->step * a->c.cols;
    const int U = V ? T == DT_F32 ? 2 : 4 : 1; // rows in flight: what the registers hold
    m->n = 0.0f;
    for (int k = 0; k < 8; k++) m->mean[k] = m->m2[k] = sum[k] = sq[k] = 0.0f;
    if (s->row >= s->end) return;
    dt_get8_row(a->x, T, V, s->col, s->left, pivot);
    dt_get8_row(a->x, T, V, s->row * a->c.cols + s->col, s->left, first);
    for (int64_t r = s->row; r < s->end; r += U * s->step) {
        dt_raw8 raw[4];
        for (int u = 0; u < U; u++)
            if (r + u * s->step < s->end)
                raw[u] = dt_fetch8_row(a->x, T, V, r * a->c.cols + s->col + u * step, s->left);
        for (int u = 0; u < U; u++) {
            if (r + u * s->step >= s->end) continue;
            dt_unpack8_row(T, V, &raw[u], x);
            for (int k = 0; k < 8; k++) {
                const float e = x[k] - first[k];
                sum[k] += e, sq[k] += e * e;
            }
        }
    }
    const int64_t n = (s->end - s->row + s->step - 1) / s->step;
    m->n = (float)n;
    for (int k = 0; k < 8; k++) {
        const float d = sum[k] / m->n;
        m->mean[k] = (first[k] - pivot[k]) + d;
        m->m2[k] = sq[k] - sum[k] * d;
    }
}

// count, mean and m2 of a block's threads in shared memory, and of its channels in those of lane 0.
#define DT_BN_MOMENTS(THREADS, args)                                                               \
    DT_SHARED(float, count, THREADS);                                                              \
    DT_SHARED(float, mean, 8 * THREADS);                                                           \
    DT_SHARED(float, m2, 8 * THREADS);                                                             \
    DT_THREADS(t) {                                                                                \
        const dt_cols_share s = dt_cols_of(&(args)->c, DT_BLOCK, DT_BLOCK_DIM, t);                 \
        dt_bn_moments m;                                                                           \
        DT_TYPED_ROWS(T, V, (args)->type, (args)->c.whole,                                         \
                      dt_bn_stats_thread(args, &s, &m, T, V));                                     \
        count[t] = m.n;                                                                            \
        for (int k = 0; k < 8; k++)                                                                \
            mean[k * THREADS + t] = m.mean[k], m2[k * THREADS + t] = m.m2[k];                      \
    }                                                                                              \
    DT_TREE(t, half, THREADS >> (args)->c.tx_log2, 1 << (args)->c.tx_log2,                         \
            dt_bn_join(count, mean, m2, t, t + (half << (args)->c.tx_log2), THREADS))

DT_FN void dt_bn_join(float *count, float *mean, float *m2, int t, int o, int threads) {
    const float na = count[t], nb = count[o];
    if (!(nb > 0.0f)) return;
    const float share = nb / (na + nb);
    for (int k = 0; k < 8; k++) {
        const int i = k * threads + t, j = k * threads + o;
        const float d = mean[j] - mean[i];
        mean[i] += d * share;
        m2[i] += m2[j] + d * d * (na * share);
    }
    count[t] = na + nb;
}

DT_KERNEL_BOUND(bn_stats, dt_bn_args, 256, 3) {
    DT_BN_MOMENTS(DT_BN_THREADS, a);
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);
        if (s.lane == 0 && s.left > 0) {
            float *to = a->partial + s.chunk * 2 * a->c.padded + s.col;
            for (int k = 0; k < 8; k++) {
                to[k] = mean[k * DT_BN_THREADS + t];
                to[a->c.padded + k] = m2[k * DT_BN_THREADS + t];
            }
        }
    }
}

// A channel's mean and variance -> mean, gain, shift; `writes`: and the kernel's outputs.
DT_FN void dt_bn_finish_column(const dt_bn_finish_args *a, int64_t col, double mean, double var,
                               int writes, float k[3]) {
    const double n = (double)a->count;
    if (var < 0) var = 0;
    // The backward pass makes the gain again from the f32 that is saved.
    const float invstd = (float)(1 / sqrt(var + (double)a->eps));
    k[0] = (float)mean;
    k[1] = a->scale[col] * invstd;
    // what rounding took from the mean goes into the shift
    k[2] = (float)((double)a->shift[col] - (mean - (double)k[0]) * (double)k[1]);
    if (!writes) return;
    if (a->out1) dt_store_sum(a->out1, col, a->add1, mean);
    if (a->out2) dt_store_sum(a->out2, col, a->add2, n > 1 ? var * n / (n - 1) : var);
    if (a->saved_mean) a->saved_mean[col] = k[0];
    if (a->saved_invstd) a->saved_invstd[col] = invstd;
}

// 32 channels a block of 32 x 32 threads.
DT_KERNEL_BOUND(bn_finish, dt_bn_finish_args, 1024, 1) {
    DT_SHARED(double, sum, 1024);
    DT_SHARED(double, sq, 1024);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t % 32;
        double s = 0, q = 0;
        if (a->training && col < a->c.cols) {
            for (int64_t i = t / 32; i < a->c.n_chunks; i += 32) {
                const float *p = a->partial + i * 2 * a->c.padded + col;
                const int64_t left = a->c.rows - i * a->c.chunk_rows;
                const double n = (double)(left < a->c.chunk_rows ? left : a->c.chunk_rows);
                const double m = p[0];
                s += n * m, q += n * m * m + p[a->c.padded];
            }
        }
        sum[t] = s, sq[t] = q;
    }
    DT_TREE(t, half, 32, 32, sum[t] += sum[t + half * 32]; sq[t] += sq[t + half * 32]);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t;
        if (t < 32 && col < a->c.padded) {
            float k[3] = {0.0f, 0.0f, 0.0f};
            if (col < a->c.cols) {
                const double n = (double)a->count, d = a->training ? sum[t] / n : 0;
                const double mean =
                    a->training ? (double)dt_get(a->x, a->type, col) + d : (double)a->mean_in[col];
                const double var = a->training ? sq[t] / n - d * d : (double)a->var_in[col];
                dt_bn_finish_column(a, col, mean, var, 1, k);
            }
            for (int i = 0; i < 3; i++) a->consts[i * a->c.padded + col] = k[i];
        }
    }
}

// ---- forward ---------------------------------------------------------------------------------------
DT_FN float dt_bn_normal(float x, float mean, float gain, float shift) {
    return fmaf(x - mean, gain, shift);
}

// Where the bits of a thread's channels in pixel `row` lie.
DT_FN int64_t dt_bn_bits_at(const dt_bn_args *a, const dt_cols_share *s, int64_t row) {
    return row * ((a->c.cols + 7) / 8) + s->col / 8;
}

DT_FN void dt_bn_apply_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at, int T,
                              int V, int R) {
    float mean[8], gain[8], shift[8], x[8], d[8];
    if (s->row >= s->end) return;
    dt_col8(at.p, 0, mean);
    dt_col8(at.p + at.step, 0, gain);
    dt_col8(at.p + 2 * at.step, 0, shift);
    const int64_t step = s->step * a->c.cols;
    const int U = V && !(R && T == DT_F32) ? 2 : 1; // rows in flight: what the registers hold
    for (int64_t r = s->row; r < s->end; r += U * s->step) {
        const int64_t i = r * a->c.cols + s->col;
        const int n = U > 1 && r + s->step < s->end ? 2 : 1;
        unsigned bits[2] = {0, 0};
        dt_raw8 raw[2], res[2];
        for (int u = 0; u < U; u++) {
            const int64_t from = u < n ? i + u * step : i;
            raw[u] = dt_fetch8_row(a->x, T, V, from, s->left);
            res[u] = R ? dt_fetch8_row(a->residual, T, V, from, s->left) : raw[u];
        }
        for (int u = 0; u < U; u++) {
            if (u >= n) continue;
            dt_unpack8_row(T, V, &raw[u], x);
            dt_unpack8_row(T, V, &res[u], d);
            for (int k = 0; k < 8; k++) {
                x[k] = dt_bn_normal(x[k], mean[k], gain[k], shift[k]);
                if (R) x[k] += d[k];
                if (R) bits[u] |= (unsigned)(x[k] > 0.0f) << k;
                if (a->relu) x[k] = x[k] < 0.0f ? 0.0f : x[k]; // NaN passes
            }
            dt_put8_row(a->out, T, V, i + u * step, s->left, x);
            if (R && a->bits) a->bits[dt_bn_bits_at(a, s, r + u * s->step)] = (uint8_t)bits[u];
        }
    }
}
DT_FN void dt_bn_apply_any(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at) {
    if (a->residual)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_apply_thread(a, s, at, T, V, 1));
    else
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_apply_thread(a, s, at, T, V, 0));
}
DT_KERNEL_BOUND(bn_apply, dt_bn_args, 256, 3) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        dt_bn_apply_any(a, &s, dt_bn_place_of(a, s.col));
    }
}

// First element of window w's upper left pixel, before the channel; its row and column.
DT_FN int64_t dt_bn_window(const dt_bn_args *a, int64_t w, int64_t *row, int64_t *col) {
    const int64_t line = dt_div(a->across, w), image = dt_div(a->down, line);
    *col = 2 * (w - line * a->across.d);
    *row = 2 * (line - image * a->down.d);
    return ((image * a->height + *row) * a->width + *col) * a->c.cols;
}

DT_FN void dt_bn_fetch_window(const dt_bn_args *a, const dt_cols_share *s, int64_t at, int T, int V,
                              dt_raw8 raw[4]) {
    const int64_t pixel = a->c.cols, line = a->width * a->c.cols;
    for (int p = 0; p < 4; p++)
        raw[p] = dt_fetch8_row(a->x, T, V, at + s->col + p % 2 * pixel + p / 2 * line, s->left);
}

DT_FN void dt_bn_pool_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at, int T,
                             int V) {
    float mean[8], gain[8], shift[8], x[8], best[8];
    int index[8];
    if (s->row >= s->end) return;
    dt_col8(at.p, 0, mean);
    dt_col8(at.p + at.step, 0, gain);
    dt_col8(at.p + 2 * at.step, 0, shift);
    for (int64_t w = s->row; w < s->end; w += s->step) {
        int64_t row, col;
        dt_raw8 raw[4];
        dt_bn_fetch_window(a, s, dt_bn_window(a, w, &row, &col), T, V, raw);
        for (int p = 0; p < 4; p++) {
            dt_unpack8_row(T, V, &raw[p], x);
            for (int k = 0; k < 8; k++) {
                const float v = dt_bn_normal(x[k], mean[k], gain[k], shift[k]);
                const int more = p == 0 || v > best[k];
                best[k] = more ? v : best[k];
                index[k] = more ? p : index[k];
            }
        }
        for (int k = 0; k < 8 && a->relu; k++)
            if (best[k] <= 0.0f) best[k] = 0.0f, index[k] = 255;
        const int64_t o = w * a->c.cols + s->col;
        dt_put8_row(a->out, T, V, o, s->left, best);
        if (a->argmax) dt_put8_bytes(a->argmax + o, V, s->left, index);
    }
}
DT_KERNEL_BOUND(bn_apply_pool, dt_bn_args, 256, 2) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->c.whole,
                      dt_bn_pool_thread(a, &s, dt_bn_place_of(a, s.col), T, V));
    }
}

// ---- forward, with fewer kernels -------------------------------------------------------------------
// Channel t of the block's, or one at or behind c.cols: none.
DT_FN int64_t dt_bn_channel(const dt_cols_share *s, int t) {
    return s->col - (t & (s->tx - 1)) * 8 + t;
}
DT_FN void dt_bn_keep(float *consts, int t, const float *k, int n) {
    for (int i = 0; i < n; i++) consts[i * DT_BN_TILE + t] = k[i];
}

DT_FN void dt_bn_sums_column(const dt_bn_finish_args *a, int64_t cols, int64_t col, int writes,
                             float k[3]) {
    const double n = (double)a->count, mean = a->sums[col] / n;
    dt_bn_finish_column(a, col, mean, a->sums[cols + col] / n - mean * mean, writes, k);
}

// Constants of the block's channels from x's sums; the blocks of the first chunk write the outputs.
#define DT_BN_CONSTS_OF_SUMS()                                                                     \
    DT_SHARED(float, consts, 3 * DT_BN_TILE);                                                      \
    DT_THREADS(t) {                                                                                \
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);  \
        const int64_t col = dt_bn_channel(&s, t);                                                  \
        if (t < 8 * s.tx) {                                                                        \
            float k[3] = {0.0f, 0.0f, 0.0f};                                                       \
            if (col < a->apply.c.cols) {                                                           \
                dt_bn_sums_column(&a->finish, a->apply.c.cols, col, s.chunk == 0, k);              \
            }                                                                                      \
            dt_bn_keep(consts, t, k, 3);                                                           \
        }                                                                                          \
    }
DT_KERNEL_BOUND(bn_apply_sums, dt_bn_once_args, 256, 3) {
    DT_BN_CONSTS_OF_SUMS();
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        dt_bn_apply_any(&a->apply, &s, dt_bn_place_here(consts, &s, t));
    }
}
DT_KERNEL_BOUND(bn_apply_pool_sums, dt_bn_once_args, 256, 2) {
    DT_BN_CONSTS_OF_SUMS();
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->apply.type, a->apply.c.whole,
                      dt_bn_pool_thread(&a->apply, &s, dt_bn_place_here(consts, &s, t), T, V));
    }
}

// The shift is made for the gain as it was rounded, so that x's mean comes out right whatever that took: y is off by
// 2^-11 |x - mean| gain, 2^-11 |shift| and what rounding y takes. A channel whose mean is 32752 deviations or more
// from zero has no shift in fp16, and no deviations in an fp16 x either: its gain is 0.
DT_FN void dt_bn_leave_column(const dt_bn_leave_args *a, int64_t col, const float k[3]) {
    dt_put(a->gain, a->finish.type, col, k[1]);
    const float shift =
        (float)((double)k[2] - (double)k[0] * (double)dt_get(a->gain, a->finish.type, col));
    const int still = !(fabsf(shift) < 32752.0f) && fabsf(k[2]) < 32752.0f;
    if (still) dt_put(a->gain, a->finish.type, col, 0.0f);
    dt_put(a->shift, a->finish.type, col, still ? k[2] : shift);
}
DT_KERNEL_BOUND(bn_leave, dt_bn_leave_args, 256, 1) {
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * DT_BN_THREADS + t;
        if (col < a->finish.c.cols) {
            float k[3];
            dt_bn_sums_column(&a->finish, a->finish.c.cols, col, 1, k);
            dt_bn_leave_column(a, col, k);
            if (a->norm[0]) {
                a->norm[0][col] = k[0];
                a->norm[1][col] = a->finish.saved_invstd[col];
                a->norm[2][col] = a->finish.scale[col];
                a->norm[3][col] = a->finish.shift[col];
            }
        }
    }
}

// A block has all pixels of its channels: one chunk. It reads them twice, the second time from its cache.
DT_KERNEL_BOUND(bn_small, dt_bn_once_args, 512, 1) {
    DT_SHARED(float, consts, 3 * DT_BN_TILE);
    DT_BN_MOMENTS(DT_BN_SMALL_THREADS, &a->sums);
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->sums.c, DT_BLOCK, DT_BLOCK_DIM, t);
        const int64_t col = dt_bn_channel(&s, t);
        if (t < 8 * s.tx) {
            float k[3] = {0.0f, 0.0f, 0.0f};
            if (col < a->sums.c.cols) {
                const int i = t % 8 * DT_BN_SMALL_THREADS + t / 8;
                const double d = mean[i];
                dt_bn_finish_column(&a->finish, col,
                                    (double)dt_get(a->sums.x, a->sums.type, col) + d,
                                    (double)m2[i] / (double)a->finish.count, 1, k);
            }
            dt_bn_keep(consts, t, k, 3);
        }
    }
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_BLOCK, DT_BLOCK_DIM, t);
        const dt_bn_place at = dt_bn_place_here(consts, &s, t);
        if (a->pool)
            DT_TYPED_ROWS(T, V, a->apply.type, a->apply.c.whole,
                          dt_bn_pool_thread(&a->apply, &s, at, T, V));
        else
            dt_bn_apply_any(&a->apply, &s, at);
    }
}

// ---- backward, first pass --------------------------------------------------------------------------
typedef struct dt_bn_sums {
    float g[8], gx[8];
} dt_bn_sums;

// Both backward passes read rows of x, dy and, for its mask, bits: up to two are fetched before the first is used.
typedef struct dt_bn_rows {
    dt_raw8 x[2], g[2];
    unsigned bits[2];
} dt_bn_rows;
DT_FN void dt_bn_fetch(const dt_bn_args *a, const dt_cols_share *s, dt_bn_rows *rows, int u, int T,
                       int V, int M, int64_t row) {
    const int64_t at = row * a->c.cols + s->col;
    rows->x[u] = dt_fetch8_row(a->x, T, V, at, s->left);
    rows->g[u] = dt_fetch8_row(a->dy, T, V, at, s->left);
    rows->bits[u] = M == DT_BN_BITS ? a->bits_in[dt_bn_bits_at(a, s, row)] : 0;
}
// x and the masked gradient of row u.
DT_FN void dt_bn_read(const dt_bn_rows *rows, int u, int T, int V, int M, const float mean[8],
                      const float gain[8], const float shift[8], float x[8], float g[8]) {
    dt_unpack8_row(T, V, &rows->x[u], x);
    dt_unpack8_row(T, V, &rows->g[u], g);
    for (int k = 0; k < 8; k++) {
        if (M == DT_BN_OF_X && !(dt_bn_normal(x[k], mean[k], gain[k], shift[k]) > 0.0f))
            g[k] = 0.0f;
        if (M == DT_BN_BITS && !(rows->bits[u] >> k & 1)) g[k] = 0.0f;
    }
}

DT_FN void dt_bn_sums_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums, int T,
                             int V, int M) {
    float mean[8], gain[8], shift[8], x[8], g[8];
    for (int k = 0; k < 8; k++) sums->g[k] = sums->gx[k] = 0.0f;
    if (s->row >= s->end) return;
    dt_param8(a->mean, s->col, s->left, mean);
    if (M == DT_BN_OF_X) {
        dt_param8(a->scale, s->col, s->left, gain);
        dt_param8(a->invstd, s->col, s->left, x);
        dt_param8(a->shift, s->col, s->left, shift);
    }
    for (int k = 0; k < 8; k++) {
        if (M == DT_BN_OF_X)
            gain[k] *= x[k];
        else
            gain[k] = shift[k] = 0.0f;
    }
    const int64_t step = s->step * a->c.cols;
    const int U = V && T != DT_F32 ? 2 : 1;
    for (int64_t r = s->row; r < s->end; r += U * s->step) {
        const int64_t i = r * a->c.cols + s->col;
        const int n = U > 1 && r + s->step < s->end ? 2 : 1;
        dt_bn_rows rows;
        for (int u = 0; u < U; u++)
            dt_bn_fetch(a, s, &rows, u, T, V, M, u < n ? r + s->step * u : r);
        for (int u = 0; u < U; u++) {
            if (u >= n) continue;
            dt_bn_read(&rows, u, T, V, M, mean, gain, shift, x, g);
            for (int k = 0; k < 8; k++) {
                sums->g[k] += g[k];
                sums->gx[k] += g[k] * (x[k] - mean[k]);
            }
            if (a->dresidual) dt_put8_row(a->dresidual, T, V, i + step * u, s->left, g);
        }
    }
}

DT_FN void dt_bn_sums_pool_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums,
                                  int T, int V) {
    float mean[8], x[8], g[8], own[8];
    int index[8];
    for (int k = 0; k < 8; k++) sums->g[k] = sums->gx[k] = 0.0f;
    if (s->row >= s->end) return;
    dt_param8(a->mean, s->col, s->left, mean);
    for (int64_t w = s->row; w < s->end; w += s->step) {
        int64_t row, col;
        dt_raw8 raw[4];
        const int64_t o = w * a->c.cols + s->col;
        dt_bn_fetch_window(a, s, dt_bn_window(a, w, &row, &col), T, V, raw);
        dt_get8_bytes(a->argmax_in + o, V, s->left, index);
        dt_get8_row(a->dy, T, V, o, s->left, g);
        for (int k = 0; k < 8; k++) own[k] = mean[k];
        for (int p = 0; p < 4; p++) {
            dt_unpack8_row(T, V, &raw[p], x);
            for (int k = 0; k < 8; k++) own[k] = index[k] == p ? x[k] : own[k];
        }
        for (int k = 0; k < 8; k++) {
            g[k] = index[k] == 255 ? 0.0f : g[k];
            sums->g[k] += g[k];
            sums->gx[k] += g[k] * (own[k] - mean[k]);
        }
    }
}

// Sums of a block's threads in shared memory, and of its channels in those of lane 0.
#define DT_BN_TOTALS(THREADS, args, ...)                                                           \
    DT_SHARED(float, total, 16 * THREADS);                                                         \
    DT_THREADS(t) {                                                                                \
        const dt_cols_share s = dt_cols_of(&(args)->c, DT_BLOCK, DT_BLOCK_DIM, t);                 \
        dt_bn_sums sums;                                                                           \
        __VA_ARGS__;                                                                               \
        for (int k = 0; k < 8; k++) {                                                              \
            total[k * THREADS + t] = sums.g[k];                                                    \
            total[(8 + k) * THREADS + t] = sums.gx[k];                                             \
        }                                                                                          \
    }                                                                                              \
    DT_TREE(t, half, THREADS >> (args)->c.tx_log2, 1 << (args)->c.tx_log2,                         \
            for (int k = 0; k < 16; k++) total[k * THREADS + t] +=                                 \
            total[k * THREADS + t + (half << (args)->c.tx_log2)])

// -> partial of the block's chunk
#define DT_BN_SUM_BLOCK(THREAD)                                                                    \
    DT_BN_TOTALS(DT_BN_THREADS, a, THREAD);                                                        \
    DT_THREADS(t) {                                                                                \
        const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);                      \
        if (s.lane == 0 && s.left > 0) {                                                           \
            float *to = a->partial + s.chunk * 2 * a->c.padded + s.col;                            \
            for (int k = 0; k < 8; k++) {                                                          \
                to[k] = total[k * DT_BN_THREADS + t];                                              \
                to[a->c.padded + k] = total[(8 + k) * DT_BN_THREADS + t];                          \
            }                                                                                      \
        }                                                                                          \
    }

DT_FN void dt_bn_sums_any(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums) {
    if (a->mask == DT_BN_NONE)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_thread(a, s, sums, T, V, DT_BN_NONE));
    else if (a->mask == DT_BN_OF_X)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_thread(a, s, sums, T, V, DT_BN_OF_X));
    else
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_thread(a, s, sums, T, V, DT_BN_BITS));
}
DT_KERNEL_BOUND(bn_bwd_sums, dt_bn_args, 256, 3) {
    DT_BN_SUM_BLOCK(dt_bn_sums_any(a, &s, &sums));
}
DT_KERNEL_BOUND(bn_bwd_sums_pool, dt_bn_args, 256, 2) {
    DT_BN_SUM_BLOCK(
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_pool_thread(a, &s, &sums, T, V)));
}

// A channel's sums of g and g (x - mean) -> mean, gain, shift, k1, k2; `writes`: and dscale, dshift.
DT_FN void dt_bn_bwd_finish_column(const dt_bn_finish_args *a, int64_t col, double g, double gx,
                                   int writes, float k[5]) {
    const double invstd = a->var_in[col], gain = (double)a->scale[col] * invstd;
    const double n = (double)a->count;
    k[0] = a->mean_in[col];
    k[1] = a->scale[col] * a->var_in[col];
    k[2] = a->shift ? a->shift[col] : 0.0f;
    k[3] = (float)(gain * g / n);
    k[4] = (float)(gain * invstd * invstd * gx / n);
    if (writes && a->out1) dt_store_sum(a->out1, col, a->add1, gx * invstd);
    if (writes && a->out2) dt_store_sum(a->out2, col, a->add2, g);
}

// mean_in, var_in: saved mean and 1/std. 32 channels a block of 32 x 32 threads.
DT_KERNEL_BOUND(bn_bwd_finish, dt_bn_finish_args, 1024, 1) {
    DT_SHARED(double, g, 1024);
    DT_SHARED(double, gx, 1024);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t % 32;
        double s = 0, q = 0;
        if (col < a->c.cols) {
            for (int64_t i = t / 32; i < a->c.n_chunks; i += 32) {
                const float *p = a->partial + i * 2 * a->c.padded + col;
                s += (double)p[0], q += (double)p[a->c.padded];
            }
        }
        g[t] = s, gx[t] = q;
    }
    DT_TREE(t, half, 32, 32, g[t] += g[t + half * 32]; gx[t] += gx[t + half * 32]);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t;
        if (t < 32 && col < a->c.padded) {
            float k[5] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (col < a->c.cols) dt_bn_bwd_finish_column(a, col, g[t], gx[t], 1, k);
            for (int i = 0; i < 5; i++) a->consts[i * a->c.padded + col] = k[i];
        }
    }
}

// ---- backward, second pass -------------------------------------------------------------------------
typedef struct dt_bn_consts {
    float mean[8], gain[8], shift[8], k1[8], k2[8];
} dt_bn_consts;
DT_FN void dt_bn_read_consts(dt_bn_place at, dt_bn_consts *c) {
    dt_col8(at.p, 0, c->mean);
    dt_col8(at.p + at.step, 0, c->gain);
    dt_col8(at.p + 2 * at.step, 0, c->shift);
    dt_col8(at.p + 3 * at.step, 0, c->k1);
    dt_col8(at.p + 4 * at.step, 0, c->k2);
}
DT_FN float dt_bn_slope(const dt_bn_consts *c, int k, float g, float x) {
    return c->gain[k] * g - c->k1[k] - c->k2[k] * (x - c->mean[k]);
}

DT_FN void dt_bn_bwd_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at, int T,
                            int V, int M) {
    dt_bn_consts c;
    float x[8], g[8];
    if (s->row >= s->end) return;
    dt_bn_read_consts(at, &c);
    const int64_t step = s->step * a->c.cols;
    const int U = V && T != DT_F32 ? 2 : 1;
    for (int64_t r = s->row; r < s->end; r += U * s->step) {
        const int64_t i = r * a->c.cols + s->col;
        const int n = U > 1 && r + s->step < s->end ? 2 : 1;
        dt_bn_rows rows;
        for (int u = 0; u < U; u++)
            dt_bn_fetch(a, s, &rows, u, T, V, M, u < n ? r + s->step * u : r);
        for (int u = 0; u < U; u++) {
            if (u >= n) continue;
            dt_bn_read(&rows, u, T, V, M, c.mean, c.gain, c.shift, x, g);
            for (int k = 0; k < 8; k++) x[k] = dt_bn_slope(&c, k, g[k], x[k]);
            dt_put8_row(a->out, T, V, i + step * u, s->left, x);
        }
    }
}
DT_FN void dt_bn_bwd_any(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at) {
    if (a->mask == DT_BN_NONE)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_bwd_thread(a, s, at, T, V, DT_BN_NONE));
    else if (a->mask == DT_BN_OF_X)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_bwd_thread(a, s, at, T, V, DT_BN_OF_X));
    else
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_bwd_thread(a, s, at, T, V, DT_BN_BITS));
}
DT_KERNEL_BOUND(bn_bwd_apply, dt_bn_args, 256, 3) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        dt_bn_bwd_any(a, &s, dt_bn_place_of(a, s.col));
    }
}

// What made g has made dscale and dshift beside it: each block makes its channels' constants from them, those of the first
// chunk write them out.
DT_KERNEL_BOUND(bn_bwd_apply_sums, dt_bn_once_args, 256, 3) {
    DT_SHARED(float, consts, 5 * DT_BN_TILE);
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        const int64_t col = dt_bn_channel(&s, t);
        if (t < 8 * s.tx) {
            float k[5] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (col < a->apply.c.cols)
                dt_bn_bwd_finish_column(
                    &a->finish, col, (double)a->finish.dshift[col],
                    (double)a->finish.dscale[col] / (double)a->finish.var_in[col], s.chunk == 0, k);
            dt_bn_keep(consts, t, k, 5);
        }
    }
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        if (!a->apply.out) continue;
        DT_TYPED_ROWS(
            T, V, a->apply.type, a->apply.c.whole,
            dt_bn_bwd_thread(&a->apply, &s, dt_bn_place_here(consts, &s, t), T, V, DT_BN_NONE));
    }
}

// Windows here cover the whole image: those of an odd last row or column have no pooled value, and g = 0.
DT_FN void dt_bn_bwd_pool_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place place,
                                 int T, int V) {
    dt_bn_consts c;
    float x[8], g[8];
    int index[8];
    if (s->row >= s->end) return;
    dt_bn_read_consts(place, &c);
    const int64_t pixel = a->c.cols, line = a->width * a->c.cols;
    for (int64_t w = s->row; w < s->end; w += s->step) {
        int64_t row, col;
        const int64_t at = dt_bn_window(a, w, &row, &col) + s->col;
        for (int k = 0; k < 8; k++) g[k] = 0.0f, index[k] = 255;
        if (row / 2 < a->out_h && col / 2 < a->out_w) {
            const int64_t image = dt_div(a->down, dt_div(a->across, w));
            const int64_t o =
                ((image * a->out_h + row / 2) * a->out_w + col / 2) * a->c.cols + s->col;
            dt_get8_row(a->dy, T, V, o, s->left, g);
            dt_get8_bytes(a->argmax_in + o, V, s->left, index);
        }
        for (int p = 0; p < 4; p++) {
            if (row + p / 2 >= a->height || col + p % 2 >= a->width) continue;
            const int64_t i = at + p % 2 * pixel + p / 2 * line;
            dt_get8_row(a->x, T, V, i, s->left, x);
            for (int k = 0; k < 8; k++)
                x[k] = dt_bn_slope(&c, k, index[k] == p ? g[k] : 0.0f, x[k]);
            dt_put8_row(a->out, T, V, i, s->left, x);
        }
    }
}
DT_KERNEL_BOUND(bn_bwd_apply_pool, dt_bn_args, 256, 2) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->c.whole,
                      dt_bn_bwd_pool_thread(a, &s, dt_bn_place_of(a, s.col), T, V));
    }
}

DT_FN void dt_bn_sums_either(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums,
                             int pool) {
    if (pool)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_pool_thread(a, s, sums, T, V));
    else
        dt_bn_sums_any(a, s, sums);
}

// As bn_small. A thread of the last pass reads what the same thread wrote as dresidual in the first.
DT_KERNEL_BOUND(bn_bwd_small, dt_bn_once_args, 512, 1) {
    DT_SHARED(float, consts, 5 * DT_BN_TILE);
    DT_BN_TOTALS(DT_BN_SMALL_THREADS, &a->sums, dt_bn_sums_either(&a->sums, &s, &sums, a->pool));
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->sums.c, DT_BLOCK, DT_BLOCK_DIM, t);
        const int64_t col = dt_bn_channel(&s, t);
        if (t < 8 * s.tx) {
            float k[5] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            const int i = t % 8 * DT_BN_SMALL_THREADS + t / 8;
            if (col < a->sums.c.cols)
                dt_bn_bwd_finish_column(&a->finish, col, total[i],
                                        total[8 * DT_BN_SMALL_THREADS + i], 1, k);
            dt_bn_keep(consts, t, k, 5);
        }
    }
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_BLOCK, DT_BLOCK_DIM, t);
        const dt_bn_place at = dt_bn_place_here(consts, &s, t);
        if (!a->apply.out) continue;
        if (a->pool)
            DT_TYPED_ROWS(T, V, a->apply.type, a->apply.c.whole,
                          dt_bn_bwd_pool_thread(&a->apply, &s, at, T, V));
        else
            dt_bn_bwd_any(&a->apply, &s, at);
    }
}

#endif
