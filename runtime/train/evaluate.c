// evaluate.c: lanes fill tables, ranks add tables, rank-independent sums make metrics.
//
// Tables are zero where another rank works, so adding them over ranks is exact: x + 0 = x.
//   by batch  (n_batches, columns): loss sum, weight; of classes: correct, correct among the first five;
//             of numbers: absolute error of each of the D numbers, then squared error of each
//   by sample (n, 1 + D):     label + 1 (0: none), embedding   (verification, first VERIFY_SAMPLES)
//   confusion (K, K)          counts

#include "train/evaluate.h"

#include "base/arena.h"
#include "train/device_inputs.h"
#include "train/verification.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFY_SAMPLES = 4096, CONFUSION_CLASSES = 1000, TOP = 5 };

typedef struct eval_lane {
    dt_exec *exec;
    float *slab;   // gradient slab that takes the loss
    float *logits; // (E, K)
    float *embedding;
    dt_batch_inputs inputs;
    dt_device_inputs copies; // on a device
    double *confusion;       // (K, K) or NULL
    const dt_batch *batch;   // under way, number index; NULL: none
    int64_t index;
    dt_status status;
    char message[1024];
} eval_lane;

struct dt_evaluator {
    dt_evaluator_opts o;
    eval_lane *lanes;
    int64_t n_classes; // K of the logits, 0: no classes to compare
    int64_t n_numbers; // D of the logits, 0: no numbers to compare
    int64_t n_embedding, n_columns;
    int64_t loss_at, weight_at;
    // the evaluation in progress
    dt_batch_source *source;
    int class_field, number_field;
    int64_t n_steps, n_samples, n_verified;
    double *by_batch;
    float *by_sample;
};

// ---- one batch -------------------------------------------------------------------------------------

// Rank of the true class among the logits: 0 = highest. Ties count against it from lower indices.
static int64_t rank_of(const float *logits, int64_t n, int32_t label, int64_t *best) {
    int64_t above = 0;
    *best = 0;
    for (int64_t k = 0; k < n; k++) {
        if (logits[k] > logits[*best]) *best = k;
        above += logits[k] > logits[label] || (logits[k] == logits[label] && k < label);
    }
    return above;
}

static void score_classes(dt_evaluator *e, eval_lane *l, const dt_batch *b, double *row) {
    const int32_t *labels = b->field[e->class_field];
    for (int i = 0; i < b->n; i++) {
        if (b->weight[i] == 0.0f) continue; // the tail, or a record that was skipped
        int64_t best = 0;
        int64_t rank = rank_of(l->logits + i * e->n_classes, e->n_classes, labels[i], &best);
        row[2] += rank == 0;
        row[3] += rank < TOP;
        if (l->confusion) l->confusion[labels[i] * e->n_classes + best] += 1.0;
    }
}

// In the field's own units: data/ normalised the target, so the difference is scaled back.
static void score_numbers(dt_evaluator *e, eval_lane *l, const dt_batch *b, double *row) {
    const float *target = b->field[e->number_field];
    const dt_field_info *f = &e->source->fields[e->number_field];
    int64_t d = e->n_numbers;
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t k = 0; k < d && b->weight[i] != 0.0f; k++) {
            double error = ((double)l->logits[i * d + k] - (double)target[i * d + k]) *
                           (double)dt_field_std(f, k);
            row[2 + k] += fabs(error);
            row[2 + d + k] += error * error;
        }
}

static void keep_embeddings(dt_evaluator *e, eval_lane *l, const dt_batch *b, int64_t first) {
    const int32_t *labels = b->field[e->class_field];
    for (int64_t i = 0; i < b->n && first + i < e->n_verified; i++) {
        if (b->weight[i] == 0.0f) continue;
        float *row = e->by_sample + (first + i) * (1 + e->n_embedding);
        row[0] = (float)(labels[i] + 1);
        memcpy(row + 1, l->embedding + i * e->n_embedding, sizeof(float) * (size_t)e->n_embedding);
    }
}

static void bind_batch(dt_evaluator *e, eval_lane *l, const dt_batch *b) {
    if (e->o.params->backend->device) {
        dt_device_inputs_copy(&l->copies, b, e->o.params->backend->device->stream);
        return;
    }
    dt_batch_inputs_bind(&l->inputs, l->exec, b);
}

// An element of the slab, which may be a device's.
static double read_element(const dt_evaluator *e, const eval_lane *l, int64_t at) {
    dt_backend *b = e->o.params->backend;
    float x = 0;
    b->copy_to_host(b, &x, l->slab + at, sizeof x);
    return (double)x;
}

