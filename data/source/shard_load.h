// shard_load.h: the rows of many data files, loaded by threads.
#ifndef DT_DATA_SHARD_LOAD_H
#define DT_DATA_SHARD_LOAD_H

#include "source.h"
#include "unpack.h"

// A data file on its way into the catalog.
typedef struct dt_shard_job {
    const char *path;
    // out
    char *file;   // where its bytes are, if not at path
    dt_blob kept; // to read from: an unpacked copy, which must stay open, or an object of a URL; else closed
    const char *format;
    uint64_t n_bytes, version, stamp; // of what is read
    dt_buffer index;                  // its rows as index_file.h has them
    uint32_t n_bad;                   // see dt_scan
    char first_bad[256];
    dt_status status;
    char message[1024];
} dt_shard_job;

// Gets all jobs ready, by several threads. What fails is the first file, in order, that cannot be loaded.
dt_status dt_shards_load(dt_shard_job *jobs, size_t n, dt_unpack_cache *cache, const dt_reader_options *o);
void dt_shard_job_fini(dt_shard_job *j); // closes fd

#endif
