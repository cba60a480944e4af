// batch_norm_kernels.h: batch norm, forward (batch_norm_math.h).
//
//   bn_stats      x -> for each chunk of pixels and each channel: mean, and sum of squares about it
//   bn_finish     chunks -> mean, gain and shift of each channel; saved and STAT outputs
//   bn_apply      y = relu((x - mean) gain + shift + residual), or bn_apply_pool; or another activation of (x - mean) gain
//                 + shift, rounded as if it were written
//   bn_apply_sums or bn_apply_pool_sums: all three, if x comes with its sums
//   bn_leave      only gain and shift, which y's reader applies, and what that reader needs for dy
//   bn_small      all three, if a block can hold a few channels' pixels in its cache
//
// Statistics: a thread sums differences from the first value that it sees. Threads and chunks are combined as (mean,
// sum of squares about the mean) as in Chan, Golub, LeVeque 1979, relative to x's first pixel. Neither a mean far from
// zero nor an outlier costs digits. Chunks are combined in double.
//
// Alternatively x comes with the sums of each channel and of its squares, which the convolution that wrote x made in
// f32; each block then makes the constants of its channels. In this case a mean far from zero does cost digits. The
// variance is off by mean^2 / variance times the error of an f32 sum, which is 1e-7 to 1e-6 if it is made tile by
// tile. At a mean of ten deviations that is a fraction of fp16's rounding; at a hundred it is more. Convolutions of
// normalized activations have means of a few deviations. A variance below zero counts as zero.
//
// Moves 2nE read + nE written, + nE with residual, + n/8 written with bits; with pool 2nE + nE/4 + n/4.
#ifndef DT_BATCH_NORM_KERNELS_H
#define DT_BATCH_NORM_KERNELS_H

#include "backend/cuda/kernels/batch_norm_math.h"

// ---- statistics ------------------------------------------------------------------------------------
typedef struct dt_bn_moments {
    float n, mean[8], m2[8]; // count; mean relative to the pivot; sum of squares about the mean
} dt_bn_moments;

DT_FN void dt_bn_stats_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_moments *m, int T, int V) {
    float pivot[8], first[8], sum[8], sq[8], x[8]; // pivot: x's first pixel, the same for all threads
    const int64_t step = s->step * a->c.cols;
    const int U = V ? T == DT_F32 ? 2 : 4 : 1; // rows in flight: as many as registers hold
    m->n = 0.0f;                               // 0: dt_bn_join skips the thread
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
                const float e = x[k] - first[k]; // small numbers even if the mean is large
                sum[k] += e, sq[k] += e * e;
            }
        }
    }
    const int64_t n = (s->end - s->row + s->step - 1) / s->step;
    m->n = (float)n;
    for (int k = 0; k < 8; k++) {
        const float d = sum[k] / m->n;
        m->mean[k] = (first[k] - pivot[k]) + d; // relative to the pivot, so that threads can be joined
        m->m2[k] = sq[k] - sum[k] * d;          // sum of squares about the mean
    }
}

// count, mean and m2 of a block's threads in shared memory; lane 0 ends up with those of the block's channels.
#define DT_BN_MOMENTS(THREADS, args)                                                                                   \
    DT_SHARED(float, count, THREADS);                                                                                  \
    DT_SHARED(float, mean, 8 * THREADS);                                                                               \
    DT_SHARED(float, m2, 8 * THREADS);                                                                                 \
    DT_THREADS(t) {                                                                                                    \
        const dt_cols_share s = dt_cols_of(&(args)->c, DT_BLOCK, DT_BLOCK_DIM, t);                                     \
        dt_bn_moments m;                                                                                               \
        DT_TYPED_ROWS(T, V, (args)->type, (args)->c.whole, dt_bn_stats_thread(args, &s, &m, T, V));                    \
        count[t] = m.n;                                                                                                \
        for (int k = 0; k < 8; k++) mean[k * THREADS + t] = m.mean[k], m2[k * THREADS + t] = m.m2[k];                  \
    }                                                                                                                  \
    DT_TREE(t, half, THREADS >> (args)->c.tx_log2, 1 << (args)->c.tx_log2,                                             \
            dt_bn_join(count, mean, m2, t, t + (half << (args)->c.tx_log2), THREADS))

