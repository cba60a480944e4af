// sdpa_cpu.c: scaled dot-product attention, one head at a time, so that a head's scores stay in cache.
//
//   forward   S = scale q k', P = softmax(S), y = P v; saves log(sum(exp(S))) of each row
//   backward  S again, P = exp(S - lse), dP = dy v', dS = P (dP - rowsum(P dP)),
//             dq = scale dS k, dk = scale dS' q, dv = P' dy
//
// The products are oneDNN matmuls made for one thread; threads take heads, each with its own scratch and
// its own lane of the primitives' memory objects. Scores, softmax and lse are f32; P and dS have the
// activations' type. A head's result does not depend on who computes it.
//
// Scratch of a thread: [ scratchpad | S f32 | dP f32 | P | dS ], the last three in backward only
// (forward: S and P)
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/dnnl_weights.h"
#include "backend/cpu/simd_rows.h"
#include "base/arena.h"

#include <omp.h>
#include <stdlib.h>

enum { QK, PV, DY_V, DS_K, DST_Q, PT_DY, N_OPS };

typedef struct sdpa_state {
    dt_dnnl_op *op[N_OPS];
    int64_t heads, tq, tk, dim, dim_v;
    int type;
    size_t size;                          // of an activation element
    size_t at_s, at_dp, at_p, at_ds, end; // in a thread's scratch
} sdpa_state;

static void destroy(dt_site *s) {
    sdpa_state *st = s->state;
    if (!st) return;
    for (int i = 0; i < N_OPS; i++) dt_dnnl_op_destroy(st->op[i]);
    free(st);
    s->state = NULL;
}

static dt_dnnl_tensor matrix(dt_dtype t, int64_t rows, int64_t cols) {
    return dt_dnnl_dense(t, 2, (int64_t[]){rows, cols});
}
static dt_dnnl_tensor transposed(dt_dtype t, int64_t rows, int64_t cols) {
    return (dt_dnnl_tensor){
        .format = DT_DNNL_STRIDED, .type = t, .n = 2, .d = {rows, cols}, .stride = {1, rows}};
}

static dt_status create(dt_site *s, int which, dt_dnnl_tensor a, dt_dnnl_tensor b,
                        dt_dnnl_tensor dst, float alpha) {
    sdpa_state *st = s->state;
    const dt_dnnl_env env = {.threads = 1,
                             .n_lanes = (s->n_lanes < 1 ? 1 : s->n_lanes) * s->threads};
    const dt_dnnl_matmul m = {.a = a, .b = b, .dst = dst, .alpha = alpha};
    DT_TRY(dt_dnnl_op_create_matmul(&st->op[which], &env, &m));
    const size_t n = dt_dnnl_op_scratch_bytes(st->op[which]);
    if (n > st->at_s) st->at_s = n;
    return DT_OK;
}

static dt_status start(dt_site *s, const dt_value_info *q, const dt_value_info *k,
                       const dt_value_info *v) {
    sdpa_state *st = s->state = dt_xcalloc(1, sizeof *st);
    s->inplace_in = -1;
    s->n_packs = 0;
    for (int i = 0; i < s->node->n_in; i++) s->in_layout[i] = dt_dense();
    for (int i = 0; i < s->node->n_out; i++) s->out_layout[i] = dt_dense();
    if (q->dtype != k->dtype || q->dtype != v->dtype ||
        (q->dtype != DT_F32 && q->dtype != DT_BF16)) {
        return dt_site_fail(s, "wants q, k and v all f32 or all bf16");
    }
    st->heads = q->shape.d[0] * q->shape.d[1];
    st->tq = q->shape.d[2];
    st->tk = k->shape.d[2];
    st->dim = q->shape.d[3];
    st->dim_v = v->shape.d[3];
    st->type = q->dtype == DT_BF16 ? DT_ROW_BF16 : DT_ROW_F32;
    st->size = dt_dtype_size(q->dtype);
    return create(s, QK, matrix(q->dtype, st->tq, st->dim), transposed(k->dtype, st->dim, st->tk),
                  matrix(DT_F32, st->tq, st->tk), s->node->attrs.sdpa.scale);
}

