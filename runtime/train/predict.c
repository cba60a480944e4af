// predict.c: see the header.
#include "train/predict.h"

#include "base/arena.h"
#include "base/log.h"
#include "train/agree.h"
#include "train/calibrate.h"
#include "train/predict_mean.h"
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- what is predicted -----------------------------------------------------------------------------

typedef struct predicted {
    const dt_target *t;
    int output;     // its logits
    char text[128]; // the output's name
    dt_predicts kind;
    char **names;  // of classes, labels or numbers
    double *value; // of the row in progress
    float *logits; // as the network gives them
    int32_t *map;  // the first member's number of each
    double temperature;
} predicted;

// A member of the ensemble.
typedef struct predictor {
    dt_session s;
    const dt_predict_request *r;
    dt_infer *infer;
    int n, embedding; // output; -1: not asked for
    predicted each[DT_MAX_TARGETS];
    dt_predict_column columns[DT_MAX_TARGETS];
    struct predictor *first;   // member
    dt_predict_mean *mean;     // of several passes
    dt_predict_writer *writer; // rank 0
    int64_t n_bad;
    char why[256]; // of the row in progress
} predictor;

static dt_predicts kind_of(const dt_target *t) {
    const dt_loss_row *loss = &dt_losses[t->loss];
    return loss->softmax         ? DT_PREDICTS_CLASSES
           : loss->gives_numbers ? DT_PREDICTS_NUMBERS
                                 : DT_PREDICTS_LABELS;
}

static char *name_of(const dt_target *t, int64_t k) {
    const char *name = dt_field_name_of(t->field, k);
    return name ? dt_xstrdup(name) : dt_xprintf("%lld", (long long)k);
}

static void describe(predictor *p, int i) {
    predicted *e = &p->each[i];
    const int64_t n = dt_target_n_out(e->t);
    const bool one = n == 1 && e->t->field->n_classes == 0;
    e->kind = kind_of(e->t);
    e->names = dt_xcalloc((size_t)n, sizeof *e->names);
    e->value = dt_xcalloc((size_t)n, sizeof *e->value);
    e->logits = dt_xcalloc((size_t)n, sizeof *e->logits);
    e->map = dt_xcalloc((size_t)n, sizeof *e->map);
    for (int64_t k = 0; k < n; k++) e->names[k] = name_of(e->t, k);
    p->columns[i] = (dt_predict_column){.field = e->t->field->name,
                                        .kind = e->kind,
                                        .n = n,
                                        .name = one ? NULL : (const char *const *)e->names};
}

static void softmax(const float *x, int64_t n, double temperature, double *out) {
    double max = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++) max = (double)x[k] > max ? (double)x[k] : max;
    for (int64_t k = 0; k < n; k++) sum += out[k] = exp(((double)x[k] - max) / temperature);
    for (int64_t k = 0; k < n; k++) out[k] /= sum;
}

static void take_target(predicted *e, const float *x) {
    const int64_t n = dt_target_n_out(e->t);
    const dt_field_info *f = e->t->field;
    memcpy(e->logits, x, (size_t)n * sizeof *x);
    if (e->kind == DT_PREDICTS_CLASSES) softmax(x, n, e->temperature, e->value);
    for (int64_t k = 0; e->kind == DT_PREDICTS_LABELS && k < n; k++)
        e->value[k] = 1 / (1 + exp(-(double)x[k] / e->temperature));
    for (int64_t k = 0; e->kind == DT_PREDICTS_NUMBERS && k < n; k++)
        e->value[k] = (double)(x[k] * dt_field_std(f, k) + dt_field_mean(f, k));
}

static dt_status put(predictor *p, const dt_predict_row *row) {
    p->n_bad += row->why != NULL;
    return dt_predict_writer_put(p->writer, row);
}

// Another member's set must have the same records: it may lack some that its fields need.
static dt_status check_key(const predictor *p, int64_t i) {
    uint32_t ours[DT_MAX_WIDTH], theirs[DT_MAX_WIDTH];
    const dt_dataset *a = p->s.data, *b = p->first->s.data;
    const char *path;
    if (a == b || !a->key || !a->records) return DT_OK;
    const int n = a->records(a, p->r->split, i, ours);
    bool same = n == b->records(b, p->r->split, i, theirs);
    for (int k = 0; same && k < n; k++)
        same = strcmp(a->key(a, ours[k], &path), b->key(b, theirs[k], &path)) == 0;
    return same ? DT_OK
                : dt_fail(DT_E_DATA, "the runs read other records of the set: from sample %lld on",
                          (long long)i);
}

