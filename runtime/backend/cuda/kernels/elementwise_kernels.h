// elementwise_kernels.h: device kernels over elements.
#ifndef DT_BACKEND_CUDA_KERNELS_ELEMENTWISE_KERNELS_H
#define DT_BACKEND_CUDA_KERNELS_ELEMENTWISE_KERNELS_H

#include "backend/cuda/kernels/block_math.h"
#include "graph/activation_words.h"

// ---- gelu ---------------------------------------------------------------------------------------------------------

// GELU, y = x Phi(x); backward reads x: dx = dy (Phi(x) + x phi(x)). And y = alpha x. Elementwise: any
// layout, in place. Exact form: in f32 Phi by erfc, which keeps its digits far to the left; in bf16 and f16, where that
// would take longer than the memory access, Phi of -|x| as 2 to a polynomial, within 5e-5 of its value down to x = -6
// and constant (1e-9) from there on. The tanh form uses (1 + tanh u) / 2 for Phi, with u = sqrt(2/pi) (x + 0.044715
// x^3), which is 1 / (1 + exp(-2u)).
//
// Moves (E bytes per element, n elements): forward and scale 2nE, backward 3nE.

DT_FN float dt_normal_cdf(float x) {
    return 0.5f * erfcf(-0.70710678118654752f * x); // -1/sqrt(2)
}
// |x|, at most 6; NaN stays.
DT_FN float dt_gelu_reach(float x) {
    return fabsf(x) > 6.0f ? 6.0f : fabsf(x);
}
// Phi(-z) for 0 <= z <= 6: the polynomial of degree 6 whose largest error is the least.
DT_FN float dt_normal_tail(float z) {
    float p = 2.2990056e-05f;
    p = fmaf(p, z, -0.0006111002f);
    p = fmaf(p, z, 0.0071955686f);
    p = fmaf(p, z, -0.051185355f);
    p = fmaf(p, z, -0.46127188f);
    p = fmaf(p, z, -1.1501743f);
    return dt_exp2(fmaf(p, z, -1.0000647f)); // base 2: one device instruction
}
DT_FN float dt_gelu(int T, float x) {
    if (T == DT_F32) return x * dt_normal_cdf(x);
    const float z = dt_gelu_reach(x);
    // max(x, 0) - z Phi(-z): equal to x Phi(x) on both sides, without cancellation
    return fmaf(-z, dt_normal_tail(z), fmaxf(x, 0.0f));
}
DT_FN float dt_gelu_map(const dt_map_args *a, int T, float x, float d) {
    return dt_gelu(T, x);
}
DT_FN float dt_gelu_slope_map(const dt_map_args *a, int T, float x, float d) {
    // 1/sqrt(2 pi) exp(-x^2/2): the density
    if (T == DT_F32) return d * (dt_normal_cdf(x) + x * (0.39894228040143268f * expf(-0.5f * x * x)));
    const float z = dt_gelu_reach(x); // the slope at -z, and 1 minus it at z
    // exp(-z^2/2) as 2^(-z^2/2 log2 e)
    const float left = fmaf(z * -0.39894228040143268f, dt_exp2(z * z * -0.72134752f), dt_normal_tail(z));
    return d * (x < 0.0f ? left : 1.0f - left);
}

DT_FN float dt_gelu_gate(float x) {
    return 1.0f / (1.0f + expf(-1.59576912160573071f * (x + 0.044715f * x * x * x))); // 2 sqrt(2/pi)
}
DT_FN float dt_gelu_tanh(float x) {
    return x * dt_gelu_gate(x);
}
DT_FN float dt_gelu_tanh_slope(float x) {
    const float s = dt_gelu_gate(x);
    // d/dx of x s: s(1 - s) is sigmoid's slope
    return s + x * s * (1.0f - s) * (1.59576912160573071f * (1.0f + 0.134145f * x * x));
}
DT_FN float dt_gelu_tanh_map(const dt_map_args *a, int T, float x, float d) {
    return dt_gelu_tanh(x);
}
DT_FN float dt_gelu_tanh_slope_map(const dt_map_args *a, int T, float x, float d) {
    return d * dt_gelu_tanh_slope(x);
}

