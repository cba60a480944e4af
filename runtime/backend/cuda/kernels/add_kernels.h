// add_kernels.h: y = a + b. b has a's shape (elementwise, any layout, in place), or it is a's last dimensions and is
// repeated over the first: a matrix (outer, inner) plus a row. The backward pass of the latter sums dy's rows. For
// each column a thread adds in row order, then a tree adds over the block's row lanes. If a column's rows were divided
// among blocks, their sums are added in order.
//
// Moves: same shape 3nE; a row 2nE; sums nE and, divided into c chunks, 8c more bytes for each column.
#ifndef DT_ADD_KERNELS_H
#define DT_ADD_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

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
    for (int k = 0; k < 8; k++) b[k] = k < s->left ? dt_get(a->row, a->row_type, s->col + k) : 0.0f;
    for (int64_t r = s->row; r < s->end; r += 2 * s->step) {
        const int64_t i = r * a->c.cols + s->col, j = i + s->step * a->c.cols;
        const int two = r + s->step < s->end;
        const dt_raw8 x0 = dt_fetch8_row(a->x, T, V, i, s->left);
        const dt_raw8 x1 = two ? dt_fetch8_row(a->x, T, V, j, s->left) : x0;
        float x[8];
        dt_unpack8_row(T, V, &x0, x);
        for (int k = 0; k < 8; k++) x[k] += b[k];
        dt_put8_row(a->out, T, V, i, s->left, x);
        if (!two) continue;
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
    if (a->accumulate) value += ((const float *)a->out)[col];
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
        if (col < a->c.cols)
            for (int64_t i = t / 32; i < a->c.n_chunks; i += 32) sum += a->partial[i * a->c.padded + col];
        sums[t] = sum;
    }
    DT_TREE(t, half, 32, 32, sums[t] += sums[t + half * 32]);
    DT_THREADS(t) {
        const int64_t col = DT_BLOCK * 32 + t;
        if (t < 32 && col < a->c.cols) dt_sum_rows_store(a, col, sums[t]);
    }
}

#endif
