// evaluate.c: replicas fill tables, ranks add the tables, and metrics report from the totals.
//
// A table is zero where another rank works, so adding over ranks is exact: x + 0 = x. Rows are then added in
// the order of the batches, whatever ranks and replicas there are.
//   by batch  (n_batches, columns): sum of the loss, weight, then the sums of metrics that are not counts
//   by sample (n, 1 + D): label + 1 (0: no sample), embedding; for pairs: the first PAIR_SAMPLES
//   counts    of all metrics

#include "train/evaluate.h"

#include "base/arena.h"
#include "base/failpoint.h"
#include "train/device_inputs.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIR_SAMPLES = 4096 };

typedef struct eval_replica {
    dt_exec *exec;
    float *flat;   // gradient buffer that takes the loss
    float *logits; // (E, K)
    float *embedding;
    double *error; // of a sample's numbers (K)
    double *counts;
    dt_batch_inputs inputs;
    dt_device_inputs copies; // on a device
    const dt_batch *batch;   // under way, number index; NULL: none
    int64_t index;
    dt_status status;
    char message[1024];
} eval_replica;

struct dt_evaluator {
    dt_evaluator_opts o;
    eval_replica *replicas;
    const dt_metric *metrics[DT_N_METRICS]; // those wanted
    int64_t first[DT_N_METRICS];            // their columns or counts
    int n_metrics;
    int64_t n_out;   // K of the logits: classes or numbers; 0: the metrics do not ask for logits
    bool of_classes; // else of numbers
    int64_t n_embedding, n_columns, n_counts;
    int64_t loss_at, weight_at;
    // the evaluation in progress
    dt_batch_source *source;
    int class_field, number_field;
    int64_t n_steps, n_samples, n_paired;
    double *by_batch;
    float *by_sample;
};

// ---- one batch -------------------------------------------------------------------------------------

// How many logits are not below the true class's; ties count from lower indices, NaN counts as above, so a network
// that gives NaN is never right. *best: the largest.
static int64_t rank_of(const float *logits, int64_t n, int32_t label, int64_t *best) {
    int64_t above = 0;
    *best = 0;
    for (int64_t k = 0; k < n; k++) {
        if (logits[k] > logits[*best]) *best = k;
        bool below = logits[k] < logits[label] || (logits[k] == logits[label] && k > label);
        above += k != label && !below;
    }
    return above;
}

// In the field's own units: data/ normalised the target, so the difference is scaled back.
static void take_errors(const dt_evaluator *e, const float *predicted, const float *target,
                        double *error) {
    const dt_field_info *f = &e->source->fields[e->number_field];
    for (int64_t k = 0; k < e->n_out; k++)
        error[k] = ((double)predicted[k] - (double)target[k]) * (double)dt_field_std(f, k);
}

static void score(dt_evaluator *e, eval_replica *l, const dt_batch *b, double *row) {
    const void *target = b->field[e->of_classes ? e->class_field : e->number_field];
    for (int i = 0; i < b->n; i++) {
        if (b->weight[i] == 0.0f) continue; // the tail, or a record that was skipped
        const float *y = l->logits + i * e->n_out;
        dt_scored s = {.n_out = e->n_out, .error = l->error};
        if (e->of_classes) {
            s.label = ((const int32_t *)target)[i];
            s.rank = rank_of(y, e->n_out, s.label, &s.predicted);
        } else {
            take_errors(e, y, (const float *)target + i * e->n_out, l->error);
        }
        for (int m = 0; m < e->n_metrics; m++)
            if (e->metrics[m]->add)
                e->metrics[m]->add(&s, (e->metrics[m]->counts ? l->counts : row) + e->first[m]);
    }
}

static void keep_embeddings(dt_evaluator *e, eval_replica *l, const dt_batch *b, int64_t first) {
    const int32_t *labels = b->field[e->class_field];
    for (int64_t i = 0; i < b->n && first + i < e->n_paired; i++) {
        if (b->weight[i] == 0.0f) continue;
        float *row = e->by_sample + (first + i) * (1 + e->n_embedding);
        row[0] = (float)(labels[i] + 1);
        memcpy(row + 1, l->embedding + i * e->n_embedding, sizeof(float) * (size_t)e->n_embedding);
    }
}

