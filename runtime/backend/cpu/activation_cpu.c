// activation_cpu.c: ReLU and GELU (exact, or the tanh form) in any layout, in place.
//
// ReLU's gradient reads the output, GELU's the input. NaN passes through both.
#include "backend/cpu/custom_kernel.h"

typedef struct activation_state {
    int x_at, d_at; // inputs that are read: x (backward ReLU: y), and backward dy
    int64_t n;
    dt_map map;
} activation_state;

static void choose(dt_map *m, const dt_node *node) {
    const dt_simd_elementwise *simd = dt_simd_get()->elementwise;
    const int t = m->type;
    const bool relu = node->op == DT_OP_relu, tanh = !relu && node->attrs.gelu.tanh;
    if (node->backward)
        m->binary = relu ? simd->relu_bwd[t] : tanh ? simd->gelu_tanh_bwd[t] : simd->gelu_bwd[t];
    else
        m->unary = relu ? simd->relu[t] : tanh ? simd->gelu_tanh[t] : simd->gelu[t];
}

static dt_status prepare(dt_kernel_instance *s) {
    const dt_node *node = s->node;
    const int x_at = node->backward && node->op == DT_OP_relu ? dt_pos_out(s, 0) : 0;
    const int d_at = node->backward ? dt_pos_grad(s, 0) : x_at;
    const dt_layout layout = s->in_layout[x_at];
    const dt_value_info *x = dt_instance_in(s, x_at), *d = dt_instance_in(s, d_at);
    activation_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->map.type, (const dt_value_info *[]){x, d, dt_instance_out(s, 0)},
                          3));
    st->x_at = x_at;
    st->d_at = d_at;
    st->n = dt_layout_elements(layout, &x->shape);
    choose(&st->map, node);
    s->in_layout[x_at] = s->in_layout[d_at] = s->out_layout[0] = layout;
    s->inplace_in = d_at;
    return DT_OK;
}

static void run(const dt_kernel_instance *s, const dt_run *r) {
    const activation_state *st = s->state;
    dt_map m = st->map;
    m.y = r->out[0];
    m.x = r->in[st->x_at];
    m.d = r->in[st->d_at];
    dt_custom_map(s->threads, st->n, &m);
}

const dt_kernel dt_cpu_relu = {prepare, run, dt_custom_destroy};
const dt_kernel dt_cpu_relu_bwd = {prepare, run, dt_custom_destroy};
const dt_kernel dt_cpu_gelu = {prepare, run, dt_custom_destroy};
const dt_kernel dt_cpu_gelu_bwd = {prepare, run, dt_custom_destroy};