// On a device: queues its copy and its work, and waits for neither.
static void start_batch(dt_evaluator *e, eval_lane *l, const dt_batch *b, int64_t index) {
    bind_batch(e, l, b);
    dt_exec_args args = {.step = {.loss_scale = 1.0f}, .grad = l->slab};
    dt_exec_run(l->exec, &args);
    l->batch = b;
    l->index = index;
}

static void finish_batch(dt_evaluator *e, eval_lane *l) {
    const dt_batch *b = l->batch;
    const int64_t index = l->index;
    if (!b) return;
    double *row = e->by_batch + index * e->n_columns;
    row[0] = read_element(e, l, e->loss_at);
    row[1] = read_element(e, l, e->weight_at);
    if (e->n_classes > 0) {
        dt_exec_output(l->exec, "logits", l->logits, e->o.batch * e->n_classes);
        score_classes(e, l, b, row);
    }
    if (e->number_field >= 0) {
        dt_exec_output(l->exec, "logits", l->logits, e->o.batch * e->n_numbers);
        score_numbers(e, l, b, row);
    }
    if (e->by_sample && index * e->o.batch < e->n_verified) {
        dt_exec_output(l->exec, "embedding", l->embedding, e->o.batch * e->n_embedding);
        keep_embeddings(e, l, b, index * e->o.batch);
    }
    e->source->release(e->source, b);
    l->batch = NULL;
}

// A device computes one batch while the host waits for the next.
static dt_status run_batch(dt_evaluator *e, eval_lane *l, int64_t step, int leaf, int64_t index) {
    const dt_batch *b = NULL;
    double wait_s = 0.0;
    DT_TRY(e->source->get(e->source, step, leaf, &b, &wait_s));
    finish_batch(e, l);
    start_batch(e, l, b, index);
    if (!e->o.params->backend->device) finish_batch(e, l);
    return DT_OK;
}

static void run_lane(void *arg, int worker) {
    dt_evaluator *e = arg;
    if (worker >= e->o.n_lanes) return;
    eval_lane *l = &e->lanes[worker];
    omp_set_num_threads(e->o.leaf_threads);
    l->status = DT_OK;
    int leaf = e->o.comm->rank * e->o.n_lanes + worker;
    int64_t n_leaves = (int64_t)e->o.comm->world_size * e->o.n_lanes;
    for (int64_t step = 0; step < e->n_steps && l->status == DT_OK; step++)
        l->status = run_batch(e, l, step, leaf, step * n_leaves + leaf);
    finish_batch(e, l);
    if (l->status != DT_OK) snprintf(l->message, sizeof l->message, "%s", dt_error_message());
}

// ---- a split ---------------------------------------------------------------------------------------

static dt_status open_source(dt_evaluator *e, dt_dataset *data, dt_split split) {
    int n_leaves = e->o.comm->world_size * e->o.n_lanes;
    int *leaves = dt_xcalloc((size_t)e->o.n_lanes, sizeof *leaves);
    for (int l = 0; l < e->o.n_lanes; l++) leaves[l] = e->o.comm->rank * e->o.n_lanes + l;
    e->n_samples = data->n_samples(data, split);
    int64_t global = (int64_t)n_leaves * e->o.batch;
    e->n_steps = (e->n_samples + global - 1) / global;
    dt_source_request r = {.split = split,
                           .global_batch = (int)global,
                           .micro_batch = e->o.batch,
                           .leaves = leaves,
                           .n_leaves = e->o.n_lanes,
                           .start_step = 0,
                           .end_step = e->n_steps};
    dt_status st = data->open(data, &r, &e->source);
    free(leaves);
    return st;
}

