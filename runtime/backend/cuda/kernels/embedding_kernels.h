// embedding_kernels.h: rows of a table (V,D) by ids, and the gradient of the table. An id outside the table gives
// zeros and no gradient.
//
//   embed_fwd     y[i] = table[ids[i]]
//   embed_zero    the table's gradient = 0, unless it is added to
//   embed_bwd     a block an id: if no earlier place has the same id, the block adds the rows of dy of all places that
//                 have it, in their order. No atomics, the same bits always.
//
// embed_bwd reads the ids once a place; they are few beside the rows and stay in the cache (25,000 ids: 0.6 G
// comparisons). An id that fills most places is summed by one block, row after row.
// Moves: forward m D (4 + E); backward m D E read, and 4 V D written.
#ifndef DT_EMBEDDING_KERNELS_H
#define DT_EMBEDDING_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

typedef struct dt_embedding_args {
    const int32_t *ids;
    const float *table;
    const void *dy;
    void *out; // y, or the table's gradient (f32)
    int64_t n_ids, n_rows, width;
    int type;
} dt_embedding_args;

// A block a place.
DT_KERNEL(embed_fwd, dt_embedding_args) {
    DT_THREADS(t) {
        const int32_t id = a->ids[DT_BLOCK];
        const int there = id >= 0 && id < a->n_rows;
        for (int64_t k = t; k < a->width; k += DT_BLOCK_DIM)
            dt_put(a->out, a->type, DT_BLOCK * a->width + k,
                   there ? a->table[id * a->width + k] : 0.0f);
    }
}
DT_KERNEL(embed_zero, dt_embedding_args) {
    DT_THREADS(t) {
        const int64_t n = a->n_rows * a->width;
        for (int64_t i = DT_BLOCK * DT_BLOCK_DIM + t; i < n; i += DT_GRID * DT_BLOCK_DIM)
            ((float *)a->out)[i] = 0.0f;
    }
}
DT_KERNEL(embed_bwd, dt_embedding_args) {
    DT_SHARED(int, hit, 256);
    DT_SHARED(int, earlier, 256);
    const int32_t id = a->ids[DT_BLOCK];
    DT_THREADS(t) {
        int found = id < 0 || id >= a->n_rows;
        for (int64_t i = t; i < DT_BLOCK && !found; i += DT_BLOCK_DIM) found = a->ids[i] == id;
        earlier[t] = found;
    }
    DT_TREE(t, half, 256, 1, earlier[t] |= earlier[t + half]);
    if (!earlier[0]) {
        for (int64_t base = DT_BLOCK; base < a->n_ids; base += 256) {
            DT_THREADS(t) {
                hit[t] = base + t < a->n_ids && a->ids[base + t] == id;
            }
            DT_THREADS(t) {
                for (int64_t k = t; k < a->width; k += DT_BLOCK_DIM) {
                    float *to = (float *)a->out + id * a->width + k;
                    float sum = *to;
                    for (int i = 0; i < 256; i++)
                        if (hit[i]) sum += dt_get(a->dy, a->type, (base + i) * a->width + k);
                    *to = sum;
                }
            }
        }
    }
}

#endif
