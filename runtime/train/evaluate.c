// evaluate.c: from a network's outputs to a table, and from the table to values: of the whole, of parts of it (eval.by),
// and of samples drawn from it (eval.bootstrap). Metrics are functions of a table, so a part is a smaller table: nothing
// is added up twice.
#define _GNU_SOURCE // qsort_r

#include "train/evaluate.h"

#include "base/arena.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/trace.h"
#include "graph/losses.h"
#include "train/agree.h"
#include "train/batch_inputs.h"
#include "train/evidence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BY = 16 };

// A column of the catalog, by sample. Names and values are borrowed.
typedef struct eval_column {
    const char *name;
    int32_t *of; // (n) indices into values
    int64_t n, cap;
    const char **values; // distinct
    int32_t n_values;
} eval_column;

// A target, and its part of the table of the evaluation in progress.
typedef struct eval_target {
    const dt_target *t;
    bool of_classes, of_numbers, of_labels; // the kind of the target
    int output;                             // index of its logits among the graph's outputs
    char name[128];                         // name of these logits
    int64_t n_out;
    double *thresholds; // (n_out)
    float *logits, *targets;
    int32_t *labels;
    double *losses;
} eval_target;

struct dt_evaluator {
    dt_infer *infer;
    dt_comm *comm;
    const dt_metric_choice *metrics;
    const dt_targets *targets;
    eval_target each[DT_MAX_TARGETS];
    int embedding;       // output; -1: not asked for
    int64_t n_embedding; // 0: not asked for
    // the evaluation in progress, on rank 0
    const dt_dataset *data;
    dt_split split;
    int64_t n, cap;
    int64_t n_not_finite;     // predictions that are not in the table
    int64_t first_not_finite; // its index in the split
    float *embeddings;
    uint32_t *records;
    int64_t *samples; // in the split
    int width;
    bool whole;
    eval_column by[MOST_BY];
    eval_column unit; // eval.bootstrap_unit; without a name: none
    int n_by;
    dt_json *evidence; // where it goes, or NULL
};

// ---- parts of a table ----------------------------------------------------------------------------------------

static void *gather(const void *from, const int64_t *rows, int64_t n, size_t row_bytes) {
    if (!from) return NULL;
    uint8_t *out = dt_xcalloc((size_t)n * row_bytes + 1, 1);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * row_bytes, (const uint8_t *)from + (size_t)rows[i] * row_bytes,
               row_bytes);
    return out;
}

// A table of these rows, with memory of its own.
static dt_eval_table take_rows(const dt_eval_table *t, const int64_t *rows, int64_t n,
                               dt_verification *pairs) {
    const size_t n_out = (size_t)t->n_out;
    dt_eval_table out = *t;
    *pairs = (dt_verification){.n_samples = -1};
    out.n = n;
    out.pairs = pairs;
    out.logits = gather(t->logits, rows, n, sizeof *t->logits * n_out);
    out.labels = gather(t->labels, rows, n, sizeof *t->labels);
    out.targets = gather(t->targets, rows, n, sizeof *t->targets * n_out);
    out.embeddings = gather(t->embeddings, rows, n, sizeof *t->embeddings * (size_t)t->n_embedding);
    out.records = gather(t->records, rows, n, sizeof *t->records * (size_t)t->width);
    out.losses = gather(t->losses, rows, n, sizeof *t->losses);
    return out;
}

static void free_rows(const dt_eval_table *t) {
    free((void *)t->logits);
    free((void *)t->labels);
    free((void *)t->targets);
    free((void *)t->embeddings);
    free((void *)t->records);
    free((void *)t->losses);
}

// All metrics wanted, in the order of metrics.def. Of no sample they are NaN.
static void report_table(const dt_eval_table *t, const bool wanted[DT_N_METRICS],
                         dt_eval_result *out) {
    const int before = out->n_values;
    for (int i = 0; i < DT_N_METRICS; i++)
        if (wanted[i]) dt_metrics_table[i]->report(t, out);
    for (int i = before; i < out->n_values && t->n == 0; i++) out->values[i].value = NAN;
}

// ---- by a column -----------------------------------------------------------------------------------

