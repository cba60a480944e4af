// verify_shards.h: whole shards against the hashes that the list beside them (MDS index.json) has of them.
#ifndef DT_DATA_VERIFY_SHARDS_H
#define DT_DATA_VERIFY_SHARDS_H

#include "data/source/source.h"

typedef struct dt_shard_hash {
    char *name, *hex; // heap; NULL: none is stored, or none that is known
} dt_shard_hash;

// The hashes by shard, heap: as many as the catalog has shards. A warning names lists that cannot be read, and hashes
// of other kinds.
dt_shard_hash *dt_shard_hashes_find(const dt_catalog *c);
void dt_shard_hashes_free(dt_shard_hash *h, uint32_t n);

// Reads the shard (unpacked) and compares. DT_E_DATA: the message is the reason. Any thread.
dt_status dt_shard_hash_check(dt_reader *s, uint32_t shard, const dt_shard_hash *want, dt_buffer *scratch);

#endif
