// ckpt_save.c: saves a checkpoint completely or not at all.
//
// save_begin copies the tensors (async) and leaves the rest to the writer thread; without async the same code
// runs in place. Safety depends on the order of calls, and tests/fault makes each one fail:
//   .tmp-step-N/  files, each fsynced → manifest, fsynced → fsync of .tmp-step-N
//   → rename to step-N (never over another) → fsync of checkpoints/ → read back and verified
//   → best.json → acknowledged → older ones removed
// A failure before the rename removes the temporary. After a failed fsync of checkpoints/ it is unknown whether
// the rename lasts. The save is then not acknowledged, and the next start finds out. If this process saves the
// same step again, it writes it anew instead of trusting a second fsync. Removal first renames to
// ".tmp-step-N.old" and flushes that, so that half a checkpoint never has a checkpoint's name.
//
// `busy`, under the mutex, publishes the snapshot to the writer (start_save) and the result to the trainer (run_save);
// while it is set the fields of a save are the writer's.
//
// Snapshot buffer, file headers and order are made at the first save and kept. Later saves of the same tensors
// allocate only small strings in the writer.
#define _GNU_SOURCE
#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "base/trace.h"
#include "ckpt_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void dt_ckpt_set_classes(dt_ckpt *c, const char *json) {
    free(c->classes); // until the next set; the layout copies the text
    c->classes = dt_xstrdup(json);
}

// -- snapshot ------------------------------------------------------------------------------------
void dt_ckpt_snapshot_free(dt_ckpt *c) {
    for (int i = 0; i < c->n_parts; i++) { // headers, order and file names
        dt_safetensors_layout_fini(&c->parts[i].layout);
        free(c->parts[i].name);
    }
    for (int i = 0; i < c->n_tensors; i++) {
        free((char *)c->tensors[i].name); // owned, although the type is a borrowed const char *
        free((char *)c->tensors[i].file);
    }
    free(c->parts);
    free(c->tensors);
    free(c->flat);
    c->parts = NULL;
    c->tensors = NULL;
    c->flat = NULL; // NULL: build_snapshot may start anew
    c->n_parts = c->n_tensors = 0;
}

static bool same_tensors(const dt_ckpt *c, const dt_ckpt_tensor *t, int n) {
    if (!c->tensors || n != c->n_tensors) return false; // names, files and shapes decide the layout; data do not
    for (int i = 0; i < n; i++)
        if (strcmp(t[i].name, c->tensors[i].name) != 0 || strcmp(t[i].file, c->tensors[i].file) != 0 ||
            !dt_shape_equal(&t[i].shape, &c->tensors[i].shape))
            return false;
    return true;
}

static dt_status ckpt_save_add_part(dt_ckpt *c, const char *file) {
    char *name = dt_xprintf("%s.safetensors", file); // one part per file name
    for (int i = 0; i < c->n_parts; i++)
        if (strcmp(c->parts[i].name, name) == 0) {
            free(name);
            return DT_OK;
        }
    c->parts = dt_xrealloc(c->parts, (size_t)(c->n_parts + 1) * sizeof *c->parts);
    dt_ckpt_part *p = &c->parts[c->n_parts++];
    *p = (dt_ckpt_part){.name = name};
    const bool named = c->classes && strcmp(file, "model") == 0;
    // "pt": transformers refuses files without a format; without classes the list ends early
    const char *const metadata[] = {"format", "pt", named ? "classes" : NULL, c->classes, NULL};
    return dt_safetensors_layout_build(&p->layout, c->tensors, c->n_tensors, file, metadata);
}

// Whether the snapshot has memory for it; else it is written from the caller's.
static bool is_copied(const dt_ckpt *c, const dt_ckpt_tensor *t) {
    return c->async || !t->data; // data NULL: the caller fills the room (dt_ckpt_save_room)
}

