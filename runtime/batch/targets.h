// targets.h: what a network predicts: fields of the data, each with its loss.
//
// Without train.targets there is one target, the only field that can be one (a class, a number or a vector), with
// train.loss. Of a class and numbers without an image or a sound it is the class, since no network reads classes. With it the fields that it names are the targets, in the order of the data's fields, each with a head of
// its own on the shared trunk. The loss of a sample is then the sum of theirs, each times its weight.
#ifndef DT_GRAPH_TARGETS_H
#define DT_GRAPH_TARGETS_H

#include "batch/field_info.h"
#include "batch/loss_row.h"

enum { DT_MAX_TARGETS = 8 };

typedef struct dt_target {
    const dt_field_info *field;
    int index;       // of the field
    unsigned kind;   // DT_TARGET_…: what the graph gets of it
    dt_word loss;    // dt_loss_id
    float weight;    // of its loss in the sum
    float smoothing; // of labels
    float param;     // of the loss
    float scale;     // angular: of the cosines
} dt_target;

typedef struct dt_targets {
    dt_target items[DT_MAX_TARGETS];
    int n;
    bool named; // by train.targets: heads, outputs and metrics carry the targets' names
} dt_targets;

// From train.targets, or train.loss. training: samples may be mixed, and classes then are shares of classes. DT_E_USAGE
// with the place of what does not fit.
dt_status dt_targets_read(dt_targets *out, const dt_config *c, const dt_field_info *fields, int n_fields,
                          bool training);
// "logits", or "<field>.logits" where targets are named. text: room for it.
const char *dt_target_logits(const dt_targets *all, const dt_target *t, char *text, size_t cap);
// Outputs of the head: classes, or numbers a sample.
int64_t dt_target_n_out(const dt_target *t);

#endif
