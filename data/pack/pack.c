// pack.c: `dtrain pack`: raw files -> one set that is read fast, checked by hash, and complete.
//
// Files are listed and named first (raw.c), in the order in which they will be written. A few threads
// read and hash them into a window of buffers; this thread takes them out in order and hands them to a
// writer (LMDB or tar), so the output is byte for byte the same whatever the number of threads. Nothing
// carries a final name before it is whole and on the disk.
//
// An output that exists is left alone: if its index says that it was made from just these files, the
// work is done already and that is success; otherwise it is an error, unless overwriting was asked for.
#include "pack.h"
#include "data/catalog/index_file.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const dt_packer *const PACKERS[] = {&dt_packer_lmdb, &dt_packer_wds};
enum { N_PACKERS = sizeof PACKERS / sizeof *PACKERS, MAX_READERS = 8, WINDOW = 32, MESSAGE = 1024 };

dt_status dt_pack_add_row(dt_catalog *c, uint32_t shard, const dt_raw_item *item) {
    DT_TRY(dt_catalog_add_record(c, shard, item->key));
    for (int i = 0; i < item->n_meta; i++)
        DT_TRY(dt_catalog_set(c, item->column[i], item->value[i]));
    return DT_OK;
}

dt_status dt_pack_sync_folder(const char *path) {
    char *dir = dt_xstrdup(path), *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0';
    dt_status st = dt_io_fsync_dir(slash ? dir : ".");
    free(dir);
    return st;
}

// ---- reading ahead -------------------------------------------------------------------------------
typedef struct window_slot {
    dt_buffer bytes;
    uint64_t hash;
    bool ready;
    dt_status status;
    char message[MESSAGE];
} window_slot;

typedef struct feed {
    const dt_raw *raw;
    pthread_mutex_t lock;
    pthread_cond_t filled, freed;
    size_t next, taken; // items given to readers; items the writer is done with
    bool stopping;
    window_slot slots[WINDOW];
    pthread_t threads[MAX_READERS];
    int n_threads;
} feed;

