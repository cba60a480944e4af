// field_keys.h: the config keys of one field, for the files that read them.
#ifndef DT_DATA_FIELD_KEYS_H
#define DT_DATA_FIELD_KEYS_H

#include "config/config.h"

#include <stdio.h>

typedef struct dt_field_keys {
    const dt_config *c;
    const char *name;
    char key[320]; // the last one that was asked for
} dt_field_keys;

// "data.fields.<name>.<leaf>"; the field itself for leaf "". Valid until the next call.
static inline const char *dt_key_of(dt_field_keys *k, const char *leaf) {
    snprintf(k->key, sizeof k->key, "data.fields.%s%s%s", k->name, *leaf ? "." : "", leaf);
    return k->key;
}

static inline int dt_key_word(dt_field_keys *k, const char *leaf) {
    return dt_config_enum(k->c, dt_key_of(k, leaf));
}

// The steps that data.augment lists for the field, or NULL.
static inline const dt_cnode *dt_key_augment(const dt_field_keys *k) {
    const dt_cnode *all = dt_config_node(k->c, "data.augment");
    return all && dt_cnode_kind(all) == DT_C_MAP ? dt_cnode_get(all, k->name) : NULL;
}

#endif
