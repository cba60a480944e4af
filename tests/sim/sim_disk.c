// sim_disk.c: the disk under a job. See sim.h.
//
// Files are real ones below sim_root: what a running system shows. Beside them a journal, shared with the parent, has
// every change since the last cut. A power cut makes the files anew of what was on the disk before and of the changes
// that lasted:
//   contents  a write that fsync followed lasts. Others last or not, each by itself, also in part, and what lies
//             before one that lasts is zeros.
//   names     in the order of the calls, up to a point behind the last fsync: of any file, as journalling file systems
//             do, or (by the seed) of that directory alone, as POSIX has it
// What a failed fsync left behind is not dirty any more: a later one does not make it last.
#define _GNU_SOURCE
#include "sim.h"

#include "base/io.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOURNAL_BYTES = 64 << 20, MAX_FDS = 1024, MAX_NODES = 4096 };

typedef enum change { WRITE, RESIZE, LINK, UNLINK, RENAME, SYNC, FAILED_SYNC } change;
typedef struct entry { // followed by data, or names
    change what;
    ino_t ino, dir, to_dir;
    int64_t at;
    size_t n_data, n_bytes; // data; the whole entry
    bool lasts, is_dir;
    char name[64], to[64];
    char data[];
} entry;

static struct journal {
    size_t used;
    _Alignas(16) char bytes[];
} * journal;
static char fd_paths[MAX_FDS][160]; // of files below the root; "" of others

// ---- the journal -----------------------------------------------------------------------------------
static entry *record(change what, ino_t ino, size_t n_data) {
    size_t n = (sizeof(entry) + n_data + 15) & ~(size_t)15;
    if (journal->used + n > JOURNAL_BYTES) abort();
    entry *e = (entry *)(journal->bytes + journal->used);
    journal->used += n;
    *e = (entry){.what = what, .ino = ino, .n_data = n_data, .n_bytes = n};
    return e;
}

static ino_t ino_of(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 ? s.st_ino : 0;
}

// The directory's number; `name` is what is behind it.
static ino_t split_path(const char *path, char name[64]) {
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];
    struct stat s;
    snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
    snprintf(name, 64, "%s", slash + 1);
    return stat(dir, &s) == 0 ? s.st_ino : 0;
}

static void record_name(change what, const char *path) {
    struct stat s = {0};
    stat(path, &s);
    entry *e = record(what, s.st_ino, 0);
    e->is_dir = S_ISDIR(s.st_mode);
    e->dir = split_path(path, e->name);
}

// ---- calls -----------------------------------------------------------------------------------------
static bool is_ours(const char *path) {
    return sim_rank() >= 0 && strncmp(path, sim_root, strlen(sim_root)) == 0;
}

static const char *path_of(int fd) {
    return sim_rank() >= 0 && fd >= 0 && fd < MAX_FDS && *fd_paths[fd] ? fd_paths[fd] : NULL;
}

// What becomes of the call that comes next: an errno, -1 for half of it, or 0.
static int gate(const char *call, const char *path, bool takes_space) {
    static double full_until;
    char what[200];
    snprintf(what, sizeof what, "%s of %s", call, path + strlen(sim_root));
    sim_wait(NULL, sim_now() + sim_uniform(1e-5, 1e-3), what);
    sim_fault *f = sim_event(true, what);
    if (f) snprintf(f->target, sizeof f->target, "%s", what);
    if (f && f->kind == SIM_HANG) sim_wait(NULL, sim_now() + f->seconds, what);
    if (f && f->kind == SIM_ENOSPC) full_until = sim_now() + f->seconds;
    if (takes_space && sim_now() < full_until) return ENOSPC;
    if (f && f->kind == SIM_EIO) return EIO;
    return f && f->kind == SIM_SHORT ? -1 : 0;
}

// 0, or errno is set.
static int refuse(const char *call, const char *path, bool takes_space) {
    int err = gate(call, path, takes_space);
    if (err) errno = err < 0 ? ENOSPC : err;
    return err;
}

