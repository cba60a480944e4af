// fetch.c: where a worker gets a member's bytes from.
//
// From the cache; else from what readers fetched ahead; else the worker reads, and notes how long that
// took: reads that block are what turns reading ahead on. The hash is checked here, on the thread that
// decodes next, so that the bytes come into its core's cache once; and once in memory they are trusted.
#include "ahead.h"

#include "base/clock.h"

static dt_status read_now(const dt_data *d, dt_sample_scratch *w, uint32_t record, uint32_t member,
                          double begin, dt_span *out) {
    const dt_member *m = &d->set->catalog->members[member];
    if (w->n_reads == 0) w->n_waits = dt_thread_waits();
    __atomic_store_n(&w->since_ns, (uint64_t)(begin * 1e9), __ATOMIC_RELAXED);
    dt_status st = dt_set_read(d->set, record, member, d->verify, &w->bytes, out);
    __atomic_store_n(&w->since_ns, 0, __ATOMIC_RELAXED);
    w->n_reads++;
    w->n_slow += dt_ahead_is_slow(dt_clock_s() - begin, (size_t)m->size, &w->n_waits);
    return st;
}

static bool keeps_bytes(const dt_data *d, int field) {
    return d->cache.cache && d->cache.slot[field] >= 0 && !d->cache.pixels[field];
}

static bool keeps_pixels(const dt_data *d, int field) {
    return d->cache.cache && d->cache.slot[field] >= 0 && d->cache.pixels[field];
}

// Bytes that need no read of the data set, in order of what they cost; *hit: they were cached.
static bool have_bytes(const dt_data *d, dt_sample_scratch *w, int field, uint32_t record,
                       size_t n_bytes, bool *hit, dt_span *out) {
    const dt_span *given = w->given && w->given[field].data ? &w->given[field] : NULL;
    uint32_t entry = keeps_bytes(d, field) ? dt_data_cache_entry(d, field, record) : 0;
    const uint8_t *p = keeps_bytes(d, field) ? dt_cache_find(d->cache.cache, entry) : NULL;
    *hit = p != NULL;
    *out = (dt_span){p, n_bytes};
    if (p) return true;
    if (given) {
        *hit = keeps_bytes(d, field) && dt_cache_has(d->cache.cache, entry);
        *out = *given;
        return true;
    }
    if (!keeps_bytes(d, field) || d->cache.kind != DT_CACHE_DISK) return false;
    out->data = dt_buffer_reserve(&w->bytes, n_bytes);
    *hit = out->data && dt_cache_load(d->cache.cache, entry, w->bytes.data, n_bytes);
    return *hit;
}

dt_status dt_fetch(const dt_data *d, dt_sample_scratch *w, int field, uint32_t record,
                   uint32_t member, dt_span *out) {
    double begin = dt_clock_s();
    size_t n_bytes = (size_t)d->set->catalog->members[member].size;
    bool hit;
    if (!have_bytes(d, w, field, record, n_bytes, &hit, out))
        DT_TRY(read_now(d, w, record, member, begin, out));
    else if (!hit)
        DT_TRY(dt_set_check(d->set, record, member, d->verify, *out));
    if (keeps_bytes(d, field)) {
        dt_counter_add(hit ? &w->n_hits : &w->n_misses, 1);
        if (!hit)
            dt_cache_store(d->cache.cache, dt_data_cache_entry(d, field, record), out->data,
                           n_bytes);
    }
    dt_counter_add(&w->read_ns, (uint64_t)((dt_clock_s() - begin) * 1e9));
    dt_counter_add(&w->n_read, 1);
    dt_counter_add(&w->n_bytes, n_bytes);
    return DT_OK;
}

const uint8_t *dt_fetch_pixels(const dt_data *d, dt_sample_scratch *w, int field, uint32_t record) {
    if (!keeps_pixels(d, field)) return NULL;
    const uint8_t *p = dt_cache_find(d->cache.cache, dt_data_cache_entry(d, field, record));
    dt_counter_add(p ? &w->n_hits : &w->n_misses, 1);
    return p;
}

void dt_keep_pixels(const dt_data *d, int field, uint32_t record, const uint8_t *pixels) {
    if (keeps_pixels(d, field))
        dt_cache_store(d->cache.cache, dt_data_cache_entry(d, field, record), pixels,
                       dt_data_pixel_bytes(d, field));
}

bool dt_is_cached(const dt_data *d, int field, uint32_t record) {
    return (keeps_bytes(d, field) || keeps_pixels(d, field)) &&
           dt_cache_has(d->cache.cache, dt_data_cache_entry(d, field, record));
}
