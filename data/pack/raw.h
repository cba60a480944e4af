// raw.h: raw files (a folder, or a tar of one) as records: what `dtrain pack` reads and what training
// straight from a folder sees.
#ifndef DT_DATA_RAW_H
#define DT_DATA_RAW_H

#include "pattern.h"

#include "base/arena.h"

#include <stdint.h>

typedef struct dt_raw_item {
    const char *path; // of the file to read: the item itself, or the tar
    const char *name; // relative to the source, for messages
    const char *key,
        *ext; // of the record; ext in lower case, with the field's name in front if it has one
    const char *meta; // JSON object of its metadata, keys sorted
    int n_meta;
    const char *const *column, *const *value; // the same, by column
    int label;                                // class by folder: index of the class; else -1
    uint64_t offset, size;
} dt_raw_item;

typedef struct dt_raw {
    dt_arena arena;
    dt_raw_item *items; // sorted by key
    size_t n;
    size_t n_ignored; // files that are no data (licences, notes)
    int n_classes;    // class by folder, else 0
    uint64_t hash;    // of names, sizes, times and pattern: whether a pack is of this source
    bool is_tar;
} dt_raw;

// pattern: see dt_pack_opts. DT_E_DATA / DT_E_USAGE.
dt_status dt_raw_list(dt_raw *out, const char *source, const char *pattern);
void dt_raw_fini(dt_raw *r);

#endif
