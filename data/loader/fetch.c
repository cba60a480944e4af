// fetch.c: where a worker gets a member's bytes: from the cache, else from the readers, else by a read of its
// own. How long its own reads take decides whether readers begin (readahead.c).
//
// The hash is checked here, by the thread that decodes next, so that the bytes come into its core's cache only
// once. What the cache has was checked before it was stored.
//
// Rejected: reading an uncompressed value (a PPM, a vector) right to its place in the batch. For 224 x 224 pixels that
// saves a copy of 8 of 46 us, where a thread has 20,000 images a second anyway; and values that are cached or read ahead gain nothing.

#include "data_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/trace.h"
#include "config/words.h"
#include "store/blob.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// A worker's own read. It is timed, and others can see how long it has lasted.
static dt_status read_now(const dt_data *d, dt_sample_scratch *w, dt_fetch *f, double begin) {
    const dt_member *m = &d->reader->catalog->members[f->member];
    if (w->n_reads++ == 0) w->n_waits = dt_thread_waits(); // once a unit, not for each member
    dt_counter_set(&w->since_ns, (uint64_t)(begin * 1e9));
    const dt_status st = dt_reader_read(d->reader, f->record, f->member, d->verify, &w->bytes, &f->bytes);
    dt_counter_set(&w->since_ns, 0); // no read is in progress
    w->n_slow += dt_read_is_slow(dt_clock_s() - begin, (size_t)m->size, &w->n_waits);
    return st;
}

// The member from the readers, if they have it and it is whole, or by a read.
static dt_status get_bytes(const dt_data *d, dt_sample_scratch *w, dt_fetch *f, double begin) {
    if (w->given && w->given[f->field].data) {
        f->bytes = w->given[f->field];
        const dt_status st = dt_reader_check(d->reader, f->record, f->member, d->verify, f->bytes);
        if (st == DT_OK || !dt_reader_forget(d->reader, f->record, f->member)) return st;
        dt_error_clear(); // the block cache gave it: what is fetched now may be whole
    }
    return read_now(d, w, f, begin);
}

dt_status dt_fetch_member(const dt_data *d, dt_sample_scratch *w, dt_fetch *f) {
    const double begin = dt_clock_s();
    const bool kept = dt_is_kept(d, f->field), pixels = kept && d->cache.pixels[f->field];
    const uint32_t entry = kept ? dt_data_cache_entry(d, f->field, f->record) : 0;
    const uint8_t *found = kept ? dt_cache_find(d->cache.cache, entry) : NULL;
    f->are_pixels = found && pixels;
    f->bytes = (dt_span){found, pixels ? dt_data_pixel_bytes(d, f->field)
                                       : (size_t)d->reader->catalog->members[f->member].size};
    if (kept) dt_counter_add(found ? &w->n_hits : &w->n_misses, 1);
    if (f->are_pixels) return DT_OK; // nothing is read
    const int64_t traced = dt_trace_open("loader", "read");
    const dt_status st = found ? DT_OK : get_bytes(d, w, f, begin);
    dt_trace_close(traced);
    DT_TRY(st);
    // pixels are stored once they are decoded (dt_keep_pixels)
    if (kept && !found && !pixels) dt_cache_store(d->cache.cache, entry, f->bytes.data, f->bytes.n_bytes);
    dt_counter_add(&w->read_ns, (uint64_t)((dt_clock_s() - begin) * 1e9));
    dt_counter_add(&w->n_read, 1);
    dt_counter_add(&w->n_bytes, f->bytes.n_bytes);
    return DT_OK;
}

// ---- cache data ---------------------------------------------------------------------------------------------------

// What a dataset keeps in its cache, and the cache's key.
//
// An entry is a record's value of one field: the member's bytes as they are stored, or its pixels before
// augmentation (data.cache_form: decoded), if those are the same in every epoch. A field that begins with a
// random crop has no such pixels and keeps the encoded bytes. data.cache: disk keeps blocks of files and objects instead,
// below the reader (store/blob_cache.h).
//
// The first loader opens the cache, not the dataset: `dtrain check` makes none. If there is no room for it,
// the run goes on without and says so.

static bool is_member(const dt_field *f) {
    return f->is_ext != NULL;
}

// Whether the pixels before augmentation are the same in every epoch.
static bool has_fixed_pixels(const dt_field *f, const dt_field_info *info) {
    return f->kind == DT_FIELD_image && info->dtype == DT_U8 && !(f->augment && dt_augment_crops(f->augment));
}

