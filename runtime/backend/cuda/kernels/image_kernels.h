// image_kernels.h: device kernels of pooling and resizing.
#ifndef DT_BACKEND_CUDA_KERNELS_IMAGE_KERNELS_H
#define DT_BACKEND_CUDA_KERNELS_IMAGE_KERNELS_H

#include "backend/cuda/kernels/block_math.h"
#include "graph/resize_taps.h"

// ---- pool ---------------------------------------------------------------------------------------------------------

// Max and average pooling over NHWC with any window, and global mean pooling (N,P,C) <-> (N,C). A
// thread takes eight channels of a pixel: of the pooled image forward, of the large one backward. There it gathers
// from the windows that contain the pixel (no atomics, f32 sums in window order).
//
// Moves, large image n elements, pooled image m: max forward nE read, mE + m written; backward mE + m read, nE
// written; average the same without the m bytes of argmax. Overlapping windows are served by the cache. Global: nE and
// little else.

typedef struct dt_pool_args {
    dt_cols c;     // rows: pixels of the image that is written; global: pixels of one image
    const void *x; // NHWC
    void *out;
    uint8_t *argmax; // forward; may be NULL
    const uint8_t *argmax_in;
    int type, max, count_padding;
    int squares;                            // backward: a thread takes 2 x 2 pixels; c, across and down count these
    int64_t big_h, big_w, small_h, small_w; // in pixels
    int kernel[2], stride[2], pad[2], pad_end[2]; // height, width
    dt_quot across, down;                         // of the image that is written
} dt_pool_args;

// division by launch constants instead of 64-bit division
DT_FN void dt_pool_place(const dt_pool_args *a, int64_t pixel, int64_t *image, int *row, int *col) {
    const int64_t line = dt_div(a->across, pixel);
    *image = dt_div(a->down, line);
    *col = (int)(pixel - line * a->across.d);
    *row = (int)(line - *image * a->down.d);
}
DT_FN int dt_least(int a, int b) {
    return a < b ? a : b; // pixel = (image * height + row) * width + col
}
DT_FN int dt_most(int a, int b) {
    return a > b ? a : b;
}

// The number of elements that an average divides by. If padding counts, the window is clipped to the padded image, as
// in PyTorch.
DT_FN float dt_pool_divisor(const dt_pool_args *a, int top, int left) {
    const int h = (int)a->big_h, w = (int)a->big_w;
    int row1 = top + a->kernel[0], col1 = left + a->kernel[1];
    if (a->count_padding) // clipped to the padded image
        return (float)((dt_least(row1, h + a->pad_end[0]) - top) * (dt_least(col1, w + a->pad_end[1]) - left));
    row1 = dt_least(row1, h), col1 = dt_least(col1, w);
    return (float)((row1 - dt_most(top, 0)) * (col1 - dt_most(left, 0))); // clipped to the image
}

DT_FN void dt_pool_fwd_thread(const dt_pool_args *a, const dt_cols_share *s, int T, int V, int M) {
    float x[8], y[8];
    int index[8];
    for (int64_t p = s->row; p < s->end; p += s->step) {
        int64_t image;
        int row, col, first = 1;
        dt_pool_place(a, p, &image, &row, &col);
        // may be negative: in the padding
        const int top = row * a->stride[0] - a->pad[0], left = col * a->stride[1] - a->pad[1];
        const int row1 = dt_least(top + a->kernel[0], (int)a->big_h);
        const int col1 = dt_least(left + a->kernel[1], (int)a->big_w);
        for (int k = 0; k < 8; k++) y[k] = 0.0f, index[k] = 0;
        for (int r = dt_most(top, 0); r < row1; r++) {
            for (int q = dt_most(left, 0); q < col1; q++) {
                const int64_t i = ((image * a->big_h + r) * a->big_w + q) * a->c.cols + s->col;
                dt_get8_row(a->x, T, V, i, s->left, x);
                for (int k = 0; k < 8; k++) {
                    if (M) {
                        // first element wins a tie; NaN wins, as in PyTorch
                        const int more = first || x[k] > y[k] || x[k] != x[k];
                        y[k] = more ? x[k] : y[k];
                        // counted in the whole window, with padding
                        index[k] = more ? (r - top) * a->kernel[1] + q - left : index[k];
                    } else {
                        y[k] += x[k];
                    }
                }
                first = 0;
            }
        }
        const int64_t o = p * a->c.cols + s->col;
        const float share = M ? 1.0f : 1.0f / dt_pool_divisor(a, top, left); // maxima are not divided
        for (int k = 0; k < 8; k++) y[k] *= share;
        dt_put8_row(a->out, T, V, o, s->left, y);
        if (M && a->argmax) dt_put8_bytes(a->argmax + o, V, s->left, index);
    }
}
DT_KERNEL(pool_fwd, dt_pool_args) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);
        if (a->max)
            DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_pool_fwd_thread(a, &s, T, V, 1));
        else
            DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_pool_fwd_thread(a, &s, T, V, 0));
    }
}

