// fusion.c: who is it, from two images: fingerprint and iris in the shipped config.
//
//   encoder, one a modality, named after its field, numbered as nn.Sequential would:
//     0..15   4 x (conv 3x3 no bias, BN, ReLU, max-pool 2): 32, 64, 128, 256 channels
//     16, 17  global average pool, flatten           (N,256)
//     18..20  linear 384, ReLU, linear 256           (N,256)
//   concat:           embedding = the two, side by side                      (N,512)
//   cross_attention:  before that each embedding asks the other image: it is the query of 4 heads over
//                     the other encoder's feature map, position by position; the answer is added and
//                     normalised (post-norm, Vaswani et al. 2017). One query a sample: cheap.
//   head:  0 linear 256, 1 ReLU, 2 dropout, 3 linear K   -> logits
//
// Outputs: "logits" (N,K), "embedding" (N,512); evaluation normalises the embedding itself.
#include "model_util.h"

#include <math.h>

enum { EMBEDDING = 256, HIDDEN = 384, N_HEADS = 4, N_BLOCKS = 4 };

typedef struct encoded {
    const char *name;
    dt_value features;  // (N,256,h,w)
    dt_value embedding; // (N,256)
} encoded;

static const char *numbered(dt_graph *g, const char *module, int i) {
    return dt_arena_printf(&g->arena, "%s.%d", module, i);
}

static encoded encode(dt_graph *g, const dt_model_args *a, const dt_field_info *f) {
    static const int channels[N_BLOCKS] = {32, 64, 128, 256};
    encoded e = {.name = f->name};
    dt_value x = dt_model_image(g, a, f);
    for (int b = 0; b < N_BLOCKS; b++) {
        dt_conv2d_opts conv = {.out = channels[b], .kernel = 3, .pad = 1};
        x = dt_conv2d(g, numbered(g, f->name, 4 * b), x, &conv);
        x = dt_batch_norm(g, numbered(g, f->name, 4 * b + 1), x);
        x = dt_max_pool(g, dt_relu(g, x), 2, 2, 0);
    }
    e.features = x;
    x = dt_global_pool(g, x);
    x = dt_relu(g, dt_linear(g, numbered(g, f->name, 18), x, HIDDEN, true));
    e.embedding = dt_linear(g, numbered(g, f->name, 20), x, EMBEDDING, true);
    return e;
}

// (N,T,256) -> (N,heads,T,256/heads)
static dt_value split_heads(dt_graph *g, dt_value x, int64_t batch) {
    static const int perm[4] = {0, 2, 1, 3};
    x = dt_reshape(g, x, dt_shape4(batch, -1, N_HEADS, EMBEDDING / N_HEADS));
    return dt_transpose(g, x, perm);
}

// The embedding of `self`, after asking the feature map of `other`.
static dt_value attend(dt_graph *g, const dt_model_args *a, const encoded *self,
                       const encoded *other) {
    static const int to_tokens[3] = {0, 2, 1};
    const char *m = dt_arena_printf(&g->arena, "%s_attention", self->name);
    dt_value tokens = dt_reshape(g, other->features, dt_shape3(a->batch, EMBEDDING, -1));
    tokens = dt_transpose(g, tokens, to_tokens); // (N,hw,256)
    dt_value q =
        dt_linear(g, dt_arena_printf(&g->arena, "%s.q", m), self->embedding, EMBEDDING, true);
    dt_value k = dt_linear(g, dt_arena_printf(&g->arena, "%s.k", m), tokens, EMBEDDING, true);
    dt_value v = dt_linear(g, dt_arena_printf(&g->arena, "%s.v", m), tokens, EMBEDDING, true);
    // One query a sample: splitting heads of (N,256) moves nothing.
    q = dt_reshape(g, q, dt_shape4(a->batch, N_HEADS, 1, EMBEDDING / N_HEADS));
    float scale = 1.0f / sqrtf((float)EMBEDDING / N_HEADS);
    k = split_heads(g, k, a->batch);
    v = split_heads(g, v, a->batch);
    dt_value y = dt_sdpa(g, q, k, v, scale);
    y = dt_reshape(g, y, dt_shape2(a->batch, EMBEDDING));
    y = dt_linear(g, dt_arena_printf(&g->arena, "%s.out", m), y, EMBEDDING, true);
    y = dt_add(g, self->embedding, y);
    return dt_layer_norm(g, dt_arena_printf(&g->arena, "%s.norm", m), y, 1e-5f);
}

void dt_model_build_fusion(dt_graph *g, const dt_model_args *a) {
    if (!dt_model_has_fields(g, a, 2)) return;
    encoded e[2];
    dt_value parts[2];
    for (int i = 0; i < 2; i++) e[i] = encode(g, a, dt_model_image_field(a, i));
    bool attention = dt_config_enum(a->config, "model.fusion") == DT_FUSION_cross_attention;
    for (int i = 0; i < 2; i++) {
        parts[i] = attention ? attend(g, a, &e[i], &e[1 - i]) : e[i].embedding;
    }
    dt_value joint = dt_concat(g, parts, 2, 1);
    dt_output(g, "embedding", joint);
    dt_value h = dt_relu(g, dt_linear(g, "head.0", joint, EMBEDDING, true));
    h = dt_dropout(g, "head.2", h, (float)dt_config_real(a->config, "model.dropout"));
    dt_model_heads(g, a, "head.3", h, NULL);
}
