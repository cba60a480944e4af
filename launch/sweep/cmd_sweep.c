// cmd_sweep.c: dtrain sweep CONFIG.yaml key=a,b,c … — the product of the lists, each a run of its own.
//
// Every run is a child process, so one that fails does not end the rest. A run that is finished says so and gives its
// results again, which makes the sweep resumable after any kill without a record of its own.

#include "sweep_table.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "checkpoint/ckpt.h"
#include "data/data.h"
#include "launch/launch.h"
#include "launch/targets/target.h"
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- sweep halving ------------------------------------------------------------------------------------------------

// --early-stop halving: most of the training goes to the settings that do well.
//
// The rungs are those of ASHA (Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, with
// factor 3, scikit-learn's): a third, a ninth, … of each run's steps, as far as an epoch and the number of configurations
// allow. All runs come to a rung, the best third of the configurations goes on, by the mean over folds and seeds of
// --metric at the rung. A run pauses there as at a signal (run.stop_at), so its learning rates are those of the whole run.
// What goes on is a function of the runs' metrics.jsonl: the same command finds its way again after any kill.

enum { FACTOR = 3 };

static dt_status check_halving(const sweep *s) {
    if (s->metric && s->metric_part == DT_SPLIT_VAL) return DT_OK;
    return dt_fail(
        DT_E_USAGE,
        "--early-stop halving needs --metric val.NAME, such as val.accuracy: the metric that selects the runs");
}

typedef struct length {
    int64_t steps, epoch; // of the run; in an epoch
} length;

static dt_status find_length(const sweep *s, int run, length *out) {
    dt_config *c = NULL;
    dt_dataset *data = NULL;
    DT_TRY(dt_sweep_load_config(s, run, &c));
    dt_status st = dt_data_open(&data, c, NULL, 1, NULL);
    if (st == DT_OK) {
        out->epoch = data->n_samples(data, DT_SPLIT_TRAIN) / c->train.global_batch;
        out->steps = dt_run_steps(c, out->epoch);
        if (out->epoch < 1 || out->steps < out->epoch)
            st = dt_config_fail(c, "train.epochs",
                                "--early-stop: train.max_steps ends the run within "
                                "its first epoch");
        data->close(data);
    }
    dt_config_destroy(c);
    return st;
}

// The metric of the validation at the run's rung; NaN: the run has not reached the rung.
static double sweep_halving_value_at(const sweep *s, int run) {
    json_t *line = dt_sweep_validation_at(s, run, s->runs[run].stop_at);
    const json_t *v = json_object_get(line, s->metric);
    const double value = json_is_number(v) ? json_number_value(v) : NAN;
    json_decref(line);
    return value;
}

// Looks at the first validation that a run writes: DT_E_USAGE where --metric is not in it.
static dt_status check_metric(sweep *s) {
    dt_status st = DT_OK;
    for (int r = 0; r < s->n_runs && !s->metric_is_there && st == DT_OK; r++) {
        if (s->runs[r].phase != SWEEP_RUNS) continue;
        json_t *line = dt_sweep_validation_at(s, r, -1);
        const bool is_new = dt_sweep_step_of(line) > s->runs[r].old_step;
        s->metric_is_there = is_new && json_object_get(line, s->metric);
        if (is_new && !s->metric_is_there) st = dt_sweep_fail_metric(s, line);
        json_decref(line);
    }
    return st;
}

static bool is_at_rung(const sweep *s, int run) {
    return s->runs[run].stop_at > 0 && !isnan(sweep_halving_value_at(s, run));
}

typedef struct standing {
    int first; // run of the configuration
    double mean;
} standing;

// The largest first; configurations without a value last, equal ones in their order.
static int sweep_halving_compare(const void *pa, const void *pb) {
    const standing *a = pa, *b = pb;
    if (isnan(a->mean) != isnan(b->mean)) return isnan(a->mean) ? 1 : -1;
    if (a->mean != b->mean && !isnan(a->mean)) return a->mean > b->mean ? -1 : 1;
    return a->first - b->first;
}

