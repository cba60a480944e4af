// matmul_cuda.c: c = alpha op(a) op(b) over leading batch dimensions, by cuBLASLt, DENSE. Transposition is a flag and
// copies nothing. The gradient is two matmul nodes (graph/ops/matmul.c), so there is no backward kernel.
#include "backend/cuda/weights_cuda.h"

static dt_status matmul_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1), *c = dt_instance_out(s, 0);
    const int n = a->shape.n, trans_a = s->node->attrs.matmul.trans_a, trans_b = s->node->attrs.matmul.trans_b;
    const dt_cuda *cuda = dt_cuda_of(s);
    const dt_cuda_plan *plan = NULL;
    int type;
    dt_cuda_prepare(s, 0);
    s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = dt_dense();
    DT_TRY(dt_cuda_type(s, &type, a, b, c));
    dt_gemm_desc d = {.m = c->shape.d[n - 2],
                      .n = c->shape.d[n - 1],
                      .k = a->shape.d[trans_a ? n - 2 : n - 1],
                      .lda = a->shape.d[n - 1],
                      .ldb = b->shape.d[n - 1],
                      .ldd = c->shape.d[n - 1],
                      .batch = 1,
                      .trans_a = trans_a,
                      .trans_b = trans_b,
                      .type = a->dtype,
                      .out_type = c->dtype,
                      .bias_type = c->dtype,
                      .alpha = s->node->attrs.matmul.alpha,
                      .tf32 = cuda->tf32,
                      .deterministic = cuda->deterministic};
    for (int i = 0; i < n - 2; i++) d.batch *= a->shape.d[i];
    d.stride_a = a->shape.d[n - 2] * a->shape.d[n - 1];
    d.stride_b = b->shape.d[n - 2] * b->shape.d[n - 1];
    d.stride_d = d.m * d.n;
    DT_TRY(dt_cuda_kept(s, dt_cuda_plan_gemm(cuda->plans, &d, &plan)));
    if (!plan) return dt_cuda_fail(s, "cuBLASLt has no matmul for it");
    dt_cuda_destroy(s);
    s->state = (void *)plan; // the table's
    s->scratch_bytes = dt_cuda_align(plan->workspace_bytes);
    return DT_OK;
}

static void matmul_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    dt_cuda_run_gemm(s, s->state, r->in[0], r->in[1], r->out[0], false, NULL, NULL, r);
}

const dt_kernel dt_cuda_matmul = {matmul_cuda_prepare, matmul_cuda_run, NULL};
