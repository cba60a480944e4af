// copy_kernels.h: moves elements without computing: concatenation, slices and their gradients, reshapes, permutations.
//
//   join_runs   out is (outer, whole) bytes; part p fills [at, at + run) of each row from rows of `pitch` bytes, or
//               with zeros. Concatenation: one part per input. Slice: one part. Its gradient: zeros, part, zeros.
//   permute     out of up to DT_MAX_DIMS merged dimensions from strides, `run` elements at a time
//   permute_planes   through tiles in shared memory, if the last dimension changes
//
// The host side picks the widest access (16, 4, 2 or 1 bytes) that all lengths, pitches and offsets are multiples of.
// Moves: what is written once; copies twice that.
#ifndef DT_COPY_KERNELS_H
#define DT_COPY_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

enum { DT_JOIN_PARTS = 16, DT_JOIN_EACH = 4, DT_PERMUTE_TILE = 32 };

typedef struct dt_join_part {
    const void *x;          // NULL: zeros
    int64_t run, pitch, at; // in accesses; at: offset in a row of out
    int64_t begin, n;       // first block, accesses
} dt_join_part;
typedef struct dt_join_args {
    void *out;
    int64_t whole; // accesses per row of out
    int unit;      // bytes
    int n_parts;
    dt_join_part part[DT_JOIN_PARTS];
} dt_join_args;

DT_FN dt_vec16 dt_unit_load(const void *p, int unit, int64_t i) {
    dt_vec16 v;
    if (unit == 16) return dt_load16((const unsigned char *)p + 16 * i);
    v.w[0] = unit == 4 ? ((const uint32_t *)p)[i] : unit == 2 ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i];
    v.w[1] = v.w[2] = v.w[3] = 0;
    return v;
}
DT_FN void dt_unit_store(void *p, int unit, int64_t i, dt_vec16 v) {
    if (unit == 16)
        dt_store16((unsigned char *)p + 16 * i, v);
    else if (unit == 4)
        ((uint32_t *)p)[i] = v.w[0];
    else if (unit == 2)
        ((uint16_t *)p)[i] = (uint16_t)v.w[0];
    else
        ((uint8_t *)p)[i] = (uint8_t)v.w[0];
}

DT_FN void dt_join_thread(const dt_join_args *a, const dt_join_part *p, int64_t first, int threads, int P) {
    dt_vec16 v[DT_JOIN_EACH];
    int64_t to[DT_JOIN_EACH];
    for (int u = 0; u < DT_JOIN_EACH; u++) {
        const int64_t i = first + u * threads;
        to[u] = -1;
        if (i >= p->n) continue;
        // 32 bits if they suffice: a 64-bit division is a long loop
        const int64_t row = p->n <= INT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)p->run) : i / p->run;
        const int64_t col = i - row * p->run;
        to[u] = row * a->whole + p->at + col;
        for (int k = 0; k < 4; k++) v[u].w[k] = 0;
        if (p->x) v[u] = dt_unit_load(p->x, P, row * p->pitch + col);
    }
    for (int u = 0; u < DT_JOIN_EACH; u++)
        if (to[u] >= 0) dt_unit_store(a->out, P, to[u], v[u]);
}
DT_KERNEL(join_runs, dt_join_args) {
    DT_THREADS(t) {
        int p = 0;
        while (p + 1 < a->n_parts && DT_BLOCK >= a->part[p + 1].begin) p++;
        const int64_t first = (DT_BLOCK - a->part[p].begin) * DT_BLOCK_DIM * DT_JOIN_EACH + t;
        if (a->unit == 16)
            dt_join_thread(a, &a->part[p], first, DT_BLOCK_DIM, 16);
        else
            dt_join_thread(a, &a->part[p], first, DT_BLOCK_DIM, a->unit);
    }
}

