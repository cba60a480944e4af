// resnet.c: residual networks for images (He et al., 2015), in torchvision's form and with its names, so
// that checkpoints move both ways: 7x7 stem, max-pool 3/2, four stages; basic blocks (depth 10, 18, 34)
// or bottlenecks with the stride in the 3x3 convolution ("v1.5", depth 50). model.width is the number of
// channels of the first stage (64 in the paper).
//
// Outputs: "logits" (N,K), "embedding" (N, 512 or 2048 at width 64): the pooled features.
#include "model_util.h"

static const struct spec {
    bool bottleneck;
    int blocks[4];
} specs[] = {[DT_DEPTH_10] = {false, {1, 1, 1, 1}},
             [DT_DEPTH_18] = {false, {2, 2, 2, 2}},
             [DT_DEPTH_34] = {false, {3, 4, 6, 3}},
             [DT_DEPTH_50] = {true, {3, 4, 6, 3}}};

// conv<suffix> and bn<suffix> of a module ("" for the stem)
static dt_value conv_bn(dt_graph *g, const char *module, int index, dt_value x, int out, int kernel,
                        int stride) {
    dt_conv2d_opts conv = {.out = out, .kernel = kernel, .stride = stride, .pad = kernel / 2};
    x = dt_conv2d(g, dt_arena_printf(&g->arena, "%sconv%d", module, index), x, &conv);
    return dt_batch_norm(g, dt_arena_printf(&g->arena, "%sbn%d", module, index), x);
}

static dt_value shortcut(dt_graph *g, const char *module, dt_value x, int out, int stride) {
    if (x == DT_NONE || (stride == 1 && dt_info_of(g, x)->shape.d[1] == out)) return x;
    dt_conv2d_opts conv = {.out = out, .kernel = 1, .stride = stride};
    x = dt_conv2d(g, dt_arena_printf(&g->arena, "%sdownsample.0", module), x, &conv);
    return dt_batch_norm(g, dt_arena_printf(&g->arena, "%sdownsample.1", module), x);
}

typedef struct place { // of a block among all
    const dt_model_args *a;
    int i, n;
} place;

static dt_value block(dt_graph *g, const place *p, const char *module, dt_value x, bool bottleneck,
                      int width, int stride) {
    dt_value y;
    int out = bottleneck ? 4 * width : width;
    if (bottleneck) {
        y = dt_relu(g, conv_bn(g, module, 1, x, width, 1, 1));
        y = dt_relu(g, conv_bn(g, module, 2, y, width, 3, stride));
        y = conv_bn(g, module, 3, y, out, 1, 1);
    } else {
        y = dt_relu(g, conv_bn(g, module, 1, x, width, 3, stride));
        y = conv_bn(g, module, 2, y, out, 3, 1);
    }
    y = dt_model_drop_path(g, p->a, dt_arena_printf(&g->arena, "%sdrop_path", module), y, p->i,
                           p->n);
    return dt_relu(g, dt_add(g, y, shortcut(g, module, x, out, stride)));
}

void dt_model_build_resnet(dt_graph *g, const dt_model_args *a) {
    const struct spec *s = &specs[dt_config_enum(a->config, "model.depth")];
    int width = (int)dt_config_int(a->config, "model.width");
    if (!dt_model_has_fields(g, a, 1)) return;
    dt_value x = dt_model_image(g, a, dt_model_image_field(a, 0));
    x = dt_relu(g, conv_bn(g, "", 1, x, width, 7, 2));
    x = dt_max_pool(g, x, 3, 2, 1);
    place p = {.a = a};
    for (int stage = 0; stage < 4; stage++) p.n += s->blocks[stage];
    for (int stage = 0; stage < 4; stage++) {
        for (int b = 0; b < s->blocks[stage]; b++) {
            const char *module = dt_arena_printf(&g->arena, "layer%d.%d.", stage + 1, b);
            x = block(g, &p, module, x, s->bottleneck, width << stage, stage > 0 && b == 0 ? 2 : 1);
            p.i++;
        }
    }
    x = dt_global_pool(g, x);
    dt_model_classify(g, a, "fc", x, NULL);
}
