// metric_table.c: the table of outputs that metrics read: its parts, and the evaluation report.

#include "base/core.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/sort.h"
#include "metrics/eval_report.h"
#include "metrics/metric.h"
#include "observe/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- table parts --------------------------------------------------------------------------------------------------

// The values of a table, of parts of it (eval.by) and of samples drawn from it (eval.bootstrap). Metrics
// are functions of a table, so a part is a smaller table: nothing is added up twice.

// ---- parts of a table ----------------------------------------------------------------------------------------

// Rows of row_bytes each, in this order, may repeat.
static void *table_parts_gather(const void *from, const int64_t *rows, int64_t n, size_t row_bytes) {
    if (!from) return NULL; // what the table lacks the part lacks, too
    uint8_t *out = dt_xcalloc((size_t)n * row_bytes + 1, 1);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * row_bytes, (const uint8_t *)from + (size_t)rows[i] * row_bytes, row_bytes);
    return out;
}

// A table of these rows, with memory of its own.
static dt_eval_table take_rows(const dt_eval_table *t, const int64_t *rows, int64_t n, dt_verification *pairs) {
    const size_t n_out = (size_t)t->n_out;
    dt_eval_table out = *t;
    // not compared yet: pairs of a part are its own
    *pairs = (dt_verification){.n_samples = -1};
    out.n = n;
    out.pairs = pairs;
    // everything by sample is gathered; field, thresholds and occurs are shared with the whole
    out.logits = table_parts_gather(t->logits, rows, n, sizeof *t->logits * n_out);
    out.classes = table_parts_gather(t->classes, rows, n, sizeof *t->classes);
    out.labels = table_parts_gather(t->labels, rows, n, sizeof *t->labels);
    out.targets = table_parts_gather(t->targets, rows, n, sizeof *t->targets * n_out);
    out.embeddings = table_parts_gather(t->embeddings, rows, n, sizeof *t->embeddings * (size_t)t->n_embedding);
    out.records = table_parts_gather(t->records, rows, n, sizeof *t->records * (size_t)t->width);
    out.losses = table_parts_gather(t->losses, rows, n, sizeof *t->losses);
    return out;
}

// const only for readers of the table: take_rows allocated them.
static void free_rows(const dt_eval_table *t) {
    free((void *)t->logits);
    free((void *)t->classes);
    free((void *)t->labels);
    free((void *)t->targets);
    free((void *)t->embeddings);
    free((void *)t->records);
    free((void *)t->losses);
}

void dt_eval_report_table(const dt_eval_table *t, const bool wanted[DT_N_METRICS], dt_eval_result *out) {
    // behind what out has already: it may hold values of another target
    const int before = out->n_values;
    for (int i = 0; i < DT_N_METRICS; i++)
        if (wanted[i]) dt_metrics_table[i]->report(t, out);
    // without a sample each metric divides by 0 in its own way; NaN is what the header promises
    for (int i = before; i < out->n_values && t->n == 0; i++) out->values[i].value = NAN;
}

// ---- by a column -----------------------------------------------------------------------------------

void dt_eval_column_add(dt_eval_column *c, const char *value) {
    int32_t v = 0;
    if (!value) value = ""; // records without the column form a group of their own
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 1024;
        c->of = dt_xrealloc(c->of, sizeof *c->of * (size_t)c->cap);
    }
    // linear: columns to group by have few values
    while (v < c->n_values && strcmp(c->values[v], value) != 0) v++;
    if (v == c->n_values) {
        c->values = dt_xrealloc(c->values, sizeof *c->values * (size_t)(v + 1));
        c->values[c->n_values++] = value;
    }
    c->of[c->n++] = v;
}

void dt_eval_column_clear(dt_eval_column *c) {
    free(c->of);
    free(c->values);
    *c = (dt_eval_column){0};
}

// Order of text, so that the report does not depend on which sample comes first.
static int table_parts_by_value(const void *a, const void *b, void *values) {
    return strcmp(((const char **)values)[*(const int32_t *)a], ((const char **)values)[*(const int32_t *)b]);
}

