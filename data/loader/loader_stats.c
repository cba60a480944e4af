// dt_loader_stats.c: what a loader counts.
//
// Every counter has one writer (a worker, a reader, or whoever holds the loader's lock) and is read without a
// lock, so reading them costs the pipeline nothing. The numbers are not all of one instant: use the difference
// of two readings a second apart.
#include "loader_internal.h"

#include <stdio.h>

static double loader_stats_seconds(uint64_t ns) {
    return (double)ns * 1e-9;
}

void dt_loader_stage_ns(const loader *l, uint64_t by[DT_N_STAGES]) {
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
    decode->bytes = read->bytes;
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
void dt_loader_describe(const loader *l, char *text, size_t cap) {
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
        snprintf(text, cap, "the ring is full of batches that other replicas have not taken");
        return;
    }
    if (since == 0) record = busy_record;
    size_t at = (size_t)snprintf(text, cap, "%s%s (record %s)", what, c->shards[c->records[record].shard].path,
                                 dt_catalog_str(c, c->records[record].key));
    if (since > 0 && at < cap) snprintf(text + at, cap - at, " for %.0f s", now - since);
}
