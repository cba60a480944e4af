// ckpt_mirror.c: a run's folder in a bucket, which follows the one on the disk.
//
// A mirror is brought up to date, whatever it lacks: files of the run that changed, the best checkpoint, the newest one.
// Nothing is queued: what failed, or was left out because the next save came first, is looked at again the next time, also
// by the next process. A bucket has neither renames nor locks. So
//   - a checkpoint's manifest comes last, and goes first where one is replaced or removed: a step with a manifest is whole;
//   - the best comes before the newest, whose history names it;
//   - `lock` holds the text of RUN/lock of the process that began last. Another one that is still there sends nothing more:
//     it looks there before each file that it sends, and before it removes any.
// While a step is sent it is not removed here.
#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/thread.h"
#include "ckpt_internal.h"
#include "store/blob.h"
#include "store/s3.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 64 << 20 };

typedef struct sent_file { // of the run, as it was sent last
    char *name;
    uint64_t n_bytes, version; // time of change in ns (store/blob.h); both equal: not sent again
} sent_file;

typedef struct dt_ckpt_mirror {
    // url: of the run's folder, without a slash at the end; run: the same on the disk
    char *url, *run;
    bool wait; // checkpoint.mirror_wait: saves return after the upload
    sent_file *files;
    int n_files;
    atomic_bool stop; // set by close, read by uploads between parts

    pthread_t thread;
    bool thread_runs;      // false: `wait`, or the thread did not start
    pthread_mutex_t mutex; // guards what follows
    pthread_cond_t changed;
    bool wanted, busy, quit; // wanted: something new to send; busy: sending; quit: end the thread
    int64_t newest, best;    // steps that the mirror is to hold; -1: none
    int64_t fresh;           // one that was written since it was sent; -1: none
    int64_t sending[2];      // -1: none
    double seconds;          // of the last upload of a fresh step
    dt_ckpt_known intact;    // of the thread that sends
} dt_ckpt_mirror;

// ---- what is there ---------------------------------------------------------------------------------

dt_status dt_ckpt_mirror_steps(const char *dir, int64_t **steps, int *n) {
    // a step counts if its manifest is there, since that is uploaded last
    char *prefix = dt_xprintf("%s/", dir), **names;
    size_t n_names;
    const dt_status st = dt_s3_list_below(&names, &n_names, prefix);
    for (size_t i = 0; i < n_names; i++) {              // step-N/manifest.json becomes step-N
        char *rest = names[i] + strcspn(names[i], "/"); // past the step's name
        if (strcmp(rest, "/manifest.json") == 0) *rest = '\0';
    }
    *steps = NULL;
    *n = 0;
    if (st == DT_OK) *steps = dt_ckpt_steps_of_names(names, n_names, n); // drops names that are no step
    dt_io_free_list(names, n_names);
    free(prefix);
    return st;
}

static bool is_sent(const char *name) {                                           // of the run's folder
    return name[0] != '.' && !strstr(name, ".tmp.") && strcmp(name, "lock") != 0; // temporaries and the lock stay local
}

// ---- fetching --------------------------------------------------------------------------------------

// Of a start: what the server refuses is no error of a data set.
static dt_status of_server(dt_status st, const char *url) {
    if (st == DT_OK) return st;
    // 403 and the like: storage, so that the exit code is 5
    return dt_fail_context(st == DT_E_DATA ? DT_E_STORAGE : st, "the mirror %s", url);
}

static dt_status fetch_file(const char *to, const char *from, const char *name) {
    char *path = dt_xprintf("%s/%s", to, name), *url = dt_xprintf("%s/%s", from, name);
    const dt_status st = dt_s3_get(path, url);
    free(url);
    free(path);
    return st;
}

