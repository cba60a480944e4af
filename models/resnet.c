// resnet.c: residual networks for images (He et al., 2015), in torchvision's form and with its names, so
// that checkpoints move both ways: 7x7 stem, max-pool 3/2, four stages; basic blocks (depth 10, 18, 34)
// or bottlenecks with the stride in the 3x3 convolution ("v1.5", from depth 50 on). model.width is the number of
// channels of the first stage (64 in the paper).
//
// Variants: wide ResNet (Zagoruyko & Komodakis, 2016) and ResNeXt (Xie et al., 2016) by width_per_group and groups, as
// torchvision has them; the stem and shortcuts of ResNet-D (He et al., 2018) and squeeze-and-excitation (Hu et al.,
// 2018) with timm's names.
//
// Outputs: "logits" (N,K), "embedding" (N, 512 or 2048 at width 64): the pooled features.
#include "graph/activation_words.h"
#include "models.h"

// Blocks per stage: table 1 of the paper; depth 10 has half of 18's.
static const struct spec {
    bool bottleneck;
    int blocks[4];
} specs[] = {[DT_DEPTH_10] = {false, {1, 1, 1, 1}},  [DT_DEPTH_18] = {false, {2, 2, 2, 2}},
             [DT_DEPTH_34] = {false, {3, 4, 6, 3}},  [DT_DEPTH_50] = {true, {3, 4, 6, 3}},
             [DT_DEPTH_101] = {true, {3, 4, 23, 3}}, [DT_DEPTH_152] = {true, {3, 8, 36, 3}}};

typedef struct resnet {
    dt_graph *g;
    const dt_trunk *t;
    bool bottleneck, avg_down, se, zero_init;
    int groups, width_per_group;
    int at, n_blocks; // the block that is being built, of how many
} resnet;

// conv<suffix> and bn<suffix> of a module ("" for the stem)
static dt_value conv_bn(const resnet *m, const char *module, int index, dt_value x, dt_conv2d_opts conv) {
    conv.pad = conv.kernel / 2; // "same" for odd kernels at stride 1
    x = dt_conv2d(m->g, dt_arena_printf(&m->g->arena, "%sconv%d", module, index), x, &conv);
    return dt_batch_norm(m->g, dt_arena_printf(&m->g->arena, "%sbn%d", module, index), x);
}

// The branch that leaves x unchanged where shapes allow.
static dt_value shortcut(const resnet *m, const char *module, dt_value x, int out, int stride) {
    dt_graph *g = m->g;
    if (x == DT_NONE || (stride == 1 && dt_info_of(g, x)->shape.d[1] == out)) return x;
    // ResNet-D: the average pool strides, the 1x1 convolution does not
    if (m->avg_down && stride > 1) { // padded at the end where a side is odd
        const int64_t *d = dt_info_of(g, x)->shape.d;
        const dt_window w = {
            .kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}, .pad_end = {(int)(d[2] % 2), (int)(d[3] % 2)}};
        x = dt_avg_pool_window(g, x, &w, false);
    }
    // a strided 1x1 convolution would drop three pixels of four
    const dt_conv2d_opts conv = {.out = out, .kernel = 1, .stride = m->avg_down ? 1 : stride};
    const int first = m->avg_down ? 1 : 0;
    x = dt_conv2d(g, dt_arena_printf(&g->arena, "%sdownsample.%d", module, first), x, &conv);
    return dt_batch_norm(g, dt_arena_printf(&g->arena, "%sdownsample.%d", module, first + 1), x);
}

