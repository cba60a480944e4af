// fuse_norm_act.c: training graphs, for backends whose kernels support it (dt_backend.norm_acts). A batch norm applies
// the activation behind it, and its gradient that of the activation, so that z is neither written nor read:
//
//   batch_norm(x) -> z;  activation(z) -> y                    =>  batch_norm(x) -> y, saved_shift
//   activation.bwd(z, dy) -> dz;  batch_norm.bwd(x, …, dz)     =>  batch_norm.bwd(x, …, saved_shift, dy)
//
// The gradient makes z again from x. Both kernels round z and dz as if they were written, and the shift that the batch
// norm applied, which takes up what rounding the mean lost, is saved for it: results keep their bits. ReLU is in
// fuse.c, before differentiation. The pass comes after mixed precision, which would keep a further output in f32, and
// after recompute: there z may be a copy's, which then is not needed.
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

enum { Z = 0, SAVED_MEAN = 1, SAVED_SHIFT = 3, RESIDUAL = 5 };

static bool fuse_norm_act_is_activation(const dt_node *n) {
    return !n->dead && (n->op == DT_OP_activation || n->op == DT_OP_gelu);
}

static bool is_plain_norm(const dt_node *n, bool backward) {
    return !n->dead && n->op == DT_OP_batch_norm && n->backward == backward && !n->attrs.batch_norm.relu &&
           !n->attrs.batch_norm.act && !n->attrs.batch_norm.pool &&
           (backward || n->n_in <= RESIDUAL || n->in[RESIDUAL] == DT_NONE);
}

static int dy_at(const dt_node *bwd) {
    return bwd->n_fwd_in + bwd->n_fwd_out;
}

// The gradient of the batch norm that alone reads what act.bwd gives, else NULL.
static dt_node *norm_behind(dt_graph *g, const dt_node_id *sole, const dt_node *act) {
    const dt_node_id id = sole[act->out[0]];
    dt_node *n = id == DT_NONE ? NULL : &g->nodes[id];
    return n && is_plain_norm(n, true) && n->in[dy_at(n)] == act->out[0] ? n : NULL;
}

// What reads z: at most the activation and its gradient; else false.
static bool find_readers(dt_graph *g, const dt_node_id *sole, dt_value z, dt_node *act[2]) {
    act[0] = act[1] = NULL;
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value == z) return false;
    for (dt_node *n = g->nodes; n < g->nodes + g->n_nodes; n++)
        for (int k = 0; k < n->n_in && !n->dead; k++) {
            if (n->in[k] != z) continue;
            if (k || !fuse_norm_act_is_activation(n) || act[n->backward]) return false;
            if (n->backward && !norm_behind(g, sole, n)) return false;
            act[n->backward] = n;
        }
    return true;
}

static void fuse_norm_act_take(dt_graph *g, dt_node *norm, dt_node *act) {
    norm->attrs.batch_norm.act = act->attrs.activation.kind;
    norm->attrs.batch_norm.number = act->attrs.activation.number;
    g->values[norm->backward ? act->out[0] : norm->out[Z]].producer = DT_NONE;
    act->dead = true;
}

// The shift is saved by the node that saved the mean.
static dt_value saved_shift(dt_graph *g, dt_value mean) {
    dt_node *norm = &g->nodes[g->values[mean].producer];
    char name[512];
    if (norm->out[SAVED_SHIFT] != DT_NONE) return norm->out[SAVED_SHIFT];
    snprintf(name, sizeof name, "%s.saved_shift", norm->name);
    const dt_shape shape = g->values[mean].shape; // the list of values may move
    const dt_value v = dt_graph_add_value(g, DT_V_TEMP, name, DT_F32, &shape);
    if (v != DT_NONE) dt_graph_set_out(g, norm, SAVED_SHIFT, v);
    return v;
}

dt_status dt_pass_fuse_norm_act(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    if (!g->training) return DT_OK;
    dt_node_id *sole = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes && g->status == DT_OK; id++) {
        dt_node *norm = &g->nodes[id], *act[2];
        if (!is_plain_norm(norm, false) || !find_readers(g, sole, norm->out[Z], act)) continue;
        if (act[0]) {
            fuse_norm_act_take(g, norm, act[0]);
            dt_graph_set_out(g, norm, Z, act[0]->out[0]);
        }
        if (!act[1]) continue;
        dt_node *back = norm_behind(g, sole, act[1]);
        fuse_norm_act_take(g, back, act[1]);
        back->in[dy_at(back)] = act[1]->in[dy_at(act[1])];
        back->in[back->n_fwd_in + SAVED_SHIFT] = saved_shift(g, back->in[back->n_fwd_in + SAVED_MEAN]);
    }
    free(sole);
    return dt_pass_dead_code(g);
}