// state.json, and if this is the run's the other files, into the folder `temp`.
static dt_status fetch_files(const dt_ckpt_from *from, const char *temp, const char *url, const dt_ckpt_manifest *m,
                             int64_t step) {
    DT_TRY(dt_io_remove_tree(temp));
    DT_TRY(dt_io_mkdir(temp));                   // left by a start that was killed
    DT_TRY(fetch_file(temp, url, "state.json")); // small, and enough to identify the run
    DT_TRY(dt_ckpt_verify_file(temp, dt_ckpt_manifest_find(m, "state.json"), DT_CKPT_HASHES));
    // another run's mirror: refused before gigabytes move
    if (from->belongs) DT_TRY(from->belongs(from->ctx, temp, step));
    if (step <= from->here) return DT_OK; // the local one is as new
    for (int i = 0; i < m->n_files; i++)
        // state.json was fetched above
        if (strcmp(m->files[i].name, "state.json") != 0) DT_TRY(fetch_file(temp, url, m->files[i].name));
    return fetch_file(temp, url, "manifest.json"); // last: a folder without manifest is no checkpoint
}

// Fetches a step into *temp, heap, and verifies it. One that is here already is only checked to be the run's.
static dt_status fetch_step(const dt_ckpt *c, const dt_ckpt_from *from, const char *dir, int64_t step, char **temp) {
    dt_ckpt_manifest m;
    char *url = dt_ckpt_step_path(dir, step);
    *temp = dt_xprintf("%s/.tmp-step-%08" PRId64, c->dir, step);
    dt_status st = dt_ckpt_manifest_read(&m, url);
    if (st == DT_OK) st = fetch_files(from, *temp, url, &m, step);
    // FROM_DISK: what was written reads back
    if (st == DT_OK && step > from->here) st = dt_ckpt_check(c, *temp, step, DT_CKPT_FROM_DISK);
    if (st != DT_OK || step <= from->here) {       // not needed, or not whole
        const dt_error_kept why = dt_error_keep(); // removal may set an error of its own
        dt_io_remove_tree(*temp);
        dt_error_restore(&why);
        free(*temp);
        *temp = NULL;
    }
    dt_ckpt_manifest_fini(&m);
    free(url);
    return st;
}

// The newest one that loads, into *temp; NULL: none is newer than those here. The newest intact one shows whose the mirror
// is, also where it is older.
static dt_status fetch_newest(const dt_ckpt *c, const dt_ckpt_from *from, const char *dir, const int64_t *steps, int n,
                              int64_t *step, char **temp) {
    bool any = false; // steps that were considered
    for (int i = n - 1; i >= 0; i--) {
        if (from->only >= 0 && steps[i] != from->only) continue; // -1: any
        any = true;
        const dt_status st = fetch_step(c, from, dir, steps[i], temp);
        if (st == DT_OK) *step = *temp ? steps[i] : -1;    // *temp NULL: checked only
        if (st != DT_E_CKPT && st != DT_E_DATA) return st; // DT_OK, or a server's failure: older steps would not help
        dt_warn("%s: checkpoint step %" PRId64 " is skipped: %s", from->url, steps[i], dt_error_message());
    }
    if (from->here >= 0 || (!any && from->only < 0)) return DT_OK; // the local checkpoint serves
    if (!any) return dt_fail(DT_E_CKPT, "%s: no checkpoint %" PRId64, from->url, from->only);
    const dt_error_kept why = dt_error_keep(); // the last step's reason
    return dt_fail(DT_E_CKPT, "%s: none of its checkpoints loads (%s)", from->url, why.message);
}

// The best one there, where it is later than the one here and not step `coming`: what only the mirror has would be removed
// with the next save. One that is damaged there is left out.
static dt_status fetch_best(dt_ckpt *c, const dt_ckpt_from *from, const char *dir, int64_t best, int64_t coming) {
    const dt_ckpt_from anyway = {.url = from->url, .here = -1};
    char *temp = NULL, *path = dt_ckpt_step_path(c->dir, best);
    dt_status st = DT_OK;
    if (best > c->best_step && best != coming) {                  // newer best there than here
        if (dt_ckpt_verify(path, DT_CKPT_SIZES, NULL) != DT_OK) { // not here intact
            st = fetch_step(c, &anyway, dir, best, &temp); // `here` -1 and no `belongs`: the run was checked before
            if (st == DT_OK) st = dt_ckpt_put_in_place(c, best, temp, st); // a rename within checkpoints/
        }
        if (st == DT_OK) st = dt_ckpt_best_write(c->dir, best); // after the checkpoint itself
    }
    free(temp);
    free(path);
    if (st != DT_E_CKPT && st != DT_E_DATA) return st; // a failing server ends the start; damage does not
    dt_warn("%s: the best checkpoint, of step %" PRId64 ", is left out: %s", from->url, best, dt_error_message());
    return DT_OK;
}

