// synth.c: dtrain synth: data sets made from a seed, byte for byte the same on every run.
//
// A kind is a table entry that says what is written for an item. A team of threads takes items from one counter; a
// file depends on (seed, item) only, so the number of threads and a restart change nothing.
#include "synth.h"

#include "data/file/bytes.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/thread.h"
#include "synth_kinds.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dt_synth_kind *const KINDS[] = {&synth_biometric, &synth_lens, &synth_acoustic, &synth_pose,
                                             &synth_photos};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

const dt_synth_kind *dt_data_synth_kind(int i) {
    return i >= 0 && i < N_KINDS ? KINDS[i] : NULL;
}

// -- work --------------------------------------------------------------------------------------
typedef struct team_job {
    dt_synth_job job;
    const dt_synth_kind *kind;
    dt_progress progress; // thread 0's
    _Atomic uint32_t next, done;
    _Atomic int status;  // of the first failure
    dt_error_kept first; // written by the thread that set it
} team_job;

static void synth_work(void *arg, int worker) {
    team_job *t = arg;
    for (;;) {
        uint32_t item = atomic_fetch_add(&t->next, 1);
        if (item >= t->job.n || atomic_load(&t->status) != DT_OK) break;
        dt_status st = t->kind->make(&t->job, item);
        int none = DT_OK;
        if (st != DT_OK && atomic_compare_exchange_strong(&t->status, &none, (int)st)) t->first = dt_error_keep();
        atomic_fetch_add(&t->done, 1);
        if (worker > 0) continue;
        t->progress.n_items = t->done;
        dt_progress_tick(&t->progress);
    }
}

// -- the whole ---------------------------------------------------------------------------------
// A hidden note of the options lies in the directory while and after it is made: the same command again
// makes the same bytes, another one must not mix its files with these.
static dt_status claim_directory(const team_job *t, const char *note_path) {
    const dt_synth_job *j = &t->job;
    char note[256], *old = NULL, **names = NULL;
    size_t n = 0, n_names = 0;
    snprintf(note, sizeof note, "%s 1 %s %u impressions %u seed %llu\n", t->kind->name, t->kind->unit, j->n,
             j->n_impressions, (unsigned long long)j->seed);
    DT_TRY(dt_io_mkdir_all(j->out));
    if (dt_io_exists(note_path)) {
        DT_TRY(dt_io_read_file(&old, &n, note_path, 4096, DT_E_STORAGE));
        bool same = strcmp(old, note) == 0;
        free(old);
        if (same) return DT_OK;
    }
    DT_TRY(dt_io_list_dir(&names, &n_names, j->out, DT_E_STORAGE));
    dt_io_free_list(names, n_names);
    if (n_names > 0)
        return dt_fail(DT_E_USAGE,
                       "%s: not empty and not made with these options; choose another directory or "
                       "remove it",
                       j->out);
    return dt_io_write_file(note_path, note, strlen(note));
}

static dt_status write_table(const team_job *t) {
    const dt_synth_kind *k = t->kind;
    if (!k->table) return DT_OK;
    char *path = dt_xprintf("%s/%s", t->job.out, k->table), line[256];
    dt_buffer text = {0};
    dt_buffer_append(&text, k->header, strlen(k->header));
    for (uint32_t i = 0; i < t->job.n; i++) {
        k->row(&t->job, i, line, sizeof line);
        dt_buffer_append(&text, line, strlen(line));
    }
    dt_status st = dt_synth_write_file(path, text.data, text.n_bytes);
    dt_buffer_fini(&text);
    free(path);
    return st;
}

static dt_status synth_find_kind(const char *name, const dt_synth_kind **out) {
    char list[256] = "";
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(KINDS[i]->name, name) == 0) {
            *out = KINDS[i];
            return DT_OK;
        }
        dt_text_list(list, sizeof list, KINDS[i]->name);
    }
    return dt_fail(DT_E_USAGE, "no synthetic data of kind '%s'; expected one of %s", name, list);
}

dt_status dt_data_synth(const dt_synth_opts *o) {
    char note_path[PATH_MAX];
    team_job t = {.progress = {.on = o->progress, .what = "synth"}};
    DT_TRY(synth_find_kind(o->kind, &t.kind));
    if (o->n < 0 || o->n > 10000000 || o->impressions < 0 || o->impressions > 10000)
        return dt_fail(DT_E_USAGE, "%d %s with %d impressions; expected 1..10000000 and 1..10000", o->n, t.kind->unit,
                       o->impressions);
    if (o->impressions && !t.kind->of_people)
        return dt_fail(DT_E_USAGE,
                       "synth %s: no impressions (of subjects) in this kind: --n says "
                       "how many %s",
                       t.kind->name, t.kind->unit);
    if (strlen(o->out) > PATH_MAX - 256) return dt_fail(DT_E_USAGE, "%s: too long a path", o->out);
    t.job = (dt_synth_job){.out = o->out, .seed = o->seed};
    t.job.n = o->n ? (uint32_t)o->n : t.kind->default_n;
    t.job.n_impressions = o->impressions ? (uint32_t)o->impressions : 10;
    t.progress.items = t.kind->unit;
    t.progress.total_items = t.job.n;
    snprintf(note_path, sizeof note_path, "%s/.synth", o->out);
    DT_TRY(claim_directory(&t, note_path));
    DT_TRY(write_table(&t));
    dt_team *team;
    DT_TRY(dt_team_create(&team, dt_usable_cores(), "synth"));
    dt_progress_begin(&t.progress);
    dt_team_run(team, synth_work, &t);
    dt_team_destroy(team);
    if (t.status != DT_OK) dt_error_restore(&t.first);
    if (t.status != DT_OK) return (dt_status)t.status;
    t.progress.n_items = t.job.n;
    dt_progress_end(&t.progress);
    return DT_OK;
}