static dt_status build_snapshot(dt_ckpt *c, const dt_ckpt_tensor *t, int n) {
    size_t n_floats = 0, at = 0; // elements, not bytes
    dt_ckpt_snapshot_free(c);
    c->tensors = dt_xcalloc((size_t)n + 1, sizeof *c->tensors);
    for (int i = 0; i < n; i++) {
        c->tensors[i] = t[i];
        c->tensors[i].name = dt_xstrdup(t[i].name);
        c->tensors[i].file = dt_xstrdup(t[i].file);
        c->n_tensors++;
        if (is_copied(c, &t[i])) n_floats += (size_t)dt_shape_elements(&t[i].shape); // sync saves copy nothing
    }
    for (int i = 0; i < n; i++) DT_TRY(ckpt_save_add_part(c, t[i].file));
    if (!n_floats) return DT_OK;                        // sync, or tensors without elements
    c->flat = malloc((n_floats + 1) * sizeof *c->flat); // not dt_xcalloc: gigabytes may fail, and pages need no zeros
    if (!c->flat)
        return dt_fail(DT_E_INTERNAL, "no memory for the checkpoint's copy of %zu MiB: set checkpoint.async=false",
                       n_floats * sizeof *c->flat >> 20);
    for (int i = 0; i < n; i++) {
        if (!is_copied(c, &t[i])) continue;
        c->tensors[i].data = c->flat + at; // in the order of the list, without gaps
        at += (size_t)dt_shape_elements(&t[i].shape);
    }
    return DT_OK;
}

static dt_status prepare_snapshot(dt_ckpt *c, const dt_ckpt_tensor *t, int n) {
    if (same_tensors(c, t, n)) return DT_OK;
    const dt_status st = build_snapshot(c, t, n);
    if (st != DT_OK) dt_ckpt_snapshot_free(c); // a partial snapshot must not look like the same tensors next time
    return st;
}

static dt_status take_snapshot(dt_ckpt *c, const dt_ckpt_tensor *t, int n) {
    DT_TRY(prepare_snapshot(c, t, n));
    for (int i = 0; i < n; i++) {
        size_t n_bytes = (size_t)dt_shape_elements(&t[i].shape) * sizeof(float);
        if (!is_copied(c, &t[i])) // sync: the caller waits, so its memory serves
            c->tensors[i].data = t[i].data;
        else if (n_bytes && t[i].data) // NULL: filled in place through save_room
            memcpy(c->tensors[i].data, t[i].data, n_bytes);
    }
    return DT_OK;
}

// -- writing -------------------------------------------------------------------------------------
static dt_status ckpt_save_write_text(dt_ckpt_file *file, const char *path, const char *text, size_t n) {
    dt_ckpt_writer w;
    uint64_t hash = 0;
    DT_TRY(dt_ckpt_writer_open(&w, path));
    // writes what is staged, fsyncs and closes
    dt_status st = dt_ckpt_writer_finish(&w, dt_ckpt_writer_put(&w, text, n), &hash);
    if (file) { // NULL: the manifest does not list itself
        file->n_bytes = n;
        file->hash = hash;
    }
    return st;
}

static dt_status write_files(dt_ckpt *c, const char *temp, dt_ckpt_manifest *m) {
    for (int i = 0; i < c->n_parts; i++) {
        char *path = dt_xprintf("%s/%s", temp, c->parts[i].name);
        dt_ckpt_file *f = dt_ckpt_manifest_add(m, c->parts[i].name);
        dt_status st = dt_safetensors_layout_write(&c->parts[i].layout, path, f); // fills f: size, hash, ranges
        free(path);
        DT_TRY(st);
    }
    char *path = dt_xprintf("%s/state.json", temp);
    dt_status st =
        // loading limits state.json to DT_CKPT_STATE_BYTES
        ckpt_save_write_text(dt_ckpt_manifest_add(m, "state.json"), path, c->state_json, strlen(c->state_json));
    free(path);
    return st;
}

static dt_status write_manifest(const char *temp, const dt_ckpt_manifest *m) {
    // hashes are known: all files are written
    dt_json j;
    char *path = dt_xprintf("%s/manifest.json", temp);
    dt_json_init(&j);
    dt_ckpt_manifest_print(m, &j);
    dt_status st = ckpt_save_write_text(NULL, path, j.data, j.n_bytes);
    dt_json_fini(&j);
    free(path);
    return st;
}

static dt_status write_temporary(dt_ckpt *c, const char *temp) {
    // best: known before the save, so the flag appears with the rename
    dt_ckpt_manifest m = {.step = c->step, .best = c->best};
    dt_status st = dt_io_remove_tree(temp); // left if an earlier removal failed too
    if (st == DT_OK) st = dt_io_mkdir(temp);
    if (st == DT_OK) st = write_files(c, temp, &m);
    // state.json names a length of this file
    if (st == DT_OK && c->beside && dt_io_sync_file(c->beside) != DT_OK)
        dt_warn("%s: a power cut may lose the end of it", dt_error_message());
    if (st == DT_OK) st = write_manifest(temp, &m); // after every file: a manifest states what is on disk
    if (st == DT_OK) st = dt_io_fsync_dir(temp);    // entries of the directory itself
    dt_ckpt_manifest_fini(&m);
    return st;
}