// The run's files; those here are older.
static dt_status fetch_run(const char *run, const char *url) {
    char *prefix = dt_xprintf("%s/", url), **names;
    size_t n;
    dt_status st = dt_s3_list(&names, &n, prefix);
    for (size_t i = 0; st == DT_OK && i < n; i++)
        // files directly in the run's folder
        if (is_sent(names[i]) && !strchr(names[i], '/')) st = fetch_file(run, url, names[i]);
    dt_io_free_list(names, n);
    free(prefix);
    return st;
}

// The newest one gets its name last: what was fetched for it is here then.
dt_status dt_ckpt_fetch(dt_ckpt *c, const dt_ckpt_from *from, int64_t *step) {
    char *dir = dt_xprintf("%s/checkpoints", from->url), *run = dt_io_parent(c->dir), *temp = NULL;
    int64_t *steps = NULL, best = -1;
    int n = 0;
    *step = -1;
    dt_status st = dt_ckpt_mirror_steps(dir, &steps, &n);
    if (st == DT_OK) st = fetch_newest(c, from, dir, steps, n, step, &temp);
    // only for a start from the newest: an explicit step takes no best along
    if (st == DT_OK && from->only < 0 && (temp || c->best_step < 0) && n > 0) {
        while (n > 0 && steps[n - 1] > (temp ? *step : from->here)) n--; // damaged
        st = dt_ckpt_best_step(dir, steps, n, DT_CKPT_SIZES, NULL, false, &best);
        if (st == DT_OK) st = fetch_best(c, from, dir, best, *step);
    }
    if (temp) {
        // metrics and log first, the checkpoint last: a start that is killed fetches again
        if (st == DT_OK) st = fetch_run(run, from->url);
        st = dt_ckpt_put_in_place(c, *step, temp, st);
        // best.json never names a step that is not here
        if (st == DT_OK && best == *step) st = dt_ckpt_best_write(c->dir, best);
    }
    free(temp);
    free(steps);
    free(run);
    free(dir);
    return st == DT_E_USAGE || st == DT_E_CKPT ? st : of_server(st, from->url);
}

// ---- sending ---------------------------------------------------------------------------------------

// The text of `file` in the mirror, heap; NULL: it is not there.
static dt_status read_there(char **text, size_t *n, const dt_ckpt_mirror *m, const char *file) {
    char *url = dt_xprintf("%s/%s", m->url, file);
    const dt_status st = dt_blob_read_all(text, n, url, MAX_TEXT, true); // true: absent is no error, *text NULL
    free(url);
    return st;
}

static dt_status check_holder(const dt_ckpt *c) {
    char *mine = NULL, *theirs = NULL;
    size_t n, n_theirs;
    dt_status st = dt_ckpt_check_lock(c); // the local folder may have been replaced as well
    if (st == DT_OK) st = dt_io_read_own(&mine, &n, c->lock_path, 4096, DT_E_STORAGE);
    if (st == DT_OK) st = read_there(&theirs, &n_theirs, c->mirror, "lock");
    if (st == DT_OK && theirs && strcmp(mine, theirs) != 0) // an absent lock was removed by hand: go on
        st = dt_fail(DT_E_STORAGE,
                     "%s: another dtrain (%.*s) writes to this mirror since: this one sends nothing "
                     "more; end one of them",
                     c->mirror->url, (int)strcspn(theirs, "\n"), theirs); // the first line names the process
    free(mine);
    free(theirs);
    return st;
}

