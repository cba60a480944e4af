// fuse_gelu.c: training graphs only: the tanh form of GELU goes into the matmuls before and after it.
//
//   linear -> z;  gelu(z) -> y                            =>  linear -> y, z          (attrs.act)
//   linear.bwd(..., dout) -> dy;  gelu.bwd(z, dy) -> dz   =>  linear.bwd(..., dout, z) -> dz   (attrs.dgelu)
//
// The first linear gives both y and z, and its backward node gets dz as before. The pass comes after differentiation,
// which it does not concern, and after mixed precision, which would keep a second output in f32. Exact GELU stays a
// node of its own: no library offers it as an epilogue with a gradient.
#include "graph/activation_words.h"
#include "graph/passes/passes.h"

#include <stdlib.h>

static bool is_gelu(const dt_node *n, bool backward) {
    return !n->dead && n->op == DT_OP_gelu && n->backward == backward &&
           n->attrs.activation.kind == DT_ACTIVATION_gelu_tanh;
}

// The live linear node in this direction whose output 0 is v, else NULL.
static dt_node *linear_of(dt_graph *g, dt_value v, bool backward) {
    const dt_value_info *info = &g->values[v];
    if (info->producer == DT_NONE || info->out_index != 0) return NULL;
    dt_node *n = &g->nodes[info->producer];
    return !n->dead && n->op == DT_OP_linear && n->backward == backward ? n : NULL;
}

static void fuse_gelu_forward(dt_graph *g, dt_node *gelu) {
    const dt_value z = gelu->in[0], y = gelu->out[0];
    dt_node *linear = linear_of(g, z, false);
    if (!linear || linear->n_out != 1 || linear->attrs.linear.act != DT_ACTIVATION_none) return;
    if (g->values[z].dtype != g->values[y].dtype) return;
    linear->attrs.linear.act = DT_ACTIVATION_gelu_tanh;
    linear->n_out = 2;
    linear->out = dt_arena_alloc(&g->arena, 2 * sizeof *linear->out);
    dt_graph_set_out(g, linear, 0, y);
    dt_graph_set_out(g, linear, 1, z);
    gelu->dead = true;
}

static void fuse_gelu_backward(dt_graph *g, const dt_node_id *readers, dt_node *gelu) {
    const dt_value z = gelu->in[0], dy = gelu->in[gelu->n_fwd_in + gelu->n_fwd_out];
    const dt_value dz = gelu->out[0];
    dt_node *linear = linear_of(g, dy, true);
    if (!linear || linear->attrs.linear.dgelu || readers[dy] == DT_NONE) return;
    if (g->values[z].dtype != g->values[dy].dtype || g->values[dz].dtype != g->values[dy].dtype) return;
    dt_value *in = dt_arena_alloc(&g->arena, (size_t)(linear->n_in + 1) * sizeof *in);
    for (int i = 0; i < linear->n_in; i++) in[i] = linear->in[i];
    in[linear->n_in++] = z;
    linear->in = in;
    linear->attrs.linear.dgelu = 1;
    dt_graph_set_out(g, linear, 0, dz);
    g->values[dy].producer = DT_NONE;
    gelu->dead = true;
}

dt_status dt_pass_fuse_gelu(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        if (is_gelu(&g->nodes[id], false)) fuse_gelu_forward(g, &g->nodes[id]);
        if (is_gelu(&g->nodes[id], true)) fuse_gelu_backward(g, readers, &g->nodes[id]);
    }
    free(readers);
    return DT_OK;
}
