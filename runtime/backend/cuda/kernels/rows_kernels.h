// rows_kernels.h: device kernels over rows.
#ifndef DT_BACKEND_CUDA_KERNELS_ROWS_KERNELS_H
#define DT_BACKEND_CUDA_KERNELS_ROWS_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

// ---- softmax ------------------------------------------------------------------------------------------------------

// Softmax over rows, and its gradient dx = y (dy - sum(y dy)); in place. A group of threads shares
// a row. One pass finds the maximum and the sum of exponentials: the sum is relative to the maximum so far and is
// rescaled when that grows. NaN reaches the whole row.
//
// Attention without cuDNN (sdpa_cuda.c) reads f32 scores and writes probabilities of the activations' type. Its rows
// are padded to multiples of eight elements; what lies behind n is not used, and written as zero.
//
// Moves: forward 2nE (the second read comes from the cache), backward 3nE.

typedef struct dt_softmax_args {
    dt_rows r;          // whole: ld % 8 == 0
    int64_t ld;         // elements from row to row, of all tensors
    const void *x, *dy; // backward: x is y
    void *out;
    int type, dy_type, out_type; // type: of x
    // Forward, may be NULL: log of the sum of exponentials of row i at lse[i / lse_rows * lse_step + i % lse_rows].
    float *lse;
    int64_t lse_rows, lse_step;
} dt_softmax_args;

// The larger value; NaN wins.
DT_FN float dt_max_nan(float a, float b) {
    return b > a || b != b ? b : a; // NaN compares false: tested apart
}
// Joins sum(exp(x - max)) of two parts. A part with nothing, or only -inf, has max -inf and sum 0.
DT_FN void dt_join_exp(float *max, float *sum, float max_b, float sum_b) {
    if (max_b == -INFINITY) return; // nothing to join
    if (*max == -INFINITY) {
        *max = max_b, *sum = sum_b;
        return;
    }
    const float top = dt_max_nan(*max, max_b);                  // neither is -inf
    *sum = *sum * expf(*max - top) + sum_b * expf(max_b - top); // rescaled to the common maximum
    *max = top;
}
// Eight values, of which `left` exist.
DT_FN void dt_take_exp(float *max, float *sum, const float x[8], int64_t left) {
    float top = -INFINITY, s = 0.0f;
    for (int k = 0; k < 8; k++)
        if (k < left) top = dt_max_nan(top, x[k]); // NaN reaches top
    if (top == -INFINITY) return;                  // only -inf: a masked part
    top = dt_max_nan(top, *max);
    for (int k = 0; k < 8; k++)
        if (k < left) s += expf(x[k] - top);
    *sum = (*max == -INFINITY ? 0.0f : *sum * expf(*max - top)) + s; // the former sum, rescaled
    *max = top;
}

DT_FN void dt_softmax_sums(const dt_softmax_args *a, const dt_rows_share *s, float *max, float *sum, int T, int V) {
    float x[8], m = -INFINITY, z = 0.0f;
    // groups of eight elements, a lane's in order
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, x);
        dt_take_exp(&m, &z, x, a->r.n - i);
    }
    *max = m, *sum = z;
}
DT_FN void dt_softmax_write(const dt_softmax_args *a, const dt_rows_share *s, float max, float sum, int T, int V) {
    float x[8];
    const float share = 1.0f / sum; // one division per row
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, x);
        for (int k = 0; k < 8; k++) x[k] = i + k < a->r.n ? expf(x[k] - max) * share : 0.0f; // zeros in the padding
        dt_put8_row(a->out, a->out_type, V, s->row * a->ld + i, a->r.n - i, x);
    }
    if (a->lse && s->row >= 0 && s->lane == 0)
        // backward of attention reads it
        a->lse[s->row / a->lse_rows * a->lse_step + s->row % a->lse_rows] = max + logf(sum);
}
DT_KERNEL(softmax_fwd, dt_softmax_args) {
    DT_SHARED(float, max, 256);
    DT_SHARED(float, sum, 256);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        // T: f32 scores or the activations' type
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, dt_softmax_sums(a, &s, &max[t], &sum[t], T, V));
    }
    DT_TREE(t, half, a->r.group, 1, dt_join_exp(&max[t], &sum[t], max[t + half], sum[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        // results lie with lane 0 of the group
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, dt_softmax_write(a, &s, max[t - s.lane], sum[t - s.lane], T, V));
    }
}

