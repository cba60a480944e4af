// layer_types.c: the layers of model.layers (layers.h): each reads its keys and calls the graph API.
#include "graph/activation_words.h"
#include "layers.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Of any number of a layer: a float holds it, an int the whole ones.
#define MOST      1e9
#define MOST_TEXT "1e9"

// ---- keys ------------------------------------------------------------------------------------------
// A key's default of layer_types.def into buf: "kernel=3" gives "3"; NULL: it must be given.
static const char *fallback(const dt_layer *l, const char *key, char buf[16]) {
    const size_t n = strlen(key);
    // keys are separated by one space: "out kernel=3 stride=1"
    for (const char *p = l->keys; *p; p += strcspn(p, " "), p += *p == ' ') {
        if (strncmp(p, key, n) != 0 || p[n] != '=') continue;
        snprintf(buf, 16, "%.*s", (int)strcspn(p + n + 1, " "), p + n + 1);
        return buf;
    }
    return NULL;
}
static double layer_types_number(const dt_layer *l, const char *key, double least) {
    char buf[16];
    const dt_cnode *n = dt_layer_key(l, key);
    const char *unset = fallback(l, key, buf);
    double v = !n && unset ? strtod(unset, NULL) : least; // placeholder after a failure
    if (!n && !unset) dt_layer_fail(l, l->where, "%s wants %s", l->type, key);
    if (n && (!dt_cnode_real(n, &v) || !(v >= least) || v > MOST))
        dt_layer_fail(l, n, "%s of %s: expected a number in %g.." MOST_TEXT, key, l->type, least);
    return v;
}
static int whole(const dt_layer *l, const char *key, double least) {
    const double v = layer_types_number(l, key, least); // at most MOST
    if (v != floor(v)) dt_layer_fail(l, l->where, "%s of %s: expected a whole number", key, l->type);
    // after a failure 1, which later arithmetic can divide by
    return l->g->status == DT_OK ? (int)v : 1;
}
static bool yes(const dt_layer *l, const char *key) {
    char buf[16];
    const dt_cnode *n = dt_layer_key(l, key);
    // a list or a map fails below like a wrong word
    const char *text = n && dt_cnode_kind(n) == DT_C_SCALAR ? dt_cnode_str(n) : "";
    if (!n) text = fallback(l, key, buf);
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        dt_layer_fail(l, n, "%s of %s: expected true or false", key, l->type);
    return strcmp(text, "true") == 0;
}
// Numbers of a list; a number is a list of one. Returns how many.
static int numbers(const dt_layer *l, const char *key, int64_t *out, int cap) {
    const dt_cnode *n = dt_layer_key(l, key);
    double v;
    if (!n) return 0;
    const bool list = dt_cnode_kind(n) == DT_C_LIST;
    const size_t count = list ? dt_cnode_size(n) : 1;
    for (size_t i = 0; i < count; i++) {
        const dt_cnode *item = dt_layer_item(l, key, i);
        if (i >= (size_t)cap || !dt_cnode_real(item, &v) || v != floor(v) || fabs(v) > MOST) {
            dt_layer_fail(l, item, "%s of %s: expected at most %d whole numbers, none above " MOST_TEXT, key, l->type,
                          cap);
            return 0;
        }
        out[i] = (int64_t)v;
    }
    return (int)count;
}
// [height, width], or one number for both; false: not given, and the default is none of numbers
static bool layer_types_pair(const dt_layer *l, const char *key, int64_t least, int out[2]) {
    char buf[16], *end = buf;
    // without any number: {0, 0} and the default
    int64_t v[2] = {0};
    const char *unset = fallback(l, key, buf);
    const int n = numbers(l, key, v, 2);
    // strtol leaves end at buf where the default is a word ("kernel", "size")
    if (n == 0 && unset) v[0] = strtol(unset, &end, 10);
    for (int i = 0; i < 2; i++) {
        out[i] = (int)v[n == 2 ? i : 0];
        if (n > 0 && out[i] < least)
            dt_layer_fail(l, l->where, "%s of %s: expected at least %d", key, l->type, (int)least);
    }
    return n > 0 || end != buf;
}