// The column's values of these rows alone; of and values are heap.
static dt_eval_column take_units(const dt_eval_column *c, const int64_t *rows, int64_t n) {
    dt_eval_column out = {.name = c->name};
    for (int64_t i = 0; i < n; i++) dt_eval_column_add(&out, c->values[c->of[rows[i]]]);
    return out;
}

static void report_value(const dt_eval_table *t, const bool wanted[DT_N_METRICS], const dt_eval_column *c,
                         int32_t value, int n_bootstrap, const dt_eval_column *unit, int64_t *rows, dt_json *j) {
    int64_t n = 0;
    dt_verification pairs;
    dt_eval_result r, intervals; // not in r, whose other members, such as a matrix, are of the whole alone
    // ascending: a part has the order of the split
    for (int64_t i = 0; i < t->n; i++)
        if (c->of[i] == value) rows[n++] = i;
    const dt_eval_table part = take_rows(t, rows, n, &pairs);
    dt_eval_result_init(&r);
    dt_eval_report_table(&part, wanted, &r);
    dt_eval_column units = unit ? take_units(unit, rows, n) : (dt_eval_column){0};
    dt_eval_result_init(&intervals);
    if (n_bootstrap > 0) dt_eval_bootstrap(&part, wanted, n_bootstrap, unit ? &units : NULL, &intervals);
    dt_json_begin_object(j, c->values[value]); // the value itself is the member's name
    dt_json_int(j, "samples", n);
    for (int i = 0; i < r.n_values; i++) dt_json_real(j, r.values[i].name, r.values[i].value);
    if (n_bootstrap > 0) dt_json_raw(j, NULL, dt_eval_result_members(&intervals));
    dt_json_end_object(j);
    dt_eval_column_clear(&units);
    dt_eval_result_fini(&intervals);
    dt_eval_result_fini(&r);
    free_rows(&part);
}

void dt_eval_report_by(const dt_eval_table *t, const bool wanted[DT_N_METRICS], const dt_eval_column *c,
                       int n_bootstrap, const dt_eval_column *unit, dt_eval_result *out) {
    // one buffer for the parts, which have at most n rows
    int64_t *rows = dt_xcalloc((size_t)t->n + 1, sizeof *rows);
    int32_t *order = dt_xcalloc((size_t)c->n_values + 1, sizeof *order);
    dt_eval_table whole = *t;
    dt_eval_occurs *occurs = dt_eval_find_occurs(t);
    whole.occurs = occurs; // which classes the whole has: their means must be over the same ones
    for (int32_t v = 0; v < c->n_values; v++) order[v] = v;
    qsort_r(order, (size_t)c->n_values, sizeof *order, table_parts_by_value, c->values);
    dt_json_begin_object(&out->extra, c->name);
    for (int32_t v = 0; v < c->n_values; v++)
        report_value(&whole, wanted, c, order[v], n_bootstrap, unit, rows, &out->extra);
    dt_json_end_object(&out->extra);
    free(occurs);
    // c's values and rows stay the caller's
    free(order);
    free(rows);
}

// ---- bootstrap -------------------------------------------------------------------------------------

// The rows of each unit, one unit behind the other: those of unit u from begin[u] to begin[u + 1].
typedef struct unit_rows {
    int64_t n;
    int64_t *begin, *rows;
} unit_rows;

// Counting sort of the samples by unit, stable.
static unit_rows list_units(int64_t n, const dt_eval_column *c) {
    unit_rows u = {.n = c ? c->n_values : n};
    // + 2: counts are two places ahead, so that filling leaves begin[] right
    u.begin = dt_xcalloc((size_t)u.n + 2, sizeof *u.begin);
    u.rows = dt_xcalloc((size_t)n + 1, sizeof *u.rows);
    // without a column each sample is a unit
    for (int64_t i = 0; i < n; i++) u.begin[(c ? c->of[i] : i) + 2]++;
    for (int64_t k = 2; k <= u.n + 1; k++) u.begin[k] += u.begin[k - 1]; // sums: where each unit begins
    // moves begin[u + 1] to the unit's end, which is the next one's begin
    for (int64_t i = 0; i < n; i++) u.rows[u.begin[(c ? c->of[i] : i) + 1]++] = i;
    return u;
}

