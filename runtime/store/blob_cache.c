// blob_cache.c: see blob_cache.h.

#include "blob_cache.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    BLOCK_BYTES = 1 << 20,
    MAX_BLOCKS = 8, // that one request fetches
    WAIT_S = 70,    // for a block that another fetches: longer than its requests may take
    PAGE = 4096,
    MAX_STEP = 256 << 20, // room is asked for in steps of 1/64 of the cache up to this
    LAYOUT = 1            // of the files; in their names' hash
};

struct dt_blob_cache {
    char *dir, *lock_path;
    uint64_t max_bytes;
    pthread_mutex_t mutex;
    uint64_t room;    // that was found and not used; under `mutex`, as the next one
    uint64_t pending; // of what is fetched now, which no file shows yet
    _Atomic bool full;
    _Atomic uint64_t n_hits, n_misses, n_blocks, n_bytes;
};

typedef struct row {
    uint64_t hash, check; // check_of(hash), else there is no block
} row;

struct dt_blob_copy {
    dt_blob of;
    dt_blob_cache *cache;
    char *path;
    int fd;
    uint64_t key, data_at;
    uint32_t n_blocks;
    // By block: it is there, and its hash is right. Publishes no memory: blocks are read from the file, in which another
    // process' block counts by its row, whose hash its bytes must have.
    _Atomic bool *checked;
    _Atomic bool damaged; // a warning said so
};

// ---- blocks ----------------------------------------------------------------------------------------

static size_t block_bytes(const struct dt_blob_copy *x, uint32_t k) {
    const uint64_t left = x->of.n_bytes - (uint64_t)k * BLOCK_BYTES;
    return left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
}

static uint64_t check_of(const struct dt_blob_copy *x, uint32_t k, uint64_t hash) {
    // a row of zeros, or of another block or object, does not fit
    return ~(hash ^ x->key ^ (uint64_t)k << 32);
}

static dt_status read_copy(const struct dt_blob_copy *x, uint64_t at, void *dst, size_t n) {
    return dt_io_pread(x->fd, x->path, dst, n, (off_t)(x->data_at + at), DT_E_STORAGE);
}

static void set_checked(const struct dt_blob_copy *x, uint32_t k) {
    if (atomic_exchange(&x->checked[k], true)) return; // counted once, whichever thread comes first
    x->cache->n_blocks++;
    x->cache->n_bytes += block_bytes(x, k);
}

static void blob_cache_forget(const struct dt_blob_copy *x, uint32_t k) {
    const row none = {0}; // its check never fits
    if (atomic_exchange(&x->checked[k], false)) {
        x->cache->n_blocks--;
        x->cache->n_bytes -= block_bytes(x, k);
    }
    if (dt_io_pwrite(x->fd, x->path, &none, sizeof none, (off_t)k * (off_t)sizeof none) != DT_OK) dt_error_clear();
}

// Whether the block is there, as it was fetched.
static bool has_block(struct dt_blob_copy *x, uint32_t k) {
    row r;
    if (x->checked[k]) return true; // the common case: no call of the system
    if (pread(x->fd, &r, sizeof r, (off_t)k * (off_t)sizeof r) != sizeof r || r.check != check_of(x, k, r.hash))
        return false;
    const size_t n = block_bytes(x, k);
    uint8_t *bytes = dt_xrealloc(NULL, BLOCK_BYTES); // once a block and process: no thread keeps a megabyte for it
    const bool whole = read_copy(x, (uint64_t)k * BLOCK_BYTES, bytes, n) == DT_OK && dt_hash64(bytes, n) == r.hash;
    free(bytes);
    dt_error_clear();
    if (whole)
        set_checked(x, k);
    else {
        if (!atomic_exchange(&x->damaged, true))
            dt_warn("%s: bytes of the cache are not those that were fetched: fetching them again", x->of.path);
        blob_cache_forget(x, k);
    }
    return whole;
}

// ---- fetching --------------------------------------------------------------------------------------

// Room for n bytes that will be written, until end_room. false: the cache is full.
static bool take_room(dt_blob_cache *c, uint64_t n) {
    pthread_mutex_lock(&c->mutex);
    if (c->room < n && !c->full) {
        uint64_t step = (c->max_bytes ? c->max_bytes : DT_CACHE_AUTO_BYTES) / 64;
        // listing the folder's files takes too long for each block
        step = step > MAX_STEP ? MAX_STEP : step < n ? n : step;
        // what is being fetched stands in no file yet
        if (dt_cache_room(c->dir, c->max_bytes, step + c->pending, c->max_bytes == 0))
            c->room = step;
        else if (!atomic_exchange(&c->full, true))
            dt_info("%s: the cache is full (data.cache_size): what it lacks is read in each epoch", c->dir);
    }
    const bool ok = c->room >= n;
    if (ok) c->room -= n;
    if (ok) c->pending += n;
    pthread_mutex_unlock(&c->mutex);
    return ok;
}