bool dt_data_has_objects(const dt_data *d) {
    const dt_catalog *c = d->reader->catalog;
    for (uint32_t i = 0; i < c->n_shards; i++)
        if (dt_blob_is_url(c->shards[i].path) && !c->shards[i].file) return true;
    return false;
}

uint64_t dt_data_disk_bytes(const dt_config *c) {
    const bool memory = c->data.cache == DT_CACHE_ram || c->data.cache == DT_CACHE_shared;
    return memory || c->data.cache_size.is_auto ? 0 : (uint64_t)dt_answer(c->data.cache_size);
}

dt_status dt_data_cache_configure(dt_data *d, const dt_config *c) {
    dt_data_cache *k = &d->cache;
    bool decoded = c->data.cache_form == DT_CACHE_FORM_decoded;
    k->kind = c->data.cache;
    k->n_processes = 1;
    k->keeps_files = k->kind == DT_CACHE_disk;
    // a server is far; a file is in the page cache
    if (k->kind == DT_CACHE_auto) k->kind = dt_data_has_objects(d) ? DT_CACHE_disk : DT_CACHE_none;
    if (k->kind == DT_CACHE_none) return DT_OK;
    if (decoded && k->kind == DT_CACHE_disk && k->keeps_files)
        return dt_config_fail(c, "data.cache_form", "decoded pixels are kept in memory: data.cache is ram or shared");
    if (!c->data.cache_size.is_auto) k->cap_bytes = (uint64_t)dt_answer(c->data.cache_size);
    k->dir = dt_io_cache_folder(c->data.cache_dir, "");
    if (k->kind == DT_CACHE_disk && !k->dir)
        return dt_config_fail(c, "data.cache", "there is no place for it: set data.cache_dir");
    k->run = dt_xprintf("%s/%s", c->run.dir, c->run.name);
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field *f = &d->fields.f[i];
        k->slot[i] = is_member(f) ? k->n_slots++ : -1;
        k->pixels[i] = decoded && has_fixed_pixels(f, &d->fields.info[i]);
        if (decoded && is_member(f) && !k->pixels[i])
            dt_info("data.cache_form: %s differs from epoch to epoch before it is augmented; its "
                    "encoded bytes are kept",
                    f->name);
    }
    if (k->n_slots == 0) k->kind = DT_CACHE_none; // columns alone: they are in memory already
    return DT_OK;
}

// ---- the name ----------------------------------------------------------------------------------------
static void cache_data_mix(uint64_t *h, const void *p, size_t n) {
    uint64_t both[2] = {*h, dt_hash64(p, n)};
    *h = dt_hash64(both, sizeof both);
}

static void mix_files(const dt_catalog *c, uint64_t *h) {
    for (uint32_t i = 0; i < c->n_shards; i++) {
        struct stat st = {0};
        stat(c->shards[i].path, &st);
        // 0 where the path is a URL
        int64_t id[3] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
        cache_data_mix(h, c->shards[i].path, strlen(c->shards[i].path));
        cache_data_mix(h, id, sizeof id);
    }
}

static bool all_have_hashes(const dt_catalog *c) {
    for (uint32_t i = 0; i < c->n_members; i++)
        if (!c->members[i].has_hash) return false;
    return true;
}

// A hash of all that decides what the entries hold. Where the catalog has no hashes of the members, sizes and times of
// the files stand for them.
static uint64_t cache_key(const dt_data *d) {
    const dt_catalog *c = d->reader->catalog;
    uint64_t h = dt_catalog_hash(c);
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field_info *info = &d->fields.info[i];
        bool pixels = d->cache.pixels[i];
        cache_data_mix(&h, info->name, strlen(info->name));
        cache_data_mix(&h, &d->cache.slot[i], sizeof(int));
        if (!pixels) continue;
        cache_data_mix(&h, &info->sample_shape, sizeof info->sample_shape);
        cache_data_mix(&h, &d->fields.f[i].fit, sizeof(dt_fit));
        if (d->fields.f[i].fit.kind == DT_FIT_pad) cache_data_mix(&h, info->mean, sizeof info->mean);
    }
    if (!all_have_hashes(c)) mix_files(c, &h);              // a stat for each file
    cache_data_mix(&h, d->cache.run, strlen(d->cache.run)); // runs share nothing: one that ends takes its name away
    cache_data_mix(&h, &d->base.fingerprint, sizeof d->base.fingerprint);
    cache_data_mix(&h, &d->cache.cap_bytes, sizeof d->cache.cap_bytes);
    cache_data_mix(&h, &d->cache.n_processes, sizeof d->cache.n_processes);
    return h;
}

