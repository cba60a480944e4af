// metric_errors.c: errors of numbers, in the field's unit: the mean absolute error, with that of each number, and
// the root of the mean square, over samples and numbers.
#include "train/metric.h"

#include <math.h>

static void add_absolute(const dt_scored *s, double *sum) {
    for (int64_t k = 0; k < s->n_out; k++) sum[k] += fabs(s->error[k]);
}

static void add_square(const dt_scored *s, double *sum) {
    for (int64_t k = 0; k < s->n_out; k++) *sum += s->error[k] * s->error[k];
}

static void report_absolute(const dt_totals *t, dt_eval_result *out) {
    double all = 0;
    if (t->n_out > 1) dt_json_begin_array(&out->extra, "mae_by_number");
    for (int64_t k = 0; k < t->n_out; k++) {
        all += t->sum[k];
        if (t->n_out > 1) dt_json_real(&out->extra, NULL, t->sum[k] / t->weight);
    }
    if (t->n_out > 1) dt_json_end_array(&out->extra);
    dt_eval_result_add(out, "mae", all / (t->weight * (double)t->n_out));
}

static void report_square(const dt_totals *t, dt_eval_result *out) {
    dt_eval_result_add(out, "rmse", sqrt(*t->sum / (t->weight * (double)t->n_out)));
}

const dt_metric dt_metric_mae = {.of = DT_OF_NUMBERS,
                                 .lower_is_better = true,
                                 .by_default = true,
                                 .width = 1,
                                 .power = 1,
                                 .add = add_absolute,
                                 .report = report_absolute};
const dt_metric dt_metric_rmse = {.of = DT_OF_NUMBERS,
                                  .lower_is_better = true,
                                  .by_default = true,
                                  .width = 1,
                                  .add = add_square,
                                  .report = report_square};
