// cache_room.h: files of a folder that several runs share, and room for more in the host's cache.
//
// data.cache_dir has three folders whose files share one limit: copies of compressed shards (data/source/unpack.h), blocks
// of what is read by URL or from a slow disk (blob_cache.h), and indexes of what is read by URL (shard_load.c). Who uses a file of them holds a shared flock on it
// and touches it when it begins, so whoever needs room removes what nobody holds, the longest unused first.
#ifndef DT_BASE_CACHE_ROOM_H
#define DT_BASE_CACHE_ROOM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

typedef struct dt_used_file {
    char *path;
    uint64_t n_bytes;     // on the disk: a sparse file has fewer than its size
    struct timespec used; // last, by its mtime
} dt_used_file;

// Adds the regular files directly in `folder`. *out (heap) and *n begin as NULL and 0, and stay valid after an error.
dt_status dt_used_files_add(dt_used_file **out, size_t *n, const char *folder);
void dt_used_files_sort(dt_used_file *files, size_t n); // the longest unused first
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
