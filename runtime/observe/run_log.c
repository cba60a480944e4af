// run_log.c: see run_log.h.
#include "observe/run_log.h"

#include "base/core.h"
#include "base/formats.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "config/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GONE_S = 10, SILENT_S = 120 };
#define MOST_STEPS 9e15 // sums and differences of smaller counts are exact in doubles, and in range of int64_t

// ---- lines of steps --------------------------------------------------------------------------------

// The number at *text; NaN for null and what is none. Behind 15 digits of its own it leaves rounding to strtod.
static double run_log_read_number(const char **text) {
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *s = *text;
    const bool minus = *s == '-';
    uint64_t digits = 0;
    int n = 0, exponent = 0;
    s += minus;
    if (*s < '0' || *s > '9') return NAN;
    // 18 digits fit 64 bits; further ones are left to strtod
    for (; *s >= '0' && *s <= '9' && n<18; s++, n += digits> 0) digits = digits * 10 + (uint64_t)(*s - '0');
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9' && n<18; s++, n += digits> 0, exponent--)
            digits = digits * 10 + (uint64_t)(*s - '0');
    // powers of ten up to 22 are exact in a double; exponents and further digits are left to strtod
    if (*s == 'e' || *s == 'E' || (*s >= '0' && *s <= '9') || exponent < -22) return strtod(*text, (char **)text);
    *text = s;
    return (minus ? -1 : 1) * ((double)digits / power[-exponent]);
}

typedef struct step_line {
    double step, epoch, samples, numbers[DT_RUN_N_NUMBERS]; // NAN: not in the line
    bool skipped;
} step_line;

// Where the value of a member is stored; NULL: the member is not wanted. in_seconds: it is a member of "seconds" or "gpu".
static double *find_member(step_line *line, const char *key, size_t n, bool in_seconds) {
    static const char *const names[DT_RUN_N_NUMBERS] = {[DT_RUN_LOSS] = "loss",
                                                        [DT_RUN_LR] = "lr",
                                                        [DT_RUN_GRAD_NORM] = "grad_norm",
                                                        [DT_RUN_RATE] = "samples_per_s",
                                                        [DT_RUN_STEP_S] = "step",
                                                        [DT_RUN_DATA_S] = "data",
                                                        [DT_RUN_COMPUTE_S] = "compute",
                                                        [DT_RUN_COMM_S] = "comm",
                                                        [DT_RUN_OTHER_S] = "other",
                                                        [DT_RUN_RSS] = "rss",
                                                        [DT_RUN_QUEUE] = "queue",
                                                        [DT_RUN_QUEUE_SLOTS] = "queue_slots",
                                                        [DT_RUN_FORWARD_S] = "forward",
                                                        [DT_RUN_BACKWARD_S] = "backward",
                                                        [DT_RUN_OPTIMIZER_S] = "optimizer",
                                                        [DT_RUN_GPU_UTIL] = "util",
                                                        [DT_RUN_GPU_POWER] = "power_w",
                                                        [DT_RUN_GPU_TEMP] = "temp_c",
                                                        [DT_RUN_GPU_MEM] = "mem_bytes",
                                                        [DT_RUN_GPU_CLOCK] = "sm_mhz"};
    // numbers[] from DT_RUN_STEP_S on are members of "seconds" and "gpu"
    const int begin = in_seconds ? DT_RUN_STEP_S : 0;
    const int end = in_seconds ? DT_RUN_N_NUMBERS : DT_RUN_STEP_S;
    for (int i = begin; i < end; i++)
        if (strncmp(names[i], key, n) == 0 && names[i][n] == '\0') return &line->numbers[i];
    if (in_seconds) return NULL;
    if (n == 4 && memcmp(key, "step", 4) == 0) return &line->step;
    if (n == 5 && memcmp(key, "epoch", 5) == 0) return &line->epoch;
    if (n == 7 && memcmp(key, "samples", 7) == 0) return &line->samples;
    return NULL;
}

