// loader.c: worker threads that fill a ring of batch slots ahead of the trainer.
//
// What is made when is a sequence q = 0, 1, …: leaf `q % n_leaves` of step `q / n_leaves`, in the order
// in which the trainer wants them. One slot is being filled at a time, its samples handed out to
// workers in units; when all are handed out, the next free slot is given to the next q. So the first
// batch is made by all workers together, and memory is bounded by the ring: workers sleep while no slot
// is free. A slot is FREE, FILLING, READY (get() may take it) or HELD (until release).
//
// Which sample lies where is a function of (seed, epoch, slot) only. Under data.on_error: skip, a
// sample that cannot be read is replaced by the first readable one of a fixed sequence of its own
// (drawn by Philox from its index and epoch): no other place changes. In evaluation the place keeps
// weight 0, so nothing is counted twice. Otherwise get() gives the error to the lane that asked, and,
// as that lane ends, to every other one that would have to wait.
//
// One mutex guards the table of slots; it is taken once a unit, never inside a sample. Memory is
// allocated when the loader opens and not again.
#include "data/dataset.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_REPLACEMENTS = 256,
    AUTO_RING_BYTES = 256 << 20,
    MIN_SLOTS = 4,
    ALIGN = 64,
    MESSAGE_BYTES = 1024,
    STUCK_S = 30
};

typedef enum slot_state { FREE, FILLING, READY, HELD } slot_state;

typedef struct slot {
    dt_batch batch; // first: release() gets it back as a slot
    slot_state state;
    int64_t q;
    int n_given, n_left; // samples handed out; samples not finished
    dt_status status;    // of the first sample that failed
    char message[MESSAGE_BYTES];
} slot;

typedef struct worker {
    struct loader *loader;
    pthread_t thread;
    dt_sample_scratch scratch;
} worker;

typedef struct loader {
    dt_batch_source base;
    dt_data *d;
    dt_source_request r;
    int *leaves, *position;  // position[leaf] in leaves, or -1
    const uint32_t *samples; // of the split
    bool training;

    pthread_mutex_t lock;
    pthread_cond_t work, ready, idle;
    slot *slots;
    int n_slots, unit; // unit: samples a worker takes at once
    slot *filling;
    int64_t next_q, end_q;
    int n_busy;
    bool paused, stopping;
    const slot
        *failed; // given out as an error: its lane takes no more, so the others must not wait

    worker *workers;
    int n_workers;
    uint8_t *memory;
    size_t n_memory;
    // under the lock
    uint64_t n_batches, n_samples, n_waits;
    double wait_s, wait_read_s, wait_decode_s;
} loader;

// ---- which sample --------------------------------------------------------------------------------
typedef struct place {
    uint32_t sample, epoch; // view index
    float weight;
} place;

static place place_of(const loader *l, const slot *s, int j) {
    int64_t within = (int64_t)s->batch.leaf * l->r.micro_batch + j, n = l->base.n_samples;
    if (l->training) {
        int64_t epoch = s->batch.step / l->base.steps_per_epoch;
        int64_t i = s->batch.step % l->base.steps_per_epoch * l->r.global_batch + within;
        uint64_t at = dt_sampler_index(&l->d->sampler, (uint64_t)epoch, (uint64_t)i);
        return (place){l->samples[at], (uint32_t)epoch, 1};
    }
    int64_t i = s->batch.step * l->r.global_batch + within;
    return (place){l->samples[i < n ? i : n - 1], 0, i < n ? 1 : 0};
}

// The record is listed the first time, whatever the epoch.
static void note_skip(dt_data *d, uint32_t record, const char *message) {
    dt_skips *k = &d->skips;
    pthread_mutex_lock(&k->lock);
    bool first = !(k->seen[record / 8] & 1u << record % 8);
    k->seen[record / 8] |= (uint8_t)(1u << record % 8);
    k->n++;
    if (first) dt_warn("skipped: %s", message);
    int fd;
    if (first && k->log_path && dt_io_open_append(&fd, k->log_path) == DT_OK) {
        const dt_catalog *c = d->set->catalog;
        dt_json j;
        dt_json_init(&j);
        dt_json_begin_object(&j, NULL);
        dt_json_string(&j, "file", c->shards[c->records[record].shard].path);
        dt_json_string(&j, "record", dt_catalog_str(c, c->records[record].key));
        dt_json_string(&j, "reason", message);
        dt_json_end_object(&j);
        dt_json_newline(&j);
        if (dt_io_write(fd, k->log_path, j.data, j.n_bytes) != DT_OK)
            dt_warn("%s", dt_error_message());
        dt_io_close(fd, k->log_path);
        dt_json_fini(&j);
    }
    pthread_mutex_unlock(&k->lock);
}

