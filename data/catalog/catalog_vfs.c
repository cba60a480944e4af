// catalog_vfs.c: SQLite on base/io.h.
//
// SQLite brings its own file layer. Ours is put in its place for two reasons. What dtrain writes goes
// through base/io.h, where each call is checked, counted and can be made to fail by a test. And a data
// set on a network file system is read by a thousand ranks at once: SQLite would take locks there, which
// such file systems do badly, for a file that nobody changes.
//
// So: no locks, no journal, no shared memory, no map (a file cut while it is mapped is a SIGBUS). A new
// file is written under a temporary name in one transaction; if anything fails it is thrown away, which
// is what the journal would have been for. Reading is pread; a read that fails leaves its message, as
// SQLite's own "disk I/O error" names neither file nor cause.
//
// SQLite's pages have no checksums, so a flipped bit is another value and nobody knows. A page that we
// write ends in 8 bytes that SQLite leaves alone ("reserved"): XXH3-64 of the rest and the page's number. A
// file whose first page has the right ones is *checked*: so must be every page that is read. Another
// program that changes such a file always changes its first page, and not the checksum; then, and with
// files of before, nothing is checked, and the caller knows.
#include "catalog_vfs.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096, SECTOR_BYTES = 4096, HEADER_BYTES = 100, SUM_BYTES = 8 };
static const char NAME[] = "dtrain";

typedef struct catalog_file {
    sqlite3_file base;
    int write_fd, read_fd; // write_fd -1: read only
    int page_bytes;        // of a file that is read and checked; else 0
    uint8_t *page;         // scratch of writing
    int cap_page;
    char path[MAX_PATH];
} catalog_file;

static _Thread_local dt_status first_failure;

static int note(dt_status st, int code) {
    if (st == DT_OK) return SQLITE_OK;
    if (first_failure == DT_OK) first_failure = st;
    return code;
}

static int close_file(sqlite3_file *f) {
    catalog_file *c = (catalog_file *)f;
    if (c->read_fd >= 0) close(c->read_fd);
    free(c->page);
    c->page = NULL;
    return c->write_fd < 0 ? SQLITE_OK
                           : note(dt_io_close(c->write_fd, c->path), SQLITE_IOERR_CLOSE);
}

static uint64_t sum_of(const uint8_t *page, int n, sqlite3_int64 at) {
    uint64_t number = (uint64_t)(at / n) + 1;
    return dt_hash64(page, (size_t)(n - SUM_BYTES)) + number * UINT64_C(0x9e3779b97f4a7c15);
}

void dt_catalog_vfs_seal(uint8_t *page, int n, sqlite3_int64 at) {
    uint64_t sum = sum_of(page, n, at);
    memcpy(page + n - SUM_BYTES, &sum, SUM_BYTES);
}

static bool is_whole(const uint8_t *page, int n, sqlite3_int64 at) {
    uint64_t sum = sum_of(page, n, at);
    return memcmp(page + n - SUM_BYTES, &sum, SUM_BYTES) == 0;
}

