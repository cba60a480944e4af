// source.c: opening sets and reading members of records.
//
// Paths become data files (source_parts.h), files become rows (source_parts.h), and the rows of all files, in the
// order in which they are listed, are one catalog. From then on the format does not matter: a member is
// `size` bytes at `offset` of a shard, read with pread and checked by its hash before it is decoded.
//
// Descriptors: the first 512 shards are opened at first use and stay open. In a larger dataset (a folder has a
// shard for each file) the others are opened and closed around each read, which costs 3 us. Unpacked copies
// of compressed shards stay open, which keeps them from being removed.
#include "source.h"
#include "data/catalog/index_file.h"
#include "data/raw/raw.h"
#include "source_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "store/blob.h"
#include "store/blob_cache.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MAX_KEPT = 512 };

// ---- opening -------------------------------------------------------------------------------------
typedef struct opening {
    dt_reader *s;
    dt_found_list found;
    dt_shard_job *jobs; // of the files, in order
    size_t n_jobs;
    dt_unpack_cache cache;
    uint32_t n_bad;
    char first_bad[256];
} opening;

static dt_status source_collect(opening *o, const dt_reader_item *items, size_t n_items) {
    for (size_t i = 0; i < n_items; i++) DT_TRY(dt_collect(&o->found, &items[i], (uint32_t)i));
    DT_TRY(dt_found_check(&o->found));
    o->jobs = dt_xcalloc(o->found.n + 1, sizeof *o->jobs);
    for (size_t i = 0; i < o->found.n; i++) {
        if (o->found.f[i].is_raw) continue;
        o->jobs[o->n_jobs++].path = o->found.f[i].path;
    }
    return DT_OK;
}

// The rows of the next file.
static dt_status append_file(opening *o, size_t i) {
    dt_catalog *c = o->s->catalog;
    dt_shard_job *j = &o->jobs[i];
    bool stale = false;
    // an index is read or made before: rows come by one way
    DT_TRY(dt_index_parse(c, j->path, j->path, j->index.data, j->index.n_bytes, j->n_bytes, j->stamp, &stale));
    dt_buffer_fini(&j->index);
    c->shards[c->n_shards - 1].file = j->file;
    c->shards[c->n_shards - 1].version = j->version;
    j->file = NULL; // the catalog has it
    o->s->kind = o->s->kind && strcmp(o->s->kind, j->format) != 0 ? "mixed" : j->format;
    // the first of the set, in the order of its files
    if (o->n_bad == 0) memcpy(o->first_bad, j->first_bad, sizeof o->first_bad);
    o->n_bad += j->n_bad;
    return DT_OK;
}

static dt_status append_all(opening *o) {
    dt_catalog *c = o->s->catalog;
    bool mixed = false, warned = false; // mixed: sets of several names, which a column tells apart
    for (size_t i = 1; i < o->found.n; i++) mixed = mixed || strcmp(o->found.f[i].name, o->found.f[0].name) != 0;
    for (size_t i = 0, job = 0; i < o->found.n; i++) {
        const dt_found *f = &o->found.f[i];
        uint32_t first = c->n_records, shard = c->n_shards;
        if (f->is_raw)
            DT_TRY(dt_raw_load(c, f->path));
        else
            DT_TRY(append_file(o, job++));
        if (f->is_raw) o->s->kind = o->s->kind && strcmp(o->s->kind, "folder") != 0 ? "mixed" : "folder";
        const uint32_t n = c->n_records - first;
        if (f->n_records >= 0 && f->n_records != n) // the list is older than its shards
            dt_warn_alike("%s: has %u records, and the list of shards states %lld: the file was replaced", f->path, n,
                          (long long)f->n_records);
        for (; shard < c->n_shards; shard++) c->shards[shard].set = f->item;
        int column = dt_catalog_find_column(c, "set");
        // a set that was packed from several has the column
        bool theirs = mixed && column >= 0 && c->n_records > first && dt_catalog_has(c, column, first, c->n_records);
        if (theirs && !warned)
            dt_warn_alike("%s: its records have a column `set` of their own, which is kept", f->path);
        warned = warned || theirs;
        if (mixed && !theirs) DT_TRY(dt_catalog_set_from(c, first, "set", f->name));
    }
    return DT_OK;
}

