// fuse.c: merges chains of nodes into one node, before differentiation, so that the gradient is one kernel too.
//
//   batch_norm -> [add residual] -> relu -> [max_pool 2x2]   =>  batch_norm
//   linear -> relu (and gelu, in inference graphs)           =>  linear
//
// A value inside a chain must have one reader and be no graph output. The merged node keeps the name of the first node,
// and so its parameters and random numbers. It takes the place of the last node, because a residual may be computed
// after the batch norm, and the output of the last node, so that readers need no change.
//
// A pool is merged only if its windows tile the image: then each element has at most one window, and backward is a
// gather. It is not merged after a residual, whose gradient would need the mask before the pool.
//
// dt_pass_fuse_residual, for inference: conv2d -> add residual -> [relu]  =>  conv2d with a fourth input.
#include "graph/activation_words.h"
#include "graph/passes/passes.h"

#include <stdlib.h>

// Puts `merged`, the new form of `head`, in the place of `last`.
static void move_head(dt_graph *g, dt_node *head, dt_node *last, dt_node merged) {
    head->dead = true;
    dt_graph_swap_value_names(g, head->out[0], merged.out[0]);
    for (int i = 0; i < head->n_out; i++) {
        if (head->out[i] != DT_NONE) g->values[head->out[i]].producer = DT_NONE;
    }
    const char *old_name = last->name;
    *last = merged;
    last->name = old_name;
    dt_graph_rename_node(g, (dt_node_id)(last - g->nodes), merged.name);
    for (int i = 0; i < merged.n_out; i++) dt_graph_set_out(g, last, i, merged.out[i]);
}

static bool pool_tiles(const dt_window *w) {
    for (int d = 0; d < 2; d++) {
        if (w->kernel[d] != 2 || w->stride[d] != 2 || w->dilation[d] != 1) return false;
        if (w->pad_begin[d] != 0 || w->pad_end[d] != 0) return false;
    }
    return true;
}

// The add after the batch norm, if it adds a tensor of the same shape: *other. Not a parameter: its gradient adds.
static dt_node *residual_add(dt_graph *g, const dt_node_id *readers, dt_value y, dt_value *other) {
    dt_node *add = dt_graph_reader(g, readers, y, DT_OP_add);
    if (!add) return NULL;
    *other = add->in[0] == y ? add->in[1] : add->in[0];
    const dt_value_info *v = &g->values[*other];
    if (*other == y || v->kind == DT_V_PARAM || !dt_shape_equal(&v->shape, &g->values[y].shape)) return NULL;
    return add;
}

static void fuse_batch_norm(dt_graph *g, const dt_node_id *readers, dt_node *bn) {
    dt_node merged = *bn;
    dt_value residual = DT_NONE;
    if (merged.attrs.batch_norm.relu || merged.n_in > 5) return;
    dt_node *add = residual_add(g, readers, bn->out[0], &residual);
    dt_node *relu = dt_graph_reader(g, readers, add ? add->out[0] : bn->out[0], DT_OP_relu);
    if (!relu) return;
    dt_node *last = relu;
    dt_node *pool = add ? NULL : dt_graph_reader(g, readers, relu->out[0], DT_OP_max_pool);
    merged.attrs.batch_norm.relu = 1;
    merged.out = dt_arena_alloc(&g->arena, (size_t)bn->n_out * sizeof *merged.out);
    for (int i = 0; i < bn->n_out; i++) merged.out[i] = bn->out[i];
    merged.out[0] = relu->out[0];
    if (add) {
        merged.in = dt_arena_alloc(&g->arena, 6 * sizeof *merged.in);
        for (int i = 0; i < 5; i++) merged.in[i] = bn->in[i];
        merged.in[5] = residual;
        merged.n_in = 6;
        add->dead = true;
        g->values[add->out[0]].producer = DT_NONE;
    }
    if (pool && pool_tiles(&pool->attrs.pool.win)) {
        merged.attrs.batch_norm.pool = 1;
        merged.attrs.batch_norm.win = pool->attrs.pool.win;
        merged.out[0] = pool->out[0];
        merged.out[3] = g->training ? pool->out[1] : DT_NONE;
        relu->dead = true;
        g->values[relu->out[0]].producer = DT_NONE;
        g->values[pool->out[1]].producer = DT_NONE;
        last = pool;
    }
    move_head(g, bn, last, merged);
}

static void fuse_linear(dt_graph *g, const dt_node_id *readers, dt_node *linear) {
    if (linear->attrs.linear.act != DT_ACTIVATION_none) return;
    dt_node *next = dt_graph_reader(g, readers, linear->out[0], DT_OP_relu);
    if (!next && !g->training) {
        next = dt_graph_reader(g, readers, linear->out[0], DT_OP_gelu);
    }
    if (!next) return;
    dt_node merged = *linear;
    merged.attrs.linear.act = next->attrs.activation.kind;
    merged.out = next->out;
    move_head(g, linear, next, merged);
}

static void fuse_residual(dt_graph *g, const dt_node_id *readers, dt_node *conv) {
    dt_value residual = DT_NONE;
    if (conv->n_in > 3 || conv->attrs.conv2d.act != DT_ACTIVATION_none) return;
    dt_node *add = residual_add(g, readers, conv->out[0], &residual);
    if (!add || g->values[residual].kind != DT_V_TEMP) return;
    dt_node *relu = dt_graph_reader(g, readers, add->out[0], DT_OP_relu);
    dt_node *last = relu ? relu : add;
    dt_node merged = *conv;
    merged.attrs.conv2d.act = relu ? DT_ACTIVATION_relu : DT_ACTIVATION_none;
    merged.in = dt_arena_alloc(&g->arena, 4 * sizeof *merged.in);
    for (int i = 0; i < 3; i++) merged.in[i] = i < conv->n_in ? conv->in[i] : DT_NONE;
    merged.in[3] = residual;
    merged.n_in = 4;
    merged.out = dt_arena_alloc(&g->arena, sizeof *merged.out);
    merged.out[0] = last->out[0];
    if (relu) {
        add->dead = true;
        g->values[add->out[0]].producer = DT_NONE;
    }
    move_head(g, conv, last, merged);
}

dt_status dt_pass_fuse_residual(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    if (g->training) return DT_OK;
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        dt_node *n = &g->nodes[id];
        if (!n->dead && !n->backward && n->op == DT_OP_conv2d) fuse_residual(g, readers, n);
    }
    free(readers);
    return DT_OK;
}

dt_status dt_pass_fuse(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    dt_node_id *readers = dt_graph_sole_readers(g);
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        dt_node *n = &g->nodes[id];
        if (n->dead || n->backward) continue;
        if (n->op == DT_OP_batch_norm) fuse_batch_norm(g, readers, n);
        if (n->op == DT_OP_linear) fuse_linear(g, readers, n);
    }
    free(readers);
    return DT_OK;
}
