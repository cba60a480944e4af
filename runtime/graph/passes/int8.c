// int8.c: inference in 8 bits. The layers that q names become conv2d_int8 and linear_int8, with its scales; the rest of
// the network stays as it is.
//
// A value is stored in 8 bits where a layer reads it in 8 bits: its producer writes them, if that is such a layer too
// or a max-pool behind one, and otherwise a `quantize` node makes them, once for all readers. Whoever else reads a
// value that is stored in 8 bits gets it back through another `quantize`. So chains of layers stay in 8 bits between
// them.
//
// A residual is in 8 bits if and only if what it is added to is.
//
// Rejected: zero points. Without them a convolution's padding is 0 in any case; what is negative somewhere has 127
// steps instead of 255.
#include "graph/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct int8_pass {
    dt_graph *g;
    const dt_int8 *q;
    const dt_int8_layer **layer; // by node; NULL: it stays
    bool *is_int8;               // by value: its producer stores it in 8 bits
    dt_value *copy;              // by value: the same in the other type, or DT_NONE
    int n_old;                   // values
    dt_node_id *order;
    int n_order;
} int8_pass;

bool dt_int8_is_layer(const dt_graph *g, const dt_node *n) {
    if (n->dead || n->backward || (n->op != DT_OP_conv2d && n->op != DT_OP_linear)) return false;
    const dt_value bias = n->n_in > 2 ? n->in[2] : DT_NONE;
    if (bias != DT_NONE && g->values[bias].kind != DT_V_PARAM) return false; // what is packed is
    const int groups = n->op == DT_OP_conv2d ? n->attrs.conv2d.groups : 1;
    const bool depthwise = g->values[n->in[1]].shape.d[1] == 1;
    if (groups > 1 && !depthwise) return false; // many ISAs have no fast kernel for these
    return n->n_out == 1 && g->values[n->in[0]].dtype == DT_F32;
}

static const dt_int8_value *int8_find_value(const int8_pass *p, dt_value v) {
    const char *name = p->g->values[v].name;
    for (int i = 0; i < p->q->n_values; i++)
        if (strcmp(p->q->values[i].name, name) == 0) return &p->q->values[i];
    return NULL;
}

static dt_status int8_find_layers(int8_pass *p) {
    const dt_graph *g = p->g;
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        const dt_node *n = &g->nodes[id];
        const dt_int8_layer *found = NULL;
        if (!dt_int8_is_layer(g, n)) continue;
        for (int i = 0; i < p->q->n_layers && !found; i++)
            if (strcmp(p->q->layers[i].name, n->name) == 0) found = &p->q->layers[i];
        if (!found) return dt_fail(DT_E_USAGE, "has no layer '%s'", n->name);
        if (!found->weight) continue; // calibration has left this layer f32
        const int64_t n_out = g->values[n->in[1]].shape.d[0];
        if (found->n != n_out)
            return dt_fail(DT_E_USAGE, "layer '%s' has %lld output channels, and the network's %lld", n->name,
                           (long long)found->n, (long long)n_out);
        p->layer[id] = found;
    }
    return DT_OK;
}

static bool is_pool(const dt_node *n) {
    return !n->dead && !n->backward && n->op == DT_OP_max_pool;
}

// From the last node to the first: readers come before what they read.
static void find_low(int8_pass *p) {
    const dt_graph *g = p->g;
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--) {
        const dt_node *n = &g->nodes[id];
        // the largest of bytes is that of values: no scale is needed
        if (is_pool(n) && p->is_int8[n->out[0]]) p->is_int8[n->in[0]] = true;
        if (!p->layer[id]) continue;
        p->is_int8[n->in[0]] = true;
        if (n->n_in > 3 && p->is_int8[n->out[0]]) p->is_int8[n->in[3]] = true; // an f32 result adds an f32 residual
    }
    for (dt_node_id id = 0; id < g->n_nodes; id++) { // who cannot write 8 bits does not
        const dt_node *n = &g->nodes[id];
        const bool writes = p->layer[id] || (is_pool(n) && p->is_int8[n->in[0]]);
        for (int i = 0; i < n->n_out && !n->dead && !writes; i++)
            if (n->out[i] != DT_NONE) p->is_int8[n->out[i]] = false;
    }
    for (dt_value v = 0; v < g->n_values; v++)
        if (g->values[v].producer == DT_NONE) p->is_int8[v] = false; // inputs and constants come as f32
}

static dt_status scale_of(const int8_pass *p, dt_value v, float *scale, dt_dtype *type) {
    const dt_value_info *info = &p->g->values[v];
    const dt_node *by = info->producer == DT_NONE ? NULL : &p->g->nodes[info->producer];
    if (by && is_pool(by) && p->is_int8[v]) return scale_of(p, by->in[0], scale, type);
    if (by && by->op == DT_OP_dropout) { // dtrain predict --mc: the run was observed without
        DT_TRY(scale_of(p, by->in[0], scale, type));
        *scale /= 1 - by->attrs.dropout.p;
        return DT_OK;
    }
    const dt_int8_value *found = int8_find_value(p, v);
    if (!found) return dt_fail(DT_E_USAGE, "has no value '%s'", info->name);
    *scale = found->scale;
    *type = found->negative ? DT_I8 : DT_U8; // behind a ReLU all 8 bits hold the magnitude
    return DT_OK;
}

