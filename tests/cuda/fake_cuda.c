// fake_cuda.c: streams, events and graphs of the fake device (see fake_cuda.h, fake_machine.h, fake_memory.h,
// fake_kernels.h, fake_math.h, fake_libraries.c).
//
// A stream is a track: a list of work items, the first `done` of which have run. An event is a position on a track. A
// wait is an item that first runs the event's track up to that position. While a stream is captured it has a second
// track, which belongs to the graph. A launched graph is one item that runs the graph's first track from the start,
// and the others as far as it waits for them. So live streams and graphs follow the same rule. Work that waits for
// another process (fake_nccl.c) leaves its track unchanged and is tried again later.
#include "fake_kernels.h"
#include "fake_machine.h"
#include "fake_nccl.h"

#include "backend/cuda/cuda_desc.h"
#include "base/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h> // mincore
#include <time.h>
#include <unistd.h>

// ---- the log, and calls that are told to fail ------------------------------------------------------
int fake_note(machine *m, const char *call, const char *what, size_t n_bytes, stream *s) {
    // another thread would be on device 0
    if (m->thread && m->thread != pthread_self() && strcmp(call, "alloc_host"))
        fake_breach("%s by a thread that has not chosen the device", call);
    if (m->n_log == m->cap_log) {
        m->cap_log = m->cap_log ? 2 * m->cap_log : 256;
        m->log = dt_xrealloc(m->log, m->cap_log * sizeof *m->log);
    }
    m->log[m->n_log++] = (fake_cuda_call){call, what, n_bytes, s, s && s->captured};
    if (m->broken) return FAKE_ILLEGAL_ADDRESS;
    if (!m->fail_error || strcmp(call, m->fail_call) || m->fail_after-- > 0) return 0;
    const int e = m->fail_error;
    m->fail_error = 0;
    m->broken = e == FAKE_ILLEGAL_ADDRESS;
    m->n_excused += strstr(call, "destroy") || strstr(call, "free");
    return e;
}

int fake_left(machine *m, const char *what, size_t n_bytes) {
    if (m->broken || m->n_excused-- > 0) return 0;
    fprintf(stderr, "not given back: %s", what);
    if (n_bytes) fprintf(stderr, " memory of %zu bytes", n_bytes);
    fputc('\n', stderr);
    return 1;
}

const fake_cuda_call *fake_cuda_log(dt_cuda_api *a, size_t *n) {
    *n = of(a)->n_log;
    return of(a)->log;
}
void fake_cuda_log_clear(dt_cuda_api *a) {
    of(a)->n_log = 0;
}
int fake_cuda_count(dt_cuda_api *a, const char *call) {
    int n = 0;
    for (size_t i = 0; i < of(a)->n_log; i++) n += strcmp(of(a)->log[i].call, call) == 0;
    return n;
}
void fake_cuda_fail(dt_cuda_api *a, const char *call, int after, int error) {
    snprintf(of(a)->fail_call, sizeof of(a)->fail_call, "%s", call);
    of(a)->fail_after = after;
    of(a)->fail_error = error;
}
void fake_cuda_order(dt_cuda_api *a, int order) {
    of(a)->order = order;
}

