// timeline.c: see timeline.h. Ranks send their spans to rank 0 when the trace ends, which is no part of a step. A rank's
// clock is compared with rank 0's by sending a message to and fro: of several, the quickest tells the offset, to within
// half of its time.
#include "train/timeline.h"

#include "base/core.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PINGS = 16, WRITE_BYTES = 1 << 16 }; // N_PINGS: one of 16 is quick enough to trust

// Bytes as floats, in which nobody computes; room for a multiple of four.
static dt_status send_bytes(dt_comm *c, const void *data, size_t n_bytes, int to) {
    return c->send_f32(c, data, (int64_t)(n_bytes + 3) / 4, to); // rounded up: buffers have room for it
}

static dt_status recv_bytes(dt_comm *c, void *data, size_t n_bytes, int from) {
    return c->recv_f32(c, data, (int64_t)(n_bytes + 3) / 4, from);
}

// Called by rank 0 and rank r. Returns on rank 0 the seconds to add to the clock of rank r.
static dt_status compare_clocks(dt_comm *c, int r, double *offset_s) {
    double best_s = INFINITY;
    *offset_s = 0;
    for (int i = 0; i < N_PINGS; i++) {
        double theirs = 0;
        if (c->rank == r) {
            DT_TRY(recv_bytes(c, &theirs, sizeof theirs, 0));
            theirs = dt_clock_s(); // the answer's time is read between both messages
            DT_TRY(send_bytes(c, &theirs, sizeof theirs, 0));
            continue;
        }
        const double begin = dt_clock_s();
        DT_TRY(send_bytes(c, &theirs, sizeof theirs, r));
        DT_TRY(recv_bytes(c, &theirs, sizeof theirs, r));
        const double end = dt_clock_s();
        if (end - begin >= best_s) continue; // the quickest exchange has the least uncertainty
        best_s = end - begin;
        *offset_s = (begin + end) / 2 - theirs; // assumes that both ways take as long
    }
    return DT_OK;
}

typedef struct sizes {
    uint64_t n, n_dropped; // counts, so that rank 0 can allocate
    int64_t n_threads;
    double begin_s,
        offset_s; // begin_s: of the first span, by its rank's clock; offset_s: at rank 0
} sizes;

// The trace of rank r, at rank 0.
static dt_status timeline_fetch(dt_comm *c, int r, const sizes *n, dt_trace *t) {
    if (c->rank == r) {
        if (t->n) DT_TRY(send_bytes(c, t->spans, t->n * sizeof *t->spans, 0));
        return t->n ? send_bytes(c, t->threads, (size_t)t->n_threads * sizeof *t->threads, 0) : DT_OK;
    }
    *t = (dt_trace){.n = n->n, .n_dropped = n->n_dropped, .n_threads = (int)n->n_threads};
    t->spans = dt_xcalloc(t->n + 1, sizeof *t->spans);
    t->threads = dt_xcalloc((size_t)t->n_threads + 1, sizeof *t->threads);
    if (t->n) DT_TRY(recv_bytes(c, t->spans, t->n * sizeof *t->spans, r));
    // a rank without spans sends nothing
    return t->n ? recv_bytes(c, t->threads, (size_t)t->n_threads * sizeof *t->threads, r) : DT_OK;
}

// ---- the file --------------------------------------------------------------------------------------

typedef struct writer {
    dt_io_file file;
    dt_json json;
    dt_status st;
    bool any;
} writer;

// `beyond`: bytes that may stay in memory
static void timeline_flush(writer *w, size_t beyond) {
    if (w->st != DT_OK || w->json.n_bytes <= beyond) return;
    w->st = dt_io_write(w->file.fd, w->file.path, w->json.data, w->json.n_bytes);
    w->json.n_bytes = 0; // the object goes on
}

static dt_json *timeline_begin_event(writer *w, const char *name, const char *kind, int rank, int thread) {
    dt_json *j = &w->json;
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "name", name); // Chrome's trace format: M names, X is a span
    dt_json_string(j, "ph", kind);
    dt_json_int(j, "pid", rank);
    dt_json_int(j, "tid", thread);
    return j;
}

static void name_it(writer *w, const char *what, int rank, int thread, const char *name) {
    dt_json *j = timeline_begin_event(w, what, "M", rank, thread);
    dt_json_begin_object(j, "args");
    dt_json_string(j, "name", name);
    dt_json_end_object(j);
    dt_json_end_object(j);
}

