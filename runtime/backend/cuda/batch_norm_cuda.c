// batch_norm_cuda.c: host side of batch norm with fused residual, ReLU and 2x2 max-pool, or with another activation. The
// passes, and the bytes that they move, are in kernels/batch_norm_kernels.h and kernels/batch_norm_backward_kernels.h.
//
//   forward   in  x, scale, shift, running mean, running variance, [residual]
//             out y, saved mean, saved 1/std, [argmax u8 | bits u8 | saved shift], STAT batch mean, STAT unbiased
//                 variance
//   backward  in  x, scale, shift, ...; saved mean, saved 1/std, argmax (pool), bits (residual and ReLU) or saved shift
//                 (another activation); dy
//             out dx, dscale, dshift, -, -, dresidual
//
// Each direction normally takes three kernels: a pass that sums, a kernel that makes the constants of each channel,
// and a pass that applies them. Three cases need only one kernel. Shapes and layouts alone decide which case applies.
//   - Forward, x brings its sums (nhwc+sums, see conv2d_cuda.c). Each block makes the constants that it needs.
//   - Forward, x brings its sums, and the only reader of y is a convolution that can apply gain, shift and ReLU as it
//     reads x, and that is faster so (cuda_desc.h, cuda_plans.h). The kernel then only writes the constants, behind x's
//     sums, and y shares x's memory (nhwc+norm). Nothing writes y or reads it back.
//   - There are at most DT_BN_SMALL_PIXELS pixels. A block then does everything for a few channels: 32 bytes per pixel
//     (64 in the backward pass) stay in its multiprocessor's L1 cache (192 KiB or more from sm_80 on), and in L2 what
//     does not fit. With so few pixels a launch costs more than idle multiprocessors do.
//
// sync_batch_norm has the statistics of all ranks (dt_run.ranks), as torch.nn.SyncBatchNorm, and nothing fused. It takes
// the three kernels. Its sums are added over the ranks, as doubles, between a first and a second run of the one that
// makes the constants. dscale and dshift remain those of this rank.
//
// Scratch for three kernels: [ partial (n_chunks, 2, padded) | consts (5, padded) ], floats; behind them sums (2,
// channels) of sync_batch_norm, doubles
#include "backend/cuda/cuda_desc.h"
#include "backend/cuda/cuda_plans.h"
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/batch_norm_math.h"
#include "backend/cuda/norm_tails.h"

// One wave of the first pass on an H100 or H200: 132 multiprocessors with three blocks forward and two backward.
enum { STATS_BLOCKS = 384, SUM_BLOCKS = 264, SUM_ROWS = 4, FLOW_ROWS = 16 };

typedef struct bn_state {
    int type;
    bool training, relu, pool, residual;
    bool backward;
    bool summed, small;                              // summed: x brings its sums; small: one kernel
    bool left;                                       // the convolution that reads y applies it
    bool sync;                                       // statistics are those of all ranks
    int64_t pixels, channels, images, height, width; // pixels of all images; a pixel is a row of channels
    dt_cols sums, apply;                             // first pass; second pass
    int mask;                                        // DT_BN_…: where the backward pass finds ReLU's mask
    int other_at;                                    // of a second gradient of y; 0: there is none
    float eps;
} bn_state;

static dt_status batch_norm_cuda_read_shape(dt_kernel_instance *s, bn_state *st, const dt_value_info *x) {
    const dt_shape *d = &x->shape;
    if (d->n != 2 && d->n != 4) return dt_cuda_fail(s, "batch norm wants (N,C,H,W) or (N,C)");
    st->images = d->d[0], st->channels = d->d[1];
    st->height = d->n == 4 ? d->d[2] : 1, st->width = d->n == 4 ? d->d[3] : 1; // (N,C): an image of one pixel
    st->pixels = st->images * st->height * st->width;
    st->training = s->node->attrs.batch_norm.training;
    st->relu = s->node->attrs.batch_norm.relu;
    st->pool = s->node->attrs.batch_norm.pool;
    st->eps = s->node->attrs.batch_norm.eps;
    st->sync = s->node->op == DT_OP_sync_batch_norm;
    // pixel numbers are int32 in the kernels
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
    // inference uses running statistics: no sums
    return st->training || st->backward ? st->sums.n_chunks * 2 * st->sums.padded : 0;
}

