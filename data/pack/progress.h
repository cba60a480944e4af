// progress.h: the line that moves while a set is packed: files/s, MB/s, and how long it will take.
#ifndef DT_DATA_PROGRESS_H
#define DT_DATA_PROGRESS_H

#include "data/raw/raw.h"

typedef struct dt_progress {
    bool on, terminal;
    double begin_s, shown_s;
    size_t total;
    uint64_t total_bytes;
    uint64_t n_items, n_bytes; // of the source: done by this rank
    uint64_t kept, kept_bytes; // of them, from an earlier run: not counted as speed
    // several ranks: each leaves its counts in a file that rank 0 reads
    char *shared;
    int shared_fd, rank, world_size;
} dt_progress;

// shared: path of the file for the counts, or NULL for one process.
void dt_progress_begin(dt_progress *p, const dt_raw *raw, bool on, const char *shared, int rank,
                       int world_size);
void dt_progress_tick(dt_progress *p); // now and then, on one thread
void dt_progress_end(dt_progress *p);  // the last line

#endif
