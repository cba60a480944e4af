// gather.c: rows into the catalog beside the builders.
//
// The catalog is a function of the rows in the order of the plan, so whoever reads them does so in this
// order: journal after journal, frame after frame. That needs nothing but the frames that are out, so a thread
// can do it while later chunks are still being written; it reads them back from the journal (its bytes are in
// the page cache), in pieces of a fixed size, so that nothing waits for it and nothing piles up in memory. A
// resumed pack begins with what the journals have already; where several ranks write, the others' journals
// are there only at the end, and all is read then, by the same code.
#include "gather.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 10, MESSAGE = 2048 };

struct dt_gather {
    const dt_compose *c;
    dt_gather_journal *journals;
    size_t n_journals;
    dt_gathered out;
    size_t cap_items;
    dt_buffer key, last; // of the record; of the one before
    // where it is
    size_t journal, n_frames; // frames of the journal that are in the catalog
    uint64_t at;              // and their bytes
    int fd;
    char *piece;
    size_t cap_piece;
    // shared with those who write
    pthread_mutex_t lock;
    pthread_cond_t more;
    uint64_t *n_there; // by journal
    bool ended, stopped;
    bool follows;
    pthread_t thread;
    dt_status status; // of the thread
    char message[MESSAGE];
};

static dt_status damaged(const char *path) {
    return dt_fail(DT_E_STORAGE, "%s: damaged; remove its folder and pack again", path);
}

// ---- a row --------------------------------------------------------------------------------------------
static const char *make_key(dt_gather *g, const dt_raw_item *item, const char *suffix) {
    dt_buffer swap = g->last;
    g->last = g->key;
    g->key = swap;
    g->key.n_bytes = 0;
    dt_buffer_append(&g->key, item->key, strlen(item->key));
    dt_buffer_append(&g->key, suffix, strlen(suffix));
    dt_buffer_append(&g->key, ".", 2);
    g->key.data[g->key.n_bytes - 2] = '\0';
    return (const char *)g->key.data;
}

// In an LMDB entries are in the order of their names, or nobody finds them.
static dt_status check_order(const dt_gather *g) {
    if (!g->c->plan->format->one_file || g->last.n_bytes == 0) return DT_OK;
    const char *a = (const char *)g->last.data, *b = (const char *)g->key.data;
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    int x = a[n] ? (unsigned char)a[n] : '.', y = b[n] ? (unsigned char)b[n] : '.';
    if (x < y || (x == y && !a[n])) return DT_OK;
    return dt_fail(
        DT_E_DATA,
        "records %s and %s: their names interleave once pieces are numbered, which an LMDB "
        "does not allow: rename one, or pack to .tar",
        a, b);
}

static void note_item(dt_gather *g, const dt_row *r) {
    dt_gathered *o = &g->out;
    if (o->catalog->n_records > g->cap_items) {
        g->cap_items = 2 * g->cap_items + 1024;
        o->item = dt_xrealloc(o->item, g->cap_items * sizeof *o->item);
    }
    o->item[o->catalog->n_records - 1] = (uint32_t)r->item;
    o->hash[r->item] = r->source_hash | (r->source_hash == 0); // 0: gave no record
}

static dt_status fill_row(dt_gather *g, const dt_row *r, uint64_t base, uint32_t shard) {
    const dt_raw *raw = g->c->raw;
    const dt_raw_item *item = &raw->items[r->item];
    dt_catalog *c = g->out.catalog;
    const char *key = make_key(g, item, r->suffix);
    DT_TRY(check_order(g));
    DT_TRY(dt_catalog_add_record(c, shard, key));
    note_item(g, r);
    for (int i = 0; i < r->n_members; i++) {
        const dt_row_member *m = &r->member[i];
        DT_TRY(dt_catalog_add_member(c, m->ext, base + m->offset, m->size, &m->hash));
        g->out.n_bytes += m->size;
    }
    DT_TRY(dt_raw_put_row(raw, item, c));
    for (int i = 0; i < r->n_columns; i++) {
        const dt_transform_column *x = &r->column[i];
        DT_TRY(x->text ? dt_catalog_set(c, x->name, x->text)
                       : dt_catalog_set_real(c, x->name, x->number));
    }
    return DT_OK;
}

static dt_status fill_frame(dt_gather *g, const dt_frame *x) {
    const dt_gather_journal *j = &g->journals[g->journal];
    size_t at = 0;
    dt_row row;
    while (dt_row_next(x->rows, x->n_rows, &at, &row)) {
        if (row.item >= g->c->raw->n) return damaged(j->path);
        DT_TRY(fill_row(g, &row, x->base, j->shard));
    }
    dt_buffer_append(&g->out.marks, x->marks, x->n_marks);
    g->out.end = x->base + x->n_bytes;
    return at == x->n_rows ? DT_OK : damaged(j->path);
}

// ---- journals -----------------------------------------------------------------------------------------
static dt_status open_journal(dt_gather *g) {
    const char *path = g->journals[g->journal].path;
    if (g->fd < 0) g->fd = open(path, O_RDONLY | O_CLOEXEC);
    return g->fd >= 0 ? DT_OK : dt_io_read_error(path, "open", errno, DT_E_STORAGE);
}