// The same value in 8 bits or in f32.
static dt_status converted(int8_pass *p, dt_value v, bool int8, dt_value *out) {
    dt_graph *g = p->g;
    dt_attrs a = {.quantize = {.to = DT_F32}};
    dt_dtype type;
    char name[512];
    *out = v;
    if (p->is_int8[v] == int8) return DT_OK;
    *out = p->copy[v];
    if (*out != DT_NONE) return DT_OK;
    DT_TRY(scale_of(p, v, &a.quantize.scale, &type));
    if (int8) a.quantize.to = type;
    snprintf(name, sizeof name, "%s.%s", g->values[v].name, int8 ? "int8" : "f32");
    *out = p->copy[v] = dt_graph_apply(g, DT_OP_quantize, name, &v, 1, &a);
    if (*out == DT_NONE) return dt_graph_check(g);
    p->order[p->n_order++] = g->n_nodes - 1;
    return DT_OK;
}

static dt_status convert_layer(int8_pass *p, dt_node_id id) {
    dt_graph *g = p->g;
    const bool conv = g->nodes[id].op == DT_OP_conv2d, adds = g->nodes[id].n_in > 3;
    const dt_value x = g->nodes[id].in[0], y = g->nodes[id].out[0];
    dt_int8_scales *s = dt_arena_alloc(&g->arena, sizeof *s);
    float *weight = dt_arena_alloc(&g->arena, (size_t)p->layer[id]->n * sizeof *weight);
    dt_dtype type;
    memcpy(weight, p->layer[id]->weight, (size_t)p->layer[id]->n * sizeof *weight);
    *s = (dt_int8_scales){.weight = weight, .residual = 1, .y = 1};
    DT_TRY(scale_of(p, x, &s->x, &type));
    if (p->is_int8[y]) DT_TRY(scale_of(p, y, &s->y, &g->values[y].dtype));
    if (p->is_int8[y] && adds) DT_TRY(scale_of(p, g->nodes[id].in[3], &s->residual, &type));
    dt_value in;
    DT_TRY(converted(p, x, true, &in));
    g->nodes[id].in[0] = in;
    if (adds) DT_TRY(converted(p, g->nodes[id].in[3], p->is_int8[y], &in));
    if (adds) g->nodes[id].in[3] = in;
    g->nodes[id].op = conv ? DT_OP_conv2d_int8 : DT_OP_linear_int8;
    if (conv)
        g->nodes[id].attrs.conv2d.int8 = s;
    else
        g->nodes[id].attrs.linear.int8 = s;
    return DT_OK;
}

static dt_status int8_convert(int8_pass *p, dt_node_id id) {
    dt_graph *g = p->g;
    if (p->layer[id]) return convert_layer(p, id);
    if (is_pool(&g->nodes[id]) && p->is_int8[g->nodes[id].out[0]]) {
        g->values[g->nodes[id].out[0]].dtype = g->values[g->nodes[id].in[0]].dtype;
        return DT_OK;
    }
    for (int i = 0; i < g->nodes[id].n_in && !g->nodes[id].dead; i++) {
        dt_value v = g->nodes[id].in[i];
        if (v == DT_NONE || v >= p->n_old) continue;
        DT_TRY(converted(p, v, false, &v));
        g->nodes[id].in[i] = v;
    }
    return DT_OK;
}

dt_status dt_pass_int8(dt_graph *g, const dt_int8 *q) {
    DT_TRY(dt_graph_check(g));
    const int n_nodes = g->n_nodes;
    const size_t n = (size_t)(g->n_values + n_nodes) + 1;
    int8_pass p = {.g = g, .q = q, .n_old = g->n_values};
    p.layer = dt_xcalloc((size_t)n_nodes + 1, sizeof *p.layer);
    p.is_int8 = dt_xcalloc(n, sizeof *p.is_int8);
    p.copy = dt_xcalloc(n, sizeof *p.copy);
    p.order = dt_xcalloc(n, sizeof *p.order);
    for (size_t v = 0; v < n; v++) p.copy[v] = DT_NONE;
    dt_status st = int8_find_layers(&p);
    if (st == DT_OK) find_low(&p);
    for (dt_node_id id = 0; id < n_nodes && st == DT_OK; id++) {
        st = int8_convert(&p, id);
        p.order[p.n_order++] = id;
    }
    for (int i = 0; i < g->n_outputs && st == DT_OK; i++) // callers read f32
        st = converted(&p, g->outputs[i].value, false, &g->outputs[i].value);
    if (st == DT_OK) dt_graph_permute_nodes(g, p.order);
    free(p.layer);
    free(p.is_int8);
    free(p.copy);
    free(p.order);
    return st == DT_OK ? dt_graph_check(g) : st;
}
