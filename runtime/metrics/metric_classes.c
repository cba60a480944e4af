// metric_classes.c: what counts of hits give, for classes and, with a threshold, for several labels at once: precision,
// recall, F1, balanced accuracy and the report of all classes. Definitions and names are scikit-learn's, with
// zero_division=0.
#include "metrics/metric.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

// ---- shared by the metrics -------------------------------------------------------------------------

const char *dt_eval_name(const dt_eval_table *t, int64_t k, dt_eval_result *out) {
    const char *name = t->field ? dt_field_name_of(t->field, k) : NULL;
    return name ? name : dt_arena_printf(&out->arena, "%" PRId64, k);
}

double dt_eval_sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

void dt_eval_softmax(const float *x, int64_t n, double temperature, double *p) {
    double largest = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        if ((double)x[k] > largest) largest = (double)x[k];
    for (int64_t k = 0; k < n; k++) sum += p[k] = exp(((double)x[k] - largest) / temperature);
    for (int64_t k = 0; k < n; k++) p[k] /= sum;
}

double *dt_eval_probabilities(const dt_eval_table *t) {
    const int64_t size = t->n * t->n_out;
    double *p = dt_xcalloc((size_t)size + 1, sizeof *p);
    for (int64_t i = 0; i < size && !t->labels; i++) p[i] = dt_eval_sigmoid((double)t->logits[i]);
    for (int64_t i = 0; i < t->n && t->labels; i++)
        dt_eval_softmax(t->logits + i * t->n_out, t->n_out, 1, p + i * t->n_out);
    return p;
}

static void metric_classes_count(const dt_eval_table *t, dt_eval_count *c) {
    for (int64_t i = 0; i < t->n; i++) {
        int64_t rank, predicted = dt_eval_predicted(t, i, &rank);
        c[t->labels[i]].truths++;
        c[predicted].predictions++;
        c[predicted].hits += rank == 0;
    }
}

dt_eval_count *dt_eval_counts(const dt_eval_table *t) {
    dt_eval_count *c = dt_xcalloc((size_t)t->n_out + 1, sizeof *c);
    if (t->labels) {
        metric_classes_count(t, c);
        return c;
    }
    double *p = dt_eval_probabilities(t);
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t k = 0; k < t->n_out; k++) {
            const bool truth = dt_eval_is_true(t, i, k);
            const bool said = dt_eval_is_predicted(t, p[i * t->n_out + k], k);
            c[k].truths += truth;
            c[k].predictions += said;
            c[k].hits += truth && said;
        }
    }
    free(p);
    return c;
}

// ---- shares of counts ------------------------------------------------------------------------------

static double precision_of(const dt_eval_count *c) {
    return c->predictions ? (double)c->hits / (double)c->predictions : 0;
}

static double recall_of(const dt_eval_count *c) {
    return c->truths ? (double)c->hits / (double)c->truths : 0;
}

static double f1_of(const dt_eval_count *c) {
    const int64_t times = c->truths + c->predictions;
    return times ? 2 * (double)c->hits / (double)times : 0;
}

// The mean over the classes that are true or predicted at all, as scikit-learn takes them, or over those that are true;
// of labels over all.
enum { OVER_SEEN, OVER_TRUE };
static double metric_classes_mean_of(const dt_eval_table *t, const dt_eval_count *c, int over,
                                     double (*share)(const dt_eval_count *)) {
    double sum = 0;
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        if (t->labels && c[k].truths == 0 && (over == OVER_TRUE || c[k].predictions == 0)) continue;
        sum += share(&c[k]);
        n++;
    }
    return n ? sum / (double)n : NAN;
}

static double weighted_mean_of(const dt_eval_table *t, const dt_eval_count *c, double (*share)(const dt_eval_count *)) {
    double sum = 0, weight = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        sum += (double)c[k].truths * share(&c[k]);
        weight += (double)c[k].truths;
    }
    return weight > 0 ? sum / weight : 0;
}

