// predict.c: see the header.
#include "eval/predict.h"

#include "base/core.h"
#include "base/log.h"
#include "base/os.h"
#include "config/words.h"
#include "eval/evaluate.h"
#include "run/agree.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the mean of several passes -------------------------------------------------------------------
// Passes are members of an ensemble, dropout masks, changed images. For each sample and target, over the passes with
// weights w and predictions p (probabilities or numbers):
//
//   mean         p̄ = Σ w p / Σ w           deep ensembles: Lakshminarayanan et al., NeurIPS 2017
//   variance     Σ w p² / Σ w - p̄²         of dropout masks: Gal and Ghahramani, ICML 2016
//   entropy      H(p̄), in nats: all that is uncertain
//   mutual information  H(p̄) - Σ w H(p) / Σ w: the part about which the passes disagree (BALD: Houlsby et al., 2011)
//
// H is that of the classes; where several labels can be true, the sum of theirs. w is 1, or 1 / (H(p) + 0.001), so that
// a pass that is sure of a sample counts more (inverse-uncertainty weights, by sample).
//
// The sums of all samples may be more than the memory: every pass runs over a range of the split, then every pass over the
// next range.

enum { WEIGHT, ENTROPY, SUMS };   // places in a column's sums; SUMS: where Σ w p begins
enum { RANGE_BYTES = 128 << 20 }; // of the sums of a range

// Of a sample and target: Σ w, Σ w H, Σ w p, Σ w p².
typedef struct mean_column {
    int64_t n, stride;        // elements; doubles per sample
    double *sums;             // (samples, stride)
    double *value, *variance; // of a row
} mean_column;

typedef struct predict_mean {
    const dt_predict_column *columns;
    int n_columns;
    int64_t n_samples;  // of the split
    int64_t begin, cap; // the range
    bool by_uncertainty;
    mean_column each[DT_MAX_TARGETS];
    char **why; // by sample of the range, or NULL
} predict_mean;

// columns: borrowed.
static predict_mean *mean_create(const dt_predict_column *columns, int n_columns, int64_t n_samples,
                                 bool by_uncertainty) {
    predict_mean *m = dt_xcalloc(1, sizeof *m);
    int64_t sample_bytes = sizeof(double);
    for (int i = 0; i < n_columns; i++) sample_bytes += (SUMS + 2 * columns[i].n) * (int64_t)sizeof(double);
    const int64_t most = RANGE_BYTES / sample_bytes + 1, cap = most < n_samples ? most : n_samples;
    *m = (predict_mean){columns, n_columns, n_samples, 0, cap, by_uncertainty, {{0}}, NULL};
    m->why = dt_xcalloc((size_t)cap + 1, sizeof *m->why);
    for (int i = 0; i < n_columns; i++) {
        // WEIGHT, ENTROPY, then n sums of w p and n of w p²
        const int64_t n = columns[i].n, stride = SUMS + 2 * n;
        m->each[i] = (mean_column){.n = n,
                                   .stride = stride,
                                   .sums = dt_xcalloc((size_t)(cap * stride) + 1, sizeof(double)),
                                   .value = dt_xcalloc((size_t)n, sizeof(double)),
                                   .variance = dt_xcalloc((size_t)n, sizeof(double))};
    }
    return m;
}

static void mean_begin(predict_mean *m, int64_t begin) {
    m->begin = begin;
    for (int i = 0; i < m->n_columns; i++)
        memset(m->each[i].sums, 0, (size_t)(m->cap * m->each[i].stride) * sizeof(double));
    for (int64_t i = 0; i < m->cap; i++) {
        free(m->why[i]);
        m->why[i] = NULL;
    }
}

static bool mean_is_last(const predict_mean *m) {
    return m->begin + m->cap >= m->n_samples;
}

static void mean_destroy(predict_mean *m) {
    if (!m) return;
    for (int i = 0; i < m->n_columns; i++) {
        free(m->each[i].sums);
        free(m->each[i].value);
        free(m->each[i].variance);
    }
    for (int64_t i = 0; i < m->cap; i++) free(m->why[i]);
    free(m->why);
    free(m);
}