static void place_scratch(dt_site *s, bool backward) {
    sdpa_state *st = s->state;
    const size_t scores = (size_t)(st->tq * st->tk);
    st->at_dp = st->at_s + dt_align64(scores * sizeof(float));
    st->at_p = st->at_dp + (backward ? dt_align64(scores * sizeof(float)) : 0);
    st->at_ds = st->at_p + dt_align64(scores * st->size);
    st->end = st->at_ds + (backward ? dt_align64(scores * st->size) : 0);
    s->scratch_bytes = st->end * (size_t)s->threads;
}

static int threads_of(const dt_site *s, const sdpa_state *st) {
    return st->heads < s->threads ? (int)st->heads : s->threads;
}

// ---- forward ---------------------------------------------------------------------------------------
static dt_status prepare(dt_site *s) {
    const dt_value_info *v = dt_site_in(s, 2);
    dt_status status = start(s, dt_site_in(s, 0), dt_site_in(s, 1), v);
    sdpa_state *st = s->state;
    if (status == DT_OK) {
        status =
            create(s, PV, matrix(v->dtype, st->tq, st->tk), matrix(v->dtype, st->tk, st->dim_v),
                   matrix(v->dtype, st->tq, st->dim_v), 1.0f);
    }
    if (status == DT_OK)
        place_scratch(s, false);
    else
        destroy(s);
    return status;
}

static void head_forward(const sdpa_state *st, const dt_run *r, int lane, char *scratch,
                         int64_t head) {
    const size_t q_bytes = (size_t)(st->tq * st->dim) * st->size;
    const size_t k_bytes = (size_t)(st->tk * st->dim) * st->size;
    const size_t v_bytes = (size_t)(st->tk * st->dim_v) * st->size;
    const size_t y_bytes = (size_t)(st->tq * st->dim_v) * st->size;
    const char *q = (const char *)r->in[0] + (size_t)head * q_bytes;
    const char *k = (const char *)r->in[1] + (size_t)head * k_bytes;
    const char *v = (const char *)r->in[2] + (size_t)head * v_bytes;
    float *scores = (float *)(scratch + st->at_s);
    char *p = scratch + st->at_p;
    float *lse = r->out[1] ? (float *)r->out[1] + head * st->tq : NULL;
    dt_dnnl_op_run(st->op[QK], lane, (const void *[]){q, k, scores}, scratch);
    for (int64_t i = 0; i < st->tq; i++) {
        const float l = dt_simd_rows_get()->attend[st->type](p + (size_t)(i * st->tk) * st->size,
                                                             scores + i * st->tk, st->tk);
        if (lse) lse[i] = l;
    }
    dt_dnnl_op_run(st->op[PV], lane,
                   (const void *[]){p, v, (char *)r->out[0] + (size_t)head * y_bytes}, scratch);
}

static void run(const dt_site *s, const dt_run *r) {
    const sdpa_state *st = s->state;
    const int threads = threads_of(s, st);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t head = 0; head < st->heads; head++) {
        const int t = omp_get_thread_num() % threads;
        head_forward(st, r, r->lane * s->threads + t, (char *)r->scratch + st->end * (size_t)t,
                     head);
    }
}

const dt_kernel dt_cpu_sdpa = {prepare, run, destroy};

