// evaluate.c: from a network's outputs to a table, and from the table to values.

#include "eval/evaluate.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/trace.h"
#include "batch/losses.h"
#include "eval/predict.h"
#include "metrics/eval_report.h"
#include "run/agree.h"
#include "run/batch_inputs.h"
#include "run/memory_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BY = 16 }; // columns of eval.by

// A target, and its part of the table of the evaluation in progress.
typedef struct eval_target {
    const dt_target *t;
    bool of_classes, of_numbers, of_labels; // the kind of the target
    int output;                             // index of its logits among the graph's outputs
    char name[128];                         // name of these logits
    int64_t n_out;
    double *thresholds; // (n_out)
    float *combined;    // (n_out), where outputs are combined
    bool keeps_logits;
    float *logits, *targets; // (cap, n_out); targets is NULL of classes
    int32_t *labels;         // (cap), of classes alone
    dt_eval_class *classes;  // (cap), of classes alone
    double *losses;          // (cap)
} eval_target;

struct dt_evaluator {
    dt_infer *infer;
    dt_comm *comm;
    const dt_metric_choice *metrics; // borrowed of the run, as are targets
    const dt_targets *targets;
    eval_target each[DT_MAX_TARGETS];
    int embedding;       // output; -1: not asked for
    int64_t n_embedding; // 0: not asked for
    // the evaluation in progress, on rank 0
    const dt_dataset *data;
    dt_split split;
    int64_t n, cap;           // rows that are filled, rows that there is room for
    int64_t n_not_finite;     // predictions that are not in the table
    int64_t first_not_finite; // its index in the split
    float *embeddings;        // (cap, n_embedding)
    uint32_t *records;        // (cap, width): numbers of the records of each sample
    int64_t *samples;         // in the split
    int width;                // records per sample
    bool whole;               // eval.by and eval.bootstrap apply
    dt_eval_column by[MOST_BY];
    dt_eval_column unit; // eval.bootstrap_unit; without a name: none
    int n_by;
    dt_json *report;              // where it goes, or NULL
    dt_evaluator_combine combine; // f replaces the network's outputs (ensembles), or is NULL
};

// ---- the loss of a sample --------------------------------------------------------------------------

// Cross-entropy of logits x with shares q of the classes, or (q NULL) with the class of sample i, smoothed as in training;
// classes have no weights here.
static double cross_entropy(const eval_target *e, const float *x, int64_t i, const float *q) {
    const int64_t n = e->n_out;
    double max = -INFINITY, z = q ? 0 : e->classes[i].sum;
    dt_loss_parts m = {.u = 1}; // u: sum of the uniform distribution that smoothing mixes in, 1
    for (int64_t k = 0; k < n; k++) max = (double)x[k] > max ? (double)x[k] : max;
    for (int64_t k = 0; k < n; k++) {
        const double share = q ? (double)q[k] : k == e->labels[i]; // of class k in the target distribution
        if (q) z += exp((double)x[k] - max);
        m.q += share;
        m.qx += share * (double)x[k];
        m.ux += (double)x[k] / (double)n;
    }
    m.lse = max + log(z); // log-sum-exp, by which the cross-entropy is lse - Σ q x
    return dt_loss_cross_entropy(m, (double)e->t->smoothing);
}

static double evaluate_loss_of(const eval_target *e, const float *x, const void *target, int64_t i) {
    const dt_loss_id id = e->t->loss;
    const double p = (double)e->t->param;
    if (dt_losses[id].softmax) {
        // shares of classes (mixed or soft targets) come as a row of n_out
        const double ce = cross_entropy(e, x, i, e->of_classes ? NULL : target);
        return dt_loss_value(id, ce, 0, p);
    }
    return dt_loss_of_elements(id, x, target, e->n_out, p, NULL);
}

// ---- the table -------------------------------------------------------------------------------------

// n is numbers per row; 0: the table has no such array
static void *grown(void *p, int64_t cap, int64_t n, size_t size) {
    return n > 0 ? dt_xrealloc(p, (size_t)(cap * n) * size) : NULL;
}

