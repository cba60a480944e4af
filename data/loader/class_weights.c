// class_weights.c: train.class_weights: a training sample's weight in the loss is that of its class, and the loss divides
// by the sum of the weights. A loss that weighs each class in its sum (graph/losses.h) gets the weights with the field:
// there a mixed sample has the weight 1, as in torch.nn.CrossEntropyLoss; elsewhere it has the mean of its classes'
// weights by its shares.
#include "data_parts.h"

#include "base/arena.h"
#include "graph/targets.h"

#include <stdlib.h>
#include <string.h>

static const char KEY[] = "train.class_weights";

int32_t dt_data_class(const dt_data *d, const dt_field *f, dt_split split, uint32_t i) {
    const uint32_t *r = d->view.record + (size_t)d->splits.sample[split][i] * (size_t)d->view.width;
    return f->label[dt_catalog_cell(d->reader->catalog, f->column, r[f->part])];
}

// The class field that is the only target, or -1.
static int find_field(const dt_data *d, const dt_config *c) {
    const int n_targets = c->train.n_targets;
    int found = -1, n = 0;
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field_info *f = &d->fields.info[i];
        bool is_target = n_targets == 0;
        for (int k = 0; k < n_targets; k++)
            is_target |= strcmp(c->train.targets[k].id, f->name) == 0;
        if (f->n_classes > 0 && is_target) found = i, n++;
    }
    return n == 1 && n_targets <= 1 ? found : -1;
}

static dt_status balance(dt_data *d, const dt_config *c, int field, int n) {
    const uint32_t n_samples = d->splits.n[DT_SPLIT_TRAIN];
    int64_t *counts = dt_xcalloc((size_t)n, sizeof *counts);
    int n_seen = 0;
    for (uint32_t i = 0; i < n_samples; i++)
        counts[dt_data_class(d, &d->fields.f[field], DT_SPLIT_TRAIN, i)]++;
    for (int k = 0; k < n; k++) n_seen += counts[k] > 0;
    for (int k = 0; k < n; k++) // of a class that training has not, nothing depends
        d->class_weights[k] =
            counts[k] ? (float)((double)n_samples / (double)n_seen / (double)counts[k]) : 1.0f;
    free(counts);
    return DT_OK;
}

static dt_status take_list(dt_data *d, const dt_config *c, const dt_cnode *list, int n) {
    if ((int)dt_cnode_size(list) != n)
        return dt_config_fail(c, KEY, "%s has %zu numbers; there are %d classes", KEY,
                              dt_cnode_size(list), n);
    for (int k = 0; k < n; k++) {
        const dt_cnode *item = dt_cnode_item(list, (size_t)k);
        double v;
        if (!dt_cnode_real(item, &v) || !(v > 0 && v <= 1e9))
            return dt_fail(DT_E_USAGE, "%s: %s: '%s' is no number above 0", dt_cnode_where(item),
                           KEY, dt_cnode_str(item));
        d->class_weights[k] = (float)v;
    }
    return DT_OK;
}

dt_status dt_class_weights_read(dt_data *d, const dt_config *c) {
    const dt_cnode *list = c->train.class_weights;
    const int field = find_field(d, c);
    if (!list || d->splits.n[DT_SPLIT_TRAIN] == 0) return DT_OK;
    if (field < 0)
        return dt_config_fail(c, KEY, "%s is for a single target, which is a class", KEY);
    dt_targets targets;
    DT_TRY(dt_targets_read(&targets, c, d->fields.info, d->fields.n, true));
    const int n = d->fields.info[field].n_classes;
    d->weighted_field = field;
    d->class_weights = dt_xcalloc((size_t)n, sizeof *d->class_weights);
    const bool balanced =
        dt_cnode_size(list) == 1 && strcmp(dt_cnode_str(dt_cnode_item(list, 0)), "balanced") == 0;
    if (dt_losses[targets.items[0].loss].by_class)
        d->fields.info[field].class_weights = d->class_weights;
    return balanced ? balance(d, c, field, n) : take_list(d, c, list, n);
}

void dt_class_weights_apply(const dt_data *d, bool mixed, const dt_batch *b) {
    if (!d->class_weights || (mixed && d->fields.info[d->weighted_field].class_weights)) return;
    const int n = d->fields.info[d->weighted_field].n_classes;
    const void *field = b->field[d->weighted_field];
    for (int j = 0; j < b->n; j++) {
        float w = 0;
        if (mixed)
            for (int k = 0; k < n; k++)
                w +=
                    ((const float *)field)[(size_t)j * (size_t)n + (size_t)k] * d->class_weights[k];
        else
            w = d->class_weights[((const int32_t *)field)[j]];
        b->weight[j] *= w;
    }
}
