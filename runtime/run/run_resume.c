// run_resume.c: the directory of a run, and the checkpoint in it that a run goes on from or that is evaluated. Rank 0 alone
// sees the directory; the others get the record of the checkpoint. For run.c.
#include "run/run.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "config/words.h"
#include "observe/result_file.h"
#include "run/agree.h"
#include "run/nets.h"
#include "run/schedule.h"
#include "store/s3.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

dt_status dt_run_take_best(dt_open_run *r) {
    dt_run_state *s = &r->record;
    const int64_t was = s->best_step; // as the record has it, which may be older or newer than the disk
    int64_t step;
    DT_TRY(dt_ckpt_best(r->ckpt, &step));
    if (step == was) return DT_OK; // -1 both: there is none
    s->best_step = -1;
    s->best_value = NAN;
    for (int i = 0; i < s->n_history; i++)
        if (s->history[i].step == step) {
            s->best_step = step;
            s->best_value = s->history[i].value;
        }
    // a step beyond those evaluated is evaluated again, and becomes the best again
    if (step > was) return DT_OK;
    if (s->best_step < 0)
        dt_warn("step %lld was the best and is not on disk: the next evaluation is the best", (long long)was);
    else
        dt_warn("step %lld was the best and is not on disk: step %lld is the best again", (long long)was,
                (long long)step);
    return DT_OK;
}

// ---- a run that is trained -------------------------------------------------------------------------

// Each start writes RUN/config.yaml. DT_E_USAGE where that is the user's own file.
static dt_status check_given(const dt_open_run *r) {
    char *own = dt_xprintf("%s/config.yaml", r->dir), *begun = dt_xprintf("%s/checkpoints", r->dir);
    dt_status st = DT_OK;
    // the file may be dtrain's from an earlier start of the same run
    if (dt_config_is_users_file(r->config, own, dt_io_exists(begun)))
        st = dt_fail(DT_E_USAGE,
                     "%s was not written by dtrain, and the run's resolved config gets this name: "
                     "move the file out of the run's folder and give its new path",
                     own);
    free(begun);
    free(own);
    return st;
}

// Rank 0: the directory, with its lock and its log.
static dt_status open_directory(dt_open_run *r) {
    const dt_config *c = r->config;
    const bool has_jsonl = dt_words_have(&c->metrics.sinks, DT_SINK_jsonl);
    char *checkpoints = dt_xprintf("%s/checkpoints", r->dir), *log = dt_xprintf("%s/log", r->dir);
    char *metrics = has_jsonl ? dt_xprintf("%s/metrics.jsonl", r->dir) : NULL;
    const dt_ckpt_opts o = {.dir = checkpoints,
                            .keep = (int)c->checkpoint.keep,
                            .async = c->checkpoint.async,
                            .beside = metrics,
                            // a checkpoint whose state.json does not parse is passed over
                            .usable = dt_run_state_check};
    dt_status st = dt_io_mkdir_all(r->dir);
    // the lock: two trainings of one run would overwrite each other
    if (st == DT_OK) st = dt_ckpt_open(&r->ckpt, &o, false);
    if (st == DT_OK) st = dt_log_open(log);
    free(metrics);
    free(log);
    free(checkpoints);
    return st;
}

static bool same_rates(const dt_config *old, const dt_config *given, const dt_run_state *s, int64_t total) {
    dt_schedule a, b;
    dt_schedule_init(&a, old, s->total_steps, s->steps_per_epoch, false);
    dt_schedule_init(&b, given, total, s->steps_per_epoch, false);
    // plateau reads the same history, so equal rates mean equal schedules so far
    for (int64_t i = 0; i < s->step; i++)
        if (dt_schedule_lr(&a, i, s->history, s->n_history) != dt_schedule_lr(&b, i, s->history, s->n_history))
            return false;
    return true;
}

