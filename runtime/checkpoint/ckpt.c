// ckpt.c: opens and closes the checkpoints of a run: the run lock, and leftovers of an earlier process.
//
// The lock is an open-file-description lock on RUN/lock. It ends with the process, however that dies, so
// there is no stale lock to clean up, and it works over NFS. The text in the file only names the holder. Under
// the lock every ".tmp-step-…", and every "….tmp.PID" that nobody holds, is a leftover of a dead writer and is removed.

#include "ckpt_internal.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/sort.h"
#include "base/watch.h"
#include "store/s3.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static dt_status held_by_other(const char *path, const char *run) {
    char *text = NULL; // the holder's first line; NULL: unreadable
    size_t n = 0;
    // 4096: the file holds two short lines
    if (dt_io_read_file(&text, &n, path, 4096, DT_E_STORAGE) == DT_OK) text[strcspn(text, "\n")] = '\0';
    dt_status st = dt_fail(DT_E_STORAGE,
                           "%s: another dtrain (%s) is at work in this run: wait for it, end it, or "
                           "choose another run.name",
                           run, text && *text ? text : "unknown process");
    free(text);
    return st;
}

static dt_status lock_run(dt_ckpt *c, const char *run) {
    // l_len 0: up to the end, however long the file grows
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    // beside checkpoints/, so that one lock covers the run's other files too
    const char *path = c->lock_path = dt_xprintf("%s/lock", run);
    dt_status st = dt_io_open_append(&c->lock_fd, path); // must not truncate the holder's name
    // F_OFD: belongs to the open file, so a close elsewhere in the process does not release the lock
    if (st == DT_OK && fcntl(c->lock_fd, F_OFD_SETLK, &whole) != 0) {
        if (errno == EAGAIN || errno == EACCES) // POSIX allows both for a lock held elsewhere
            st = held_by_other(path, run);
        else // no lock manager: run without a lock rather than not at all
            dt_warn("%s: this file system has no locks (%s): make sure that no second dtrain works "
                    "in this run",
                    path, strerror(errno));
    }
    if (st != DT_OK) return st;
    // the first line is for messages; the time tells apart two containers of one name, each with a process 1
    // gethostname may leave no terminator: one byte is kept
    char host[HOST_NAME_MAX + 1] = "", text[HOST_NAME_MAX + 64];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "%d@%s\n%.6f\n", (int)getpid(), host, dt_clock_wall_s());
    DT_TRY(dt_io_truncate(path, 0)); // only now, under the lock: a loser must not erase the holder's name
    return dt_io_write(c->lock_fd, path, text, (size_t)n);
}

bool dt_ckpt_is_held(const char *run) {
    char *path = dt_xprintf("%s/lock", run);
    const bool held = dt_io_is_locked(path) > 0; // a test, takes no lock itself
    free(path);
    return held;
}

dt_status dt_ckpt_check_lock(const dt_ckpt *c) {
    // inode and device: a new file of the same name is another lock
    struct stat mine, there;
    if (fstat(c->lock_fd, &mine) == 0 && stat(c->lock_path, &there) == 0 && mine.st_ino == there.st_ino &&
        mine.st_dev == there.st_dev)
        return DT_OK;
    return dt_fail(DT_E_STORAGE,
                   "%s is not the file that this run locked: its folder was removed or replaced, and "
                   "another dtrain may be at work there. This one saves nothing more and ends",
                   c->lock_path);
}

static int64_t read_best_file(const char *dir, dt_status *st);

static dt_status open_for_saving(dt_ckpt *c) {
    char *run = dt_io_parent(c->dir), *above = dt_io_parent(run); // RUN and the folder of runs
    int64_t best = -1;
    dt_status read;
    dt_status st = dt_ckpt_not_a_link(c->dir, DT_E_STORAGE); // a link could lead writes into another run
    if (st == DT_OK) st = dt_io_mkdir_all(c->dir);
    if (st == DT_OK) st = lock_run(c, run);
    // under the lock: no live writer owns a temporary
    if (st == DT_OK) st = dt_io_remove_leftovers(c->dir, ".tmp-step-");
    if (st == DT_OK) st = dt_io_remove_leftovers(run, NULL);
    if (st == DT_OK) st = dt_ckpt_best(c, &best); // before the first prune, which must spare the best
    // a process that was killed behind the checkpoint left best.json as it was; the manifests decide, so it may stay so
    if (st == DT_OK && best > read_best_file(c->dir, &read) && dt_ckpt_best_write(c->dir, best) != DT_OK)
        dt_warn("%s", dt_error_message());
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
    c->keep = opts->keep > 1 ? opts->keep : 1; // at least one: the newest is never removed
    c->async = opts->async;
    c->usable = opts->usable;
    c->read_only = read_only;
    c->lock_fd = -1;                    // -1: no lock taken; close tests
    c->unsure_step = c->best_step = -1; // no step is unsure, no best is known
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    dt_status st = DT_OK;
    if (!read_only) {
        dt_io_scope_push("ckpt"); // "ckpt" of DTRAIN_FAILPOINT counts the calls from here to the pop
        st = open_for_saving(c);
        dt_io_scope_pop();
    }
    if (st != DT_OK) {
        dt_ckpt_close(c); // also stops what open_for_saving began
        c = NULL;
    }
    *out = c;
    return st;
}

