// linear: y = act(x W^T + b).
//   in  0 x (…,I)   1 weight (O,I)   2 bias (O), optional
//   out 0 y (…,O)   1 what went into a fused GELU in training, else none
// Backward reads x and weight, and y when a ReLU is fused; gives dx, dweight, dbias. Exact GELU is
// fused in inference graphs only, its tanh form in training by a pass of its own (passes/fuse_gelu.c).
#include "graph/activation_words.h"
#include "op_util.h"

#include <math.h>

static dt_status linear_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), w = dt_op_in_shape(g, id, 1);
    if (x.n < 1 || w.n != 2 || x.d[x.n - 1] != w.d[1]) {
        return dt_op_fail(g, id, "wants x (…,I) and weight (O,I)");
    }
    if (dt_op_has_in(g, id, 2)) {
        dt_shape b = dt_op_in_shape(g, id, 2);
        if (b.n != 1 || b.d[0] != w.d[0]) return dt_op_fail(g, id, "bias must be (O)");
    }
    x.d[x.n - 1] = w.d[0];
    return dt_op_shaped(g, id, &x);
}

static dt_status linear_grad(dt_grad_ctx *ctx, dt_node_id id) {
    bool relu = ctx->g->nodes[id].attrs.linear.act == DT_ACTIVATION_relu;
    return dt_grad_default(ctx, id, 3, relu ? 1 : 0, 0);
}

DT_OP_DEFINE(linear, linear_infer, linear_grad);

dt_value dt_linear_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias) {
    dt_value in[3] = {x, weight, bias};
    dt_attrs a = {.linear = {DT_ACTIVATION_none}};
    return dt_graph_apply(g, DT_OP_linear, name, in, bias == DT_NONE ? 2 : 3, &a);
}

dt_value dt_linear(dt_graph *g, const char *name, dt_value x, int64_t out, bool bias) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    dt_shape s = dt_info_of(g, x)->shape;
    if (s.n < 1 || out < 1) return dt_graph_fail(g, "linear %s: wants x (…,I), outputs >= 1", name);
    if (!name) name = dt_graph_unique_name(g, "linear");
    int64_t inputs = s.d[s.n - 1];
    dt_init init = {DT_INIT_UNIFORM, (float)(1.0 / sqrt((double)inputs))};
    dt_value w = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), dt_shape2(out, inputs), init, true);
    dt_value b = DT_NONE;
    if (bias) b = dt_param(g, dt_arena_printf(&g->arena, "%s.bias", name), dt_shape1(out), init, false);
    return dt_linear_with(g, name, x, w, b);
}
