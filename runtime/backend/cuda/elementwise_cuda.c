// elementwise_cuda.c: host side of the ops that are one kernel over elements (ReLU, GELU, activation, scale), and
// dt_map_run. Any layout, in place.
#include "backend/cuda/custom_cuda.h"
#include "graph/activation_words.h"

// Operands and output 0 have the first operand's layout and share a float type. Output 0 may take over operand
// `inplace`. The state is a dt_map_state.
static dt_status elementwise_cuda_prepare(dt_kernel_instance *s, int x_at, int d_at, int inplace) {
    const dt_layout layout = s->in_layout[x_at];
    const dt_value_info *x = dt_instance_in(s, x_at), *d = d_at < 0 ? NULL : dt_instance_in(s, d_at);
    dt_map_state *st = dt_cuda_prepare(s, sizeof *st);
    if (!x || (d_at >= 0 && !d)) return dt_cuda_fail(s, "an operand is missing");
    DT_TRY(dt_cuda_type(s, &st->type, x, d, dt_instance_out(s, 0)));
    st->n = dt_shape_elements(&x->shape);
    st->x_at = x_at, st->d_at = d_at;
    st->alpha = s->node->op == DT_OP_scale ? s->node->attrs.scale.alpha : s->node->attrs.activation.number;
    s->in_layout[x_at] = s->out_layout[0] = layout;
    if (d) s->in_layout[d_at] = layout;
    s->inplace_in = inplace;
    return DT_OK;
}

void dt_map_run(const dt_kernel_instance *s, const dt_run *r, dt_cuda_kernel k) {
    const dt_map_state *st = s->state;
    const dt_map_args a = {.x = r->in[st->x_at],
                           .d = st->d_at < 0 ? NULL : r->in[st->d_at],
                           .out = r->out[0],
                           .n = st->n,
                           .type = st->type,
                           .alpha = st->alpha};
    dt_cuda *c = dt_cuda_of(s);
    dt_cuda_launch(c, k, dt_cuda_grid_flat(c, st->n), &a, r->stream);
}

static dt_status elementwise_cuda_prepare_forward(dt_kernel_instance *s) {
    return elementwise_cuda_prepare(s, 0, -1, 0);
}
static dt_status prepare_gelu_bwd(dt_kernel_instance *s) {
    const int dy_at = dt_cuda_pos_grad(s, 0);
    return elementwise_cuda_prepare(s, 0, dy_at, dy_at);
}
static dt_status prepare_relu_bwd(dt_kernel_instance *s) {
    const int dy_at = dt_cuda_pos_grad(s, 0);
    return elementwise_cuda_prepare(s, dt_cuda_pos_out(s, 0), dy_at, dy_at);
}

static void elementwise_cuda_run_scale(const dt_kernel_instance *s, const dt_run *r) {
    dt_map_run(s, r, DT_K_scale_fwd);
}
static void run_activation(const dt_kernel_instance *s, const dt_run *r) {
    static const dt_cuda_kernel kernels[DT_N_ACTIVATIONS][2] = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = {DT_K_##id##_fwd, DT_K_##id##_bwd},
#include "graph/activations.def"
#undef ACTIVATION
    };
    dt_map_run(s, r, kernels[s->node->attrs.activation.kind][s->node->backward]);
}

const dt_kernel dt_cuda_relu = {elementwise_cuda_prepare_forward, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_relu_bwd = {prepare_relu_bwd, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_gelu = {elementwise_cuda_prepare_forward, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_gelu_bwd = {prepare_gelu_bwd, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_activation = {elementwise_cuda_prepare_forward, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_activation_bwd = {prepare_gelu_bwd, run_activation, dt_cuda_destroy};
const dt_kernel dt_cuda_scale = {elementwise_cuda_prepare_forward, elementwise_cuda_run_scale, dt_cuda_destroy};
