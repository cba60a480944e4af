// sdpa_cuda.c: scaled dot-product attention through cuDNN's flash attention. q, k and v are separate or packed into
// one tensor. Custom kernels serve what cuDNN does not (fp32, odd head sizes). Tensors are DENSE; strides tell where
// heads lie.
//
// cuDNN's backward pass makes all three gradients; an unwanted one goes to scratch.
// Scratch: forward [ workspace | lse ] (lse only if it is not an output); backward
// [ workspace | dq32 | row sums | space for one unwanted gradient ]
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/kernels/sdpa_kernels.h"
#include "backend/cuda/weights_cuda.h"
#include "backend/sdpa_view.h"

typedef struct sdpa_state {
    dt_sdpa_view view;
    dt_dnn_desc desc;
    const dt_cuda_plan *plan; // NULL: custom kernels
    size_t at_lse, at_dq32, at_sum, at_unwanted, dq32_bytes, size;
} sdpa_state;

static dt_status start(dt_kernel_instance *s, sdpa_state **out) {
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
    if (!st->plan && st->view.dim > DT_SDPA_MAX_DIM)
        return dt_cuda_fail(s, "heads of %d numbers: at most %d without cuDNN", (int)st->view.dim,
                            DT_SDPA_MAX_DIM);
    s->scratch_bytes = st->plan ? dt_cuda_align(st->plan->workspace_bytes) : 0;
    *out = st;
    return DT_OK;
}

static size_t rows_bytes(const sdpa_state *st) {
    return dt_cuda_align((size_t)(st->view.n * st->view.heads * st->view.tq) * sizeof(float));
}

// Tensor i (q, k, v), separate or packed in the first; NULL if absent.
static void *part(const sdpa_state *st, const void *const *tensors, int i) {
    char *p = (char *)tensors[st->view.packed ? 0 : i];
    return p ? p + (size_t)st->view.part[i].begin * st->size : NULL;
}

static dt_sdpa_args custom_args(const sdpa_state *st, const dt_run *r) {
    dt_sdpa_args a = {.q = part(st, r->in, 0),
                      .k = part(st, r->in, 1),
                      .v = part(st, r->in, 2),
                      .n = st->view.n,
                      .heads = st->view.heads,
                      .tq = st->view.tq,
                      .tk = st->view.tk,
                      .dim = st->view.dim,
                      .scale = st->desc.scale,
                      .type = st->desc.type};
    for (int i = 0; i < 3; i++) {
        a.stride_q[i] = st->desc.stride_q[i];
        a.stride_k[i] = st->desc.stride_k[i];
        a.stride_v[i] = st->desc.stride_v[i];
        a.stride_y[i] = st->desc.stride_y[i];
    }
    return a;
}

static void launch_rows(dt_cuda *c, dt_cuda_kernel k, const sdpa_state *st, int64_t rows,
                        const dt_sdpa_args *a, void *stream) {
    dt_cuda_launch(
        c, k,
        (dt_cuda_grid){.blocks = st->view.n * st->view.heads * rows, .threads = DT_SDPA_THREADS}, a,
        stream);
}

// ---- forward ---------------------------------------------------------------------------------------
static dt_status prepare(dt_kernel_instance *s) {
    sdpa_state *st = NULL;
    DT_TRY(start(s, &st));
    st->at_lse = s->scratch_bytes;
    if (s->node->out[1] == DT_NONE) s->scratch_bytes += rows_bytes(st);
    return DT_OK;
}

static void run(const dt_kernel_instance *s, const dt_run *r) {
    const sdpa_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    void *lse = r->out[1] ? r->out[1] : (char *)r->scratch + st->at_lse;
    if (st->plan) {
        void *const ptr[5] = {part(st, r->in, 0), part(st, r->in, 1), part(st, r->in, 2), r->out[0],
                              lse};
        dt_cuda_run_dnn(s, st->plan, ptr, r);
        return;
    }
    dt_sdpa_args a = custom_args(st, r);
    a.lse = lse;
    a.out = r->out[0];
    launch_rows(c, DT_K_sdpa_fwd, st, st->view.tq, &a, r->stream);
}

