// ops_table.c: ops.def as a table. What an op does is in graph/ops/.
#include "graph/ir.h"

#define OP(id, ...) extern const dt_op_rules dt_op_rules_##id;
#include "graph/ops.def"
#undef OP

static const dt_op_def defs[DT_OP_COUNT] = {
#define OP(id, min_in, max_in, n_out, amp, cpu, cuda) {#id, min_in, max_in, n_out, DT_AMP_##amp, &dt_op_rules_##id},
#include "graph/ops.def"
#undef OP
};

const dt_op_def *dt_op_get(dt_op op) {
    return &defs[op];
}

const char *dt_op_name(dt_op op) {
    return defs[op].name;
}