// Files of two processes make no checkpoint.
static dt_status put_file(const dt_ckpt *c, const char *url, const char *dir, const char *name) {
    DT_TRY(check_holder(c));
    // false: the file stays here
    return dt_s3_put_files(url, dir, &name, 1, false, &c->mirror->stop);
}

static dt_status ckpt_mirror_send_file(const dt_ckpt *c, const char *name, const char *path) {
    dt_ckpt_mirror *m = c->mirror;
    sent_file *f = m->files;
    dt_blob b;
    while (f < m->files + m->n_files && strcmp(f->name, name) != 0) f++; // a handful of files
    if (dt_blob_open(&b, path) != DT_OK) return DT_OK;                   // gone meanwhile, or no file
    // read before the upload: a change meanwhile is sent the next time
    const sent_file now = {NULL, b.n_bytes, b.version};
    dt_blob_close(&b);
    // first time of this process: sent whatever the server has
    if (f == m->files + m->n_files) {
        m->files = dt_xrealloc(m->files, (size_t)(m->n_files + 1) * sizeof *m->files);
        f = &m->files[m->n_files++];
        *f = (sent_file){.name = dt_xstrdup(name)};
    } else if (f->n_bytes == now.n_bytes && f->version == now.version)
        return DT_OK;
    DT_TRY(put_file(c, m->url, m->run, name)); // on failure the old version stays noted, so it is sent again
    f->n_bytes = now.n_bytes;
    f->version = now.version;
    return DT_OK;
}

static dt_status ckpt_mirror_send_files(const dt_ckpt *c) {
    const dt_ckpt_mirror *m = c->mirror;
    char **names;
    size_t n;
    dt_status st = DT_OK;
    DT_TRY(dt_io_list_dir(&names, &n, m->run, DT_E_STORAGE));
    for (size_t i = 0; st == DT_OK && i < n; i++) { // metrics.jsonl, log, report and so on
        char *path = dt_xprintf("%s/%s", m->run, names[i]);
        if (is_sent(names[i]) && !dt_io_is_dir(path)) st = ckpt_mirror_send_file(c, names[i], path);
        free(path);
    }
    dt_io_free_list(names, n);
    return st;
}

// Sends a step whose manifest there is another one than here, that is damaged there, or that was written anew.
static dt_status send_step(const dt_ckpt *c, int64_t step, bool fresh) {
    const dt_ckpt_mirror *m = c->mirror;
    dt_ckpt_manifest manifest = {0};
    char *path = dt_ckpt_step_path(c->dir, step), *mine = NULL, *theirs = NULL;
    char *place = dt_xprintf("checkpoints/%s", dt_path_base(path));
    char *file = dt_xprintf("%s/manifest.json", place), *here = dt_xprintf("%s/manifest.json", path);
    char *url = dt_xprintf("%s/%s", m->url, place), *last = dt_xprintf("%s/%s", m->url, file);
    size_t n, n_theirs;
    // `theirs` NULL: not uploaded, or not finished
    dt_status st = dt_ckpt_manifest_read(&manifest, path);
    if (st == DT_OK) st = dt_io_read_own(&mine, &n, here, MAX_TEXT, DT_E_CKPT);
    if (st == DT_OK) st = read_there(&theirs, &n_theirs, m, file);
    // fresh: same text, other bytes are possible where a save was repeated
    bool sends = fresh || !theirs || strcmp(mine, theirs) != 0;
    if (st == DT_OK && !sends) {
        st = dt_ckpt_verify(url, DT_CKPT_SIZES, NULL); // sizes only: no download of tensors
        sends = st == DT_E_CKPT;                       // damaged there; other failures end the upload
        if (sends) st = DT_OK;
    }
    if (st == DT_OK && sends && theirs) { // until the new manifest, the step is no checkpoint there
        st = check_holder(c);
        if (st == DT_OK) st = dt_s3_remove(last, &m->stop);
    }
    for (int i = 0; st == DT_OK && sends && i < manifest.n_files; i++) // state and tensors; the manifest comes below
        st = put_file(c, url, path, manifest.files[i].name);
    char *now = NULL; // what the manifest is here now: the step may have been written anew meanwhile
    if (st == DT_OK && sends) st = dt_io_read_own(&now, &n, here, MAX_TEXT, DT_E_CKPT);
    // a mix of two saves must get no manifest
    if (now && strcmp(now, mine) != 0) st = dt_fail(DT_E_STORAGE, "%s was written anew while it was sent", path);
    free(now);
    if (st == DT_OK && sends) st = put_file(c, url, path, "manifest.json");
    dt_ckpt_manifest_fini(&manifest);
    free(mine);
    free(theirs);
    free(last);
    free(url);
    free(here);
    free(file);
    free(place);
    free(path);
    return st;
}

