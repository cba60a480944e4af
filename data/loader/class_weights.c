// class_weights.c: train.class_weights: a training sample's weight in the loss is that of its class, and the loss divides
// by the sum of the weights. A loss that weighs each class in its sum (batch/losses.h) gets the weights with the field:
// there a mixed sample has the weight 1, as in torch.nn.CrossEntropyLoss; elsewhere it has the mean of its classes'
// weights by its shares. With several targets each loss has its own, and so has the class's beside a teacher's
// (train.teacher): the samples' weights, which every loss takes, stay as they are.
// train.pos_weight: the same of labels, for their positives (torch.nn.BCEWithLogitsLoss).
#include "data_parts.h"

#include "base/core.h"
#include "base/text.h"
#include "batch/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t dt_data_class(const dt_data *d, const dt_field *f, dt_split split, uint32_t i) {
    const uint32_t *r = d->view.record + (size_t)d->splits.sample[split][i] * (size_t)d->view.width;
    return f->label[dt_catalog_cell(d->reader->catalog, f->column, r[f->part])];
}

// ---- balanced --------------------------------------------------------------------------------------
static void balance_classes(const dt_data *d, int field, int n, float *weights) {
    const uint32_t n_samples = d->splits.n[DT_SPLIT_TRAIN];
    int64_t *counts = dt_xcalloc((size_t)n, sizeof *counts);
    int n_seen = 0;
    for (uint32_t i = 0; i < n_samples; i++) counts[dt_data_class(d, &d->fields.f[field], DT_SPLIT_TRAIN, i)]++;
    for (int k = 0; k < n; k++) n_seen += counts[k] > 0;
    for (int k = 0; k < n; k++) // of a class that training has not, nothing depends
        // n / (classes * count), as scikit-learn's "balanced"
        weights[k] = counts[k] ? (float)((double)n_samples / (double)n_seen / (double)counts[k]) : 1.0f;
    free(counts);
}

// Labels in columns: those in members would all have to be read.
static dt_status balance_labels(const dt_data *d, const dt_config *c, const char *key, int field, int n,
                                float *weights) {
    const dt_field *f = &d->fields.f[field];
    const uint32_t n_samples = d->splits.n[DT_SPLIT_TRAIN];
    if (!f->numbers)
        return dt_config_fail(c, key,
                              "%s: balanced counts columns (source: [a, b]), and field %s is a "
                              "member: list the numbers",
                              key, f->name);
    for (int k = 0; k < n; k++) {
        double positive = 0;
        for (uint32_t i = 0; i < n_samples; i++) {
            const uint32_t *r = d->view.record + (size_t)d->splits.sample[DT_SPLIT_TRAIN][i] * (size_t)d->view.width;
            positive += (double)dt_field_number(&d->fields, field, k, d->reader->catalog, r[f->part]);
        }
        // negatives / positives, as PyTorch's pos_weight is meant
        weights[k] = positive > 0 && positive < n_samples ? (float)((n_samples - positive) / positive)
                                                          : 1.0f; // nothing to balance
    }
    return DT_OK;
}

// ---- a target --------------------------------------------------------------------------------------
// {leak: 3}: by name, or by number where a class has none.
static dt_status take_names(const dt_config *c, const char *key, const dt_cnode *map, const dt_target *t, int n,
                            const char *what, float *weights) {
    char names[512] = "", number[16];
    for (int k = 0; k < n; k++) weights[k] = 1;
    for (size_t i = 0; i < dt_cnode_size(map); i++) {
        const dt_cnode *item = dt_cnode_item(map, i);
        double v;
        int at = -1;
        if (!dt_cnode_real(item, &v) || !(v > 0 && v <= 1e9))
            return dt_fail(DT_E_USAGE, "%s: %s.%s: expected a number above 0", dt_cnode_where(item), key,
                           dt_cnode_key(map, i));
        for (int k = 0; k < n; k++) {
            const char *name = dt_field_name_of(t->field, k);
            snprintf(number, sizeof number, "%d", k);
            if (strcmp(name ? name : number, dt_cnode_key(map, i)) == 0) at = k;
            if (i == 0) dt_text_list(names, sizeof names, name ? name : number);
        }
        if (at < 0) return dt_config_fail_name(c, key, dt_cnode_key(map, i), what, names);
        weights[at] = (float)v;
    }
    return DT_OK;
}

