// raw_folder.c: the files of a folder and all folders in it, by a team of threads.
//
// A thread takes a folder, lists it, and puts what it finds up for all: folders, and runs of file names whose
// sizes are wanted (one fstatat a file, as names come with their kind from readdir). So many small folders
// and one with a million files both keep everybody busy; on a cold or distant disk each waits for its own.
// Runs go before folders, so that few names wait. The order in which files are found is anybody's: the list
// is sorted afterwards (raw.c).
#define _GNU_SOURCE
#include "data/file/kept_names.h"
#include "raw.h"

#include "base/io.h"
#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 64, MAX_THREADS = 16, RUN_FILES = 256, MESSAGE = 2048 };

typedef struct folder {
    struct folder *next;
    int depth;
    char prefix[]; // from the root, with a '/' behind
} folder;

typedef struct run {
    struct run *next;
    size_t n;
    size_t name[RUN_FILES]; // in names
    uint64_t size[RUN_FILES];
    int64_t mtime_ns[RUN_FILES];
    bool is_file[RUN_FILES];
    dt_buffer names;
} run;

typedef struct walker {
    dt_raw_found *found;
    int root_fd;
    const char *root;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    folder *folders; // to be listed
    run *runs;       // whose files are to be looked at
    int n_listing;   // threads at a folder, from which more may come
    dt_status status;
    char message[MESSAGE];
} walker;

static dt_status cannot(const walker *w, const char *prefix, const char *name,
                        const char *operation, int err) {
    char *path = dt_xprintf("%s/%s%s", w->root, prefix, name);
    dt_status st = dt_io_read_error(path, operation, err, DT_E_DATA);
    free(path);
    return st;
}

