// sdpa_cuda.c: scaled dot-product attention through cuDNN's flash attention, or, where cuDNN does not serve it (fp32,
// odd head sizes, cuDNN below 9.16), as matmuls of cuBLASLt with a softmax between them. q, k and v are separate or
// packed into one tensor. Tensors are DENSE; strides give the places of heads.
//
// cuDNN's backward pass makes all three gradients; an unwanted one goes to scratch.
// Scratch: forward [ workspace | lse ] (lse only if it is not an output); backward
// [ workspace | dq32 | row sums | space for one unwanted gradient ]
//
// By matmuls, for some of the (sample, head) matrices at a time:
//
//   forward   S = scale q k', P = softmax(S), y = P v
//   backward  S and P again, dP = dy v', dS = P (dP - rowsum(P dP)), dq = scale dS k, dk = scale dS' q, dv = P' dy
//
// S and dP are f32, P and dS of the activations' type; under f32 they take the place of S and dP. A batched matmul has
// one stride from matrix to matrix. Where samples and heads have none in common, as in packed tensors, the more
// numerous of the two are batched, and the others follow one another. S of one batch has at most DT_ATTENTION_BYTES,
// unless a single matrix has more: it stays in the device's cache, and scratch does not grow with the batch. The last
// batch is moved back to be whole, so some matrices are computed twice, with the same result. Probabilities are not
// kept for the backward pass: (batch, heads, t, t) of every layer are more than all other activations.
// Scratch: [ workspace | S | P ], backward [ workspace | S | dP | P | dS ]
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/rows_kernels.h"
#include "backend/cuda/weights_cuda.h"
#include "backend/sdpa_view.h"

typedef enum sdpa_matmul { SCORES, OUTPUT, SLOPES, DQ, DK, DV, N_MATMULS } sdpa_matmul;

typedef struct sdpa_state {
    dt_sdpa_view view;
    dt_dnn_desc desc;
    size_t size;              // of an activation
    const dt_cuda_plan *plan; // cuDNN's; NULL: matmuls
    size_t at_lse, at_dq32, at_sum, at_unwanted, dq32_bytes;

    const dt_cuda_plan *matmul[N_MATMULS];
    int64_t outer, inner, chunk; // matrices: outer times inner, of which `chunk` at a time
    bool inner_is_sample;
    dt_sdpa_place scores; // rows of S, dP, P and dS in scratch
    int align;            // of the tensors' matrices
    size_t at_s, at_dp, at_p, at_ds;
} sdpa_state;

static dt_status sdpa_cuda_start(dt_kernel_instance *s, sdpa_state **out) {
    sdpa_state *st = dt_cuda_prepare_dense(s, sizeof *st);
    const dt_cuda *c = dt_cuda_of(s);
    const dt_node *n = s->node;
    dt_dnn_desc d[DT_NODE_DESCS];
    int type;
    st->view = dt_sdpa_view_of(s->graph, n);
    const bool packed = st->view.packed;
    DT_TRY(dt_cuda_type(s, &type, dt_instance_in(s, 0), packed ? NULL : dt_instance_in(s, 1),
                        packed ? NULL : dt_instance_in(s, 2)));
    dt_cuda_node_descs(s->graph, n, dt_cuda_demands_of(c), d);
    st->desc = d[0];
    st->size = dt_dtype_size(d[0].type);
    DT_TRY(dt_cuda_kept(s, dt_cuda_plan_dnn(c->plans, &d[0], &st->plan)));
    s->scratch_bytes = st->plan ? dt_cuda_align(st->plan->workspace_bytes) : 0;
    *out = st;
    return DT_OK;
}

static size_t rows_bytes(const sdpa_state *st) {
    return dt_cuda_align((size_t)(st->view.n * st->view.heads * st->view.tq) * sizeof(float));
}