static void table_parts_draw(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int b, const unit_rows *u,
                             dt_eval_result *out) {
    // counters: resample b, place i; no state between draws
    const dt_rng rng = {0, (uint32_t)b, 0, dt_hash32("eval.bootstrap")};
    int64_t *drawn = dt_xcalloc((size_t)u->n + 1, sizeof *drawn), n = 0;
    dt_verification pairs;
    for (int64_t i = 0; i < u->n; i++) {
        drawn[i] = dt_rng_below(&rng, (uint32_t)i, (uint32_t)u->n); // with replacement: as many units as there are
        // units differ in size, so a resample may have more or fewer samples
        n += u->begin[drawn[i] + 1] - u->begin[drawn[i]];
    }
    int64_t *rows = dt_xcalloc((size_t)n + 1, sizeof *rows);
    n = 0;
    for (int64_t i = 0; i < u->n; i++)
        for (int64_t k = u->begin[drawn[i]]; k < u->begin[drawn[i] + 1]; k++) rows[n++] = u->rows[k];
    const dt_eval_table part = take_rows(t, rows, n, &pairs);
    dt_eval_report_table(&part, wanted, out);
    free_rows(&part);
    free(drawn);
    free(rows);
}

// Linear between the neighbours, as numpy's.
static double percentile(const double *sorted, int n, double p) {
    const double at = p * (n - 1); // numpy.percentile's method="linear"
    const int low = (int)floor(at), high = low + 1 < n ? low + 1 : low;
    return n ? sorted[low] + (at - low) * (sorted[high] - sorted[low]) : NAN;
}

// Percentile intervals of 95 % from n tables of as many samples, drawn with replacement (Efron, Tibshirani, "An
// introduction to the bootstrap", 1993, chapter 13): "interval": {"accuracy": [0.9, 0.95], …}. Not of pairs, whose
// samples are not independent. Draws are Philox by resample and place, so threads do not matter.
void dt_eval_bootstrap(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int n, const dt_eval_column *unit,
                       dt_eval_result *out) {
    const unit_rows units = list_units(t->n, unit);
    bool numbers[DT_N_METRICS];
    for (int i = 0; i < DT_N_METRICS; i++)
        // metrics of one number each; drawing samples twice makes pairs that are equal
        numbers[i] = wanted[i] && !dt_metrics_table[i]->no_best && !(dt_metrics_table[i]->of & DT_OF_PAIRS);
    dt_eval_result *drawn = dt_xcalloc((size_t)n, sizeof *drawn), all;
    double *values = dt_xcalloc((size_t)n, sizeof *values);
    // resamples may miss a rare class; the mean is then NaN, and left out below
    dt_eval_table whole = *t;
    dt_eval_occurs *occurs = dt_eval_find_occurs(t);
    whole.occurs = t->occurs ? t->occurs : occurs; // those of a part are the whole's
// each b writes drawn[b] alone: the result does not depend on the number of threads
#pragma omp parallel for schedule(static)
    for (int b = 0; b < n; b++) {
        dt_eval_result_init(&drawn[b]);
        table_parts_draw(&whole, numbers, b, &units, &drawn[b]);
    }
    dt_eval_result_init(&all);
    // the names, in their order; a resample may lack per-class values that the whole has
    dt_eval_report_table(t, numbers, &all);
    dt_json_begin_object(&out->extra, "interval");
    for (int k = 0; k < all.n_values; k++) {
        int n_there = 0;
        for (int b = 0; b < n; b++) {
            values[n_there] = dt_eval_result_get(&drawn[b], all.values[k].name);
            // NaN: the resample has no such value
            n_there += !isnan(values[n_there]);
        }
        qsort(values, (size_t)n_there, sizeof *values, dt_sort_reals);
        dt_json_begin_array(&out->extra, all.values[k].name);
        dt_json_real(&out->extra, NULL, percentile(values, n_there, 0.025)); // 95 %
        dt_json_real(&out->extra, NULL, percentile(values, n_there, 0.975));
        dt_json_end_array(&out->extra);
    }
    dt_json_end_object(&out->extra);
    for (int b = 0; b < n; b++) dt_eval_result_fini(&drawn[b]);
    dt_eval_result_fini(&all);
    free(occurs);
    free(values);
    free(drawn);
    free(units.begin);
    free(units.rows);
}

