// eval_report.h: what an evaluation leaves for report.html, in a bounded record beside its metrics.
//
// evaluation-<split>.json holds {"schema", "step", "targets": [{"field" where targets are named, "confusion", "report",
// "curves": ROC and precision over recall of at most 8 classes, those of least recall, with their areas, "errors": for
// each of at most 12 numbers a histogram and "points" of truth and prediction, "wrong": the 24 worst samples with key,
// truth, prediction, loss and pictures, "uncertain": the 12 samples of least probability, likewise}]}. The newest of
// each split replaces the one before.
#ifndef DT_TRAIN_EVAL_REPORT_H
#define DT_TRAIN_EVAL_REPORT_H

#include "metrics/metric.h"

// Adds the object of a target to the array that `j` is in. field: its name, or NULL. samples: (t->n) their indices in
// the split. numbers: they are predicted, and not labels.
void dt_eval_report_add(dt_json *j, const char *field, const dt_eval_table *t, bool numbers, const dt_dataset *data,
                        dt_split split, const int64_t *samples);

#endif