const dt_kernel dt_cuda_sdpa = {prepare, run, dt_cuda_destroy};

// ---- backward --------------------------------------------------------------------------------------
static dt_status prepare_bwd(dt_kernel_instance *s) {
    const dt_node *n = s->node;
    sdpa_state *st = NULL;
    if (n->in[0] == DT_NONE ||
        (n->attrs.sdpa.heads == 0 && (n->in[1] == DT_NONE || n->in[2] == DT_NONE)))
        return dt_instance_fail(s, "the gradient reads q, k and v");
    DT_TRY(start(s, &st));
    if (n->in[n->n_fwd_in] == DT_NONE || n->in[n->n_fwd_in + 1] == DT_NONE)
        return dt_cuda_fail(s, "the gradient reads the saved y and lse");
    const dt_sdpa_view *v = &st->view;
    const size_t rows = (size_t)(v->n * v->heads * (v->tq > v->tk ? v->tq : v->tk));
    st->at_dq32 = s->scratch_bytes;
    st->dq32_bytes = rows_bytes(st) * (size_t)v->dim;
    if (!st->plan || st->desc.deterministic) st->dq32_bytes = 0;
    st->at_sum = st->at_dq32 + dt_cuda_align(st->dq32_bytes);
    st->at_unwanted = st->at_sum + rows_bytes(st);
    bool unwanted = false;
    for (int i = 0; i < 3 && !v->packed; i++) unwanted |= n->out[i] == DT_NONE;
    s->scratch_bytes = st->at_unwanted +
                       (st->plan && unwanted ? dt_cuda_align(rows * (size_t)v->dim * st->size) : 0);
    return DT_OK;
}

static void run_bwd(const dt_kernel_instance *s, const dt_run *r) {
    const sdpa_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    char *scratch = r->scratch;
    const int n = s->node->n_fwd_in;
    const void *y = r->in[n], *lse = r->in[n + 1], *dy = r->in[n + s->node->n_fwd_out];
    void *grad[3];
    for (int i = 0; i < 3; i++) grad[i] = part(st, (const void *const *)r->out, i);
    if (st->plan) {
        for (int i = 0; i < 3; i++)
            if (!grad[i]) grad[i] = scratch + st->at_unwanted;
        void *const ptr[11] = {part(st, r->in, 0),
                               part(st, r->in, 1),
                               part(st, r->in, 2),
                               (void *)y,
                               (void *)dy,
                               (void *)lse,
                               grad[0],
                               grad[1],
                               grad[2],
                               st->dq32_bytes ? scratch + st->at_dq32 : NULL,
                               scratch + st->at_sum};
        if (ptr[9])
            dt_cuda_check(c, c->api->zero(c->api, ptr[9], st->dq32_bytes, r->stream),
                          "clearing attention's sums");
        dt_cuda_run_dnn(s, st->plan, ptr, r);
        return;
    }
    dt_sdpa_args a = custom_args(st, r);
    a.y = y;
    a.dy = dy;
    a.lse = (float *)lse;
    a.rowsum = (float *)(scratch + st->at_sum);
    dt_cuda_launch(c, DT_K_sdpa_rowsum,
                   dt_cuda_grid_flat(c, st->view.n * st->view.heads * st->view.tq), &a, r->stream);
    a.out = grad[0];
    if (grad[0]) launch_rows(c, DT_K_sdpa_dq, st, st->view.tq, &a, r->stream);
    a.out = grad[1];
    a.out2 = grad[2];
    if (grad[1] || grad[2]) launch_rows(c, DT_K_sdpa_dkv, st, st->view.tk, &a, r->stream);
}

const dt_kernel dt_cuda_sdpa_bwd = {prepare_bwd, run_bwd, dt_cuda_destroy};
