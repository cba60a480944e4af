// lazy_device.h: the CPU backend dressed up as a device, for tests of what is above backends.
//
// Kernels, packing and the optimizer are the CPU's, so a step here must give the CPU's bits; but as on a
// device nothing runs when it is queued. A stream is a list of work that runs when somebody waits for it,
// or one piece a query; waiting for another stream runs that one as far as the wait reaches. A captured
// stream is a list that is played back. Calls are counted: waits, allocations, launches.
//
// Memory is plain host memory: who touches a device's memory from the host is found on the machine of
// tests/cuda, not here.
#ifndef DT_TESTS_LAZY_DEVICE_H
#define DT_TESTS_LAZY_DEVICE_H

#include "backend/backend.h"
#include "base/arena.h"
#include "whole_optimizer.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct lazy_work {
    void (*run)(dt_backend *b, void *arg);
    void *arg; // heap
    struct lazy_stream *on;
    int upto; // a wait: of `on`
} lazy_work;

typedef struct lazy_list {
    lazy_work *items;
    int n, cap;
    int refs; // a graph's: who may destroy it, and launches that have not run
} lazy_list;

typedef struct lazy_stream {
    lazy_list live;
    int done;
    bool captured;
} lazy_stream;

enum { LAZY_STREAMS = 16, LAZY_PACKS = 512 };

typedef struct lazy_self {
    dt_backend *cpu;
    lazy_stream *streams[LAZY_STREAMS];
    int n_streams;
    void *packs[LAZY_PACKS]; // contexts of wrapped pack requests
    int n_packs;
    dt_device device;
    lazy_list *graph; // that is being captured
    lazy_stream *origin;
    int n_waits, n_allocs, n_launches, n_queued;
    int n_graphs; // there now, one that is being captured too
    bool refuses_capture;
    size_t used;
} lazy_self;

static inline lazy_self *lazy(dt_backend *b) {
    return b->self;
}

// ---- work ------------------------------------------------------------------------------------------

static inline void lazy_push(lazy_list *l, lazy_work w) {
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->items = dt_xrealloc(l->items, sizeof *l->items * (size_t)l->cap);
    }
    l->items[l->n++] = w;
}

static inline void lazy_run(dt_backend *b, lazy_stream *s, int upto) {
    while (s->done < upto) {
        lazy_work *w = &s->live.items[s->done++];
        if (w->on)
            lazy_run(b, w->on, w->upto);
        else
            w->run(b, w->arg);
        free(w->arg);
        s->live.items[s->done - 1].arg = NULL;
    }
}

// arg is copied. Stream NULL runs at once.
static inline void lazy_queue(dt_backend *b, void *stream, void (*run)(dt_backend *, void *),
                              const void *arg, size_t n_bytes) {
    lazy_stream *s = stream;
    void *copy = malloc(n_bytes);
    memcpy(copy, arg, n_bytes);
    lazy(b)->n_queued++;
    if (!s) {
        run(b, copy);
        free(copy);
    } else if (s->captured) {
        lazy_push(lazy(b)->graph, (lazy_work){.run = run, .arg = copy});
    } else {
        lazy_push(&s->live, (lazy_work){.run = run, .arg = copy});
    }
}

static inline dt_status lazy_stream_create(dt_backend *b, void **stream) {
    lazy_self *l = lazy(b);
    if (l->n_streams == LAZY_STREAMS) abort();
    *stream = l->streams[l->n_streams++] = dt_xcalloc(1, sizeof(lazy_stream));
    return DT_OK;
}

static inline void lazy_stream_destroy(dt_backend *b, void *stream) {
    lazy_stream *s = stream;
    lazy_self *l = lazy(b);
    lazy_run(b, s, s->live.n);
    for (int i = 0; i < l->n_streams; i++)
        if (l->streams[i] == s) l->streams[i] = l->streams[--l->n_streams];
    free(s->live.items);
    free(s);
}

static inline dt_status lazy_synchronize(dt_backend *b, void *stream) {
    lazy_stream *s = stream;
    lazy(b)->n_waits++;
    if (s) lazy_run(b, s, s->live.n);
    return DT_OK;
}

