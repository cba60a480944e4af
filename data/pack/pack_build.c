// pack_build.c: the threads that build a dataset.
//
//   composers   take the next chunk of the plan, read, transform and hash
//   the caller  takes chunks in the order of the plan, writes their members to the file, and adds their rows
//
// So the bytes depend on the plan alone. Finished chunks wait in a ring of a fixed size, which bounds the memory;
// slot i % n_slots is of chunk i, so the chunk that the writer waits for always has one.

#include "pack_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/thread.h"
#include "data/catalog/index_file.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

// N_SPARE: chunks that may be ready while every composer works on one; BLOCK: of copy_large
enum { N_SPARE = 8, BLOCK = 1 << 20 };

typedef struct slot {
    dt_chunk chunk;
    bool is_built; // set by a composer, cleared by the writer, under the lock
} slot;

typedef struct builder {
    const dt_build *b;
    size_t *chunks; // of the plan, in the order in which they are written
    size_t n_chunks;
    pthread_mutex_t lock;
    pthread_cond_t has_slot, has_chunk; // has_slot: for composers; has_chunk: for the writer
    slot *slots;
    size_t n_slots, n_taken, n_written; // chunks
    dt_status status;                   // the first failure ends all threads
    dt_error_kept first;
} builder;

static void fail_all(builder *w, dt_status st) {
    pthread_mutex_lock(&w->lock);
    if (w->status == DT_OK) {
        w->status = st;
        w->first = dt_error_keep();
    }
    pthread_cond_broadcast(&w->has_slot);
    pthread_cond_broadcast(&w->has_chunk);
    pthread_mutex_unlock(&w->lock);
}

// ---- composers ----------------------------------------------------------------------------------------
// The next chunk and its slot; NULL: there is none left, or somebody failed.
static slot *pack_build_take_chunk(builder *w, size_t *chunk) {
    slot *s = NULL;
    pthread_mutex_lock(&w->lock);
    // the ring is full: taken chunks that are not written yet fill every slot
    while (w->status == DT_OK && w->n_taken < w->n_chunks && w->n_taken == w->n_written + w->n_slots)
        pthread_cond_wait(&w->has_slot, &w->lock);
    if (w->status == DT_OK && w->n_taken < w->n_chunks) {
        s = &w->slots[w->n_taken % w->n_slots];
        *chunk = w->chunks[w->n_taken++]; // in the order of the plan
    }
    pthread_mutex_unlock(&w->lock);
    return s;
}

static void compose_chunks(builder *w) {
    dt_composer *composer = dt_composer_create(w->b->compose); // reused for all chunks of the thread
    size_t chunk;
    double all_s = 0;
    for (slot *s; (s = pack_build_take_chunk(w, &chunk));) {
        const double begin_s = dt_clock_s();
        // outside the lock: the slot is this thread's until is_built
        dt_status st = dt_compose_chunk(composer, chunk, &s->chunk);
        if (st != DT_OK) {
            fail_all(w, st);
            break;
        }
        all_s += dt_clock_s() - begin_s;
        pthread_mutex_lock(&w->lock);
        s->is_built = true;
        pthread_cond_signal(&w->has_chunk);
        pthread_mutex_unlock(&w->lock);
    }
    pthread_mutex_lock(&w->lock);
    dt_composer_add_times(composer, all_s, w->b->times);
    pthread_mutex_unlock(&w->lock);
    dt_composer_destroy(composer);
}

// ---- the writer ---------------------------------------------------------------------------------------
// The chunk that is written next, once it is built.
static dt_status next_chunk(builder *w, const dt_chunk **out) {
    slot *s = &w->slots[w->n_written % w->n_slots];
    const double begin_s = dt_clock_s();
    *out = &s->chunk;
    pthread_mutex_lock(&w->lock);
    while (w->status == DT_OK && !s->is_built) {
        dt_thread_wait(&w->has_chunk, &w->lock, dt_clock_s() + 1); // 1 s: the progress line moves meanwhile
        dt_progress_tick(w->b->progress);
    }
    dt_status st = w->status;
    w->b->times->write_s -= dt_clock_s() - begin_s; // of all its time
    pthread_mutex_unlock(&w->lock);
    return st;
}

static void give_back(builder *w) {
    const dt_compose *c = w->b->compose;
    const dt_plan_chunk *p = &c->plan->chunks[w->chunks[w->n_written]];
    for (size_t i = p->first; i < p->first + p->n; i++) w->b->progress->n_bytes += c->raw->items[i].size;
    w->b->progress->n_items += p->n;
    dt_progress_tick(w->b->progress);
    pthread_mutex_lock(&w->lock);
    w->slots[w->n_written++ % w->n_slots].is_built = false; // the chunk's memory stays for the slot's next chunk
    pthread_cond_signal(&w->has_slot);
    pthread_mutex_unlock(&w->lock);
}

