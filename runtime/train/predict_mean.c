// predict_mean.c: see the header. Of a sample and target: Σ w, Σ w H, Σ w p, Σ w p².
#include "train/predict_mean.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

enum { WEIGHT, ENTROPY, SUMS };

typedef struct mean_column {
    int64_t n, stride;
    double *sums;             // (samples, stride)
    double *value, *variance; // of a row
} mean_column;

struct dt_predict_mean {
    const dt_predict_column *columns;
    int n_columns;
    int64_t n_samples;
    bool by_uncertainty;
    mean_column each[DT_MAX_TARGETS];
    char **why; // by sample, or NULL
};

dt_predict_mean *dt_predict_mean_create(const dt_predict_column *columns, int n_columns,
                                        int64_t n_samples, bool by_uncertainty) {
    dt_predict_mean *m = dt_xcalloc(1, sizeof *m);
    *m = (dt_predict_mean){columns, n_columns, n_samples, by_uncertainty, {{0}}, NULL};
    m->why = dt_xcalloc((size_t)n_samples + 1, sizeof *m->why);
    for (int i = 0; i < n_columns; i++) {
        const int64_t n = columns[i].n, stride = SUMS + 2 * n;
        m->each[i] =
            (mean_column){.n = n,
                          .stride = stride,
                          .sums = dt_xcalloc((size_t)(n_samples * stride) + 1, sizeof(double)),
                          .value = dt_xcalloc((size_t)n, sizeof(double)),
                          .variance = dt_xcalloc((size_t)n, sizeof(double))};
    }
    return m;
}

void dt_predict_mean_destroy(dt_predict_mean *m) {
    if (!m) return;
    for (int i = 0; i < m->n_columns; i++) {
        free(m->each[i].sums);
        free(m->each[i].value);
        free(m->each[i].variance);
    }
    for (int64_t i = 0; i < m->n_samples; i++) free(m->why[i]);
    free(m->why);
    free(m);
}

static double surprise(double p) {
    return p > 0 ? -p * log(p) : 0;
}

static double entropy(const dt_predict_column *c, const double *p) {
    double h = 0;
    for (int64_t k = 0; k < c->n && c->kind == DT_PREDICTS_CLASSES; k++) h += surprise(p[k]);
    for (int64_t k = 0; k < c->n && c->kind == DT_PREDICTS_LABELS; k++)
        h += surprise(p[k]) + surprise(1 - p[k]);
    return h;
}

void dt_predict_mean_add(dt_predict_mean *m, int64_t sample, int column, const double *value,
                         const int32_t *map) {
    const mean_column *e = &m->each[column];
    double *sums = e->sums + sample * e->stride;
    const double h = entropy(&m->columns[column], value);
    const double w = m->by_uncertainty ? 1 / (h + 1e-3) : 1;
    sums[WEIGHT] += w;
    sums[ENTROPY] += w * h;
    for (int64_t k = 0; k < e->n; k++) {
        sums[SUMS + map[k]] += w * value[k];
        sums[SUMS + e->n + map[k]] += w * value[k] * value[k];
    }
}

void dt_predict_mean_fail(dt_predict_mean *m, int64_t sample, const char *why) {
    if (!m->why[sample]) m->why[sample] = dt_xstrdup(why);
}

dt_predict_row dt_predict_mean_row(dt_predict_mean *m, int64_t sample) {
    dt_predict_row row = {.index = sample, .why = m->why[sample]};
    for (int i = 0; i < m->n_columns && !row.why; i++) {
        const mean_column *e = &m->each[i];
        const double *sums = e->sums + sample * e->stride;
        for (int64_t k = 0; k < e->n; k++) {
            const double mean = sums[SUMS + k] / sums[WEIGHT];
            const double v = sums[SUMS + e->n + k] / sums[WEIGHT] - mean * mean;
            e->value[k] = mean;
            e->variance[k] = v > 0 ? v : 0; // rounding
        }
        row.value[i] = e->value;
        row.variance[i] = e->variance;
        row.entropy[i] = entropy(&m->columns[i], e->value);
        const double information = row.entropy[i] - sums[ENTROPY] / sums[WEIGHT];
        row.information[i] = information > 0 ? information : 0;
    }
    return row;
}
