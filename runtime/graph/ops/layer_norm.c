// layer_norm: over the last dimension, (x - mean) / sqrt(var + eps) * scale + shift.
//   in  0 x (…,D)   1 scale (D)   2 shift (D)
//   out 0 y (…,D)   1 mean f32 (…)   2 invstd f32 (…)
// Backward reads x, scale, mean, invstd; gives dx, dscale, dshift.
//
// Where the pass fuse_norm_add has merged additions into it:
//   forward   in 3 residual: what is normalised is x + residual, rounded to their type; out 3 that sum
//   backward  reads the sum as x, and behind all other inputs a gradient (…,D) that is added to dx
#include "op_util.h"

static dt_status layer_norm_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    if (x.n < 1) return dt_op_fail(g, id, "wants (…,D)");
    for (int i = 1; i <= 2; i++) {
        dt_shape s = dt_op_in_shape(g, id, i);
        if (s.n != 1 || s.d[0] != x.d[x.n - 1]) return dt_op_fail(g, id, "input %d must be (D)", i);
    }
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &x);
    x.n--;
    dt_op_add_out(g, id, 1, "saved_mean", DT_F32, &x);
    dt_op_add_out(g, id, 2, "saved_invstd", DT_F32, &x);
    return g->status;
}

static dt_status layer_norm_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 3, 6, 0);
}

DT_OP_DEFINE(layer_norm, layer_norm_infer, layer_norm_grad);

dt_value dt_layer_norm(dt_graph *g, const char *name, dt_value x, float eps) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    dt_shape s = dt_info_of(g, x)->shape;
    if (s.n < 1) return dt_graph_fail(g, "layer_norm %s: wants (…,D)", name);
    if (!name) name = dt_graph_unique_name(g, "layer_norm");
    dt_shape d = dt_shape1(s.d[s.n - 1]);
    dt_value weight, bias;
    weight = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), d, (dt_init){DT_INIT_CONSTANT, 1}, false);
    bias = dt_param(g, dt_arena_printf(&g->arena, "%s.bias", name), d, (dt_init){DT_INIT_ZERO, 0}, false);
    return dt_layer_norm_with(g, name, x, weight, bias, eps);
}

dt_value dt_layer_norm_with(dt_graph *g, const char *name, dt_value x, dt_value weight, dt_value bias, float eps) {
    const dt_attrs a = {.layer_norm = {eps}};
    return dt_graph_apply(g, DT_OP_layer_norm, name, (dt_value[]){x, weight, bias}, 3, &a);
}