void dt_ckpt_close(dt_ckpt *c) {
    if (!c) return;
    dt_ckpt_writer_stop(c);  // waits for a save under way
    dt_ckpt_mirror_close(c); // after the writer, which hands steps to the mirror
    // nobody waited for the result: the last chance to print it
    if (c->unreported) dt_warn("the last save failed: %s", c->error);
    dt_ckpt_snapshot_free(c);
    dt_watch_begin(c->dir, "unlock");       // close may hang on NFS
    if (c->lock_fd >= 0) close(c->lock_fd); // releases the lock
    dt_watch_end();
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c->intact.looks); // the mirror has its own `intact`
    free(c->state_json);
    free(c->lock_path);
    free(c->beside);
    free(c->classes);
    free(c->dir);
    free(c);
}

// ---- ckpt dir -----------------------------------------------------------------------------------------------------

// Which checkpoints a directory holds, and which is the best.
//
// The directories themselves are the list: no index file could disagree with them. A checkpoint is step-N;
// names that begin with a dot are being written or removed. Two places name the best one: a flag in its
// manifest, which appears in the same rename as the checkpoint, and best.json, written after that for people
// and for a checkpoint that becomes the best later. A run's best only moves forward, so the newest of both that
// is intact is the best.

enum { MAX_BEST_BYTES = 4096 };

char *dt_ckpt_step_path(const char *dir, int64_t step) {
    // eight digits sort by name up to step 99,999,999; more digits are valid too
    return dt_xprintf("%s/step-%08" PRId64, dir, step);
}

dt_status dt_ckpt_not_a_link(const char *path, dt_status code) {
    if (!dt_io_is_link(path)) return DT_OK;
    return dt_fail(code,
                   "%s: a symbolic link: inside a run none is followed; put a folder here, and "
                   "where another disk is meant, set run.dir",
                   path);
}

dt_status dt_ckpt_steps(const char *dir, int64_t **steps, int *n) {
    char **names;
    size_t n_names;
    *steps = NULL;
    *n = 0;
    if (dt_s3_is_url(dir)) return dt_ckpt_mirror_steps(dir, steps, n);
    DT_TRY(dt_ckpt_not_a_link(dir, DT_E_CKPT));
    if (!dt_io_exists(dir)) return DT_OK; // a run before its first save
    DT_TRY(dt_io_list_dir(&names, &n_names, dir, DT_E_CKPT));
    *steps = dt_ckpt_steps_of_names(names, n_names, n);
    dt_io_free_list(names, n_names);
    return DT_OK;
}

int64_t *dt_ckpt_steps_of_names(char *const *names, size_t n_names, int *n) {
    int64_t *steps = dt_xcalloc(n_names + 1, sizeof *steps); // + 1: calloc of 0 may return NULL
    *n = 0;
    for (size_t i = 0; i < n_names; i++)
        if (dt_ckpt_step_of_name(names[i], &steps[*n])) (*n)++;
    qsort(steps, (size_t)*n, sizeof *steps, dt_sort_ints);
    return steps;
}

static int64_t read_best_file(const char *dir, dt_status *st) {
    char *path = dt_xprintf("%s/best.json", dir), *text = NULL;
    size_t n_bytes;
    json_t *root = NULL;
    // absent, damaged or foreign: value stays -1, and the manifests decide
    *st = dt_ckpt_read_text(&text, &n_bytes, path, MAX_BEST_BYTES);
    if (*st == DT_OK) root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(root, "step"); // jansson takes NULL for root and step
    int64_t value = json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(root);
    free(text);
    free(path);
    return value;
}

