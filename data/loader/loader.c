// loader.c: worker threads that fill a ring of batch slots ahead of the trainer.
//
// Batches are made in the order in which the trainer wants them: q = 0, 1, … is micro-batch `q % n_micro` of
// step `q / n_micro`. One slot is filled at a time. Its samples are handed out to workers in units; then the
// next free slot takes the next q. So all workers make the first batch together, and the ring bounds the
// memory: workers sleep while no slot is free. A slot is FREE, FILLING, READY (get() may take it) or HELD
// (until release).
//
// Which sample lies where is a function of (seed, epoch, slot) only. Under data.on_error: skip, a sample that
// cannot be read is replaced by the first readable one of a sequence that Philox draws from its index and
// epoch, so no other place changes. In evaluation the place stays empty, with weight 0 and the reason. Without
// skip, get() gives the error to the thread that asked and, as that one ends, to all who would have to wait.
//
// One mutex guards the table of slots, and publishes what lies in them: a worker's samples by finish_unit, which makes
// the slot READY, to get(); the trainer's reads by release(), which makes it FREE, to the next worker. It is taken once a
// unit, never inside a sample. Memory is allocated when the loader opens, and by tune() for the slots that it adds.

#include "data_parts.h"
#include "loader_internal.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "base/thread.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPLACEMENTS = 256, REPORT_AFTER_S = 10 };

// ---- which sample --------------------------------------------------------------------------------
place dt_loader_place(const loader *l, int64_t step, int micro, int j) {
    // of the global batch, whatever rank makes the micro-batch
    int64_t within = (int64_t)micro * l->r.micro_batch + j, n = l->base.n_samples;
    if (l->training) {
        int64_t epoch = step / l->base.steps_per_epoch;
        int64_t i = step % l->base.steps_per_epoch * l->r.global_batch + within;
        uint64_t at = dt_sampler_index(&l->d->sampler, (uint64_t)epoch, (uint64_t)i);
        // a sample that is drawn twice in an epoch is augmented by its place, not by its index
        const bool repeats = l->d->sampler.cumulative || l->d->sampler.values;
        return (place){l->samples[at], (uint32_t)epoch, 1, repeats ? i : -1};
    }
    int64_t i = step * l->r.global_batch + within;
    // behind the end: the last sample again, with weight 0
    return (place){l->samples[i < n ? i : n - 1], 0, i < n ? 1 : 0, -1};
}

// dt_sample_fill, except that a record in quarantine is not tried. DT_E_DATA is the record's fault.
static dt_status fill_sample(loader *l, worker *w, slot *s, int j, const place *p, dt_bad_sample *bad) {
    *bad = (dt_bad_sample){.member = UINT32_MAX};
    if (dt_skips_find(l->d, p->sample, &bad->record)) return dt_fail(DT_E_DATA, "in quarantine");
    const uint32_t draw = p->draw < 0 ? p->sample : (uint32_t)p->draw;
    dt_sample_place to = {p->sample, draw, p->epoch, l->r.augment, s->field, s->batch.steps, j};
    const dt_status st = dt_sample_fill(l->d, &w->scratch, &to, bad);
    // a file that was replaced is no bad record: all of its records would be skipped
    if (st != DT_E_DATA || !l->d->skip) return st;
    return dt_reader_blame(l->d->reader, bad->record);
}

static dt_status fill_replaced(loader *l, worker *w, slot *s, int j, place *p, dt_bad_sample bad) {
    // by the bad sample: every rank and resume takes the same one
    dt_rng rng = {l->d->seed, p->sample, p->epoch, dt_hash32("data.replace")};
    dt_status st = DT_E_DATA;
    w->scratch.given = NULL; // the bytes given belong to the sample that is replaced
    for (uint32_t a = 0; a < MAX_REPLACEMENTS && st == DT_E_DATA; a++) {
        dt_skips_note(l->d, bad.record, bad.member, dt_error_message());
        dt_counter_add(&w->scratch.n_skipped, 1);
        p->sample = l->samples[dt_rng_below(&rng, a, (uint32_t)l->base.n_samples)];
        st = fill_sample(l, w, s, j, p, &bad);
    }
    return st == DT_E_DATA ? dt_fail_context(st, "%d records in a row cannot be read; the last", MAX_REPLACEMENTS) : st;
}