// Copies a very large member from its own file to the data file in blocks, which are hashed on the way.
static dt_status copy_large(const builder *w, dt_pack_writer *out, dt_chunk_record *r, dt_chunk_member *m) {
    const dt_raw *raw = w->b->compose->raw;
    uint8_t *block = aligned_alloc(64, BLOCK + 64);
    dt_hash_stream *h = dt_hash_stream_create();
    dt_status st = block ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory");
    for (uint64_t done = 0; done < m->size && st == DT_OK;) {
        size_t n = m->size - done < BLOCK ? (size_t)(m->size - done) : BLOCK;
        st = dt_raw_read(raw, &raw->items[r->item], done, block, n);
        if (st == DT_OK) dt_hash_stream_update(h, block, n);
        if (st == DT_OK) st = w->b->compose->plan->format->put(out, block, n);
        done += n;
    }
    m->hash = r->source_hash = dt_hash_stream_digest(h); // known only now: of the whole file
    dt_hash_stream_destroy(h);
    free(block);
    return st;
}

static dt_status write_record(const builder *w, dt_pack_writer *out, dt_shard_rows *rows, dt_chunk_record *r) {
    const dt_pack_format *format = w->b->compose->plan->format;
    const dt_raw_item *item = &w->b->compose->raw->items[r->item];
    uint64_t offset[DT_CHUNK_MAX_MEMBERS]; // of each member in the data file, if the format knows it yet
    for (int i = 0; i < r->n_members; i++) {
        dt_chunk_member *m = &r->member[i];
        char *name = dt_xprintf("%s%s.%s", item->key, r->suffix, m->ext);
        dt_status st = format->begin(out, name, m->size, &offset[i]);
        free(name);
        if (st == DT_OK && m->size > 0)
            // an empty member has no bytes to put
            st = m->data ? format->put(out, m->data, (size_t)m->size) : copy_large(w, out, r, m);
        DT_TRY(st);
    }
    return dt_shard_rows_add(rows, r, offset);
}

static dt_status write_chunks(builder *w, dt_pack_writer *out, dt_shard_rows *rows, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const dt_chunk *c;
        DT_TRY(next_chunk(w, &c));
        for (dt_chunk_record *r = c->first; r; r = r->next) DT_TRY(write_record(w, out, rows, r));
        give_back(w);
    }
    return DT_OK;
}

static dt_status write_shard(builder *w, size_t shard) {
    const dt_plan *p = w->b->compose->plan;
    char *path = dt_xprintf("%s/%s", w->b->work->set, p->name[shard]);
    dt_pack_writer *out = NULL;
    dt_shard_rows *rows = dt_shard_rows_create(w->b->compose, shard, path);
    dt_status st = p->format->open(&out, path);
    if (st == DT_OK) st = write_chunks(w, out, rows, p->chunk_at[shard + 1] - p->chunk_at[shard]);
    // syncs; sets offsets that begin could not tell
    if (st == DT_OK) st = p->format->end(out, dt_shard_rows_catalog(rows));
    // last: rows-N stands for a whole shard
    if (st == DT_OK) st = dt_shard_rows_save(rows, w->b->work, w->b->fingerprint);
    p->format->close(out);
    dt_shard_rows_destroy(rows);
    free(path);
    return st;
}

// ---- the whole ----------------------------------------------------------------------------------------
static void pack_build_work(void *arg, int worker) {
    builder *w = arg;
    dt_status st = DT_OK;
    // worker 0 is the caller's thread and writes; the others compose
    if (worker > 0) {
        compose_chunks(w);
        return;
    }
    for (size_t i = 0; i < w->b->n_shards && st == DT_OK; i++) st = write_shard(w, w->b->shards[i]);
    if (st != DT_OK) fail_all(w, st); // wakes composers that wait for a slot
}

dt_status dt_build_run(const dt_build *b) {
    builder w = {.b = b, .n_slots = (size_t)b->n_threads + N_SPARE};
    dt_team *team;
    if (b->n_shards == 0) return DT_OK;
    DT_TRY(dt_team_create(&team, b->n_threads + 1, "dt-pack")); // composers and the writer
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.has_slot, NULL);
    pthread_cond_init(&w.has_chunk, NULL);
    w.slots = dt_xcalloc(w.n_slots, sizeof *w.slots);
    const dt_plan *p = b->compose->plan;
    w.chunks = dt_xcalloc(p->n_chunks + 1, sizeof *w.chunks);
    for (size_t i = 0; i < b->n_shards; i++)
        // chunks of the shards to make, in the order in which they are written
        for (size_t s = b->shards[i], c = p->chunk_at[s]; c < p->chunk_at[s + 1]; c++) w.chunks[w.n_chunks++] = c;
    const double begin_s = dt_clock_s();
    *b->times = (dt_pack_times){0};
    dt_team_run(team, pack_build_work, &w);
    b->times->wall_s = dt_clock_s() - begin_s;
    b->times->write_s += b->times->wall_s;
    dt_team_destroy(team);
    for (size_t i = 0; i < w.n_slots; i++) dt_chunk_fini(&w.slots[i].chunk);
    free(w.slots);
    free(w.chunks);
    pthread_cond_destroy(&w.has_chunk);
    pthread_cond_destroy(&w.has_slot);
    pthread_mutex_destroy(&w.lock);
    if (w.status != DT_OK) dt_error_restore(&w.first); // by the thread that failed
    return w.status;
}

