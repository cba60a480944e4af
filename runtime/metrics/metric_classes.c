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
    return 1 / (1 + exp(-x)); // exp overflows to infinity for x below -709: 1 / infinity is the right 0
}

void dt_eval_softmax(const float *x, int64_t n, double temperature, double *p) {
    // the largest logit is subtracted before exp, so none overflows
    double largest = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        if ((double)x[k] > largest) largest = (double)x[k];
    for (int64_t k = 0; k < n; k++) sum += p[k] = exp(((double)x[k] - largest) / temperature);
    for (int64_t k = 0; k < n; k++) p[k] /= sum;
}

static double *eval_probabilities(const dt_eval_table *t) {
    const int64_t size = t->n * t->n_out;
    double *p = dt_xcalloc((size_t)size + 1, sizeof *p); // + 1: never an allocation of 0 bytes
    for (int64_t i = 0; i < size && !t->labels; i++) p[i] = dt_eval_sigmoid((double)t->logits[i]);
    for (int64_t i = 0; i < t->n && t->labels; i++)
        // classes: softmax over a row of (n, n_out)
        dt_eval_softmax(t->logits + i * t->n_out, t->n_out, 1, p + i * t->n_out);
    return p;
}

dt_eval_count *dt_eval_counts(const dt_eval_table *t) {
    dt_eval_count *c = dt_xcalloc((size_t)t->n_out + 1, sizeof *c);
    if (t->labels) {
        for (int64_t i = 0; i < t->n; i++) {
            const dt_eval_class of = dt_eval_class_of(t, i);
            c[t->labels[i]].truths++;
            c[of.predicted].predictions++;
            c[of.predicted].hits += of.rank == 0; // rank 0: the true class is the predicted one
        }
        return c; // without thresholds: one class is predicted, the largest
    }
    double *p = eval_probabilities(t);
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t k = 0; k < t->n_out; k++) {
            const bool truth = dt_eval_is_true(t, i, k);
            // true and predicted may hold of several labels of a sample
            const bool predicted = dt_eval_is_predicted(t, p[i * t->n_out + k], k);
            c[k].truths += truth;
            c[k].predictions += predicted;
            c[k].hits += truth && predicted;
        }
    }
    free(p);
    return c;
}

// ---- shares of counts ------------------------------------------------------------------------------

static double precision_of(const dt_eval_count *c) {
    return c->predictions ? (double)c->hits / (double)c->predictions : 0; // zero_division=0
}

static double recall_of(const dt_eval_count *c) {
    return c->truths ? (double)c->hits / (double)c->truths : 0;
}

static double f1_of(const dt_eval_count *c) {
    // 2 TP / (2 TP + FP + FN), since predictions = TP + FP and truths = TP + FN
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
        // a class that neither occurs nor is predicted would count as 0, though nothing is wrong with it
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
    return weight > 0 ? sum / weight : 0; // scikit-learn's average="weighted": by support
}

// The mean under the metric's name, and name.<class> for each class that is true.
static void add_by_class(const dt_eval_table *t, dt_eval_result *out, const char *metric, int over,
                         double (*share)(const dt_eval_count *)) {
    dt_eval_count *c = dt_eval_counts(t);
    for (int64_t k = 0; k < t->n_out; k++) {
        if (c[k].truths == 0) continue; // a class without samples has no value of its own, though the mean may count it
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

// scikit-learn's balanced_accuracy_score: the mean recall of the classes that occur.
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
    double *p = eval_probabilities(t);
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t k = 0;
        // subset accuracy: every label is right
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
        support += c[k].truths; // of the row counts: a sample with two labels counts twice
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

// most_out: reports of more classes would make metrics.jsonl unreadable
#define OF (DT_OF_CLASSES | DT_OF_LABELS)
const dt_metric dt_metric_precision = {
    .of = OF, .by_class = 2, .most_out = DT_EVAL_MOST_CLASSES, .report = report_precision};
const dt_metric dt_metric_recall = {.of = OF, .by_class = 2, .most_out = DT_EVAL_MOST_CLASSES, .report = report_recall};
const dt_metric dt_metric_balanced_accuracy = {.of = DT_OF_CLASSES, .report = report_balanced};
const dt_metric dt_metric_macro_f1 = {.of = OF, .report = report_macro_f1};
const dt_metric dt_metric_weighted_f1 = {.of = OF, .report = report_weighted_f1};
const dt_metric dt_metric_exact_match = {.of = DT_OF_LABELS, .report = report_exact};
const dt_metric dt_metric_report = {.of = OF, .no_best = true, .most_out = DT_EVAL_MOST_CLASSES, .report = report_all};
#undef OF

// ---- metric accuracy ----------------------------------------------------------------------------------------------

// How often the true class has the largest logit, or one of the k largest.

enum { TOP = 5 }; // top-5 accuracy of ImageNet

static double share_within(const dt_eval_table *t, int64_t top) {
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) n += dt_eval_class_of(t, i).rank < top;
    return (double)n / (double)t->n;
}

static void report_first(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "accuracy", share_within(t, 1));
}

