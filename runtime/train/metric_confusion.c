// metric_confusion.c: how often each class is taken for which: matrix[class][predicted].
#include "train/metric.h"

static void add(const dt_scored *s, double *sum) {
    sum[s->label * s->n_out + s->predicted] += 1;
}

static void report(const dt_totals *t, dt_eval_result *out) {
    dt_json_begin_array(&out->extra, "confusion");
    for (int64_t i = 0; i < t->n_out; i++) {
        dt_json_begin_array(&out->extra, NULL);
        for (int64_t k = 0; k < t->n_out; k++)
            dt_json_int(&out->extra, NULL, (int64_t)t->sum[i * t->n_out + k]);
        dt_json_end_array(&out->extra);
    }
    dt_json_end_array(&out->extra);
}

const dt_metric dt_metric_confusion = {.of = DT_OF_CLASSES,
                                       .no_best = true,
                                       .most_out = 1000,
                                       .width = 1,
                                       .power = 2,
                                       .counts = true,
                                       .add = add,
                                       .report = report};
