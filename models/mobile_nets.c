// mobile_nets.c: MobileNetV3 and EfficientNet.

#include "models.h"

#include "graph/activation_words.h"

#include <math.h>

// ---- mobilenet v3 -------------------------------------------------------------------------------------------------

// MobileNetV3 (Howard et al., 2019), in torchvision's form and with its names: a 3x3 stem, inverted
// residuals, some with squeeze-and-excitation, a 1x1 convolution; the head has a hidden layer.
//
// Outputs: "logits" (N,K), "embedding" (N, 1280 large, 1024 small): the hidden layer of the head.

#define EPS      0.001f // of the batch norms: 0.001 and 0.01, unlike PyTorch's 1e-5 and 0.1
#define MOMENTUM 0.01f

typedef struct row {
    int kernel, expanded, out;
    bool squeeze, hardswish;
    int stride;
} row;

// Tables 1 and 2 of the paper, one row per block, without stem and head.
static const row large[] = {{3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
                            {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
                            {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
                            {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
                            {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1}};
static const row small[] = {{3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
                            {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
                            {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
                            {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1}};

dt_features dt_trunk_mobilenet_v3(const dt_trunk *t, dt_value x) {
    dt_graph *g = t->g;
    const int size = t->keys->size;
    const bool is_small = size == DT_SIZE_s;
    const row *rows = is_small ? small : large;
    const int n = (int)(is_small ? sizeof small / sizeof *small : sizeof large / sizeof *large);
    if (size != DT_SIZE_auto && size != DT_SIZE_s && size != DT_SIZE_l)
        dt_graph_fail(g, "mobilenet_v3 has the sizes s and l");
    // timm's variants of TensorFlow's weights differ in eps and padding
    const float eps = (float)dt_value_or(t->keys->bn_eps, EPS);
    const bool same = t->keys->pad_type == DT_PAD_TYPE_same;
    int stage = 0, block = 0; // timm begins a stage with each other number of channels
    dt_conv_norm c = {.out = 16,
                      .kernel = 3,
                      .stride = 2,
                      .act = DT_ACTIVATION_hardswish,
                      .eps = eps,
                      .momentum = MOMENTUM,
                      .same = same,
                      .timms = {"conv_stem", "bn1"}};
    x = dt_block_conv_norm(g, "features.0", x, &c);
    for (int i = 0; i < n; i++) {
        const row *r = &rows[i];
        if (i > 0 && r->out != rows[i - 1].out) stage++, block = 0;
        const dt_inverted b = {.expanded = r->expanded,
                               .out = r->out,
                               // squeezed to a quarter of the expanded channels
                               .squeeze = r->squeeze ? dt_multiple_of_8(r->expanded / 4) : 0,
                               .kernel = r->kernel,
                               .stride = r->stride,
                               .at = i,
                               .n_blocks = n + 1, // timm counts the last 1x1 convolution
                               .act = r->hardswish ? DT_ACTIVATION_hardswish : DT_ACTIVATION_relu,
                               .squeeze_act = DT_ACTIVATION_relu,
                               .gate = DT_ACTIVATION_hardsigmoid,
                               .eps = eps,
                               .momentum = MOMENTUM,
                               .same = same,
                               .timms = dt_arena_printf(&g->arena, "blocks.%d.%d", stage, block++)};
        x = dt_block_inverted(t, dt_arena_printf(&g->arena, "features.%d", i + 1), x, &b);
    }
    // timm keeps the last 1x1 convolution as a stage of its own
    stage++;
    // 6 times the last block's channels: 960 large, 576 small
    c = (dt_conv_norm){.out = 6 * rows[n - 1].out,
                       .kernel = 1,
                       .act = DT_ACTIVATION_hardswish,
                       .eps = eps,
                       .momentum = MOMENTUM,
                       .timms = {dt_arena_printf(&g->arena, "blocks.%d.0.conv", stage),
                                 dt_arena_printf(&g->arena, "blocks.%d.0.bn1", stage)}};
    x = dt_block_conv_norm(g, dt_arena_printf(&g->arena, "features.%d", n + 1), x, &c);
    return (dt_features){x, dt_global_pool(g, x)};
}

void dt_model_build_mobilenet_v3(dt_graph *g, const dt_model_args *a) {
    const int hidden = a->config->model.backbone.size == DT_SIZE_s ? 1024 : 1280;
    const dt_init init = {DT_INIT_NORMAL, 0.01f};
    dt_value x = dt_model_trunk(g, a, dt_trunk_mobilenet_v3).pooled;
    if (x != DT_NONE) {
        // timm keeps the head's first linear layer as a 1x1 convolution: (hidden,C,1,1)
        const dt_shape conv = dt_shape4(hidden, dt_info_of(g, x)->shape.d[1], 1, 1);
        dt_graph_alias(g, "classifier.0.weight", "conv_head.weight", &conv);
        dt_graph_alias(g, "classifier.0", "conv_head", NULL);
        dt_graph_alias(g, "classifier.3", "classifier", NULL);
    }
    x = dt_activate(g, DT_ACTIVATION_hardswish, dt_linear(g, "classifier.0", x, hidden, true));
    dt_param_set_init(g, "classifier.0.weight", init);
    dt_param_set_init(g, "classifier.0.bias", (dt_init){DT_INIT_ZERO, 0});
    dt_model_classify(g, a, "classifier.3", x, &init);
}
#undef EPS
#undef MOMENTUM

// ---- efficientnet -------------------------------------------------------------------------------------------------

// EfficientNet B0 to B2 (Tan & Le, 2019), in torchvision's form and with its names: inverted residuals
// with squeeze-and-excitation and SiLU; sizes differ by factors of width and depth.
//
// Outputs: "logits" (N,K), "embedding" (N, 1280, B2: 1408): the pooled features.

#define EPS      1e-5f // PyTorch's
#define MOMENTUM 0.1f

// Table 1 of the paper (B0), without stem and head.
static const struct stage {
    int expand, kernel, stride, out, blocks;
} stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
              {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
enum { N_STAGES = sizeof stages / sizeof *stages };

static int count_blocks(const struct stage *s, double depth) {
    // compound scaling rounds the number of blocks up
    return (int)ceil(s->blocks * depth);
}

static dt_value build_stage(const dt_trunk *t, int index, dt_value x, double width, double depth, float eps) {
    dt_graph *g = t->g;
    const struct stage *s = &stages[index];
    const int n = count_blocks(s, depth);
    int before = 0, n_blocks = 0; // before: blocks of earlier stages
    // stochastic depth grows along all blocks of the network
    for (int i = 0; i < N_STAGES; i++) {
        if (i == index) before = n_blocks;
        n_blocks += count_blocks(&stages[i], depth);
    }
    for (int i = 0; i < n; i++) {
        const int64_t in = dt_trunk_dim(t, x, 1);
        // expansion is by the rounded number of channels that really comes in
        const dt_inverted b = {.expanded = dt_multiple_of_8((double)in * s->expand),
                               .out = dt_multiple_of_8(s->out * width),
                               // squeeze-and-excitation counts from the block's input, and not from the expanded
                               // channels as in MobileNetV3
                               .squeeze = in / 4 > 1 ? in / 4 : 1,
                               .kernel = s->kernel,
                               // only the first block of a stage shrinks
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
    // compound scaling (Tan & Le, section 3): width and depth of each size
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
    // the head's 1x1 convolution: 1280 channels at width 1
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
                      &(dt_init){DT_INIT_UNIFORM, 0}); // scale 0: 1/sqrt(K) (dt_model_heads)
}
