// metric.c: the table of metrics, which of them a run computes, and the values that they report.

#include "metrics/metric.h"

#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Each metric is a constant next to its function; the table below, the names and dt_metric_id have the order of
// metrics.def.
#define WORD(id, ...) extern const dt_metric dt_metric_##id;
#include "config/metrics.def"
#undef WORD
#define WORD(id, ...) &dt_metric_##id,
const dt_metric *const dt_metrics_table[DT_N_METRICS] = {
#include "config/metrics.def"
};
#undef WORD
#define WORD(id, ...) #id,
static const char *const names[DT_N_METRICS] = {
#include "config/metrics.def"
};
#undef WORD

const char *dt_metric_name(dt_metric_id id) {
    return names[id];
}

// ---- which ----------------------------------------------------------------------------------------
// Whether the graph has an embedding, (N,D).
static bool has_embedding(const dt_graph *g) {
    for (int i = 0; i < g->n_outputs; i++)
        // features in another shape, as (N,T,D) of a network of ours, are no embedding to compare
        if (strcmp(g->outputs[i].name, "embedding") == 0) return g->values[g->outputs[i].value].shape.n == 2;
    return false;
}

// Of the features of a sample; 0: there is none.
static int64_t embedding_size(const dt_graph *g) {
    for (int i = 0; has_embedding(g) && i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, "embedding") == 0) return g->values[g->outputs[i].value].shape.d[1];
    return 0;
}

dt_eval_class dt_eval_classify(const float *x, int64_t n, int32_t label, bool distance) {
    dt_eval_class c = {0};
    for (int32_t k = 0; k < n; k++) {
        if (x[k] > x[c.predicted]) c.predicted = k;
        // ties are decided by index, so that the rank does not depend on the order of a sort
        c.rank += x[k] > x[label] || (x[k] == x[label] && k < label);
    }
    const double largest = (double)x[c.predicted];
    for (int64_t k = 0; k < n; k++) c.sum += exp((double)x[k] - largest); // as dt_eval_softmax
    for (int64_t k = 0; distance && k < n; k++) {
        const double d = exp((double)x[k] - largest) / c.sum - (k == label);
        c.distance += d * d;
    }
    return c;
}

dt_eval_class dt_eval_class_of(const dt_eval_table *t, int64_t i) {
    return t->classes ? t->classes[i] : dt_eval_classify(t->logits + i * t->n_out, t->n_out, t->labels[i], true);
}

bool dt_eval_keeps_logits(const dt_metric_choice *m, int k, const dt_target *t, bool report) {
    return t->field->n_classes == 0 || m->wanted[k][DT_METRIC_roc_auc] || m->wanted[k][DT_METRIC_pr_auc] ||
           (report && dt_target_n_out(t) <= DT_EVAL_MOST_CURVES);
}

size_t dt_eval_sample_bytes(const dt_metric_choice *m, const dt_targets *targets, const dt_graph *g, bool report) {
    size_t n = sizeof(int64_t) + sizeof(uint32_t); // its index, its record
    bool pairs = false;
    for (int k = 0; k < targets->n; k++) {
        const dt_target *t = &targets->items[k];
        const size_t row = (size_t)dt_target_n_out(t) * sizeof(float);
        n += sizeof(double) + (dt_eval_keeps_logits(m, k, t, report) ? row : 0); // its loss
        n += t->field->n_classes > 0 ? sizeof(int32_t) + sizeof(dt_eval_class) : row;
        for (int i = 0; i < DT_N_METRICS; i++) pairs |= m->wanted[k][i] && (dt_metrics_table[i]->of & DT_OF_PAIRS);
    }
    return n + (pairs ? (size_t)embedding_size(g) * sizeof(float) : 0);
}

// What is known of a target.
typedef struct given {
    const dt_target *target;
    unsigned of; // DT_OF_…
    int64_t n_out;
    dt_classes classes;
} given;

// Target t gives these groups of metrics to choose from.
static given given_by(const dt_target *t, const dt_graph *g, dt_classes classes) {
    const bool is_class = t->field->n_classes > 0;
    unsigned of = DT_OF_LOSS;
    if (is_class) of |= DT_OF_CLASSES;
    if (dt_losses[t->loss].gives_numbers) of |= DT_OF_NUMBERS;
    if (dt_losses[t->loss].gives_labels) of |= DT_OF_LABELS;
    if (is_class && has_embedding(g)) of |= DT_OF_PAIRS;
    // classes that training does not know have no output: only comparing embeddings means something
    if (t->field->n_strangers > 0) of &= DT_OF_PAIRS;
    return (given){t, of, dt_target_n_out(t), classes};
}