static dt_status read_item(const dt_raw_item *item, bool is_tar, dt_buffer *out) {
    int fd = open(item->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dt_fail(DT_E_DATA, "%s: cannot open: %s", item->path, strerror(errno));
    struct stat s;
    dt_status st = DT_OK;
    if (fstat(fd, &s) != 0 || (!is_tar && (uint64_t)s.st_size != item->size))
        st = dt_fail(DT_E_DATA, "%s: changed while it was packed", item->path);
    uint8_t *p = dt_buffer_reserve(out, item->size ? item->size : 1);
    if (st == DT_OK && !p) st = dt_fail(DT_E_INTERNAL, "%s: out of memory", item->path);
    if (st == DT_OK && item->size > 0)
        st = dt_io_pread(fd, item->path, p, item->size, (off_t)item->offset, DT_E_DATA);
    out->n_bytes = item->size;
    close(fd);
    return st;
}

static void *read_ahead(void *arg) {
    feed *f = arg;
    dt_thread_name("dt-pack");
    pthread_mutex_lock(&f->lock);
    while (!f->stopping && f->next < f->raw->n) {
        if (f->next >= f->taken + WINDOW) {
            pthread_cond_wait(&f->freed, &f->lock);
            continue;
        }
        size_t i = f->next++;
        window_slot *s = &f->slots[i % WINDOW];
        pthread_mutex_unlock(&f->lock);
        s->status = read_item(&f->raw->items[i], f->raw->is_tar, &s->bytes);
        if (s->status == DT_OK)
            s->hash = dt_hash64(s->bytes.data, s->bytes.n_bytes);
        else
            snprintf(s->message, sizeof s->message, "%s", dt_error_message());
        pthread_mutex_lock(&f->lock);
        s->ready = true;
        pthread_cond_broadcast(&f->filled);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static dt_status feed_begin(feed *f, const dt_raw *raw) {
    int n = dt_usable_cores();
    *f = (feed){.raw = raw};
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->filled, NULL);
    pthread_cond_init(&f->freed, NULL);
    if (n > MAX_READERS) n = MAX_READERS;
    for (; f->n_threads < n; f->n_threads++)
        if (pthread_create(&f->threads[f->n_threads], NULL, read_ahead, f) != 0) break;
    return f->n_threads > 0 ? DT_OK : dt_fail(DT_E_INTERNAL, "cannot start a reader thread");
}

static dt_status feed_take(feed *f, size_t i, window_slot **out) {
    window_slot *s = &f->slots[i % WINDOW];
    pthread_mutex_lock(&f->lock);
    while (!s->ready) pthread_cond_wait(&f->filled, &f->lock);
    pthread_mutex_unlock(&f->lock);
    *out = s;
    return s->status == DT_OK ? DT_OK : dt_fail(s->status, "%s", s->message);
}

static void feed_return(feed *f, window_slot *s) {
    pthread_mutex_lock(&f->lock);
    s->ready = false;
    f->taken++;
    pthread_cond_broadcast(&f->freed);
    pthread_mutex_unlock(&f->lock);
}

static void feed_end(feed *f) {
    pthread_mutex_lock(&f->lock);
    f->stopping = true;
    pthread_cond_broadcast(&f->freed);
    pthread_mutex_unlock(&f->lock);
    for (int i = 0; i < f->n_threads; i++) pthread_join(f->threads[i], NULL);
    for (int i = 0; i < WINDOW; i++) dt_buffer_fini(&f->slots[i].bytes);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->filled);
    pthread_cond_destroy(&f->freed);
}

// ---- progress --------------------------------------------------------------------------------------
typedef struct progress {
    bool on, terminal;
    double begin_s, shown_s;
    uint64_t n_bytes, total_bytes;
    size_t n, total;
} progress;

static void progress_begin(progress *p, const dt_raw *raw, bool on) {
    *p = (progress){.on = on, .terminal = isatty(STDERR_FILENO), .total = raw->n};
    for (size_t i = 0; i < raw->n; i++) p->total_bytes += raw->items[i].size;
    p->begin_s = p->shown_s = dt_clock_s();
}

static void progress_show(progress *p, uint64_t n_bytes, bool last) {
    p->n++;
    p->n_bytes += n_bytes;
    double now = dt_clock_s(), every = p->terminal ? 0.1 : 10;
    if (!p->on || (now - p->shown_s < every && !(last && p->terminal))) return;
    p->shown_s = now;
    double elapsed = now - p->begin_s > 1e-6 ? now - p->begin_s : 1e-6;
    double share = p->total_bytes ? (double)p->n_bytes / (double)p->total_bytes : 1;
    double left = share > 0 ? elapsed / share - elapsed : 0;
    char bar[31];
    for (int i = 0; i < 30; i++) bar[i] = i < (int)(share * 30) ? '#' : '.';
    bar[30] = '\0';
    fprintf(stderr, "%spack [%s] %zu/%zu files  %.0f files/s  %.0f MB/s  ETA %.0f s%s",
            p->terminal ? "\r" : "", bar, p->n, p->total, (double)p->n / elapsed,
            (double)p->n_bytes / elapsed / 1e6, left, p->terminal ? "\033[K" : "\n");
    if (last && p->terminal) fputc('\n', stderr);
}

// ---- the whole ---------------------------------------------------------------------------------------
static void add_member(dt_pack_record *r, const char *ext, dt_span bytes, uint64_t hash) {
    int at = r->n_members++;
    for (; at > 0 && strcmp(r->member[at - 1].ext, ext) > 0; at--)
        r->member[at] = r->member[at - 1];
    r->member[at].ext = ext;
    r->member[at].bytes = bytes;
    r->member[at].hash = hash;
}

static dt_span text_span(const char *s) {
    return (dt_span){(const uint8_t *)s, strlen(s)};
}

static dt_status write_record(const dt_packer *packer, void *self, const dt_raw_item *item,
                              const window_slot *s) {
    char cls[16];
    dt_pack_record r = {.item = item};
    dt_span meta = text_span(item->meta);
    add_member(&r, item->ext, (dt_span){s->bytes.data, s->bytes.n_bytes}, s->hash);
    add_member(&r, "json", meta, dt_hash64(meta.data, meta.n_bytes));
    if (item->label >= 0) {
        snprintf(cls, sizeof cls, "%d", item->label);
        add_member(&r, "cls", text_span(cls), dt_hash64(cls, strlen(cls)));
    }
    return packer->add(self, &r);
}

static dt_status write_all(const dt_packer *packer, void *self, const dt_raw *raw, progress *p) {
    feed *f = dt_xcalloc(1, sizeof *f);
    dt_status st = feed_begin(f, raw);
    for (size_t i = 0; i < raw->n && st == DT_OK; i++) {
        window_slot *s;
        st = feed_take(f, i, &s);
        if (st == DT_OK) st = write_record(packer, self, &raw->items[i], s);
        if (st == DT_OK) progress_show(p, raw->items[i].size, i + 1 == raw->n);
        feed_return(f, s);
    }
    feed_end(f);
    free(f);
    return st;
}

// Whether any file of `out` is there, and whether all are there, made from this source.
static dt_status inspect(const dt_packer *packer, const char *out, uint64_t source_hash, bool *any,
                         bool *same) {
    char **files;
    size_t n;
    *any = dt_io_exists(out);
    *same = true;
    DT_TRY(packer->files(out, &files, &n));
    dt_catalog *c = dt_catalog_create();
    for (size_t i = 0; i < n; i++) {
        bool found = false, stale = false;
        *any = *any || dt_io_exists(files[i]);
        bool ok = dt_io_exists(files[i]) && dt_index_load(c, files[i], &found, &stale) == DT_OK;
        *same =
            *same && ok && found && !stale && c->shards[c->n_shards - 1].source_hash == source_hash;
    }
    dt_catalog_destroy(c);
    dt_io_free_list(files, n);
    *same = *same && n > 0;
    return DT_OK;
}

static dt_status make_parent(const char *out) {
    char *dir = dt_xstrdup(out), *slash = strrchr(dir, '/');
    dt_status st = DT_OK;
    if (slash && slash != dir) {
        *slash = '\0';
        st = dt_io_mkdir_all(dir);
    }
    free(dir);
    return st;
}

static dt_status pack(const dt_packer *packer, const dt_pack_opts *o, const dt_raw *raw) {
    void *self = NULL;
    progress p;
    DT_TRY(make_parent(o->out));
    progress_begin(&p, raw, o->progress);
    dt_status st = packer->begin(&self, o->out, raw);
    if (st == DT_OK) st = write_all(packer, self, raw, &p);
    if (st == DT_OK && o->overwrite) st = packer->remove(o->out);
    if (st == DT_OK) st = packer->finish(self);
    if (self) packer->end(self);
    if (st != DT_OK) return st;
    double s = dt_clock_s() - p.begin_s;
    char classes[48] = "", ignored[64] = "";
    if (raw->n_classes) snprintf(classes, sizeof classes, ", %d classes", raw->n_classes);
    if (raw->n_ignored)
        snprintf(ignored, sizeof ignored, "; %zu files are no samples and were left out",
                 raw->n_ignored);
    dt_info("packed %zu records, %.1f MB%s, into %s in %.1f s%s", raw->n,
            (double)p.total_bytes / 1e6, classes, o->out, s, ignored);
    return DT_OK;
}

dt_status dt_data_pack(const dt_pack_opts *o) {
    const dt_packer *packer = NULL;
    char *out = dt_xstrdup(o->out);
    for (size_t n = strlen(out); n > 1 && out[n - 1] == '/'; n--) out[n - 1] = '\0';
    dt_pack_opts opts = *o;
    opts.out = out;
    for (int i = 0; i < N_PACKERS; i++)
        if (PACKERS[i]->accepts(out)) packer = PACKERS[i];
    dt_raw raw = {0};
    bool any = false, same = false;
    dt_status st = DT_OK;
    if (!packer)
        st = dt_fail(DT_E_USAGE,
                     "%s: the output ends in .lmdb, or in .tar (with a brace pattern for several "
                     "shards: name-{000000..000003}.tar)",
                     out);
    if (st == DT_OK) st = dt_raw_list(&raw, o->source, o->pattern);
    if (st == DT_OK) st = inspect(packer, out, raw.hash, &any, &same);
    if (st == DT_OK && same && !o->overwrite) {
        dt_info("%s is already packed from %s: nothing to do", out, o->source);
    } else if (st == DT_OK && any && !o->overwrite) {
        st = dt_fail(
            DT_E_USAGE,
            "%s exists and was made from something else than %s (or is not complete): remove it "
            "or pack with --overwrite",
            out, o->source);
    } else if (st == DT_OK) {
        st = pack(packer, &opts, &raw);
    }
    dt_raw_fini(&raw);
    free(out);
    return st;
}
