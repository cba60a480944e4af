// matmul_cpu.c: c = alpha op(a) op(b) over leading batch dimensions, as oneDNN matmuls.
//
// Transposition is strides, so nothing is copied. Tensors are seen as (batch, rows, cols); where b is a
// plain matrix and a is not, a's batch is rows. Gradients, with ' for transposed:
//   da = alpha dc op(b)'  (or op(b) dc' when a is read transposed)
//   db = alpha op(a)' dc  (or dc' op(a) when b is read transposed)
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dnnl_shim.h"
#include "base/arena.h"

#include <stdlib.h>

typedef struct matmul_state {
    dt_dnnl_op *op[2]; // forward: op[0]; backward: da, db
    size_t scratch;
} matmul_state;

typedef struct matrix {
    dt_dtype type;
    int64_t batch, rows, cols; // as stored
    bool trans;                // read transposed
} matrix;

static matrix matrix_of(const dt_value_info *v, bool trans, bool flatten) {
    const dt_shape *s = &v->shape;
    matrix m = {.type = v->dtype, .batch = 1, .cols = s->d[s->n - 1], .trans = trans};
    m.rows = s->d[s->n - 2];
    for (int i = 0; i < s->n - 2; i++) m.batch *= s->d[i];
    if (flatten) {
        m.rows *= m.batch;
        m.batch = 1;
    }
    return m;
}

static matrix flipped(matrix m) {
    m.trans = !m.trans;
    return m;
}

static dt_dnnl_tensor tensor_of(const matrix *m) {
    dt_dnnl_tensor t = {.format = DT_DNNL_STRIDED, .type = m->type, .n = 3};
    t.d[0] = m->batch;
    t.d[1] = m->trans ? m->cols : m->rows;
    t.d[2] = m->trans ? m->rows : m->cols;
    t.stride[0] = m->rows * m->cols;
    t.stride[1] = m->trans ? 1 : m->cols;
    t.stride[2] = m->trans ? m->cols : 1;
    return t;
}

static void destroy(dt_site *s) {
    matmul_state *st = s->state;
    if (!st) return;
    dt_dnnl_op_destroy(st->op[0]);
    dt_dnnl_op_destroy(st->op[1]);
    free(st);
    s->state = NULL;
}

// out = alpha * l * r; when `out` is stored transposed, out' = alpha * r' * l'.
static dt_status create(dt_site *s, dt_dnnl_op **op, matrix out, matrix l, matrix r) {
    matmul_state *st = s->state;
    const dt_dnnl_env env = {.threads = s->threads, .n_lanes = s->n_lanes};
    if (out.trans) {
        const matrix l0 = l;
        l = flipped(r);
        r = flipped(l0);
        out = flipped(out);
    }
    const dt_dnnl_matmul m = {.a = tensor_of(&l),
                              .b = tensor_of(&r),
                              .dst = tensor_of(&out),
                              .alpha = s->node->attrs.matmul.alpha};
    DT_TRY(dt_dnnl_op_create_matmul(op, &env, &m));
    const size_t b = dt_dnnl_op_scratch_bytes(*op);
    if (b > st->scratch) st->scratch = b;
    return DT_OK;
}

static dt_status start(dt_site *s, const dt_value_info *a, const dt_value_info *b, bool *flatten) {
    s->state = dt_xcalloc(1, sizeof(matmul_state));
    s->inplace_in = -1;
    s->n_packs = 0;
    for (int i = 0; i < s->node->n_in; i++) s->in_layout[i] = dt_dense();
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = dt_dense();
    *flatten = b->shape.n == 2 && a->shape.n > 2;
    if (a->dtype != b->dtype) return dt_site_fail(s, "both operands need one type; add a cast");
    if (*flatten && s->node->attrs.matmul.trans_a) {
        return dt_site_fail(s, "a transposed batch times one matrix is not supported");
    }
    return DT_OK;
}

static dt_status finish(dt_site *s, dt_status st) {
    s->scratch_bytes = ((matmul_state *)s->state)->scratch;
    if (st != DT_OK) destroy(s);
    return st;
}

static dt_status prepare(dt_site *s) {
    const dt_value_info *a = dt_site_in(s, 0), *b = dt_site_in(s, 1);
    bool flatten;
    dt_status st = start(s, a, b, &flatten);
    if (st == DT_OK) {
        matmul_state *state = s->state;
        st = create(s, &state->op[0], matrix_of(dt_site_out(s, 0), false, flatten),
                    matrix_of(a, s->node->attrs.matmul.trans_a, flatten),
                    matrix_of(b, s->node->attrs.matmul.trans_b, false));
    }
    return finish(s, st);
}

static void run(const dt_site *s, const dt_run *r) {
    const matmul_state *st = s->state;
    dt_dnnl_op_run(st->op[0], r->lane, (const void *[]){r->in[0], r->in[1], r->out[0]}, r->scratch);
}

const dt_kernel dt_cpu_matmul = {prepare, run, destroy};

static dt_status prepare_bwd(dt_site *s) {
    const dt_node *n = s->node;
    const dt_value_info *a = n->in[0] != DT_NONE ? dt_site_in(s, 0) : dt_site_out(s, 0);
    const dt_value_info *b = n->in[1] != DT_NONE ? dt_site_in(s, 1) : dt_site_out(s, 1);
    bool flatten;
    dt_status st = start(s, a, b, &flatten);
    matmul_state *state = s->state;
    const matrix ma = matrix_of(a, n->attrs.matmul.trans_a, flatten);
    const matrix mb = matrix_of(b, n->attrs.matmul.trans_b, false);
    const matrix dc = matrix_of(dt_site_in(s, n->n_fwd_in + n->n_fwd_out), false, flatten);
    if (st == DT_OK && n->out[0] != DT_NONE) st = create(s, &state->op[0], ma, dc, flipped(mb));
    if (st == DT_OK && n->out[1] != DT_NONE) st = create(s, &state->op[1], mb, flipped(ma), dc);
    return finish(s, st);
}

static void run_bwd(const dt_site *s, const dt_run *r) {
    const matmul_state *st = s->state;
    const bool ta = s->node->attrs.matmul.trans_a, tb = s->node->attrs.matmul.trans_b;
    const void *a = r->in[0], *b = r->in[1], *dc = r->in[s->node->n_fwd_in + s->node->n_fwd_out];
    if (st->op[0]) {
        dt_dnnl_op_run(st->op[0], r->lane,
                       ta ? (const void *[]){b, dc, r->out[0]} : (const void *[]){dc, b, r->out[0]},
                       r->scratch);
    }
    if (st->op[1]) {
        dt_dnnl_op_run(st->op[1], r->lane,
                       tb ? (const void *[]){dc, a, r->out[1]} : (const void *[]){a, dc, r->out[1]},
                       r->scratch);
    }
}

const dt_kernel dt_cpu_matmul_bwd = {prepare_bwd, run_bwd, destroy};