// An object whose members are numbers, words and objects of numbers, "seconds" and "gpu". False: the line is cut, or is no such
// object.
static bool scan_step(const char *s, step_line *line) {
    bool in_seconds = false;
    // null stays NAN
    for (int i = 0; i < DT_RUN_N_NUMBERS; i++) line->numbers[i] = NAN;
    line->step = line->epoch = line->samples = NAN;
    line->skipped = false;
    for (s++; *s; s++) {
        if (*s == ',' || *s == ' ') continue;
        // the only good end: a line that was cut has no closing brace
        if (*s == '}' && !in_seconds) return line->step >= 1 && line->step < MOST_STEPS;
        if (*s == '}') {
            in_seconds = false;
            continue;
        }
        const char *key = s + 1, *quote = *s == '"' ? strchr(key, '"') : NULL;
        if (!quote || quote[1] != ':') return false;
        for (s = quote + 2; *s == ' ';) s++;
        if (*s == '{') {
            if (in_seconds) return false;
            in_seconds = true;
            continue;
        }
        if (*s == '"') { // the kind
            s = strchr(s + 1, '"');
            if (!s) return false;
            continue;
        }
        double *value = find_member(line, key, (size_t)(quote - key), in_seconds);
        if (value) *value = run_log_read_number(&s);
        if (*s == 't' && quote - key == 7 && memcmp(key, "skipped", 7) == 0) line->skipped = true;
        while (*s && *s != ',' && *s != '}') s++;
        if (*s != '\0') s--; // the loop goes on with it
    }
    return false;
}

static void run_log_take_step(dt_run_log *r, const step_line *line) {
    r->step = (int64_t)line->step;
    r->epoch = line->epoch;
    // a damaged number counts as 0
    r->samples = line->samples >= 0 && line->samples < MOST_STEPS ? (int64_t)line->samples : 0;
    r->n_steps++;
    r->n_skipped += line->skipped;
    for (int i = 0; i < DT_RUN_N_NUMBERS; i++) {
        dt_series_add(&r->numbers[i], r->step, line->numbers[i]);
        const double s = isfinite(line->numbers[i]) ? line->numbers[i] : 0;
        // the first step apart, as in the run's own summary
        *(r->n_steps == 1 ? &r->phase_first_s[i] : &r->phase_s[i]) += s;
    }
}

// ---- other lines -----------------------------------------------------------------------------------

static dt_run_metric *run_log_find_metric(dt_run_log *r, const char *split, const char *name) {
    for (int k = 0; k < r->n_metrics; k++) { // metrics come in the same order in each evaluation
        // the one behind the last that was found is tried first: a whole evaluation takes one comparison a metric
        const int i = (r->hint + 1 + k) % r->n_metrics;
        dt_run_metric *m = &r->metrics[i];
        if (strcmp(m->name, name) != 0 || strcmp(m->split, split) != 0) continue;
        r->hint = i;
        return m;
    }
    if (r->n_metrics == DT_RUN_METRICS) return NULL; // full: further metrics are not shown
    r->metrics = dt_xgrow(r->metrics, (size_t)r->n_metrics, sizeof *r->metrics);
    r->hint = r->n_metrics++;
    r->metrics[r->hint] = (dt_run_metric){.split = dt_xstrdup(split), .name = dt_xstrdup(name)};
    return &r->metrics[r->hint];
}

static void run_log_take_eval(dt_run_log *r, int64_t step, json_t *record) {
    const char *split = json_string_value(json_object_get(record, "split")), *name;
    json_t *value;
    if (!split) return;
    json_object_foreach(record, name, value) {
        if (!dt_run_is_metric(name, value)) continue;
        dt_run_metric *m = run_log_find_metric(r, split, name);
        if (!m) continue;
        dt_series_add(&m->series, step, json_number_value(value));
        m->step = step;
    }
    int i = 0;
    while (i < r->n_evals && strcmp(json_string_value(json_object_get(r->evals[i], "split")), split) != 0) i++;
    if (i == r->n_evals) {
        if (i == 16) return; // splits are three, and what later versions add
        r->evals = dt_xgrow(r->evals, (size_t)r->n_evals++, sizeof(json_t *));
        r->evals[i] = NULL;
    }
    json_decref(r->evals[i]); // the evaluation before
    r->evals[i] = json_incref(record);
}

// Keeps the newest of records that repeat, and all starts and other events as far as there is room; the first start
// stays.
static void add_event(dt_run_log *r, const char *kind, int64_t step, json_t *record) {
    // warnings of slow ranks and attempts have a history, other kinds a newest one
    const bool repeats = strcmp(kind, "start") != 0 && strcmp(kind, "slow_rank") != 0;
    int i = repeats ? 0 : r->n_events;
    while (i < r->n_events && strcmp(json_string_value(json_object_get(r->events[i].record, "kind")), kind) != 0) i++;
    if (i == r->n_events && i == DT_RUN_EVENTS) {
        // full: the oldest goes, but not the first, which began the run
        json_decref(r->events[1].record);
        memmove(r->events + 1, r->events + 2, sizeof *r->events * (DT_RUN_EVENTS - 2));
        i = --r->n_events;
    }
    if (i == r->n_events) {
        r->events = dt_xgrow(r->events, (size_t)r->n_events++, sizeof *r->events);
        r->events[i].record = NULL;
    }
    json_decref(r->events[i].record);
    r->events[i] = (dt_run_event){step, json_incref(record)};
}