static dt_status fill_replaced(loader *l, worker *w, slot *s, int j, place *p) {
    dt_rng rng = {l->d->seed, p->sample, p->epoch, dt_hash32("data.replace")};
    dt_status st = DT_E_DATA;
    for (uint32_t a = 0; a < MAX_REPLACEMENTS && st == DT_E_DATA; a++) {
        note_skip(l->d, w->scratch.bad_record, dt_error_message());
        __atomic_store_n(&w->scratch.n_skipped, w->scratch.n_skipped + 1, __ATOMIC_RELAXED);
        p->sample = l->samples[dt_rng_below(&rng, a, (uint32_t)l->base.n_samples)];
        st =
            dt_sample_fill(l->d, &w->scratch, p->sample, p->epoch, l->r.augment, s->batch.field, j);
    }
    if (!l->training) p->weight = 0;
    return st == DT_E_DATA ? dt_fail_context(st, "%d records in a row cannot be read; the last",
                                             MAX_REPLACEMENTS)
                           : st;
}

static dt_status fill(loader *l, worker *w, slot *s, int j) {
    place p = place_of(l, s, j);
    dt_status st =
        dt_sample_fill(l->d, &w->scratch, p.sample, p.epoch, l->r.augment, s->batch.field, j);
    if (st == DT_E_DATA && l->d->skip) st = fill_replaced(l, w, s, j, &p);
    s->batch.sample[j] = p.sample;
    s->batch.weight[j] = p.weight;
    return st;
}

// ---- workers -------------------------------------------------------------------------------------
static void start_slot(loader *l, slot *s) {
    int n_leaves = l->r.n_leaves;
    s->q = l->next_q++;
    s->batch.step = s->q / n_leaves;
    s->batch.leaf = l->leaves[s->q % n_leaves];
    s->batch.n = l->r.micro_batch;
    s->n_given = 0;
    s->n_left = l->r.micro_batch;
    s->status = DT_OK;
    s->state = FILLING;
    l->filling = s;
}

// A unit of the slot that is being filled, or of the next one; NULL when there is nothing to do.
static slot *claim(loader *l, int *begin, int *end) {
    if (l->paused) return NULL;
    if (!l->filling) {
        slot *s = NULL;
        for (int i = 0; i < l->n_slots && !s; i++)
            if (l->slots[i].state == FREE) s = &l->slots[i];
        if (!s || l->next_q >= l->end_q) return NULL;
        start_slot(l, s);
    }
    slot *s = l->filling;
    *begin = s->n_given;
    *end = *begin + l->unit < s->batch.n ? *begin + l->unit : s->batch.n;
    s->n_given = *end;
    if (*end == s->batch.n) l->filling = NULL;
    return s;
}

static void finish_unit(loader *l, slot *s, int n, dt_status st, const char *message) {
    if (st != DT_OK && s->status == DT_OK) {
        s->status = st;
        snprintf(s->message, sizeof s->message, "%s", message);
    }
    s->n_left -= n;
    if (s->n_left > 0) return;
    s->batch.n_valid = 0;
    for (int j = 0; j < s->batch.n; j++) s->batch.n_valid += s->batch.weight[j] > 0;
    s->state = READY;
    pthread_cond_broadcast(&l->ready);
}