// ---- finish -------------------------------------------------------------------------------------------------------

// What is done once, by one process, when all shards are whole.
//
// Loads the rows of all shards into one catalog, finds duplicates, and writes the indexes.

typedef struct finish {
    const dt_work *w;
    const dt_compose *c;
    const dt_pack_opts *o;
    dt_all_rows rows;
    uint32_t *first; // by item: the item that it repeats
    dt_finish_counts *counts;
} finish;

// ---- rows ---------------------------------------------------------------------------------------------
static dt_status load_rows(finish *f) {
    for (size_t s = 0; s < f->w->plan->n_shards; s++) DT_TRY(dt_all_rows_load(&f->rows, f->c, f->w, s));
    f->counts->n_records = f->rows.catalog->n_records;
    f->counts->n_bytes = f->rows.n_bytes;
    if (f->counts->n_records == 0)
        return dt_fail(DT_E_DATA, "%s: all %zu records were left out: nothing to pack", f->o->source, f->c->raw->n);
    // hash 0: no record came of the item
    for (uint32_t i = 0; i < f->c->raw->n; i++)
        if (f->rows.hash[i] == 0 && !(f->c->drop && f->c->drop[i]) && f->counts->n_without++ == 0)
            f->counts->first_without = i;
    return DT_OK;
}

// Writes into each record that repeats another the other's key, if there is a column left: the dataset is good without
// that column.
static dt_status name_duplicates(const finish *f) {
    const dt_raw *raw = f->c->raw;
    dt_catalog *c = f->rows.catalog;
    dt_finish_counts *n = f->counts;
    for (uint32_t i = 0; i < raw->n && n->twin_b == 0; i++) // twin_b > twin_a: 0 means none
        if (f->first[i] != DT_NO_DUPLICATE) {
            n->twin_a = f->first[i];
            n->twin_b = i;
        }
    if (n->n_duplicates > 0 && f->o->duplicates == DT_DUPLICATES_FAIL)
        return dt_fail(DT_E_DATA, "%zu records repeat others; the first: %s is the same as %s", n->n_duplicates,
                       raw->items[n->twin_b].name, raw->items[n->twin_a].name);
    // DT_MAX_COLUMNS: a dataset at its limit gets no further column
    n->named =
        dt_columns_count(&c->table, DT_TEXT_COLUMN) < DT_MAX_COLUMNS || dt_catalog_find_column(c, "duplicate_of") >= 0;
    for (uint32_t r = 0; r < c->n_records && n->n_duplicates > 0 && n->named; r++) {
        uint32_t first = f->first[f->rows.item[r]];
        if (first != DT_NO_DUPLICATE) DT_TRY(dt_catalog_set_at(c, r, "duplicate_of", raw->items[first].key));
    }
    return DT_OK;
}

// Quality is measured of 8-bit images and of audio only; a warning counts the other records.
static void count_plain(const finish *f) {
    const dt_catalog *c = f->rows.catalog;
    int k = dt_catalog_find_real(c, "clipping"); // measured of images and of audio
    for (uint32_t r = 0; r < c->n_records; r++) {
        if (k >= 0 && !isnan(dt_catalog_real(c, k, r))) continue;
        if (f->counts->n_plain++ == 0) f->counts->first_plain = f->rows.item[r];
    }
}

static void count_clipped(const finish *f) {
    const dt_catalog *c = f->rows.catalog;
    const int k = dt_catalog_find_real(c, "clipped");
    for (uint32_t r = 0; k >= 0 && r < c->n_records; r++) {
        if (!(dt_catalog_real(c, k, r) > 0)) continue;
        if (f->counts->n_clipped++ == 0) f->counts->first_clipped = f->rows.item[r];
    }
}

static dt_status write_indexes(const finish *f) {
    dt_catalog *c = f->rows.catalog;
    dt_status st = DT_OK;
    // beside the data in set/: publish moves both
    for (uint32_t s = 0; s < c->n_shards && st == DT_OK; s++) {
        char *path = dt_xprintf("%s.index", c->shards[s].path);
        st = dt_index_save(c, s, c->shards[s].stamp, path);
        free(path);
    }
    return st;
}

