// vit.c: Vision Transformer (Dosovitskiy et al., 2020), in torchvision's form and with its names: patches
// by a convolution, a class token in front, learned positions, pre-norm encoder layers, the class token's
// last state to the head. Sizes ti, s, b and l are those of DeiT (Touvron et al., 2020) and of the paper; B/16 by
// default. model.pool mean: no class token, the head sees the mean of the patches.
//
//   x (N,3,H,W) -> patches (N,hw,D) -> tokens (N,T,D), T = hw + 1
//   layer:  x += out_proj(attention(ln_1 x));  x += mlp(ln_2 x), mlp = linear 4D, GELU, linear D
//
// Initial values follow torchvision. Outputs: "logits" (N,K), "embedding" (N,D).
#include "models.h"

#include <math.h>

typedef struct vit {
    dt_graph *g;
    const dt_model_args *a;
    int64_t batch, tokens, dim, heads; // tokens: with the class token
    bool tanh, mean;                   // tanh: the form of GELU; mean: pooling without a class token
} vit;

static const char *vit_join(const vit *m, const char *module, const char *name) {
    return dt_arena_printf(&m->g->arena, "%s.%s", module, name);
}

// torch.nn.init.xavier_uniform_
static dt_init xavier(int64_t in, int64_t out) {
    return (dt_init){DT_INIT_UNIFORM, sqrtf(6.0f / (float)(in + out))};
}

static dt_value attention(const vit *m, const char *module, dt_value x) {
    dt_graph *g = m->g;
    // one projection for q, k and v; torch.nn.MultiheadAttention counts fan-out 3D, too
    int64_t d = m->dim;
    dt_value w = dt_param(g, vit_join(m, module, "in_proj_weight"), dt_shape2(3 * d, d), xavier(d, 3 * d), true);
    dt_value b = dt_param(g, vit_join(m, module, "in_proj_bias"), dt_shape1(3 * d), (dt_init){DT_INIT_ZERO, 0}, false);
    dt_value qkv = dt_linear_with(g, vit_join(m, module, "in_proj"), x, w, b);
    float scale = 1.0f / sqrtf((float)d / (float)m->heads);
    // softmax(q kᵀ / sqrt(D/heads)) v
    dt_value y = dt_sdpa_packed(g, vit_join(m, module, "sdpa"), qkv, (int)m->heads, scale);
    y = dt_linear(g, vit_join(m, module, "out_proj"), y, d, true);
    dt_param_set_init(g, vit_join(m, module, "out_proj.bias"), (dt_init){DT_INIT_ZERO, 0});
    return y;
}

static dt_value mlp_linear(const vit *m, const char *name, dt_value x, int64_t in, int64_t out) {
    x = dt_linear(m->g, name, x, out, true);
    dt_param_set_init(m->g, vit_join(m, name, "weight"), xavier(in, out));
    // torchvision's bias of the MLP
    dt_param_set_init(m->g, vit_join(m, name, "bias"), (dt_init){DT_INIT_NORMAL, 1e-6f});
    return x;
}

static dt_value encoder_layer(const vit *m, int i, int n, dt_value x) {
    static const char *const names[][2] = {{"ln_1", "norm1"}, // torchvision's name, timm's
                                           {"ln_2", "norm2"},
                                           {"self_attention.in_proj_weight", "attn.qkv.weight"},
                                           {"self_attention.in_proj_bias", "attn.qkv.bias"},
                                           {"self_attention.out_proj", "attn.proj"},
                                           {"mlp.0", "mlp.fc1"},
                                           {"mlp.3", "mlp.fc2"}};
    dt_graph *g = m->g;
    const char *module = dt_arena_printf(&g->arena, "encoder.layers.encoder_layer_%d", i);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        dt_graph_alias(g, vit_join(m, module, names[k][0]), dt_arena_printf(&g->arena, "blocks.%d.%s", i, names[k][1]),
                       NULL);
    // pre-norm: x += attention(norm(x)), x += mlp(norm(x))
    dt_value y = dt_layer_norm(g, vit_join(m, module, "ln_1"), x, 1e-6f);
    y = attention(m, vit_join(m, module, "self_attention"), y);
    x = dt_model_add_branch(g, m->a, vit_join(m, module, "drop_path1"), x, y, DT_NONE, i, n);
    y = dt_layer_norm(g, vit_join(m, module, "ln_2"), x, 1e-6f);
    y = mlp_linear(m, vit_join(m, module, "mlp.0"), y, m->dim, 4 * m->dim);
    y = m->tanh ? dt_gelu_tanh(g, y) : dt_gelu(g, y);
    y = mlp_linear(m, vit_join(m, module, "mlp.3"), y, 4 * m->dim, m->dim);
    return dt_model_add_branch(g, m->a, vit_join(m, module, "drop_path2"), x, y, DT_NONE, i, n);
}

// A parameter kept with a leading 1 for PyTorch, (1,…,D), as (rows,D).
static dt_value rows_param(const vit *m, const char *name, int64_t rows, dt_init init) { // without weight decay
    dt_value p = dt_param(m->g, name, dt_shape3(1, rows, m->dim), init, false);
    return dt_reshape(m->g, p, dt_shape2(rows, m->dim));
}

// The token is repeated over the batch by adding it to zeros.
static dt_value with_class_token(const vit *m, dt_value x) {
    dt_graph *g = m->g;
    dt_shape one = dt_shape3(m->batch, 1, m->dim); // (N,1,D); the parameter (1,D) is broadcast over N
    float *zeros = dt_arena_alloc(&g->arena, (size_t)(m->batch * m->dim) * sizeof *zeros);
    dt_value token = rows_param(m, "class_token", 1, (dt_init){DT_INIT_ZERO, 0});
    token = dt_add(g, dt_constant(g, "zeros", DT_F32, one, zeros), token);
    return dt_concat(g, (dt_value[]){token, x}, 2, 1);
}