static const char *error_text(dt_cuda_api *a, int e) {
    static const struct {
        int code;
        const char *text;
    } texts[] = {{0, "no error"},
                 {FAKE_INVALID, "invalid argument"},
                 {FAKE_OUT_OF_MEMORY, "out of memory"},
                 {FAKE_NOT_CAPTURABLE, "operation not permitted when stream is capturing"},
                 {FAKE_CAPTURE_INVALID, "operation failed due to a previous error during capture"},
                 {FAKE_CAPTURE_UNJOINED, "capture has unjoined work"},
                 {FAKE_CAPTURE_ISOLATION, "dependency on uncaptured work in another stream"},
                 {FAKE_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
                 {FAKE_NOT_SUPPORTED, "not supported"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].code == e) return texts[i].text;
    return "an error that the test asked for";
}

static const char *versions(dt_cuda_api *a) {
    const char *text = getenv("FAKE_CUDA_VERSIONS");
    return text ? text : "no CUDA: a fake device";
}
static int device_count(dt_cuda_api *a, int *n) {
    *n = of(a)->o.n_devices;
    return fake_note(of(a), "device_count", "", 0, NULL);
}
static int device_use(dt_cuda_api *a, int index) {
    of(a)->device = index;
    of(a)->thread = pthread_self();
    return fake_note(of(a), "device_use", "", 0, NULL);
}
static int device_info(dt_cuda_api *a, int index, dt_cuda_device_info *out) {
    machine *m = of(a);
    const char *driver = getenv("FAKE_CUDA_DRIVER");
    *out = (dt_cuda_device_info){.major = 9,
                                 .n_sm = 3, // few and odd, so that loops over the grid iterate
                                 .numa_node = m->o.n_devices > 1 ? index / 2 : -1,
                                 .total_bytes = m->o.total_bytes,
                                 .free_bytes = m->o.total_bytes - m->used,
                                 .driver = 13000,
                                 .runtime = 13000,
                                 .bytes_s = 4.9e12,
                                 .clock_hz = 1.98e9};
    snprintf(out->name, sizeof out->name, "fake GPU");
    snprintf(out->pci, sizeof out->pci, "0000:%02x:00.0", (unsigned)(16 + index) & 0xff);
    snprintf(out->driver_version, sizeof out->driver_version, "%s", driver ? driver : "580.65.06");
    return fake_note(m, "device_info", "", 0, NULL);
}
// Two devices per NUMA node, linked by NVLink. The next node's devices are peers.
static int device_link(dt_cuda_api *a, int from, int to, dt_cuda_link *out) {
    const int far = abs(from / 2 - to / 2);
    *out = (dt_cuda_link){.peer = far < 2, .nvlink = far == 0};
    return fake_note(of(a), "device_link", "", 0, NULL);
}

// Invalidates a running capture: the call is forbidden during one.
static int forbid_in_capture(machine *m) {
    if (!m->capture) return 0;
    m->capture_error = FAKE_CAPTURE_INVALID;
    return FAKE_NOT_CAPTURABLE;
}

static int add_block(machine *m, void **p, size_t n, bool pinned) {
    fake_block *b = fake_memory_add(&m->memory, n, pinned);
    *p = b ? b->p : NULL;
    return b ? 0 : FAKE_OUT_OF_MEMORY;
}

static int alloc(dt_cuda_api *a, void **p, size_t n) {
    machine *m = of(a);
    int e = fake_note(m, "alloc", "", n, NULL);
    if (!e) e = forbid_in_capture(m);
    if (!e && (!n || m->used + n > m->o.total_bytes)) e = n ? FAKE_OUT_OF_MEMORY : FAKE_INVALID;
    if (!e) e = add_block(m, p, n, false);
    if (!e) m->used += n;
    return e;
}

static void run_all(machine *m);

static int drop_block(machine *m, void *p, bool pinned) {
    fake_block *b = fake_memory_at(&m->memory, p, pinned);
    if (!b) return FAKE_INVALID;
    run_all(m);
    if (!pinned) m->used -= b->n_bytes;
    fake_memory_drop(&m->memory, b);
    return 0;
}

static int free_device(dt_cuda_api *a, void *p) {
    machine *m = of(a);
    int e = fake_note(m, "free", "", 0, NULL);
    if (!e) e = forbid_in_capture(m);
    return e ? e : drop_block(m, p, false);
}
static int alloc_host(dt_cuda_api *a, void **p, size_t n) {
    machine *m = of(a);
    int e = fake_note(m, "alloc_host", "", n, NULL);
    if (!e) e = forbid_in_capture(m);
    return e ? e : add_block(m, p, n, true);
}
static int free_host(dt_cuda_api *a, void *p) {
    machine *m = of(a);
    int e = fake_note(m, "free_host", "", 0, NULL);
    if (!e) e = forbid_in_capture(m);
    return e ? e : drop_block(m, p, true);
}

// ---- work ------------------------------------------------------------------------------------------
static void push(machine *m, track *t, const work *w) {
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->items = dt_xrealloc(t->items, (size_t)t->cap * sizeof *t->items);
    }
    t->items[t->n++] = *w;
}