static void bind_batch(dt_evaluator *e, eval_replica *l, const dt_batch *b) {
    if (e->o.params->backend->device) {
        dt_device_inputs_copy(&l->copies, b, e->o.params->backend->device->stream);
        return;
    }
    dt_batch_inputs_bind(&l->inputs, l->exec, b);
}

// An element of the flat buffer, which may be a device's.
static double read_element(const dt_evaluator *e, const eval_replica *l, int64_t at) {
    dt_backend *b = e->o.params->backend;
    float x = 0;
    b->copy_to_host(b, &x, l->flat + at, sizeof x);
    return (double)x;
}

// On a device this queues the copy and the work and returns.
static void start_batch(dt_evaluator *e, eval_replica *l, const dt_batch *b, int64_t index) {
    bind_batch(e, l, b);
    dt_exec_args args = {.step = {.loss_scale = 1.0f}, .grad = l->flat};
    dt_exec_run(l->exec, &args);
    l->batch = b;
    l->index = index;
}

static void finish_batch(dt_evaluator *e, eval_replica *l) {
    const dt_batch *b = l->batch;
    const int64_t index = l->index;
    if (!b) return;
    double *row = e->by_batch + index * e->n_columns;
    row[0] = read_element(e, l, e->loss_at);
    row[1] = read_element(e, l, e->weight_at);
    if (e->n_out > 0) {
        dt_exec_output(l->exec, "logits", l->logits, e->o.batch * e->n_out);
        score(e, l, b, row);
    }
    if (e->by_sample && index * e->o.batch < e->n_paired) {
        dt_exec_output(l->exec, "embedding", l->embedding, e->o.batch * e->n_embedding);
        keep_embeddings(e, l, b, index * e->o.batch);
    }
    e->source->release(e->source, b);
    l->batch = NULL;
}

// A device computes one batch while the host waits for the next.
static dt_status run_batch(dt_evaluator *e, eval_replica *l, int64_t step, int micro,
                           int64_t index) {
    const dt_batch *b = NULL;
    double wait_s = 0.0;
    DT_TRY(e->source->get(e->source, step, micro, &b, &wait_s));
    finish_batch(e, l);
    start_batch(e, l, b, index);
    if (!e->o.params->backend->device) finish_batch(e, l);
    return DT_OK;
}

static void run_replica(void *arg, int worker) {
    dt_evaluator *e = arg;
    if (worker >= e->o.n_replicas) return;
    eval_replica *l = &e->replicas[worker];
    omp_set_num_threads(e->o.replica_threads);
    l->status = DT_OK;
    int micro = e->o.comm->rank * e->o.n_replicas + worker;
    int64_t n_micro = (int64_t)e->o.comm->world_size * e->o.n_replicas;
    for (int64_t step = 0; step < e->n_steps && l->status == DT_OK; step++)
        l->status = run_batch(e, l, step, micro, step * n_micro + micro);
    finish_batch(e, l);
    if (l->status != DT_OK) snprintf(l->message, sizeof l->message, "%s", dt_error_message());
}

// ---- a split ---------------------------------------------------------------------------------------

static dt_status open_source(dt_evaluator *e, dt_dataset *data, dt_split split) {
    int n_micro = e->o.comm->world_size * e->o.n_replicas;
    int *micros = dt_xcalloc((size_t)e->o.n_replicas, sizeof *micros);
    for (int l = 0; l < e->o.n_replicas; l++) micros[l] = e->o.comm->rank * e->o.n_replicas + l;
    e->n_samples = data->n_samples(data, split);
    int64_t global = (int64_t)n_micro * e->o.batch;
    e->n_steps = (e->n_samples + global - 1) / global;
    dt_source_request r = {.split = split,
                           .global_batch = (int)global,
                           .micro_batch = e->o.batch,
                           .micros = micros,
                           .n_micro = e->o.n_replicas,
                           .start_step = 0,
                           .end_step = e->n_steps};
    dt_status st = data->open(data, &r, &e->source);
    free(micros);
    return st;
}