// The first and last pooled row (or column) whose window contains `at` of the large image.
// windows r with r stride - pad <= at < r stride - pad + kernel
DT_FN void dt_pool_span(const dt_pool_args *a, int d, int at, int size, int *first, int *last) {
    const int reach = at + a->pad[d] - a->kernel[d];
    *first = reach < 0 ? 0 : reach / a->stride[d] + 1; // ceil((reach + 1) / stride)
    *last = dt_least((at + a->pad[d]) / a->stride[d], size - 1);
}
DT_FN void dt_pool_bwd_thread(const dt_pool_args *a, const dt_cols_share *s, int T, int V, int M) {
    float d[8], sum[8];
    int index[8];
    for (int64_t p = s->row; p < s->end; p += s->step) {
        int64_t image;
        int row, col, r0, r1, q0, q1;
        dt_pool_place(a, p, &image, &row, &col);
        dt_pool_span(a, 0, row, (int)a->small_h, &r0, &r1);
        dt_pool_span(a, 1, col, (int)a->small_w, &q0, &q1);
        for (int k = 0; k < 8; k++) sum[k] = 0.0f;
        for (int r = r0; r <= r1; r++) {
            for (int q = q0; q <= q1; q++) {
                const int top = r * a->stride[0] - a->pad[0], left = q * a->stride[1] - a->pad[1];
                const int64_t i = ((image * a->small_h + r) * a->small_w + q) * a->c.cols + s->col;
                dt_get8_row(a->x, T, V, i, s->left, d);
                if (M) {
                    const int mine = (row - top) * a->kernel[1] + col - left; // offset of this pixel in window (r, q)
                    dt_get8_bytes(a->argmax_in + i, V, s->left, index);
                    // argmax names one pixel of each window
                    for (int k = 0; k < 8; k++) sum[k] += index[k] == mine ? d[k] : 0.0f;
                } else {
                    const float share = 1.0f / dt_pool_divisor(a, top, left);
                    for (int k = 0; k < 8; k++) sum[k] += d[k] * share;
                }
            }
        }
        dt_put8_row(a->out, T, V, p * a->c.cols + s->col, s->left, sum);
    }
}
// A maximum over at most 3 x 3 pixels with strides of 2: at most 2 x 2 windows contain any of a square's pixels.
DT_FN void dt_pool_bwd_square(const dt_pool_args *a, const dt_cols_share *s, int T) {
    for (int64_t p = s->row; p < s->end; p += s->step) {
        dt_raw8 raw[4];
        float d[8], sum[8];
        int in[4], r0, q0, row, col, unused;
        int64_t image;
        uint64_t index[4];
        dt_pool_place(a, p, &image, &row, &col);
        row *= 2, col *= 2;
        dt_pool_span(a, 0, row, (int)a->small_h, &r0, &unused);
        dt_pool_span(a, 1, col, (int)a->small_w, &q0, &unused);
        for (int w = 0; w < 4; w++) {
            const int r = r0 + w / 2, q = q0 + w % 2;
            const int64_t i = ((image * a->small_h + r) * a->small_w + q) * a->c.cols + s->col;
            in[w] = r < a->small_h && q < a->small_w; // the window exists
            if (!in[w]) continue;                     // the unrolled loop: no break
            raw[w] = dt_fetch8(a->x, T, i);
            index[w] = dt_fetch8_bytes(a->argmax_in + i);
        }
        DT_UNROLL()
        for (int o = 0; o < 4; o++) { // one pixel's sums at a time stay in registers
            const int r = row + o / 2, q = col + o % 2;
            if (r >= a->big_h || q >= a->big_w) continue; // an odd size: the square sticks out
            for (int k = 0; k < 8; k++) sum[k] = 0.0f;
            DT_UNROLL()
            for (int w = 0; w < 4; w++) {
                const int y = r - (r0 + w / 2) * 2 + a->pad[0], x = q - (q0 + w % 2) * 2 + a->pad[1]; // in the window
                const int mine = y * a->kernel[1] + x;
                if (!in[w] || y < 0 || y >= a->kernel[0] || x < 0 || x >= a->kernel[1]) continue;
                dt_unpack8(T, &raw[w], d);
                for (int k = 0; k < 8; k++)
                    if ((int)(index[w] >> 8 * k & 255) == mine) sum[k] += d[k]; // byte k: channel k
            }
            dt_put8(a->out, T, ((image * a->big_h + r) * a->big_w + q) * a->c.cols + s->col, sum);
        }
    }
}
DT_KERNEL_BOUND(pool_bwd, dt_pool_args, 256, 3) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);
        if (a->squares)
            DT_TYPED(T, a->type, dt_pool_bwd_square(a, &s, T));
        else if (a->max)
            DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_pool_bwd_thread(a, &s, T, V, 1));
        else
            DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_pool_bwd_thread(a, &s, T, V, 0));
    }
}

