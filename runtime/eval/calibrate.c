// calibrate.c: see the header. With s = 1/T the negative log-likelihood is convex in s; Newton's steps are taken in
// log T, which stays positive.
#include "eval/predict.h"

#include "base/core.h"
#include "base/formats.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "eval/evaluate.h"
#include "run/agree.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 100 };         // of Newton's method; about ten are usual
static const double MOST_LOG = 12; // |log T|

// Every second sample from `first` on, or all.
typedef struct half {
    int first, stride;
} half;
// a half has the even samples or the odd ones, so both see the whole order of the split
static const half HALVES[2] = {{0, 2}, {1, 2}}, ALL = {0, 1};

typedef struct fitted {
    const dt_target *t;
    int output; // of the inference's outputs: its logits
    char name[128];
    int64_t n_out;
    float *logits, *targets; // (samples, n_out)
    int32_t *labels;
    int n_threads;
} fitted;

typedef struct calibration {
    dt_session session;
    dt_infer *infer;
    fitted each[DT_MAX_TARGETS];
    int n;
    int64_t n_samples, n_not_finite; // n_samples: rows that are filled; both count on rank 0 alone
} calibration;

static dt_status calibrate_take(void *ctx, const dt_infer_sample *s) {
    calibration *c = ctx;
    if (s->why) return DT_OK; // a record that could not be read
    for (int k = 0; k < c->n; k++)
        // a target without a finite logit drops the sample for all, so that row i is the same sample everywhere
        if (!dt_infer_all_finite(s->output[c->each[k].output], c->each[k].n_out)) {
            c->n_not_finite++;
            return DT_OK;
        }
    const int64_t i = c->n_samples++;
    for (int k = 0; k < c->n; k++) {
        fitted *f = &c->each[k];
        const size_t n = (size_t)f->n_out * sizeof(float);
        memcpy(f->logits + i * f->n_out, s->output[f->output], n);
        // labels are classes here, targets the 0 or 1 of several labels
        if (f->labels)
            f->labels[i] = *(const int32_t *)s->field[f->t->index];
        else
            memcpy(f->targets + i * f->n_out, s->field[f->t->index], n);
    }
    return DT_OK;
}

// ---- the fit ---------------------------------------------------------------------------------------

// Adds the negative log-likelihood of a sample at s, and its first two derivatives.
static void add_class(const float *x, int64_t n, int32_t label, double s, double out[3]) {
    // log-sum-exp with the largest term taken out, so that exp cannot overflow
    double max = -INFINITY, z = 0, mean = 0, square = 0;
    for (int64_t k = 0; k < n; k++) max = s * (double)x[k] > max ? s * (double)x[k] : max;
    for (int64_t k = 0; k < n; k++) {
        const double e = exp(s * (double)x[k] - max);
        z += e; // the softmax expectations of x and x², not yet divided by z
        mean += e * (double)x[k];
        square += e * (double)x[k] * (double)x[k];
    }
    mean /= z;
    out[0] += max + log(z) - s * (double)x[label]; // -log softmax(s x)[label]
    out[1] += mean - (double)x[label];             // d/ds: the expected logit less the true class's
    out[2] += square / z - mean * mean;            // d²/ds²: the variance of the logits, never below 0
}

static void add_label(double x, double truth, double s, double out[3]) {
    const double u = s * x, p = dt_eval_sigmoid(u);
    out[0] += (u > 0 ? u : 0) - u * truth + log1p(exp(-fabs(u))); // softplus(u) - u truth, for large |u| too
    // the same derivatives for the sigmoid: p - truth, and p (1 - p)
    out[1] += x * (p - truth);
    out[2] += x * x * p * (1 - p);
}

