// io.c: see io.h.
//
// Every counted call visits dt_failpoint_visit_io() once, before the system call, so "the n-th call" is
// the same call in every run. Messages read "path: cannot OPERATION: reason".
#define _GNU_SOURCE
#include "base/io.h"
#include "base/core.h"
#include "base/text.h"
#include "base/watch.h"
#include "failpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static const char *io_advice(int err) {
    switch (err) {
    case ENOSPC:
    // a quota counts as lack of space
    case EDQUOT:
        return "; free space or choose another directory";
    case EACCES:
    case EPERM:
    case EROFS:
        return "; choose a directory that this user may write";
    case EMFILE:
    case ENFILE:
        return "; raise the limit on open files (ulimit -n)";
    case ELOOP:
        return "; it is a symbolic link, and what dtrain writes goes through none: remove it";
    default: // strerror suffices
        return "";
    }
}

static _Thread_local int last_error; // errno of this thread's last storage_error

bool dt_io_out_of_space(void) {
    return last_error == ENOSPC || last_error == EDQUOT;
}

static dt_status storage_error(const char *path, const char *operation, int err) {
    last_error = err;
    return dt_fail(DT_E_STORAGE, "%s: cannot %s: %s%s", path, operation, strerror(err), io_advice(err));
}

// Whether the machine is at fault and not the file: something ran out or is away. EIO is not in the list:
// a bad sector gives it.
static bool is_of_machine(int err) {
    // descriptors and memory, or the connection to a file server
    static const int ALL[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOTCONN, ESHUTDOWN, EHOSTUNREACH, EHOSTDOWN, ETIMEDOUT};
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++)
        if (err == ALL[i]) return true;
    return false;
}

static const char *read_advice(int err) {
    switch (err) {
    case EMFILE:
    case ENFILE:
        return io_advice(err);
    case ENOMEM:
    case ENOBUFS:
        return "; end other programs, or raise the limit of memory";
    default:
        // a network file system
        return is_of_machine(err) ? "; see to the server of this file system or mount it again" : "";
    }
}

// The first folder on the path that this user may not enter, or the path itself.
static const char *closed_part(const char *path, char folder[PATH_MAX]) {
    if (strlen(path) >= PATH_MAX) return path; // no room to check
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        snprintf(folder, PATH_MAX, "%.*s", (int)(p - path), path);
        // AT_EACCESS: by effective ids, as open does
        if (faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) != 0 && errno == EACCES) return folder;
    }
    return path;
}

dt_status dt_io_read_error(const char *path, const char *operation, int err, dt_status code) {
    char folder[PATH_MAX];
    const char *colon = path ? ": " : "";
    bool closed = err == EACCES || err == EPERM; // permission: a person can grant it
    if (!path) path = "";
    if (closed)
        return dt_fail(code,
                       "%s%scannot %s: %s; give this user leave to read %s (chmod, chown), "
                       "or run as one who may",
                       path, colon, operation, strerror(err), *path ? closed_part(path, folder) : "it");
    return dt_fail(is_of_machine(err) ? DT_E_STORAGE : code, "%s%scannot %s: %s%s", path, colon, operation,
                   strerror(err), read_advice(err));
}

// Begins an operation of calls that cannot be short: watched from here to leave(). Returns the failpoint's errno or 0.
static int enter(const char *path, const char *operation) {
    dt_watch_begin(path, operation);
    int f = dt_failpoint_visit_io(); // before the system call: "the n-th call" includes one that fails by itself
    return f == FAILPOINT_SHORT ? ENOSPC : f; // open, close and fsync cannot be short
}

static dt_status io_leave(const char *path, const char *operation, int err) {
    dt_watch_end();
    return err ? storage_error(path, operation, err) : DT_OK;
}

