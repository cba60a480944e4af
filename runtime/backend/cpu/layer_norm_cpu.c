// layer_norm_cpu.c: layer norm over the last dimension, DENSE, with statistics in f32. Fused additions (see
// graph/ops/layer_norm.c) are done row by row, before the norm and after its gradient.
//
// The forward node's outputs are y and, for the backward node, the rows' mean and 1/std (either may be absent
// in inference). Threads take consecutive rows. Each thread sums the gradients of scale and shift over its rows
// in scratch; these sums are then added in the order of the threads.
//
// Scratch of backward: [thread][ dscale | dshift ], rows of `stride` floats
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_weights.h"
#include "backend/cpu/simd_rows.h"
#include "base/arena.h"

#include <string.h>

enum { LAYER_NORM_CPU_PARALLEL_ELEMENTS = 16384 };

static int64_t layer_norm_cpu_row_length(const dt_value_info *v) {
    return v->shape.d[v->shape.n - 1];
}

static dt_status layer_norm_cpu_prepare(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    const dt_value_info *x = dt_instance_in(s, 0);
    dt_custom_prepare(s, 0);
    s->inplace_in = n->backward ? dt_pos_grad(s, 0) : n->n_in > 3 ? 3 : 0;
    if (x->dtype != DT_F32 && x->dtype != DT_BF16) return dt_instance_fail(s, "wants f32 or bf16");
    const size_t sums_bytes = dt_align_up((size_t)layer_norm_cpu_row_length(x) * sizeof(float), 64);
    if (n->backward) s->scratch_bytes = (size_t)s->threads * 2 * sums_bytes;
    return DT_OK;
}

static void layer_norm_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const int type = dt_row_type(x->dtype);
    const int64_t n = layer_norm_cpu_row_length(x), rows = dt_shape_elements(&x->shape) / n;
    const size_t row_bytes = (size_t)n * dt_dtype_size(x->dtype);
    float *mean = r->out[1], *rstd = r->out[2];
    const char *residual = s->node->n_in > 3 ? r->in[3] : NULL;
    char *sum = residual ? r->out[3] : NULL;
#pragma omp parallel for num_threads(s->threads)                                                                       \
    schedule(static) if (s->threads > 1 && rows * n > LAYER_NORM_CPU_PARALLEL_ELEMENTS)
    for (int64_t i = 0; i < rows; i++) {
        const size_t at = (size_t)i * row_bytes;
        const char *x_row = (const char *)r->in[0] + at;
        if (residual) {
            dt_simd_get()->elementwise->add[type](sum + at, x_row, residual + at, n);
            x_row = sum + at;
        }
        dt_norm_row row = {.n = n,
                           .x = x_row,
                           .y = (char *)r->out[0] + at,
                           .scale = r->in[1],
                           .shift = r->in[2],
                           .eps = s->node->attrs.layer_norm.eps};
        dt_simd_get()->rows->norm[type](&row);
        if (mean) mean[i] = row.mean;
        if (rstd) rstd[i] = row.rstd;
    }
}

const dt_kernel dt_cpu_layer_norm = {layer_norm_cpu_prepare, layer_norm_cpu_run, NULL};

static dt_status layer_norm_cpu_prepare_bwd(dt_kernel_instance *s) {
    const int stats = s->node->n_fwd_in + 1;
    if (s->node->in[0] == DT_NONE || s->node->in[1] == DT_NONE || s->node->in[stats] == DT_NONE ||
        s->node->in[stats + 1] == DT_NONE) {
        return dt_instance_fail(s, "the gradient reads x, scale, mean and 1/std");
    }
    return layer_norm_cpu_prepare(s);
}

// Rows [begin, end) into the thread's own sums.
static void rows_bwd(const dt_kernel_instance *s, const dt_run *r, int64_t begin, int64_t end, float *dscale,
                     float *dshift) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const int type = dt_row_type(x->dtype), first = s->node->n_fwd_in;
    const int64_t n = layer_norm_cpu_row_length(x);
    const size_t row_bytes = (size_t)n * dt_dtype_size(x->dtype);
    const float *mean = r->in[first + 1], *rstd = r->in[first + 2];
    const int behind = first + 2 * s->node->n_fwd_out;
    const char *dy = r->in[first + s->node->n_fwd_out];
    const char *other = s->node->n_in > behind ? r->in[behind] : NULL;
    memset(dscale, 0, (size_t)n * sizeof(float));
    memset(dshift, 0, (size_t)n * sizeof(float));
    for (int64_t i = begin; i < end; i++) {
        const size_t at = (size_t)i * row_bytes;
        dt_norm_row row = {.n = n,
                           .x = (const char *)r->in[0] + at,
                           .dy = dy + at,
                           .y = r->out[0] ? (char *)r->out[0] + at : NULL,
                           .scale = r->in[1],
                           .mean = mean[i],
                           .rstd = rstd[i],
                           .dscale = dscale,
                           .dshift = dshift};
        dt_simd_get()->rows->norm_bwd[type](&row);
        if (other) dt_simd_get()->elementwise->add[type](row.y, row.y, other + at, n);
    }
}

static void layer_norm_cpu_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const int64_t n = layer_norm_cpu_row_length(x), rows = dt_shape_elements(&x->shape) / n;
    const size_t stride = dt_align_up((size_t)n * sizeof(float), 64) / sizeof(float);
    float *sums = r->scratch;
#pragma omp parallel for num_threads(s->threads)                                                                       \
    schedule(static) if (s->threads > 1 && rows * n > LAYER_NORM_CPU_PARALLEL_ELEMENTS)
    for (int t = 0; t < s->threads; t++) {
        int64_t begin, end;
        dt_cpu_share(rows, 1, t, s->threads, &begin, &end);
        float *mine = sums + (size_t)t * 2 * stride;
        rows_bwd(s, r, begin, end, mine, mine + stride);
    }
    for (int t = 1; t < s->threads; t++) {
        for (size_t i = 0; i < 2 * stride; i++) sums[i] += sums[(size_t)t * 2 * stride + i];
    }
    for (int i = 0; i < 2; i++) {
        if (r->out[1 + i]) {
            dt_cpu_store_sum(r->out[1 + i], sums + (size_t)i * stride, n, r->accumulate >> (1 + i) & 1);
        }
    }
}

const dt_kernel dt_cpu_layer_norm_bwd = {layer_norm_cpu_prepare_bwd, layer_norm_cpu_run_bwd, NULL};
