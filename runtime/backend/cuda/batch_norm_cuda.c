// batch_norm_cuda.c: host side of batch norm with fused residual, ReLU and 2x2 max-pool (the passes and what
// they move: kernels/batch_norm_kernels.h).
//
//   forward   in  x, scale, shift, running mean, running variance, [residual]
//             out y, saved mean, saved 1/std, [argmax u8], STAT batch mean, STAT unbiased variance
//   backward  in  x, scale, [shift], …; y (ReLU without pool), saved mean, saved 1/std, argmax (pool); dy
//             out dx, dscale, dshift, -, -, dresidual
//
// The first pass of forward falls away where x brings its sums (DT_NHWC_SUMS, see conv2d_cuda.c).
//
// Scratch: [ partial (n_chunks, 2, padded) | consts (5, padded) ], floats
#include "backend/cuda/kernels/batch_norm_kernels.h"
#include "backend/cuda/own_cuda.h"

enum { SUM_BLOCKS = 512, SUM_ROWS = 4, FLOW_ROWS = 16 };

typedef struct bn_state {
    int type;
    bool training, relu, pool, residual, summed; // summed: x brings its sums
    int64_t pixels, channels, images, height, width;
    dt_cols sums, apply; // first pass; second pass
    int mask;
    float eps;
} bn_state;

static dt_status read_shape(dt_site *s, bn_state *st, const dt_value_info *x) {
    const dt_shape *d = &x->shape;
    if (d->n != 2 && d->n != 4) return dt_cuda_fail(s, "batch norm wants (N,C,H,W) or (N,C)");
    st->images = d->d[0], st->channels = d->d[1];
    st->height = d->n == 4 ? d->d[2] : 1, st->width = d->n == 4 ? d->d[3] : 1;
    st->pixels = st->images * st->height * st->width;
    st->training = s->node->attrs.batch_norm.training;
    st->relu = s->node->attrs.batch_norm.relu;
    st->pool = s->node->attrs.batch_norm.pool;
    st->eps = s->node->attrs.batch_norm.eps;
    if (st->pixels >= INT32_MAX) return dt_cuda_fail(s, "more than 2^31 pixels");
    if (!st->pool) return DT_OK;
    const dt_window *w = &s->node->attrs.batch_norm.win;
    for (int i = 0; i < 2; i++)
        if (w->kernel[i] != 2 || w->stride[i] != 2 || w->pad_begin[i] || w->pad_end[i])
            return dt_cuda_fail(s, "only 2x2 pooling with stride 2 and no padding can be fused");
    if (d->n != 4) return dt_cuda_fail(s, "pooling wants (N,C,H,W)");
    if (st->residual) return dt_cuda_fail(s, "a pool behind a residual is not fused");
    return DT_OK;
}

static int64_t partial_floats(const bn_state *st) {
    return st->training && !st->summed ? st->sums.n_chunks * 2 * st->sums.padded : 0;
}

static void size_scratch(dt_site *s, const bn_state *st) {
    const int64_t partial = partial_floats(st);
    s->scratch_bytes = (size_t)(partial + 5 * st->sums.padded) * sizeof(float);
}

static dt_status prepare_forward(dt_site *s) {
    const dt_value_info *x = dt_site_in(s, 0);
    const dt_layout given = s->in_layout[0];
    bn_state *st = dt_cuda_prepare(s, sizeof *st);
    if (given.kind == DT_NHWC_SUMS) s->in_layout[0] = given;
    st->summed = given.kind == DT_NHWC_SUMS && s->node->attrs.batch_norm.training;
    st->residual = s->node->n_in > 5 && s->node->in[5] != DT_NONE;
    DT_TRY(dt_cuda_type(
        s, &st->type,
        (const dt_value_info *[]){x, dt_site_out(s, 0), st->residual ? dt_site_in(s, 5) : NULL},
        3));
    DT_TRY(read_shape(s, st, x));
    st->sums = dt_cols_make(st->pixels, st->channels, SUM_BLOCKS, SUM_ROWS);
    const int64_t windows = st->images * (st->height / 2) * (st->width / 2);
    st->apply = dt_cols_flow(st->pool ? windows : st->pixels, st->channels, FLOW_ROWS);
    if (!st->pool) s->inplace_in = 0;
    size_scratch(s, st);
    return DT_OK;
}

static dt_status prepare_backward(dt_site *s) {
    const dt_value_info *x = dt_site_in(s, 0),
                        *dres = s->node->n_out > 5 ? dt_site_out(s, 5) : NULL;
    const int y_at = dt_cuda_pos_out(s, 0), argmax_at = dt_cuda_pos_out(s, 3);
    const dt_value_info *dy = dt_site_in(s, dt_cuda_pos_grad(s, 0));
    const dt_layout given = s->in_layout[0];
    bn_state *st = dt_cuda_prepare(s, sizeof *st);
    if (x && given.kind == DT_NHWC_SUMS) s->in_layout[0] = given;
    if (!x) return dt_cuda_fail(s, "the backward node lacks x");
    st->residual = dres != NULL;
    DT_TRY(
        dt_cuda_type(s, &st->type, (const dt_value_info *[]){x, dy, dt_site_out(s, 0), dres}, 4));
    DT_TRY(read_shape(s, st, x));
    if (!st->training) return dt_cuda_fail(s, "batch norm has a gradient in training only");
    // The mask can be made from x, unless a residual was added: whether there was one shows in the forward node.
    const dt_node *forward = &s->graph->nodes[s->node->forward];
    const bool plain = forward->n_in <= 5 || forward->in[5] == DT_NONE;
    st->mask = !st->relu || st->pool                ? DT_BN_NONE
               : plain && s->node->in[2] != DT_NONE ? DT_BN_OF_X
                                                    : DT_BN_OF_Y;
    if (st->pool ? s->node->in[argmax_at] == DT_NONE
                 : st->mask == DT_BN_OF_Y && s->node->in[y_at] == DT_NONE)
        return dt_cuda_fail(s, "the backward node lacks %s", st->pool ? "argmax" : "y");
    const int64_t rows = (st->height + 1) / 2, across = (st->width + 1) / 2;
    const int64_t pooled = st->images * (st->height / 2) * (st->width / 2);
    st->sums = dt_cols_make(st->pool ? pooled : st->pixels, st->channels, SUM_BLOCKS, SUM_ROWS);
    st->apply =
        dt_cols_flow(st->pool ? st->images * rows * across : st->pixels, st->channels, FLOW_ROWS);
    s->inplace_in = 0; // a thread reads what it needs of x before it writes dx there
    size_scratch(s, st);
    return DT_OK;
}

