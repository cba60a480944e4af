// metric_calibration.c: whether probabilities mean what they say.
// ece: Guo et al., "On calibration of modern neural networks", ICML 2017: samples in 15 bins of equal width by the
// largest probability (of labels by the probability of what is said of each); the mean over samples of
// |share of hits - mean probability| of their bin.
// brier: scikit-learn's brier_score_loss: the mean over samples of the squared distance to what is true, over all
// classes; of two classes and of labels half of that.
#include "metrics/metric.h"

#include <math.h>
#include <stdlib.h>

enum { N_BINS = 15 };

typedef struct bin {
    int64_t n, hits;
    double sum;
} bin;

static void metric_calibration_put(bin *bins, double p, bool hit) {
    int b = (int)ceil(p * N_BINS) - 1; // a bin has its upper bound
    b = b < 0 ? 0 : b >= N_BINS ? N_BINS - 1 : b;
    bins[b].n++;
    bins[b].hits += hit;
    bins[b].sum += p;
}

static void report_ece(const dt_eval_table *t, dt_eval_result *out) {
    double *p = dt_eval_probabilities(t), error = 0;
    bin bins[N_BINS] = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const double *of = p + i * t->n_out;
        if (t->labels) {
            const int64_t k = dt_eval_predicted(t, i, NULL);
            metric_calibration_put(bins, of[k], k == t->labels[i]);
        }
        for (int64_t k = 0; k < t->n_out && !t->labels; k++) {
            const bool said = of[k] >= 0.5;
            metric_calibration_put(bins, said ? of[k] : 1 - of[k], said == dt_eval_is_true(t, i, k));
        }
    }
    for (int b = 0; b < N_BINS; b++) {
        error += fabs((double)bins[b].hits - bins[b].sum);
        n += bins[b].n;
    }
    dt_eval_result_add(out, "ece", error / (double)n);
    free(p);
}

static void report_brier(const dt_eval_table *t, dt_eval_result *out) {
    double *p = dt_eval_probabilities(t), sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t k = 0; k < t->n_out; k++) {
            const double d = p[i * t->n_out + k] - (dt_eval_is_true(t, i, k) ? 1 : 0);
            sum += d * d;
        }
    }
    const int64_t by = !t->labels ? t->n_out : t->n_out == 2 ? 2 : 1;
    dt_eval_result_add(out, "brier", sum / (double)(t->n * by));
    free(p);
}

#define OF (DT_OF_CLASSES | DT_OF_LABELS)
const dt_metric dt_metric_ece = {.of = OF, .lower_is_better = true, .report = report_ece};
const dt_metric dt_metric_brier = {.of = OF, .lower_is_better = true, .report = report_brier};
