// evaluate.c: from a network's outputs to a table, and from the table to values.

#include "train/evaluate.h"

#include "base/arena.h"
#include "base/failpoint.h"
#include "graph/losses.h"
#include "train/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOGITS, EMBEDDING }; // outputs, in this order

struct dt_evaluator {
    dt_infer *infer;
    dt_comm *comm;
    const dt_metric_choice *metrics;
    const dt_field_info *target; // its field, number target_field
    int target_field;
    dt_attrs loss;
    bool of_classes, of_numbers; // what the target holds
    int64_t n_out, n_embedding;  // 0: not asked for
    // the evaluation in progress, on rank 0
    const dt_dataset *data;
    dt_split split;
    int64_t n, cap;
    float *logits, *targets, *embeddings;
    int32_t *labels;
    uint32_t *records;
    int width;
    double *losses;
};

// ---- the loss of a sample --------------------------------------------------------------------------

// Cross-entropy of logits x with a class (q NULL) or shares q of the classes, smoothed as in training.
static double cross_entropy(const dt_evaluator *e, const float *x, int32_t label, const float *q) {
    const int64_t n = e->n_out;
    const double s = (double)e->loss.loss.smoothing;
    double max = -INFINITY, z = 0, mass = 0, hit = 0, all = 0;
    for (int64_t k = 0; k < n; k++) max = (double)x[k] > max ? (double)x[k] : max;
    for (int64_t k = 0; k < n; k++) {
        const double share = q ? (double)q[k] : k == label;
        z += exp((double)x[k] - max);
        mass += share;
        if (share != 0) hit += share * (double)x[k];
        if (s != 0) all += (double)x[k];
    }
    return (max + log(z)) * ((1 - s) * mass + s) - (1 - s) * hit - s / (double)n * all;
}

static double loss_of(const dt_evaluator *e, const float *x, const void *target) {
    const dt_loss_id id = e->loss.loss.id;
    const double p = (double)e->loss.loss.param;
    if (dt_losses[id].softmax) {
        const bool classes = e->of_classes;
        const double ce = cross_entropy(e, x, classes ? *(const int32_t *)target : 0,
                                        classes ? NULL : (const float *)target);
        return dt_loss_value(id, ce, 0, p);
    }
    double sum = 0;
    for (int64_t k = 0; k < e->n_out; k++)
        sum += dt_loss_value(id, (double)x[k], (double)((const float *)target)[k], p);
    return sum / (double)e->n_out;
}

// ---- the table -------------------------------------------------------------------------------------

static void *grown(void *p, int64_t cap, int64_t n, size_t size) {
    return n > 0 ? dt_xrealloc(p, (size_t)(cap * n) * size) : NULL;
}

static void make_room(dt_evaluator *e) {
    if (e->n < e->cap) return;
    e->cap = e->cap ? 2 * e->cap : 1024;
    e->logits = grown(e->logits, e->cap, e->n_out, sizeof *e->logits);
    e->targets = grown(e->targets, e->cap, e->of_classes ? 0 : e->n_out, sizeof *e->targets);
    e->labels = grown(e->labels, e->cap, e->of_classes, sizeof *e->labels);
    e->embeddings = grown(e->embeddings, e->cap, e->n_embedding, sizeof *e->embeddings);
    e->records = grown(e->records, e->cap, DT_MAX_WIDTH, sizeof *e->records);
    e->losses = grown(e->losses, e->cap, 1, sizeof *e->losses);
}

// Numbers were normalised for the network: in the table they are in the field's unit.
static void take_numbers(const dt_evaluator *e, float *out, const float *x) {
    for (int64_t k = 0; k < e->n_out; k++)
        out[k] =
            e->of_numbers ? x[k] * dt_field_std(e->target, k) + dt_field_mean(e->target, k) : x[k];
}

static dt_status take(void *ctx, const dt_infer_sample *s) {
    dt_evaluator *e = ctx;
    if (s->why) return DT_OK;
    make_room(e);
    const int64_t i = e->n++;
    const float *x = s->output[LOGITS];
    const void *target = s->field[e->target_field];
    e->losses[i] = loss_of(e, x, target);
    take_numbers(e, e->logits + i * e->n_out, x);
    if (e->of_classes)
        e->labels[i] = *(const int32_t *)target;
    else
        take_numbers(e, e->targets + i * e->n_out, target);
    if (e->n_embedding)
        memcpy(e->embeddings + i * e->n_embedding, s->output[EMBEDDING],
               sizeof(float) * (size_t)e->n_embedding);
    uint32_t of[DT_MAX_WIDTH] = {0};
    if (e->data->records) e->width = e->data->records(e->data, e->split, s->index, of);
    memcpy(e->records + i * e->width, of, sizeof *of * (size_t)e->width);
    return DT_OK;
}

static void drop_table(dt_evaluator *e) {
    free(e->logits);
    free(e->targets);
    free(e->labels);
    free(e->embeddings);
    free(e->records);
    free(e->losses);
    e->logits = e->targets = e->embeddings = NULL;
    e->labels = NULL;
    e->records = NULL;
    e->losses = NULL;
    e->n = e->cap = 0;
}

