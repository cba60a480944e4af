// embedding_kernels.h: rows of a table (V,D) by ids, and the table's gradient. An id outside the table gives zeros and
// no gradient.
//
//   embed_fwd     y[i] = table[ids[i]]
//   embed_bwd     one block per position. If no earlier position has the same id, the block sums the rows of dy of all
//                 positions with that id in order, and adds the sum to the gradient, which the host side cleared unless
//                 it accumulates. No atomics: always the same bits, and when accumulating those of two separate
//                 gradients added
//
// embed_bwd reads all ids once per position and per 1,024 columns. They are few compared with the rows and stay in the
// cache (25,000 ids: 0.6 G comparisons). If one id fills most positions, one block sums it row after row.
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

// One block per position.
DT_KERNEL(embed_fwd, dt_embedding_args) {
    DT_THREADS(t) {
        const int32_t id = a->ids[DT_BLOCK];
        const int there = id >= 0 && id < a->n_rows;
        for (int64_t k = t; k < a->width; k += DT_BLOCK_DIM)
            dt_put(a->out, a->type, DT_BLOCK * a->width + k,
                   there ? a->table[id * a->width + k] : 0.0f);
    }
}
enum { DT_EMBED_THREADS = 256, DT_EMBED_COLUMNS = 4 }; // of embed_bwd

DT_FN void dt_embed_add_rows(const dt_embedding_args *a, const int *hit, int64_t first_place,
                             int64_t first_col, float sum[DT_EMBED_COLUMNS]) {
    for (int i = 0; i < DT_EMBED_THREADS; i++) {
        if (!hit[i]) continue;
        for (int u = 0; u < DT_EMBED_COLUMNS; u++) {
            const int64_t k = first_col + u * DT_EMBED_THREADS;
            if (k < a->width) sum[u] += dt_get(a->dy, a->type, (first_place + i) * a->width + k);
        }
    }
}
DT_KERNEL(embed_bwd, dt_embedding_args) {
    DT_SHARED(int, hit, DT_EMBED_THREADS);
    DT_SHARED(int, earlier, DT_EMBED_THREADS);
    DT_PRIVATE(float, sum, DT_EMBED_COLUMNS);
    const int32_t id = a->ids[DT_BLOCK];
    DT_THREADS(t) {
        int found = id < 0 || id >= a->n_rows;
        for (int64_t i = t; i < DT_BLOCK && !found; i += DT_BLOCK_DIM) found = a->ids[i] == id;
        earlier[t] = found;
    }
    DT_TREE(t, half, DT_EMBED_THREADS, 1, earlier[t] |= earlier[t + half]);
    const int64_t end = earlier[0] ? 0 : a->width;
    for (int64_t col = 0; col < end; col += DT_EMBED_COLUMNS * DT_EMBED_THREADS) {
        DT_THREADS(t) {
            for (int u = 0; u < DT_EMBED_COLUMNS; u++) DT_MINE(sum, t)[u] = 0.0f;
        }
        for (int64_t base = DT_BLOCK; base < a->n_ids; base += DT_EMBED_THREADS) {
            DT_THREADS(t) {
                hit[t] = base + t < a->n_ids && a->ids[base + t] == id;
            }
            DT_THREADS(t) {
                dt_embed_add_rows(a, hit, base, col + t, DT_MINE(sum, t));
            }
        }
        DT_THREADS(t) {
            for (int u = 0; u < DT_EMBED_COLUMNS; u++) {
                const int64_t k = col + t + u * DT_EMBED_THREADS;
                if (k < a->width) ((float *)a->out)[id * a->width + k] += DT_MINE(sum, t)[u];
            }
        }
    }
}

#endif