// Which of n words the key says.
static int word(const dt_layer *l, const char *key, const char *const *words, int n) {
    char buf[16], list[128] = "";
    const dt_cnode *node = dt_layer_key(l, key);
    const char *text = node && dt_cnode_kind(node) == DT_C_SCALAR ? dt_cnode_str(node) : "";
    if (!node) text = fallback(l, key, buf);
    for (int i = 0; i < n; i++) {
        if (strcmp(words[i], text) == 0) return i;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", words[i]);
    }
    dt_layer_fail(l, node, "%s of %s: expected %s", key, l->type, list);
    return 0;
}

static dt_shape layer_types_shape_of(const dt_layer *l) {
    return l->x == DT_NONE ? dt_shape0() : dt_info_of(l->g, l->x)->shape;
}

// ---- convolution, pooling, norms -------------------------------------------------------------------
static bool pads_same(const dt_layer *l) {
    // the only word that pad takes, and only of convolutions
    const dt_cnode *n = dt_layer_key(l, "pad");
    return n && dt_cnode_kind(n) == DT_C_SCALAR && strcmp(dt_cnode_str(n), "same") == 0;
}
static dt_window layer_types_window_of(const dt_layer *l, bool of_conv) {
    dt_window w = {.dilation = {1, 1}};
    layer_types_pair(l, "kernel", 1, w.kernel);
    // PyTorch: pooling strides by its kernel unless told otherwise
    if (!layer_types_pair(l, "stride", 1, w.stride)) memcpy(w.stride, w.kernel, sizeof w.stride);
    if (of_conv) layer_types_pair(l, "dilation", 1, w.dilation);
    if (of_conv && pads_same(l)) {
        for (int d = 0; d < 2; d++) { // what is odd goes behind, as in PyTorch
            const int64_t all = (int64_t)w.dilation[d] * (w.kernel[d] - 1);
            if (all > INT_MAX) dt_layer_fail(l, l->where, "the window is too large");
            w.pad_begin[d] = (int)(all / 2), w.pad_end[d] = (int)(all - all / 2);
        }
        return w;
    }
    layer_types_pair(l, "pad", 0, w.pad_begin);
    memcpy(w.pad_end, w.pad_begin, sizeof w.pad_end);
    return w;
}

static dt_value layer_conv(const dt_layer *l) {
    const dt_window w = layer_types_window_of(l, true);
    const dt_conv2d_opts o = {
        .out = whole(l, "out", 1), .groups = whole(l, "groups", 1), .bias = yes(l, "bias"), .window = &w};
    return dt_conv2d(l->g, l->name, l->x, &o);
}
static dt_value layer_conv_transpose(const dt_layer *l) {
    const dt_window w = layer_types_window_of(l, true);
    int more[2];
    layer_types_pair(l, "output_pad", 0, more);
    const dt_conv2d_opts o = {
        .out = whole(l, "out", 1), .groups = whole(l, "groups", 1), .bias = yes(l, "bias"), .window = &w};
    if (pads_same(l)) return dt_layer_fail(l, l->where, "conv_transpose has no pad: same");
    return dt_conv_transpose(l->g, l->name, l->x, &o, more);
}
static dt_value layer_max_pool(const dt_layer *l) {
    const dt_window w = layer_types_window_of(l, false);
    return dt_max_pool_window(l->g, l->x, &w);
}
static dt_value layer_avg_pool(const dt_layer *l) {
    const dt_window w = layer_types_window_of(l, false);
    return dt_avg_pool_window(l->g, l->x, &w, yes(l, "count_include_pad"));
}
static dt_value adaptive_pool(const dt_layer *l, bool max) {
    int size[2];
    if (!layer_types_pair(l, "size", 1, size)) return dt_layer_fail(l, l->where, "%s wants a size", l->type);
    return dt_adaptive_pool(l->g, l->x, size[0], size[1], max);
}
static dt_value layer_adaptive_max_pool(const dt_layer *l) {
    return adaptive_pool(l, true);
}
static dt_value layer_adaptive_avg_pool(const dt_layer *l) {
    return adaptive_pool(l, false);
}
static dt_value layer_global_pool(const dt_layer *l) {
    return dt_global_pool(l->g, l->x);
}
static dt_value layer_linear(const dt_layer *l) {
    return dt_linear(l->g, l->name, l->x, whole(l, "out", 1), yes(l, "bias"));
}
static dt_value layer_batch_norm(const dt_layer *l) {
    return dt_batch_norm_eps(l->g, l->name, l->x, (float)layer_types_number(l, "eps", 0),
                             (float)layer_types_number(l, "momentum", 0));
}
static dt_value layer_layer_norm(const dt_layer *l) {
    // layer norm works on the last axis: channels go there and back
    static const int inside[4] = {0, 2, 3, 1}, outside[4] = {0, 3, 1, 2};
    const float eps = (float)layer_types_number(l, "eps", 0);
    if (layer_types_shape_of(l).n != 4) return dt_layer_norm(l->g, l->name, l->x, eps);
    dt_value x = dt_layer_norm(l->g, l->name, dt_transpose(l->g, l->x, inside), eps);
    return dt_transpose(l->g, x, outside);
}