static void likelihood(const fitted *f, half h, int64_t n, double s, double out[3]) {
    const int64_t n_terms = (n - h.first + h.stride - 1) / h.stride;
    double(*terms)[3] = dt_xcalloc((size_t)n_terms + 1, sizeof *terms);
#pragma omp parallel for schedule(static) num_threads(f->n_threads)
    for (int64_t j = 0; j < n_terms; j++) {
        const int64_t i = h.first + j * h.stride;
        const float *x = f->logits + i * f->n_out;
        if (f->labels) add_class(x, f->n_out, f->labels[i], s, terms[j]);
        for (int64_t k = 0; k < f->n_out && !f->labels; k++)
            add_label((double)x[k], (double)f->targets[i * f->n_out + k], s, terms[j]);
    }
    out[0] = out[1] = out[2] = 0;
    for (int64_t j = 0; j < n_terms; j++) // in the order of the split, whatever the threads
        for (int k = 0; k < 3; k++) out[k] += terms[j][k];
    free(terms);
}

static double calibrate_fit(const fitted *f, half h, int64_t n) {
    double log_s = 0, d[3]; // d: nll, d/ds, d²/ds²
    for (int i = 0; i < MOST_STEPS; i++) {
        const double s = exp(log_s);
        likelihood(f, h, n, s, d);
        const double slope = s * d[1], bend = s * s * d[2] + slope; // chain rule: d/d(log s) = s d/ds
        // where the curve bends the other way in log s, the curvature in s still points downhill
        double step = -slope / (bend > 0 ? bend : s * s * d[2] + 1e-12);
        step = step > 1 ? 1 : step < -1 ? -1 : step; // at most a factor of e per step
        const double before = log_s;
        // separable samples would drive T to 0, unusable ones to infinity
        log_s = fmin(fmax(log_s + step, -MOST_LOG), MOST_LOG);
        // at the bound there is no step
        if (fabs(log_s - before) < 1e-12) break;
    }
    return exp(-log_s); // T = 1/s
}

// The calibration error where each half has its temperature; with file also the thresholds, as a member.
static double report_at(const fitted *f, int64_t n, const double t_of[2], dt_json *file) {
    // of classes only what counts of a sample is kept: its logits may be thousands
    const int64_t n_rows = f->labels ? 1 : n;
    float *x = dt_xcalloc((size_t)(n_rows * f->n_out) + 1, sizeof *x);
    dt_eval_class *classes = f->labels ? dt_xcalloc((size_t)n + 1, sizeof *classes) : NULL;
    double *thresholds = dt_xcalloc((size_t)f->n_out, sizeof *thresholds);
    for (int64_t i = 0; i < n; i++) {
        float *row = x + i % n_rows * f->n_out;
        // sample i has the temperature of its half
        for (int64_t k = 0; k < f->n_out; k++) row[k] = (float)((double)f->logits[i * f->n_out + k] / t_of[i % 2]);
        if (classes) classes[i] = dt_eval_classify(row, f->n_out, f->labels[i], false);
    }
    const dt_eval_table t = {.n = n,
                             .n_out = f->n_out,
                             .logits = classes ? NULL : x,
                             .classes = classes,
                             .labels = f->labels,
                             .targets = f->targets,
                             .field = f->t->field,
                             .thresholds = thresholds}; // overwritten where file is given, unused by ece
    dt_eval_result r;
    dt_eval_result_init(&r);
    dt_metrics_table[DT_METRIC_ece]->report(&t, &r);
    const double value = dt_eval_result_get(&r, "ece");
    if (file) {
        // of the calibrated probabilities, as dt_calibration_read returns them
        dt_eval_choose_thresholds(&t, thresholds);
        dt_eval_write_thresholds(&t, &r, file);
    }
    dt_eval_result_fini(&r);
    free(thresholds);
    free(classes);
    free(x);
    return value;
}

// ---- files -----------------------------------------------------------------------------------------

static char *file_of(const dt_config *c) {
    return dt_xprintf("%s/%s/calibration.json", c->run.dir, c->run.name);
}