// ---- evaluation report -------------------------------------------------------------------------------------------

// numbers that keep the report small: points of a curve, histograms, their bins, samples shown
enum { CURVE_POINTS = 60, MOST_ERRORS = 12, N_BINS = 31, MOST_POINTS = 300, MOST_WORST = 24, MOST_UNCERTAIN = 12 };

// ---- curves ----------------------------------------------------------------------------------------

static void add_point(dt_json *j, double x, double y) {
    dt_json_begin_array(j, NULL);
    dt_json_real(j, NULL, rint(x * 1e4) / 1e4); // four digits: finer than a pixel of the drawing
    dt_json_real(j, NULL, rint(y * 1e4) / 1e4);
    dt_json_end_array(j);
}

// Thresholds between samples of equal score are no points of a curve; of the others about CURVE_POINTS are kept.
static void add_curve(dt_json *j, const dt_eval_scored *s, int64_t n, int64_t n_true, bool roc) {
    int64_t above_true = 0, next = 0;
    dt_json_begin_array(j, roc ? "roc" : "pr");
    add_point(j, 0, roc ? 0 : 1); // as scikit-learn's begin
    for (int64_t i = 0; i < n;) {
        const double score = s[i].score;
        for (; i < n && s[i].score == score; i++) above_true += s[i].truth;
        // the last point is always kept: the curve ends at (1, 1) or at the share of positives
        if (i < next && i < n) continue;
        next = i + (n + CURVE_POINTS - 1) / CURVE_POINTS;
        const double recall = (double)above_true / (double)n_true;
        if (roc)
            add_point(j, (double)(i - above_true) / (double)(n - n_true), recall); // false positive rate
        else
            add_point(j, recall, (double)above_true / (double)i);
    }
    dt_json_end_array(j);
}

// By row, what the logits of a sample exceed its log-probabilities by; heap. Sigmoids are in the order of the logits.
// log-probability = logit - log sum exp: keeps apart what rounds to 1 as a probability
static double *log_sums(const dt_eval_table *t) {
    double *out = dt_xcalloc((size_t)t->n + 1, sizeof *out);
    for (int64_t i = 0; i < t->n && t->labels; i++) {
        const dt_eval_class c = dt_eval_class_of(t, i);
        out[i] = (double)t->logits[i * t->n_out + c.predicted] + log(c.sum);
    }
    return out;
}

// The classes or labels that can have a curve: at most DT_REPORT_CURVES of them, those of least recall. Of two classes there
// is one curve.
static int64_t choose_outs(const dt_eval_table *t, dt_eval_scored *out) {
    dt_eval_count *counts = dt_eval_counts(t);
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        const dt_eval_count *c = &counts[k];
        if (c->truths == 0 || c->truths == t->n || (t->labels && t->n_out == 2 && k != t->positive)) continue;
        // lowest recall first: from_highest sorts by the negative
        out[n++] = (dt_eval_scored){-(double)c->hits / (double)c->truths, k, false};
    }
    free(counts);
    if (n <= DT_REPORT_CURVES) return n;
    qsort(out, (size_t)n, sizeof *out, dt_eval_from_highest);
    return DT_REPORT_CURVES;
}

