// custom_cuda.h: what host sides of custom kernels share: how matrices are divided among blocks (see
// kernels/block_math.h), elementwise ops, copies. Sizes follow from shapes alone, not from the device, so that partial
// sums have the same bits everywhere.
#ifndef DT_BACKEND_CUDA_CUSTOM_H
#define DT_BACKEND_CUDA_CUSTOM_H

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels/block_math.h"

// Columns in groups of 8, for blocks of 256 threads. About `blocks` blocks, each with at least `thread_rows` rows per
// thread if there are enough.
static inline dt_cols dt_cols_make(int64_t rows, int64_t cols, int64_t blocks, int64_t thread_rows) {
    dt_cols c = {.rows = rows, .cols = cols, .whole = cols % 8 == 0};
    const int64_t groups = (cols + 7) / 8;
    while (c.tx_log2 < 5 && 1 << c.tx_log2 < groups) c.tx_log2++;
    c.tiles = (int)((groups + (1 << c.tx_log2) - 1) >> c.tx_log2);
    c.padded = (int64_t)c.tiles * 8 << c.tx_log2;
    const int64_t rows_at_once = 256 >> c.tx_log2, least = rows_at_once * thread_rows;
    int64_t chunks = blocks / c.tiles;
    if (chunks > rows / least) chunks = rows / least;
    if (chunks < 1) chunks = 1;
    c.chunk_rows = (rows + chunks - 1) / chunks;
    c.chunk_rows = (c.chunk_rows + rows_at_once - 1) / rows_at_once * rows_at_once;
    if (c.chunk_rows < 1) c.chunk_rows = 1;
    c.n_chunks = rows > 0 ? (rows + c.chunk_rows - 1) / c.chunk_rows : 1;
    return c;
}
static inline dt_cuda_grid dt_cols_grid(const dt_cols *c) {
    return (dt_cuda_grid){.blocks = c->n_chunks * c->tiles, .threads = 256};
}

// For elementwise passes: each thread takes up to `most` rows, or fewer to keep the device busy.
static inline dt_cols dt_cols_flow(int64_t rows, int64_t cols, int64_t most) {
    dt_cols c = dt_cols_make(rows, cols, INT64_MAX / 2, 1);
    const int64_t rows_at_once = 256 >> c.tx_log2, units = (rows + rows_at_once - 1) / rows_at_once * c.tiles;
    int64_t each = units / 1024;
    each = each < 1 ? 1 : each > most ? most : each;
    c.chunk_rows = rows_at_once * each;
    c.n_chunks = rows > 0 ? (rows + c.chunk_rows - 1) / c.chunk_rows : 1;
    return c;
}

// The same for passes over the pixels of an image that is written, (N,C,H,W) in NHWC; down and across: its height and width.
static inline dt_status dt_cuda_over_pixels(dt_kernel_instance *s, const dt_shape *image, dt_cols *c, dt_quot *down,
                                            dt_quot *across) {
    const int64_t pixels = image->d[0] * image->d[2] * image->d[3];
    if (pixels >= INT32_MAX) return dt_cuda_fail(s, "more than 2^31 pixels");
    *c = dt_cols_flow(pixels, image->d[1], 4);
    *down = dt_quot_of(image->d[2]), *across = dt_quot_of(image->d[3]);
    return DT_OK;
}

// Rows of n elements, in blocks of 256 threads: about 8 elements per thread and iteration.
static inline dt_rows dt_rows_make(int64_t rows, int64_t n) {
    dt_rows r = {.rows = rows, .n = n, .group = 8, .whole = n % 8 == 0};
    while (r.group < 256 && r.group * 32 < n) r.group *= 2;
    return r;
}
static inline dt_cuda_grid dt_rows_grid(const dt_rows *r) {
    const int64_t a_block = 256 / r->group, blocks = (r->rows + a_block - 1) / a_block;
    return (dt_cuda_grid){.blocks = blocks > 0 ? blocks : 1, .threads = 256};
}

// ---- copies (shape_cuda.c) --------------------------------------------------------------------------
void dt_cuda_copy(dt_cuda *c, void *out, const void *x, int64_t n_bytes, void *stream);
// In elementwise_cuda.c: converts n elements to another type.
void dt_cuda_convert(dt_cuda *c, void *out, dt_dtype to, const void *x, dt_dtype from, int64_t n, void *stream);

#endif