// Ends the configurations that are not among the best third of those that came to the rung.
static dt_status drop_rest(sweep *s, int *n_stay) {
    const bool lower = dt_sweep_metric_is_lower(s->metric);
    standing *all = dt_xcalloc((size_t)s->n_runs + 1, sizeof *all);
    int n = 0;
    for (int r = 0; r < s->n_runs; r++) {
        if (s->runs[r].dropped || !dt_sweep_is_first(s, r)) continue;
        double sum = 0;
        int n_runs = 0;
        for (int k = r; k < s->n_runs; k++)
            if (dt_sweep_same_configuration(s, r, k)) sum += sweep_halving_value_at(s, k), n_runs++;
        all[n++] = (standing){r, lower ? -sum / n_runs : sum / n_runs};
    }
    qsort(all, (size_t)n, sizeof *all, sweep_halving_compare);
    *n_stay = n / FACTOR > 0 ? n / FACTOR : 1;
    const bool none = n == 0 || isnan(all[0].mean);
    for (int i = *n_stay; i < n && !none; i++)
        for (int k = 0; k < s->n_runs; k++)
            if (dt_sweep_same_configuration(s, all[i].first, k)) s->runs[k].dropped = true;
    free(all);
    return none ? dt_fail(DT_E_USAGE,
                          "--early-stop: no run has evaluated %s where it pauses: it must be a "
                          "metric of eval.metrics, and eval.every: 1 epoch",
                          s->metric)
                : DT_OK;
}

// Trains each configuration as far as it stays among the best. train: trains all waiting runs, each to its stop_at or
// its end.
static dt_status sweep_halve(sweep *s, dt_status (*train)(sweep *s, void *ctx), void *ctx) {
    length *all = dt_xcalloc((size_t)s->n_runs + 1, sizeof *all);
    int64_t epochs = INT64_MAX; // of the shortest run
    int n = 0, n_rungs = 0;
    dt_status st = DT_OK;
    for (int r = 0; r < s->n_runs && st == DT_OK; r++) {
        st = find_length(s, r, &all[r]);
        if (st == DT_OK && all[r].steps / all[r].epoch < epochs) epochs = all[r].steps / all[r].epoch;
        n += dt_sweep_is_first(s, r);
    }
    for (int64_t e = st == DT_OK ? epochs / FACTOR : 0, k = n / FACTOR; e > 0 && k > 0; e /= FACTOR, k /= FACTOR)
        n_rungs++;
    for (int rung = n_rungs; rung > 0 && st == DT_OK; rung--) {
        int64_t part = 1;
        for (int k = 0; k < rung; k++) part *= FACTOR;
        for (int r = 0; r < s->n_runs; r++) { // whole epochs, at whose ends runs evaluate
            s->runs[r].stop_at = all[r].steps / part / all[r].epoch * all[r].epoch;
            s->runs[r].phase = s->runs[r].dropped ? SWEEP_ENDED : SWEEP_WAITS;
        }
        st = train(s, ctx);
        if (st != DT_OK) break;
        int n_stay = 0;
        st = drop_rest(s, &n_stay);
        if (st != DT_OK) break;
        dt_info("%s: after 1/%lld of the epochs %d of %d configurations continue", s->dir, (long long)part, n_stay, n);
    }
    for (int r = 0; r < s->n_runs && st == DT_OK; r++) {
        s->runs[r].stop_at = 0;
        s->runs[r].phase = s->runs[r].dropped ? SWEEP_ENDED : SWEEP_WAITS;
    }
    free(all);
    return st == DT_OK ? train(s, ctx) : st;
}

// ---- the verb --------------------------------------------------------------------------------------

enum { JOBS, RANKS, METRIC, TOP, EARLY_STOP, TABLE };
static const dt_cli_option options[] = {
    [JOBS] = {"--jobs", "N", "runs at a time, each with its share of cores and GPUs (default 1)"},
    [RANKS] = {"--np", "N", "ranks of each run, started by mpirun (default 1)"},
    [METRIC] = {"--metric", "val.NAME|test.NAME",
                "metric that orders the table (default: eval.best on the validation split)"},
    [TOP] = {"--top", "N", "print only the best N rows; the files have all (default: all)"},
    [EARLY_STOP] = {"--early-stop", "halving",
                    "successive halving: after 1/9, 1/3 … of the epochs only the best third continues"},
    [TABLE] = {"--table", NULL, "do not train; print the table of the finished runs"},
    {NULL}};