static void evaluate_make_room(dt_evaluator *e) {
    if (e->n < e->cap) return;
    e->cap = e->cap ? 2 * e->cap : e->data->n_samples(e->data, e->split); // all, if all can be read
    e->embeddings = grown(e->embeddings, e->cap, e->n_embedding, sizeof *e->embeddings);
    e->records = grown(e->records, e->cap, DT_MAX_WIDTH, sizeof *e->records);
    e->samples = grown(e->samples, e->cap, 1, sizeof *e->samples);
    for (int k = 0; k < e->targets->n; k++) {
        eval_target *t = &e->each[k];
        t->logits = grown(t->logits, e->cap, t->keeps_logits ? t->n_out : 0, sizeof *t->logits);
        t->classes = grown(t->classes, e->cap, t->of_classes, sizeof *t->classes);
        t->targets = grown(t->targets, e->cap, t->of_classes ? 0 : t->n_out, sizeof *t->targets);
        t->labels = grown(t->labels, e->cap, t->of_classes, sizeof *t->labels);
        t->losses = grown(t->losses, e->cap, 1, sizeof *t->losses);
    }
}

// Whether all of it is finite: else the prediction would be in some metrics and not in others, and is in none.
static bool evaluate_take_target(eval_target *e, int64_t i, const float *x, const void *target, bool distance) {
    if (e->of_classes) {
        e->labels[i] = *(const int32_t *)target;
        e->classes[i] = dt_eval_classify(x, e->n_out, e->labels[i], distance);
    } else {
        memcpy(e->targets + i * e->n_out, target, (size_t)e->n_out * sizeof *e->targets);
    }
    e->losses[i] = evaluate_loss_of(e, x, target, i);
    bool finite = isfinite(e->losses[i]) && dt_infer_all_finite(x, e->n_out);
    for (int64_t k = 0; k < e->n_out && e->keeps_logits; k++) {
        // of a loss with exponent, numbers are as they are: not normalised
        const float y = dt_losses[e->t->loss].exponent ? expf(x[k]) : x[k];
        e->logits[i * e->n_out + k] = y;
        finite &= isfinite(y);
    }
    return finite;
}

static dt_status evaluate_take(void *ctx, const dt_infer_sample *s) {
    dt_evaluator *e = ctx;
    if (s->why) return DT_OK; // could not be read: there is nothing to count
    evaluate_make_room(e);
    const int64_t i = e->n;
    bool finite = true;
    for (int k = 0; k < e->targets->n; k++) {
        eval_target *t = &e->each[k];
        const void *target = s->field[t->t->index];
        // a target out of the loss's domain fails with the sample's index
        if (!t->of_classes) DT_TRY(dt_target_check(t->t, target, s->index));
        const float *x = s->output[t->output];
        // an ensemble's mean stands in for the network's output
        if (e->combine.f) e->combine.f(e->combine.ctx, s->index, k, x, t->combined);
        finite &=
            evaluate_take_target(t, i, e->combine.f ? t->combined : x, target, e->metrics->wanted[k][DT_METRIC_brier]);
    }
    if (e->n_embedding) {
        memcpy(e->embeddings + i * e->n_embedding, s->output[e->embedding], sizeof(float) * (size_t)e->n_embedding);
        finite &= dt_infer_all_finite(s->output[e->embedding], e->n_embedding);
    }
    // row i is overwritten by the next sample
    if (!finite) {
        if (e->n_not_finite++ == 0) e->first_not_finite = s->index; // for the warning: the first is named
        return DT_OK;
    }
    e->n++;
    e->samples[i] = s->index;
    uint32_t of[DT_MAX_WIDTH] = {0};
    // every sample of a data set has the same number of records
    if (e->data->records) e->width = e->data->records(e->data, e->split, s->index, of);
    memcpy(e->records + i * e->width, of, sizeof *of * (size_t)e->width);
    for (int k = 0; k < e->n_by; k++)
        dt_eval_column_add(&e->by[k], e->data->value(e->data, e->by[k].name, e->split, s->index));
    if (e->unit.name) dt_eval_column_add(&e->unit, e->data->value(e->data, e->unit.name, e->split, s->index));
    return DT_OK;
}