static track *add_track(track **list) {
    track *t = dt_xcalloc(1, sizeof *t);
    t->next = *list;
    return *list = t;
}

static void drop_items(track *t) {
    for (int64_t i = 0; i < t->n; i++) free(t->items[i].args);
    t->base += t->n;
    t->n = t->done = 0;
}

static void drop_graph(graph *g) {
    if (--g->refs) return;
    while (g->tracks) {
        track *t = g->tracks;
        g->tracks = t->next;
        drop_items(t);
        free(t->items);
        free(t);
    }
}

static void run_launch(machine *m, const work *w) {
    m->us += 2;
    if (fake_fibers_take(w->k, w->args, w->grid)) return;
    const uint32_t mix = (uint32_t)++m->launches * 2654435761u;
    const bool backwards = m->order < 0 ? mix >> 31 != 0 : m->order != 0;
    dt_host_block b = {.grid = w->grid.blocks, .block_dim = w->grid.threads, .backwards = backwards};
    for (int64_t i = 0; i < b.grid; i++) {
        b.block = backwards ? b.grid - 1 - i : i;
        fake_kernels[w->k].run(w->args, &b);
    }
}

static void run_copy(machine *m, const work *w) {
    const char *host = w->direction == 1 ? w->src : w->direction == 0 ? w->dst : NULL;
    if (host && !fake_memory_find(&m->memory, host, w->n_bytes))
        fake_breach("pinned memory of a queued copy is gone before the copy ran");
    memcpy(w->dst, w->src, w->n_bytes);
    m->us += 1 + (double)w->n_bytes / 1e5;
}

static bool run_track(machine *m, track *t, int64_t upto);

static bool run_graph(machine *m, graph *g) {
    if (!run_track(m, g->origin, g->origin->n)) return false;
    for (track *t = g->tracks; t; t = t->next) t->done = 0;
    return true;
}

// One engine is faster than the others.
static double us_of(const fake_plan *p) {
    const char *fastest = getenv("FAKE_CUDA_FASTEST");
    return p->choice == (fastest ? atoi(fastest) : 1) ? 100 : 200 + p->choice;
}

// Returns false if the item waits for another process and must run again.
static bool run_work(machine *m, const work *w) {
    switch (w->kind) {
    case W_LAUNCH:
        run_launch(m, w);
        break;
    case W_COPY:
        run_copy(m, w);
        break;
    case W_ZERO:
        memset(w->dst, 0, w->n_bytes);
        m->us += 1 + (double)w->n_bytes / 1e5;
        break;
    case W_WAIT:
        return run_track(m, w->on, w->upto);
    case W_RECORD:
        w->ev->us = m->us;
        break;
    case W_GRAPH:
        if (!run_graph(m, w->g)) return false;
        drop_graph(w->g);
        break;
    case W_HOST:
        return w->host(w->args);
    case W_DNN:
        fake_dnn_run(&w->plan, w->ptr);
        m->us += us_of(&w->plan);
        if (w->plan.dnn.sums && w->plan.dnn.k > FAKE_SUMS_CHEAP) m->us += 10;
        if (w->plan.dnn.normed && w->plan.dnn.c > FAKE_SUMS_CHEAP) m->us += 10;
        break;
    case W_GEMM:
        fake_gemm_run(&w->plan, w->ptr);
        m->us += us_of(&w->plan);
        break;
    }
    return true;
}

// Positions in a graph's tracks start at 0, and base stays 0 there. Returns false if it stopped at work that waits.
static bool run_track(machine *m, track *t, int64_t upto) {
    bool went = true;
    fake_memory_open(&m->memory);
    while (went && t->base + t->done < upto) {
        const work w = t->items[t->done];
        went = run_work(m, &w);
        t->done += went;
    }
    fake_memory_close(&m->memory);
    return went;
}

// Empties a live track when all its work has run.
static void run_live(machine *m, track *t) {
    while (!run_track(m, t, t->base + t->n)) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    drop_items(t);
}

