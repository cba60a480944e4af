// batch_norm_backward_kernels.h: batch norm, backward (batch_norm_math.h).
//
//   bn_bwd_sums   sum(g), sum(g (x - mean)) for each chunk, or _pool; writes dresidual = g
//   bn_bwd_finish dscale, dshift; the constants of the second pass
//   bn_bwd_apply  dx = gain g - k1 - k2 (x - mean), or _pool
//   bn_bwd_small  all three
//
// g is dy masked by the ReLU. Without a residual the mask is recomputed from x, mean, gain and shift with the forward
// pass's instructions, which saves a read. With a residual the forward pass stores one bit for each element. The first
// pass reads the bits, and the second pass reads the g that the first wrote as dresidual. A pixel's bits begin at a
// byte: (pixels, ceil(C/8)) bytes, where channel c is bit c % 8 of byte c / 8, so that a thread's eight channels are
// one byte. With a pool, g goes where argmax says.
//
// With another activation g is dy times its slope at z, both rounded as if two kernels did it. Both passes make z again
// from x, with the shift that the forward pass saved.
//
// dy may come as two gradients (a residual's join, passes/fuse.c), which the first pass adds.
//
// Moves 4nE + nE; with residual and ReLU 4nE + n/8 + 2nE, + nE with two gradients; with pool (2n + n/2) E + n/2 read + nE written.
#ifndef DT_BATCH_NORM_BACKWARD_KERNELS_H
#define DT_BATCH_NORM_BACKWARD_KERNELS_H

#include "backend/cuda/kernels/batch_norm_math.h"

// ---- backward, first pass --------------------------------------------------------------------------
typedef struct dt_bn_sums {
    float g[8], gx[8];
} dt_bn_sums;

// Both backward passes read rows of x, dy and the mask's bits. Up to four rows are fetched before the first is used.
typedef struct dt_bn_rows {
    dt_raw8 x[4], g[4], other[4];
    unsigned bits[4];
} dt_bn_rows;
// Fetches U rows of a thread from row r on. J: dy is the sum of two gradients.
DT_FN void dt_bn_fetch(const dt_bn_args *a, const dt_cols_share *s, dt_bn_rows *rows, int T, int V, int M, int J, int U,
                       int64_t r) {
    for (int u = 0; u < U; u++) {
        const int64_t row = r + s->step * u, at = row * a->c.cols + s->col;
        if (row >= s->end) continue; // nothing to fetch beyond the thread's rows
        rows->x[u] = dt_fetch8_row(a->x, T, V, at, s->left);
        rows->g[u] = dt_fetch8_row(a->dy, T, V, at, s->left);
        if (J) rows->other[u] = dt_fetch8_row(a->other, T, V, at, s->left);
        rows->bits[u] = M == DT_BN_BITS ? a->bits_in[dt_bn_bits_at(a, s, row)] : 0; // a byte: eight channels
    }
}
// Unpacks x and the masked gradient of row u.
DT_FN void dt_bn_read(const dt_bn_rows *rows, int u, int T, int V, int M, int J, const float mean[8],
                      const float gain[8], const float shift[8], float x[8], float g[8]) {
    float other[8];
    dt_unpack8_row(T, V, &rows->x[u], x);
    dt_unpack8_row(T, V, &rows->g[u], g);
    if (J) dt_unpack8_row(T, V, &rows->other[u], other);
    for (int k = 0; k < 8; k++) {
        if (J) g[k] = dt_rounded(T, g[k] + other[k]); // as if a kernel had written the sum
        // a NaN takes no gradient
        if (M == DT_BN_OF_X && !(dt_bn_normal(x[k], mean[k], gain[k], shift[k]) > 0.0f)) g[k] = 0.0f;
        if (M == DT_BN_BITS && !(rows->bits[u] >> k & 1)) g[k] = 0.0f;
    }
}

