// ckpt.c: opens and closes the checkpoints of a run: the run lock, and leftovers of an earlier process.
//
// The lock is an open-file-description lock on RUN/lock. It ends with the process, however that dies, so
// there is no stale lock to clean up, and it works over NFS. The text in the file only names the holder. Under
// the lock every ".tmp-step-…", and every "….tmp.PID" that nobody holds, is a leftover of a dead writer and is removed.
#define _GNU_SOURCE
#include "base/arena.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "base/watch.h"
#include "ckpt_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static dt_status held_by_other(const char *path, const char *run) {
    char *text = NULL;
    size_t n = 0;
    if (dt_io_read_file(&text, &n, path, 4096, DT_E_STORAGE) == DT_OK) text[strcspn(text, "\n")] = '\0';
    dt_status st = dt_fail(DT_E_STORAGE,
                           "%s: another dtrain (%s) is at work in this run: wait for it, end it, or "
                           "choose another run.name",
                           run, text && *text ? text : "unknown process");
    free(text);
    return st;
}

// The first line is for messages. The time tells apart two containers of one name, each with a process 1.
static dt_status write_holder(int fd, const char *path) {
    char host[HOST_NAME_MAX + 1] = "", text[HOST_NAME_MAX + 64];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "%d@%s\n%.6f\n", (int)getpid(), host, dt_clock_wall_s());
    DT_TRY(dt_io_truncate(path, 0));
    return dt_io_write(fd, path, text, (size_t)n);
}

static dt_status lock_run(dt_ckpt *c, const char *run) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const char *path = c->lock_path = dt_xprintf("%s/lock", run);
    dt_status st = dt_io_open_append(&c->lock_fd, path); // must not truncate the holder's name
    if (st == DT_OK && fcntl(c->lock_fd, F_OFD_SETLK, &whole) != 0) {
        if (errno == EAGAIN || errno == EACCES)
            st = held_by_other(path, run);
        else // no lock manager: run without a lock rather than not at all
            dt_warn("%s: this file system has no locks (%s): make sure that no second dtrain works "
                    "in this run",
                    path, strerror(errno));
    }
    return st == DT_OK ? write_holder(c->lock_fd, path) : st;
}

bool dt_ckpt_is_held(const char *run) {
    char *path = dt_xprintf("%s/lock", run);
    const bool held = dt_io_is_locked(path) > 0;
    free(path);
    return held;
}

dt_status dt_ckpt_check_lock(const dt_ckpt *c) {
    struct stat mine, there;
    if (fstat(c->lock_fd, &mine) == 0 && stat(c->lock_path, &there) == 0 && mine.st_ino == there.st_ino &&
        mine.st_dev == there.st_dev)
        return DT_OK;
    return dt_fail(DT_E_STORAGE,
                   "%s is not the file that this run locked: its folder was removed or replaced, and "
                   "another dtrain may be at work there. This one saves nothing more and ends",
                   c->lock_path);
}

static dt_status open_for_saving(dt_ckpt *c) {
    char *run = dt_io_parent(c->dir), *above = dt_io_parent(run);
    int64_t best;
    dt_status st = dt_ckpt_not_a_link(c->dir, DT_E_STORAGE);
    if (st == DT_OK) st = dt_io_mkdir_all(c->dir);
    if (st == DT_OK) st = lock_run(c, run);
    if (st == DT_OK) st = dt_io_remove_leftovers(c->dir, ".tmp-step-");
    if (st == DT_OK) st = dt_io_remove_leftovers(run, NULL);
    if (st == DT_OK) st = dt_ckpt_best(c, &best);
    // the directories themselves must survive a power cut before anything in them is acknowledged;
    // the one above the run may not be ours to open
    if (st == DT_OK) st = dt_io_fsync_dir(run);
    if (st == DT_OK && dt_io_fsync_dir(above) != DT_OK) dt_error_clear();
    free(above);
    free(run);
    return st;
}

dt_status dt_ckpt_open(dt_ckpt **out, const dt_ckpt_opts *opts, bool read_only) {
    dt_ckpt *c = dt_xcalloc(1, sizeof *c);
    c->dir = dt_xstrdup(opts->dir);
    if (opts->beside) c->beside = dt_xstrdup(opts->beside);
    c->keep = opts->keep > 1 ? opts->keep : 1;
    c->async = opts->async;
    c->usable = opts->usable;
    c->read_only = read_only;
    c->lock_fd = -1;
    c->unsure_step = c->best_step = -1;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    dt_status st = DT_OK;
    if (!read_only) {
        dt_io_scope_push("ckpt");
        st = open_for_saving(c);
        dt_io_scope_pop();
    }
    if (st != DT_OK) {
        dt_ckpt_close(c);
        c = NULL;
    }
    *out = c;
    return st;
}

void dt_ckpt_close(dt_ckpt *c) {
    if (!c) return;
    dt_ckpt_writer_stop(c);
    dt_ckpt_mirror_close(c);
    if (c->unreported) dt_warn("the last save failed: %s", c->error);
    dt_ckpt_snapshot_free(c);
    dt_watch_begin(c->dir, "unlock");
    if (c->lock_fd >= 0) close(c->lock_fd); // releases the lock
    dt_watch_end();
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c->intact.looks);
    free(c->state_json);
    free(c->lock_path);
    free(c->beside);
    free(c->classes);
    free(c->dir);
    free(c);
}