// ---- the runs --------------------------------------------------------------------------------------

static off_t byte_of(const dt_sweep_run *r) {
    return (off_t)(dt_hash64(r->name, strlen(r->name)) >> 2);
}

// Makes the run this sweep's, until end_run. False: another sweep of this folder has it, or it is trained otherwise.
static bool sweep_take(const sweep *s, const dt_sweep_run *r) {
    const bool mine = dt_io_lock_byte(s->lock_fd, byte_of(r), F_WRLCK, false);
    if (!mine && (errno == EAGAIN || errno == EACCES)) return false; // else: no locks on this file system
    char *dir = dt_xprintf("%s/%s", s->dir, r->name);
    const bool held = dt_ckpt_is_held(dir);
    free(dir);
    if (held) dt_io_lock_byte(s->lock_fd, byte_of(r), F_UNLCK, false);
    return !held;
}

// The next run that nobody trains; -1: there is none. *n_left: how many have not been started.
static int take_next(const sweep *s, int *n_left) {
    int found = -1;
    *n_left = 0;
    for (int r = 0; r < s->n_runs; r++) {
        if (s->runs[r].phase != SWEEP_WAITS) continue;
        ++*n_left;
        if (found < 0 && sweep_take(s, &s->runs[r])) found = r;
    }
    return found;
}

// With one job at a time its messages and live line are shown; several write to a file each.
static dt_status start_run(sweep *s, dt_cli_jobs *jobs, int run) {
    dt_sweep_run *r = &s->runs[run];
    char **words = dt_sweep_run_words(s, run);
    char *output = jobs->n_slots > 1 ? dt_xprintf("%s/%s.log", s->dir, r->name) : NULL;
    int slot = 0;
    dt_info("run %d of %d: %s%s%s", run + 1, s->n_runs, r->name, output ? ", messages in " : "", output ? output : "");
    json_t *old = s->metric ? dt_sweep_validation_at(s, run, -1) : NULL;
    r->old_step = dt_sweep_step_of(old);
    json_decref(old);
    r->begin_s = dt_clock_s();
    r->phase = SWEEP_RUNS;
    const char **argv = dt_cli_rank_words(jobs->n_ranks, (const char *const *)words);
    int file;
    dt_status st = dt_io_open_append(&file, output ? output : "/dev/null");
    if (st == DT_OK) st = dt_cli_jobs_start(jobs, argv, file, output ? file : 2, &slot);
    if (file >= 0) close(file);
    jobs->run[slot] = run;
    free(argv);
    free(output);
    dt_sweep_free_words(words);
    return st;
}

static void end_run(sweep *s, const dt_cli_jobs *jobs, int run, int code) {
    dt_sweep_run *r = &s->runs[run];
    r->phase = SWEEP_ENDED;
    dt_io_lock_byte(s->lock_fd, byte_of(r), F_UNLCK, false);
    r->code = code != 0 && jobs->asked ? DT_E_PREEMPTED : code;
    // a run that is refused has that of other keys
    if (r->code != DT_E_USAGE && dt_sweep_read_result(s, run) != DT_OK) r->code = DT_E_USAGE;
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.1f s", dt_clock_s() - r->begin_s);
    if (r->stop_at > 0 && r->code == DT_E_PREEMPTED && !jobs->asked) {
        r->code = DT_OK; // it pauses at its rung
        return;
    }
    if (r->code == DT_OK)
        dt_info("run %d of %d: %s is finished, %s", run + 1, s->n_runs, r->name, seconds);
    else if (r->code != DT_E_PREEMPTED)
        dt_warn("run %d of %d: %s ended with code %d after %s; the others continue", run + 1, s->n_runs, r->name,
                r->code, seconds);
}

