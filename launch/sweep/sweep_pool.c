// sweep_pool.c: what the runs of folds say together, as scikit-learn's cross_val_predict: each record is predicted by the
// run that held it out.
//
// A run's predictions and confusion matrix of its test part come from dtrain predict and dtrain eval, as child
// processes, and stay in its directory, so that the same command makes none twice. Metrics of the pooled matrix are those
// of a table that has it: metric.h's own.

#include "sweep_table.h"

#include "launch/targets/target.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "config/config.h"
#include "data/file/file.h"
#include "metrics/metric.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Of sweep.lock, behind the bytes of runs: who makes what the runs held out.
static const off_t POOL_BYTE = INT64_MAX / 2 + 1;
static const char PREDICTIONS[] = "heldout.csv", FIGURES[] = "heldout.json", CALIBRATION[] = "heldout.calibration.json";

static char *path_of(const sweep *s, int run, const char *file) {
    return dt_xprintf("%s/%s/%s", s->dir, s->runs[run].name, file);
}

bool dt_sweep_has_folds(const sweep *s) {
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i].n > 1 && dt_sweep_is_fold(&s->variables[i])) return true;
    return false;
}

// ---- child processes -------------------------------------------------------------------------------

static dt_status run_words(dt_cli_jobs *jobs, const char *const *words, const char *out) {
    int slot, code;
    const char **argv = dt_cli_rank_words(1, words);
    dt_io_file file;
    dt_status st = dt_io_begin(&file, out);
    if (st == DT_OK) st = dt_cli_jobs_start(jobs, argv, file.fd, STDERR_FILENO, &slot);
    free(argv);
    if (st == DT_OK) {
        dt_cli_jobs_wait(jobs, &slot, &code);
        if (code != 0)
            st = dt_fail(code > 0 && code < 128 ? (dt_status)code : DT_E_INTERNAL, "dtrain %s %s ended with code %d",
                         words[0], words[1], code);
    }
    return dt_io_end(&file, st);
}

// Whether the file was made of the run's result as it is now, and not of an earlier one of a run that was made longer.
static bool sweep_pool_is_made(const sweep *s, int run, const char *path) {
    char *result = path_of(s, run, "result.json");
    struct stat a, b;
    const bool is_newer = stat(path, &a) == 0 && stat(result, &b) == 0 &&
                          (a.st_mtim.tv_sec != b.st_mtim.tv_sec ? a.st_mtim.tv_sec > b.st_mtim.tv_sec
                                                                : a.st_mtim.tv_nsec >= b.st_mtim.tv_nsec);
    free(result);
    return is_newer;
}

// Where eval.threshold is f1, predictions read their thresholds from what calibration writes.
static dt_status sweep_pool_calibrate(dt_cli_jobs *jobs, const sweep *s, int run, const char *dir) {
    char *config = path_of(s, run, "config.yaml"), *done = path_of(s, run, CALIBRATION);
    const char *const words[] = {"eval", dir, "--calibrate", NULL};
    dt_config *c = NULL;
    dt_status st = dt_config_load(&c, config, NULL, 0);
    if (st == DT_OK && c->eval.threshold.is_auto && !sweep_pool_is_made(s, run, done))
        st = run_words(jobs, words, done);
    dt_config_destroy(c);
    free(config);
    free(done);
    return st;
}

// Predictions of the part that the run held out, and its confusion matrix where it has classes.
static dt_status hold_out(dt_cli_jobs *jobs, const sweep *s, int run) {
    char *dir = dt_xprintf("%s/%s", s->dir, s->runs[run].name);
    char *predictions = path_of(s, run, PREDICTIONS), *figures = path_of(s, run, FIGURES);
    const char *const predict[] = {"predict", dir, "--split", dt_split_name(DT_SPLIT_TEST), NULL};
    const char *const eval[] = {"eval", dir, "eval.metrics=[accuracy, confusion]", NULL};
    const bool classes = json_object_get(s->runs[run].lines[DT_SPLIT_TEST], dt_metric_name(DT_METRIC_accuracy)) != NULL;
    dt_status st = sweep_pool_calibrate(jobs, s, run, dir);
    if (st == DT_OK && !sweep_pool_is_made(s, run, predictions)) st = run_words(jobs, predict, predictions);
    if (st == DT_OK && classes && !sweep_pool_is_made(s, run, figures)) st = run_words(jobs, eval, figures);
    free(dir);
    free(predictions);
    free(figures);
    return st;
}

