// shard_map.h: bytes of shards that are in the page cache, by a map instead of a read.
#ifndef DT_DATA_SHARD_MAP_H
#define DT_DATA_SHARD_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DT_MAP_MIN_BYTES = 4096
}; // smaller was not measured; of 4 KiB, a map is twice as fast as a read

typedef struct dt_shard_maps dt_shard_maps;
// max_bytes of memory mapped in all.
dt_shard_maps *dt_shard_maps_create(uint32_t n_shards, uint64_t max_bytes);
void dt_shard_maps_destroy(dt_shard_maps *m);
// n_head bytes at `offset` to `head`, the n_bytes behind them to `dst`; *hash: dt_hash64 of what was written.
// False: read them, and see what a read says. `head` and `dst` then hold anything. `get_fd` is asked once a
// shard for a descriptor, which stays the caller's: *keep false, it is closed here. May wait for the disk where
// bytes are not in the page cache. Any thread.
bool dt_shard_maps_copy(dt_shard_maps *m, uint32_t shard, uint64_t offset, void *head,
                        size_t n_head, void *dst, size_t n_bytes, uint64_t *hash,
                        bool (*get_fd)(void *ctx, uint32_t shard, int *fd, bool *keep), void *ctx);
// Bytes of maps that were made present: what they add to this process's resident memory, at most.
uint64_t dt_shard_maps_bytes(const dt_shard_maps *m);

#endif
