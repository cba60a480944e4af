// shard_load.h: the rows of many data files, got ready by threads.
#ifndef DT_DATA_SHARD_LOAD_H
#define DT_DATA_SHARD_LOAD_H

#include "source.h"
#include "unpack.h"

// A data file on its way into the catalog.
typedef struct dt_shard_job {
    const char *path;
    // out
    char *file; // where its bytes are, if not at path
    int fd;     // of `file`, to be kept; or -1
    const char *format;
    uint64_t n_bytes, stamp; // of what is read
    dt_buffer index;         // its rows as index_file.h has them
    bool scanned;            // they were not there before
    uint32_t n_bad;          // see dt_scan
    char first_bad[256];
    dt_status status;
    char message[1024];
} dt_shard_job;

typedef struct dt_shard_loader dt_shard_loader;

// Starts threads that get jobs[0..n-1] ready, in order and not too far ahead of what is taken. `jobs` and `cache`
// are borrowed until dt_shard_loader_end, which may be called at any time.
dt_shard_loader *dt_shard_loader_begin(dt_shard_job *jobs, size_t n, dt_unpack_cache *cache,
                                       const dt_set_options *o);
// Waits for job `i` and returns its status. The caller may read its `index` until it takes the next job.
dt_status dt_shard_loader_take(dt_shard_loader *l, size_t i);
void dt_shard_loader_end(dt_shard_loader *l);
void dt_shard_job_fini(dt_shard_job *j); // closes fd

#endif
