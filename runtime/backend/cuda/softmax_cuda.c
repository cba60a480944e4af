// softmax_cuda.c: host side of softmax over the last axis, DENSE, in place (kernels/softmax_kernels.h).
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/softmax_kernels.h"

typedef struct softmax_state {
    int type, x_at, dy_at; // dy_at < 0: forward
    dt_rows r;
} softmax_state;

static dt_status softmax_cuda_prepare_at(dt_kernel_instance *s, int x_at, int dy_at) {
    const dt_value_info *x = dt_instance_in(s, x_at), *dy = dy_at < 0 ? NULL : dt_instance_in(s, dy_at);
    softmax_state *st = dt_cuda_prepare(s, sizeof *st);
    if (!x) return dt_cuda_fail(s, "the gradient reads the output");
    DT_TRY(dt_cuda_type(s, &st->type, x, dy, dt_instance_out(s, 0)));
    const int64_t n = x->shape.d[x->shape.n - 1];
    st->r = dt_rows_make(n ? dt_shape_elements(&x->shape) / n : 0, n);
    st->x_at = x_at, st->dy_at = dy_at;
    s->in_layout[x_at] = s->out_layout[0] = dt_dense();
    if (dy) s->in_layout[dy_at] = dt_dense();
    s->inplace_in = dy ? dy_at : x_at;
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
                               .ld = st->r.n,
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