static bool metric_fits(int id, const given *g) {
    const dt_metric *m = dt_metrics_table[id];
    // both entries of outs are 0, or two numbers of outputs (rotations: 3 and 6)
    const bool one_of = m->outs[0] == 0 || g->n_out == m->outs[0] || g->n_out == m->outs[1];
    return (m->of & g->of) && one_of && g->n_out >= m->least_out && (m->most_out == 0 || g->n_out <= m->most_out);
}

static bool fits_any(int id, const given *g, int n) {
    for (int k = 0; k < n; k++)
        if (metric_fits(id, &g[k])) return true;
    return false;
}

// What a metric is of: of that what the targets give, where the number of outputs and not the kind is at fault.
static const char *kind_of(unsigned of) {
    return of == (DT_OF_CLASSES | DT_OF_LABELS) ? "classes or labels"
           : of & DT_OF_CLASSES                 ? "classes"
           : of & DT_OF_LABELS                  ? "several labels at once"
           : of & DT_OF_NUMBERS                 ? "numbers"
                                                : "pairs of embeddings";
}

// The metric fits none of n targets.
static dt_status fail_unfit(const dt_config *c, const dt_graph *graph, const char *key, int id, const given *g, int n) {
    const dt_metric *m = dt_metrics_table[id];
    // list: the metrics that do fit
    char list[512] = "", limit[64] = "", whose[192] = "none of train.targets gives; they give";
    unsigned of = 0; // of: what all targets give together
    for (int k = 0; k < n; k++) of |= g[k].of;
    of &= m->of;
    for (int i = 0; i < DT_N_METRICS; i++) {
        size_t at = strlen(list);
        if (fits_any(i, g, n)) snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", names[i]);
    }
    // a limit is named only where the number of outputs, and not the kind of target, is at fault
    if (of && m->least_out) snprintf(limit, sizeof limit, "at least %d ", m->least_out);
    if (of && m->outs[0]) snprintf(limit, sizeof limit, "%d or %d ", m->outs[0], m->outs[1]);
    if (of && m->most_out) snprintf(limit, sizeof limit, "at most %d ", m->most_out);
    if (n == 1 && g->target->field->n_strangers > 0)
        snprintf(whose, sizeof whose, "the run knows only some of: %s has %d others, and pairs distinguish them",
                 g->target->field->name, g->target->field->n_strangers);
    else if (n == 1)
        snprintf(whose, sizeof whose, "model %s with train.loss %s does not give; it gives", graph->name,
                 dt_losses[g->target->loss].id);
    if (n == 1 && *limit)
        return dt_config_fail(c, key, "%s is of %s%s, and %s has %lld; possible here: %s", names[id], limit,
                              kind_of(of), g->target->field->name, (long long)g->n_out, list);
    return dt_config_fail(c, key, "%s is of %s%s, which %s: %s", names[id], limit, kind_of(of ? of : m->of), whose,
                          list);
}

static bool is_default(int id, const given *g) {
    const dt_metric *m = dt_metrics_table[id];
    if (!metric_fits(id, g)) return false;
    // unseen classes: their logits mean nothing, so metrics of classes are not even default ones
    return g->classes == DT_CLASSES_UNSEEN ? m->of & (DT_OF_PAIRS | DT_OF_LOSS) : m->by_default;
}

// A metric that is listed is computed for every target that it fits.
static dt_status choose_wanted(dt_metric_choice *out, const dt_config *c, const dt_graph *graph, const given *g,
                               int n) {
    const bool listed = c->eval.metrics.n > 0;
    for (int i = 0; i < DT_N_METRICS; i++) {
        // listed by the user: without effect anywhere would be an error
        const bool named = listed && dt_words_have(&c->eval.metrics, i);
        for (int k = 0; k < n; k++) out->wanted[k][i] = listed ? named && metric_fits(i, &g[k]) : is_default(i, &g[k]);
        if (named && !fits_any(i, g, n)) return fail_unfit(c, graph, "eval.metrics", i, g, n);
    }
    return DT_OK;
}