// All rows in one chunk; each block takes 32 bytes of columns.
static dt_cols small_cols(int64_t rows, int64_t cols, int type) {
    dt_cols c = dt_cols_make(rows, cols, 1, 1); // one chunk: a block sees all rows
    const int64_t groups = (cols + 7) / 8;      // 8 channels: 32 bytes of f32
    c.tx_log2 = type != DT_F32 && groups > 1;   // 16-bit types: two groups for the same 32 bytes
    c.tiles = (int)((groups + (1 << c.tx_log2) - 1) >> c.tx_log2);
    c.padded = (int64_t)c.tiles * 8 << c.tx_log2;
    c.chunk_rows = rows > 0 ? rows : 1;
    c.n_chunks = 1;
    return c;
}

// Divides n_sums rows for the first pass and n_apply rows for the second, and sizes the scratch.
static void batch_norm_cuda_divide(dt_kernel_instance *s, bn_state *st, int64_t n_sums, int64_t n_apply) {
    st->small = (st->training || st->backward) && !st->summed && !st->sync && st->pixels <= DT_BN_SMALL_PIXELS;
    if (st->small) {
        st->sums = small_cols(n_sums, st->channels, st->type);
        st->apply = small_cols(n_apply, st->channels, st->type);
        return;
    }
    // fixed numbers of blocks: sums depend on shapes alone, not on the device
    st->sums = dt_cols_make(n_sums, st->channels, st->backward ? SUM_BLOCKS : STATS_BLOCKS, SUM_ROWS);
    st->apply = dt_cols_flow(n_apply, st->channels, FLOW_ROWS);
    // sums of x came with x
    if (!st->summed) s->scratch_bytes = (size_t)(partial_floats(st) + 5 * st->sums.padded) * sizeof(float);
    // doubles behind the floats: n_chunks * 2 * padded * 4 is a multiple of 8
    if (st->sync) s->scratch_bytes += 2 * (size_t)st->channels * sizeof(double);
}

// Decides whether the convolution that reads y applies the batch norm itself.
static dt_status batch_norm_cuda_leave(dt_kernel_instance *s, bn_state *st) {
    dt_cuda *c = dt_cuda_of(s);
    dt_cuda_normed normed;
    // no reader of that kind
    if (!st->summed || !dt_cuda_normed_of(s->graph, s->node, dt_cuda_demands_of(c), &normed)) return DT_OK;
    DT_TRY(dt_cuda_kept(
        s, dt_cuda_plan_fused(c->plans, &normed.forward, normed.has_weights ? &normed.weights : NULL, &st->left)));
    if (!st->left) return DT_OK;           // the convolution is faster with a pass of its own: nothing changes
    s->out_layout[0].tail = &dt_cuda_norm; // y lies in x's memory, with gain and shift behind x's sums
    s->same_memory = true;
    s->inplace_in = -1;
    return DT_OK;
}

static dt_status batch_norm_cuda_prepare_forward(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0);
    const dt_layout given = s->in_layout[0];
    bn_state *st = dt_cuda_prepare(s, sizeof *st);
    // the tail is wanted also where running statistics are used
    if (given.tail == &dt_cuda_sums) s->in_layout[0] = given;
    st->summed = given.tail == &dt_cuda_sums && s->node->attrs.batch_norm.training;
    st->residual = s->node->n_in > 5 && s->node->in[5] != DT_NONE;
    DT_TRY(dt_cuda_type(s, &st->type, x, dt_instance_out(s, 0), st->residual ? dt_instance_in(s, 5) : NULL));
    DT_TRY(batch_norm_cuda_read_shape(s, st, x));
    const int64_t windows = st->images * (st->height / 2) * (st->width / 2); // 2 x 2, an odd row or column is dropped
    batch_norm_cuda_divide(s, st, st->pixels, st->pool ? windows : st->pixels);
    if (!st->pool) s->inplace_in = 0; // a pool's y is smaller than x
    return batch_norm_cuda_leave(s, st);
}

