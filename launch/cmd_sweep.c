// cmd_sweep.c: dtrain sweep CONFIG.yaml key=a,b,c … — the product of the lists, each a run of its own.
//
// Every run is a child process, so one that fails does not end the rest. A run that is finished says so and gives its
// results again, which makes the sweep resumable after any kill without a record of its own.

#include "job.h"
#include "launch.h"
#include "sweep_table.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const launch_command launch_sweep;
enum { JOBS, RANKS };
static const launch_option options[] = {
    [JOBS] = {"--jobs", "N", "runs at a time (1); each gets its share of the cores"},
    [RANKS] = {"--np", "N", "ranks of each run, started with mpirun (1)"},
    {NULL}};

enum { MAX_RUNS = 100000, MAX_RANGE = 10000 };

// ---- key=a,b,c -------------------------------------------------------------------------------------

// The comma that ends the value at text, or the end: not one within brackets or quotes.
static const char *value_end(const char *text) {
    int depth = 0;
    char quote = 0;
    for (; *text; text++) {
        if (quote) {
            if (*text == quote) quote = 0;
        } else if (*text == '\'' || *text == '"') {
            quote = *text;
        } else if (strchr("[{(", *text)) {
            depth++;
        } else if (strchr("]})", *text)) {
            depth--;
        } else if (*text == ',' && depth == 0) {
            break;
        }
    }
    return text;
}

static void add_value(sweep_variable *v, char *value) {
    v->values = dt_xrealloc(v->values, sizeof *v->values * (size_t)(v->n + 1));
    v->values[v->n++] = value;
}

// 0..4 stands for 0,1,2,3,4.
static bool is_range(const char *value, long *first, long *last) {
    int n = 0;
    return sscanf(value, "%ld..%ld%n", first, last, &n) == 2 && value[n] == 0;
}

static dt_status split_values(sweep_variable *v, const char *text) {
    for (const char *end;; text = end + 1) {
        end = value_end(text);
        char *value = dt_xprintf("%.*s", (int)(end - text), text);
        long first, last;
        if (is_range(value, &first, &last)) {
            free(value);
            if (first > last || last - first >= MAX_RANGE)
                return dt_fail(DT_E_USAGE, "%s=%s: expected a range such as 0..4", v->key, text);
            for (long i = first; i <= last; i++) add_value(v, dt_xprintf("%ld", i));
        } else {
            add_value(v, value);
            if (*value == 0 && (v->n > 1 || *end))
                return dt_fail(DT_E_USAGE, "%s: a value between commas is empty", v->key);
        }
        if (*end == 0) return DT_OK;
    }
}

// What the key is called in names of runs: its last part, or all of it where two keys end alike.
static void name_variables(sweep *s) {
    for (int i = 0; i < s->n_variables; i++) {
        const char *dot = strrchr(s->variables[i].key, '.');
        s->variables[i].name = dot ? dot + 1 : s->variables[i].key;
    }
    for (int i = 0; i < s->n_variables; i++)
        for (int k = 0; k < s->n_variables; k++)
            if (k != i && strcmp(s->variables[i].name, s->variables[k].name) == 0)
                s->variables[i].name = s->variables[i].key;
}

static dt_status read_words(sweep *s, const launch_words *w) {
    s->n_runs = 1;
    for (int i = 1; i < w->n_words; i++) {
        const char *equals = strchr(w->words[i], '=');
        if (!equals)
            return dt_fail(DT_E_USAGE, "'%s': after the config come key=value and key=a,b,c",
                           w->words[i]);
        sweep_variable v = {.key = dt_xprintf("%.*s", (int)(equals - w->words[i]), w->words[i])};
        dt_status st = split_values(&v, equals + 1);
        s->variables = dt_xrealloc(s->variables, sizeof v * (size_t)(s->n_variables + 1));
        s->variables[s->n_variables++] = v;
        DT_TRY(st);
        if (v.n > MAX_RUNS / s->n_runs)
            return dt_fail(DT_E_USAGE, "the lists have more than %d combinations", MAX_RUNS);
        s->n_runs *= v.n;
    }
    name_variables(s);
    return DT_OK;
}

// ---- the runs --------------------------------------------------------------------------------------