// Why there is no prediction, or NULL.
static const char *judge(predictor *p, const dt_infer_sample *s) {
    const char *what = NULL;
    if (s->why) return s->why;
    for (int i = 0; i < p->n && !what; i++) {
        const predicted *e = &p->each[i];
        if (!dt_infer_all_finite(e->logits, dt_target_n_out(e->t))) what = e->t->field->name;
        for (int64_t k = 0; k < dt_target_n_out(e->t) && !what; k++)
            if (!isfinite((float)e->value[k])) what = e->t->field->name; // in its unit
    }
    if (!what && p->embedding >= 0 &&
        !dt_infer_all_finite(s->output[p->embedding], dt_infer_output_size(p->infer, p->embedding)))
        what = "embedding";
    if (!what) return NULL;
    snprintf(p->why, sizeof p->why, "%s: the network's output is not finite", what);
    return p->why;
}

static dt_status take(void *ctx, const dt_infer_sample *s) {
    predictor *p = ctx;
    dt_predict_row row = {.index = s->index};
    if (p->mean) DT_TRY(check_key(p, s->index));
    for (int i = 0; i < p->n && !s->why; i++)
        take_target(&p->each[i], s->output[p->each[i].output]);
    row.why = judge(p, s);
    if (p->mean && row.why) dt_predict_mean_fail(p->mean, s->index, row.why);
    for (int i = 0; i < p->n && !row.why; i++) {
        predicted *e = &p->each[i];
        row.value[i] = e->value;
        row.logits[i] = e->logits;
        if (p->mean) dt_predict_mean_add(p->mean, s->index, i, e->value, e->map);
    }
    if (p->mean) return DT_OK;
    if (p->embedding >= 0 && !row.why) row.embedding = s->output[p->embedding];
    return put(p, &row);
}

// ---- a member --------------------------------------------------------------------------------------

static bool is_calibrated(const dt_target *t) {
    return t->field->n_classes > 0 || kind_of(t) == DT_PREDICTS_LABELS;
}

static dt_status make_infer(predictor *p) {
    dt_session *s = &p->s;
    dt_infer_opts o;
    DT_TRY(dt_session_infer_opts(s, "predict", &o));
    o.augment = s->config->data.augment != NULL;
    o.seed = (uint64_t)s->config->run.seed;
    for (int i = 0; i < p->n; i++) {
        predicted *e = &p->each[i];
        e->output = o.n_outputs;
        o.outputs[o.n_outputs++] = dt_target_logits(&s->targets, e->t, e->text, sizeof e->text);
    }
    p->embedding = p->r->embeddings ? o.n_outputs : -1;
    if (p->embedding >= 0) o.outputs[o.n_outputs++] = "embedding";
    return dt_infer_create(&p->infer, &o);
}

static const char *run_name(const predictor *p) {
    return p->s.config->run.name;
}

// Finds the first member's classes in this one by name.
static dt_status match_names(predictor *p, int i) {
    const dt_predict_column *a = &p->first->columns[i], *b = &p->columns[i];
    if (strcmp(a->field, b->field) != 0 || a->kind != b->kind || a->n != b->n)
        return dt_fail(DT_E_USAGE,
                       "run %s predicts %s (%lld), and run %s %s (%lld): an ensemble "
                       "predicts the same",
                       run_name(p->first), a->field, (long long)a->n, run_name(p), b->field,
                       (long long)b->n);
    for (int64_t k = 0; k < b->n; k++) {
        int64_t at = 0;
        while (b->name && at < a->n && strcmp(a->name[at], b->name[k]) != 0) at++;
        if (at == a->n)
            return dt_fail(DT_E_USAGE,
                           "run %s knows %s '%s', and run %s does not: an ensemble "
                           "predicts the same",
                           run_name(p), b->field, b->name[k], run_name(p->first));
        p->each[i].map[k] = (int32_t)at;
    }
    return DT_OK;
}

static dt_status check_member(predictor *p) {
    dt_session *s = &p->s;
    const int n = s->targets.n;
    bool drops = p->r->mc == 0;
    DT_TRY(dt_predict_check(p->r->out, n, p->r->logits, p->r->embeddings));
    for (int i = 0; i < s->eval_graph->n_nodes && !drops; i++)
        drops = s->eval_graph->nodes[i].op == DT_OP_dropout;
    if (!drops)
        return dt_config_fail(s->config, "model.dropout",
                              "--mc draws dropout masks, and run %s was trained without: "
                              "model.dropout is 0",
                              run_name(p));
    for (int i = 0; i < n; i++)
        if (p->r->by_uncertainty && kind_of(&s->targets.items[i]) == DT_PREDICTS_NUMBERS)
            return dt_fail(DT_E_USAGE,
                           "--weights uncertainty is for probabilities, and %s is a "
                           "number",
                           s->targets.items[i].field->name);
    for (int i = 0; i < n; i++) {
        p->each[i].t = &s->targets.items[i];
        describe(p, i);
        p->n = i + 1;
    }
    if (p->n != p->first->n)
        return dt_fail(DT_E_USAGE,
                       "run %s predicts %d fields, and run %s %d: an ensemble predicts "
                       "the same",
                       run_name(p->first), p->first->n, run_name(p), p->n);
    for (int i = 0; i < n; i++) DT_TRY(match_names(p, i));
    const int64_t here = s->data->n_samples(s->data, p->r->split);
    const dt_dataset *first = p->first->s.data;
    if (here != first->n_samples(first, p->r->split))
        return dt_fail(DT_E_DATA, "run %s reads %lld samples of the set, and run %s %lld",
                       run_name(p), (long long)here, run_name(p->first),
                       (long long)first->n_samples(first, p->r->split));
    return DT_OK;
}