static void take_record(dt_run_log *r, json_t *record) {
    const char *kind = json_string_value(json_object_get(record, "kind"));
    const int64_t step = json_integer_value(json_object_get(record, "step"));
    if (!kind || step < 0 || (double)step >= MOST_STEPS) {
        r->n_bad++; // counted: the report tells of damaged lines
    } else if (strcmp(kind, "eval") == 0) {
        run_log_take_eval(r, step, record);
    } else {
        add_event(r, kind, step, record);
    }
    // borrowed: the record is in events
    r->end = kind && strcmp(kind, "end") == 0 ? record : NULL;
}

static void run_log_take_line(dt_run_log *r, char *line, size_t n) {
    static const char step_begin[] = "{\"kind\":\"step\"";
    step_line step;
    if (strncmp(line, step_begin, sizeof step_begin - 1) == 0) {
        r->end = NULL; // the run went on behind an end
        // by hand: most lines of a run are of steps
        if (scan_step(line, &step))
            run_log_take_step(r, &step);
        else
            r->n_bad++;
        return;
    }
    json_t *record = json_loadb(line, n, 0, NULL);
    if (json_is_object(record))
        take_record(r, record);
    else
        r->n_bad++;
    json_decref(record);
}

// ---- reading ---------------------------------------------------------------------------------------

static void run_log_forget(dt_run_log *r) {
    for (int i = 0; i < DT_RUN_N_NUMBERS; i++) dt_series_fini(&r->numbers[i]);
    for (int i = 0; i < r->n_metrics; i++) {
        dt_series_fini(&r->metrics[i].series);
        free(r->metrics[i].split);
        free(r->metrics[i].name);
    }
    for (int i = 0; i < r->n_evals; i++) json_decref(r->evals[i]);
    for (int i = 0; i < r->n_events; i++) json_decref(r->events[i].record);
    free(r->metrics);
    free(r->evals);
    free(r->events);
    *r = (dt_run_log){.dir = r->dir, .name = r->name, .results = r->results};
}

