// rows_cuda.c: kernels over rows, host side.

#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/loss_kernels.h"
#include "backend/cuda/kernels/rows_kernels.h"

// ---- softmax ------------------------------------------------------------------------------------------------------

// Host side of softmax over the last axis, DENSE, in place (kernels/rows_kernels.h).

typedef struct softmax_state { // positions among the inputs
    int type, x_at, dy_at;     // dy_at < 0: forward
    dt_rows r;
} softmax_state;

static dt_status softmax_cuda_prepare_at(dt_kernel_instance *s, int x_at, int dy_at) {
    const dt_value_info *x = dt_instance_in(s, x_at), *dy = dy_at < 0 ? NULL : dt_instance_in(s, dy_at);
    softmax_state *st = dt_cuda_prepare(s, sizeof *st);
    if (!x) return dt_cuda_fail(s, "the gradient reads the output");
    DT_TRY(dt_cuda_type(s, &st->type, x, dy, dt_instance_out(s, 0)));
    const int64_t n = x->shape.d[x->shape.n - 1];
    st->r = dt_rows_make(n ? dt_shape_elements(&x->shape) / n : 0, n); // threads of a row follow from its length
    st->x_at = x_at, st->dy_at = dy_at;
    s->in_layout[x_at] = s->out_layout[0] = dt_dense();
    if (dy) s->in_layout[dy_at] = dt_dense();
    s->inplace_in = dy ? dy_at : x_at; // each row is read before it is written
    return DT_OK;
}
static dt_status softmax_cuda_prepare_forward(dt_kernel_instance *s) {
    return softmax_cuda_prepare_at(s, 0, -1);
}
static dt_status softmax_cuda_prepare_backward(dt_kernel_instance *s) {
    return softmax_cuda_prepare_at(s, dt_cuda_pos_out(s, 0), dt_cuda_pos_grad(s, 0));
}

static void softmax_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const softmax_state *st = s->state;
    const dt_softmax_args a = {.r = st->r,
                               .ld = st->r.n, // rows follow each other without gaps
                               .x = r->in[st->x_at],
                               .dy = st->dy_at < 0 ? NULL : r->in[st->dy_at],
                               .out = r->out[0],
                               .type = st->type,
                               .dy_type = st->type,
                               .out_type = st->type};
    dt_cuda_launch(dt_cuda_of(s), a.dy ? DT_K_softmax_bwd : DT_K_softmax_fwd, dt_rows_grid(&a.r), &a, r->stream);
}

const dt_kernel dt_cuda_softmax = {softmax_cuda_prepare_forward, softmax_cuda_run, dt_cuda_destroy};
const dt_kernel dt_cuda_softmax_bwd = {softmax_cuda_prepare_backward, softmax_cuda_run, dt_cuda_destroy};

// ---- layer norm ---------------------------------------------------------------------------------------------------

// Host side of layer norm over the last dimension, DENSE (kernels/rows_kernels.h).
// The forward node outputs y and, for the backward node, the rows' mean and 1/std. For merged additions see
// graph/ops/norm.c.

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
    st->residual_at = residual_at < s->node->n_in ? residual_at : -1; // -1: no fused addition
    if (st->residual_at >= 0) residual = dt_instance_in(s, residual_at);
    if (!x || x->shape.n < 1) return dt_cuda_fail(s, "wants (…,D)");
    DT_TRY(dt_cuda_type(s, &st->type, x, dy, dt_instance_out(s, 0), residual));
    const int64_t n = x->shape.d[x->shape.n - 1];
    st->r = dt_rows_make(n ? dt_shape_elements(&x->shape) / n : 0, n);
    // threads of a row: 8 elements each, DT_LN_GROUPS times
    while (st->r.group < 512 && (int64_t)st->r.group * 8 * DT_LN_GROUPS < n) st->r.group *= 2;
    st->threads = st->r.group > 256 ? st->r.group : 256; // several short rows per block
    if (n > (int64_t)st->r.group * 8 * DT_LN_GROUPS)     // registers hold a row
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
    const int64_t a_block = st->threads / st->r.group, n = (st->r.rows + a_block - 1) / a_block; // rows of a block
    return (dt_cuda_grid){.blocks = n > 0 ? n : 1, .threads = st->threads};
}