static inline bool lazy_stream_done(dt_backend *b, void *stream) {
    lazy_stream *s = stream;
    if (s->done < s->live.n) lazy_run(b, s, s->done + 1);
    return s->done == s->live.n;
}

static inline void lazy_stream_wait(dt_backend *b, void *stream, void *on) {
    lazy_stream *s = stream, *o = on;
    if (o->captured) {
        s->captured = true; // one list in the order of queueing is an order that fits
        return;
    }
    if (s->captured) abort(); // a capture cannot wait for what is outside of it
    lazy_push(&s->live, (lazy_work){.on = o, .upto = o->live.n});
}

typedef struct lazy_copy {
    void *dst;
    const void *src;
    size_t n_bytes;
} lazy_copy;

static inline void lazy_run_copy(dt_backend *b, void *arg) {
    const lazy_copy *c = arg;
    memcpy(c->dst, c->src, c->n_bytes);
}

static inline void lazy_copy_on(dt_backend *b, void *dst, const void *src, size_t n_bytes,
                                void *stream) {
    lazy_queue(b, stream, lazy_run_copy, &(lazy_copy){dst, src, n_bytes}, sizeof(lazy_copy));
}

typedef struct lazy_sum {
    float *dst;
    const float *src;
    int64_t n;
} lazy_sum;

static inline void lazy_run_sum(dt_backend *b, void *arg) {
    const lazy_sum *c = arg;
    lazy(b)->cpu->flat_add(lazy(b)->cpu, c->dst, c->src, 0, c->n);
}

static inline void lazy_add(dt_backend *b, float *dst, const float *src, int64_t n, void *stream) {
    lazy_queue(b, stream, lazy_run_sum, &(lazy_sum){dst, src, n}, sizeof(lazy_sum));
}

// ---- capture ---------------------------------------------------------------------------------------

static inline dt_status lazy_capture_begin(dt_backend *b, void *stream) {
    lazy(b)->graph = dt_xcalloc(1, sizeof(lazy_list));
    lazy(b)->graph->refs = 1;
    lazy(b)->n_graphs++;
    lazy(b)->origin = stream;
    ((lazy_stream *)stream)->captured = true;
    return DT_OK;
}

static inline void lazy_graph_drop(lazy_list *g) {
    if (--g->refs) return;
    for (int i = 0; i < g->n; i++) free(g->items[i].arg);
    free(g->items);
    free(g);
}

// What has been launched still runs, as on a device.
static inline void lazy_graph_destroy(dt_backend *b, void *graph) {
    lazy(b)->n_graphs--;
    lazy_graph_drop(graph);
}

static inline dt_status lazy_capture_end(dt_backend *b, void *stream, void **graph) {
    *graph = lazy(b)->graph;
    lazy(b)->graph = NULL;
    for (int i = 0; i < lazy(b)->n_streams; i++) lazy(b)->streams[i]->captured = false;
    if (!lazy(b)->refuses_capture) return DT_OK;
    lazy_graph_destroy(b, *graph);
    *graph = NULL;
    return dt_fail(DT_E_INTERNAL, "capture is refused");
}

static inline void lazy_run_graph(dt_backend *b, void *arg) {
    lazy_list *g = *(lazy_list **)arg;
    for (int i = 0; i < g->n; i++) g->items[i].run(b, g->items[i].arg);
    lazy_graph_drop(g);
}

static inline void lazy_graph_launch(dt_backend *b, void *graph, void *stream) {
    lazy(b)->n_launches++;
    ((lazy_list *)graph)->refs++;
    lazy_queue(b, stream, lazy_run_graph, &graph, sizeof graph);
}

// ---- kernels ---------------------------------------------------------------------------------------

typedef struct lazy_call {
    const dt_kernel_instance *instance;
    dt_run run;
    const void *in[64];
    void *out[64], *packed[DT_MAX_PACKS];
} lazy_call;

static inline const dt_kernel *lazy_cpu_kernel(const dt_kernel_instance *s) {
    dt_backend *cpu = lazy(s->backend)->cpu;
    return cpu->kernel(cpu, s->node->op, s->node->backward);
}