DT_FN void dt_bn_sums_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums, int T, int V, int M,
                             int J) {
    float mean[8], gain[8], shift[8], x[8], g[8];
    for (int k = 0; k < 8; k++) sums->g[k] = sums->gx[k] = 0.0f; // set before any return: the block's tree adds them
    if (s->row >= s->end) return;
    dt_param8(a->mean, s->col, s->left, mean); // saved in f32
    if (M == DT_BN_OF_X) {
        dt_param8(a->scale, s->col, s->left, gain);
        dt_param8(a->invstd, s->col, s->left, x); // x as scratch: 1/std
        dt_param8(a->shift, s->col, s->left, shift);
    }
    for (int k = 0; k < 8; k++) {
        if (M == DT_BN_OF_X)
            gain[k] *= x[k];
        else
            // not read by the other masks
            gain[k] = shift[k] = 0.0f;
    }
    const int64_t step = s->step * a->c.cols;
    const int U = !V ? 1 : T == DT_F32 ? 2 : 4; // rows in flight: as many as registers hold
    for (int64_t r = s->row; r < s->end; r += U * s->step) {
        const int64_t i = r * a->c.cols + s->col;
        dt_bn_rows rows;
        dt_bn_fetch(a, s, &rows, T, V, M, J, U, r);
        for (int u = 0; u < U; u++) {
            if (r + u * s->step >= s->end) continue; // the loop is unrolled: no break
            dt_bn_read(&rows, u, T, V, M, J, mean, gain, shift, x, g);
            for (int k = 0; k < 8; k++) {
                sums->g[k] += g[k];
                sums->gx[k] += g[k] * (x[k] - mean[k]);
            }
            // the second pass reads g from there
            if (a->dresidual) dt_put8_row(a->dresidual, T, V, i + step * u, s->left, g);
        }
    }
}

typedef struct dt_bn_consts {
    float mean[8], gain[8], shift[8], k1[8], k2[8];
} dt_bn_consts;
DT_FN void dt_bn_read_consts(dt_bn_place at, dt_bn_consts *c) {
    // five arrays of channels, at.step floats apart
    dt_col8(at.p, 0, c->mean);
    dt_col8(at.p + at.step, 0, c->gain);
    dt_col8(at.p + 2 * at.step, 0, c->shift);
    dt_col8(at.p + 3 * at.step, 0, c->k1);
    dt_col8(at.p + 4 * at.step, 0, c->k2);
}
DT_FN float dt_bn_slope(const dt_bn_consts *c, int k, float g, float x) {
    // k1: gain mean(g); k2: gain / var mean(g (x - mean))
    return c->gain[k] * g - c->k1[k] - c->k2[k] * (x - c->mean[k]);
}

// With an activation, for both passes: sums of g, or, without `sums`, dx. One copy for all types. In the first pass the
// next two rows are under way while one is computed. The second has more threads and fewer registers: it reads k1 and
// k2 at each row.
DT_FN void dt_bn_slope_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at, dt_bn_consts *c,
                              dt_bn_sums *sums) {
    const int T = a->type, V = a->c.whole;
    float x[8], z[8], g[8];
    if (s->row >= s->end) return;
    dt_bn_rows next, last;
    if (sums) dt_bn_fetch(a, s, &next, T, V, DT_BN_NONE, 0, 2, s->row); // two rows under way
    for (int64_t r = s->row; r < s->end; r += s->step) {
        if (!sums) dt_bn_fetch(a, s, &next, T, V, DT_BN_NONE, 0, 1, r);
        dt_unpack8_row(T, V, &next.x[0], x);
        dt_unpack8_row(T, V, &next.g[0], g);
        if (sums) {
            next.x[0] = next.x[1], next.g[0] = next.g[1];
            dt_bn_fetch(a, s, &last, T, V, DT_BN_NONE, 0, 1, r + 2 * s->step); // a row behind the end is not fetched
            next.x[1] = last.x[0], next.g[1] = last.g[0];
        }
        for (int k = 0; k < 8; k++) z[k] = dt_bn_normal(x[k], c->mean[k], c->gain[k], c->shift[k]);
        dt_round8(T, z); // the activation's input as the forward pass stored it
        dt_activate8(a->act, a->alpha, T, 1, z, g);
        for (int k = 0; k < 8 && sums; k++) {
            sums->g[k] += g[k];
            sums->gx[k] += g[k] * (x[k] - c->mean[k]);
        }
        if (sums) continue; // the first pass writes nothing
        dt_col8(at.p + 3 * at.step, 0, c->k1);
        dt_col8(at.p + 4 * at.step, 0, c->k2);
        for (int k = 0; k < 8; k++) x[k] = dt_bn_slope(c, k, g[k], x[k]);
        dt_put8_row(a->out, T, V, r * a->c.cols + s->col, s->left, x);
    }
}
// The first pass.
DT_FN void dt_bn_slope_sums(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums) {
    const dt_bn_place at = {NULL, 0}; // the first pass reads no k1 and k2
    dt_bn_consts c;
    for (int k = 0; k < 8; k++) sums->g[k] = sums->gx[k] = 0.0f;
    dt_param8(a->mean, s->col, s->left, c.mean);
    dt_param8(a->scale, s->col, s->left, c.gain);
    dt_param8(a->shift, s->col, s->left, c.shift);
    dt_param8(a->invstd, s->col, s->left, c.k1); // k1 as scratch for 1/std
    for (int k = 0; k < 8; k++) c.gain[k] *= c.k1[k];
    dt_bn_slope_thread(a, s, at, &c, sums);
}

