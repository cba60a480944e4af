// layers.c: a network written in YAML (layers.h says how): walks model.layers and calls the layers of layer_types.c. An
// error of the graph API gets the place of the layer in front. The head of each target comes behind the last layer.
#include "layers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// bounds that nested repeats reach before memory runs out
enum { MAX_NAMES = 4096, MAX_DEPTH = 16, MAX_LAYERS = 20000 };

typedef struct named {
    const char *name;
    dt_value v;
} named;

typedef struct walk {
    dt_graph *g;
    const dt_model_args *a;
    const dt_cnode *define;
    named names[MAX_NAMES]; // those of outer lists first
    int n_names, n_layers;  // n_layers: over all repeats
} walk;

// Returns false, so that a reader of a node can end with it.
static bool layers_fail_at(dt_graph *g, const dt_cnode *at, const char *text) {
    dt_graph_fail(g, "%s: %s", dt_cnode_where(at), text);
    return false;
}

dt_value dt_layer_fail(const dt_layer *l, const dt_cnode *at, const char *fmt, ...) {
    char text[384];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    // dt_graph_fail keeps the first error: later ones of the same layer change nothing
    layers_fail_at(l->g, at, text);
    return DT_NONE;
}

// ---- keys and $words -------------------------------------------------------------------------------
static const char *layers_scalar(const dt_cnode *n) {
    return n && dt_cnode_kind(n) == DT_C_SCALAR ? dt_cnode_str(n) : NULL;
}

// What the node says once $words are replaced, and whose words what is in it has; fails where a word is unknown.
static const dt_cnode *replaced(dt_graph *g, const dt_cnode *n, const dt_layer_words **words) {
    const char *text = layers_scalar(n);
    const dt_cnode *at = n;
    // a word may stand for another word of the block around this one
    while (text && *text == '$') {
        const dt_cnode *v = *words && (*words)->map ? dt_cnode_get((*words)->map, text + 1) : NULL;
        if (!v) {
            dt_graph_fail(g, "%s: the block was not given %s", dt_cnode_where(at), text);
            return at;
        }
        at = v;
        text = layers_scalar(v);
        *words = (*words)->outer;
    }
    return at;
}

// Whether `word` is the first key of a line of layer_types.def, or any.
static bool layers_lists(const char *list, const char *word, bool first) {
    const size_t n = strlen(word);
    // entries are "key" or "key=default", separated by one space
    for (const char *p = list; *p; p += strcspn(p, " "), p += *p == ' ') {
        if (strcspn(p, " =") == n && memcmp(p, word, n) == 0) return true;
        if (first) return false;
    }
    return false;
}

static const dt_cnode *find_key(const dt_layer *l, const char *key, const dt_layer_words **words) {
    const dt_cnode *n = l->value;
    if (n && dt_cnode_kind(n) == DT_C_MAP)
        // the map form {conv: {out: 64}}; else a bare value, which is the first key's
        n = dt_cnode_get(n, key);
    else if (n && !layers_lists(l->keys, key, true))
        n = NULL;
    return n ? replaced(l->g, n, words) : NULL;
}

const dt_cnode *dt_layer_key(const dt_layer *l, const char *key) {
    return find_key(l, key, &(const dt_layer_words *){l->words});
}

const dt_cnode *dt_layer_item(const dt_layer *l, const char *key, size_t i) {
    const dt_layer_words *words = l->words;
    const dt_cnode *n = find_key(l, key, &words);
    return n && dt_cnode_kind(n) == DT_C_LIST ? replaced(l->g, dt_cnode_item(n, i), &words) : n;
}

static bool layers_check_keys(const dt_layer *l) {
    if (!l->value) return true;
    if (dt_cnode_kind(l->value) != DT_C_MAP) {
        // a bare value is the first key's, so a layer without keys takes none
        if (*l->keys) return true;
        dt_layer_fail(l, l->value, "%s takes no value", l->type);
        return false;
    }
    for (size_t i = 0; i < dt_cnode_size(l->value); i++) {
        const char *key = dt_cnode_key(l->value, i);
        if (layers_lists(l->keys, key, false)) continue;
        dt_layer_fail(l, dt_cnode_item(l->value, i), "%s has no key %.40s; it has %s", l->type, key,
                      *l->keys ? l->keys : "none");
        return false;
    }
    return true;
}

// ---- names -----------------------------------------------------------------------------------------
// The value that a node names: of a layer, or a field, which becomes an input when it is first named.
static dt_value layers_find(walk *w, const dt_cnode *at, const dt_layer_words *words) {
    const dt_cnode *n = replaced(w->g, at, &words);
    const char *name = layers_scalar(n);
    if (!name || w->g->status != DT_OK) {
        layers_fail_at(w->g, at, "expected the name of a layer or field");
        return DT_NONE;
    }
    // from the end: an inner list hides the names of outer ones
    for (int i = w->n_names - 1; i >= 0; i--)
        if (strcmp(w->names[i].name, name) == 0) return w->names[i].v;
    dt_graph_fail(w->g, "%s: no layer before this one and no field is named %.60s", dt_cnode_where(at), name);
    return DT_NONE;
}

