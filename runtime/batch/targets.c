// targets.c: see targets.h.
#include "batch/targets.h"
#include "base/text.h"
#include "config/words.h"

#include <stdio.h>
#include <string.h>

static bool can_be_target(const dt_field_info *f) {
    if (f->n_categories > 0) return false;
    return !f->is_image && (f->n_classes > 0 || f->dtype == DT_F32); // an image is an input only
}

static unsigned targets_kind_of(const dt_field_info *f, bool training) {
    // class shares from data.mix exist in training only
    if (f->n_classes > 0) return f->soft && training ? DT_TARGET_SHARES : DT_TARGET_CLASS;
    return f->sample_shape.n > 0 ? DT_TARGET_VECTOR : DT_TARGET_NUMBER; // regression
}

static dt_status check_loss(const dt_config *c, const char *key, const dt_target *t) {
    const char *holds = t->kind == DT_TARGET_CLASS    ? "is a class"
                        : t->kind == DT_TARGET_SHARES ? "has shares of classes (data.mix)"
                        : t->kind == DT_TARGET_VECTOR ? "is a vector"
                                                      : "is a number";
    char list[256] = "";
    if (dt_losses[t->loss].takes & t->kind) return DT_OK; // `takes` is a mask of DT_TARGET_…
    for (int i = 0; i < DT_N_LOSSES; i++) {
        size_t at = strlen(list);
        if (dt_losses[i].takes & t->kind)
            snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", dt_losses[i].id);
    }
    // names all losses that fit
    return dt_config_fail(c, key, "%s %s does not fit: field %s %s, which these take: %s%s", key, dt_losses[t->loss].id,
                          t->field->name, holds, list,
                          dt_losses[t->loss].softmax && t->field->n_classes == 0
                              ? ". To predict a class, add it to data.fields: label: {kind: class}"
                              : "");
}

