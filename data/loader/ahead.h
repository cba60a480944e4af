// ahead.h: threads that read bytes ahead of the workers, where reading blocks.
//
// The loader numbers the samples that it will make: places 0, 1, … in the order in which workers take them.
// Readers take places ahead of the workers and put the members' bytes into a byte ring, where the worker
// that comes to such a place finds them. Workers read the places that no reader has taken.
#ifndef DT_DATA_AHEAD_H
#define DT_DATA_AHEAD_H

#include "data_parts.h"

typedef struct dt_ahead dt_ahead;

typedef struct dt_ahead_opts {
    const dt_data *d;
    // The sample (view index) of a place. False: there is none, now or later. Called under a lock.
    bool (*sample_at)(const void *ctx, int64_t place, uint32_t *sample);
    const void *ctx;
    int64_t start;    // first place
    int n_readers;    // to begin with
    int max_readers;  // >= n_readers
    bool at_once;     // read ahead from the beginning, as reads will block
    bool always;      // read ahead whether or not reads block
    size_t cap_bytes; // of the ring
} dt_ahead_opts;

// Starts no thread until reading ahead begins.
dt_status dt_ahead_create(dt_ahead **out, const dt_ahead_opts *o);
void dt_ahead_destroy(dt_ahead *a); // waits for reads in flight

// ---- workers ---------------------------------------------------------------------------------------
// Gives places [begin, end) to the calling worker. Calls come in the order of places. Returns the first
// place that the worker reads itself: those before it are with the readers, and each must be released.
int64_t dt_ahead_begin(dt_ahead *a, int64_t begin, int64_t end);
// Waits for the bytes of a place that is with the readers; by field, data NULL: not read ahead. NULL: reading
// failed, and the worker reads again to get the message. Adds the time it waited to wait_ns.
const dt_span *dt_ahead_wait(dt_ahead *a, int64_t place, dt_counter *wait_ns);
void dt_ahead_release(dt_ahead *a, int64_t place);
// Reports a worker's own reads since its last report, and how many blocked. May turn reading ahead on.
void dt_ahead_note(dt_ahead *a, uint32_t n_reads, uint32_t n_slow);

// ---- the loader ------------------------------------------------------------------------------------
// Drops what is held and goes on at `place`. No worker may hold a place.
void dt_ahead_seek(dt_ahead *a, int64_t place);
void dt_ahead_set_readers(dt_ahead *a, int n);

typedef struct dt_ahead_stats {
    uint64_t busy_ns, n_reads;
    int n_readers, max_readers, n_ready, capacity; // capacity in samples
    double depth_s;
    bool on;
    // the record of the read that has lasted longest, and since when; since 0: none
    uint32_t record;
    double since_s;
} dt_ahead_stats;
void dt_ahead_get_stats(const dt_ahead *a, dt_ahead_stats *out); // any thread, no lock

#endif