// ---- opening -----------------------------------------------------------------------------------------
size_t dt_data_pixel_bytes(const dt_data *d, int field) {
    return (size_t)dt_shape_elements(&d->fields.info[field].sample_shape);
}

// Of all records that have the field.
static uint64_t field_bytes(const dt_data *d, int field, bool pixels) {
    const dt_catalog *c = d->reader->catalog;
    uint64_t sum = 0;
    for (uint32_t r = 0; r < c->n_records; r++) {
        int64_t m = dt_field_member(&d->fields.f[field], c, r);
        if (m >= 0) sum += pixels ? dt_data_pixel_bytes(d, field) : c->members[m].size;
    }
    return sum;
}

uint64_t dt_data_decoded_bytes(const dt_data *d) {
    uint64_t sum = 0;
    bool any = false;
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field *f = &d->fields.f[i];
        bool pixels = has_fixed_pixels(f, &d->fields.info[i]);
        if (d->cache.pixels[i] || f->kind == DT_FIELD_audio || (f->kind == DT_FIELD_image && !pixels)) return 0;
        sum += field_bytes(d, i, pixels);
        any = any || pixels;
    }
    return any ? sum : 0;
}

void dt_data_cache_open(dt_data *d) {
    dt_data_cache *k = &d->cache;
    if (k->kind == DT_CACHE_none || k->opened) return;
    k->opened = true;
    if (k->kind == DT_CACHE_disk) {
        dt_blob_cache *cache;
        if (dt_blob_cache_open(&cache, k->dir, k->cap_bytes) == DT_OK)
            dt_reader_keep(d->reader, cache, k->keeps_files);
        else
            dt_warn("%s: continuing without data.cache", dt_error_message());
        return;
    }
    // an entry for each record and field, used or not: a word each
    const uint64_t n_entries = (uint64_t)d->reader->catalog->n_records * (uint64_t)k->n_slots;
    if (n_entries > UINT32_MAX) {
        dt_warn("%llu records and fields are more than data.cache can keep: continuing without it",
                (unsigned long long)n_entries);
        return;
    }
    dt_cache_opts o = {.kind = k->kind,
                       .key = cache_key(d),
                       .n_entries = (uint32_t)n_entries,
                       .cap_bytes = k->cap_bytes,
                       .n_processes = k->n_processes};
    for (int i = 0; i < d->fields.n; i++)
        if (k->slot[i] >= 0) o.total_bytes += field_bytes(d, i, k->pixels[i]);
    if (dt_cache_open(&k->cache, &o) != DT_OK) {
        dt_warn("%s: continuing without data.cache", dt_error_message());
        return;
    }
    dt_cache_stats u;
    dt_cache_get_stats(k->cache, &u);
    dt_info("data: cache %s, at most %.1f MiB for %.1f MiB", DT_WORD_OF(DT_CACHE_WORDS, u.kind),
            (double)(k->cap_bytes ? k->cap_bytes : o.total_bytes) / 1048576.0, (double)o.total_bytes / 1048576.0);
    if (k->kind == DT_CACHE_ram && k->n_processes > 1)
        dt_info("data: each of the %d ranks here keeps a copy; data.cache: shared keeps one", k->n_processes);
}

void dt_data_cache_stats(const dt_data *d, dt_cache_stats *out) {
    *out = (dt_cache_stats){.kind = DT_CACHE_none};
    if (d->cache.cache) dt_cache_get_stats(d->cache.cache, out);
    if (!d->reader->cache) return;
    dt_blob_cache_stats s;
    dt_blob_cache_get_stats(d->reader->cache, &s);
    *out = (dt_cache_stats){DT_CACHE_disk, s.n_hits, s.n_misses, s.n_blocks, s.n_bytes, d->cache.cap_bytes, s.full};
}

void dt_data_cache_close(dt_data *d) {
    dt_cache_close(d->cache.cache);
    free(d->cache.dir);
    free(d->cache.run);
    d->cache = (dt_data_cache){0};
}

// ---- what is kept ----------------------------------------------------------------------------------
bool dt_is_kept(const dt_data *d, int field) {
    return d->cache.cache && d->cache.slot[field] >= 0;
}

void dt_keep_pixels(const dt_data *d, int field, uint32_t record, const uint8_t *pixels) {
    if (dt_is_kept(d, field) && d->cache.pixels[field])
        dt_cache_store(d->cache.cache, dt_data_cache_entry(d, field, record), pixels, dt_data_pixel_bytes(d, field));
}