// ---- global: a block has a tile of channels of one image; c.rows: its pixels, c.n_chunks: images ----
DT_FN void dt_global_sum(const dt_pool_args *a, const dt_cols_share *s, float sum[8], int T, int V) {
    float x[8];
    for (int k = 0; k < 8; k++) sum[k] = 0.0f;
    if (s->left <= 0) return; // threads beyond the last channel
    for (int64_t p = s->lane; p < a->c.rows; p += 2 * s->step) {
        const int64_t i = (s->chunk * a->c.rows + p) * a->c.cols + s->col;
        const int two = p + s->step < a->c.rows;
        const dt_raw8 x0 = dt_fetch8_row(a->x, T, V, i, s->left);
        // two loads before the first use
        const dt_raw8 x1 = two ? dt_fetch8_row(a->x, T, V, i + s->step * a->c.cols, s->left) : x0;
        dt_unpack8_row(T, V, &x0, x);
        for (int k = 0; k < 8; k++) sum[k] += x[k];
        dt_unpack8_row(T, V, &x1, x);
        for (int k = 0; k < 8 && two; k++) sum[k] += x[k];
    }
}
DT_FN void dt_global_store(const dt_pool_args *a, const dt_cols_share *s, int k, float value) {
    dt_put(a->out, a->type, s->chunk * a->c.cols + s->col + k, value / (float)a->c.rows); // f32 mean, rounded once
}
DT_COLS_SUM_KERNEL(global_pool_fwd, dt_pool_args, dt_global_sum, dt_global_store)
DT_FN void dt_global_fill(const dt_pool_args *a, const dt_cols_share *s, int64_t image, int T, int V) {
    float d[8];
    if (s->left <= 0) return;
    dt_get8_row(a->x, T, V, image * a->c.cols + s->col, s->left, d);
    for (int k = 0; k < 8; k++) d[k] /= (float)a->c.rows; // each pixel's share of the mean
    for (int64_t p = s->lane; p < a->c.rows; p += s->step)
        dt_put8_row(a->out, T, V, (image * a->c.rows + p) * a->c.cols + s->col, s->left, d);
}
DT_KERNEL(global_pool_bwd, dt_pool_args) {
    DT_THREADS(t) {
        const dt_cols_share s = dt_cols_of(&a->c, DT_BLOCK, DT_BLOCK_DIM, t);
        DT_TYPED_ROWS(T, V, a->type, a->c.whole, dt_global_fill(a, &s, s.chunk, T, V));
    }
}

// ---- resize -------------------------------------------------------------------------------------------------------

