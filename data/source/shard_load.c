// shard_load.c: from data files to catalog rows.
//
// The rows of a file come from the index beside it. A file without an index, or with one that describes other
// bytes, is scanned by its format. The rows become an index in memory, which is also written beside the file
// if the folder allows it, so that the next opening is quick. So all rows come into the catalog the same way.
// A compressed file is unpacked first (unpack.h), and its index lies beside the unpacked copy.
//
// An index from packing has the hash of each member. It is not replaced if the file has changed, so that every
// opening warns. Rows are not written either if something was left out of them.
//
// Threads take the files in turn, and the caller takes the results in order: the catalog does not depend on
// which thread was faster.
#include "shard_load.h"
#include "data/catalog/index_file.h"
#include "data/file/kinds.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 512, MIN_THREADS = 4, MAX_THREADS = 16, AHEAD = 4, PROGRESS_S = 5 };

static const dt_file_format *const FORMATS[] = {&dt_format_mds, &dt_format_lmdb, &dt_format_tar};
enum { N_FORMATS = sizeof FORMATS / sizeof *FORMATS };

struct dt_shard_loader {
    dt_shard_job *jobs;
    size_t n, next, taken;
    bool *ready;
    dt_unpack_cache *cache;
    dt_set_options options;
    bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t done, room;
    pthread_t threads[MAX_THREADS];
    int n_threads;
    double told_s;
};

// ---- one file --------------------------------------------------------------------------------------
static const dt_file_format *format_of(const char *path, const uint8_t *head, size_t n) {
    for (int i = 0; i < N_FORMATS; i++)
        if (FORMATS[i]->accepts(path, head, n)) return FORMATS[i];
    return NULL;
}

// Opens the file, or its unpacked copy under the file's name.
static dt_status open_plain(dt_shard_job *j, dt_unpack_cache *cache, dt_blob *b, uint8_t *head,
                            size_t *n_head) {
    DT_TRY(dt_blob_open(b, j->path));
    for (int round = 0; round < 2; round++) {
        *n_head = b->n_bytes < HEAD_BYTES ? (size_t)b->n_bytes : HEAD_BYTES;
        DT_TRY(dt_blob_read(b, 0, head, *n_head));
        if (round == 1 || dt_packing_of(head, *n_head) == DT_PACKING_NONE) return DT_OK;
        DT_TRY(dt_unpack_open(cache, j->path, &j->file, &j->fd));
        dt_blob_close(b);
        DT_TRY(dt_blob_open(b, j->file));
        b->path = j->path;
    }
    return DT_OK;
}

// Reads the index beside the file into j->index. *usable: it describes these bytes.
static dt_status read_index(dt_shard_job *j, const char *path, bool *usable, bool *may_replace) {
    char *data = NULL;
    size_t n = 0;
    bool stale;
    uint64_t source_hash;
    *usable = false;
    *may_replace = true;
    if (!dt_io_exists(path)) return DT_OK;
    DT_TRY(dt_io_read_file(&data, &n, path, 0, DT_E_DATA));
    dt_status st =
        dt_index_check(j->path, path, data, n, j->n_bytes, j->stamp, &stale, &source_hash);
    if (st == DT_OK && !stale) {
        *usable = true;
        j->index = (dt_buffer){(uint8_t *)data, n, n};
        return DT_OK;
    }
    free(data);
    DT_TRY(st);
    *may_replace = source_hash == 0;
    if (source_hash)
        dt_warn_alike(
            "%s: changed since its index was written: scanned, and not checked by hash; pack "
            "it again",
            j->path);
    return DT_OK;
}

// Whether we may write there. A folder without write bits is left alone, even by root.
static bool is_writable(const char *dir) {
    struct stat s;
    return stat(dir, &s) == 0 && (s.st_mode & 0222) && access(dir, W_OK) == 0;
}

static void write_index(const dt_shard_job *j, const char *path) {
    char *dir = dt_xstrdup(path), *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0';
    if (is_writable(slash ? dir : ".") &&
        dt_io_write_file(path, j->index.data, j->index.n_bytes) != DT_OK)
        dt_log(DT_LOG_DEBUG, "index not written: %s", dt_error_message());
    dt_error_clear();
    free(dir);
}

static dt_status scan_file(dt_shard_job *j, const dt_file_format *f, const dt_blob *b,
                           const char *index_path, bool write, const dt_set_options *o) {
    dt_scan s = {.c = dt_catalog_create(), .blob = b, .lenient = o->lenient};
    dt_status st = f->scan(&s);
    if (st == DT_OK) st = dt_catalog_finish(s.c);
    if (st == DT_OK) st = dt_index_make(s.c, 0, j->stamp, &j->index);
    if (st == DT_OK && write && !s.partial) write_index(j, index_path);
    j->scanned = true;
    j->n_bad = s.n_bad;
    memcpy(j->first_bad, s.first_bad, sizeof j->first_bad);
    dt_catalog_destroy(s.c);
    return st;
}