// *all: the file's object, empty where it is no JSON; NULL: there is no file.
static dt_status calibrate_load(json_t **all, const char *path) {
    char *text = NULL;
    size_t n;
    *all = NULL;
    if (!dt_io_exists(path)) return DT_OK;
    DT_TRY(dt_io_read_own(&text, &n, path, 0, DT_E_CKPT));
    *all = json_loads(text, 0, NULL);
    if (!*all) *all = json_object();
    free(text);
    return dt_format_check(path, json_integer_value(json_object_get(*all, "format")), DT_FORMAT_CALIBRATION, NULL);
}

// A newer file is not replaced.
static dt_status calibrate_check_old(const dt_open_run *run) {
    char *path = file_of(run->config), *nothing = NULL;
    json_t *old = NULL;
    const dt_status st = dt_run_is_root(run) ? calibrate_load(&old, path) : DT_OK;
    json_decref(old);
    free(path);
    return dt_agree_result(run->comm, st, &nothing);
}

// What a temperature is worth is measured on samples that did not choose it: each half has that of the other.
static void calibrate_describe(const fitted *f, int64_t n, bool f1, dt_json *file, dt_json *line) {
    static const double ONE[2] = {1, 1};
    const char *name = f->t->field->name;
    double d[3], nll[2] = {0, 0}, others[2], ece[2], t = calibrate_fit(f, ALL, n);
    // nll at the smallest T: 0 if every sample's own class has the largest logit
    likelihood(f, ALL, n, exp(MOST_LOG), d);
    const bool all_right = d[0] < 1e-12 * (double)n; // the smaller T, the likelier
    for (int i = 0; i < 2; i++) {                    // half i is measured with the temperature of the other half
        others[i] = calibrate_fit(f, HALVES[1 - i], n);
        likelihood(f, HALVES[i], n, 1, d); // T = 1
        // sums of both halves over n: the mean of all samples
        nll[0] += d[0] / (double)n;
        likelihood(f, HALVES[i], n, 1 / others[i], d);
        nll[1] += d[0] / (double)n;
    }
    ece[0] = report_at(f, n, ONE, NULL), ece[1] = report_at(f, n, others, NULL); // [0] as trained, [1] calibrated
    const bool better = nll[1] < nll[0] && !all_right;
    if (all_right)
        dt_info("%s: all of the validation split is right, so that no temperature is the best: it stays 1", name);
    else if (!better)
        dt_info("%s: temperature %g does not lower the nll of held-out samples (%.6g, %.6g with it; ece %.4g, %.4g "
                "with it): the temperature stays 1",
                name, t, nll[0], nll[1], ece[0], ece[1]);
    if (!better) t = 1; // the file states T = 1 rather than lack the target
    dt_json_begin_object(file, name);
    dt_json_real(file, "temperature", t);
    // labels with eval.threshold: f1
    if (f1 && dt_losses[f->t->loss].gives_labels) report_at(f, n, (const double[2]){t, t}, file);
    dt_json_end_object(file);
    dt_json_begin_object(line, name);
    dt_json_real(line, "temperature", t);
    dt_json_real(line, "ece_before", ece[0]);
    dt_json_real(line, "ece", ece[better]); // ece[better]: without a gain the uncalibrated figures hold
    dt_json_real(line, "nll_before", nll[0]);
    dt_json_real(line, "nll", nll[better]);
    dt_json_end_object(line);
    // d[1] / t is the slope in log s: not 0 at the bound means that the optimum lies beyond
    likelihood(f, ALL, n, 1 / t, d);
    if (fabs(log(t)) > MOST_LOG - 1e-9 && fabs(d[1] / t) > 1e-9 * (double)n)
        dt_warn("%s: no temperature is the best (%g is at the bound)", name, t);
}

