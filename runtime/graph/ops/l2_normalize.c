// l2_normalize: x / max(|x|, 1e-12) over the last dimension, as torch.nn.functional.normalize.
//   in  0 x (…,D)
//   out 0 y (…,D)
// Backward reads x; gives dx.
#include "op_util.h"

#include <math.h>

static dt_status l2_normalize_infer(dt_graph *g, dt_node_id id) {
    if (dt_op_in_shape(g, id, 0).n < 1) return dt_op_fail(g, id, "wants (…,D)");
    return dt_op_same(g, id);
}

static dt_status l2_normalize_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 1, 0, 0);
}

DT_OP_DEFINE(l2_normalize, l2_normalize_infer, l2_normalize_grad);

dt_value dt_l2_normalize(dt_graph *g, dt_value x) {
    return dt_graph_apply(g, DT_OP_l2_normalize, NULL, &x, 1, NULL);
}

dt_value dt_cosine(dt_graph *g, const char *name, dt_value x, int64_t out, float scale) {
    if (x == DT_NONE || g->status != DT_OK) return DT_NONE;
    const int64_t n = dt_info_of(g, x)->shape.d[1];
    const dt_init init = {DT_INIT_NORMAL, 1.0f / sqrtf((float)n)};
    dt_value w = dt_param(g, dt_arena_printf(&g->arena, "%s.weight", name), dt_shape2(out, n), init, true);
    x = dt_l2_normalize(g, x);
    w = dt_l2_normalize(g, w);
    if (w == DT_NONE) return DT_NONE;
    const dt_attrs a = {.matmul = {0, 1, scale}};
    return dt_graph_apply(g, DT_OP_matmul, name, (dt_value[]){x, w}, 2, &a);
}
