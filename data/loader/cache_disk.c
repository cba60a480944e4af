// cache_disk.c: entries in a file on a local disk, for data on a network file system or an object mount.
//
// One file a data set: a head, an index of (place, XXH3) an entry, and data. It stays for later runs, and
// the processes of a host share it. Everything is read and written by pread and pwrite, so a full or
// failing disk is an error and no SIGBUS. Nothing is flushed: after a power cut an index may point at
// bytes that never came to the disk, so every entry is checked against its hash when it is read, and one
// that does not match is not there. An entry is written before its place is; two processes that fill one
// entry at once both write it, to two places, and either will do.
//
// Locks (OFD, dropped by the kernel with the process): byte 0 shared by all who use the file, exclusively
// by who makes it or removes it; byte 1 while a chunk is taken. Files of other data sets that nobody uses
// go, the longest unused first, when there is no room for this one.
//
// Rejected: copies of whole shards (a global shuffle reads from all of them at once, and all would have
// to be there), a file an entry (inodes, and a directory of 10^6 names), a map of the index.
#define _GNU_SOURCE // OFD locks
#include "cache.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGN = 64, CHUNK = 4 << 20, SMALL_CHUNK = 65536, KEEP_SHARE = 10 };
#define MAGIC UINT64_C(0x3130656863617464) // "dtcache0"

typedef struct head {
    uint64_t magic, key, n_entries, taken;
} head;

typedef struct entry_row {
    uint64_t place; // + 1; 0: empty
    uint64_t hash;
} entry_row;

struct dt_cache_disk {
    dt_cache_opts o;
    int fd;
    char *path;
    uint64_t data_at, chunk_bytes;
    pthread_mutex_t lock;
    uint64_t at, end;            // of this process's chunk
    uint64_t n_entries, n_bytes; // as far as this process knows
    bool full;
};

