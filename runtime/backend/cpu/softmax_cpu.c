// softmax_cpu.c: softmax over the last axis, DENSE, computed in f32. One row is one vector kernel;
// threads take contiguous rows, so bits do not depend on them.
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/simd_rows.h"

enum { PARALLEL_ELEMENTS = 16384 }; // below this a fork costs more than it saves

static dt_status prepare(dt_site *s) {
    const dt_value_info *y = dt_site_out(s, 0);
    s->n_packs = 0;
    s->scratch_bytes = 0;
    if (y->dtype != DT_F32 && y->dtype != DT_BF16) return dt_site_fail(s, "wants f32 or bf16");
    for (int i = 0; i < s->node->n_in; i++) s->in_layout[i] = dt_dense();
    s->out_layout[0] = dt_dense();
    s->inplace_in = s->node->backward ? s->node->n_fwd_in + s->node->n_fwd_out : 0;
    return DT_OK;
}

static void rows_of(const dt_value_info *v, int64_t *rows, int64_t *n) {
    *n = v->shape.d[v->shape.n - 1];
    *rows = dt_shape_elements(&v->shape) / *n;
}

static void run(const dt_site *s, const dt_run *r) {
    const dt_value_info *y = dt_site_out(s, 0);
    const int type = y->dtype == DT_BF16 ? DT_ROW_BF16 : DT_ROW_F32;
    const size_t size = dt_dtype_size(y->dtype);
    int64_t rows, n;
    rows_of(y, &rows, &n);
#pragma omp parallel for num_threads(s->threads)                                                   \
    schedule(static) if (s->threads > 1 && rows * n > PARALLEL_ELEMENTS)
    for (int64_t i = 0; i < rows; i++) {
        const size_t at = (size_t)(i * n) * size;
        dt_simd_rows_get()->softmax[type]((char *)r->out[0] + at, (const char *)r->in[0] + at, n);
    }
}

const dt_kernel dt_cpu_softmax = {prepare, run, NULL};

static void run_bwd(const dt_site *s, const dt_run *r) {
    const dt_value_info *dx = dt_site_out(s, 0);
    const int type = dx->dtype == DT_BF16 ? DT_ROW_BF16 : DT_ROW_F32;
    const size_t size = dt_dtype_size(dx->dtype);
    const char *y = r->in[s->node->n_fwd_in];
    const char *dy = r->in[s->node->n_fwd_in + s->node->n_fwd_out];
    int64_t rows, n;
    rows_of(dx, &rows, &n);
#pragma omp parallel for num_threads(s->threads)                                                   \
    schedule(static) if (s->threads > 1 && rows * n > PARALLEL_ELEMENTS)
    for (int64_t i = 0; i < rows; i++) {
        const size_t at = (size_t)(i * n) * size;
        dt_simd_rows_get()->softmax_bwd[type]((char *)r->out[0] + at, y + at, dy + at, n);
    }
}

static dt_status prepare_bwd(dt_site *s) {
    if (s->node->in[s->node->n_fwd_in] == DT_NONE)
        return dt_site_fail(s, "the gradient reads the output");
    return prepare(s);
}

const dt_kernel dt_cpu_softmax_bwd = {prepare_bwd, run_bwd, NULL};
