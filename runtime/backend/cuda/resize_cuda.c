// resize_cuda.c: host side of the op resize, NHWC (kernels/resize_kernels.h).
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/resize_kernels.h"

// x: what is resized (backward dx); y: the result. The state is a dt_resize_args without pointers.
static dt_status resize_cuda_read_shapes(dt_kernel_instance *s, const dt_value_info *x, const dt_value_info *y) {
    dt_resize_args *a = dt_cuda_prepare(s, sizeof *a);
    if (!x || !y || x->shape.n != 4) return dt_cuda_fail(s, "wants (N,C,H,W)");
    DT_TRY(dt_cuda_type(s, &a->type, x, y));
    a->mode = (int)s->node->attrs.resize.mode;
    for (int d = 0; d < 2; d++) {
        a->step[d] = s->node->attrs.resize.step[d];
        a->in[d] = (int)x->shape.d[2 + d], a->to[d] = (int)y->shape.d[2 + d];
    }
    const dt_shape *written = s->node->backward ? &x->shape : &y->shape;
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
