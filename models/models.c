// models.c: the list of networks, the way from a builder to a graph that a plan takes, and what builders
// share (model_util.h). Training: fuse, differentiate, mixed precision, dead code. Inference: batch norms
// fold into convolutions first.
#include "models/models.h"

#include "batch/mix_plan.h"
#include "batch/pixel_steps.h"
#include "graph/autodiff.h"
#include "graph/losses.h"
#include "graph/passes/passes.h"
#include "model_util.h"

#include <stdio.h>
#include <string.h>

static void (*const builders[])(dt_graph *g, const dt_model_args *a) = {
#define WORD(id, ...) dt_model_build_##id,
#include "config/models.def"
#undef WORD
};

static dt_status run_passes(dt_graph *g, dt_dtype low) {
    if (!g->training) DT_TRY(dt_pass_fold_bn(g));
    DT_TRY(dt_pass_fuse(g));
    if (g->training) DT_TRY(dt_graph_differentiate(g));
    DT_TRY(dt_pass_amp(g, low));
    if (g->training) DT_TRY(dt_pass_fuse_gelu(g));
    DT_TRY(dt_pass_fuse_norm_add(g));
    return dt_pass_dead_code(g);
}

static bool is_frozen(const void *ctx, const char *name) {
    const dt_model_args *a = ctx;
    return a->step < dt_param_groups_thaw(a->groups, name);
}

dt_status dt_model_graph(dt_graph **out, const dt_model_args *a, dt_dtype low) {
    dt_graph *g = dt_graph_create(dt_config_str(a->config, "model.name"), a->training);
    *out = NULL;
    if (a->training) dt_graph_freeze(g, is_frozen, a);
    builders[dt_config_enum(a->config, "model.name")](g, a);
    dt_status st = dt_graph_check(g);
    if (st == DT_OK) st = run_passes(g, low);
    if (st != DT_OK) {
        dt_graph_destroy(g);
        return st;
    }
    *out = g;
    return DT_OK;
}

// ---- what builders share ---------------------------------------------------------------------------
const dt_field_info *dt_model_image_field(const dt_model_args *a, int i) {
    for (int k = 0; k < a->n_fields; k++) {
        if (a->fields[k].is_image && i-- == 0) return &a->fields[k];
    }
    return NULL;
}

const dt_field_info *dt_model_target(const dt_model_args *a) {
    const dt_field_info *numbers = NULL;
    for (int i = 0; i < a->n_fields; i++) {
        const dt_field_info *f = &a->fields[i];
        if (!f->is_image && f->n_classes > 0) return f;
        if (!f->is_image && f->dtype == DT_F32 && !numbers) numbers = f;
    }
    return numbers;
}

bool dt_model_has_fields(dt_graph *g, const dt_model_args *a, int n_images) {
    int n = 0;
    for (int i = 0; i < a->n_fields; i++) n += a->fields[i].is_image;
    bool has_target = dt_model_target(a) != NULL;
    if (n == n_images && has_target) return true;
    dt_graph_fail(g,
                  "wants %d image field%s and a class field (or numbers) in data.fields; there are "
                  "%d image fields and %s",
                  n_images, n_images == 1 ? "" : "s", n,
                  has_target ? "a target" : "nothing to predict");
    return false;
}

int64_t dt_model_n_out(const dt_field_info *target) {
    return target->n_classes > 0 ? target->n_classes : dt_shape_elements(&target->sample_shape);
}

// (batch, sample shape…)
static dt_shape batch_shape(const dt_model_args *a, const dt_field_info *f) {
    dt_shape s = dt_shape1(a->batch);
    for (int i = 0; i < f->sample_shape.n; i++) s.d[s.n++] = f->sample_shape.d[i];
    return s;
}

dt_value dt_model_image(dt_graph *g, const dt_model_args *a, const dt_field_info *f) {
    dt_value x = dt_input(g, f->name, f->dtype, batch_shape(a, f));
    dt_value plan = DT_NONE;
    char name[256];
    if (f->n_steps > 0 && a->training) {
        snprintf(name, sizeof name, "%s.steps", f->name);
        const dt_shape steps = dt_shape2(a->batch, (int64_t)f->n_steps * DT_PIXEL_STEP_WORDS);
        x = dt_image_augment(g, x, dt_input(g, name, DT_I32, steps));
    }
    if (f->mixed && a->training) {
        snprintf(name, sizeof name, "%s.mix", f->name);
        plan = dt_input(g, name, DT_I32, dt_shape2(a->batch, DT_MIX_COLUMNS));
    }
    return dt_image_normalize(g, x, plan, f->mean, f->std);
}

// What the graph gets of the target: one of DT_TARGET_….
static unsigned target_kind(const dt_model_args *a, const dt_field_info *f) {
    if (f->n_classes > 0) return f->soft && a->training ? DT_TARGET_SHARES : DT_TARGET_CLASS;
    return f->sample_shape.n > 0 ? DT_TARGET_VECTOR : DT_TARGET_NUMBER;
}

static void fail_target(dt_graph *g, const dt_loss_row *loss, const char *field, unsigned kind) {
    char list[256] = "";
    const char *holds = kind == DT_TARGET_CLASS    ? "is a class"
                        : kind == DT_TARGET_SHARES ? "has shares of classes (data.mix)"
                        : kind == DT_TARGET_VECTOR ? "is a vector"
                                                   : "is a number";
    for (int i = 0; i < DT_N_LOSSES; i++) {
        size_t at = strlen(list);
        if (dt_losses[i].takes & kind)
            snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", dt_losses[i].id);
    }
    dt_graph_fail(g, "train.loss %s does not fit: field %s %s, which these take: %s", loss->id,
                  field, holds, list);
}

dt_value dt_model_head(dt_graph *g, const dt_model_args *a, const char *name, dt_value x) {
    dt_output(g, "embedding", x);
    x = dt_dropout(g, "dropout", x, (float)dt_config_real(a->config, "model.dropout"));
    return dt_linear(g, name, x, dt_model_n_out(dt_model_target(a)), true);
}

void dt_model_add_loss(dt_graph *g, const dt_model_args *a, const dt_field_info *target,
                       dt_value logits) {
    dt_loss_id id = (dt_loss_id)dt_config_enum(a->config, "train.loss");
    const dt_loss_row *loss = &dt_losses[id];
    unsigned kind = target_kind(a, target);
    dt_output(g, "logits", logits);
    if (!(loss->takes & kind)) {
        fail_target(g, loss, target->name, kind);
        return;
    }
    dt_shape shape = batch_shape(a, target);
    if (kind == DT_TARGET_SHARES) shape = dt_shape2(a->batch, target->n_classes);
    dt_value t = dt_input(g, target->name, kind == DT_TARGET_CLASS ? DT_I32 : DT_F32, shape);
    dt_value weight = dt_input(g, "weight", DT_F32, dt_shape1(a->batch));
    if (!loss->softmax && logits != DT_NONE &&
        !dt_shape_equal(&dt_info_of(g, logits)->shape, &shape))
        logits = dt_reshape(g, logits, shape);
    bool smoothed =
        dt_config_has(a->config, "train.label_smoothing"); // only of losses over classes
    float smoothing = smoothed ? (float)dt_config_real(a->config, "train.label_smoothing") : 0.0f;
    float param = loss->param_key ? (float)dt_config_real(a->config, loss->param_key) : loss->param;
    dt_loss(g, id, logits, t, weight, smoothing, param);
}