// Zeros the place, as half of the sample may have been written, and notes the reason.
static void leave_empty(loader *l, worker *w, slot *s, int j, place *p, dt_bad_sample bad) {
    dt_skips_note(l->d, bad.record, bad.member, dt_error_message());
    dt_counter_add(&w->scratch.n_skipped, 1);
    s->batch.why[j] = dt_xstrdup(dt_error_message()); // predictions have a row for each sample, also for this one
    p->weight = 0;
    for (int i = 0; i < l->d->fields.n; i++) {
        const size_t n = l->d->fields.f[i].sample_bytes;
        memset((uint8_t *)s->field[i] + (size_t)j * n, 0, n);
    }
}

static dt_status loader_fill(loader *l, worker *w, slot *s, int j) {
    place p = dt_loader_place(l, s->batch.step, s->batch.micro, j);
    dt_bad_sample bad;
    dt_status st = fill_sample(l, w, s, j, &p, &bad);
    if (st == DT_E_DATA && l->d->skip && l->training) {
        st = fill_replaced(l, w, s, j, &p, bad);
    } else if (st == DT_E_DATA && l->d->skip) {
        leave_empty(l, w, s, j, &p, bad);
        st = DT_OK;
    }
    s->batch.sample[j] = p.sample;
    s->batch.weight[j] = p.weight;
    return st;
}

// ---- workers -------------------------------------------------------------------------------------
static void start_slot(loader *l, slot *s) {
    int n_micro = l->r.n_micro;
    s->q = l->next_q++;
    s->batch.step = s->q / n_micro;
    s->batch.micro = l->micros[s->q % n_micro];
    s->batch.n = l->r.micro_batch;
    for (int j = 0; j < s->batch.n; j++) {
        free(s->batch.why[j]);
        s->batch.why[j] = NULL;
    }
    s->n_given = 0;
    s->n_left = l->r.micro_batch;
    s->status = DT_OK;
    s->state = FILLING;
    l->filling = s;
}

// Samples [begin, end) of a slot, which a worker takes at once. Readers fetch the bytes of samples before `own`.
typedef struct unit {
    slot *s;
    int begin, end, own;
} unit;

// Takes a unit of the slot that is being filled, or of the next one. False: there is nothing to do.
static bool loader_claim(loader *l, const worker *w, unit *u) {
    if (l->paused || w->index >= l->n_workers) return false;
    if (!l->filling) {
        slot *s = NULL;
        for (int i = 0; i < l->n_slots && !s; i++)
            if (l->slots[i].state == FREE) s = &l->slots[i];
        if (!s || l->next_q >= l->end_q) return false; // all slots are in use, or all batches made
        start_slot(l, s);
    }
    slot *s = l->filling;
    int begin = s->n_given, end = begin + l->unit < s->batch.n ? begin + l->unit : s->batch.n;
    s->n_given = end;
    if (end == s->batch.n) l->filling = NULL; // given out as a whole, not yet filled
    int64_t at = s->q * l->r.micro_batch;
    *u = (unit){s, begin, end, (int)(dt_ahead_begin(l->ahead, at + begin, at + end) - at)};
    return true;
}

static dt_status fill_unit(loader *l, worker *w, const unit *u) {
    int64_t at = u->s->q * l->r.micro_batch;
    dt_status st = DT_OK;
    for (int j = u->begin; j < u->end; j++) {
        if (j < u->own) w->scratch.given = dt_ahead_wait(l->ahead, at + j, &w->starved_ns);
        if (st == DT_OK) st = loader_fill(l, w, u->s, j); // after an error places are still given back
        w->scratch.given = NULL;
        if (j < u->own) dt_ahead_release(l->ahead, at + j);
    }
    if (w->scratch.n_reads > 0) dt_ahead_note(l->ahead, w->scratch.n_reads, w->scratch.n_slow);
    w->scratch.n_reads = w->scratch.n_slow = 0;
    return st;
}

