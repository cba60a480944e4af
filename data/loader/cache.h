// cache.h: bytes that are kept in memory so that the next epoch need not read (or decode) them.
//
// A cache has a fixed number of entries, each empty or whole. What does not fit is not kept: each epoch
// reads everything once, so to keep what came first is the best that any rule can do, and what is kept
// is never moved or dropped while the cache is open.
#ifndef DT_DATA_CACHE_H
#define DT_DATA_CACHE_H

#include "batch/batch_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dt_cache_opts {
    // ram: this process's memory; shared: one copy for the processes of this user and host that use the same key
    dt_cache_kind kind;
    uint64_t key; // of everything that decides what an entry holds
    uint32_t n_entries;
    uint64_t total_bytes; // of all entries
    uint64_t cap_bytes;   // 0: as much as leaves a quarter of the memory free
    int n_processes;      // shared: that will open it; the last one to come removes the name
} dt_cache_opts;

typedef struct dt_cache dt_cache;
// DT_E_STORAGE: no room for it, or no such place. The caller may go on without.
dt_status dt_cache_open(dt_cache **out, const dt_cache_opts *o);
void dt_cache_close(dt_cache *c); // NULL is fine

// All of these: any thread, any process that has the cache open. Nobody waits for anybody.

bool dt_cache_has(const dt_cache *c, uint32_t entry);
// The bytes that were stored, where they lie; NULL: not there.
const uint8_t *dt_cache_find(const dt_cache *c, uint32_t entry);
// Keeps them if there is room and nobody has.
void dt_cache_store(dt_cache *c, uint32_t entry, const void *bytes, size_t n_bytes);

// All but hits and misses.
void dt_cache_get_stats(const dt_cache *c, dt_cache_stats *out);

#endif