static void add_curves(dt_json *j, const dt_eval_table *t, dt_eval_result *names) {
    double *sums = log_sums(t);
    dt_eval_scored *outs = dt_xcalloc((size_t)t->n_out + 1, sizeof *outs);
    dt_eval_scored *s = dt_xcalloc((size_t)t->n + 1, sizeof *s);
    const int64_t n = choose_outs(t, outs);
    dt_json_begin_array(j, "curves");
    for (int64_t c = 0; c < n; c++) {
        const int64_t k = outs[c].row;
        int64_t n_true = 0;
        for (int64_t i = 0; i < t->n; i++) {
            // score of class k: its log-probability, or the logit of a label
            s[i] = (dt_eval_scored){(double)t->logits[i * t->n_out + k] - sums[i], i, dt_eval_is_true(t, i, k)};
            n_true += s[i].truth;
        }
        double roc, pr;
        dt_eval_areas(s, t->n, &roc, &pr);
        dt_json_begin_object(j, NULL);
        dt_json_string(j, "name", dt_eval_name(t, k, names));
        dt_json_real(j, "auc", roc);
        dt_json_real(j, "ap", pr);
        add_curve(j, s, t->n, n_true, true);
        add_curve(j, s, t->n, n_true, false);
        dt_json_end_object(j);
    }
    dt_json_end_array(j);
    free(s);
    free(outs);
    free(sums);
}

static void add_errors(dt_json *j, const dt_eval_table *t, dt_eval_result *names) {
    dt_json_begin_array(j, "errors");
    for (int64_t k = 0; k < t->n_out && k < MOST_ERRORS; k++) {
        int64_t counts[N_BINS] = {0};
        double most = 0; // the histogram is as wide on both sides of 0
        // twice over the samples: the width is known only after the first
        for (int64_t i = 0; i < t->n; i++)
            most = fmax(most, fabs(dt_eval_number(t, i, k, true) - dt_eval_number(t, i, k, false)));
        for (int64_t i = 0; i < t->n && most > 0; i++) {
            const double e = dt_eval_number(t, i, k, true) - dt_eval_number(t, i, k, false);
            const int bin = (int)((e / most + 1) / 2 * N_BINS); // e = most falls behind the last bin
            counts[bin < N_BINS ? bin : N_BINS - 1]++;
        }
        dt_json_begin_object(j, NULL);
        dt_json_string(j, "name", dt_eval_name(t, k, names));
        dt_json_real(j, "from", -most);
        dt_json_real(j, "to", most);
        dt_json_begin_array(j, "counts");
        for (int b = 0; b < N_BINS && most > 0; b++) dt_json_int(j, NULL, counts[b]);
        dt_json_end_array(j);
        dt_json_begin_array(j, "points"); // [true, predicted]: every sample, or a part of them throughout the split
        for (int64_t i = 0; i < t->n; i += (t->n + MOST_POINTS - 1) / MOST_POINTS) {
            dt_json_begin_array(j, NULL);
            dt_json_real(j, NULL, dt_eval_number(t, i, k, false));
            dt_json_real(j, NULL, dt_eval_number(t, i, k, true));
            dt_json_end_array(j);
        }
        dt_json_end_array(j);
        dt_json_end_object(j);
    }
    dt_json_end_array(j);
}

// ---- the worst samples -----------------------------------------------------------------------------

// Of classes: the samples that are wrong, by how sure the network is, or of all samples those of which it is least sure;
// else all, by their loss.
static int64_t find_worst(const dt_eval_table *t, bool uncertain, dt_eval_scored *out) {
    const int64_t most = uncertain ? MOST_UNCERTAIN : MOST_WORST;
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        dt_eval_class c = {.rank = 1}; // labels and numbers: rank 1, so that every sample is a candidate
        if (t->labels) c = dt_eval_class_of(t, i);
        const double p = t->labels ? 1 / c.sum : t->losses[i];
        // sorted by confidence: sure and wrong comes first
        if (c.rank > 0 || uncertain) out[n++] = (dt_eval_scored){uncertain ? -p : p, i, c.rank == 0};
    }
    if (n > 0) qsort(out, (size_t)n, sizeof *out, dt_eval_from_highest);
    return n < most ? n : most;
}