// Where the steps begin that stay behind the newest one, as many as ckpt_save.c keeps here: damaged ones do not count.
static int find_kept(const dt_ckpt *c, const char *dir, const int64_t *steps, int n, int64_t newest) {
    dt_ckpt_known intact = {dt_xcalloc((size_t)n + 1, sizeof *intact.looks), 0}; // becomes the list of the next call
    int i = n;
    for (int kept = 1; i > 0 && kept < c->keep; i--) { // the newest counts as one
        if (steps[i - 1] > newest) continue;           // steps above belong to a branch that a resume left
        char *path = dt_ckpt_step_path(dir, steps[i - 1]);
        const uint64_t look = dt_ckpt_look(path);
        const bool sent = steps[i - 1] == newest;
        // known ones cost no request
        if (sent || dt_ckpt_is_known(&c->mirror->intact, look) || dt_ckpt_verify(path, DT_CKPT_SIZES, NULL) == DT_OK) {
            intact.looks[intact.n++] = look; // also the newest, which was verified when sent
            kept += !sent;
        }
        free(path);
    }
    free(c->mirror->intact.looks); // replaces the old list
    c->mirror->intact = intact;
    return i;
}

// Removes what ckpt_save.c would remove here, and what kills left: steps without a manifest. Manifests go first.
static dt_status prune_there(const dt_ckpt *c, int64_t newest, int64_t best) {
    const dt_ckpt_mirror *m = c->mirror;
    char *dir = dt_xprintf("%s/checkpoints", m->url), *prefix = dt_xprintf("%s/", dir), **names;
    int64_t *steps = NULL, step = -1;
    size_t n_names;
    int n = 0;
    dt_status st = dt_s3_list_below(&names, &n_names, prefix);
    if (st == DT_OK) st = dt_ckpt_mirror_steps(dir, &steps, &n); // names with a manifest; the rest are remains
    const int first = st == DT_OK ? find_kept(c, dir, steps, n, newest) : 0; // steps[first …] stay
    for (size_t k = 0; st == DT_OK && k < 2 * n_names; k++) {                // first the manifests
        char *name = names[k % n_names], *rest = strchr(name, '/');
        // pass 0: manifests, pass 1: the other files
        if (!rest || (strcmp(rest, "/manifest.json") == 0) != (k < n_names)) continue;
        *rest = '\0'; // cut for the test, then restored
        // names that are no step stay
        bool stays = !dt_ckpt_step_of_name(name, &step) || step >= newest || step == best;
        *rest = '/';
        for (int i = first; i < n; i++) stays |= steps[i] == step;
        char *url = dt_xprintf("%s%s", prefix, name);
        if (!stays) st = dt_s3_remove(url, &m->stop);
        free(url);
    }
    dt_io_free_list(names, n_names);
    free(steps);
    free(prefix);
    free(dir);
    return st;
}

static dt_status send_best(const dt_ckpt *c) {
    char *url = dt_xprintf("%s/checkpoints", c->mirror->url), *path = dt_xprintf("%s/best.json", c->dir);
    const dt_status st = dt_io_exists(path) ? put_file(c, url, c->dir, "best.json") : DT_OK;
    free(path);
    free(url);
    return st;
}

