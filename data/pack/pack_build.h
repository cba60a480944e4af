// pack_build.h: a plan's chunks into data files: composed by several threads, written by one.
#ifndef DT_DATA_BUILD_H
#define DT_DATA_BUILD_H

#include "compose.h"
#include "work.h"

#include "base/progress.h"

typedef struct dt_build {
    const dt_compose *compose;
    const dt_work *work;
    uint64_t fingerprint; // of source and options
    const size_t *shards; // to be made, in this order
    size_t n_shards;
    int n_threads;
    dt_progress *progress;
} dt_build;

// Each shard is whole and on the disk, with its rows (shard_rows.h), before the next one is begun. The first error ends
// all threads and is returned; shards that are whole stay.
dt_status dt_build_run(const dt_build *b);

#endif