static dt_value layer_group_norm(const dt_layer *l) {
    return dt_group_norm(l->g, l->name, l->x, whole(l, "groups", 1), (float)layer_types_number(l, "eps", 0),
                         yes(l, "affine"));
}
static dt_value layer_instance_norm(const dt_layer *l) {
    const dt_shape s = layer_types_shape_of(l);
    if (s.n < 3) return dt_layer_fail(l, l->where, "instance_norm wants (N,C,H,W) or (N,C,L)");
    return dt_group_norm(l->g, l->name, l->x, s.d[1], (float)layer_types_number(l, "eps", 0), yes(l, "affine"));
}

// ---- elementwise -----------------------------------------------------------------------------------
// One function per line of activations.def; layer_types.def refers to it by the same name.
#define ACTIVATION(id, op, at_zero, help)                                                                              \
    static dt_value layer_##id(const dt_layer *l) {                                                                    \
        return dt_activate(l->g, DT_ACTIVATION_##id, l->x);                                                            \
    }
#define ACTIVATION_WITH(id, key, unset, help)                                                                          \
    static dt_value layer_##id(const dt_layer *l) {                                                                    \
        return dt_activate_with(l->g, DT_ACTIVATION_##id, l->x, (float)layer_types_number(l, #key, -MOST));            \
    }
#include "graph/activations.def"
#undef ACTIVATION
static dt_value layer_prelu(const dt_layer *l) {
    const int n = whole(l, "num_parameters", 1);
    const dt_shape s = layer_types_shape_of(l);
    // PyTorch: one weight, or one per channel (axis 1)
    if (s.n < 2 || (n != 1 && n != s.d[1]))
        return dt_layer_fail(l, l->where, "num_parameters of prelu: expected 1 or the channels");
    return dt_prelu(l->g, l->name, l->x, n > 1, (float)layer_types_number(l, "init", -MOST));
}
static dt_value layer_softmax(const dt_layer *l) {
    return dt_softmax(l->g, l->x);
}
static dt_value layer_dropout(const dt_layer *l) {
    const double p = layer_types_number(l, "p", 0);
    // 1 would divide by 0 in training, where kept values are scaled by 1 / (1 - p)
    if (p >= 1) dt_layer_fail(l, l->where, "p of dropout: expected a number below 1");
    return dt_dropout(l->g, l->name, l->x, (float)p);
}
static dt_value layer_scale(const dt_layer *l) {
    return dt_scale(l->g, l->x, (float)layer_types_number(l, "by", -MOST));
}
static dt_value layer_add(const dt_layer *l) {
    dt_value x = l->x;
    for (int i = 0; i < l->n_with; i++) x = dt_add(l->g, x, l->with[i]);
    return x;
}
static dt_value layer_mul(const dt_layer *l) {
    dt_value x = l->x;
    for (int i = 0; i < l->n_with; i++) x = dt_mul(l->g, x, l->with[i]);
    return x;
}