DT_FN float dt_softmax_dot(const dt_softmax_args *a, const dt_rows_share *s, int T, int V) {
    float y[8], d[8], sum = 0.0f;
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, y);
        dt_get8_row(a->dy, a->dy_type, V, s->row * a->ld + i, a->r.n - i, d);
        for (int k = 0; k < 8; k++)
            if (i + k < a->r.n) sum += y[k] * d[k]; // padding is not added
    }
    return sum;
}
DT_FN void dt_softmax_slope(const dt_softmax_args *a, const dt_rows_share *s, float dot, int T, int V) {
    float y[8], d[8];
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, y);
        dt_get8_row(a->dy, a->dy_type, V, s->row * a->ld + i, a->r.n - i, d);
        for (int k = 0; k < 8; k++) y[k] = i + k < a->r.n ? y[k] * (d[k] - dot) : 0.0f; // zeros in the padding
        dt_put8_row(a->out, a->out_type, V, s->row * a->ld + i, a->r.n - i, y);
    }
}
DT_KERNEL(softmax_bwd, dt_softmax_args) {
    DT_SHARED(float, sum, 256);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, sum[t] = dt_softmax_dot(a, &s, T, V));
    }
    DT_TREE(t, half, a->r.group, 1, sum[t] += sum[t + half]);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, dt_softmax_slope(a, &s, sum[t - s.lane], T, V));
    }
}

// ---- layer norm ---------------------------------------------------------------------------------------------------

// Layer norm over rows of n elements, statistics in f32 and in two passes: the mean, then
// squares about it. A group of threads shares a row and keeps it in registers.
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

enum { DT_LN_GROUPS = 3 }; // groups of 8 columns of a row that a thread may have
// For each group p of a thread: its first column i, and how many columns there are from i on. What is indexed by p
// stays in registers only if p is a constant.
#define DT_LN_EACH(p, i, left)                                                                                         \
    DT_UNROLL()                                                                                                        \
    for (int p = 0; p < DT_LN_GROUPS; p++)                                                                             \
        for (int64_t i = ((int64_t)p * a->r.group + s->lane) * 8, left = a->r.n - i, once_ = 1; once_ && left > 0;     \
             once_ = 0)

typedef struct dt_layer_norm_args {
    dt_rows r;
    const void *x, *dy, *residual;                    // residual: or NULL
    const float *scale, *shift, *mean_in, *invstd_in; // f32; saved by the forward pass
    void *out;                                        // y, dx (may be NULL)
    void *sum;                                        // forward: x + residual
    float *mean, *invstd;
    float *partial; // backward: (blocks, 2, n)
    float *dscale, *dshift;
    int64_t n_blocks; // of ln_bwd
    int type, add_scale, add_shift;
    float eps;
} dt_layer_norm_args;

// Reads a thread's part of its row, x or x + residual, which it writes. Returns the sum over it.
DT_FN float dt_ln_read(const dt_layer_norm_args *a, const dt_rows_share *s, float *own, int T, int V) {
    dt_raw8 x[DT_LN_GROUPS], d[DT_LN_GROUPS]; // all loads before the first use
    float sum = 0.0f, add[8];
    if (s->row < 0) return 0.0f; // every thread takes part in the block's trees
    DT_LN_EACH(p, i, left) {
        x[p] = dt_fetch8_row(a->x, T, V, s->row * a->r.n + i, left);
        if (a->residual) d[p] = dt_fetch8_row(a->residual, T, V, s->row * a->r.n + i, left);
    }
    DT_LN_EACH(p, i, left) {
        float *o = own + p * 8;
        dt_unpack8_row(T, V, &x[p], o);
        if (a->residual) {
            dt_unpack8_row(T, V, &d[p], add);
            for (int k = 0; k < 8; k++) o[k] = dt_rounded(T, o[k] + add[k]); // as if the sum had been written and read
            dt_put8_row(a->sum, T, V, s->row * a->r.n + i, left, o);
        }
        for (int k = 0; k < 8; k++) sum += o[k]; // zero behind the row
    }
    return sum;
}
DT_FN float dt_ln_squares(const dt_layer_norm_args *a, const dt_rows_share *s, const float *own, float mean) {
    float sum = 0.0f;
    if (s->row < 0) return 0.0f;
    DT_LN_EACH(p, i, left) {
        for (int k = 0; k < 8; k++) {
            const float d = own[p * 8 + k] - mean;
            if (k < left) sum += d * d; // zeros behind the row would add mean^2
        }
    }
    return sum;
}
DT_FN void dt_ln_write(const dt_layer_norm_args *a, const dt_rows_share *s, const float *own, float mean, float invstd,
                       int T, int V) {
    float x[8], scale[8], shift[8];
    if (s->row < 0) return;
    DT_LN_EACH(p, i, left) {
        dt_param8(a->scale, i, left, scale);
        dt_param8(a->shift, i, left, shift);
        for (int k = 0; k < 8; k++) x[k] = (own[p * 8 + k] - mean) * invstd * scale[k] + shift[k]; // f32 parameters
        dt_put8_row(a->out, T, V, s->row * a->r.n + i, left, x);
    }
}