static void prepare_tables(dt_evaluator *e) {
    int64_t n_batches = e->n_steps * e->o.comm->world_size * e->o.n_lanes;
    e->by_batch = dt_xcalloc((size_t)(n_batches * e->n_columns) + 1, sizeof *e->by_batch);
    e->class_field = e->number_field = -1;
    for (int f = 0; f < e->source->n_fields; f++) {
        const dt_field_info *info = &e->source->fields[f];
        bool is_number = !info->is_image && info->n_classes == 0 && info->dtype == DT_F32;
        bool is_target = is_number && dt_exec_input_index(e->lanes[0].exec, info->name) >= 0;
        if (e->class_field < 0 && info->n_classes > 0) e->class_field = f;
        if (e->number_field < 0 && e->n_numbers > 0 && is_target) e->number_field = f;
    }
    if (e->o.verify && e->n_embedding > 0 && e->class_field >= 0) {
        e->n_verified = e->n_samples < VERIFY_SAMPLES ? e->n_samples : VERIFY_SAMPLES;
        e->by_sample =
            dt_xcalloc((size_t)(e->n_verified * (1 + e->n_embedding)) + 1, sizeof(float));
    }
    for (int l = 0; l < e->o.n_lanes; l++) {
        eval_lane *lane = &e->lanes[l];
        dt_batch_inputs_find(&lane->inputs, lane->exec, e->source->fields, e->source->n_fields);
        if (lane->confusion)
            memset(lane->confusion, 0, sizeof(double) * (size_t)(e->n_classes * e->n_classes));
    }
}

static void add_value(dt_eval_result *r, const char *name, double value) {
    r->values[r->n_values++] = (dt_metric_value){name, value};
}

static void set_extra(dt_eval_result *out, const char *name, dt_json *list) {
    char *member = dt_xprintf("\"%s\":%s", name, list->data);
    dt_json_fini(list);
    out->extra.data = member;
    out->extra.n_bytes = strlen(member);
    out->extra.cap_bytes = out->extra.n_bytes + 1;
}

// mae: mean absolute error over samples and numbers; rmse: the root of the mean square; each number's
// own mae beside them.
static void add_errors(const dt_evaluator *e, dt_eval_result *out, const double *sum) {
    int64_t d = e->n_numbers;
    double absolute = 0, squared = 0;
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_array(&j, NULL);
    for (int64_t k = 0; k < d; k++) {
        absolute += sum[2 + k];
        squared += sum[2 + d + k];
        dt_json_real(&j, NULL, sum[2 + k] / sum[1]);
    }
    dt_json_end_array(&j);
    add_value(out, "mae", absolute / (sum[1] * (double)d));
    add_value(out, "rmse", sqrt(squared / (sum[1] * (double)d)));
    if (d > 1)
        set_extra(out, "mae_by_number", &j);
    else
        dt_json_fini(&j);
}

static dt_status sum_batches(dt_evaluator *e, dt_eval_result *out) {
    dt_comm *c = e->o.comm;
    int64_t n_batches = e->n_steps * c->world_size * e->o.n_lanes;
    DT_TRY(c->all_reduce_f64(c, e->by_batch, n_batches * e->n_columns));
    double *sum = e->by_batch; // the first row takes the rest
    for (int64_t i = 1; i < n_batches; i++)
        for (int64_t k = 0; k < e->n_columns; k++) sum[k] += e->by_batch[i * e->n_columns + k];
    out->n_samples = (int64_t)sum[1]; // without those that were skipped
    add_value(out, "loss", sum[0] / sum[1]);
    if (e->n_classes > 0) add_value(out, "accuracy", sum[2] / sum[1]);
    if (e->n_classes > TOP) add_value(out, "top5", sum[3] / sum[1]);
    if (e->number_field >= 0) add_errors(e, out, sum);
    return DT_OK;
}

static dt_status sum_confusion(dt_evaluator *e, dt_eval_result *out) {
    if (!e->lanes[0].confusion) return DT_OK;
    dt_comm *c = e->o.comm;
    double *sum = e->lanes[0].confusion;
    int64_t k = e->n_classes;
    for (int l = 1; l < e->o.n_lanes; l++)
        for (int64_t i = 0; i < k * k; i++) sum[i] += e->lanes[l].confusion[i];
    DT_TRY(c->all_reduce_f64(c, sum, k * k));
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_array(&j, NULL);
    for (int64_t i = 0; i < k; i++) {
        dt_json_begin_array(&j, NULL);
        for (int64_t p = 0; p < k; p++) dt_json_int(&j, NULL, (int64_t)sum[i * k + p]);
        dt_json_end_array(&j);
    }
    dt_json_end_array(&j);
    set_extra(out, "confusion", &j);
    return DT_OK;
}

