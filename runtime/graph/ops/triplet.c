// triplet: the batch-hard triplet loss (Hermans et al., 2017) over the samples of a micro-batch:
//
//   loss_n = max(0, margin + max over p |x_n - x_p| - min over q |x_n - x_q|)
//
// p: the other samples of n's class, q: those of other classes; attrs.triplet.semihard: of these the ones that are
// further than every p (semi-hard negatives: Schroff et al., 2015). A sample without either has loss 0, and so has the
// gradient of a distance of 0. Samples of weight 0 are padding and neither n, p nor q.
//   in  0 x (N,D)   1 target i32 (N)   2 weight f32 (N)
//   out 0 STAT sum of weight[n] * loss_n * attrs.triplet.share   1 STAT sum of weight
// Backward reads x, target, weight (no gradient comes in); gives dx.
#include "op_util.h"

static dt_status triplet_infer(dt_graph *g, dt_node_id id) {
    const dt_shape x = dt_op_in_shape(g, id, 0), t = dt_op_in_shape(g, id, 1);
    if (x.n != 2 || t.n != 1 || t.d[0] != x.d[0] || dt_op_in_dtype(g, id, 1) != DT_I32)
        return dt_op_fail(g, id, "wants embeddings (N,D), target i32 (N)");
    return dt_op_add_loss(g, id);
}

static dt_status triplet_grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 7, 0, 6);
}

DT_OP_DEFINE(triplet, triplet_infer, triplet_grad);

dt_value dt_triplet(dt_graph *g, dt_value x, dt_value target, dt_value weight, float margin, bool semihard,
                    float share) {
    const dt_attrs a = {.triplet = {margin, share, semihard}};
    return dt_graph_apply(g, DT_OP_triplet, NULL, (dt_value[]){x, target, weight}, 3, &a);
}
