// pack_plan.h: which record goes into which file, and in which runs the work is done: a function of the list
// and the options alone, so that the bytes do not depend on who does it.
#ifndef DT_DATA_PLAN_H
#define DT_DATA_PLAN_H

#include "data/raw/raw.h"
#include "pack.h"
#include "pack_format.h"

typedef struct dt_plan_chunk {
    size_t first, n; // items
    size_t shard;
    bool is_large; // its one item goes from file to file, never as a whole through memory
    uint64_t size; // estimated
} dt_plan_chunk;

typedef struct dt_plan {
    const dt_pack_format *format;
    char *folder;     // where the set's files go
    char **name;      // of the files, without folder
    size_t n_shards;  // 1 for a format of one file
    size_t *chunk_at; // n_shards + 1: chunks of shard s are [chunk_at[s], chunk_at[s + 1])
    dt_plan_chunk *chunks;
    size_t n_chunks;
    char *out;       // without a '/' at its end
    char *pattern;   // what data.path says of it: "photos-{000000..000039}.tar"
    char *partial;   // folder of unfinished work
    char *catalog;   // path of the set's database
    char *described; // canonical text of what was asked for
} dt_plan;

// keeps_bytes: large members need not be in memory. DT_E_USAGE: OUT, or options that do not go together.
dt_status dt_plan_make(dt_plan *out, const dt_raw *raw, const dt_pack_opts *o, bool keeps_bytes);
void dt_plan_fini(dt_plan *p);
// OUT alone: format, out, folder, partial, catalog, and names unless shards are numbered as they come; for what
// must be known before the source is read. dt_plan_make goes on with it.
dt_status dt_plan_name(dt_plan *out, const char *path);
// Files in the folder that belong to a set of this name, whichever made it (of other shard counts too):
// heap list of names.
dt_status dt_plan_existing(const dt_plan *p, char ***names, size_t *n);
// Whether a set of this name has such a data file.
bool dt_plan_belongs(const dt_plan *p, const char *name);
// The same of another number of shards: {0..5} for {0..2}.
bool dt_plan_resembles(const dt_plan *p, const char *name);
// Of the existing, an index, the catalog or a lock: made from the data or for it, and nothing without it.
bool dt_plan_is_companion(const dt_plan *p, const char *name);

#endif
