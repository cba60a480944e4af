// models.c: the list of networks, the way from a builder to a graph that a plan takes, and what builders
// share (models.h). Training: fuse, differentiate, mixed precision, dead code. Inference: batch norms
// fold into convolutions first.
#include "models/models.h"

#include "batch/loss_row.h"
#include "batch/mix_plan.h"
#include "batch/pixel_steps.h"
#include "config/words.h"
#include "graph/autodiff.h"
#include "graph/passes/passes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// By dt_model_id, in the order of models.def.
static void (*const builders[])(dt_graph *g, const dt_model_args *a) = {
#define WORD(id, ...) dt_model_build_##id,
#include "config/models.def"
#undef WORD
};

static dt_status models_run_passes(dt_graph *g, dt_dtype low) {
    // folding needs the batch norm directly behind its convolution, so it comes before fusing
    if (!g->training) DT_TRY(dt_pass_fold_bn(g));
    DT_TRY(dt_pass_fuse(g));
    // after fusing: backward is made of the fused nodes
    if (g->training) DT_TRY(dt_graph_differentiate(g));
    DT_TRY(dt_pass_amp(g, low));
    if (g->training) DT_TRY(dt_pass_fuse_gelu(g));
    // after autodiff: the pass fuses gradients, too
    DT_TRY(dt_pass_fuse_norm_add(g));
    return dt_pass_dead_code(g);
}

// train.recompute
// Behind the other passes: sizes of activations are those of the fused graph in its precision.
static dt_status recompute(dt_graph *g, const dt_config *c) {
    const dt_cnode *list = c->train.recompute;
    const int n = (int)dt_cnode_size(list);
    const char *first = dt_cnode_str(dt_cnode_item(list, 0));
    double bytes;
    dt_recompute_opts o = {0};
    if (n == 1 && strcmp(first, "none") == 0) return DT_OK;
    // three forms: none; a limit in bytes; names of nodes. auto: no limit
    if (n == 1 && dt_config_parse_bytes(first, &bytes)) {
        o.limit = (size_t)bytes;
    } else if (n > 1 || strcmp(first, "auto") != 0) {
        const char **names = dt_arena_alloc(&g->arena, (size_t)n * sizeof *names);
        for (int i = 0; i < n; i++) names[i] = dt_cnode_str(dt_cnode_item(list, (size_t)i));
        o.names = names;
        o.n_names = n;
    }
    const dt_status st = dt_pass_recompute(g, &o);
    return st == DT_OK ? st : dt_fail_context(st, "%s", dt_cnode_where(list));
}

static bool is_frozen(const void *ctx, const char *name) {
    const dt_model_args *a = ctx;
    // a group's parameters are frozen until the step at which it unfreezes
    return a->step < dt_param_groups_unfreeze(a->groups, name);
}

// train.triplet_weight: of the embedding at length 1 and the classes of the first target that has any.
static void add_triplet(dt_graph *g, const dt_model_args *a) {
    const dt_config *c = a->config;
    const float share = (float)dt_value_or(c->train.triplet_weight, 0);
    dt_value x = DT_NONE;
    int i = 0;
    if (share == 0) return;
    while (i < a->targets->n && a->targets->items[i].kind != DT_TARGET_CLASS) i++;
    for (int k = 0; k < g->n_outputs; k++)
        if (strcmp(g->outputs[k].name, "embedding") == 0) x = g->outputs[k].value;
    if (i == a->targets->n || x == DT_NONE) {
        // a mixed sample has shares of classes, and no class to mine triplets by
        dt_config_fail(c, "train.triplet_weight",
                       "train.triplet_weight needs an embedding and a class that is not mixed; there is no %s",
                       x == DT_NONE ? "embedding" : "such class");
        dt_graph_fail(g, "%s", dt_error_message());
        return;
    }
    dt_triplet(g, dt_l2_normalize(g, x), dt_graph_find(g, a->targets->items[i].field->name), dt_graph_find(g, "weight"),
               (float)dt_value_or(c->train.triplet_margin, 0.2), c->train.triplet_semihard, share);
}

void dt_model_build(dt_graph *g, const dt_model_args *a) {
    builders[a->config->model.name](g, a);
}