static void prepare_tables(dt_evaluator *e) {
    int64_t n_batches = e->n_steps * e->o.comm->world_size * e->o.n_replicas;
    e->by_batch = dt_xcalloc((size_t)(n_batches * e->n_columns) + 1, sizeof *e->by_batch);
    e->class_field = e->number_field = -1;
    for (int f = 0; f < e->source->n_fields; f++) {
        const dt_field_info *info = &e->source->fields[f];
        bool is_number = !info->is_image && info->n_classes == 0 && info->dtype == DT_F32;
        bool is_target = is_number && dt_exec_input_index(e->replicas[0].exec, info->name) >= 0;
        if (e->class_field < 0 && info->n_classes > 0) e->class_field = f;
        if (e->number_field < 0 && is_target) e->number_field = f;
    }
    if (e->n_embedding > 0) {
        e->n_paired = e->n_samples < PAIR_SAMPLES ? e->n_samples : PAIR_SAMPLES;
        e->by_sample = dt_xcalloc((size_t)(e->n_paired * (1 + e->n_embedding)) + 1, sizeof(float));
    }
    for (int l = 0; l < e->o.n_replicas; l++) {
        eval_replica *replica = &e->replicas[l];
        dt_batch_inputs_find(&replica->inputs, replica->exec, e->source->fields,
                             e->source->n_fields);
        memset(replica->counts, 0, sizeof(double) * (size_t)e->n_counts);
    }
}

// The first row of by_batch and the first replica's counts take the rest.
static dt_status sum_tables(dt_evaluator *e) {
    dt_comm *c = e->o.comm;
    int64_t n_batches = e->n_steps * c->world_size * e->o.n_replicas;
    DT_TRY(c->all_reduce_f64(c, e->by_batch, n_batches * e->n_columns));
    for (int64_t i = 1; i < n_batches; i++)
        for (int64_t k = 0; k < e->n_columns; k++)
            e->by_batch[k] += e->by_batch[i * e->n_columns + k];
    double *counts = e->replicas[0].counts;
    for (int l = 1; l < e->o.n_replicas; l++)
        for (int64_t i = 0; i < e->n_counts; i++) counts[i] += e->replicas[l].counts[i];
    return e->n_counts ? c->all_reduce_f64(c, counts, e->n_counts) : DT_OK;
}

// Compares the samples that are there; skipped records leave empty rows.
static dt_verification verify_rows(const dt_evaluator *e, const dt_dataset *data, dt_split split) {
    int64_t n = e->n_paired, d = e->n_embedding, kept = 0;
    float *x = dt_xcalloc((size_t)(n * d) + 1, sizeof *x);
    int32_t *labels = dt_xcalloc((size_t)n + 1, sizeof *labels);
    uint32_t *records = dt_xcalloc((size_t)n * DT_MAX_WIDTH + 1, sizeof *records);
    int width = 0;
    for (int64_t i = 0; i < n; i++) {
        const float *row = e->by_sample + i * (1 + d);
        if (row[0] == 0.0f) continue;
        uint32_t of[DT_MAX_WIDTH] = {0};
        if (data->records) width = data->records(data, split, i, of);
        memcpy(records + kept * width, of, sizeof *of * (size_t)width);
        labels[kept] = (int32_t)row[0];
        memcpy(x + kept++ * d, row + 1, sizeof(float) * (size_t)d);
    }
    dt_verification v;
    dt_verify_embeddings(x, labels, width ? records : NULL, width, kept, d, &v);
    free(x);
    free(labels);
    free(records);
    return v;
}

// All ranks have all rows now; rank 0 compares them for all.
static dt_status compare_pairs(dt_evaluator *e, const dt_dataset *data, dt_split split,
                               dt_verification *v) {
    if (!e->by_sample) return DT_OK;
    dt_comm *c = e->o.comm;
    DT_TRY(c->all_reduce_f32(c, e->by_sample, e->n_paired * (1 + e->n_embedding)));
    if (c->rank == 0) *v = verify_rows(e, data, split);
    return c->broadcast_bytes(c, v, sizeof *v, 0);
}

static dt_status report(dt_evaluator *e, const dt_dataset *data, dt_split split,
                        dt_eval_result *out) {
    dt_verification pairs = {0};
    DT_TRY(sum_tables(e));
    DT_TRY(compare_pairs(e, data, split, &pairs));
    const double *sum = e->by_batch;
    out->n_samples = (int64_t)sum[1]; // without those that were skipped
    dt_totals t = {.n_out = e->n_out, .loss = sum[0], .weight = sum[1], .pairs = &pairs};
    if (e->class_field >= 0) t.class_names = e->source->fields[e->class_field].class_names;
    for (int m = 0; m < e->n_metrics; m++) {
        t.sum = (e->metrics[m]->counts ? e->replicas[0].counts : sum) + e->first[m];
        e->metrics[m]->report(&t, out);
    }
    return DT_OK;
}

dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, dt_eval_result *out) {
    *out = (dt_eval_result){0};
    (void)dt_failpoint("evaluate");
    DT_TRY(open_source(e, data, split));
    dt_eval_result_init(out);
    dt_params_repack(e->o.params, 1);
    prepare_tables(e);
    dt_status st = DT_OK;
    dt_team_run(e->o.team, run_replica, e);
    for (int l = 0; l < e->o.n_replicas; l++)
        if (st == DT_OK && e->replicas[l].status != DT_OK)
            st = dt_fail(e->replicas[l].status, "%s", e->replicas[l].message);
    if (st == DT_OK) st = report(e, data, split, out);
    e->source->close(e->source);
    free(e->by_batch);
    free(e->by_sample);
    e->source = NULL;
    e->by_batch = NULL;
    e->by_sample = NULL;
    if (st != DT_OK) dt_eval_result_fini(out);
    return st;
}

// ---- life ------------------------------------------------------------------------------------------

// Gives each wanted metric its place in the tables.
static void take_metrics(dt_evaluator *e) {
    const dt_graph *g = e->o.graph;
    const int64_t n_out = dt_metric_output_size(g, "logits");
    e->of_classes = dt_metric_has_classes(g);
    e->n_columns = 2;
    for (int i = 0; i < DT_N_METRICS; i++) {
        const dt_metric *m = dt_metrics_table[i];
        if (!e->o.metrics->wanted[i]) continue;
        int64_t *n = m->counts ? &e->n_counts : &e->n_columns, size = m->width;
        for (int k = 0; k < m->power; k++) size *= n_out;
        e->first[e->n_metrics] = *n;
        e->metrics[e->n_metrics++] = m;
        *n += size;
        if (m->add) e->n_out = n_out;
        if (m->of & DT_OF_PAIRS) e->n_embedding = dt_metric_output_size(g, "embedding");
    }
}

static dt_status create_replica(dt_evaluator *e, int i) {
    eval_replica *l = &e->replicas[i];
    size_t rows = (size_t)e->o.batch;
    l->flat = e->o.params->grads[i];
    l->logits = dt_xcalloc(rows * (size_t)e->n_out + 1, sizeof(float));
    l->embedding = dt_xcalloc(rows * (size_t)e->n_embedding + 1, sizeof(float));
    l->error = dt_xcalloc((size_t)e->n_out + 1, sizeof(double));
    l->counts = dt_xcalloc((size_t)e->n_counts + 1, sizeof(double));
    DT_TRY(dt_exec_create(&l->exec, e->o.plan, i));
    dt_backend *b = e->o.params->backend;
    if (!b->device) return DT_OK;
    DT_TRY(dt_device_inputs_init(&l->copies, 1, b, l->exec, e->o.fields, e->o.n_fields));
    dt_device_inputs_bind(&l->copies, l->exec);
    return DT_OK;
}

dt_status dt_evaluator_create(dt_evaluator **out, const dt_evaluator_opts *opts) {
    const dt_graph *g = opts->graph;
    if (g->loss == DT_NONE || g->loss_weight == DT_NONE)
        return dt_fail(DT_E_USAGE, "model '%s' has no loss to evaluate", g->name);
    dt_evaluator *e = dt_xcalloc(1, sizeof *e);
    e->o = *opts;
    take_metrics(e);
    const dt_params *p = opts->params;
    e->loss_at = p->stats[dt_params_find_stat(p, g->values[g->loss].name)].offset;
    e->weight_at = p->stats[dt_params_find_stat(p, g->values[g->loss_weight].name)].offset;
    e->replicas = dt_xcalloc((size_t)opts->n_replicas, sizeof *e->replicas);
    for (int i = 0; i < opts->n_replicas; i++) {
        dt_status st = create_replica(e, i);
        if (st == DT_OK) continue;
        dt_evaluator_destroy(e);
        return st;
    }
    *out = e;
    return DT_OK;
}

void dt_evaluator_destroy(dt_evaluator *e) {
    if (!e) return;
    for (int i = 0; i < e->o.n_replicas; i++) {
        dt_device_inputs_fini(&e->replicas[i].copies, 1);
        dt_exec_destroy(e->replicas[i].exec);
        free(e->replicas[i].logits);
        free(e->replicas[i].embedding);
        free(e->replicas[i].error);
        free(e->replicas[i].counts);
    }
    free(e->replicas);
    free(e);
}