// Mixup and CutMix of a whole batch, by the worker that finished the batch. It plans a few numbers a sample, which is
// too little for a stage of its own.
static void mix_batch(loader *l, slot *s) {
    dt_mix_batch b = {.step = s->batch.step,
                      .first = (int64_t)s->batch.micro * l->r.micro_batch,
                      .n = s->batch.n,
                      .in = (const void *const *)s->field,
                      .out = s->batch.field,
                      .plan = s->batch.mix};
    dt_mix_run(l->mix, &b);
}

// Called under the lock, which is released while the batch is mixed.
static void finish_unit(loader *l, slot *s, int n, dt_status st) {
    if (st != DT_OK && s->status == DT_OK) { // the first error stays
        s->status = st;
        snprintf(s->message, sizeof s->message, "%s", dt_error_message());
    }
    s->n_left -= n;
    if (s->n_left > 0) return;
    if (l->mix && s->status == DT_OK) {
        pthread_mutex_unlock(&l->lock);
        mix_batch(l, s);
        pthread_mutex_lock(&l->lock);
    }
    if (l->training && s->status == DT_OK) dt_class_weights_apply(l->d, l->mix != NULL, &s->batch);
    s->batch.n_valid = 0;
    // weight 0: behind the end, or unreadable
    for (int j = 0; j < s->batch.n; j++) s->batch.n_valid += s->batch.weight[j] > 0;
    s->state = READY;
    dt_depth_add(&l->ready_batches, 1);
    pthread_cond_broadcast(&l->ready);
}