static dt_value embed(vit *m, dt_value x, int patch, int stride) {
    static const int to_tokens[3] = {0, 2, 1};
    dt_graph *g = m->g;
    if (x == DT_NONE) return DT_NONE;
    // a patch is one window of a convolution
    dt_conv2d_opts conv = {.out = (int)m->dim, .kernel = patch, .stride = stride, .bias = true};
    int64_t fan_in = dt_info_of(g, x)->shape.d[1] * patch * patch;
    x = dt_conv2d(g, "conv_proj", x, &conv);
    // torchvision: LeCun normal
    dt_param_set_init(g, "conv_proj.weight", (dt_init){DT_INIT_NORMAL, 1.0f / sqrtf((float)fan_in)});
    dt_param_set_init(g, "conv_proj.bias", (dt_init){DT_INIT_ZERO, 0});
    x = dt_transpose(g, dt_reshape(g, x, dt_shape3(m->batch, m->dim, -1)), to_tokens);
    if (x == DT_NONE) return DT_NONE;
    // known only now: the number of patches follows from the image's size
    m->tokens = dt_info_of(g, x)->shape.d[1] + (m->mean ? 0 : 1);
    if (!m->mean) x = with_class_token(m, x);
    return dt_add(g, x, rows_param(m, "encoder.pos_embedding", m->tokens, (dt_init){DT_INIT_NORMAL, 0.02f}));
}

static bool vit_fits(const dt_trunk *t, dt_value x, const dt_vit_form *f) {
    if (f->dim % f->heads) {
        dt_graph_fail(t->g, "%s.dim %d is no multiple of %s.heads %d", t->at, (int)f->dim, t->at, (int)f->heads);
        return false;
    }
    for (int d = 2; d < 4 && x != DT_NONE; d++) {
        // a side shorter than a patch, gaps between patches, or a rest that no overlap excuses
        const int64_t side = dt_trunk_dim(t, x, d), left = side - f->patch;
        // patches that overlap may leave a rest, as those of AST do
        if (left >= 0 && f->stride <= f->patch && (left % f->stride == 0 || f->stride < f->patch)) continue;
        dt_graph_fail(t->g, "patches of %s.patch %d, each %d on, do not tile the image's %d", t->at, f->patch,
                      f->stride, (int)side);
        return false;
    }
    return x != DT_NONE;
}

dt_features dt_vit_features(const dt_trunk *t, dt_value x, const dt_vit_form *f) {
    dt_graph *g = t->g;
    vit m = {
        .g = g, .batch = t->a->batch, .dim = f->dim, .heads = f->heads, .tanh = f->tanh, .mean = f->mean, .a = t->a};
    if (!vit_fits(t, x, f)) return (dt_features){DT_NONE, DT_NONE};
    // outside of any condition: an alias without its tensor is never looked up
    dt_graph_alias(g, "class_token", "cls_token", NULL);
    dt_graph_alias(g, "encoder.pos_embedding", "pos_embed", NULL);
    dt_graph_alias(g, "conv_proj", "patch_embed.proj", NULL);
    dt_graph_alias(g, "encoder.ln", "norm", NULL);
    dt_graph_alias(g, "heads.head", "head", NULL);
    x = embed(&m, x, f->patch, f->stride);
    for (int i = 0; i < f->blocks; i++) x = encoder_layer(&m, i, f->blocks, x);
    x = dt_layer_norm(g, "encoder.ln", x, 1e-6f);
    if (m.mean) { // (N,T,D) -> (N,D): global pooling is a mean over the last two axes, so the tokens go there
        static const int perm[3] = {0, 2, 1};
        const dt_value last = dt_reshape(g, dt_transpose(g, x, perm), dt_shape4(m.batch, m.dim, -1, 1));
        return (dt_features){x, dt_global_pool(g, last)};
    }
    // the class token is the first of T
    return (dt_features){x, dt_reshape(g, dt_slice(g, x, 1, 0, 1), dt_shape2(t->a->batch, m.dim))};
}

dt_features dt_trunk_vit(const dt_trunk *t, dt_value x) {
    static const dt_vit_form sizes[] = {[DT_SIZE_auto] = {768, 12, 12}, // dim, heads, blocks
                                        [DT_SIZE_ti] = {192, 3, 12},
                                        [DT_SIZE_s] = {384, 6, 12},
                                        [DT_SIZE_b] = {768, 12, 12},
                                        [DT_SIZE_l] = {1024, 16, 24}};
    const int size = t->keys->size;
    if (size > DT_SIZE_l) {
        dt_graph_fail(t->g, "vit has the sizes ti, s, b and l");
        return (dt_features){DT_NONE, DT_NONE};
    }
    const int patch = (int)t->keys->patch;
    // keys of the config override a size's values
    const dt_vit_form form = {.dim = dt_answer_or(t->keys->dim, sizes[size].dim),
                              .heads = dt_answer_or(t->keys->heads, sizes[size].heads),
                              .blocks = (int)dt_answer_or(t->keys->blocks, sizes[size].blocks),
                              .patch = patch,
                              .stride = (int)dt_answer_or(t->keys->patch_stride, patch),
                              .tanh = t->keys->gelu == DT_GELU_tanh,
                              .mean = t->keys->pool == DT_POOL_mean};
    return dt_vit_features(t, x, &form);
}

void dt_model_build_vit(dt_graph *g, const dt_model_args *a) {
    dt_model_classify(g, a, "heads.head", dt_model_trunk(g, a, dt_trunk_vit).pooled, &(dt_init){DT_INIT_ZERO, 0});
}
