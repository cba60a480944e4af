// reorder_kernels.h: copies between layouts and element types.
//
// DENSE (C planes of P pixels) to NHWC (P pixels of C channels) and back is a transposition of each image. It goes
// through tiles of 32 x 32 in shared memory with a padded row, so that reads and writes are both contiguous. Equal
// types move as bits, so integers pass unchanged. Between equal layouts op_cuda.c uses a flat copy or cast instead.
#ifndef DT_REORDER_KERNELS_H
#define DT_REORDER_KERNELS_H

#include "backend/cuda/kernels/kernel_math.h"

enum { DT_REORDER_TILE = 32, DT_REORDER_THREADS = 256 };

typedef struct dt_reorder_args {
    const void *src;
    void *dst;
    int src_type, dst_type;
    int64_t n;              // images
    int64_t n_rows, n_cols; // of the source image; the destination is (n_cols, n_rows)
} dt_reorder_args;

DT_FN uint32_t dt_reorder_load(const dt_reorder_args *a, int64_t i) {
    if (a->src_type != a->dst_type) return dt_bits_of(dt_get(a->src, a->src_type, i));
    const int size = dt_elem_bytes(a->src_type);
    return size == 4   ? ((const uint32_t *)a->src)[i]
           : size == 2 ? ((const uint16_t *)a->src)[i]
                       : ((const uint8_t *)a->src)[i];
}
DT_FN void dt_reorder_store(const dt_reorder_args *a, int64_t i, uint32_t u) {
    const int size = dt_elem_bytes(a->dst_type);
    if (a->src_type != a->dst_type)
        dt_put(a->dst, a->dst_type, i, dt_of_bits(u));
    else if (size == 4)
        ((uint32_t *)a->dst)[i] = u;
    else if (size == 2)
        ((uint16_t *)a->dst)[i] = (uint16_t)u;
    else
        ((uint8_t *)a->dst)[i] = (uint8_t)u;
}

// One block per tile, of DT_REORDER_THREADS threads.
DT_KERNEL(reorder_planes, dt_reorder_args) {
    DT_SHARED(uint32_t, tile, DT_REORDER_TILE * (DT_REORDER_TILE + 1));
    const int64_t across = (a->n_cols + DT_REORDER_TILE - 1) / DT_REORDER_TILE;
    const int64_t down = (a->n_rows + DT_REORDER_TILE - 1) / DT_REORDER_TILE;
    const int64_t image = DT_BLOCK / (across * down) * a->n_rows * a->n_cols;
    const int64_t row = DT_BLOCK / across % down * DT_REORDER_TILE;
    const int64_t col = DT_BLOCK % across * DT_REORDER_TILE;
    DT_THREADS(t) {
        const int x = t % DT_REORDER_TILE;
        for (int y = t / DT_REORDER_TILE; y < DT_REORDER_TILE; y += DT_BLOCK_DIM / DT_REORDER_TILE)
            if (row + y < a->n_rows && col + x < a->n_cols)
                tile[y * (DT_REORDER_TILE + 1) + x] = dt_reorder_load(a, image + (row + y) * a->n_cols + col + x);
    }
    DT_THREADS(t) {
        const int x = t % DT_REORDER_TILE;
        for (int y = t / DT_REORDER_TILE; y < DT_REORDER_TILE; y += DT_BLOCK_DIM / DT_REORDER_TILE)
            if (col + y < a->n_cols && row + x < a->n_rows)
                dt_reorder_store(a, image + (col + y) * a->n_rows + row + x, tile[x * (DT_REORDER_TILE + 1) + y]);
    }
}

#endif
