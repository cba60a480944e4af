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
// One mutex guards the table of slots. It is taken once a unit, never inside a sample. Memory is allocated
// when the loader opens, and by tune() for the slots that it adds.
#include "loader_internal.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/thread.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPLACEMENTS = 256, REPORT_AFTER_S = 10 };

// ---- which sample --------------------------------------------------------------------------------
place dt_loader_place(const loader *l, int64_t step, int micro, int j) {
    int64_t within = (int64_t)micro * l->r.micro_batch + j, n = l->base.n_samples;
    if (l->training) {
        int64_t epoch = step / l->base.steps_per_epoch;
        int64_t i = step % l->base.steps_per_epoch * l->r.global_batch + within;
        uint64_t at = dt_sampler_index(&l->d->sampler, (uint64_t)epoch, (uint64_t)i);
        const bool repeats = l->d->sampler.cumulative || l->d->sampler.values;
        return (place){l->samples[at], (uint32_t)epoch, 1, repeats ? i : -1};
    }
    int64_t i = step * l->r.global_batch + within;
    return (place){l->samples[i < n ? i : n - 1], 0, i < n ? 1 : 0, -1};
}

// dt_sample_fill, except that a record in quarantine is not tried. DT_E_DATA is the record's fault.
static dt_status fill_sample(loader *l, worker *w, slot *s, int j, const place *p, dt_bad_sample *bad) {
    *bad = (dt_bad_sample){.member = UINT32_MAX};
    if (dt_skips_find(l->d, p->sample, &bad->record)) return dt_fail(DT_E_DATA, "in quarantine");
    const uint32_t draw = p->draw < 0 ? p->sample : (uint32_t)p->draw;
    dt_sample_place to = {p->sample, draw, p->epoch, l->r.augment, s->field, s->batch.steps, j};
    const dt_status st = dt_sample_fill(l->d, &w->scratch, &to, bad);
    if (st != DT_E_DATA || !l->d->skip) return st;
    return dt_reader_blame(l->d->reader, bad->record);
}

static dt_status fill_replaced(loader *l, worker *w, slot *s, int j, place *p, dt_bad_sample bad) {
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
    s->batch.why[j] = dt_xstrdup(dt_error_message());
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
        if (!s || l->next_q >= l->end_q) return false;
        start_slot(l, s);
    }
    slot *s = l->filling;
    int begin = s->n_given, end = begin + l->unit < s->batch.n ? begin + l->unit : s->batch.n;
    s->n_given = end;
    if (end == s->batch.n) l->filling = NULL;
    int64_t at = s->q * l->r.micro_batch;
    *u = (unit){s, begin, end, (int)(dt_ahead_begin(l->ahead, at + begin, at + end) - at)};
    return true;
}

static void sleep_until_work(loader *l, worker *w) {
    bool blocked = !l->paused && w->index < l->n_workers && l->next_q < l->end_q;
    double begin = dt_clock_s();
    pthread_cond_wait(&l->work, &l->lock);
    if (blocked) dt_counter_add(&w->blocked_ns, (uint64_t)((dt_clock_s() - begin) * 1e9));
}

static dt_status fill_unit(loader *l, worker *w, const unit *u) {
    int64_t at = u->s->q * l->r.micro_batch;
    dt_status st = DT_OK;
    for (int j = u->begin; j < u->end; j++) {
        if (j < u->own) w->scratch.given = dt_ahead_wait(l->ahead, at + j, &w->starved_ns);
        if (st == DT_OK) st = loader_fill(l, w, u->s, j);
        w->scratch.given = NULL;
        if (j < u->own) dt_ahead_release(l->ahead, at + j);
    }
    if (w->scratch.n_reads > 0) dt_ahead_note(l->ahead, w->scratch.n_reads, w->scratch.n_slow);
    w->scratch.n_reads = w->scratch.n_slow = 0;
    return st;
}

static void note_status(slot *s, dt_status st) {
    if (st == DT_OK || s->status != DT_OK) return;
    s->status = st;
    snprintf(s->message, sizeof s->message, "%s", dt_error_message());
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
    note_status(s, st);
    s->n_left -= n;
    if (s->n_left > 0) return;
    if (l->mix && s->status == DT_OK) {
        pthread_mutex_unlock(&l->lock);
        mix_batch(l, s);
        pthread_mutex_lock(&l->lock);
    }
    if (l->training && s->status == DT_OK) dt_class_weights_apply(l->d, l->mix != NULL, &s->batch);
    s->batch.n_valid = 0;
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
            sleep_until_work(l, w);
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

// ---- the table -------------------------------------------------------------------------------------
static slot *loader_find(loader *l, int64_t q) {
    for (int i = 0; i < l->max_slots; i++)
        if (l->slots[i].state != FREE && l->slots[i].q == q) return &l->slots[i];
    return NULL;
}

static void wait_a_second(loader *l) {
    dt_thread_wait(&l->ready, &l->lock, dt_clock_s() + 1);
}

// Other ranks wait for this rank and may give up: the log says what this rank is waiting for.
static void report_wait(const loader *l, int64_t q, double waited_s, double *next_s) {
    if (waited_s < *next_s) return;
    char what[LOADER_MESSAGE_BYTES];
    dt_loader_describe(l, what, sizeof what);
    dt_warn("has waited %.0f s for data of step %lld: %s", waited_s, (long long)(q / l->r.n_micro), what);
    *next_s += *next_s < 60 ? REPORT_AFTER_S : *next_s;
}

// Waits until slot q is READY. Under the lock.
static dt_status loader_await(loader *l, int64_t q, slot **out) {
    double begin = dt_clock_s(), report_s = REPORT_AFTER_S;
    for (;;) {
        slot *s = loader_find(l, q);
        if (s && s->state == READY) {
            *out = s;
            return DT_OK;
        }
        if (l->failed) return dt_fail(l->failed->status, "%s", l->failed->message);
        bool past = q < l->next_q && (!s || s->state == HELD), beyond = q >= l->end_q;
        if (past || beyond)
            return dt_fail(DT_E_INTERNAL, "batch of step %lld is %s", (long long)(q / l->r.n_micro),
                           past ? "already given out (seek first)" : "beyond the end of the request");
        wait_a_second(l);
        report_wait(l, q, dt_clock_s() - begin, &report_s);
    }
}

// Divides the time of a wait among the stages, by what the workers did meanwhile.
static void note_wait(loader *l, double waited, const uint64_t before[DT_N_STAGES]) {
    uint64_t after[DT_N_STAGES], all = 0, ns = (uint64_t)(waited * 1e9);
    dt_loader_stage_ns(l, after);
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
    slot *have = loader_find(l, q);
    if (have && have->state == READY)
        s = have;
    else {
        uint64_t before[DT_N_STAGES];
        double t = dt_clock_s();
        dt_loader_stage_ns(l, before);
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
            l->slots[i].q = -1;
    dt_depth_add(&l->ready_batches, -l->ready_batches.n);
    l->filling = NULL;
    l->failed = NULL;
    l->next_q = step * l->r.n_micro;
    dt_ahead_seek(l->ahead, l->next_q * l->r.micro_batch);
    l->paused = false;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    return DT_OK;
}
