// cast_cuda.c: host side of cast (any layout; its gradient is a cast) and of image normalization: u8 or f32 pixels
// (N,H,W,C) to NHWC activations, mixed where the step has a mixing plan (kernels/convert_kernels.h).
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/convert_kernels.h"

static dt_cuda_grid cast_cuda_grid_of(int64_t n) {
    const int64_t blocks = (n + 4095) / 4096;
    return (dt_cuda_grid){.blocks = blocks > 0 ? blocks : 1, .threads = 256};
}

void dt_cuda_convert(dt_cuda *c, void *out, dt_dtype to, const void *x, dt_dtype from, int64_t n, void *stream) {
    const dt_convert_args a = {.x = x, .out = out, .from = from, .to = to, .n = n};
    dt_cuda_launch(c, DT_K_cast_fwd, cast_cuda_grid_of(n), &a, stream);
}

static dt_status prepare_cast(dt_kernel_instance *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    dt_convert_args *a = dt_cuda_prepare(s, sizeof *a);
    if (!dt_dtype_is_float(y->dtype) || !dt_dtype_is_float(x->dtype) || x->dtype == y->dtype)
        return dt_cuda_fail(s, "no cast from %s to %s", dt_dtype_name(x->dtype), dt_dtype_name(y->dtype));
    a->from = x->dtype, a->to = y->dtype;
    a->n = dt_shape_elements(&x->shape);
    s->in_layout[0] = s->out_layout[0] = layout;
    return DT_OK;
}

static dt_status prepare_normalize(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    dt_convert_args *a = dt_cuda_prepare(s, sizeof *a);
    const bool is_f32 = x->dtype == DT_F32;
    if ((x->dtype != DT_U8 && !is_f32) || x->shape.n != 4 || !dt_dtype_is_float(y->dtype) ||
        x->shape.d[3] > DT_NORMALIZE_CHANNELS)
        return dt_cuda_fail(s, "wants u8 or f32 (N,H,W,C) with at most %d channels", (int)DT_NORMALIZE_CHANNELS);
    a->from = x->dtype, a->to = y->dtype;
    a->n = dt_shape_elements(&x->shape);
    a->channels = (int)x->shape.d[3];
    for (int c = 0; c < a->channels; c++) {
        const double std = s->node->attrs.image_normalize.std[c];
        const float mean = s->node->attrs.image_normalize.mean[c];
        a->scale[c] = (float)(1.0 / (is_f32 ? std : 255.0 * std));
        a->shift[c] = is_f32 ? mean : (float)(-(double)mean / std);
    }
    if (s->node->n_in > 1) {
        a->samples = x->shape.d[0];
        a->sample = x->shape.d[0] > 0 ? a->n / x->shape.d[0] : 0;
        a->chunks = (a->sample + 4095) / 4096;
        if (a->sample >= (int64_t)1 << 31) return dt_cuda_fail(s, "images of 2^31 values cannot be mixed");
        a->by_channels = dt_quot_of(a->channels), a->by_width = dt_quot_of(x->shape.d[2]);
        s->in_layout[1] = dt_dense();
    }
    s->in_layout[0] = dt_dense(); // (N,H,W,C) as it comes
    s->out_layout[0] = (dt_layout){.kind = DT_NHWC};
    return DT_OK;
}

static void run_with(const dt_kernel_instance *s, const dt_run *r, dt_cuda_kernel k) {
    dt_convert_args a = *(const dt_convert_args *)s->state;
    a.x = r->in[0], a.out = r->out[0];
    dt_cuda_launch(dt_cuda_of(s), k, cast_cuda_grid_of(a.n), &a, r->stream);
}
static void run_cast(const dt_kernel_instance *s, const dt_run *r) {
    run_with(s, r, DT_K_cast_fwd);
}
static void run_mixed(const dt_kernel_instance *s, const dt_run *r) {
    dt_convert_args a = *(const dt_convert_args *)s->state;
    a.x = r->in[0], a.plan = r->in[1], a.out = r->out[0];
    const dt_cuda_grid grid = {.blocks = a.samples * a.chunks, .threads = 256};
    dt_cuda_launch(dt_cuda_of(s), DT_K_normalize_mixed, grid, &a, r->stream);
}
static void cast_cuda_run_normalize(const dt_kernel_instance *s, const dt_run *r) {
    if (s->node->n_in > 1)
        run_mixed(s, r);
    else
        run_with(s, r, DT_K_normalize);
}

const dt_kernel dt_cuda_cast = {prepare_cast, run_cast, dt_cuda_destroy};
const dt_kernel dt_cuda_image_normalize = {prepare_normalize, cast_cuda_run_normalize, dt_cuda_destroy};