static void drop_table(dt_evaluator *e) {
    for (int k = 0; k < e->targets->n; k++) {
        // n_out and thresholds stay for the next evaluation
        eval_target *t = &e->each[k];
        free(t->logits);
        free(t->targets);
        free(t->labels);
        free(t->classes);
        free(t->losses);
        // freed here, and again by the next call: the pointers must not dangle
        t->logits = t->targets = NULL;
        t->labels = NULL;
        t->classes = NULL;
        t->losses = NULL;
    }
    for (int k = 0; k < e->n_by; k++) dt_eval_column_clear(&e->by[k]);
    e->n_by = 0;
    dt_eval_column_clear(&e->unit);
    free(e->embeddings);
    free(e->records);
    free(e->samples);
    e->samples = NULL;
    e->embeddings = NULL;
    e->records = NULL;
    e->n = e->cap = e->n_not_finite = 0;
}

// ---- values ----------------------------------------------------------------------------------------

static dt_eval_table table_of(const dt_evaluator *e, int k, dt_verification *pairs) {
    const eval_target *t = &e->each[k];
    *pairs = (dt_verification){.n_samples = -1}; // not compared yet: eer and pair_auc share the result
    return (dt_eval_table){.n = e->n,
                           .n_out = t->n_out,
                           .logits = t->logits,
                           .classes = t->classes,
                           .labels = t->labels,
                           .targets = t->targets,
                           .embeddings = e->embeddings,
                           .n_embedding = e->n_embedding,
                           // 0 without record numbers: no pair is excluded then
                           .records = e->width ? e->records : NULL,
                           .width = e->width,
                           .losses = t->losses,
                           .field = t->t->field,
                           .positive = e->metrics->positive[k],
                           .top_k = e->metrics->top_k,
                           .thresholds = t->thresholds,
                           .radians = e->metrics->radians,
                           .pairs = pairs};
}

// From the table of the validation part.
static void choose_thresholds(dt_evaluator *e) {
    dt_verification pairs;
    for (int k = 0; k < e->targets->n; k++) {
        // thresholds change what later metrics of the same table count as predicted
        const dt_eval_table table = table_of(e, k, &pairs);
        if (e->each[k].of_labels) dt_eval_choose_thresholds(&table, e->each[k].thresholds);
    }
}

static void report_target(const dt_evaluator *e, int k, dt_eval_result *out) {
    const eval_target *t = &e->each[k];
    dt_verification pairs;
    const dt_eval_table table = table_of(e, k, &pairs);
    // thresholds first: the metrics below depend on them
    if (t->of_labels && e->metrics->threshold.is_auto) dt_eval_write_thresholds(&table, out, &out->extra);
    dt_eval_report_table(&table, e->metrics->wanted[k], out);
    // the evaluation report needs the table while it exists
    if (e->report)
        dt_eval_report_add(e->report, e->targets->named ? t->t->field->name : NULL, &table, t->of_numbers, e->data,
                           e->split, e->samples);
    const int n_bootstrap = e->whole ? e->metrics->n_bootstrap : 0; // as many times the metrics: only at an end
    const dt_eval_column *unit = e->unit.name ? &e->unit : NULL;
    if (e->n_by > 0) dt_json_begin_object(&out->extra, "by");
    for (int i = 0; i < e->n_by; i++)
        dt_eval_report_by(&table, e->metrics->wanted[k], &e->by[i], n_bootstrap, unit, out);
    if (e->n_by > 0) dt_json_end_object(&out->extra);
    if (n_bootstrap > 0) dt_eval_bootstrap(&table, e->metrics->wanted[k], n_bootstrap, unit, out);
}

// The mean over the samples of the weighted sum over the targets.
static double mean_loss(const dt_evaluator *e) {
    double sum = 0;
    for (int64_t i = 0; i < e->n; i++)
        // losses are unweighted by class here; each target's weight is that of train.targets
        for (int k = 0; k < e->targets->n; k++) sum += (double)e->each[k].t->weight * e->each[k].losses[i];
    return sum / (double)e->n;
}