static void *work(void *arg) {
    worker *w = arg;
    loader *l = w->loader;
    int begin = 0, end = 0;
    dt_thread_name("dt-load");
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        slot *s = claim(l, &begin, &end);
        if (!s) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        l->n_busy++;
        pthread_mutex_unlock(&l->lock);
        dt_status st = DT_OK;
        for (int j = begin; j < end && st == DT_OK; j++) st = fill(l, w, s, j);
        pthread_mutex_lock(&l->lock);
        finish_unit(l, s, end - begin, st, dt_error_message());
        if (--l->n_busy == 0) pthread_cond_broadcast(&l->idle);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

// ---- the table -------------------------------------------------------------------------------------
static slot *find(loader *l, int64_t q) {
    for (int i = 0; i < l->n_slots; i++)
        if (l->slots[i].state != FREE && l->slots[i].q == q) return &l->slots[i];
    return NULL;
}

static bool any_in(const loader *l, slot_state a, slot_state b) {
    for (int i = 0; i < l->n_slots; i++)
        if (l->slots[i].state == a || l->slots[i].state == b) return true;
    return false;
}

static void phases(const loader *l, double *read_s, double *decode_s) {
    uint64_t r = 0, d = 0;
    for (int i = 0; i < l->n_workers; i++) {
        const dt_sample_scratch *w = &l->workers[i].scratch;
        r += __atomic_load_n(&w->read_ns, __ATOMIC_RELAXED);
        d += __atomic_load_n(&w->decode_ns, __ATOMIC_RELAXED) +
             __atomic_load_n(&w->augment_ns, __ATOMIC_RELAXED);
    }
    *read_s = (double)r * 1e-9;
    *decode_s = (double)d * 1e-9;
}

// Nothing moves: every slot is READY for someone else. Another lane will take one soon, unless this
// batch was asked for out of order.
static bool is_stuck(loader *l, int64_t q) {
    return !find(l, q) && !any_in(l, FREE, FILLING) && !any_in(l, HELD, HELD);
}

static bool wait_a_second(loader *l) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    return pthread_cond_timedwait(&l->ready, &l->lock, &until) == ETIMEDOUT;
}

// Waits until slot q is READY. Under the lock.
static dt_status await(loader *l, int64_t q, slot **out) {
    for (int stuck_s = 0;;) {
        slot *s = find(l, q);
        if (s && s->state == READY) {
            *out = s;
            return DT_OK;
        }
        if (l->failed) return dt_fail(l->failed->status, "%s", l->failed->message);
        bool past = q < l->next_q && (!s || s->state == HELD), beyond = q >= l->end_q;
        if (past || beyond || stuck_s >= STUCK_S)
            return dt_fail(DT_E_INTERNAL, "batch of step %lld is %s",
                           (long long)(q / l->r.n_leaves),
                           past     ? "already given out (seek first)"
                           : beyond ? "beyond the end of the request"
                                    : "out of order: the ring holds only others");
        if (!is_stuck(l, q))
            pthread_cond_wait(&l->ready, &l->lock);
        else if (wait_a_second(l))
            stuck_s++;
    }
}

static void note_wait(loader *l, double waited, const double before[2]) {
    double after[2];
    phases(l, &after[0], &after[1]);
    double read = after[0] - before[0], decode = after[1] - before[1], all = read + decode;
    l->n_waits++;
    l->wait_s += waited;
    if (all > 0) {
        l->wait_read_s += waited * read / all;
        l->wait_decode_s += waited * decode / all;
    }
}

