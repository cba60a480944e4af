// layers.h: networks written in YAML (model.layers): what layers.c, which walks the list, and layer_types.c, which has the
// layers, share.
//
// An item is a layer's name (`relu`), or a map of one layer and its keys, {conv: {out: 64, kernel: 3}} or {conv: 64}, and
// beside it
//   name  what later items call its output, and what its tensors are named by; default: its number, as in nn.Sequential
//   from  the value that it reads; default: that of the item before
// `repeat: 3` beside `layers: [...]` writes them three times. A name of model.define stands for its layers, and its keys
// for $words in them: {define: {unit: [{conv: $out}, relu]}, layers: [{unit: {out: 64}}]}. In such a block `input` is what
// the block reads; names of outside are known, those of inside are not known outside. At the top the names of fields are
// known, and the first item reads the only field.
#ifndef DT_MODELS_LAYERS_H
#define DT_MODELS_LAYERS_H

#include "models.h"

// What a block was given for its $words.
typedef struct dt_layer_words {
    const dt_cnode *map;
    const struct dt_layer_words *outer;
} dt_layer_words;

typedef struct dt_layer {
    dt_graph *g;
    const dt_model_args *a;
    const char *type, *keys; // keys: of layer_types.def, with their defaults
    const char *name;        // of its tensors
    const dt_cnode *where;   // for messages
    const dt_cnode *value;   // its keys, or the first one's value; NULL: none
    const dt_layer_words *words;
    dt_value x;
    dt_value with[DT_MAX_FIELDS]; // named values, of layers whose first key is `with`
    int n_with;
} dt_layer;

typedef dt_value (*dt_layer_fn)(const dt_layer *l);
// The layer of that name, and its keys; NULL: there is none.
dt_layer_fn dt_layer_find(const char *type, const char **keys);
// "conv, linear, …", in the arena
const char *dt_layer_names(dt_arena *arena);
// The node of a key; $words are replaced. NULL: it is not given.
const dt_cnode *dt_layer_key(const dt_layer *l, const char *key);
// Item i of a key that is a list, or the key's one value.
const dt_cnode *dt_layer_item(const dt_layer *l, const char *key, size_t i);
// Fails the graph with file:line:column of the node in front.
dt_value dt_layer_fail(const dt_layer *l, const dt_cnode *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