static void report_top(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "top5", share_within(t, TOP));
}

static void report_top_k(const dt_eval_table *t, dt_eval_result *out) {
    dt_eval_result_add(out, "top_k", share_within(t, t->top_k));
}

const dt_metric dt_metric_accuracy = {.of = DT_OF_CLASSES, .by_default = true, .report = report_first};
const dt_metric dt_metric_top5 = {.of = DT_OF_CLASSES, .by_default = true, .least_out = TOP + 1, .report = report_top};
const dt_metric dt_metric_top_k = {.of = DT_OF_CLASSES, .report = report_top_k};

// ---- metric confusion ---------------------------------------------------------------------------------------------

// How often each class is taken for which: {"ant": {"ant": 9, "bee": 1}, …}, by true class and predicted
// one, without those that are 0, so that many classes are no large matrix.

static void metric_confusion_report(const dt_eval_table *t, dt_eval_result *out) {
    // (n_out, n_out) row-major: true, predicted
    int64_t *count = dt_xcalloc((size_t)(t->n_out * t->n_out), sizeof *count);
    for (int64_t i = 0; i < t->n; i++) count[t->labels[i] * t->n_out + dt_eval_class_of(t, i).predicted]++;
    dt_json_begin_object(&out->extra, "confusion");
    for (int64_t i = 0; i < t->n_out; i++) {
        dt_json_begin_object(&out->extra, dt_eval_name(t, i, out));
        for (int64_t k = 0; k < t->n_out; k++)
            // sparse: zeros are left out
            if (count[i * t->n_out + k] > 0) dt_json_int(&out->extra, dt_eval_name(t, k, out), count[i * t->n_out + k]);
        dt_json_end_object(&out->extra);
    }
    dt_json_end_object(&out->extra);
    free(count);
}

const dt_metric dt_metric_confusion = {
    .of = DT_OF_CLASSES, .no_best = true, .most_out = DT_EVAL_MOST_CLASSES, .report = metric_confusion_report};

// ---- metric loss --------------------------------------------------------------------------------------------------

// The mean loss.

static void metric_loss_report(const dt_eval_table *t, dt_eval_result *out) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) sum += t->losses[i];
    dt_eval_result_add(out, "loss", sum / (double)t->n);
}

const dt_metric dt_metric_loss = {
    .of = DT_OF_LOSS, .lower_is_better = true, .by_default = true, .report = metric_loss_report};

// ---- metric calibration -------------------------------------------------------------------------------------------

// Whether probabilities mean what they say.
// ece: Guo et al., "On calibration of modern neural networks", ICML 2017: samples in 15 bins of equal width by the
// largest probability (of labels by the probability of the prediction of each); the mean over samples of
// |share of hits - mean probability| of their bin.
// brier: scikit-learn's brier_score_loss: the mean over samples of the squared distance to what is true, over all
// classes; of two classes and of labels half of that.

enum { N_BINS = 15 };

typedef struct bin {
    int64_t n, hits; // hits: predictions that are right
    double sum;      // of their probabilities
} bin;

static void metric_calibration_put(bin *bins, double p, bool hit) {
    int b = (int)ceil(p * N_BINS) - 1; // a bin has its upper bound
    b = b < 0 ? 0 : b >= N_BINS ? N_BINS - 1 : b;
    bins[b].n++;
    bins[b].hits += hit;
    bins[b].sum += p;
}