// ---- values ----------------------------------------------------------------------------------------

static dt_status report(dt_evaluator *e, dt_eval_result *out) {
    if (e->n == 0) return dt_fail(DT_E_DATA, "no record of the split could be read");
    dt_verification pairs = {.n_samples = -1};
    const dt_eval_table t = {.n = e->n,
                             .n_out = e->n_out,
                             .logits = e->logits,
                             .labels = e->labels,
                             .targets = e->targets,
                             .embeddings = e->embeddings,
                             .n_embedding = e->n_embedding,
                             .records = e->width ? e->records : NULL,
                             .width = e->width,
                             .losses = e->losses,
                             .class_names = e->target->class_names,
                             .top_k = e->metrics->top_k,
                             .threshold = e->metrics->threshold,
                             .radians = e->metrics->radians,
                             .pairs = &pairs};
    for (int i = 0; i < DT_N_METRICS; i++)
        if (e->metrics->wanted[i]) dt_metrics_table[i]->report(&t, out);
    return DT_OK;
}

// A line a value: hex digits, which lose nothing, and the name.
static char *values_text(const dt_evaluator *e, const dt_eval_result *r) {
    char *text = dt_xprintf("%lld\n", (long long)e->n);
    for (int i = 0; i < r->n_values; i++) {
        char *longer = dt_xprintf("%s%a %s\n", text, r->values[i].value, r->values[i].name);
        free(text);
        text = longer;
    }
    return text;
}

static void read_values(dt_eval_result *r, char *text) {
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    r->n_samples = strtoll(line, NULL, 10);
    while ((line = strtok_r(NULL, "\n", &rest))) {
        char *name = NULL;
        const double value = strtod(line, &name);
        dt_eval_result_add(r, name + 1, value);
    }
}

// Rank 0's values, or its failure, on all ranks.
static dt_status share_values(dt_evaluator *e, dt_status st, dt_eval_result *out) {
    dt_comm *c = e->comm;
    bool told = false;
    char *text = c->rank == 0 && st == DT_OK ? values_text(e, out) : NULL;
    out->n_samples = e->n;
    st = dt_agree_result(c, st, &text, &told);
    if (st == DT_OK && c->rank > 0) read_values(out, text);
    free(text);
    return st;
}

dt_status dt_evaluator_run(dt_evaluator *e, dt_dataset *data, dt_split split, dt_eval_result *out) {
    *out = (dt_eval_result){0};
    e->data = data;
    e->split = split;
    (void)dt_failpoint("evaluate");
    dt_eval_result_init(out);
    dt_status st = dt_infer_run(e->infer, data, split, take, e);
    if (st == DT_OK) {
        if (e->comm->rank == 0) st = report(e, out);
        st = share_values(e, st, out);
    }
    drop_table(e);
    if (st != DT_OK) dt_eval_result_fini(out);
    return st;
}

// ---- life ------------------------------------------------------------------------------------------

static bool wants(const dt_metric_choice *m, unsigned of) {
    for (int i = 0; i < DT_N_METRICS; i++)
        if (m->wanted[i] && (dt_metrics_table[i]->of & of)) return true;
    return false;
}

// What the graph's loss compares its logits with.
static dt_status find_target(dt_evaluator *e, const dt_infer_opts *o) {
    const dt_graph *g = o->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const dt_node *node = &g->nodes[i];
        if (node->dead || node->op != DT_OP_loss) continue;
        const char *name = g->values[node->in[1]].name;
        e->loss = node->attrs;
        for (int f = 0; f < o->n_fields; f++)
            if (strcmp(o->fields[f].name, name) == 0) e->target_field = f;
    }
    if (e->target_field < 0)
        return dt_fail(DT_E_USAGE, "model '%s' has no loss to evaluate", g->name);
    e->target = &o->fields[e->target_field];
    e->of_classes = e->target->n_classes > 0;
    e->of_numbers = !e->of_classes && dt_losses[e->loss.loss.id].gives_numbers;
    return DT_OK;
}

dt_status dt_evaluator_create(dt_evaluator **out, const dt_infer_opts *opts,
                              const dt_metric_choice *metrics) {
    dt_evaluator *e = dt_xcalloc(1, sizeof *e);
    dt_infer_opts o = *opts;
    e->metrics = metrics;
    e->comm = o.comm;
    e->target_field = -1;
    dt_status st = find_target(e, &o);
    if (st == DT_OK) {
        o.outputs[LOGITS] = "logits";
        o.outputs[EMBEDDING] = "embedding";
        o.n_outputs = wants(metrics, DT_OF_PAIRS) ? 2 : 1;
        o.wants_field[e->target_field] = true;
        st = dt_infer_create(&e->infer, &o);
    }
    if (st != DT_OK) {
        dt_evaluator_destroy(e);
        return st;
    }
    e->n_out = dt_infer_output_size(e->infer, LOGITS);
    if (o.n_outputs > 1) e->n_embedding = dt_infer_output_size(e->infer, EMBEDDING);
    *out = e;
    return DT_OK;
}

void dt_evaluator_destroy(dt_evaluator *e) {
    if (!e) return;
    dt_infer_destroy(e->infer);
    free(e);
}
