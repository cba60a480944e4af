// tile_slices.c: when a tensor is cut into slices that cover it without overlap (query, key and value of
// one projection), its gradient comes as add(slice.bwd, slice.bwd, …), each zero but for its part. That
// sum is the concatenation of the parts: one write of the tensor instead of several with zeros and sums.
//
// The concat takes the slot and the output of the last add; the adds and slice gradients below it die.
#include "graph/passes/passes.h"

#include <stdlib.h>

enum { MAX_PARTS = 64 };

typedef struct tiling {
    dt_graph *g;
    const dt_node_id *readers;
    dt_node_id parts[MAX_PARTS], inner[MAX_PARTS]; // slice.bwd nodes; adds below the top
    int n_parts, n_inner;
} tiling;

// Collects the slice gradients that sum up to v; false if there is anything else in the sum.
static bool collect(tiling *t, dt_value v) {
    dt_graph *g = t->g;
    dt_node_id id = g->values[v].producer;
    if (id == DT_NONE || t->readers[v] == DT_NONE || t->n_parts == MAX_PARTS ||
        t->n_inner == MAX_PARTS) {
        return false;
    }
    const dt_node *n = &g->nodes[id];
    if (n->op == DT_OP_slice && n->backward) {
        t->parts[t->n_parts++] = id;
        return true;
    }
    if (n->op != DT_OP_add || n->backward) return false;
    t->inner[t->n_inner++] = id;
    return collect(t, n->in[0]) && collect(t, n->in[1]);
}

// Puts the parts in order; whether they tile their axis.
static bool tile(tiling *t) {
    dt_graph *g = t->g;
    int axis = g->nodes[t->parts[0]].attrs.slice.axis;
    for (int i = 1; i < t->n_parts; i++) {
        for (int k = i; k > 0; k--) {
            dt_node_id a = t->parts[k - 1], b = t->parts[k];
            if (g->nodes[a].attrs.slice.begin <= g->nodes[b].attrs.slice.begin) break;
            t->parts[k - 1] = b;
            t->parts[k] = a;
        }
    }
    int64_t at = 0;
    for (int i = 0; i < t->n_parts; i++) {
        const dt_attrs *a = &g->nodes[t->parts[i]].attrs;
        if (a->slice.axis != axis || a->slice.begin != at) return false;
        at = a->slice.end;
    }
    return at == g->values[g->nodes[t->parts[0]].out[0]].shape.d[axis];
}

static void make_concat(tiling *t, dt_node *top) {
    dt_graph *g = t->g;
    top->op = DT_OP_concat;
    top->attrs = (dt_attrs){.concat = {g->nodes[t->parts[0]].attrs.slice.axis}};
    top->n_in = t->n_parts;
    top->in = dt_arena_alloc(&g->arena, (size_t)t->n_parts * sizeof *top->in);
    for (int i = 0; i < t->n_parts; i++) {
        dt_node *part = &g->nodes[t->parts[i]];
        top->in[i] = part->in[part->n_in - 1];
        part->dead = true;
    }
    for (int i = 0; i < t->n_inner; i++) g->nodes[t->inner[i]].dead = true;
}

dt_status dt_pass_tile_slices(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--) {
        dt_node *n = &g->nodes[id];
        if (n->dead || n->op != DT_OP_add || n->backward) continue;
        tiling t = {.g = g, .readers = readers};
        if (collect(&t, n->in[0]) && collect(&t, n->in[1]) && tile(&t)) make_concat(&t, n);
    }
    free(readers);
    return DT_OK;
}
