// metric_macro_f1.c: the mean over classes of F1 = 2 hits / (times true + times predicted), as scikit-learn's
// f1_score(average="macro", zero_division=0): over the classes that are true or predicted at all.
#include "train/metric.h"

#include <math.h>

enum {
    HITS,
    TIMES,
    N_COUNTS
}; // of a class; a hit is true and predicted, and counts twice in TIMES

static void add(const dt_scored *s, double *sum) {
    sum[s->label * N_COUNTS + TIMES] += 1;
    sum[s->predicted * N_COUNTS + TIMES] += 1;
    sum[s->label * N_COUNTS + HITS] += s->rank == 0;
}

static void report(const dt_totals *t, dt_eval_result *out) {
    double f1 = 0;
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        const double *c = t->sum + k * N_COUNTS;
        if (c[TIMES] == 0) continue;
        f1 += 2 * c[HITS] / c[TIMES];
        n++;
    }
    dt_eval_result_add(out, "macro_f1", n ? f1 / (double)n : NAN);
}

const dt_metric dt_metric_macro_f1 = {.of = DT_OF_CLASSES,
                                      .width = N_COUNTS,
                                      .power = 1,
                                      .counts = true,
                                      .add = add,
                                      .report = report};