// Adds the column's value for the next sample; NULL: the sample has none.
static void add_to_column(eval_column *c, const char *value) {
    int32_t v = 0;
    if (!value) value = "";
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 1024;
        c->of = dt_xrealloc(c->of, sizeof *c->of * (size_t)c->cap);
    }
    while (v < c->n_values && strcmp(c->values[v], value) != 0) v++;
    if (v == c->n_values) {
        c->values = dt_xrealloc(c->values, sizeof *c->values * (size_t)(v + 1));
        c->values[c->n_values++] = value;
    }
    c->of[c->n++] = v;
}

static void clear_column(eval_column *c) {
    free(c->of);
    free(c->values);
    *c = (eval_column){0};
}

static int by_value(const void *a, const void *b, void *values) {
    return strcmp(((const char **)values)[*(const int32_t *)a],
                  ((const char **)values)[*(const int32_t *)b]);
}

static void report_value(const dt_eval_table *t, const bool wanted[DT_N_METRICS],
                         const eval_column *c, int32_t value, int64_t *rows, dt_json *j) {
    int64_t n = 0;
    dt_verification pairs;
    dt_eval_result r;
    for (int64_t i = 0; i < t->n; i++)
        if (c->of[i] == value) rows[n++] = i;
    const dt_eval_table part = take_rows(t, rows, n, &pairs);
    dt_eval_result_init(&r);
    report_table(&part, wanted, &r);
    dt_json_begin_object(j, c->values[value]);
    dt_json_int(j, "samples", n);
    for (int i = 0; i < r.n_values; i++) dt_json_real(j, r.values[i].name, r.values[i].value);
    dt_json_end_object(j);
    dt_eval_result_fini(&r);
    free_rows(&part);
}

// The values of all metrics wanted for the samples of each value of the column: "camera": {"left": {"samples": 9,
// "accuracy": 1}, …}, a member of out->extra.
static void report_by(const dt_eval_table *t, const bool wanted[DT_N_METRICS], const eval_column *c,
                      dt_eval_result *out) {
    int64_t *rows = dt_xcalloc((size_t)t->n + 1, sizeof *rows);
    int32_t *order = dt_xcalloc((size_t)c->n_values + 1, sizeof *order);
    dt_eval_table whole = *t;
    dt_eval_occurs *occurs = dt_eval_find_occurs(t);
    whole.occurs = occurs;
    for (int32_t v = 0; v < c->n_values; v++) order[v] = v;
    qsort_r(order, (size_t)c->n_values, sizeof *order, by_value, c->values);
    dt_json_begin_object(&out->extra, c->name);
    for (int32_t v = 0; v < c->n_values; v++)
        report_value(&whole, wanted, c, order[v], rows, &out->extra);
    dt_json_end_object(&out->extra);
    free(occurs);
    free(order);
    free(rows);
}

// ---- bootstrap -------------------------------------------------------------------------------------

// The rows of each unit, one unit behind the other: those of unit u from begin[u] to begin[u + 1].
typedef struct unit_rows {
    int64_t n;
    int64_t *begin, *rows;
} unit_rows;

static unit_rows list_units(int64_t n, const eval_column *c) {
    unit_rows u = {.n = c ? c->n_values : n};
    u.begin = dt_xcalloc((size_t)u.n + 2, sizeof *u.begin);
    u.rows = dt_xcalloc((size_t)n + 1, sizeof *u.rows);
    for (int64_t i = 0; i < n; i++) u.begin[(c ? c->of[i] : i) + 2]++;
    for (int64_t k = 2; k <= u.n + 1; k++) u.begin[k] += u.begin[k - 1];
    for (int64_t i = 0; i < n; i++) u.rows[u.begin[(c ? c->of[i] : i) + 1]++] = i;
    return u;
}

static void draw(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int b, const unit_rows *u,
                 dt_eval_result *out) {
    const dt_rng rng = {0, (uint32_t)b, 0, dt_hash32("eval.bootstrap")};
    int64_t *drawn = dt_xcalloc((size_t)u->n + 1, sizeof *drawn), n = 0;
    dt_verification pairs;
    for (int64_t i = 0; i < u->n; i++) {
        drawn[i] = dt_rng_below(&rng, (uint32_t)i, (uint32_t)u->n);
        n += u->begin[drawn[i] + 1] - u->begin[drawn[i]];
    }
    int64_t *rows = dt_xcalloc((size_t)n + 1, sizeof *rows);
    n = 0;
    for (int64_t i = 0; i < u->n; i++)
        for (int64_t k = u->begin[drawn[i]]; k < u->begin[drawn[i] + 1]; k++)
            rows[n++] = u->rows[k];
    const dt_eval_table part = take_rows(t, rows, n, &pairs);
    report_table(&part, wanted, out);
    free_rows(&part);
    free(drawn);
    free(rows);
}