// ---- listing ------------------------------------------------------------------------------------------
static void add_folder(walker *w, const char *prefix, const char *name, int depth) {
    size_t n = strlen(prefix), n_name = strlen(name);
    folder *f = dt_xcalloc(1, sizeof *f + n + n_name + 2);
    f->depth = depth;
    memcpy(f->prefix, prefix, n);
    memcpy(f->prefix + n, name, n_name);
    if (n_name) f->prefix[n + n_name] = '/';
    pthread_mutex_lock(&w->lock);
    f->next = w->folders;
    w->folders = f;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void add_run(walker *w, run **r) {
    if (!*r) return;
    pthread_mutex_lock(&w->lock);
    (*r)->next = w->runs;
    w->runs = *r;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    *r = NULL;
}

static void add_file(walker *w, run **r, const char *prefix, size_t n_prefix, const char *name) {
    if (!*r) *r = dt_xcalloc(1, sizeof **r);
    (*r)->name[(*r)->n++] = (*r)->names.n_bytes;
    dt_buffer_append(&(*r)->names, prefix, n_prefix);
    dt_buffer_append(&(*r)->names, name, strlen(name) + 1);
    if ((*r)->n == RUN_FILES) add_run(w, r);
}

static bool is_nowhere(int err) {
    return err == ENOENT || err == ENOTDIR || err == ELOOP;
}

// What an entry is, where readdir does not say. A symlink to a file is a file, to a folder nothing. One that
// leads nowhere passes as a file: look_at will tell.
static dt_status find_type(const walker *w, int fd, const char *prefix, const struct dirent *e,
                           unsigned char *type) {
    struct stat s;
    bool link = e->d_type == DT_LNK;
    *type = e->d_type;
    if (*type != DT_UNKNOWN && !link) return DT_OK;
    if (!link && fstatat(fd, e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0)
        return cannot(w, prefix, e->d_name, "look at", errno);
    link = link || S_ISLNK(s.st_mode);
    if (link && fstatat(fd, e->d_name, &s, 0) != 0) {
        *type = DT_REG;
        return is_nowhere(errno) ? DT_OK : cannot(w, prefix, e->d_name, "look at", errno);
    }
    *type = S_ISREG(s.st_mode) ? DT_REG : S_ISDIR(s.st_mode) && !link ? DT_DIR : DT_UNKNOWN;
    return DT_OK;
}

static dt_status list_entries(walker *w, const folder *f, DIR *dir) {
    size_t n_prefix = strlen(f->prefix);
    run *r = NULL;
    dt_status st = DT_OK;
    struct dirent *e;
    while (st == DT_OK && (errno = 0, e = readdir(dir))) {
        unsigned char type;
        if (e->d_name[0] == '.' || (f->depth == 0 && dt_name_is_lost_found(e->d_name))) continue;
        st = find_type(w, dirfd(dir), f->prefix, e, &type);
        if (st == DT_OK && type == DT_REG) add_file(w, &r, f->prefix, n_prefix, e->d_name);
        if (st == DT_OK && type == DT_DIR) add_folder(w, f->prefix, e->d_name, f->depth + 1);
    }
    if (st == DT_OK && errno) st = cannot(w, f->prefix, "", "list", errno);
    add_run(w, &r);
    return st;
}

static dt_status list_folder(walker *w, const folder *f) {
    if (f->depth > MAX_DEPTH)
        return dt_fail(DT_E_DATA, "%s/%s: folders nested too deeply", w->root, f->prefix);
    int fd = openat(w->root_fd, *f->prefix ? f->prefix : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        dt_status st = cannot(w, f->prefix, "", "list", errno);
        if (fd >= 0) close(fd);
        return st;
    }
    dt_status st = list_entries(w, f, dir);
    closedir(dir);
    return st;
}

// ---- sizes --------------------------------------------------------------------------------------------
static dt_status look_at(const walker *w, run *r) {
    struct stat s;
    for (size_t i = 0; i < r->n; i++) {
        const char *name = (const char *)r->names.data + r->name[i];
        int err = fstatat(w->root_fd, name, &s, 0) != 0 ? errno : 0;
        if (is_nowhere(err) && fstatat(w->root_fd, name, &s, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISLNK(s.st_mode))
            continue;
        if (err) return cannot(w, "", name, "look at", err);
        r->size[i] = (uint64_t)s.st_size;
        r->mtime_ns[i] = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
        r->is_file[i] = S_ISREG(s.st_mode);
    }
    return DT_OK;
}

static void take_over(dt_raw_found *f, const run *r) { // locked
    char *names = dt_arena_alloc(&f->raw->arena, r->names.n_bytes);
    memcpy(names, r->names.data, r->names.n_bytes);
    for (size_t i = 0; i < r->n; i++) {
        dt_raw_add(f, names + r->name[i], 0, r->size[i], r->mtime_ns[i]);
        if (!r->is_file[i]) f->raw->items[f->raw->n - 1].row = UINT32_MAX;
    }
}

static void free_run(run *r) {
    dt_buffer_fini(&r->names);
    free(r);
}

// ---- threads ------------------------------------------------------------------------------------------
static void keep_failure(walker *w, dt_status st) { // locked
    if (st == DT_OK || w->status != DT_OK) return;
    w->status = st;
    snprintf(w->message, sizeof w->message, "%s", dt_error_message());
}

static void do_run(walker *w) { // locked
    run *r = w->runs;
    w->runs = r->next;
    pthread_mutex_unlock(&w->lock);
    dt_status st = look_at(w, r);
    pthread_mutex_lock(&w->lock);
    if (st == DT_OK) take_over(w->found, r);
    keep_failure(w, st);
    free_run(r);
}

static void do_folder(walker *w) { // locked
    folder *f = w->folders;
    w->folders = f->next;
    w->n_listing++;
    pthread_mutex_unlock(&w->lock);
    dt_status st = list_folder(w, f);
    free(f);
    pthread_mutex_lock(&w->lock);
    keep_failure(w, st);
    if (--w->n_listing == 0) pthread_cond_broadcast(&w->changed);
}

static void work(void *arg, int worker) {
    walker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (w->status == DT_OK) {
        if (w->runs)
            do_run(w);
        else if (w->folders)
            do_folder(w);
        else if (w->n_listing > 0)
            pthread_cond_wait(&w->changed, &w->lock);
        else
            break;
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void drop_rest(walker *w) { // of a walk that failed
    for (folder *f = w->folders, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    for (run *r = w->runs, *next; r; r = next) {
        next = r->next;
        free_run(r);
    }
}

dt_status dt_raw_walk(dt_raw_found *f) {
    walker w = {.found = f, .root_fd = f->raw->root_fd, .root = f->raw->root};
    int n = dt_usable_cores();
    dt_team *team = NULL;
    DT_TRY(dt_team_create(&team, n < MAX_THREADS ? n : MAX_THREADS, "dt-list"));
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.changed, NULL);
    add_folder(&w, "", "", 0);
    dt_team_run(team, work, &w);
    dt_team_destroy(team);
    drop_rest(&w);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
    return w.status == DT_OK ? DT_OK : dt_fail(w.status, "%s", w.message);
}