// Reads the lines behind r->at. The file is opened each time: over NFS that brings what others wrote.
static bool read_on(dt_run_log *r, bool *is_file) {
    char *path = dt_xprintf("%s/metrics.jsonl", r->dir), *line;
    struct stat s;
    dt_lines lines;
    size_t n;
    const off_t before = r->at;
    *is_file = dt_lines_open(&lines, path, r->at) && fstat(lines.fd, &s) == 0;
    if (*is_file) {
        // shorter or another file: the run began anew, or a resume cut it
        if (s.st_size < r->at || (r->at > 0 && s.st_ino != r->inode)) run_log_forget(r);
        r->inode = s.st_ino;
        // seconds since 1970: tells whether the run is alive
        r->written_s = (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
        lines.at = r->at;
        while ((line = dt_lines_next(&lines, &n))) run_log_take_line(r, line, n);
        r->at = lines.at; // behind the last whole line
    }
    dt_lines_close(&lines);
    free(path);
    return r->at != before;
}

bool dt_run_log_read_on(dt_run_log *r) {
    bool is_file;
    const bool had_results = json_array_size(r->results) > 0, is_new = read_on(r, &is_file);
    json_decref(r->results);
    if (dt_result_read(&r->results, r->dir) != DT_OK) dt_error_clear(); // empty: a newer dtrain finished the run
    return is_new || had_results != (json_array_size(r->results) > 0);
}

dt_status dt_run_log_check_record(const char *path, const json_t *record) {
    const char *kind = json_string_value(json_object_get(record, "kind"));
    if (!kind || strcmp(kind, "start") != 0) return DT_OK;
    return dt_format_check(path, json_integer_value(json_object_get(record, "schema")), DT_FORMAT_METRICS,
                           json_string_value(json_object_get(record, "version")));
}

static dt_status check_records(const dt_run_log *r) {
    char *path = dt_xprintf("%s/metrics.jsonl", r->dir);
    dt_status st = DT_OK;
    for (int i = 0; i < r->n_events && st == DT_OK; i++) st = dt_run_log_check_record(path, r->events[i].record);
    free(path);
    return st;
}

dt_status dt_run_log_open(dt_run_log **out, const char *dir) {
    dt_run_log *r = dt_xcalloc(1, sizeof *r);
    bool is_file;
    r->dir = dt_xstrdup(dir);
    for (size_t n = strlen(dir); n > 1 && r->dir[n - 1] == '/';) r->dir[--n] = '\0';
    char *whole = strspn(dt_path_base(r->dir), ".") == strlen(dt_path_base(r->dir)) ? realpath(r->dir, NULL)
                                                                                    : NULL; // of "." and ".."
    r->name = dt_xstrdup(dt_path_base(whole ? whole : r->dir));
    free(whole);
    *out = r;
    DT_TRY(dt_result_read(&r->results, r->dir));
    read_on(r, &is_file);
    if (is_file) return check_records(r);
    return dt_fail(DT_E_USAGE,
                   "%s/metrics.jsonl does not exist: give the directory of a run, such as runs/photos, whose "
                   "metrics.sinks include jsonl",
                   dir);
}

void dt_run_log_close(dt_run_log *r) {
    if (!r) return;
    run_log_forget(r);
    json_decref(r->results);
    free(r->dir);
    free(r->name);
    free(r);
}

// Runs of one name are named by their paths.
static void tell_apart(dt_run_log **runs, int n) {
    for (int i = 0; i < n; i++) {
        int same = 0;
        // itself included
        for (int k = 0; k < n; k++) same += strcmp(dt_path_base(runs[i]->dir), dt_path_base(runs[k]->dir)) == 0;
        if (same == 1) continue;
        free(runs[i]->name);
        runs[i]->name = dt_xstrdup(runs[i]->dir);
    }
}

// Of what does not open: whether it is a run, which a newer dtrain wrote.
static bool is_run(const char *path) {
    char *file = dt_xprintf("%s/metrics.jsonl", path);
    const bool there = dt_io_exists(file);
    free(file);
    return there;
}

// Opens the run at a path, unless it is among the first n_before; else the runs in this folder, as of a sweep. *newer: a
// newer dtrain wrote one of them.
static dt_status open_path(dt_run_log ***all, int *n, int n_before, const char *path, bool is_inner, bool *newer) {
    size_t length = strlen(path), n_names = 0;
    char **names = NULL;
    dt_run_log *r;
    while (length > 1 && path[length - 1] == '/') length--;
    for (int i = 0; i < n_before; i++)
        if (strncmp((*all)[i]->dir, path, length) == 0 && (*all)[i]->dir[length] == '\0') return DT_OK;
    dt_status st = dt_run_log_open(&r, path);
    if (st == DT_OK) {
        *all = dt_xgrow(*all, (size_t)*n, sizeof **all);
        (*all)[(*n)++] = r;
        return DT_OK;
    }
    dt_run_log_close(r);
    *newer = is_run(path);
    if (*newer || is_inner || !dt_io_is_dir(path)) return st;
    const dt_error_kept first = dt_error_keep();
    if (dt_io_list_dir(&names, &n_names, path, DT_E_USAGE) != DT_OK) n_names = 0;
    for (size_t i = 0; i < n_names && !*newer; i++) {
        char *inner = dt_xprintf("%.*s/%s", (int)length, path, names[i]);
        if (open_path(all, n, n_before, inner, true, newer) == DT_OK) st = DT_OK;
        free(inner);
    }
    dt_io_free_list(names, n_names);
    if (!*newer) dt_error_restore(&first);
    return *newer ? DT_E_USAGE : st;
}

dt_status dt_run_log_open_new(dt_run_log ***runs, int *n_runs, const char *const *paths, int n) {
    const int n_before = *n_runs;
    dt_status st = DT_OK;
    bool newer = false;
    for (int i = 0; i < n; i++) {
        st = open_path(runs, n_runs, n_before, paths[i], false, &newer);
        // files and folders that are no runs are passed over, as in runs/sweep/*; a missing path is an error
        if (st != DT_OK && (newer || !dt_io_exists(paths[i]))) return st;
    }
    if (*n_runs == 0) return st; // the last one's error
    dt_error_clear();
    if (*n_runs > n_before) tell_apart(*runs, *n_runs);
    return DT_OK;
}

dt_status dt_run_log_open_all(dt_run_log ***out, int *n_open, const char *const *paths, int n) {
    *out = NULL;
    *n_open = 0;
    return dt_run_log_open_new(out, n_open, paths, n);
}

void dt_run_log_close_all(dt_run_log **runs, int n) {
    for (int i = 0; i < n; i++) dt_run_log_close(runs[i]);
    free(runs);
}

// ---- asking ----------------------------------------------------------------------------------------

bool dt_run_is_metric(const char *name, const json_t *value) {
    return json_is_number(value) && strcmp(name, "step") != 0 && strcmp(name, "time") != 0;
}

bool dt_run_is_detail(const dt_run_log *r, const char *name) {
    const char *dot = strchr(name, '.');
    char *whole = dot ? dt_xprintf("%.*s", (int)(dot - name), name) : NULL;
    bool is_detail = strcmp(name, "samples") == 0;
    for (int i = 0; whole && i < r->n_metrics; i++) is_detail |= strcmp(r->metrics[i].name, whole) == 0;
    free(whole);
    return is_detail;
}

json_t *dt_run_log_eval(const dt_run_log *r, const char *split) {
    for (int i = 0; i < r->n_evals; i++)
        if (strcmp(json_string_value(json_object_get(r->evals[i], "split")), split) == 0) return r->evals[i];
    return NULL;
}

const dt_run_metric *dt_run_log_metric(const dt_run_log *r, const char *split, const char *name) {
    for (int i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, name) == 0 && strcmp(r->metrics[i].split, split) == 0) return &r->metrics[i];
    return NULL;
}