// Bytes first, then the rows: a block that has a row is whole.
static dt_status blob_cache_store(const struct dt_blob_copy *x, uint32_t k, uint32_t n, const uint8_t *bytes,
                                  size_t n_bytes) {
    row rows[MAX_BLOCKS];
    for (uint32_t i = 0; i < n; i++) {
        rows[i].hash = dt_hash64(bytes + (size_t)i * BLOCK_BYTES, block_bytes(x, k + i));
        rows[i].check = check_of(x, k + i, rows[i].hash);
    }
    DT_TRY(dt_io_pwrite(x->fd, x->path, bytes, n_bytes, (off_t)(x->data_at + (uint64_t)k * BLOCK_BYTES)));
    DT_TRY(dt_io_pwrite(x->fd, x->path, rows, n * sizeof *rows, (off_t)k * (off_t)sizeof *rows));
    for (uint32_t i = 0; i < n; i++) set_checked(x, k + i);
    return DT_OK;
}

// Fetches those of the blocks [k, k + n) that are not there, or waits for who does. *kept = false: they could not be kept.
static dt_status blob_cache_fetch(struct dt_blob_copy *x, uint32_t k, uint32_t n, bool *kept) {
    dt_blob_cache *c = x->cache;
    dt_status st = DT_OK;
    *kept = false;
    if (c->full) return DT_OK;
    // bytes of one file stand for the blocks of all
    const off_t first = (off_t)(x->key >> 2 & ~(uint64_t)0xfffff);
    // of blocks, not of the file: others fetch elsewhere meanwhile
    const int lock = dt_cache_lock(c->lock_path, first + k, n, WAIT_S);
    if (lock < 0) return DT_OK;                // another process hangs: the range is read past the cache
    for (; n > 0 && has_block(x, k); k++) n--; // others have fetched some while this thread waited
    while (n > 0 && has_block(x, k + n - 1)) n--;
    *kept = n == 0;
    size_t n_bytes = 0;
    for (uint32_t i = 0; i < n; i++) n_bytes += block_bytes(x, k + i);
    if (n > 0 && take_room(c, n_bytes)) {
        uint8_t *bytes = dt_xrealloc(NULL, n_bytes);
        st = dt_blob_read(&x->of, (uint64_t)k * BLOCK_BYTES, bytes, n_bytes); // one request for all of them
        *kept = st == DT_OK && blob_cache_store(x, k, n, bytes, n_bytes) == DT_OK;
        if (st == DT_OK && !*kept) {
            if (!atomic_exchange(&c->full, true))
                dt_warn("%s: what the cache lacks is read in each epoch", dt_error_message());
            dt_error_clear();
        }
        free(bytes);
        pthread_mutex_lock(&c->mutex);
        c->pending -= n_bytes;
        pthread_mutex_unlock(&c->mutex);
    }
    close(lock);
    return st;
}

// ---- the store -------------------------------------------------------------------------------------

// As many bytes as are read alike: from the cache, or, fetched or not, from the object.
static dt_status read_some(struct dt_blob_copy *x, uint64_t at, void *dst, size_t n, size_t *n_done, bool *missed) {
    const uint32_t k = (uint32_t)(at / BLOCK_BYTES);
    const uint32_t end = (uint32_t)((at + n - 1) / BLOCK_BYTES) + 1;
    uint32_t next = k + 1;
    const bool there = has_block(x, k);
    while (next < end && next - k < MAX_BLOCKS && has_block(x, next) == there) next++; // a run that is there, or is not
    const uint64_t left = (uint64_t)next * BLOCK_BYTES - at;
    *n_done = left < n ? (size_t)left : n;
    bool kept = there;
    *missed = *missed || !there;
    if (!there) DT_TRY(blob_cache_fetch(x, k, next - k, &kept));
    if (kept && read_copy(x, at, dst, *n_done) == DT_OK) return DT_OK;
    if (kept) dt_error_clear(); // a disk that fails takes nothing that the server has
    return dt_blob_read(&x->of, at, dst, *n_done);
}

