// metric_recall.c: of the samples of each class, the share that was recognised, and the mean of these over the
// classes that there are (scikit-learn's balanced_accuracy_score).
#include "train/metric.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void report(const dt_eval_table *t, dt_eval_result *out) {
    int64_t *hits = dt_xcalloc(2 * (size_t)t->n_out + 1, sizeof *hits), *times = hits + t->n_out;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t rank;
        dt_eval_predicted(t, i, &rank);
        times[t->labels[i]]++;
        hits[t->labels[i]] += rank == 0;
    }
    double all = 0;
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        if (times[k] == 0) continue;
        const double share = (double)hits[k] / (double)times[k];
        const char *class = t->class_names ? t->class_names[k] : NULL;
        char *name = class ? dt_arena_printf(&out->arena, "recall.%s", class)
                           : dt_arena_printf(&out->arena, "recall.%" PRId64, k);
        dt_eval_result_add(out, name, share);
        all += share;
        n++;
    }
    dt_eval_result_add(out, "recall", n ? all / (double)n : NAN);
    free(hits);
}

const dt_metric dt_metric_recall = {.of = DT_OF_CLASSES, .most_out = 1000, .report = report};
