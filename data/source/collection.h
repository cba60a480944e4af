// collection.h: which data files a path of the user stands for.
#ifndef DT_DATA_COLLECTION_H
#define DT_DATA_COLLECTION_H

#include "source.h"

// A data file; or raw files: of a folder, of a list, or one.
typedef struct dt_found {
    char *path;
    char *name;    // of the set it belongs to, for the column `set`
    uint32_t item; // of data.path
    bool is_raw;
    int64_t n_records; // that the list of shards says it has; -1: it does not say
} dt_found;

typedef struct dt_found_list {
    dt_found *f;
    size_t n;
    bool quiet; // does not log what folders are read as
} dt_found_list;

// Appends the files that item number `i` of data.path stands for. DT_E_DATA / DT_E_USAGE.
dt_status dt_collect(dt_found_list *l, const dt_reader_item *item, uint32_t i);
// A file of raw data in `folder` or below it, beside shards or LMDBs; heap, or NULL. Looks into a few hundred
// folders at most.
char *dt_collect_beside(const char *folder);
// DT_E_USAGE when a file is there twice.
dt_status dt_found_check(const dt_found_list *l);
void dt_found_fini(dt_found_list *l);

#endif