json_t *dt_run_log_event(const dt_run_log *r, const char *kind) {
    for (int i = r->n_events - 1; i >= 0; i--) {
        const char *is = json_string_value(json_object_get(r->events[i].record, "kind"));
        if (strcmp(is, kind) == 0) return r->events[i].record;
    }
    return NULL;
}

double dt_run_own_s(const json_t *data_s, const json_t *compute_s, int i) {
    const double s =
        json_number_value(json_array_get(data_s, (size_t)i)) + json_number_value(json_array_get(compute_s, (size_t)i));
    return s > 0 && s < DT_SERIES_MOST ? s : 0;
}

const char *dt_run_log_chosen_by(const dt_run_log *r) {
    const char *name = json_string_value(json_object_get(dt_run_log_event(r, "start"), "chosen_by"));
    const json_t *train = dt_result_of_split(r->results, dt_split_name(DT_SPLIT_TRAIN));
    return name ? name : json_string_value(json_object_get(train, "chosen_by"));
}

const json_t *dt_run_log_is_lower(const dt_run_log *r) {
    return json_object_get(dt_run_log_event(r, "start"), "lower_is_better");
}

double dt_run_log_best_value(const dt_run_log *r, const char *name, const json_t *lower, int64_t *step) {
    const json_t *line = dt_result_of_split(r->results, dt_split_name(DT_SPLIT_VAL));
    const dt_run_metric *m = dt_run_log_metric(r, dt_split_name(DT_SPLIT_VAL), name);
    const json_t *value = json_object_get(line, name);
    double best = json_is_number(value) ? json_number_value(value) : NAN;
    *step = json_integer_value(json_object_get(line, "step"));
    if (isfinite(best) || !m) return best;
    for (int i = 0; lower && i < m->series.n; i++) {
        const dt_series_point *p = &m->series.points[i];
        const double v = json_is_true(lower) ? p->least : p->most;
        if (isfinite(best) && (json_is_true(lower) ? v >= best : v <= best)) continue;
        best = v;
        *step = p->last;
    }
    if (!lower) *step = m->step;
    return lower ? best : m->series.newest;
}

int64_t dt_run_log_total_steps(const dt_run_log *r) {
    return json_integer_value(json_object_get(dt_run_log_event(r, "start"), "total_steps"));
}

dt_run_status dt_run_log_state(const dt_run_log *r, char *text, size_t cap) {
    static const char stopped[] = "Stopped; the same command resumes";
    const double silent_s = dt_clock_wall_s() - r->written_s;
    const int status = (int)json_integer_value(json_object_get(r->end, "status"));
    const char *message = json_string_value(json_object_get(r->end, "message"));
    if (json_array_size(r->results) > 0) {
        snprintf(text, cap, "Finished");
        return DT_RUN_FINISHED;
    }
    if (r->end && status == DT_OK) { // results could not be written, or were removed
        snprintf(text, cap, "Ended without result.json");
        return DT_RUN_STOPPED;
    }
    if (r->end) {
        snprintf(text, cap, "%s: %s", status == DT_E_PREEMPTED ? stopped : "Failed", message ? message : "no message");
        return status == DT_E_PREEMPTED ? DT_RUN_STOPPED : DT_RUN_FAILED;
    }
    char *lock = dt_xprintf("%s/lock", r->dir);
    const bool gone = silent_s >= GONE_S && dt_io_is_locked(lock) == 0;
    free(lock);
    snprintf(text, cap, "%s", gone ? stopped : "Training");
    if (gone) return DT_RUN_STOPPED;
    if (silent_s < SILENT_S) return DT_RUN_GOES_ON;
    snprintf(text, cap, "No metrics for %.0f min: the run is evaluating, waiting, or was killed", silent_s / 60);
    return DT_RUN_SILENT;
}