// The op resize over NHWC. A thread takes eight channels of a pixel: of the result forward, made of two
// pixels of two rows; backward of x, where it gathers from the pixels that may be made of its own (no atomics).
//
// Moves (E bytes per element, x n elements, y m): nE + mE, the rest is served by the cache.

typedef struct dt_resize_args {
    dt_cols c; // rows: pixels of the image that is written
    const void *x;
    void *out;
    int type, mode;
    float step[2];        // source pixels per pixel of y
    int in[2], to[2];     // height and width of x and of y
    dt_quot across, down; // of the image that is written
} dt_resize_args;

DT_FN void dt_resize_place(const dt_resize_args *a, int64_t pixel, int64_t *image, int at[2]) {
    const int64_t line = dt_div(a->across, pixel);
    *image = dt_div(a->down, line);
    at[1] = (int)(pixel - line * a->across.d);
    at[0] = (int)(line - *image * a->down.d);
}
DT_FN void dt_resize_add(const dt_resize_args *a, const dt_cols_share *s, int64_t pixel, float weight, float sum[8],
                         int T, int V) {
    float x[8];
    dt_get8_row(a->x, T, V, pixel * a->c.cols + s->col, s->left, x);
    for (int k = 0; k < 8; k++) sum[k] += weight * x[k];
}
DT_FN float dt_resize_weight(const dt_taps *t, int at) { // both taps of a pixel at the border may be the same
    return (t->at[0] == at ? t->weight[0] : 0.0f) + (t->at[1] == at ? t->weight[1] : 0.0f);
}

DT_FN void dt_resize_fwd_thread(const dt_resize_args *a, const dt_cols_share *s, int T, int V) {
    for (int64_t p = s->row; p < s->end; p += s->step) {
        int64_t image;
        int at[2];
        float sum[8];
        dt_resize_place(a, p, &image, at);
        const dt_taps down = dt_resize_taps(a->mode, a->step[0], at[0], a->in[0]);
        const dt_taps across = dt_resize_taps(a->mode, a->step[1], at[1], a->in[1]);
        for (int k = 0; k < 8; k++) sum[k] = 0.0f;
        for (int k = 0; k < 4; k++) // four pixels: two rows of two columns
            dt_resize_add(a, s, (image * a->in[0] + down.at[k / 2]) * a->in[1] + across.at[k % 2],
                          down.weight[k / 2] * across.weight[k % 2], sum, T, V); // weights are separable
        dt_put8_row(a->out, T, V, p * a->c.cols + s->col, s->left, sum);
    }
}
DT_FN void dt_resize_bwd_thread(const dt_resize_args *a, const dt_cols_share *s, int T, int V) {
    for (int64_t p = s->row; p < s->end; p += s->step) {
        int64_t image;
        int at[2], begin[2], end[2];
        float sum[8];
        dt_resize_place(a, p, &image, at);
        // pixels of y that may read (at)
        for (int d = 0; d < 2; d++) dt_resize_users(a->step[d], at[d], a->in[d], a->to[d], &begin[d], &end[d]);
        for (int k = 0; k < 8; k++) sum[k] = 0.0f;
        for (int r = begin[0]; r < end[0]; r++) {
            const dt_taps down = dt_resize_taps(a->mode, a->step[0], r, a->in[0]);
            const float weight = dt_resize_weight(&down, at[0]);
            for (int q = begin[1]; q < end[1] && weight != 0.0f; q++) { // rows of weight 0 are skipped
                const dt_taps across = dt_resize_taps(a->mode, a->step[1], q, a->in[1]);
                const float w = weight * dt_resize_weight(&across, at[1]);
                // from y's gradient
                if (w != 0.0f) dt_resize_add(a, s, (image * a->to[0] + r) * a->to[1] + q, w, sum, T, V);
            }
        }
        dt_put8_row(a->out, T, V, p * a->c.cols + s->col, s->left, sum);
    }
}
DT_COLS_KERNEL(resize_fwd, dt_resize_args, dt_resize_fwd_thread)
DT_COLS_KERNEL(resize_bwd, dt_resize_args, dt_resize_bwd_thread)

#endif