// Whether the steps so far trained what they would have trained in the longer run: a phase may begin at a share of it.
static bool same_phases(const dt_config *c, const dt_run_state *s, int64_t total) {
    dt_phase was[DT_MAX_PHASES], is[DT_MAX_PHASES]; // phases of the shorter and of the longer run
    dt_param_groups groups;
    dt_scales scales;
    bool same = dt_param_groups_read(&groups, c) == DT_OK && dt_scales_read(&scales, c) == DT_OK;
    const int64_t spe = s->steps_per_epoch;
    const int n = same ? dt_phases_list(was, &groups, &scales, s->total_steps, spe) : 0;
    const int m = same ? dt_phases_list(is, &groups, &scales, total, spe) : 0;
    for (int i = 0; i < n || i < m; i++) {
        // a missing phase begins never
        const int64_t a = i < n ? was[i].begin : INT64_MAX, b = i < m ? is[i].begin : INT64_MAX;
        // phases still to come may move
        same &= a == b || (a >= s->step && b >= s->step);
    }
    dt_param_groups_fini(&groups);
    return same;
}

// Whether a run with config `old` may go on, longer, with config `given`: the total grows, the steps that are done would
// have had the same learning rates and trained the same tensors, and no numeric key but train.epochs and train.max_steps
// differs. Where only one of the configs has such a key, the other gets it.
static bool may_grow(dt_config *old, dt_config *given, const dt_run_state *s) {
    const dt_key keys[] = {DT_KEY(train.epochs), DT_KEY(train.max_steps)};
    const char *was, *is;
    const int64_t total = dt_run_steps(given, s->steps_per_epoch);
    // a schedule over a share of the run has other rates with another total
    if (total <= s->total_steps || !same_rates(old, given, s, total) || !same_phases(given, s, total)) return false;
    // both keys may differ: only the total counts
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (dt_config_text(given, keys[i]))
            dt_config_set_same(old, keys[i], given);
        else
            dt_config_set_same(given, keys[i], old);
    }
    return !dt_config_first_difference(old, given, DT_KEY_NUMERIC, &was, &is);
}

// Records and split may lie under other paths: their hashes decide when they are open. NULL: they lie where they did.
static char *align_paths(dt_config *old, const dt_config *given) {
    // each key's name in messages, and the key
    const struct {
        const char *name;
        dt_key key;
    } keys[] = {{DT_KEY_NAME(data.path), DT_KEY(data.path)}, {DT_KEY_NAME(data.split.file), DT_KEY(data.split.file)}};
    char *moved = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!dt_config_moved(old, given, keys[i].name)) continue;
        dt_xappend(&moved, "%s%s", moved ? " and " : "", keys[i].name);
        dt_config_set_same(old, keys[i].key, given);
    }
    return moved;
}

// Whether the config is the one that the run of record s began with, in all that changes numbers. *mirror* of checkpoint.mirror,
// from which the record is: its own text, and what is no error is not said.
static dt_status run_resume_compare_config(dt_open_run *r, const dt_run_state *s, const char *mirror) {
    dt_config *old = dt_config_copy(s->config), *given = dt_config_copy(r->given); // copies: aligning changes them
    const char *was = NULL, *is = NULL;
    dt_status st = DT_OK;
    // resolved values against auto, measured moments against auto
    dt_resolve_align(old, given, &s->resolved);
    free(r->moved);
    r->moved = align_paths(old, given);
    const char *key = dt_config_first_difference(old, given, DT_KEY_NUMERIC, &was, &is);
    const bool longer = key && (strcmp(key, "train.epochs") == 0 || strcmp(key, "train.max_steps") == 0);
    // a mirror of another run must not be fetched over this one
    if (mirror && key && !(longer && may_grow(old, given, s)) && r->config->run.resume != DT_RESUME_force)
        st = dt_fail(DT_E_USAGE,
                     "checkpoint.mirror: %s is of another run: %s was %s there and is %s now. Give this one a mirror "
                     "of its own, restore the value, or continue anyway (run.resume=force)",
                     mirror, key, was, is);
    else if (mirror) // differences that are no error were reported for the local checkpoint
        st = DT_OK;
    else if (longer && may_grow(old, given, s))
        dt_info(
            "%s was %s and is %s now: the run continues; its steps so far are those that the longer run would have had",
            key, was, is);
    else if (key && r->config->run.resume == DT_RESUME_force)
        dt_warn("resuming although %s changed from %s to %s (run.resume=force)", key, was, is);
    else if (key)
        st = dt_fail(DT_E_USAGE,
                     "%s was %s when this run began and is %s now: results would mix both%s. Start another run "
                     "(run.name=…), restore the value, or continue anyway (run.resume=force)",
                     key, was, is,
                     longer ? ", as with the new length the steps that are done would have had other "
                              "learning rates, or other groups or scales"
                            : "");
    if (!mirror) r->extended = key && st == DT_OK; // results are those of the shorter run or of other keys
    dt_config_destroy(old);
    dt_config_destroy(given);
    return st;
}