static inline void lazy_run_call(dt_backend *b, void *arg) {
    lazy_call *c = arg;
    c->run.in = c->in;
    c->run.out = c->out;
    c->run.packed = c->packed;
    lazy_cpu_kernel(c->instance)->run(c->instance, &c->run);
}

// Packing is queued too.
typedef struct lazy_pack {
    dt_backend *b;
    void (*pack)(const void *ctx, const float *const *dense, void *packed, int threads,
                 void *stream);
    const void *ctx;
} lazy_pack;

typedef struct lazy_pack_call {
    const lazy_pack *of;
    const float *dense[6];
    void *packed;
    int threads;
} lazy_pack_call;

static inline void lazy_run_pack(dt_backend *b, void *arg) {
    const lazy_pack_call *c = arg;
    c->of->pack(c->of->ctx, c->dense, c->packed, c->threads, NULL);
}

static inline void lazy_pack_on(const void *ctx, const float *const *dense, void *packed,
                                int threads, void *stream) {
    lazy_pack_call c = {.of = ctx, .packed = packed, .threads = threads};
    memcpy(c.dense, dense, sizeof c.dense);
    lazy_queue(c.of->b, stream, lazy_run_pack, &c, sizeof c);
}

static inline dt_status lazy_prepare(dt_kernel_instance *s) {
    dt_backend *b = s->backend;
    lazy_self *l = lazy(b);
    const dt_kernel *k = lazy_cpu_kernel(s);
    s->backend = l->cpu; // of which its kernels ask more than the table has
    const dt_status st = k->prepare(s);
    s->backend = b;
    DT_TRY(st);
    for (int i = 0; i < s->n_packs; i++) {
        lazy_pack *p = dt_xcalloc(1, sizeof *p);
        *p = (lazy_pack){s->backend, s->packs[i].pack, s->packs[i].ctx};
        if (l->n_packs == LAZY_PACKS) abort();
        l->packs[l->n_packs++] = p;
        s->packs[i].pack = lazy_pack_on;
        s->packs[i].ctx = p;
    }
    return DT_OK;
}

static inline void lazy_run_kernel(const dt_kernel_instance *s, const dt_run *r) {
    lazy_call c = {.instance = s, .run = *r};
    if (s->node->n_in > 64 || s->node->n_out > 64) abort();
    memcpy(c.in, r->in, sizeof *c.in * (size_t)s->node->n_in);
    memcpy(c.out, r->out, sizeof *c.out * (size_t)s->node->n_out);
    memcpy(c.packed, r->packed, sizeof *c.packed * (size_t)s->n_packs);
    lazy_queue(s->backend, r->stream, lazy_run_call, &c, sizeof c);
}

static inline void lazy_destroy_kernel(dt_kernel_instance *s) {
    if (lazy_cpu_kernel(s)->destroy) lazy_cpu_kernel(s)->destroy(s);
}

static inline const dt_kernel *lazy_kernel(const dt_backend *b, dt_op op, bool backward) {
    static const dt_kernel k = {lazy_prepare, lazy_run_kernel, lazy_destroy_kernel};
    dt_backend *cpu = ((lazy_self *)b->self)->cpu;
    return cpu->kernel(cpu, op, backward) ? &k : NULL;
}

typedef struct lazy_reorder_call {
    int threads;
    dt_shape shape;
    const void *src;
    void *dst;
    dt_dtype src_type, dst_type;
    dt_layout src_layout, dst_layout;
} lazy_reorder_call;

static inline void lazy_run_reorder(dt_backend *b, void *arg) {
    const lazy_reorder_call *c = arg;
    dt_backend *cpu = lazy(b)->cpu;
    cpu->reorder(cpu, c->threads, &c->shape, c->src, c->src_type, c->src_layout, c->dst,
                 c->dst_type, c->dst_layout, NULL);
}

static inline void lazy_reorder(dt_backend *b, int threads, const dt_shape *shape, const void *src,
                                dt_dtype src_type, dt_layout src_layout, void *dst,
                                dt_dtype dst_type, dt_layout dst_layout, void *stream) {
    lazy_reorder_call c = {threads, *shape, src, dst, src_type, dst_type, src_layout, dst_layout};
    lazy_queue(b, stream, lazy_run_reorder, &c, sizeof c);
}