static dt_status batch_norm_cuda_prepare_backward(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *dres = s->node->n_out > 5 ? dt_instance_out(s, 5) : NULL;
    const int y_at = dt_cuda_pos_out(s, 0), dy_at = dt_cuda_pos_grad(s, 0);
    const dt_value_info *dy = dt_instance_in(s, dy_at);
    const dt_layout given = s->in_layout[0], given_y = s->in_layout[y_at];
    bn_state *st = dt_cuda_prepare(s, sizeof *st);
    if (x && given.tail == &dt_cuda_sums) s->in_layout[0] = given;
    if (s->node->in[y_at] != DT_NONE && given_y.tail == &dt_cuda_norm)
        // the layout must be accepted, or the plan reorders y
        s->in_layout[y_at] = given_y; // nothing here reads y
    if (!x) return dt_cuda_fail(s, "the backward node lacks x");
    st->residual = dres != NULL;
    DT_TRY(dt_cuda_type(s, &st->type, x, dy, dt_instance_out(s, 0), dres));
    DT_TRY(batch_norm_cuda_read_shape(s, st, x));
    st->backward = true;
    // The mask can be recomputed from x unless a residual was added. The forward node shows whether there was one.
    const dt_node *forward = &s->graph->nodes[s->node->forward];
    const bool plain = forward->n_in <= 5 || forward->in[5] == DT_NONE;
    st->mask = !st->relu || st->pool ? DT_BN_NONE : plain ? DT_BN_OF_X : DT_BN_BITS; // a pool's mask is its argmax
    if (s->node->attrs.batch_norm.act) st->mask = DT_BN_SLOPE;
    if ((st->pool || st->mask >= DT_BN_BITS) && s->node->in[dt_cuda_pos_out(s, 3)] == DT_NONE)
        return dt_cuda_fail(s, "the backward node lacks %s",
                            st->pool                 ? "argmax"
                            : st->mask == DT_BN_BITS ? "the ReLU's bits"
                                                     : "the saved shift");
    if (st->mask == DT_BN_OF_X && s->node->in[2] == DT_NONE) return dt_cuda_fail(s, "the backward node lacks shift");
    // behind the gradients of all outputs
    if (s->node->n_in > dt_cuda_pos_grad(s, s->node->n_fwd_out)) st->other_at = dt_cuda_pos_grad(s, s->node->n_fwd_out);
    // rounded up: dx of an odd last row or column is written too
    const int64_t rows = (st->height + 1) / 2, across = (st->width + 1) / 2;
    const int64_t pooled = st->images * (st->height / 2) * (st->width / 2);
    batch_norm_cuda_divide(s, st, st->pool ? pooled : st->pixels, st->pool ? st->images * rows * across : st->pixels);
    s->inplace_in = 0; // a thread reads what it needs of x before it writes dx there
    return DT_OK;
}

static dt_bn_args base_args(const dt_kernel_instance *s, const dt_run *r, bool ceil_windows) {
    const bn_state *st = s->state;
    float *scratch = s->scratch_bytes ? r->scratch : NULL; // one kernel needs none
    dt_bn_args a = {.x = r->in[0],
                    .out = r->out[0],
                    .partial = scratch,
                    .consts = scratch ? scratch + partial_floats(st) : NULL,
                    .type = st->type,
                    .relu = st->relu,
                    .mask = st->mask,
                    .act = s->node->attrs.batch_norm.act,
                    .alpha = s->node->attrs.batch_norm.number,
                    .height = st->height, // n_sums windows with a gradient, n_apply windows that cover the image
                    .width = st->width,
                    .out_h = st->height / 2,
                    .out_w = st->width / 2};
    if (st->pool) {
        // division by multiplication: kernels turn a window number into row and column
        a.across = dt_quot_of((st->width + ceil_windows) / 2);
        a.down = dt_quot_of((st->height + ceil_windows) / 2);
    }
    return a;
}