static void put_trace(writer *w, int rank, const dt_trace *t, double offset_s, double zero_s) {
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    name_it(w, "process_name", rank, 0, name);
    for (int i = 0; i < t->n_threads; i++) name_it(w, "thread_name", rank, i, t->threads[i]);
    for (size_t i = 0; i < t->n; i++) {
        const dt_trace_span *s = &t->spans[i];
        dt_json *j = timeline_begin_event(w, s->name, "X", rank, s->thread);
        dt_json_string(j, "cat", s->kind);
        dt_json_seconds(j, "ts", 1e6 * (s->begin_s + offset_s - zero_s)); // µs since the first span of any rank
        dt_json_seconds(j, "dur", fmax(1e6 * (s->end_s - s->begin_s), 0));
        dt_json_end_object(j);
        timeline_flush(w, WRITE_BYTES);
    }
    if (t->n_dropped)
        dt_warn("trace.json lacks %llu spans of rank %d: too many", (unsigned long long)t->n_dropped, rank);
}

static dt_status timeline_gather(dt_comm *c, writer *w, dt_trace *own) {
    // INFINITY: a rank without spans does not set the zero
    sizes mine = {own->n, own->n_dropped, own->n_threads, INFINITY, 0};
    for (size_t i = 0; i < own->n; i++) mine.begin_s = fmin(mine.begin_s, own->spans[i].begin_s);
    sizes *all = dt_xcalloc((size_t)c->world_size, sizeof *all);
    dt_status st = c->all_gather_bytes(c, &mine, sizeof mine, all);
    double zero_s = mine.begin_s;
    for (int r = 1; r < c->world_size && st == DT_OK; r++) {
        if (c->rank != 0 && c->rank != r) continue; // rank 0 takes part in every pair
        st = compare_clocks(c, r, &all[r].offset_s);
        zero_s = fmin(zero_s, all[r].begin_s + all[r].offset_s); // in rank 0's clock
    }
    if (c->rank == 0) put_trace(w, 0, own, 0, zero_s);
    for (int r = 1; r < c->world_size && st == DT_OK; r++) {
        dt_trace theirs = {0};
        if (c->rank != 0 && c->rank != r) continue;
        st = timeline_fetch(c, r, &all[r], c->rank == 0 ? &theirs : own);
        if (st == DT_OK && c->rank == 0) put_trace(w, r, &theirs, all[r].offset_s, zero_s);
        dt_trace_fini(&theirs); // of rank 0's copy
    }
    free(all);
    return st;
}

static dt_status write_trace(dt_comm *c, const char *run_dir) {
    writer w = {.st = DT_OK};
    dt_trace own;
    dt_trace_stop(&own);
    dt_json_init(&w.json);
    char *path = dt_xprintf("%s/trace.json", run_dir);
    if (c->rank == 0) {
        w.st = dt_io_begin(&w.file, path);
        dt_json_begin_object(&w.json, NULL);
        dt_json_string(&w.json, "displayTimeUnit", "ms");
        dt_json_begin_array(&w.json, "traceEvents");
    }
    // collective even where rank 0 cannot write: the others must not hang
    dt_status st = timeline_gather(c, &w, &own);
    if (c->rank == 0) {
        dt_json_end_array(&w.json);
        dt_json_end_object(&w.json);
        dt_json_newline(&w.json);
        timeline_flush(&w, 0);
        w.st = dt_io_end(&w.file, st == DT_OK ? w.st : st); // the file gets its name, or is dropped
        if (st == DT_OK && w.st != DT_OK) dt_warn("%s; training continues", dt_error_message());
        if (w.st == DT_OK) dt_info("%s: the timeline, for ui.perfetto.dev or chrome://tracing", path);
    }
    dt_json_fini(&w.json);
    dt_trace_fini(&own);
    free(path);
    return st;
}

dt_status dt_timeline_step(dt_timeline *t, dt_comm *c, int64_t step, const char *run_dir) {
    if (t->on && (step < 0 || step >= t->end)) { // -1: the run ends in the middle of the trace
        t->on = false;
        return write_trace(c, run_dir);
    }
    if (!t->on && step >= t->begin && step < t->end) {
        t->on = true;
        dt_trace_start();
    }
    return DT_OK;
}

void dt_timeline_ask(dt_timeline *t, int64_t step) {
    // one timeline at a time
    if (t->on) return;
    t->begin = step;
    t->end = step + DT_TIMELINE_STEPS;
}