static void warn_of_opening(const opening *o) {
    if (o->n_bad)
        dt_warn_alike("%u records have metadata that cannot be read and are without those columns; the "
                      "first: %s",
                      o->n_bad, o->first_bad);
    if (o->cache.n_files) {
        char *dir = dt_io_cache_folder(o->cache.dir, DT_CACHE_UNPACKED);
        dt_warn("unpacked %llu compressed files, %.0f MB, into %s (data.cache_dir), which may take "
                "%.4g GiB in all (data.cache_size)",
                (unsigned long long)o->cache.n_files, (double)o->cache.n_bytes / 1e6, dir,
                (double)o->cache.max_bytes / 1073741824.0);
        free(dir);
    }
}

// Unpacked copies of many shards need as many descriptors, so this process asks for all that it may have. Returns
// how many files may be open: half of them, as the process needs others too.
static uint32_t allow_descriptors(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return MAX_KEPT;
    rlim_t had = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) != 0) r.rlim_cur = had; // a container may forbid it
    return r.rlim_cur / 2 < UINT32_MAX ? (uint32_t)(r.rlim_cur / 2) : UINT32_MAX;
}

static dt_blob *on_heap(const dt_blob *b) {
    dt_blob *copy = dt_xcalloc(1, sizeof *copy);
    *copy = *b;
    return copy;
}

static void source_drop(dt_blob *b) {
    if (b) dt_blob_close(b);
    free(b);
}

// Unpacked copies stay open: that keeps other processes from removing them. So do objects that took a request to open.
static void keep_opened(opening *o) {
    dt_reader *s = o->s;
    s->blobs = dt_xcalloc(s->catalog->n_shards + 1, sizeof *s->blobs);
    for (size_t j = 0, i = 0; j < o->n_jobs && i < s->catalog->n_shards; i++) {
        dt_shard_job *job = &o->jobs[j];
        const dt_shard *shard = &s->catalog->shards[i];
        if (strcmp(job->path, shard->path) != 0) continue; // a folder's files have no job
        j++;
        if (!job->kept.store) continue;
        s->blobs[i] = on_heap(&job->kept);
        s->blobs[i]->path = shard->path;
        job->kept.store = NULL; // closed by the reader from now on
    }
}

dt_status dt_reader_open_items(dt_reader **out, const dt_reader_item *items, size_t n_items,
                               const dt_reader_options *options) {
    dt_reader_options defaults = {.write_index = true};
    if (!options) options = &defaults;
    opening o = {.s = dt_xcalloc(1, sizeof *o.s),
                 .cache = {.dir = options->cache_dir,
                           .max_bytes = options->cache_bytes ? options->cache_bytes : DT_CACHE_AUTO_BYTES}};
    dt_reader *s = o.s;
    *out = NULL;
    s->catalog = dt_catalog_create();
    s->n_items = (uint32_t)n_items;
    s->weight = dt_xcalloc(n_items + 1, sizeof *s->weight);
    for (size_t i = 0; i < n_items; i++) {
        // beside a weight that is given, sets without one count 1
        s->weight[i] = items[i].weight > 0 ? items[i].weight : 1;
        s->is_weighted = s->is_weighted || (items[i].weight > 0 && n_items > 1);
    }
    dt_status st = source_collect(&o, items, n_items);
    if (st == DT_OK) {
        s->max_files = allow_descriptors();
        s->max_kept = s->max_files < MAX_KEPT ? s->max_files : MAX_KEPT;
        st = dt_shards_load(o.jobs, o.n_jobs, &o.cache, options);
    }
    if (st == DT_OK) st = append_all(&o);
    if (st == DT_OK && s->catalog->n_records == 0)
        st = dt_fail(DT_E_DATA, "%s: holds no records",
                     o.n_jobs  ? o.jobs[0].path
                     : n_items ? items[0].path
                               : "data.path");
    if (st == DT_OK) st = dt_catalog_finish(s->catalog);
    keep_opened(&o); // after a failure, too: the reader closes them
    if (st == DT_OK) warn_of_opening(&o);
    for (size_t i = 0; i < o.n_jobs; i++) dt_shard_job_fini(&o.jobs[i]);
    free(o.jobs);
    dt_found_fini(&o.found);
    if (st != DT_OK)
        dt_reader_close(s);
    else
        *out = s;
    return st;
}