static dt_status no_format(const dt_shard_job *j, const uint8_t *head, size_t n) {
    const dt_kind *k = dt_kind_of_bytes(head, n);
    if (k)
        return dt_fail(DT_E_DATA,
                       "%s: one file of kind %s (by its first bytes), no data set: give the folder "
                       "that it lies in, or pack it (dtrain pack)",
                       j->path, k->name);
    return dt_fail(
        DT_E_DATA,
        "%s: neither LMDB nor tar nor MDS (by its first bytes): damaged, or no data file", j->path);
}

static dt_status load_file(dt_shard_job *j, dt_unpack_cache *cache, const dt_set_options *o) {
    uint8_t head[HEAD_BYTES];
    size_t n_head = 0;
    bool usable = false, may_replace = true;
    dt_blob b = {.fd = -1};
    dt_status st = DT_OK;
    char *index_path = NULL;
    DT_TRY_GOTO(st, open_plain(j, cache, &b, head, &n_head), out);
    DT_TRY_GOTO(st, dt_blob_stamp(&b, &j->stamp), out);
    j->n_bytes = b.n_bytes;
    index_path = dt_xprintf("%s.index", j->file ? j->file : j->path);
    const dt_file_format *f = format_of(j->file ? j->file : j->path, head, n_head);
    if (!f)
        st = no_format(j, head, n_head);
    else
        j->format = f->name;
    if (st == DT_OK) st = read_index(j, index_path, &usable, &may_replace);
    if (st == DT_OK && !usable)
        st = scan_file(j, f, &b, index_path, may_replace && (j->file || o->write_index), o);
out:
    free(index_path);
    dt_blob_close(&b);
    return st;
}

// ---- threads ---------------------------------------------------------------------------------------
static void run_job(dt_shard_loader *l, size_t i) {
    dt_shard_job *j = &l->jobs[i];
    j->status = load_file(j, l->cache, &l->options);
    if (j->status != DT_OK) snprintf(j->message, sizeof j->message, "%s", dt_error_message());
}

static void *work(void *arg) {
    dt_shard_loader *l = arg;
    dt_thread_name("dt-open");
    pthread_mutex_lock(&l->lock);
    while (!l->stopping && l->next < l->n) {
        if (l->next >= l->taken + (size_t)(AHEAD * l->n_threads)) {
            pthread_cond_wait(&l->room, &l->lock);
            continue;
        }
        size_t i = l->next++;
        pthread_mutex_unlock(&l->lock);
        run_job(l, i);
        pthread_mutex_lock(&l->lock);
        l->ready[i] = true;
        pthread_cond_signal(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

dt_shard_loader *dt_shard_loader_begin(dt_shard_job *jobs, size_t n, dt_unpack_cache *cache,
                                       const dt_set_options *o) {
    dt_shard_loader *l = dt_xcalloc(1, sizeof *l);
    *l = (dt_shard_loader){.jobs = jobs, .n = n, .cache = cache, .options = *o};
    l->ready = dt_xcalloc(n + 1, sizeof *l->ready);
    l->told_s = dt_clock_s();
    for (size_t i = 0; i < n; i++) jobs[i].fd = -1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->done, NULL);
    pthread_cond_init(&l->room, NULL);
    // waiting for a disk needs no core, so there are more threads than cores
    int wanted = 2 * dt_usable_cores();
    wanted = wanted < MIN_THREADS ? MIN_THREADS : wanted > MAX_THREADS ? MAX_THREADS : wanted;
    if ((size_t)wanted > n) wanted = (int)n;
    pthread_mutex_lock(&l->lock);
    while (n > 1 && l->n_threads < wanted &&
           pthread_create(&l->threads[l->n_threads], NULL, work, l) == 0)
        l->n_threads++;
    pthread_mutex_unlock(&l->lock);
    return l;
}

static void wait_and_tell(dt_shard_loader *l, size_t i) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&l->done, &l->lock, &until);
    if (dt_clock_s() - l->told_s < PROGRESS_S) return;
    l->told_s = dt_clock_s();
    dt_info("opening data: %zu of %zu files; at %s", i, l->n, l->jobs[i].path);
}

dt_status dt_shard_loader_take(dt_shard_loader *l, size_t i) {
    dt_shard_job *j = &l->jobs[i];
    if (i > 0) dt_buffer_fini(&l->jobs[i - 1].index);
    if (l->n_threads == 0) {
        run_job(l, i);
    } else {
        pthread_mutex_lock(&l->lock);
        l->taken = i;
        pthread_cond_broadcast(&l->room);
        while (!l->ready[i]) wait_and_tell(l, i);
        pthread_mutex_unlock(&l->lock);
    }
    return j->status == DT_OK ? DT_OK : dt_fail(j->status, "%s", j->message);
}

void dt_shard_loader_end(dt_shard_loader *l) {
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->room);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_threads; i++) pthread_join(l->threads[i], NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->done);
    pthread_cond_destroy(&l->room);
    free(l->ready);
    free(l);
}

void dt_shard_job_fini(dt_shard_job *j) {
    if (j->fd >= 0) close(j->fd);
    dt_buffer_fini(&j->index);
    free(j->file);
}
