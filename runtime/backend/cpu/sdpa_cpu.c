// sdpa_cpu.c: scaled dot-product attention, one head at a time, so that a head's scores stay in the cache.
//
//   forward   S = scale q k', P = softmax(S), y = P v; saves log(sum(exp(S))) of each row
//   backward  S again, P = exp(S - lse), dP = dy v', dS = P (dP - rowsum(P dP)),
//             dq = scale dS k, dk = scale dS' q, dv = P' dy
//
// The matmuls are oneDNN primitives for one thread. Threads take whole heads, each with its own scratch and its
// own memory objects, so results do not depend on their number. Scores, softmax and lse are f32; P and dS have
// the activations' type.
//
// Scratch of a thread: [ scratchpad | S f32 | dP f32 | P | dS ], the last three in backward only
// (forward: S and P)
#include "backend/cpu/custom_kernel.h"
#include "backend/cpu/dnnl_shim.h"
#include "backend/cpu/simd.h"
#include "backend/sdpa_view.h"
#include "base/core.h"

#include <omp.h>

enum { QK, PV, DY_V, DS_K, DST_Q, PT_DY, N_OPS }; // in the order of the head comment: forward 2, backward 5 of them

typedef struct sdpa_state {
    dt_dnnl_op *op[N_OPS];
    dt_sdpa_view view;
    int type;
    size_t size;                          // of an activation element
    size_t at_s, at_dp, at_p, at_ds, end; // in a thread's scratch
} sdpa_state;

static void sdpa_cpu_destroy(dt_kernel_instance *s) {
    sdpa_state *st = s->state;
    if (!st) return;
    for (int i = 0; i < N_OPS; i++) dt_dnnl_op_destroy(st->op[i]);
    dt_custom_destroy(s);
}

// A head's rows in place: (rows, dim), and their transpose (dim, rows).
static dt_dnnl_tensor head_rows(const sdpa_state *st, dt_dtype t, const dt_sdpa_place *p, int64_t rows) {
    return (dt_dnnl_tensor){
        .format = DT_DNNL_STRIDED, .type = t, .n = 2, .d = {rows, st->view.dim}, .stride = {p->row, 1}};
}
static dt_dnnl_tensor head_cols(const sdpa_state *st, dt_dtype t, const dt_sdpa_place *p, int64_t rows) {
    return (dt_dnnl_tensor){
        .format = DT_DNNL_STRIDED, .type = t, .n = 2, .d = {st->view.dim, rows}, .stride = {1, p->row}};
}

static dt_status sdpa_cpu_create(dt_kernel_instance *s, int which, dt_dnnl_tensor a, dt_dnnl_tensor b,
                                 dt_dnnl_tensor dst, float alpha) {
    sdpa_state *st = s->state;
    // a memory object per thread and worker group
    const dt_dnnl_env env = {.threads = 1, .n_replicas = (s->n_replicas < 1 ? 1 : s->n_replicas) * s->threads};
    const dt_dnnl_matmul m = {.a = a, .b = b, .dst = dst, .alpha = alpha};
    DT_TRY(dt_dnnl_op_create_matmul(&st->op[which], &env, &m));
    const size_t n = dt_dnnl_op_scratch_bytes(st->op[which]);
    if (n > st->at_s) st->at_s = n; // scratchpads share the front of scratch
    return DT_OK;
}

static dt_status sdpa_cpu_start(dt_kernel_instance *s) {
    sdpa_state *st = dt_custom_prepare(s, sizeof *st);
    const dt_node *node = s->node;
    const dt_dtype t = dt_instance_in(s, 0)->dtype;
    st->view = dt_sdpa_view_of(s->graph, node);
    bool same = t == DT_F32 || t == DT_BF16;
    // packed: q, k and v are one tensor
    for (int i = 1; i < (st->view.packed ? 1 : 3); i++) same &= dt_instance_in(s, i)->dtype == t;
    if (!same) return dt_instance_fail(s, "wants q, k and v all f32 or all bf16");
    st->type = dt_row_type(t);
    st->size = dt_dtype_size(t);
    const dt_sdpa_view *v = &st->view;
    return sdpa_cpu_create(s, QK, head_rows(st, t, &v->part[0], v->tq), head_cols(st, t, &v->part[1], v->tk),
                           dt_dnnl_matrix(DT_F32, v->tq, v->tk), node->attrs.sdpa.scale);
}