static dt_status ckpt_mirror_send_all(const dt_ckpt *c, int64_t newest, int64_t best, int64_t fresh) {
    DT_TRY(ckpt_mirror_send_files(c)); // the run's files first: metrics are there when the step is
    // the newest step's history names the best
    if (best >= 0 && best != newest) DT_TRY(send_step(c, best, best == fresh));
    DT_TRY(send_step(c, newest, newest == fresh));
    if (best >= 0) DT_TRY(send_best(c));       // only after the step that it names
    DT_TRY(check_holder(c));                   // removal is for the holder only
    if (prune_there(c, newest, best) != DT_OK) // costs space only: no failure of the save
        dt_warn("%s: older checkpoints could not be removed: %s", c->mirror->url, dt_error_message());
    return DT_OK;
}

// Under the mutex, which is not held while it sends.
static dt_status ckpt_mirror_follow(dt_ckpt *c) {
    dt_ckpt_mirror *m = c->mirror;
    // copies: the next save may change them while the mutex is free
    const int64_t newest = m->newest, best = m->best, fresh = m->fresh;
    m->wanted = false; // before the unlock: a step saved from here on is wanted again
    m->busy = true;
    m->sending[0] = newest;
    m->sending[1] = best;
    pthread_mutex_unlock(&m->mutex); // uploads take minutes
    const double begin_s = dt_clock_s();
    dt_status st = ckpt_mirror_send_all(c, newest, best, fresh);
    char *path = dt_ckpt_step_path(c->dir, newest);
    const bool gone = !dt_io_exists(path); // a newer one is there
    free(path);
    pthread_mutex_lock(&m->mutex);
    if (st == DT_OK && fresh >= 0) {
        m->seconds = dt_clock_s() - begin_s;  // seconds of an upload that had a new step to send
        if (m->fresh == fresh) m->fresh = -1; // a newer fresh one stays
    }
    m->sending[0] = m->sending[1] = -1;
    m->busy = false;
    pthread_cond_broadcast(&m->changed);                  // mirror_end waits for `busy`
    if (st == DT_OK || (gone && m->wanted)) return DT_OK; // a newer step follows anyway
    return dt_fail_context(DT_E_STORAGE, "step %" PRId64 " is on this disk, but not in %s", newest, m->url);
}