int open(const char *path, int flags, ...) {
    REAL(open);
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    bool ours = is_ours(path), writes = ours && (flags & O_ACCMODE) != O_RDONLY;
    if (writes && refuse("open", path, true)) return -1;
    bool was = access(path, F_OK) == 0;
    int fd = real(path, flags, mode);
    if (fd < 0 || !ours || fd >= MAX_FDS) return fd;
    snprintf(fd_paths[fd], sizeof fd_paths[fd], "%s", path);
    if (writes && !was) record_name(LINK, path);
    if (writes && was && flags & O_TRUNC) record(RESIZE, ino_of(fd), 0);
    return fd;
}

static void record_write(int fd, const void *data, ssize_t n, off_t at) {
    if (n <= 0) return;
    entry *e = record(WRITE, ino_of(fd), (size_t)n);
    e->at = at;
    memcpy(e->data, data, (size_t)n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    REAL(pwrite);
    if (!path_of(fd)) return real(fd, data, n, at);
    int err = refuse("pwrite", fd_paths[fd], true);
    if (err > 0) return -1;
    ssize_t done = real(fd, data, err ? (n + 1) / 2 : n, at);
    record_write(fd, data, done, at);
    return done;
}

ssize_t write(int fd, const void *data, size_t n) {
    REAL(write);
    if (!path_of(fd)) return real(fd, data, n);
    int err = refuse("write", fd_paths[fd], true);
    if (err > 0) return -1;
    ssize_t done = real(fd, data, err ? (n + 1) / 2 : n);
    record_write(fd, data, done, lseek(fd, 0, SEEK_CUR) - done); // behind it, also where it appends
    return done;
}

static int do_sync(const char *call, int fd) {
    int err = refuse(call, fd_paths[fd], false);
    record(err ? FAILED_SYNC : SYNC, ino_of(fd), 0);
    return err ? -1 : 0;
}

int fsync(int fd) {
    REAL(fsync);
    return path_of(fd) ? do_sync("fsync", fd) : real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return path_of(fd) ? do_sync("fdatasync", fd) : real(fd);
}

int close(int fd) {
    REAL(close);
    const char *path = path_of(fd);
    bool writes = path && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    char copy[160];
    if (path) snprintf(copy, sizeof copy, "%s", path);
    if (path) fd_paths[fd][0] = '\0';
    int err = writes ? refuse("close", copy, false) : 0, saved = errno, rc = real(fd);
    if (err) errno = saved;
    return err ? -1 : rc;
}

static int resize(int fd, const char *path, off_t n) {
    int (*real)(const char *, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "truncate");
    if (refuse("truncate", path, false) || real(path, n) != 0) return -1;
    struct stat s = {0};
    stat(path, &s);
    record(RESIZE, s.st_ino, 0)->at = n;
    return 0;
}

int truncate(const char *path, off_t n) {
    REAL(truncate);
    return is_ours(path) ? resize(-1, path, n) : real(path, n);
}

int ftruncate(int fd, off_t n) {
    REAL(ftruncate);
    return path_of(fd) ? resize(fd, fd_paths[fd], n) : real(fd, n);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    REAL(renameat2);
    bool ours = is_ours(from);
    if (ours && refuse("rename", from, true)) return -1;
    entry e = {.what = RENAME};
    if (ours) e.dir = split_path(from, e.name), e.to_dir = split_path(to, e.to);
    int rc = real(from_dir, from, to_dir, to, flags);
    if (ours && rc == 0) {
        entry *r = record(RENAME, 0, 0);
        size_t n = r->n_bytes;
        *r = e;
        r->n_bytes = n;
    }
    return rc;
}

int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int remove_name(int dir, const char *path, int flags, const char *call) {
    int (*real)(int, const char *, int);
    *(void **)&real = dlsym(RTLD_NEXT, "unlinkat");
    char whole[PATH_MAX];
    const char *parent = dir >= 0 ? path_of(dir) : NULL;
    if (parent)
        snprintf(whole, sizeof whole, "%s/%s", parent, path);
    else
        snprintf(whole, sizeof whole, "%s", path);
    bool ours = is_ours(whole);
    if (ours && refuse(call, whole, false)) return -1;
    int rc = real(dir, path, flags);
    if (ours && rc == 0) record_name(UNLINK, whole);
    return rc;
}

int unlink(const char *path) {
    return remove_name(AT_FDCWD, path, 0, "unlink");
}
int unlinkat(int dir, const char *path, int flags) {
    return remove_name(dir, path, flags, "unlink");
}
int rmdir(const char *path) {
    return remove_name(AT_FDCWD, path, AT_REMOVEDIR, "rmdir");
}

int openat(int dir, const char *path, int flags, ...) { // read only: to walk a tree
    REAL(openat);
    int fd = real(dir, path, flags);
    const char *parent = path_of(dir);
    char whole[160];
    snprintf(whole, sizeof whole, "%s/%s", parent ? parent : "", path);
    if (fd >= 0 && fd < MAX_FDS && parent) memcpy(fd_paths[fd], whole, sizeof fd_paths[fd]);
    return fd;
}

int closedir(DIR *d) {
    REAL(closedir);
    int fd = dirfd(d);
    if (fd >= 0 && fd < MAX_FDS) fd_paths[fd][0] = '\0';
    return real(d);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    bool ours = is_ours(path);
    if (ours && refuse("mkdir", path, true)) return -1;
    int rc = real(path, mode);
    if (ours && rc == 0) record_name(LINK, path);
    return rc;
}

int fallocate(int fd, int mode, off_t at, off_t n) {
    REAL(fallocate);
    if (path_of(fd) && refuse("fallocate", fd_paths[fd], true)) return -1;
    return real(fd, mode, at, n);
}

// ---- after a cut -----------------------------------------------------------------------------------
typedef struct node {
    ino_t ino;
    bool is_dir;
    char *data;
    size_t n;
} node;
typedef struct name {
    ino_t dir, ino;
    char text[64];
} name;
static struct {
    node nodes[MAX_NODES];
    name names[MAX_NODES];
    int n_nodes, n_names;
    ino_t root;
} disk;

static node *node_of(ino_t ino, bool is_dir) {
    for (int i = 0; i < disk.n_nodes; i++)
        if (disk.nodes[i].ino == ino) return &disk.nodes[i];
    if (disk.n_nodes == MAX_NODES) abort();
    disk.nodes[disk.n_nodes] = (node){.ino = ino, .is_dir = is_dir};
    return &disk.nodes[disk.n_nodes++];
}

static name *find_name(ino_t dir, const char *text) {
    for (int i = 0; i < disk.n_names; i++)
        if (disk.names[i].dir == dir && strcmp(disk.names[i].text, text) == 0) return &disk.names[i];
    return NULL;
}

static void set_name(ino_t dir, const char *text, ino_t ino) {
    name *n = find_name(dir, text);
    if (!n) n = &disk.names[disk.n_names++];
    if (disk.n_names == MAX_NODES) abort();
    *n = (name){.dir = dir, .ino = ino};
    snprintf(n->text, sizeof n->text, "%s", text);
}

static ino_t drop_name(ino_t dir, const char *text) {
    name *n = find_name(dir, text);
    ino_t ino = n ? n->ino : 0;
    if (n) *n = disk.names[--disk.n_names];
    return ino;
}

static void resize_node(node *n, size_t size) {
    n->data = realloc(n->data, size + 1);
    if (size > n->n) memset(n->data + n->n, 0, size - n->n);
    n->n = size;
}

// Takes what is below `path` as being on the disk.
static void take_tree(const char *path, ino_t ino) {
    char **names, sub[PATH_MAX];
    size_t n_names;
    if (dt_io_list_dir(&names, &n_names, path, DT_E_STORAGE) != DT_OK) abort();
    for (size_t i = 0; i < n_names; i++) {
        struct stat s;
        snprintf(sub, sizeof sub, "%s/%s", path, names[i]);
        if (stat(sub, &s) != 0) abort();
        set_name(ino, names[i], s.st_ino);
        node *n = node_of(s.st_ino, S_ISDIR(s.st_mode));
        if (n->is_dir)
            take_tree(sub, s.st_ino);
        else if (dt_io_read_file(&n->data, &n->n, sub, 0, DT_E_STORAGE) != DT_OK)
            abort();
    }
    dt_io_free_list(names, n_names);
}

void sim_disk_settle(void) {
    struct stat s;
    for (int i = 0; i < disk.n_nodes; i++) free(disk.nodes[i].data);
    disk.n_nodes = disk.n_names = 0;
    stat(sim_root, &s);
    disk.root = s.st_ino;
    take_tree(sim_root, disk.root);
    journal->used = 0;
}

void sim_disk_share(void) {
    journal = mmap(NULL, sizeof *journal + JOURNAL_BYTES, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (journal == MAP_FAILED) abort();
}

static entry *next_entry(entry *e) {
    e = e ? (entry *)((char *)e + e->n_bytes) : (entry *)journal->bytes;
    return (char *)e < journal->bytes + journal->used ? e : NULL;
}

static bool is_content(const entry *e) {
    return e->what == WRITE || e->what == RESIZE;
}
static bool is_name(const entry *e) {
    return e->what == LINK || e->what == UNLINK || e->what == RENAME;
}

// What this fsync wrote: all that changed since one failed, and a directory's older names if any changed.
static void mark_flushed(entry *sync, bool ordered) {
    entry *failed = NULL;
    bool changed = true;
    for (entry *e = NULL; (e = next_entry(e)) && e != sync;) {
        if (e->what == FAILED_SYNC && e->ino == sync->ino) failed = e, changed = false;
        changed |= is_name(e) && e->dir == sync->ino;
    }
    for (entry *e = NULL; (e = next_entry(e)) && e != sync;) {
        if (is_content(e) && e->ino == sync->ino && e > failed) e->lasts = true;
        if (is_name(e) && (ordered || (e->dir == sync->ino && changed))) e->lasts = true;
    }
}

// Names that were not flushed last in their order up to some point: one for all, or one a directory.
static void mark_names(bool ordered) {
    for (entry *e = NULL; (e = next_entry(e));) {
        if (!is_name(e) || e->lasts) continue;
        if (sim_random() % 2) {
            e->lasts = true;
            continue;
        }
        ino_t dir = e->dir;
        for (entry *l = e; l; l = next_entry(l)) // behind this one none of them
            if (is_name(l) && (ordered || l->dir == dir)) l->what = SYNC;
    }
}

static void apply(entry *e) {
    node *n;
    switch (e->what) {
    case WRITE:
        if (!e->lasts && sim_random() % 2) break;
        n = node_of(e->ino, false);
        if (!e->lasts && sim_random() % 4 == 0) e->n_data = sim_random() % (e->n_data + 1);
        if ((size_t)e->at + e->n_data > n->n) resize_node(n, (size_t)e->at + e->n_data);
        if (e->n_data) memcpy(n->data + e->at, e->data, e->n_data);
        break;
    case RESIZE:
        if (e->lasts || sim_random() % 2) resize_node(node_of(e->ino, false), (size_t)e->at);
        break;
    case LINK:
        if (!e->lasts) break;
        node_of(e->ino, e->is_dir);
        set_name(e->dir, e->name, e->ino);
        break;
    case UNLINK:
        if (e->lasts) drop_name(e->dir, e->name);
        break;
    case RENAME:
        if (!e->lasts) break;
        set_name(e->to_dir, e->to, drop_name(e->dir, e->name));
        break;
    default:
        break;
    }
}

static void make_tree(const char *path, ino_t ino) {
    for (int i = 0; i < disk.n_names; i++) {
        char sub[PATH_MAX];
        if (disk.names[i].dir != ino) continue;
        snprintf(sub, sizeof sub, "%s/%s", path, disk.names[i].text);
        node *n = node_of(disk.names[i].ino, false);
        if (n->is_dir) {
            mkdir(sub, 0755);
            make_tree(sub, n->ino);
            continue;
        }
        int fd = open(sub, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, n->data, n->n) != (ssize_t)n->n) abort();
        close(fd);
    }
}

void sim_disk_cut(uint64_t seed) {
    sim_seed(seed);
    bool ordered = seed % 3 > 0;
    for (entry *e = NULL; (e = next_entry(e));)
        if (e->what == SYNC) mark_flushed(e, ordered);
    mark_names(ordered);
    for (entry *e = NULL; (e = next_entry(e));) apply(e);
    if (dt_io_remove_tree(sim_root) != DT_OK || mkdir(sim_root, 0755) != 0) abort();
    make_tree(sim_root, disk.root);
    sim_disk_settle();
}
