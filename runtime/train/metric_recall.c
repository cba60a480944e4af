// metric_recall.c: of the samples of each class, the share that was recognised, and the mean of these over the
// classes that there are (scikit-learn's balanced_accuracy_score).
#include "train/metric.h"

#include <inttypes.h>
#include <math.h>

enum { HITS, TIMES, N_COUNTS }; // of a class

static void add(const dt_scored *s, double *sum) {
    sum[s->label * N_COUNTS + TIMES] += 1;
    sum[s->label * N_COUNTS + HITS] += s->rank == 0;
}

static void report(const dt_totals *t, dt_eval_result *out) {
    double all = 0;
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        const double *c = t->sum + k * N_COUNTS;
        if (c[TIMES] == 0) continue;
        const char *class = t->class_names ? t->class_names[k] : NULL;
        char *name = class ? dt_arena_printf(&out->arena, "recall.%s", class)
                           : dt_arena_printf(&out->arena, "recall.%" PRId64, k);
        dt_eval_result_add(out, name, c[HITS] / c[TIMES]);
        all += c[HITS] / c[TIMES];
        n++;
    }
    dt_eval_result_add(out, "recall", n ? all / (double)n : NAN);
}

const dt_metric dt_metric_recall = {.of = DT_OF_CLASSES,
                                    .most_out = 1000,
                                    .width = N_COUNTS,
                                    .power = 1,
                                    .counts = true,
                                    .add = add,
                                    .report = report};
