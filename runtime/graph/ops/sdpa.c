// sdpa: scaled dot-product attention, softmax(scale q k^T) v (Vaswani et al., 2017), in two forms.
//   apart   in  0 q (N,H,Tq,D)   1 k (N,H,Tk,D)   2 v (N,H,Tk,D)     out 0 y (N,H,Tq,D)
//   packed  in  0 qkv (N,T,3*H*D): q, k, v of one projection, heads within each, attrs.sdpa.heads = H
//                                                                    out 0 y (N,T,H*D)
//   both    out 1 lse f32 (N,H,Tq): log of the sum of exponentials of each row
// Backward reads q, k, v (or qkv), y and lse; gives their gradients in the same form. The scores are
// never stored (Dao et al., 2022). The packed form is what a projection writes and the next one reads:
// nothing is cut, transposed or joined in between. Kernels see both forms through backend/sdpa_view.h.
#include "op_util.h"

static dt_status infer_packed(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0);
    int64_t heads = g->nodes[id].attrs.sdpa.heads;
    if (heads < 1 || x.n != 3 || x.d[2] % (3 * heads)) {
        return dt_op_fail(g, id, "wants qkv (N,T,3*heads*D), there are %d heads", (int)heads);
    }
    dt_shape y = dt_shape3(x.d[0], x.d[1], x.d[2] / 3), lse = dt_shape3(x.d[0], heads, x.d[1]);
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &y);
    dt_op_add_out(g, id, 1, "lse", DT_F32, &lse);
    return g->status;
}

static dt_status sdpa_infer(dt_graph *g, dt_node_id id) {
    if (!dt_op_has_in(g, id, 1)) return infer_packed(g, id);
    if (!dt_op_has_in(g, id, 2)) return dt_op_fail(g, id, "wants q, k and v, or one packed tensor");
    dt_shape q = dt_op_in_shape(g, id, 0), k = dt_op_in_shape(g, id, 1), v = dt_op_in_shape(g, id, 2);
    bool fits =
        q.n == 4 && k.n == 4 && dt_shape_equal(&k, &v) && q.d[0] == k.d[0] && q.d[1] == k.d[1] && q.d[3] == k.d[3];
    if (!fits) return dt_op_fail(g, id, "wants q (N,H,Tq,D), k and v (N,H,Tk,D)");
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 0), &q);
    q.n = 3;
    dt_op_add_out(g, id, 1, "lse", DT_F32, &q);
    return g->status;
}

static dt_status sdpa_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 7, 3, 0);
}

DT_OP_DEFINE(sdpa, sdpa_infer, sdpa_grad);

dt_value dt_sdpa(dt_graph *g, dt_value q, dt_value k, dt_value v, float scale) {
    dt_attrs a = {.sdpa = {.scale = scale}};
    return dt_graph_apply(g, DT_OP_sdpa, NULL, (dt_value[]){q, k, v}, 3, &a);
}

dt_value dt_sdpa_packed(dt_graph *g, const char *name, dt_value qkv, int heads, float scale) {
    dt_attrs a = {.sdpa = {.scale = scale, .heads = heads}};
    return dt_graph_apply(g, DT_OP_sdpa, name, &qkv, 1, &a);
}