static dt_value resnet_block(const resnet *m, const char *module, dt_value x, int width, int stride) {
    dt_graph *g = m->g;
    dt_value y;
    const int out = m->bottleneck ? 4 * width : width; // expansion of the bottleneck
    // ResNeXt: width_per_group channels at width 64, times the groups; 64 and 1 are the plain bottleneck
    const int inner = width * m->width_per_group / 64 * m->groups;
    if (m->bottleneck) {
        // the stride is in the 3x3 convolution: "v1.5"
        const dt_conv2d_opts middle = {.out = inner, .kernel = 3, .stride = stride, .groups = m->groups};
        y = dt_relu(g, conv_bn(m, module, 1, x, (dt_conv2d_opts){.out = inner, .kernel = 1}));
        y = dt_relu(g, conv_bn(m, module, 2, y, middle));
        y = conv_bn(m, module, 3, y, (dt_conv2d_opts){.out = out, .kernel = 1});
    } else {
        const dt_conv2d_opts first = {.out = width, .kernel = 3, .stride = stride};
        y = dt_relu(g, conv_bn(m, module, 1, x, first));
        y = conv_bn(m, module, 2, y, (dt_conv2d_opts){.out = out, .kernel = 3});
    }
    // each block begins as the identity (Goyal et al., 2017)
    if (m->zero_init)
        dt_param_set_init(g, dt_arena_printf(&g->arena, "%sbn%d.weight", module, m->bottleneck ? 3 : 2),
                          (dt_init){DT_INIT_ZERO, 0});
    if (m->se)
        // timm: squeezed to a sixteenth, rounded to a multiple of 8
        y = dt_block_squeeze_excite(g, dt_arena_printf(&g->arena, "%sse", module), y, dt_multiple_of_8(out / 16.0),
                                    DT_ACTIVATION_relu, DT_ACTIVATION_sigmoid);
    const char *name = dt_arena_printf(&g->arena, "%sdrop_path", module);
    x = shortcut(m, module, x, out, stride);
    return dt_relu(g, dt_model_add_branch(g, m->t->a, name, x, y, DT_NONE, m->at, m->n_blocks));
}

// timm's deep stem: conv1.0, conv1.1 (batch norm), conv1.3, conv1.4, conv1.6, then bn1
static dt_value deep_stem(const resnet *m, dt_value x, int width) {
    dt_graph *g = m->g;
    dt_conv2d_opts conv = {.out = width / 2, .kernel = 3, .stride = 2, .pad = 1};
    for (int i = 0; i < 3; i++) {
        // numbers of nn.Sequential: convolution, norm, ReLU, three times
        x = dt_conv2d(g, dt_arena_printf(&g->arena, "conv1.%d", 3 * i), x, &conv);
        const char *norm = i == 2 ? "bn1" : dt_arena_printf(&g->arena, "conv1.%d", 3 * i + 1);
        x = dt_relu(g, dt_batch_norm(g, norm, x));
        conv.stride = 1;
        if (i == 1) conv.out = width;
    }
    return dt_max_pool(g, x, 3, 2, 1);
}

static dt_value stem(const resnet *m, dt_value x, int kind, int width) {
    if (kind == DT_STEM_deep) return deep_stem(m, x, width);
    const bool small = kind == DT_STEM_small;
    // small: images of CIFAR's size keep their side
    const dt_conv2d_opts conv = {.out = width, .kernel = small ? 3 : 7, .stride = small ? 1 : 2};
    x = dt_relu(m->g, conv_bn(m, "", 1, x, conv));
    return small ? x : dt_max_pool(m->g, x, 3, 2, 1);
}

dt_features dt_trunk_resnet(const dt_trunk *t, dt_value x) {
    dt_graph *g = t->g;
    const struct spec *s = &specs[t->keys->depth];
    const int width = (int)t->keys->width;
    resnet m = {.g = g,
                .t = t,
                .bottleneck = s->bottleneck,
                .avg_down = t->keys->avg_down,
                .se = t->keys->se,
                .zero_init = t->keys->zero_init,
                .groups = (int)t->keys->groups,
                .width_per_group = (int)t->keys->width_per_group};
    // as torchvision refuses them for BasicBlock
    if (!m.bottleneck && (m.groups > 1 || m.width_per_group != 64))
        dt_graph_fail(g, "groups and width_per_group are for bottlenecks, depth 50 or more");
    // before building: stochastic depth grows along all blocks
    for (int stage = 0; stage < 4; stage++) m.n_blocks += s->blocks[stage];
    x = stem(&m, x, t->keys->stem, width);
    for (int stage = 0; stage < 4; stage++) {
        for (int b = 0; b < s->blocks[stage]; b++) {
            const char *module = dt_arena_printf(&g->arena, "layer%d.%d.", stage + 1, b);
            // each stage but the first halves the side
            x = resnet_block(&m, module, x, width << stage, stage > 0 && b == 0 ? 2 : 1);
            m.at++;
        }
    }
    return (dt_features){x, dt_global_pool(g, x)};
}

void dt_model_build_resnet(dt_graph *g, const dt_model_args *a) {
    dt_graph_alias(g, "", "", NULL); // timm has the same names
    dt_model_classify(g, a, "fc", dt_model_trunk(g, a, dt_trunk_resnet).pooled, NULL);
}