// Lets all runs save and end. The status, with its message, that is the reason.
static dt_status sweep_give_up(dt_cli_jobs *jobs, dt_status st) {
    int slot, code;
    dt_cli_jobs_save(jobs);
    do dt_cli_jobs_wait(jobs, &slot, &code);
    while (slot >= 0);
    return st;
}

// Trains the runs that wait.
static dt_status train_waiting(sweep *s, void *ctx) {
    enum { LOOK_AGAIN_S = 1 };
    dt_cli_jobs *jobs = ctx;
    dt_status st = DT_OK;
    bool said = false;
    int n_left = s->n_runs, n_running = 0;
    while (st == DT_OK && (n_running > 0 || (n_left > 0 && !jobs->asked))) {
        const bool starts = n_running < jobs->n_slots && n_left > 0 && !jobs->asked;
        const int run = starts ? take_next(s, &n_left) : -1;
        int slot, code = 0;
        if (run >= 0 && is_at_rung(s, run)) {
            s->runs[run].phase = SWEEP_ENDED;
            dt_io_lock_byte(s->lock_fd, byte_of(&s->runs[run]), F_UNLCK, false);
        } else if (run >= 0) {
            st = start_run(s, jobs, run);
            n_running++;
            n_left--;
        } else if (n_running > 0) {
            const bool looks = s->metric && !s->metric_is_there;
            const bool ended = dt_cli_jobs_wait_for(jobs, looks ? LOOK_AGAIN_S : INFINITY, &slot, &code);
            if (looks) st = check_metric(s);
            if (st != DT_OK || !ended) continue;
            end_run(s, jobs, jobs->run[slot], code);
            n_running--;
        } else if (n_left > 0) {
            if (!said)
                dt_info("%s: waiting for %d run%s that other processes train", s->dir, n_left, n_left == 1 ? "" : "s");
            said = true;
            dt_cli_jobs_pause(jobs, LOOK_AGAIN_S);
        }
    }
    if (st != DT_OK) return sweep_give_up(jobs, st);
    if (jobs->asked) return dt_fail(DT_E_PREEMPTED, "%s: stopped; the same command resumes", s->dir);
    return DT_OK;
}

static dt_status sweep_run_all(sweep *s, int n_jobs, int n_ranks, bool halve) {
    dt_cli_jobs jobs;
    dt_config *c = NULL;
    DT_TRY(dt_sweep_load_config(s, 0, &c));
    dt_cli_jobs_init(&jobs, n_jobs);
    jobs.n_ranks = n_ranks;
    jobs.n_gpus = dt_cli_count_gpus(c);
    dt_config_destroy(c);
    dt_status st = halve ? sweep_halve(s, train_waiting, &jobs) : train_waiting(s, &jobs);
    const bool trained = st == DT_OK || st == DT_E_PREEMPTED;
    if (st == DT_OK && dt_sweep_has_folds(s)) st = dt_sweep_pool(s, &jobs);
    dt_cli_jobs_fini(&jobs);
    if (!trained) return st;
    const dt_error_kept why = dt_error_keep();
    DT_TRY(dt_sweep_write_table(s, stdout));
    dt_error_restore(&why);
    if (st != DT_OK) return st;
    for (int r = 0; r < s->n_runs; r++)
        if (s->runs[r].code != DT_OK)
            return dt_fail((dt_status)s->runs[r].code,
                           "%s: run %s ended with code %d; the same "
                           "command tries it again",
                           s->dir, s->runs[r].name, s->runs[r].code);
    return DT_OK;
}

static dt_status show_table(sweep *s, bool halves) {
    int n_missing = 0;
    for (int r = 0; r < s->n_runs; r++) {
        DT_TRY(dt_sweep_read_result(s, r));
        if (dt_sweep_has_result(&s->runs[r])) s->runs[r].phase = SWEEP_ENDED;
        n_missing += !dt_sweep_has_result(&s->runs[r]);
    }
    for (int r = 0; r < s->n_runs && halves && n_missing < s->n_runs; r++)
        s->runs[r].dropped = !dt_sweep_has_result(&s->runs[r]); // or it waits until others are dropped
    DT_TRY(dt_sweep_write_table(s, stdout));
    if (n_missing == 0 || (halves && n_missing < s->n_runs)) return DT_OK;
    return dt_fail(DT_E_CKPT, "%s: %d of %d runs have no result", s->dir, n_missing, s->n_runs);
}