// *at: the target that eval.best is of; -1: eval.best is the loss over all targets.
static dt_status choose_target(int *at, const dt_config *c, const dt_graph *graph, const dt_targets *targets,
                               const given *g) {
    const int id = dt_metric_of_best(c->eval.best);
    int n_fit = 0;
    *at = targets->named ? -1 : 0; // -1 until a target is found: the loss over all
    if (!targets->named && c->eval.target)
        return dt_config_fail(c, "eval.target", "eval.target chooses between train.targets");
    if (c->eval.target) {
        char known[512] = "";
        // no break: the message below lists every name
        for (int k = 0; k < targets->n; k++) {
            if (strcmp(targets->items[k].field->name, c->eval.target) == 0) *at = k;
            dt_text_list(known, sizeof known, targets->items[k].field->name);
        }
        return *at >= 0 ? DT_OK : dt_config_fail_name(c, "eval.target", c->eval.target, "name of train.targets", known);
    }
    // one target, or a metric of all of them: nothing to choose
    if (!targets->named || id == DT_METRIC_AUTO || id == DT_METRIC_loss) return DT_OK;
    for (int k = 0; k < targets->n; k++)
        if (metric_fits(id, &g[k])) *at = k, n_fit++;
    if (n_fit == 0) return fail_unfit(c, graph, "eval.best", id, g, targets->n);
    if (n_fit > 1)
        return dt_config_fail(
            c, "eval.best", "%s has a value for each of %d targets: choose one by eval.target, or use loss, their sum",
            names[id], n_fit);
    return DT_OK;
}

static dt_status choose_best(dt_metric_choice *out, const dt_config *c, const dt_graph *graph, const given *g) {
    static const char KEY[] = "eval.best";
    const int id = dt_metric_of_best(c->eval.best);
    // default of the loss: accuracy, mae, ...; then the exceptions by data; then the user's word
    out->best = dt_losses[g->target->loss].best;
    if (g->classes == DT_CLASSES_UNSEEN) out->best = DT_METRIC_eer;
    if (g->classes == DT_CLASSES_UNEVEN && out->best == DT_METRIC_accuracy) out->best = DT_METRIC_macro_f1;
    if (id != DT_METRIC_AUTO) out->best = (dt_metric_id)id;
    // auto falls back to the loss; a metric that the user names must fit
    if (!metric_fits(out->best, g) && id == DT_METRIC_AUTO) out->best = DT_METRIC_loss;
    if (!metric_fits(out->best, g)) return fail_unfit(c, graph, KEY, out->best, g, 1);
    // e.g. accuracy over classes without a training sample
    if (g->classes == DT_CLASSES_UNSEEN && dt_metrics_table[out->best]->of == DT_OF_CLASSES)
        return dt_config_fail(c, KEY,
                              "%s is of classes that training sees, and the split leaves it none "
                              "of those that are evaluated: use eer, or auto",
                              names[out->best]);
    // "best" compares one number between evaluations
    if (dt_metrics_table[out->best]->no_best)
        return dt_config_fail(c, KEY, "%s is no single number: choose another metric", names[out->best]);
    return DT_OK;
}

dt_status dt_metric_choose(dt_metric_choice *out, const dt_config *c, const dt_graph *graph, const dt_targets *targets,
                           const dt_classes classes[DT_MAX_TARGETS]) {
    given g[DT_MAX_TARGETS];
    int at;
    out->top_k = (int)c->eval.top_k;
    out->threshold = c->eval.threshold;
    // of two classes the second is the positive one, as in scikit-learn
    for (int k = 0; k < targets->n; k++) out->positive[k] = 1;
    out->by = c->eval.by;
    out->n_bootstrap = (int)c->eval.bootstrap;
    out->bootstrap_unit = c->eval.bootstrap_unit;
    out->radians = c->eval.angles == DT_ANGLES_radians;
    for (int k = 0; k < targets->n; k++) g[k] = given_by(&targets->items[k], graph, classes[k]);
    unsigned of = 0;
    for (int k = 0; k < targets->n; k++) of |= g[k].of;
    // F1 needs a probability per label; classes have one threshold only through argmax
    if (out->threshold.is_auto && !(of & DT_OF_LABELS))
        return dt_config_fail(
            c, "eval.threshold",
            "eval.threshold: f1 is for multi-label classification (train.loss: bce), which this run does not do");
    DT_TRY(choose_wanted(out, c, graph, g, targets->n));
    DT_TRY(choose_target(&at, c, graph, targets, g));
    // over all targets there is one loss and no other number
    out->best = DT_METRIC_loss;
    snprintf(out->best_name, sizeof out->best_name, "loss");
    out->best_target = at;
    const char *class = c->eval.best_class;
    if (at < 0 && class) return dt_config_fail(c, "eval.best_class", "eval.best: loss has no value of a class");
    if (at < 0) return DT_OK;
    DT_TRY(choose_best(out, c, graph, &g[at]));
    out->wanted[at][out->best] = true; // checkpoints are chosen by it, so it is computed even if eval.metrics lacks it
    const int least = dt_metrics_table[out->best]->by_class;
    if (class && (!least || dt_target_n_out(&targets->items[at]) < least))
        return dt_config_fail(c, "eval.best_class", "eval.best: %s has no value of each class here; recall has",
                              names[out->best]);
    snprintf(out->best_name, sizeof out->best_name, "%s%s%s%s%s", targets->named ? targets->items[at].field->name : "",
             targets->named ? "." : "", names[out->best], class ? "." : "", class ? class : "");
    return DT_OK;
}

