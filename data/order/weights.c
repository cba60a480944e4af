// weights.c: weights become running sums.
//
// A sample's weight is the product of its value in the weight column and a factor that gives the values of
// a column equal shares (or the datasets of data.path the shares that they ask for): one over the sum of
// its group. With both, each dataset is balanced within itself.
//
// Sums are integers: weights are scaled to a total of about 2^52 and rounded once, to at least 1 if they
// are above 0. So drawing is exact arithmetic, the same on every machine.
#include "weights.h"

#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct groups {
    uint32_t *of; // by sample
    double *sum;  // of weights, by group
    uint32_t n;
} groups;

// The first of the sample's records that has a value, else its first.
static uint32_t record_with(const dt_catalog *c, const dt_view *v, uint32_t sample, int column, int real) {
    const uint32_t *record = v->record + (size_t)sample * (size_t)v->width;
    for (int k = 0; k < v->width; k++) {
        if (column >= 0 && dt_catalog_cell(c, column, record[k]) != DT_NO_VALUE) return record[k];
        if (real >= 0 && !isnan(dt_catalog_real(c, real, record[k]))) return record[k];
    }
    return record[0];
}

// value NULL: the record has none.
static dt_status weights_fail_value(const dt_catalog *c, uint32_t record, const char *column, const char *value) {
    const char *quote = value ? "'" : "";
    return dt_fail(DT_E_DATA, "%s: record %s has %s%s%s in column %s, which says how often it is drawn%s",
                   c->shards[c->records[record].shard].path, dt_catalog_str(c, c->records[record].key), quote,
                   value ? value : "no value", quote, column,
                   value ? ": a weight is a number that is not negative" : "");
}

static dt_status column_weight(const dt_catalog *c, const dt_weight_spec *s, uint32_t record, double *out) {
    const char *column = "", *text = NULL;
    char number[32];
    *out = 1;
    if (s->real >= 0) {
        column = dt_catalog_str(c, c->reals[s->real].name);
        *out = dt_catalog_real(c, s->real, record);
        snprintf(number, sizeof number, "%g", *out);
        if (!isnan(*out)) text = number;
    } else if (s->column >= 0) {
        column = dt_catalog_str(c, c->columns[s->column].name);
        text = dt_catalog_value(c, s->column, record);
        char *end = NULL;
        *out = text ? strtod(text, &end) : NAN;
        if (text && (end == text || *end)) *out = NAN;
    }
    return *out >= 0 && isfinite(*out) ? DT_OK : weights_fail_value(c, record, column, text);
}

// One number for dataset and value of the balanced column.
static dt_status weights_group_of(const dt_catalog *c, const dt_weight_spec *s, uint32_t record, uint32_t *out) {
    uint32_t set = s->set_weight ? s->set_of_shard[c->records[record].shard] : 0, value = 0;
    if (s->balance >= 0) {
        value = dt_catalog_cell(c, s->balance, record);
        if (value == DT_NO_VALUE)
            return weights_fail_value(c, record, dt_catalog_str(c, c->columns[s->balance].name), NULL);
    }
    *out = set * (s->balance >= 0 ? c->columns[s->balance].n_values : 1) + value;
    return DT_OK;
}

// weight[i]: the column's value, then scaled by the group's factor.
static dt_status weights_weigh(double *weight, groups *g, const dt_catalog *c, const dt_view *v,
                               const uint32_t *samples, uint32_t n, const dt_weight_spec *s) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t record = record_with(c, v, samples[i], s->column, s->real);
        DT_TRY(column_weight(c, s, record, &weight[i]));
        record = record_with(c, v, samples[i], s->balance, -1);
        DT_TRY(weights_group_of(c, s, record, &g->of[i]));
        g->sum[g->of[i]] += weight[i];
    }
    if (s->balance < 0 && !s->set_weight) return DT_OK;
    uint32_t n_values = s->balance >= 0 ? c->columns[s->balance].n_values : 1;
    for (uint32_t set = 0; set * n_values < g->n; set++) {
        uint32_t n_present = 0; // groups of the set that have samples
        for (uint32_t k = 0; k < n_values; k++) n_present += g->sum[set * n_values + k] > 0;
        double share = s->set_weight ? s->set_weight[set] : 1;
        for (uint32_t k = 0; k < n_values; k++) {
            double *sum = &g->sum[set * n_values + k];
            *sum = *sum > 0 ? share / n_present / *sum : 0; // now a factor
        }
    }
    for (uint32_t i = 0; i < n; i++) weight[i] *= g->sum[g->of[i]];
    return DT_OK;
}