static dt_status calibrate_report(calibration *c) {
    const dt_open_run *run = &c->session.run;
    const int64_t step = run->record.step;
    // the file is written on rank 0 alone; nothing of it remains where no sample could be used
    if (c->n_samples == 0 && c->n_not_finite > 0) return dt_fail(DT_E_NUMERIC, "no prediction of the split is finite");
    if (c->n_samples == 0) return dt_fail(DT_E_DATA, "no record of the split could be read");
    if (c->n_not_finite > 0) dt_warn("%lld predictions are not finite, and left out", (long long)c->n_not_finite);
    dt_json file, line;
    dt_json_init(&file);
    dt_json_init(&line);
    dt_json_begin_object(&file, NULL);
    dt_json_begin_object(&line, NULL);
    dt_json_string(&line, "split", dt_split_name(DT_SPLIT_VAL));
    dt_json_int(&line, "samples", c->n_samples);
    dt_json_int(&line, "step", step);
    dt_json_int(&file, "format", DT_FORMAT_CALIBRATION);
    dt_json_int(&file, "step", step); // dt_calibration_read does not apply another checkpoint's
    const bool f1 = run->config->eval.threshold.is_auto;
    for (int k = 0; k < c->n; k++) calibrate_describe(&c->each[k], c->n_samples, f1, &file, &line);
    dt_json_end_object(&file);
    dt_json_end_object(&line);
    dt_json_newline(&file);
    dt_json_newline(&line);
    char *path = file_of(run->config);
    dt_status st = dt_io_write_file(path, file.data, file.n_bytes);
    if (st == DT_OK) fputs(line.data, run->args.results); // the line is printed only if the file is on disk
    free(path);
    dt_json_fini(&file);
    dt_json_fini(&line);
    return st;
}

// eval.threshold, or what the target's object of the file has for it.
static dt_status read_thresholds(const dt_config *c, const dt_target *t, json_t *from, double *thresholds) {
    const bool f1 = c->eval.threshold.is_auto;
    char number[24];
    for (int64_t k = 0; k < dt_target_n_out(t); k++) {
        // a label without a name is a number in the file, as dt_eval_name writes it
        snprintf(number, sizeof number, "%lld", (long long)k);
        const char *name = dt_field_name_of(t->field, k);
        const json_t *v = json_object_get(json_object_get(from, "thresholds"), name ? name : number);
        if (f1 && !json_is_number(v))
            return dt_config_fail(c, "eval.threshold",
                                  "eval.threshold: f1 chooses on the run's validation split, once for each checkpoint: "
                                  "dtrain eval %s/%s --calibrate eval.threshold=f1, or give a number",
                                  c->run.dir, c->run.name);
        thresholds[k] = f1 ? json_number_value(v) : dt_answer(c->eval.threshold);
    }
    return DT_OK;
}

dt_status dt_calibration_read(const dt_config *c, int64_t step, const dt_target *t, double *temperature,
                              double *thresholds) {
    char *path = file_of(c);
    json_t *all;
    *temperature = 1;
    dt_status st = calibrate_load(&all, path);
    json_t *own = json_object_get(all, t->field->name);
    const double found = json_number_value(json_object_get(own, "temperature"));
    // calibrated for an older or newer checkpoint
    const bool stale = all && json_integer_value(json_object_get(all, "step")) != step;
    // 0 of a missing or malformed number
    if (st == DT_OK && all && !(found > 0))
        st = dt_fail(DT_E_CKPT, "%s: has no temperature of %s: calibrate again, or remove it", path, t->field->name);
    else if (st == DT_OK && stale)
        dt_warn("%s is of another checkpoint than step %lld, and is not applied", path, (long long)step);
    else if (st == DT_OK && all)
        *temperature = found;
    // stale: thresholds must not come from another checkpoint
    if (st == DT_OK && thresholds) st = read_thresholds(c, t, stale ? NULL : own, thresholds);
    json_decref(all);
    free(path);
    return st;
}

// ---- the run ---------------------------------------------------------------------------------------

