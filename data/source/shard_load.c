// shard_load.c: from data files to catalog rows.
//
// The rows of a file come from the index beside it. A file without an index, or with one that describes other
// bytes, is scanned by its format. The rows become an index in memory, which is also written beside the file
// if the folder allows it, so that the next opening is quick. So all rows come into the catalog the same way.
// A compressed file is unpacked first (source_parts.h), and its index lies beside the unpacked copy.
//
// Of an object that a server has, the host keeps the index in the folder of its cache. Where the server gives the object a
// strong ETag, that index says what else would be asked for: one request opens the shard, and the processes of a host ask for
// the rest once. Else the object's ends are compared, as a file's are.
//
// An index from packing has the hash of each member. It is not replaced if the file has changed, so that every
// opening warns. Rows are not written either if something was left out of them.
//
// Threads take the files in turn. The caller adds the rows in the order of the files, so the catalog does not
// depend on which thread was faster.
#include "data/catalog/index_file.h"
#include "data/file/file.h"
#include "source_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "store/blob.h"
#include "store/blob_cache.h"
#include "store/http.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 512,
    MIN_THREADS = 4,
    MAX_THREADS = 16,
    URL_THREADS = 128,
    PROGRESS_S = 5,
    LOCK_S = 60,
    MIN_INDEX_BYTES = 256 << 20, // no index is larger than that and INDEX_SHARE times its data
    INDEX_SHARE = 256
};

static const dt_file_format *const FORMATS[] = {&dt_format_mds, &dt_format_lmdb, &dt_format_tar};
enum { N_FORMATS = sizeof FORMATS / sizeof *FORMATS };

// ---- one file --------------------------------------------------------------------------------------
static const dt_file_format *shard_load_format_of(const char *path, const uint8_t *head, size_t n) {
    const dt_kind *k = dt_kind_of_bytes(head, n);
    for (int i = 0; i < N_FORMATS && !dt_kind_stands_in(k); i++) // a page that a server sends instead is no format
        if (FORMATS[i]->accepts(path, head, n)) return FORMATS[i];
    return NULL;
}

// Opens the file, or its unpacked copy under the file's name.
static dt_status open_plain(dt_shard_job *j, dt_unpack_cache *cache, dt_blob *b, uint8_t *head, size_t *n_head) {
    DT_TRY(dt_blob_open(b, j->path));
    for (int round = 0; round < 2; round++) {
        *n_head = b->n_bytes < HEAD_BYTES ? (size_t)b->n_bytes : HEAD_BYTES;
        DT_TRY(dt_blob_read(b, 0, head, *n_head));
        // a .gz within a .gz is not unpacked
        if (round == 1 || dt_packing_of(head, *n_head) == DT_PACKING_NONE) return DT_OK;
        // j->kept holds the copy: no other process removes it
        DT_TRY(dt_unpack_open(cache, j->path, &j->file, &j->kept));
        dt_blob_close(b);
        DT_TRY(dt_blob_open(b, j->file));
        b->path = j->path; // messages name the compressed file
    }
    return DT_OK;
}

// Whether the file here was written after its index, which then may be of other bytes of the same size and ends. A time
// in the future says nothing.
static bool is_newer(const dt_shard_job *j, const char *index) {
    struct stat s;
    return !j->file && !dt_blob_is_url(j->path) && stat(index, &s) == 0 &&
           (double)j->version < dt_clock_wall_s() * 1e9 &&
           j->version > (uint64_t)s.st_mtim.tv_sec * 1000000000 + (uint64_t)s.st_mtim.tv_nsec;
}

// Whether we may write the file. A folder without write bits is left alone, even by root.
static bool may_write(const char *path) {
    char *dir = dt_io_parent(path);
    struct stat s;
    // root passes access() in any case
    const bool may = stat(dir, &s) == 0 && (s.st_mode & 0222) && access(dir, W_OK) == 0;
    free(dir);
    return may;
}

