// metric_errors.c: errors of numbers, in the field's unit: the mean absolute error, with that of each number,
// the root of the mean square, over samples and numbers, and the share of the variance that is explained.
#include "metrics/metric.h"

#include <math.h>

static double error(const dt_eval_table *t, int64_t i, int64_t k) {
    return dt_eval_number(t, i, k, true) - dt_eval_number(t, i, k, false);
}

static void report_absolute(const dt_eval_table *t, dt_eval_result *out) {
    double all = 0;
    if (t->n_out > 1) dt_json_begin_object(&out->extra, "mae_by_number");
    for (int64_t k = 0; k < t->n_out; k++) {
        double sum = 0;
        for (int64_t i = 0; i < t->n; i++) sum += fabs(error(t, i, k));
        all += sum;
        if (t->n_out > 1) dt_json_real(&out->extra, dt_eval_name(t, k, out), sum / (double)t->n);
    }
    if (t->n_out > 1) dt_json_end_object(&out->extra);
    dt_eval_result_add(out, "mae", all / (double)(t->n * t->n_out));
}

static void report_square(const dt_eval_table *t, dt_eval_result *out) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->n_out; k++) sum += error(t, i, k) * error(t, i, k);
    dt_eval_result_add(out, "rmse", sqrt(sum / (double)(t->n * t->n_out)));
}

// The mean over the numbers of 1 - squared errors / squared differences from the mean; a number that is the same in all
// samples gives 1 if it is predicted, else 0 (scikit-learn's r2_score).
static void report_r2(const dt_eval_table *t, dt_eval_result *out) {
    double all = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        double mean = 0, errors = 0, differences = 0;
        for (int64_t i = 0; i < t->n; i++) mean += dt_eval_number(t, i, k, false);
        mean /= (double)t->n;
        for (int64_t i = 0; i < t->n; i++) {
            const double d = dt_eval_number(t, i, k, false) - mean;
            differences += d * d;
            errors += error(t, i, k) * error(t, i, k);
        }
        all += differences > 0 ? 1 - errors / differences : errors == 0 ? 1 : 0;
    }
    dt_eval_result_add(out, "r2", t->n > 1 ? all / (double)t->n_out : NAN);
}

const dt_metric dt_metric_mae = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .by_default = true, .report = report_absolute};
const dt_metric dt_metric_rmse = {
    .of = DT_OF_NUMBERS, .lower_is_better = true, .by_default = true, .report = report_square};
const dt_metric dt_metric_r2 = {.of = DT_OF_NUMBERS, .report = report_r2};