static void run_all(machine *m) {
    for (track *t = m->tracks; t; t = t->next)
        if (t->n) run_live(m, t);
}

// The default stream is never captured. Work for it during a capture is an error.
int fake_queue(machine *m, stream *s, const work *w) {
    if (!s) {
        const int e = forbid_in_capture(m);
        if (e) {
            free(w->args);
            return e;
        }
        s = &m->null_stream;
    }
    push(m, s->captured ? s->captured : s->live, w);
    return 0;
}

int fake_cuda_queue(dt_cuda_api *a, const char *call, bool (*host)(const void *args), const void *args,
                    size_t args_bytes, size_t n_bytes, void *st) {
    machine *m = of(a);
    const int e = fake_note(m, call, "", n_bytes, st);
    if (e) return e;
    work w = {.kind = W_HOST, .host = host, .args = dt_xcalloc(1, args_bytes)};
    memcpy(w.args, args, args_bytes);
    return fake_queue(m, st, &w);
}

void fake_cuda_move(dt_cuda_api *a) {
    of(a)->thread = pthread_self();
}

int fake_cuda_note(dt_cuda_api *a, const char *call, size_t n_bytes) {
    return fake_note(of(a), call, "", n_bytes, NULL);
}

uint64_t fake_cuda_capture(dt_cuda_api *a, const void *st) {
    const stream *s = st;
    return s && s->captured ? of(a)->capture : 0;
}

int fake_cuda_graphs_with(dt_cuda_api *a, bool (*host)(const void *args)) {
    int n = 0;
    for (const graph *g = of(a)->graphs; g; g = g->next) {
        bool holds = false;
        for (const track *t = g->tracks; t && !g->destroyed; t = t->next)
            for (int64_t i = 0; i < t->n; i++) holds |= t->items[i].kind == W_HOST && t->items[i].host == host;
        n += holds;
    }
    return n;
}

void fake_cuda_check_device(dt_cuda_api *a, const void *p, size_t n_bytes) {
    const fake_block *b = fake_memory_find(&of(a)->memory, p, n_bytes);
    if (!b || b->pinned) fake_breach("%zu bytes for NCCL are not the device's", n_bytes);
}

// ---- copies and launches ---------------------------------------------------------------------------
static int copy(dt_cuda_api *a, void *dst, const void *src, size_t n, int direction, void *st) {
    machine *m = of(a);
    stream *s = st;
    int e = fake_note(m, "copy", direction == 1 ? "in" : direction == 0 ? "out" : "within", n, s);
    if (!e && !s) e = forbid_in_capture(m);
    if (e) return e;
    const fake_block *d = fake_memory_find(&m->memory, dst, n), *f = fake_memory_find(&m->memory, src, n);
    const bool dst_device = d && !d->pinned, src_device = f && !f->pinned;
    if (dst_device != (direction != 0) || src_device != (direction != 1)) {
        fprintf(stderr, "copy of %zu bytes: memory is not where the direction says\n", n);
        return FAKE_INVALID;
    }
    if (s && ((direction == 1 && !f) || (direction == 0 && !d)))
        fake_breach("a queued copy of %zu bytes is not with pinned memory", n);
    const work w = {.kind = W_COPY, .dst = dst, .src = src, .n_bytes = n, .direction = direction};
    if (s) return fake_queue(m, s, &w);
    run_live(m, m->null_stream.live); // waits for no other stream
    fake_memory_open(&m->memory);
    memcpy(dst, src, n);
    fake_memory_close(&m->memory);
    return 0;
}

static int zero(dt_cuda_api *a, void *dst, size_t n, void *st) {
    machine *m = of(a);
    stream *s = st;
    int e = fake_note(m, "zero", "", n, s);
    if (e) return e;
    const fake_block *d = fake_memory_find(&m->memory, dst, n);
    if (!d || d->pinned) return FAKE_INVALID;
    return fake_queue(m, s, &(work){.kind = W_ZERO, .dst = dst, .n_bytes = n});
}

