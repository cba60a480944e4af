// pack_build.c: the threads that build a set.
//
//   builders        take the next chunk of the plan and an empty chunk's memory, read, transform, lay out
//   in order        a finished chunk waits until all before it have their sizes; then it has its place
//   writers         write it there, and the frame of its rows to the journal, frames in order
//
// So the bytes depend on the plan alone: chunks are the same whoever builds them, and lie in the order of
// the plan. Nobody waits for a slow neighbour while there is memory for another chunk; as memory is
// given out in the order of the chunks, the one that all wait for always has some.
//
// There are as many builders as cores, and four writers beside them, who mostly wait for the disk.
#include "pack_build.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_BUILDERS = 256, N_WRITERS = 4, N_SPARE = 8, MESSAGE = 2048, GAP_PIECE = 1 << 20 };

// The bytes at the end of a chunk that do not fill a page: the next one writes them with its own, so that
// each page is written once, whole. -1: not known, as after a gap; then the page goes through the cache.
typedef struct carry {
    int n;
    uint8_t bytes[DT_PACK_PAGE];
} carry;

typedef struct open_file {
    dt_build_file *f;
    dt_outfile out;
    int rows_fd;
    uint64_t end;   // of the chunks that have a place
    carry carry;    // of the last of them
    size_t placed;  // chunks that have one
    size_t written; // chunks whose bytes and frame are out
} open_file;

// A chunk's memory, and what it is about.
typedef struct slot {
    dt_chunk chunk;
    carry carry;     // of the chunk before
    bool gives_tail; // the next chunk writes what is behind the last whole page
    size_t file;
    struct slot *next; // in a list
} slot;

typedef struct builder {
    const dt_build *b;
    pthread_mutex_t lock;
    // builders wait for memory, writers for chunks that have a place, the caller for the end
    pthread_cond_t has_memory, has_ready, is_done;
    open_file *files;
    size_t file, chunk; // next to be taken: file, and chunk of the plan
    size_t n_placed;    // files up to this one have all their chunks placed
    slot *slots, *empty, *built, *ready, *written; // built: unplaced; written: frame not out yet
    int n_slots;
    size_t n_out, n_wanted; // chunks that are out; all that are to be made
    dt_status status;
    char message[MESSAGE];
} builder;

static void fail_with(builder *w, dt_status st) { // locked
    if (w->status == DT_OK) {
        w->status = st;
        snprintf(w->message, sizeof w->message, "%s", dt_error_message());
    }
    pthread_cond_broadcast(&w->has_memory);
    pthread_cond_broadcast(&w->has_ready);
    pthread_cond_broadcast(&w->is_done);
}

static slot *take_first(slot **list) {
    slot *s = *list;
    if (s) *list = s->next;
    return s;
}

static void add_first(slot **list, slot *s) {
    s->next = *list;
    *list = s;
}

static void add_last(slot **list, slot *s) {
    while (*list) list = &(*list)->next;
    s->next = NULL;
    *list = s;
}

// The slot of a chunk of the plan, taken out of the list; NULL: it is not there.
static slot *take_chunk(slot **list, size_t chunk) {
    for (; *list; list = &(*list)->next)
        if ((*list)->chunk.index == chunk) return take_first(list);
    return NULL;
}

// ---- files --------------------------------------------------------------------------------------------
static dt_status open_files(builder *w) {
    for (size_t i = 0; i < w->b->n_files; i++) {
        open_file *o = &w->files[i];
        o->f = &w->b->files[i];
        o->rows_fd = o->out.fd = o->out.direct_fd = -1;
        o->placed = o->written = o->f->n_kept;
        o->end = o->f->n_kept ? o->f->end : o->f->base;
        o->carry.n = o->end % DT_PACK_PAGE ? -1 : 0;
        w->n_wanted += o->f->n_chunks - o->f->n_kept;
    }
    return DT_OK;
}