// Tensor i (q, k, v), separate or packed in the first; NULL if absent.
static void *sdpa_cuda_part(const sdpa_state *st, const void *const *tensors, int i) {
    char *p = (char *)tensors[st->view.packed ? 0 : i];
    return p ? p + (size_t)st->view.part[i].begin * st->size : NULL;
}

// ---- matmuls: which matrices at a time ---------------------------------------------------------------
static int64_t inner_step(const sdpa_state *st, const dt_sdpa_place *p) {
    return st->inner_is_sample ? p->batch : p->head;
}

static void sdpa_cuda_divide(sdpa_state *st, int64_t most_bytes) {
    const dt_sdpa_view *v = &st->view;
    const dt_sdpa_place *const place[4] = {&v->part[0], &v->part[1], &v->part[2], &v->y};
    const int64_t ld = (v->tk + 7) / 8 * 8, matrix = v->tq * ld;
    bool one_step = true;
    st->align = DT_GEMM_ALIGN;
    for (int i = 0; i < 4; i++) {
        const int64_t at = place[i]->begin | place[i]->batch | place[i]->head;
        while ((size_t)at * st->size % (size_t)st->align) st->align /= 2;
        one_step &= place[i]->batch == v->heads * place[i]->head;
    }
    st->inner_is_sample = !one_step && v->n > v->heads;
    st->inner = one_step ? v->n * v->heads : st->inner_is_sample ? v->n : v->heads;
    st->outer = v->n * v->heads / st->inner;
    st->scores = (dt_sdpa_place){0, matrix, matrix, ld};
    int64_t most = most_bytes / (matrix * (int64_t)sizeof(float));
    if (most < 1) most = 1;
    const int64_t chunks = (st->inner + most - 1) / most;
    st->chunk = (st->inner + chunks - 1) / chunks;
}

typedef struct operand {
    const dt_sdpa_place *place;
    dt_dtype type;
    bool trans;
} operand;

// Makes the plan of d (m,n) = alpha op(a) op(b), each a batch of matrices.
static dt_status plan_matmul(dt_kernel_instance *s, sdpa_matmul which, operand a, operand b, operand d, int64_t m,
                             int64_t n, int64_t k, float alpha) {
    sdpa_state *st = s->state;
    const dt_cuda *c = dt_cuda_of(s);
    const dt_gemm_desc g = {.m = m,
                            .n = n,
                            .k = k,
                            .lda = a.place->row,
                            .ldb = b.place->row,
                            .ldd = d.place->row,
                            .batch = st->chunk,
                            .stride_a = inner_step(st, a.place),
                            .stride_b = inner_step(st, b.place),
                            .stride_d = inner_step(st, d.place),
                            .trans_a = a.trans,
                            .trans_b = b.trans,
                            .type = a.type,
                            .out_type = d.type,
                            .bias_type = d.type,
                            .alpha = alpha,
                            .tf32 = c->tf32,
                            .deterministic = c->deterministic,
                            .align = st->align}; // of all operands' strides
    DT_TRY(dt_cuda_kept(s, dt_cuda_plan_gemm(c->plans, &g, &st->matmul[which])));
    if (!st->matmul[which]) return dt_cuda_fail(s, "cuBLASLt has no matmul for it");
    const size_t bytes = dt_cuda_align(st->matmul[which]->workspace_bytes);
    if (bytes > s->scratch_bytes) s->scratch_bytes = bytes; // one workspace: matmuls run one after another on a stream
    return DT_OK;
}

static size_t take_scores(dt_kernel_instance *s, size_t size) {
    const sdpa_state *st = s->state;
    // scores of one chunk of matrices
    const size_t at = s->scratch_bytes;
    s->scratch_bytes += dt_cuda_align((size_t)(st->chunk * st->scores.head) * size);
    return at;
}