static void place_scratch(dt_kernel_instance *s, bool backward) {
    sdpa_state *st = s->state;
    const size_t scores = (size_t)(st->view.tq * st->view.tk); // elements of (tq, tk)
    st->at_dp = st->at_s + dt_align_up(scores * sizeof(float), 64);
    st->at_p = st->at_dp + (backward ? dt_align_up(scores * sizeof(float), 64) : 0);
    st->at_ds = st->at_p + dt_align_up(scores * st->size, 64); // P in the activations' type
    st->end = st->at_ds + (backward ? dt_align_up(scores * st->size, 64) : 0);
    s->scratch_bytes = st->end * (size_t)s->threads;
}

// ---- forward ---------------------------------------------------------------------------------------
static dt_status sdpa_cpu_build_forward(dt_kernel_instance *s) {
    const dt_dtype t = dt_instance_in(s, 0)->dtype;
    DT_TRY(sdpa_cpu_start(s));
    const sdpa_state *st = s->state;
    const dt_sdpa_view *v = &st->view;
    DT_TRY(sdpa_cpu_create(s, PV, dt_dnnl_matrix(t, v->tq, v->tk), head_rows(st, t, &v->part[2], v->tk),
                           head_rows(st, t, &v->y, v->tq), 1.0f));
    place_scratch(s, false);
    return DT_OK;
}

// Where q, k or v (i = 0, 1, 2) of a head, or its gradient, lies among `tensors`; NULL if absent.
static char *sdpa_cpu_part_at(const sdpa_state *st, const void *const *tensors, int i, int64_t head) {
    char *p = (char *)tensors[st->view.packed ? 0 : i]; // packed: all parts in tensor 0
    return p ? p + (size_t)dt_sdpa_at(&st->view, &st->view.part[i], head) * st->size : NULL;
}

static void head_forward(const dt_kernel_instance *s, const dt_run *r, int replica, char *scratch, int64_t head) {
    const sdpa_state *st = s->state;
    const dt_sdpa_view *w = &st->view;
    const char *q = sdpa_cpu_part_at(st, r->in, 0, head), *k = sdpa_cpu_part_at(st, r->in, 1, head);
    const char *v = sdpa_cpu_part_at(st, r->in, 2, head);
    char *y = (char *)r->out[0] + (size_t)dt_sdpa_at(w, &w->y, head) * st->size;
    float *scores = (float *)(scratch + st->at_s);
    char *p = scratch + st->at_p;
    float *lse = r->out[1] ? (float *)r->out[1] + head * w->tq : NULL; // (heads, tq)
    dt_dnnl_op_run(st->op[QK], replica, (const void *[]){q, k, scores}, scratch);
    for (int64_t i = 0; i < w->tq; i++) {
        const float l =
            // softmax of a row; P may be bf16
            dt_simd_get()->rows->attend[st->type](p + (size_t)(i * w->tk) * st->size, scores + i * w->tk, w->tk);
        if (lse) lse[i] = l;
    }
    dt_dnnl_op_run(st->op[PV], replica, (const void *[]){p, v, y}, scratch);
}

// ---- backward --------------------------------------------------------------------------------------
static dt_status sdpa_cpu_build_backward(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    for (int i = 0; i < n->n_fwd_in; i++) {
        if (n->in[i] == DT_NONE) return dt_instance_fail(s, "the gradient reads q, k and v");
    }
    if (n->in[n->n_fwd_in + 1] == DT_NONE) return dt_instance_fail(s, "the gradient reads the saved lse");
    DT_TRY(sdpa_cpu_start(s));
    const sdpa_state *st = s->state;
    const dt_sdpa_view *v = &st->view;
    const dt_sdpa_place *q = &v->part[0], *k = &v->part[1];
    const dt_dtype t = dt_instance_in(s, 0)->dtype;
    const float scale = n->attrs.sdpa.scale;
    DT_TRY(sdpa_cpu_create(s, DY_V, head_rows(st, t, &v->y, v->tq), head_cols(st, t, &v->part[2], v->tk),
                           dt_dnnl_matrix(DT_F32, v->tq, v->tk), 1.0f));
    DT_TRY(sdpa_cpu_create(s, DS_K, dt_dnnl_matrix(t, v->tq, v->tk), head_rows(st, t, k, v->tk), // dq = scale dS k
                           head_rows(st, t, q, v->tq), scale));
    // dk = scale dS' q
    DT_TRY(sdpa_cpu_create(s, DST_Q, dt_dnnl_transposed(t, v->tk, v->tq), head_rows(st, t, q, v->tq),
                           head_rows(st, t, k, v->tk), scale));
    DT_TRY(sdpa_cpu_create(s, PT_DY, dt_dnnl_transposed(t, v->tk, v->tq), head_rows(st, t, &v->y, v->tq), // dv = P' dy
                           head_rows(st, t, &v->part[2], v->tk), 1.0f));
    place_scratch(s, true);
    return DT_OK;
}

