// arc_margin: the margin of ArcFace (Deng et al., CVPR 2019) on logits that are cosines times attrs.arc_margin.scale: that
// of the sample's class becomes the one of its angle plus attrs.arc_margin.margin, or, where that passes pi, the cosine
// less margin * sin(margin), so that it falls on. The others stay.
//   in  0 x (N,K)   1 target i32 (N)
//   out 0 y (N,K)
// Backward reads x and target; gives dx. A class outside 0..K-1 changes nothing: the loss reports it.
#include "op_util.h"

static dt_status arc_margin_infer(dt_graph *g, dt_node_id id) {
    const dt_shape x = dt_op_in_shape(g, id, 0), t = dt_op_in_shape(g, id, 1);
    if (x.n != 2 || t.n != 1 || t.d[0] != x.d[0] || dt_op_in_dtype(g, id, 1) != DT_I32)
        return dt_op_fail(g, id, "wants logits (N,K), target i32 (N)");
    return dt_op_same(g, id);
}

static dt_status arc_margin_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 3, 0, 2);
}

DT_OP_DEFINE(arc_margin, arc_margin_infer, arc_margin_grad);

dt_value dt_arc_margin(dt_graph *g, dt_value x, dt_value target, float margin, float scale) {
    const dt_attrs a = {.arc_margin = {margin, scale}};
    return dt_graph_apply(g, DT_OP_arc_margin, NULL, (dt_value[]){x, target}, 2, &a);
}