// -p log p, whose limit at 0 is 0.
static double entropy_term(double p) {
    return p > 0 ? -p * log(p) : 0;
}

static double entropy(const dt_predict_column *c, const double *p) {
    double h = 0;
    for (int64_t k = 0; k < c->n && c->kind == DT_PREDICTS_CLASSES; k++) h += entropy_term(p[k]);
    // a label is a binary variable
    for (int64_t k = 0; k < c->n && c->kind == DT_PREDICTS_LABELS; k++)
        h += entropy_term(p[k]) + entropy_term(1 - p[k]);
    return h;
}

// What is subtracted before squares are summed: numbers may be far from 0.
// subtracting the field's mean keeps Σ w p² - (Σ w p)² from cancelling
static double origin_of(const dt_predict_column *c, int64_t k) {
    return c->kind == DT_PREDICTS_NUMBERS ? dt_field_mean(c->info, k) : 0;
}

static double predict_mean_of(const predict_mean *m, int column, int64_t k, const double *sums) {
    return sums[SUMS + k] / sums[WEIGHT] + origin_of(&m->columns[column], k);
}

// Adds the prediction `value` of a pass for a target: its element k is element map[k] of the column.
static void mean_add(predict_mean *m, int64_t sample, int column, const double *value, const int32_t *map) {
    const mean_column *e = &m->each[column];
    double *sums = e->sums + (sample - m->begin) * e->stride;
    // of the pass's own order: entropy is the same for any
    const double h = entropy(&m->columns[column], value);
    const double w = m->by_uncertainty ? 1 / (h + 1e-3) : 1;
    sums[WEIGHT] += w;
    sums[ENTROPY] += w * h;
    for (int64_t k = 0; k < e->n; k++) {
        const double v = value[k] - origin_of(&m->columns[column], map[k]);
        sums[SUMS + map[k]] += w * v;
        sums[SUMS + e->n + map[k]] += w * v * v;
    }
}

// The row of a sample; valid until the next one.
static dt_predict_row mean_row(predict_mean *m, int64_t sample) {
    dt_predict_row row = {.index = sample, .why = m->why[sample - m->begin]}; // without a mean: only the reason
    for (int i = 0; i < m->n_columns && !row.why; i++) {
        const mean_column *e = &m->each[i];
        const double *sums = e->sums + (sample - m->begin) * e->stride;
        for (int64_t k = 0; k < e->n; k++) {
            const double mean = sums[SUMS + k] / sums[WEIGHT];
            // E[p²] - E[p]²
            const double v = sums[SUMS + e->n + k] / sums[WEIGHT] - mean * mean;
            e->value[k] = predict_mean_of(m, i, k, sums);
            e->variance[k] = v > 0 ? v : 0; // rounding
        }
        row.value[i] = e->value;
        row.variance[i] = e->variance;
        // H of the mean: all uncertainty; less the mean of H: what the passes disagree in
        row.entropy[i] = entropy(&m->columns[i], e->value);
        const double information = row.entropy[i] - sums[ENTROPY] / sums[WEIGHT];
        row.information[i] = information > 0 ? information : 0;
    }
    return row;
}

// ---- what is predicted -----------------------------------------------------------------------------

typedef struct predicted {
    const dt_target *t;
    int output;     // its logits
    char text[128]; // the output's name
    dt_predicts kind;
    char **names;  // of classes, labels or numbers
    double *value; // of the row in progress
    float *logits; // as the network gives them
    // identity for the first member
    int32_t *map; // the first member's number of each
    double temperature;
    double *thresholds; // by the first member's numbers, over all members
} predicted;

// A member of the ensemble.
typedef struct predictor {
    dt_session session;
    const dt_predict_request *r;
    dt_infer *infer;
    int n, embedding; // output; -1: not asked for
    int n_members;
    predicted each[DT_MAX_TARGETS];
    dt_predict_column columns[DT_MAX_TARGETS];
    struct predictor *first;  // member
    struct predictor *others; // of the first: the members behind it
    bool is_open;
    const dt_trainer_args *members; // of the first
    predict_mean *mean;             // of several passes
    dt_evaluator *evaluator;        // of the first, where it is evaluated
    dt_predict_writer *writer;      // rank 0
    int64_t n_bad;                  // rows without a prediction
    char why[256];                  // of the row in progress
} predictor;