DT_FN float dt_scaled(const dt_map_args *a, int T, float x, float d) {
    return a->alpha * x;
}

DT_MAP_KERNEL(gelu_fwd, dt_gelu_map, 0)
DT_MAP_KERNEL(gelu_bwd, dt_gelu_slope_map, 1)
DT_MAP_KERNEL(gelu_tanh_fwd, dt_gelu_tanh_map, 0)
DT_MAP_KERNEL(gelu_tanh_bwd, dt_gelu_tanh_slope_map, 1)
DT_MAP_KERNEL(scale_fwd, dt_scaled, 0)

// ---- relu ---------------------------------------------------------------------------------------------------------

// Y = max(x, 0); backward reads y: dx = y > 0 ? dy : 0. NaN passes. Elementwise: any layout, in place.
//
// Moves (E bytes per element, n elements): forward 2nE, backward 3nE.

DT_FN float dt_relu_map(const dt_map_args *a, int T, float x, float d) {
    (void)a, (void)T, (void)d;
    return x < 0.0f ? 0.0f : x; // NaN: neither below 0, so it passes
}
// y: the forward's output
DT_FN float dt_relu_slope_map(const dt_map_args *a, int T, float y, float d) {
    return y > 0.0f ? d : 0.0f;
}

DT_MAP_KERNEL(relu_fwd, dt_relu_map, 0)
DT_MAP_KERNEL(relu_bwd, dt_relu_slope_map, 1)

// ---- activation ---------------------------------------------------------------------------------------------------

// The functions of the op activation (graph/ops/elementwise.c) and dy times their slopes.
// Elementwise: any layout, in place. In bf16 and f16 sigmoid is made of the device's fast functions, which take less time
// than the memory access. Batch norm has all of them inside.
//
// Moves (E bytes per element, n elements): forward 2nE, backward 3nE.

DT_FN float dt_clamped(float x, float top) {
    return x < 0.0f ? 0.0f : x > top ? top : x; // NaN passes
}
DT_FN float dt_sigmoid(int T, float x) {
    if (T == DT_F32) return 1.0f / (1.0f + expf(-x));
    return dt_inverse(1.0f + dt_exp2(x * -1.44269504f)); // log2 e: e^-x by base 2
}
DT_FN float dt_sigmoid_slope(int T, float x) {
    const float s = dt_sigmoid(T, x);
    return s * (1.0f - s);
}
DT_FN float dt_hardsigmoid(int T, float x) {
    return dt_clamped(x + 3.0f, 6.0f) * 0.166666667f; // 1/6
}
DT_FN float dt_hardsigmoid_slope(int T, float x) {
    return x > -3.0f && x < 3.0f ? 0.166666667f : 0.0f; // 0 at the kinks, as in PyTorch
}
DT_FN float dt_silu(int T, float x) {
    return x * dt_sigmoid(T, x);
}
DT_FN float dt_silu_slope(int T, float x) {
    const float s = dt_sigmoid(T, x);
    return s + x * s * (1.0f - s);
}
DT_FN float dt_hardswish(int T, float x) {
    return x * dt_hardsigmoid(T, x);
}
DT_FN float dt_hardswish_slope(int T, float x) {
    return x >= 3.0f ? 1.0f : x > -3.0f ? x * 0.333333333f + 0.5f : 0.0f; // 1/3 x + 1/2 between -3 and 3
}
DT_FN float dt_relu6(int T, float x) {
    return dt_clamped(x, 6.0f);
}
DT_FN float dt_relu6_slope(int T, float x) {
    return x > 0.0f && x < 6.0f ? 1.0f : 0.0f;
}
DT_FN float dt_tanh(int T, float x) {
    return tanhf(x);
}
DT_FN float dt_tanh_slope(int T, float x) {
    const float t = tanhf(x);
    return 1.0f - t * t;
}
DT_FN float dt_softplus(int T, float x) {
    return (x > 0.0f ? x : 0.0f) + log1pf(expf(x > 0.0f ? -x : x)); // log(1 + e^x) without overflow
}
DT_FN float dt_softplus_slope(int T, float x) {
    return dt_sigmoid(T, x);
}
DT_FN float dt_erf(int T, float x) {
    return erff(x);
}
DT_FN float dt_erf_slope(int T, float x) {
    return 1.12837917f * expf(-x * x); // 2/sqrt(pi)
}
DT_FN float dt_heaviside(int T, float x) {
    return x > 0.0f ? 1.0f : 0.0f; // 0 at 0
}
DT_FN float dt_heaviside_slope(int T, float x) {
    return 0.0f;
}
DT_FN float dt_leaky_relu(int T, float x, float slope) {
    return x > 0.0f ? x : slope * x;
}
DT_FN float dt_leaky_relu_slope(int T, float x, float slope) {
    return x > 0.0f ? 1.0f : slope;
}
DT_FN float dt_elu(int T, float x, float alpha) {
    return x > 0.0f ? x : alpha * expm1f(x); // exact near 0
}
DT_FN float dt_elu_slope(int T, float x, float alpha) {
    return x > 0.0f ? 1.0f : alpha * expf(x);
}

