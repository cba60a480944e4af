// metric.h: what evaluation measures. A metric is a line of config/metrics.def and a dt_metric of that name in a
// file metric_<…>.c.
//
// A metric is a pure function of a table that rank 0 has of the whole split, in its order (evaluate.h), so it cannot
// depend on ranks, replicas or batches. Whoever needs it of some of the samples makes a smaller table.
#ifndef DT_TRAIN_METRIC_H
#define DT_TRAIN_METRIC_H

#include "base/core.h"
#include "base/json.h"
#include "batch/batch_source.h"
#include "batch/targets.h"
#include "config/config.h"
#include "config/words.h"
#include "graph/ir.h"
#include "observe/metrics.h"

#include <stdio.h>

// The values of an evaluation.
typedef struct dt_eval_result {
    dt_metric_value *values; // names live as long as the result
    int n_values, cap_values;
    int64_t n_samples;
    int64_t n_not_finite; // further samples: no metric counts them
    dt_json extra;        // an object: what is no single number ("confusion": {…})
    dt_arena arena;
} dt_eval_result;

void dt_eval_result_init(dt_eval_result *r);
void dt_eval_result_fini(dt_eval_result *r);
void dt_eval_result_add(dt_eval_result *r, const char *name, double value); // copies the name
double dt_eval_result_get(const dt_eval_result *r, const char *name);       // NaN when it is not there
// One line of JSON, behind what j has.
void dt_eval_result_write(const dt_eval_result *r, const char *split, const char *weights, int64_t step, dt_json *j);
const char *dt_eval_result_members(const dt_eval_result *r); // of extra, as JSON: "a":[…],"b":…

// How well embeddings tell people apart who were never seen in training (metric_numbers.c).
typedef struct dt_verification {
    double auc; // P(score of a genuine pair > score of an impostor pair), ties count half
    double eer; // where false accepts equal false rejects, interpolated
    int64_t n_genuine, n_impostor;
    int64_t n_samples; // that were compared: of many, a random subset
} dt_verification;

// Compares all pairs of n embeddings (n,d), row-major, by cosine similarity; a pair is genuine if its labels
// are equal. records (n, width), or NULL: the records that each sample is made of; samples that share a record
// are not compared, as an image compared with itself is no test. auc and eer are NaN if there is no genuine or
// no impostor pair.
void dt_verify_embeddings(const float *embeddings, const int32_t *labels, const uint32_t *records, int width, int64_t n,
                          int64_t d, dt_verification *out);
// The same figures from scores. Sorts both arrays in place.
void dt_verify_scores(float *genuine, int64_t n_genuine, float *impostor, int64_t n_impostor, dt_verification *out);

// What a network predicts that a metric can be computed of. LABELS: several at once, each of them true or not (bce).
enum { DT_OF_LOSS = 1, DT_OF_CLASSES = 2, DT_OF_NUMBERS = 4, DT_OF_PAIRS = 8, DT_OF_LABELS = 16 };

// Whether there are samples of which a class or label is true, and samples of which it is not.
typedef struct dt_eval_occurs {
    bool is, is_not;
} dt_eval_occurs;

// What an evaluation has collected, in the order of the split. Records that could not be read are not in it, nor those
// whose prediction is not finite: all logits, embeddings and losses here are.
typedef struct dt_eval_table {
    int64_t n, n_out;    // samples; logits a sample: classes, numbers or labels
    const float *logits; // (n, n_out); of numbers: dt_eval_number; NULL of classes: not kept (dt_eval_keeps_logits)
    const struct dt_eval_class *classes; // (n) of classes; NULL: from the logits
    const int32_t *labels;               // (n) true classes, or NULL
    const float *targets;                // (n, n_out) numbers (dt_eval_number), or 0/1 of several labels; or NULL
    const float *embeddings;             // (n, n_embedding) or NULL
    int64_t n_embedding;
    const uint32_t *records; // (n, width) the records that each sample is made of, or NULL
    int width;
    const double *losses;       // (n)
    const dt_field_info *field; // names of classes, labels or numbers; or NULL: they have none
    int positive;               // of two classes the one that is looked for: eval.positive
    int top_k;                  // eval.top_k
    const double *thresholds;   // (n_out) of labels: from which one counts as predicted
    bool radians;               // angles are not in degrees: eval.angles
    // (n_out) of the whole evaluation, where this is a part of it; NULL: it is the whole. What a mean is over must not
    // differ between parts.
    const struct dt_eval_occurs *occurs;
    dt_verification *pairs; // what eer and auc share: n_samples < 0 until one of them has compared
} dt_eval_table;

