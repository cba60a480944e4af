// distil.c: knowledge distillation (Hinton et al., "Distilling the knowledge in a neural network", 2015): the network
// of another run (train.teacher) predicts beside the one that is trained, from the same augmented and mixed batch, and
// shows it what it predicts:
//
//   loss = (1 - alpha) loss + alpha T² cross-entropy(softmax(logits / T), softmax(teacher's logits / T))
//
// Its gradient is that of the usual form with the Kullback-Leibler divergence.
//
// The teacher is a part of the training graph, in front: its values' names begin with "teacher:", all of its parameters
// are frozen, batch norms take their running statistics, nothing is dropped. So it needs no plan, memory or threads of
// its own, and is the same on every rank and in every micro-batch.
#include "config/words.h"
#include "models.h"

#include <string.h>

#define DEFAULT_TEMPERATURE 4.0 // T: softens the distributions
#define DEFAULT_ALPHA       0.9 // share of the distillation loss

// Predicate of dt_graph_freeze: every parameter of the teacher.
static bool always(const void *ctx, const char *name) {
    return true;
}

// The student may have more fields, and builders refuse fields that they cannot use.
// The fields that the teacher's config has, too.
static int common_fields(const dt_model_args *a, dt_field_info *out) {
    const dt_config *c = a->teacher->config;
    int n = 0;
    for (int i = 0; i < a->n_fields; i++)
        for (int k = 0; k < c->data.n_fields; k++)
            if (strcmp(c->data.fields[k].id, a->fields[i].name) == 0) out[n++] = a->fields[i];
    return n;
}

static const dt_target *find_target(const dt_targets *targets, const char *name) {
    for (int i = 0; i < targets->n; i++)
        if (strcmp(targets->items[i].field->name, name) == 0) return &targets->items[i];
    return NULL;
}

static dt_status check_targets(const dt_targets *own, const dt_targets *theirs, const dt_config *c) {
    for (int i = 0; i < own->n; i++) {
        // distillation compares distributions over the same classes: numbers, vectors and labels have none
        const dt_target *t = &own->items[i], *u = find_target(theirs, t->field->name);
        if (!dt_losses[t->loss].softmax || t->field->n_classes == 0)
            return dt_config_fail(c, "train.teacher", "train.teacher teaches classes, and %s is none", t->field->name);
        if (!u || !dt_losses[u->loss].softmax)
            return dt_config_fail(c, "train.teacher", "train.teacher: that run does not predict the class %s",
                                  t->field->name);
    }
    return DT_OK;
}

// What the teacher's run read must be fed here in the same form.
static dt_status distil_check_fields(const dt_model_args *a, const dt_targets *theirs) {
    const dt_config *c = a->teacher->config;
    for (int i = 0; i < c->data.n_fields; i++) {
        const char *name = c->data.fields[i].id, *was, *is; // values of the key in the teacher's run and here
        // the teacher's targets are not fed: its own loss is left out (dt_model_add_loss)
        if (find_target(theirs, name)) continue;
        const char *key = dt_config_field_difference(a->teacher->config, a->config, name, &was, &is);
        if (!key) continue;
        return dt_config_fail(a->config, "train.teacher",
                              "train.teacher: %s was %s in that run and is %s here: the teacher "
                              "must see what it was trained on",
                              key, was, is);
    }
    return DT_OK;
}

void dt_distil_begin(dt_graph *g, const dt_model_args *a, dt_targets *own) {
    dt_field_info fields[DT_MAX_FIELDS];
    dt_targets theirs;
    const dt_graph was = *g; // scope, freezing and flags, restored below
    dt_model_args args = *a;
    // the position of the teacher's run decides which of its scales have joined
    args.config = a->teacher->config;
    args.step = a->teacher->step;
    args.total_steps = a->teacher->total_steps;
    args.steps_per_epoch = a->teacher->steps_per_epoch;
    args.fields = fields;
    args.n_fields = common_fields(a, fields);
    args.targets = &theirs;
    // training = false: the teacher's targets stay classes; mixing reaches it through the images alone
    dt_status st = dt_targets_read(&theirs, args.config, fields, args.n_fields, false);
    // an error within the other run's config names the key here that led there
    if (st != DT_OK) st = dt_fail_context(st, "%s: train.teacher", dt_config_where(a->config, DT_KEY(train.teacher)));
    if (st == DT_OK) st = check_targets(own, &theirs, a->config);
    if (st == DT_OK) st = distil_check_fields(a, &theirs);
    if (st != DT_OK) {
        dt_graph_fail(g, "%s", dt_error_message());
        return;
    }
    dt_graph_scope(g, "teacher:");
    // frozen: no gradients, no optimizer state
    dt_graph_freeze(g, always, NULL);
    g->teacher = true;
    // evaluation mode: running statistics, no dropout, no stochastic depth
    g->training = g->drops = false;
    dt_model_build(g, &args);
    // the student is built as if nothing stood before it
    dt_graph_scope(g, was.scope);
    dt_graph_freeze(g, was.is_frozen, was.frozen_ctx);
    g->teacher = false;
    g->training = was.training;
    g->drops = was.drops;
    // (1 - alpha) of the hard loss; dt_distil_end adds the rest
    const float rest = 1 - (float)dt_value_or(a->config->train.teacher_alpha, DEFAULT_ALPHA);
    for (int i = 0; i < own->n; i++) own->items[i].weight *= rest;
}

// The output "<prefix><name>".
static dt_value find_output(const dt_graph *g, const char *prefix, const char *name) {
    const size_t n = strlen(prefix);
    for (int i = 0; i < g->n_outputs; i++)
        if (strncmp(g->outputs[i].name, prefix, n) == 0 && strcmp(g->outputs[i].name + n, name) == 0)
            return g->outputs[i].value;
    return DT_NONE;
}

void dt_distil_end(dt_graph *g, const dt_model_args *a, const dt_targets *own) {
    const float t = (float)dt_value_or(a->config->train.teacher_temperature, DEFAULT_TEMPERATURE); // T
    const float alpha = (float)dt_value_or(a->config->train.teacher_alpha, DEFAULT_ALPHA);
    char text[256];
    for (int i = 0; i < own->n && g->status == DT_OK; i++) {
        const dt_target *target = &own->items[i];
        const char *name = dt_target_logits(own, target, text, sizeof text);
        const dt_value student = find_output(g, "", name);
        dt_value soft = find_output(g, "teacher:", "logits");
        if (soft == DT_NONE) // that run names its targets
            soft = find_output(g, "teacher:", dt_arena_printf(&g->arena, "%s.logits", target->field->name));
        // (N,K): softmax at temperature T of the teacher's logits is the soft target
        soft = dt_softmax(g, dt_scale(g, soft, 1 / t));
        // T² keeps the size of the gradients as T grows (section 2 of the paper)
        dt_loss_share(g, "distillation", DT_LOSS_cross_entropy, dt_scale(g, student, 1 / t), soft,
                      dt_graph_find(g, "weight"), DT_NONE, false, 0, 0, alpha * t * t * target->weight);
    }
}