// ---- the end of a step, as backend.h and step_block.h say -------------------------------------------

static int64_t lazy_spoiled_step = -1; // whose update overflows

typedef struct lazy_commit {
    dt_commit_args a;
    double *partial;
} lazy_commit;

static inline dt_status lazy_commit_create(dt_backend *b, const dt_commit_args *a, void **commit) {
    lazy_commit *c = dt_xcalloc(1, sizeof *c);
    c->a = *a;
    c->partial = dt_xcalloc((size_t)(a->n_trained / DT_CHUNK) + 2, sizeof *c->partial);
    *commit = c;
    return DT_OK;
}

static inline void lazy_commit_destroy(dt_backend *b, void *commit) {
    free(((lazy_commit *)commit)->partial);
    free(commit);
}

static inline void lazy_apply(dt_backend *cpu, lazy_commit *c, const float *grad, double norm,
                              double weight) {
    const dt_commit_args *a = &c->a;
    dt_device_step *d = a->step;
    double clip = 1.0;
    if (a->clip_norm > 0.0f && norm > (double)a->clip_norm)
        clip = (double)a->clip_norm / (norm + 1e-6);
    dt_optimizer_args o = a->optimizer;
    o.grad = grad;
    o.grad_scale = (float)(clip / weight / (double)d->block.loss_scale);
    o.lr = d->step == lazy_spoiled_step ? INFINITY : d->lr;
    o.t = d->step + 1 - d->n_skipped;
    if (!whole_optimizer(cpu, o, a->n_trained)) d->spoiled = 1;
    float inverse = 1.0f / (float)a->n_micro;
    for (int i = 0; i < a->n_rules; i++) {
        const dt_commit_rule *r = &a->rules[i];
        for (int64_t k = 0; k < r->count; k++) {
            float *x = &a->buffer[r->buffer + k];
            *x = (1.0f - r->momentum) * *x + r->momentum * (grad[r->stat + k] * inverse);
        }
    }
}

static inline void lazy_move_scale(const dt_commit_args *a, bool finite) {
    dt_device_step *d = a->step;
    if (!finite) {
        d->n_skipped++;
        d->clean_steps = 0;
        d->block.loss_scale *= 0.5f;
    } else if (++d->clean_steps == a->growth_interval) {
        d->clean_steps = 0;
        if (d->block.loss_scale < 16777216.0f) d->block.loss_scale *= 2.0f;
    }
}

typedef struct lazy_commit_call {
    lazy_commit *commit;
    const float *grad;
} lazy_commit_call;

static inline void lazy_run_commit(dt_backend *b, void *arg) {
    const lazy_commit_call *call = arg;
    const dt_commit_args *a = &call->commit->a;
    const float *grad = call->grad;
    dt_device_step *d = a->step;
    dt_backend *cpu = lazy(b)->cpu;
    double *partial = call->commit->partial, sum = 0;
    int64_t n_chunks = (a->n_trained + DT_CHUNK - 1) / DT_CHUNK;
    cpu->flat_sum_squares(cpu, grad, a->n_trained, partial, 0, n_chunks);
    for (int64_t c = 0; c < n_chunks; c++) sum += partial[c];
    double weight = (double)grad[a->weight_at];
    double norm = sqrt(sum) / weight / (double)d->block.loss_scale;
    dt_step_numbers n = {.loss = (double)grad[a->loss_at],
                         .weight = weight,
                         .grad_norm = norm,
                         .loss_scale = d->block.loss_scale,
                         .stop = (int32_t)grad[a->stop_at],
                         .drop = (int32_t)grad[a->drop_at]};
    bool finite = isfinite(n.loss / weight) && isfinite(norm);
    n.spoiled = d->spoiled;
    if (d->spoiled || n.drop || (!finite && (!a->growth_interval || d->block.loss_scale <= 1)))
        d->halted = 1;
    if (!d->halted) {
        n.finite = finite;
        if (finite) lazy_apply(cpu, call->commit, grad, norm, weight);
        if (a->growth_interval) lazy_move_scale(a, finite);
    }
    n.next_scale = d->block.loss_scale;
    n.clean_steps = d->clean_steps;
    n.n_skipped = d->n_skipped;
    n.halted = d->halted;
    n.step = d->step;
    a->numbers[d->step % DT_NUMBERS_RING] = n;
}

