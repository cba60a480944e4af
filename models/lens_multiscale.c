// lens_multiscale.c: one ResNet that sees each image at several scales (model.scales, shorter sides in pixels). Weights
// are shared; batch norms keep the running statistics of each scale apart ("s64.bn1.running_mean"), which differ, as
// Touvron et al. (2019) found. Scales may join while training goes on, as in progressive resizing.
//
// Training: the mean of the scales' losses, and model.consistency times that of each smaller scale towards what the
// largest predicts, which learns nothing from it. Evaluation: the mean of the scales' logits. Scales that have not
// joined have no part in either; evaluation has their tensors all the same.
//
// Memory: each scale is a stage (dt_graph_share), so a step holds the activations of one scale at a time.
//
// Outputs: "logits" (N,K), "embedding": the mean of the scales' pooled features.
#include "config/param_groups.h"
#include "config/words.h"
#include "models.h"

#include <math.h>
#include <string.h>

// What one scale predicts of target i.
typedef struct scaled {
    dt_value pooled, logits[DT_MAX_TARGETS];
} scaled;

static bool has_joined(const dt_model_args *a, const dt_scale_item *s) {
    // a scale takes part from step `from` on
    return !s->joins || a->step >= dt_amount_steps(s->from, a->total_steps, a->steps_per_epoch);
}

static void lens_multiscale_run_scale(const dt_trunk *t, dt_value x, int side, scaled *out) {
    dt_graph *g = t->g;
    const double h = (double)dt_trunk_dim(t, x, 2), w = (double)dt_trunk_dim(t, x, 3);
    const double by = (double)side / fmin(h, w); // the shorter side becomes `side`
    if (by != 1) x = dt_block_resize(g, x, llround(h * by), llround(w * by));
    // names repeat per scale: dt_graph_share returns the existing weights
    out->pooled = dt_trunk_resnet(t, x).pooled;
    dt_value y = dt_dropout(g, "dropout", out->pooled, (float)t->a->config->model.dropout);
    for (int i = 0; i < t->a->targets->n; i++) {
        const dt_target *target = &t->a->targets->items[i];
        const char *head = t->a->targets->named ? dt_arena_printf(&g->arena, "fc.%s", target->field->name) : "fc";
        out->logits[i] = dt_model_head(g, target, head, y);
    }
}

// Of one scale of n in training; teacher: of the largest, NULL for that itself.
static void add_losses(const dt_trunk *t, const scaled *s, const scaled *teacher, int n, dt_value weight) {
    dt_graph *g = t->g;
    const float follow = (float)t->a->config->model.consistency;
    for (int k = 0; k < t->a->targets->n; k++) {
        const dt_target *target = &t->a->targets->items[k];
        // 1/n: the mean over scales
        dt_model_add_loss(g, t->a, target, s->logits[k], weight, 1.0f / (float)n);
        if (!teacher || follow == 0) continue;
        const bool classes = dt_losses[target->loss].softmax;
        // the teacher is the loss's target, which gets no gradient
        dt_value goal = classes ? dt_softmax(g, teacher->logits[k]) : teacher->logits[k];
        dt_loss_share(g, "consistency", classes ? DT_LOSS_cross_entropy : DT_LOSS_mse, s->logits[k], goal, weight,
                      // n - 1 scales follow the largest
                      DT_NONE, false, 0, 0, follow * target->weight / (float)(n - 1));
    }
}

static dt_value lens_multiscale_mean_of(dt_graph *g, const dt_value *x, int n) {
    dt_value sum = x[0];
    for (int i = 1; i < n; i++) sum = dt_add(g, sum, x[i]);
    return dt_scale(g, sum, 1.0f / (float)n);
}

// Means over scales as outputs, and in evaluation the loss of their logits.
static void lens_multiscale_end(const dt_trunk *t, const scaled *s, int n, dt_value weight) {
    dt_graph *g = t->g;
    dt_value all[DT_MAX_SCALES] = {DT_NONE}; // values of one output, by scale
    char text[256];
    for (int i = 0; i < n; i++) all[i] = s[i].pooled;
    dt_output(g, "embedding", lens_multiscale_mean_of(g, all, n));
    for (int k = 0; k < t->a->targets->n; k++) {
        const dt_target *target = &t->a->targets->items[k];
        for (int i = 0; i < n; i++) all[i] = s[i].logits[k];
        dt_value mean = lens_multiscale_mean_of(g, all, n);
        dt_output(g, dt_target_logits(t->a->targets, target, text, sizeof text), mean);
        if (!g->training) dt_model_add_loss(g, t->a, target, mean, weight, 1);
    }
}

void dt_model_build_lens_multiscale(dt_graph *g, const dt_model_args *a) {
    const dt_trunk t = {g, a, "model", &a->config->model.backbone};
    dt_scales scales;
    // unused: evaluation builds scales that have not joined for the sake of their tensors
    scaled s[DT_MAX_SCALES], unused;
    int n = 0, n_joined = 0;
    if (dt_scales_read(&scales, a->config) != DT_OK) {
        dt_graph_fail(g, "%s", dt_error_message());
        return;
    }
    // before building: losses are divided by the number of scales
    for (int i = 0; i < scales.n; i++) n += has_joined(a, &scales.items[i]);
    if (!dt_model_has_fields(g, a, 1)) return;
    dt_value x = dt_model_image(g, a, dt_model_image_field(a, 0));
    dt_value weight = dt_input(g, "weight", DT_F32, dt_shape1(a->batch));
    for (int i = 0; i < scales.n; i++) { // the largest first
        const bool joined = has_joined(a, &scales.items[i]);
        if (!joined && g->training) continue;
        // "s64.": prefix of the scale's running statistics
        dt_graph_share(g, dt_arena_printf(&g->arena, "s%d.", scales.items[i].side));
        lens_multiscale_run_scale(&t, x, scales.items[i].side, joined ? &s[n_joined] : &unused);
        if (joined && g->training) add_losses(&t, &s[n_joined], n_joined > 0 ? &s[0] : NULL, n, weight);
        dt_graph_share(g, NULL);
        n_joined += joined;
    }
    lens_multiscale_end(&t, s, n, weight);
}
