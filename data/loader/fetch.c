// fetch.c: where a worker gets a member's bytes from.
//
// From the cache; else from what readers fetched ahead; else the worker reads, and notes how long that
// took: reads that block are what turns reading ahead on. The hash is checked here, on the thread that
// decodes next, so that the bytes come into its core's cache once; and once in memory they are trusted.
//
// Members that may hold just what the batch wants, behind a short head (uncompressed pictures, vectors),
// are read in two parts: the head to scratch, the rest to its place in the batch. If the head then says
// otherwise, the parts are joined in scratch and decoded as any other.
#include "ahead.h"

#include "base/clock.h"

enum {
    CACHED_AFTER = 32
}; // own reads in a row that did not wait: the next one's bytes are in memory too

// A worker's own read: timed, and seen from outside while it lasts.
static void begin_read(dt_sample_scratch *w, double now) {
    if (w->n_reads == 0) w->n_waits = dt_thread_waits();
    __atomic_store_n(&w->since_ns, (uint64_t)(now * 1e9), __ATOMIC_RELAXED);
}

static void end_read(dt_sample_scratch *w, double begin, size_t n_bytes) {
    __atomic_store_n(&w->since_ns, 0, __ATOMIC_RELAXED);
    w->n_reads++;
    bool slow = dt_ahead_is_slow(dt_clock_s() - begin, n_bytes, &w->n_waits);
    w->n_slow += slow;
    w->n_quick = slow ? 0 : w->n_quick + (w->n_quick < CACHED_AFTER);
}

static void count_read(dt_sample_scratch *w, double begin, size_t n_bytes) {
    dt_counter_add(&w->read_ns, (uint64_t)((dt_clock_s() - begin) * 1e9));
    dt_counter_add(&w->n_read, 1);
    dt_counter_add(&w->n_bytes, n_bytes);
}

static dt_status read_now(const dt_data *d, dt_sample_scratch *w, uint32_t record, uint32_t member,
                          double begin, dt_span *out) {
    begin_read(w, begin);
    dt_status st = dt_set_read(d->set, record, member, d->verify, &w->bytes, out);
    end_read(w, begin, (size_t)d->set->catalog->members[member].size);
    return st;
}

static bool keeps_bytes(const dt_data *d, int field) {
    return d->cache.cache && d->cache.slot[field] >= 0 && !d->cache.pixels[field];
}

bool dt_keeps_pixels(const dt_data *d, int field) {
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
    if (!keeps_bytes(d, field) || d->cache.kind != DT_CACHE_disk) return false;
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
    count_read(w, begin, n_bytes);
    return DT_OK;
}

// ---- without a copy --------------------------------------------------------------------------------
bool dt_can_fetch_apart(const dt_data *d, const dt_sample_scratch *w, int field) {
    return !keeps_bytes(d, field) && !(w->given && w->given[field].data);
}

dt_status dt_fetch_apart(const dt_data *d, dt_sample_scratch *w, uint32_t record, uint32_t member,
                         void *dst, size_t n_payload, size_t *n_head) {
    size_t n_bytes = (size_t)d->set->catalog->members[member].size;
    double begin = dt_clock_s();
    *n_head = n_bytes - n_payload;
    if (!dt_buffer_reserve(&w->bytes, n_bytes)) return dt_fail(DT_E_INTERNAL, "out of memory");
    begin_read(w, begin);
    dt_status st = dt_set_read_apart(d->set, record, member, d->verify, w->n_quick >= CACHED_AFTER,
                                     w->hash, w->bytes.data, dst, n_payload);
    end_read(w, begin, n_bytes);
    if (st == DT_OK) count_read(w, begin, n_bytes);
    return st;
}

const uint8_t *dt_fetch_pixels(const dt_data *d, dt_sample_scratch *w, int field, uint32_t record) {
    if (!dt_keeps_pixels(d, field)) return NULL;
    const uint8_t *p = dt_cache_find(d->cache.cache, dt_data_cache_entry(d, field, record));
    dt_counter_add(p ? &w->n_hits : &w->n_misses, 1);
    return p;
}

void dt_keep_pixels(const dt_data *d, int field, uint32_t record, const uint8_t *pixels) {
    if (dt_keeps_pixels(d, field))
        dt_cache_store(d->cache.cache, dt_data_cache_entry(d, field, record), pixels,
                       dt_data_pixel_bytes(d, field));
}

bool dt_is_cached(const dt_data *d, int field, uint32_t record) {
    return (keeps_bytes(d, field) || dt_keeps_pixels(d, field)) &&
           dt_cache_has(d->cache.cache, dt_data_cache_entry(d, field, record));
}