// Over the rows that hold a sample.
static dt_verification verify_rows(const dt_evaluator *e, const dt_dataset *data, dt_split split) {
    int64_t n = e->n_verified, d = e->n_embedding, kept = 0;
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

static dt_status sum_embeddings(dt_evaluator *e, const dt_dataset *data, dt_split split,
                                dt_eval_result *out) {
    if (!e->by_sample) return DT_OK;
    dt_comm *c = e->o.comm;
    DT_TRY(c->all_reduce_f32(c, e->by_sample, e->n_verified * (1 + e->n_embedding)));
    double pair[2] = {0}; // computed by rank 0, which has all rows, as every rank has
    if (c->rank == 0) {
        dt_verification v = verify_rows(e, data, split);
        pair[0] = v.eer;
        pair[1] = v.auc;
    }
    DT_TRY(c->broadcast_bytes(c, pair, sizeof pair, 0));
    add_value(out, "eer", pair[0]);
    add_value(out, "auc", pair[1]);
    return DT_OK;
}

dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, dt_eval_result *out) {
    *out = (dt_eval_result){0};
    DT_TRY(open_source(e, data, split));
    dt_params_repack(e->o.params, 1);
    prepare_tables(e);
    out->n_samples = e->n_samples;
    dt_status st = DT_OK;
    dt_team_run(e->o.team, run_lane, e);
    for (int l = 0; l < e->o.n_lanes; l++)
        if (st == DT_OK && e->lanes[l].status != DT_OK)
            st = dt_fail(e->lanes[l].status, "%s", e->lanes[l].message);
    if (st == DT_OK) st = sum_batches(e, out);
    if (st == DT_OK) st = sum_confusion(e, out);
    if (st == DT_OK) st = sum_embeddings(e, data, split, out);
    e->source->close(e->source);
    free(e->by_batch);
    free(e->by_sample);
    e->source = NULL;
    e->by_batch = NULL;
    e->by_sample = NULL;
    return st;
}

void dt_eval_result_fini(dt_eval_result *r) {
    free(r->extra.data);
    *r = (dt_eval_result){0};
}

double dt_eval_result_get(const dt_eval_result *r, const char *name) {
    for (int i = 0; i < r->n_values; i++)
        if (strcmp(r->values[i].name, name) == 0) return r->values[i].value;
    return NAN;
}

// ---- life ------------------------------------------------------------------------------------------

// Elements a sample of a named output, or 0.
static int64_t output_size(const dt_graph *g, const char *name) {
    for (int i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) != 0) continue;
        const dt_shape *s = &g->values[g->outputs[i].value].shape;
        return s->n == 2 ? s->d[1] : 0;
    }
    return 0;
}

static bool has_class_target(const dt_graph *g) {
    for (dt_value v = 0; v < g->n_values; v++)
        if (g->values[v].kind == DT_V_INPUT && g->values[v].dtype == DT_I32 &&
            g->values[v].shape.n == 1)
            return true;
    return false;
}

static dt_status create_lane(dt_evaluator *e, int i) {
    eval_lane *l = &e->lanes[i];
    size_t rows = (size_t)e->o.batch, k = (size_t)e->n_classes;
    size_t width = k + (size_t)e->n_numbers;
    l->slab = e->o.params->grads[i];
    l->logits = dt_xcalloc(rows * width + 1, sizeof(float));
    l->embedding = dt_xcalloc(rows * (size_t)e->n_embedding + 1, sizeof(float));
    if (e->o.confusion && k > 0 && k <= CONFUSION_CLASSES)
        l->confusion = dt_xcalloc(k * k, sizeof(double));
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
    e->n_classes = has_class_target(g) ? output_size(g, "logits") : 0;
    e->n_numbers = opts->errors && e->n_classes == 0 ? output_size(g, "logits") : 0;
    e->n_columns = 2 + (e->n_classes > 0 ? 2 : 2 * e->n_numbers);
    e->n_embedding = output_size(g, "embedding");
    const dt_params *p = opts->params;
    e->loss_at = p->stats[dt_params_find_stat(p, g->values[g->loss].name)].offset;
    e->weight_at = p->stats[dt_params_find_stat(p, g->values[g->loss_weight].name)].offset;
    e->lanes = dt_xcalloc((size_t)opts->n_lanes, sizeof *e->lanes);
    for (int i = 0; i < opts->n_lanes; i++) {
        dt_status st = create_lane(e, i);
        if (st == DT_OK) continue;
        dt_evaluator_destroy(e);
        return st;
    }
    *out = e;
    return DT_OK;
}

void dt_evaluator_destroy(dt_evaluator *e) {
    if (!e) return;
    for (int i = 0; i < e->o.n_lanes; i++) {
        dt_device_inputs_fini(&e->lanes[i].copies, 1);
        dt_exec_destroy(e->lanes[i].exec);
        free(e->lanes[i].logits);
        free(e->lanes[i].embedding);
        free(e->lanes[i].confusion);
    }
    free(e->lanes);
    free(e);
}