static void report_ece(const dt_eval_table *t, dt_eval_result *out) {
    double error = 0;
    bin bins[N_BINS] = {0};
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        if (t->labels) {
            // classes: the confidence is the probability of the predicted class
            const dt_eval_class c = dt_eval_class_of(t, i);
            metric_calibration_put(bins, 1 / c.sum, c.rank == 0);
        }
        for (int64_t k = 0; k < t->n_out && !t->labels; k++) {
            // labels: each is a binary prediction, whose confidence is that of what is predicted of it
            const double p = dt_eval_sigmoid((double)t->logits[i * t->n_out + k]);
            const bool predicted = p >= 0.5;
            metric_calibration_put(bins, predicted ? p : 1 - p, predicted == dt_eval_is_true(t, i, k));
        }
    }
    for (int b = 0; b < N_BINS; b++) {
        error += fabs((double)bins[b].hits - bins[b].sum); // n |hits/n - sum/n|
        n += bins[b].n;
    }
    dt_eval_result_add(out, "ece", error / (double)n);
}

static void report_brier(const dt_eval_table *t, dt_eval_result *out) {
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        if (t->labels) sum += dt_eval_class_of(t, i).distance;
        for (int64_t k = 0; k < t->n_out && !t->labels; k++) {
            const double d = dt_eval_sigmoid((double)t->logits[i * t->n_out + k]) - dt_eval_is_true(t, i, k);
            sum += d * d;
        }
    }
    // scikit-learn halves the two-class score; labels take the mean over labels
    const int64_t by = !t->labels ? t->n_out : t->n_out == 2 ? 2 : 1;
    dt_eval_result_add(out, "brier", sum / (double)(t->n * by));
}

#define OF (DT_OF_CLASSES | DT_OF_LABELS)
const dt_metric dt_metric_ece = {.of = OF, .lower_is_better = true, .report = report_ece};
const dt_metric dt_metric_brier = {.of = OF, .lower_is_better = true, .report = report_brier};
#undef OF

// ---- metric ranking -----------------------------------------------------------------------------------------------

// The order of samples by their scores: the best threshold, and what needs none: the areas under the ROC
// curve and under the precision-recall curve, of each class against the rest by its probability (scikit-learn's
// roc_auc_score with multi_class="ovr", and average_precision_score). Over several labels the mean of the latter is the mean average
// precision. Classes of which all samples or none are true have no curve: they are NaN and do not count in the mean. A part
// of the samples has a mean of the same classes as the whole, or none.

int dt_eval_from_highest(const void *a, const void *b) {
    const dt_eval_scored *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : (x->row > y->row) - (x->row < y->row);
}

void dt_eval_areas(dt_eval_scored *s, int64_t n, double *roc, double *pr) {
    int64_t n_true = 0, above_true = 0, above = 0;
    double area = 0, precision = 0;
    qsort(s, (size_t)n, sizeof *s, dt_eval_from_highest);
    for (int64_t i = 0; i < n; i++) n_true += s[i].truth;
    for (int64_t i = 0; i < n;) {
        // equal scores form one step: their order must not change the areas
        int64_t end = i, here = 0;
        for (; end < n && s[end].score == s[i].score; end++) here += s[end].truth;
        const int64_t others = end - i - here;
        // trapezoids: each negative has the positives above it, and half of those at its score
        area += (double)others * ((double)above_true + 0.5 * (double)here);
        above_true += here;
        above = end;
        // average precision: the sum of (R_i - R_(i-1)) P_i; not interpolated
        precision += (double)here * (double)above_true / (double)above;
        i = end;
    }
    // a ROC curve needs both kinds, a precision-recall curve only positives
    const bool both = n_true > 0 && n_true < n;
    *roc = both ? area / ((double)n_true * (double)(n - n_true)) : NAN;
    *pr = n_true > 0 ? precision / (double)n_true : NAN;
}

dt_eval_occurs *dt_eval_find_occurs(const dt_eval_table *t) {
    dt_eval_occurs *out = dt_xcalloc((size_t)t->n_out + 1, sizeof *out);
    // a bool of each kind is all that the means over parts need
    for (int64_t i = 0; i < t->n && t->labels; i++) out[t->labels[i]].is = true;
    // of a class that is not that of all samples
    bool mixed = false;
    for (int64_t i = 0; i < t->n && t->labels; i++) mixed |= t->labels[i] != t->labels[0];
    for (int64_t k = 0; k < t->n_out && t->labels; k++) out[k].is_not = t->n > 0 && (mixed || !out[k].is);
    for (int64_t i = 0; i < t->n && t->targets; i++)
        for (int64_t k = 0; k < t->n_out; k++) *(dt_eval_is_true(t, i, k) ? &out[k].is : &out[k].is_not) = true;
    return out;
}