static int read_bytes(catalog_file *c, void *to, int n, sqlite3_int64 at) {
    for (int done = 0; done < n;) {
        ssize_t got = pread(c->read_fd, (char *)to + done, (size_t)(n - done), at + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return note(dt_io_read_error(c->path, "read", errno, DT_E_DATA), SQLITE_IOERR_READ);
        if (got == 0) { // SQLite asks beyond the end, and wants zeros then
            memset((char *)to + done, 0, (size_t)(n - done));
            return SQLITE_IOERR_SHORT_READ;
        }
        done += (int)got;
    }
    return SQLITE_OK;
}

static int read_file(sqlite3_file *f, void *to, int n, sqlite3_int64 at) {
    catalog_file *c = (catalog_file *)f;
    int rc = read_bytes(c, to, n, at);
    if (rc != SQLITE_OK || n != c->page_bytes || is_whole(to, n, at)) return rc;
    dt_status st = dt_fail(DT_E_DATA,
                           "%s: damaged catalog: the page at offset %lld is not as it was written; "
                           "remove the file (the set is then asked without), or pack again",
                           c->path, (long long)at);
    return note(st, SQLITE_CORRUPT);
}

// Whether the first page has the checksum that we write.
static void find_checksums(catalog_file *c) {
    uint8_t head[HEADER_BYTES] = {0};
    dt_status before = first_failure;
    if (read_bytes(c, head, sizeof head, 0) != SQLITE_OK || head[20] != SUM_BYTES) return;
    int n = head[16] << 8 | head[17]; // a power of two from 512 to 32768; 1: 65536
    if (n == 1) n = 65536;
    uint8_t *page = n >= 512 ? dt_xcalloc((size_t)n, 1) : NULL;
    if (page && read_bytes(c, page, n, 0) == SQLITE_OK && is_whole(page, n, 0)) c->page_bytes = n;
    free(page);
    first_failure = before;
}

static int write_file(sqlite3_file *f, const void *data, int n, sqlite3_int64 at) {
    catalog_file *c = (catalog_file *)f;
    if (c->write_fd < 0) return SQLITE_READONLY;
    if (n > c->cap_page) {
        c->page = dt_xrealloc(c->page, (size_t)n);
        c->cap_page = n;
    }
    memcpy(c->page, data, (size_t)n);
    dt_catalog_vfs_seal(c->page, n, at);
    return note(dt_io_pwrite(c->write_fd, c->path, c->page, (size_t)n, at), SQLITE_IOERR_WRITE);
}

static int truncate_file(sqlite3_file *f, sqlite3_int64 n_bytes) {
    catalog_file *c = (catalog_file *)f;
    return note(dt_io_truncate(c->path, n_bytes), SQLITE_IOERR_TRUNCATE);
}

static int sync_file(sqlite3_file *f, int flags) {
    catalog_file *c = (catalog_file *)f;
    return note(dt_io_fsync(c->write_fd, c->path), SQLITE_IOERR_FSYNC);
}

static int size_of_file(sqlite3_file *f, sqlite3_int64 *out) {
    catalog_file *c = (catalog_file *)f;
    struct stat st;
    if (fstat(c->read_fd, &st) != 0)
        return note(dt_io_read_error(c->path, "look at", errno, DT_E_DATA), SQLITE_IOERR_FSTAT);
    *out = st.st_size;
    return SQLITE_OK;
}

static int no_lock(sqlite3_file *f, int level) {
    return SQLITE_OK;
}

static int is_locked(sqlite3_file *f, int *out) {
    *out = 0;
    return SQLITE_OK;
}

static int control(sqlite3_file *f, int op, void *arg) {
    return SQLITE_NOTFOUND;
}

static int sector_bytes(sqlite3_file *f) {
    return SECTOR_BYTES;
}

static int characteristics(sqlite3_file *f) {
    return 0;
}

static const sqlite3_io_methods METHODS = {.iVersion = 1,
                                           .xClose = close_file,
                                           .xRead = read_file,
                                           .xWrite = write_file,
                                           .xTruncate = truncate_file,
                                           .xSync = sync_file,
                                           .xFileSize = size_of_file,
                                           .xLock = no_lock,
                                           .xUnlock = no_lock,
                                           .xCheckReservedLock = is_locked,
                                           .xFileControl = control,
                                           .xSectorSize = sector_bytes,
                                           .xDeviceCharacteristics = characteristics};

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out) {
    catalog_file *c = (catalog_file *)f;
    c->base.pMethods = NULL;
    c->write_fd = c->read_fd = -1;
    c->page_bytes = c->cap_page = 0;
    c->page = NULL;
    if (!name || !(flags & SQLITE_OPEN_MAIN_DB))
        return SQLITE_CANTOPEN; // no temporaries, no journal
    snprintf(c->path, sizeof c->path, "%s", name);
    bool write = flags & SQLITE_OPEN_CREATE;
    if (write) {
        int rc = note(dt_io_create(&c->write_fd, c->path, false), SQLITE_CANTOPEN);
        if (rc != SQLITE_OK) return rc;
    }
    c->read_fd = open(c->path, O_RDONLY | O_CLOEXEC);
    if (c->read_fd < 0) {
        int err = errno;
        if (c->write_fd >= 0) close(c->write_fd);
        return note(dt_io_read_error(c->path, "open", err, DT_E_DATA), SQLITE_CANTOPEN);
    }
    if (!write) find_checksums(c);
    c->base.pMethods = &METHODS;
    if (out) *out = write ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
    return SQLITE_OK;
}

static int delete_file(sqlite3_vfs *vfs, const char *name, int sync) {
    return SQLITE_OK; // journals, which there are none of
}

static int no_access(sqlite3_vfs *vfs, const char *name, int flags, int *out) {
    *out = 0;
    return SQLITE_OK;
}

static int full_path(sqlite3_vfs *vfs, const char *name, int n_out, char *out) {
    return snprintf(out, (size_t)n_out, "%s", name) < n_out ? SQLITE_OK : SQLITE_CANTOPEN;
}

static void register_vfs(void) {
    static sqlite3_vfs vfs;
    const sqlite3_vfs *base = sqlite3_vfs_find(NULL);
    if (!base) return;
    vfs = *base; // time and random bytes are the system's
    vfs.szOsFile = (int)sizeof(catalog_file);
    vfs.mxPathname = MAX_PATH - 1;
    vfs.zName = NAME;
    vfs.pNext = NULL;
    vfs.xOpen = open_file;
    vfs.xDelete = delete_file;
    vfs.xAccess = no_access;
    vfs.xFullPathname = full_path;
    sqlite3_vfs_register(&vfs, 0);
}

int dt_catalog_vfs_open(sqlite3 **out, const char *path, bool write) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_vfs);
    first_failure = DT_OK;
    int flags = write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    int rc = sqlite3_open_v2(path, out, flags | SQLITE_OPEN_NOMUTEX, NAME);
    int reserved = SUM_BYTES;
    if (rc == SQLITE_OK && write)
        rc = sqlite3_file_control(*out, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
    return rc;
}

bool dt_catalog_vfs_is_checked(sqlite3 *db) {
    catalog_file *c = NULL;
    int rc = sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &c);
    return rc == SQLITE_OK && c && c->base.pMethods == &METHODS && c->page_bytes > 0;
}

dt_status dt_catalog_vfs_status(void) {
    return first_failure;
}
