// batch_inputs.h: which inputs of an exec's graph a batch fills, by name:
//
//   <field>       the field's samples, as the loader left them
//   <field>.mix   the plan by which the network mixes them (mixup, CutMix), five numbers a sample
//   <field>.steps random changes that the network does to them (batch/pixel_steps.h)
//   weight        the samples' weights: 0 for the tail of an evaluation and for skipped records
//
// Names are looked up once, where the exec is made; a batch then costs an index each. Training on the CPU,
// evaluation and the device's input buffers (device_inputs.h) use the same table, so an input that is added here
// comes to all of them. A graph need not have them all: evaluation mixes nothing, and some losses
// take no weights. An input that the batch has no memory for is NULL, which only a graph without it may get.
//
// Nothing is copied or owned: a bound exec reads the batch until the next is bound.
//
// defines: dt_batch_inputs_find, dt_batch_inputs_bind, dt_batch_input_data, dt_target_check, dt_batch_check_targets
#ifndef DT_TRAIN_BATCH_INPUTS_H
#define DT_TRAIN_BATCH_INPUTS_H

#include "batch/batch_source.h"
#include "exec/exec.h"
#include "graph/targets.h"

enum { DT_BATCH_INPUTS = 3 * DT_MAX_FIELDS + 1 }; // fields, their plans, their steps, weights

typedef struct dt_batch_inputs {
    int index[DT_BATCH_INPUTS]; // of the graph's inputs; -1: not in the graph
} dt_batch_inputs;

void dt_batch_inputs_find(dt_batch_inputs *in, const dt_exec *e, const dt_field_info *fields,
                          int n_fields);
// The batch's own memory; NULL where it has none.
const void *dt_batch_input_data(const dt_batch *b, int i);
// The exec reads the batch where it lies.
void dt_batch_inputs_bind(const dt_batch_inputs *in, dt_exec *e, const dt_batch *b);
// Whether the numbers of a target that is no class are finite, under a cross-entropy shares of classes, in 0..1 and 1
// together, and under bce in 0..1. DT_E_DATA naming field and sample.
dt_status dt_target_check(const dt_target *t, const float *x, int64_t sample);
// Of all samples that count. targets may be NULL.
dt_status dt_batch_check_targets(const dt_batch *b, const dt_targets *targets);

#endif