// Makes the plans: one for both directions, then the forward's or the backward's own. Lays out the scratch.
static dt_status prepare_matmuls(dt_kernel_instance *s, bool backward) {
    sdpa_state *st = s->state;
    const dt_sdpa_view *v = &st->view;
    const dt_dtype type = st->desc.type;
    const int64_t tq = v->tq, tk = v->tk, dim = v->dim;
    const float scale = st->desc.scale;
    const operand q = {&v->part[0], type, false}, k = {&v->part[1], type, false}, v_ = {&v->part[2], type, false},
                  y = {&v->y, type, false}, k_t = {&v->part[1], type, true}, v_t = {&v->part[2], type, true},
                  // wide: scores in f32; p: probabilities in the activations' type
        wide = {&st->scores, DT_F32, false}, p = {&st->scores, type, false}, p_t = {&st->scores, type, true};
    const dt_value *out = s->node->out;
    sdpa_cuda_divide(st, dt_cuda_of(s)->attention_bytes);
    DT_TRY(plan_matmul(s, SCORES, q, k_t, wide, tq, tk, dim, scale)); // S = scale Q K^T
    if (!backward) {
        DT_TRY(plan_matmul(s, OUTPUT, p, v_, y, tq, dim, tk, 1.0f)); // y = P V
    } else {
        DT_TRY(plan_matmul(s, SLOPES, y, v_t, wide, tq, tk, dim, 1.0f));                             // dP = dy V^T
        if (v->packed || out[0] != DT_NONE) DT_TRY(plan_matmul(s, DQ, p, k, q, tq, dim, tk, scale)); // dQ = scale dS K
        // dK = scale dS^T Q
        if (v->packed || out[1] != DT_NONE) DT_TRY(plan_matmul(s, DK, p_t, q, k, tk, dim, tq, scale));
        if (v->packed || out[2] != DT_NONE) DT_TRY(plan_matmul(s, DV, p_t, y, v_, tk, dim, tq, 1.0f)); // dV = P^T dy
    }
    st->at_s = st->at_p = take_scores(s, sizeof(float)); // f32: probabilities overwrite the scores
    if (backward) st->at_dp = st->at_ds = take_scores(s, sizeof(float));
    if (type == DT_F32) return DT_OK;
    st->at_p = take_scores(s, st->size); // 16-bit: a copy of their own
    if (backward) st->at_ds = take_scores(s, st->size);
    return DT_OK;
}

// ---- matmuls: running --------------------------------------------------------------------------------
// The matrices of one batch: begin with `inner` of `outer`.
typedef struct batch {
    int64_t outer, inner;
} batch;

static int64_t sdpa_cuda_offset(const sdpa_state *st, const dt_sdpa_place *p, batch b) {
    return b.outer * (st->inner_is_sample ? p->head : p->batch) + b.inner * inner_step(st, p);
}

static char *sdpa_cuda_at(const sdpa_state *st, const void *tensor, const dt_sdpa_place *p, batch b) {
    // an unwanted gradient stays NULL
    return tensor ? (char *)tensor + sdpa_cuda_offset(st, p, b) * (int64_t)st->size : NULL;
}
static char *sdpa_cuda_part_at(const sdpa_state *st, const void *const *tensors, int i, batch b) {
    return sdpa_cuda_at(st, sdpa_cuda_part(st, tensors, i), &st->view.part[i], b);
}

static void run_matmul(const dt_kernel_instance *s, const dt_run *r, sdpa_matmul which, const void *a, const void *b,
                       void *d) {
    const sdpa_state *st = s->state;
    // no plan: the gradient is not wanted
    if (st->matmul[which]) dt_cuda_run_gemm(s, st->matmul[which], a, b, d, false, NULL, NULL, r);
}

static dt_softmax_args sdpa_cuda_rows_of(const sdpa_state *st) {
    dt_softmax_args a = {.r = dt_rows_make(st->chunk * st->view.tq, st->view.tk),
                         .ld = st->scores.row,
                         .type = DT_F32,
                         .dy_type = DT_F32,
                         .out_type = st->desc.type};
    a.r.whole = 1; // ld is a multiple of eight
    return a;
}