dt_status dt_model_graph(dt_graph **out, const dt_model_args *a, dt_dtype compute) {
    dt_targets targets;
    *out = NULL;
    DT_TRY(dt_targets_read(&targets, a->config, a->fields, a->n_fields, a->training));
    dt_model_args args = *a;
    args.targets = &targets;
    dt_graph *g = dt_graph_create(dt_config_text(a->config, DT_KEY(model.name)), a->training);
    // dropout stays on without training for predictions by Monte Carlo dropout
    g->drops = a->training || a->drops;
    g->sync_bn = a->config->model.sync_bn;
    g->adds_branches = a->adds_branches;
    // before building: each new parameter is checked by name
    if (a->training) dt_graph_freeze(g, is_frozen, a);
    const dt_targets whole = targets; // with the weights that the teacher's share has not lowered
    // the teacher in front: its outputs exist when the student's losses are added
    if (a->teacher) dt_distil_begin(g, &args, &targets);
    dt_model_build(g, &args);
    if (a->training) add_triplet(g, &args);
    if (a->teacher) dt_distil_end(g, &args, &whole);
    dt_status st = dt_graph_check(g);
    if (st == DT_OK) st = models_run_passes(g, compute);
    if (st == DT_OK && a->training) st = recompute(g, a->config);
    if (st != DT_OK) {
        // on failure the caller owns nothing
        dt_graph_destroy(g);
        return st;
    }
    *out = g;
    return DT_OK;
}

// ---- what builders share ---------------------------------------------------------------------------
const dt_field_info *dt_model_image_field(const dt_model_args *a, int i) {
    for (int k = 0; k < a->n_fields; k++) {
        if (a->fields[k].is_image && i-- == 0) return &a->fields[k]; // counts image fields down to the i-th
    }
    return NULL;
}

bool dt_model_has_fields(dt_graph *g, const dt_model_args *a, int n_images) {
    int n = 0;
    for (int i = 0; i < a->n_fields; i++) n += a->fields[i].is_image;
    if (n == n_images) return true;
    dt_graph_fail(g, "wants %d image field%s in data.fields; there are %d", n_images, n_images == 1 ? "" : "s", n);
    return false;
}

// (batch, sample shape…)
static dt_shape batch_shape(const dt_model_args *a, const dt_field_info *f) {
    dt_shape s = dt_shape1(a->batch);
    // axes of the sample behind the batch's
    for (int i = 0; i < f->sample_shape.n; i++) s.d[s.n++] = f->sample_shape.d[i];
    return s;
}

dt_value dt_model_image(dt_graph *g, const dt_model_args *a, const dt_field_info *f) {
    dt_value x = dt_input(g, f->name, f->dtype, batch_shape(a, f));
    dt_value plan = DT_NONE;
    char name[256];
    // the GPU's augmentation: the host sends a list of steps per sample with the bytes; evaluation draws none
    if (f->n_steps > 0 && a->training) {
        snprintf(name, sizeof name, "%s.steps", f->name);
        const dt_shape steps = dt_shape2(a->batch, (int64_t)f->n_steps * DT_PIXEL_STEP_WORDS);
        x = dt_image_augment(g, x, dt_input(g, name, DT_I32, steps));
    }
    // who is mixed with whom, and how; drawn on the host, executed by the normalizing op
    if (f->mixed && a->training) {
        snprintf(name, sizeof name, "%s.mix", f->name);
        plan = dt_input(g, name, DT_I32, dt_shape2(a->batch, DT_MIX_COLUMNS));
    }
    float mean[DT_MAX_NORMALIZE], std[DT_MAX_NORMALIZE]; // by channel
    for (int i = 0; i < DT_MAX_NORMALIZE; i++) mean[i] = (float)f->mean[i], std[i] = (float)f->std[i];
    return dt_image_normalize(g, x, plan, mean, std);
}

dt_value dt_model_add_branch(dt_graph *g, const dt_model_args *a, const char *name, dt_value x, dt_value y,
                             dt_value scale, int i, int n) {
    const float most = (float)a->config->model.drop_path;
    // linear decay rule of stochastic depth: 0 for the first block, drop_path for the last
    return dt_add_branch(g, name, x, y, scale, n > 1 ? most * (float)i / (float)(n - 1) : most);
}

bool dt_model_is_numbers(const dt_model_args *a, const dt_field_info *f) {
    // a target is never an input as well, though its column holds numbers
    for (int i = 0; i < a->targets->n; i++)
        if (a->targets->items[i].field == f) return false;
    return !f->is_image && f->n_classes == 0;
}

dt_value dt_model_numbers(dt_graph *g, const dt_model_args *a, const dt_field_info *f) {
    const dt_shape rows = dt_shape2(a->batch, dt_shape_elements(&f->sample_shape));
    const dt_value x = dt_reshape(g, dt_input(g, f->name, DT_F32, batch_shape(a, f)), rows);
    if (f->embedding == 0) return x;
    // of a one-hot row a linear layer gives the class's column of its weight, as nn.Embedding does of its index
    const char *name = dt_arena_printf(&g->arena, "%s.embedding", f->name);
    const dt_value y = dt_linear(g, name, x, f->embedding, false);
    dt_param_set_init(g, dt_arena_printf(&g->arena, "%s.weight", name), (dt_init){DT_INIT_NORMAL, 1});
    return y;
}