dt_status dt_reader_open(dt_reader **out, const char *const *paths, size_t n_paths) {
    dt_reader_item *items = dt_xcalloc(n_paths + 1, sizeof *items);
    for (size_t i = 0; i < n_paths; i++) items[i] = (dt_reader_item){.path = paths[i]};
    dt_status st = dt_reader_open_items(out, items, n_paths, NULL);
    free(items);
    return st;
}

void dt_reader_close(dt_reader *s) {
    if (!s) return;
    for (uint32_t i = 0; s->blobs && i < s->catalog->n_shards; i++) source_drop(s->blobs[i]);
    free((void *)s->blobs);
    dt_blob_cache_close(s->cache);
    free(s->weight);
    dt_catalog_destroy(s->catalog);
    free(s);
}

// A copy of a compressed shard lies in the host's cache already.
static void source_keep(const dt_reader *s, dt_blob *b, uint32_t shard) {
    const dt_shard *sh = &s->catalog->shards[shard];
    if (s->cache && !sh->file && (s->keeps_files || b->store->remote)) dt_blob_keep(b, s->cache, sh->stamp);
}

void dt_reader_keep(dt_reader *s, dt_blob_cache *cache, bool files) {
    s->cache = cache;
    s->keeps_files = files;
    for (uint32_t i = 0, n = 0; i < s->catalog->n_shards && n < s->max_files; i++)
        if (s->blobs[i]) {
            source_keep(s, s->blobs[i], i);
            n++;
        }
}

// ---- reading -------------------------------------------------------------------------------------
dt_status dt_set_context(const dt_reader *s, uint32_t record, uint32_t member, dt_status code) {
    const dt_catalog *c = s->catalog;
    const dt_record *r = &c->records[record];
    const dt_member *m = &c->members[member];
    return dt_fail_context(code, "%s: record %s, member %s (%llu bytes at offset %llu)", c->shards[r->shard].path,
                           dt_catalog_str(c, r->key), dt_catalog_str(c, c->exts[m->ext]), (unsigned long long)m->size,
                           (unsigned long long)m->offset);
}

// Whether what was opened by the shard's path is still the file that the rows are of. A file that was only touched is.
static dt_status check_file(const dt_shard *sh, const dt_blob *b) {
    uint64_t stamp = sh->stamp; // 0: a file of a folder, which is one record
    if (stamp != 0 && b->n_bytes == sh->n_bytes && b->version != sh->version) DT_TRY(dt_blob_stamp(b, &stamp));
    if (b->n_bytes == sh->n_bytes && stamp == sh->stamp) return DT_OK;
    return dt_fail(stamp != 0 ? DT_E_STORAGE : DT_E_DATA, "%s: is another file than when it was opened: start again",
                   sh->path);
}

// What a server refuses is no damage of a record.
static dt_status refused(const dt_shard *sh, dt_status st) {
    return st == DT_E_DATA && dt_blob_is_url(sh->path) ? DT_E_STORAGE : st;
}

dt_status dt_reader_read_range(dt_reader *s, uint32_t shard, uint64_t offset, void *dst, size_t n_bytes) {
    const dt_shard *sh = &s->catalog->shards[shard];
    dt_blob *kept = s->blobs[shard], own = {.store = NULL};
    if (!kept) {
        dt_status st = dt_blob_open(&own, sh->file ? sh->file : sh->path);
        own.path = sh->path; // messages name the compressed shard, not its copy
        if (st == DT_OK) st = check_file(sh, &own);
        if (st != DT_OK) {
            dt_blob_close(&own);
            return refused(sh, st);
        }
    }
    if (!kept && shard < s->max_kept) {
        dt_blob *first = NULL;
        source_keep(s, &own, shard);
        kept = on_heap(&own);
        own.store = NULL;
        // two threads may open the same shard at once: the second one drops its own
        if (!atomic_compare_exchange_strong(&s->blobs[shard], &first, kept)) {
            source_drop(kept);
            kept = first;
        }
    }
    dt_status st = dt_blob_read(kept ? kept : &own, offset, dst, n_bytes);
    dt_blob_close(&own);
    return refused(sh, st);
}

dt_status dt_reader_check(const dt_reader *s, uint32_t record, uint32_t member, bool verify, dt_span bytes) {
    if (bytes.n_bytes == 0) return dt_set_context(s, record, member, dt_fail(DT_E_DATA, "it is empty"));
    const dt_member *m = &s->catalog->members[member];
    if (!verify || !m->has_hash || dt_hash64(bytes.data, bytes.n_bytes) == m->hash) return DT_OK;
    dt_status st = dt_fail(DT_E_DATA, "its bytes are not those that were packed (XXH3 differs): the file was "
                                      "changed or the disk is bad; copy or pack it again");
    return dt_set_context(s, record, member, st);
}