// The mean under the metric's name, and name.<class> for each class that is true.
static void add_by_class(const dt_eval_table *t, dt_eval_result *out, const char *metric, int over,
                         double (*share)(const dt_eval_count *)) {
    dt_eval_count *c = dt_eval_counts(t);
    for (int64_t k = 0; k < t->n_out; k++) {
        if (c[k].truths == 0) continue;
        const char *class = dt_eval_name(t, k, out);
        dt_eval_result_add(out, dt_arena_printf(&out->arena, "%s.%s", metric, class), share(&c[k]));
    }
    dt_eval_result_add(out, metric, metric_classes_mean_of(t, c, over, share));
    free(c);
}

// ---- the metrics -----------------------------------------------------------------------------------

static void report_precision(const dt_eval_table *t, dt_eval_result *out) {
    add_by_class(t, out, "precision", OVER_SEEN, precision_of);
}

static void report_recall(const dt_eval_table *t, dt_eval_result *out) {
    add_by_class(t, out, "recall", OVER_SEEN, recall_of);
}

static void report_balanced(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_count *c = dt_eval_counts(t);
    dt_eval_result_add(out, "balanced_accuracy", metric_classes_mean_of(t, c, OVER_TRUE, recall_of));
    free(c);
}

static void report_macro_f1(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_count *c = dt_eval_counts(t);
    dt_eval_result_add(out, "macro_f1", metric_classes_mean_of(t, c, OVER_SEEN, f1_of));
    free(c);
}

static void report_weighted_f1(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_count *c = dt_eval_counts(t);
    dt_eval_result_add(out, "weighted_f1", weighted_mean_of(t, c, f1_of));
    free(c);
}

static void report_exact(const dt_eval_table *t, dt_eval_result *out) {
    double *p = dt_eval_probabilities(t);
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t k = 0;
        while (k < t->n_out && dt_eval_is_true(t, i, k) == dt_eval_is_predicted(t, p[i * t->n_out + k], k)) k++;
        n += k == t->n_out;
    }
    dt_eval_result_add(out, "exact_match", (double)n / (double)t->n);
    free(p);
}

// A row of the report: "cat":{"precision":…,"recall":…,"f1":…,"support":…}.
static void write_row(dt_json *j, const char *name, double precision, double recall, double f1, int64_t support) {
    dt_json_begin_object(j, name);
    dt_json_real(j, "precision", precision);
    dt_json_real(j, "recall", recall);
    dt_json_real(j, "f1", f1);
    dt_json_int(j, "support", support);
    dt_json_end_object(j);
}

static void report_all(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_count *c = dt_eval_counts(t);
    dt_json *j = &out->extra;
    int64_t support = 0;
    dt_json_begin_object(j, "report");
    dt_json_begin_object(j, "classes");
    for (int64_t k = 0; k < t->n_out; k++) {
        support += c[k].truths;
        write_row(j, dt_eval_name(t, k, out), precision_of(&c[k]), recall_of(&c[k]), f1_of(&c[k]), c[k].truths);
    }
    dt_json_end_object(j);
    write_row(j, "macro", metric_classes_mean_of(t, c, OVER_SEEN, precision_of),
              metric_classes_mean_of(t, c, OVER_SEEN, recall_of), metric_classes_mean_of(t, c, OVER_SEEN, f1_of),
              support);
    write_row(j, "weighted", weighted_mean_of(t, c, precision_of), weighted_mean_of(t, c, recall_of),
              weighted_mean_of(t, c, f1_of), support);
    dt_json_end_object(j);
    free(c);
}

#define OF (DT_OF_CLASSES | DT_OF_LABELS)
const dt_metric dt_metric_precision = {.of = OF, .most_out = 1000, .report = report_precision};
const dt_metric dt_metric_recall = {.of = OF, .most_out = 1000, .report = report_recall};
const dt_metric dt_metric_balanced_accuracy = {.of = DT_OF_CLASSES, .report = report_balanced};
const dt_metric dt_metric_macro_f1 = {.of = OF, .report = report_macro_f1};
const dt_metric dt_metric_weighted_f1 = {.of = OF, .report = report_weighted_f1};
const dt_metric dt_metric_exact_match = {.of = DT_OF_LABELS, .report = report_exact};
const dt_metric dt_metric_report = {.of = OF, .no_best = true, .most_out = 1000, .report = report_all};