// -- writing ---------------------------------------------------------------------------------
static dt_status io_open_file(int *fd, const char *path, const char *operation, int flags) {
    int err = enter(path, operation);
    *fd = -1;
    if (err == 0) {
        // a link that somebody put there must not lead elsewhere, a pipe without a reader not hang
        // 0644: umask applies
        do *fd = open(path, O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0644);
        while (*fd < 0 && errno == EINTR);
        if (*fd < 0) err = errno;
    }
    return io_leave(path, operation, err);
}

dt_status dt_io_create(int *fd, const char *path, bool exclusive) {
    return io_open_file(fd, path, "create", O_WRONLY | O_TRUNC | (exclusive ? O_EXCL : 0));
}

dt_status dt_io_open_append(int *fd, const char *path) {
    return io_open_file(fd, path, "create", O_WRONLY | O_APPEND);
}

dt_status dt_io_open_update(int *fd, const char *path) {
    return io_open_file(fd, path, "open", O_RDWR);
}

int dt_io_open_direct(const char *path) {
    enum { EXT4 = 0xEF53, XFS = 0x58465342 }; // f_type of statfs(2)
    struct statfs s;
    if (statfs(path, &s) != 0 || (s.f_type != EXT4 && s.f_type != XFS)) return -1; // others refuse or emulate O_DIRECT
    return open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
}

void dt_io_begin_sync(int fd, off_t at, size_t n_bytes) {
    sync_file_range(fd, at, (off_t)n_bytes,
                    SYNC_FILE_RANGE_WRITE); // a hint: failure loses nothing
}

// at < 0: at the file's position.
static int write_all(int fd, const char *p, size_t n, off_t at) {
    while (n > 0) {
        size_t block = n < ((size_t)1 << 30) ? n : (size_t)1 << 30; // Linux writes at most 2 GiB - 4 KiB at once
        ssize_t w = at < 0 ? write(fd, p, block) : pwrite(fd, p, block, at);
        if (w < 0 && errno == EINTR) continue;     // a signal before the first byte
        if (w <= 0) return w < 0 ? errno : ENOSPC; // 0 of n > 0: no POSIX meaning, treated as full
        p += w;
        n -= (size_t)w;
        if (at >= 0) at += w; // pwrite does not move the file's position
    }
    return 0;
}

dt_status dt_io_pwrite(int fd, const char *path, const void *data, size_t n_bytes, off_t at) {
    dt_watch_begin(path, "write");
    int err = dt_failpoint_visit_io();
    if (err == FAILPOINT_SHORT) {
        err = write_all(fd, data, n_bytes / 2, at); // half is written, as on a full disk
        if (err == 0) err = ENOSPC;
    } else if (err == 0) {
        err = write_all(fd, data, n_bytes, at);
    }
    return io_leave(path, "write", err);
}

dt_status dt_io_write(int fd, const char *path, const void *data, size_t n_bytes) {
    return dt_io_pwrite(fd, path, data, n_bytes, -1);
}

dt_status dt_io_fsync(int fd, const char *path) {
    int err = enter(path, "flush to disk");
    if (err == 0 && fsync(fd) != 0) err = errno;
    return io_leave(path, "flush to disk", err);
}

dt_status dt_io_sync_file(const char *path) {
    int err = enter(path, "flush to disk");
    int fd = err ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); // read-only is enough for fsync
    if (err == 0 && (fd < 0 ? errno != ENOENT : fsync(fd) != 0)) err = errno; // a file that is not there needs no flush
    if (fd >= 0) close(fd);
    return io_leave(path, "flush to disk", err);
}

dt_status dt_io_close(int fd, const char *path) {
    int err = enter(path, "close");
    // Linux frees the descriptor even on error, EINTR included: never close twice
    if (close(fd) != 0 && errno != EINTR && err == 0) err = errno;
    return io_leave(path, "close", err);
}

dt_status dt_io_fsync_dir(const char *path) {
    // a rename is durable only after its directory is
    int err = enter(path, "flush the directory to disk");
    if (err) return io_leave(path, "flush the directory to disk", err);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return io_leave(path, "open the directory", errno);
    // some network file systems cannot fsync a directory and return EINVAL: renames are durable there
    if (fsync(fd) != 0 && errno != EINVAL) err = errno;
    close(fd);
    return io_leave(path, "flush the directory to disk", err);
}