static dt_status remove_checkpoint(const char *dir, int64_t step) {
    char *path = dt_ckpt_step_path(dir, step);
    char *old = dt_xprintf("%s/.tmp-step-%08" PRId64 ".old", dir, step);
    dt_status st = dt_io_remove_tree(old);                   // left by an interrupted removal
    if (st == DT_OK) st = dt_io_rename_noreplace(path, old); // the name goes first: half a checkpoint never has one
    if (st == DT_OK) st = dt_io_fsync_dir(dir);              // else a power cut may undo the rename alone
    if (st == DT_OK) st = dt_io_remove_tree(old); // after the flush, so a power cut leaves either all or a leftover
    free(old);
    free(path);
    return st;
}

dt_status dt_ckpt_put_in_place(dt_ckpt *c, int64_t step, const char *temp, dt_status st) {
    char *path = dt_ckpt_step_path(c->dir, step);
    // renameat2(EXCHANGE) leaves no moment without the step
    const bool exchanged = st == DT_OK && dt_io_exists(path) && !dt_io_is_link(path) &&
                           dt_io_exchange(temp, path); // temp has the old one then
    // file systems without exchange; a link is removed, not followed
    if (st == DT_OK && !exchanged && (dt_io_exists(path) || dt_io_is_link(path))) st = remove_checkpoint(c->dir, step);
    if (st == DT_OK && !exchanged) st = dt_io_rename_noreplace(temp, path); // never over another
    if (st != DT_OK) {
        const dt_error_kept first = dt_error_keep(); // removal must not replace the first error
        dt_io_remove_tree(temp);
        dt_error_restore(&first);
    } else {
        st = dt_io_fsync_dir(c->dir);                          // the rename lasts only after this
        c->unsure_step = st == DT_OK ? -1 : step;              // written again instead of trusting a second fsync
        if (exchanged && st == DT_OK) dt_io_remove_tree(temp); // the old checkpoint, after the new one is durable
    }
    free(path);
    return st;
}

void dt_ckpt_save_anew(dt_ckpt *c, int64_t step) {
    c->unsure_step = step; // already_saved then returns false
}

// Whether this step already has an intact checkpoint (a resumed run saves it again).
static bool already_saved(const dt_ckpt *c, const char *path) {
    // unsure: the name exists, but maybe not on disk
    if (c->step == c->unsure_step || !dt_io_exists(path)) return false;
    bool good = dt_ckpt_check(c, path, c->step, DT_CKPT_FROM_DISK) == DT_OK; // FROM_DISK: cached pages prove nothing
    if (!good) dt_warn("checkpoint step %" PRId64 " is written anew: %s", c->step, dt_error_message());
    return good;
}

// -- removing older ones -------------------------------------------------------------------------
bool dt_ckpt_is_known(const dt_ckpt_known *k, uint64_t look) {
    int i = 0; // `keep` entries: a linear search
    while (i < k->n && k->looks[i] != look) i++;
    return i < k->n;
}

uint64_t dt_ckpt_look(const char *path) {
    char **names = NULL;
    size_t n = 0;
    struct stat s;
    uint64_t look = dt_hash64(path, strlen(path));                              // the path alone, for a URL
    if (dt_io_list_dir(&names, &n, path, DT_E_CKPT) != DT_OK) dt_error_clear(); // a mirror's URL
    for (size_t i = 0; i < n; i++) {
        char *file = dt_xprintf("%s/%s", path, names[i]);
        if (lstat(file, &s) != 0) s = (struct stat){0}; // gone meanwhile: zeros count as a change
        // chained, so the order of names matters; dt_io_list_dir sorts
        const uint64_t parts[] = {look,
                                  dt_hash64(file, strlen(file)),
                                  (uint64_t)s.st_ino,
                                  (uint64_t)s.st_size,
                                  (uint64_t)s.st_mtim.tv_sec,
                                  (uint64_t)s.st_mtim.tv_nsec};
        look = dt_hash64(parts, sizeof parts);
        free(file);
    }
    dt_io_free_list(names, n);
    return look;
}

