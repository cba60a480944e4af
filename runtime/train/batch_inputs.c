// batch_inputs.c: see the header. The graph decides: a training graph takes plans, steps and shares of classes, an
// evaluation graph of the same fields does not, and is bound to nothing that it has no input for.
#include "train/batch_inputs.h"

#include <stdio.h>

void dt_batch_inputs_find(dt_batch_inputs *in, const dt_exec *e, const dt_field_info *fields,
                          int n_fields) {
    for (int i = 0; i < DT_BATCH_INPUTS; i++) in->index[i] = -1;
    for (int f = 0; f < n_fields; f++) {
        char plan[256], steps[256];
        snprintf(plan, sizeof plan, "%s.mix", fields[f].name);
        snprintf(steps, sizeof steps, "%s.steps", fields[f].name);
        in->index[f] = dt_exec_input_index(e, fields[f].name);
        in->index[DT_MAX_FIELDS + f] = dt_exec_input_index(e, plan);
        in->index[2 * DT_MAX_FIELDS + f] = dt_exec_input_index(e, steps);
    }
    in->index[3 * DT_MAX_FIELDS] = dt_exec_input_index(e, "weight");
}

const void *dt_batch_input_data(const dt_batch *b, int i) {
    return i < DT_MAX_FIELDS       ? b->field[i]
           : i < 2 * DT_MAX_FIELDS ? (const void *)b->mix[i - DT_MAX_FIELDS]
           : i < 3 * DT_MAX_FIELDS ? (const void *)b->steps[i - 2 * DT_MAX_FIELDS]
                                   : (const void *)b->weight;
}

void dt_batch_inputs_bind(const dt_batch_inputs *in, dt_exec *e, const dt_batch *b) {
    for (int i = 0; i < DT_BATCH_INPUTS; i++)
        if (in->index[i] >= 0) dt_exec_bind_index(e, in->index[i], dt_batch_input_data(b, i));
}
