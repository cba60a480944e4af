// custom_kernel.c: see custom_kernel.h.
#include "backend/cpu/custom_kernel.h"

#include "base/arena.h"

#include <string.h>

enum { RANGE_ALIGN = 64, RANGE_MIN = 16384 }; // elements; below RANGE_MIN a fork costs more than it saves

void *dt_custom_prepare(dt_kernel_instance *s, size_t n_state_bytes) {
    for (int i = 0; i < s->node->n_in; i++) s->in_layout[i] = dt_dense();
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = dt_dense();
    s->scratch_bytes = 0;
    s->inplace_in = -1;
    s->n_packs = 0;
    s->state = n_state_bytes ? dt_xcalloc(1, n_state_bytes) : NULL;
    return s->state;
}

void dt_custom_destroy(dt_kernel_instance *s) {
    free(s->state);
    s->state = NULL;
}

dt_status dt_custom_type(dt_kernel_instance *s, int *type, const dt_value_info *const *infos, int n) {
    *type = -1;
    for (int i = 0; i < n; i++) {
        if (!infos[i]) continue;
        int t = dt_row_type(infos[i]->dtype);
        if (t < 0)
            return dt_custom_fail(s, "element type %s is not supported on the CPU (f32 and bf16 are)",
                                  dt_dtype_name(infos[i]->dtype));
        if (*type >= 0 && t != *type)
            return dt_custom_fail(s, "mixes f32 and bf16 (%s is %s): insert a cast", infos[i]->name,
                                  dt_dtype_name(infos[i]->dtype));
        *type = t;
    }
    return DT_OK;
}

dt_layout dt_custom_blocked(void) {
    return dt_blocked(dt_simd_get()->width);
}

void dt_custom_ranges(int threads, int64_t n, dt_range_fn fn, const void *ctx) {
    int64_t parts = n / RANGE_MIN < threads ? n / RANGE_MIN : threads;
    if (parts <= 1) {
        fn(ctx, 0, n);
        return;
    }
    int64_t step = (int64_t)dt_align_up((size_t)((n + parts - 1) / parts), RANGE_ALIGN);
#pragma omp parallel for num_threads((int)parts) schedule(static, 1)
    for (int64_t p = 0; p < parts; p++) {
        int64_t begin = p * step < n ? p * step : n, end = begin + step < n ? begin + step : n;
        if (begin < end) fn(ctx, begin, end);
    }
}

static void map_range(const void *ctx, int64_t begin, int64_t end) {
    const dt_map *m = ctx;
    void *y = dt_row_at_mut(m->type, m->y, begin);
    const void *x = dt_row_at(m->type, m->x, begin);
    if (m->binary)
        m->binary(y, x, dt_row_at(m->type, m->d, begin), m->number, end - begin);
    else
        m->unary(y, x, m->number, end - begin);
}

void dt_custom_map(int threads, int64_t n, const dt_map *m) {
    dt_custom_ranges(threads, n, map_range, m);
}

typedef struct copy_call {
    char *to;
    const char *from;
    int64_t size;
} copy_call;

static void copy_range(const void *ctx, int64_t begin, int64_t end) {
    const copy_call *c = ctx;
    memcpy(c->to + begin * c->size, c->from + begin * c->size, (size_t)((end - begin) * c->size));
}

void dt_custom_copy_residual(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *y = dt_instance_out(s, 0);
    const copy_call c = {r->out[0], r->in[3], (int64_t)dt_dtype_size(y->dtype)};
    if (r->in[3] == r->out[0]) return;
    dt_custom_ranges(s->threads, dt_layout_elements(s->out_layout[0], &y->shape), copy_range, &c);
}

void dt_custom_items(int threads, int64_t n, dt_range_fn fn, const void *ctx) {
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1 && n > 1)
    for (int64_t i = 0; i < n; i++) fn(ctx, i, i + 1);
}
