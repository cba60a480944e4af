// metric_accuracy.c: how often the true class has the largest logit, or one of the five largest.
#include "train/metric.h"

enum { TOP = 5 };

static void add_first(const dt_scored *s, double *sum) {
    *sum += s->rank == 0;
}

static void add_top(const dt_scored *s, double *sum) {
    *sum += s->rank < TOP;
}

static void report_first(const dt_totals *t, dt_eval_result *out) {
    dt_eval_result_add(out, "accuracy", *t->sum / t->weight);
}

static void report_top(const dt_totals *t, dt_eval_result *out) {
    dt_eval_result_add(out, "top5", *t->sum / t->weight);
}

const dt_metric dt_metric_accuracy = {.of = DT_OF_CLASSES,
                                      .by_default = true,
                                      .width = 1,
                                      .counts = true,
                                      .add = add_first,
                                      .report = report_first};
const dt_metric dt_metric_top5 = {.of = DT_OF_CLASSES,
                                  .by_default = true,
                                  .least_out = TOP + 1,
                                  .width = 1,
                                  .counts = true,
                                  .add = add_top,
                                  .report = report_top};