static dt_status get(dt_batch_source *base, int64_t step, int leaf, const dt_batch **out,
                     double *wait_s) {
    loader *l = base->self;
    *out = NULL;
    if (wait_s) *wait_s = 0;
    bool ours = leaf >= 0 && leaf < l->r.global_batch / l->r.micro_batch && l->position[leaf] >= 0;
    if (!ours || step < 0)
        return dt_fail(DT_E_INTERNAL,
                       "leaf %d of step %lld was not asked for when the source was opened", leaf,
                       (long long)step);
    int64_t q = step * l->r.n_leaves + l->position[leaf];
    slot *s = NULL;
    dt_status st = DT_OK;
    pthread_mutex_lock(&l->lock);
    slot *have = find(l, q);
    if (have && have->state == READY)
        s = have;
    else {
        double before[2], t = dt_clock_s();
        phases(l, &before[0], &before[1]);
        st = await(l, q, &s);
        double waited = dt_clock_s() - t;
        if (wait_s) *wait_s = waited;
        note_wait(l, waited, before);
    }
    if (st == DT_OK && s->status != DT_OK) {
        st = dt_fail(s->status, "%s", s->message);
        l->failed = s;
        pthread_cond_broadcast(&l->ready);
    }
    if (st == DT_OK) {
        s->state = HELD;
        l->n_batches++;
        l->n_samples += (uint64_t)s->batch.n_valid;
        *out = &s->batch;
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}

static void release(dt_batch_source *base, const dt_batch *b) {
    loader *l = base->self;
    slot *s = (slot *)(uintptr_t)b; // batch is the slot's first member
    pthread_mutex_lock(&l->lock);
    assert(s->state == HELD);
    s->state = FREE;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

static dt_status seek(dt_batch_source *base, int64_t step) {
    loader *l = base->self;
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->n_busy > 0) pthread_cond_wait(&l->idle, &l->lock);
    for (int i = 0; i < l->n_slots; i++)
        if (l->slots[i].state != HELD)
            l->slots[i].state = FREE;
        else
            l->slots[i].q = -1;
    l->filling = NULL;
    l->failed = NULL;
    l->next_q = step * l->r.n_leaves;
    l->paused = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return DT_OK;
}

static void stats(dt_batch_source *base, dt_source_stats *out) {
    loader *l = base->self;
    pthread_mutex_lock(&l->lock);
    *out = (dt_source_stats){.n_batches = l->n_batches,
                             .n_samples = l->n_samples,
                             .n_waits = l->n_waits,
                             .wait_s = l->wait_s,
                             .wait_read_s = l->wait_read_s,
                             .wait_decode_s = l->wait_decode_s,
                             .n_workers = l->n_workers,
                             .ring_slots = l->n_slots,
                             .ring_bytes = l->n_memory};
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_workers; i++) {
        const dt_sample_scratch *w = &l->workers[i].scratch;
        out->n_skipped += __atomic_load_n(&w->n_skipped, __ATOMIC_RELAXED);
        out->n_bytes_read += __atomic_load_n(&w->n_bytes, __ATOMIC_RELAXED);
        out->read_s += (double)__atomic_load_n(&w->read_ns, __ATOMIC_RELAXED) * 1e-9;
        out->decode_s += (double)__atomic_load_n(&w->decode_ns, __ATOMIC_RELAXED) * 1e-9;
        out->augment_s += (double)__atomic_load_n(&w->augment_ns, __ATOMIC_RELAXED) * 1e-9;
    }
}

static void close_loader(dt_batch_source *base) {
    loader *l = base->self;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_workers; i++) {
        pthread_join(l->workers[i].thread, NULL);
        dt_sample_scratch_fini(&l->workers[i].scratch);
    }
    if (l->memory && l->d->backend)
        l->d->backend->free_host(l->d->backend, l->memory, l->n_memory);
    else
        free(l->memory);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_cond_destroy(&l->idle);
    free(l->slots);
    free(l->workers);
    free(l->leaves);
    free(l->position);
    free(l);
}