// Removes checkpoints older than the newest `keep`, except the best. Counts and removes only steps below the
// current one, so the last good one always stays, whatever lies above it: the current one if it has been saved, else
// the newest of the others that is intact.
static dt_status prune(dt_ckpt *c, bool saved) {
    int64_t *steps;
    int n, kept = 1, n_good = saved; // kept: intact ones that stay, the current one included
    DT_TRY(dt_ckpt_steps(c->dir, &steps, &n));
    dt_ckpt_known intact = {dt_xcalloc((size_t)n + 1, sizeof *intact.looks), 0}; // becomes c->intact
    dt_status st = DT_OK;
    for (int i = n - 1; st == DT_OK && i >= 0; i--) { // newest first: the first `keep` intact ones stay
        // above the current: of a branch that a resume left
        if (steps[i] > c->step || (steps[i] == c->step && !saved)) continue;
        char *path = dt_ckpt_step_path(c->dir, steps[i]);
        const uint64_t look = dt_ckpt_look(path);
        if (steps[i] == c->step) { // verified by the save itself
            intact.looks[intact.n++] = look;
        } else if (kept < c->keep || n_good == 0) { // damaged ones do not count
            // without any good one so far, sizes are not proof enough
            const dt_ckpt_depth depth = n_good ? DT_CKPT_SIZES : DT_CKPT_HASHES;
            const bool good =
                // known: not read again at each save
                (n_good && dt_ckpt_is_known(&c->intact, look)) || dt_ckpt_check(c, path, steps[i], depth) == DT_OK;
            if (good) intact.looks[intact.n++] = look;
            kept += good;
            n_good += good;
        } else if (steps[i] != c->best_step && !dt_ckpt_mirror_sends(c, steps[i])) { // an upload reads the files
            st = remove_checkpoint(c->dir, steps[i]);
        }
        free(path);
    }
    free(c->intact.looks);
    c->intact = intact;
    free(steps);
    return st;
}

// saved: the current step counts as good
static void prune_or_warn(dt_ckpt *c, bool saved) { // a failure costs space only
    if (prune(c, saved) != DT_OK) dt_warn("older checkpoints could not be removed: %s", dt_error_message());
}

void dt_ckpt_prune(dt_ckpt *c) {
    if (c->step > 0 && c->status == DT_OK) prune_or_warn(c, true); // step 0: nothing saved in this process
}

// *written: the step had no intact checkpoint.
static dt_status ckpt_save_step(dt_ckpt *c, bool *written) {
    DT_TRY(dt_ckpt_check_lock(c));            // another dtrain may own the folder by now
    if (c->no_space) prune_or_warn(c, false); // the last save found no space: make room before this one
    char *path = dt_ckpt_step_path(c->dir, c->step);
    dt_status st;
    *written = !already_saved(c, path);
    if (!*written) {
        st = dt_io_fsync_dir(c->dir); // an earlier process may have died before its fsync
    } else {
        // damage and `unsure` lead here too
        char *temp = dt_xprintf("%s/.tmp-step-%08" PRId64, c->dir, c->step);
        st = write_temporary(c, temp);
        // before the removal in dt_ckpt_put_in_place: errno-like, of the last call that failed
        c->no_space = st != DT_OK && dt_io_out_of_space();
        st = dt_ckpt_put_in_place(c, c->step, temp, st);
        free(temp);
        // hashes of what the disk returns, while the state is still in memory
        if (st == DT_OK && dt_ckpt_check(c, path, c->step, DT_CKPT_FROM_DISK) != DT_OK)
            st = dt_fail_context(DT_E_STORAGE, "the checkpoint just saved does not read back");
    }
    free(path);
    if (st == DT_OK && c->best) st = dt_ckpt_best_write(c->dir, c->step); // after the checkpoint that it names
    if (st == DT_OK && c->best) c->best_step = c->step;
    if (st != DT_OK) return dt_fail_context(st, "checkpoint of step %" PRId64, c->step);
    prune_or_warn(c, true); // only now: the older ones were the fallback
    return DT_OK;
}