// P of a batch; lse (n, heads, tq) may be NULL.
static void probabilities(const dt_kernel_instance *s, const dt_run *r, batch b, float *lse) {
    const sdpa_state *st = s->state;
    const int64_t tq = st->view.tq;
    const dt_sdpa_place rows = {0, st->view.heads * tq, tq, 1};
    char *scratch = r->scratch;
    dt_softmax_args a = sdpa_cuda_rows_of(st);
    run_matmul(s, r, SCORES, sdpa_cuda_part_at(st, r->in, 0, b), sdpa_cuda_part_at(st, r->in, 1, b),
               scratch + st->at_s);
    a.x = scratch + st->at_s;
    a.out = scratch + st->at_p;
    if (lse) {
        a.lse = lse + sdpa_cuda_offset(st, &rows, b); // lse is (n, heads, tq), without padding
        a.lse_rows = tq;
        a.lse_step = inner_step(st, &rows); // rows from one matrix of the chunk to the next
    }
    dt_cuda_launch(dt_cuda_of(s), DT_K_softmax_fwd, dt_rows_grid(&a.r), &a, r->stream);
}

static void batch_forward(const dt_kernel_instance *s, const dt_run *r, batch b) {
    const sdpa_state *st = s->state;
    probabilities(s, r, b, r->out[1]); // out[1]: lse, for backward
    run_matmul(s, r, OUTPUT, (char *)r->scratch + st->at_p, sdpa_cuda_part_at(st, r->in, 2, b),
               sdpa_cuda_at(st, r->out[0], &st->view.y, b));
}

static void batch_backward(const dt_kernel_instance *s, const dt_run *r, batch b) {
    const sdpa_state *st = s->state;
    char *scratch = r->scratch, *p = scratch + st->at_p, *ds = scratch + st->at_ds;
    const void *dy = sdpa_cuda_at(st, r->in[dt_cuda_pos_grad(s, 0)], &st->view.y, b);
    const void *const *grads = (const void *const *)r->out;
    dt_softmax_args a = sdpa_cuda_rows_of(st);
    probabilities(s, r, b, NULL); // P again: storing it would cost tq x tk for each head
    run_matmul(s, r, SLOPES, dy, sdpa_cuda_part_at(st, r->in, 2, b), scratch + st->at_dp);
    a.x = p;
    a.type = st->desc.type;
    a.dy = scratch + st->at_dp;
    a.out = ds; // f32: in place of dP
    dt_cuda_launch(dt_cuda_of(s), DT_K_softmax_bwd, dt_rows_grid(&a.r), &a, r->stream);
    run_matmul(s, r, DQ, ds, sdpa_cuda_part_at(st, r->in, 1, b), sdpa_cuda_part_at(st, grads, 0, b));
    run_matmul(s, r, DK, ds, sdpa_cuda_part_at(st, r->in, 0, b), sdpa_cuda_part_at(st, grads, 1, b));
    run_matmul(s, r, DV, p, dy, sdpa_cuda_part_at(st, grads, 2, b));
}

static void run_matmuls(const dt_kernel_instance *s, const dt_run *r,
                        void (*run_batch)(const dt_kernel_instance *s, const dt_run *r, batch b)) {
    const sdpa_state *st = s->state;
    for (int64_t o = 0; o < st->outer; o++)
        for (int64_t i = 0; i < st->inner; i += st->chunk) {
            // the last chunk overlaps the one before: one plan for all, and the same numbers twice
            const int64_t last = st->inner - st->chunk;
            run_batch(s, r, (batch){o, i < last ? i : last});
        }
}

// ---- forward ---------------------------------------------------------------------------------------
static dt_status sdpa_cuda_prepare(dt_kernel_instance *s) {
    sdpa_state *st = NULL;
    DT_TRY(sdpa_cuda_start(s, &st));
    if (!st->plan) return prepare_matmuls(s, false);
    st->at_lse = s->scratch_bytes;
    if (s->node->out[1] == DT_NONE) s->scratch_bytes += rows_bytes(st); // cuDNN writes the lse in any case
    return DT_OK;
}