// What n logits give for a sample of a class.
typedef struct dt_eval_class {
    int32_t predicted; // the class of the largest logit, the first of equal ones
    int32_t rank;      // how many logits are not below the true class's, without itself; ties count from lower indices
    double sum;        // of exp(logit - largest): its reciprocal is the probability of the predicted class
    double distance;   // squared, of all probabilities to what is true
} dt_eval_class;
dt_eval_class dt_eval_classify(const float *x, int64_t n, int32_t label, bool distance); // false: distance is 0
dt_eval_class dt_eval_class_of(const dt_eval_table *t, int64_t i);

// The name of class, label or number k, or k; lives as long as out.
const char *dt_eval_name(const dt_eval_table *t, int64_t k, dt_eval_result *out);
// The probability of a label, and those of n classes at a temperature, from logits.
double dt_eval_sigmoid(double x);
void dt_eval_softmax(const float *x, int64_t n, double temperature, double *p);
// A sample by its score for a class or label.
typedef struct dt_eval_scored {
    double score;
    int64_t row;
    bool truth;
} dt_eval_scored;
int dt_eval_from_highest(const void *a, const void *b); // equal scores by row: qsort is not stable
// The areas under the ROC curve and under the precision-recall curve (average precision) of n scores, which it sorts from
// the highest; equal scores are one step of the curves. NaN where there is no curve.
void dt_eval_areas(dt_eval_scored *s, int64_t n, double *roc, double *pr);
// The counts of a class or label.
typedef struct dt_eval_count {
    int64_t hits, truths, predictions; // samples: true and predicted; true; predicted
} dt_eval_count;
dt_eval_count *dt_eval_counts(const dt_eval_table *t); // (n_out), heap
// Probabilities (n, n_out), heap: softmax over classes, of labels the sigmoid of each.
dt_eval_occurs *dt_eval_find_occurs(const dt_eval_table *t); // (n_out), heap
static inline bool dt_eval_is_true(const dt_eval_table *t, int64_t i, int64_t k) {
    return t->labels ? t->labels[i] == k : t->targets[i * t->n_out + k] >= 0.5f;
}
// Number k of sample i in the field's unit, predicted or true. The table has it normalised: floats of the unit would have
// no digits left of a time in seconds.
static inline double dt_eval_number(const dt_eval_table *t, int64_t i, int64_t k, bool predicted) {
    const double x = (double)(predicted ? t->logits : t->targets)[i * t->n_out + k];
    return t->field ? dt_field_value(t->field, k, x) : x;
}
// Whether label k counts as predicted with probability p.
static inline bool dt_eval_is_predicted(const dt_eval_table *t, double p, int64_t k) {
    return p >= t->thresholds[k];
}
// eval.threshold: f1. thresholds (n_out): of each label the one with the greatest F1 on this table, the smallest of equal
// ones. It lies midway between two probabilities that occur, or the smallest one and 0, so that no rounding moves a
// sample across it. 0.5 of a label that no sample has. (metric_classes.c)
void dt_eval_choose_thresholds(const dt_eval_table *t, double *thresholds);
// "thresholds": {"odd": 0.31, …}, a member; out: as of dt_eval_name.
void dt_eval_write_thresholds(const dt_eval_table *t, dt_eval_result *out, dt_json *j);

typedef struct dt_metric {
    unsigned of; // DT_OF_…; the table has what these need
    bool lower_is_better;
    bool by_default;         // without eval.metrics, wherever it can be computed
    bool no_best;            // no single number of its name, so it cannot be eval.best
    int by_class;            // of so many classes on there is a value of each, name.<class>; 0: there is none
    int least_out, most_out; // numbers of outputs that it is computed for; 0: any
    int outs[2];             // or one of these; 0: any
    // Adds values by dt_eval_result_add, and what is no single number to out->extra. t->n may be 0: NaN.
    void (*report)(const dt_eval_table *t, dt_eval_result *out);
} dt_metric;