// "pose.accuracy", and what is no single number in an object "pose".
static void report_named(const dt_evaluator *e, int k, dt_eval_result *out) {
    const char *name = e->each[k].t->field->name;
    dt_eval_result own; // own: its names get the target's in front
    dt_eval_result_init(&own);
    report_target(e, k, &own);
    // of a single target it is the loss over all
    const bool is_all = e->targets->n == 1 && e->each[k].t->weight == 1;
    for (int i = 0; i < own.n_values; i++) {
        char *full = dt_xprintf("%s.%s", name, own.values[i].name);
        if (!is_all || strcmp(own.values[i].name, "loss") != 0 || strcmp(full, e->metrics->best_name) == 0)
            dt_eval_result_add(out, full, own.values[i].value);
        free(full);
    }
    if (*dt_eval_result_members(&own)) {
        // extra is an open object: closed here to be a member
        char *object = dt_xprintf("{%s}", dt_eval_result_members(&own));
        dt_json_raw(&out->extra, name, object);
        free(object);
    }
    dt_eval_result_fini(&own);
}

static void report_not_finite(const dt_evaluator *e, dt_eval_result *out) {
    const dt_dataset *d = e->data;
    uint32_t of[DT_MAX_WIDTH] = {0};
    const char *path, *key = NULL;
    // the key, where the data set has keys
    if (d->records && d->key && d->records(d, e->split, e->first_not_finite, of) > 0) key = d->key(d, of[0], &path);
    dt_warn("%lld of %lld predictions are not finite and count in no metric; the first is of "
            "sample %lld%s%s",
            (long long)e->n_not_finite, (long long)(e->n + e->n_not_finite), (long long)e->first_not_finite,
            key ? ", " : "", key ? key : "");
    dt_json_int(&out->extra, "n_not_finite", e->n_not_finite);
}

static dt_status evaluate_report(dt_evaluator *e, dt_eval_result *out) {
    if (e->n + e->n_not_finite == 0) return dt_fail(DT_E_DATA, "no record of the split could be read");
    if (e->n_not_finite > 0) report_not_finite(e, out);
    if (e->metrics->threshold.is_auto && e->split == DT_SPLIT_VAL) choose_thresholds(e);
    // one target without a name: values are plain, "accuracy"
    if (!e->targets->named) {
        report_target(e, 0, out);
        return DT_OK;
    }
    dt_eval_result_add(out, "loss", mean_loss(e)); // the only value over all targets: the sum that training minimises
    for (int k = 0; k < e->targets->n; k++) report_named(e, k, out);
    return DT_OK;
}

// A line a value: hex digits, which lose nothing, and the name.
static char *values_text(const dt_evaluator *e, const dt_eval_result *r) {
    // %a: hexadecimal floating point, read back bit for bit
    char *text = dt_xprintf("%lld %lld\n", (long long)e->n, (long long)e->n_not_finite);
    for (int i = 0; i < r->n_values; i++) {
        char *longer = dt_xprintf("%s%a %s\n", text, r->values[i].value, r->values[i].name);
        free(text);
        text = longer;
    }
    return text;
}

static void evaluate_read_values(dt_eval_result *r, char *text) {
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    r->n_samples = strtoll(line, &line, 10); // both numbers of the first line: strtoll moves line behind the first
    r->n_not_finite = strtoll(line, NULL, 10);
    while ((line = strtok_r(NULL, "\n", &rest))) {
        char *name = NULL;
        const double value = strtod(line, &name);
        dt_eval_result_add(r, name + 1, value); // name: behind the blank
    }
}

// Rank 0's values, or its failure, on all ranks.
static dt_status share_values(dt_evaluator *e, dt_status st, dt_eval_result *out) {
    dt_comm *c = e->comm;
    // text is NULL on other ranks and after a failure: dt_agree_result then shares the error alone
    char *text = c->rank == 0 && st == DT_OK ? values_text(e, out) : NULL;
    // of rank 0's table; evaluate_read_values sets them on the other ranks
    out->n_samples = e->n;
    out->n_not_finite = e->n_not_finite;
    st = dt_agree_result(c, st, &text);
    if (st == DT_OK && c->rank > 0) evaluate_read_values(out, text);
    free(text);
    return st;
}