void *dt_loader_work(void *arg) {
    worker *w = arg;
    loader *l = w->loader;
    unit u;
    dt_thread_name("dt-load");
    pthread_mutex_lock(&l->lock);
    while (!l->stopping) {
        if (!loader_claim(l, w, &u)) {
            // there is work and no slot: the trainer is slower
            bool blocked = !l->paused && w->index < l->n_workers && l->next_q < l->end_q;
            double begin = dt_clock_s();
            pthread_cond_wait(&l->work, &l->lock);
            if (blocked) dt_counter_add(&w->blocked_ns, (uint64_t)((dt_clock_s() - begin) * 1e9));
            continue;
        }
        l->n_busy++;
        pthread_mutex_unlock(&l->lock);
        w->busy = true;
        dt_status st = fill_unit(l, w, &u);
        w->busy = false;
        pthread_mutex_lock(&l->lock);
        finish_unit(l, u.s, u.end - u.begin, st);
        if (--l->n_busy == 0) pthread_cond_broadcast(&l->idle);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

// ---- loader stats -------------------------------------------------------------------------------------------------

// What a loader counts.
//
// Every counter has one writer (a worker, a reader, or whoever holds the loader's lock) and is read without a
// lock, so reading them costs the pipeline nothing. The numbers are not all of one instant: use the difference
// of two readings a second apart.

static double loader_stats_seconds(uint64_t ns) {
    return (double)ns * 1e-9;
}

static void loader_stage_ns(const loader *l, uint64_t by[DT_N_STAGES]) {
    for (int k = 0; k < DT_N_STAGES; k++) by[k] = 0;
    for (int i = 0, n = l->n_started; i < n; i++) {
        const worker *w = &l->workers[i];
        by[DT_STAGE_READ] += dt_counter_get(&w->scratch.read_ns) + dt_counter_get(&w->starved_ns);
        by[DT_STAGE_DECODE] += dt_counter_get(&w->scratch.decode_ns);
        by[DT_STAGE_AUGMENT] += dt_counter_get(&w->scratch.augment_ns);
    }
}

static void add_worker(const worker *w, dt_source_stats *out) {
    const dt_sample_scratch *s = &w->scratch;
    dt_stage_stats *read = &out->stage[DT_STAGE_READ], *decode = &out->stage[DT_STAGE_DECODE];
    out->n_skipped += dt_counter_get(&s->n_skipped);
    out->cache.n_hits += dt_counter_get(&s->n_hits);
    out->cache.n_misses += dt_counter_get(&s->n_misses);
    out->blocked_s += loader_stats_seconds(dt_counter_get(&w->blocked_ns));
    out->starved_s += loader_stats_seconds(dt_counter_get(&w->starved_ns));
    read->busy_s += loader_stats_seconds(dt_counter_get(&s->read_ns));
    read->items += dt_counter_get(&s->n_read);
    read->bytes += dt_counter_get(&s->n_bytes);
    decode->busy_s += loader_stats_seconds(dt_counter_get(&s->decode_ns));
    decode->items += dt_counter_get(&s->n_decoded);
    decode->bytes = read->bytes; // all that is read is decoded
    out->stage[DT_STAGE_AUGMENT].busy_s += loader_stats_seconds(dt_counter_get(&s->augment_ns));
    out->stage[DT_STAGE_AUGMENT].items += dt_counter_get(&s->n_augmented);
}

void dt_loader_stats(dt_batch_source *base, dt_source_stats *out) {
    static const char *const NAMES[DT_N_STAGES] = {"read", "decode", "augment"};
    const loader *l = base->self;
    *out = (dt_source_stats){.at_s = dt_clock_s(),
                             .n_batches = dt_counter_get(&l->n_batches),
                             .n_samples = dt_counter_get(&l->n_samples),
                             .n_waits = dt_counter_get(&l->n_waits),
                             .wait_s = loader_stats_seconds(dt_counter_get(&l->wait_ns)),
                             .n_workers = l->n_workers,
                             .max_workers = l->max_workers,
                             .ring_slots = l->n_slots,
                             .max_slots = l->max_slots,
                             .ring_bytes = l->slot_bytes * (size_t)l->n_made};
    dt_data_cache_stats(l->d, &out->cache);
    for (int i = 0, n = l->n_started; i < n; i++) add_worker(&l->workers[i], out);
    dt_ahead_stats a;
    dt_ahead_get_stats(l->ahead, &a);
    out->n_readers = a.n_readers;
    out->max_readers = a.max_readers;
    out->reading_ahead = a.on;
    for (int k = 0; k < DT_N_STAGES; k++) {
        out->stage[k].name = NAMES[k];
        out->stage[k].wait_s = loader_stats_seconds(dt_counter_get(&l->wait_by_ns[k]));
        out->stage[k].threads = out->n_workers + (k == DT_STAGE_READ && a.on ? a.n_readers : 0);
    }
    out->stage[DT_STAGE_READ].busy_s += loader_stats_seconds(a.busy_ns);
    out->encoded = (dt_queue_stats){"encoded", a.n_ready, a.capacity, a.depth_s};
    out->batches = (dt_queue_stats){"batches", l->ready_batches.n, out->ring_slots, dt_depth_s(&l->ready_batches)};
}

// ---- reports ---------------------------------------------------------------------------------------
// What the pipeline is doing, for a message: "reading FILE (record R) for 31 s".
static void loader_describe(const loader *l, char *text, size_t cap) {
    const dt_catalog *c = l->d->reader->catalog;
    dt_ahead_stats a;
    dt_ahead_get_stats(l->ahead, &a);
    double now = dt_clock_s(), since = a.since_s;
    uint32_t record = a.record, busy_record = 0;
    bool busy = false;
    for (int i = 0, n = l->n_started; i < n; i++) {
        const worker *w = &l->workers[i];
        double s = loader_stats_seconds(dt_counter_get(&w->scratch.since_ns));
        uint32_t r = w->scratch.record;
        if (w->busy) busy = true, busy_record = r;
        if (s > 0 && (since == 0 || s < since)) since = s, record = r;
    }
    const char *what = since > 0 ? "reading " : busy ? "decoding " : NULL;
    if (!what) {
        snprintf(text, cap, "the ring is full of batches that other worker groups have not taken");
        return;
    }
    if (since == 0) record = busy_record;
    size_t at = (size_t)snprintf(text, cap, "%s%s (record %s)", what, c->shards[c->records[record].shard].path,
                                 dt_catalog_str(c, c->records[record].key));
    if (since > 0 && at < cap) snprintf(text + at, cap - at, " for %.0f s", now - since);
}

// ---- the table -------------------------------------------------------------------------------------
static slot *loader_find(loader *l, int64_t q) {
    for (int i = 0; i < l->max_slots; i++)
        if (l->slots[i].state != FREE && l->slots[i].q == q) return &l->slots[i];
    return NULL;
}

// Waits until slot q is READY. Under the lock.
static dt_status loader_await(loader *l, int64_t q, slot **out) {
    double begin = dt_clock_s(), report_s = REPORT_AFTER_S; // 10, 20 … 60, 120, 240 … s
    for (;;) {
        slot *s = loader_find(l, q);
        if (s && s->state == READY) {
            *out = s;
            return DT_OK;
        }
        // another worker group has met a failed batch: all end with its message
        if (l->failed) return dt_fail(l->failed->status, "%s", l->failed->message);
        bool past = q < l->next_q && (!s || s->state == HELD), beyond = q >= l->end_q;
        if (past || beyond)
            return dt_fail(DT_E_INTERNAL, "batch of step %lld is %s", (long long)(q / l->r.n_micro),
                           past ? "already given out (seek first)" : "beyond the end of the request");
        dt_thread_wait(&l->ready, &l->lock, dt_clock_s() + 1); // a second, then the report
        const double waited_s = dt_clock_s() - begin;
        if (waited_s < report_s) continue;
        // other ranks wait for this rank and may give up: the log says what this rank is waiting for
        char what[LOADER_MESSAGE_BYTES];
        loader_describe(l, what, sizeof what);
        dt_warn("has waited %.0f s for data of step %lld: %s", waited_s, (long long)(q / l->r.n_micro), what);
        report_s += report_s < 60 ? REPORT_AFTER_S : report_s;
    }
}

// Divides the time of a wait among the stages, by what the workers did meanwhile.
static void note_wait(loader *l, double waited, const uint64_t before[DT_N_STAGES]) {
    uint64_t after[DT_N_STAGES], all = 0, ns = (uint64_t)(waited * 1e9);
    loader_stage_ns(l, after);
    for (int i = 0; i < DT_N_STAGES; i++) all += after[i] - before[i];
    dt_counter_add(&l->n_waits, 1);
    dt_counter_add(&l->wait_ns, ns);
    for (int i = 0; i < DT_N_STAGES && all > 0; i++)
        dt_counter_add(&l->wait_by_ns[i], (uint64_t)((double)ns * (double)(after[i] - before[i]) / (double)all));
}

dt_status dt_loader_get(dt_batch_source *base, int64_t step, int micro, const dt_batch **out, double *wait_s) {
    loader *l = base->self;
    *out = NULL;
    if (wait_s) *wait_s = 0;
    assert(micro >= 0 && micro < l->r.global_batch / l->r.micro_batch && step >= 0);
    assert(l->position[micro] >= 0); // asked for when the source was opened
    int64_t q = step * l->r.n_micro + l->position[micro];
    slot *s = NULL;
    dt_status st = DT_OK;
    pthread_mutex_lock(&l->lock);
    slot *have = loader_find(l, q); // the usual case waits for nothing and reads no clock
    if (have && have->state == READY)
        s = have;
    else {
        uint64_t before[DT_N_STAGES];
        double t = dt_clock_s();
        loader_stage_ns(l, before);
        st = loader_await(l, q, &s);
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
        dt_depth_add(&l->ready_batches, -1);
        dt_counter_add(&l->n_batches, 1);
        dt_counter_add(&l->n_samples, (uint64_t)s->batch.n_valid);
        *out = &s->batch;
    }
    pthread_mutex_unlock(&l->lock);
    return st;
}

void dt_loader_release(dt_batch_source *base, const dt_batch *b) {
    loader *l = base->self;
    slot *s = (slot *)(uintptr_t)b; // batch is the slot's first member
    pthread_mutex_lock(&l->lock);
    assert(s->state == HELD);
    s->state = FREE;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

dt_status dt_loader_seek(dt_batch_source *base, int64_t step) {
    loader *l = base->self;
    pthread_mutex_lock(&l->lock);
    l->paused = true;
    while (l->n_busy > 0) pthread_cond_wait(&l->idle, &l->lock);
    for (int i = 0; i < l->max_slots; i++)
        if (l->slots[i].state != HELD)
            l->slots[i].state = FREE;
        else
            l->slots[i].q = -1; // its holder gives it back; no step finds it
    dt_depth_add(&l->ready_batches, -l->ready_batches.n);
    l->filling = NULL;
    l->failed = NULL;
    l->next_q = step * l->r.n_micro;
    dt_ahead_seek(l->ahead, l->next_q * l->r.micro_batch); // no worker holds a place: n_busy is 0
    l->paused = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return DT_OK;
}

// ---- stage times --------------------------------------------------------------------------------------------------

// One thread, no ring, no queues: what a sample costs by itself.
//
// The samples of the training split in order, again and again, timed by the counters that loader threads keep
// too (dt_sample_scratch). The first pass brings the bytes into the page cache and is not counted.

enum { MAX_SAMPLES = 4096, FEW = 16 };

// Makes *n samples. *n 0: as many as fit into `seconds`, and says how many.
static dt_status run_pass(const dt_data *d, dt_sample_scratch *w, void *const *field, double seconds, int *n) {
    double begin = dt_clock_s();
    uint64_t n_split = d->sampler.n;
    int done = 0, most = *n ? *n : MAX_SAMPLES;
    dt_status st = DT_OK;
    for (; done < most; done++) {
        if (!*n && done >= FEW && dt_clock_s() - begin > seconds) break; // FEW: a slow sample alone says little
        uint64_t i = (uint64_t)done;
        uint64_t at = dt_sampler_index(&d->sampler, i / n_split, i % n_split);
        dt_sample_place to = {
            .sample = d->splits.sample[DT_SPLIT_TRAIN][at], .draw = (uint32_t)i, .augment = true, .field = field};
        dt_bad_sample bad;
        dt_status one = dt_sample_fill(d, w, &to, &bad);
        if (one != DT_OK && one != DT_E_DATA) return one;
        if (one != DT_OK) st = one; // a bad record is left out
    }
    *n = done;
    return dt_counter_get(&w->n_read) > 0 ? DT_OK : st; // nothing at all could be read
}

dt_status dt_data_time_stages(const dt_dataset *base, double seconds, dt_stage_times *out) {
    const dt_data *d = base->self;
    dt_sample_scratch w;
    void *field[DT_MAX_FIELDS];
    int n = 0;
    *out = (dt_stage_times){0};
    dt_sample_scratch_init(&w);
    for (int i = 0; i < d->fields.n; i++) {
        field[i] = dt_xcalloc(1, d->fields.f[i].sample_bytes + 1);
        out->sample_bytes += (double)d->fields.f[i].sample_bytes;
    }
    dt_status st = run_pass(d, &w, field, seconds, &n);
    uint64_t read = dt_counter_get(&w.read_ns), decode = dt_counter_get(&w.decode_ns);
    uint64_t augment = dt_counter_get(&w.augment_ns), bytes = dt_counter_get(&w.n_bytes);
    if (st == DT_OK) st = run_pass(d, &w, field, seconds, &n);
    if (n == 0) n = 1;
    out->read_s = 1e-9 * (double)(dt_counter_get(&w.read_ns) - read) / n;
    out->decode_s = out->read_s + 1e-9 * (double)(dt_counter_get(&w.decode_ns) - decode) / n;
    out->augment_s = out->decode_s + 1e-9 * (double)(dt_counter_get(&w.augment_ns) - augment) / n;
    out->bytes = (double)(dt_counter_get(&w.n_bytes) - bytes) / n;
    for (int i = 0; i < d->fields.n; i++) free(field[i]);
    dt_sample_scratch_fini(&w);
    return st;
}
