// field_keys.h: the config of one field, and its keys' paths for messages.
#ifndef DT_DATA_FIELD_KEYS_H
#define DT_DATA_FIELD_KEYS_H

#include "config/config.h"

#include <stdio.h>

typedef struct dt_field_keys {
    const dt_config *c;
    const dt_config_field *f;
    char path[320]; // the last one that was asked for
} dt_field_keys;

// "data.fields.<name>.<leaf>"; the field itself for leaf "". Valid until the next call.
static inline const char *dt_key_of(dt_field_keys *k, const char *leaf) {
    snprintf(k->path, sizeof k->path, "data.fields.%s%s%s", k->f->id, *leaf ? "." : "", leaf);
    return k->path;
}

// The steps that data.augment lists for the field, or NULL.
static inline const dt_cnode *dt_key_augment(const dt_field_keys *k) {
    const dt_cnode *all = k->c->data.augment;
    return all && dt_cnode_kind(all) == DT_C_MAP ? dt_cnode_get(all, k->f->id) : NULL;
}

#endif