// Class k by name.
static bool is_class(const dt_target *t, int k, const char *name) {
    const char *own = dt_field_name_of(t->field, k);
    char number[16]; // a class without a name has its number for one
    snprintf(number, sizeof number, "%d", k);
    return strcmp(own ? own : number, name) == 0;
}

static dt_status check_best_class(const dt_metric_choice *out, const dt_config *c, const dt_targets *targets) {
    const dt_target *t = &targets->items[out->best_target];
    char known[512] = "", number[16];
    for (int k = 0; k < (int)dt_target_n_out(t); k++) {
        const char *name = dt_field_name_of(t->field, k);
        if (is_class(t, k, c->eval.best_class)) return DT_OK;
        snprintf(number, sizeof number, "%d", k);
        dt_text_list(known, sizeof known, name ? name : number);
    }
    return dt_config_fail_name(c, "eval.best_class", c->eval.best_class, "class", known);
}

dt_status dt_metric_choose_positive(dt_metric_choice *out, const dt_config *c, const dt_targets *targets) {
    static const char KEY[] = "eval.positive";
    const dt_cnode *list = c->eval.positive;
    int chosen[DT_MAX_TARGETS] = {0}; // how often
    if (c->eval.best_class) DT_TRY(check_best_class(out, c, targets));
    for (size_t i = 0; list && i < dt_cnode_size(list); i++) {
        const char *name = dt_cnode_str(dt_cnode_item(list, i));
        bool found = false;
        for (int t = 0; t < targets->n; t++) {
            const dt_target *target = &targets->items[t];
            // targets may share names: "yes" chooses the class of each that has it
            for (int k = 0; target->field->n_classes == 2 && k < 2; k++)
                if (is_class(target, k, name)) out->positive[t] = k, chosen[t]++, found = true;
            if (chosen[t] > 1)
                return dt_config_fail(c, KEY,
                                      "%s names classes of %s twice: take one (targets with the same names "
                                      "have the same class)",
                                      KEY, target->field->name);
        }
        if (!found) return dt_config_fail(c, KEY, "%s: no target of two classes has a class '%s'", KEY, name);
    }
    return DT_OK;
}

// ---- values ---------------------------------------------------------------------------------------
void dt_eval_result_init(dt_eval_result *r) {
    *r = (dt_eval_result){0};
    dt_arena_init(&r->arena);
    dt_json_init(&r->extra);
    dt_json_begin_object(&r->extra, NULL); // the members are written as metrics report; the object stays open
}

void dt_eval_result_fini(dt_eval_result *r) {
    free(r->values);
    dt_json_fini(&r->extra);
    dt_arena_fini(&r->arena);
    *r = (dt_eval_result){0};
}

void dt_eval_result_add(dt_eval_result *r, const char *name, double value) {
    if (r->n_values == r->cap_values) {
        r->cap_values = r->cap_values ? 2 * r->cap_values : 16;
        r->values = dt_xrealloc(r->values, sizeof *r->values * (size_t)r->cap_values);
    }
    r->values[r->n_values++] = (dt_metric_value){dt_arena_strdup(&r->arena, name), value};
}

double dt_eval_result_get(const dt_eval_result *r, const char *name) {
    for (int i = 0; i < r->n_values; i++)
        if (strcmp(r->values[i].name, name) == 0) return r->values[i].value;
    return NAN; // as a metric that this evaluation did not compute
}

const char *dt_eval_result_members(const dt_eval_result *r) {
    return r->extra.data + 1; // behind the brace, which is never closed
}

void dt_eval_result_write(const dt_eval_result *r, const char *split, const char *weights, int64_t step, dt_json *j) {
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "split", split);
    dt_json_string(j, "weights", weights);
    dt_json_int(j, "step", step);
    dt_json_int(j, "samples", r->n_samples);
    for (int i = 0; i < r->n_values; i++) dt_json_real(j, r->values[i].name, r->values[i].value);
    // members of extra go in as they stand, without the open brace
    if (*dt_eval_result_members(r)) dt_json_raw(j, NULL, dt_eval_result_members(r));
    dt_json_end_object(j);
    dt_json_newline(j);
}