static dt_status sdpa_cpu_prepare(dt_kernel_instance *s) {
    dt_status status = s->node->backward ? sdpa_cpu_build_backward(s) : sdpa_cpu_build_forward(s);
    if (status != DT_OK) sdpa_cpu_destroy(s);
    return status;
}

static void head_backward(const dt_kernel_instance *s, const dt_run *r, int replica, char *scratch, int64_t head) {
    const sdpa_state *st = s->state;
    const dt_sdpa_view *w = &st->view;
    const dt_node *n = s->node;
    const char *q = sdpa_cpu_part_at(st, r->in, 0, head), *k = sdpa_cpu_part_at(st, r->in, 1, head);
    const char *v = sdpa_cpu_part_at(st, r->in, 2, head);
    const float *lse = (const float *)r->in[n->n_fwd_in + 1] + head * w->tq;
    const char *dy = (const char *)r->in[n->n_fwd_in + n->n_fwd_out] + (size_t)dt_sdpa_at(w, &w->y, head) * st->size;
    float *scores = (float *)(scratch + st->at_s), *dp = (float *)(scratch + st->at_dp);
    char *p = scratch + st->at_p, *ds = scratch + st->at_ds;
    // S is computed again: cheaper than storing P for all heads
    dt_dnnl_op_run(st->op[QK], replica, (const void *[]){q, k, scores}, scratch);
    dt_dnnl_op_run(st->op[DY_V], replica, (const void *[]){dy, v, dp}, scratch);
    for (int64_t i = 0; i < w->tq; i++) {
        const size_t at = (size_t)(i * w->tk) * st->size;
        // writes P and dS
        dt_simd_get()->rows->attend_bwd[st->type](p + at, ds + at, scores + i * w->tk, dp + i * w->tk, lse[i], w->tk);
    }
    const void *const *out = (const void *const *)r->out; // gradients lie where the parts lie
    const char *dq = sdpa_cpu_part_at(st, out, 0, head), *dk = sdpa_cpu_part_at(st, out, 1, head);
    const char *dv = sdpa_cpu_part_at(st, out, 2, head);
    if (dq) dt_dnnl_op_run(st->op[DS_K], replica, (const void *[]){ds, k, dq}, scratch);
    if (dk) dt_dnnl_op_run(st->op[DST_Q], replica, (const void *[]){ds, q, dk}, scratch);
    if (dv) dt_dnnl_op_run(st->op[PT_DY], replica, (const void *[]){p, dy, dv}, scratch);
}

static void sdpa_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const sdpa_state *st = s->state;
    const int64_t heads = st->view.n * st->view.heads;
    const int threads = heads < s->threads ? (int)heads : s->threads; // idle threads would only wait
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int64_t head = 0; head < heads; head++) {
        const int t = omp_get_thread_num() % threads;
        char *scratch = (char *)r->scratch + st->end * (size_t)t;
        // memory objects of this thread
        (s->node->backward ? head_backward : head_forward)(s, r, r->replica * s->threads + t, scratch, head);
    }
}

const dt_kernel dt_cpu_sdpa = {sdpa_cpu_prepare, sdpa_cpu_run, sdpa_cpu_destroy};
const dt_kernel dt_cpu_sdpa_bwd = {sdpa_cpu_prepare, sdpa_cpu_run, sdpa_cpu_destroy};