static inline void lazy_commit_on(dt_backend *b, void *commit, const float *grad, void *stream) {
    lazy_queue(b, stream, lazy_run_commit, &(lazy_commit_call){commit, grad},
               sizeof(lazy_commit_call));
}

// ---- the table -------------------------------------------------------------------------------------

static atomic_int lazy_n_taken; // by all that were made
static inline dt_status lazy_alloc(dt_backend *b, void **p, size_t n_bytes, const char *what) {
    lazy(b)->n_allocs++;
    lazy_n_taken++; // ranks are threads
    lazy(b)->used += n_bytes;
    return lazy(b)->cpu->alloc(lazy(b)->cpu, p, n_bytes, what);
}
static inline void lazy_free(dt_backend *b, void *p, size_t n_bytes) {
    lazy(b)->used -= n_bytes;
    lazy(b)->cpu->free(lazy(b)->cpu, p, n_bytes);
}
static inline void lazy_copy_now(dt_backend *b, void *dst, const void *src, size_t n_bytes) {
    memcpy(dst, src, n_bytes);
}
static inline bool lazy_supports(const dt_backend *b, dt_dtype t) {
    return true;
}
static inline const char *lazy_describe(const dt_backend *b) {
    return "lazy";
}
static size_t lazy_free_bytes = (size_t)1 << 40;
static inline void lazy_memory(dt_backend *b, size_t *free_bytes, size_t *total_bytes) {
    const size_t used = lazy(b)->used;
    *total_bytes = lazy_free_bytes;
    *free_bytes = used < lazy_free_bytes ? lazy_free_bytes - used : 0;
}
static inline void lazy_destroy(dt_backend *b) {
    lazy(b)->cpu->destroy(lazy(b)->cpu);
    for (int i = 0; i < lazy(b)->n_packs; i++) free(lazy(b)->packs[i]);
    free(b->self);
    free(b);
}

static inline dt_status lazy_backend_create(dt_backend **out, const struct dt_nccl_api *nccl) {
    dt_backend_opts o = {.threads = 1, .deterministic = true};
    dt_backend *b = dt_xcalloc(1, sizeof *b);
    lazy_self *l = dt_xcalloc(1, sizeof *l);
    DT_TRY(dt_backend_create_cpu(&l->cpu, &o));
    l->device = (dt_device){.nccl = nccl,
                            .memory = lazy_memory,
                            .stream_create = lazy_stream_create,
                            .stream_destroy = lazy_stream_destroy,
                            .synchronize = lazy_synchronize,
                            .stream_done = lazy_stream_done,
                            .stream_wait = lazy_stream_wait,
                            .copy_in = lazy_copy_on,
                            .copy_out = lazy_copy_on,
                            .add = lazy_add,
                            .capture_begin = lazy_capture_begin,
                            .capture_end = lazy_capture_end,
                            .graph_launch = lazy_graph_launch,
                            .graph_destroy = lazy_graph_destroy,
                            .commit_create = lazy_commit_create,
                            .commit_run = lazy_commit_on,
                            .commit_destroy = lazy_commit_destroy};
    *b = (dt_backend){.name = "cuda",
                      .device = &l->device,
                      .self = l,
                      .threads = 1,
                      .supports_dtype = lazy_supports,
                      .computes_dtype = lazy_supports,
                      .describe = lazy_describe,
                      .alloc = lazy_alloc,
                      .free = lazy_free,
                      .alloc_host = lazy_alloc,
                      .free_host = lazy_free,
                      .copy_to_device = lazy_copy_now,
                      .copy_to_host = lazy_copy_now,
                      .kernel = lazy_kernel,
                      .reorder = lazy_reorder,
                      .destroy = lazy_destroy};
    *out = b;
    return DT_OK;
}

#endif