// Frames of the journal at hand, up to n_there bytes of it.
static dt_status read_frames(dt_gather *g, uint64_t n_there) {
    const char *path = g->journals[g->journal].path;
    DT_TRY(open_journal(g));
    while (g->at < n_there) {
        uint64_t left = n_there - g->at;
        size_t n = left < g->cap_piece ? (size_t)left : g->cap_piece, used = 0;
        dt_frame x;
        DT_TRY(dt_io_pread(g->fd, path, g->piece, n, (off_t)g->at, DT_E_STORAGE));
        while (dt_frame_next(g->piece, n, &used, &x)) {
            DT_TRY(fill_frame(g, &x));
            g->n_frames++;
        }
        g->at += used;
        if (used > 0) continue;
        if (n == left) return damaged(path);
        free(g->piece); // a frame that is larger
        g->piece = malloc(g->cap_piece *= 4);
        if (!g->piece) return dt_fail(DT_E_INTERNAL, "out of memory");
    }
    return DT_OK;
}

static void next_journal(dt_gather *g) {
    if (g->fd >= 0) close(g->fd);
    g->fd = -1;
    g->at = g->n_frames = 0;
    g->journal++;
}

// Bytes of the journal at hand that may be read, once there are more of them; 0: none will come.
static uint64_t wait_for_more(dt_gather *g) {
    pthread_mutex_lock(&g->lock);
    while (!g->ended && !g->stopped && g->n_there[g->journal] == g->at)
        pthread_cond_wait(&g->more, &g->lock);
    uint64_t n = g->n_there[g->journal] == g->at || g->stopped ? 0 : g->n_there[g->journal];
    pthread_mutex_unlock(&g->lock);
    return n;
}

static void *follow(void *arg) {
    dt_gather *g = arg;
    dt_status st = DT_OK;
    dt_thread_name("dt-pack-rows");
    while (st == DT_OK && g->journal < g->n_journals) {
        if (g->n_frames == g->journals[g->journal].n_frames) {
            next_journal(g);
            continue;
        }
        uint64_t n = wait_for_more(g);
        if (n == 0) break;
        st = read_frames(g, n);
    }
    g->status = st;
    if (st != DT_OK) snprintf(g->message, sizeof g->message, "%s", dt_error_message());
    return NULL;
}

static void join(dt_gather *g, bool *flag) {
    if (!g->follows) return;
    pthread_mutex_lock(&g->lock);
    *flag = true;
    pthread_cond_signal(&g->more);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    g->follows = false;
}

// ---- the whole ----------------------------------------------------------------------------------------
static void add_shards(dt_gather *g, const char *folder) {
    for (size_t s = 0; s < g->c->plan->n_shards; s++) {
        char *path = dt_xprintf("%s/%s", folder, g->c->plan->name[s]);
        dt_catalog_add_shard(g->out.catalog, path, 0);
        free(path);
    }
}

dt_status dt_gather_create(dt_gather **out, const dt_compose *c, const char *folder,
                           const dt_gather_journal *journals, size_t n_journals, bool follows) {
    dt_gather *g = *out = dt_xcalloc(1, sizeof *g);
    g->c = c;
    g->n_journals = n_journals;
    g->journals = dt_xcalloc(n_journals + 1, sizeof *g->journals);
    memcpy(g->journals, journals, n_journals * sizeof *journals);
    g->n_there = dt_xcalloc(n_journals + 1, sizeof *g->n_there);
    g->out.hash = dt_xcalloc(c->raw->n + 1, sizeof *g->out.hash);
    g->out.catalog = dt_catalog_create();
    g->fd = -1;
    g->cap_piece = PIECE_BYTES;
    g->piece = malloc(g->cap_piece);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->more, NULL);
    add_shards(g, folder);
    if (!g->piece) return dt_fail(DT_E_INTERNAL, "out of memory");
    g->follows = follows && pthread_create(&g->thread, NULL, follow, g) == 0; // else at the end
    return DT_OK;
}

void dt_gather_note(dt_gather *g, size_t journal, uint64_t n_bytes) {
    pthread_mutex_lock(&g->lock);
    g->n_there[journal] = n_bytes;
    pthread_cond_signal(&g->more);
    pthread_mutex_unlock(&g->lock);
}

static dt_status read_rest(dt_gather *g) {
    for (; g->journal < g->n_journals; next_journal(g)) {
        const dt_gather_journal *j = &g->journals[g->journal];
        if (j->n_frames == 0) continue;
        DT_TRY(open_journal(g));
        off_t end = lseek(g->fd, 0, SEEK_END);
        DT_TRY(read_frames(g, end > 0 ? (uint64_t)end : 0));
        if (g->n_frames != j->n_frames) return damaged(j->path);
    }
    return DT_OK;
}

dt_status dt_gather_end(dt_gather *g) {
    join(g, &g->ended);
    if (g->status != DT_OK) return dt_fail(g->status, "%s", g->message);
    return read_rest(g);
}

dt_gathered *dt_gather_result(dt_gather *g) {
    return &g->out;
}

void dt_gather_destroy(dt_gather *g) {
    if (!g) return;
    join(g, &g->stopped);
    if (g->fd >= 0) close(g->fd);
    dt_catalog_destroy(g->out.catalog);
    dt_buffer_fini(&g->out.marks);
    free(g->out.item);
    free(g->out.hash);
    free(g->journals);
    free(g->n_there);
    free(g->piece);
    dt_buffer_fini(&g->key);
    dt_buffer_fini(&g->last);
    pthread_cond_destroy(&g->more);
    pthread_mutex_destroy(&g->lock);
    free(g);
}
