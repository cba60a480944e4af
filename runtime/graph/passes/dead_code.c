// dead_code.c: marks nodes as dead if nothing reads their results. Graph outputs, gradients of parameters and
// statistics (loss, weights, batch moments) always count as read.
#include "graph/passes/passes.h"

#include <stdlib.h>

static bool is_root(const dt_graph *g, dt_value v) {
    return g->values[v].kind == DT_V_GRAD || g->values[v].kind == DT_V_STAT;
}

dt_status dt_pass_dead_code(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    bool *needed = dt_xcalloc((size_t)g->n_values + 1, sizeof *needed);
    for (int i = 0; i < g->n_outputs; i++) needed[g->outputs[i].value] = true;
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--) {
        dt_node *n = &g->nodes[id];
        bool live = false;
        for (int i = 0; i < n->n_out && !n->dead; i++) {
            live |= n->out[i] != DT_NONE && (needed[n->out[i]] || is_root(g, n->out[i]));
        }
        n->dead = !live;
        for (int i = 0; i < n->n_in && live; i++) {
            if (n->in[i] != DT_NONE) needed[n->in[i]] = true;
        }
    }
    free(needed);
    return DT_OK;
}