// ---- one table of predictions ----------------------------------------------------------------------

static void sweep_pool_put_values(const sweep *s, int run, bool names, FILE *out) {
    for (int i = 0; i < s->n_variables; i++) {
        const dt_sweep_variable *v = &s->variables[i];
        if (v->n < 2 || !dt_sweep_is_repeat(v)) continue;
        dt_text_print_cell(out, names ? v->name : dt_sweep_value(s, run, i));
        fputc(',', out);
    }
}

// The rows of one run, with the values of fold and seed in front.
static dt_status sweep_pool_put_rows(const sweep *s, int run, bool header, FILE *out) {
    char *path = path_of(s, run, PREDICTIONS), *text = NULL;
    size_t n = 0;
    dt_status st = dt_io_read_file(&text, &n, path, 0, DT_E_CKPT);
    bool quoted = false, begins = true, first = true;
    for (const char *p = text; st == DT_OK && *p; p++) {
        if (begins && (!first || header)) sweep_pool_put_values(s, run, first, out);
        begins = false;
        if (!first || header) fputc(*p, out);
        quoted ^= *p == '"';
        if (*p != '\n' || quoted) continue;
        begins = true;
        first = false;
    }
    free(text);
    free(path);
    return st;
}

// "predictions.csv", or "predictions,lr=1e-3.csv" of several configurations.
static char *table_path(const sweep *s, int run, bool several) {
    char *name = dt_xstrdup("predictions");
    bool odd = false;
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i].n > 1 && !dt_sweep_is_repeat(&s->variables[i]))
            dt_xappend(&name, ",%s=%s", s->variables[i].name, dt_sweep_value(s, run, i));
    for (char *p = name; *p; p++)
        if (*p == '/' || (unsigned char)*p <= ' ') *p = '_', odd = true;
    char *path = several && (odd || strlen(name) > 100) ? dt_xprintf("%s/predictions-%d.csv", s->dir, run)
                                                        : dt_xprintf("%s/%s.csv", s->dir, name);
    free(name);
    return path;
}

// ---- one confusion matrix --------------------------------------------------------------------------

typedef struct matrix {
    const char **names; // of classes, borrowed
    int64_t *count;     // (n, n), by true class and predicted one
    int n;
} matrix;

static int sweep_pool_class_of(matrix *m, const char *name) {
    int k = 0;
    while (k < m->n && strcmp(m->names[k], name) != 0) k++;
    if (k < m->n) return k;
    int64_t *more = dt_xcalloc((size_t)(m->n + 1) * (size_t)(m->n + 1), sizeof *more);
    for (int i = 0; i < m->n; i++)
        for (int j = 0; j < m->n; j++) more[i * (m->n + 1) + j] = m->count[i * m->n + j];
    free(m->count);
    m->count = more;
    m->names = dt_xrealloc(m->names, (size_t)(m->n + 1) * sizeof *m->names);
    m->names[m->n] = name;
    return m->n++;
}

static void add_matrix(matrix *m, const json_t *confusion) {
    const char *is, *said;
    json_t *row, *count;
    json_object_foreach((json_t *)confusion, is, row) sweep_pool_class_of(m, is); // in the classes' order
    json_object_foreach((json_t *)confusion, is, row) {
        json_object_foreach(row, said, count) {
            const int i = sweep_pool_class_of(m, is), k = sweep_pool_class_of(m, said);
            m->count[i * m->n + k] += json_integer_value(count);
        }
    }
}