static void layer_norm_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const ln_state *st = s->state;
    const dt_layer_norm_args a = {.r = st->r,
                                  .x = r->in[0],
                                  .scale = r->in[1],
                                  .shift = r->in[2],
                                  .residual = st->residual_at < 0 ? NULL : r->in[st->residual_at],
                                  .sum = st->residual_at < 0 ? NULL : r->out[3], // output 3: x + residual
                                  .out = r->out[0],
                                  .mean = r->out[1],
                                  .invstd = r->out[2],
                                  .type = st->type,
                                  .eps = s->node->attrs.layer_norm.eps};
    dt_cuda_launch(dt_cuda_of(s), DT_K_ln_fwd, layer_norm_cuda_grid_of(st), &a, r->stream);
}

static dt_status layer_norm_cuda_prepare_backward(dt_kernel_instance *s) {
    const int mean_at = dt_cuda_pos_out(s, 1), dy_at = dt_cuda_pos_grad(s, 0);
    // behind the gradients: gradient of the sum's other use
    DT_TRY(layer_norm_cuda_prepare_at(s, dt_instance_in(s, dy_at), dy_at + s->node->n_fwd_out));
    ln_state *st = s->state;
    if (s->node->in[1] == DT_NONE || s->node->in[mean_at] == DT_NONE || s->node->in[mean_at + 1] == DT_NONE)
        return dt_cuda_fail(s, "the gradient reads x, scale, mean and 1/std");
    const int64_t all = layer_norm_cuda_grid_of(st).blocks;
    st->n_blocks = all < SUM_BLOCKS ? all : SUM_BLOCKS;                      // blocks take rows in turn
    s->scratch_bytes = (size_t)(st->n_blocks * 2 * st->r.n) * sizeof(float); // dscale and dshift per block
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
    if (!a.dscale && !a.dshift) return;                                             // neither is wanted
    const dt_cuda_grid last = {.blocks = (2 * st->r.n + 31) / 32, .threads = 1024}; // adds the blocks' sums in order
    dt_cuda_launch(c, DT_K_ln_bwd_finish, last, &a, r->stream);
}

const dt_kernel dt_cuda_layer_norm = {layer_norm_cuda_prepare_forward, layer_norm_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_layer_norm_bwd = {layer_norm_cuda_prepare_backward, layer_norm_cuda_run_backward,
                                          dt_cuda_destroy};

// ---- embedding loss -----------------------------------------------------------------------------------------------

// Host side of l2_normalize, arc_margin and triplet (kernels/loss_kernels.h).

static dt_status embedding_loss_cuda_prepare_f32(dt_kernel_instance *s) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    dt_rows *r = dt_cuda_prepare_dense(s, sizeof *r);
    if (dt_instance_in(s, 0)->dtype != DT_F32) return dt_cuda_fail(s, "wants f32"); // embeddings are compared in f32
    const int64_t n = shape->d[shape->n - 1];
    *r = dt_rows_make(n ? dt_shape_elements(shape) / n : 0, n);
    return DT_OK;
}

static const void *embedding_loss_cuda_gradient_of(const dt_kernel_instance *s, const dt_run *r) {
    return s->node->backward ? r->in[dt_cuda_pos_grad(s, 0)] : NULL; // forward: none
}

static dt_status embedding_loss_cuda_prepare_normalize_bwd(dt_kernel_instance *s) {
    DT_TRY(embedding_loss_cuda_prepare_f32(s));
    s->inplace_in = dt_cuda_pos_grad(s, 0); // a thread has read its dy before it writes dx there
    return DT_OK;
}

// dy decides the direction
static void embedding_loss_cuda_run_normalize(const dt_kernel_instance *s, const dt_run *r) {
    const dt_rows *rows = s->state;
    const dt_l2_args a = {.r = *rows, .x = r->in[0], .dy = embedding_loss_cuda_gradient_of(s, r), .out = r->out[0]};
    dt_cuda_launch(dt_cuda_of(s), DT_K_l2_rows, dt_rows_grid(rows), &a, r->stream);
}