// ---- shapes ----------------------------------------------------------------------------------------
static dt_value layer_concat(const dt_layer *l) {
    dt_value x[DT_MAX_FIELDS + 1] = {l->x}; // entries behind n_with + 1 are not read
    memcpy(x + 1, l->with, sizeof l->with);
    return dt_concat(l->g, x, l->n_with + 1, whole(l, "axis", 1));
}
static dt_value layer_slice(const dt_layer *l) {
    const int axis = whole(l, "axis", 1), begin = whole(l, "begin", 0);
    const dt_shape s = layer_types_shape_of(l);
    if (axis >= s.n) return dt_layer_fail(l, l->where, "axis of slice: there are %d", s.n);
    const int64_t end = dt_layer_key(l, "end") ? whole(l, "end", 1) : s.d[axis];
    return dt_slice(l->g, l->x, axis, begin, end);
}
static dt_value layer_reshape(const dt_layer *l) {
    dt_shape s = dt_shape1(l->a->batch); // the batch's axis stays: the config gives the shape of a sample
    const int n = numbers(l, "shape", s.d + 1, DT_MAX_DIMS - 1);
    if (n == 0) return dt_layer_fail(l, l->where, "reshape wants the shape of a sample");
    s.n = 1 + n;
    return dt_reshape(l->g, l->x, s);
}
static dt_value layer_flatten(const dt_layer *l) {
    return dt_reshape(l->g, l->x, dt_shape2(l->a->batch, -1));
}
static dt_value layer_transpose(const dt_layer *l) {
    int64_t v[DT_MAX_DIMS];
    int perm[DT_MAX_DIMS];
    const int n = numbers(l, "perm", v, DT_MAX_DIMS);
    unsigned seen = 0; // bit i: axis i occurs in perm
    for (int i = 0; i < n; i++) {
        perm[i] = (int)v[i];
        seen |= v[i] >= 0 && v[i] < n ? 1u << v[i] : 0;
    }
    // every axis once, and the batch in front
    if (n == 0 || n != layer_types_shape_of(l).n || seen != (1u << n) - 1 || perm[0] != 0)
        return dt_layer_fail(l, l->where, "perm of transpose: expected 0 and the order of the %d others",
                             layer_types_shape_of(l).n - 1);
    return dt_transpose(l->g, l->x, perm);
}
static dt_value layer_pad(const dt_layer *l) {
    static const char *const modes[] = {"constant", "reflect", "replicate"};
    int64_t v[4];
    const int n = numbers(l, "pad", v, 4);
    const dt_pad_mode mode = (dt_pad_mode)word(l, "mode", modes, 3);
    const float with = (float)layer_types_number(l, "value", -MOST);
    if (layer_types_shape_of(l).n != 4 || (n != 1 && n != 4))
        return dt_layer_fail(l, l->where, "pad wants (N,C,H,W), and one number or four");
    for (int i = n; i < 4; i++) v[i] = v[0];
    // F.pad begins with the last axis: left, right, top, bottom
    return dt_pad(l->g, dt_pad(l->g, l->x, 3, v[0], v[1], mode, with), 2, v[2], v[3], mode, with);
}
static dt_value layer_upsample(const dt_layer *l) {
    static const char *const modes[] = {"nearest", "nearest-exact", "bilinear"};
    const dt_shape s = layer_types_shape_of(l);
    const dt_cnode *scales = dt_layer_key(l, "scale");
    int size[2] = {0};
    double scale[2] = {0};
    const bool sized = layer_types_pair(l, "size", 1, size), corners = yes(l, "align_corners");
    dt_resize_mode mode = (dt_resize_mode)word(l, "mode", modes, 3);
    // one of size and scale, as nn.Upsample
    if (s.n != 4 || sized == (scales != NULL))
        return dt_layer_fail(l, l->where, "upsample wants (N,C,H,W), and a scale or a size");
    if (corners && mode != DT_RESIZE_BILINEAR) return dt_layer_fail(l, l->where, "align_corners is for mode bilinear");
    if (corners) mode = DT_RESIZE_BILINEAR_CORNERS;
    for (int d = 0; d < 2 && scales; d++) {
        const bool list = dt_cnode_kind(scales) == DT_C_LIST && dt_cnode_size(scales) == 2;
        if (!dt_cnode_real(list ? dt_layer_item(l, "scale", (size_t)d) : scales, &scale[d]) ||
            !(scale[d] > 0 && scale[d] <= 1024))
            return dt_layer_fail(l, scales, "scale of upsample: expected a number in 0..1024");
        // floor, as nn.Upsample sizes its output
        size[d] = (int)floor((double)s.d[2 + d] * scale[d]);
    }
    return dt_resize2d(l->g, l->x, mode, (const int64_t[]){size[0], size[1]}, scale);
}
static dt_value layer_tokens(const dt_layer *l) {
    static const int perm[3] = {0, 2, 1};
    const dt_shape s = layer_types_shape_of(l);
    if (s.n != 4) return dt_layer_fail(l, l->where, "tokens wants (N,C,H,W)");
    // (N,C,H,W) -> (N,HW,C)
    return dt_transpose(l->g, dt_reshape(l->g, l->x, dt_shape3(s.d[0], s.d[1], -1)), perm);
}
static dt_value layer_positions(const dt_layer *l) {
    const dt_shape s = layer_types_shape_of(l);
    if (s.n != 3) return dt_layer_fail(l, l->where, "positions wants (N,T,D)");
    const dt_init init = {DT_INIT_NORMAL, 0.02f}; // as ViT initializes its positions
    return dt_add(l->g, l->x, dt_param(l->g, l->name, dt_shape2(s.d[1], s.d[2]), init, false));
}