// ---- opening ---------------------------------------------------------------------------------------
static size_t padded(size_t n) {
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t slot_bytes(const loader *l) {
    size_t n = (size_t)l->r.micro_batch,
           sum = padded(n * sizeof(float)) + padded(n * sizeof(int64_t));
    for (int i = 0; i < l->d->fields.n; i++) sum += padded(n * l->d->fields.f[i].sample_bytes);
    return sum;
}

static void carve_slot(const loader *l, slot *s, uint8_t *p) {
    size_t n = (size_t)l->r.micro_batch;
    for (int i = 0; i < l->d->fields.n; i++) {
        s->batch.field[i] = p;
        p += padded(n * l->d->fields.f[i].sample_bytes);
    }
    s->batch.weight = (float *)p;
    p += padded(n * sizeof(float));
    s->batch.sample = (int64_t *)p;
}

// Two batches for each lane that may compute at once, within the memory limit.
static int auto_slots(const loader *l, size_t bytes) {
    int lanes = dt_usable_cores();
    if (lanes > l->r.n_leaves) lanes = l->r.n_leaves;
    int64_t most = (int64_t)(AUTO_RING_BYTES / (bytes ? bytes : 1)), n = 2 * (int64_t)lanes + 2;
    if (n > most) n = most;
    if (n < lanes + 2) n = lanes + 2;
    return n < MIN_SLOTS ? MIN_SLOTS : (int)n;
}

static dt_status make_ring(loader *l) {
    size_t bytes = slot_bytes(l);
    l->n_slots = l->d->n_prefetch > 0 ? l->d->n_prefetch : auto_slots(l, bytes);
    l->n_memory = bytes * (size_t)l->n_slots;
    void *p = NULL;
    dt_backend *b = l->d->backend;
    if (b)
        DT_TRY(b->alloc_host(b, &p, l->n_memory, "batch ring"));
    else if (!(p = aligned_alloc(ALIGN, l->n_memory)))
        return dt_fail(DT_E_INTERNAL, "out of memory for a ring of %d batches (%zu bytes)",
                       l->n_slots, l->n_memory);
    l->memory = p;
    memset(p, 0, l->n_memory);
    l->slots = dt_xcalloc((size_t)l->n_slots, sizeof *l->slots);
    for (int i = 0; i < l->n_slots; i++) carve_slot(l, &l->slots[i], l->memory + (size_t)i * bytes);
    return DT_OK;
}

static dt_status start_workers(loader *l) {
    int n = l->base.n_samples > 0 ? l->d->n_workers : 0;
    l->workers = dt_xcalloc((size_t)n + 1, sizeof *l->workers);
    for (int i = 0; i < n; i++) {
        l->workers[i].loader = l;
        dt_sample_scratch_init(&l->workers[i].scratch);
    }
    // counted before they start: stats and waits read all scratches
    for (int i = 0; i < n; i++) {
        if (pthread_create(&l->workers[i].thread, NULL, work, &l->workers[i]) != 0) {
            for (int k = i; k < n; k++) dt_sample_scratch_fini(&l->workers[k].scratch);
            return dt_fail(DT_E_INTERNAL, "cannot start loader thread %d of %d: lower data.workers",
                           i + 1, n);
        }
        l->n_workers = i + 1;
    }
    return DT_OK;
}

static dt_status set_order(loader *l) {
    const dt_splits *s = &l->d->splits;
    l->training = l->r.split == DT_SPLIT_TRAIN;
    l->samples = s->sample[l->r.split];
    l->base.n_samples = s->n[l->r.split];
    int64_t n = l->base.n_samples, g = l->r.global_batch;
    l->base.steps_per_epoch = l->training ? n / g : (n + g - 1) / g;
    if (l->training && l->base.steps_per_epoch == 0)
        return dt_fail(
            DT_E_USAGE,
            "train.global_batch is %lld, but the training split has only %lld samples: lower it",
            (long long)g, (long long)n);
    int64_t end = l->r.end_step;
    if (!l->training && (end < 0 || end > l->base.steps_per_epoch)) end = l->base.steps_per_epoch;
    l->next_q = l->r.start_step * l->r.n_leaves;
    l->end_q = end < 0 ? INT64_MAX : end * l->r.n_leaves;
    return DT_OK;
}

dt_status dt_loader_open(dt_batch_source **out, dt_data *d, const dt_source_request *r) {
    assert(r->micro_batch > 0 && r->global_batch % r->micro_batch == 0 && r->n_leaves > 0);
    int n_leaves_total = r->global_batch / r->micro_batch;
    loader *l = dt_xcalloc(1, sizeof *l);
    l->d = d;
    l->r = *r;
    l->leaves = dt_xcalloc((size_t)r->n_leaves, sizeof *l->leaves);
    l->position = dt_xcalloc((size_t)n_leaves_total, sizeof *l->position);
    for (int i = 0; i < n_leaves_total; i++) l->position[i] = -1;
    for (int i = 0; i < r->n_leaves; i++) {
        assert(r->leaves[i] >= 0 && r->leaves[i] < n_leaves_total);
        l->leaves[i] = r->leaves[i];
        l->position[r->leaves[i]] = i;
    }
    l->r.leaves = l->leaves;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&l->ready, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&l->idle, NULL);
    l->base = (dt_batch_source){.self = l,
                                .n_fields = d->fields.n,
                                .fields = d->fields.info,
                                .get = get,
                                .release = release,
                                .seek = seek,
                                .stats = stats,
                                .close = close_loader};
    l->unit = (r->micro_batch + d->n_workers - 1) / d->n_workers;
    dt_status st = set_order(l);
    if (st == DT_OK) st = make_ring(l);
    if (st == DT_OK) st = start_workers(l);
    if (st != DT_OK) {
        close_loader(&l->base);
        return st;
    }
    *out = &l->base;
    return DT_OK;
}