DT_FN void dt_bn_sums_pool_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums, int T, int V) {
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
        // no pixel chosen: own - mean is 0
        for (int k = 0; k < 8; k++) own[k] = mean[k];
        for (int p = 0; p < 4; p++) {
            dt_unpack8_row(T, V, &raw[p], x);
            for (int k = 0; k < 8; k++) own[k] = index[k] == p ? x[k] : own[k]; // x where the maximum was
        }
        for (int k = 0; k < 8; k++) {
            g[k] = index[k] == 255 ? 0.0f : g[k]; // 255: ReLU cut the maximum off
            sums->g[k] += g[k];
            sums->gx[k] += g[k] * (own[k] - mean[k]);
        }
    }
}

// The sums of a block's threads in shared memory; lane 0 ends up with those of the block's channels.
#define DT_BN_TOTALS(THREADS, args, ...)                                                                               \
    DT_SHARED(float, total, 16 * THREADS);                                                                             \
    DT_THREADS(t) {                                                                                                    \
        const dt_cols_share s = dt_cols_of(&(args)->c, DT_BLOCK, DT_BLOCK_DIM, t);                                     \
        dt_bn_sums sums;                                                                                               \
        __VA_ARGS__;                                                                                                   \
        for (int k = 0; k < 8; k++) {                                                                                  \
            total[k * THREADS + t] = sums.g[k];                                                                        \
            total[(8 + k) * THREADS + t] = sums.gx[k];                                                                 \
        }                                                                                                              \
    }                                                                                                                  \
    DT_TREE(t, half, THREADS >> (args)->c.tx_log2, 1 << (args)->c.tx_log2,                                             \
            for (int k = 0; k < 16; k++) total[k * THREADS + t] +=                                                     \
            total[k * THREADS + t + (half << (args)->c.tx_log2)])

// Writes the block's sums to the `partial` of its chunk.
#define DT_BN_SUM_BLOCK(THREAD)                                                                                        \
    DT_BN_TOTALS(DT_BN_THREADS, a, THREAD);                                                                            \
    DT_THREADS(t) {                                                                                                    \
        const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);                                          \
        if (s.lane == 0 && s.left > 0) {                                                                               \
            float *to = a->partial + s.chunk * 2 * a->c.padded + s.col;                                                \
            for (int k = 0; k < 8; k++) {                                                                              \
                to[k] = total[k * DT_BN_THREADS + t];                                                                  \
                to[a->c.padded + k] = total[(8 + k) * DT_BN_THREADS + t];                                              \
            }                                                                                                          \
        }                                                                                                              \
    }

DT_FN void dt_bn_sums_any(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums) {
    if (a->mask == DT_BN_SLOPE)
        dt_bn_slope_sums(a, s, sums);
    else if (a->mask == DT_BN_NONE)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_thread(a, s, sums, T, V, DT_BN_NONE, 0));
    else if (a->mask == DT_BN_OF_X)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_thread(a, s, sums, T, V, DT_BN_OF_X, 0));
    else if (!a->other)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_thread(a, s, sums, T, V, DT_BN_BITS, 0));
    else
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_thread(a, s, sums, T, V, DT_BN_BITS, 1));
}
DT_KERNEL_BOUND(bn_bwd_sums, dt_bn_args, 256, 2) {
    DT_BN_SUM_BLOCK(dt_bn_sums_any(a, &s, &sums));
}
DT_KERNEL_BOUND(bn_bwd_sums_pool, dt_bn_args, 256, 2) {
    DT_BN_SUM_BLOCK(DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_pool_thread(a, &s, &sums, T, V)));
}