static dt_predicts predict_kind_of(const dt_target *t) {
    const dt_loss_row *loss = &dt_losses[t->loss];
    // in this order: softmax losses give shares, labels one probability each
    return loss->softmax ? DT_PREDICTS_CLASSES : loss->gives_labels ? DT_PREDICTS_LABELS : DT_PREDICTS_NUMBERS;
}

// Where training reads a target from (data/loader/fields.c).
static void predict_find_sources(predictor *p, int i) {
    const dt_config *c = p->session.run.config;
    dt_predict_column *column = &p->columns[i];
    const dt_cnode *given = NULL;
    for (int k = 0; k < c->data.n_fields; k++)
        if (strcmp(c->data.fields[k].id, column->field) == 0) given = c->data.fields[k].source;
    const bool list = given && dt_cnode_kind(given) == DT_C_LIST;
    for (size_t k = 0; list && k < dt_cnode_size(given) && k < DT_PREDICT_SOURCES; k++)
        column->source[column->n_sources++] = dt_cnode_str(dt_cnode_item(given, k));
    if (!list) column->source[column->n_sources++] = given ? dt_cnode_str(given) : column->field;
    if (given || column->kind != DT_PREDICTS_CLASSES) return;
    column->source[column->n_sources++] = "label";
    column->source[column->n_sources++] = "cls";
}

static void predict_describe(predictor *p, int i) {
    predicted *e = &p->each[i];
    const int64_t n = dt_target_n_out(e->t);
    // a single number or label has no name of its own in the output
    const bool one = n == 1 && e->t->field->n_classes == 0;
    e->kind = predict_kind_of(e->t);
    e->names = dt_xcalloc((size_t)n, sizeof *e->names);
    e->value = dt_xcalloc((size_t)n, sizeof *e->value);
    e->logits = dt_xcalloc((size_t)n, sizeof *e->logits);
    e->map = dt_xcalloc((size_t)n, sizeof *e->map);
    e->thresholds = dt_xcalloc((size_t)n, sizeof *e->thresholds);
    for (int64_t k = 0; k < n; k++) {
        const char *name = dt_field_name_of(e->t->field, k);
        e->names[k] = name ? dt_xstrdup(name) : dt_xprintf("%lld", (long long)k);
    }
    p->columns[i] = (dt_predict_column){.field = e->t->field->name,
                                        .info = e->t->field,
                                        .kind = e->kind,
                                        .n = n, // one: titles are "<field>" instead of "<field>.<name>"
                                        .name = one ? NULL : (const char *const *)e->names,
                                        .thresholds = e->thresholds};
    predict_find_sources(p, i);
}

static void predict_take_target(predicted *e, const float *x) {
    const int64_t n = dt_target_n_out(e->t);
    const dt_field_info *f = e->t->field;
    memcpy(e->logits, x, (size_t)n * sizeof *x);
    // probabilities are calibrated, logits stay as the network gives them
    if (e->kind == DT_PREDICTS_CLASSES) dt_eval_softmax(x, n, e->temperature, e->value);
    for (int64_t k = 0; e->kind == DT_PREDICTS_LABELS && k < n; k++)
        e->value[k] = dt_eval_sigmoid((double)x[k] / e->temperature);
    for (int64_t k = 0; e->kind == DT_PREDICTS_NUMBERS && k < n; k++)
        // counts are predicted as logarithms
        e->value[k] = dt_losses[e->t->loss].exponent ? exp((double)x[k]) : dt_field_value(f, k, (double)x[k]);
}

static dt_status predict_put(predictor *p, const dt_predict_row *row) {
    p->n_bad += row->why != NULL;
    return dt_predict_writer_put(p->writer, row);
}