bool dt_reader_forget(const dt_reader *s, uint32_t record, uint32_t member) {
    const dt_blob *b = s->blobs[s->catalog->records[record].shard];
    const dt_member *m = &s->catalog->members[member];
    return b && dt_blob_forget(b, m->offset, m->size);
}

// Some CPUs copy far slower if the destination lies a few bytes behind the source, both modulo a page: Zen 3's
// `rep movsb`, with which the kernel copies, makes 2 instead of 15 to 20 GB/s at 1 to 31 bytes. Memory from
// malloc begins 16 bytes into a page, and one member of eight in a tar begins at the start of one. So the
// place in scratch has its source's remainder modulo 64 (as far as malloc's alignment stays).
enum { LINE = 64, MALLOC_ALIGN = 16 };

dt_status dt_reader_read(dt_reader *s, uint32_t record, uint32_t member, bool verify, dt_buffer *scratch,
                         dt_span *out) {
    const dt_member *m = &s->catalog->members[member];
    uint8_t *data = dt_buffer_reserve(scratch, (size_t)m->size + LINE);
    if (!data) return dt_set_context(s, record, member, dt_fail(DT_E_DATA, "no memory for its bytes"));
    data += (m->offset - (uintptr_t)data) & (LINE - MALLOC_ALIGN);
    for (bool again = true;; again = false) {
        dt_status st = dt_reader_read_range(s, s->catalog->records[record].shard, m->offset, data, m->size);
        if (st != DT_OK) return dt_set_context(s, record, member, st);
        st = dt_reader_check(s, record, member, verify, (dt_span){data, m->size});
        // once: the block cache's copy may be damaged, and not the object
        if (st == DT_OK || !again || !dt_reader_forget(s, record, member)) {
            *out = (dt_span){data, m->size};
            return st;
        }
        dt_error_clear();
    }
}

// ---- damage, or another file -----------------------------------------------------------------------
// Whether none of some records, taken evenly from those of the file, is as its index describes it: by the first member
// that has a hash. Records without one fit.
static bool fits_no_record(dt_reader *s, uint32_t record) {
    enum { N = 8 };
    const dt_catalog *c = s->catalog;
    const uint32_t shard = c->records[record].shard;
    uint32_t first = record, end = record, n_bad = 0;
    dt_buffer scratch = {0};
    dt_span bytes;
    while (first > 0 && c->records[first - 1].shard == shard) first--;
    while (end < c->n_records && c->records[end].shard == shard) end++;
    for (uint32_t k = 0; k < N && n_bad == k && end - first >= N; k++) {
        const uint32_t r = first + (uint32_t)((uint64_t)(end - first) * k / N);
        uint32_t m = c->records[r].first_member;
        const uint32_t m_end = m + c->records[r].n_members;
        while (m < m_end && (c->members[m].size == 0 || !c->members[m].has_hash)) m++;
        // no hash: nothing is known, which fits
        n_bad += m < m_end && dt_reader_read(s, r, m, true, &scratch, &bytes) != DT_OK;
    }
    dt_buffer_fini(&scratch);
    return n_bad == N;
}

dt_status dt_reader_blame(dt_reader *s, uint32_t record) {
    const dt_shard *sh = &s->catalog->shards[s->catalog->records[record].shard];
    const dt_error_kept why = dt_error_keep(); // the message of the record, which other reads would replace
    dt_blob b = {.store = NULL};
    dt_status st = DT_OK;
    // a copy or an object that is replaced is noticed where it is read
    if (sh->stamp != 0 && !sh->file && !dt_blob_is_url(sh->path) && dt_blob_open(&b, sh->path) == DT_OK)
        st = check_file(sh, &b);
    dt_blob_close(&b);
    if (st == DT_E_STORAGE) return st;
    if (fits_no_record(s, record))
        return dt_fail(DT_E_STORAGE,
                       "%s: is another file than %s.index describes: pack it again, or remove that "
                       "to take it as it is",
                       sh->path, sh->path);
    dt_error_restore(&why);
    return DT_E_DATA;
}