static dt_status rename_error(const char *from, const char *to, int err) {
    last_error = err;
    return dt_fail(DT_E_STORAGE, "%s: cannot rename to %s: %s%s", from, to, strerror(err), io_advice(err));
}

dt_status dt_io_rename_noreplace(const char *from, const char *to) {
    int err = enter(from, "rename");
    if (err == 0 && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) != 0) err = errno;
    if (err == EINVAL || err == ENOSYS || err == ENOTSUP) { // NFS and others refuse the flag
        struct stat s;
        // without the flag: test, then rename; the run's lock excludes a second writer
        err = lstat(to, &s) == 0 ? EEXIST : errno == ENOENT ? 0 : errno;
        if (err == 0 && rename(from, to) != 0) err = errno;
    }
    dt_watch_end();
    return err ? rename_error(from, to, err) : DT_OK;
}

bool dt_io_exchange(const char *a, const char *b) {
    int err = enter(a, "rename");
    // false: not supported, or a failure; callers then replace in two renames
    if (err == 0 && renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) != 0) err = errno;
    dt_watch_end();
    return err == 0;
}

// replaces
static dt_status io_rename(const char *from, const char *to) {
    int err = enter(from, "rename");
    if (err == 0 && rename(from, to) != 0) err = errno;
    dt_watch_end();
    return err ? rename_error(from, to, err) : DT_OK;
}

dt_status dt_io_unlink(const char *path) {
    int err = enter(path, "remove");
    if (err == 0 && unlink(path) != 0) err = errno;
    return io_leave(path, "remove", err);
}

dt_status dt_io_mkdir(const char *path) {
    int err = enter(path, "create the directory");
    if (err == 0 && mkdir(path, 0755) != 0) err = errno;
    if (err == EEXIST && dt_io_is_dir(path)) err = 0; // another rank may have been first
    return io_leave(path, "create the directory", err);
}

dt_status dt_io_mkdir_all(const char *path) {
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof part) return storage_error(path, "create the directory", ENAMETOOLONG);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i < n; i++) {
        if (part[i] != '/' || part[i - 1] == '/') continue; // skips the root and doubled slashes
        part[i] = '\0';
        if (!dt_io_is_dir(part)) DT_TRY(dt_io_mkdir(part)); // an existing folder above may be read-only
        part[i] = '/';
    }
    return dt_io_mkdir(path);
}

// Empties directory `fd` (closed here). `path` is the tree's root, for messages.
static dt_status remove_entries(int fd, const char *path) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int err = errno;
        close(fd); // fdopendir did not take it
        return storage_error(path, "list", err);
    }
    dt_status st = DT_OK;
    struct dirent *e;
    while (st == DT_OK && (errno = 0, e = readdir(dir))) { // errno tells an error from the end
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        // fails for files and links, which unlinkat removes as such
        int sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int is_dir = sub >= 0;
        if (is_dir) st = remove_entries(sub, path);
        if (st != DT_OK) break;
        int err = enter(path, "remove");
        if (err == 0 && unlinkat(fd, e->d_name, is_dir ? AT_REMOVEDIR : 0) != 0) err = errno;
        st = io_leave(path, "remove", err == ENOENT ? 0 : err); // removed by another process: fine
    }
    closedir(dir);
    return st;
}

dt_status dt_io_remove_tree(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return DT_OK;
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) return dt_io_unlink(path); // a file or a link
    if (fd < 0) return storage_error(path, "open", errno);
    DT_TRY(remove_entries(fd, path));
    int err = enter(path, "remove the directory");
    if (err == 0 && rmdir(path) != 0) err = errno;
    return io_leave(path, "remove the directory", err);
}