// "fold=0,lr=1e-3": what the run's directory is called. A slash or a leading dot would be no name.
static char *run_name(const sweep *s, int run) {
    char *name = dt_xprintf("%s", "");
    for (int i = 0; i < s->n_variables; i++) {
        if (s->variables[i].n < 2) continue;
        char *longer = dt_xprintf("%s%s%s=%s", name, *name ? "," : "", s->variables[i].name,
                                  sweep_value(s, run, i));
        free(name);
        name = longer;
    }
    for (char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("=,.+-_", *p)) *p = '_';
    return name;
}

// The words behind `dtrain` that make the run: train CONFIG key=value … run.dir=… run.name=…
static char **run_words(const sweep *s, int run) {
    char **words = dt_xcalloc((size_t)s->n_variables + 5, sizeof *words);
    int n = 0;
    words[n++] = dt_xprintf("train");
    words[n++] = dt_xprintf("%s", s->config);
    for (int i = 0; i < s->n_variables; i++)
        words[n++] = dt_xprintf("%s=%s", s->variables[i].key, sweep_value(s, run, i));
    words[n++] = dt_xprintf("run.dir='%s'", s->dir);
    words[n] = dt_xprintf("run.name='%s'", s->runs[run].name);
    return words;
}

static void free_words(char **words) {
    for (int i = 0; words[i]; i++) free(words[i]);
    free(words);
}

// A mistake in any combination is found before the first run starts. Takes what the table needs to know.
static dt_status check_runs(sweep *s) {
    s->runs = dt_xcalloc((size_t)s->n_runs, sizeof *s->runs);
    for (int r = 0; r < s->n_runs; r++) {
        s->runs[r].name = run_name(s, r);
        for (int k = 0; k < r; k++)
            if (strcmp(s->runs[r].name, s->runs[k].name) == 0)
                return dt_fail(DT_E_USAGE, "two runs would be called %s: a value is given twice",
                               s->runs[r].name);
        char **words = run_words(s, r);
        size_t n = 0;
        while (words[2 + n]) n++;
        dt_config *c = NULL;
        dt_status st = dt_config_load(&c, s->config, (const char *const *)words + 2, n);
        free_words(words);
        if (st != DT_OK) return dt_fail_context(st, "run %s", s->runs[r].name);
        dt_config_destroy(c);
    }
    return DT_OK;
}

static dt_status find_directory(sweep *s) {
    dt_config *c = NULL;
    // lists are no values of their keys, so only what does not vary is read here
    const char **fixed = dt_xcalloc((size_t)s->n_variables + 1, sizeof *fixed);
    size_t n = 0;
    for (int i = 0; i < s->n_variables; i++)
        fixed[n++] = dt_xprintf("%s=%s", s->variables[i].key, s->variables[i].values[0]);
    dt_status st = dt_config_load(&c, s->config, fixed, n);
    for (size_t i = 0; i < n; i++) free((char *)fixed[i]);
    free(fixed);
    DT_TRY(st);
    s->dir = dt_xprintf("%s/%s", dt_config_str(c, "run.dir"), dt_config_str(c, "run.name"));
    dt_config_destroy(c);
    char *own = dt_xprintf("%s/config.yaml", s->dir);
    if (dt_io_exists(own))
        st = dt_fail(DT_E_USAGE, "%s is a run, not a sweep: give the sweep another run.name",
                     s->dir);
    free(own);
    return st;
}

