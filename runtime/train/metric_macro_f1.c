// metric_macro_f1.c: the mean over classes of F1 = 2 hits / (times true + times predicted), as scikit-learn's
// f1_score(average="macro", zero_division=0): over the classes that are true or predicted at all.
#include "train/metric.h"

#include <math.h>
#include <stdlib.h>

static void report(const dt_eval_table *t, dt_eval_result *out) {
    int64_t *hits = dt_xcalloc(2 * (size_t)t->n_out + 1, sizeof *hits), *times = hits + t->n_out;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t rank, predicted = dt_eval_predicted(t, i, &rank);
        times[t->labels[i]]++;
        times[predicted]++;
        hits[t->labels[i]] += rank == 0;
    }
    double f1 = 0;
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        if (times[k] == 0) continue;
        f1 += 2 * (double)hits[k] / (double)times[k];
        n++;
    }
    dt_eval_result_add(out, "macro_f1", n ? f1 / (double)n : NAN);
    free(hits);
}

const dt_metric dt_metric_macro_f1 = {.of = DT_OF_CLASSES, .report = report};
