// metric_confusion.c: how often each class is taken for which: {"ant": {"ant": 9, "bee": 1}, …}, by true class and predicted
// one, without those that are 0, so that many classes are no large matrix.
#include "metrics/metric.h"

#include <stdlib.h>

static void metric_confusion_report(const dt_eval_table *t, dt_eval_result *out) {
    int64_t *count = dt_xcalloc((size_t)(t->n_out * t->n_out), sizeof *count);
    for (int64_t i = 0; i < t->n; i++) count[t->labels[i] * t->n_out + dt_eval_predicted(t, i, NULL)]++;
    dt_json_begin_object(&out->extra, "confusion");
    for (int64_t i = 0; i < t->n_out; i++) {
        dt_json_begin_object(&out->extra, dt_eval_name(t, i, out));
        for (int64_t k = 0; k < t->n_out; k++)
            if (count[i * t->n_out + k] > 0) dt_json_int(&out->extra, dt_eval_name(t, k, out), count[i * t->n_out + k]);
        dt_json_end_object(&out->extra);
    }
    dt_json_end_object(&out->extra);
    free(count);
}

const dt_metric dt_metric_confusion = {
    .of = DT_OF_CLASSES, .no_best = true, .most_out = 1000, .report = metric_confusion_report};
