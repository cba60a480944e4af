// relu_cuda.c: host side of ReLU. Elementwise: it takes the layout that its input has, in place.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/kernels/relu_kernels.h"

typedef struct relu_state {
    int type;
    int64_t n;
} relu_state;

static dt_status prepare_forward(dt_site *s) {
    const dt_layout layout = s->in_layout[0];
    const dt_value_info *x = dt_site_in(s, 0), *y = dt_site_out(s, 0);
    relu_state *st = dt_cuda_prepare(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, (const dt_value_info *[]){x, y}, 2));
    st->n = dt_shape_elements(&x->shape);
    s->in_layout[0] = s->out_layout[0] = layout;
    s->inplace_in = 0;
    return DT_OK;
}

static void run_forward(const dt_site *s, const dt_run *r) {
    const relu_state *st = s->state;
    const dt_relu_args a = {.x = r->in[0], .out = r->out[0], .n = st->n, .type = st->type};
    dt_cuda *c = dt_cuda_of(s);
    dt_cuda_launch(c, DT_K_relu_fwd, dt_cuda_grid_flat(c, st->n), &a, r->stream);
}

static dt_status prepare_backward(dt_site *s) {
    const int y_at = dt_cuda_pos_out(s, 0), dy_at = dt_cuda_pos_grad(s, 0);
    const dt_layout layout = s->in_layout[y_at];
    const dt_value_info *y = dt_site_in(s, y_at), *dy = dt_site_in(s, dy_at);
    relu_state *st = dt_cuda_prepare(s, sizeof *st);
    DT_TRY(dt_cuda_type(s, &st->type, (const dt_value_info *[]){y, dy, dt_site_out(s, 0)}, 3));
    st->n = dt_shape_elements(&y->shape);
    s->in_layout[y_at] = s->in_layout[dy_at] = s->out_layout[0] = layout;
    s->inplace_in = dy_at;
    return DT_OK;
}

static void run_backward(const dt_site *s, const dt_run *r) {
    const relu_state *st = s->state;
    const dt_relu_args a = {.x = r->in[dt_cuda_pos_out(s, 0)],
                            .dy = r->in[dt_cuda_pos_grad(s, 0)],
                            .out = r->out[0],
                            .n = st->n,
                            .type = st->type};
    dt_cuda *c = dt_cuda_of(s);
    dt_cuda_launch(c, DT_K_relu_bwd, dt_cuda_grid_flat(c, st->n), &a, r->stream);
}

const dt_kernel dt_cuda_relu = {prepare_forward, run_forward, dt_cuda_destroy};
const dt_kernel dt_cuda_relu_bwd = {prepare_backward, run_backward, dt_cuda_destroy};