DT_KERNEL_BOUND(ln_fwd, dt_layer_norm_args, 512, 1) {
    DT_SHARED(float, sum, 512);
    DT_SHARED(float, square, 512);
    DT_PRIVATE(float, own, DT_LN_GROUPS * 8);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, sum[t] = dt_ln_read(a, &s, DT_MINE(own, t), T, V));
    }
    DT_TREE(t, half, a->r.group, 1, sum[t] += sum[t + half]);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        square[t] = dt_ln_squares(a, &s, DT_MINE(own, t), sum[t - s.lane] / (float)a->r.n);
    }
    DT_TREE(t, half, a->r.group, 1, square[t] += square[t + half]);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        const float mean = sum[t - s.lane] / (float)a->r.n;
        // PyTorch: biased variance, eps inside the root
        const float invstd = 1.0f / sqrtf(square[t - s.lane] / (float)a->r.n + a->eps);
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, dt_ln_write(a, &s, DT_MINE(own, t), mean, invstd, T, V));
        if (s.lane == 0 && s.row >= 0) {
            if (a->mean) a->mean[s.row] = mean; // inference saves neither
            if (a->invstd) a->invstd[s.row] = invstd;
        }
    }
}

// In the backward pass a thread keeps what it has read, too, unless that is f32: as much again would not fit.
DT_FN dt_raw8 dt_ln_fetch(const void *x, const dt_layer_norm_args *a, const dt_rows_share *s, int64_t i,
                          const dt_vec16 *kept, int T, int V) {
    dt_raw8 r;
    if (!V || T == DT_F32) return dt_fetch8_row(x, T, V, s->row * a->r.n + i, a->r.n - i);
    r.a = r.b = *kept; // b is unused: 16-bit types
    return r;
}
DT_FN void dt_ln_bwd_read(const dt_layer_norm_args *a, const dt_rows_share *s, int64_t i, const dt_vec16 *kept,
                          float x[8], float d[8], int T, int V) {
    const dt_raw8 raw_x = dt_ln_fetch(a->x, a, s, i, kept, T, V);
    const dt_raw8 raw_d = dt_ln_fetch(a->dy, a, s, i, kept + 1, T, V);
    dt_unpack8_row(T, V, &raw_x, x);
    dt_unpack8_row(T, V, &raw_d, d);
}
// Sums of g and g xhat over a thread's part of its row.
DT_FN void dt_ln_bwd_sums(const dt_layer_norm_args *a, const dt_rows_share *s, dt_vec16 *kept, float *sum_g,
                          float *sum_gx, int T, int V) {
    float x[8], d[8], scale[8];
    *sum_g = *sum_gx = 0.0f;
    if (s->row < 0) return;
    const float mean = a->mean_in[s->row], invstd = a->invstd_in[s->row];
    if (V && T != DT_F32) {
        DT_LN_EACH(p, i, left) {
            const int64_t at = s->row * a->r.n + i;
            kept[2 * p] = dt_fetch8(a->x, T, at).a; // kept: x, dy for each of a thread's groups
            kept[2 * p + 1] = dt_fetch8(a->dy, T, at).a;
        }
    }
    DT_LN_EACH(p, i, left) {
        dt_ln_bwd_read(a, s, i, &kept[2 * p], x, d, T, V);
        dt_param8(a->scale, i, left, scale);
        for (int k = 0; k < 8; k++) {
            // element by element, the part behind the row has no meaning
            if (!V && k >= left) break; // there (0 - mean) invstd may be infinite
            const float g = d[k] * scale[k];
            *sum_g += g;
            *sum_gx += g * ((x[k] - mean) * invstd);
        }
    }
}
DT_FN void dt_ln_bwd_write(const dt_layer_norm_args *a, const dt_rows_share *s, const dt_vec16 *kept, float mean_g,
                           float mean_gx, float *own, int T, int V) {
    float x[8], d[8], scale[8];
    if (s->row < 0) return;
    const float mean = a->mean_in[s->row], invstd = a->invstd_in[s->row];
    DT_LN_EACH(p, i, left) {
        dt_ln_bwd_read(a, s, i, &kept[2 * p], x, d, T, V);
        dt_param8(a->scale, i, left, scale);
        for (int k = 0; k < 8; k++) {
            const float hat = (x[k] - mean) * invstd;
            own[p * 16 + k] += d[k] * hat;                              // sum of dy xhat: dscale
            own[p * 16 + 8 + k] += d[k];                                // sum of dy: dshift
            x[k] = invstd * (d[k] * scale[k] - mean_g - hat * mean_gx); // dx of a row, from its two means
        }
        if (a->residual) {
            dt_get8_row(a->residual, T, V, s->row * a->r.n + i, left, d);
            // dx rounded first, then the residual's gradient added
            for (int k = 0; k < 8; k++) x[k] = dt_rounded(T, x[k]) + d[k];
        }
        if (a->out) dt_put8_row(a->out, T, V, s->row * a->r.n + i, left, x);
    }
}

