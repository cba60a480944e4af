// eval_parts.h: what the metrics say of an evaluation's table, of parts of it, and of samples drawn from it.
//
// Metrics are functions of a table, so a part is a smaller table: nothing is added up twice. All of it is a function of
// the table alone.
#ifndef DT_TRAIN_EVAL_PARTS_H
#define DT_TRAIN_EVAL_PARTS_H

#include "train/metric.h"

// A column of the catalog, by sample. Names and values are borrowed.
typedef struct dt_eval_column {
    const char *name;
    int32_t *of; // (n) indices into values
    int64_t n, cap;
    const char **values; // distinct
    int32_t n_values;
} dt_eval_column;
void dt_eval_column_add(dt_eval_column *c,
                        const char *value);   // of the next sample; NULL: it has none
void dt_eval_column_clear(dt_eval_column *c); // keeps the name

// All metrics wanted, in the order of metrics.def. Of no sample they are NaN.
void dt_eval_report(const dt_eval_table *t, const bool wanted[DT_N_METRICS], dt_eval_result *out);
// Their values for the samples of each value of the column: "camera": {"left": {"samples": 9, "accuracy": 1}, …}, a
// member of out->extra.
void dt_eval_report_by(const dt_eval_table *t, const bool wanted[DT_N_METRICS],
                       const dt_eval_column *c, dt_eval_result *out);
// Percentile intervals of 95 % from n tables of as many samples, drawn with replacement (Efron, Tibshirani, "An
// introduction to the bootstrap", 1993, chapter 13): "interval": {"accuracy": [0.9, 0.95], …}. Not of pairs, whose
// samples are not independent. unit: the samples of a value of the column are drawn together, as many values as there
// are; NULL: each sample by itself.
void dt_eval_bootstrap(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int n,
                       const dt_eval_column *unit, dt_eval_result *out);

#endif
