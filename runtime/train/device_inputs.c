// device_inputs.c: see the header. Sizes come from the graph's inputs and not from the fields, as a class
// field is one number a sample or a share of every class, whichever the graph was built for.
#include "train/device_inputs.h"

#include <stdio.h>

static dt_status add_input(dt_device_inputs *d, const dt_exec *e, int i, const char *name) {
    d->input[i] = dt_exec_input_index(e, name);
    if (d->input[i] < 0) return DT_OK;
    d->n_bytes[i] = dt_exec_input_bytes(e, d->input[i]);
    return d->backend->alloc(d->backend, &d->data[i], d->n_bytes[i], "batches");
}

dt_status dt_device_inputs_init(dt_device_inputs *d, dt_backend *b, const dt_exec *e,
                                const dt_field_info *fields, int n_fields) {
    *d = (dt_device_inputs){.backend = b, .n_fields = n_fields};
    for (int i = 0; i < n_fields; i++) DT_TRY(add_input(d, e, i, fields[i].name));
    return add_input(d, e, n_fields, "weight");
}

void dt_device_inputs_fini(dt_device_inputs *d) {
    for (int i = 0; d->backend && i <= d->n_fields; i++)
        if (d->data[i]) d->backend->free(d->backend, d->data[i], d->n_bytes[i]);
    *d = (dt_device_inputs){0};
}

void dt_device_inputs_bind(const dt_device_inputs *d, dt_exec *e) {
    for (int i = 0; i <= d->n_fields; i++)
        if (d->data[i]) dt_exec_bind_index(e, d->input[i], d->data[i]);
}

void dt_device_inputs_copy(const dt_device_inputs *d, const dt_batch *batch, void *stream) {
    dt_backend *b = d->backend;
    for (int i = 0; i <= d->n_fields; i++) {
        if (!d->data[i]) continue;
        const void *from = i < d->n_fields ? batch->field[i] : batch->weight;
        if (stream)
            b->device->copy_in(b, d->data[i], from, d->n_bytes[i], stream);
        else
            b->copy_to_device(b, d->data[i], from, d->n_bytes[i]);
    }
}
