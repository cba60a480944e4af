// blocks.c: see models.h.
#include "graph/activation_words.h"
#include "models.h"

#include <math.h>

dt_features dt_model_trunk(dt_graph *g, const dt_model_args *a, dt_trunk_fn trunk) {
    const dt_trunk t = {g, a, "model", &a->config->model.backbone};
    // DT_NONE flows through the builder calls after a failure, and the graph keeps the first error
    if (!dt_model_has_fields(g, a, 1)) return (dt_features){DT_NONE, DT_NONE};
    return trunk(&t, dt_model_image(g, a, dt_model_image_field(a, 0)));
}

// ---- keys, names -----------------------------------------------------------------------------------
const char *dt_trunk_name(const dt_trunk *t, const char *module, const char *name) {
    return dt_arena_printf(&t->g->arena, "%s.%s", module, name);
}

int64_t dt_trunk_dim(const dt_trunk *t, dt_value x, int d) {
    return x == DT_NONE ? 1 : dt_info_of(t->g, x)->shape.d[d];
}

// ---- blocks ----------------------------------------------------------------------------------------
// Of an output with ceil(side / stride) rows.
// TensorFlow's SAME: the padding depends on the input's side; weights that timm took over from TensorFlow need this
// window
static const dt_window *same_window(const dt_graph *g, dt_value x, const dt_conv_norm *c, dt_window *w) {
    const int stride = c->stride ? c->stride : 1;
    for (int i = 0; i < 2; i++) {
        // x is DT_NONE once building has failed; any side does then
        const int side = x == DT_NONE ? 1 : (int)dt_info_of(g, x)->shape.d[2 + i];
        // rows that the windows cover beyond the image, below 0 where the stride exceeds the kernel
        int pad = ((side + stride - 1) / stride - 1) * stride + c->kernel - side;
        if (pad < 0) pad = 0;
        w->kernel[i] = c->kernel, w->stride[i] = stride, w->dilation[i] = 1;
        // an odd row of padding goes behind the image
        w->pad_begin[i] = pad / 2, w->pad_end[i] = pad - pad / 2;
    }
    return w;
}

dt_value dt_block_conv_norm(dt_graph *g, const char *module, dt_value x, const dt_conv_norm *c) {
    dt_window same;
    const char *name[2]; // of the convolution and of the batch norm: ".0", ".1"
    for (int i = 0; i < 2; i++) {
        name[i] = dt_arena_printf(&g->arena, "%s.%d", module, i);
        // timm's checkpoints store the same tensors under other names
        if (c->timms[i]) dt_graph_alias(g, name[i], c->timms[i], NULL);
    }
    const dt_conv2d_opts conv = {.out = c->out,
                                 .kernel = c->kernel,
                                 .stride = c->stride,
                                 // keeps the side at stride 1; ignored where a window is given
                                 .pad = (c->kernel - 1) / 2,
                                 .groups = c->groups,
                                 .window = c->same ? same_window(g, x, c, &same) : NULL};
    x = dt_conv2d(g, name[0], x, &conv);
    x = dt_batch_norm_eps(g, name[1], x, c->eps, c->momentum);
    return dt_activate(g, c->act, x);
}

dt_value dt_block_squeeze_excite(dt_graph *g, const char *module, dt_value x, int64_t squeeze, dt_activation act,
                                 dt_activation gate) {
    if (x == DT_NONE) return DT_NONE;
    const dt_shape s = dt_info_of(g, x)->shape;
    const dt_conv2d_opts down = {.out = (int)squeeze, .kernel = 1, .bias = true},
                         up = {.out = (int)s.d[1], .kernel = 1, .bias = true};
    // (N,C) -> (N,C,1,1): fc1 and fc2 are 1x1 convolutions on one pixel, as torchvision stores their weights
    dt_value y = dt_reshape(g, dt_global_pool(g, x), dt_shape4(s.d[0], s.d[1], 1, 1));
    y = dt_conv2d(g, dt_arena_printf(&g->arena, "%s.fc1", module), y, &down);
    y = dt_activate(g, act, y);
    y = dt_conv2d(g, dt_arena_printf(&g->arena, "%s.fc2", module), y, &up);
    // the gate (N,C,1,1) is broadcast over the pixels
    return dt_mul(g, x, dt_activate(g, gate, y));
}

