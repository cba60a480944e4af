// metric_accuracy.c: how often the true class has the largest logit, or one of the k largest.
#include "metrics/metric.h"

enum { TOP = 5 };

static double share_within(const dt_eval_table *t, int64_t top) {
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t rank;
        dt_eval_predicted(t, i, &rank);
        n += rank < top;
    }
    return (double)n / (double)t->n;
}

static void report_first(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "accuracy", share_within(t, 1));
}

static void report_top(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "top5", share_within(t, TOP));
}

static void report_top_k(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "top_k", share_within(t, t->top_k));
}

const dt_metric dt_metric_accuracy = {.of = DT_OF_CLASSES, .by_default = true, .report = report_first};
const dt_metric dt_metric_top5 = {.of = DT_OF_CLASSES, .by_default = true, .least_out = TOP + 1, .report = report_top};
const dt_metric dt_metric_top_k = {.of = DT_OF_CLASSES, .report = report_top_k};