static dt_status open_member(predictor *p, const dt_trainer_args *a) {
    int64_t step;
    DT_TRY(dt_session_init(&p->s, a));
    p->s.drops = p->r->mc > 0;
    p->s.raw = p->r->raw;
    DT_TRY(dt_session_open_run(&p->s, p->r->which, p->r->split, &step));
    dt_status st = check_member(p);
    p->s.told |= st != DT_OK; // a function of what all ranks know
    DT_TRY(st);
    for (int i = 0; i < p->n; i++) {
        predicted *e = &p->each[i];
        e->temperature = 1;
        if (p->s.comm->rank == 0 && is_calibrated(e->t))
            DT_TRY(dt_calibration_read(p->s.config, step, e->t->field->name, &e->temperature));
    }
    return make_infer(p);
}

static void close_member(predictor *p) {
    dt_infer_destroy(p->infer);
    for (int i = 0; i < p->n; i++) {
        for (int64_t k = 0; k < p->columns[i].n; k++) free(p->each[i].names[k]);
        free(p->each[i].names);
        free(p->each[i].value);
        free(p->each[i].logits);
        free(p->each[i].map);
    }
    dt_session_close(&p->s);
}

// ---- all members -----------------------------------------------------------------------------------

static dt_status open_output(predictor *p, int n_passes) {
    dt_session *s = &p->s;
    const dt_predict_format f = {
        .path = p->r->out,
        .split = p->r->split,
        .columns = p->columns,
        .n_columns = p->n,
        .top = p->r->top,
        .logits = p->r->logits,
        .spread = n_passes > 1,
        .n_embedding = p->embedding >= 0 ? dt_infer_output_size(p->infer, p->embedding) : 0,
        .data = s->data,
        .n_samples = s->data->n_samples(s->data, p->r->split)};
    dt_status st = s->comm->rank == 0 ? dt_predict_writer_open(&p->writer, &f) : DT_OK;
    char *nothing = NULL;
    DT_TRY(dt_agree_result(s->comm, st, &nothing, &s->told));
    if (n_passes > 1)
        p->mean = dt_predict_mean_create(p->columns, p->n, f.n_samples, p->r->by_uncertainty);
    return DT_OK;
}

static dt_status run_passes(predictor *p) {
    const int n = p->r->mc > 0 ? p->r->mc : 1;
    for (int i = 0; i < n; i++) DT_TRY(dt_infer_run(p->infer, p->s.data, p->r->split, take, p));
    return DT_OK;
}

static dt_status run_others(predictor *first, const dt_trainer_args *members, int n) {
    for (int i = 1; i < n; i++) {
        predictor p = {.r = first->r, .first = first, .mean = first->mean};
        dt_status st = open_member(&p, &members[i]);
        if (st == DT_OK) st = run_passes(&p);
        first->s.told |= p.s.told;
        close_member(&p);
        DT_TRY(st);
    }
    return DT_OK;
}

static dt_status predict(predictor *p, const dt_trainer_args *members, int n) {
    DT_TRY(open_member(p, members));
    // rows are fewer than records
    if (p->s.comm->rank == 0 && p->s.config->data.where)
        dt_info("data: %s", p->s.data->describe(p->s.data));
    DT_TRY(open_output(p, p->r->mc > 0 ? n * p->r->mc : n));
    DT_TRY(run_passes(p));
    DT_TRY(run_others(p, members, n));
    const int64_t n_rows = p->writer && p->mean ? p->s.data->n_samples(p->s.data, p->r->split) : 0;
    for (int64_t i = 0; i < n_rows; i++) {
        const dt_predict_row row = dt_predict_mean_row(p->mean, i);
        DT_TRY(put(p, &row));
    }
    return DT_OK;
}

dt_status dt_trainer_predict(const dt_trainer_args *members, int n, const dt_predict_request *r,
                             bool *agreed) {
    predictor p = {.r = r, .first = &p};
    *agreed = false;
    dt_status st = predict(&p, members, n);
    st = dt_predict_writer_close(p.writer, st);
    if (st == DT_OK && p.n_bad > 0)
        dt_warn("%lld sample%s could not be read or predicted: the rows say why",
                (long long)p.n_bad, p.n_bad == 1 ? "" : "s");
    *agreed = st == DT_OK || p.s.told;
    dt_predict_mean_destroy(p.mean);
    close_member(&p);
    return st;
}
