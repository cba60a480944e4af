// image_cuda.c: pooling, resizing and augmentation, host side.

#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/augment_kernels.h"
#include "backend/cuda/kernels/image_kernels.h"
#include "backend/cuda/weights_cuda.h"

// ---- pool ---------------------------------------------------------------------------------------------------------

// Host side of max and average pooling with any window, and of global mean pooling, all NHWC
// (kernels/image_kernels.h).

typedef struct pool_state {
    dt_pool_args a; // without pointers
    dt_cuda_grid grid;
} pool_state;

// x: the larger image (forward x, backward dx); y: the pooled one.
static dt_status pool_cuda_read_window(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *y) {
    pool_state *st = dt_cuda_prepare(s, sizeof *st);
    dt_pool_args *a = &st->a;
    const dt_window *w = &s->node->attrs.pool.win;
    if (!x || !y || x->shape.n != 4) return dt_cuda_fail(s, "pooling wants (N,C,H,W)");
    DT_TRY(dt_cuda_type(s, &a->type, x, y));
    for (int i = 0; i < 2; i++) {
        a->kernel[i] = w->kernel[i], a->stride[i] = w->stride[i];
        a->pad[i] = w->pad_begin[i], a->pad_end[i] = w->pad_end[i];
    }
    a->max = s->node->op == DT_OP_max_pool;
    a->count_padding = s->node->attrs.pool.count_include_pad;
    a->big_h = x->shape.d[2], a->big_w = x->shape.d[3];
    a->small_h = y->shape.d[2], a->small_w = y->shape.d[3];
    dt_shape written = s->node->backward ? x->shape : y->shape; // kernels go over the tensor that is written
    // 2 x 2 outputs per thread where windows overlap little
    a->squares = s->node->backward && a->max && written.d[1] % 8 == 0 && a->stride[0] == 2 && a->stride[1] == 2 &&
                 a->kernel[0] <= 3 && a->kernel[1] <= 3;
    if (a->squares)
        for (int i = 2; i < 4; i++) written.d[i] = (written.d[i] + 1) / 2; // squares of pixels
    DT_TRY(dt_cuda_over_pixels(s, &written, &a->c, &a->down, &a->across));
    st->grid = dt_cols_grid(&a->c);
    return DT_OK;
}

static dt_status pool_cuda_prepare_forward(dt_kernel_instance *s) {
    return pool_cuda_read_window(s, dt_instance_in(s, 0), dt_instance_out(s, 0));
}
static dt_status pool_cuda_prepare_backward(dt_kernel_instance *s) {
    DT_TRY(pool_cuda_read_window(s, dt_instance_out(s, 0), dt_instance_in(s, dt_cuda_pos_grad(s, 0))));
    // needed to find the maximum's place
    if (s->node->op == DT_OP_max_pool && s->node->in[dt_cuda_pos_out(s, 1)] == DT_NONE)
        return dt_cuda_fail(s, "the backward node lacks argmax");
    return DT_OK;
}

static void pool_cuda_run_forward(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    dt_pool_args a = st->a;
    a.x = r->in[0], a.out = r->out[0];
    a.argmax = a.max && s->node->n_out > 1 ? r->out[1] : NULL; // inference: none
    dt_cuda_launch(dt_cuda_of(s), DT_K_pool_fwd, st->grid, &a, r->stream);
}
static void pool_cuda_run_backward(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    dt_pool_args a = st->a;
    a.x = r->in[dt_cuda_pos_grad(s, 0)], a.out = r->out[0];
    a.argmax_in = a.max ? r->in[dt_cuda_pos_out(s, 1)] : NULL;
    dt_cuda_launch(dt_cuda_of(s), DT_K_pool_bwd, st->grid, &a, r->stream);
}

const dt_kernel dt_cuda_max_pool = {pool_cuda_prepare_forward, pool_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_max_pool_bwd = {pool_cuda_prepare_backward, pool_cuda_run_backward, dt_cuda_destroy};
const dt_kernel dt_cuda_avg_pool = {pool_cuda_prepare_forward, pool_cuda_run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_avg_pool_bwd = {pool_cuda_prepare_backward, pool_cuda_run_backward, dt_cuda_destroy};

// ---- global pooling --------------------------------------------------------------------------------
static dt_status pool_cuda_prepare_global(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *y) {
    pool_state *st = dt_cuda_prepare(s, sizeof *st);
    dt_pool_args *a = &st->a;
    if (!x || !y || x->shape.n != 4) return dt_cuda_fail(s, "global pooling wants (N,C,H,W)");
    DT_TRY(dt_cuda_type(s, &a->type, x, y));
    const int64_t pixels = x->shape.d[2] * x->shape.d[3];
    a->c = dt_cols_make(pixels, x->shape.d[1], 1, 1); // one chunk per image
    a->c.n_chunks = x->shape.d[0];                    // a chunk is an image
    st->grid = dt_cols_grid(&a->c);
    return DT_OK; // 8 channels of an image per thread
}
static dt_status prepare_global_forward(dt_kernel_instance *s) {
    return pool_cuda_prepare_global(s, dt_instance_in(s, 0), dt_instance_out(s, 0));
}
static dt_status prepare_global_backward(dt_kernel_instance *s) {
    return pool_cuda_prepare_global(s, dt_instance_out(s, 0), dt_instance_in(s, dt_cuda_pos_grad(s, 0)));
}
static void pool_cuda_run_global(const dt_kernel_instance *s, const dt_run *r) {
    const pool_state *st = s->state;
    const bool backward = s->node->backward;
    dt_pool_args a = st->a;
    a.x = r->in[backward ? dt_cuda_pos_grad(s, 0) : 0], a.out = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), backward ? DT_K_global_pool_bwd : DT_K_global_pool_fwd, st->grid, &a, r->stream);
}