dt_status dt_io_remove_empty(const char *path) {
    int err = enter(path, "remove the directory");
    if (err == 0 && rmdir(path) != 0) err = errno;
    if (err == ENOTEMPTY || err == EEXIST || err == ENOENT) err = 0; // Linux reports ENOTEMPTY, others EEXIST
    return io_leave(path, "remove the directory", err);
}

dt_status dt_io_remove_at(int at, const char *name, const char *path) {
    // relative to an open folder: see remove_entries
    int err = enter(path, "remove");
    if (err == 0 && unlinkat(at, name, 0) != 0) err = errno;
    // Linux: EISDIR; POSIX would allow EPERM
    if (err == EISDIR) err = unlinkat(at, name, AT_REMOVEDIR) == 0 ? 0 : errno;
    if (err == ENOTEMPTY || err == EEXIST || err == ENOENT) err = 0;
    return io_leave(path, "remove", err);
}

dt_status dt_io_truncate(const char *path, off_t n_bytes) {
    int err = enter(path, "truncate");
    if (err == 0 && truncate(path, n_bytes) != 0) err = errno;
    return io_leave(path, "truncate", err);
}

dt_status dt_io_reserve(int fd, const char *path, off_t at, off_t n_bytes) {
    int err = enter(path, "reserve space");
    if (err == 0) do
            err = fallocate(fd, 0, at, n_bytes) == 0 ? 0 : errno; // mode 0 also extends the file
        while (err == EINTR);
    return io_leave(path, "reserve space", err);
}

char *dt_io_parent(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--; // "a/b/" has the parent "a"
    while (n > 0 && path[n - 1] != '/') n--;
    if (n > 1) n--;                                                // the slash, unless the root is meant
    return n ? dt_xprintf("%.*s", (int)n, path) : dt_xstrdup("."); // a relative name without folder
}

char *dt_io_cache_folder(const char *given, const char *below) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (given && *given) return dt_xprintf("%s%s", given, below); // the caller's choice, XDG's, then the default
    if (xdg && *xdg) return dt_xprintf("%s/dtrain%s", xdg, below);
    return home && *home ? dt_xprintf("%s/.cache/dtrain%s", home, below) : NULL;
}

// -- a file being written ----------------------------------------------------------------------
// Temporaries of this process, for dt_io_remove_unfinished. One for which there is no place outlives a signal.
enum { MAX_UNFINISHED = 64, NEXT_NUMBER = 1 << 22 /* no process has that one: PID_MAX_LIMIT */ };
static _Atomic(char *) unfinished[MAX_UNFINISHED];

void dt_io_remove_unfinished(void) {
    for (int i = 0; i < MAX_UNFINISHED; i++) {
        // a pointer, atomically taken: handler and owner never both use it
        const char *path = atomic_exchange(&unfinished[i], NULL);
        if (path) unlink(path);
    }
}

static int list_unfinished(char *path) {
    for (int i = 0; i < MAX_UNFINISHED; i++) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&unfinished[i], &none, path)) return i; // no lock: the handler must not wait
    }
    return -1;
}

static void unlist(const dt_io_file *f) {
    char *mine = f->temporary;
    // -1: no place, so no handler knows it
    if (f->place < 0 || atomic_compare_exchange_strong(&unfinished[f->place], &mine, NULL)) return;
    for (;;) pause(); // a signal took it, and is ending the process
}

// Errno or 0. A leftover of the same number, or another thread's temporary, is passed by. The lock tells
// remove_leftover that this is none; it may have come before the lock.
static int create_temporary(dt_io_file *f) {
    // as the name of the process, unless taken; then a number that no process has
    for (unsigned number = (unsigned)getpid();; number += NEXT_NUMBER) {
        struct stat s;
        f->temporary = dt_xprintf("%s.tmp.%u", f->path, number);
        f->place = list_unfinished(f->temporary); // before it is there: a signal may come just behind
        do f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        while (f->fd < 0 && errno == EINTR);
        int err = f->fd < 0 ? errno : 0;
        // LOCK_EX succeeds at once: the file is new. nlink 0: a cleaner removed it before the lock
        if (f->fd >= 0 && flock(f->fd, LOCK_EX) == 0 && fstat(f->fd, &s) == 0 && s.st_nlink == 0) {
            close(f->fd);
            err = EEXIST;
        }
        if (err == 0) return 0;
        unlist(f);
        free(f->temporary);
        f->temporary = NULL;
        if (err != EEXIST) return err; // a real error
    }
}