// ---- blocks ----------------------------------------------------------------------------------------
static dt_value layer_attention(const dt_layer *l) {
    const dt_shape s = layer_types_shape_of(l);
    const int heads = whole(l, "heads", 1);
    if (s.n != 3 || s.d[2] % heads) return dt_layer_fail(l, l->where, "attention wants (N,T,D), D a multiple of heads");
    // one projection for q, k and v: (N,T,3D)
    const char *qkv = dt_arena_printf(&l->g->arena, "%s.qkv", l->name);
    dt_value x = dt_linear(l->g, qkv, l->x, 3 * s.d[2], true);
    x = dt_sdpa_packed(l->g, dt_arena_printf(&l->g->arena, "%s.sdpa", l->name), x, heads,
                       1.0f / sqrtf((float)s.d[2] / (float)heads));
    return dt_linear(l->g, dt_arena_printf(&l->g->arena, "%s.proj", l->name), x, s.d[2], true);
}
static dt_value layer_squeeze_excite(const dt_layer *l) {
    if (layer_types_shape_of(l).n != 4) return dt_layer_fail(l, l->where, "squeeze_excite wants (N,C,H,W)");
    return dt_block_squeeze_excite(l->g, l->name, l->x, whole(l, "squeeze", 1), DT_ACTIVATION_relu,
                                   DT_ACTIVATION_sigmoid);
}

// ---- the table -------------------------------------------------------------------------------------
static const struct {
    const char *type, *keys;
    dt_layer_fn fn;
    const char *help;
} types[] = {
// in the order of layer_types.def, which messages and docs follow
#define LAYER(id, keys, help) {#id, keys, layer_##id, help},
#include "layer_types.def"
#undef LAYER
};
enum { N_TYPES = sizeof types / sizeof *types };

dt_layer_fn dt_layer_find(const char *type, const char **keys) {
    for (size_t i = 0; i < N_TYPES; i++) {
        if (strcmp(types[i].type, type) != 0) continue;
        *keys = types[i].keys;
        return types[i].fn;
    }
    return NULL;
}

const char *dt_layer_names(dt_arena *arena) {
    const char *text = "";
    for (size_t i = 0; i < N_TYPES; i++) text = dt_arena_printf(arena, "%s%s%s", text, i ? ", " : "", types[i].type);
    return text;
}

bool dt_model_describe_layer(size_t i, const char **type, const char **keys, const char **help) {
    if (i >= N_TYPES) return false;
    *type = types[i].type, *keys = types[i].keys, *help = types[i].help;
    return true;
}
