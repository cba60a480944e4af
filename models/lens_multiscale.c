// lens_multiscale.c: one ResNet that sees each image at several scales (model.scales, sides in pixels that divide the
// image's; smaller ones are means of blocks of pixels). Weights are shared; batch norms keep the running statistics of
// each scale apart ("s64.bn1.running_mean"), which differ, as Touvron et al. (2019) found.
//
// Training: the mean of the scales' losses, and model.consistency times that of each smaller scale towards what the
// largest predicts, which learns nothing from it. Evaluation: the mean of the scales' logits.
//
// Outputs: "logits" (N,K), "embedding": the mean of the scales' pooled features.
#include "trunk.h"

#include <string.h>

enum { MAX_SCALES = 8 };

typedef struct scales {
    int side[MAX_SCALES], n;
} scales;

static bool read_scales(dt_graph *g, const dt_model_args *a, scales *s) {
    const dt_field_info *f = dt_model_image_field(a, 0);
    const dt_cnode *list = dt_config_node(a->config, "model.scales");
    const size_t n = dt_cnode_size(list);
    for (size_t i = 0; i < n; i++) {
        const dt_cnode *item = dt_cnode_item(list, i);
        double side;
        const bool whole = dt_cnode_real(item, &side) && side >= 1 && side == (double)(int)side;
        if (n > MAX_SCALES || !whole || f->sample_shape.d[0] % (int)side ||
            f->sample_shape.d[0] != f->sample_shape.d[1]) {
            dt_graph_fail(g,
                          "%s: model.scales: expected at most %d sides that divide that of field "
                          "%s, a square of %d",
                          dt_cnode_where(item), MAX_SCALES, f->name, (int)f->sample_shape.d[0]);
            return false;
        }
        int at = s->n++; // largest first
        while (at > 0 && s->side[at - 1] < (int)side) s->side[at] = s->side[at - 1], at--;
        s->side[at] = (int)side;
    }
    return s->n > 0 || (dt_graph_fail(g, "model.scales is empty"), false);
}

// What one scale predicts of target i.
typedef struct scaled {
    dt_value pooled, logits[DT_MAX_TARGETS];
} scaled;

static void run_scale(const dt_trunk *t, dt_value x, int side, scaled *out) {
    dt_graph *g = t->g;
    const int by = (int)dt_trunk_dim(t, x, 2) / side;
    dt_graph_share(g, dt_arena_printf(&g->arena, "s%d.", side));
    if (by > 1) x = dt_avg_pool(g, x, by, by, 0);
    out->pooled = dt_trunk_resnet(t, x).pooled;
    dt_value y =
        dt_dropout(g, "dropout", out->pooled, (float)dt_config_real(t->a->config, "model.dropout"));
    for (int i = 0; i < t->a->targets->n; i++) {
        const dt_target *target = &t->a->targets->items[i];
        const char *head =
            t->a->targets->named ? dt_arena_printf(&g->arena, "fc.%s", target->field->name) : "fc";
        out->logits[i] = dt_linear(g, head, y, dt_target_n_out(target), true);
    }
    dt_graph_share(g, NULL);
}

static dt_value mean_of(dt_graph *g, const dt_value *x, int n) {
    dt_value sum = x[0];
    for (int i = 1; i < n; i++) sum = dt_add(g, sum, x[i]);
    return dt_scale(g, sum, 1.0f / (float)n);
}

// Towards the largest scale's prediction, a constant here.
static void add_consistency(dt_graph *g, const dt_target *t, const scaled *s, int n, int target,
                            dt_value weight, float share) {
    const bool classes = dt_losses[t->loss].softmax;
    dt_value teacher = s[0].logits[target];
    if (classes) teacher = dt_softmax(g, teacher);
    for (int i = 1; i < n && share > 0; i++)
        dt_loss_share(g, "consistency", classes ? DT_LOSS_cross_entropy : DT_LOSS_mse,
                      s[i].logits[target], teacher, weight, 0, 0, share / (float)(n - 1));
}

void dt_model_build_lens_multiscale(dt_graph *g, const dt_model_args *a) {
    const dt_trunk t = {g, a, "model"};
    scales sides = {.n = 0};
    scaled s[MAX_SCALES];
    dt_value all[MAX_SCALES];
    char text[256];
    if (!dt_model_has_fields(g, a, 1) || !read_scales(g, a, &sides)) return;
    dt_value x = dt_model_image(g, a, dt_model_image_field(a, 0));
    for (int i = 0; i < sides.n; i++) {
        run_scale(&t, x, sides.side[i], &s[i]);
        all[i] = s[i].pooled;
    }
    dt_output(g, "embedding", mean_of(g, all, sides.n));
    const float share = (float)dt_config_real(a->config, "model.consistency");
    dt_value weight = dt_input(g, "weight", DT_F32, dt_shape1(a->batch));
    for (int k = 0; k < a->targets->n; k++) {
        const dt_target *target = &a->targets->items[k];
        for (int i = 0; i < sides.n; i++) all[i] = s[i].logits[k];
        dt_value mean = mean_of(g, all, sides.n);
        dt_output(g, dt_target_logits(a->targets, target, text, sizeof text), mean);
        const int n_losses = g->training ? sides.n : 1;
        for (int i = 0; i < n_losses; i++)
            dt_model_add_loss(g, a, target, g->training ? all[i] : mean, weight,
                              1.0f / (float)n_losses);
        if (g->training) add_consistency(g, target, s, sides.n, k, weight, share * target->weight);
    }
}