static dt_status evaluate_collect(dt_evaluator *e, dt_dataset *data, dt_split split) {
    e->data = data;
    e->split = split;
    for (int k = 0; k < e->targets->n; k++)
        e->each[k].keeps_logits = dt_eval_keeps_logits(e->metrics, k, e->each[k].t, e->report != NULL);
    // collective: every rank runs its share of the batches, rank 0 takes the samples
    if (!e->combine.f) return dt_infer_run(e->infer, data, split, evaluate_take, e);
    const int64_t n = data->n_samples(data, split), most = e->combine.most;
    for (int64_t i = 0; i < n; i += most) {
        DT_TRY(e->combine.prepare(e->combine.ctx, i));
        dt_infer_set_range(e->infer, i, most);
        DT_TRY(dt_infer_run(e->infer, data, split, evaluate_take, e));
    }
    return DT_OK;
}

dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, bool whole, dt_eval_result *out) {
    dt_status st = DT_OK;
    *out = (dt_eval_result){0};
    e->whole = whole;
    (void)dt_failpoint("evaluate"); // tests hang or kill a rank here
    const double traced = dt_trace_begin();
    dt_eval_result_init(out);
    // thresholds: f1: the validation part is evaluated first, unless that is the split itself
    if (e->metrics->threshold.is_auto && split != DT_SPLIT_VAL && data->n_samples(data, DT_SPLIT_VAL) > 0) {
        st = evaluate_collect(e, data, DT_SPLIT_VAL);
        if (st == DT_OK) choose_thresholds(e);
        drop_table(e); // its rows must not stay in front of the split's
    }
    if (whole && data->value) {
        const dt_cnode *by = e->metrics->by;
        for (size_t i = 0; by && i < dt_cnode_size(by) && e->n_by < MOST_BY; i++)
            e->by[e->n_by++].name = dt_cnode_str(dt_cnode_item(by, i));
        if (e->metrics->n_bootstrap > 0) e->unit.name = e->metrics->bootstrap_unit;
    }
    if (st == DT_OK) st = evaluate_collect(e, data, split);
    if (st == DT_OK) {
        // rank 0 alone has the table
        if (e->comm->rank == 0) st = evaluate_report(e, out);
        st = share_values(e, st, out);
    }
    dt_trace_end("evaluation", "evaluation", traced);
    drop_table(e);
    if (st != DT_OK) dt_eval_result_fini(out); // on failure the caller has nothing to free
    return st;
}

// ---- life ------------------------------------------------------------------------------------------

static bool wants(const dt_evaluator *e, unsigned of) {
    for (int k = 0; k < e->targets->n; k++)
        for (int i = 0; i < DT_N_METRICS; i++)
            if (e->metrics->wanted[k][i] && (dt_metrics_table[i]->of & of)) return true;
    return false;
}

dt_status dt_evaluator_create(dt_evaluator **out, const dt_infer_opts *opts, const dt_targets *targets,
                              const dt_metric_choice *metrics) {
    dt_evaluator *e = dt_xcalloc(1, sizeof *e);
    dt_infer_opts o = *opts;
    e->metrics = metrics;
    e->targets = targets;
    e->comm = o.comm;
    for (int k = 0; k < targets->n; k++) {
        const dt_target *t = &targets->items[k];
        e->each[k] = (eval_target){.t = t, .output = o.n_outputs};
        e->each[k].of_classes = t->field->n_classes > 0;
        e->each[k].of_numbers = !e->each[k].of_classes && dt_losses[t->loss].gives_numbers;
        e->each[k].of_labels = dt_losses[t->loss].gives_labels;
        o.outputs[o.n_outputs++] = dt_target_logits(targets, t, e->each[k].name, sizeof e->each[k].name);
        o.wants_field[t->index] = true;
    }
    e->embedding = wants(e, DT_OF_PAIRS) ? o.n_outputs : -1;
    if (e->embedding >= 0) o.outputs[o.n_outputs++] = "embedding";
    const dt_status st = dt_infer_create(&e->infer, &o);
    if (st != DT_OK) {
        dt_evaluator_destroy(e);
        return st;
    }
    for (int k = 0; k < targets->n; k++) e->each[k].n_out = dt_infer_output_size(e->infer, e->each[k].output);
    if (e->embedding >= 0) e->n_embedding = dt_infer_output_size(e->infer, e->embedding);
    for (int k = 0; k < targets->n; k++) {
        eval_target *t = &e->each[k];
        t->thresholds = dt_xcalloc((size_t)t->n_out, sizeof *t->thresholds);
        for (int64_t i = 0; i < t->n_out; i++) t->thresholds[i] = dt_answer_or(metrics->threshold, 0.5);
    }
    *out = e;
    return DT_OK;
}

