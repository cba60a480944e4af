// expand_kernels.h: sums over dimensions (graph/ops/expand.c); expand itself is a permute whose steps may be 0. `group`
// threads, a power of two, sum one element of the result in f32, each every group-th, then as a tree.
//
// Moves (E bytes per element, n elements): nE read.
#ifndef DT_EXPAND_KERNELS_H
#define DT_EXPAND_KERNELS_H

#include "backend/cuda/kernels/block_math.h"

typedef struct dt_places {
    int n;
    int64_t size[DT_MAX_DIMS], step[DT_MAX_DIMS]; // elements of x
    int64_t count;
} dt_places;
typedef struct dt_sum_args {
    const void *x;
    void *out;
    dt_places kept, summed;
    int group, type;
} dt_sum_args;

DT_FN int64_t dt_place_of(const dt_places *p, int64_t i) {
    int64_t at = 0;
    for (int d = p->n - 1; d >= 0; d--) {
        at += i % p->size[d] * p->step[d];
        i /= p->size[d];
    }
    return at;
}
DT_KERNEL(sum_dims, dt_sum_args) {
    DT_SHARED(float, sum, 256);
    const int64_t first = DT_BLOCK * (256 / a->group);
    DT_THREADS(t) {
        const int64_t o = first + t / a->group;
        float s = 0.0f;
        if (o < a->kept.count) {
            const int64_t from = dt_place_of(&a->kept, o);
            for (int64_t i = t % a->group; i < a->summed.count; i += a->group)
                s += dt_get(a->x, a->type, from + dt_place_of(&a->summed, i));
        }
        sum[t] = s;
    }
    DT_TREE(t, HALF, a->group, 1, sum[t] += sum[t + HALF]);
    DT_THREADS(t) {
        const int64_t o = first + t / a->group;
        if (t % a->group == 0 && o < a->kept.count) dt_put(a->out, a->type, o, sum[t]);
    }
}

#endif
