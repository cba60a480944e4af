// autodiff.c: reverse mode over the static graph (see autodiff.h).
//
// First needs_grad spreads forward from the parameters that are not frozen, so that input images, and what only leads
// to frozen parameters, get no gradient. Then the forward nodes
// are visited last to first, and each op appends its backward nodes. All readers of a value come after its producer,
// so its gradient is complete when the producer is visited.
//
// A network that is used several times (dt_graph_share) is differentiated in stages, use by use, and the nodes are then
// put in order: forward and backward of the first use, those of the second, and so on. A node's backward waits for the
// last stage that gives it a gradient.
//
// Nodes add the gradient of a weight, which is input 1 or a later one, into its GRAD value. So a parameter that is used
// twice needs no add node: both nodes have the GRAD value as an output. Where a parameter is input 0 (of a slice, for
// example) or an op gives a finished tensor as its gradient, a backward `add` node adds that tensor into the flat
// buffer by its output 1.
#include "graph/autodiff.h"

#include "graph/build.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

bool dt_grad_wanted(const dt_grad_ctx *ctx, dt_value fwd_input) {
    return fwd_input != DT_NONE && ctx->needs_grad[fwd_input];
}

dt_value dt_grad_get(const dt_grad_ctx *ctx, dt_value fwd_output) {
    return fwd_output == DT_NONE ? DT_NONE : ctx->grad_of[fwd_output];
}

// The GRAD value of a PARAM, made at the first call.
static dt_value grad_of_param(dt_grad_ctx *ctx, dt_value param) {
    dt_graph *g = ctx->g;
    assert(g->values[param].kind == DT_V_PARAM);
    if (ctx->grad_of[param] != DT_NONE) return ctx->grad_of[param];
    char name[512];
    snprintf(name, sizeof name, "%s.grad", g->values[param].name);
    dt_shape shape = g->values[param].shape;
    dt_value grad = dt_graph_add_value(g, DT_V_GRAD, name, DT_F32, &shape);
    if (grad != DT_NONE) g->values[grad].param = param;
    ctx->grad_of[param] = grad; // from now on nodes add into it
    return grad;
}

// A backward node, without outputs. in: forward inputs, forward outputs, gradients of those (ir.h).
static void add_backward_node(dt_graph *g, dt_op op, const char *of, const dt_value *in, int n_fwd_in, int n_fwd_out,
                              dt_node_id forward, const dt_attrs *attrs) {
    const char *name = dt_arena_printf(&g->arena, "%s.bwd", of);
    dt_node *n = dt_graph_add_node(g, op, name, in, n_fwd_in + 2 * n_fwd_out, n_fwd_in, attrs);
    n->backward = true;
    n->n_fwd_in = n_fwd_in;
    n->n_fwd_out = n_fwd_out;
    n->forward = forward;
}

// A TEMP "<of>.grad" with the shape and dtype of `of`.
static dt_value add_temp_grad(dt_graph *g, dt_value of) {
    char name[512];
    snprintf(name, sizeof name, "%s.grad", g->values[of].name);
    dt_shape shape = g->values[of].shape;
    return dt_graph_add_value(g, DT_V_TEMP, name, g->values[of].dtype, &shape);
}

// Makes output i of backward node `bwd` the gradient of the forward input.
static void bind_grad(dt_grad_ctx *ctx, dt_node_id bwd, int i, dt_value fwd_input) {
    dt_graph *g = ctx->g;
    const bool param = g->values[fwd_input].kind == DT_V_PARAM, adds = param && i > 0;
    dt_value grad = param ? grad_of_param(ctx, fwd_input) : DT_NONE; // it takes the name first
    if (!adds) grad = add_temp_grad(g, fwd_input);
    dt_graph_set_out(g, &g->nodes[bwd], i, grad);
    if (!adds) dt_grad_give(ctx, fwd_input, grad);
}

// Moves a finished tensor into a parameter's place in the flat buffer.
static void give_to_param(dt_grad_ctx *ctx, dt_value param, dt_value grad) {
    dt_graph *g = ctx->g;
    // of add's backward: a, b, y, dy; dy is summed into b's gradient
    dt_value in[4] = {DT_NONE, DT_NONE, DT_NONE, grad};
    const char *of = dt_arena_printf(&g->arena, "%s.collect", g->values[param].name);
    add_backward_node(g, DT_OP_add, of, in, 2, 1, DT_NONE, NULL);
    dt_graph_set_out(g, &g->nodes[g->n_nodes - 1], 1, grad_of_param(ctx, param));
}