// Of two classes only one is looked for.
static void add_mean(const dt_eval_table *t, dt_eval_result *out, const char *name, bool of_roc) {
    double *p = eval_probabilities(t), sum = 0;
    dt_eval_scored *s = dt_xcalloc((size_t)t->n + 1, sizeof *s);
    const bool binary = t->labels && t->n_out == 2;
    dt_eval_occurs *own = dt_eval_find_occurs(t);
    // a part may lack a class that the whole has: then its area, NaN, makes the mean NaN, instead of a mean over others
    const dt_eval_occurs *whole = t->occurs ? t->occurs : own;
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        if (binary && k != t->positive) continue; // scikit-learn scores the positive class alone
        double roc, pr;
        for (int64_t i = 0; i < t->n; i++) s[i] = (dt_eval_scored){p[i * t->n_out + k], i, dt_eval_is_true(t, i, k)};
        dt_eval_areas(s, t->n, &roc, &pr);
        const double area = of_roc ? roc : pr;
        if (whole[k].is && (!of_roc || whole[k].is_not)) sum += area, n++;
        if (t->n_out == 1) continue; // one output: the mean is the only value
        const char *class = dt_eval_name(t, k, out);
        dt_eval_result_add(out, dt_arena_printf(&out->arena, "%s.%s", name, class), area);
    }
    dt_eval_result_add(out, name, n ? sum / (double)n : NAN);
    free(own);
    free(s);
    free(p);
}

// Sorts the scores. Equal F1 are equal quotients of whole numbers, exactly.
// Candidates are the midpoints between neighbouring scores: F1 changes only there.
static double best_threshold(dt_eval_scored *s, int64_t n) {
    double best = 0, at = 0.5; // 0.5 without positives
    int64_t hits = 0, n_true = 0;
    qsort(s, (size_t)n, sizeof *s, dt_eval_from_highest);
    for (int64_t i = 0; i < n; i++) n_true += s[i].truth;
    // hits = TP and i + 1 = predictions, if everything down to i is predicted
    for (int64_t i = 0; i < n && n_true > 0; i++) {
        const double next = i + 1 < n ? s[i + 1].score : 0, middle = (s[i].score + next) / 2;
        hits += s[i].truth;
        const double f1 = 2 * (double)hits / (double)(i + 1 + n_true);
        // no threshold separates equal scores; >= takes the smallest of equal thresholds
        if ((i + 1 < n && next == s[i].score) || f1 < best) continue;
        best = f1;
        // neighbouring doubles have no midpoint: the score itself, which counts as predicted
        at = middle > next ? middle : s[i].score;
    }
    return at;
}

void dt_eval_choose_thresholds(const dt_eval_table *t, double *thresholds) {
    double *p = eval_probabilities(t);
    dt_eval_scored *s = dt_xcalloc((size_t)t->n + 1, sizeof *s);
    for (int64_t k = 0; k < t->n_out; k++) {
        // one column of (n, n_out) at a time
        for (int64_t i = 0; i < t->n; i++) s[i] = (dt_eval_scored){p[i * t->n_out + k], i, dt_eval_is_true(t, i, k)};
        thresholds[k] = best_threshold(s, t->n);
    }
    free(s);
    free(p);
}

void dt_eval_write_thresholds(const dt_eval_table *t, dt_eval_result *out, dt_json *j) {
    dt_json_begin_object(j, "thresholds");
    for (int64_t k = 0; k < t->n_out; k++) dt_json_real(j, dt_eval_name(t, k, out), t->thresholds[k]);
    dt_json_end_object(j);
}

static void report_roc(const dt_eval_table *t, dt_eval_result *out) {
    add_mean(t, out, "roc_auc", true);
}

static void report_pr(const dt_eval_table *t, dt_eval_result *out) {
    add_mean(t, out, "pr_auc", false);
}

#define OF (DT_OF_CLASSES | DT_OF_LABELS)
const dt_metric dt_metric_roc_auc = {.of = OF, .by_class = 3, .most_out = DT_EVAL_MOST_CLASSES, .report = report_roc};
const dt_metric dt_metric_pr_auc = {.of = OF, .by_class = 3, .most_out = DT_EVAL_MOST_CLASSES, .report = report_pr};
