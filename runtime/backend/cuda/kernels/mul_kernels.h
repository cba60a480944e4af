// mul_kernels.h: y = a * b. b has a's shape (elementwise), or one row of columns for all rows of a, or for the rows of
// each image (dt_times). Backward sums a * dy over the rows: a block has all rows of an image, or, where all rows
// share b, a chunk of them; chunks are added in order by sum_chunks (add_kernels.h).
//
//   branch_fwd   other + drop(x * row), where all rows share `row`; drop: of a whole sample, as dropout_kernels.h
//   branch_bwd   of dy = other: dx = drop(dy) * row, and the sums of x * drop(dy) that mul_sums makes of drop(dy)
//
// Each step of these is rounded to the type, as if separate kernels made it.
//
// Moves (E bytes per element, n elements): forward 2nE (same shape 3nE), backward 2nE; a branch 3nE each (separately
// 7nE and 6nE), without a row 3nE and 2nE.
#ifndef DT_MUL_KERNELS_H
#define DT_MUL_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

DT_FN float dt_product_of(const dt_map_args *a, int T, float x, float d) {
    return x * d;
}
DT_MAP_KERNEL(mul_same, dt_product_of, 1)

typedef struct dt_mul_args {
    dt_cols c;
    dt_quot image;       // rows of an image
    int each;            // b has a row for each image
    const void *x, *row; // backward: row is dy
    void *out;
    float *partial; // backward: (n_chunks, padded); NULL: straight to out
    int type, row_type;
    int accumulate;
    // of a branch; image: rows of a sample; row, and backward x, out and dx, may be NULL
    const void *other;
    void *dx;
    const dt_step_block *step;
    uint32_t purpose;
    float p;
} dt_mul_args;

DT_FN void dt_mul_rows_thread(const dt_mul_args *a, const dt_cols_share *s, int T, int V) {
    for (int64_t r = s->row; r < s->end; r += s->step) {
        const int64_t i = r * a->c.cols + s->col;
        const int64_t f = (a->each ? dt_div(a->image, r) : 0) * a->c.cols + s->col;
        float x[8];
        dt_get8_row(a->x, T, V, i, s->left, x);
        for (int k = 0; k < 8; k++)
            if (k < s->left) x[k] *= dt_get(a->row, a->row_type, f + k);
        dt_put8_row(a->out, T, V, i, s->left, x);
    }
}
DT_COLS_KERNEL(mul_rows, dt_mul_args, dt_mul_rows_thread)

DT_FN void dt_mul_sums_thread(const dt_mul_args *a, const dt_cols_share *s, float sum[8], int T, int V) {
    const int64_t first = a->each ? s->chunk * a->c.rows : 0;
    const int64_t begin = a->each ? s->lane : s->row, end = a->each ? a->c.rows : s->end;
    for (int k = 0; k < 8; k++) sum[k] = 0.0f;
    if (s->left <= 0) return;
    for (int64_t r = begin; r < end; r += s->step) {
        const int64_t i = (first + r) * a->c.cols + s->col;
        float x[8], d[8];
        dt_get8_row(a->x, T, V, i, s->left, x);
        dt_get8_row(a->row, T, V, i, s->left, d);
        for (int k = 0; k < 8; k++)
            if (k < s->left) sum[k] += x[k] * d[k];
    }
}
DT_FN void dt_mul_sums_store(const dt_mul_args *a, const dt_cols_share *s, int k, float value) {
    const int64_t at = (a->each ? s->chunk * a->c.cols : 0) + s->col + k;
    if (a->partial) {
        a->partial[s->chunk * a->c.padded + s->col + k] = value;
        return;
    }
    if (!a->out) return;
    if (a->accumulate) value += ((const float *)a->out)[at];
    dt_put(a->out, a->row_type, at, value);
}
DT_COLS_SUM_KERNEL(mul_sums, dt_mul_args, dt_mul_sums_thread, dt_mul_sums_store)

// ---- a branch ----------------------------------------------------------------------------------------
// Rounded, and never part of a fused multiply-add.
DT_FN float dt_product(int T, float x, float y) {
#ifdef __CUDACC__
    return dt_rounded(T, __fmul_rn(x, y));
#else
    return dt_rounded(T, x * y);
#endif
}
// What a row is multiplied by: a thread's rows are mostly of one sample.
typedef struct dt_path_gain {
    int64_t sample;
    float gain;
} dt_path_gain;
DT_FN void dt_path_gain_of(const dt_mul_args *a, int64_t row, dt_path_gain *g) {
    const int64_t sample = a->p > 0.0f ? dt_div(a->image, row) : g->sample;
    float u[4];
    if (sample == g->sample) return;
    dt_uniform4(a->step->seed, a->step->slot + (uint32_t)sample, a->step->step, a->purpose, 0, u);
    g->sample = sample;
    g->gain = u[0] >= a->p ? 1.0f / (1.0f - a->p) : 0.0f;
}
DT_FN void dt_branch_row(const dt_mul_args *a, const dt_cols_share *s, float row[8]) {
    for (int k = 0; k < 8; k++) row[k] = a->row && k < s->left ? dt_get(a->row, a->row_type, s->col + k) : 1.0f;
}

DT_FN void dt_branch_fwd_thread(const dt_mul_args *a, const dt_cols_share *s, int T, int V) {
    dt_path_gain g = {-1, 1.0f};
    float row[8], x[8], y[8];
    dt_branch_row(a, s, row);
    for (int64_t r = s->row; r < s->end; r += s->step) {
        const int64_t i = r * a->c.cols + s->col;
        dt_get8_row(a->x, T, V, i, s->left, x);
        dt_get8_row(a->other, T, V, i, s->left, y);
        dt_path_gain_of(a, r, &g);
        for (int k = 0; k < 8; k++) y[k] += dt_product(T, dt_product(T, x[k], row[k]), g.gain);
        dt_put8_row(a->out, T, V, i, s->left, y);
    }
}
DT_COLS_KERNEL(branch_fwd, dt_mul_args, dt_branch_fwd_thread)

DT_FN void dt_branch_bwd_thread(const dt_mul_args *a, const dt_cols_share *s, float sum[8], int T, int V) {
    dt_path_gain g = {-1, 1.0f};
    float row[8], x[8], d[8];
    dt_branch_row(a, s, row);
    for (int k = 0; k < 8; k++) sum[k] = 0.0f;
    for (int64_t r = s->row; r < s->end; r += s->step) {
        const int64_t i = r * a->c.cols + s->col;
        const dt_raw8 dy = dt_fetch8_row(a->other, T, V, i, s->left);
        const dt_raw8 y = a->x ? dt_fetch8_row(a->x, T, V, i, s->left) : dy;
        dt_path_gain_of(a, r, &g);
        dt_unpack8_row(T, V, &dy, d);
        dt_unpack8_row(T, V, &y, x);
        for (int k = 0; k < 8; k++) {
            d[k] = dt_product(T, d[k], g.gain);
            sum[k] += x[k] * d[k];
            d[k] *= row[k];
        }
        if (a->dx) dt_put8_row(a->dx, T, V, i, s->left, d);
    }
}
DT_COLS_SUM_KERNEL(branch_bwd, dt_mul_args, dt_branch_bwd_thread, dt_mul_sums_store)

#endif