// Another member's set must have the same records: it may lack some that its fields need.
static dt_status check_key(const predictor *p, int64_t i) {
    uint32_t ours[DT_MAX_WIDTH], theirs[DT_MAX_WIDTH];
    const dt_dataset *a = p->session.run.data, *b = p->first->session.run.data;
    const char *path;
    if (a == b || !a->key || !a->records) return DT_OK; // the same data set: nothing to compare
    const int n = a->records(a, p->r->split, i, ours);
    // both have the same number of samples (predict_check_member): index i fits both
    bool same = n == b->records(b, p->r->split, i, theirs);
    for (int k = 0; same && k < n; k++) same = strcmp(a->key(a, ours[k], &path), b->key(b, theirs[k], &path)) == 0;
    return same ? DT_OK
                : dt_fail(DT_E_DATA, "the runs read other records of the set: from sample %lld on", (long long)i);
}

// Why there is no prediction, or NULL.
static const char *predict_find_bad(predictor *p, const dt_infer_sample *s) {
    const char *what = NULL;
    if (s->why) return s->why;
    for (int i = 0; i < p->n && !what; i++) {
        const predicted *e = &p->each[i];
        // finite logits may have infinite values in the field's unit
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

static dt_status predict_take(void *ctx, const dt_infer_sample *s) {
    predictor *p = ctx;
    dt_predict_row row = {.index = s->index};
    if (p->mean) DT_TRY(check_key(p, s->index)); // a mean is over passes of the same records
    for (int i = 0; i < p->n && !s->why; i++) predict_take_target(&p->each[i], s->output[p->each[i].output]);
    row.why = predict_find_bad(p, s);
    // one pass without a prediction: no mean, as the rest would be another ensemble
    char **why = p->mean ? &p->mean->why[s->index - p->mean->begin] : NULL;
    if (why && row.why && !*why) *why = dt_xstrdup(row.why);
    for (int i = 0; i < p->n && !row.why; i++) {
        predicted *e = &p->each[i];
        row.value[i] = e->value;
        row.logits[i] = e->logits;
        if (p->mean) mean_add(p->mean, s->index, i, e->value, e->map); // rows are written once all passes are done
    }
    if (p->mean) return DT_OK;
    // several passes have no common embedding
    if (p->embedding >= 0 && !row.why) row.embedding = s->output[p->embedding];
    return predict_put(p, &row);
}

// ---- a member --------------------------------------------------------------------------------------

static dt_status make_infer(predictor *p, bool augment) {
    const dt_config *c = p->session.run.config;
    dt_infer_opts o = dt_session_infer_opts(&p->session, NULL, "predict");
    o.augment = augment;
    o.seed = (uint64_t)c->run.seed; // of augmentation and dropout masks
    for (int i = 0; i < p->n; i++) {
        predicted *e = &p->each[i];
        e->output = o.n_outputs;
        o.outputs[o.n_outputs++] = dt_target_logits(&p->session.nets.targets, e->t, e->text, sizeof e->text);
    }
    p->embedding = p->r->embeddings ? o.n_outputs : -1;
    if (p->embedding >= 0) o.outputs[o.n_outputs++] = "embedding";
    return dt_infer_create(&p->infer, &o);
}

static const char *predict_run_name(const predictor *p) {
    return p->session.run.config->run.name;
}

// Finds the first member's classes in this one by name.
static dt_status match_names(predictor *p, int i) {
    const dt_predict_column *a = &p->first->columns[i], *b = &p->columns[i];
    if (strcmp(a->field, b->field) != 0 || a->kind != b->kind || a->n != b->n)
        return dt_fail(DT_E_USAGE,
                       "run %s predicts %s (%lld), and run %s %s (%lld): an ensemble "
                       "predicts the same",
                       predict_run_name(p->first), a->field, (long long)a->n, predict_run_name(p), b->field,
                       (long long)b->n);
    // class numbers differ between runs of different data: the names decide
    for (int64_t k = 0; k < b->n; k++) {
        int64_t at = 0;
        // without names there is one element: 0
        while (b->name && at < a->n && strcmp(a->name[at], b->name[k]) != 0) at++;
        if (at == a->n)
            return dt_fail(DT_E_USAGE,
                           "run %s knows %s '%s', and run %s does not: an ensemble "
                           "predicts the same",
                           predict_run_name(p), b->field, b->name[k], predict_run_name(p->first));
        p->each[i].map[k] = (int32_t)at;
    }
    return DT_OK;
}

static dt_status predict_check_member(predictor *p) {
    const dt_open_run *run = &p->session.run;
    const dt_targets *targets = &p->session.nets.targets;
    const dt_graph *g = dt_nets_last_evaluated(&p->session.nets).graph;
    const int n = targets->n;
    bool drops = p->r->mc == 0; // drops: dropout masks are not wanted, or the network has some
    DT_TRY(dt_predict_check(p->r->out, n, p->r->logits, p->r->embeddings));
    // a dropout of probability 0 is not built, so the graph tells
    for (int i = 0; i < g->n_nodes && !drops; i++) drops = g->nodes[i].op == DT_OP_dropout;
    if (!drops)
        return dt_config_fail(run->config, "model.dropout",
                              "--mc draws dropout masks, and run %s was trained without: "
                              "model.dropout is 0",
                              predict_run_name(p));
    // the weight is 1 / entropy, which numbers have not
    for (int i = 0; i < n; i++)
        if (p->r->by_uncertainty && predict_kind_of(&targets->items[i]) == DT_PREDICTS_NUMBERS)
            return dt_fail(DT_E_USAGE,
                           "--weights uncertainty is for probabilities, and %s is a "
                           "number",
                           targets->items[i].field->name);
    for (int i = 0; i < n; i++) {
        p->each[i].t = &targets->items[i];
        // p->n follows: close_member frees what is described so far
        predict_describe(p, i);
        p->n = i + 1;
    }
    if (p->n != p->first->n)
        return dt_fail(DT_E_USAGE,
                       "run %s predicts %d fields, and run %s %d: an ensemble predicts "
                       "the same",
                       predict_run_name(p->first), p->first->n, predict_run_name(p), p->n);
    for (int i = 0; i < n; i++) DT_TRY(match_names(p, i));
    // after matching: the same targets over different samples are no ensemble either
    const int64_t here = run->data->n_samples(run->data, p->r->split);
    const dt_dataset *first = p->first->session.run.data;
    if (here != first->n_samples(first, p->r->split))
        return dt_fail(DT_E_DATA, "run %s reads %lld samples of the set, and run %s %lld", predict_run_name(p),
                       (long long)here, predict_run_name(p->first), (long long)first->n_samples(first, p->r->split));
    return DT_OK;
}

// On rank 0: the temperature of target i, and this member's share of its thresholds.
static dt_status read_calibration(predictor *p, int i) {
    const dt_open_run *run = &p->session.run;
    predicted *e = &p->each[i];
    const bool labels = e->kind == DT_PREDICTS_LABELS;
    if (!labels && e->t->field->n_classes == 0) return DT_OK;
    // own of the member's order; the mean goes to the first member's
    double *own = dt_xcalloc((size_t)dt_target_n_out(e->t), sizeof *own);
    const dt_status st = dt_calibration_read(run->config, run->record.step, e->t, &e->temperature, labels ? own : NULL);
    for (int64_t k = 0; k < dt_target_n_out(e->t); k++) // mean over members
        p->first->each[i].thresholds[e->map[k]] += own[k] / p->n_members;
    free(own);
    return st;
}

static dt_status open_member(predictor *p, const dt_trainer_args *a) {
    const dt_open_run *run = &p->session.run;
    p->is_open = true; // for close_member, also where it fails
    DT_TRY(dt_session_open(&p->session, a,
                           &(dt_run_request){.which = p->r->which,
                                             .split = p->r->split,
                                             .own_data = p->r->own_data,
                                             .raw = p->r->raw,
                                             .drops = p->r->mc > 0})); // --mc: dropout stays on
    DT_TRY(dt_agree_shared(run->comm, predict_check_member(p)));       // ranks exchange the check's result
    dt_status st = DT_OK;
    char *nothing = NULL;
    for (int i = 0; i < p->n; i++) p->each[i].temperature = 1;
    // the files of the run are read on one rank
    for (int i = 0; i < p->n && st == DT_OK && dt_run_is_root(run); i++) st = read_calibration(p, i);
    DT_TRY(dt_agree_result(run->comm, st, &nothing));
    return make_infer(p, run->config->data.augment != NULL);
}

static void close_member(predictor *p, dt_status st) {
    dt_infer_destroy(p->infer);
    for (int i = 0; i < p->n; i++) {
        for (int64_t k = 0; k < p->columns[i].n; k++) free(p->each[i].names[k]);
        free(p->each[i].names);
        free(p->each[i].value);
        free(p->each[i].logits);
        free(p->each[i].map);
        free(p->each[i].thresholds);
    }
    dt_session_close(&p->session, st);
    p->is_open = false;
}

// ---- all members -----------------------------------------------------------------------------------

static dt_status open_output(predictor *p, int n_passes) {
    // after the first member is open: titles need its names, keys its data
    const dt_open_run *run = &p->session.run;
    const dt_predict_format f = {.path = p->r->out,
                                 .split = p->r->split,
                                 .columns = p->columns,
                                 .n_columns = p->n,
                                 .top = p->r->top,
                                 .also = p->r->columns,
                                 .logits = p->r->logits,
                                 .deviates = n_passes > 1,
                                 .n_embedding = p->embedding >= 0 ? dt_infer_output_size(p->infer, p->embedding) : 0,
                                 .data = run->data,
                                 .n_samples = run->data->n_samples(run->data, p->r->split)};
    dt_status st = dt_run_is_root(run) ? dt_predict_writer_open(&p->writer, &f) : DT_OK;
    char *nothing = NULL;
    DT_TRY(dt_agree_result(run->comm, st, &nothing));
    // one pass streams its rows; several keep the sums of a range in memory
    if (n_passes > 1) p->mean = mean_create(p->columns, p->n, f.n_samples, p->r->by_uncertainty);
    return DT_OK;
}

static dt_status predict_run_passes(predictor *p, dt_dataset *data) {
    if (p->mean) dt_infer_set_range(p->infer, p->mean->begin, p->mean->cap);
    const int n = p->r->mc > 0 ? p->r->mc : 1; // --mc: the network runs so often, with other masks each time
    for (int i = 0; i < n; i++) DT_TRY(dt_infer_run(p->infer, data, p->r->split, predict_take, p));
    return DT_OK;
}

// The same network and set; all images are changed in one way, on the host, as the network's plan knows of no change.
static dt_status run_changed(predictor *p, const char *change) {
    const dt_open_run *run = &p->session.run;
    dt_config *c = dt_config_copy(run->config);
    dt_dataset *data = NULL;
    c->data.augment_on = DT_AUGMENT_ON_host;
    // as if the config had the augmentation for each image field
    for (int i = 0; i < c->data.n_fields; i++)
        if (c->data.fields[i].kind == DT_FIELD_image)
            dt_config_set_entry(c, DT_KEY(data.augment), c->data.fields[i].id, change);
    dt_infer_destroy(p->infer); // the inference has buffers of the unchanged data
    p->infer = NULL;
    // batch memory pinned for this backend
    const dt_batch_memory memory = dt_backend_batch_memory(run->backend);
    dt_status st =
        run->args.open_data(run->args.ctx, c, &memory, run->resolved.workers, NULL, run->record.classes, &data);
    if (st == DT_OK) st = make_infer(p, true);
    if (st == DT_OK) st = predict_run_passes(p, data);
    if (data) data->close(data);
    dt_config_destroy(c);
    return st;
}

static dt_status predict_run_member(predictor *p) {
    // a new one for each range: dropout masks follow from how many runs it had before
    if (!p->infer) DT_TRY(make_infer(p, p->session.run.config->data.augment != NULL));
    DT_TRY(predict_run_passes(p, p->session.run.data));
    for (int i = 0; i < p->r->n_changes; i++) DT_TRY(run_changed(p, p->r->changes[i]));
    dt_infer_destroy(p->infer);
    p->infer = NULL;
    return DT_OK;
}

static dt_status run_others(predictor *first) {
    for (int i = 1; i < first->n_members; i++) {
        predictor *p = &first->others[i - 1];
        dt_status st = DT_OK;
        if (!p->is_open) {
            *p = (predictor){.r = first->r, .n_members = first->n_members, .first = first, .mean = first->mean};
            st = open_member(p, &first->members[i]);
        }
        if (st == DT_OK) st = predict_run_member(p);
        // with a single range one after another: only one further member's weights are in memory
        if (st != DT_OK || mean_is_last(first->mean)) close_member(p, st);
        DT_TRY(st);
    }
    return DT_OK;
}

static dt_status predict(predictor *p) {
    DT_TRY(open_member(p, p->members));
    // rows are fewer than records
    const dt_open_run *run = &p->session.run;
    // reports how many records `where` leaves
    if (dt_run_is_root(run) && run->config->data.where) dt_info("data: %s", run->data->describe(run->data));
    // passes: members, each unchanged and changed, each with its masks
    DT_TRY(open_output(p, p->n_members * (1 + p->r->n_changes) * (p->r->mc > 0 ? p->r->mc : 1)));
    predict_mean *m = p->mean;
    char *nothing = NULL;
    if (!m) return predict_run_member(p);
    for (int64_t begin = 0; begin < m->n_samples; begin += m->cap) {
        mean_begin(m, begin);
        DT_TRY(predict_run_member(p));
        DT_TRY(run_others(p));
        // on rank 0, after all passes
        dt_status st = DT_OK;
        for (int64_t i = begin; p->writer && i < m->n_samples && i < begin + m->cap && st == DT_OK; i++) {
            const dt_predict_row row = mean_row(m, i);
            st = predict_put(p, &row);
        }
        DT_TRY(dt_agree_result(run->comm, st, &nothing));
    }
    return DT_OK;
}

static void close_members(predictor *first, dt_status st) {
    for (int i = 1; i < first->n_members && first->others; i++)
        if (first->others[i - 1].is_open) close_member(&first->others[i - 1], st);
    free(first->others);
    mean_destroy(first->mean);
    close_member(first, st);
}

dt_status dt_trainer_predict(const dt_trainer_args *members, int n, const dt_predict_request *r) {
    predictor p = {.r = r, .n_members = n, .first = &p, .others = dt_xcalloc((size_t)n, sizeof p), .members = members};
    const double begin_s = dt_clock_s();
    dt_status st = predict(&p);
    const bool writes = p.writer && r->out; // on rank 0, into a file
    st = dt_predict_writer_close(p.writer, st);
    if (st == DT_OK && writes) {
        const dt_dataset *data = p.session.run.data;
        const double n_samples = (double)data->n_samples(data, r->split), took_s = dt_clock_s() - begin_s;
        char left_out[64] = "";
        if (data->n_left_out > 0)
            snprintf(left_out, sizeof left_out, "; %" PRId64 " records were left out", data->n_left_out);
        dt_info("%s: predictions of %.0f samples in %.1f s (%.0f samples/s)%s", r->out, n_samples, took_s,
                n_samples / took_s, left_out);
    }
    if (st == DT_OK && p.n_bad > 0)
        dt_warn("%lld sample%s could not be read or predicted: their rows give the reason", (long long)p.n_bad,
                p.n_bad == 1 ? "" : "s");
    close_members(&p, st);
    return st;
}

// ---- an evaluation of the mean ---------------------------------------------------------------------

// evaluator's f: the last member's pass comes through the evaluator instead of predict_take
// The first member's outputs of a sample, the last to be added -> outputs of which its loss makes the mean.
static void combine(void *ctx, int64_t sample, int i, const float *x, float *out) {
    predictor *p = ctx;
    predicted *e = &p->each[i];
    const int64_t n = dt_target_n_out(e->t);
    predict_take_target(e, x);
    mean_add(p->mean, sample, i, e->value, e->map);
    // the sums of the other members are complete, as they ran before
    const int64_t at = sample - p->mean->begin;
    const double *sums = p->mean->each[i].sums + at * p->mean->each[i].stride;
    for (int64_t k = 0; k < n; k++) {
        const double mean = p->mean->why[at] ? NAN : predict_mean_of(p->mean, i, k, sums);
        // log(0) and log(1/0) must not occur
        const double q = fmin(fmax(mean, DBL_MIN), 1 - DBL_EPSILON / 2); // a logarithm that is finite
        // back into the normalised unit, in which the evaluator computes losses
        const double number = (mean - dt_field_mean(e->t->field, k)) / dt_field_std(e->t->field, k);
        if (isnan(mean))
            out[k] = NAN;
        else if (e->kind == DT_PREDICTS_CLASSES || dt_losses[e->t->loss].exponent)
            out[k] = (float)log(fmax(mean, DBL_MIN)); // softmax of log p is p, exp of log is the number
        else
            out[k] = (float)(e->kind == DT_PREDICTS_LABELS ? log(q / (1 - q)) : number);
    }
}

// The first member comes last, by the evaluator.
static dt_status prepare(void *ctx, int64_t begin) {
    predictor *p = ctx;
    mean_begin(p->mean, begin);
    DT_TRY(run_others(p));
    // by target, on every rank; only rank 0's are used
    for (int i = 0; i < p->n; i++)
        if (p->each[i].kind == DT_PREDICTS_LABELS) dt_evaluator_set_thresholds(p->evaluator, i, p->each[i].thresholds);
    return DT_OK;
}

static void drop_pairs(dt_metric_choice *metrics, int n_targets) {
    bool dropped = false;
    // an embedding belongs to one network, and pairs compare within one space
    for (int k = 0; k < n_targets; k++)
        for (int i = 0; i < DT_N_METRICS; i++)
            if (metrics->wanted[k][i] && (dt_metrics_table[i]->of & DT_OF_PAIRS)) {
                metrics->wanted[k][i] = false;
                dropped = true;
            }
    if (dropped) dt_warn_alike("metrics of pairs are left out: several runs have no embedding in common");
}

static dt_status predict_evaluate(predictor *p, const dt_eval_request *q) {
    dt_session *a = &p->session;
    dt_evaluator *e = NULL;
    dt_eval_result result;
    // thresholds are the mean of the members': prepare sets them
    a->nets.metrics.threshold = (dt_auto_real){.answer = 0.5};
    drop_pairs(&a->nets.metrics, p->n);
    dt_status st = dt_session_evaluator(a, NULL, "eval", &e);
    if (st == DT_OK) {
        p->evaluator = e;
        dt_evaluator_set_combine(e, &(dt_evaluator_combine){combine, prepare, p->mean->cap, p});
        st = dt_evaluator_run(e, a->run.data, q->split, true, &result);
    }
    if (st == DT_OK) {
        // a member of the result: how many runs the mean is of
        dt_json_int(&result.extra, "runs", p->n_members);
        st = dt_session_print(a, q->csv, &result);
        dt_eval_result_fini(&result);
    }
    dt_evaluator_destroy(e);
    return st;
}

dt_status dt_predict_evaluate(const dt_eval_request *q) {
    const dt_predict_request r = {
        .which = q->which, .split = q->split, .raw = q->raw, .own_data = q->own_data, .top = 1};
    predictor p = {.r = &r,
                   .n_members = q->n_members,
                   .first = &p,
                   .others = dt_xcalloc((size_t)q->n_members, sizeof p),
                   .members = q->members};
    dt_status st = open_member(&p, q->members);
    dt_infer_destroy(p.infer); // the evaluator has its own
    p.infer = NULL;
    if (st == DT_OK) {
        const dt_dataset *data = p.session.run.data;
        // by_uncertainty is for predict alone
        p.mean = mean_create(p.columns, p.n, data->n_samples(data, q->split), false);
        st = predict_evaluate(&p, q);
    }
    close_members(&p, st);
    return st;
}
