// pack_build.c: the threads that build a dataset.
//
//   composers   take the next chunk of the plan, read, transform and hash
//   the caller  takes chunks in the order of the plan, writes their members to the file, and adds their rows
//
// So the bytes depend on the plan alone. Finished chunks wait in a ring of a fixed size, which bounds the memory;
// slot i % n_slots is of chunk i, so the chunk that the writer waits for always has one.
#include "pack_steps.h"
#include "shard_rows.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_SPARE = 8, BLOCK = 1 << 20 };

typedef struct slot {
    dt_chunk chunk;
    bool is_built;
} slot;

typedef struct builder {
    const dt_build *b;
    size_t *chunks; // of the plan, in the order in which they are written
    size_t n_chunks;
    pthread_mutex_t lock;
    pthread_cond_t has_slot, has_chunk;
    slot *slots;
    size_t n_slots, n_taken, n_written; // chunks
    dt_status status;
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
    while (w->status == DT_OK && w->n_taken < w->n_chunks && w->n_taken == w->n_written + w->n_slots)
        pthread_cond_wait(&w->has_slot, &w->lock);
    if (w->status == DT_OK && w->n_taken < w->n_chunks) {
        s = &w->slots[w->n_taken % w->n_slots];
        *chunk = w->chunks[w->n_taken++];
    }
    pthread_mutex_unlock(&w->lock);
    return s;
}

static void compose_chunks(builder *w) {
    dt_composer *composer = dt_composer_create(w->b->compose);
    size_t chunk;
    for (slot *s; (s = pack_build_take_chunk(w, &chunk));) {
        dt_status st = dt_compose_chunk(composer, chunk, &s->chunk);
        if (st != DT_OK) {
            fail_all(w, st);
            break;
        }
        pthread_mutex_lock(&w->lock);
        s->is_built = true;
        pthread_cond_signal(&w->has_chunk);
        pthread_mutex_unlock(&w->lock);
    }
    dt_composer_destroy(composer);
}

// ---- the writer ---------------------------------------------------------------------------------------
// The chunk that is written next, once it is built.
static dt_status next_chunk(builder *w, const dt_chunk **out) {
    slot *s = &w->slots[w->n_written % w->n_slots];
    *out = &s->chunk;
    pthread_mutex_lock(&w->lock);
    while (w->status == DT_OK && !s->is_built) {
        dt_thread_wait(&w->has_chunk, &w->lock, dt_clock_s() + 1);
        dt_progress_tick(w->b->progress);
    }
    dt_status st = w->status;
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
    w->slots[w->n_written++ % w->n_slots].is_built = false;
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
    m->hash = r->source_hash = dt_hash_stream_digest(h);
    dt_hash_stream_destroy(h);
    free(block);
    return st;
}

static dt_status write_record(const builder *w, dt_pack_writer *out, dt_shard_rows *rows, dt_chunk_record *r) {
    const dt_pack_format *format = w->b->compose->plan->format;
    const dt_raw_item *item = &w->b->compose->raw->items[r->item];
    uint64_t offset[DT_CHUNK_MAX_MEMBERS];
    for (int i = 0; i < r->n_members; i++) {
        dt_chunk_member *m = &r->member[i];
        char *name = dt_xprintf("%s%s.%s", item->key, r->suffix, m->ext);
        dt_status st = format->begin(out, name, m->size, &offset[i]);
        free(name);
        if (st == DT_OK && m->size > 0)
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
    if (st == DT_OK) st = p->format->end(out, dt_shard_rows_catalog(rows));
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
    if (worker > 0) {
        compose_chunks(w);
        return;
    }
    for (size_t i = 0; i < w->b->n_shards && st == DT_OK; i++) st = write_shard(w, w->b->shards[i]);
    if (st != DT_OK) fail_all(w, st);
}

dt_status dt_build_run(const dt_build *b) {
    builder w = {.b = b, .n_slots = (size_t)b->n_threads + N_SPARE};
    dt_team *team;
    if (b->n_shards == 0) return DT_OK;
    DT_TRY(dt_team_create(&team, b->n_threads + 1, "dt-pack"));
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.has_slot, NULL);
    pthread_cond_init(&w.has_chunk, NULL);
    w.slots = dt_xcalloc(w.n_slots, sizeof *w.slots);
    const dt_plan *p = b->compose->plan;
    w.chunks = dt_xcalloc(p->n_chunks + 1, sizeof *w.chunks);
    for (size_t i = 0; i < b->n_shards; i++)
        for (size_t s = b->shards[i], c = p->chunk_at[s]; c < p->chunk_at[s + 1]; c++) w.chunks[w.n_chunks++] = c;
    dt_team_run(team, pack_build_work, &w);
    dt_team_destroy(team);
    for (size_t i = 0; i < w.n_slots; i++) dt_chunk_fini(&w.slots[i].chunk);
    free(w.slots);
    free(w.chunks);
    pthread_cond_destroy(&w.has_chunk);
    pthread_cond_destroy(&w.has_slot);
    pthread_mutex_destroy(&w.lock);
    if (w.status != DT_OK) dt_error_restore(&w.first);
    return w.status;
}
