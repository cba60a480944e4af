// trace.h: a timeline of what threads do: spans with a kind ("forward", "data") and a name, of this process.
//
// Off, as nearly always, a place in the code costs one load and a branch that is predicted, and nothing is allocated. On,
// spans go to one list under a lock; 262144 are kept, and what comes later is counted.
#ifndef DT_BASE_TRACE_H
#define DT_BASE_TRACE_H

#include "base/os.h"

#include <math.h>
#include <stdatomic.h>

typedef struct dt_trace_span {
    double begin_s, end_s; // dt_clock_s
    char kind[16], name[44];
    int32_t thread; // its number in dt_trace.threads
} dt_trace_span;

typedef struct dt_trace {
    dt_trace_span *spans; // heap
    size_t n;
    uint64_t n_dropped;
    char (*threads)[16]; // their names; heap
    int n_threads;
} dt_trace;

extern atomic_bool dt_trace_is_on;

// Returns what dt_trace_close takes; < 0: it was not kept.
int64_t dt_trace_record(const char *kind, const char *name, double begin_s, double end_s);
void dt_trace_start(void);
void dt_trace_stop(dt_trace *out); // the caller frees with dt_trace_fini
void dt_trace_fini(dt_trace *t);

static inline bool dt_trace_on(void) {
    return __builtin_expect(atomic_load_explicit(&dt_trace_is_on, memory_order_relaxed), 0);
}

// The begin of a span, for dt_trace_end; 0: there is no trace.
static inline double dt_trace_begin(void) {
    return dt_trace_on() ? dt_clock_s() : 0;
}

static inline void dt_trace_end(const char *kind, const char *name, double begin_s) {
    if (__builtin_expect(begin_s > 0, 0)) dt_trace_record(kind, name, begin_s, dt_clock_s());
}

// A span that may last longer than the trace, which then cuts it at its own end.
static inline int64_t dt_trace_open(const char *kind, const char *name) {
    return dt_trace_on() ? dt_trace_record(kind, name, dt_clock_s(), INFINITY) : -1;
}
void dt_trace_close(int64_t span);

// A span whose times are known.
static inline void dt_trace_add(const char *kind, const char *name, double begin_s, double end_s) {
    if (dt_trace_on()) dt_trace_record(kind, name, begin_s, end_s);
}

#endif