// Computes the metrics of classes for a table with this matrix.
static json_t *report_matrix(const matrix *m) {
    static const dt_metric_id WANTED[] = {DT_METRIC_accuracy, DT_METRIC_balanced_accuracy, DT_METRIC_macro_f1,
                                          DT_METRIC_report, DT_METRIC_confusion};
    int64_t n = 0;
    for (int i = 0; i < m->n * m->n; i++) n += m->count[i];
    dt_eval_class *classes = dt_xcalloc((size_t)n + 1, sizeof *classes);
    int32_t *labels = dt_xcalloc((size_t)n + 1, sizeof *labels);
    int64_t at = 0;
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < m->n; k++)
            for (int64_t c = 0; c < m->count[i * m->n + k]; c++, at++) {
                labels[at] = i;
                classes[at] = (dt_eval_class){.predicted = k, .rank = k != i};
            }
    const dt_field_info field = {.n_classes = m->n, .class_names = m->names};
    const dt_eval_table t = {.n = n, .n_out = m->n, .classes = classes, .labels = labels, .field = &field};
    dt_eval_result r;
    dt_eval_result_init(&r);
    for (size_t i = 0; i < sizeof WANTED / sizeof *WANTED; i++) dt_metrics_table[WANTED[i]]->report(&t, &r);
    r.n_samples = n;
    dt_json j;
    dt_json_init(&j);
    dt_eval_result_write(&r, "pooled", "best", 0, &j);
    json_t *out = json_loads(j.data, 0, NULL);
    json_object_del(out, "step");
    dt_json_fini(&j);
    dt_eval_result_fini(&r);
    free(classes);
    free(labels);
    return out;
}

// ---- a configuration -------------------------------------------------------------------------------

static dt_status sweep_pool_all(dt_cli_jobs *jobs, sweep *s, int first, bool several) {
    char *text = NULL, *path = table_path(s, first, several);
    size_t n = 0;
    matrix m = {0};
    json_t *kept = json_array(); // owns the class names of the matrix
    FILE *out = open_memstream(&text, &n);
    dt_status st = DT_OK;
    for (int r = first; r < s->n_runs && st == DT_OK; r++) {
        json_error_t error;
        if (!dt_sweep_same_configuration(s, first, r)) continue;
        st = hold_out(jobs, s, r);
        if (st == DT_OK) st = sweep_pool_put_rows(s, r, r == first, out);
        char *figures = path_of(s, r, FIGURES);
        json_t *line = st == DT_OK ? json_load_file(figures, JSON_DISABLE_EOF_CHECK, &error) : NULL;
        free(figures);
        if (!line) continue;
        json_array_append_new(kept, line);
        add_matrix(&m, json_object_get(line, "confusion"));
    }
    fclose(out);
    if (st == DT_OK) st = dt_io_write_file(path, text, n);
    if (st == DT_OK && m.n > 0) s->runs[first].pooled = report_matrix(&m);
    json_decref(kept);
    free(m.names);
    free(m.count);
    free(text);
    free(path);
    return st;
}

static bool sweep_pool_is_whole(const sweep *s, int first) {
    for (int r = first; r < s->n_runs; r++)
        if (dt_sweep_same_configuration(s, first, r) && !s->runs[r].lines[DT_SPLIT_TEST]) return false;
    return true;
}

bool dt_sweep_is_first(const sweep *s, int run) {
    int r = 0;
    while (!dt_sweep_same_configuration(s, r, run)) r++;
    return r == run;
}

dt_status dt_sweep_pool(sweep *s, dt_cli_jobs *jobs) {
    dt_json j;
    int n = 0;
    dt_status st = DT_OK;
    while (!dt_io_lock_byte(s->lock_fd, POOL_BYTE, F_WRLCK, false) &&
           (errno == EAGAIN || errno == EACCES)) // another sweep of this folder pools
        if (!dt_cli_jobs_pause(jobs, 1)) return DT_E_PREEMPTED;
    for (int r = 0; r < s->n_runs; r++) n += dt_sweep_is_first(s, r);
    dt_json_init(&j);
    for (int r = 0; r < s->n_runs && st == DT_OK && !jobs->asked; r++) {
        if (!dt_sweep_is_first(s, r) || !sweep_pool_is_whole(s, r)) continue;
        st = sweep_pool_all(jobs, s, r, n > 1);
        if (st != DT_OK || !s->runs[r].pooled) continue;
        char *run = json_dumps(s->runs[r].pooled, JSON_COMPACT);
        dt_json_begin_object(&j, NULL);
        char *path = table_path(s, r, n > 1);
        dt_json_string(&j, "predictions", dt_path_base(path));
        free(path);
        dt_json_raw(&j, "pooled", run);
        dt_json_end_object(&j);
        dt_json_newline(&j);
        free(run);
    }
    if (st == DT_OK && j.n_bytes > 0) {
        char *path = dt_xprintf("%s/pooled.json", s->dir);
        st = dt_io_write_file(path, j.data, j.n_bytes);
        free(path);
    }
    dt_json_fini(&j);
    dt_io_lock_byte(s->lock_fd, POOL_BYTE, F_UNLCK, false);
    return st;
}
