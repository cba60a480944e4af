// convnext.c: ConvNeXt (Liu et al., 2022), in torchvision's form and with its names: patches of 4x4, four stages of
// blocks (depthwise 7x7, layer norm over channels, linear 4D, GELU, linear D, a learned factor of each channel), with
// layer norm and 2x2 convolutions between stages.
//
// Outputs: "logits" (N,K), "embedding" (N, 768; b: 1024): the pooled and normalised features.
#include "models.h"

// torchvision's: weights N(0, 0.02), biases 0
static const dt_init normal = {DT_INIT_NORMAL, 0.02f}, zero = {DT_INIT_ZERO, 0};

static dt_value to_rows(dt_graph *g, dt_value x) { // (N,C,H,W) -> (N,H,W,C)
    static const int perm[4] = {0, 2, 3, 1};
    return dt_transpose(g, x, perm);
}
static dt_value to_image(dt_graph *g, dt_value x) {
    static const int perm[4] = {0, 3, 1, 2};
    return dt_transpose(g, x, perm);
}

// torchvision initializes each convolution and linear layer alike, and not by PyTorch's defaults.
static dt_value set_init(dt_graph *g, const char *name, dt_value x) {
    dt_param_set_init(g, dt_arena_printf(&g->arena, "%s.weight", name), normal);
    dt_param_set_init(g, dt_arena_printf(&g->arena, "%s.bias", name), zero);
    return x;
}

static dt_value conv(dt_graph *g, const char *name, dt_value x, const dt_conv2d_opts *o) {
    return set_init(g, name, dt_conv2d(g, name, x, o));
}

static dt_value linear(dt_graph *g, const char *name, dt_value x, int64_t out) {
    return set_init(g, name, dt_linear(g, name, x, out, true));
}

// The at-th of n blocks, which timm calls `timms`.
static dt_value convnext_block(const dt_trunk *t, const char *module, const char *timms, dt_value x, int dim, int at,
                               int n) {
    dt_graph *g = t->g;
    // torchvision's submodule, timm's
    static const char *const names[][2] = {
        {"block.0", "conv_dw"}, {"block.2", "norm"}, {"block.3", "mlp.fc1"}, {"block.5", "mlp.fc2"}};
    // aliases by module: they hold for every tensor below it
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        dt_graph_alias(g, dt_trunk_name(t, module, names[i][0]), dt_trunk_name(t, timms, names[i][1]), NULL);
    const dt_shape vector = dt_shape1(dim); // timm stores gamma as (D), torchvision as (D,1,1)
    dt_graph_alias(g, dt_trunk_name(t, module, "layer_scale"), dt_trunk_name(t, timms, "gamma"), &vector);
    const dt_conv2d_opts depthwise = {.out = dim, .kernel = 7, .pad = 3, .groups = dim, .bias = true};
    dt_value y = conv(g, dt_trunk_name(t, module, "block.0"), x, &depthwise);
    // layer norm works on the last axis: channels go there and stay for both linear layers
    y = dt_layer_norm(g, dt_trunk_name(t, module, "block.2"), to_rows(g, y), 1e-6f);
    y = dt_gelu(g, linear(g, dt_trunk_name(t, module, "block.3"), y, 4 * (int64_t)dim));
    y = linear(g, dt_trunk_name(t, module, "block.5"), y, dim);
    const dt_init small = {DT_INIT_CONSTANT, 1e-6f}; // small, so that each block begins near the identity
    dt_value scale = dt_param(g, dt_trunk_name(t, module, "layer_scale"), dt_shape3(dim, 1, 1), small, false);
    return dt_model_add_branch(g, t->a, dt_trunk_name(t, module, "drop_path"), x, to_image(g, y), scale, at, n);
}

dt_features dt_trunk_convnext(const dt_trunk *t, dt_value x) {
    dt_graph *g = t->g;
    const int size = t->keys->size;
    // channels of the first stage, doubled by each further one
    const int width = size == DT_SIZE_b ? 128 : 96, deep = size == DT_SIZE_s || size == DT_SIZE_b;
    const int blocks[4] = {3, 3, deep ? 27 : 9, 3};
    // blocks of all stages: stochastic depth grows along the whole network
    const int n = blocks[0] + blocks[1] + blocks[2] + blocks[3];
    int at = 0;
    if (size != DT_SIZE_auto && size != DT_SIZE_ti && !deep) dt_graph_fail(g, "convnext has the sizes ti, s and b");
    // patches of 4x4: the stride equals the kernel, so none overlap
    const dt_conv2d_opts patches = {.out = width, .kernel = 4, .stride = 4, .bias = true};
    // "features.0.0", "features.0.1" are timm's "stem.0", "stem.1"
    dt_graph_alias(g, "features.0", "stem", NULL);
    x = conv(g, "features.0.0", x, &patches);
    x = to_image(g, dt_layer_norm(g, "features.0.1", to_rows(g, x), 1e-6f));
    for (int stage = 0; stage < 4; stage++) {
        const int dim = width << stage;
        if (stage > 0) {
            const char *module = dt_arena_printf(&g->arena, "features.%d", 2 * stage);
            dt_graph_alias(g, module, dt_arena_printf(&g->arena, "stages.%d.downsample", stage), NULL);
            const dt_conv2d_opts half = {.out = dim, .kernel = 2, .stride = 2, .bias = true};
            x = dt_layer_norm(g, dt_trunk_name(t, module, "0"), to_rows(g, x), 1e-6f);
            x = conv(g, dt_trunk_name(t, module, "1"), to_image(g, x), &half);
        }
        for (int i = 0; i < blocks[stage]; i++)
            x = convnext_block(t, dt_arena_printf(&g->arena, "features.%d.%d", 2 * stage + 1, i),
                               dt_arena_printf(&g->arena, "stages.%d.blocks.%d", stage, i), x, dim, at++, n);
    }
    return (dt_features){x, dt_global_pool(g, x)};
}

void dt_model_build_convnext(dt_graph *g, const dt_model_args *a) {
    dt_value x = dt_model_trunk(g, a, dt_trunk_convnext).pooled;
    dt_graph_alias(g, "classifier.0", "head.norm", NULL);
    dt_graph_alias(g, "classifier.2", "head.fc", NULL);
    x = dt_layer_norm(g, "classifier.0", x, 1e-6f);
    dt_model_classify(g, a, "classifier.2", x, &normal);
}
