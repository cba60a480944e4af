// activation_cpu.c: ReLU, GELU (exact, or the tanh form) and the op activation in any layout, in place.
//
// ReLU's gradient reads the output, the others' the input. NaN passes through all. What is not 0 at 0 does not keep the
// zeros of padding channels, so where there are such the layout is DENSE.
#include "backend/cpu/custom_kernel.h"
#include "graph/activation_words.h"

typedef struct activation_state {
    int x_at, d_at; // inputs that are read: x (backward ReLU: y), and backward dy
    int64_t n;
    dt_map map;
} activation_state;

static const float at_zero[DT_N_ACTIVATIONS] = {
#define ACTIVATION(id, op, at_zero, help) [DT_ACTIVATION_##id] = at_zero,
#include "graph/activations.def"
#undef ACTIVATION
};

static void activation_cpu_choose(dt_map *m, const dt_node *node) {
    const dt_simd_elementwise *simd = dt_simd_get()->elementwise;
    const dt_activation kind = node->attrs.activation.kind;
    m->number = node->attrs.activation.number;
    if (node->backward)
        m->binary = simd->activation_bwd[kind][m->type];
    else
        m->unary = simd->activation[kind][m->type];
}

static dt_layout activation_cpu_layout_of(const dt_node *node, dt_layout l, const dt_shape *x) {
    if (node->backward || l.kind != DT_BLOCKED) return l;
    return at_zero[node->attrs.activation.kind] == 0 || x->d[1] % l.block == 0 ? l : dt_dense();
}

static dt_status activation_cpu_prepare(dt_kernel_instance *s) {
    const dt_node *node = s->node;
    const int x_at = node->backward && node->op == DT_OP_relu ? dt_pos_out(s, 0) : 0;
    const int d_at = node->backward ? dt_pos_grad(s, 0) : x_at;
    const dt_value_info *x = dt_instance_in(s, x_at), *d = dt_instance_in(s, d_at);
    const dt_layout layout = activation_cpu_layout_of(node, s->in_layout[x_at], &x->shape);
    activation_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->map.type, (const dt_value_info *[]){x, d, dt_instance_out(s, 0)}, 3));
    st->x_at = x_at;
    st->d_at = d_at;
    st->n = dt_layout_elements(layout, &x->shape);
    activation_cpu_choose(&st->map, node);
    s->in_layout[x_at] = s->in_layout[d_at] = s->out_layout[0] = layout;
    s->inplace_in = d_at;
    return DT_OK;
}

static void activation_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const activation_state *st = s->state;
    dt_map m = st->map;
    m.y = r->out[0];
    m.x = r->in[st->x_at];
    m.d = r->in[st->d_at];
    dt_custom_map(s->threads, st->n, &m);
}

const dt_kernel dt_cpu_relu = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_relu_bwd = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_gelu = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_gelu_bwd = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_activation = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
const dt_kernel dt_cpu_activation_bwd = {activation_cpu_prepare, activation_cpu_run, dt_custom_destroy};