static bool is_mapped(uintptr_t p) {
    unsigned char in_core;
    return mincore((void *)(p / 4096 * 4096), 4096, &in_core) == 0;
}

// Checks words of the arguments that are addresses of ordinary host memory.
static void check_args(machine *m, dt_cuda_kernel k, const void *args) {
    for (size_t i = 0; i + 8 <= fake_kernels[k].args_bytes; i += 8) {
        uintptr_t p;
        memcpy(&p, (const char *)args + i, 8);
        // a small number next to another, or next to padding, may look like an address; heaps, stacks and mappings lie
        // above these
        if (p < 0x500000000000 || (uint32_t)p < 0x10000 || p >> 47 || fake_memory_find(&m->memory, (void *)p, 0))
            continue;
        if (is_mapped(p))
            fake_breach("kernel %s: its argument at byte %zu is host memory that is not pinned", fake_kernels[k].name,
                        i);
    }
}

static int launch(dt_cuda_api *a, dt_cuda_kernel k, dt_cuda_grid g, const void *args, void *st) {
    machine *m = of(a);
    stream *s = st;
    const int e = fake_note(m, "launch", fake_kernels[k].name, 0, s);
    if (e) return e;
    if (g.blocks < 1 || g.blocks > INT32_MAX || g.threads < 32 || g.threads > 1024 || g.threads % 32)
        return FAKE_INVALID;
    if (g.threads > fake_kernels[k].most_threads)
        fake_breach("kernel %s: blocks of %d threads, and it is bound to %d", fake_kernels[k].name, g.threads,
                    fake_kernels[k].most_threads);
    check_args(m, k, args);
    work w = {.kind = W_LAUNCH, .k = k, .grid = g, .args = dt_xcalloc(1, fake_kernels[k].args_bytes)};
    memcpy(w.args, args, fake_kernels[k].args_bytes);
    return fake_queue(m, s, &w);
}

// ---- streams and events ----------------------------------------------------------------------------
static int stream_create(dt_cuda_api *a, void **st, bool urgent) {
    machine *m = of(a);
    const int e = fake_note(m, "stream_create", urgent ? "urgent" : "", 0, NULL);
    if (e) return e;
    stream *s = dt_xcalloc(1, sizeof *s);
    *s = (stream){.live = add_track(&m->tracks), .alive = true, .next = m->streams};
    *st = m->streams = s;
    return 0;
}

static int stream_destroy(dt_cuda_api *a, void *st) {
    machine *m = of(a);
    stream *s = st;
    const int e = fake_note(m, "stream_destroy", "", 0, s);
    if (e) return e;
    if (!s->alive || s->captured) return FAKE_INVALID;
    s->alive = false; // CUDA also runs what is queued
    return 0;
}

static int stream_synchronize(dt_cuda_api *a, void *st) {
    machine *m = of(a);
    stream *s = st;
    int e = fake_note(m, "stream_synchronize", "", 0, s);
    if (!e && (!s || s->captured)) e = forbid_in_capture(m);
    if (e) return e;
    if (s)
        run_live(m, s->live);
    else
        run_all(m);
    return 0;
}

static int stream_query(dt_cuda_api *a, void *st, bool *done) {
    machine *m = of(a);
    stream *s = st ? st : &m->null_stream;
    int e = fake_note(m, "stream_query", "", 0, s);
    if (!e && s->captured) e = forbid_in_capture(m);
    if (e) return e;
    track *t = s->live;
    if (t->done < t->n) run_track(m, t, t->base + t->done + 1);
    *done = t->done == t->n;
    if (*done) drop_items(t);
    return 0;
}

static int event_create(dt_cuda_api *a, void **ev, bool timed) {
    machine *m = of(a);
    const int e = fake_note(m, "event_create", "", 0, NULL);
    if (e) return e;
    event *v = dt_xcalloc(1, sizeof *v);
    *v = (event){.alive = true, .timed = timed, .next = m->events};
    *ev = m->events = v;
    return 0;
}

static int event_destroy(dt_cuda_api *a, void *ev) {
    const int e = fake_note(of(a), "event_destroy", "", 0, NULL);
    if (!e) ((event *)ev)->alive = false;
    return e;
}

