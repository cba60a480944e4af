// metric_ranking.c: the order of samples by their scores: the best threshold, and what needs none: the areas under the ROC
// curve and under the precision-recall curve, of each class against the rest by its probability (scikit-learn's
// roc_auc_score with multi_class="ovr", and average_precision_score). Over several labels the mean of the latter is the mean average
// precision. Classes of which all samples or none are true have no curve: they are NaN and do not count in the mean. A part
// of the samples has a mean of the same classes as the whole, or none.
#include "metrics/metric.h"

#include <math.h>
#include <stdlib.h>

typedef struct scored {
    double score;
    bool truth;
} scored;

static int metric_ranking_from_highest(const void *a, const void *b) {
    const double x = ((const scored *)a)->score, y = ((const scored *)b)->score;
    return (x < y) - (x > y);
}

// Both areas of n scores, which it sorts; equal scores are one step of the curves.
static void find_areas(scored *s, int64_t n, double *roc, double *pr) {
    int64_t n_true = 0, above_true = 0, above = 0;
    double area = 0, precision = 0;
    qsort(s, (size_t)n, sizeof *s, metric_ranking_from_highest);
    for (int64_t i = 0; i < n; i++) n_true += s[i].truth;
    for (int64_t i = 0; i < n;) {
        int64_t end = i, here = 0;
        for (; end < n && s[end].score == s[i].score; end++) here += s[end].truth;
        const int64_t others = end - i - here;
        area += (double)others * ((double)above_true + 0.5 * (double)here);
        above_true += here;
        above = end;
        precision += (double)here * (double)above_true / (double)above;
        i = end;
    }
    const bool both = n_true > 0 && n_true < n;
    *roc = both ? area / ((double)n_true * (double)(n - n_true)) : NAN;
    *pr = n_true > 0 ? precision / (double)n_true : NAN;
}

dt_eval_occurs *dt_eval_find_occurs(const dt_eval_table *t) {
    dt_eval_occurs *out = dt_xcalloc((size_t)t->n_out + 1, sizeof *out);
    for (int64_t i = 0; i < t->n && (t->labels || t->targets); i++)
        for (int64_t k = 0; k < t->n_out; k++) *(dt_eval_is_true(t, i, k) ? &out[k].is : &out[k].is_not) = true;
    return out;
}

// Of two classes only one is looked for.
static void add_mean(const dt_eval_table *t, dt_eval_result *out, const char *name, bool of_roc) {
    double *p = dt_eval_probabilities(t), sum = 0;
    scored *s = dt_xcalloc((size_t)t->n + 1, sizeof *s);
    const bool binary = t->labels && t->n_out == 2;
    dt_eval_occurs *own = dt_eval_find_occurs(t);
    const dt_eval_occurs *whole = t->occurs ? t->occurs : own;
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        if (binary && k != t->positive) continue;
        double roc, pr;
        for (int64_t i = 0; i < t->n; i++) s[i] = (scored){p[i * t->n_out + k], dt_eval_is_true(t, i, k)};
        find_areas(s, t->n, &roc, &pr);
        const double area = of_roc ? roc : pr;
        if (whole[k].is && (!of_roc || whole[k].is_not)) sum += area, n++;
        if (t->n_out == 1) continue;
        const char *class = dt_eval_name(t, k, out);
        dt_eval_result_add(out, dt_arena_printf(&out->arena, "%s.%s", name, class), area);
    }
    dt_eval_result_add(out, name, n ? sum / (double)n : NAN);
    free(own);
    free(s);
    free(p);
}

// Sorts the scores. Equal F1 are equal quotients of whole numbers, exactly.
static double best_threshold(scored *s, int64_t n) {
    double best = 0, at = 0.5;
    int64_t hits = 0, n_true = 0;
    qsort(s, (size_t)n, sizeof *s, metric_ranking_from_highest);
    for (int64_t i = 0; i < n; i++) n_true += s[i].truth;
    for (int64_t i = 0; i < n && n_true > 0; i++) {
        const double next = i + 1 < n ? s[i + 1].score : 0, middle = (s[i].score + next) / 2;
        hits += s[i].truth;
        const double f1 = 2 * (double)hits / (double)(i + 1 + n_true);
        if ((i + 1 < n && next == s[i].score) || f1 < best) continue;
        best = f1;
        at = middle > next ? middle : s[i].score;
    }
    return at;
}

void dt_eval_choose_thresholds(const dt_eval_table *t, double *thresholds) {
    double *p = dt_eval_probabilities(t);
    scored *s = dt_xcalloc((size_t)t->n + 1, sizeof *s);
    for (int64_t k = 0; k < t->n_out; k++) {
        for (int64_t i = 0; i < t->n; i++) s[i] = (scored){p[i * t->n_out + k], dt_eval_is_true(t, i, k)};
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
const dt_metric dt_metric_roc_auc = {.of = OF, .most_out = 1000, .report = report_roc};
const dt_metric dt_metric_pr_auc = {.of = OF, .most_out = 1000, .report = report_pr};