static void sdpa_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const sdpa_state *st = s->state;
    if (!st->plan) {
        run_matmuls(s, r, batch_forward);
        return;
    }
    void *lse = r->out[1] ? r->out[1] : (char *)r->scratch + st->at_lse;
    // order as in the graph of cuda_dnn_graph.c
    void *const ptr[5] = {sdpa_cuda_part(st, r->in, 0), sdpa_cuda_part(st, r->in, 1), sdpa_cuda_part(st, r->in, 2),
                          r->out[0], lse};
    dt_cuda_run_dnn(s, st->plan, ptr, r);
}

const dt_kernel dt_cuda_sdpa = {sdpa_cuda_prepare, sdpa_cuda_run, dt_cuda_destroy};

// ---- backward --------------------------------------------------------------------------------------
static dt_status sdpa_cuda_prepare_bwd(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    sdpa_state *st = NULL;
    if (n->in[0] == DT_NONE || (n->attrs.sdpa.heads == 0 && (n->in[1] == DT_NONE || n->in[2] == DT_NONE)))
        return dt_instance_fail(s, "the gradient reads q, k and v");
    DT_TRY(sdpa_cuda_start(s, &st));
    if (n->in[n->n_fwd_in] == DT_NONE || n->in[n->n_fwd_in + 1] == DT_NONE)
        return dt_cuda_fail(s, "the gradient reads the saved y and lse"); // cuDNN does not recompute them
    if (!st->plan) return prepare_matmuls(s, true);
    const dt_sdpa_view *v = &st->view;
    const size_t rows = (size_t)(v->n * v->heads * (v->tq > v->tk ? v->tq : v->tk));
    st->at_dq32 = s->scratch_bytes;
    st->dq32_bytes = st->desc.deterministic ? 0 : rows_bytes(st) * (size_t)v->dim; // f32 sums of dq by atomics
    st->at_sum = st->at_dq32 + dt_cuda_align(st->dq32_bytes);
    st->at_unwanted = st->at_sum + rows_bytes(st);
    bool unwanted = false;
    // cuDNN writes all three gradients
    for (int i = 0; i < 3 && !v->packed; i++) unwanted |= n->out[i] == DT_NONE;
    s->scratch_bytes = st->at_unwanted + (unwanted ? dt_cuda_align(rows * (size_t)v->dim * st->size) : 0);
    return DT_OK;
}

static void sdpa_cuda_run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const sdpa_state *st = s->state;
    char *scratch = r->scratch;
    const int n = s->node->n_fwd_in;
    const void *y = r->in[n], *lse = r->in[n + 1], *dy = r->in[n + s->node->n_fwd_out];
    void *grad[3];
    if (!st->plan) {
        run_matmuls(s, r, batch_backward);
        return;
    }
    for (int i = 0; i < 3; i++) {
        grad[i] = sdpa_cuda_part(st, (const void *const *)r->out, i);
        if (!grad[i]) grad[i] = scratch + st->at_unwanted; // one buffer for all unwanted ones: none is read
    }
    void *const ptr[11] = {sdpa_cuda_part(st, r->in, 0),
                           sdpa_cuda_part(st, r->in, 1),
                           sdpa_cuda_part(st, r->in, 2),
                           (void *)y,
                           (void *)dy,
                           (void *)lse,
                           grad[0],
                           grad[1],
                           grad[2],
                           st->dq32_bytes ? scratch + st->at_dq32 : NULL,
                           scratch + st->at_sum};
    dt_cuda_run_dnn(s, st->plan, ptr, r);
}

const dt_kernel dt_cuda_sdpa_bwd = {sdpa_cuda_prepare_bwd, sdpa_cuda_run_bwd, dt_cuda_destroy};
