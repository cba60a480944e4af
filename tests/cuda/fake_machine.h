// fake_machine.h: the parts of the fake device, shared by fake_cuda.c (CUDA: streams, events, graphs) and
// fake_libraries.c (cuDNN and cuBLASLt: plans). Tests include only fake_cuda.h.
#ifndef DT_TESTS_CUDA_FAKE_MACHINE_H
#define DT_TESTS_CUDA_FAKE_MACHINE_H

#include "fake_cuda.h"
#include "fake_math.h"
#include "fake_memory.h"

#include <pthread.h>

typedef enum work_kind { W_LAUNCH, W_COPY, W_ZERO, W_WAIT, W_RECORD, W_GRAPH, W_DNN, W_GEMM, W_HOST } work_kind;

typedef struct track track;
typedef struct graph graph;
typedef struct event event;
typedef struct work {
    work_kind kind;
    dt_cuda_kernel k;
    dt_cuda_grid grid;
    void *args;
    char *dst;
    const char *src;
    size_t n_bytes;
    int direction;
    track *on; // W_WAIT
    int64_t upto;
    event *ev;
    graph *g;
    bool (*host)(const void *args);
    fake_plan plan;
    void *ptr[DT_DNN_POINTERS];
} work;

struct track {
    work *items;
    int64_t base, n, cap,
        done; // places count from the beginning of the track; items[0] is place `base`
    track *next;
};

struct graph {
    track *tracks; // the origin is the last of the list
    track *origin;
    int refs;
    bool destroyed; // what has been launched still runs
    graph *next;
};

typedef struct stream {
    track *live, *captured;
    bool alive;
    struct stream *next;
} stream;

struct event {
    track *on;
    int64_t place;
    uint64_t capture; // 0: not of a capture
    double us;
    bool alive, timed;
    event *next;
};

typedef struct plan {
    fake_plan f;
    bool alive, ran[2]; // ran: uncaptured, so that its kernels are loaded; [1]: those that add
    struct plan *next;
} plan;

typedef struct machine {
    dt_cuda_api api;
    fake_cuda_opts o;
    int device;
    fake_memory memory;
    pthread_t thread; // that has chosen it
    stream *streams;
    track *tracks; // of all streams there ever were
    event *events;
    graph *graphs;
    plan *plans;
    size_t used;
    uint64_t launches;
    double us;
    uint64_t capture, n_captures; // the one that runs, 0: none
    stream *origin;
    stream null_stream; // its live track stands for CUDA's default stream
    int order;          // of threads and blocks: 0 forwards, 1 backwards, -1 mixed
    graph *recording;
    int capture_error;
    fake_cuda_call *log;
    size_t n_log, cap_log;
    char fail_call[32];
    int fail_after, fail_error;
    bool broken;
    int n_excused;     // things that a call which failed could not give back
    dt_nccl_api *nccl; // of fake_cuda_backend, and the destroy that it replaced
    void (*backend_destroy)(dt_backend *b);
} machine;

static inline machine *of(dt_cuda_api *a) {
    return a->self;
}

// Logs the call. Returns an error if it is told to fail; the call then returns it too.
int fake_note(machine *m, const char *call, const char *what, size_t n_bytes, stream *s);
// A thing was not given back: 1, and it is printed; 0 where the device is broken, or a call that gives back has failed.
int fake_left(machine *m, const char *what, size_t n_bytes);
// Queues work on the stream; on the default stream if s is NULL. Takes w->args, also on error.
int fake_queue(machine *m, stream *s, const work *w);

// Fills in the libraries' part of the table.
void fake_libraries_fill(dt_cuda_api *a);
// Number of plans that were not given back.
int fake_libraries_close(machine *m);

#endif
