// fusion.c: one prediction from several fields: images, audio, numbers; fingerprint and iris in the shipped config. Each
// field that is no target has an encoder, named after the field and chosen by model.encoders: any trunk. What it pools,
// brought to 256 numbers by "<field>.proj" where the trunk gives another number, is the field's embedding.
//
//   concat:           embedding = the embeddings side by side                (N, 256 a field)
//   gated:            before that each is scaled by sigmoid(gate.<field>), linear in all of them together, in the manner
//                     of gated multimodal units (Arevalo et al., 2017)
//   cross_attention:  before that each embedding attends to the others: it is the query of 4 heads over another
//                     encoder's feature map, position by position; the results are added and normalised (post-norm,
//                     Vaswani et al. 2017). One query a sample: cheap.
//   head:  0 linear 256, 1 ReLU (neither under train.loss: arcface), 2 dropout, 3 linear K   -> logits
//
// Outputs: "logits" (N,K), "embedding" (N, 256 a field); evaluation normalises the embedding itself.
#include "base/text.h"
#include "config/words.h"
#include "graph/activation_words.h"
#include "models.h"

#include <math.h>
#include <string.h>

enum { EMBEDDING = 256, N_HEADS = 4 }; // EMBEDDING: numbers per field; every encoder is brought to it

typedef struct encoded {
    const char *name;
    dt_value tokens;    // (N,T,D); DT_NONE: no places
    dt_value embedding; // (N,256)
} encoded;

// No default: a new line of models.def has to choose here.
static dt_trunk_fn trunk_of(dt_model_id model) {
    switch (model) {
    case DT_MODEL_resnet:
        return dt_trunk_resnet;
    case DT_MODEL_vit:
        return dt_trunk_vit;
    case DT_MODEL_convnext:
        return dt_trunk_convnext;
    case DT_MODEL_mobilenet_v3:
        return dt_trunk_mobilenet_v3;
    case DT_MODEL_efficientnet:
        return dt_trunk_efficientnet;
    case DT_MODEL_audio_cnn:
        return dt_trunk_audio_cnn;
    case DT_MODEL_ast_tiny:
        return dt_trunk_ast_tiny;
    case DT_MODEL_cnn1d:
        return dt_trunk_cnn1d;
    case DT_MODEL_cnn:
        return dt_trunk_cnn;
    case DT_MODEL_mlp:
        return dt_trunk_mlp;
    case DT_MODEL_lens_multiscale: // not of one field, or a whole network
    case DT_MODEL_fusion:
    case DT_MODEL_layers:
    case DT_MODEL_onnx:
    case DT_N_MODELS:
        break;
    }
    return NULL;
}

static const char *const names[] = {
// by dt_model_id, for messages
#define WORD(id, ...) #id,
#include "config/models.def"
#undef WORD
};

static encoded fusion_encode(dt_graph *g, const dt_model_args *a, const dt_field_info *f) {
    const dt_config *c = a->config;
    int i = 0; // behind the last one are the defaults
    while (i < c->model.n_encoders && strcmp(c->model.encoders[i].id, f->name) != 0) i++;
    const dt_config_encoder *own = &c->model.encoders[i];
    // its keys: model.encoders.<field>
    const dt_trunk t = {g, a, dt_arena_printf(&g->arena, "model.encoders.%s", f->name), &own->backbone};
    // own->id is NULL in the entry of defaults
    const dt_word model = own->id ? own->name : f->is_image ? DT_MODEL_cnn : DT_MODEL_mlp;
    const dt_trunk_fn trunk = trunk_of(model);
    encoded e = {f->name, DT_NONE, DT_NONE};
    // cnn1d alone takes both: waveforms are images of one row
    if (!trunk || (model != DT_MODEL_cnn1d && f->is_image != (model != DT_MODEL_mlp))) {
        dt_graph_fail(g, "%s.name is %s, which encodes no %s", t.at, names[model],
                      f->is_image ? "images or audio" : "numbers");
        return e;
    }
    dt_value x = f->is_image ? dt_model_image(g, a, f) : dt_model_numbers(g, a, f);
    // "<field>." in front of every name of the encoder: two encoders of one kind share no weights
    const char *before = dt_graph_scope(g, dt_arena_printf(&g->arena, "%s%s.", g->scope, f->name));
    const dt_features y = trunk(&t, x);
    e.embedding = y.pooled;
    // a trunk of the right width gets no projection
    if (dt_trunk_dim(&t, e.embedding, 1) != EMBEDDING) e.embedding = dt_linear(g, "proj", e.embedding, EMBEDDING, true);
    dt_graph_scope(g, before);
    e.tokens = y.map;
    // a map (N,C,h,w) becomes tokens; a transformer's are tokens already
    if (y.map != DT_NONE && dt_info_of(g, y.map)->shape.n == 4) {
        static const int to_tokens[3] = {0, 2, 1};
        const int64_t channels = dt_trunk_dim(&t, y.map, 1);
        e.tokens = dt_transpose(g, dt_reshape(g, y.map, dt_shape3(a->batch, channels, -1)),
                                to_tokens); // (N,hw,C)
    }
    return e;
}