static dt_bn_finish_args finish_args(const dt_kernel_instance *s, const dt_run *r, const dt_bn_args *a) {
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

// Makes the constants of each channel.
static void batch_norm_cuda_finish(const dt_kernel_instance *s, const dt_run *r, dt_cuda_kernel k,
                                   dt_bn_finish_args *f) {
    const bn_state *st = s->state;
    const dt_cuda_grid grid = {.blocks = (st->sums.padded + 31) / 32, .threads = 1024}; // 32 channels per block
    const bool joins = st->sync && r->ranks && r->out[0]; // no output 0: no collective, the same on all ranks
    if (joins) f->shared = (double *)(f->consts + 5 * st->sums.padded); // first launch writes this rank's sums there
    dt_cuda_launch(dt_cuda_of(s), k, grid, f, r->stream);
    if (!joins) return;
    r->ranks->all_reduce(r->ranks->ctx, f->shared, 2 * st->channels); // collective on the stream
    f->joined = 1;                                                    // the second launch reads the sums of all ranks
    f->count *= r->ranks->world_size;
    dt_cuda_launch(dt_cuda_of(s), k, grid, f, r->stream);
}

// Runs all passes in one kernel, on the grid of st->apply.
static void batch_norm_cuda_run_once(const dt_kernel_instance *s, const dt_run *r, dt_cuda_kernel k,
                                     const dt_bn_args *sums, const dt_bn_args *apply, const dt_bn_finish_args *finish) {
    const bn_state *st = s->state;
    const dt_bn_once_args a = {.sums = *sums, .apply = *apply, .finish = *finish, .pool = st->pool};
    dt_cuda_grid grid = dt_cols_grid(&st->apply);
    if (st->small) grid.threads = DT_BN_SMALL_THREADS;
    dt_cuda_launch(dt_cuda_of(s), k, grid, &a, r->stream);
}

static void batch_norm_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const bn_state *st = s->state;
    const dt_value_info *x = dt_instance_in(s, 0);
    dt_cuda *c = dt_cuda_of(s);
    dt_bn_args sums = base_args(s, r, false), apply = sums;
    dt_bn_finish_args f = finish_args(s, r, &sums);
    sums.c = st->sums;
    sums.out = NULL; // the first pass writes sums only
    apply.c = st->apply;
    apply.residual = st->residual ? r->in[5] : NULL;
    if (s->node->n_out > 3 && s->node->out[3] != DT_NONE) {
        if (st->pool)
            apply.argmax = r->out[3];
        else if (st->residual)
            apply.bits = r->out[3];
        else
            f.saved_shift = r->out[3];
    }
    f.mean_in = r->in[3], f.var_in = r->in[4];
    f.saved_mean = r->out[1], f.saved_invstd = r->out[2];
    if (st->training) {
        f.out1 = r->out[4], f.add1 = (int)(r->accumulate >> 4 & 1); // bits 4 and 5: STAT outputs add over micro-batches
        f.out2 = r->out[5], f.add2 = (int)(r->accumulate >> 5 & 1);
    }
    // made by the convolution, behind x
    if (st->summed) f.sums = (const float *)((const char *)r->in[0] + dt_cuda_sums_at(x->dtype, &x->shape));
    if (st->left) {
        const dt_bn_leave_args a = {.finish = f,
                                    // in the activations' type
                                    .gain = (char *)r->out[0] + dt_cuda_norm_at(x->dtype, &x->shape, 0),
                                    .shift = (char *)r->out[0] + dt_cuda_norm_at(x->dtype, &x->shape, 1)};
        const int64_t blocks = (st->channels + DT_BN_THREADS - 1) / DT_BN_THREADS;
        dt_cuda_launch(c, DT_K_bn_leave, (dt_cuda_grid){.blocks = blocks, .threads = DT_BN_THREADS}, &a, r->stream);
        return;
    }
    if (st->summed) {
        batch_norm_cuda_run_once(s, r, st->pool ? DT_K_bn_apply_pool_sums : DT_K_bn_apply_sums, &sums, &apply, &f);
        return;
    }
    if (st->small) {
        batch_norm_cuda_run_once(s, r, DT_K_bn_small, &sums, &apply, &f);
        return;
    }
    // inference: running statistics need no pass over x
    if (st->training) dt_cuda_launch(c, DT_K_bn_stats, dt_cols_grid(&sums.c), &sums, r->stream);
    batch_norm_cuda_finish(s, r, DT_K_bn_finish, &f);
    dt_cuda_launch(c, st->pool ? DT_K_bn_apply_pool : DT_K_bn_apply, dt_cols_grid(&apply.c), &apply, r->stream);
}

