// layer_norm_cuda.c: host side of layer norm over the last dimension, DENSE (kernels/layer_norm_kernels.h).
// The forward node outputs y and, for the backward node, the rows' mean and 1/std. For merged additions see
// graph/ops/layer_norm.c.
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/layer_norm_kernels.h"

// Blocks of the backward pass, each with its own sums: two for each multiprocessor of an H100 or H200, but a constant,
// so that sums depend on shapes alone.
enum { SUM_BLOCKS = 264 };

typedef struct ln_state {
    int type, threads, residual_at; // residual_at < 0: none
    dt_rows r;
    int64_t n_blocks;
} ln_state;

static dt_status layer_norm_cuda_prepare_at(dt_kernel_instance *s, const dt_value_info *dy, int residual_at) {
    const dt_value_info *x = dt_instance_in(s, 0), *residual = NULL;
    ln_state *st = dt_cuda_prepare_dense(s, sizeof *st);
    st->residual_at = residual_at < s->node->n_in ? residual_at : -1;
    if (st->residual_at >= 0) residual = dt_instance_in(s, residual_at);
    if (!x || x->shape.n < 1) return dt_cuda_fail(s, "wants (…,D)");
    DT_TRY(dt_cuda_type(s, &st->type, x, dy, dt_instance_out(s, 0), residual));
    const int64_t n = x->shape.d[x->shape.n - 1];
    st->r = dt_rows_make(n ? dt_shape_elements(&x->shape) / n : 0, n);
    while (st->r.group < 512 && (int64_t)st->r.group * 8 * DT_LN_GROUPS < n) st->r.group *= 2;
    st->threads = st->r.group > 256 ? st->r.group : 256;
    if (n > (int64_t)st->r.group * 8 * DT_LN_GROUPS)
        return dt_cuda_fail(s, "rows of more than %d elements", 512 * 8 * DT_LN_GROUPS);
    return DT_OK;
}

static dt_status layer_norm_cuda_prepare_forward(dt_kernel_instance *s) {
    DT_TRY(layer_norm_cuda_prepare_at(s, NULL, 3));
    const ln_state *st = s->state;
    s->inplace_in = st->residual_at < 0 ? 0 : st->residual_at; // both are read before y is written
    return DT_OK;
}

static dt_cuda_grid layer_norm_cuda_grid_of(const ln_state *st) {
    const int64_t a_block = st->threads / st->r.group, n = (st->r.rows + a_block - 1) / a_block;
    return (dt_cuda_grid){.blocks = n > 0 ? n : 1, .threads = st->threads};
}

static void layer_norm_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const ln_state *st = s->state;
    const dt_layer_norm_args a = {.r = st->r,
                                  .x = r->in[0],
                                  .scale = r->in[1],
                                  .shift = r->in[2],
                                  .residual = st->residual_at < 0 ? NULL : r->in[st->residual_at],
                                  .sum = st->residual_at < 0 ? NULL : r->out[3],
                                  .out = r->out[0],
                                  .mean = r->out[1],
                                  .invstd = r->out[2],
                                  .type = st->type,
                                  .eps = s->node->attrs.layer_norm.eps};
    dt_cuda_launch(dt_cuda_of(s), DT_K_ln_fwd, layer_norm_cuda_grid_of(st), &a, r->stream);
}

static dt_status layer_norm_cuda_prepare_backward(dt_kernel_instance *s) {
    const int mean_at = dt_cuda_pos_out(s, 1), dy_at = dt_cuda_pos_grad(s, 0);
    DT_TRY(layer_norm_cuda_prepare_at(s, dt_instance_in(s, dy_at), dy_at + s->node->n_fwd_out));
    ln_state *st = s->state;
    if (s->node->in[1] == DT_NONE || s->node->in[mean_at] == DT_NONE || s->node->in[mean_at + 1] == DT_NONE)
        return dt_cuda_fail(s, "the gradient reads x, scale, mean and 1/std");
    const int64_t all = layer_norm_cuda_grid_of(st).blocks;
    st->n_blocks = all < SUM_BLOCKS ? all : SUM_BLOCKS;
    s->scratch_bytes = (size_t)(st->n_blocks * 2 * st->r.n) * sizeof(float);
    s->inplace_in = dy_at;
    return DT_OK;
}

static void layer_norm_cuda_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const ln_state *st = s->state;
    const int mean_at = dt_cuda_pos_out(s, 1);
    dt_cuda *c = dt_cuda_of(s);
    const dt_layer_norm_args a = {.r = st->r,
                                  .x = r->in[0],
                                  .dy = r->in[dt_cuda_pos_grad(s, 0)],
                                  .residual = st->residual_at < 0 ? NULL : r->in[st->residual_at],
                                  .scale = r->in[1],
                                  .mean_in = r->in[mean_at],
                                  .invstd_in = r->in[mean_at + 1],
                                  .out = r->out[0],
                                  .partial = r->scratch,
                                  .dscale = r->out[1],
                                  .dshift = r->out[2],
                                  .n_blocks = st->n_blocks,
                                  .type = st->type,
                                  .add_scale = (int)(r->accumulate >> 1 & 1),
                                  .add_shift = (int)(r->accumulate >> 2 & 1)};
    const dt_cuda_grid g = {.blocks = st->n_blocks, .threads = st->threads};
    dt_cuda_launch(c, DT_K_ln_bwd, g, &a, r->stream);
    if (!a.dscale && !a.dshift) return;
    const dt_cuda_grid last = {.blocks = (2 * st->r.n + 31) / 32, .threads = 1024};
    dt_cuda_launch(c, DT_K_ln_bwd_finish, last, &a, r->stream);
}

const dt_kernel dt_cuda_layer_norm = {layer_norm_cuda_prepare_forward, layer_norm_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_layer_norm_bwd = {layer_norm_cuda_prepare_backward, layer_norm_cuda_run_backward,
                                          dt_cuda_destroy};
