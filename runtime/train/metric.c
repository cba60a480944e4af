// metric.c: the table of metrics, which of them a run computes, and the values that they report.

#include "train/metric.h"

#include "graph/losses.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
int64_t dt_metric_output_size(const dt_graph *g, const char *name) {
    for (int i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->outputs[i].name, name) != 0) continue;
        const dt_shape *s = &g->values[g->outputs[i].value].shape;
        return s->n == 2 ? s->d[1] : 0;
    }
    return 0;
}

bool dt_metric_has_classes(const dt_graph *g) {
    for (dt_value v = 0; v < g->n_values; v++)
        if (g->values[v].kind == DT_V_INPUT && g->values[v].dtype == DT_I32 &&
            g->values[v].shape.n == 1)
            return dt_metric_output_size(g, "logits") > 0;
    return false;
}

int64_t dt_eval_predicted(const dt_eval_table *t, int64_t i, int64_t *rank) {
    const float *y = t->logits + i * t->n_out;
    const int32_t label = t->labels[i];
    int64_t above = 0, best = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        if (y[k] > y[best]) best = k;
        bool below = y[k] < y[label] || (y[k] == y[label] && k > label);
        above += k != label && !below;
    }
    if (rank) *rank = above;
    return best;
}

static unsigned given_by(const dt_config *c, const dt_graph *g) {
    unsigned given = DT_OF_LOSS;
    bool classes = dt_metric_has_classes(g);
    if (classes) given |= DT_OF_CLASSES;
    if (dt_losses[dt_config_enum(c, "train.loss")].gives_numbers) given |= DT_OF_NUMBERS;
    if (dt_config_enum(c, "train.loss") == DT_LOSS_bce) given |= DT_OF_LABELS;
    if (classes && dt_metric_output_size(g, "embedding") > 0) given |= DT_OF_PAIRS;
    return given;
}

static bool fits(const dt_metric *m, unsigned given, int64_t n_out) {
    const bool one_of = m->outs[0] == 0 || n_out == m->outs[0] || n_out == m->outs[1];
    return (m->of & given) && one_of && n_out >= m->least_out &&
           (m->most_out == 0 || n_out <= m->most_out);
}

static dt_status fail_unfit(const dt_config *c, const dt_graph *g, const char *key, dt_metric_id id,
                            unsigned given, int64_t n_out) {
    const dt_metric *m = dt_metrics_table[id];
    char list[512] = "", limit[64] = "";
    for (int i = 0; i < DT_N_METRICS; i++) {
        size_t at = strlen(list);
        if (fits(dt_metrics_table[i], given, n_out))
            snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", names[i]);
    }
    if ((m->of & given) && m->least_out)
        snprintf(limit, sizeof limit, "at least %d ", m->least_out);
    if ((m->of & given) && m->outs[0])
        snprintf(limit, sizeof limit, "%d or %d ", m->outs[0], m->outs[1]);
    if ((m->of & given) && m->most_out) snprintf(limit, sizeof limit, "at most %d ", m->most_out);
    return dt_config_fail(c, key,
                          "%s is of %s%s, which model %s with train.loss %s does not give; it "
                          "gives: %s",
                          names[id], limit,
                          m->of == DT_OF_CLASSES   ? "classes"
                          : m->of == DT_OF_NUMBERS ? "numbers"
                          : m->of == DT_OF_LABELS  ? "several labels at once"
                                                   : "pairs of embeddings",
                          g->name, dt_config_str(c, "train.loss"), list);
}

// Splits by a metadata column have people in the test who were never trained on: pairs say how well they
// are told apart, and the accuracy says nothing.
static bool split_is_disjoint(const dt_config *c) {
    return dt_config_has(c, "data.split.unit") &&
           dt_word_index(DT_WORDS(DT_BY_WORDS), dt_config_str(c, "data.split.unit")) < 0;
}

dt_status dt_metric_choose(dt_metric_choice *out, const dt_config *c, const dt_graph *g) {
    const bool listed = dt_config_has(c, "eval.metrics"), best = dt_config_has(c, "eval.best");
    const unsigned given = given_by(c, g);
    const int64_t n_out = dt_metric_output_size(g, "logits");
    out->top_k = (int)dt_config_int(c, "eval.top_k");
    out->threshold = dt_config_real(c, "eval.threshold");
    out->radians = dt_config_enum(c, "eval.angles") == DT_ANGLES_radians;
    unsigned by_default = split_is_disjoint(c) ? DT_OF_PAIRS : 0;
    for (int i = 0; i < DT_N_METRICS; i++) {
        const dt_metric *m = dt_metrics_table[i];
        const bool fit = fits(m, given, n_out);
        out->wanted[i] = listed ? dt_config_lists(c, "eval.metrics", i)
                                : fit && (m->by_default || (m->of & by_default));
        if (out->wanted[i] && !fit)
            return fail_unfit(c, g, "eval.metrics", (dt_metric_id)i, given, n_out);
    }
    out->best = best ? (dt_metric_id)dt_config_enum(c, "eval.best")
                     : dt_losses[dt_config_enum(c, "train.loss")].best;
    if (!fits(dt_metrics_table[out->best], given, n_out)) {
        if (best) return fail_unfit(c, g, "eval.best", out->best, given, n_out);
        out->best = DT_METRIC_loss;
    }
    if (dt_metrics_table[out->best]->no_best)
        return dt_config_fail(c, "eval.best", "%s is no single number: choose another metric",
                              names[out->best]);
    out->wanted[out->best] = true;
    return DT_OK;
}

// ---- values ---------------------------------------------------------------------------------------
void dt_eval_result_init(dt_eval_result *r) {
    *r = (dt_eval_result){0};
    dt_arena_init(&r->arena);
    dt_json_init(&r->extra);
    dt_json_begin_object(&r->extra, NULL);
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
    return NAN;
}

const char *dt_eval_result_members(const dt_eval_result *r) {
    return r->extra.data + 1; // behind the brace, which is never closed
}

void dt_eval_result_write(const dt_eval_result *r, const char *split, const char *weights,
                          int64_t step, dt_json *j) {
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "split", split);
    dt_json_string(j, "weights", weights);
    dt_json_int(j, "step", step);
    dt_json_int(j, "samples", r->n_samples);
    for (int i = 0; i < r->n_values; i++) dt_json_real(j, r->values[i].name, r->values[i].value);
    if (*dt_eval_result_members(r)) dt_json_raw(j, NULL, dt_eval_result_members(r));
    dt_json_end_object(j);
    dt_json_newline(j);
}