// Turns a channel's sums of g and g (x - mean) into mean, gain, shift, k1 and k2. `writes`: stores dscale, dshift too.
DT_FN void dt_bn_bwd_finish_column(const dt_bn_finish_args *a, int64_t col, double g, double gx, int writes,
                                   float k[5]) {
    const double invstd = a->var_in[col], gain = (double)a->scale[col] * invstd; // var_in: the saved 1/std
    const double n = (double)a->count;
    k[0] = a->mean_in[col];
    k[1] = a->scale[col] * a->var_in[col]; // the f32 product, as the forward pass rounds it
    k[2] = a->shift ? a->shift[col] : 0.0f;
    k[3] = a->training ? (float)(gain * g / n) : 0.0f; // running statistics do not follow x
    k[4] = a->training ? (float)(gain * invstd * invstd * gx / n) : 0.0f;
    if (writes && a->out1) dt_store_sum(a->out1, col, a->add1, gx * invstd); // sum of g (x - mean) / std
    if (writes && a->out2) dt_store_sum(a->out2, col, a->add2, g);
}

// mean_in, var_in: saved mean and 1/std. A block of 32 x 32 threads takes 32 channels.
DT_KERNEL_BOUND(bn_bwd_finish, dt_bn_finish_args, 1024, 1) {
    DT_SHARED(double, g, 1024);
    DT_SHARED(double, gx, 1024);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t % 32;
        // thread t adds every 32nd chunk of column t % 32
        double s = 0, q = 0;
        if (!a->joined && col < a->c.cols) {
            DT_UNROLL(4)
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
            // two launches between ranks: sums out, sums of all ranks in
            double *shared = col < a->c.cols ? a->shared : NULL;
            if (shared && a->joined) g[t] = shared[col], gx[t] = shared[a->c.cols + col];
            if (shared && !a->joined) shared[col] = g[t], shared[a->c.cols + col] = gx[t];
            if (col < a->c.cols) dt_bn_bwd_finish_column(a, col, g[t], gx[t], !a->joined, k);
            // zeros in the padding: vector loads read it
            for (int i = 0; i < 5; i++) a->consts[i * a->c.padded + col] = k[i];
        }
    }
}

// ---- backward, second pass -------------------------------------------------------------------------
DT_FN void dt_bn_bwd_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at, int T, int V, int M) {
    dt_bn_consts c;
    float x[8], g[8];
    if (s->row >= s->end) return;
    dt_bn_read_consts(at, &c);
    const int64_t step = s->step * a->c.cols;
    const int U = V && T != DT_F32 ? 2 : 1; // rows in flight
    for (int64_t r = s->row; r < s->end; r += U * s->step) {
        const int64_t i = r * a->c.cols + s->col;
        dt_bn_rows rows;
        dt_bn_fetch(a, s, &rows, T, V, M, 0, U, r);
        for (int u = 0; u < U; u++) {
            if (r + u * s->step >= s->end) continue; // the loop is unrolled: no break
            dt_bn_read(&rows, u, T, V, M, 0, c.mean, c.gain, c.shift, x, g);
            for (int k = 0; k < 8; k++) x[k] = dt_bn_slope(&c, k, g[k], x[k]);
            dt_put8_row(a->out, T, V, i + step * u, s->left, x);
        }
    }
}
DT_FN void dt_bn_bwd_any(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place at) {
    if (a->mask == DT_BN_SLOPE) {
        dt_bn_consts c;
        dt_bn_read_consts(at, &c);
        dt_bn_slope_thread(a, s, at, &c, NULL);
    } else if (a->mask == DT_BN_NONE)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_bwd_thread(a, s, at, T, V, DT_BN_NONE));
    else if (a->mask == DT_BN_OF_X)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_bwd_thread(a, s, at, T, V, DT_BN_OF_X));
    else
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_bwd_thread(a, s, at, T, V, DT_BN_BITS));
}
DT_KERNEL_BOUND(bn_bwd_apply, dt_bn_args, 256, 3) {
    DT_THREADS(t) {
        // last blocks first: the first pass left their rows in the cache
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t);
        dt_bn_bwd_any(a, &s, dt_bn_place_of(a, s.col));
    }
}