// At its first chunk, so that a set of many shards has few of them open.
static dt_status open_one(builder *w, size_t i) {
    open_file *o = &w->files[i];
    DT_TRY(dt_outfile_open(&o->out, o->f->path));
    DT_TRY(dt_io_open_append(&o->rows_fd, o->f->rows_path));
    return dt_io_allocate(o->out.fd, o->f->path, o->f->allocate);
}

static dt_status close_one(open_file *o) {
    dt_status st = DT_OK, rows = DT_OK;
    if (o->out.path) st = dt_outfile_close(&o->out);
    if (o->rows_fd >= 0) rows = dt_io_close(o->rows_fd, o->f->rows_path);
    o->rows_fd = -1;
    return st != DT_OK ? st : rows;
}

// ---- builders -----------------------------------------------------------------------------------------
// The next chunk to build, and memory for it; NULL: there is none left, or somebody failed.
static slot *take_work(builder *w) {
    pthread_mutex_lock(&w->lock);
    slot *s = NULL;
    while (w->status == DT_OK && !s) {
        while (w->file < w->b->n_files) {
            const dt_build_file *f = &w->b->files[w->file];
            if (w->chunk == 0) w->chunk = f->first_chunk + f->n_kept;
            if (w->chunk < f->first_chunk + f->n_chunks) break;
            w->file++;
            w->chunk = 0;
        }
        if (w->file == w->b->n_files) break;
        s = take_first(&w->empty);
        if (!s) pthread_cond_wait(&w->has_memory, &w->lock);
    }
    if (s) {
        s->file = w->file;
        s->chunk.index = w->chunk++;
        if (w->files[s->file].out.fd < 0) {
            dt_status st = open_one(w, s->file);
            if (st != DT_OK) {
                fail_with(w, st);
                add_first(&w->empty, s);
                s = NULL;
            }
        }
    }
    pthread_mutex_unlock(&w->lock);
    return s;
}

// `c`, of the bytes before the chunk, becomes that of those after it: the last n. Pages of formats with
// page numbers are whole, so nothing here is still to be relocated.
static void make_carry(carry *c, const dt_chunk *chunk, int n) {
    size_t have = chunk->n_bytes - (chunk->has_gap ? chunk->gap_at : 0);
    if (n == 0) {
        c->n = 0;
    } else if (have >= (size_t)n) {
        memcpy(c->bytes, dt_chunk_data(chunk, chunk->n_bytes - (size_t)n), (size_t)n);
        c->n = n;
    } else if (c->n == n - (int)have && !chunk->has_gap) { // it did not fill the page
        memcpy(c->bytes + c->n, dt_chunk_data(chunk, 0), have);
        c->n = n;
    } else {
        c->n = -1;
    }
}

// Gives places to all chunks whose turn it is.
static void place_chunks(builder *w) { // locked
    while (w->n_placed < w->b->n_files) {
        open_file *o = &w->files[w->n_placed];
        if (o->placed == o->f->n_chunks) {
            w->n_placed++;
            continue;
        }
        slot *s = take_chunk(&w->built, o->f->first_chunk + o->placed);
        if (!s) return;
        s->chunk.base = o->end;
        s->carry = o->carry;
        o->end += dt_chunk_end(&s->chunk);
        o->placed++;
        make_carry(&o->carry, &s->chunk, (int)(o->end % DT_PACK_PAGE));
        s->gives_tail = o->carry.n > 0 && o->placed < o->f->n_chunks;
        add_last(&w->ready, s);
        pthread_cond_signal(&w->has_ready);
    }
}

static void *build_chunks(void *arg) {
    builder *w = arg;
    dt_composer *composer = dt_composer_create(w->b->compose);
    dt_thread_name("dt-pack");
    for (slot *s; (s = take_work(w));) {
        size_t index = s->chunk.index;
        dt_status st = dt_compose_chunk(composer, index, &s->chunk);
        s->chunk.index = index;
        pthread_mutex_lock(&w->lock);
        if (st != DT_OK)
            fail_with(w, st);
        else
            add_first(&w->built, s);
        place_chunks(w);
        pthread_mutex_unlock(&w->lock);
    }
    dt_composer_destroy(composer);
    return NULL;
}