static bool lock_byte(int fd, off_t byte, short type, bool wait) {
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int rc;
    do rc = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

static bool read_at(int fd, void *dst, size_t n, uint64_t at) {
    for (size_t done = 0; done < n;) {
        ssize_t r = pread(fd, (uint8_t *)dst + done, n - done, (off_t)(at + done));
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return false;
        done += (size_t)r;
    }
    return true;
}

static void set_full(dt_cache_disk *c, const char *why) {
    if (__atomic_exchange_n(&c->full, true, __ATOMIC_RELAXED)) return;
    if (why) dt_warn("%s: the cache stays as it is", why);
}

// ---- entries ---------------------------------------------------------------------------------------
static bool get_row(const dt_cache_disk *c, uint32_t entry, entry_row *row) {
    return read_at(c->fd, row, sizeof *row, PAGE + (uint64_t)entry * sizeof *row) && row->place;
}

bool dt_cache_disk_has(const dt_cache_disk *c, uint32_t entry) {
    entry_row row;
    return get_row(c, entry, &row);
}

bool dt_cache_disk_load(dt_cache_disk *c, uint32_t entry, void *dst, size_t n_bytes) {
    entry_row row;
    if (!get_row(c, entry, &row)) return false;
    if (read_at(c->fd, dst, n_bytes, c->data_at + row.place - 1) &&
        dt_hash64(dst, n_bytes) == row.hash)
        return true;
    row = (entry_row){0};
    if (dt_io_pwrite(c->fd, c->path, &row, sizeof row,
                     (off_t)(PAGE + (uint64_t)entry * sizeof row)) != DT_OK)
        set_full(c, dt_error_message());
    return false;
}

static bool disk_is_short(const dt_cache_disk *c, uint64_t more) {
    struct statvfs v;
    if (fstatvfs(c->fd, &v) != 0) return false;
    return (uint64_t)v.f_bavail * v.f_frsize <
           (uint64_t)v.f_blocks * v.f_frsize / KEEP_SHARE + more;
}

// Under the lock of this process; the byte lock is for the others.
static bool take_chunk(dt_cache_disk *c, uint64_t n) {
    head h;
    bool ok = lock_byte(c->fd, 1, F_WRLCK, true) && read_at(c->fd, &h, sizeof h, 0);
    bool fits = ok && (c->o.cap_bytes > 0 ? h.taken + n <= c->o.cap_bytes : !disk_is_short(c, n));
    if (fits) {
        c->at = h.taken;
        c->end = h.taken += n;
        ok = dt_io_pwrite(c->fd, c->path, &h, sizeof h, 0) == DT_OK;
    }
    if (!fits || !ok) set_full(c, ok ? NULL : dt_error_message());
    lock_byte(c->fd, 1, F_UNLCK, false);
    return fits && ok;
}

static bool take(dt_cache_disk *c, uint64_t n, uint64_t *at) {
    pthread_mutex_lock(&c->lock);
    bool ok = c->at + n <= c->end || take_chunk(c, n > c->chunk_bytes ? n : c->chunk_bytes);
    *at = c->at;
    if (ok) c->at += n;
    pthread_mutex_unlock(&c->lock);
    return ok;
}

void dt_cache_disk_store(dt_cache_disk *c, uint32_t entry, const void *bytes, size_t n_bytes) {
    uint64_t at;
    if (__atomic_load_n(&c->full, __ATOMIC_RELAXED) || dt_cache_disk_has(c, entry)) return;
    if (!take(c, (n_bytes + ALIGN - 1) / ALIGN * ALIGN, &at)) return;
    entry_row row = {at + 1, dt_hash64(bytes, n_bytes)};
    dt_status st = dt_io_pwrite(c->fd, c->path, bytes, n_bytes, (off_t)(c->data_at + at));
    if (st == DT_OK)
        st = dt_io_pwrite(c->fd, c->path, &row, sizeof row,
                          (off_t)(PAGE + (uint64_t)entry * sizeof row));
    if (st != DT_OK) {
        set_full(c, dt_error_message());
        return;
    }
    __atomic_fetch_add(&c->n_entries, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&c->n_bytes, n_bytes, __ATOMIC_RELAXED);
}

void dt_cache_disk_get_usage(const dt_cache_disk *c, dt_cache_usage *out) {
    *out = (dt_cache_usage){.kind = DT_CACHE_disk,
                            .n_entries = __atomic_load_n(&c->n_entries, __ATOMIC_RELAXED),
                            .n_bytes = __atomic_load_n(&c->n_bytes, __ATOMIC_RELAXED),
                            .cap_bytes = c->o.cap_bytes ? c->o.cap_bytes : c->o.total_bytes,
                            .full = __atomic_load_n(&c->full, __ATOMIC_RELAXED)};
}

// ---- opening ---------------------------------------------------------------------------------------
typedef struct other {
    char *path;
    uint64_t n_bytes;
    struct timespec used;
} other;

static int by_use(const void *x, const void *y) {
    const struct timespec *a = &((const other *)x)->used, *b = &((const other *)y)->used;
    if (a->tv_sec != b->tv_sec) return a->tv_sec < b->tv_sec ? -1 : 1;
    return a->tv_nsec < b->tv_nsec ? -1 : a->tv_nsec > b->tv_nsec;
}

static size_t list_others(const dt_cache_disk *c, other **out, uint64_t *sum) {
    char **names = NULL;
    size_t n = 0, n_others = 0;
    *sum = 0;
    *out = NULL;
    if (dt_io_list_dir(&names, &n, c->o.dir, DT_E_STORAGE) != DT_OK) return 0;
    *out = dt_xcalloc(n + 1, sizeof **out);
    for (size_t i = 0; i < n; i++) {
        size_t n_name = strlen(names[i]);
        char *path = dt_xprintf("%s/%s", c->o.dir, names[i]);
        struct stat st;
        if (n_name > 8 && strcmp(names[i] + n_name - 8, ".records") == 0 &&
            strcmp(path, c->path) != 0 && lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            (*out)[n_others++] = (other){path, (uint64_t)st.st_blocks * 512, st.st_mtim};
            *sum += (uint64_t)st.st_blocks * 512;
        } else {
            free(path);
        }
    }
    dt_io_free_list(names, n);
    qsort(*out, n_others, sizeof **out, by_use);
    return n_others;
}

// Files of other sets go while this one would not fit beside them.
static void make_room(dt_cache_disk *c, uint64_t own_bytes) {
    other *others;
    uint64_t sum;
    size_t n = list_others(c, &others, &sum);
    uint64_t want = c->o.total_bytes > own_bytes ? c->o.total_bytes - own_bytes : 0;
    for (size_t i = 0; i < n; i++) {
        bool over =
            c->o.cap_bytes ? sum + c->o.total_bytes > c->o.cap_bytes : disk_is_short(c, want);
        int fd = over ? open(others[i].path, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (fd >= 0 && lock_byte(fd, 0, F_WRLCK, false) && unlink(others[i].path) == 0)
            sum -= others[i].n_bytes;
        if (fd >= 0) close(fd);
        free(others[i].path);
    }
    free(others);
}

static dt_status make_file(dt_cache_disk *c) {
    head h = {MAGIC, c->o.key, c->o.n_entries, 0};
    if (ftruncate(c->fd, 0) != 0 || ftruncate(c->fd, (off_t)c->data_at) != 0)
        return dt_fail(DT_E_STORAGE, "%s: cannot size: %s", c->path, strerror(errno));
    return dt_io_pwrite(c->fd, c->path, &h, sizeof h, 0);
}

// The file, with the shared lock; made new where it is not this set's.
static dt_status use_file(dt_cache_disk *c) {
    for (;;) {
        struct stat st;
        head h = {0};
        c->fd = open(c->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (c->fd < 0)
            return dt_fail(DT_E_STORAGE, "%s: cannot open: %s", c->path, strerror(errno));
        bool alone = lock_byte(c->fd, 0, F_WRLCK, false);
        if (!alone && !lock_byte(c->fd, 0, F_RDLCK, true))
            return dt_fail(DT_E_STORAGE, "%s: cannot lock: %s", c->path, strerror(errno));
        bool linked = fstat(c->fd, &st) == 0 && st.st_nlink > 0;
        bool good = linked && read_at(c->fd, &h, sizeof h, 0) && h.magic == MAGIC &&
                    h.key == c->o.key && h.n_entries == c->o.n_entries;
        if (good || (linked && alone)) {
            if (!good) DT_TRY(make_file(c));
            if (alone) make_room(c, (uint64_t)st.st_blocks * 512);
            lock_byte(c->fd, 0, F_RDLCK, false);
            futimens(c->fd, NULL); // used now
            return DT_OK;
        }
        close(c->fd); // removed, or left unfinished, while we waited
    }
}

static void count_entries(dt_cache_disk *c) {
    enum { ROWS = 4096 };
    entry_row *rows = dt_xcalloc(ROWS, sizeof *rows);
    for (uint32_t i = 0; i < c->o.n_entries; i += ROWS) {
        uint32_t n = c->o.n_entries - i < ROWS ? c->o.n_entries - i : ROWS;
        if (!read_at(c->fd, rows, n * sizeof *rows, PAGE + (uint64_t)i * sizeof *rows)) break;
        for (uint32_t k = 0; k < n; k++) c->n_entries += rows[k].place != 0;
    }
    free(rows);
    head h;
    if (read_at(c->fd, &h, sizeof h, 0)) c->n_bytes = h.taken;
}

dt_status dt_cache_disk_open(dt_cache_disk **out, const dt_cache_opts *o) {
    char hex[17];
    dt_cache_disk *c = dt_xcalloc(1, sizeof *c);
    *out = NULL;
    c->o = *o;
    c->fd = -1;
    dt_hash_hex(o->key, hex);
    c->path = dt_xprintf("%s/%s.records", o->dir, hex);
    c->data_at = (PAGE + (uint64_t)o->n_entries * sizeof(entry_row) + PAGE - 1) / PAGE * PAGE;
    c->chunk_bytes = o->cap_bytes && o->cap_bytes < 16 * (uint64_t)CHUNK ? SMALL_CHUNK : CHUNK;
    pthread_mutex_init(&c->lock, NULL);
    dt_status st = dt_io_mkdir_all(o->dir);
    if (st == DT_OK) st = use_file(c);
    if (st != DT_OK) {
        dt_cache_disk_close(c);
        return st;
    }
    count_entries(c);
    *out = c;
    return DT_OK;
}

void dt_cache_disk_close(dt_cache_disk *c) {
    if (c->fd >= 0) close(c->fd);
    pthread_mutex_destroy(&c->lock);
    free(c->path);
    free(c);
}
