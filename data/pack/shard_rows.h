// shard_rows.h: what is known of the records of one shard, and that the shard is whole.
//
// While a shard is written its rows are in memory. Once it is on the disk they are saved as rows-N in the folder of
// unfinished work. That file is the sign that the shard is whole: after a kill such shards are kept, and all
// others are made again. When all shards are whole, one process reads the rows of all, whoever made them.
#ifndef DT_DATA_SHARD_ROWS_H
#define DT_DATA_SHARD_ROWS_H

#include "compose.h"
#include "work.h"

typedef struct dt_shard_rows dt_shard_rows;
// path: of the data file.
dt_shard_rows *dt_shard_rows_create(const dt_compose *c, size_t shard, const char *path);
void dt_shard_rows_destroy(dt_shard_rows *r); // NULL is fine
// offset: of each member in the file.
dt_status dt_shard_rows_add(dt_shard_rows *r, const dt_chunk_record *x, const uint64_t *offset);
dt_catalog *dt_shard_rows_catalog(dt_shard_rows *r); // borrowed
// The data file is whole and synced. fingerprint: of source and options.
dt_status dt_shard_rows_save(dt_shard_rows *r, const dt_work *w, uint64_t fingerprint);

// Whether the shard is whole, made of the same source in the same way.
bool dt_shard_rows_are_there(const dt_compose *c, const dt_work *w, size_t shard, uint64_t fingerprint);

// The rows of all shards so far.
typedef struct dt_all_rows {
    dt_catalog *catalog;
    uint32_t *item;   // by record: its item of the list
    uint64_t *hash;   // by item: hash of its source; 0: the item gave no record
    uint64_t n_bytes; // of all members
} dt_all_rows;
void dt_all_rows_init(dt_all_rows *a, const dt_raw *raw);
void dt_all_rows_fini(dt_all_rows *a);
// Appends the rows of a shard. DT_E_STORAGE: the rows are not there, or are damaged.
dt_status dt_all_rows_load(dt_all_rows *a, const dt_compose *c, const dt_work *w, size_t shard);

#endif