// The weights of the classes, where the loss takes them one by one, or of a label's positives. A plain class without
// smoothing needs none where it is the only target and nobody teaches: the sample's weight holds that of its class.
static dt_value class_weights(dt_graph *g, const dt_target *t, bool apart) {
    const float *w = t->field->class_weights;
    if (!g->training || !w) return DT_NONE;
    // the sample's weight holds the class's already (data/loader/class_weights.c)
    if (t->kind == DT_TARGET_CLASS && t->smoothing == 0 && !apart) return DT_NONE;
    return dt_constant(g, NULL, DT_F32, dt_shape1(dt_target_n_out(t)), w);
}

void dt_model_add_loss(dt_graph *g, const dt_model_args *a, const dt_target *t, dt_value logits, dt_value weight,
                       float share) {
    const dt_loss_row *loss = &dt_losses[t->loss];
    dt_shape shape = batch_shape(a, t->field);
    if (t->kind == DT_TARGET_SHARES) shape = dt_shape2(a->batch, t->field->n_classes);
    if (g->teacher) return; // it learns nothing
    dt_value target = dt_input(g, t->field->name, t->kind == DT_TARGET_CLASS ? DT_I32 : DT_F32, shape);
    // the head gives (N,n_out); the target's own shape may have other axes
    if (!loss->softmax && logits != DT_NONE && !dt_shape_equal(&dt_info_of(g, logits)->shape, &shape))
        logits = dt_reshape(g, logits, shape);
    // the margin is part of training alone: evaluation ranks by the plain cosines
    if (loss->angular && g->training) logits = dt_arc_margin(g, logits, target, t->param, t->scale);
    const bool apart = a->targets->n > 1 || a->config->train.teacher; // data/loader/class_weights.c
    const char *name = a->targets->named ? dt_arena_printf(&g->arena, "%s.%s", t->field->name, loss->id) : loss->id;
    dt_loss_share(g, name, t->loss, logits, target, weight, class_weights(g, t, apart), apart, t->smoothing, t->param,
                  t->weight * share);
}

void dt_model_logits(dt_graph *g, const dt_model_args *a, dt_value logits) {
    char text[256];
    const dt_target *t = &a->targets->items[0];
    if (dt_losses[t->loss].angular)
        // a loss of angles needs the cosine head, and the network has made its logits already
        dt_graph_fail(g, "%s: train.loss: %s needs a head made by dtrain, and this network has its own",
                      dt_config_where(a->config, DT_KEY(train.loss)), dt_losses[t->loss].id);
    dt_output(g, dt_target_logits(a->targets, t, text, sizeof text), logits);
    dt_model_add_loss(g, a, t, logits, dt_input(g, "weight", DT_F32, dt_shape1(a->batch)), 1);
}

dt_value dt_model_head(dt_graph *g, const dt_target *t, const char *name, dt_value x) {
    const int64_t n = dt_target_n_out(t);
    return dt_losses[t->loss].angular ? dt_cosine(g, name, x, n, t->scale) : dt_linear(g, name, x, n, true); // (N,K)
}

void dt_model_heads(dt_graph *g, const dt_model_args *a, const char *name, dt_value x, const dt_init *init) {
    dt_arena *m = &g->arena;
    dt_value weight = DT_NONE;
    char text[256];
    for (int i = 0; i < a->targets->n; i++) {
        const dt_target *t = &a->targets->items[i];
        const char *head = a->targets->named ? dt_arena_printf(m, "%s.%s", name, t->field->name) : name;
        const dt_value logits = dt_model_head(g, t, head, x);
        const bool zero = init && init->kind == DT_INIT_ZERO; // as a rotation, six zeros are NaN
        if (init && !dt_losses[t->loss].angular && !(zero && t->loss == DT_LOSS_geodesic)) {
            dt_init weight_init = *init;
            if (weight_init.scale == 0) weight_init.scale = 1 / sqrtf((float)dt_target_n_out(t));
            dt_param_set_init(g, dt_arena_printf(m, "%s.weight", head), weight_init);
            dt_param_set_init(g, dt_arena_printf(m, "%s.bias", head), (dt_init){DT_INIT_ZERO, 0});
        }
        dt_output(g, dt_target_logits(a->targets, t, text, sizeof text), logits);
        if (i == 0) weight = dt_input(g, "weight", DT_F32, dt_shape1(a->batch));
        dt_model_add_loss(g, a, t, logits, weight, 1);
    }
}

void dt_model_classify(dt_graph *g, const dt_model_args *a, const char *name, dt_value x, const dt_init *init) {
    dt_output(g, "embedding", x);
    x = dt_dropout(g, "dropout", x, (float)a->config->model.dropout);
    dt_model_heads(g, a, name, x, init);
}
