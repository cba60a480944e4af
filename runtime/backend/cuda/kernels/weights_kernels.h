// weights_kernels.h: parameters on their way between dense f32 flat buffers and what convolutions and matmuls read and
// write: packed copies (KRSC, low precision, a batch norm folded in), weight gradients back into the flat buffer, and
// sums over rows for bias gradients.
//
// A weight is (n_out, n_in, n_taps) in the flat buffer (KCRS; a linear layer has one tap) and (n_out, n_taps, n_in)
// packed.
#ifndef DT_WEIGHTS_KERNELS_H
#define DT_WEIGHTS_KERNELS_H

#include "backend/cuda/kernels/elementwise_kernels.h"

// Where an element of the weight of a convolution that is folded by its stride (cuda_desc.c) lies: n_taps and n_in are the
// folded ones, this has the weight's own. stride 0: nothing is folded.
typedef struct dt_tap_fold {
    int stride, n_in, rows, cols, taps_across; // rows, cols: taps of the weight's own kernel
} dt_tap_fold;
// The weight's channel and tap, as c * rows * cols + tap, that folded tap and channel are; -1: padding.
DT_FN int64_t dt_tap_unfold(const dt_tap_fold *f, int tap, int channel) {
    const int c = channel % f->n_in, at = channel / f->n_in;
    const int y = tap / f->taps_across * f->stride + at / f->stride; // row of the weight's own kernel
    const int x = tap % f->taps_across * f->stride + at % f->stride;
    if (at >= f->stride * f->stride || y >= f->rows || x >= f->cols) return -1; // the folded kernel sticks out
    return ((int64_t)c * f->rows + y) * f->cols + x;
}

typedef struct dt_pack_args {
    const float *x, *scale, *shift, *mean, *var; // x: weight or bias; scale NULL: nothing is folded
    void *out;
    int64_t n_out, n_in, n_taps;
    dt_tap_fold fold;
    float eps; // of the batch norm
    int type;
} dt_pack_args;

// Element (k, tap, c) of the packed copy.
DT_FN float dt_pack_one(const dt_pack_args *a, int64_t k, int64_t tap, int64_t c) {
    int64_t from = (k * a->n_in + c) * a->n_taps + tap; // dense order: channel before tap
    if (a->fold.stride) {
        from = dt_tap_unfold(&a->fold, (int)tap, (int)c);
        if (from < 0) return 0.0f;
        from += k * a->fold.n_in * a->fold.rows * a->fold.cols;
    }
    // gain of the folded batch norm
    return a->scale ? a->x[from] * (a->scale[k] / sqrtf(a->var[k] + a->eps)) : a->x[from];
}

DT_KERNEL(pack_weight, dt_pack_args) {
    DT_THREADS(t) {
        const int64_t n = a->n_out * a->n_in * a->n_taps, per_out = a->n_in * a->n_taps; // elements of the packed copy
        for (int64_t i = (DT_BLOCK * DT_BLOCK_DIM + t) * 8; i < n; i += DT_GRID * DT_BLOCK_DIM * 8) {
            // packed order: tap before channel
            int64_t k = i / per_out, tap = i % per_out / a->n_in, c = i % a->n_in;
            float x[8];
            for (int j = 0; j < 8; j++) {
                x[j] = i + j < n ? dt_pack_one(a, k, tap, c) : 0.0f;
                if (++c < a->n_in) continue;
                c = 0;
                if (++tap < a->n_taps) continue;
                tap = 0;
                k++;
            }
            dt_put8_part(a->out, a->type, i, n, x);
        }
    }
}

// x NULL: there is no bias.
DT_KERNEL(pack_bias, dt_pack_args) {
    DT_THREADS(t) {
        for (int64_t k = DT_BLOCK * DT_BLOCK_DIM + t; k < a->n_out; k += DT_GRID * DT_BLOCK_DIM) {
            float x = a->x ? a->x[k] : 0.0f; // no bias: a folded batch norm still has a shift
            if (a->scale) x = (x - a->mean[k]) * (a->scale[k] / sqrtf(a->var[k] + a->eps)) + a->shift[k];
            dt_put(a->out, a->type, k, x);
        }
    }
}

typedef struct dt_weight_grad_args {
    const void *packed;
    float *flat;
    int64_t n_out, n_in, n_taps; // fewer than 2^31 elements
    dt_quot by_out, by_taps;     // n_in n_taps, n_taps
    dt_tap_fold fold;
    int type, add;
} dt_weight_grad_args;

// A folded gradient has an element for each of the weight, and others, which are padding.
DT_FN void dt_weight_grad_store(const dt_weight_grad_args *a, int64_t to, int64_t from) {
    const float x = dt_get(a->packed, a->type, from); // 16-bit gradients become f32
    a->flat[to] = a->add ? a->flat[to] + x : x;       // micro-batches add up
}