// checkpoint.mirror, heap: below a prefix each run has its name.
static char *mirror_of(const dt_config *c) {
    const char *url = c->checkpoint.mirror;
    return dt_xprintf("%s%s", url, url[strlen(url) - 1] == '/' ? c->run.name : ""); // "…/": a prefix for many runs
}

// What is asked of a checkpoint in the mirror, before it is fetched.
static dt_status is_of_this_run(void *ctx, const char *folder, int64_t step) {
    dt_open_run *r = ctx;
    dt_run_state there;
    char *text = NULL, *mirror = mirror_of(r->config);
    dt_run_state_init(&there);
    dt_status st = dt_run_state_read(&there, folder, step, &text);
    if (st == DT_OK && r->config->run.resume == DT_RESUME_never)
        st = dt_fail(DT_E_USAGE,
                     "%s has a checkpoint of step %lld and run.resume is never: take another "
                     "checkpoint.mirror, or run.resume=auto",
                     mirror, (long long)step);
    if (st == DT_OK) st = run_resume_compare_config(r, &there, mirror);
    dt_run_state_fini(&there);
    free(text);
    free(mirror);
    return st;
}

// The rule: the newest checkpoint counts, on this disk or in the mirror, which is asked at each start. st: whether one is
// here, of *step (-1: none), which becomes the one that was fetched.
static dt_status look_into_mirror(dt_open_run *r, dt_status st, int64_t *step) {
    const dt_config *c = r->config;
    // E_CKPT: nothing usable here, which the mirror may mend
    if (!c->checkpoint.mirror || (st != DT_OK && st != DT_E_CKPT)) return st;
    const dt_error_kept why = dt_error_keep();
    char *mirror = mirror_of(c), *log = dt_xprintf("%s/log", r->dir);
    // only checkpoints newer than *step are fetched
    const dt_ckpt_from from = {mirror, -1, *step, is_of_this_run, r};
    int64_t fetched = -1;
    dt_s3_configure(&(dt_s3_options){c->data.s3.endpoint, c->data.s3.region, c->data.s3.anonymous});
    const dt_status looked = dt_ckpt_fetch(r->ckpt, &from, &fetched);
    if (looked != DT_OK)
        st = looked;
    else if (fetched < 0)
        dt_error_restore(&why); // nothing newer: the local outcome stands
    else {
        free(r->checkpoint);
        dt_log_close(); // another file has its name now
        st = dt_log_open(log);
        dt_info("%s: step %lld comes from %s", r->dir, (long long)fetched, mirror);
        // the fetched checkpoint becomes the newest on disk
        if (st == DT_OK) st = dt_ckpt_find(r->ckpt, "latest", step, &r->checkpoint);
    }
    free(log);
    free(mirror);
    return st;
}

static dt_status begin_mirror(dt_open_run *r, int64_t step) {
    if (!r->config->checkpoint.mirror) return DT_OK;
    char *mirror = mirror_of(r->config);
    const dt_status st = dt_ckpt_mirror_begin(r->ckpt, mirror, r->config->checkpoint.mirror_wait, step);
    free(mirror);
    return st;
}