static void *mirror_main(void *arg) {
    dt_ckpt *c = arg;
    dt_ckpt_mirror *m = c->mirror;
    dt_thread_name("mirror");
    pthread_mutex_lock(&m->mutex);
    for (;;) {
        // predicate loop: spurious wakeups, and other waiters share the condition
        while ((!m->wanted || m->busy) && !m->quit) pthread_cond_wait(&m->changed, &m->mutex);
        if (m->quit) break;
        if (ckpt_mirror_follow(c) != DT_OK && !m->quit) // not fatal: the run trains on without its mirror
            dt_warn("%s; it is sent with the next checkpoint, or by the same command again", dt_error_message());
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

dt_status dt_ckpt_mirror_saved(dt_ckpt *c, bool written) {
    dt_ckpt_mirror *m = c->mirror;
    dt_status st = DT_OK;
    if (!m) return DT_OK;
    pthread_mutex_lock(&m->mutex);
    m->newest = c->step;
    m->best = c->best_step;
    if (written) m->fresh = c->step; // else only best or run files changed
    m->wanted = true;
    pthread_cond_broadcast(&m->changed);
    if (m->wait) st = ckpt_mirror_follow(c); // in the writer's thread: with `wait` the mirror has none of its own
    pthread_mutex_unlock(&m->mutex);
    return st;
}

bool dt_ckpt_mirror_sends(const dt_ckpt *c, int64_t step) {
    dt_ckpt_mirror *m = c->mirror;
    if (!m) return false;
    pthread_mutex_lock(&m->mutex);
    const bool sends = step == m->sending[0] || step == m->sending[1]; // pruning calls this before each removal
    pthread_mutex_unlock(&m->mutex);
    return sends;
}

double dt_ckpt_mirror_seconds(const dt_ckpt *c) {
    dt_ckpt_mirror *m = c->mirror;
    if (!m) return 0;
    pthread_mutex_lock(&m->mutex);
    const double seconds = m->seconds;
    pthread_mutex_unlock(&m->mutex);
    return seconds;
}

// Also checks whether the mirror is writable. first: the run begins at step 0, as nothing was listed; then a lock that
// is not listed either must not be there.
static dt_status send_lock(const dt_ckpt *c, bool first) {
    const dt_ckpt_mirror *m = c->mirror;
    char *prefix = dt_xprintf("%s/", m->url), *url = dt_xprintf("%slock", prefix), *text = NULL;
    char **names = NULL;
    size_t n_names = 0, n;
    dt_status st = first ? dt_s3_list(&names, &n_names, prefix) : DT_OK;
    // whether the listing shows a lock
    for (size_t i = 0; i < n_names; i++) first = first && strcmp(names[i], "lock") != 0;
    if (st == DT_OK && first) st = dt_io_read_own(&text, &n, c->lock_path, 4096, DT_E_STORAGE);
    // If-None-Match: of two first starts one fails
    if (st == DT_OK) st = first ? dt_s3_put_first(url, text, &m->stop) : dt_s3_put(url, c->lock_path, &m->stop);
    dt_io_free_list(names, n_names);
    free(text);
    free(url);
    free(prefix);
    return st;
}

dt_status dt_ckpt_mirror_begin(dt_ckpt *c, const char *url, bool wait, int64_t newest) {
    sigset_t all, old;
    dt_ckpt_mirror *m = c->mirror = dt_xcalloc(1, sizeof *m);
    m->url = dt_xstrdup(url);
    m->run = dt_io_parent(c->dir);
    m->wait = wait;
    m->best = c->best_step;
    m->newest = m->fresh = m->sending[0] = m->sending[1] = -1; // set before the thread starts
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->changed, NULL);
    DT_TRY(of_server(send_lock(c, newest < 0), m->url)); // may refuse the start
    m->newest = newest;                                  // not before: a mirror that refused is sent nothing at the end
    m->wanted = newest >= 0;
    if (wait) return DT_OK;
    sigfillset(&all);                         // signals are the trainer's
    pthread_sigmask(SIG_SETMASK, &all, &old); // inherited by the new thread
    const int err = pthread_create(&m->thread, NULL, mirror_main, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    m->thread_runs = err == 0;
    return err ? dt_fail(DT_E_INTERNAL, "cannot start the mirror's thread: %s", strerror(err)) : DT_OK;
}

void dt_ckpt_mirror_end(dt_ckpt *c) {
    dt_ckpt_mirror *m = c->mirror;
    if (!m || m->newest < 0) return;                           // refused, or nothing saved yet
    if (dt_ckpt_save_wait(c, NULL) != DT_OK) dt_error_clear(); // its error was reported by the writer
    pthread_mutex_lock(&m->mutex);
    while (m->busy) pthread_cond_wait(&m->changed, &m->mutex);
    const dt_status st = ckpt_mirror_follow(c); // once more: what came during the last upload
    pthread_mutex_unlock(&m->mutex);
    if (st != DT_OK) dt_warn("%s; the same command sends it", dt_error_message());
    dt_ckpt_prune(c); // steps that were held back while they were sent
}

void dt_ckpt_mirror_close(dt_ckpt *c) {
    dt_ckpt_mirror *m = c->mirror;
    if (!m) return;
    atomic_store(&m->stop, true); // ends an upload between parts
    pthread_mutex_lock(&m->mutex);
    m->quit = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    if (m->thread_runs) pthread_join(m->thread, NULL);
    for (int i = 0; i < m->n_files; i++) free(m->files[i].name);
    free(m->files);
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->mutex);
    free(m->intact.looks);
    free(m->url);
    free(m->run);
    free(m);
    c->mirror = NULL;
}
