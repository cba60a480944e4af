// device_inputs.h: a batch in a device's memory. The loader's slots are pinned host memory; an exec on a
// device reads these copies instead. One object is one set of buffers: a trainer that copies the next
// batch while the current one is computed has two, which share an allocation, and rebinds its exec between
// them.
#ifndef DT_TRAIN_DEVICE_INPUTS_H
#define DT_TRAIN_DEVICE_INPUTS_H

#include "backend/flat_buffer.h"
#include "train/batch_inputs.h"

typedef struct dt_device_inputs {
    dt_backend *backend;
    dt_batch_inputs inputs;
    void *data[DT_BATCH_INPUTS];
    size_t n_bytes[DT_BATCH_INPUTS];
    dt_flat_buffer flat; // of the first set: the memory of all
} dt_device_inputs;

// n_sets of buffers for what of a batch is an input of the exec's graph. Fini after a failure too.
dt_status dt_device_inputs_init(dt_device_inputs *sets, int n_sets, dt_backend *b, const dt_exec *e,
                                const dt_field_info *fields, int n_fields);
void dt_device_inputs_fini(dt_device_inputs *sets, int n_sets);
void dt_device_inputs_bind(const dt_device_inputs *d, dt_exec *e);
// Queues the copies on a stream: the batch must stay until it has passed. NULL: waits for them.
void dt_device_inputs_copy(const dt_device_inputs *d, const dt_batch *batch, void *stream);

#endif
