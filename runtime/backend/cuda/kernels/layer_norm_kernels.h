// layer_norm_kernels.h: layer norm over rows of n elements, statistics in f32 and in two passes: the mean, then
// squares about it. A group of threads shares a row. What it reads again comes from the L1 cache.
//
//   ln_fwd         y, mean, 1/std; with a residual also x + residual, which is then normalized
//   ln_bwd         dx = 1/std (g - mean(g) - xhat mean(g xhat)), g = dy scale; and each block's sums of dy xhat and dy
//                  over its rows, kept in registers. With a residual, which is another gradient, dx + residual
//   ln_bwd_finish  sums over blocks, in a fixed order: dscale, dshift
//
// Sums are of values rounded to the type, as if separate kernels made them.
//
// Moves, n elements of E bytes: forward 2nE, backward 3nE, with a residual 4nE each (separately 5nE and 6nE), plus 8
// bytes per row and 16 per column and block.
#ifndef DT_LAYER_NORM_KERNELS_H
#define DT_LAYER_NORM_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

enum { DT_LN_GROUPS = 4 }; // groups of 8 columns that a thread may hold sums for

typedef struct dt_layer_norm_args {
    dt_rows r;
    const void *x, *dy, *residual; // residual: or NULL
    const float *scale, *shift, *mean_in, *invstd_in;
    void *out; // y, dx (may be NULL)
    void *sum; // forward: x + residual
    float *mean, *invstd;
    float *partial; // backward: (blocks, 2, n)
    float *dscale, *dshift;
    int64_t n_blocks; // of ln_bwd
    int type, add_scale, add_shift;
    float eps;
} dt_layer_norm_args;

// What is normalized. A thread only reads what it has written itself.
DT_FN const void *dt_ln_input(const dt_layer_norm_args *a) {
    return a->residual ? a->sum : a->x;
}

// Writes x + residual and returns the sum over it.
DT_FN float dt_ln_add_thread(const dt_layer_norm_args *a, const dt_rows_share *s, int T, int V) {
    float sum = 0.0f, x[8], d[8];
    if (s->row < 0) return 0.0f;
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        const int64_t at = s->row * a->r.n + i, left = a->r.n - i;
        dt_get8_row(a->x, T, V, at, left, x);
        dt_get8_row(a->residual, T, V, at, left, d);
        for (int k = 0; k < 8; k++) sum += x[k] = dt_rounded(T, x[k] + d[k]); // zero behind the row
        dt_put8_row(a->sum, T, V, at, left, x);
    }
    return sum;
}
DT_FN float dt_ln_sum_thread(const dt_layer_norm_args *a, const dt_rows_share *s, float mean,
                             int squares, int T, int V) {
    float sum = 0.0f, x[8];
    if (s->row < 0) return 0.0f;
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(dt_ln_input(a), T, V, s->row * a->r.n + i, a->r.n - i, x);
        for (int k = 0; k < 8; k++) {
            const float d = x[k] - mean;
            if (V || i + k < a->r.n) sum += squares ? d * d : d;
        }
    }
    return sum;
}
DT_FN void dt_ln_write_thread(const dt_layer_norm_args *a, const dt_rows_share *s, float mean,
                              float invstd, int T, int V) {
    float x[8], scale[8], shift[8];
    if (s->row < 0) return;
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        const int64_t left = a->r.n - i;
        dt_get8_row(dt_ln_input(a), T, V, s->row * a->r.n + i, left, x);
        dt_param8(a->scale, i, left, scale);
        dt_param8(a->shift, i, left, shift);
        for (int k = 0; k < 8; k++) x[k] = (x[k] - mean) * invstd * scale[k] + shift[k];
        dt_put8_row(a->out, T, V, s->row * a->r.n + i, left, x);
    }
}

DT_KERNEL_BOUND(ln_fwd, dt_layer_norm_args, 1024, 1) {
    DT_SHARED(float, sum, 1024);
    DT_SHARED(float, square, 1024);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        if (a->residual)
            DT_TYPED_ROWS(T, V, a->type, a->r.whole, sum[t] = dt_ln_add_thread(a, &s, T, V));
        else
            DT_TYPED_ROWS(T, V, a->type, a->r.whole,
                          sum[t] = dt_ln_sum_thread(a, &s, 0.0f, 0, T, V));
    }
    DT_TREE(t, half, a->r.group, 1, sum[t] += sum[t + half]);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        const float mean = sum[t - s.lane] / (float)a->r.n;
        DT_TYPED_ROWS(T, V, a->type, a->r.whole,
                      square[t] = dt_ln_sum_thread(a, &s, mean, 1, T, V));
    }
    DT_TREE(t, half, a->r.group, 1, square[t] += square[t + half]);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        const float mean = sum[t - s.lane] / (float)a->r.n;
        const float invstd = 1.0f / sqrtf(square[t - s.lane] / (float)a->r.n + a->eps);
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, dt_ln_write_thread(a, &s, mean, invstd, T, V));
        if (s.lane == 0 && s.row >= 0) {
            if (a->mean) a->mean[s.row] = mean;
            if (a->invstd) a->invstd[s.row] = invstd;
        }
    }
}