// Rank 0: opens the directory, finds the newest checkpoint that loads and reads its record. *text: state.json, or NULL.
static dt_status find_newest(dt_open_run *r, char **text) {
    int64_t step = -1;
    // before anything is written into the folder
    DT_TRY(check_given(r));
    DT_TRY(open_directory(r));
    const dt_status st = dt_ckpt_find(r->ckpt, "latest", &step, &r->checkpoint);
    DT_TRY(look_into_mirror(r, st, &step));
    if (step < 0) return begin_mirror(r, step); // a new run: nothing to compare
    if (r->config->run.resume == DT_RESUME_never)
        return dt_fail(DT_E_USAGE,
                       "%s has a checkpoint of step %lld and run.resume is never: take another "
                       "run.name, or run.resume=auto",
                       r->dir, (long long)step);
    DT_TRY(dt_run_state_read(&r->record, r->checkpoint, step, text));
    // the best checkpoint may have been removed or damaged since
    DT_TRY(dt_run_take_best(r));
    DT_TRY(run_resume_compare_config(r, &r->record, NULL));
    return begin_mirror(r, step);
}

// Whether results of the last step are on disk already; then prints them again. A run that goes on with other keys is
// never finished, because train.epochs may be among them.
static dt_status find_results(dt_open_run *r) {
    int64_t finished = 0;
    char *none = NULL;
    dt_status st = DT_OK;
    if (dt_run_is_root(r) && r->resumed && !r->extended && !r->moved) { // other data decide once they are open
        json_t *records;
        st = dt_result_read(&records, r->dir); // rank 0 has the file
        const json_t *step = json_object_get(dt_result_of_split(records, dt_split_name(DT_SPLIT_TRAIN)), "step");
        if (step && json_integer_value(step) == r->record.step) {
            finished = 1;
            dt_info("%s is finished: %lld steps. Another run: run.name=…", r->dir, (long long)r->record.step);
            dt_result_print(records, r->config->metrics.print_confusion, r->args.results);
        }
        json_decref(records);
    }
    DT_TRY(dt_agree_result(r->comm, st, &none));
    // collective: every rank ends without opening data
    DT_TRY(r->comm->all_reduce_max_i64(r->comm, &finished, 1));
    r->finished = finished;
    return DT_OK;
}

// ---- inference session -----------------------------------------------------------------------------

static dt_status find_asked(const dt_open_run *r, int64_t *step, char **path) {
    char *dir = dt_xprintf("%s/checkpoints", r->dir);
    dt_ckpt_opts o = {.dir = dir, .usable = dt_run_state_check};
    dt_ckpt *k = NULL;
    dt_status st = dt_ckpt_open(&k, &o, true); // read-only: no lock beside a training
    if (st == DT_OK) st = dt_ckpt_find(k, r->request.which, step, path);
    if (st == DT_OK && *step < 0) st = dt_fail(DT_E_CKPT, "%s has no checkpoint yet: train first", dir);
    if (k) dt_ckpt_close(k);
    free(dir);
    return st;
}

// Rank 0. A training that runs beside may remove the checkpoint that was found: then there is a newer one.
static dt_status read_for_inference(dt_open_run *r, char **text) {
    dt_status st;
    int64_t step;
    do {
        free(r->checkpoint);
        free(*text);
        r->checkpoint = *text = NULL; // freed below or by the next round
        dt_run_state_fini(&r->record);
        DT_TRY(find_asked(r, &step, &r->checkpoint));
        st = dt_run_state_read(&r->record, r->checkpoint, step, text);
        // gone: removed by the training's retention; any other failure stands
    } while (st != DT_OK && !dt_io_exists(r->checkpoint));
    return st;
}