// What is true of row i, or predicted: a class, numbers, or the labels that are true.
static void add_said(dt_json *j, const dt_eval_table *t, int64_t i, bool numbers, bool predicted,
                     dt_eval_result *names) {
    // a class is read from labels or logits by index: x is not read then
    const float *x = t->labels ? NULL : (predicted ? t->logits : t->targets) + i * t->n_out;
    char *text = dt_xstrdup("");
    if (t->labels)
        dt_xappend(&text, "%s", dt_eval_name(t, predicted ? dt_eval_class_of(t, i).predicted : t->labels[i], names));
    // 200 characters bound a cell of the report
    for (int64_t k = 0; !t->labels && k < t->n_out && strlen(text) < 200; k++) {
        const double p = predicted && !numbers ? dt_eval_sigmoid((double)x[k]) : (double)x[k];
        if (numbers)
            dt_xappend(&text, "%s%.*g", *text ? ", " : "", t->field ? dt_field_digits(t->field, k, 4) : 4,
                       dt_eval_number(t, i, k, predicted));
        else if (predicted ? dt_eval_is_predicted(t, p, k) : dt_eval_is_true(t, i, k))
            dt_xappend(&text, "%s%s", *text ? ", " : "", dt_eval_name(t, k, names));
    }
    dt_json_string(j, predicted ? "predicted" : "truth", *text ? text : "none");
    free(text);
}

static void add_key(dt_json *j, const dt_dataset *d, dt_split split, int64_t sample) {
    uint32_t of[DT_MAX_WIDTH];
    const char *path;
    const int n = d->records && d->key ? d->records(d, split, sample, of) : 0; // a data set without records is numbered
    char *text = dt_xprintf("%lld", (long long)sample);
    // several fields: the keys of their records, separated by commas
    for (int i = 0; i < n; i++) {
        if (i == 0) text[0] = '\0';
        dt_xappend(&text, "%s%s", i ? ", " : "", d->key(d, of[i], &path));
    }
    dt_json_string(j, "key", text);
    free(text);
}

static void add_worst(dt_json *j, const dt_eval_table *t, bool uncertain, bool numbers, const dt_dataset *d,
                      dt_split split, const int64_t *samples, dt_eval_result *names) {
    dt_eval_scored *worst = dt_xcalloc((size_t)t->n + 1, sizeof *worst);
    const int64_t n = find_worst(t, uncertain, worst);
    dt_json_begin_array(j, uncertain ? "uncertain" : "wrong");
    for (int64_t w = 0; w < n; w++) {
        const int64_t i = worst[w].row;
        dt_json_begin_object(j, NULL);
        add_key(j, d, split, samples[i]);
        add_said(j, t, i, numbers, false, names);
        add_said(j, t, i, numbers, true, names);
        if (t->labels) dt_json_real(j, "probability", fabs(worst[w].score));
        dt_json_real(j, "loss", t->losses[i]);
        dt_json_begin_array(j, "panels");
        // a sample without a picture is no error: the report shows its key
        if (d->picture && d->picture(d, split, samples[i], j) != DT_OK) dt_error_clear();
        dt_json_end_array(j);
        dt_json_end_object(j);
    }
    dt_json_end_array(j);
    free(worst);
}

// ---- a target --------------------------------------------------------------------------------------

void dt_eval_report_add(dt_json *j, const char *field, const dt_eval_table *t, bool numbers, const dt_dataset *data,
                        dt_split split, const int64_t *samples) {
    const unsigned of = t->labels ? DT_OF_CLASSES : numbers ? DT_OF_NUMBERS : DT_OF_LABELS;
    // tables of the report, whether eval.metrics lists them or not
    static const dt_metric_id tables[] = {DT_METRIC_confusion, DT_METRIC_report};
    dt_eval_result r; // of tables; and names live in it
    dt_eval_result_init(&r);
    dt_json_begin_object(j, NULL);
    if (field) dt_json_string(j, "field", field);
    add_worst(j, t, false, numbers, data, split, samples, &r);
    if (t->labels) add_worst(j, t, true, numbers, data, split, samples, &r);
    for (int i = 0; i < 2; i++) {
        const dt_metric *m = dt_metrics_table[tables[i]];
        // a report of many classes would be longer than anyone reads
        if ((m->of & of) && t->n_out <= m->most_out) m->report(t, &r);
    }
    if (*dt_eval_result_members(&r)) dt_json_raw(j, NULL, dt_eval_result_members(&r));
    if (of == DT_OF_NUMBERS)
        add_errors(j, t, &r);
    else if (t->logits)
        add_curves(j, t, &r);
    dt_json_end_object(j);
    dt_eval_result_fini(&r);
}
