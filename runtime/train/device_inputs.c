// device_inputs.c: see the header. Sizes come from the graph's inputs and not from the fields, as a class
// field is one number a sample or a share of every class, whichever the graph was built for.
#include "train/device_inputs.h"

dt_status dt_device_inputs_init(dt_device_inputs *sets, int n_sets, dt_backend *b, const dt_exec *e,
                                const dt_field_info *fields, int n_fields) {
    for (int k = 0; k < n_sets; k++) sets[k] = (dt_device_inputs){.backend = b};
    for (int k = 0; k < n_sets; k++) {
        dt_device_inputs *d = &sets[k];
        dt_batch_inputs_find(&d->inputs, e, fields, n_fields);
        for (int i = 0; i < DT_BATCH_INPUTS; i++) {
            if (d->inputs.index[i] < 0) continue;
            d->n_bytes[i] = dt_exec_input_bytes(e, d->inputs.index[i]);
            dt_flat_buffer_add(&sets->flat, &d->data[i], d->n_bytes[i]);
        }
    }
    return dt_flat_buffer_alloc(&sets->flat, b, "batches");
}

void dt_device_inputs_fini(dt_device_inputs *sets, int n_sets) {
    dt_flat_buffer_free(&sets->flat);
    for (int k = 0; k < n_sets; k++) sets[k] = (dt_device_inputs){0};
}

void dt_device_inputs_bind(const dt_device_inputs *d, dt_exec *e) {
    for (int i = 0; i < DT_BATCH_INPUTS; i++)
        if (d->data[i]) dt_exec_bind_index(e, d->inputs.index[i], d->data[i]);
}

void dt_device_inputs_copy(const dt_device_inputs *d, const dt_batch *batch, void *stream) {
    dt_backend *b = d->backend;
    for (int i = 0; i < DT_BATCH_INPUTS; i++) {
        if (!d->data[i]) continue;
        const void *from = dt_batch_input_data(batch, i);
        if (stream)
            b->device->copy_in(b, d->data[i], from, d->n_bytes[i], stream);
        else
            b->copy_to_device(b, d->data[i], from, d->n_bytes[i]);
    }
}