void dt_grad_give(dt_grad_ctx *ctx, dt_value fwd_input, dt_value grad) {
    if (grad == DT_NONE || !dt_grad_wanted(ctx, fwd_input)) return;
    dt_value *sum = &ctx->grad_of[fwd_input];
    if (ctx->g->values[fwd_input].kind == DT_V_PARAM) {
        give_to_param(ctx, fwd_input, grad); // the flat buffer has the sum
    } else {
        // of several readers, in the order in which backward meets them: a fixed sum
        *sum = *sum == DT_NONE ? grad : dt_add(ctx->g, *sum, grad);
    }
}

dt_status dt_grad_default(dt_grad_ctx *ctx, dt_node_id id, uint32_t save_in, uint32_t save_out, uint32_t no_grad) {
    dt_graph *g = ctx->g;
    dt_node fwd = g->nodes[id];
    dt_value *in = dt_arena_alloc(&g->arena, (size_t)(fwd.n_in + 2 * fwd.n_out) * sizeof *in);
    for (int i = 0; i < fwd.n_in; i++) in[i] = save_in >> i & 1 ? fwd.in[i] : DT_NONE;
    for (int i = 0; i < fwd.n_out; i++) {
        in[fwd.n_in + i] = save_out >> i & 1 ? fwd.out[i] : DT_NONE;
        in[fwd.n_in + fwd.n_out + i] = dt_grad_get(ctx, fwd.out[i]); // DT_NONE: nothing depends on it
    }
    add_backward_node(g, fwd.op, fwd.name, in, fwd.n_in, fwd.n_out, id, &fwd.attrs);
    const dt_node_id bwd = g->n_nodes - 1;
    for (int i = 0; i < fwd.n_in; i++) {
        if (no_grad >> i & 1 || !dt_grad_wanted(ctx, fwd.in[i])) continue;
        bind_grad(ctx, bwd, i, fwd.in[i]);
    }
    return g->status;
}

dt_status dt_grad_saved(dt_grad_ctx *ctx, dt_node_id id) {
    const dt_op_rules *r = dt_op_get(ctx->g->nodes[id].op)->rules;
    return dt_grad_default(ctx, id, r->save_in, r->save_out, r->no_grad);
}

dt_status dt_grad_by(dt_grad_ctx *ctx, dt_node_id id, dt_op op, const dt_value *in, int n_fwd_in, int out,
                     dt_value fwd_input) {
    dt_graph *g = ctx->g;
    const dt_node fwd = g->nodes[id];
    add_backward_node(g, op, fwd.name, in, n_fwd_in, 1, id, &fwd.attrs);
    bind_grad(ctx, g->n_nodes - 1, out, fwd_input);
    return g->status;
}

// ---- the walk --------------------------------------------------------------------------------------
static void spread_need(dt_grad_ctx *ctx) {
    dt_graph *g = ctx->g;
    for (int v = 0; v < g->n_values; v++) ctx->needs_grad[v] = g->values[v].kind == DT_V_PARAM && !g->values[v].frozen;
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *n = &g->nodes[i];
        bool needed = false;
        for (int k = 0; k < n->n_in && !n->dead; k++) needed |= dt_grad_wanted(ctx, n->in[k]);
        for (int k = 0; k < n->n_out && needed; k++) { // one pass: nodes are in execution order
            if (n->out[k] != DT_NONE) ctx->needs_grad[n->out[k]] = true;
        }
    }
}

static dt_status autodiff_visit(dt_grad_ctx *ctx, dt_node_id id) {
    dt_graph *g = ctx->g;
    const dt_node *n = &g->nodes[id];
    bool reaches_loss = false; // nodes behind this one have given their gradients already
    for (int k = 0; k < n->n_out && !n->dead; k++)
        if (n->out[k] != DT_NONE && ctx->needs_grad[n->out[k]])
            reaches_loss |= n->out[k] == g->loss || ctx->grad_of[n->out[k]] != DT_NONE;
    if (!reaches_loss) return DT_OK;
    const dt_op_def *def = dt_op_get(n->op);
    if (!def->rules->grad) {
        dt_graph_fail(g, "%s %s: has no gradient, but parameters lie before it", def->name, g->nodes[id].name);
        return g->status;
    }
    return def->rules->grad(ctx, id);
}