// Windows cover the whole image here. Those of an odd last row or column have no pooled value, and g = 0.
DT_FN void dt_bn_bwd_pool_thread(const dt_bn_args *a, const dt_cols_share *s, dt_bn_place place, int T, int V) {
    dt_bn_consts c;
    float x[8], g[8];
    int index[8];
    if (s->row >= s->end) return;
    dt_bn_read_consts(place, &c);
    const int64_t pixel = a->c.cols, line = a->width * a->c.cols; // distances of neighbours, in elements
    for (int64_t w = s->row; w < s->end; w += s->step) {
        int64_t row, col;
        const int64_t at = dt_bn_window(a, w, &row, &col) + s->col;
        for (int k = 0; k < 8; k++) g[k] = 0.0f, index[k] = 255; // 255 matches no pixel
        if (row / 2 < a->out_h && col / 2 < a->out_w) {
            const int64_t image = dt_div(a->down, dt_div(a->across, w));
            const int64_t o = ((image * a->out_h + row / 2) * a->out_w + col / 2) * a->c.cols + s->col;
            dt_get8_row(a->dy, T, V, o, s->left, g);
            dt_get8_bytes(a->argmax_in + o, V, s->left, index);
        }
        for (int p = 0; p < 4; p++) {
            if (row + p / 2 >= a->height || col + p % 2 >= a->width) continue; // windows at the edge stick out
            const int64_t i = at + p % 2 * pixel + p / 2 * line;
            dt_get8_row(a->x, T, V, i, s->left, x);
            for (int k = 0; k < 8; k++) x[k] = dt_bn_slope(&c, k, index[k] == p ? g[k] : 0.0f, x[k]);
            dt_put8_row(a->out, T, V, i, s->left, x);
        }
    }
}
DT_KERNEL_BOUND(bn_bwd_apply_pool, dt_bn_args, 256, 2) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_GRID - 1 - DT_BLOCK, DT_BLOCK_DIM, t); // see bn_bwd_apply
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_bwd_pool_thread(a, &s, dt_bn_place_of(a, s.col), T, V));
    }
}

DT_FN void dt_bn_sums_either(const dt_bn_args *a, const dt_cols_share *s, dt_bn_sums *sums, int pool) {
    if (pool)
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_bn_sums_pool_thread(a, s, sums, T, V));
    else
        dt_bn_sums_any(a, s, sums);
}

// Like bn_small. In the last pass a thread reads the dresidual that it wrote itself in the first.
DT_KERNEL_BOUND(bn_bwd_small, dt_bn_once_args, 512, 1) {
    DT_SHARED(float, consts, 5 * DT_BN_TILE);
    DT_BN_TOTALS(DT_BN_SMALL_THREADS, &a->sums, dt_bn_sums_either(&a->sums, &s, &sums, a->pool));
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->sums.c, DT_BLOCK, DT_BLOCK_DIM, t);
        const int64_t col = dt_bn_channel(&s, t);
        if (t < 8 * s.tx) {
            float k[5] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            // channel t lies with lane t / 8, as its element t % 8
            const int i = t % 8 * DT_BN_SMALL_THREADS + t / 8;
            if (col < a->sums.c.cols)
                dt_bn_bwd_finish_column(&a->finish, col, total[i], total[8 * DT_BN_SMALL_THREADS + i], 1, k);
            dt_bn_keep(consts, t, k, 5);
        }
    }
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->apply.c, DT_BLOCK, DT_BLOCK_DIM, t);
        const dt_bn_place at = dt_bn_place_here(consts, &s, t);
        if (!a->apply.out) continue; // dx is not wanted
        if (a->pool)
            DT_TYPED_ROWS(T, V, a->apply.type, a->apply.c.whole, dt_bn_bwd_pool_thread(&a->apply, &s, at, T, V));
        else
            dt_bn_bwd_any(&a->apply, &s, at);
    }
}

#endif