// --metric NAME, val.NAME or test.NAME
static void read_metric(sweep *s, const char *text) {
    s->metric = text;
    s->metric_part = DT_SPLIT_VAL;
    for (int p = DT_SPLIT_VAL; text && p <= DT_SPLIT_TEST; p++) {
        const size_t n = strlen(dt_split_name(p));
        if (strncmp(text, dt_split_name(p), n) != 0 || text[n] != '.') continue;
        s->metric_part = (dt_split)p;
        s->metric = text + n + 1;
    }
}

static dt_status sweep_config(sweep *s, const dt_cli_words *w) {
    int n_jobs, n_ranks;
    DT_TRY(dt_cli_option_int(w, JOBS, 1, &n_jobs));
    DT_TRY(dt_cli_option_int(w, RANKS, 1, &n_ranks));
    if (n_jobs > LAUNCH_MAX_JOBS) return dt_fail(DT_E_USAGE, "--jobs: at most %d", LAUNCH_MAX_JOBS);
    DT_TRY(dt_cli_option_int(w, TOP, 0, &s->top));
    read_metric(s, w->options[METRIC]);
    int way;
    DT_TRY(dt_cli_option_word(w, EARLY_STOP, 0, &way));
    if (w->options[EARLY_STOP]) DT_TRY(check_halving(s));
    DT_TRY(dt_sweep_read(s, w));
    DT_TRY(dt_io_mkdir_all(s->dir));
    if (w->options[TABLE]) return show_table(s, w->options[EARLY_STOP]);
    char *lock = dt_xprintf("%s/sweep.lock", s->dir);
    dt_status st = dt_io_open_update(&s->lock_fd, lock);
    free(lock);
    return st == DT_OK ? sweep_run_all(s, n_jobs, n_ranks, w->options[EARLY_STOP] != NULL) : st;
}

static dt_status sweep_run(const dt_cli_words *w) {
    if (!dt_launcher_may_start_ranks())
        return dt_fail(DT_E_USAGE, "a sweep starts its ranks itself: dtrain sweep … --np N, "
                                   "without mpirun");
    sweep s = {.lock_fd = -1};
    dt_status st = sweep_config(&s, w);
    if (s.lock_fd >= 0) close(s.lock_fd);
    dt_sweep_fini(&s);
    return st;
}

const dt_cli_command dt_cli_sweep = {
    .options = options,
    .text =
        "Trains every combination of the listed values, each in run.dir/run.name/COMBINATION. 0..4 means 0,1,2,3,4. A "
        "comma inside brackets or quotes does not separate values. log(1e-4,1e-2,8) and uniform(0,0.5,8) draw 8 random "
        "values; several drawn keys are drawn together (random search). Finished runs are not repeated, so the same "
        "command continues after a kill. A failed run does not end the sweep.\n\n"
        "stdout gets a table ordered by validation: eval.best of the best checkpoint on the validation split, then the "
        "test metrics, as mean ± standard deviation over folds and seeds. sweep.csv has the same table, runs.csv a row "
        "per run. Out-of-fold predictions are pooled: predictions.csv has them, pooled.json their accuracy, report and "
        "confusion matrix.\n\n"
        "  dtrain sweep configs/fusion.yaml data.split.folds=5 data.split.fold=0..4\n"
        "  dtrain sweep configs/mnist.yaml train.optimizer.lr=1e-3,3e-4 run.seed=1,2,3 --jobs 2\n"
        "  dtrain sweep configs/mnist.yaml 'train.optimizer.lr=log(1e-4,1e-2,8)' --top 3 \\\n"
        "      --early-stop halving --metric val.accuracy\n",
    .run = sweep_run};
