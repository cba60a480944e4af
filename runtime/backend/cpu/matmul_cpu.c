// matmul_cpu.c: c = alpha op(a) op(b) over leading batch dimensions, as oneDNN matmuls.
//
// Tensors are seen as (batch, rows, cols). Transposes are strides, so nothing is copied. The gradient is made
// of two matmul nodes (graph/ops/matmul.c), so there is no backward kernel.
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_shim.h"

typedef struct matrix {
    dt_dtype type;
    int64_t batch, rows, cols; // as stored
    bool trans;                // read transposed
} matrix;

static matrix matrix_of(const dt_value_info *v, bool trans) {
    const dt_shape *s = &v->shape;
    matrix m = {.type = v->dtype, .batch = 1, .cols = s->d[s->n - 1], .trans = trans};
    m.rows = s->d[s->n - 2];
    for (int i = 0; i < s->n - 2; i++) m.batch *= s->d[i];
    return m;
}

static dt_dnnl_tensor matmul_cpu_tensor_of(const matrix *m) {
    dt_dnnl_tensor t = {.format = DT_DNNL_STRIDED, .type = m->type, .n = 3};
    t.d[0] = m->batch;
    t.d[1] = m->trans ? m->cols : m->rows;
    t.d[2] = m->trans ? m->rows : m->cols;
    t.stride[0] = m->rows * m->cols;
    t.stride[1] = m->trans ? 1 : m->cols;
    t.stride[2] = m->trans ? m->cols : 1;
    return t;
}

static void matmul_cpu_destroy(dt_kernel_instance *s) {
    dt_dnnl_op_destroy(s->state);
    s->state = NULL;
}

static dt_status matmul_cpu_prepare(dt_kernel_instance *s) {
    const dt_value_info *a = dt_instance_in(s, 0), *b = dt_instance_in(s, 1);
    const dt_dnnl_env env = {.threads = s->threads, .n_replicas = s->n_replicas};
    dt_custom_prepare(s, 0);
    if (a->dtype != b->dtype) return dt_instance_fail(s, "both operands need one type; add a cast");
    const matrix ma = matrix_of(a, s->node->attrs.matmul.trans_a);
    const matrix mb = matrix_of(b, s->node->attrs.matmul.trans_b);
    const matrix mc = matrix_of(dt_instance_out(s, 0), false);
    const dt_dnnl_matmul m = {.a = matmul_cpu_tensor_of(&ma),
                              .b = matmul_cpu_tensor_of(&mb),
                              .dst = matmul_cpu_tensor_of(&mc),
                              .alpha = s->node->attrs.matmul.alpha};
    dt_dnnl_op *op = NULL;
    dt_status st = dt_dnnl_op_create_matmul(&op, &env, &m);
    if (st != DT_OK) return dt_fail_context(st, "matmul '%s'", s->node->name);
    s->state = op;
    s->scratch_bytes = dt_dnnl_op_scratch_bytes(op);
    return DT_OK;
}

static void matmul_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    dt_dnnl_op_run(s->state, r->replica, (const void *[]){r->in[0], r->in[1], r->out[0]}, r->scratch);
}

const dt_kernel dt_cpu_matmul = {matmul_cpu_prepare, matmul_cpu_run, matmul_cpu_destroy};
