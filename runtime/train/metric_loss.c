// metric_loss.c: the mean loss.
#include "train/metric.h"

static void report(const dt_totals *t, dt_eval_result *out) {
    dt_eval_result_add(out, "loss", t->loss / t->weight);
}

const dt_metric dt_metric_loss = {
    .of = DT_OF_LOSS, .lower_is_better = true, .by_default = true, .report = report};
