// embedding: rows of a table.
//   in  0 ids i32 (…)   1 table (V,D)
//   out 0 (…,D)
// Backward reads ids; gives dtable.
#include "op_util.h"

static dt_status infer(dt_graph *g, dt_node_id id) {
    dt_shape ids = dt_op_in_shape(g, id, 0), table = dt_op_in_shape(g, id, 1);
    if (dt_op_in_dtype(g, id, 0) != DT_I32 || table.n != 2 || ids.n >= DT_MAX_DIMS) {
        return dt_op_fail(g, id, "wants ids i32 (…) and table (V,D)");
    }
    ids.d[ids.n++] = table.d[1];
    dt_op_add_out(g, id, 0, NULL, dt_op_in_dtype(g, id, 1), &ids);
    return g->status;
}

static dt_status grad(dt_grad_ctx *ctx, dt_node_id id) {
    return dt_grad_default(ctx, id, 1, 0, 1);
}

DT_OP_DEFINE(embedding, infer, grad);

dt_value dt_embedding(dt_graph *g, dt_value ids, dt_value table) {
    if (ids == DT_NONE || table == DT_NONE) return DT_NONE;
    return dt_graph_apply(g, DT_OP_embedding, NULL, (dt_value[]){ids, table}, 2, NULL);
}