const dt_kernel dt_cuda_global_pool = {prepare_global_forward, pool_cuda_run_global, dt_cuda_destroy};
const dt_kernel dt_cuda_global_pool_bwd = {prepare_global_backward, pool_cuda_run_global, dt_cuda_destroy};

// ---- resize -------------------------------------------------------------------------------------------------------

// Host side of the op resize, NHWC (kernels/image_kernels.h).

// x: what is resized (backward dx); y: the result. The state is a dt_resize_args without pointers.
static dt_status resize_cuda_read_shapes(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *y) {
    dt_resize_args *a = dt_cuda_prepare(s, sizeof *a);
    if (!x || !y || x->shape.n != 4) return dt_cuda_fail(s, "wants (N,C,H,W)");
    DT_TRY(dt_cuda_type(s, &a->type, x, y));
    a->mode = (int)s->node->attrs.resize.mode;
    for (int d = 0; d < 2; d++) {                   // rows, columns
        a->step[d] = s->node->attrs.resize.step[d]; // source pixels per output pixel
        a->in[d] = (int)x->shape.d[2 + d], a->to[d] = (int)y->shape.d[2 + d];
    }
    const dt_shape *written = s->node->backward ? &x->shape : &y->shape; // backward: dx, which gathers from dy
    DT_TRY(dt_cuda_over_pixels(s, written, &a->c, &a->down, &a->across));
    return DT_OK;
}

static dt_status resize_cuda_prepare(dt_kernel_instance *s) {
    return resize_cuda_read_shapes(s, dt_instance_in(s, 0), dt_instance_out(s, 0));
}
static dt_status resize_cuda_prepare_bwd(dt_kernel_instance *s) {
    return resize_cuda_read_shapes(s, dt_instance_out(s, 0), dt_instance_in(s, dt_cuda_pos_grad(s, 0)));
}

static void resize_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    dt_resize_args a = *(const dt_resize_args *)s->state;
    const bool backward = s->node->backward;
    a.x = r->in[backward ? dt_cuda_pos_grad(s, 0) : 0], a.out = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), backward ? DT_K_resize_bwd : DT_K_resize_fwd, dt_cols_grid(&a.c), &a, r->stream);
}

const dt_kernel dt_cuda_resize = {resize_cuda_prepare, resize_cuda_run, dt_cuda_destroy};
const dt_kernel dt_cuda_resize_bwd = {resize_cuda_prepare_bwd, resize_cuda_run, dt_cuda_destroy};

// ---- augment ------------------------------------------------------------------------------------------------------

// Host side of random image augmentation (kernels/augment_kernels.h), one block per sample.
// The scratch holds the second of the two image buffers that the steps alternate between, and a blur's row sums.

typedef struct augment_state {
    dt_augment_args args;
    int64_t samples;
    size_t at_rows; // in the scratch
} augment_state;

static dt_status augment_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *steps = dt_instance_in(s, 1);
    augment_state *st = dt_cuda_prepare(s, sizeof *st);
    const int64_t n = dt_shape_elements(&x->shape);
    // bytes: steps are in fixed point
    if (x->dtype != DT_U8 || x->shape.n != 4 || (x->shape.d[3] != 1 && x->shape.d[3] != 3))
        return dt_cuda_fail(s, "wants u8 (N,H,W,C) with 1 or 3 channels");
    st->samples = x->shape.d[0];
    st->args.height = (int)x->shape.d[1], st->args.width = (int)x->shape.d[2];
    st->args.channels = (int)x->shape.d[3];
    st->args.sample = st->samples > 0 ? n / st->samples : 0;
    st->args.n_steps = (int)(steps->shape.d[1] / DT_PIXEL_STEP_WORDS); // int32 words per step
    if (st->args.sample >= (int64_t)1 << 31) return dt_cuda_fail(s, "images of 2^31 values cannot be augmented here");
    st->at_rows = dt_cuda_align((size_t)n);                            // bytes behind the second image buffer
    s->scratch_bytes = st->at_rows + (size_t)n * sizeof(uint16_t);     // 16-bit row sums of a blur
    s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = dt_dense(); // (N,H,W,C) as it comes
    return DT_OK;
}

static void augment_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const augment_state *st = s->state;
    dt_augment_args a = st->args;
    a.x = r->in[0], a.steps = r->in[1], a.out = r->out[0];
    a.spare = r->scratch;
    a.rows = (uint16_t *)((char *)r->scratch + st->at_rows);
    // a block per sample: steps of a sample follow one another
    const dt_cuda_grid grid = {.blocks = st->samples, .threads = DT_AUGMENT_THREADS};
    dt_cuda_launch(dt_cuda_of(s), DT_K_augment, grid, &a, r->stream);
}

const dt_kernel dt_cuda_image_augment = {augment_cuda_prepare, augment_cuda_run, dt_cuda_destroy};