#define DT_MAPS(name, ...)                                                                                             \
    DT_FN float dt_##name##_map(const dt_map_args *a, int T, float x, float d) {                                       \
        return dt_##name(__VA_ARGS__);                                                                                 \
    }                                                                                                                  \
    DT_FN float dt_##name##_slope_map(const dt_map_args *a, int T, float x, float d) {                                 \
        return d * dt_##name##_slope(__VA_ARGS__);                                                                     \
    }                                                                                                                  \
    DT_MAP_KERNEL(name##_fwd, dt_##name##_map, 0)                                                                      \
    DT_MAP_KERNEL(name##_bwd, dt_##name##_slope_map, 1)
#define DT_MAPS_activation(name) DT_MAPS(name, T, x)
#define DT_MAPS_relu(name)       // relu and gelu: above
#define DT_MAPS_gelu(name)
#define ACTIVATION(id, op, at_zero, help)     DT_MAPS_##op(id)
#define ACTIVATION_WITH(id, key, unset, help) DT_MAPS(id, T, x, a->alpha)
#include "graph/activations.def"
#undef ACTIVATION

// ---- inside another kernel, with the bits of those above -------------------------------------------
// x becomes the activation's values there; or, with `slope`, d is multiplied by its slopes at x. Both are rounded to T.
DT_FN void dt_activate_as(const dt_map_args *a, int act, int T, int slope, float x[8], float d[8]) {
    switch (act) {
#define ACTIVATION(id, op, at_zero, help)                                                                              \
    case DT_ACTIVATION_##id:                                                                                           \
        for (int k = 0; k < 8; k++)                                                                                    \
            if (slope)                                                                                                 \
                d[k] = dt_##id##_slope_map(a, T, x[k], d[k]);                                                          \
            else                                                                                                       \
                x[k] = dt_##id##_map(a, T, x[k], 0.0f);                                                                \
        break;
#include "graph/activations.def"
#undef ACTIVATION
    }
}
DT_FN void dt_activate8(int act, float alpha, int T, int slope, float x[8], float d[8]) {
    dt_map_args a;
    a.alpha = alpha;
    if (T == DT_F32)
        dt_activate_as(&a, act, DT_F32, slope, x, d);
    else // those of 16 bits are alike
        dt_activate_as(&a, act, DT_BF16, slope, x, d);
    dt_round8(T, slope ? d : x);
}

// ---- add ----------------------------------------------------------------------------------------------------------

// Y = a + b. b has a's shape (elementwise, any layout, in place), or it is a's last dimensions and is
// repeated over the first: a matrix (outer, inner) plus a row. The backward pass of the latter sums dy's rows. For
// each column a thread adds in row order, then a tree adds over the block's row lanes. If a column's rows were divided
// among blocks, their sums are added in order.
//
// Moves: same shape 3nE; a row 2nE; sums nE and, divided into c chunks, 8c more bytes for each column.

DT_FN float dt_sum_of(const dt_map_args *a, int T, float x, float d) {
    return x + d;
}
DT_MAP_KERNEL(add_same, dt_sum_of, 1)

typedef struct dt_add_args {
    dt_cols c;
    const void *x, *row; // backward: x is dy
    void *out;           // backward with one chunk: the sums, of row_type
    float *partial;      // backward: (n_chunks, padded); NULL: straight to out
    int type, row_type;
    int accumulate;
} dt_add_args;

DT_FN void dt_add_row_thread(const dt_add_args *a, const dt_cols_share *s, int T, int V) {
    float b[8];
    // in registers for all rows
    for (int k = 0; k < 8; k++) b[k] = k < s->left ? dt_get(a->row, a->row_type, s->col + k) : 0.0f;
    for (int64_t r = s->row; r < s->end; r += 2 * s->step) {
        const int64_t i = r * a->c.cols + s->col, j = i + s->step * a->c.cols;
        const int two = r + s->step < s->end;
        const dt_raw8 x0 = dt_fetch8_row(a->x, T, V, i, s->left);
        const dt_raw8 x1 = two ? dt_fetch8_row(a->x, T, V, j, s->left) : x0; // two loads before the first use
        float x[8];
        dt_unpack8_row(T, V, &x0, x);
        for (int k = 0; k < 8; k++) x[k] += b[k];
        dt_put8_row(a->out, T, V, i, s->left, x);
        if (!two) continue; // the last row of an odd number
        dt_unpack8_row(T, V, &x1, x);
        for (int k = 0; k < 8; k++) x[k] += b[k];
        dt_put8_row(a->out, T, V, j, s->left, x);
    }
}
DT_COLS_KERNEL(add_row, dt_add_args, dt_add_row_thread)

DT_FN void dt_sum_rows_thread(const dt_add_args *a, const dt_cols_share *s, float sum[8], int T, int V) {
    float x[8];
    for (int k = 0; k < 8; k++) sum[k] = 0.0f;
    for (int64_t r = s->row; r < s->end; r += 4 * s->step) {
        dt_raw8 raw[4];
        for (int u = 0; u < 4; u++)
            if (r + u * s->step < s->end)
                raw[u] = dt_fetch8_row(a->x, T, V, (r + u * s->step) * a->c.cols + s->col, s->left);
        for (int u = 0; u < 4; u++) {
            if (r + u * s->step >= s->end) continue;
            dt_unpack8_row(T, V, &raw[u], x);
            for (int k = 0; k < 8; k++) sum[k] += x[k];
        }
    }
}
DT_FN void dt_sum_rows_store(const dt_add_args *a, int64_t col, float value) {
    if (a->accumulate) value += ((const float *)a->out)[col]; // micro-batches add up in f32
    dt_put(a->out, a->row_type, col, value);
}
DT_FN void dt_sum_chunk_store(const dt_add_args *a, const dt_cols_share *s, int k, float value) {
    if (a->partial)
        a->partial[s->chunk * a->c.padded + s->col + k] = value;
    else
        dt_sum_rows_store(a, s->col + k, value);
}
DT_COLS_SUM_KERNEL(sum_rows, dt_add_args, dt_sum_rows_thread, dt_sum_chunk_store)
// Sums partial (n_chunks, padded) into out; a block of 32 x 32 threads takes 32 columns.
DT_KERNEL_BOUND(sum_chunks, dt_add_args, 1024, 1) {
    DT_SHARED(float, sums, 1024);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t % 32;
        float sum = 0.0f;
        if (col < a->c.cols) // of all chunks of a column, every 32nd
            for (int64_t i = t / 32; i < a->c.n_chunks; i += 32) sum += a->partial[i * a->c.padded + col];
        sums[t] = sum;
    }
    DT_TREE(t, half, 32, 32, sums[t] += sums[t + half * 32]);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t;
        if (t < 32 && col < a->c.cols) dt_sum_rows_store(a, col, sums[t]);
    }
}