// ---- writers ------------------------------------------------------------------------------------------
// The large member goes from its file to ours in pieces, and is hashed on the way.
static dt_status copy_gap(const builder *w, const open_file *o, dt_chunk *c, uint64_t at) {
    const dt_raw *raw = w->b->compose->raw;
    const dt_raw_item *item = &raw->items[c->gap_item];
    uint8_t *piece = malloc(GAP_PIECE + 1);
    dt_hash_stream *h = dt_hash_stream_create();
    dt_status st = piece ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory");
    for (uint64_t done = 0; done < c->gap_bytes && st == DT_OK;) {
        uint64_t left = c->gap_bytes - done;
        size_t n = left < GAP_PIECE ? (size_t)left : GAP_PIECE;
        st = dt_raw_read(raw, item, done, piece, n);
        if (st == DT_OK) dt_hash_stream_update(h, piece, n);
        if (st == DT_OK) st = dt_outfile_write(&o->out, piece, n, at + done);
        done += n;
    }
    dt_row_set_gap_hash(c, dt_hash_stream_digest(h));
    dt_hash_stream_destroy(h);
    free(piece);
    return st;
}

static dt_status write_whole(const open_file *o, slot *s) {
    dt_chunk *c = &s->chunk;
    size_t begin = (size_t)(c->base % DT_PACK_PAGE), n = c->n_bytes;
    DT_TRY(dt_chunk_shift(c, begin));
    c->hash = dt_row_hash_rest(c);
    if (s->gives_tail) { // nothing is left of a chunk that does not end its page
        size_t tail = (size_t)((c->base + n) % DT_PACK_PAGE);
        n = tail < n ? n - tail : 0;
    }
    if (n == 0) return DT_OK;
    if (s->carry.n != (int)begin) return dt_outfile_write(&o->out, dt_chunk_data(c, 0), n, c->base);
    memcpy(c->room, s->carry.bytes, begin);
    return dt_outfile_write(&o->out, c->room, begin + n, c->base - begin);
}

static dt_status write_with_gap(const builder *w, const open_file *o, slot *s) {
    dt_chunk *c = &s->chunk;
    uint64_t behind = c->base + c->gap_at + c->gap_bytes;
    c->hash = dt_row_hash_rest(c);
    if (s->carry.n > 0)
        DT_TRY(dt_outfile_write(&o->out, s->carry.bytes, (size_t)s->carry.n,
                                c->base - (uint64_t)s->carry.n));
    DT_TRY(dt_outfile_write(&o->out, dt_chunk_data(c, 0), c->gap_at, c->base));
    DT_TRY(copy_gap(w, o, c, c->base + c->gap_at));
    if (c->n_bytes == c->gap_at) return DT_OK;
    return dt_outfile_write(&o->out, dt_chunk_data(c, c->gap_at), c->n_bytes - c->gap_at, behind);
}

static dt_status write_chunk(const builder *w, const open_file *o, slot *s) {
    w->b->compose->plan->format->relocate(&s->chunk);
    if (s->chunk.n_bytes > 0) return s->chunk.has_gap ? write_with_gap(w, o, s) : write_whole(o, s);
    // an empty one (all were left out) hands on what it was given
    if (s->carry.n > 0 && !s->gives_tail)
        return dt_outfile_write(&o->out, s->carry.bytes, (size_t)s->carry.n,
                                s->chunk.base - (uint64_t)s->carry.n);
    return DT_OK;
}

static void count(const builder *w, const dt_chunk *c) {
    const dt_plan_chunk *p = &w->b->compose->plan->chunks[c->index];
    uint64_t n_bytes = 0;
    for (size_t i = p->first; i < p->first + p->n; i++)
        n_bytes += w->b->compose->raw->items[i].size;
    atomic_fetch_add(&w->b->progress->n_items, p->n);
    atomic_fetch_add(&w->b->progress->n_bytes, n_bytes);
}

