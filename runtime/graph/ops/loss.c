// loss.c: losses and what stands before them: shape inference, gradient, builder call.

#include "op_util.h"

#include "batch/losses.h"

// ---- loss ---------------------------------------------------------------------------------------------------------

// loss: any loss of batch/losses.h, chosen by attrs.loss.id.
//   in  0 x: logits (N,K), or predictions (N,…)   2 weight f32 (N)
//       1 target: i32 (N) or f32 (N,K) of a loss over classes, else f32 of x's shape
//       3 f32 (K) or none: class weights of a loss over classes (losses.h), which `weight` holds already of i32 targets,
//         or with attrs.loss.by_sample does not; each element's parameter of another loss (bce: of its positives)
//   out 0 STAT sum of weight[n] * loss_n * attrs.loss.share   1 STAT sum of weight
// Backward reads all inputs (no gradient comes in); gives the gradient of input 0.
// Several losses add into one STAT; the first of them gives the sum of weights.

static dt_status loss_infer(dt_graph *g, dt_node_id id) {
    dt_shape x = dt_op_in_shape(g, id, 0), t = dt_op_in_shape(g, id, 1);
    dt_dtype type = dt_op_in_dtype(g, id, 1);
    bool same = type == DT_F32 && dt_shape_equal(&t, &x);
    if (dt_losses[g->nodes[id].attrs.loss.id].softmax) {
        bool hard = type == DT_I32 && t.n == 1 && t.d[0] == x.d[0];
        if (x.n != 2 || !(hard || same)) return dt_op_fail(g, id, "wants logits (N,K), target i32 (N) or f32 (N,K)");
        if (dt_op_has_in(g, id, 3) && dt_shape_elements(&g->values[g->nodes[id].in[3]].shape) != x.d[1])
            return dt_op_fail(g, id, "wants a weight of each class (K)");
    } else if (!same) {
        return dt_op_fail(g, id, "wants an f32 target of the prediction's shape");
    } else if (dt_op_has_in(g, id, 3) &&
               dt_shape_elements(&g->values[g->nodes[id].in[3]].shape) * x.d[0] != dt_shape_elements(&x)) {
        return dt_op_fail(g, id, "wants a parameter of each element (K)");
    }
    return dt_op_add_loss(g, id);
}

static void loss_print(const dt_node *n, FILE *out) {
    if (n->attrs.loss.smoothing > 0.0f) fprintf(out, " smoothing %g", (double)n->attrs.loss.smoothing);
    if (n->attrs.loss.param > 0.0f) fprintf(out, " param %g", (double)n->attrs.loss.param);
}

DT_OP_DEFINE(loss, .infer = loss_infer, .grad = dt_grad_saved, .save_in = 15, .no_grad = 14, .print = loss_print);

dt_value dt_loss_share(dt_graph *g, const char *name, dt_word id, dt_value x, dt_value target, dt_value weight,
                       dt_value class_weights, bool by_sample, float smoothing, float param, float share) {
    dt_attrs a = {.loss = {.id = id, .smoothing = smoothing, .param = param, .share = share, .by_sample = by_sample}};
    return dt_graph_apply(g, DT_OP_loss, name, (dt_value[]){x, target, weight, class_weights},
                          class_weights == DT_NONE ? 3 : 4, &a);
}

dt_value dt_loss(dt_graph *g, dt_word id, dt_value x, dt_value target, dt_value weight, float smoothing, float param) {
    return dt_loss_share(g, dt_losses[id].id, id, x, target, weight, DT_NONE, false, smoothing, param, 1);
}

// ---- arc margin ---------------------------------------------------------------------------------------------------

// arc_margin: the margin of ArcFace (Deng et al., CVPR 2019) on logits that are cosines times attrs.arc_margin.scale:
// that of the sample's class becomes the one of its angle plus attrs.arc_margin.margin, or, where that passes pi, the
// cosine less margin * sin(margin), so that it falls on. The others stay.
//   in  0 x (N,K)   1 target i32 (N)
//   out 0 y (N,K)
// Backward reads x and target; gives dx. A class outside 0..K-1 changes nothing: the loss reports it.

static dt_status arc_margin_infer(dt_graph *g, dt_node_id id) {
    const dt_shape x = dt_op_in_shape(g, id, 0), t = dt_op_in_shape(g, id, 1);
    if (x.n != 2 || t.n != 1 || t.d[0] != x.d[0] || dt_op_in_dtype(g, id, 1) != DT_I32)
        return dt_op_fail(g, id, "wants logits (N,K), target i32 (N)");
    return dt_op_same(g, id);
}

DT_OP_DEFINE(arc_margin, .infer = arc_margin_infer, .grad = dt_grad_saved, .save_in = 3, .no_grad = 2);

dt_value dt_arc_margin(dt_graph *g, dt_value x, dt_value target, float margin, float scale) {
    const dt_attrs a = {.arc_margin = {margin, scale}};
    return dt_graph_apply(g, DT_OP_arc_margin, NULL, (dt_value[]){x, target}, 2, &a);
}

// ---- triplet ------------------------------------------------------------------------------------------------------

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

static dt_status triplet_infer(dt_graph *g, dt_node_id id) {
    const dt_shape x = dt_op_in_shape(g, id, 0), t = dt_op_in_shape(g, id, 1);
    if (x.n != 2 || t.n != 1 || t.d[0] != x.d[0] || dt_op_in_dtype(g, id, 1) != DT_I32)
        return dt_op_fail(g, id, "wants embeddings (N,D), target i32 (N)");
    return dt_op_add_loss(g, id);
}

DT_OP_DEFINE(triplet, .infer = triplet_infer, .grad = dt_grad_saved, .save_in = 7, .no_grad = 6);

dt_value dt_triplet(dt_graph *g, dt_value x, dt_value target, dt_value weight, float margin, bool semihard,
                    float share) {
    const dt_attrs a = {.triplet = {margin, share, semihard}};
    return dt_graph_apply(g, DT_OP_triplet, NULL, (dt_value[]){x, target, weight}, 3, &a);
}