// ---- mul ----------------------------------------------------------------------------------------------------------

// Y = a * b. b has a's shape (elementwise), or one row of columns for all rows of a, or for the rows of
// each image (dt_times). Backward sums a * dy over the rows: a block has all rows of an image, or, where all rows
// share b, a chunk of them; chunks are added in order by sum_chunks.
//
//   branch_fwd   other + drop(x * row), where all rows share `row`; drop: of a whole sample, as above
//   branch_bwd   of dy = other: dx = drop(dy) * row, and the sums of x * drop(dy) that mul_sums makes of drop(dy)
//
// Each step of these is rounded to the type, as if separate kernels made it.
//
// Moves (E bytes per element, n elements): forward 2nE (same shape 3nE), backward 2nE; a branch 3nE each (separately
// 7nE and 6nE), without a row 3nE and 2nE.

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
        // NHWC: pixels are rows, channels columns
        const int64_t i = r * a->c.cols + s->col;
        const int64_t f = (a->each ? dt_div(a->image, r) : 0) * a->c.cols + s->col; // first factor of the row's image
        float x[8], factor[8];
        dt_get8_row(a->x, T, V, i, s->left, x);
        dt_get8_row(a->row, a->row_type, V, f, s->left, factor); // columns beyond the end have no factor
        for (int k = 0; k < 8; k++) x[k] *= factor[k];
        dt_put8_row(a->out, T, V, i, s->left, x);
    }
}
DT_COLS_KERNEL(mul_rows, dt_mul_args, dt_mul_rows_thread)