dt_status dt_ckpt_best_step(const char *dir, const int64_t *steps, int n, dt_ckpt_depth depth, dt_ckpt_usable *usable,
                            bool say, int64_t *best) {
    dt_status st;
    const int64_t named = read_best_file(dir, &st);
    bool there = named < 0; // whether the step that best.json names is in the list
    *best = -1;
    // newest first: a run's best only moves forward
    for (int i = n - 1; *best < 0 && i >= 0 && st != DT_E_STORAGE && st != DT_E_USAGE; i--) {
        char *path = dt_ckpt_step_path(dir, steps[i]);
        bool was_best = steps[i] == named; // or its manifest has the flag
        there |= was_best;
        st = dt_ckpt_verify(path, depth, &was_best); // sets was_best from the manifest's flag too
        // a checkpoint may be intact and yet of another class list
        if (st == DT_OK && was_best && usable) st = usable(path, steps[i]);
        if (st == DT_OK)
            *best = was_best ? steps[i] : -1;
        else if (say && st != DT_E_STORAGE && st != DT_E_USAGE && was_best &&
                 dt_io_exists(path)) // else a running training has removed it
            dt_warn("the best checkpoint, of step %" PRId64 ", is skipped: %s", steps[i], dt_error_message());
        free(path);
    }
    // the disk's or server's fault, or a newer dtrain's: nothing is known, so nothing is skipped
    if (st == DT_E_STORAGE || st == DT_E_USAGE) return st;
    char *path = dt_ckpt_step_path(dir, named);
    if (say && !there && named > *best && !dt_io_exists(path)) // else it is newer than the list, or was pruned
        dt_warn("the best checkpoint, of step %" PRId64 ", is gone from %s", named, dir);
    free(path);
    return DT_OK;
}

dt_status dt_ckpt_best_write(const char *dir, int64_t step) {
    char text[64], *path = dt_xprintf("%s/best.json", dir);
    int n = snprintf(text, sizeof text, "{\"step\":%" PRId64 "}\n", step); // replaced atomically by dt_io_write_file
    dt_status st = dt_io_write_file(path, text, (size_t)n);
    free(path);
    return st;
}

// ---- ckpt file ----------------------------------------------------------------------------------------------------

// Writes one file of a checkpoint. Collects small writes into large ones, hashes everything and
// fsyncs before closing.
//
// After an error the file's state is unknown, so it is closed without another fsync, which could report
// success for pages that the kernel has dropped. The caller removes the whole temporary directory, and the
// next save writes new files.

// small writes are collected up to STAGE_BYTES; large ones go in chunks between which writeback starts
enum { STAGE_BYTES = 256 << 10, CHUNK_BYTES = 16 << 20 };

dt_status dt_ckpt_writer_open(dt_ckpt_writer *w, const char *path) {
    *w = (dt_ckpt_writer){.fd = -1, .path = path};
    DT_TRY(dt_io_create(&w->fd, path, false)); // false: no append
    w->stage = dt_xcalloc(1, STAGE_BYTES);
    w->hash = dt_hash_stream_create();
    return DT_OK;
}

static dt_status write_stage(dt_ckpt_writer *w) {
    size_t n = w->n_staged; // reset first: a failed write is not repeated
    w->n_staged = 0;
    return n ? dt_io_write(w->fd, w->path, w->stage, n) : DT_OK;
}

dt_status dt_ckpt_writer_put(dt_ckpt_writer *w, const void *data, size_t n_bytes) {
    dt_hash_stream_update(w->hash, data, n_bytes); // in order of the file, before buffering
    w->n_bytes += n_bytes;
    if (w->n_staged + n_bytes > STAGE_BYTES) DT_TRY(write_stage(w)); // order of bytes: staged ones come first
    const char *p = data;
    while (n_bytes > STAGE_BYTES) { // large tensors bypass the buffer
        size_t chunk = n_bytes < CHUNK_BYTES ? n_bytes : CHUNK_BYTES;
        DT_TRY(dt_io_write(w->fd, w->path, p, chunk));
        dt_watch_begin(w->path, "write"); // writeback may block on a slow disk: the watch names the file
        dt_io_begin_sync(w->fd, 0, 0);    // the whole file: fsync waits less
        dt_watch_end();
        p += chunk;
        n_bytes -= chunk;
    }
    if (n_bytes) memcpy(w->stage + w->n_staged, p, n_bytes); // at most STAGE_BYTES, into the buffer emptied above
    w->n_staged += n_bytes;
    return DT_OK;
}

dt_status dt_ckpt_writer_finish(dt_ckpt_writer *w, dt_status st, uint64_t *hash) {
    if (st == DT_OK) st = write_stage(w); // the tail
    if (st == DT_OK) st = dt_io_fsync(w->fd, w->path);
    if (st == DT_OK) // no second fsync after an error (see above)
        st = dt_io_close(w->fd, w->path);
    else
        close(w->fd); // the first error is reported, that of close adds nothing
    *hash = dt_hash_stream_digest(w->hash);
    dt_hash_stream_destroy(w->hash);
    free(w->stage);
    return st;
}