// Reads an index of the file into j->index. writes: it may be replaced. *usable: it describes these bytes. j->stamp 0
// becomes the index's.
static dt_status read_index(dt_shard_job *j, const char *path, bool writes, bool *usable, bool *may_replace) {
    char *data = NULL;
    size_t n = 0;
    bool stale;
    const bool newer = is_newer(j, path); // before another process replaces the index
    uint64_t source_hash, stamp = j->stamp;
    *usable = false;
    *may_replace = true;
    DT_TRY(dt_blob_read_all(&data, &n, path, MIN_INDEX_BYTES + INDEX_SHARE * j->n_bytes, false));
    if (!data) return DT_OK;
    dt_status st = dt_index_check(j->path, path, data, n, j->n_bytes, &stamp, &stale, &source_hash);
    if (st == DT_OK && !stale && newer && source_hash == 0) { // no hash finds it
        stale = writes && may_write(path);
        dt_warn_alike("%s: written after %s: %s (touch the index if it fits the file)", j->path, path,
                      stale ? "scanned again" : "read by it, as it cannot be replaced");
    }
    if (st == DT_OK && !stale) {
        *usable = true;
        *may_replace = stamp == j->stamp; // else every opening warns
        if (j->stamp == 0) j->stamp = stamp;
        j->index = (dt_buffer){(uint8_t *)data, n, n};
        return DT_OK;
    }
    free(data);
    DT_TRY(st);
    *may_replace = source_hash == 0;
    if (source_hash)
        dt_warn_alike("%s: changed since its index was written: scanned, and not checked by hash; pack "
                      "it again",
                      j->path);
    return DT_OK;
}

static void write_index(const dt_shard_job *j, const char *path) {
    if (may_write(path) && dt_io_write_file(path, j->index.data, j->index.n_bytes) != DT_OK)
        dt_log(DT_LOG_DEBUG, "index not written: %s", dt_error_message());
    dt_error_clear();
}

static dt_status scan_file(dt_shard_job *j, const dt_file_format *f, const dt_blob *b, const char *index_path,
                           bool write, const dt_reader_options *o) {
    dt_blob near = *b;
    // a scan reads a few bytes at a time: a request for each would be too many
    if (b->store->remote) dt_blob_by_window(&near, b);
    dt_scan s = {.c = dt_catalog_create(), .blob = &near, .lenient = o->lenient};
    dt_status st = f->scan(&s);
    if (b->store->remote) dt_blob_close(&near);
    if (st == DT_OK) st = dt_catalog_finish(s.c);
    if (st == DT_OK) st = dt_index_make(s.c, 0, j->stamp, &j->index);
    if (st == DT_OK && write && !s.partial) write_index(j, index_path); // partial: the next opening shall warn, too
    j->n_bad = s.n_bad;
    memcpy(j->first_bad, s.first_bad, sizeof j->first_bad);
    dt_catalog_destroy(s.c);
    return st;
}

static dt_status no_format(const dt_shard_job *j, const uint8_t *head, size_t n) {
    const dt_kind *k = dt_kind_of_bytes(head, n), *unread = dt_kind_unread(j->path);
    if (unread || (k && k->tool))
        return dt_fail(DT_E_DATA, "%s: one file of kind %s, which is not read: %s", j->path,
                       unread ? unread->name : k->name, unread ? unread->tool : k->tool);
    if (k)
        return dt_fail(DT_E_DATA,
                       "%s: one file of kind %s (by its first bytes), no data set: %s, or pack it "
                       "(dtrain pack)",
                       j->path, k->name, dt_blob_is_url(j->path) ? "copy it here" : "give the folder that it lies in");
    return dt_fail(DT_E_DATA, "%s: neither LMDB nor tar nor MDS (by its first bytes): damaged, or no data file",
                   j->path);
}

// The index beside a file; of https://host/x.tar?dl=1 it is https://host/x.tar.index?dl=1. Heap.
static char *index_beside(const char *path) {
    const int n = (int)(dt_http_is_url(path) ? strcspn(path, "?#") : strlen(path));
    return dt_xprintf("%.*s.index%s", n, path, path + n);
}

// Where this host keeps the index of an object. Heap; NULL: nowhere.
static char *kept_index(const char *url, const dt_blob *b, const dt_unpack_cache *cache) {
    // without an ETag the stamp within says whether it fits
    const uint64_t of[] = {dt_hash64(url, strlen(url)), dt_blob_has_etag(b) ? b->version : 0};
    char hex[17], *dir = dt_io_cache_folder(cache->dir, DT_CACHE_INDEXES), *path = NULL;
    dt_hash_hex(dt_hash64(of, sizeof of), hex);
    if (dir && dt_io_mkdir_all(dir) == DT_OK) path = dt_xprintf("%s/%s", dir, hex);
    dt_error_clear();
    free(dir);
    return path;
}

// The index that the host keeps; false: none, or a damaged one.
static bool read_kept(dt_shard_job *j, const char *path) {
    bool usable = false, may_replace;
    if (path && read_index(j, path, true, &usable, &may_replace) != DT_OK) dt_error_clear();
    return usable;
}

// Only one process of the host asks for an index. Closing the descriptor unlocks; < 0: others may ask, too.
static int lock_index(const char *path) {
    char *dir = dt_io_parent(path), *file = dt_xprintf("%s/lock", dir);
    const off_t byte = (off_t)(dt_hash64(path, strlen(path)) >> 2);
    const int fd = dt_cache_lock(file, byte, 1, LOCK_S);
    free(file);
    free(dir);
    return fd;
}

