// batch_inputs.h: which inputs of an exec's graph a batch fills, by name: a field's samples "<field>", the plan
// by which the network mixes them "<field>.mix", the samples' weights "weight".
//
// defines: dt_batch_inputs_find, dt_batch_inputs_bind, dt_batch_input_data
#ifndef DT_TRAIN_BATCH_INPUTS_H
#define DT_TRAIN_BATCH_INPUTS_H

#include "exec/exec.h"
#include "train/batch_source.h"

enum { DT_BATCH_INPUTS = 2 * DT_MAX_FIELDS + 1 }; // fields, their plans, weights

typedef struct dt_batch_inputs {
    int index[DT_BATCH_INPUTS]; // of the graph's inputs; -1: not in the graph
} dt_batch_inputs;

void dt_batch_inputs_find(dt_batch_inputs *in, const dt_exec *e, const dt_field_info *fields,
                          int n_fields);
// The batch's own memory; NULL where it has none.
const void *dt_batch_input_data(const dt_batch *b, int i);
// The exec reads the batch where it lies.
void dt_batch_inputs_bind(const dt_batch_inputs *in, dt_exec *e, const dt_batch *b);

#endif