// Frames of the file that are next in order; closes the file after its last.
static dt_status write_frames(builder *w, open_file *o) { // locked
    slot *s;
    while (o->written < o->f->n_chunks &&
           (s = take_chunk(&w->written, o->f->first_chunk + o->written))) {
        dt_status st = dt_journal_append(o->rows_fd, o->f->rows_path, &s->chunk, &o->f->rows_bytes);
        if (st != DT_OK) return st;
        o->f->end = s->chunk.base + dt_chunk_end(&s->chunk);
        o->written++;
        w->n_out++;
        count(w, &s->chunk);
        add_first(&w->empty, s);
        pthread_cond_signal(&w->has_memory);
        if (w->b->rows) w->b->rows(w->b->rows_arg, (size_t)(o->f - w->b->files));
    }
    return o->written == o->f->n_chunks ? close_one(o) : DT_OK;
}

static void *write_chunks(void *arg) {
    builder *w = arg;
    dt_thread_name("dt-pack-write");
    pthread_mutex_lock(&w->lock);
    while (w->status == DT_OK && w->n_out < w->n_wanted) {
        slot *s = take_first(&w->ready);
        if (!s) {
            pthread_cond_wait(&w->has_ready, &w->lock);
            continue;
        }
        open_file *o = &w->files[s->file];
        pthread_mutex_unlock(&w->lock);
        dt_status st = write_chunk(w, o, s);
        pthread_mutex_lock(&w->lock);
        if (st == DT_OK) {
            add_first(&w->written, s);
            st = write_frames(w, o);
        }
        if (st != DT_OK) fail_with(w, st);
    }
    pthread_cond_broadcast(&w->has_ready); // the others have nothing left to do either
    pthread_cond_signal(&w->is_done);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

// ---- the whole ----------------------------------------------------------------------------------------
static void wait_all(builder *w) {
    pthread_mutex_lock(&w->lock);
    while (w->status == DT_OK && w->n_out < w->n_wanted) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += 100000000;
        if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&w->is_done, &w->lock, &t);
        pthread_mutex_unlock(&w->lock);
        if (w->b->tick) w->b->tick(w->b->tick_arg);
        pthread_mutex_lock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
}

static int start(pthread_t *threads, int n, void *(*fn)(void *), builder *w) {
    int started = 0;
    while (started < n && pthread_create(&threads[started], NULL, fn, w) == 0) started++;
    return started;
}

dt_status dt_build_run(const dt_build *b) {
    pthread_t threads[MAX_BUILDERS + N_WRITERS];
    int n = b->n_threads < 1 ? 1 : b->n_threads > MAX_BUILDERS ? MAX_BUILDERS : b->n_threads;
    builder w = {.b = b, .n_slots = n + N_SPARE};
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.has_memory, NULL);
    pthread_cond_init(&w.has_ready, NULL);
    pthread_cond_init(&w.is_done, NULL);
    w.files = dt_xcalloc(b->n_files, sizeof *w.files);
    w.slots = dt_xcalloc((size_t)w.n_slots, sizeof *w.slots);
    for (int i = 0; i < w.n_slots; i++) {
        dt_chunk_init(&w.slots[i].chunk);
        add_first(&w.empty, &w.slots[i]);
    }
    dt_status st = open_files(&w);
    int n_builders = 0, n_writers = 0;
    if (st == DT_OK && w.n_wanted > 0) {
        n_builders = start(threads, n, build_chunks, &w);
        n_writers = start(threads + n_builders, N_WRITERS, write_chunks, &w);
        if (n_builders == 0 || n_writers == 0) {
            pthread_mutex_lock(&w.lock);
            fail_with(&w,
                      dt_fail(DT_E_INTERNAL, "cannot start threads: raise the limits on processes "
                                             "and memory (ulimit -u, -v)"));
            pthread_mutex_unlock(&w.lock);
        }
        wait_all(&w);
        for (int i = 0; i < n_builders + n_writers; i++) pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < b->n_files; i++) { // open ones are left by an error
        dt_status closed = close_one(&w.files[i]);
        if (st == DT_OK) st = closed;
    }
    if (w.status != DT_OK) st = dt_fail(w.status, "%s", w.message);
    for (int i = 0; i < w.n_slots; i++) dt_chunk_fini(&w.slots[i].chunk);
    free(w.slots);
    free(w.files);
    pthread_cond_destroy(&w.is_done);
    pthread_cond_destroy(&w.has_ready);
    pthread_cond_destroy(&w.has_memory);
    pthread_mutex_destroy(&w.lock);
    return st;
}

