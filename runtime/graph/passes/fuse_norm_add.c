// fuse_norm_add.c: a transformer adds to its residual stream and normalizes the sum at once; the gradient of the stream
// is that of the layer norm plus the one from later layers. Each becomes one pass over the rows instead of two:
//
//   add(a, b) -> s;  layer_norm(s) -> y                     =>  layer_norm(a, …, b) -> y, …, s
//   layer_norm.bwd(s, …) -> d;  add(d, other) -> ds         =>  layer_norm.bwd(s, …, other) -> ds
//
// As without the pass, s is rounded before it is normalized, and d before `other` is added: results keep their bits. The
// merged node takes the place of the layer norm, so nothing may read s before it, and `other` must be computed before
// it. The pass comes after mixed precision, which would keep further outputs in f32; the types must agree.
#include "graph/passes/passes.h"

#include <stdlib.h>
#include <string.h>

enum { FUSE_NORM_ADD_RESIDUAL = 3, SUM = 3 };

static bool is_norm(const dt_node *n, bool backward) {
    return !n->dead && n->op == DT_OP_layer_norm && n->backward == backward;
}

static bool reads(const dt_node *n, dt_value v) {
    for (int i = 0; i < n->n_in && !n->dead; i++)
        if (n->in[i] == v) return true;
    return false;
}

// `n` places, of which the first `kept` are copied and the others empty.
static dt_value *longer(dt_graph *g, const dt_value *list, int kept, int n) {
    dt_value *to = dt_arena_alloc(&g->arena, (size_t)n * sizeof *to);
    memcpy(to, list, (size_t)kept * sizeof *to);
    for (int i = kept; i < n; i++) to[i] = DT_NONE;
    return to;
}

static void fuse_norm_add_forward(dt_graph *g, dt_node *norm) {
    const dt_value s = norm->in[0];
    const dt_node_id at = g->values[s].producer;
    if (norm->n_in > FUSE_NORM_ADD_RESIDUAL || at == DT_NONE || !dt_graph_adds_alike(g, &g->nodes[at])) return;
    if (g->values[s].dtype != g->values[norm->out[0]].dtype) return;
    for (const dt_node *n = &g->nodes[at]; n < norm; n++)
        if (reads(n, s)) return;
    dt_node *add = &g->nodes[at];
    norm->in = longer(g, norm->in, norm->n_in, FUSE_NORM_ADD_RESIDUAL + 1);
    norm->in[0] = add->in[0];
    norm->in[FUSE_NORM_ADD_RESIDUAL] = add->in[1];
    norm->n_in = FUSE_NORM_ADD_RESIDUAL + 1;
    norm->out = longer(g, norm->out, norm->n_out, SUM + 1);
    norm->n_out = SUM + 1;
    dt_graph_set_out(g, norm, SUM, s);
    add->dead = true;
}

static void fuse_norm_add_backward(dt_graph *g, const dt_node_id *readers, dt_node *norm) {
    const dt_value d = norm->out[0];
    if (d == DT_NONE || readers[d] == DT_NONE || !dt_graph_adds_alike(g, &g->nodes[readers[d]])) return;
    if (norm->n_in > norm->n_fwd_in + 2 * norm->n_fwd_out) return; // has one
    dt_node *add = &g->nodes[readers[d]];
    const dt_value other = add->in[0] == d ? add->in[1] : add->in[0];
    if (other == d || g->values[other].producer > norm - g->nodes) return;
    norm->in = longer(g, norm->in, norm->n_in, norm->n_in + 1);
    norm->in[norm->n_in++] = other;
    dt_graph_set_out(g, norm, 0, add->out[0]);
    g->values[d].producer = DT_NONE;
    add->dead = true;
}

dt_status dt_pass_fuse_norm_add(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        if (is_norm(&g->nodes[id], false)) fuse_norm_add_forward(g, &g->nodes[id]);
        if (is_norm(&g->nodes[id], true)) fuse_norm_add_backward(g, readers, &g->nodes[id]);
    }
    free(readers);
    return DT_OK;
}
