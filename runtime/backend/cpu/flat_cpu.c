// flat_cpu.c: arithmetic on flat buffers of parameters and gradients (see backend.h), one pass each. Runs on the
// calling thread; callers divide ranges among threads by whole chunks.
#include "backend/cpu/custom_kernel.h"

#include <math.h>

void dt_cpu_flat_add(struct dt_backend *b, float *dst, const float *src, int64_t begin, int64_t end) {
    dt_simd_get()->elementwise->add[DT_ROW_F32](dst + begin, dst + begin, src + begin, end - begin);
}

void dt_cpu_flat_sum_squares(struct dt_backend *b, const float *x, int64_t n, double *partial, int64_t begin,
                             int64_t end) {
    const dt_simd_flat *simd = dt_simd_get()->flat;
    for (int64_t c = begin; c < end; c++) {
        int64_t first = c * DT_CHUNK, left = n - first;
        partial[c] = left > 0 ? simd->sum_squares(x + first, left < DT_CHUNK ? left : DT_CHUNK) : 0;
    }
}

// The first segment that ends after `at`.
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

bool dt_cpu_flat_optimize(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end) {
    bool finite = true;
    for (int i = first_segment(a, begin); i < a->n_segments; i++) {
        const dt_segment *g = &a->segments[i];
        int64_t from = g->offset > begin ? g->offset : begin;
        int64_t to = g->offset + g->length < end ? g->offset + g->length : end;
        if (g->offset >= end) break;
        if (g->frozen || from >= to) continue;
        const dt_update u = dt_optimizer_segment(a, i);
        finite &= dt_simd_get()->optimizers[a->kind].update(a, from, to - from, &u);
    }
    return finite;
}

void dt_cpu_flat_clip(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end) {
    const dt_simd_flat *simd = dt_simd_get()->flat;
    for (int i = 0; i < a->n_tensors; i++) {
        const dt_clip_tensor *t = &a->tensors[i];
        for (int64_t row = begin > t->first ? begin - t->first : 0; row < t->n && t->first + row < end; row++) {
            const int64_t at = t->offset + row * t->length;
            float *grad = (float *)(uintptr_t)a->grad + at;
            const double weights = simd->sum_squares(a->master + at, t->length);
            const double norm = sqrt(simd->sum_squares(grad, t->length)) * (double)a->grad_scale;
            const double most = (double)a->clip_agc * fmax(sqrt(weights), 1e-3);
            if (!(norm >= most)) continue;
            const float factor = (float)(most / fmax(norm, 1e-6));
            for (int64_t k = 0; k < t->length; k++) grad[k] *= factor;
        }
    }
}

void dt_cpu_flat_norms(struct dt_backend *b, const dt_optimizer_args *a, int64_t begin, int64_t end) {
    double *sums = a->norms;
    for (int i = 0; i < a->n_segments && a->segments[i].offset < end; i++) {
        const dt_segment *g = &a->segments[i];
        int64_t n = dt_segment_chunks(g->offset, g->length, g->scaled);
        if (n == 0) continue;
        const dt_update u = dt_optimizer_segment(a, i);
        for (int64_t at = g->offset; n > 0; n--, sums += 2) {
            int64_t to = (at / DT_CHUNK + 1) * DT_CHUNK;
            if (to > g->offset + g->length) to = g->offset + g->length;
            if (at >= begin && at < end) dt_simd_get()->optimizers[a->kind].measure(a, at, to - at, &u, sums);
            at = to;
        }
    }
}