static dt_status weights_add_up(uint64_t **out, const double *weight, uint32_t n) {
    double total = 0;
    for (uint32_t i = 0; i < n; i++) total += weight[i];
    if (!(total > 0)) return dt_fail(DT_E_USAGE, "the weights of all %u training samples are 0", n);
    uint64_t *sums = dt_xcalloc(n, sizeof *sums), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double share = ldexp(weight[i] / total, 52);
        sum += weight[i] > 0 ? (share < 1 ? 1 : (uint64_t)llround(share)) : 0;
        sums[i] = sum;
    }
    *out = sums;
    return DT_OK;
}

dt_status dt_weights_make(uint64_t **out, const dt_catalog *c, const dt_view *v, const uint32_t *samples, uint32_t n,
                          const dt_weight_spec *s) {
    *out = NULL;
    if (n == 0 || (s->balance < 0 && s->column < 0 && s->real < 0 && !s->set_weight)) return DT_OK;
    double *weight = dt_xcalloc(n, sizeof *weight);
    uint32_t n_values = s->balance >= 0 ? c->columns[s->balance].n_values : 1;
    groups g = {.n = (s->set_weight ? s->n_sets : 1) * n_values};
    g.of = dt_xcalloc(n, sizeof *g.of);
    g.sum = dt_xcalloc((size_t)g.n + 1, sizeof *g.sum);
    dt_status st = weights_weigh(weight, &g, c, v, samples, n, s);
    if (st == DT_OK) st = weights_add_up(out, weight, n);
    free(g.of);
    free(g.sum);
    free(weight);
    return st;
}

dt_status dt_sampler_values_make(dt_sampler_values **out, const dt_catalog *c, const dt_view *v,
                                 const uint32_t *samples, uint32_t n, int column, uint32_t length) {
    const dt_weight_spec s = {.balance = column};
    const uint32_t n_values = c->columns[column].n_values;
    uint32_t *of = dt_xcalloc((size_t)n + 1, sizeof *of), present = 0, at = 0;
    dt_sampler_values *x = *out = dt_xcalloc(1, sizeof *x);
    dt_status st = DT_OK;
    x->length = length;
    x->begin = dt_xcalloc((size_t)n_values + 2, sizeof *x->begin);
    x->items = dt_xcalloc((size_t)n + 1, sizeof *x->items);
    for (uint32_t i = 0; i < n && st == DT_OK; i++)
        st = weights_group_of(c, &s, record_with(c, v, samples[i], column, -1), &of[i]);
    uint32_t *count = dt_xcalloc((size_t)n_values + 1, sizeof *count);
    for (uint32_t i = 0; i < n; i++) count[of[i]]++;
    for (uint32_t k = 0; k < n_values; k++) { // values of no sample are left out
        const uint32_t n_here = count[k];
        count[k] = at; // now where the next one goes
        if (n_here) x->begin[++present] = at += n_here;
    }
    for (uint32_t i = 0; i < n; i++) x->items[count[of[i]]++] = i;
    x->n = present;
    free(count);
    free(of);
    return st;
}

void dt_sampler_values_free(dt_sampler_values *v) {
    if (!v) return;
    free(v->begin);
    free(v->items);
    free(v);
}
