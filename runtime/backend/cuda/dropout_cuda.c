// dropout_cuda.c: host side of dropout, forward and backward, in place (kernels/dropout_kernels.h).
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/dropout_kernels.h"
#include "base/hash.h"

enum { BLOCK_ELEMENTS = 2048, BLOCK_DRAWS = 512 };

typedef struct dropout_state {
    dt_dropout_args a; // without pointers
    int in_at;
    bool nhwc;
} dropout_state;

static dt_status dropout_cuda_prepare_at(dt_kernel_instance *s, int in_at) {
    const dt_layout layout = s->in_layout[in_at];
    const dt_value_info *x = dt_instance_in(s, in_at);
    dropout_state *st = dt_cuda_prepare(s, sizeof *st);
    dt_dropout_args *a = &st->a;
    DT_TRY(dt_cuda_type(s, &a->type, x, dt_instance_out(s, 0)));
    const int64_t n = dt_shape_elements(&x->shape);
    st->in_at = in_at;
    st->nhwc = layout.kind == DT_NHWC;
    a->samples = x->shape.n ? x->shape.d[0] : n;
    a->per_sample = a->samples ? n / a->samples : 0;
    a->tiles = (a->per_sample + BLOCK_ELEMENTS - 1) / BLOCK_ELEMENTS;
    if (st->nhwc) {
        if (a->per_sample >= INT32_MAX) return dt_cuda_fail(s, "more than 2^31 elements a sample");
        a->channels = (uint32_t)x->shape.d[1];
        a->pixels = (uint32_t)(a->per_sample / x->shape.d[1]);
        a->draws = a->pixels % 4 ? (a->pixels + 2) / 4 + 1 : a->pixels / 4;
        a->tiles = ((int64_t)a->channels * a->draws + BLOCK_DRAWS - 1) / BLOCK_DRAWS;
    }
    a->purpose = dt_hash32(dt_graph_origin(s->graph, s->node)->name);
    a->p = s->node->attrs.dropout.p;
    a->whole = s->node->attrs.dropout.whole;
    s->in_layout[in_at] = s->out_layout[0] = layout;
    s->inplace_in = in_at;
    return DT_OK;
}
static dt_status dropout_cuda_prepare_forward(dt_kernel_instance *s) {
    return dropout_cuda_prepare_at(s, 0);
}
static dt_status dropout_cuda_prepare_backward(dt_kernel_instance *s) {
    return dropout_cuda_prepare_at(s, dt_cuda_pos_grad(s, 0));
}

static void dropout_cuda_run(const dt_kernel_instance *s, const dt_run *r) {
    const dropout_state *st = s->state;
    dt_dropout_args a = st->a;
    a.x = r->in[st->in_at], a.out = r->out[0], a.step = r->step;
    const dt_cuda_grid g = {.blocks = a.samples * a.tiles, .threads = BLOCK_ELEMENTS / 8};
    if (g.blocks) dt_cuda_launch(dt_cuda_of(s), st->nhwc ? DT_K_dropout_nhwc : DT_K_dropout, g, &a, r->stream);
}

const dt_kernel dt_cuda_dropout = {dropout_cuda_prepare_forward, dropout_cuda_run, dt_cuda_destroy};
const dt_kernel dt_cuda_dropout_bwd = {dropout_cuda_prepare_backward, dropout_cuda_run, dt_cuda_destroy};