// A rotation is 3 angles or 6 numbers, as they are.
static dt_status targets_check_rotation(const dt_config *c, const char *key, dt_target *t) {
    const int64_t n = dt_shape_elements(&t->field->sample_shape);
    if (n != 3 && n != 6) // Euler angles, or two columns of the matrix (Zhou et al., 2019)
        return dt_config_fail(c, key,
                              "%s geodesic: field %s has %lld numbers; a rotation is 3 "
                              "angles or 6 numbers",
                              key, t->field->name, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (t->field->mean[i] != 0 || t->field->std[i] != 1) // normalized angles are no angles
            return dt_config_fail(c, key,
                                  "%s geodesic: field %s has normalize, and a rotation's "
                                  "numbers count as they are: leave it out",
                                  key, t->field->name);
    const bool degrees = c->eval.angles == DT_ANGLES_degrees;
    t->param = degrees ? 0.017453292519943295f : 1.0f; // pi / 180: the loss works in radians
    return DT_OK;
}

// A rate whose logarithm is predicted is that of the numbers as they are.
static dt_status check_counts(const dt_config *c, const char *key, const dt_target *t) {
    for (int64_t i = 0; i < dt_shape_elements(&t->field->sample_shape); i++)
        if (dt_field_mean(t->field, i) != 0 || dt_field_std(t->field, i) != 1) // mean 0 and std 1: not normalized
            return dt_config_fail(c, key,
                                  "%s %s: field %s has normalize, and counts are taken as they "
                                  "are: leave it out",
                                  key, dt_losses[t->loss].id, t->field->name);
    return DT_OK;
}

// own: its keys in train.targets; NULL: the single target's, in train.
static dt_status add_target(dt_targets *out, const dt_config *c, const dt_config_target *own,
                            const dt_field_info *fields, int index, bool training) {
    char prefix[256], key[512];
    double param;
    dt_target *t = &out->items[out->n++];
    snprintf(prefix, sizeof prefix, "train%s%s", own ? ".targets." : "", own ? own->id : "");
    snprintf(key, sizeof key, "%s.loss", prefix);
    *t = (dt_target){.field = &fields[index],
                     .index = index,
                     .kind = targets_kind_of(&fields[index], training), // evaluation has whole classes
                     .loss = own ? own->loss : c->train.loss,
                     .weight = own ? (float)own->weight : 1}; // weights of several targets add up to a total loss
    DT_TRY(check_loss(c, key, t));
    const dt_loss_row *loss = &dt_losses[t->loss];
    t->param = loss->param; // the loss's own default
    if (loss->rotation) DT_TRY(targets_check_rotation(c, key, t));
    if (loss->exponent) DT_TRY(check_counts(c, key, t)); // exp of the output is a rate, as in Poisson regression
    t->smoothing = (float)(own ? own->label_smoothing : c->train.label_smoothing);
    snprintf(key, sizeof key, "%s.%s", prefix, loss->param_key ? loss->param_key : "");
    // the user's value of the loss's parameter
    if (loss->param_key && dt_config_number(c, key, &param)) t->param = (float)param;
    if (loss->angular) t->scale = (float)(own ? own->arcface_scale : c->train.arcface_scale); // ArcFace's s
    return DT_OK;
}

// Fields that can be targets: "pose (class), angle (number)"; how many.
static int targets_list_candidates(const dt_field_info *fields, int n_fields, char *text, size_t cap) {
    int n = 0;
    size_t at = 0;
    *text = 0;
    for (int i = 0; i < n_fields; i++) {
        if (!can_be_target(&fields[i])) continue;
        const unsigned kind = targets_kind_of(&fields[i], false); // as evaluation has it
        const char *word = kind == DT_TARGET_CLASS ? "class" : kind == DT_TARGET_VECTOR ? "vector" : "number";
        if (at < cap) at += (size_t)snprintf(text + at, cap - at, "%s%s (%s)", n ? ", " : "", fields[i].name, word);
        n++;
    }
    return n;
}

// The only field that can be the target of train.loss, or -1. A network reads images, sounds and numbers, never a class:
// where a class and numbers are all there is, the numbers are its input.
static int find_single(const dt_field_info *fields, int n_fields) {
    int n = 0, n_classes = 0, n_images = 0, last = -1, last_class = -1;
    for (int i = 0; i < n_fields; i++) {
        n_images += fields[i].is_image;
        if (!can_be_target(&fields[i])) continue;
        n++;
        last = i;
        if (fields[i].n_classes == 0) continue;
        n_classes++;
        last_class = i;
    }
    if (n == 1) return last; // nothing to choose
    // a class beside numbers: the numbers are the input
    return n == 2 && n_classes == 1 && n_images == 0 ? last_class : -1;
}

static dt_status targets_read_named(dt_targets *out, const dt_config *c, const dt_field_info *fields, int n_fields,
                                    bool training) {
    const dt_config_target *targets = c->train.targets;
    char list[512], key[256];
    *list = 0;
    for (int i = 0; i < n_fields; i++)
        if (can_be_target(&fields[i])) dt_text_list(list, sizeof list, fields[i].name); // for the message
    out->named = true;
    // keys of a single target have no meaning here; a value other than the default was set on purpose
    const bool smooth = c->train.label_smoothing != 0;
    const char *single = c->train.loss != DT_LOSS_cross_entropy ? "train.loss"
                         : smooth                               ? "train.label_smoothing"
                                                                : NULL;
    if (single)
        return dt_config_fail(c, single,
                              "%s is for a single target: with train.targets each has its own, so "
                              "leave this one out",
                              single);
    for (int i = 0; i < c->train.n_targets; i++) {
        int at = 0;
        while (at < n_fields && strcmp(fields[at].name, targets[i].id) != 0) at++; // n_fields: not found
        snprintf(key, sizeof key, "train.targets.%s", targets[i].id);
        if (at == n_fields || !can_be_target(&fields[at]))
            return dt_config_fail_name(c, key, targets[i].id, "class, number or vector of data.fields", list);
    }
    if (c->train.n_targets > DT_MAX_TARGETS)
        return dt_config_fail(c, "train.targets", "%d targets, at most %d can be predicted", c->train.n_targets,
                              DT_MAX_TARGETS);
    for (int i = 0; i < n_fields; i++) // in this order: the config's own must not change bits
        for (int k = 0; k < c->train.n_targets; k++)
            if (strcmp(targets[k].id, fields[i].name) == 0)
                DT_TRY(add_target(out, c, &targets[k], fields, i, training));
    return DT_OK;
}

dt_status dt_targets_read(dt_targets *out, const dt_config *c, const dt_field_info *fields, int n_fields,
                          bool training) {
    char list[512], key[256];
    int first = 0;
    const int single = find_single(fields, n_fields);
    *out = (dt_targets){0};
    if (c->train.n_targets > 0) return targets_read_named(out, c, fields, n_fields, training);
    const int n = targets_list_candidates(fields, n_fields, list, sizeof list); // how many could be
    if (single >= 0) return add_target(out, c, NULL, fields, single, training);
    if (n == 0)
        return dt_config_fail(c, "data.fields",
                              "there is nothing to predict: data.fields has no class, number or "
                              "vector");
    while (!can_be_target(&fields[first])) first++;
    int second = first + 1, likely = first; // two at least, as n > 1
    while (!can_be_target(&fields[second])) second++;
    while (likely < n_fields && fields[likely].n_classes == 0) likely++; // a class is the likelier target
    if (likely == n_fields) likely = first;
    snprintf(key, sizeof key, "data.fields.%s", fields[second].name);
    return dt_config_fail(c, key,
                          "%d fields could be the target: %s. Keep one of them (data.balance, "
                          "data.split and data.where name columns, which need no field), or name "
                          "those to predict, each with its loss: train.targets: {%s: {loss: %s}, …}",
                          n, list, fields[likely].name, fields[likely].n_classes > 0 ? "cross_entropy" : "mse");
}

const char *dt_target_logits(const dt_targets *all, const dt_target *t, char *text, size_t cap) {
    if (!all->named) return "logits"; // one head keeps the usual name in files
    snprintf(text, cap, "%s.logits", t->field->name);
    return text;
}

int64_t dt_target_n_out(const dt_target *t) {
    // outputs of the head: logits per class, or numbers
    return t->field->n_classes > 0 ? t->field->n_classes : dt_shape_elements(&t->field->sample_shape);
}
