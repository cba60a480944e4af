// sdpa: scaled dot-product attention, softmax(scale q k^T) v (Vaswani et al., 2017).
//   in  0 q (N,H,Tq,D)   1 k (N,H,Tk,D)   2 v (N,H,Tk,D)
//   out 0 y (N,H,Tq,D)   1 lse f32 (N,H,Tq): log of the sum of exponentials of each row
// Backward reads q, k, v, y and lse; gives dq, dk, dv. The scores are never stored (Dao et al., 2022).
#include "op_util.h"

static dt_status infer(dt_graph *g, dt_node_id id) {
    dt_shape q = dt_op_in_shape(g, id, 0), k = dt_op_in_shape(g, id, 1),
             v = dt_op_in_shape(g, id, 2);
    bool fits = q.n == 4 && k.n == 4 && dt_shape_equal(&k, &v) && q.d[0] == k.d[0] &&
                q.d[1] == k.d[1] && q.d[3] == k.d[3];
    if (!fits) return dt_op_fail(g, id, "wants q (N,H,Tq,D), k and v (N,H,Tk,D)");
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &q);
    q.n = 3;
    dt_op_add_out(g, id, 1, "lse", DT_F32, &q);
    return g->status;
}

static dt_status grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 7, 3, 0);
}

DT_OP_DEFINE(sdpa, infer, grad);

dt_value dt_sdpa(dt_graph *g, dt_value q, dt_value k, dt_value v, float scale) {
    if (q == DT_NONE || k == DT_NONE || v == DT_NONE) return DT_NONE;
    dt_attrs a = {.sdpa = {scale}};
    return dt_graph_apply(g, DT_OP_sdpa, NULL, (dt_value[]){q, k, v}, 3, &a);
}
