// progress.h: the line that moves while a data set is packed or evaluated: how far it is, how fast, and how long it
// will take.
#ifndef DT_BASE_PROGRESS_H
#define DT_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

// What this process has done: of several ranks, rank 0 shows its own share, which is about as far as the others'.
typedef struct dt_progress {
    bool on;
    const char *what, *items;          // "pack", "files"
    uint64_t n_items, n_bytes;         // of the source: done
    uint64_t total_items, total_bytes; // to do; 0 bytes: only items count
    // set by begin
    bool terminal;
    double begin_s, shown_s;
} dt_progress;

void dt_progress_begin(dt_progress *p);
void dt_progress_tick(dt_progress *p); // now and then
void dt_progress_end(dt_progress *p);  // the last line

#endif