// -- the writer ----------------------------------------------------------------------------------
static void run_save(dt_ckpt *c) {
    dt_io_scope_push("ckpt"); // the same failpoint scope as at open
    const int64_t traced = dt_trace_open("checkpoint", "write");
    bool written = false;
    dt_status st = ckpt_save_step(c, &written);
    // with checkpoint.mirror's wait, a failed upload is a failed save
    if (st == DT_OK) st = dt_ckpt_mirror_saved(c, written);
    dt_trace_close(traced);
    dt_io_scope_pop();
    pthread_mutex_lock(&c->mutex); // the trainer reads the result under the mutex
    c->status = st;
    c->error[0] = '\0';
    c->unreported = st != DT_OK;
    if (st != DT_OK) strncpy(c->error, dt_error_message(), sizeof c->error - 1); // copied: errors belong to the thread
    c->seconds = dt_clock_s() - c->begin_s; // from save_begin, waiting for the disk included
    // under the mutex: must not call back into c
    if (c->on_saved) c->on_saved(c->saved_ctx, c->step, c->seconds, st == DT_OK);
    c->busy = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static void *writer_main(void *arg) {
    dt_ckpt *c = arg;
    dt_thread_name("ckpt");
    pthread_mutex_lock(&c->mutex);
    for (;;) {
        while (!c->busy && !c->quit) pthread_cond_wait(&c->changed, &c->mutex);
        if (!c->busy) break;             // quit, and nothing left to write
        pthread_mutex_unlock(&c->mutex); // fields of the save belong to this thread while busy
        run_save(c);
        pthread_mutex_lock(&c->mutex);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

static dt_status start_writer(dt_ckpt *c) {
    sigset_t all, old;
    if (c->thread_runs) return DT_OK;
    sigfillset(&all); // signals are the trainer's
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int err = pthread_create(&c->thread, NULL, writer_main, c); // mask is inherited by the thread
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    c->thread_runs = err == 0;
    return err ? dt_fail(DT_E_INTERNAL, "cannot start the checkpoint writer: %s", strerror(err)) : DT_OK;
}

void dt_ckpt_writer_stop(dt_ckpt *c) {
    if (!c->thread_runs) return;
    pthread_mutex_lock(&c->mutex);
    c->quit = true; // finishes a save that is under way
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL); // after the save under way
    c->thread_runs = false;
}

void dt_ckpt_on_saved(dt_ckpt *c, void (*fn)(void *ctx, int64_t step, double seconds, bool saved), void *ctx) {
    pthread_mutex_lock(&c->mutex);
    c->on_saved = fn;
    c->saved_ctx = ctx;
    pthread_mutex_unlock(&c->mutex);
}

static void finish_previous(dt_ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    while (c->busy) pthread_cond_wait(&c->changed, &c->mutex); // one save at a time: the snapshot is one buffer
    bool lost = c->unreported;
    c->unreported = false; // reported here, once
    pthread_mutex_unlock(&c->mutex);
    if (lost) dt_warn("an earlier save failed: %s", c->error);
}

static void start_save(dt_ckpt *c) {
    pthread_mutex_lock(&c->mutex);
    c->busy = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

dt_status dt_ckpt_save_room(dt_ckpt *c, const dt_ckpt_tensor *tensors, int n_tensors, const dt_ckpt_tensor **room) {
    finish_previous(c); // before the room is handed out: the writer reads it
    *room = NULL;
    DT_TRY(prepare_snapshot(c, tensors, n_tensors));
    *room = c->tensors;
    return DT_OK;
}

dt_status dt_ckpt_save_begin(dt_ckpt *c, int64_t step, const dt_ckpt_tensor *tensors, int n_tensors,
                             const char *state_json, bool best) {
    assert(!c->read_only && step >= 0 && n_tensors > 0);
    finish_previous(c);
    c->begin_s = dt_clock_s(); // includes the copy
    DT_TRY(take_snapshot(c, tensors, n_tensors));
    if (c->async) DT_TRY(start_writer(c)); // before the state changes: without a thread the save fails here
    free(c->state_json);
    c->state_json = dt_xstrdup(state_json ? state_json : "{}"); // copied: the caller's text is temporary
    c->step = step;
    c->best = best;
    if (c->async) {
        start_save(c);
    } else {
        run_save(c);
        if (c->status != DT_OK) dt_warn("%s; it is written again", c->error); // sync: one retry
        if (c->status != DT_OK) run_save(c); // now: the tensors are the caller's and will change
    }
    return DT_OK;
}

dt_status dt_ckpt_save_again(dt_ckpt *c) {
    if (c->async && c->status != DT_OK) { // the snapshot is still there
        dt_warn("%s; it is written again", c->error);
        start_save(c);
    }
    return dt_ckpt_save_wait(c, NULL);
}

dt_status dt_ckpt_save_wait(dt_ckpt *c, double *seconds) {
    pthread_mutex_lock(&c->mutex);
    while (c->busy) pthread_cond_wait(&c->changed, &c->mutex);
    c->unreported = false; // the caller gets the status itself
    dt_status st = c->status;
    if (seconds) *seconds = c->seconds;
    pthread_mutex_unlock(&c->mutex);
    return st == DT_OK ? DT_OK : dt_fail(st, "%s", c->error); // message of the writer's thread, now this thread's error
}