static dt_bn_args base_args(const dt_site *s, const dt_run *r, bool ceil_windows) {
    const bn_state *st = s->state;
    const int64_t partial = partial_floats(st);
    dt_bn_args a = {.x = r->in[0],
                    .out = r->out[0],
                    .partial = r->scratch,
                    .consts = (float *)r->scratch + partial,
                    .type = st->type,
                    .relu = st->relu,
                    .mask = st->mask,
                    .height = st->height,
                    .width = st->width,
                    .out_h = st->height / 2,
                    .out_w = st->width / 2};
    if (st->pool) {
        a.across = dt_quot_of((st->width + ceil_windows) / 2);
        a.down = dt_quot_of((st->height + ceil_windows) / 2);
    }
    return a;
}

static dt_bn_finish_args finish_args(const dt_site *s, const dt_run *r, const dt_bn_args *a) {
    const bn_state *st = s->state;
    return (dt_bn_finish_args){.c = st->sums,
                               .count = st->pixels,
                               .x = r->in[0],
                               .partial = a->partial,
                               .consts = a->consts,
                               .scale = r->in[1],
                               .shift = r->in[2],
                               .type = st->type,
                               .training = st->training,
                               .eps = st->eps};
}
static dt_cuda_grid finish_grid(const bn_state *st) {
    return (dt_cuda_grid){.blocks = (st->sums.padded + 31) / 32, .threads = 1024};
}

static void run_forward(const dt_site *s, const dt_run *r) {
    const bn_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    dt_bn_args a = base_args(s, r, false);
    dt_bn_finish_args f = finish_args(s, r, &a);
    a.residual = st->residual ? r->in[5] : NULL;
    a.argmax = st->pool && s->node->n_out > 3 ? r->out[3] : NULL;
    f.mean_in = r->in[3], f.var_in = r->in[4];
    if (st->training) {
        const dt_value_info *x = dt_site_in(s, 0);
        a.c = st->sums;
        if (st->summed)
            f.sums =
                (const float *)((const char *)r->in[0] + dt_layout_sums_at(x->dtype, &x->shape));
        else
            dt_cuda_launch(c, DT_K_bn_stats, dt_cols_grid(&a.c), &a, r->stream);
        f.saved_mean = r->out[1], f.saved_invstd = r->out[2];
        f.out1 = r->out[4], f.add1 = (int)(r->accumulate >> 4 & 1);
        f.out2 = r->out[5], f.add2 = (int)(r->accumulate >> 5 & 1);
    }
    dt_cuda_launch(c, DT_K_bn_finish, finish_grid(st), &f, r->stream);
    a.c = st->apply;
    dt_cuda_launch(c, st->pool ? DT_K_bn_apply_pool : DT_K_bn_apply, dt_cols_grid(&a.c), &a,
                   r->stream);
}

static void run_backward(const dt_site *s, const dt_run *r) {
    const bn_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    dt_bn_args a = base_args(s, r, false);
    dt_bn_finish_args f = finish_args(s, r, &a);
    a.dy = r->in[dt_cuda_pos_grad(s, 0)];
    a.y = r->in[dt_cuda_pos_out(s, 0)];
    a.argmax_in = st->pool ? r->in[dt_cuda_pos_out(s, 3)] : NULL;
    a.dresidual = st->residual ? r->out[5] : NULL;
    a.mean = f.mean_in = r->in[dt_cuda_pos_out(s, 1)];
    a.invstd = f.var_in = r->in[dt_cuda_pos_out(s, 2)];
    a.scale = f.scale, a.shift = f.shift;
    a.c = st->sums;
    dt_cuda_launch(c, st->pool ? DT_K_bn_bwd_sums_pool : DT_K_bn_bwd_sums, dt_cols_grid(&a.c), &a,
                   r->stream);
    f.out1 = r->out[1], f.add1 = (int)(r->accumulate >> 1 & 1);
    f.out2 = r->out[2], f.add2 = (int)(r->accumulate >> 2 & 1);
    dt_cuda_launch(c, DT_K_bn_bwd_finish, finish_grid(st), &f, r->stream);
    if (!r->out[0]) return;
    const dt_bn_args windows = base_args(s, r, true);
    a.across = windows.across, a.down = windows.down;
    a.c = st->apply;
    if (a.dresidual) a.dy = a.dresidual, a.mask = DT_BN_NONE; // g, masked by the first pass
    dt_cuda_launch(c, st->pool ? DT_K_bn_bwd_apply_pool : DT_K_bn_bwd_apply, dt_cols_grid(&a.c), &a,
                   r->stream);
}

const dt_kernel dt_cuda_batch_norm = {prepare_forward, run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_batch_norm_bwd = {prepare_backward, run_backward, dt_cuda_destroy};
