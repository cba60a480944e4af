// table_parts.c: the values of a table, of parts of it (eval.by) and of samples drawn from it (eval.bootstrap). Metrics
// are functions of a table, so a part is a smaller table: nothing is added up twice.
#define _GNU_SOURCE // qsort_r

#include "base/hash.h"
#include "base/rng.h"
#include "metrics/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- parts of a table ----------------------------------------------------------------------------------------

static void *table_parts_gather(const void *from, const int64_t *rows, int64_t n, size_t row_bytes) {
    if (!from) return NULL;
    uint8_t *out = dt_xcalloc((size_t)n * row_bytes + 1, 1);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * row_bytes, (const uint8_t *)from + (size_t)rows[i] * row_bytes, row_bytes);
    return out;
}

// A table of these rows, with memory of its own.
static dt_eval_table take_rows(const dt_eval_table *t, const int64_t *rows, int64_t n, dt_verification *pairs) {
    const size_t n_out = (size_t)t->n_out;
    dt_eval_table out = *t;
    *pairs = (dt_verification){.n_samples = -1};
    out.n = n;
    out.pairs = pairs;
    out.logits = table_parts_gather(t->logits, rows, n, sizeof *t->logits * n_out);
    out.labels = table_parts_gather(t->labels, rows, n, sizeof *t->labels);
    out.targets = table_parts_gather(t->targets, rows, n, sizeof *t->targets * n_out);
    out.embeddings = table_parts_gather(t->embeddings, rows, n, sizeof *t->embeddings * (size_t)t->n_embedding);
    out.records = table_parts_gather(t->records, rows, n, sizeof *t->records * (size_t)t->width);
    out.losses = table_parts_gather(t->losses, rows, n, sizeof *t->losses);
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

void dt_eval_report_table(const dt_eval_table *t, const bool wanted[DT_N_METRICS], dt_eval_result *out) {
    const int before = out->n_values;
    for (int i = 0; i < DT_N_METRICS; i++)
        if (wanted[i]) dt_metrics_table[i]->report(t, out);
    for (int i = before; i < out->n_values && t->n == 0; i++) out->values[i].value = NAN;
}

// ---- by a column -----------------------------------------------------------------------------------

void dt_eval_column_add(dt_eval_column *c, const char *value) {
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

void dt_eval_column_clear(dt_eval_column *c) {
    free(c->of);
    free(c->values);
    *c = (dt_eval_column){0};
}

static int table_parts_by_value(const void *a, const void *b, void *values) {
    return strcmp(((const char **)values)[*(const int32_t *)a], ((const char **)values)[*(const int32_t *)b]);
}

static void report_value(const dt_eval_table *t, const bool wanted[DT_N_METRICS], const dt_eval_column *c,
                         int32_t value, int64_t *rows, dt_json *j) {
    int64_t n = 0;
    dt_verification pairs;
    dt_eval_result r;
    for (int64_t i = 0; i < t->n; i++)
        if (c->of[i] == value) rows[n++] = i;
    const dt_eval_table part = take_rows(t, rows, n, &pairs);
    dt_eval_result_init(&r);
    dt_eval_report_table(&part, wanted, &r);
    dt_json_begin_object(j, c->values[value]);
    dt_json_int(j, "samples", n);
    for (int i = 0; i < r.n_values; i++) dt_json_real(j, r.values[i].name, r.values[i].value);
    dt_json_end_object(j);
    dt_eval_result_fini(&r);
    free_rows(&part);
}

void dt_eval_report_by(const dt_eval_table *t, const bool wanted[DT_N_METRICS], const dt_eval_column *c,
                       dt_eval_result *out) {
    int64_t *rows = dt_xcalloc((size_t)t->n + 1, sizeof *rows);
    int32_t *order = dt_xcalloc((size_t)c->n_values + 1, sizeof *order);
    dt_eval_table whole = *t;
    dt_eval_occurs *occurs = dt_eval_find_occurs(t);
    whole.occurs = occurs;
    for (int32_t v = 0; v < c->n_values; v++) order[v] = v;
    qsort_r(order, (size_t)c->n_values, sizeof *order, table_parts_by_value, c->values);
    dt_json_begin_object(&out->extra, c->name);
    for (int32_t v = 0; v < c->n_values; v++) report_value(&whole, wanted, c, order[v], rows, &out->extra);
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

static unit_rows list_units(int64_t n, const dt_eval_column *c) {
    unit_rows u = {.n = c ? c->n_values : n};
    u.begin = dt_xcalloc((size_t)u.n + 2, sizeof *u.begin);
    u.rows = dt_xcalloc((size_t)n + 1, sizeof *u.rows);
    for (int64_t i = 0; i < n; i++) u.begin[(c ? c->of[i] : i) + 2]++;
    for (int64_t k = 2; k <= u.n + 1; k++) u.begin[k] += u.begin[k - 1];
    for (int64_t i = 0; i < n; i++) u.rows[u.begin[(c ? c->of[i] : i) + 1]++] = i;
    return u;
}

static void table_parts_draw(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int b, const unit_rows *u,
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
        for (int64_t k = u->begin[drawn[i]]; k < u->begin[drawn[i] + 1]; k++) rows[n++] = u->rows[k];
    const dt_eval_table part = take_rows(t, rows, n, &pairs);
    dt_eval_report_table(&part, wanted, out);
    free_rows(&part);
    free(drawn);
    free(rows);
}

static int table_parts_compare_reals(const void *a, const void *b) {
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
void dt_eval_bootstrap(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int n, const dt_eval_column *unit,
                       dt_eval_result *out) {
    const unit_rows units = list_units(t->n, unit);
    bool numbers[DT_N_METRICS];
    for (int i = 0; i < DT_N_METRICS; i++)
        numbers[i] = wanted[i] && !dt_metrics_table[i]->no_best && !(dt_metrics_table[i]->of & DT_OF_PAIRS);
    dt_eval_result *drawn = dt_xcalloc((size_t)n, sizeof *drawn), all;
    double *values = dt_xcalloc((size_t)n, sizeof *values);
    dt_eval_table whole = *t;
    dt_eval_occurs *occurs = dt_eval_find_occurs(t);
    whole.occurs = occurs;
#pragma omp parallel for schedule(static)
    for (int b = 0; b < n; b++) {
        dt_eval_result_init(&drawn[b]);
        table_parts_draw(&whole, numbers, b, &units, &drawn[b]);
    }
    dt_eval_result_init(&all);
    dt_eval_report_table(t, numbers, &all);
    dt_json_begin_object(&out->extra, "interval");
    for (int k = 0; k < all.n_values; k++) {
        int n_there = 0;
        for (int b = 0; b < n; b++) {
            values[n_there] = dt_eval_result_get(&drawn[b], all.values[k].name);
            n_there += !isnan(values[n_there]);
        }
        qsort(values, (size_t)n_there, sizeof *values, table_parts_compare_reals);
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
