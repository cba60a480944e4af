// pack_build.h: chunks into data files, by threads.
#ifndef DT_DATA_BUILD_H
#define DT_DATA_BUILD_H

#include "compose.h"
#include "journal.h"
#include "outfile.h"

#include <stdatomic.h>

// A data file, or the part of one that this rank makes: a run of the plan's chunks, one after another
// from `base` on; and its journal.
typedef struct dt_build_file {
    char *path, *rows_path;
    size_t first_chunk, n_chunks;
    uint64_t base;
    uint64_t allocate; // about how large it will be
    // what is there already, from an earlier run
    size_t n_kept;
    // of what is there; both grow while it is built
    uint64_t end, rows_bytes; // of the last chunk; of the journal
} dt_build_file;

typedef struct dt_build_progress {
    atomic_size_t n_items;
    atomic_uint_fast64_t n_bytes; // of the source
} dt_build_progress;

// Builds what is missing of the files. `tick` is called now and then on the calling thread, `rows` on any
// when the journal of a file has grown, to rows_bytes. The first
// error ends all threads and is returned; what is in the journals stays good.
typedef struct dt_build {
    const dt_compose *compose;
    dt_build_file *files;
    size_t n_files;
    int n_threads;
    dt_build_progress *progress;
    void (*tick)(void *arg);
    void *tick_arg;
    void (*rows)(void *arg, size_t file); // or NULL
    void *rows_arg;
} dt_build;
dt_status dt_build_run(const dt_build *b);

// Finds out what of a file is there and whole: every chunk that its journal names is read back and
// checked by hash. *n_checked counts their bytes. DT_E_STORAGE.
dt_status dt_build_resume(dt_build_file *f, uint64_t *n_checked);

#endif
