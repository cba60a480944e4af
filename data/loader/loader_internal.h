// loader_internal.h: what loader_open.c (set-up, tuning), loader.c (threads, ring, counters, reports) share; loader.c
// calls nothing of loader_open.c. Not for others.
#ifndef DT_DATA_LOADER_INTERNAL_H
#define DT_DATA_LOADER_INTERNAL_H

#include "data_parts.h"

enum { LOADER_MESSAGE_BYTES = 1024 };

typedef enum slot_state { FREE, FILLING, READY, HELD } slot_state;

typedef struct slot {
    dt_batch batch; // the first member: release() makes the slot's pointer of the batch's
    slot_state state;
    int64_t q;
    // where samples are written: the batch's arrays, except for classes and numbers that will be mixed
    void *field[DT_MAX_FIELDS];
    uint8_t *memory;
    int n_given, n_left; // samples handed out; samples not finished
    dt_status status;    // of the first sample that failed
    char message[LOADER_MESSAGE_BYTES];
} slot;

typedef struct worker {
    _Alignas(128) struct loader *loader; // counters of two workers never share a cache line
    pthread_t thread;
    int index;
    _Atomic bool busy; // filling a unit
    dt_sample_scratch scratch;
    dt_counter blocked_ns, starved_ns; // no free slot; waiting for bytes that a reader fetches
} worker;

typedef struct loader {
    dt_batch_source base;
    dt_data *d;
    dt_source_request r;
    int *micros, *position;  // position[micro-batch] in micros, or -1
    const uint32_t *samples; // of the split
    bool training;
    const dt_mix *mix; // or NULL

    pthread_mutex_t lock;
    pthread_cond_t work, ready, idle;
    slot *slots;
    _Atomic int n_slots, n_made; // slots in use, with memory
    int max_slots;               // the most that tune() may set
    size_t slot_bytes;
    int unit; // samples a worker takes at once
    slot *filling;
    int64_t next_q, end_q;
    int n_busy;
    bool paused, stopping;
    const slot *failed; // the slot whose error get() gave: its caller ends, so all who would wait fail

    worker *workers;
    _Atomic int n_workers, n_started; // workers that may work; threads that run
    int max_workers;                  // the most that tune() may set
    dt_ahead *ahead;
    // written under the lock, read without it
    dt_counter n_batches, n_samples, n_waits, wait_ns, wait_by_ns[DT_N_STAGES];
    dt_depth ready_batches;
} loader;

// ---- loader.c ------------------------------------------------------------------------------------
typedef struct place {
    uint32_t sample, epoch; // view index
    float weight;
    int64_t draw; // its position in the epoch where a sample may be drawn several times, else -1
} place;
place dt_loader_place(const loader *l, int64_t step, int micro, int j);
void *dt_loader_work(void *worker);
dt_status dt_loader_get(dt_batch_source *base, int64_t step, int micro, const dt_batch **out, double *wait_s);
void dt_loader_release(dt_batch_source *base, const dt_batch *b);
dt_status dt_loader_seek(dt_batch_source *base, int64_t step);
void dt_loader_stats(dt_batch_source *base, dt_source_stats *out);

#endif