// Sums of g and g xhat over a thread's part of its row.
DT_FN void dt_ln_bwd_sums(const dt_layer_norm_args *a, const dt_rows_share *s, float *sum_g,
                          float *sum_gx, int T, int V) {
    float x[8], d[8], scale[8];
    *sum_g = *sum_gx = 0.0f;
    if (s->row < 0) return;
    const float mean = a->mean_in[s->row], invstd = a->invstd_in[s->row];
    for (int64_t i = s->lane * 8; i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->r.n + i, a->r.n - i, x);
        dt_get8_row(a->dy, T, V, s->row * a->r.n + i, a->r.n - i, d);
        dt_param8(a->scale, i, a->r.n - i, scale);
        for (int k = 0; k < 8; k++) {
            if (!V && i + k >= a->r.n) break; // there (0 - mean) invstd may be infinite
            const float g = d[k] * scale[k];
            *sum_g += g;
            *sum_gx += g * ((x[k] - mean) * invstd);
        }
    }
}
DT_FN void dt_ln_bwd_write(const dt_layer_norm_args *a, const dt_rows_share *s, float mean_g,
                           float mean_gx, float *own, int T, int V) {
    float x[8], d[8], scale[8];
    if (s->row < 0) return;
    const float mean = a->mean_in[s->row], invstd = a->invstd_in[s->row];
    // unrolled: `own` stays in registers only if its indices are constants
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int p = 0; p < DT_LN_GROUPS; p++) {
        const int64_t i = ((int64_t)p * a->r.group + s->lane) * 8, left = a->r.n - i;
        if (left <= 0) continue;
        dt_get8_row(a->x, T, V, s->row * a->r.n + i, left, x);
        dt_get8_row(a->dy, T, V, s->row * a->r.n + i, left, d);
        dt_param8(a->scale, i, left, scale);
        for (int k = 0; k < 8; k++) {
            const float hat = (x[k] - mean) * invstd;
            own[p * 16 + k] += d[k] * hat;
            own[p * 16 + 8 + k] += d[k];
            x[k] = invstd * (d[k] * scale[k] - mean_g - hat * mean_gx);
        }
        if (a->residual) {
            dt_get8_row(a->residual, T, V, s->row * a->r.n + i, left, d);
            for (int k = 0; k < 8; k++) x[k] = dt_rounded(T, x[k]) + d[k];
        }
        if (a->out) dt_put8_row(a->out, T, V, s->row * a->r.n + i, left, x);
    }
}

// Threads per block: at least 256 and a group. A block takes every n_blocks-th set of rows.
DT_KERNEL_BOUND(ln_bwd, dt_layer_norm_args, 512, 1) {
    DT_SHARED(float, sum_g, 1024);
    DT_SHARED(float, sum_gx, 1024);
    DT_SHARED(float, total, 8 * 1024);
    DT_PRIVATE(float, own, DT_LN_GROUPS * 16);
    const int64_t bunch = DT_BLOCK_DIM / a->r.group;
    DT_THREADS(t) {
        for (int k = 0; k < DT_LN_GROUPS * 16; k++) DT_MINE(own, t)[k] = 0.0f;
    }
    for (int64_t b = DT_BLOCK; b * bunch < a->r.rows; b += DT_GRID) {
        DT_THREADS(t) {
            const dt_rows_share s = dt_rows_of(&a->r, b, DT_BLOCK_DIM, t);
            DT_TYPED_ROWS(T, V, a->type, a->r.whole,
                          dt_ln_bwd_sums(a, &s, &sum_g[t], &sum_gx[t], T, V));
        }
        DT_TREE(t, half, a->r.group, 1, sum_g[t] += sum_g[t + half]; sum_gx[t] += sum_gx[t + half]);
        DT_THREADS(t) {
            const dt_rows_share s = dt_rows_of(&a->r, b, DT_BLOCK_DIM, t);
            const float mean_g = sum_g[t - s.lane] / (float)a->r.n;
            const float mean_gx = sum_gx[t - s.lane] / (float)a->r.n;
            DT_TYPED_ROWS(T, V, a->type, a->r.whole,
                          dt_ln_bwd_write(a, &s, mean_g, mean_gx, DT_MINE(own, t), T, V));
        }
    }
    // sum over the groups of the block, eight columns of one sum at a time
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int p = 0; p < DT_LN_GROUPS * 2; p++) {
        DT_THREADS(t) {
            for (int k = 0; k < 8; k++) total[k * 1024 + t] = DT_MINE(own, t)[p * 8 + k];
        }
        DT_TREE(t, half, DT_BLOCK_DIM / a->r.group, a->r.group,
                for (int k = 0; k < 8; k++) total[k * 1024 + t] +=
                total[k * 1024 + t + half * a->r.group]);
        DT_THREADS(t) {
            const int64_t i = ((int64_t)(p / 2) * a->r.group + t) * 8;
            for (int k = 0; k < 8; k++)
                if (t < a->r.group && i + k < a->r.n)
                    a->partial[(DT_BLOCK * 2 + p % 2) * a->r.n + i + k] = total[k * 1024 + t];
        }
    }
}

// A block of 32 x 32 threads takes 32 of the 2n sums.
DT_KERNEL_BOUND(ln_bwd_finish, dt_layer_norm_args, 1024, 1) {
    DT_SHARED(float, sum, 1024);
    DT_THREADS(t) {
        const int64_t i = DT_BLOCK * 32 + t % 32;
        float s = 0.0f;
        if (i < 2 * a->r.n)
            for (int64_t b = t / 32; b < a->n_blocks; b += 32) s += a->partial[b * 2 * a->r.n + i];
        sum[t] = s;
    }
    DT_TREE(t, half, 32, 32, sum[t] += sum[t + half * 32]);
    DT_THREADS(t) {
        const int64_t i = DT_BLOCK * 32 + t;
        if (t < 32 && i < a->r.n && a->dscale)
            dt_store_sum(a->dscale, i, a->add_scale, (double)sum[t]);
        if (t < 32 && i >= a->r.n && i < 2 * a->r.n && a->dshift)
            dt_store_sum(a->dshift, i - a->r.n, a->add_shift, (double)sum[t]);
    }
}

#endif