dt_status dt_io_begin(dt_io_file *f, const char *path) {
    struct stat s;
    *f = (dt_io_file){.fd = -1, .place = -1};
    if (stat(path, &s) == 0 && !S_ISREG(s.st_mode)) // a rename would replace a device; a link to one too
        return dt_fail(DT_E_STORAGE, "%s: cannot create: there is a %s of this name", path,
                       S_ISDIR(s.st_mode) ? "folder" : "pipe or device");
    int err = enter(path, "create");
    f->path = dt_xstrdup(path);
    if (err == 0) err = create_temporary(f);
    if (err) free(f->path); // nothing to end then
    if (err) f->path = NULL;
    return io_leave(path, "create", err);
}

dt_status dt_io_end(dt_io_file *f, dt_status st) {
    if (!f->path) return st;
    if (st == DT_OK) st = dt_io_fsync(f->fd, f->path); // contents first, then the name
    if (st == DT_OK) st = io_rename(f->temporary, f->path);
    if (st != DT_OK) unlink(f->temporary);
    unlist(f);       // after rename or unlink: the handler may have nothing left to remove
    if (st == DT_OK) // the lock goes with it
        st = dt_io_close(f->fd, f->path);
    else
        close(f->fd); // the first error is kept
    char *dir = dt_io_parent(f->path);
    if (st == DT_OK) st = dt_io_fsync_dir(dir); // else a power cut may undo the rename
    free(dir);
    free(f->path);
    free(f->temporary);
    *f = (dt_io_file){.fd = -1, .place = -1};
    return st;
}

dt_status dt_io_write_file(const char *path, const void *data, size_t n_bytes) {
    dt_io_file f;
    dt_status st = dt_io_begin(&f, path);
    if (st == DT_OK) st = dt_io_write(f.fd, path, data, n_bytes);
    return dt_io_end(&f, st);
}

size_t dt_io_stem(const char *name) {
    const char *dot = strrchr(name, '.');
    // ".tmp" and digits alone
    const bool temporary = dot && dot - name >= 4 && strncmp(dot - 4, ".tmp", 4) == 0 && dot[1] &&
                           strspn(dot + 1, "0123456789") == strlen(dot + 1);
    return temporary ? (size_t)(dot - 4 - name) : strlen(name);
}

// A folder of a temporary's name is none of ours.
static dt_status remove_leftover(const char *path, bool whole) {
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat s;
    // the writer's lock is held until its end
    const bool lives = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    // whole: by prefix, ours with all that is in it
    const bool stays = lives || (!whole && lstat(path, &s) == 0 && S_ISDIR(s.st_mode));
    dt_status st = stays ? DT_OK : dt_io_remove_tree(path);
    if (fd >= 0) close(fd);
    return st;
}

dt_status dt_io_remove_leftovers(const char *dir, const char *prefix) {
    char **names;
    size_t n;
    dt_status st = dt_io_list_dir(&names, &n, dir, DT_E_STORAGE);
    for (size_t i = 0; st == DT_OK && i < n; i++) {
        const bool begins = prefix && strncmp(names[i], prefix, strlen(prefix)) == 0;
        if (!begins && !names[i][dt_io_stem(names[i])]) continue; // neither the prefix nor a temporary's stem
        char *path = dt_xprintf("%s/%s", dir, names[i]);
        st = remove_leftover(path, begins);
        free(path);
    }
    dt_io_free_list(names, n);
    return st;
}