// Chan, Golub, LeVeque: pairs of (count, mean, m2)
DT_FN void dt_bn_join(float *count, float *mean, float *m2, int t, int o, int threads) {
    const float na = count[t], nb = count[o];
    if (!(nb > 0.0f)) return; // an empty partner; the tree meets it at the end of the rows only
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
        // one lane per group of eight channels writes
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

// Turns a channel's mean and variance into mean, gain and shift. `writes`: stores the kernel's outputs too.
DT_FN void dt_bn_finish_column(const dt_bn_finish_args *a, int64_t col, double mean, double var, int writes,
                               float k[3]) {
    const double n = (double)a->count;
    if (var < 0) var = 0; // rounding
    // The backward pass recomputes the gain from the saved f32.
    const float invstd = (float)(1 / sqrt(var + (double)a->eps));
    k[0] = (float)mean;
    k[1] = a->scale[col] * invstd; // f32 product: the backward pass repeats it
    // the shift takes up the mean's rounding error
    k[2] = (float)((double)a->shift[col] - (mean - (double)k[0]) * (double)k[1]);
    if (!writes) return;
    if (a->out1) dt_store_sum(a->out1, col, a->add1, mean);
    // unbiased, as PyTorch's running variance
    if (a->out2) dt_store_sum(a->out2, col, a->add2, n > 1 ? var * n / (n - 1) : var);
    if (a->saved_mean) a->saved_mean[col] = k[0];
    if (a->saved_invstd) a->saved_invstd[col] = invstd;
    if (a->saved_shift) a->saved_shift[col] = k[2];
}

// A block of 32 x 32 threads takes 32 channels.
DT_KERNEL_BOUND(bn_finish, dt_bn_finish_args, 1024, 1) {
    DT_SHARED(double, sum, 1024);
    DT_SHARED(double, sq, 1024);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t % 32;
        double s = 0, q = 0;
        if (a->training && !a->joined && col < a->c.cols) {
            DT_UNROLL(4)
            for (int64_t i = t / 32; i < a->c.n_chunks; i += 32) {
                // thread t adds every 32nd chunk of channel t % 32
                const float *p = a->partial + i * 2 * a->c.padded + col;
                const int64_t left = a->c.rows - i * a->c.chunk_rows;
                const double n = (double)(left < a->c.chunk_rows ? left : a->c.chunk_rows);
                const double m = p[0];                       // relative to the pivot
                s += n * m, q += n * m * m + p[a->c.padded]; // n m^2 + m2: sum of squares about the pivot
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
                const double n = (double)a->count;
                // sums are about x's first pixel here, about zero between ranks
                const double first = a->joined ? 0 : (double)dt_get(a->x, a->type, col);
                if (a->shared && !a->joined) {
                    a->shared[col] = sum[t] + n * first;
                    a->shared[a->c.cols + col] = sq[t] + first * (2 * sum[t] + n * first);
                } else {
                    const double d = (a->joined ? a->shared[col] : sum[t]) / n;
                    const double q = a->joined ? a->shared[a->c.cols + col] : sq[t];
                    dt_bn_finish_column(a, col, a->training ? first + d : (double)a->mean_in[col],
                                        a->training ? q / n - d * d : (double)a->var_in[col], 1, k);
                }
            }
            // zeros in the padding: vector loads read it
            for (int i = 0; i < 3; i++) a->consts[i * a->c.padded + col] = k[i];
        }
    }
}

// ---- forward ---------------------------------------------------------------------------------------
DT_FN void dt_bn_apply_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at, int T, int V, int R) {
    float mean[8], gain[8], shift[8], x[8], d[8];
    if (s->row >= s->end) return;
    dt_col8(at.p, 0, mean);
    dt_col8(at.p + at.step, 0, gain);
    dt_col8(at.p + 2 * at.step, 0, shift);
    const int64_t step = s->step * a->c.cols;
    const int U = V && !(R && T == DT_F32) ? 2 : 1; // rows in flight: as many as registers hold
    // consts: three arrays, at.step floats apart
    for (int64_t r = s->row; r < s->end; r += U * s->step) {
        const int64_t i = r * a->c.cols + s->col;
        const int n = U > 1 && r + s->step < s->end ? 2 : 1;
        unsigned bits[2] = {0, 0};
        dt_raw8 raw[2], res[2];
        for (int u = 0; u < U; u++) {
            const int64_t from = u < n ? i + u * step : i; // past the end: fetches row i again, unused
            raw[u] = dt_fetch8_row(a->x, T, V, from, s->left);
            res[u] = R ? dt_fetch8_row(a->residual, T, V, from, s->left) : raw[u];
        }
        for (int u = 0; u < U; u++) {
            if (u >= n) continue; // the loop is unrolled: no break
            dt_unpack8_row(T, V, &raw[u], x);
            dt_unpack8_row(T, V, &res[u], d);
            for (int k = 0; k < 8; k++) {
                x[k] = dt_bn_normal(x[k], mean[k], gain[k], shift[k]);
                if (R) x[k] += d[k];
                if (R) bits[u] |= (unsigned)(x[k] > 0.0f) << k; // before ReLU
                if (a->relu) x[k] = x[k] < 0.0f ? 0.0f : x[k];  // NaN passes
            }
            dt_put8_row(a->out, T, V, i + u * step, s->left, x);
            // eight channels: one byte
            if (R && a->bits) a->bits[dt_bn_bits_at(a, s, r + u * s->step)] = (uint8_t)bits[u];
        }
    }
}
// With an activation: one copy for all types. The next two rows are under way while one is computed.
DT_FN void dt_bn_activate_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at) {
    const int T = a->type, V = a->c.whole;
    float mean[8], gain[8], shift[8], x[8];
    if (s->row >= s->end) return;
    dt_col8(at.p, 0, mean);
    dt_col8(at.p + at.step, 0, gain);
    dt_col8(at.p + 2 * at.step, 0, shift);
    const int64_t step = s->step * a->c.cols;
    int64_t i = s->row * a->c.cols + s->col;
    dt_raw8 next = dt_fetch8_row(a->x, T, V, i, s->left), last = next; // last: the row after next
    if (s->row + s->step < s->end) last = dt_fetch8_row(a->x, T, V, i + step, s->left);
    for (int64_t r = s->row; r < s->end; r += s->step, i += step) {
        dt_unpack8_row(T, V, &next, x);
        next = last;
        if (r + 2 * s->step < s->end) last = dt_fetch8_row(a->x, T, V, i + 2 * step, s->left);
        for (int k = 0; k < 8; k++) x[k] = dt_bn_normal(x[k], mean[k], gain[k], shift[k]);
        dt_round8(T, x); // as if batch norm had written it
        dt_activate8(a->act, a->alpha, T, 0, x, x);
        dt_put8_row(a->out, T, V, i, s->left, x);
    }
}
DT_FN void dt_bn_apply_any(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at) {
    // a residual is a constant of the instance; activations share one
    if (a->act)
        dt_bn_activate_thread(a, s, at);
    else if (a->residual)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_apply_thread(a, s, at, T, V, 1));
    else
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_apply_thread(a, s, at, T, V, 0));
}
DT_KERNEL_BOUND(bn_apply, dt_bn_args, 256, 3) {
    DT_THREADS(t) {
        // last blocks first: bn_stats left their rows in the cache
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        dt_bn_apply_any(a, &s, dt_bn_place_of(a, s.col));
    }
}

