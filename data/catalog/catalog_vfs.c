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
#include "catalog_vfs.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PATH = 4096, SECTOR_BYTES = 4096 };
static const char NAME[] = "dtrain";

typedef struct catalog_file {
    sqlite3_file base;
    int write_fd, read_fd; // write_fd -1: read only
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
    return c->write_fd < 0 ? SQLITE_OK
                           : note(dt_io_close(c->write_fd, c->path), SQLITE_IOERR_CLOSE);
}

static int read_file(sqlite3_file *f, void *to, int n, sqlite3_int64 at) {
    catalog_file *c = (catalog_file *)f;
    for (int done = 0; done < n;) {
        ssize_t got = pread(c->read_fd, (char *)to + done, (size_t)(n - done), at + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return note(dt_fail(DT_E_DATA, "%s: cannot read: %s", c->path, strerror(errno)),
                        SQLITE_IOERR_READ);
        if (got == 0) { // SQLite asks beyond the end, and wants zeros then
            memset((char *)to + done, 0, (size_t)(n - done));
            return SQLITE_IOERR_SHORT_READ;
        }
        done += (int)got;
    }
    return SQLITE_OK;
}

static int write_file(sqlite3_file *f, const void *data, int n, sqlite3_int64 at) {
    catalog_file *c = (catalog_file *)f;
    if (c->write_fd < 0) return SQLITE_READONLY;
    return note(dt_io_pwrite(c->write_fd, c->path, data, (size_t)n, at), SQLITE_IOERR_WRITE);
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
        return note(dt_fail(DT_E_DATA, "%s: %s", c->path, strerror(errno)), SQLITE_IOERR_FSTAT);
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
        return note(dt_fail(DT_E_DATA, "%s: cannot open: %s", c->path, strerror(err)),
                    SQLITE_CANTOPEN);
    }
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
    return sqlite3_open_v2(path, out, flags | SQLITE_OPEN_NOMUTEX, NAME);
}

dt_status dt_catalog_vfs_status(void) {
    return first_failure;
}
