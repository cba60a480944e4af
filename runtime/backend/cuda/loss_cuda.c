// loss_cuda.c: host side of the losses of batch/losses.h, in f32 and DENSE (kernels/loss_kernels.h). The contract is
// that of cpu/loss_cpu.c.
//
//   forward   in  x (N,...), target, weight (N), class weights or elements' parameters (K) or none
//                                                   out STAT share * sum weight[n] loss_n, STAT sum weight[n]
//   backward  in  the same, ...                      out dx, the gradient of the first times loss_scale
#include "backend/cuda/custom_cuda.h"
#include "backend/cuda/kernels/loss_kernels.h"

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
    st->kind = classes ? DT_LOSS_CLASSES : softmax ? DT_LOSS_SHARES : DT_LOSS_ELEMENTS;
    if (dt_losses[st->id].rotation) st->kind = DT_LOSS_ROTATION;
    const bool has = s->node->n_in > 3 && dt_instance_in(s, 3);
    st->weighs = has && (!softmax || dt_losses[st->id].by_class);
    st->by_sample = has && classes && s->node->attrs.loss.by_sample;
    st->r = dt_rows_make(rows, n);
    st->smoothing = s->node->attrs.loss.smoothing;
    st->param = s->node->attrs.loss.param;
    st->share = s->node->attrs.loss.share;
    if (!s->node->backward) s->scratch_bytes = (size_t)rows * sizeof(double);
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
                          .id = st->id,
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
