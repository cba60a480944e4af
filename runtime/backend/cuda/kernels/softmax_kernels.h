// softmax_kernels.h: softmax over rows, and its gradient dx = y (dy - sum(y dy)); in place. A group of threads shares
// a row. One pass finds the maximum and the sum of exponentials: the sum is relative to the maximum so far and is
// rescaled when that grows. NaN reaches the whole row.
//
// Attention without cuDNN (sdpa_cuda.c) reads f32 scores and writes probabilities of the activations' type. Its rows
// are padded to multiples of eight elements; what lies behind n is not used, and written as zero.
//
// Moves: forward 2nE (the second read comes from the cache), backward 3nE.
#ifndef DT_SOFTMAX_KERNELS_H
#define DT_SOFTMAX_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

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
    return b > a || b != b ? b : a;
}
// Joins sum(exp(x - max)) of two parts. A part with nothing, or only -inf, has max -inf and sum 0.
DT_FN void dt_join_exp(float *max, float *sum, float max_b, float sum_b) {
    if (max_b == -INFINITY) return;
    if (*max == -INFINITY) {
        *max = max_b, *sum = sum_b;
        return;
    }
    const float top = dt_max_nan(*max, max_b);
    *sum = *sum * expf(*max - top) + sum_b * expf(max_b - top);
    *max = top;
}
// Eight values, of which `left` exist.
DT_FN void dt_take_exp(float *max, float *sum, const float x[8], int64_t left) {
    float top = -INFINITY, s = 0.0f;
    for (int k = 0; k < 8; k++)
        if (k < left) top = dt_max_nan(top, x[k]);
    if (top == -INFINITY) return;
    top = dt_max_nan(top, *max);
    for (int k = 0; k < 8; k++)
        if (k < left) s += expf(x[k] - top);
    *sum = (*max == -INFINITY ? 0.0f : *sum * expf(*max - top)) + s;
    *max = top;
}

DT_FN void dt_softmax_sums(const dt_softmax_args *a, const dt_rows_share *s, float *max, float *sum, int T, int V) {
    float x[8], m = -INFINITY, z = 0.0f;
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, x);
        dt_take_exp(&m, &z, x, a->r.n - i);
    }
    *max = m, *sum = z;
}
DT_FN void dt_softmax_write(const dt_softmax_args *a, const dt_rows_share *s, float max, float sum, int T, int V) {
    float x[8];
    const float share = 1.0f / sum;
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, x);
        for (int k = 0; k < 8; k++) x[k] = i + k < a->r.n ? expf(x[k] - max) * share : 0.0f;
        dt_put8_row(a->out, a->out_type, V, s->row * a->ld + i, a->r.n - i, x);
    }
    if (a->lse && s->row >= 0 && s->lane == 0)
        a->lse[s->row / a->lse_rows * a->lse_step + s->row % a->lse_rows] = max + logf(sum);
}
DT_KERNEL(softmax_fwd, dt_softmax_args) {
    DT_SHARED(float, max, 256);
    DT_SHARED(float, sum, 256);
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, dt_softmax_sums(a, &s, &max[t], &sum[t], T, V));
    }
    DT_TREE(t, half, a->r.group, 1, dt_join_exp(&max[t], &sum[t], max[t + half], sum[t + half]));
    DT_THREADS(t) {
        const dt_rows_share s = dt_rows_of(&a->r, DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->r.whole, dt_softmax_write(a, &s, max[t - s.lane], sum[t - s.lane], T, V));
    }
}

DT_FN float dt_softmax_dot(const dt_softmax_args *a, const dt_rows_share *s, int T, int V) {
    float y[8], d[8], sum = 0.0f;
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, y);
        dt_get8_row(a->dy, a->dy_type, V, s->row * a->ld + i, a->r.n - i, d);
        for (int k = 0; k < 8; k++)
            if (i + k < a->r.n) sum += y[k] * d[k];
    }
    return sum;
}
DT_FN void dt_softmax_slope(const dt_softmax_args *a, const dt_rows_share *s, float dot, int T, int V) {
    float y[8], d[8];
    for (int64_t i = s->lane * 8; s->row >= 0 && i < a->r.n; i += a->r.group * 8) {
        dt_get8_row(a->x, T, V, s->row * a->ld + i, a->r.n - i, y);
        dt_get8_row(a->dy, a->dy_type, V, s->row * a->ld + i, a->r.n - i, d);
        for (int k = 0; k < 8; k++) y[k] = i + k < a->r.n ? y[k] * (d[k] - dot) : 0.0f;
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

#endif
