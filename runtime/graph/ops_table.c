// ops_table.c: merges ops.def with what each graph/ops/<id>.c defines. No list of its own.
#include "graph/ir.h"

#define OP(id, min_in, max_in, n_out, amp)                                                         \
    extern dt_status (*const dt_op_infer_##id)(dt_graph *, dt_node_id);                            \
    extern dt_status (*const dt_op_grad_##id)(struct dt_grad_ctx *, dt_node_id);
#include "graph/ops.def"
#undef OP

// Function pointers of other files are no constant expressions, so an entry is put together when asked.
typedef struct entry {
    const char *name;
    int min_in, max_in, n_out;
    dt_amp amp;
    dt_status (*const *infer)(dt_graph *, dt_node_id);
    dt_status (*const *grad)(struct dt_grad_ctx *, dt_node_id);
} entry;

static const entry entries[DT_OP_COUNT] = {
#define OP(id, min_in, max_in, n_out, amp)                                                         \
    {#id, min_in, max_in, n_out, DT_AMP_##amp, &dt_op_infer_##id, &dt_op_grad_##id},
#include "graph/ops.def"
#undef OP
};

const dt_op_def *dt_op_get(dt_op op) {
    static _Thread_local dt_op_def defs[DT_OP_COUNT];
    const entry *e = &entries[op];
    defs[op] = (dt_op_def){e->name, e->min_in, e->max_in, e->n_out, e->amp, *e->infer, *e->grad};
    return &defs[op];
}

const char *dt_op_name(dt_op op) {
    return entries[op].name;
}