static void remember(walk *w, const dt_cnode *at, const char *name, dt_value v) {
    if (w->n_names == MAX_NAMES)
        layers_fail_at(w->g, at, "more names than a network may have");
    else
        w->names[w->n_names++] = (named){name, v};
}

static void find_with(walk *w, dt_layer *l) {
    const dt_cnode *n = dt_layer_key(l, "with");
    const bool list = n && dt_cnode_kind(n) == DT_C_LIST;
    const size_t count = list ? dt_cnode_size(n) : 1;
    if (!n || count == 0 || count > DT_MAX_FIELDS) {
        dt_layer_fail(l, l->where, "%s wants names of 1 to %d values", l->type, DT_MAX_FIELDS);
        return;
    }
    for (size_t i = 0; i < count; i++) l->with[l->n_with++] = layers_find(w, dt_layer_item(l, "with", i), NULL);
}

// ---- items -----------------------------------------------------------------------------------------
typedef struct place {
    const dt_layer_words *words;
    int depth;
} place;

static dt_value build_list(walk *w, const dt_cnode *list, dt_value x, place p);

typedef struct item {
    const dt_cnode *where, *value, *from, *repeat;
    const char *type, *name;
} item;

// Takes an item apart: the layer's or block's name, and what is beside it.
static bool layers_read_item(walk *w, const dt_cnode *n, item *out) {
    *out = (item){.where = n, .type = layers_scalar(n)};
    // a bare word, `relu`
    if (out->type) return true;
    if (dt_cnode_kind(n) != DT_C_MAP) return layers_fail_at(w->g, n, "expected a layer or a map of one");
    for (size_t i = 0; i < dt_cnode_size(n); i++) {
        const char *key = dt_cnode_key(n, i);
        const dt_cnode *v = dt_cnode_item(n, i);
        if (strcmp(key, "name") == 0) {
            out->name = layers_scalar(v);
            if (!out->name || strpbrk(out->name, "$ ") || !*out->name)
                return layers_fail_at(w->g, v, "expected a name");
        } else if (strcmp(key, "from") == 0) {
            out->from = v;
        } else if (strcmp(key, "repeat") == 0) {
            out->repeat = v;
        } else if (out->type) {
            dt_graph_fail(w->g, "%s: %.40s and %.40s in one item: each layer is an item of its own", dt_cnode_where(v),
                          out->type, key);
            return false;
        } else {
            const char *text = layers_scalar(v);
            // {relu: }, {relu: null} and {relu: ~} have no keys either
            const bool none = text && (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0);
            out->type = key, out->value = none ? NULL : v;
        }
    }
    return out->type || layers_fail_at(w->g, n, "an item without a layer");
}

// A block or repeated layers: `body` in a scope of the item's name.
static dt_value build_body(walk *w, const item *it, const dt_cnode *body, dt_value x, place p) {
    double times = 1;
    // names of the graph live in its arena, the node's text in the config
    const char *name = dt_arena_strdup(&w->g->arena, it->name);
    const dt_cnode *repeat = it->repeat ? replaced(w->g, it->repeat, &(const dt_layer_words *){p.words}) : NULL;
    if (repeat && (!dt_cnode_real(repeat, &times) || times < 1 || times > 1000 || times != (double)(int)times)) {
        layers_fail_at(w->g, repeat, "repeat: expected a whole number in 1..1000");
        return DT_NONE;
    }
    if (++p.depth > MAX_DEPTH) {
        layers_fail_at(w->g, it->where, "blocks within blocks: a block may not contain itself");
        return DT_NONE;
    }
    const char *before = w->g->scope;
    for (int i = 0; i < (int)times && w->g->status == DT_OK; i++) {
        const int n_names = w->n_names; // names of the body end with it
        dt_graph_scope(w->g, repeat ? dt_arena_printf(&w->g->arena, "%s%s.%d.", before, name, i)
                                    : dt_arena_printf(&w->g->arena, "%s%s.", before, name));
        // a block reads its input under this name, too
        remember(w, it->where, "input", x);
        // each repeat reads the one before
        x = build_list(w, body, x, p);
        w->n_names = n_names;
    }
    dt_graph_scope(w->g, before);
    return x;
}

