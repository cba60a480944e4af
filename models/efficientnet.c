// efficientnet.c: EfficientNet B0 to B2 (Tan & Le, 2019), in torchvision's form and with its names: inverted residuals
// with squeeze-and-excitation and SiLU; sizes differ by factors of width and depth.
//
// Outputs: "logits" (N,K), "embedding" (N, 1280, B2: 1408): the pooled features.
#include "graph/activation_words.h"
#include "trunk.h"

#include <math.h>

#define EPS      1e-5f
#define MOMENTUM 0.1f

static const struct stage {
    int expand, kernel, stride, out, blocks;
} stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
enum { N_STAGES = sizeof stages / sizeof *stages };

static int count_blocks(const struct stage *s, double depth) {
    return (int)ceil(s->blocks * depth);
}

static dt_value build_stage(const dt_trunk *t, int index, dt_value x, double width, double depth, float eps) {
    dt_graph *g = t->g;
    const struct stage *s = &stages[index];
    const int n = count_blocks(s, depth);
    int before = 0, n_blocks = 0;
    for (int i = 0; i < N_STAGES; i++) {
        if (i == index) before = n_blocks;
        n_blocks += count_blocks(&stages[i], depth);
    }
    for (int i = 0; i < n; i++) {
        const int64_t in = dt_trunk_dim(t, x, 1);
        const dt_inverted b = {.expanded = dt_multiple_of_8((double)in * s->expand),
                               .out = dt_multiple_of_8(s->out * width),
                               .squeeze = in / 4 > 1 ? in / 4 : 1,
                               .kernel = s->kernel,
                               .stride = i == 0 ? s->stride : 1,
                               .at = before + i,
                               .n_blocks = n_blocks,
                               .act = DT_ACTIVATION_silu,
                               .squeeze_act = DT_ACTIVATION_silu,
                               .gate = DT_ACTIVATION_sigmoid,
                               .eps = eps,
                               .momentum = MOMENTUM,
                               .same = t->keys->pad_type == DT_PAD_TYPE_same,
                               .timms = dt_arena_printf(&g->arena, "blocks.%d.%d", index, i)};
        x = dt_block_inverted(t, dt_arena_printf(&g->arena, "features.%d.%d", index + 1, i), x, &b);
    }
    return x;
}

dt_features dt_trunk_efficientnet(const dt_trunk *t, dt_value x) {
    dt_graph *g = t->g;
    const int size = t->keys->size;
    const double width = size == DT_SIZE_b2 ? 1.1 : 1.0;
    const double depth = size == DT_SIZE_b2 ? 1.2 : size == DT_SIZE_b1 ? 1.1 : 1.0;
    if (size != DT_SIZE_auto && size < DT_SIZE_b0) dt_graph_fail(g, "efficientnet has the sizes b0, b1 and b2");
    const float eps = (float)dt_value_or(t->keys->bn_eps, EPS);
    dt_conv_norm c = {.out = (int)dt_multiple_of_8(32 * width),
                      .kernel = 3,
                      .stride = 2,
                      .act = DT_ACTIVATION_silu,
                      .eps = eps,
                      .momentum = MOMENTUM,
                      .same = t->keys->pad_type == DT_PAD_TYPE_same,
                      .timms = {"conv_stem", "bn1"}};
    x = dt_block_conv_norm(g, "features.0", x, &c);
    for (int i = 0; i < N_STAGES; i++) x = build_stage(t, i, x, width, depth, eps);
    c = (dt_conv_norm){.out = 4 * (int)dt_multiple_of_8(320 * width),
                       .kernel = 1,
                       .act = DT_ACTIVATION_silu,
                       .eps = eps,
                       .momentum = MOMENTUM,
                       .timms = {"conv_head", "bn2"}};
    x = dt_block_conv_norm(g, "features.8", x, &c);
    return (dt_features){x, dt_global_pool(g, x)};
}

void dt_model_build_efficientnet(dt_graph *g, const dt_model_args *a) {
    dt_graph_alias(g, "classifier.1", "classifier", NULL);
    dt_model_classify(g, a, "classifier.1", dt_model_trunk(g, a, dt_trunk_efficientnet).pooled,
                      &(dt_init){DT_INIT_UNIFORM, 0});
}