DT_FN void dt_mul_sums_thread(const dt_mul_args *a, const dt_cols_share *s, float sum[8], int T, int V) {
    const int64_t first = a->each ? s->chunk * a->c.rows : 0; // a block's first row: chunk is an image
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
    const int64_t at = (a->each ? s->chunk * a->c.cols : 0) + s->col + k; // element of b's gradient
    if (a->partial) {
        a->partial[s->chunk * a->c.padded + s->col + k] = value;
        return;
    }
    if (!a->out) return; // only dx is wanted
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
    const int64_t sample = a->p > 0.0f ? dt_div(a->image, row) : g->sample; // p 0: no drawing, the gain stays 1
    float u[4];
    if (sample == g->sample) return;
    // element 0 of the sample: one number for all of it
    dt_uniform4(a->step->seed, a->step->slot + (uint32_t)sample, a->step->step, a->purpose, 0, u);
    g->sample = sample;
    g->gain = u[0] >= a->p ? 1.0f / (1.0f - a->p) : 0.0f; // survivors are scaled, so that the mean stays
}
DT_FN void dt_branch_row(const dt_mul_args *a, const dt_cols_share *s, float row[8]) {
    // no factor: ones
    for (int k = 0; k < 8; k++) row[k] = a->row && k < s->left ? dt_get(a->row, a->row_type, s->col + k) : 1.0f;
}

DT_FN void dt_branch_fwd_thread(const dt_mul_args *a, const dt_cols_share *s, int T, int V) {
    dt_path_gain g = {-1, 1.0f}; // sample -1: none yet
    float row[8], x[8], y[8];
    dt_branch_row(a, s, row);
    for (int64_t r = s->row; r < s->end; r += s->step) {
        const int64_t i = r * a->c.cols + s->col;
        dt_get8_row(a->x, T, V, i, s->left, x);
        dt_get8_row(a->other, T, V, i, s->left, y);
        dt_path_gain_of(a, r, &g);
        // product, gain and sum: each rounded to T
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
        // x NULL: only dx is wanted, sums are not used
        const dt_raw8 y = a->x ? dt_fetch8_row(a->x, T, V, i, s->left) : dy;
        dt_path_gain_of(a, r, &g);
        dt_unpack8_row(T, V, &dy, d);
        dt_unpack8_row(T, V, &y, x);
        for (int k = 0; k < 8; k++) {
            d[k] = dt_product(T, d[k], g.gain); // as if dropout's backward had written it
            sum[k] += x[k] * d[k];              // f32 sums of the rounded
            d[k] *= row[k];                     // put8 rounds
        }
        if (a->dx) dt_put8_row(a->dx, T, V, i, s->left, d);
    }
}
DT_COLS_SUM_KERNEL(branch_bwd, dt_mul_args, dt_branch_bwd_thread, dt_mul_sums_store)