DT_KERNEL(weight_grad, dt_weight_grad_args) {
    DT_THREADS(t) {
        const int64_t n = a->n_out * a->n_in * a->n_taps, per_out = a->n_in * a->n_taps;
        for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < n; i += DT_GRID * DT_BLOCK_DIM) {
            const int64_t k = dt_div(a->by_out, i), in_k = i - k * per_out;
            // i counts the dense gradient
            if (!a->fold.stride) {
                const int64_t c = dt_div(a->by_taps, in_k), tap = in_k - c * a->n_taps;
                dt_weight_grad_store(a, i, k * per_out + tap * a->n_in + c);
            } else { // i counts what is packed
                const int64_t tap = in_k / a->n_in, c = in_k % a->n_in;
                const int64_t to = dt_tap_unfold(&a->fold, (int)tap, (int)c); // padding has no gradient
                if (to >= 0) dt_weight_grad_store(a, k * a->fold.n_in * a->fold.rows * a->fold.cols + to, i);
            }
        }
    }
}

// out[c] (+)= sum over rows of x[r][c]. Each block first sums a range of rows for 64 columns, eight a thread, into
// partial; then the ranges are added in order. The tree depends on shapes alone.
enum { DT_COLUMNS = 64, DT_COLUMN_LANES = 8, DT_COLUMN_THREADS = DT_COLUMNS / 8 * DT_COLUMN_LANES };

typedef struct dt_column_sum_args {
    const void *x;
    float *partial, *out; // (n_runs, n_cols)
    int64_t n_rows, n_cols, rows_a_run, n_runs;
    int type, add;
} dt_column_sum_args;

// Every DT_COLUMN_LANES-th of rows [r, end), eight columns from c on.
DT_FN void dt_column_sum_thread(const dt_column_sum_args *a, int64_t r, int64_t end, int64_t c, float s[8], int T,
                                int V) {
    DT_UNROLL(4)
    for (; r < end; r += DT_COLUMN_LANES) {
        float x[8];
        dt_get8_row(a->x, T, V, r * a->n_cols + c, a->n_cols - c, x);
        for (int k = 0; k < 8; k++) s[k] += x[k];
    }
}

// One block per range of rows and DT_COLUMNS columns.
DT_KERNEL(column_sum_runs, dt_column_sum_args) {
    DT_SHARED(float, sum, DT_COLUMNS *DT_COLUMN_LANES);
    const int64_t tiles = (a->n_cols + DT_COLUMNS - 1) / DT_COLUMNS;
    const int64_t run = DT_BLOCK / tiles, col = DT_BLOCK % tiles * DT_COLUMNS;
    DT_THREADS(t) {
        const int lane = t / (DT_COLUMNS / 8), at = t % (DT_COLUMNS / 8) * 8;
        const int64_t c = col + at, begin = run * a->rows_a_run;
        int64_t end = begin + a->rows_a_run;
        float s[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        if (end > a->n_rows) end = a->n_rows; // the last range is shorter
        if (c >= a->n_cols) end = begin;
        DT_TYPED_ROWS(T, V, a->type, a->n_cols % 8 == 0, dt_column_sum_thread(a, begin + lane, end, c, s, T, V));
        for (int k = 0; k < 8; k++) sum[lane * DT_COLUMNS + at + k] = s[k];
    }
    DT_THREADS(t) {
        for (int c = t; c < DT_COLUMNS && col + c < a->n_cols; c += DT_COLUMN_THREADS) {
            float s = 0.0f;
            // in order: the sum depends on shapes alone
            for (int lane = 0; lane < DT_COLUMN_LANES; lane++) s += sum[lane * DT_COLUMNS + c];
            a->partial[run * a->n_cols + col + c] = s;
        }
    }
}

DT_KERNEL(column_sum, dt_column_sum_args) {
    DT_THREADS(t) {
        for (int64_t c = DT_BLOCK * DT_BLOCK_DIM + t; c < a->n_cols; c += DT_GRID * DT_BLOCK_DIM) {
            float s = 0.0f;
            for (int64_t run = 0; run < a->n_runs; run++) s += a->partial[run * a->n_cols + c];
            a->out[c] = a->add ? a->out[c] + s : s; // micro-batches add up
        }
    }
}

// x = gelu(x + bias) over rows, in place: the exact GELU, which cuBLASLt's epilogue lacks.
typedef struct dt_bias_gelu_args {
    void *x;
    const void *bias; // NULL: none
    int64_t n, n_cols;
    int type, bias_type;
} dt_bias_gelu_args;

DT_FN void dt_bias_gelu_thread(const dt_bias_gelu_args *a, int64_t first, int64_t step, int T, int V) {
    for (int64_t i = first; i < a->n; i += step) {
        const int64_t c = i % a->n_cols; // V: of all eight, which lie in one row
        float x[8], b[8];
        dt_get8_part(a->x, T, i, a->n, 0.0f, x);
        if (V && a->bias) dt_get8(a->bias, a->bias_type, c, b);
        for (int k = 0; k < 8; k++) {
            if (!V && a->bias) b[k] = dt_get(a->bias, a->bias_type, (c + k) % a->n_cols);
            if (a->bias) x[k] += b[k]; // bias and GELU in f32, one rounding at the end
            x[k] = dt_gelu(T, x[k]);
        }
        dt_put8_part(a->x, T, i, a->n, x);
    }
}

DT_KERNEL(bias_gelu, dt_bias_gelu_args) {
    DT_THREADS(t) {
        DT_TYPED_ROWS(T, V, a->type, a->n_cols % 8 == 0,
                      dt_bias_gelu_thread(a, (DT_BLOCK * DT_BLOCK_DIM + t) * 8, DT_GRID * DT_BLOCK_DIM * 8, T, V));
    }
}

#endif