dt_status dt_run_find_again(dt_open_run *r) {
    char *text = NULL;
    const dt_status st = read_for_inference(r, &text);
    free(text);
    return st;
}

// int8.json, which rank 0 reads.
static dt_status read_int8(dt_open_run *r) {
    char *text = NULL, *path = dt_int8_path(r->config);
    size_t n = 0;
    dt_status st = dt_run_is_root(r) ? dt_io_read_own(&text, &n, path, 0, DT_E_CKPT) : DT_OK;
    st = dt_agree_result(r->comm, st, &text);
    // the text is the same on all ranks, and so is the outcome
    if (st == DT_OK) st = dt_agree_shared(r->comm, dt_int8_parse(&r->int8, path, text, r->record.step));
    free(text);
    free(path);
    return st;
}

// ---- a teacher -------------------------------------------------------------------------------------

// RUN, RUN@latest or RUN@STEP
static dt_status find_teacher(const char *named, int64_t *step, char **folder) {
    const char *at = dt_io_is_dir(named) ? NULL : strrchr(named, '@'); // a folder's name may contain @
    char *run = at ? dt_xprintf("%.*s", (int)(at - named), named) : dt_xstrdup(named);
    const dt_status st = dt_ckpt_find_in_run(run, at ? at + 1 : NULL, step, folder);
    free(run);
    return st;
}

dt_status dt_run_read_teacher(dt_open_run *r) {
    const dt_config *config = r->config;
    dt_comm *comm = r->comm;
    dt_teacher *t = &r->teacher;
    dt_run_state state;
    char *text = NULL;
    int64_t step;
    dt_status st = DT_OK;
    if (!config->train.teacher) return DT_OK;
    dt_run_state_init(&state);
    if (comm->rank == 0) {
        st = find_teacher(config->train.teacher, &step, &t->folder);
        if (st == DT_OK) st = dt_run_state_read(&state, t->folder, step, &text);
        if (st != DT_OK) st = dt_fail_context(st, "%s: train.teacher", dt_config_where(config, DT_KEY(train.teacher)));
    }
    st = dt_agree_result(comm, st, &text);
    if (st == DT_OK && comm->rank > 0) st = dt_run_state_parse(&state, "state.json", text);
    if (st == DT_OK) {
        t->classes = dt_xstrdup(state.classes);
        t->step = state.step > 0 ? state.step - 1 : 0; // step s was made by the phase of step s - 1
        t->total_steps = state.total_steps;
        t->steps_per_epoch = state.steps_per_epoch;
        t->config = dt_config_copy(state.config); // the record is freed below
    }
    dt_run_state_fini(&state);
    free(text);
    return st;
}

// ---- both ------------------------------------------------------------------------------------------

dt_status dt_run_read_state(dt_open_run *r) {
    const bool inference = r->request.use == DT_RUN_INFERENCE;
    char *text = NULL;
    dt_status st = DT_OK;
    if (dt_run_is_root(r)) st = inference ? read_for_inference(r, &text) : find_newest(r, &text);
    st = dt_agree_result(r->comm, st, &text);
    // rank 0 parsed while it searched
    if (st == DT_OK && text && !dt_run_is_root(r)) st = dt_run_state_parse(&r->record, "state.json", text);
    r->resumed = st == DT_OK && text && !inference; // text: a checkpoint was found
    free(text);
    DT_TRY(st);
    if (!inference) return find_results(r);
    // the config may have auto where the run resolved a size
    if (r->config->train.micro_batch.is_auto) {
        dt_config_set_int(r->config, DT_KEY(train.micro_batch), r->record.resolved.micro_batch);
        r->resolved.micro_batch = r->record.resolved.micro_batch;
    }
    return r->config->model.int8 ? read_int8(r) : DT_OK;
}

// What NCCL may choose among where ranks have a GPU each.
static const char *nccl_algo(const dt_open_run *r) {
    return r->backend->device && r->comm->world_size > 1 ? getenv("NCCL_ALGO") : NULL;
}

