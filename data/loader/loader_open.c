// loader_open.c: a loader from a request: order, ring, threads; and how many slots and threads it has while it runs.
//
// The ring's slots are allocated one by one, so that tune() can add some later. Their memory comes from the
// backend, which may pin it (without a backend: plain memory). A trainer that is fed evenly needs
// two batches for each worker thread that computes, and two more. More slots help only where batches take unequal
// time; the tuner tries that while training runs.
#include "loader_internal.h"

#include "base/core.h"
#include "base/log.h"
#include "base/thread.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    AUTO_RING_BYTES = 256 << 20,
    MIN_SLOTS = 4,
    MORE_SLOTS = 4, // times as many may be asked for while running
    ALIGN = 64,
    AHEAD_BYTES = 64 << 20,
    AUTO_READERS = 4, // a worker
    MIN_READERS = 8,
    URL_READERS = 32, // a host: 32 MiB on the way are 600 MB/s at 50 ms
    MAX_READERS = 128
};

// The next n bytes of a slot. p NULL: only counts.
static void *carve(uint8_t *p, size_t *at, size_t n) {
    void *here = p ? p + *at : NULL;
    *at += (n + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

// Lays a slot out in memory p and returns the slot's bytes. p NULL: only counts them.
static size_t loader_open_lay_out(const loader *l, slot *s, uint8_t *p) {
    size_t n = (size_t)l->r.micro_batch, at = 0;
    for (int i = 0; i < l->d->fields.n; i++) {
        const dt_field_info *f = &l->d->fields.info[i];
        size_t n_steps = l->r.augment ? (size_t)f->n_steps : 0, n_field = n * l->d->fields.f[i].sample_bytes;
        s->field[i] = s->batch.field[i] = carve(p, &at, n_field);
        if (n_steps) s->batch.steps[i] = carve(p, &at, n * n_steps * sizeof(dt_pixel_step));
        if (!l->mix) continue;
        // beside the samples themselves: a plan for images, shares for classes, mixed values for numbers
        if (f->is_image && f->mixed) s->batch.mix[i] = carve(p, &at, n * sizeof(dt_mix_row));
        if (!f->is_image)
            s->batch.field[i] = carve(p, &at, f->soft ? n * (size_t)f->n_classes * sizeof(float) : n_field);
    }
    s->batch.weight = carve(p, &at, n * sizeof(float));
    s->batch.sample = carve(p, &at, n * sizeof(int64_t));
    return at;
}

// As many slots as the memory limit allows, unless the replicas need more.
static int auto_slots(const loader *l) {
    int replicas = dt_usable_cores();
    if (replicas > l->r.n_micro) replicas = l->r.n_micro;
    // each worker group holds a batch and finds the next one ready
    int64_t most = (int64_t)(AUTO_RING_BYTES / l->slot_bytes), n = 2 * (int64_t)replicas + 2;
    if (n > most) n = most;
    if (n < replicas + 2) n = replicas + 2;
    return n < MIN_SLOTS ? MIN_SLOTS : (int)n;
}

static dt_status make_slot(loader *l, slot *s) {
    const dt_batch_memory *m = &l->d->memory;
    void *p = NULL;
    DT_TRY(m->alloc(m->owner, &p, l->slot_bytes, "batch ring"));
    memset(p, 0, l->slot_bytes);
    s->memory = p;
    s->batch.why = dt_xcalloc((size_t)l->r.micro_batch, sizeof *s->batch.why);
    loader_open_lay_out(l, s, p);
    return DT_OK;
}

// Allocates slots until n have memory. Not under the lock: nobody looks at a slot before n_slots counts it.
static dt_status make_slots(loader *l, int n) {
    for (; l->n_made < n; l->n_made++) DT_TRY(make_slot(l, &l->slots[l->n_made]));
    return DT_OK;
}

static dt_status make_ring(loader *l) {
    l->slot_bytes = loader_open_lay_out(l, &(slot){0}, NULL); // counts alone
    int n = l->d->n_prefetch > 0 ? l->d->n_prefetch : auto_slots(l);
    int64_t most = (int64_t)(AUTO_RING_BYTES / l->slot_bytes), more = (int64_t)MORE_SLOTS * n;
    if (more > most) more = most;
    // data.prefetch is a decision; the tuner may raise auto
    l->max_slots = l->d->n_prefetch > 0 || more < n ? n : (int)more;
    l->slots = dt_xcalloc((size_t)l->max_slots, sizeof *l->slots);
    l->n_slots = n;
    return make_slots(l, n);
}

static bool loader_open_sample_at(const void *ctx, int64_t at, uint32_t *sample) {
    const loader *l = ctx;
    int64_t q = at / l->r.micro_batch;
    if (q >= l->end_q) return false;
    *sample = dt_loader_place(l, q / l->r.n_micro, l->micros[q % l->r.n_micro], (int)(at % l->r.micro_batch)).sample;
    return true;
}

static dt_status make_ahead(loader *l) {
    int n = l->d->n_readers >= 0 ? l->d->n_readers : AUTO_READERS * l->n_workers;
    const int fetching = dt_data_has_objects(l->d) ? URL_READERS / l->d->cache.n_processes : 0;
    if (l->d->n_readers < 0 && n < fetching) n = fetching; // the ranks of a host share the way to the server
    if (l->d->n_readers < 0 && n < MIN_READERS) n = MIN_READERS;
    if (n > MAX_READERS) n = MAX_READERS;
    dt_ahead_opts o = {.d = l->d,
                       .sample_at = loader_open_sample_at,
                       .ctx = l,
                       .start = l->next_q * l->r.micro_batch,
                       .n_readers = n,
                       .max_readers = n == 0 ? 0 : MAX_READERS,
                       .at_once = fetching > 0,
                       .always = l->d->n_readers > 0,
                       .cap_bytes = AHEAD_BYTES};
    return dt_ahead_create(&l->ahead, &o);
}

static void set_workers(loader *l, int n) {
    l->n_workers = n;
    // each worker takes one unit of a batch, so that it is ready soonest
    l->unit = n > 0 ? (l->r.micro_batch + n - 1) / n : 1;
}

static dt_status make_workers(loader *l) {
    int cores = dt_usable_cores();
    set_workers(l, l->base.n_samples > 0 ? l->d->n_workers : 0);
    l->max_workers = l->n_workers == 0 || l->n_workers > cores ? l->n_workers : cores;
    size_t n_bytes = (size_t)(l->max_workers + 1) * sizeof *l->workers;
    l->workers = aligned_alloc(_Alignof(worker), n_bytes);
    if (!l->workers) return dt_fail(DT_E_INTERNAL, "out of memory");
    memset(l->workers, 0, n_bytes);
    return DT_OK;
}

// Starts threads up to n_workers; returns how many run. Under the lock.
static int start_workers(loader *l) {
    while (l->n_started < l->n_workers) {
        worker *w = &l->workers[l->n_started];
        w->loader = l;
        w->index = l->n_started;
        dt_sample_scratch_init(&w->scratch);
        if (pthread_create(&w->thread, NULL, dt_loader_work, w) != 0) {
            dt_sample_scratch_fini(&w->scratch);
            break;
        }
        l->n_started++; // reports read the worker's scratch from now on
    }
    return l->n_started;
}

static dt_status set_order(loader *l) {
    const dt_splits *s = &l->d->splits;
    l->training = l->r.split == DT_SPLIT_TRAIN && !l->r.in_order; // in_order: evaluation of the training split
    l->mix = l->r.augment ? l->d->mix : NULL;
    l->samples = s->sample[l->r.split];
    l->base.n_samples = s->n[l->r.split];
    int64_t n = l->base.n_samples, g = l->r.global_batch;
    // training drops the incomplete batch, evaluation pads it
    l->base.steps_per_epoch = l->training ? n / g : (n + g - 1) / g;
    if (l->training && l->base.steps_per_epoch == 0)
        return dt_fail(DT_E_USAGE, "train.global_batch is %lld, but the training split has only %lld samples: lower it",
                       (long long)g, (long long)n);
    int64_t end = l->r.end_step;
    if (!l->training && (end < 0 || end > l->base.steps_per_epoch)) end = l->base.steps_per_epoch;
    l->next_q = l->r.start_step * l->r.n_micro;
    // places are q * micro_batch: they stay below 2^63
    l->end_q = end < 0 ? INT64_MAX / l->r.micro_batch : end * l->r.n_micro;
    return DT_OK;
}

static void take_request(loader *l, const dt_source_request *r) {
    int n_micros_total = r->global_batch / r->micro_batch;
    l->r = *r;
    l->micros = dt_xcalloc((size_t)r->n_micro, sizeof *l->micros);
    l->position = dt_xcalloc((size_t)n_micros_total, sizeof *l->position);
    for (int i = 0; i < n_micros_total; i++) l->position[i] = -1;
    for (int i = 0; i < r->n_micro; i++) {
        assert(r->micros[i] >= 0 && r->micros[i] < n_micros_total); // the micro-batches of this rank
        l->micros[i] = r->micros[i];
        l->position[r->micros[i]] = i;
    }
    l->r.micros = l->micros;
}

static int loader_open_within(int v, int low, int high) {
    return v < low ? low : v > high ? high : v;
}

static void tune(dt_batch_source *base, const dt_source_tuning *t) {
    loader *l = base->self;
    int n_slots = t->slots > 0 ? loader_open_within(t->slots, 2, l->max_slots) : l->n_slots;
    if (make_slots(l, n_slots) != DT_OK) { // as many as there is memory for
        dt_error_clear();
        n_slots = l->n_made;
    }
    pthread_mutex_lock(&l->lock);
    l->n_slots = n_slots;
    if (t->workers > 0 && l->max_workers > 0) {
        set_workers(l, loader_open_within(t->workers, 1, l->max_workers));
        set_workers(l, loader_open_within(l->n_workers, 1, start_workers(l))); // fewer, if a thread cannot be started
    }
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    if (t->readers > 0) dt_ahead_set_readers(l->ahead, t->readers);
}

static void report_cache(loader *l) {
    dt_source_stats s;
    dt_loader_stats(&l->base, &s);
    uint64_t n = s.cache.n_hits + s.cache.n_misses;
    if (n > 0 && l->training)
        dt_info("data: cache %s: %.1f %% of %llu look-ups found their bytes; it holds %.1f MiB in "
                "%llu entries%s",
                DT_WORD_OF(DT_CACHE_WORDS, s.cache.kind), 100.0 * (double)s.cache.n_hits / (double)n,
                (unsigned long long)n, (double)s.cache.n_bytes / 1048576.0, (unsigned long long)s.cache.n_entries,
                s.cache.full ? " and is full" : "");
}

static void close_loader(dt_batch_source *base) {
    loader *l = base->self;
    if (l->ahead) report_cache(l); // NULL: opening has failed
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_started; i++) {
        pthread_join(l->workers[i].thread, NULL);
        dt_sample_scratch_fini(&l->workers[i].scratch);
    }
    dt_ahead_destroy(l->ahead);
    for (int i = 0; i < l->n_made; i++) {
        const dt_batch_memory *m = &l->d->memory;
        for (int j = 0; j < l->r.micro_batch; j++) free(l->slots[i].batch.why[j]);
        free(l->slots[i].batch.why);
        m->free(m->owner, l->slots[i].memory, l->slot_bytes);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->idle);
    free(l->slots);
    free(l->workers);
    free(l->micros);
    free(l->position);
    free(l);
}

dt_status dt_loader_open(dt_batch_source **out, dt_data *d, const dt_source_request *r) {
    assert(r->micro_batch > 0 && r->global_batch % r->micro_batch == 0 && r->n_micro > 0);
    loader *l = dt_xcalloc(1, sizeof *l);
    l->d = d;
    dt_data_cache_open(d);
    take_request(l, r);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_cond_init(&l->idle, NULL);
    l->base = (dt_batch_source){.self = l,
                                .n_fields = d->fields.n,
                                .fields = d->fields.info,
                                .get = dt_loader_get,
                                .release = dt_loader_release,
                                .seek = dt_loader_seek,
                                .stats = dt_loader_stats,
                                .tune = tune,
                                .close = close_loader};
    dt_status st = set_order(l);
    if (st == DT_OK) st = make_ring(l);
    if (st == DT_OK) st = make_workers(l);
    if (st == DT_OK) st = make_ahead(l);
    pthread_mutex_lock(&l->lock);
    const int n = st == DT_OK ? start_workers(l) : 0;
    pthread_mutex_unlock(&l->lock);
    if (st == DT_OK && n < l->n_workers)
        st = dt_fail(DT_E_INTERNAL, "cannot start loader thread %d of %d: lower data.workers", n + 1, l->n_workers);
    if (st != DT_OK) {
        close_loader(&l->base);
        return st;
    }
    *out = &l->base;
    return DT_OK;
}