static int event_record(dt_cuda_api *a, void *ev, void *st) {
    machine *m = of(a);
    stream *s = st ? st : &m->null_stream;
    event *v = ev;
    const int e = fake_note(m, "event_record", "", 0, s);
    if (e) return e;
    track *t = s->captured ? s->captured : s->live;
    if (v->timed && !s->captured) push(m, t, &(work){.kind = W_RECORD, .ev = v});
    v->on = t;
    v->place = t->base + t->n;
    v->capture = s->captured ? m->capture : 0;
    return 0;
}

static int event_wait(dt_cuda_api *a, void *ev, void *st) {
    machine *m = of(a);
    stream *s = st ? st : &m->null_stream;
    event *v = ev;
    const int e = fake_note(m, "event_wait", "", 0, s);
    if (e || !v->on) return e;
    if (v->capture && v->capture != m->capture) return FAKE_INVALID; // from a finished capture
    if (!v->capture && s->captured) {
        m->capture_error = FAKE_CAPTURE_INVALID;
        return FAKE_CAPTURE_ISOLATION;
    }
    if (v->capture && !s->captured) s->captured = add_track(&m->recording->tracks); // joins
    return fake_queue(m, s, &(work){.kind = W_WAIT, .on = v->on, .upto = v->place});
}

static int event_ms(dt_cuda_api *a, void *begin, void *end, float *ms) {
    const int e = fake_note(of(a), "event_ms", "", 0, NULL);
    if (e) return e;
    const event *b = begin, *f = end;
    if (!b->timed || !f->timed || !b->on || !f->on) return FAKE_INVALID;
    if (b->on->base + b->on->done < b->place || f->on->base + f->on->done < f->place) return 600; // not ready
    *ms = (float)((f->us - b->us) * 1e-3);
    return 0;
}

// ---- graphs ----------------------------------------------------------------------------------------
static int capture_begin(dt_cuda_api *a, void *st) {
    machine *m = of(a);
    stream *s = st;
    const int e = fake_note(m, "capture_begin", "", 0, s);
    if (e) return e;
    if (m->capture) return FAKE_INVALID;
    graph *g = dt_xcalloc(1, sizeof *g);
    g->refs = 1;
    g->next = m->graphs;
    m->graphs = m->recording = g;
    m->capture = ++m->n_captures;
    m->capture_error = 0;
    m->origin = s;
    s->captured = g->origin = add_track(&g->tracks);
    return 0;
}

// How far the origin's waits reach, without running anything.
static void reach(track *t, int64_t upto) {
    while (t->done < upto) {
        const work *w = &t->items[t->done++];
        if (w->kind == W_WAIT) reach(w->on, w->upto);
    }
}

static int capture_end(dt_cuda_api *a, void *st, void **out) {
    machine *m = of(a);
    int e = fake_note(m, "capture_end", "", 0, st);
    *out = NULL;
    if (!m->capture || m->origin != st) return FAKE_INVALID;
    graph *g = m->recording;
    for (stream *s = m->streams; s; s = s->next) s->captured = NULL;
    m->capture = 0;
    m->recording = NULL;
    if (!e) e = m->capture_error;
    reach(g->origin, g->origin->n);
    for (track *t = g->tracks; t; t = t->next) {
        if (t->done < t->n && !e) e = FAKE_CAPTURE_UNJOINED;
        t->done = 0;
    }
    if (e)
        drop_graph(g);
    else
        *out = g;
    return e;
}

static int graph_launch(dt_cuda_api *a, void *graph_, void *st) {
    machine *m = of(a);
    graph *g = graph_;
    const int e = fake_note(m, "graph_launch", "", 0, st);
    if (e) return e;
    if (st && ((stream *)st)->captured) return forbid_in_capture(m);
    if (!g->refs) return FAKE_INVALID;
    g->refs++;
    return fake_queue(m, st, &(work){.kind = W_GRAPH, .g = g});
}