dt_status dt_run_check_resumed(dt_open_run *r) {
    dt_run_state *s = &r->record;
    const bool elastic = dt_run_is_elastic(r), root = dt_run_is_root(r);
    const char *described = r->backend->describe(r->backend), *was = s->environment;
    char *now = dt_run_state_environment(described);
    const bool same = dt_run_state_same_environment(s, described); // of what bits depend on: device, ISA, library
    dt_status st = DT_OK;
    if (!same && elastic)
        st = dt_fail(DT_E_USAGE,
                     "this run began on '%s', here is '%s': run.reproducible=elastic promises equal bits, which these "
                     "do not give. Resume there, or start another run with run.reproducible=resume",
                     was, now);
    else if (!same && root)
        dt_warn("this run began on '%s' and continues with '%s': bits will differ%s", was, now,
                s->engines && *s->engines ? ", and engines are chosen anew" : "");
    if (st == DT_OK && s->world_size != r->comm->world_size && !elastic && root)
        dt_warn(
            "this run had %d ranks and continues with %d: bits will differ (run.reproducible=elastic would keep them)",
            s->world_size, r->comm->world_size);
    // sums of floats follow the tree of hosts
    else if (st == DT_OK && s->host_layout_hash != r->comm->host_layout_hash && !elastic && root)
        dt_warn("this run's ranks were spread over hosts in another way: sums are added in another "
                "order, so bits will differ (run.reproducible=elastic would keep them)");
    else if (st == DT_OK && !elastic && root) {
        const char *before = s->nccl_algo ? s->nccl_algo : "", *after = nccl_algo(r) ? nccl_algo(r) : "";
        if (strcmp(before, after) != 0)
            dt_warn("this run began with NCCL_ALGO='%s' and continues with '%s': bits will differ", before, after);
    }
    // from here on the record has today's environment
    free(s->environment);
    s->environment = now;
    DT_TRY(st);
    // the fingerprint covers records, view and split
    if (s->data_fingerprint == r->data->fingerprint) {
        if (r->moved && r->data->hashed)
            dt_info("%s changed: the records are the same by their hashes", r->moved);
        else if (r->moved)
            dt_warn("%s changed, and records of this data set have no hashes: their keys, sizes and "
                    "columns are the same, their bytes were not compared",
                    r->moved);
        return DT_OK;
    }
    if (r->config->run.resume != DT_RESUME_force)
        return dt_fail(DT_E_USAGE,
                       "the data set is not the one this run began with (records, view or split changed%s%s): restore "
                       "it, start another run (run.name=…), or continue anyway (run.resume=force)",
                       r->moved ? ", with " : "", r->moved ? r->moved : "");
    if (root) dt_warn("resuming on a data set that changed (run.resume=force)");
    return DT_OK;
}

void dt_run_fill_state(dt_open_run *r) {
    dt_run_state *s = &r->record;
    dt_backend *b = r->backend;
    s->seed = (uint64_t)r->config->run.seed;
    s->world_size = r->comm->world_size;
    s->host_layout_hash = r->comm->host_layout_hash;
    free(s->nccl_algo);
    s->nccl_algo = nccl_algo(r) ? dt_xstrdup(nccl_algo(r)) : NULL;
    s->data_fingerprint = r->data->fingerprint;
    s->resolved = r->resolved;
    dt_config_destroy(s->config);
    // given, not resolved: a resume compares what the user wrote
    s->config = dt_config_copy(r->given);
    // normalize: auto as numbers, so that later starts do not measure again
    dt_config_take_moments(s->config, r->config, true);
    free(s->version);
    s->version = dt_xstrdup(r->args.version);
    // a resumed run has it from dt_run_check_resumed
    if (!s->environment) s->environment = dt_run_state_environment(b->describe(b));
    free(s->engines);
    s->engines = b->choices ? b->choices(b) : NULL;
    if (r->ckpt) dt_ckpt_set_classes(r->ckpt, s->classes);
}
