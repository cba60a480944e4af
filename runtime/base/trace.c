// trace.c: see trace.h.
#define _GNU_SOURCE
#include "base/trace.h"

#include "base/core.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SPANS = 1 << 18 }; // bounds memory to some tens of MiB

atomic_bool dt_trace_is_on; // read without the lock by dt_trace_on

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards now and number
static dt_trace now;
static int number;                          // of the trace
static _Thread_local int thread, thread_of; // of this thread, in which trace

static void enter_thread(void) {
    if (thread_of == number) return; // a new trace has a new list of threads
    now.threads = dt_xgrow(now.threads, (size_t)now.n_threads, sizeof *now.threads); // under `lock`
    char *name = now.threads[now.n_threads];
    memset(name, 0, sizeof *now.threads);
    pthread_getname_np(pthread_self(), name, sizeof *now.threads);
    thread = now.n_threads++;
    thread_of = number;
}

int64_t dt_trace_record(const char *kind, const char *name, double begin_s, double end_s) {
    int64_t span = -1;
    dt_trace_span s = {.begin_s = begin_s, .end_s = end_s};
    snprintf(s.kind, sizeof s.kind, "%s", kind); // cut to the field
    snprintf(s.name, sizeof s.name, "%s", name);
    pthread_mutex_lock(&lock);
    if (dt_trace_on() && now.n < MAX_SPANS) {
        enter_thread();
        s.thread = thread;
        now.spans = dt_xgrow(now.spans, now.n, sizeof *now.spans);
        // trace number above, index below: a span of an earlier trace is not closed
        span = (int64_t)number << 32 | (int64_t)now.n;
        now.spans[now.n++] = s;
    } else {
        now.n_dropped += dt_trace_on(); // counted for the report
    }
    pthread_mutex_unlock(&lock);
    return span;
}

void dt_trace_close(int64_t span) {
    if (span < 0) return;
    const size_t i = span & UINT32_MAX; // low 32 bits
    pthread_mutex_lock(&lock);
    if (span >> 32 == number && i < now.n) now.spans[i].end_s = dt_clock_s(); // same trace
    pthread_mutex_unlock(&lock);
}

void dt_trace_start(void) {
    pthread_mutex_lock(&lock);
    dt_trace_fini(&now); // of a trace that was never taken
    number++;
    atomic_store(&dt_trace_is_on, true);
    pthread_mutex_unlock(&lock);
}

void dt_trace_stop(dt_trace *out) {
    pthread_mutex_lock(&lock);
    atomic_store(&dt_trace_is_on, false);
    for (size_t i = 0; i < now.n; i++)
        if (isinf(now.spans[i].end_s)) now.spans[i].end_s = dt_clock_s(); // still open: ends now
    *out = now;                                                           // ownership moves to the caller
    now = (dt_trace){0};
    pthread_mutex_unlock(&lock);
}

void dt_trace_fini(dt_trace *t) {
    free(t->spans);
    free(t->threads);
    *t = (dt_trace){0};
}
