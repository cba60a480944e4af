// fetch.c: where a worker gets a member's bytes: from the cache, else from the readers, else by a read of its
// own. How long its own reads take decides whether readers begin (ahead.c).
//
// The hash is checked here, by the thread that decodes next, so that the bytes come into its core's cache only
// once. What the cache has was checked before it was stored.
//
// An uncompressed value behind a short head (a PPM, a vector) may be read right to its place in the batch, if
// the caller names one. That saves a copy, which is a fifth of the work for such members.
#include "data_parts.h"

#include "base/clock.h"
#include "base/trace.h"

// A worker's own read. It is timed, and others can see how long it has lasted.
static dt_status read_now(const dt_data *d, dt_sample_scratch *w, dt_fetch *f, double begin) {
    const dt_member *m = &d->reader->catalog->members[f->member];
    dt_status st;
    if (w->n_reads++ == 0) w->n_waits = dt_thread_waits();
    dt_counter_set(&w->since_ns, (uint64_t)(begin * 1e9));
    if (f->kind == DT_FETCHED_SPLIT) {
        uint8_t *all = dt_buffer_reserve(&w->bytes, (size_t)m->size); // the parts may be joined there
        f->bytes = (dt_span){all, (size_t)m->size};
        st = !all
                 ? dt_set_context(d->reader, f->record, f->member, dt_fail(DT_E_DATA, "no memory for its bytes"))
                 : dt_reader_read_apart(d->reader, f->record, f->member, d->verify, w->hash, all, f->dst, f->n_payload);
    } else {
        st = dt_reader_read(d->reader, f->record, f->member, d->verify, &w->bytes, &f->bytes);
    }
    dt_counter_set(&w->since_ns, 0);
    w->n_slow += dt_read_is_slow(dt_clock_s() - begin, (size_t)m->size, &w->n_waits);
    return st;
}

static bool keeps_bytes(const dt_data *d, int field) {
    return d->cache.cache && d->cache.slot[field] >= 0 && !d->cache.pixels[field];
}

static bool find_pixels(const dt_data *d, dt_sample_scratch *w, dt_fetch *f) {
    if (!dt_keeps_pixels(d, f->field)) return false;
    const uint8_t *p = dt_cache_find(d->cache.cache, dt_data_cache_entry(d, f->field, f->record));
    dt_counter_add(p ? &w->n_hits : &w->n_misses, 1);
    f->kind = DT_FETCHED_PIXELS;
    f->bytes = (dt_span){p, dt_data_pixel_bytes(d, f->field)};
    return p != NULL;
}

// The member from wherever it costs least. *hit: it was cached.
static dt_status get_bytes(const dt_data *d, dt_sample_scratch *w, dt_fetch *f, double begin, bool *hit) {
    const dt_member *m = &d->reader->catalog->members[f->member];
    bool kept = keeps_bytes(d, f->field);
    uint32_t entry = kept ? dt_data_cache_entry(d, f->field, f->record) : 0;
    f->kind = DT_FETCHED_MEMBER;
    f->bytes = (dt_span){kept ? dt_cache_find(d->cache.cache, entry) : NULL, (size_t)m->size};
    *hit = f->bytes.data != NULL;
    if (*hit) return DT_OK;
    if (w->given && w->given[f->field].data) {
        *hit = kept && dt_cache_has(d->cache.cache, entry);
        f->bytes = w->given[f->field];
        const dt_status st = dt_reader_check(d->reader, f->record, f->member, d->verify, f->bytes);
        if (st == DT_OK || !dt_reader_forget(d->reader, f->record, f->member)) return st;
        dt_error_clear();
        f->bytes = (dt_span){NULL, (size_t)m->size};
    }
    if (!kept && f->n_payload > 0 && !dt_place_is_slow(m->offset + (m->size - f->n_payload), f->dst))
        f->kind = DT_FETCHED_SPLIT;
    return read_now(d, w, f, begin);
}

dt_status dt_fetch_member(const dt_data *d, dt_sample_scratch *w, dt_fetch *f) {
    double begin = dt_clock_s();
    bool hit;
    if (find_pixels(d, w, f)) return DT_OK;
    const int64_t traced = dt_trace_open("loader", "read");
    const dt_status st = get_bytes(d, w, f, begin, &hit);
    dt_trace_close(traced);
    DT_TRY(st);
    if (keeps_bytes(d, f->field)) {
        dt_counter_add(hit ? &w->n_hits : &w->n_misses, 1);
        if (!hit)
            dt_cache_store(d->cache.cache, dt_data_cache_entry(d, f->field, f->record), f->bytes.data,
                           f->bytes.n_bytes);
    }
    dt_counter_add(&w->read_ns, (uint64_t)((dt_clock_s() - begin) * 1e9));
    dt_counter_add(&w->n_read, 1);
    dt_counter_add(&w->n_bytes, f->bytes.n_bytes);
    return DT_OK;
}