static dt_status take_list(const dt_config *c, const char *key, const dt_cnode *list, int n, const char *what,
                           float *weights) {
    const int n_given = (int)dt_cnode_size(list);
    for (int k = 0; k < n_given; k++) {
        const dt_cnode *item = dt_cnode_item(list, (size_t)k);
        double v;
        if (!dt_cnode_real(item, &v) || !(v > 0 && v <= 1e9))
            return dt_fail(DT_E_USAGE, "%s: %s: '%s' is neither balanced nor a number above 0", dt_cnode_where(item),
                           key, dt_cnode_str(item));
        if (k < n) weights[k] = (float)v; // too many: counted, then refused
    }
    if (n_given == n) return DT_OK;
    return dt_config_fail(c, key, "%s has %d numbers; there are %d %s", key, n_given, n, what);
}

// by_class, positives: values of the target's keys `prefix`class_weights and `prefix`pos_weight, or NULL. apart: other losses have not
// these weights.
static dt_status read_target(dt_data *d, const dt_config *c, const dt_target *t, bool apart, const char *prefix,
                             const dt_cnode *by_class, const dt_cnode *positives) {
    const dt_cnode *list = by_class ? by_class : positives;
    const bool classes = t->field->n_classes > 0;
    const int n = (int)dt_target_n_out(t);
    char key[512];
    if (!list) return DT_OK;
    snprintf(key, sizeof key, "%s%s", prefix, by_class ? "class_weights" : "pos_weight");
    if (by_class && !classes) return dt_config_fail(c, key, "%s is for a target that is a class", key);
    if (apart && t->kind == DT_TARGET_SHARES && !dt_losses[t->loss].by_class)
        return dt_config_fail(c, key, "%s: with data.mix and several targets, or a teacher, only of cross_entropy",
                              key);
    float *weights = d->class_weights[t->index] = dt_xcalloc((size_t)n, sizeof *weights);
    if (!apart && by_class) d->weighted_field = t->index;
    if (apart || !by_class || dt_losses[t->loss].by_class) d->fields.info[t->index].class_weights = weights;
    if (dt_cnode_kind(list) == DT_C_MAP) return take_names(c, key, list, t, n, classes ? "class" : "label", weights);
    if (dt_cnode_size(list) != 1 || strcmp(dt_cnode_str(dt_cnode_item(list, 0)), "balanced") != 0)
        return take_list(c, key, list, n, classes ? "classes" : "labels", weights);
    if (!classes) return balance_labels(d, c, key, t->index, n, weights);
    balance_classes(d, t->index, n, weights);
    return DT_OK;
}

dt_status dt_class_weights_read(dt_data *d, const dt_config *c) {
    const dt_cnode *by_class = c->train.class_weights, *positives = c->train.pos_weight;
    const bool several = c->train.n_targets > 1, apart = several || c->train.teacher;
    bool any = by_class || positives;
    dt_targets targets;
    d->weighted_field = -1;
    if (any && several)
        return dt_config_fail(c, by_class ? "train.class_weights" : "train.pos_weight",
                              "%s is for a single target: with several in train.targets each has "
                              "its own",
                              by_class ? "train.class_weights" : "train.pos_weight");
    for (int i = 0; i < c->train.n_targets; i++)
        any |= c->train.targets[i].class_weights || c->train.targets[i].pos_weight;
    if (!any || d->splits.n[DT_SPLIT_TRAIN] == 0) return DT_OK;
    DT_TRY(dt_targets_read(&targets, c, d->fields.info, d->fields.n, true));
    if (by_class || positives) return read_target(d, c, &targets.items[0], apart, "train.", by_class, positives);
    for (int k = 0; k < targets.n; k++)
        for (int i = 0; i < c->train.n_targets; i++) {
            const dt_config_target *own = &c->train.targets[i];
            char prefix[256];
            if (strcmp(own->id, targets.items[k].field->name) != 0) continue;
            snprintf(prefix, sizeof prefix, "train.targets.%s.", own->id);
            DT_TRY(read_target(d, c, &targets.items[k], apart, prefix, own->class_weights, own->pos_weight));
        }
    return DT_OK;
}

void dt_class_weights_apply(const dt_data *d, bool mixed, const dt_batch *b) {
    const float *weights = d->weighted_field < 0 ? NULL : d->class_weights[d->weighted_field];
    if (!weights || (mixed && d->fields.info[d->weighted_field].class_weights)) return; // the loss has them
    const int n = d->fields.info[d->weighted_field].n_classes;
    const void *field = b->field[d->weighted_field];
    for (int j = 0; j < b->n; j++) {
        float w = 0;
        if (mixed)
            for (int k = 0; k < n; k++) w += ((const float *)field)[(size_t)j * (size_t)n + (size_t)k] * weights[k];
        else
            w = weights[((const int32_t *)field)[j]];
        b->weight[j] *= w;
    }
}
