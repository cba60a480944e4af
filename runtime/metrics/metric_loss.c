// metric_loss.c: the mean loss.
#include "metrics/metric.h"

static void metric_loss_report(const dt_eval_table *t, dt_eval_result *out) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) sum += t->losses[i];
    dt_eval_result_add(out, "loss", sum / (double)t->n);
}

const dt_metric dt_metric_loss = {
    .of = DT_OF_LOSS, .lower_is_better = true, .by_default = true, .report = metric_loss_report};