// g->grads in the order in which the last producer of each runs.
static dt_status list_grads(dt_grad_ctx *ctx, int n_forward_values) {
    dt_graph *g = ctx->g;
    for (int v = 0; v < n_forward_values; v++) {
        if (ctx->needs_grad[v] && g->values[v].kind == DT_V_PARAM && ctx->grad_of[v] == DT_NONE) {
            dt_graph_fail(g, "parameter %s does not reach the loss: use it or leave it out", g->values[v].name);
            return g->status;
        }
    }
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        for (int i = 0; i < g->nodes[id].n_out; i++) {
            dt_value v = g->nodes[id].out[i];
            if (v == DT_NONE || g->values[v].kind != DT_V_GRAD) continue;
            // several nodes add into a GRAD value; its producer is the last of them
            if (g->values[v].producer == id && g->values[v].out_index == i) dt_graph_add_grad(g, v);
        }
    }
    return DT_OK;
}

// ---- stages ----------------------------------------------------------------------------------------
// A forward node is of the last stage of what it reads and of its own. back: the stage of its backward, -1: it has
// none. The target of a loss gets no gradient.
static void find_stages(const dt_grad_ctx *ctx, int *back) {
    dt_graph *g = ctx->g;
    for (dt_node_id id = 0; id < g->n_nodes; id++) {
        dt_node *n = &g->nodes[id];
        back[id] = -1;
        for (int i = 0; i < n->n_in; i++) {
            const dt_node_id from = n->in[i] == DT_NONE ? DT_NONE : g->values[n->in[i]].producer;
            if (from != DT_NONE && g->nodes[from].stage > n->stage) n->stage = g->nodes[from].stage;
        }
    }
    for (dt_node_id id = g->n_nodes - 1; id >= 0; id--) {
        const dt_node *n = &g->nodes[id];
        if (n->dead) continue;
        for (int i = 0; i < n->n_out; i++)
            if (n->out[i] == g->loss && back[id] < n->stage) back[id] = n->stage;
        for (int i = 0; i < (n->op == DT_OP_loss ? 1 : n->n_in) && back[id] >= 0; i++) {
            const dt_node_id from = dt_grad_wanted(ctx, n->in[i]) ? g->values[n->in[i]].producer : DT_NONE;
            if (from != DT_NONE && back[from] < back[id]) back[from] = back[id];
        }
    }
}

static void differentiate_stages(dt_grad_ctx *ctx) {
    dt_graph *g = ctx->g;
    const int n_forward = g->n_nodes, n_stages = g->n_stages + 1;
    int *back = dt_xcalloc((size_t)n_forward + 1, sizeof *back);
    int *end = dt_xcalloc((size_t)n_stages, sizeof *end); // of each stage's backward nodes
    find_stages(ctx, back);
    for (int s = 0; s < n_stages; s++) {
        for (dt_node_id id = n_forward - 1; id >= 0 && g->status == DT_OK; id--)
            if (back[id] == s) (void)autodiff_visit(ctx, id);
        end[s] = g->n_nodes;
    }
    dt_node_id *order = dt_xcalloc((size_t)g->n_nodes + 1, sizeof *order); // use by use
    int n = 0;
    for (int s = 0; s < n_stages; s++) {
        for (dt_node_id id = 0; id < n_forward; id++)
            if (g->nodes[id].stage == s) order[n++] = id;
        for (dt_node_id id = s ? end[s - 1] : n_forward; id < end[s]; id++) order[n++] = id;
    }
    if (n_stages > 1 && g->status == DT_OK) dt_graph_permute_nodes(g, order);
    free(order);
    free(end);
    free(back);
}

dt_status dt_graph_differentiate(dt_graph *g) {
    DT_TRY(dt_graph_check(g));
    if (g->loss == DT_NONE) dt_graph_fail(g, "there is no loss to differentiate: the model adds none");
    if (g->n_grads > 0) dt_graph_fail(g, "is differentiated already");
    size_t n = (size_t)g->n_values;
    dt_grad_ctx ctx = {g, dt_xcalloc(n + 1, sizeof(dt_value)), dt_xcalloc(n + 1, sizeof(bool))};
    for (size_t v = 0; v < n; v++) ctx.grad_of[v] = DT_NONE; // of forward values: backward adds more, which need none
    spread_need(&ctx);
    differentiate_stages(&ctx);
    if (g->status == DT_OK) (void)list_grads(&ctx, (int)n);
    free(ctx.grad_of);
    free(ctx.needs_grad);
    return dt_graph_check(g);
}
