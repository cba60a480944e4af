// batch_inputs.c: see the header. The graph decides: a training graph takes plans, steps and shares of classes, an
// evaluation graph of the same fields does not, and is bound to nothing that it has no input for.
#include "run/batch_inputs.h"

#include "base/log.h"

#include <math.h>
#include <stdio.h>

void dt_batch_inputs_find(dt_batch_inputs *in, const dt_exec *e, const dt_field_info *fields, int n_fields) {
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

// The batch's own memory; NULL where it has none.
static const void *input_data(const dt_batch *b, int i) {
    return i < DT_MAX_FIELDS       ? b->field[i]
           : i < 2 * DT_MAX_FIELDS ? (const void *)b->mix[i - DT_MAX_FIELDS]
           : i < 3 * DT_MAX_FIELDS ? (const void *)b->steps[i - 2 * DT_MAX_FIELDS]
                                   : (const void *)b->weight;
}

void dt_batch_inputs_bind(const dt_batch_inputs *in, dt_exec *e, const dt_batch *b) {
    for (int i = 0; i < DT_BATCH_INPUTS; i++)
        if (in->index[i] >= 0) dt_exec_bind_index(e, in->index[i], input_data(b, i));
}

// ---- on a device -----------------------------------------------------------------------------------
// Sizes come from the graph's inputs and not from the fields, as a class field is one number a sample or a share of
// every class, whichever the graph was built for.

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
        const void *from = input_data(batch, i);
        if (stream)
            b->device->copy_in(b, d->data[i], from, d->n_bytes[i], stream);
        else
            b->copy_to_device(b, d->data[i], from, d->n_bytes[i]);
    }
}

// ---- numbers to predict ----------------------------------------------------------------------------

// A sum of f32 shares that were written with three digits is this far from 1.
static const double SUM_TOLERANCE = 2e-3;

dt_status dt_target_check(const dt_target *t, const float *x, int64_t sample) {
    const int64_t n = dt_target_n_out(t);
    const bool sums = dt_losses[t->loss].softmax, any = dt_losses[t->loss].gives_numbers;
    double sum = 0;
    for (int64_t k = 0; k < n && any; k++)
        if (!isfinite(x[k]))
            return dt_fail(DT_E_DATA,
                           "field %s of sample %lld has %g, and a number to predict is finite: "
                           "correct it, or leave the record out with data.where",
                           t->field->name, (long long)sample, (double)x[k]);
    for (int64_t k = 0; k < n && dt_losses[t->loss].exponent; k++)
        if (x[k] < 0)
            return dt_fail(DT_E_DATA, "field %s of sample %lld has %g, and %s wants counts from 0", t->field->name,
                           (long long)sample, (double)x[k], dt_losses[t->loss].id);
    for (int64_t k = 0; k < n && !any; k++) {
        sum += (double)x[k];
        if (x[k] >= 0 && x[k] <= 1) continue;
        return dt_fail(DT_E_DATA,
                       "field %s of sample %lld has %g, and %s wants %s of 0..1: take mse or "
                       "smooth_l1 for other numbers",
                       t->field->name, (long long)sample, (double)x[k], dt_losses[t->loss].id,
                       sums ? "shares of classes" : "numbers");
    }
    if (!sums || fabs(sum - 1) <= SUM_TOLERANCE) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "field %s of sample %lld adds up to %g, and %s wants shares of classes that are "
                   "1 together; take bce where several can be true",
                   t->field->name, (long long)sample, sum, dt_losses[t->loss].id);
}

dt_status dt_batch_check_targets(const dt_batch *b, const dt_targets *targets) {
    for (int i = 0; targets && i < targets->n; i++) {
        const dt_target *t = &targets->items[i];
        const bool numbers = t->kind == DT_TARGET_VECTOR || t->kind == DT_TARGET_NUMBER;
        const int64_t n = dt_target_n_out(t);
        for (int k = 0; k < b->n && numbers; k++)
            if (b->weight[k] != 0)
                DT_TRY(dt_target_check(t, (const float *)b->field[t->index] + k * n, b->sample ? b->sample[k] : k));
    }
    return DT_OK;
}

void dt_targets_judge(const dt_targets *targets) {
    enum { MOST = 10 };
    for (int i = 0; i < targets->n; i++) {
        const dt_field_info *f = targets->items[i].field;
        if (f->n_classes == 0 && f->mean_or_std > MOST)
            dt_warn("data.fields.%s: the training part's mean or deviation is %.3g, and a network "
                    "begins near 0: add  normalize: auto  to the field",
                    f->name, f->mean_or_std);
    }
}