// ---- dropout ------------------------------------------------------------------------------------------------------

// Y = keep ? x / (1 - p) : 0, and the same function of dy backward. The mask is never stored. It is
// recomputed, with the CPU's bits (base/rng.h), from (seed, step, slot, name, element within the sample in NCHW
// order). Seed, step and slot are read from the step block on the device, so one captured graph serves every step.
//
//   dropout        DENSE, a sample's elements in logical order: two Philox blocks make eight elements
//   dropout_nhwc   4-d images, channels innermost: a Philox block makes four pixels of a channel
//
// Moves 2nE.

typedef struct dt_dropout_args {
    const void *x;
    void *out;
    const dt_step_block *step;
    int64_t samples, per_sample;      // in elements
    int64_t tiles;                    // blocks per sample
    uint32_t channels, pixels, draws; // nhwc; draws: Philox blocks that have elements of a channel
    uint32_t purpose;
    int type, whole;
    float p;
} dt_dropout_args;

DT_FN void dt_dropout_8(const dt_dropout_args *a, uint32_t sample, int64_t first, float x[8]) {
    const float gain = 1.0f / (1.0f - a->p);
    float u[8];
    for (int h = 0; h < 2; h++)
        dt_uniform4(a->step->seed, a->step->slot + sample, a->step->step, a->purpose,
                    a->whole ? 0 : (uint32_t)(first / 4 + h), u + 4 * h); // two Philox blocks of four numbers
    for (int k = 1; k < 8 && a->whole; k++) u[k] = u[0];                  // one draw for all
    for (int k = 0; k < 8; k++) x[k] *= u[k] >= a->p ? gain : 0.0f;
}
// A block takes 2048 elements of one sample.
DT_KERNEL(dropout, dt_dropout_args) {
    DT_THREADS(t) {
        const int64_t sample = DT_BLOCK / a->tiles;
        const int64_t i = (DT_BLOCK % a->tiles * DT_BLOCK_DIM + t) * 8, left = a->per_sample - i;
        if (left > 0) {
            const int64_t at = sample * a->per_sample + i;
            float x[8];
            if (a->per_sample % 8 == 0) { // samples begin at multiples of eight: vector access
                dt_get8(a->x, a->type, at, x);
                dt_dropout_8(a, (uint32_t)sample, i, x);
                dt_put8(a->out, a->type, at, x);
            } else {
                dt_get8_row(a->x, a->type, 0, at, left, x);
                dt_dropout_8(a, (uint32_t)sample, i, x);
                dt_put8_row(a->out, a->type, 0, at, left, x);
            }
        }
    }
}
// A thread makes two draws. Neighbours have neighbouring channels of about the same pixels.
DT_KERNEL(dropout_nhwc, dt_dropout_args) {
    DT_THREADS(t) {
        const uint32_t sample = (uint32_t)(DT_BLOCK / a->tiles), n = a->channels * a->draws;
        const float gain = 1.0f / (1.0f - a->p);
        for (int k = 0; k < 2; k++) {
            const uint32_t i = ((uint32_t)(DT_BLOCK % a->tiles) * 2 + k) * DT_BLOCK_DIM + t;
            if (i >= n) continue;
            // begin: a channel's first element in NCHW, which the numbers are counted by
            const uint32_t c = i % a->channels, begin = c * a->pixels;
            const uint32_t quad = begin / 4 + i / a->channels; // the Philox block
            float u[4];
            dt_uniform4(a->step->seed, a->step->slot + sample, a->step->step, a->purpose, a->whole ? 0 : quad, u);
            for (int j = 1; j < 4 && a->whole; j++) u[j] = u[0];
            for (int j = 0; j < 4; j++) {
                const uint32_t pixel = quad * 4 + j - begin; // large: another channel's
                if (pixel >= a->pixels) continue;
                const int64_t at = sample * a->per_sample + (int64_t)pixel * a->channels + c;
                const float x = dt_get(a->x, a->type, at);
                dt_put(a->out, a->type, at, x * (u[j] >= a->p ? gain : 0.0f)); // a drop is 0 times x: NaN stays NaN
            }
        }
    }
}

#endif
