// amp.c: mixed precision, after differentiation. Each node gets a compute type. Inputs of another type are cast to it,
// and the node's outputs get it.
//
//   LOW     half precision, bf16 or f16
//   LOW_OUT half precision, but inputs keep their type (raw values of an instrument do not fit in 16 bits)
//   FOLLOW  half precision if any activation that the node reads has it, else f32; a backward node follows its forward
//           node
//   FULL    f32
//
// Parameters, buffers, GRAD and STAT stay f32: kernels read packed low-precision copies of weights and accumulate
// gradients in f32. Outputs of forward nodes after the first (saved moments, log-sum-exp) stay f32 too and are never
// cast. A value is cast once, right before its first reader, and all readers share the copy.
//
// Casts are appended to the nodes and then moved into place, so node ids change here.
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct amp_state {
    dt_graph *g;
    dt_dtype half;     // bf16 or f16
    dt_dtype *type;    // compute type by (old) node
    dt_value *cast_of; // by value: its copy in the other type, or DT_NONE
    dt_node_id *order; // new order
    int n_order;
} amp_state;

static bool is_aux(const dt_graph *g, dt_value v) {
    const dt_value_info *info = &g->values[v];
    return info->producer != DT_NONE && !g->nodes[info->producer].backward && info->out_index > 0;
}

// Values whose type the pass decides or converts.
static bool amp_is_activation(const dt_graph *g, dt_value v) {
    if (v == DT_NONE || !dt_dtype_is_float(g->values[v].dtype)) return false;
    dt_value_kind kind = g->values[v].kind;
    return (kind == DT_V_TEMP || kind == DT_V_INPUT || kind == DT_V_CONST) && !is_aux(g, v);
}

// Scale and shift of a layer norm, which kernels read as f32; those of group norm are constants.
static bool amp_is_weight(const dt_node *n, int i) {
    return n->op == DT_OP_layer_norm && (i == 1 || i == 2);
}

static dt_dtype compute_type(const amp_state *s, const dt_node *n) {
    switch (dt_op_get(n->op)->amp) {
    case DT_AMP_LOW:
    case DT_AMP_LOW_OUT:
        return s->half;
    case DT_AMP_FULL:
        return DT_F32;
    case DT_AMP_FOLLOW:
        break;
    }
    if (n->backward && n->forward != DT_NONE) return s->type[n->forward]; // its saved tensors have that type
    for (int i = 0; i < n->n_in; i++) {
        if (amp_is_activation(s->g, n->in[i]) && s->g->values[n->in[i]].dtype == s->half) return s->half;
    }
    return DT_F32;
}

static dt_value cast_to(amp_state *s, dt_value v, dt_dtype to) {
    dt_graph *g = s->g;
    dt_value known = s->cast_of[v];
    if (known != DT_NONE && g->values[known].dtype == to) return known; // one cast for all readers
    char name[512];
    snprintf(name, sizeof name, "%s.cast", g->values[v].name);
    dt_attrs attrs = {.cast = {to}};
    dt_value out = dt_graph_apply(g, DT_OP_cast, name, &v, 1, &attrs);
    if (out == DT_NONE) return v;
    s->order[s->n_order++] = g->n_nodes - 1; // in front of the node that is being converted
    s->cast_of[v] = out;
    return out;
}

static void amp_convert(amp_state *s, dt_node_id id) {
    dt_graph *g = s->g;
    if (g->nodes[id].dead) return;
    if (g->nodes[id].op == DT_OP_cast) { // the builder chose its type
        s->type[id] = g->nodes[id].attrs.cast.to;
        return;
    }
    dt_dtype t = s->type[id] = compute_type(s, &g->nodes[id]);
    bool casts_inputs = dt_op_get(g->nodes[id].op)->amp != DT_AMP_LOW_OUT;
    for (int i = 0; i < g->nodes[id].n_in && casts_inputs; i++) {
        dt_value v = g->nodes[id].in[i];
        if (!amp_is_activation(g, v) || g->values[v].dtype == t || amp_is_weight(&g->nodes[id], i)) continue;
        dt_value c = cast_to(s, v, t); // may move the node array
        g->nodes[id].in[i] = c;
    }
    for (int i = 0; i < g->nodes[id].n_out; i++) {
        dt_value v = g->nodes[id].out[i];
        if (v != DT_NONE && g->values[v].kind == DT_V_TEMP && amp_is_activation(g, v)) {
            g->values[v].dtype = t;
        }
    }
}

// At most one cast for each value is needed.
dt_status dt_pass_amp(dt_graph *g, dt_dtype half) {
    DT_TRY(dt_graph_check(g));
    if (half == DT_F32) return DT_OK;
    int n_nodes = g->n_nodes;
    size_t n_values = (size_t)g->n_values;
    amp_state s = {.g = g, .half = half};
    s.type = dt_xcalloc((size_t)n_nodes + 1, sizeof *s.type);
    s.cast_of = dt_xcalloc(n_values + 1, sizeof *s.cast_of);
    s.order = dt_xcalloc((size_t)n_nodes + n_values + 1, sizeof *s.order); // nodes, and a cast of each value
    for (size_t v = 0; v < n_values; v++) s.cast_of[v] = DT_NONE;
    for (dt_node_id id = 0; id < n_nodes && g->status == DT_OK; id++) {
        amp_convert(&s, id);
        s.order[s.n_order++] = id;
    }
    if (g->status == DT_OK) dt_graph_permute_nodes(g, s.order);
    free(s.type);
    free(s.cast_of);
    free(s.order);
    return dt_graph_check(g);
}
