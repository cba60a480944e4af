// cache.h: bytes that are kept so that the next epoch need not read (or decode) them.
//
// A cache has a fixed number of entries, each empty or whole. What does not fit is not kept: each epoch
// reads everything once, so to keep what came first is the best that any rule can do, and what is kept
// is never moved or dropped while the cache is open.
#ifndef DT_DATA_CACHE_H
#define DT_DATA_CACHE_H

#include "base/status.h"
#include "config/words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dt_cache_opts {
    // ram: this process's memory; shared: one copy for the processes of this user and host that use the same
    // key; disk: a file, which stays for later runs
    dt_cache_kind kind;
    uint64_t key; // of everything that decides what an entry holds
    uint32_t n_entries;
    uint64_t total_bytes; // of all entries
    uint64_t cap_bytes;   // 0: as much as leaves a quarter of the memory (a tenth of the disk) free
    int n_processes;      // shared: that will open it; the last one to come removes the name
    const char *dir;      // disk
} dt_cache_opts;

typedef struct dt_cache dt_cache;
// DT_E_STORAGE: no room for it, or no such place. The caller may go on without.
dt_status dt_cache_open(dt_cache **out, const dt_cache_opts *o);
void dt_cache_close(dt_cache *c); // NULL is fine

// All of these: any thread, any process that has the cache open. Only the filler of an entry and who
// finds it touch its bytes; nobody waits for anybody.

bool dt_cache_has(const dt_cache *c, uint32_t entry);
// RAM and shared: the n_bytes that were stored, where they lie; NULL: not there. Always NULL for disk.
const uint8_t *dt_cache_find(const dt_cache *c, uint32_t entry);
// Disk: the bytes into `dst`; false: not there, or not what was stored (by hash).
bool dt_cache_load(dt_cache *c, uint32_t entry, void *dst, size_t n_bytes);
// Keeps them if there is room and nobody has.
void dt_cache_store(dt_cache *c, uint32_t entry, const void *bytes, size_t n_bytes);

typedef struct dt_cache_usage {
    dt_cache_kind kind;
    uint64_t n_entries, n_bytes; // stored, by all who share it
    uint64_t cap_bytes;
    bool full;
} dt_cache_usage;
void dt_cache_get_usage(const dt_cache *c, dt_cache_usage *out);

// ---- behind it: memory shared by name (cache_shared.c) -----------------------------------------------
typedef struct dt_shm {
    uint8_t *memory; // zeros when fresh; the first 8 bytes are taken
    size_t n_bytes;
    int fd;
    char path[64];
} dt_shm;

// *fresh: this process makes it, fills in the head and calls dt_shm_ready; others wait for that. Only
// the first n_head_bytes may be touched; what lies behind must be allocated first (dt_io_reserve), as
// the file system may be full. n_bytes must be the same for all. DT_E_STORAGE.
dt_status dt_shm_open(dt_shm *s, uint64_t key, size_t n_bytes, size_t n_head_bytes, bool *fresh);
void dt_shm_ready(dt_shm *s);
void dt_shm_unlink(dt_shm *s); // only the name
void dt_shm_close(dt_shm *s);
int dt_shm_remove_stale(void); // of owners that are gone; how many

// ---- behind it: a file (cache_disk.c) ----------------------------------------------------------------
typedef struct dt_cache_disk dt_cache_disk;
dt_status dt_cache_disk_open(dt_cache_disk **out, const dt_cache_opts *o);
void dt_cache_disk_close(dt_cache_disk *c);
bool dt_cache_disk_has(const dt_cache_disk *c, uint32_t entry);
bool dt_cache_disk_load(dt_cache_disk *c, uint32_t entry, void *dst, size_t n_bytes);
void dt_cache_disk_store(dt_cache_disk *c, uint32_t entry, const void *bytes, size_t n_bytes);
void dt_cache_disk_get_usage(const dt_cache_disk *c, dt_cache_usage *out);

#endif