// With one job at a time its messages and live line are shown; several write to a file each.
static dt_status start_run(sweep *s, launch_jobs *jobs, int run, int n_ranks) {
    sweep_run *r = &s->runs[run];
    char **words = run_words(s, run);
    char *output = jobs->n_slots > 1 ? dt_xprintf("%s/%s.log", s->dir, r->name) : NULL;
    int slot = 0;
    dt_info("run %d of %d: %s%s%s", run + 1, s->n_runs, r->name, output ? ", messages in " : "",
            output ? output : "");
    r->begin_s = dt_clock_s();
    const int file =
        open(output ? output : "/dev/null", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const char **argv = launch_rank_words(n_ranks, (const char *const *)words);
    dt_status st = file < 0 ? dt_fail(DT_E_STORAGE, "%s: %s", output, strerror(errno))
                            : launch_jobs_start(jobs, argv, file, output ? file : 2, &slot);
    if (file >= 0) close(file);
    jobs->run[slot] = run;
    free(argv);
    free(output);
    free_words(words);
    return st;
}

static void end_run(sweep *s, const launch_jobs *jobs, int run, int code) {
    sweep_run *r = &s->runs[run];
    r->ended = true;
    r->code = code != 0 && jobs->asked ? DT_E_PREEMPTED : code;
    sweep_read_result(s, run);
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.1f s", dt_clock_s() - r->begin_s);
    if (r->code == DT_OK)
        dt_info("run %d of %d: %s is finished, %s", run + 1, s->n_runs, r->name, seconds);
    else if (r->code != DT_E_PREEMPTED)
        dt_warn("run %d of %d: %s ended with code %d after %s; the others go on", run + 1,
                s->n_runs, r->name, r->code, seconds);
}

static dt_status run_all(sweep *s, int n_jobs, int n_ranks) {
    launch_jobs jobs;
    launch_jobs_init(&jobs, n_jobs);
    dt_status st = DT_OK;
    int next = 0, n_running = 0;
    while (st == DT_OK && (n_running > 0 || (next < s->n_runs && !jobs.asked))) {
        if (n_running < n_jobs && next < s->n_runs && !jobs.asked) {
            st = start_run(s, &jobs, next++, n_ranks);
            n_running++;
            continue;
        }
        int slot, code = 0;
        launch_jobs_wait(&jobs, &slot, &code);
        end_run(s, &jobs, jobs.run[slot], code);
        n_running--;
    }
    bool asked = jobs.asked;
    launch_jobs_fini(&jobs);
    DT_TRY(st);
    DT_TRY(sweep_write_table(s, stdout));
    if (asked) return dt_fail(DT_E_PREEMPTED, "%s: stopped; the same command goes on", s->dir);
    for (int r = 0; r < s->n_runs; r++)
        if (s->runs[r].code != DT_OK)
            return dt_fail((dt_status)s->runs[r].code,
                           "%s: run %s ended with code %d; the same "
                           "command tries it again",
                           s->dir, s->runs[r].name, s->runs[r].code);
    return DT_OK;
}

static void free_sweep(sweep *s) {
    for (int i = 0; i < s->n_variables; i++) {
        for (int k = 0; k < s->variables[i].n; k++) free(s->variables[i].values[k]);
        free(s->variables[i].values);
        free(s->variables[i].key);
    }
    for (int r = 0; s->runs && r < s->n_runs; r++) {
        free(s->runs[r].name);
        json_decref(s->runs[r].result);
    }
    free(s->variables);
    free(s->runs);
    free(s->dir);
}

static dt_status sweep_config(sweep *s, const launch_words *w) {
    int n_jobs, n_ranks;
    DT_TRY(launch_option_int(w, &launch_sweep, JOBS, 1, &n_jobs));
    DT_TRY(launch_option_int(w, &launch_sweep, RANKS, 1, &n_ranks));
    if (n_jobs > LAUNCH_MAX_JOBS) return dt_fail(DT_E_USAGE, "--jobs: at most %d", LAUNCH_MAX_JOBS);
    DT_TRY(read_words(s, w));
    if (s->n_runs < 2)
        return dt_fail(DT_E_USAGE, "nothing varies: give a key several values, as in "
                                   "train.optimizer.lr=1e-3,3e-4 or run.seed=0..4");
    DT_TRY(find_directory(s));
    DT_TRY(check_runs(s));
    DT_TRY(dt_io_mkdir_all(s->dir));
    return run_all(s, n_jobs, n_ranks);
}

static dt_status run(const launch_words *w) {
    if (w->n_words < 1)
        return dt_fail(DT_E_USAGE, "dtrain sweep wants a config; see dtrain sweep --help");
    if (launch_is_rank())
        return dt_fail(DT_E_USAGE, "a sweep starts its ranks itself: dtrain sweep … --np N, "
                                   "without mpirun");
    sweep s = {.config = w->words[0]};
    dt_status st = sweep_config(&s, w);
    free_sweep(&s);
    return st;
}

const launch_command launch_sweep = {
    .options = options,
    .text =
        "Trains every combination of the lists, each in run.dir/run.name/COMBINATION. 0..4 stands\n"
        "for 0,1,2,3,4; a comma within brackets or quotes does not separate. Runs that are\n"
        "finished are not repeated: after a kill the same command goes on. A run that fails does\n"
        "not end the rest.\n\n"
        "stdout gets a table: metrics of the best checkpoint, mean ± standard deviation over "
        "folds\n"
        "and seeds, the best configuration first. sweep.csv has the same, runs.csv each run.\n\n"
        "  dtrain sweep configs/fusion.yaml data.split.folds=5 data.split.fold=0..4\n"
        "  dtrain sweep configs/mnist.yaml train.optimizer.lr=1e-3,3e-4 run.seed=1,2,3 --jobs 2\n",
    .run = run};