DT_FN void dt_bn_pool_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at, int T, int V) {
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
                const int more = p == 0 || v > best[k]; // NaN is never greater; the first pixel wins a tie
                best[k] = more ? v : best[k];
                index[k] = more ? p : index[k];
            }
        }
        for (int k = 0; k < 8; k++)                              // with its ReLU
            if (best[k] <= 0.0f) best[k] = 0.0f, index[k] = 255; // index 255: no gradient
        const int64_t o = w * a->c.cols + s->col;
        dt_put8_row(a->out, T, V, o, s->left, best);
        if (a->argmax) dt_put8_bytes(a->argmax + o, V, s->left, index);
    }
}
DT_KERNEL_BOUND(bn_apply_pool, dt_bn_args, 256, 2) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_pool_thread(a, &s, dt_bn_place_of(a, s.col), T, V));
    }
}

// ---- forward, with fewer kernels -------------------------------------------------------------------
DT_FN void dt_bn_sums_column(const dt_bn_finish_args *a, int64_t cols, int64_t col, int writes, float k[3]) {
    const double n = (double)a->count, mean = a->sums[col] / n; // E[x^2] - E[x]^2, in double
    dt_bn_finish_column(a, col, mean, a->sums[cols + col] / n - mean * mean, writes, k);
}

// Makes the constants of the block's channels from x's sums. The blocks of the first chunk write the outputs.
#define DT_BN_CONSTS_OF_SUMS()                                                                                         \
    DT_SHARED(float, consts, 3 * DT_BN_TILE);                                                                          \
    DT_THREADS(t) {                                                                                                    \
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);                      \
        const int64_t col = dt_bn_channel(&s, t);                                                                      \
        if (t < 8 * s.tx) {                                                                                            \
            float k[3] = {0.0f, 0.0f, 0.0f};                                                                           \
            if (col < a->apply.c.cols) {                                                                               \
                dt_bn_sums_column(&a->finish, a->apply.c.cols, col, s.chunk == 0, k);                                  \
            }                                                                                                          \
            dt_bn_keep(consts, t, k, 3);                                                                               \
        }                                                                                                              \
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

// Computes the shift for the rounded gain, so that x's mean is mapped correctly. y is then off by 2^-11 |x - mean|
// gain, 2^-11 |shift| and y's own rounding. If a channel's mean is 32752 or more deviations from zero, fp16 cannot
// hold its shift, nor an fp16 x its deviations: its gain is 0.
DT_FN void dt_bn_leave_column(const dt_bn_leave_args *a, int64_t col, const float k[3]) {
    dt_put(a->gain, a->finish.type, col, k[1]);
    // for the rounded gain
    const float shift = (float)((double)k[2] - (double)k[0] * (double)dt_get(a->gain, a->finish.type, col));
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
                const int i = t % 8 * DT_BN_SMALL_THREADS + t / 8; // lane t / 8, element t % 8
                const double d = mean[i];                          // relative to x's first pixel
                dt_bn_finish_column(&a->finish, col, (double)dt_get(a->sums.x, a->sums.type, col) + d,
                                    (double)m2[i] / (double)a->finish.count, 1, k);
            }
            dt_bn_keep(consts, t, k, 3);
        }
    }
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_BLOCK, DT_BLOCK_DIM, t);
        const dt_bn_place at = dt_bn_place_here(consts, &s, t);
        if (a->pool)
            DT_TYPED_ROWS(T, V, a->apply.type, a->apply.c.whole, dt_bn_pool_thread(&a->apply, &s, at, T, V));
        else
            dt_bn_apply_any(&a->apply, &s, at);
    }
}

#endif
