// embedding_loss_cuda.c: host side of l2_normalize, arc_margin and triplet (kernels/embedding_loss_kernels.h).
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/embedding_loss_kernels.h"

static dt_status embedding_loss_cuda_prepare_f32(dt_kernel_instance *s) {
    const dt_shape *shape = &dt_instance_in(s, 0)->shape;
    dt_rows *r = dt_cuda_prepare_dense(s, sizeof *r);
    if (dt_instance_in(s, 0)->dtype != DT_F32) return dt_cuda_fail(s, "wants f32");
    const int64_t n = shape->d[shape->n - 1];
    *r = dt_rows_make(n ? dt_shape_elements(shape) / n : 0, n);
    return DT_OK;
}

static const void *embedding_loss_cuda_gradient_of(const dt_kernel_instance *s, const dt_run *r) {
    return s->node->backward ? r->in[dt_cuda_pos_grad(s, 0)] : NULL;
}

static dt_status embedding_loss_cuda_prepare_normalize_bwd(dt_kernel_instance *s) {
    DT_TRY(embedding_loss_cuda_prepare_f32(s));
    s->inplace_in = dt_cuda_pos_grad(s, 0); // a thread has read its dy before it writes dx there
    return DT_OK;
}

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
    *r = dt_rows_make(n, n);
    s->scratch_bytes = (size_t)n * (sizeof(dt_hardest) + sizeof(double));
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
    dt_cuda_launch(c, DT_K_triplet_rows, dt_rows_grid(rows), &a, r->stream);
    if (s->node->backward) {
        a.dx = r->out[0];
        const int64_t blocks = (rows->rows * a.n + 255) / 256;
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
