// blob_cache.h: this host's copy of objects that are read over a network: blocks of 1 MiB, fetched once a host.
//
// Every object has a file of its own in <dir>/objects: a row (hash) a block, and the blocks at their offsets, so far as they
// were read; the rest is a hole. The file's name is a hash of path, version (ETag or time of change), size and stamp, so an
// object that was replaced has another one. Who needs a block that is not there locks it, fetches it with those behind it
// that the same read needs, writes first its bytes and then its row; the others, threads and processes of all runs, wait
// for the lock and then find it. A kill leaves a block without a row. Nothing is flushed: a block is checked by its hash
// when a process first uses it, and fetched again if it differs.
//
// While a process reads an object, its file is held and nothing of it is dropped; what nobody holds makes
// room, the longest unused first. When that does not suffice the cache is full for this process: blocks that it lacks are no
// longer fetched, only the ranges that are read.
//
// Rejected: dropping blocks of an object in use, the longest unused first. An epoch reads everything once, so by the time a
// block is wanted again it has just been dropped, while any fixed part of the set gives its share of hits; and where the
// order is random, each miss would fetch a block for one record.
#ifndef DT_STORE_BLOB_CACHE_H
#define DT_STORE_BLOB_CACHE_H

#include "blob.h"

#include "base/core.h"

#include <sys/types.h>
#include <time.h>

typedef struct dt_blob_cache dt_blob_cache;
// `dir` of data.cache_dir, which exists or is made; max_bytes: see dt_cache_room; 0: a tenth of the disk stays free, too.
// DT_E_STORAGE: it cannot be made.
dt_status dt_blob_cache_open(dt_blob_cache **out, const char *dir, uint64_t max_bytes);
void dt_blob_cache_close(dt_blob_cache *c); // behind its blobs; NULL is fine

// From now on `b` is read through the cache. `stamp`: its dt_blob_stamp, or 0. Where its file cannot be made, it is read as
// before, and a warning says so.
void dt_blob_keep(dt_blob *b, dt_blob_cache *c, uint64_t stamp);

// Drops the cache's blocks that hold bytes [at, at + n_bytes) of `b`, which are not what was expected. Whether another read
// may give others: false of a file that is read without a cache.
bool dt_blob_forget(const dt_blob *b, uint64_t at, uint64_t n_bytes);

typedef struct dt_blob_cache_stats {
    uint64_t n_hits, n_misses;  // reads of this process: all from the cache, or not
    uint64_t n_blocks, n_bytes; // that it used or fetched
    bool full;
} dt_blob_cache_stats;
void dt_blob_cache_get_stats(const dt_blob_cache *c, dt_blob_cache_stats *out); // any thread

// ---- cache room ---------------------------------------------------------------------------------------------------

// Files of a folder that several runs share, and room for more in the host's cache.
//
// data.cache_dir has three folders whose files share one limit: copies of compressed shards (data/source/source_parts.h), blocks
// of what is read by URL or from a slow disk, and indexes of what is read by URL (shard_load.c). Who uses a file of them holds a shared flock on it
// and touches it when it begins, so whoever needs room removes what nobody holds, the longest unused first.

typedef struct dt_used_file {
    char *path;
    uint64_t n_bytes;     // on the disk: a sparse file has fewer than its size
    struct timespec used; // last, by its mtime
} dt_used_file;

// Adds the regular files directly in `folder`. *out (heap) and *n begin as NULL and 0, and stay valid after an error.
dt_status dt_used_files_add(dt_used_file **out, size_t *n, const char *folder);
void dt_used_files_free(dt_used_file *files, size_t n);

#define DT_CACHE_UNPACKED   "/unpacked" // the folders, below data.cache_dir
#define DT_CACHE_OBJECTS    "/objects"
#define DT_CACHE_INDEXES    "/indexes"
#define DT_CACHE_AUTO_BYTES (UINT64_C(100) << 30)

// Opens a file of the cache and holds it, or makes it where `flags` have O_CREAT. < 0: it is not there, with errno.
int dt_cache_hold(const char *path, int flags);
// Locks bytes [first, first + n) of the file, which is made where it is not there, and waits for them up to wait_s. Closing
// the descriptor unlocks them. < 0: not, as another process stopped while it had them, or locks do not work here.
int dt_cache_lock(const char *path, off_t first, uint32_t n, double wait_s);
// Whether n_bytes more have room in the host's cache at `dir`, which may take max_bytes (0: DT_CACHE_AUTO_BYTES), after
// removing what has to go. `spare`: a tenth of the disk must stay free, too.
bool dt_cache_room(const char *dir, uint64_t max_bytes, uint64_t n_bytes, bool spare);

#endif