// -- reading ---------------------------------------------------------------------------------
// Reads to the end of `fd` into a growing buffer, so that pipes and stdin work too.
static dt_status read_to_end(char **data, size_t *n_bytes, int fd, const char *path, size_t max_bytes, dt_status code) {
    struct stat s;
    size_t cap = 4096, n = 0;
    const bool is_file = fstat(fd, &s) == 0 && S_ISREG(s.st_mode);
    if (is_file) {
        if (max_bytes && (uint64_t)s.st_size > max_bytes) // refused before it is read
            return dt_fail(code, "%s: %lld bytes, more than the limit of %zu", path, (long long)s.st_size, max_bytes);
        cap = (size_t)s.st_size + 2; // one byte to see the end, one for the NUL
    }
    char *p = malloc(cap);
    for (;;) {
        if (!p) return dt_fail(DT_E_INTERNAL, "%s: no memory for %zu bytes", path, cap);
        if (is_file) dt_watch_begin(path, "read"); // a pipe's writer may take its time
        ssize_t r = read(fd, p + n, cap - n - 1);  // - 1: room for the NUL
        if (is_file) dt_watch_end();
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) {
            int err = errno;
            free(p);
            return dt_io_read_error(path, "read", err, code);
        }
        if (r == 0) break; // end of file
        n += (size_t)r;
        if (max_bytes && n > max_bytes) { // a pipe, or a file that grows
            free(p);
            return dt_fail(code, "%s: more than the limit of %zu bytes", path, max_bytes);
        }
        if (n + 1 == cap) { // full but for the NUL
            char *q = realloc(p, cap *= 2);
            if (!q) free(p);
            p = q;
        }
    }
    p[n] = '\0';
    *data = p;
    *n_bytes = n;
    return DT_OK;
}

enum { WRITER_MS = 3000 }; // longer than a shell takes to start the writer

// Whether some process has the pipe open for writing. tee() copies without consuming, and returns 0 only
// if there is no writer.
static bool has_writer(int fd) {
    int copy[2];
    if (pipe2(copy, O_CLOEXEC) != 0) return true;             // unknown: waits as if there were one
    const ssize_t n = tee(fd, copy[1], 1, SPLICE_F_NONBLOCK); // EAGAIN with a writer and no data
    close(copy[0]);
    close(copy[1]);
    return n != 0;
}

// `fd` was opened with O_NONBLOCK. A pipe is read like a file, however slow its writer; one without a writer
// is an error instead of an endless wait.
static dt_status wait_for_writer(int fd, const char *path, dt_status code) {
    struct stat s;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    // POLLIN or POLLHUP end the poll early
    if (fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode) && poll(&p, 1, WRITER_MS) == 0 && !has_writer(fd))
        return dt_fail(code, "%s: a pipe to which nobody wrote within %d s", path, WRITER_MS / 1000);
    int flags = fcntl(fd, F_GETFL);
    // reads block from here on
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) return dt_io_read_error(path, "read", errno, code);
    return DT_OK;
}

dt_status dt_io_read_file(char **data, size_t *n_bytes, const char *path, size_t max_bytes, dt_status code_on_error) {
    *data = NULL;
    *n_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO without writer would block open
    if (fd < 0) return dt_io_read_error(path, "open", errno, code_on_error);
    dt_status st = wait_for_writer(fd, path, code_on_error);
    if (st == DT_OK) st = read_to_end(data, n_bytes, fd, path, max_bytes, code_on_error);
    close(fd);
    return st;
}

dt_status dt_io_read_own(char **data, size_t *n_bytes, const char *path, size_t max_bytes, dt_status code_on_error) {
    struct stat s;
    *data = NULL;
    *n_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    // ELOOP: a link, which O_NOFOLLOW refuses
    if (fd < 0 && errno != ELOOP) return dt_io_read_error(path, "open", errno, code_on_error);
    dt_status st = fd < 0 || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)
                       ? dt_fail(code_on_error, "%s: not a regular file", path)
                       : read_to_end(data, n_bytes, fd, path, max_bytes, code_on_error);
    if (fd >= 0) close(fd);
    return st;
}