static dt_value build_layer(walk *w, const item *it, dt_value x, place p) {
    dt_layer l = {.g = w->g,
                  .a = w->a,
                  .type = it->type,
                  .name = it->name,
                  .where = it->where,
                  .value = it->value,
                  .words = p.words,
                  .x = x};
    const dt_layer_fn fn = dt_layer_find(it->type, &l.keys);
    if (!fn) {
        dt_graph_fail(w->g, "%s: unknown layer %.40s; expected one of %s, or a name of model.define",
                      dt_cnode_where(it->where), it->type, dt_layer_names(&w->g->arena));
        return DT_NONE;
    }
    if (it->repeat) {
        layers_fail_at(w->g, it->repeat, "repeat is for blocks and for layers: [...]");
        return DT_NONE;
    }
    if (++w->n_layers > MAX_LAYERS) layers_fail_at(w->g, it->where, "more layers than a network may have");
    // keys before values: a misspelt key is reported rather than its default used
    if (!layers_check_keys(&l)) return DT_NONE;
    if (layers_lists(l.keys, "with", true)) find_with(w, &l);
    return w->g->status == DT_OK ? fn(&l) : DT_NONE;
}

static dt_value build_item(walk *w, const item *it, dt_value x, place p) {
    const dt_cnode *body = w->define ? dt_cnode_get(w->define, it->type) : NULL;
    const dt_layer_words words = {it->value, p.words}; // lives as long as its body is being built
    // `from` is resolved outside of the block
    if (it->from) x = layers_find(w, it->from, p.words);
    if (x == DT_NONE) {
        layers_fail_at(w->g, it->where, "there are several fields: the first layer says `from: <field>`");
        return DT_NONE;
    }
    if (strcmp(it->type, "layers") == 0) return build_body(w, it, it->value, x, p);
    if (!body) return build_layer(w, it, x, p);
    if (it->value && dt_cnode_kind(it->value) != DT_C_MAP) {
        layers_fail_at(w->g, it->value, "expected a map of the block's $words");
        return DT_NONE;
    }
    return build_body(w, it, body, x, (place){&words, p.depth});
}

// Puts the place in front of an error of the graph API.
static void prefix_place(dt_graph *g, const dt_cnode *at) {
    const char *where = dt_cnode_where(at), *error = dt_arena_strdup(&g->arena, g->error);
    const size_t n = strcspn(where, ":"); // the file
    if (strncmp(error, where, n) == 0 && error[n] == ':') return;
    snprintf(g->error, sizeof g->error, "%s: %s", where, error);
}

static dt_value build_list(walk *w, const dt_cnode *list, dt_value x, place p) {
    if (dt_cnode_kind(list) != DT_C_LIST || dt_cnode_size(list) == 0) {
        layers_fail_at(w->g, list, "expected a list of layers");
        return DT_NONE;
    }
    for (size_t i = 0; i < dt_cnode_size(list) && w->g->status == DT_OK; i++) {
        item it;
        if (!layers_read_item(w, dt_cnode_item(list, i), &it)) return DT_NONE;
        const char *name = it.name;
        // unnamed items are numbered as in nn.Sequential
        if (!name) it.name = dt_arena_printf(&w->g->arena, "%zu", i);
        x = build_item(w, &it, x, p);
        if (w->g->status != DT_OK) {
            prefix_place(w->g, it.where);
            return DT_NONE;
        }
        // known from the next item on: no item reads itself
        if (name) remember(w, it.where, dt_arena_strdup(&w->g->arena, name), x);
    }
    return x;
}

void dt_model_build_layers(dt_graph *g, const dt_model_args *a) {
    const dt_cnode *list = a->config->model.layers;
    // of the graph's arena: 4096 names are too many for the stack
    walk *w = dt_arena_alloc(&g->arena, sizeof *w);
    w->g = g, w->a = a, w->define = a->config->model.define;
    for (int i = 0; i < a->n_fields; i++) {
        const dt_field_info *f = &a->fields[i];
        if (!f->is_image && !dt_model_is_numbers(a, f)) continue;
        const dt_value x = f->is_image ? dt_model_image(g, a, f) : dt_model_numbers(g, a, f);
        w->names[w->n_names++] = (named){f->name, x};
    }
    if (w->n_names == 0) {
        dt_graph_fail(g, "wants a field beside its target in data.fields; there is none");
        return;
    }
    // several fields: the first item has to name one
    const dt_value x = build_list(w, list, w->n_names == 1 ? w->names[0].v : DT_NONE, (place){NULL, 0});
    if (x == DT_NONE) return;
    const dt_shape s = dt_info_of(g, x)->shape;
    // dt_linear of the head would take (N,T,D) as well, and give logits for each token
    if (s.n != 2) {
        char text[96];
        dt_graph_fail(g, "%s: the last layer gives %s, the head wants (N,D): add global_pool or flatten",
                      dt_cnode_where(list), dt_shape_print(&s, text, sizeof text));
        return;
    }
    dt_model_classify(g, a, "head", x, NULL);
}