void dt_evaluator_set_thresholds(dt_evaluator *e, int k, const double *thresholds) {
    memcpy(e->each[k].thresholds, thresholds, (size_t)e->each[k].n_out * sizeof *thresholds);
}

void dt_evaluator_set_combine(dt_evaluator *e, const dt_evaluator_combine *c) {
    e->combine = *c;
    for (int k = 0; k < e->targets->n; k++) e->each[k].combined = dt_xcalloc((size_t)e->each[k].n_out, sizeof(float));
}

void dt_evaluator_keep_report(dt_evaluator *e, dt_json *j) {
    e->report = j;
}

void dt_evaluator_destroy(dt_evaluator *e) {
    if (!e) return;
    dt_infer_destroy(e->infer);
    for (int k = 0; k < e->targets->n; k++) {
        free(e->each[k].thresholds);
        free(e->each[k].combined);
    }
    free(e);
}

// ---- inference session ----------------------------------------------------------------------------------------------

// The weights, of the checkpoint that is there: a training beside may have removed the one that was found.
static dt_status session_load(dt_session *a) {
    dt_open_run *r = &a->run;
    dt_status st;
    while ((st = dt_state_load(a->state, r->checkpoint, false)) == DT_E_CKPT && r->checkpoint &&
           !dt_io_exists(r->checkpoint))
        DT_TRY(dt_run_find_again(r));
    return st;
}

dt_status dt_session_open(dt_session *a, const dt_trainer_args *args, const dt_run_request *q) {
    dt_run_request request = *q;
    request.use = DT_RUN_INFERENCE;
    *a = (dt_session){.begin_s = dt_clock_s()};
    DT_TRY(dt_run_open(&a->run, args, &request));
    if (request.own_data && a->run.record.data_fingerprint != a->run.data->fingerprint)
        dt_warn_alike("data, columns or split are not those of the training: the %s split may contain training samples",
                      dt_split_name(request.split));
    DT_TRY(dt_nets_make(&a->nets, &a->run, false));
    DT_TRY(dt_state_create(&a->state, &a->run, &a->nets));
    DT_TRY(session_load(a));
    DT_TRY(dt_memory_check_room(&a->nets, &a->run));
    return dt_team_create(&a->team, dt_run_team_threads(&a->run), "replica");
}

void dt_session_close(dt_session *a, dt_status st) {
    dt_team_destroy(a->team);
    dt_state_destroy(a->state);
    dt_nets_drop(&a->nets);
    dt_run_close(&a->run, st);
}

dt_infer_opts dt_session_infer_opts(const dt_session *a, const dt_net *of, const char *progress) {
    const dt_net net = of ? *of : dt_nets_last_evaluated(&a->nets);
    dt_infer_opts o = dt_nets_infer_opts(&a->nets, &a->run, net, a->team);
    o.progress = progress;
    return o;
}

// The thresholds of calibration.json are of calibrated probabilities; the evaluator compares uncalibrated ones.
static dt_status give_thresholds(const dt_session *a, dt_evaluator *e) {
    dt_status st = DT_OK;
    for (int k = 0; k < a->nets.targets.n && st == DT_OK; k++) {
        const dt_target *t = &a->nets.targets.items[k];
        const int64_t n = dt_target_n_out(t);
        if (!dt_losses[t->loss].gives_labels) continue;
        double temperature, *v = dt_xcalloc((size_t)n, sizeof *v);
        st = dt_calibration_read(a->run.config, a->run.record.step, t, &temperature, v);
        for (int64_t i = 0; i < n; i++) v[i] = dt_eval_sigmoid(temperature * log(v[i] / (1 - v[i])));
        dt_evaluator_set_thresholds(e, k, v);
        free(v);
    }
    return st;
}