static int graph_destroy(dt_cuda_api *a, void *graph_) {
    const int e = fake_note(of(a), "graph_destroy", "", 0, NULL);
    if (e) return e;
    if (!((graph *)graph_)->refs) return FAKE_INVALID;
    ((graph *)graph_)->destroyed = true;
    drop_graph(graph_); // launched work still runs
    return 0;
}

// ---- life ------------------------------------------------------------------------------------------
static const dt_cuda_api table = {.error_text = error_text,
                                  .versions = versions,
                                  .device_count = device_count,
                                  .device_use = device_use,
                                  .device_info = device_info,
                                  .device_link = device_link,
                                  .alloc = alloc,
                                  .free = free_device,
                                  .alloc_host = alloc_host,
                                  .free_host = free_host,
                                  .copy = copy,
                                  .zero = zero,
                                  .stream_create = stream_create,
                                  .stream_destroy = stream_destroy,
                                  .stream_synchronize = stream_synchronize,
                                  .stream_query = stream_query,
                                  .event_create = event_create,
                                  .event_destroy = event_destroy,
                                  .event_record = event_record,
                                  .event_wait = event_wait,
                                  .event_ms = event_ms,
                                  .capture_begin = capture_begin,
                                  .capture_end = capture_end,
                                  .graph_launch = graph_launch,
                                  .graph_destroy = graph_destroy,
                                  .launch = launch};

dt_cuda_api *fake_cuda_create(const fake_cuda_opts *opts) {
    machine *m = dt_xcalloc(1, sizeof *m);
    m->api = table;
    m->api.self = m;
    fake_libraries_fill(&m->api);
    m->null_stream = (stream){.live = add_track(&m->tracks), .alive = true};
    m->order = -1;
    if (opts) m->o = *opts;
    if (!m->o.n_devices) m->o.n_devices = 1;
    const char *bytes = getenv("FAKE_CUDA_BYTES");
    if (!m->o.total_bytes) m->o.total_bytes = bytes ? strtoul(bytes, NULL, 10) : 1u << 30;
    return &m->api;
}

#define DROP_LIST(type, list, text)                                                                                    \
    while (list) {                                                                                                     \
        type *x_ = list;                                                                                               \
        list = x_->next;                                                                                               \
        if (x_->alive) n += fake_left(m, text, 0);                                                                     \
        free(x_);                                                                                                      \
    }

int fake_cuda_destroy(dt_cuda_api *a) {
    machine *m = of(a);
    int n = 0;
    run_all(m);
    while (m->memory.blocks) {
        fake_block *b = m->memory.blocks;
        n += fake_left(m, b->pinned ? "pinned" : "device", b->n_bytes);
        drop_block(m, b->p, b->pinned);
    }
    DROP_LIST(stream, m->streams, "a stream")
    DROP_LIST(event, m->events, "an event")
    n += fake_libraries_close(m);
    while (m->graphs) {
        graph *g = m->graphs;
        m->graphs = g->next;
        if (g->refs) n += fake_left(m, "a graph", 0), g->refs = 1, drop_graph(g);
        free(g);
    }
    while (m->tracks) {
        track *t = m->tracks;
        m->tracks = t->next;
        free(t->items);
        free(t);
    }
    free(m->log);
    free(m);
    return n;
}

static void destroy_with_machine(dt_backend *b) {
    dt_cuda_api *api = dt_cuda_self(b)->api;
    of(api)->backend_destroy(b);
    fake_nccl_destroy(of(api)->nccl);
    if (fake_cuda_destroy(api)) fake_breach("the backend left things behind");
}

dt_status fake_cuda_backend(dt_backend **out, const dt_backend_opts *opts) {
    dt_cuda_api *api = fake_cuda_create(NULL);
    of(api)->nccl = fake_nccl_create(api, false);
    DT_TRY(dt_cuda_backend_create(out, api, of(api)->nccl, 0, opts));
    of(api)->backend_destroy = (*out)->destroy;
    (*out)->destroy = destroy_with_machine;
    return DT_OK;
}

dt_nccl_api *fake_cuda_nccl(dt_backend *b) {
    return of(dt_cuda_self(b)->api)->nccl;
}
