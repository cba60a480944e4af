// pack_plan.h: which record goes into which file, and in which chunks the work is done. A function of the list and
// the options alone, so that the bytes do not depend on threads and ranks.
#ifndef DT_DATA_PLAN_H
#define DT_DATA_PLAN_H

#include "data/raw/raw.h"
#include "pack.h"
#include "pack_format.h"

typedef struct dt_plan_chunk {
    size_t first, n; // items
    bool is_large;   // the chunk's one item goes from file to file, never as a whole through memory
    uint64_t size;   // estimated
} dt_plan_chunk;

typedef struct dt_plan {
    const dt_pack_format *format;
    char *folder;     // where the dataset's files go
    char **name;      // of the files, without folder
    size_t n_shards;  // 1 for a format of one file
    size_t *chunk_at; // n_shards + 1: chunks of shard s are [chunk_at[s], chunk_at[s + 1])
    dt_plan_chunk *chunks;
    size_t n_chunks;
    char *out;     // without a '/' at its end
    char *pattern; // what data.path says of it: "photos-{000000..000039}.tar"
    char *partial; // folder of unfinished work
} dt_plan;

// keeps_bytes: large members need not be in memory. DT_E_USAGE: OUT, or contradicting options.
dt_status dt_plan_make(dt_plan *out, const dt_raw *raw, const dt_pack_opts *o, bool keeps_bytes);
void dt_plan_fini(dt_plan *p);
// Sets what follows from OUT alone and is needed before the source is read: format, out, folder, partial,
// and names if the number of shards is known. dt_plan_make sets the rest.
dt_status dt_plan_name(dt_plan *out, const char *path);
// Lists the files in the folder that belong to a dataset of this name, whichever pack made them. Heap.
dt_status dt_plan_existing(const dt_plan *p, char ***names, size_t *n);
// Whether a dataset of this name has such a data file.
bool dt_plan_belongs(const dt_plan *p, const char *name);
// Whether the name is one of the plan with any number of shards: {0..5} for {0..2}.
bool dt_plan_resembles(const dt_plan *p, const char *name);
// Whether an existing file is an index or a lock: worthless without the data.
bool dt_plan_is_companion(const dt_plan *p, const char *name);
// Whether a dataset that shares OUT.partial with this one may have such a file.
bool dt_plan_may_name(const dt_plan *p, const char *name);

#endif