dt_status dt_session_evaluator(const dt_session *a, const dt_net *net, const char *progress, dt_evaluator **out) {
    const dt_dataset *data = a->run.data;
    const dt_infer_opts o = dt_session_infer_opts(a, net, progress);
    dt_status st = DT_OK;
    char *nothing = NULL;
    DT_TRY(dt_evaluator_create(out, &o, &a->nets.targets, &a->nets.metrics));
    if (!a->nets.metrics.threshold.is_auto || data->n_samples(data, DT_SPLIT_VAL) > 0) return DT_OK;
    if (dt_run_is_root(&a->run)) st = give_thresholds(a, *out);
    st = dt_agree_result(a->run.comm, st, &nothing);
    if (st != DT_OK) {
        dt_evaluator_destroy(*out);
        *out = NULL;
    }
    return st;
}

// ---- dtrain eval -----------------------------------------------------------------------------------

// A row for each number, by its path in the JSON: "by.camera.left.accuracy,0.5".
static void flatten(json_t *v, const char *path, FILE *out) {
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_number(v) || json_is_null(v)) dt_text_print_cell(out, path);
    if (json_is_number(v)) fprintf(out, ",%.17g\n", json_number_value(v));
    if (json_is_null(v)) fputs(",\n", out);
    json_object_foreach(v, key, item) {
        char *inner = dt_xprintf("%s%s%s", path, *path ? "." : "", key);
        flatten(item, inner, out);
        free(inner);
    }
    // the pairs of "interval" are bounds, other arrays are lists
    const char *member = strstr(path, "interval.");
    const bool bounds = json_array_size(v) == 2 && member && (member == path || member[-1] == '.');
    json_array_foreach(v, i, item) {
        char *inner = bounds ? dt_xprintf("%s.%s", path, i ? "high" : "low") : dt_xprintf("%s.%zu", path, i);
        flatten(item, inner, out);
        free(inner);
    }
}

static dt_status write_csv(const char *path, const char *json) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out) return dt_fail(DT_E_INTERNAL, "out of memory");
    json_t *all = json_loads(json, 0, NULL);
    fputs("metric,value\n", out);
    flatten(all, "", out);
    json_decref(all);
    fclose(out);
    dt_status st = dt_io_write_file(path, text, n);
    free(text);
    return st;
}

dt_status dt_session_print(const dt_session *a, const char *csv, const dt_eval_result *result) {
    const dt_open_run *r = &a->run;
    dt_json j;
    if (!dt_run_is_root(r)) return DT_OK;
    dt_json_init(&j);
    // another set is evaluated as a whole
    const char *split = r->request.own_data ? dt_split_name(r->request.split) : "all";
    dt_eval_result_write(result, split, dt_run_which(r), r->record.step, &j);
    fputs(j.data, r->args.results);
    fflush(r->args.results);
    const dt_status st = csv ? write_csv(csv, j.data) : DT_OK;
    const double took_s = dt_clock_s() - a->begin_s;
    if (st == DT_OK)
        dt_info("%s: metrics of %" PRId64 " samples in %.1f s (%.0f samples/s)", csv ? csv : "stdout",
                result->n_samples, took_s, (double)result->n_samples / took_s);
    dt_json_fini(&j);
    return st;
}

dt_status dt_trainer_eval(const dt_trainer_args *args, const dt_eval_request *q) {
    dt_session a;
    dt_evaluator *e = NULL;
    dt_eval_result result;
    if (q->n_members > 1) return dt_predict_evaluate(q);
    dt_status st = dt_session_open(
        &a, args, &(dt_run_request){.which = q->which, .split = q->split, .raw = q->raw, .own_data = q->own_data});
    if (st == DT_OK) st = dt_session_evaluator(&a, NULL, "eval", &e);
    if (st == DT_OK) st = dt_evaluator_run(e, a.run.data, q->split, true, &result);
    if (st == DT_OK) {
        st = dt_session_print(&a, q->csv, &result);
        dt_eval_result_fini(&result);
    }
    dt_evaluator_destroy(e);
    dt_session_close(&a, st);
    return st;
}