// The table is on rank 0 as a whole, since each step of the fit reads all of it.
static dt_status check_room(const calibration *c, int64_t n_samples, int64_t n_out, bool classes) {
    // of labels also the true values, and once more the logits for the calibration error
    const uint64_t n_bytes = (uint64_t)n_samples * (uint64_t)n_out * sizeof(float) * (classes ? 1 : 3);
    dt_memory m;
    dt_memory_read(&m);
    if (!dt_run_is_root(&c->session.run)) return DT_OK;
    dt_status st = dt_memory_room(n_bytes, "logits");
    if (st == DT_OK && m.total_bytes > 0 && n_bytes > m.available_bytes)
        st = dt_fail(DT_E_INTERNAL, "%llu MiB of memory are free", (unsigned long long)m.available_bytes >> 20);
    if (st == DT_OK) return st;
    return dt_fail_context(st, "--calibrate keeps the outputs of the validation split, %lld samples x %lld: %llu MiB",
                           (long long)n_samples, (long long)n_out, (unsigned long long)n_bytes >> 20);
}

static dt_status calibrate_choose(calibration *c, dt_infer_opts *o) {
    dt_dataset *data = c->session.run.data;
    const dt_targets *targets = &c->session.nets.targets;
    const int64_t n = data->n_samples(data, DT_SPLIT_VAL);
    char *nothing = NULL;
    for (int i = 0; i < targets->n; i++) {
        const dt_target *t = &targets->items[i];
        const bool classes = t->field->n_classes > 0;
        if (!classes && !dt_losses[t->loss].gives_labels) continue; // numbers have no probabilities
        DT_TRY(dt_agree_result(c->session.run.comm, check_room(c, n, dt_target_n_out(t), classes), &nothing));
        fitted *f = &c->each[c->n++];
        *f = (fitted){.t = t,
                      .output = o->n_outputs,
                      .n_out = dt_target_n_out(t),
                      .n_threads = o->n_replicas * o->replica_threads};
        // room for the whole split: calibrate_take fills it in order
        f->logits = dt_xcalloc((size_t)(n * f->n_out) + 1, sizeof *f->logits);
        if (classes) f->labels = dt_xcalloc((size_t)n + 1, sizeof *f->labels);
        if (!classes) f->targets = dt_xcalloc((size_t)(n * f->n_out) + 1, sizeof *f->targets);
        o->outputs[o->n_outputs++] = dt_target_logits(targets, t, f->name, sizeof f->name);
        o->wants_field[t->index] = true; // its true values come with the sample
    }
    if (c->n > 0) return DT_OK;
    c->session.run.comm->shared_failure = true; // every rank fails alike here, so no error exchange is due
    return dt_fail(DT_E_USAGE, "--calibrate is for classes and labels, and the run predicts none");
}

static dt_status calibrate_target(calibration *c) {
    dt_infer_opts o = dt_session_infer_opts(&c->session, NULL, "calibrate");
    DT_TRY(calibrate_choose(c, &o));
    DT_TRY(calibrate_check_old(&c->session.run));
    DT_TRY(dt_infer_create(&c->infer, &o));
    DT_TRY(dt_infer_run(c->infer, c->session.run.data, DT_SPLIT_VAL, calibrate_take, c));
    return dt_run_is_root(&c->session.run) ? calibrate_report(c) : DT_OK; // the table is on rank 0
}

dt_status dt_trainer_calibrate(const dt_trainer_args *a, const char *which) {
    calibration c = {.n = 0};
    const dt_run_request q = {.which = which, .split = DT_SPLIT_VAL, .own_data = true};
    dt_status st = dt_session_open(&c.session, a, &q);
    if (st == DT_OK) st = calibrate_target(&c);
    dt_infer_destroy(c.infer);
    for (int k = 0; k < c.n; k++) {
        free(c.each[k].logits);
        free(c.each[k].targets);
        free(c.each[k].labels);
    }
    dt_session_close(&c.session, st);
    return st;
}