static void batch_norm_cuda_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const bn_state *st = s->state;
    dt_cuda *c = dt_cuda_of(s);
    dt_bn_args sums = base_args(s, r, false);
    dt_bn_finish_args f = finish_args(s, r, &sums);
    sums.dy = r->in[dt_cuda_pos_grad(s, 0)];
    const void *saved = r->in[dt_cuda_pos_out(s, 3)];
    if (st->mask == DT_BN_SLOPE)
        f.shift = saved; // x * gain + shift is the activation's argument
    else
        *(st->pool ? &sums.argmax_in : &sums.bits_in) = saved;
    sums.dresidual = st->residual ? r->out[5] : NULL;
    sums.other = st->other_at ? r->in[st->other_at] : NULL; // a second gradient of y, added on the fly
    sums.mean = f.mean_in = r->in[dt_cuda_pos_out(s, 1)];
    sums.invstd = f.var_in = r->in[dt_cuda_pos_out(s, 2)];
    sums.scale = f.scale, sums.shift = f.shift;
    f.out1 = r->out[1], f.add1 = (int)(r->accumulate >> 1 & 1); // bits 1 and 2: dscale and dshift
    f.out2 = r->out[2], f.add2 = (int)(r->accumulate >> 2 & 1);
    const dt_bn_args windows = base_args(s, r, true);
    // windows that cover the image, odd edges included
    dt_bn_args apply = sums;
    sums.c = st->sums;
    sums.out = NULL;
    apply.c = st->apply;
    apply.across = windows.across, apply.down = windows.down;
    if (apply.dresidual) { // g, masked by the first pass
        apply.dy = apply.dresidual, apply.mask = DT_BN_NONE;
        apply.bits_in = apply.other = NULL;
    }
    if (st->small) {
        batch_norm_cuda_run_once(s, r, DT_K_bn_bwd_small, &sums, &apply, &f);
        return;
    }
    if (st->training || sums.dresidual) // with running statistics only dresidual is wanted of it
        dt_cuda_launch(c, st->pool ? DT_K_bn_bwd_sums_pool : DT_K_bn_bwd_sums, dt_cols_grid(&sums.c), &sums, r->stream);
    batch_norm_cuda_finish(s, r, DT_K_bn_bwd_finish, &f);
    if (!r->out[0]) return; // x needs no gradient
    dt_cuda_launch(c, st->pool ? DT_K_bn_bwd_apply_pool : DT_K_bn_bwd_apply, dt_cols_grid(&apply.c), &apply, r->stream);
}

const dt_kernel dt_cuda_batch_norm = {batch_norm_cuda_prepare_forward, batch_norm_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_batch_norm_bwd = {batch_norm_cuda_prepare_backward, batch_norm_cuda_run_backward,
                                          dt_cuda_destroy};
// the same kernels, which reduce over the ranks by the node's op
const dt_kernel dt_cuda_sync_batch_norm = {batch_norm_cuda_prepare_forward, batch_norm_cuda_run_forward,
                                           dt_cuda_destroy};
const dt_kernel dt_cuda_sync_batch_norm_bwd = {batch_norm_cuda_prepare_backward, batch_norm_cuda_run_backward,
                                               dt_cuda_destroy};