dt_status dt_io_update_file(const char *path, const void *data, size_t n_bytes) {
    char *old = NULL;
    size_t n = 0;
    // an unchanged file keeps its time, and costs no write
    const bool same =
        dt_io_read_own(&old, &n, path, 0, DT_E_STORAGE) == DT_OK && n == n_bytes && memcmp(old, data, n) == 0;
    free(old);
    if (!same) return dt_io_write_file(path, data, n_bytes);
    char *dir = dt_io_parent(path); // the process that wrote it may have died before its flush
    dt_status st = dt_io_fsync_dir(dir);
    free(dir);
    return st;
}

dt_status dt_io_pread(int fd, const char *path, void *data, size_t n_bytes, off_t at, dt_status code_on_error) {
    size_t n = 0;
    while (n < n_bytes) {
        dt_watch_begin(path, "read");
        // pread may return less at the end, or after a signal
        ssize_t r = pread(fd, (char *)data + n, n_bytes - n, at + (off_t)n);
        dt_watch_end();
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) {
            char operation[48];
            int err = errno;
            snprintf(operation, sizeof operation, "read at byte %lld", (long long)at + (long long)n);
            return dt_io_read_error(path, operation, err, code_on_error);
        }
        if (r == 0) // files that others cut
            return dt_fail(code_on_error, "%s: truncated: %zu bytes wanted at byte %lld, only %zu there", path, n_bytes,
                           (long long)at, n);
        n += (size_t)r;
    }
    return DT_OK;
}

bool dt_io_lock_byte(int fd, off_t byte, short type, bool wait) {
    // of the open file, not of the process: threads exclude each other too
    struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int rc;
    do rc = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &l); // W: waits, which a signal interrupts
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

int dt_io_is_locked(const char *path) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    // GETLK changes nothing; reports a lock held by another open file
    const bool known = fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0;
    if (fd >= 0) close(fd);
    return known ? whole.l_type != F_UNLCK : -1; // -1: unknown, as without lock support
}

bool dt_io_exists(const char *path) {
    struct stat s;
    return stat(path, &s) == 0;
}

dt_status dt_io_find(bool *is_there, const char *path, dt_status code) {
    struct stat s;
    *is_there = stat(path, &s) == 0;
    // does not exist; anything else hides the answer
    if (*is_there || errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return DT_OK;
    char folder[PATH_MAX];
    int err = errno;
    // a closed folder on the way is the one to name
    const char *closed = err == EACCES ? closed_part(path, folder) : path;
    return dt_io_read_error(closed, closed == path ? "look at" : "look into", err, code);
}

bool dt_io_is_dir(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool dt_io_is_link(const char *path) {
    struct stat s;
    return lstat(path, &s) == 0 && S_ISLNK(s.st_mode);
}

dt_status dt_io_list_dir(char ***names, size_t *n, const char *path, dt_status code_on_error) {
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(path);
    if (!dir) return dt_io_read_error(path, "list", errno, code_on_error);
    struct dirent *e;
    while ((errno = 0, e = readdir(dir))) { // errno tells an error from the end
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        *names = dt_xgrow(*names, *n, sizeof **names);
        (*names)[(*n)++] = dt_xstrdup(e->d_name);
    }
    int err = errno; // before closedir may change it
    closedir(dir);
    if (err) {
        dt_io_free_list(*names, *n);
        *names = NULL;
        *n = 0;
        return dt_io_read_error(path, "list", err, code_on_error);
    }
    if (*n) qsort(*names, *n, sizeof **names, dt_text_compare); // strcmp's order: the same on all machines
    return DT_OK;
}

void dt_io_free_list(char **names, size_t n) {
    for (size_t i = 0; i < n; i++) free(names[i]);
    free(names);
}

const char *dt_path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