static void embedding_loss_cuda_run_margin(const dt_kernel_instance *s, const dt_run *r) {
    const dt_rows *rows = s->state;
    const dt_arc_args a = {.r = *rows,
                           .x = r->in[0],
                           .dy = embedding_loss_cuda_gradient_of(s, r),
                           .target = r->in[1],
                           .out = r->out[0],
                           .margin = s->node->attrs.arc_margin.margin,
                           .scale = s->node->attrs.arc_margin.scale};
    dt_cuda_launch(dt_cuda_of(s), DT_K_arc_rows, dt_rows_grid(rows), &a, r->stream);
}

// Rows are samples, and so are what a row's threads divide.
static dt_status embedding_loss_cuda_prepare_triplet(dt_kernel_instance *s) {
    DT_TRY(embedding_loss_cuda_prepare_f32(s));
    dt_rows *r = s->state;
    const int64_t n = r->rows;
    *r = dt_rows_make(n, n);                                              // row i: all samples, seen from sample i
    s->scratch_bytes = (size_t)n * (sizeof(dt_hardest) + sizeof(double)); // per sample: hardest pair and loss
    return DT_OK;
}

static void run_triplet(const dt_kernel_instance *s, const dt_run *r) {
    dt_cuda *c = dt_cuda_of(s);
    const dt_rows *rows = s->state;
    dt_triplet_args a = {.r = *rows,
                         .n = dt_instance_in(s, 0)->shape.d[1],
                         .x = r->in[0],
                         .weight = r->in[2],
                         .target = r->in[1],
                         .step = r->step,
                         .losses = r->scratch,
                         .hardest = (dt_hardest *)((double *)r->scratch + rows->rows),
                         .margin = s->node->attrs.triplet.margin,
                         .share = s->node->attrs.triplet.share,
                         .semihard = s->node->attrs.triplet.semihard};
    // finds the pairs, forward and backward alike
    dt_cuda_launch(c, DT_K_triplet_rows, dt_rows_grid(rows), &a, r->stream);
    if (s->node->backward) {
        a.dx = r->out[0];
        const int64_t blocks = (rows->rows * a.n + 255) / 256; // gathers: a thread per element of dx
        dt_cuda_launch(c, DT_K_triplet_bwd, (dt_cuda_grid){.blocks = blocks > 0 ? blocks : 1, .threads = 256}, &a,
                       r->stream);
        return;
    }
    const dt_loss_args sums = {.r = *rows,
                               .weight = a.weight,
                               .losses = a.losses,
                               .share = a.share,
                               .loss = r->out[0],
                               .add_loss = (int)(r->accumulate & 1),
                               .weight_sum = r->out[1],
                               .add_weight = (int)(r->accumulate >> 1 & 1)};
    // one block: sums in a fixed order
    dt_cuda_launch(c, DT_K_loss_finish, (dt_cuda_grid){.blocks = 1, .threads = 1024}, &sums, r->stream);
}

const dt_kernel dt_cuda_l2_normalize = {embedding_loss_cuda_prepare_f32, embedding_loss_cuda_run_normalize,
                                        dt_cuda_destroy};
const dt_kernel dt_cuda_l2_normalize_bwd = {embedding_loss_cuda_prepare_normalize_bwd,
                                            embedding_loss_cuda_run_normalize, dt_cuda_destroy};
const dt_kernel dt_cuda_arc_margin = {embedding_loss_cuda_prepare_f32, embedding_loss_cuda_run_margin, dt_cuda_destroy};
const dt_kernel dt_cuda_arc_margin_bwd = {embedding_loss_cuda_prepare_f32, embedding_loss_cuda_run_margin,
                                          dt_cuda_destroy};
const dt_kernel dt_cuda_triplet = {embedding_loss_cuda_prepare_triplet, run_triplet, dt_cuda_destroy};
const dt_kernel dt_cuda_triplet_bwd = {embedding_loss_cuda_prepare_triplet, run_triplet, dt_cuda_destroy};

// ---- loss ---------------------------------------------------------------------------------------------------------