dt_value dt_block_inverted(const dt_trunk *t, const char *module, dt_value x, const dt_inverted *b) {
    dt_graph *g = t->g;
    int i = 0, n_norms = 0; // i: number of the next submodule; absent ones take no number
    dt_value y = x;
    if (x == DT_NONE) return DT_NONE;
    const int64_t in = dt_info_of(g, x)->shape.d[1];
    // without an expansion there is no first 1x1 convolution, as in the first block of MobileNet
    const bool expands = b->expanded != in;
    dt_conv_norm c = {.out = (int)b->expanded, .kernel = 1, .act = b->act, .eps = b->eps, .momentum = b->momentum};
#define MODULE dt_arena_printf(&g->arena, "%s.block.%d", module, i++)
#define TIMMS(conv)                                                                                                    \
    c.timms[0] = dt_trunk_name(t, b->timms, conv),                                                                     \
    c.timms[1] = dt_arena_printf(&g->arena, "%s.bn%d", b->timms, ++n_norms)
    if (expands) {
        TIMMS("conv_pw");
        y = dt_block_conv_norm(g, MODULE, y, &c);
    }
    // depthwise: as many groups as channels
    c.kernel = b->kernel, c.stride = b->stride, c.groups = (int)b->expanded, c.same = b->same;
    TIMMS("conv_dw");
    y = dt_block_conv_norm(g, MODULE, y, &c);
    if (b->squeeze > 0) {
        const char *se = MODULE;
        dt_graph_alias(g, dt_trunk_name(t, se, "fc1"), dt_trunk_name(t, b->timms, "se.conv_reduce"), NULL);
        dt_graph_alias(g, dt_trunk_name(t, se, "fc2"), dt_trunk_name(t, b->timms, "se.conv_expand"), NULL);
        y = dt_block_squeeze_excite(g, se, y, b->squeeze, b->squeeze_act, b->gate);
        for (int k = 1; k <= 2; k++) // as torchvision's networks begin, and timm's
            dt_param_set_init(g, dt_arena_printf(&g->arena, "%s.fc%d.bias", se, k), (dt_init){DT_INIT_ZERO, 0});
    }
    // linear bottleneck: the projection has no activation (Sandler et al., 2018)
    c = (dt_conv_norm){
        .out = (int)b->out, .kernel = 1, .act = DT_ACTIVATION_none, .eps = b->eps, .momentum = b->momentum};
    // timm's depthwise-separable block names its only 1x1 convolution conv_pw
    TIMMS(expands ? "conv_pwl" : "conv_pw");
    y = dt_block_conv_norm(g, MODULE, y, &c);
#undef MODULE
#undef TIMMS
    // no residual where the shapes differ, and no stochastic depth then
    if (b->stride != 1 || in != b->out) return y;
    return dt_model_add_branch(g, t->a, dt_trunk_name(t, module, "drop_path"), x, y, DT_NONE, b->at, b->n_blocks + 1);
}

int64_t dt_multiple_of_8(double v) {
    int64_t n = (int64_t)(v + 4) / 8 * 8; // rounds to the nearest multiple
    if (n < 8) n = 8;
    // _make_divisible of torchvision: rounding down costs at most 10 % of the channels
    return (double)n < 0.9 * v ? n + 8 : n;
}

// A constant: resizing becomes a matrix product, which every backend and autodiff already have.
// (in,out): column k has the weights of out's pixel k, a triangle over the pixels of in around its place.
static const float *resize_weights(dt_graph *g, int64_t in, int64_t out) {
    float *w = dt_arena_alloc(&g->arena, sizeof *w * (size_t)(in * out));
    // antialias: shrinking widens the triangle by the scale
    const double scale = (double)in / (double)out, reach = scale > 1 ? scale : 1;
    for (int64_t k = 0; k < out; k++) {
        // place of output pixel k among the input's pixels, whose centres lie at i + 0.5 (align_corners: false)
        const double centre = ((double)k + 0.5) * scale;
        double sum = 0;
        for (int64_t i = 0; i < in; i++) {
            const double share = 1 - fabs((double)i + 0.5 - centre) / reach;
            w[i * out + k] = share > 0 ? (float)share : 0;
            sum += w[i * out + k];
        }
        // a triangle that the border cuts off is normalised again, so that its weights sum to 1
        for (int64_t i = 0; i < in; i++) w[i * out + k] = (float)(w[i * out + k] / sum);
    }
    return w;
}

// The last axis to `out`, then the last two swapped.
static dt_value resize_last(dt_graph *g, const char *name, dt_value x, int64_t out) {
    static const int swapped[4] = {0, 1, 3, 2};
    if (x == DT_NONE) return x;
    dt_shape s = dt_info_of(g, x)->shape;
    const int64_t in = s.d[3];
    dt_value w = dt_constant(g, name, DT_F32, dt_shape2(in, out), resize_weights(g, in, out));
    // (N C H, in) x (in, out): all rows in one product
    x = dt_matmul(g, dt_reshape(g, x, dt_shape2(-1, in)), w, false, false, 1);
    s.d[3] = out;
    return dt_transpose(g, dt_reshape(g, x, s), swapped);
}

// Separable: columns, then rows. Each pass swaps the last two axes, so the second restores their order.
dt_value dt_block_resize(dt_graph *g, dt_value x, int64_t h, int64_t w) {
    return resize_last(g, "resize.rows", resize_last(g, "resize.columns", x, w), h);
}
