// shard_list.h: lists of shards that other programs keep beside them: wids JSON, MDS index.json.
#ifndef DT_DATA_SHARD_LIST_H
#define DT_DATA_SHARD_LIST_H

#include "source.h"

typedef struct dt_listed {
    char *path;        // heap: relative ones are from the list's folder
    char *set;         // heap, or NULL: the name of the data set that it is of
    int64_t n_records; // -1: the list does not say
    // The hash of the shard's bytes, unpacked: what index.json says. Heap; NULL: nothing. hash NULL: only of kinds that
    // base/hash.h does not know, of which hash_name is one.
    char *hash_name, *hash;
} dt_listed;

typedef struct dt_listing {
    dt_listed *shard;
    size_t n;
} dt_listing;

// Appends the shards that `text`, from file `path`, lists. *is_list = false: it is neither of the two formats.
// DT_E_DATA: not JSON, or a shard is compressed in a way that is not read, or not on the server that has the list.
dt_status dt_shard_list_parse(dt_listing *l, const char *path, const char *text, size_t n_bytes, bool *is_list);
dt_status dt_shard_list_read(dt_listing *l, const char *path, bool *is_list);
void dt_shard_list_fini(dt_listing *l);

#endif