// ---- backward --------------------------------------------------------------------------------------
static dt_status build_backward(dt_site *s) {
    const dt_node *n = s->node;
    for (int i = 0; i < 3; i++) {
        if (n->in[i] == DT_NONE) return dt_site_fail(s, "the gradient reads q, k and v");
    }
    if (n->in[n->n_fwd_in + 1] == DT_NONE)
        return dt_site_fail(s, "the gradient reads the saved lse");
    DT_TRY(start(s, dt_site_in(s, 0), dt_site_in(s, 1), dt_site_in(s, 2)));
    const sdpa_state *st = s->state;
    const dt_dtype t = dt_site_in(s, 0)->dtype;
    const float scale = n->attrs.sdpa.scale;
    DT_TRY(create(s, DY_V, matrix(t, st->tq, st->dim_v), transposed(t, st->dim_v, st->tk),
                  matrix(DT_F32, st->tq, st->tk), 1.0f));
    DT_TRY(create(s, DS_K, matrix(t, st->tq, st->tk), matrix(t, st->tk, st->dim),
                  matrix(t, st->tq, st->dim), scale));
    DT_TRY(create(s, DST_Q, transposed(t, st->tk, st->tq), matrix(t, st->tq, st->dim),
                  matrix(t, st->tk, st->dim), scale));
    DT_TRY(create(s, PT_DY, transposed(t, st->tk, st->tq), matrix(t, st->tq, st->dim_v),
                  matrix(t, st->tk, st->dim_v), 1.0f));
    place_scratch(s, true);
    return DT_OK;
}

static dt_status prepare_bwd(dt_site *s) {
    dt_status status = build_backward(s);
    if (status != DT_OK) destroy(s);
    return status;
}

static void head_backward(const dt_site *s, const dt_run *r, int lane, char *scratch,
                          int64_t head) {
    const sdpa_state *st = s->state;
    const size_t q_at = (size_t)(head * st->tq * st->dim) * st->size;
    const size_t k_at = (size_t)(head * st->tk * st->dim) * st->size;
    const size_t v_at = (size_t)(head * st->tk * st->dim_v) * st->size;
    const size_t y_at = (size_t)(head * st->tq * st->dim_v) * st->size;
    const char *q = (const char *)r->in[0] + q_at, *k = (const char *)r->in[1] + k_at;
    const char *v = (const char *)r->in[2] + v_at;
    const float *lse = (const float *)r->in[s->node->n_fwd_in + 1] + head * st->tq;
    const char *dy = (const char *)r->in[s->node->n_fwd_in + s->node->n_fwd_out] + y_at;
    float *scores = (float *)(scratch + st->at_s), *dp = (float *)(scratch + st->at_dp);
    char *p = scratch + st->at_p, *ds = scratch + st->at_ds;
    dt_dnnl_op_run(st->op[QK], lane, (const void *[]){q, k, scores}, scratch);
    dt_dnnl_op_run(st->op[DY_V], lane, (const void *[]){dy, v, dp}, scratch);
    for (int64_t i = 0; i < st->tq; i++) {
        const size_t at = (size_t)(i * st->tk) * st->size;
        dt_simd_rows_get()->attend_bwd[st->type](p + at, ds + at, scores + i * st->tk,
                                                 dp + i * st->tk, lse[i], st->tk);
    }
    char *const out[3] = {r->out[0], r->out[1], r->out[2]};
    if (out[0]) dt_dnnl_op_run(st->op[DS_K], lane, (const void *[]){ds, k, out[0] + q_at}, scratch);
    if (out[1])
        dt_dnnl_op_run(st->op[DST_Q], lane, (const void *[]){ds, q, out[1] + k_at}, scratch);
    if (out[2])
        dt_dnnl_op_run(st->op[PT_DY], lane, (const void *[]){p, dy, out[2] + v_at}, scratch);
}

static void run_bwd(const dt_site *s, const dt_run *r) {
    const sdpa_state *st = s->state;
    const int threads = threads_of(s, st);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t head = 0; head < st->heads; head++) {
        const int t = omp_get_thread_num() % threads;
        head_backward(s, r, r->lane * s->threads + t, (char *)r->scratch + st->end * (size_t)t,
                      head);
    }
}

const dt_kernel dt_cpu_sdpa_bwd = {prepare_bwd, run_bwd, destroy};