// Host side of the losses of batch/losses.h, in f32 and DENSE (kernels/loss_kernels.h). The contract is
// that of cpu/loss_cpu.c.
//
//   forward   in  x (N,...), target, weight (N), class weights or elements' parameters (K) or none
//                                                   out STAT share * sum weight[n] loss_n, STAT sum weight[n]
//   backward  in  the same, ...                      out dx, the gradient of the first times loss_scale

typedef struct loss_state {
    int id, kind;
    bool weighs, by_sample; // in[3] is there for the sums of a row; as a factor of it
    dt_rows r;
    float smoothing, param, share;
} loss_state;

static dt_status loss_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *target = dt_instance_in(s, 1), *w = dt_instance_in(s, 2);
    loss_state *st = dt_cuda_prepare_dense(s, sizeof *st);
    if (!x || !target || !w || x->dtype != DT_F32 || w->dtype != DT_F32 || x->shape.n < 1 ||
        dt_shape_elements(&w->shape) != x->shape.d[0])
        return dt_cuda_fail(s, "wants f32 values (N,...) and f32 weights (N)");
    const int64_t rows = x->shape.d[0], n = rows ? dt_shape_elements(&x->shape) / rows : 0;
    st->id = s->node->attrs.loss.id;
    const bool softmax = dt_losses[st->id].softmax, soft = target->dtype == DT_F32;
    const bool classes = softmax && target->dtype == DT_I32;
    if ((!soft && !classes) || dt_shape_elements(&target->shape) != (classes ? rows : rows * n))
        return dt_cuda_fail(s, "the target %s has the wrong type or shape", target->name);
    // kind selects the kernel's path
    st->kind = classes ? DT_LOSS_CLASSES : softmax ? DT_LOSS_SHARES : DT_LOSS_ELEMENTS;
    if (dt_losses[st->id].rotation) st->kind = DT_LOSS_ROTATION;
    const bool has = s->node->n_in > 3 && dt_instance_in(s, 3);
    st->weighs = has && (!softmax || dt_losses[st->id].by_class);
    st->by_sample = has && classes && s->node->attrs.loss.by_sample; // a factor of each sample, by its class
    st->r = dt_rows_make(rows, n);
    st->smoothing = s->node->attrs.loss.smoothing;
    st->param = s->node->attrs.loss.param;
    st->share = s->node->attrs.loss.share;
    if (!s->node->backward) s->scratch_bytes = (size_t)rows * sizeof(double); // a loss per row, summed by loss_finish
    return DT_OK;
}

static dt_loss_args loss_cuda_args_of(const dt_kernel_instance *s, const dt_run *r) {
    const loss_state *st = s->state;
    return (dt_loss_args){.r = st->r,
                          .x = r->in[0],
                          .target = r->in[1],
                          .classes = r->in[1],
                          .weight = r->in[2],
                          .class_weights = st->weighs ? r->in[3] : NULL,
                          .factors = st->by_sample ? r->in[3] : NULL,
                          .step = r->step,
                          .id = st->id, // bits 0 and 1: STAT outputs
                          .kind = st->kind,
                          .smoothing = st->smoothing,
                          .param = st->param,
                          .share = st->share};
}

static void loss_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    dt_cuda *c = dt_cuda_of(s);
    dt_loss_args a = loss_cuda_args_of(s, r);
    a.losses = r->scratch;
    a.loss = r->out[0], a.add_loss = (int)(r->accumulate & 1);
    a.weight_sum = r->out[1], a.add_weight = (int)(r->accumulate >> 1 & 1);
    dt_cuda_launch(c, DT_K_loss_rows, dt_rows_grid(&a.r), &a, r->stream);
    dt_cuda_launch(c, DT_K_loss_finish, (dt_cuda_grid){.blocks = 1, .threads = 1024}, &a, r->stream);
}

static void loss_cuda_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    dt_loss_args a = loss_cuda_args_of(s, r);
    a.dx = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), DT_K_loss_bwd, dt_rows_grid(&a.r), &a, r->stream);
}

const dt_kernel dt_cuda_loss = {loss_cuda_prepare, loss_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_loss_bwd = {loss_cuda_prepare, loss_cuda_run_backward, dt_cuda_destroy};
