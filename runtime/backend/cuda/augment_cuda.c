// augment_cuda.c: host side of random image augmentation (kernels/augment_kernels.h), one block per sample.
// The scratch holds the second of the two image buffers that the steps alternate between, and a blur's row sums.
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/augment_kernels.h"
#include "backend/cuda/weights_cuda.h"

typedef struct augment_state {
    dt_augment_args args;
    int64_t samples;
    size_t at_rows; // in the scratch
} augment_state;

static dt_status augment_cuda_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *steps = dt_instance_in(s, 1);
    augment_state *st = dt_cuda_prepare(s, sizeof *st);
    const int64_t n = dt_shape_elements(&x->shape);
    if (x->dtype != DT_U8 || x->shape.n != 4 || (x->shape.d[3] != 1 && x->shape.d[3] != 3))
        return dt_cuda_fail(s, "wants u8 (N,H,W,C) with 1 or 3 channels");
    st->samples = x->shape.d[0];
    st->args.height = (int)x->shape.d[1], st->args.width = (int)x->shape.d[2];
    st->args.channels = (int)x->shape.d[3];
    st->args.sample = st->samples > 0 ? n / st->samples : 0;
    st->args.n_steps = (int)(steps->shape.d[1] / DT_PIXEL_STEP_WORDS);
    if (st->args.sample >= (int64_t)1 << 31) return dt_cuda_fail(s, "images of 2^31 values cannot be augmented here");
    st->at_rows = dt_cuda_align((size_t)n);
    s->scratch_bytes = st->at_rows + (size_t)n * sizeof(uint16_t);
    s->in_layout[0] = s->in_layout[1] = s->out_layout[0] = dt_dense(); // (N,H,W,C) as it comes
    return DT_OK;
}

static void augment_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const augment_state *st = s->state;
    dt_augment_args a = st->args;
    a.x = r->in[0], a.steps = r->in[1], a.out = r->out[0];
    a.spare = r->scratch;
    a.rows = (uint16_t *)((char *)r->scratch + st->at_rows);
    const dt_cuda_grid grid = {.blocks = st->samples, .threads = DT_AUGMENT_THREADS};
    dt_cuda_launch(dt_cuda_of(s), DT_K_augment, grid, &a, r->stream);
}

const dt_kernel dt_cuda_image_augment = {augment_cuda_prepare, augment_cuda_run, dt_cuda_destroy};