extern const dt_metric *const dt_metrics_table[DT_N_METRICS];
const char *dt_metric_name(dt_metric_id id);

// eval.best, whose first word is auto: the metric that it names, or DT_METRIC_AUTO; and the word of a metric.
enum { DT_METRIC_AUTO = -1 };
static inline int dt_metric_of_best(int word) {
    return word - 1;
}
static inline int dt_best_of_metric(dt_metric_id id) {
    return (int)id + 1;
}

// A column of the catalog, by sample: tables in parts (metric_table.c). Names and values are borrowed.
typedef struct dt_eval_column {
    const char *name;
    int32_t *of; // (n) indices into values
    int64_t n, cap;
    const char **values; // distinct
    int32_t n_values;
} dt_eval_column;
// Adds the column's value for the next sample; NULL: the sample has none.
void dt_eval_column_add(dt_eval_column *c, const char *value);
void dt_eval_column_clear(dt_eval_column *c);
// Of metrics and reports with something for each; of a report's curves that no metric asks for.
enum { DT_EVAL_MOST_CLASSES = 1000, DT_EVAL_MOST_CURVES = 100 };
// All metrics wanted, in the order of metrics.def. Of no sample they are NaN.
void dt_eval_report_table(const dt_eval_table *t, const bool wanted[DT_N_METRICS], dt_eval_result *out);
// The values of all metrics wanted for the samples of each value of the column: "camera": {"left": {"samples": 9,
// "accuracy": 1}, …}, a member of out->extra. n_bootstrap > 0: each value has its "interval", too, as below.
void dt_eval_report_by(const dt_eval_table *t, const bool wanted[DT_N_METRICS], const dt_eval_column *c,
                       int n_bootstrap, const dt_eval_column *unit, dt_eval_result *out);
// "interval": {"accuracy": [0.9, 0.95], …}, of n resamples, a member of out->extra. unit: the samples of a value of the
// column are drawn together, as many values as there are; NULL: each sample by itself.
void dt_eval_bootstrap(const dt_eval_table *t, const bool wanted[DT_N_METRICS], int n, const dt_eval_column *unit,
                       dt_eval_result *out);

// What a run computes, and by what it chooses its best checkpoint.
typedef struct dt_metric_choice {
    bool wanted[DT_MAX_TARGETS][DT_N_METRICS];
    dt_metric_id best;
    char best_name[512]; // of its value: "accuracy", "pose.accuracy" or "recall.leak"
    int best_target;     // whose value it is; -1: the loss of all
    // by target, and the two behind it: as in dt_eval_table
    int positive[DT_MAX_TARGETS];
    int top_k;
    dt_auto_real threshold; // is_auto: f1
    bool radians;
    const dt_cnode *by;         // eval.by, or NULL
    int n_bootstrap;            // eval.bootstrap
    const char *bootstrap_unit; // or NULL
} dt_metric_choice;

// Chooses metrics from eval.metrics, eval.best, eval.target, the targets and what the evaluation graph gives. DT_E_USAGE with the place
// of the key that asks for what cannot be computed, and what can be.
//
// classes, by target. Unseen (people held out of training, say): pairs say how well a network distinguishes them, and whatever
// compares classes says nothing. Uneven: accuracy hardly sees the rare ones, so macro_f1 is eval.best: auto.
dt_status dt_metric_choose(dt_metric_choice *out, const dt_config *c, const dt_graph *g, const dt_targets *targets,
                           const dt_classes classes[DT_MAX_TARGETS]);
// Whether the table of target k has the logits of samples: not where the metrics of classes need but dt_eval_class.
// report: with dt_eval_report_add. And the bytes of a sample in the tables of all targets.
bool dt_eval_keeps_logits(const dt_metric_choice *m, int k, const dt_target *t, bool report);
size_t dt_eval_sample_bytes(const dt_metric_choice *m, const dt_targets *targets, const dt_graph *g, bool report);
// The classes of eval.positive, by name, once the data have said the names. DT_E_USAGE: no target of two classes has it.
dt_status dt_metric_choose_positive(dt_metric_choice *out, const dt_config *c, const dt_targets *targets);

#endif