static int compare_reals(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Linear between the neighbours, as numpy's.
static double percentile(const double *sorted, int n, double p) {
    const double at = p * (n - 1);
    const int low = (int)floor(at), high = low + 1 < n ? low + 1 : low;
    return n ? sorted[low] + (at - low) * (sorted[high] - sorted[low]) : NAN;
}

// Percentile intervals of 95 % from n tables of as many samples, drawn with replacement (Efron, Tibshirani, "An
// introduction to the bootstrap", 1993, chapter 13): "interval": {"accuracy": [0.9, 0.95], …}. Not of pairs, whose
// samples are not independent. Draws are Philox by resample and place, so threads do not matter.
// unit: the samples of a value of the column are drawn together, as many values as there are; NULL: each sample by
// itself.
static void bootstrap(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int n,
                      const eval_column *unit, dt_eval_result *out) {
    const unit_rows units = list_units(t->n, unit);
    bool numbers[DT_N_METRICS];
    for (int i = 0; i < DT_N_METRICS; i++)
        numbers[i] =
            wanted[i] && !dt_metrics_table[i]->no_best && !(dt_metrics_table[i]->of & DT_OF_PAIRS);
    dt_eval_result *drawn = dt_xcalloc((size_t)n, sizeof *drawn), all;
    double *values = dt_xcalloc((size_t)n, sizeof *values);
    dt_eval_table whole = *t;
    dt_eval_occurs *occurs = dt_eval_find_occurs(t);
    whole.occurs = occurs;
#pragma omp parallel for schedule(static)
    for (int b = 0; b < n; b++) {
        dt_eval_result_init(&drawn[b]);
        draw(&whole, numbers, b, &units, &drawn[b]);
    }
    dt_eval_result_init(&all);
    report_table(t, numbers, &all);
    dt_json_begin_object(&out->extra, "interval");
    for (int k = 0; k < all.n_values; k++) {
        int n_there = 0;
        for (int b = 0; b < n; b++) {
            values[n_there] = dt_eval_result_get(&drawn[b], all.values[k].name);
            n_there += !isnan(values[n_there]);
        }
        qsort(values, (size_t)n_there, sizeof *values, compare_reals);
        dt_json_begin_array(&out->extra, all.values[k].name);
        dt_json_real(&out->extra, NULL, percentile(values, n_there, 0.025));
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

// ---- the loss of a sample --------------------------------------------------------------------------

// Cross-entropy of logits x with a class (q NULL) or shares q of the classes, smoothed as in training; classes have no
// weights here.
static double cross_entropy(const eval_target *e, const float *x, int32_t label, const float *q) {
    const int64_t n = e->n_out;
    double max = -INFINITY, z = 0;
    dt_loss_parts m = {.u = 1};
    for (int64_t k = 0; k < n; k++) max = (double)x[k] > max ? (double)x[k] : max;
    for (int64_t k = 0; k < n; k++) {
        const double share = q ? (double)q[k] : k == label;
        z += exp((double)x[k] - max);
        m.q += share;
        m.qx += share * (double)x[k];
        m.ux += (double)x[k] / (double)n;
    }
    m.lse = max + log(z);
    return dt_loss_cross_entropy(m, (double)e->t->smoothing);
}

static double loss_of(const eval_target *e, const float *x, const void *target) {
    const dt_loss_id id = e->t->loss;
    const double p = (double)e->t->param;
    if (dt_losses[id].softmax) {
        const bool classes = e->of_classes;
        const double ce = cross_entropy(e, x, classes ? *(const int32_t *)target : 0,
                                        classes ? NULL : (const float *)target);
        return dt_loss_value(id, ce, 0, p);
    }
    return dt_loss_of_elements(id, x, target, e->n_out, p, NULL);
}

// ---- the table -------------------------------------------------------------------------------------

static void *grown(void *p, int64_t cap, int64_t n, size_t size) {
    return n > 0 ? dt_xrealloc(p, (size_t)(cap * n) * size) : NULL;
}

static void make_room(dt_evaluator *e) {
    if (e->n < e->cap) return;
    e->cap = e->cap ? 2 * e->cap : 1024;
    e->embeddings = grown(e->embeddings, e->cap, e->n_embedding, sizeof *e->embeddings);
    e->records = grown(e->records, e->cap, DT_MAX_WIDTH, sizeof *e->records);
    e->samples = grown(e->samples, e->cap, 1, sizeof *e->samples);
    for (int k = 0; k < e->targets->n; k++) {
        eval_target *t = &e->each[k];
        t->logits = grown(t->logits, e->cap, t->n_out, sizeof *t->logits);
        t->targets = grown(t->targets, e->cap, t->of_classes ? 0 : t->n_out, sizeof *t->targets);
        t->labels = grown(t->labels, e->cap, t->of_classes, sizeof *t->labels);
        t->losses = grown(t->losses, e->cap, 1, sizeof *t->losses);
    }
}

// Numbers were normalised for the network: in the table they are in the field's unit.
static void take_numbers(const eval_target *e, float *out, const float *x, bool predicted) {
    const dt_field_info *f = e->t->field;
    if (predicted && dt_losses[e->t->loss].exponent) { // numbers as they are
        for (int64_t k = 0; k < e->n_out; k++) out[k] = expf(x[k]);
        return;
    }
    for (int64_t k = 0; k < e->n_out; k++)
        out[k] = e->of_numbers ? dt_field_value(f, k, x[k]) : x[k];
}

static void take_target(eval_target *e, int64_t i, const float *x, const void *target) {
    e->losses[i] = loss_of(e, x, target);
    take_numbers(e, e->logits + i * e->n_out, x, true);
    if (e->of_classes)
        e->labels[i] = *(const int32_t *)target;
    else
        take_numbers(e, e->targets + i * e->n_out, target, false);
}

// A prediction that is not finite would be in some metrics and not in others: it is in none.
static bool is_finite(const dt_evaluator *e, int64_t i) {
    bool finite =
        !e->n_embedding || dt_infer_all_finite(e->embeddings + i * e->n_embedding, e->n_embedding);
    for (int k = 0; k < e->targets->n; k++) {
        const eval_target *t = &e->each[k];
        finite &= isfinite(t->losses[i]) && dt_infer_all_finite(t->logits + i * t->n_out, t->n_out);
    }
    return finite;
}

static dt_status take(void *ctx, const dt_infer_sample *s) {
    dt_evaluator *e = ctx;
    if (s->why) return DT_OK;
    make_room(e);
    const int64_t i = e->n;
    for (int k = 0; k < e->targets->n; k++) {
        eval_target *t = &e->each[k];
        const void *target = s->field[t->t->index];
        if (!t->of_classes) DT_TRY(dt_target_check(t->t, target, s->index));
        take_target(t, i, s->output[t->output], target);
    }
    if (e->n_embedding)
        memcpy(e->embeddings + i * e->n_embedding, s->output[e->embedding],
               sizeof(float) * (size_t)e->n_embedding);
    if (!is_finite(e, i)) {
        if (e->n_not_finite++ == 0) e->first_not_finite = s->index;
        return DT_OK;
    }
    e->n++;
    e->samples[i] = s->index;
    uint32_t of[DT_MAX_WIDTH] = {0};
    if (e->data->records) e->width = e->data->records(e->data, e->split, s->index, of);
    memcpy(e->records + i * e->width, of, sizeof *of * (size_t)e->width);
    for (int k = 0; k < e->n_by; k++)
        add_to_column(&e->by[k], e->data->value(e->data, e->by[k].name, e->split, s->index));
    if (e->unit.name)
        add_to_column(&e->unit, e->data->value(e->data, e->unit.name, e->split, s->index));
    return DT_OK;
}

static void drop_table(dt_evaluator *e) {
    for (int k = 0; k < e->targets->n; k++) {
        eval_target *t = &e->each[k];
        free(t->logits);
        free(t->targets);
        free(t->labels);
        free(t->losses);
        t->logits = t->targets = NULL;
        t->labels = NULL;
        t->losses = NULL;
    }
    for (int k = 0; k < e->n_by; k++) clear_column(&e->by[k]);
    e->n_by = 0;
    clear_column(&e->unit);
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
    *pairs = (dt_verification){.n_samples = -1};
    return (dt_eval_table){.n = e->n,
                           .n_out = t->n_out,
                           .logits = t->logits,
                           .labels = t->labels,
                           .targets = t->targets,
                           .embeddings = e->embeddings,
                           .n_embedding = e->n_embedding,
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
        const dt_eval_table table = table_of(e, k, &pairs);
        if (e->each[k].of_labels) dt_eval_choose_thresholds(&table, e->each[k].thresholds);
    }
}

static void report_target(const dt_evaluator *e, int k, dt_eval_result *out) {
    const eval_target *t = &e->each[k];
    dt_verification pairs;
    const dt_eval_table table = table_of(e, k, &pairs);
    if (t->of_labels && e->metrics->threshold.is_auto)
        dt_eval_write_thresholds(&table, out, &out->extra);
    report_table(&table, e->metrics->wanted[k], out);
    if (e->evidence)
        dt_evidence_add(e->evidence, e->targets->named ? t->t->field->name : NULL, &table,
                        t->of_numbers, e->data, e->split, e->samples);
    if (e->n_by > 0) dt_json_begin_object(&out->extra, "by");
    for (int i = 0; i < e->n_by; i++) report_by(&table, e->metrics->wanted[k], &e->by[i], out);
    if (e->n_by > 0) dt_json_end_object(&out->extra);
    if (e->whole && e->metrics->n_bootstrap > 0)
        bootstrap(&table, e->metrics->wanted[k], e->metrics->n_bootstrap,
                  e->unit.name ? &e->unit : NULL, out);
}

// The mean over the samples of the weighted sum over the targets.
static double mean_loss(const dt_evaluator *e) {
    double sum = 0;
    for (int64_t i = 0; i < e->n; i++)
        for (int k = 0; k < e->targets->n; k++)
            sum += (double)e->each[k].t->weight * e->each[k].losses[i];
    return sum / (double)e->n;
}

// "pose.accuracy", and what is no single number in an object "pose".
static void report_named(const dt_evaluator *e, int k, dt_eval_result *out) {
    const char *name = e->each[k].t->field->name;
    dt_eval_result own;
    dt_eval_result_init(&own);
    report_target(e, k, &own);
    for (int i = 0; i < own.n_values; i++) {
        char *full = dt_xprintf("%s.%s", name, own.values[i].name);
        dt_eval_result_add(out, full, own.values[i].value);
        free(full);
    }
    if (*dt_eval_result_members(&own)) {
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
    if (d->records && d->key && d->records(d, e->split, e->first_not_finite, of) > 0)
        key = d->key(d, of[0], &path);
    dt_warn("%lld of %lld predictions are not finite and count in no metric; the first is of "
            "sample %lld%s%s",
            (long long)e->n_not_finite, (long long)(e->n + e->n_not_finite),
            (long long)e->first_not_finite, key ? ", " : "", key ? key : "");
    dt_json_int(&out->extra, "n_not_finite", e->n_not_finite);
}

static dt_status report(dt_evaluator *e, dt_eval_result *out) {
    if (e->n + e->n_not_finite == 0)
        return dt_fail(DT_E_DATA, "no record of the split could be read");
    if (e->n_not_finite > 0) report_not_finite(e, out);
    if (e->metrics->threshold.is_auto && e->split == DT_SPLIT_VAL) choose_thresholds(e);
    if (!e->targets->named) {
        report_target(e, 0, out);
        return DT_OK;
    }
    dt_eval_result_add(out, "loss", mean_loss(e));
    for (int k = 0; k < e->targets->n; k++) report_named(e, k, out);
    return DT_OK;
}

// A line a value: hex digits, which lose nothing, and the name.
static char *values_text(const dt_evaluator *e, const dt_eval_result *r) {
    char *text = dt_xprintf("%lld %lld\n", (long long)e->n, (long long)e->n_not_finite);
    for (int i = 0; i < r->n_values; i++) {
        char *longer = dt_xprintf("%s%a %s\n", text, r->values[i].value, r->values[i].name);
        free(text);
        text = longer;
    }
    return text;
}

static void read_values(dt_eval_result *r, char *text) {
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    r->n_samples = strtoll(line, &line, 10);
    r->n_not_finite = strtoll(line, NULL, 10);
    while ((line = strtok_r(NULL, "\n", &rest))) {
        char *name = NULL;
        const double value = strtod(line, &name);
        dt_eval_result_add(r, name + 1, value);
    }
}

// Rank 0's values, or its failure, on all ranks.
static dt_status share_values(dt_evaluator *e, dt_status st, dt_eval_result *out) {
    dt_comm *c = e->comm;
    char *text = c->rank == 0 && st == DT_OK ? values_text(e, out) : NULL;
    out->n_samples = e->n;
    out->n_not_finite = e->n_not_finite;
    st = dt_agree_result(c, st, &text);
    if (st == DT_OK && c->rank > 0) read_values(out, text);
    free(text);
    return st;
}

static void list_columns(dt_evaluator *e) {
    const dt_cnode *by = e->metrics->by;
    for (size_t i = 0; by && i < dt_cnode_size(by) && e->n_by < MOST_BY; i++)
        e->by[e->n_by++].name = dt_cnode_str(dt_cnode_item(by, i));
    if (e->metrics->n_bootstrap > 0) e->unit.name = e->metrics->bootstrap_unit;
}

static dt_status collect(dt_evaluator *e, dt_dataset *data, dt_split split) {
    e->data = data;
    e->split = split;
    return dt_infer_run(e->infer, data, split, take, e);
}

dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, bool whole,
                           dt_eval_result *out) {
    dt_status st = DT_OK;
    *out = (dt_eval_result){0};
    e->whole = whole;
    (void)dt_failpoint("evaluate");
    const double traced = dt_trace_begin();
    dt_eval_result_init(out);
    if (e->metrics->threshold.is_auto && split != DT_SPLIT_VAL &&
        data->n_samples(data, DT_SPLIT_VAL) > 0) {
        st = collect(e, data, DT_SPLIT_VAL);
        if (st == DT_OK) choose_thresholds(e);
        drop_table(e);
    }
    if (whole && data->value) list_columns(e);
    if (st == DT_OK) st = collect(e, data, split);
    if (st == DT_OK) {
        if (e->comm->rank == 0) st = report(e, out);
        st = share_values(e, st, out);
    }
    dt_trace_end("evaluation", "evaluation", traced);
    drop_table(e);
    if (st != DT_OK) dt_eval_result_fini(out);
    return st;
}

// ---- life ------------------------------------------------------------------------------------------

static bool wants(const dt_evaluator *e, unsigned of) {
    for (int k = 0; k < e->targets->n; k++)
        for (int i = 0; i < DT_N_METRICS; i++)
            if (e->metrics->wanted[k][i] && (dt_metrics_table[i]->of & of)) return true;
    return false;
}

dt_status dt_evaluator_create(dt_evaluator **out, const dt_infer_opts *opts,
                              const dt_targets *targets, const dt_metric_choice *metrics) {
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
        o.outputs[o.n_outputs++] =
            dt_target_logits(targets, t, e->each[k].name, sizeof e->each[k].name);
        o.wants_field[t->index] = true;
    }
    e->embedding = wants(e, DT_OF_PAIRS) ? o.n_outputs : -1;
    if (e->embedding >= 0) o.outputs[o.n_outputs++] = "embedding";
    const dt_status st = dt_infer_create(&e->infer, &o);
    if (st != DT_OK) {
        dt_evaluator_destroy(e);
        return st;
    }
    for (int k = 0; k < targets->n; k++)
        e->each[k].n_out = dt_infer_output_size(e->infer, e->each[k].output);
    if (e->embedding >= 0) e->n_embedding = dt_infer_output_size(e->infer, e->embedding);
    for (int k = 0; k < targets->n; k++) {
        eval_target *t = &e->each[k];
        t->thresholds = dt_xcalloc((size_t)t->n_out, sizeof *t->thresholds);
        for (int64_t i = 0; i < t->n_out; i++)
            t->thresholds[i] = dt_answer_or(metrics->threshold, 0.5);
    }
    *out = e;
    return DT_OK;
}

void dt_evaluator_set_thresholds(dt_evaluator *e, int k, const double *thresholds) {
    memcpy(e->each[k].thresholds, thresholds, (size_t)e->each[k].n_out * sizeof *thresholds);
}

void dt_evaluator_keep_evidence(dt_evaluator *e, dt_json *j) {
    e->evidence = j;
}

void dt_evaluator_destroy(dt_evaluator *e) {
    if (!e) return;
    dt_infer_destroy(e->infer);
    for (int k = 0; k < e->targets->n; k++) free(e->each[k].thresholds);
    free(e);
}