// (N,T,256) -> (N,heads,T,256/heads)
static dt_value split_heads(dt_graph *g, dt_value x, int64_t batch) {
    static const int perm[4] = {0, 2, 1, 3}; // -> (N,heads,T,D)
    x = dt_reshape(g, x, dt_shape4(batch, -1, N_HEADS, EMBEDDING / N_HEADS));
    return dt_transpose(g, x, perm);
}

// What the embedding of `self` learns of `other`. m: the module's name.
static dt_value fusion_query(dt_graph *g, const dt_model_args *a, const char *m, const encoded *self,
                             const encoded *other) {
    dt_value tokens = other->tokens;
    // an encoder without places (mlp) is one token
    if (tokens == DT_NONE) tokens = dt_reshape(g, other->embedding, dt_shape3(a->batch, 1, EMBEDDING));
    dt_value q = dt_linear(g, dt_arena_printf(&g->arena, "%s.q", m), self->embedding, EMBEDDING, true);
    dt_value k = dt_linear(g, dt_arena_printf(&g->arena, "%s.k", m), tokens, EMBEDDING, true);
    dt_value v = dt_linear(g, dt_arena_printf(&g->arena, "%s.v", m), tokens, EMBEDDING, true);
    // One query a sample: splitting heads of (N,256) moves nothing.
    q = dt_reshape(g, q, dt_shape4(a->batch, N_HEADS, 1, EMBEDDING / N_HEADS));
    float scale = 1.0f / sqrtf((float)EMBEDDING / N_HEADS);
    k = split_heads(g, k, a->batch);
    v = split_heads(g, v, a->batch);
    dt_value y = dt_sdpa(g, q, k, v, scale);
    y = dt_reshape(g, y, dt_shape2(a->batch, EMBEDDING));
    return dt_linear(g, dt_arena_printf(&g->arena, "%s.out", m), y, EMBEDDING, true);
}

// The embedding of encoder i after the queries to the others, "<field>_attention", or with more than two
// "<field>_attention.<other>".
static dt_value fusion_attend(dt_graph *g, const dt_model_args *a, const encoded *e, int n, int i) {
    const char *m = dt_arena_printf(&g->arena, "%s_attention", e[i].name);
    dt_value y = e[i].embedding;
    for (int k = 0; k < n; k++) {
        if (k == i) continue;
        const char *module = n == 2 ? m : dt_arena_printf(&g->arena, "%s.%s", m, e[k].name);
        y = dt_add(g, y, fusion_query(g, a, module, &e[i], &e[k]));
    }
    // post-norm; the sum is a residual around the queries
    return dt_layer_norm(g, dt_arena_printf(&g->arena, "%s.norm", m), y, 1e-5f);
}

static dt_value gate(dt_graph *g, const encoded *e, dt_value all) {
    const char *name = dt_arena_printf(&g->arena, "gate.%s", e->name);
    // sigmoid(linear(all)): each field's gate sees every field
    dt_value z = dt_activate(g, DT_ACTIVATION_sigmoid, dt_linear(g, name, all, EMBEDDING, true));
    return dt_mul(g, e->embedding, z);
}

// Each name of model.encoders is one of these fields.
static void fusion_check_names(dt_graph *g, const dt_config *c, const encoded *e, int n) {
    char known[512] = "", key[256]; // known: for the message
    for (int i = 0; i < n; i++) dt_text_list(known, sizeof known, e[i].name);
    for (int k = 0; k < c->model.n_encoders; k++) {
        const char *name = c->model.encoders[k].id;
        int i = 0;
        while (i < n && strcmp(e[i].name, name) != 0) i++;
        if (i < n) continue;
        snprintf(key, sizeof key, "model.encoders.%s", name);
        dt_config_fail_name(c, key, name, "field that the network reads", known);
        dt_graph_fail(g, "%s", dt_error_message());
        return;
    }
}

void dt_model_build_fusion(dt_graph *g, const dt_model_args *a) {
    encoded e[DT_MAX_FIELDS];
    dt_value parts[DT_MAX_FIELDS];
    int n = 0;
    for (int i = 0; i < a->n_fields; i++)
        if (a->fields[i].is_image || dt_model_is_numbers(a, &a->fields[i])) e[n++] = fusion_encode(g, a, &a->fields[i]);
    if (n < 2) {
        dt_graph_fail(g, "wants two or more fields beside its target in data.fields; there %s %d",
                      n == 1 ? "is" : "are", n);
        return;
    }
    if (g->training) fusion_check_names(g, a->config, e, n); // runs from before the check are still read
    const int how = a->config->model.fusion;
    for (int i = 0; i < n; i++)
        parts[i] = how == DT_FUSION_cross_attention ? fusion_attend(g, a, e, n, i) : e[i].embedding;
    dt_value joint = dt_concat(g, parts, n, 1);
    if (how == DT_FUSION_gated) {
        for (int i = 0; i < n; i++) parts[i] = gate(g, &e[i], joint);
        joint = dt_concat(g, parts, n, 1);
    }
    dt_output(g, "embedding", joint);
    dt_value h = joint; // angles are those of the embedding itself
    if (!dt_losses[a->targets->items[0].loss].angular) h = dt_relu(g, dt_linear(g, "head.0", joint, EMBEDDING, true));
    h = dt_dropout(g, "head.2", h, (float)a->config->model.dropout);
    dt_model_heads(g, a, "head.3", h, NULL);
}