static dt_status load_file(dt_shard_job *j, dt_unpack_cache *cache, const dt_reader_options *o) {
    uint8_t head[HEAD_BYTES];
    size_t n_head = 0;
    bool usable = false, may_replace = true;
    dt_blob b = {.store = NULL};
    dt_status st = DT_OK;
    int lock = -1;
    char *beside = NULL, *kept = NULL;
    DT_TRY_GOTO(st, open_plain(j, cache, &b, head, &n_head), out);
    j->n_bytes = b.n_bytes;
    j->version = b.version;
    beside = index_beside(j->file ? j->file : j->path);
    const dt_file_format *f = shard_load_format_of(j->file ? j->file : j->path, head, n_head);
    if (!f) DT_TRY_GOTO(st, no_format(j, head, n_head), out);
    j->format = f->name;
    const bool remote = b.store->remote, has_etag = dt_blob_has_etag(&b);
    if (remote) kept = kept_index(j->path, &b, cache);
    if (has_etag) usable = read_kept(j, kept); // the version is the file's name: no byte of the object is read
    if (has_etag && !usable && kept) {
        lock = lock_index(kept); // others of this host wait, and read what the first has written
        usable = read_kept(j, kept);
    }
    if (!usable) {
        DT_TRY_GOTO(st, dt_blob_stamp(&b, &j->stamp), out);
        if (j->file)
            usable = read_kept(j, beside);
        else
            DT_TRY_GOTO(st, read_index(j, beside, o->write_index, &usable, &may_replace), out);
        // the next start asks the server for the head alone
        if (usable && has_etag && kept && may_replace) write_index(j, kept);
    }
    if (remote && !has_etag && !usable && may_replace) usable = read_kept(j, kept);
    if (!usable)
        st = scan_file(j, f, &b, remote ? kept : beside,
                       may_replace && (remote ? kept != NULL : j->file || o->write_index), o);
    if (remote && st == DT_OK) { // it took a request to open: the reader goes on with it
        j->kept = b;
        b.store = NULL;
    }
out:
    if (lock >= 0) close(lock);
    free(kept);
    free(beside);
    dt_blob_close(&b);
    return st;
}

// ---- threads ---------------------------------------------------------------------------------------
typedef struct loading {
    dt_shard_job *jobs;
    size_t n;
    dt_unpack_cache *cache;
    const dt_reader_options *options;
    _Atomic size_t next;
    _Atomic bool failed;
    double shown_s; // for the first thread, which reports progress
} loading;

// What is taken is also loaded, so the first file in order that fails is always among those that were tried.
static void shard_load_work(void *arg, int index) {
    loading *l = arg;
    while (!l->failed) {
        size_t i = l->next++;
        if (i >= l->n) return;
        if (index == 0 && dt_clock_s() - l->shown_s >= PROGRESS_S) { // one thread, so that lines are in order
            l->shown_s = dt_clock_s();
            dt_info("opening data: %zu of %zu files; at %s", i, l->n, l->jobs[i].path);
        }
        dt_shard_job *j = &l->jobs[i];
        j->status = load_file(j, l->cache, l->options);
        if (j->status == DT_OK) continue;
        snprintf(j->message, sizeof j->message, "%s", dt_error_message());
        l->failed = true; // behind the message: who sees it reads that
    }
}

dt_status dt_shards_load(dt_shard_job *jobs, size_t n, dt_unpack_cache *cache, const dt_reader_options *o) {
    loading l = {.jobs = jobs, .n = n, .cache = cache, .options = o, .shown_s = dt_clock_s()};
    // waiting for a disk needs no core, so there are more threads than cores
    int wanted = 2 * dt_usable_cores();
    wanted = wanted < MIN_THREADS ? MIN_THREADS : wanted > MAX_THREADS ? MAX_THREADS : wanted;
    for (size_t i = 0; i < n; i++)
        if (dt_blob_is_url(jobs[i].path)) wanted = URL_THREADS; // they wait for round trips
    if ((size_t)wanted > n) wanted = n > 0 ? (int)n : 1;
    dt_team *team;
    DT_TRY(dt_team_create(&team, wanted, "dt-open"));
    dt_team_run(team, shard_load_work, &l);
    dt_team_destroy(team);
    for (size_t i = 0; i < n; i++)
        // the first in order, whichever thread failed first
        if (jobs[i].status != DT_OK) return dt_fail(jobs[i].status, "%s", jobs[i].message);
    return DT_OK;
}

void dt_shard_job_fini(dt_shard_job *j) {
    dt_blob_close(&j->kept);
    dt_buffer_fini(&j->index);
    free(j->file);
}
