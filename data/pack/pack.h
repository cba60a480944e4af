// pack.h: what the writers of packed sets have in common.
#ifndef DT_DATA_PACK_H
#define DT_DATA_PACK_H

#include "data/catalog/catalog.h"
#include "data/data.h"
#include "raw.h"

// A record as it is written: its members sorted by extension.
enum { DT_PACK_MAX_MEMBERS = 3 };
typedef struct dt_pack_record {
    const dt_raw_item *item;
    int n_members;
    struct {
        const char *ext;
        dt_span bytes;
        uint64_t hash;
    } member[DT_PACK_MAX_MEMBERS];
} dt_pack_record;

// One format of packed sets. Everything is written under temporary names; finish() makes it durable and
// renames it, so a set that has its final name is whole.
typedef struct dt_packer {
    const char *name;
    bool (*accepts)(const char *out);
    // Data files of `out`, heap list: what a finished set consists of.
    dt_status (*files)(const char *out, char ***files, size_t *n);
    dt_status (*begin)(void **self, const char *out, const dt_raw *raw);
    dt_status (*add)(void *self, const dt_pack_record *r); // in order
    dt_status (*finish)(void *self);
    void (*end)(void *self); // after finish, or alone to give up: removes the temporaries
    dt_status (*remove)(const char *out);
} dt_packer;

extern const dt_packer dt_packer_lmdb, dt_packer_wds;

// Adds record and columns (not members) to a catalog.
dt_status dt_pack_add_row(dt_catalog *c, uint32_t shard, const dt_raw_item *item);

// fsyncs the folder that `path` lies in, after a rename.
dt_status dt_pack_sync_folder(const char *path);

#endif
