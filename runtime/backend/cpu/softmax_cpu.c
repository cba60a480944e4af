// softmax_cpu.c: softmax over the last axis, DENSE, computed in f32. Threads take whole rows, so bits do not
// depend on their number.
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/simd_rows.h"

enum { PARALLEL_ELEMENTS = 16384 }; // below this a fork costs more than it saves

static dt_status softmax_cpu_prepare(dt_kernel_instance *s) {
    const dt_value_info *y = dt_instance_out(s, 0);
    dt_custom_prepare(s, 0);
    if (y->dtype != DT_F32 && y->dtype != DT_BF16) return dt_instance_fail(s, "wants f32 or bf16");
    s->inplace_in = s->node->backward ? dt_pos_grad(s, 0) : 0;
    return DT_OK;
}

static void softmax_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const dt_value_info *out = dt_instance_out(s, 0);
    const int type = dt_row_type(out->dtype);
    const int64_t n = out->shape.d[out->shape.n - 1], rows = dt_shape_elements(&out->shape) / n;
    const bool backward = s->node->backward;
    const void *x = r->in[backward ? dt_pos_out(s, 0) : 0];
    const void *dy = backward ? r->in[dt_pos_grad(s, 0)] : NULL;
#pragma omp parallel for num_threads(s->threads) schedule(static) if (s->threads > 1 && rows * n > PARALLEL_ELEMENTS)
    for (int64_t i = 0; i < rows; i++) {
        void *to = dt_row_at_mut(type, r->out[0], i * n);
        const void *from = dt_row_at(type, x, i * n);
        if (backward)
            dt_simd_get()->rows->softmax_bwd[type](to, from, dt_row_at(type, dy, i * n), n);
        else
            dt_simd_get()->rows->softmax[type](to, from, n);
    }
}

static dt_status softmax_cpu_prepare_bwd(dt_kernel_instance *s) {
    if (s->node->in[dt_pos_out(s, 0)] == DT_NONE) return dt_instance_fail(s, "the gradient reads the output");
    return softmax_cpu_prepare(s);
}

const dt_kernel dt_cpu_softmax = {softmax_cpu_prepare, softmax_cpu_run, NULL};
const dt_kernel dt_cpu_softmax_bwd = {softmax_cpu_prepare_bwd, softmax_cpu_run, NULL};