// ---- the whole ----------------------------------------------------------------------------------------
static dt_status finish_run(finish *f) {
    DT_TRY(load_rows(f));
    f->counts->n_duplicates = dt_duplicates_find(f->rows.hash, f->c->raw, &f->first);
    DT_TRY(name_duplicates(f));
    DT_TRY(dt_catalog_finish(f->rows.catalog)); // columns and members are sorted now: names can be looked up
    if (f->o->quality) count_plain(f);
    if (dt_transform_has_column(f->c->transform, "clipped")) count_clipped(f);
    return write_indexes(f);
}

dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o, dt_finish_counts *out) {
    finish f = {.w = w, .c = c, .o = o, .counts = out};
    *out = (dt_finish_counts){0};
    dt_all_rows_init(&f.rows, c->raw);
    dt_status st = finish_run(&f);
    dt_all_rows_fini(&f.rows);
    free(f.first);
    return st;
}

// ---- duplicates ---------------------------------------------------------------------------------------------------

// Content counts as equal if size and XXH3-64 are equal. For two different records of one size the
// chance of that is 2^-64: among a million records, one dataset in forty million has such a pair.

enum { RUN = 16 }; // items per call: threads share a counter

typedef struct entry {
    uint64_t hash, size;
    uint32_t item;
} entry;

static int compare_entries(const void *pa, const void *pb) {
    const entry *a = pa, *b = pb;
    // size first: it is known without reading
    if (a->size != b->size) return a->size < b->size ? -1 : 1;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    return a->item < b->item ? -1 : a->item > b->item; // equal ones in the order of the list: the first is kept
}

size_t dt_duplicates_find(const uint64_t *hash, const dt_raw *raw, uint32_t **first) {
    size_t n = 0, n_twins = 0;
    entry *e = dt_xcalloc(raw->n + 1, sizeof *e);
    *first = dt_xcalloc(raw->n + 1, sizeof **first);
    for (uint32_t i = 0; i < raw->n; i++) {
        (*first)[i] = DT_NO_DUPLICATE;
        if (hash[i]) e[n++] = (entry){hash[i], raw->items[i].size, i}; // 0: not hashed, so not a twin
    }
    qsort(e, n, sizeof *e, compare_entries);
    for (size_t i = 1, at = 0; i < n; i++) {
        if (e[i].hash != e[at].hash || e[i].size != e[at].size) {
            at = i;
            continue;
        }
        (*first)[e[i].item] = e[at].item; // every further one repeats the first
        n_twins++;
    }
    free(e);
    return n_twins;
}

typedef struct job {
    const dt_compose *c;
    const uint32_t *items;
    size_t n;
    uint64_t *hash;
    atomic_size_t next;
    atomic_int status;
    dt_error_kept first; // written by the thread that set status
} job;

static void hash_some(void *arg, int worker) {
    job *j = arg;
    dt_composer *w = dt_composer_create(j->c);
    // a run of items per turn: neighbours in a folder are read together
    for (size_t at; atomic_load(&j->status) == DT_OK && (at = atomic_fetch_add(&j->next, RUN)) < j->n;)
        for (size_t i = at; i < at + RUN && i < j->n; i++) {
            dt_status st = dt_compose_hash(w, j->items[i], &j->hash[j->items[i]]);
            if (st == DT_OK) continue;
            int none = DT_OK;
            // one thread wins; its message is kept
            if (atomic_compare_exchange_strong(&j->status, &none, (int)st)) j->first = dt_error_keep();
            break;
        }
    dt_composer_destroy(w);
}

dt_status dt_duplicates_hash(const dt_compose *c, int n_threads, uint64_t *hash) {
    const dt_raw *raw = c->raw;
    entry *e = dt_xcalloc(raw->n + 1, sizeof *e);
    uint32_t *items = dt_xcalloc(raw->n + 1, sizeof *items);
    job j = {.c = c, .items = items, .hash = hash};
    dt_team *team = NULL;
    for (uint32_t i = 0; i < raw->n; i++) e[i] = (entry){0, raw->items[i].size, i};
    qsort(e, raw->n, sizeof *e, compare_entries);
    for (size_t i = 0; i < raw->n; i++) {
        // the sizes of neighbours in the sorted list
        bool twin = (i > 0 && e[i - 1].size == e[i].size) || (i + 1 < raw->n && e[i + 1].size == e[i].size);
        if (twin) items[j.n++] = e[i].item;
    }
    free(e);
    dt_status st = dt_team_create(&team, n_threads, "dt-hash");
    if (st == DT_OK) {
        dt_team_run(team, hash_some, &j);
        dt_team_destroy(team);
        st = (dt_status)atomic_load(&j.status);
        if (st != DT_OK) dt_error_restore(&j.first);
    }
    free(items);
    return st;
}
