// slab_cpu.c: arithmetic on parameter and gradient slabs (see backend.h), one pass each, on the calling
// thread: callers divide the range among theirs. Segments outside the range are skipped by bisection.
#include "backend/cpu/own_kernel.h"

#include <math.h>

void dt_cpu_slab_add(struct dt_backend *b, float *dst, const float *src, int64_t begin,
                     int64_t end) {
    dt_simd_get()->elementwise->add[DT_ROW_F32](dst + begin, dst + begin, src + begin, end - begin);
}

void dt_cpu_slab_sum_squares(struct dt_backend *b, const float *x, int64_t n, double *partial,
                             int64_t begin, int64_t end) {
    const dt_simd_slab *simd = dt_simd_get()->slab;
    for (int64_t c = begin; c < end; c++) {
        int64_t first = c * DT_CHUNK, left = n - first;
        partial[c] = left > 0 ? simd->sum_squares(x + first, left < DT_CHUNK ? left : DT_CHUNK) : 0;
    }
}

static void optimize_run(const dt_optimizer_args *a, const dt_segment *g, int64_t at, int64_t n) {
    const dt_simd_slab *simd = dt_simd_get()->slab;
    float lr = a->lr * g->lr_scale;
    if (a->kind == DT_OPTIMIZER_ADAMW) {
        double c1 = 1 - pow(a->beta1, (double)a->t), c2 = 1 - pow(a->beta2, (double)a->t);
        dt_adamw_consts k = {a->grad_scale,
                             (float)(1 - (double)lr * g->decay),
                             a->beta1,
                             a->beta2,
                             (float)(lr / c1),
                             (float)(1 / sqrt(c2)),
                             a->eps};
        simd->adamw(a->master + at, a->moment1 + at, a->moment2 + at, a->grad + at, n, &k);
    } else {
        dt_sgd_consts k = {a->grad_scale, g->decay, lr, a->momentum, a->t <= 1, a->nesterov};
        simd->sgd(a->master + at, a->momentum != 0 ? a->moment1 + at : NULL, a->grad + at, n, &k);
    }
}

// The first segment that ends behind `at`.
static int first_segment(const dt_optimizer_args *a, int64_t at) {
    int low = 0, high = a->n_segments;
    while (low < high) {
        int mid = (low + high) / 2;
        if (a->segments[mid].offset + a->segments[mid].length > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

void dt_cpu_slab_optimize(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin,
                          int64_t end) {
    for (int i = first_segment(a, begin); i < a->n_segments; i++) {
        const dt_segment *g = &a->segments[i];
        int64_t from = g->offset > begin ? g->offset : begin;
        int64_t to = g->offset + g->length < end ? g->offset + g->length : end;
        if (g->offset >= end) break;
        if (!g->frozen && from < to) optimize_run(a, g, from, to - from);
    }
}