// Threads per block: at least 256 and a group. A block takes every n_blocks-th set of rows.
DT_KERNEL_BOUND(ln_bwd, dt_layer_norm_args, 512, 1) {
    DT_SHARED(float, sum_g, 512);
    DT_SHARED(float, sum_gx, 512);
    DT_SHARED(float, total, 8 * 512);
    DT_PRIVATE(dt_vec16, kept, DT_LN_GROUPS * 2);
    DT_PRIVATE(float, own, DT_LN_GROUPS * 16);
    const int64_t bunch = DT_BLOCK_DIM / a->r.group; // rows of a block at once
    DT_THREADS(t) {
        for (int k = 0; k < DT_LN_GROUPS * 16; k++) DT_MINE(own, t)[k] = 0.0f;
    }
    for (int64_t b = DT_BLOCK; b * bunch < a->r.rows; b += DT_GRID) {
        DT_THREADS(t) {
            const dt_rows_share s = dt_rows_of(&a->r, b, DT_BLOCK_DIM, t);
            DT_TYPED_ROWS(T, V, a->type, a->r.whole,
                          dt_ln_bwd_sums(a, &s, DT_MINE(kept, t), &sum_g[t], &sum_gx[t], T, V));
        }
        DT_TREE(t, half, a->r.group, 1, sum_g[t] += sum_g[t + half]; sum_gx[t] += sum_gx[t + half]);
        DT_THREADS(t) {
            const dt_rows_share s = dt_rows_of(&a->r, b, DT_BLOCK_DIM, t);
            const float mean_g = sum_g[t - s.lane] / (float)a->r.n;
            const float mean_gx = sum_gx[t - s.lane] / (float)a->r.n;
            DT_TYPED_ROWS(T, V, a->type, a->r.whole,
                          dt_ln_bwd_write(a, &s, DT_MINE(kept, t), mean_g, mean_gx, DT_MINE(own, t), T, V));
        }
    }
    // sum over the groups of the block, eight columns of one sum at a time
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int p = 0; p < DT_LN_GROUPS * 2; p++) { // p: which sum of which column group
        DT_THREADS(t) {
            for (int k = 0; k < 8; k++) total[k * 512 + t] = DT_MINE(own, t)[p * 8 + k];
        }
        DT_TREE(t, half, DT_BLOCK_DIM / a->r.group, a->r.group,
                for (int k = 0; k < 8; k++) total[k * 512 + t] += total[k * 512 + t + half * a->r.group]);
        DT_THREADS(t) {
            const int64_t i = ((int64_t)(p / 2) * a->r.group + t) * 8;
            for (int k = 0; k < 8; k++)
                if (t < a->r.group && i + k < a->r.n)
                    // one row of partial per block
                    a->partial[(DT_BLOCK * 2 + p % 2) * a->r.n + i + k] = total[k * 512 + t];
        }
    }
}

// A block of 32 x 32 threads takes 32 of the 2n sums.
DT_KERNEL_BOUND(ln_bwd_finish, dt_layer_norm_args, 1024, 1) {
    DT_SHARED(float, sum, 1024);
    DT_THREADS(t) {
        const int64_t i = DT_BLOCK * 32 + t % 32;
        float s = 0.0f;
        if (i < 2 * a->r.n) // 2n columns: dscale, then dshift
            for (int64_t b = t / 32; b < a->n_blocks; b += 32) s += a->partial[b * 2 * a->r.n + i];
        sum[t] = s;
    }
    DT_TREE(t, half, 32, 32, sum[t] += sum[t + half * 32]);
    DT_THREADS(t) {
        const int64_t i = DT_BLOCK * 32 + t;
        if (t < 32 && i < a->r.n && a->dscale) dt_store_sum(a->dscale, i, a->add_scale, (double)sum[t]);
        if (t < 32 && i >= a->r.n && i < 2 * a->r.n && a->dshift)
            dt_store_sum(a->dshift, i - a->r.n, a->add_shift, (double)sum[t]);
    }
}

#endif