// ---- what an earlier run left -------------------------------------------------------------------------
// XXH3 of a range of the file, in pieces, added to h. False: it cannot be read.
static bool hash_range(dt_hash_stream *h, int fd, const char *path, uint64_t at, uint64_t n_bytes,
                       uint8_t *piece) {
    for (uint64_t done = 0; done < n_bytes;) {
        size_t n = n_bytes - done < GAP_PIECE ? (size_t)(n_bytes - done) : GAP_PIECE;
        if (dt_io_pread(fd, path, piece, n, (off_t)(at + done), DT_E_STORAGE) != DT_OK)
            return false;
        dt_hash_stream_update(h, piece, n);
        done += n;
    }
    return true;
}

// All bytes of a frame: large members against their rows, what is around them against the frame.
static bool check_frame(const dt_frame *f, int fd, const char *path, uint8_t *piece) {
    dt_hash_stream *rest = dt_hash_stream_create(), *large = dt_hash_stream_create();
    uint64_t done = 0;
    size_t at = 0;
    bool good = true;
    for (dt_row row; good && dt_row_next(f->rows, f->n_rows, &at, &row);)
        for (int i = 0; i < row.n_members && good; i++) {
            const dt_row_member *m = &row.member[i];
            if (!dt_row_is_large(m)) continue;
            dt_hash_stream_reset(large);
            good = m->offset >= done && m->offset <= f->n_bytes &&
                   m->size <= f->n_bytes - m->offset &&
                   hash_range(rest, fd, path, f->base + done, m->offset - done, piece) &&
                   hash_range(large, fd, path, f->base + m->offset, m->size, piece) &&
                   dt_hash_stream_digest(large) == m->hash;
            done = m->offset + m->size;
        }
    good = good && at == f->n_rows &&
           hash_range(rest, fd, path, f->base + done, f->n_bytes - done, piece);
    good = good && (f->n_bytes == 0 || dt_hash_stream_digest(rest) == f->hash);
    dt_hash_stream_destroy(rest);
    dt_hash_stream_destroy(large);
    dt_error_clear();
    return good;
}

dt_status dt_build_resume(dt_build_file *f, uint64_t *n_checked) {
    dt_journal j;
    dt_status st = dt_journal_read(&j, f->rows_path);
    int fd = -1;
    uint64_t end = f->base;
    size_t n_bytes = 0;
    uint8_t *piece = malloc(GAP_PIECE);
    f->n_kept = 0;
    if (!piece) st = dt_fail(DT_E_INTERNAL, "out of memory");
    if (st == DT_OK && j.n_frames > 0) st = dt_io_open_update(&fd, f->path);
    for (size_t i = 0; st == DT_OK && i < j.n_frames && i < f->n_chunks; i++) {
        const dt_frame *x = &j.frames[i];
        bool good = x->chunk == f->first_chunk + i && x->base == end;
        if (!good || !check_frame(x, fd, f->path, piece)) break;
        *n_checked += x->n_bytes;
        end += x->n_bytes;
        f->n_kept = i + 1;
        f->end = end;
        n_bytes = (size_t)((const char *)x->marks + x->n_marks - j.data);
    }
    if (fd >= 0) close(fd);
    free(piece);
    f->rows_bytes = n_bytes;
    // frames that are not believed go, so that new ones follow the last good one
    if (st == DT_OK && dt_io_exists(f->rows_path))
        st = dt_io_truncate(f->rows_path, (off_t)n_bytes);
    dt_journal_fini(&j);
    return st;
}