typedef struct dt_permute_args {
    const void *x;
    void *out;
    int n;                     // dimensions of out, merged; the last counts accesses
    int unit;                  // bytes
    int64_t size[DT_MAX_DIMS]; // of out
    int64_t step[DT_MAX_DIMS]; // accesses in x per step along each; the last of permute is 1
    int64_t count;             // accesses of out
} dt_permute_args;

// The place in x of index `i` of out.
DT_FN int64_t dt_permute_from(const dt_permute_args *a, int64_t i) {
    int64_t from = 0;
    for (int d = a->n - 1; d >= 0; d--) {
        const int64_t q = i <= INT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)a->size[d]) : i / a->size[d];
        from += (i - q * a->size[d]) * a->step[d];
        i = q;
    }
    return from;
}
DT_KERNEL(permute, dt_permute_args) {
    DT_THREADS(t) {
        const int64_t first = DT_BLOCK * DT_BLOCK_DIM * DT_JOIN_EACH + t;
        dt_vec16 v[DT_JOIN_EACH];
        for (int u = 0; u < DT_JOIN_EACH; u++) {
            const int64_t i = first + u * DT_BLOCK_DIM;
            if (i < a->count) v[u] = dt_unit_load(a->x, a->unit, dt_permute_from(a, i));
        }
        for (int u = 0; u < DT_JOIN_EACH; u++) {
            const int64_t i = first + u * DT_BLOCK_DIM;
            if (i < a->count) dt_unit_store(a->out, a->unit, i, v[u]);
        }
    }
}

// A block of 256 threads takes a tile of 32 x 32. The last dimension of the arrays is out's last; the one before it is
// x's last (step 1), wherever that lies in out. Accesses of at most 4 bytes.
typedef struct dt_planes_args {
    dt_permute_args p;       // count: not used
    int64_t to[DT_MAX_DIMS]; // accesses in out per step along each; the last is 1
} dt_planes_args;
DT_KERNEL(permute_planes, dt_planes_args) {
    DT_SHARED(uint32_t, tile, DT_PERMUTE_TILE * (DT_PERMUTE_TILE + 1));
    const dt_permute_args *p = &a->p;
    const int64_t rows = p->size[p->n - 2], cols = p->size[p->n - 1];
    const int64_t across = (cols + DT_PERMUTE_TILE - 1) / DT_PERMUTE_TILE;
    const int64_t down = (rows + DT_PERMUTE_TILE - 1) / DT_PERMUTE_TILE;
    const int64_t row = DT_BLOCK / across % down * DT_PERMUTE_TILE;
    const int64_t col = DT_BLOCK % across * DT_PERMUTE_TILE;
    int64_t from = 0, to = 0, plane = DT_BLOCK / (across * down);
    for (int d = p->n - 3; d >= 0; d--) {
        from += plane % p->size[d] * p->step[d];
        to += plane % p->size[d] * a->to[d];
        plane /= p->size[d];
    }
    DT_THREADS(t) {
        const int r = t % DT_PERMUTE_TILE;
        for (int q = t / DT_PERMUTE_TILE; q < DT_PERMUTE_TILE; q += DT_BLOCK_DIM / DT_PERMUTE_TILE)
            if (row + r < rows && col + q < cols)
                tile[q * (DT_PERMUTE_TILE + 1) + r] =
                    dt_unit_load(p->x, p->unit, from + row + r + (col + q) * p->step[p->n - 1]).w[0];
    }
    DT_THREADS(t) {
        const int q = t % DT_PERMUTE_TILE;
        for (int r = t / DT_PERMUTE_TILE; r < DT_PERMUTE_TILE; r += DT_BLOCK_DIM / DT_PERMUTE_TILE) {
            if (row + r >= rows || col + q >= cols) continue;
            dt_vec16 v;
            v.w[0] = tile[q * (DT_PERMUTE_TILE + 1) + r];
            v.w[1] = v.w[2] = v.w[3] = 0;
            dt_unit_store(p->out, p->unit, to + (row + r) * a->to[p->n - 2] + col + q, v);
        }
    }
}

#endif