static dt_status read_through(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    struct dt_blob_copy *x = b->u.copy;
    bool missed = false;
    for (size_t done = 0, some = 0; done < n_bytes; done += some)
        DT_TRY(read_some(x, at + done, (uint8_t *)dst + done, n_bytes - done, &some, &missed));
    atomic_fetch_add(missed ? &x->cache->n_misses : &x->cache->n_hits, 1);
    return DT_OK;
}

static void close_copy(dt_blob *b) {
    struct dt_blob_copy *x = b->u.copy;
    dt_blob_close(&x->of);
    if (x->fd >= 0) close(x->fd);
    free(x->checked);
    free(x->path);
    free(x);
}

static const dt_blob_store COPIES = {read_through, close_copy, false};

static uint64_t blob_cache_identity(const dt_blob *b, uint64_t stamp) {
    char real[PATH_MAX];
    if (!realpath(b->path, real)) snprintf(real, sizeof real, "%s", b->path); // a URL has no real path
    const uint64_t n[] = {dt_hash64(real, strlen(real)), b->version, b->n_bytes, stamp, LAYOUT};
    return dt_hash64(n, sizeof n);
}

void dt_blob_keep(dt_blob *b, dt_blob_cache *c, uint64_t stamp) {
    if (b->n_bytes == 0 || b->n_bytes / BLOCK_BYTES >= UINT32_MAX) return;
    struct dt_blob_copy *x = dt_xcalloc(1, sizeof *x);
    char hex[17];
    struct stat s;
    x->key = blob_cache_identity(b, stamp);
    dt_hash_hex(x->key, hex);
    x->path = dt_xprintf("%s" DT_CACHE_OBJECTS "/%s", c->dir, hex);
    x->cache = c;
    x->n_blocks = (uint32_t)((b->n_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
    x->data_at = dt_align_up((uint64_t)x->n_blocks * sizeof(row), PAGE);
    x->checked = dt_xcalloc(x->n_blocks, sizeof *x->checked);
    x->fd = dt_cache_hold(x->path, O_RDWR | O_CREAT);
    const off_t size = (off_t)(x->data_at + b->n_bytes); // sparse: a hole for each block that was not read
    if (x->fd < 0 || fstat(x->fd, &s) != 0 || (s.st_size < size && ftruncate(x->fd, size) != 0)) {
        dt_warn("%s: %s: continuing without data.cache for %s", x->path, strerror(errno), b->path);
        dt_blob none = {.u.copy = x};
        close_copy(&none);
        return;
    }
    x->of = *b;
    b->store = &COPIES;
    b->u.copy = x;
}

bool dt_blob_forget(const dt_blob *b, uint64_t at, uint64_t n_bytes) {
    if (b->store != &COPIES || n_bytes == 0) return b->store->remote;
    for (uint64_t k = at / BLOCK_BYTES; k <= (at + n_bytes - 1) / BLOCK_BYTES; k++)
        blob_cache_forget(b->u.copy, (uint32_t)k);
    return true;
}

// ---- the cache -------------------------------------------------------------------------------------

dt_status dt_blob_cache_open(dt_blob_cache **out, const char *dir, uint64_t max_bytes) {
    char *objects = dt_xprintf("%s" DT_CACHE_OBJECTS, dir);
    const dt_status st = dt_io_mkdir_all(objects);
    *out = NULL;
    if (st == DT_OK) {
        dt_blob_cache *c = dt_xcalloc(1, sizeof *c);
        c->dir = dt_xstrdup(dir);
        c->lock_path = dt_xprintf("%s/lock", objects);
        c->max_bytes = max_bytes;
        pthread_mutex_init(&c->mutex, NULL);
        *out = c;
    }
    free(objects);
    return st;
}

void dt_blob_cache_close(dt_blob_cache *c) {
    if (!c) return;
    pthread_mutex_destroy(&c->mutex);
    free(c->lock_path);
    free(c->dir);
    free(c);
}

void dt_blob_cache_get_stats(const dt_blob_cache *c, dt_blob_cache_stats *out) {
    *out = (dt_blob_cache_stats){c->n_hits, c->n_misses, c->n_blocks, c->n_bytes, c->full};
}

// ---- cache room ---------------------------------------------------------------------------------------------------

enum { KEEP_SHARE = 10 }; // a tenth of the disk

// ---- files of a folder -----------------------------------------------------------------------------

static int compare_used(const void *pa, const void *pb) {
    const dt_used_file *a = pa, *b = pb;
    if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

dt_status dt_used_files_add(dt_used_file **out, size_t *n, const char *folder) {
    char **names;
    size_t n_names;
    DT_TRY(dt_io_list_dir(&names, &n_names, folder, DT_E_STORAGE));
    for (size_t i = 0; i < n_names; i++) {
        char *path = dt_xprintf("%s/%s", folder, names[i]);
        struct stat s;
        if (lstat(path, &s) != 0 || !S_ISREG(s.st_mode)) {
            free(path);
            continue;
        }
        // a file of the cache is sparse; another may be stored in whole blocks
        const uint64_t size = (uint64_t)s.st_size, stored = (uint64_t)s.st_blocks * 512;
        *out = dt_xgrow(*out, *n, sizeof **out);
        (*out)[(*n)++] = (dt_used_file){path, size < stored ? size : stored, s.st_mtim};
    }
    dt_io_free_list(names, n_names);
    return DT_OK;
}

void dt_used_files_free(dt_used_file *files, size_t n) {
    for (size_t i = 0; i < n; i++) free(files[i].path);
    free(files);
}

// ---- the host's cache ------------------------------------------------------------------------------

int dt_cache_hold(const char *path, int flags) {
    for (;;) {
        struct stat s;
        const int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0) return -1;
        int rc;
        do rc = flock(fd, LOCK_SH);
        while (rc != 0 && errno == EINTR);
        const bool held = rc == 0 && fstat(fd, &s) == 0;
        if (held && s.st_nlink > 0) { // else it was removed between open and flock
            // mtime says when it was used last
            futimens(fd, (struct timespec[2]){{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}});
            return fd;
        }
        const int error = errno;
        close(fd);
        errno = error;
        if (!held) return -1;
    }
}

int dt_cache_lock(const char *path, off_t first, uint32_t n, double wait_s) {
    const double begin = dt_clock_s();
    const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    for (uint32_t i = 0; i < n && fd >= 0; i++)
        for (useconds_t pause_us = 500; !dt_io_lock_byte(fd, first + i, F_WRLCK, false);
             pause_us = pause_us < 8000 ? 2 * pause_us : 8000) {
            if ((errno == EAGAIN || errno == EACCES) && dt_clock_s() - begin < wait_s) { // POSIX allows either
                usleep(pause_us);
                continue;
            }
            close(fd);
            return -1;
        }
    return fd;
}

// Not what belongs to another file, or to all.
static bool cache_room_counts(const char *path) {
    return !dt_text_ends(path, ".index|/lock");
}

// Removes a file that nobody holds, and the index beside it. false: in use, or gone already.
static bool evict(const char *path) {
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat s; // no links: another process removed it, and a third may have made it anew
    const bool gone =
        fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &s) == 0 && s.st_nlink > 0 && unlink(path) == 0;
    if (gone) {
        char *index = dt_xprintf("%s.index", path);
        unlink(index); // an index describes its file alone
        free(index);
    }
    if (fd >= 0) close(fd);
    return gone;
}

static bool cache_room_is_short(const char *dir, uint64_t n_bytes) {
    struct statvfs v;
    return statvfs(dir, &v) == 0 &&
           (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)v.f_blocks * v.f_frsize / KEEP_SHARE + n_bytes;
}

bool dt_cache_room(const char *dir, uint64_t max_bytes, uint64_t n_bytes, bool spare) {
    static const char *const FOLDERS[] = {DT_CACHE_UNPACKED, DT_CACHE_OBJECTS, DT_CACHE_INDEXES};
    dt_used_file *files = NULL;
    size_t n = 0;
    uint64_t total = 0;
    if (max_bytes == 0) max_bytes = DT_CACHE_AUTO_BYTES;
    for (int i = 0; i < 3; i++) {
        char *folder = dt_xprintf("%s%s", dir, FOLDERS[i]);
        if (dt_used_files_add(&files, &n, folder) != DT_OK) dt_error_clear(); // none yet
        free(folder);
    }
    if (n > 0) qsort(files, n, sizeof *files, compare_used);
    for (size_t i = 0; i < n; i++) total += cache_room_counts(files[i].path) ? files[i].n_bytes : 0;
    bool room = false;
    for (size_t i = 0; !room; i++) {
        room = total + n_bytes <= max_bytes && !(spare && cache_room_is_short(dir, n_bytes));
        if (room || i == n) break;
        // the longest unused first
        if (cache_room_counts(files[i].path) && evict(files[i].path)) total -= files[i].n_bytes;
    }
    dt_used_files_free(files, n);
    return room;
}
