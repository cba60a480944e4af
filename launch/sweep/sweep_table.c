// sweep_table.c: see sweep_table.h.

#include "sweep_table.h"

#include "base/core.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "metrics/metric.h"
#include "observe/result_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *dt_sweep_value(const sweep *s, int run, int i) {
    const dt_sweep_variable *v = &s->variables[i];
    for (int k = s->n_variables - 1; k > v->with; k--)
        if (s->variables[k].with == k) run /= s->variables[k].n;
    return v->values[run % v->n];
}

// ---- results ---------------------------------------------------------------------------------------

int64_t dt_sweep_step_of(const json_t *record) {
    return record ? json_integer_value(json_object_get(record, "step")) : -1;
}

// The evaluations in metrics.jsonl of the run: an array, empty where there is no file.
static json_t *read_evaluations(const sweep *s, int run) {
    static const char begin[] = "{\"kind\":\"eval\"";
    char *path = dt_xprintf("%s/%s/metrics.jsonl", s->dir, s->runs[run].name), *line;
    json_t *all = json_array();
    dt_lines lines;
    size_t n;
    const bool there = dt_lines_open(&lines, path, 0);
    while (there && (line = dt_lines_next(&lines, &n)))
        if (strncmp(line, begin, sizeof begin - 1) == 0) json_array_append_new(all, json_loadb(line, n, 0, NULL));
    dt_lines_close(&lines);
    free(path);
    return all;
}

json_t *dt_sweep_validation_at(const sweep *s, int run, int64_t step) {
    json_t *all = read_evaluations(s, run), *found = NULL, *line;
    size_t i;
    json_array_foreach(all, i, line) {
        const char *split = json_string_value(json_object_get(line, "split"));
        if (split && strcmp(split, dt_split_name(DT_SPLIT_VAL)) == 0 && (step < 0 || dt_sweep_step_of(line) == step))
            found = line;
    }
    json_incref(found);
    json_decref(all);
    return found;
}

dt_status dt_sweep_read_result(sweep *s, int run) {
    dt_sweep_run *r = &s->runs[run];
    char *dir = dt_xprintf("%s/%s", s->dir, r->name);
    json_t *all, **val = &r->lines[DT_SPLIT_VAL], **test = &r->lines[DT_SPLIT_TEST];
    const dt_status st = dt_result_read(&all, dir);
    const json_t *train = dt_result_of_split(all, dt_split_name(DT_SPLIT_TRAIN)),
                 *best = json_object_get(train, "chosen_by");
    if (best && !r->best) r->best = dt_xstrdup(json_string_value(best));
    for (int p = DT_SPLIT_VAL; p <= DT_SPLIT_TEST; p++) {
        json_decref(r->lines[p]);
        r->lines[p] = json_incref(dt_result_of_split(all, dt_split_name((dt_split)p)));
    }
    json_decref(all);
    free(dir);
    if (*val && *test && dt_sweep_step_of(*val) != dt_sweep_step_of(*test)) {
        json_decref(*test); // a test of other weights: the best were not tested
        *test = NULL;
    }
    // for the best checkpoint the validation's result has only the metric that chose it
    if (s->metric && *val) {
        json_t *more = dt_sweep_validation_at(s, run, dt_sweep_step_of(*val));
        if (more) json_object_update_missing(*val, more);
        json_decref(more);
    }
    return st;
}

// ---- configurations --------------------------------------------------------------------------------

bool dt_sweep_is_fold(const dt_sweep_variable *v) {
    return strcmp(v->key, DT_KEY_NAME(data.split.fold)) == 0;
}

bool dt_sweep_is_repeat(const dt_sweep_variable *v) {
    return dt_config_is_repeat(v->key);
}

bool dt_sweep_has_result(const dt_sweep_run *r) {
    return r->lines[DT_SPLIT_VAL] || r->lines[DT_SPLIT_TEST];
}

bool dt_sweep_same_configuration(const sweep *s, int a, int b) {
    for (int i = 0; i < s->n_variables; i++)
        if (!dt_sweep_is_repeat(&s->variables[i]) && strcmp(dt_sweep_value(s, a, i), dt_sweep_value(s, b, i)) != 0)
            return false;
    return true;
}

// A number of the results.
typedef struct column {
    dt_split part;
    const char *name; // as in the results
    char *title;      // "val.accuracy"
} column;

typedef struct table {
    const sweep *s;
    column *columns; // the first orders the rows, if `ordered`
    int n_columns;
    bool ordered, lower; // lower is better
    int *rows;           // the first run of each configuration
    int n_rows;
    double *mean, *std; // (n_rows, n_columns)
    int *n_results;     // (n_rows)
} table;

static bool sweep_table_has_part(const sweep *s, dt_split part) {
    bool has = false;
    for (int r = 0; r < s->n_runs; r++) has = has || s->runs[r].lines[part];
    return has;
}

static bool has_results(const sweep *s) {
    return sweep_table_has_part(s, DT_SPLIT_VAL) || sweep_table_has_part(s, DT_SPLIT_TEST);
}

static const json_t *sweep_table_number(const sweep *s, int run, const column *c) {
    const json_t *v = json_object_get(s->runs[run].lines[c->part], c->name);
    return json_is_number(v) ? v : NULL;
}

// Whether a member of a record is a metric.
static bool is_metric(const char *name, const json_t *value) {
    return json_is_number(value) && strcmp(name, "step") != 0 && strcmp(name, "samples") != 0;
}

static void sweep_table_add_column(table *t, dt_split part, const char *name) {
    for (int i = 0; i < t->n_columns; i++)
        if (t->columns[i].part == part && strcmp(t->columns[i].name, name) == 0) return;
    t->columns = dt_xgrow(t->columns, (size_t)t->n_columns, sizeof *t->columns);
    t->columns[t->n_columns++] = (column){part, name, dt_xprintf("%s.%s", dt_split_name(part), name)};
}

bool dt_sweep_metric_is_lower(const char *metric) {
    const char *dot = strrchr(metric, '.');
    for (int i = 0; i < DT_N_METRICS; i++)
        if (strcmp(dt_metric_name((dt_metric_id)i), dot ? dot + 1 : metric) == 0)
            return dt_metrics_table[i]->lower_is_better;
    return false;
}

dt_status dt_sweep_fail_metric(const sweep *s, const json_t *other) {
    char there[512] = "";
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)other, key, value) if (is_metric(key, value)) dt_text_list(there, sizeof there, key);
    return dt_fail(DT_E_USAGE, "--metric %s.%s: no run has it%s%s", dt_split_name(s->metric_part), s->metric,
                   *there ? "; there is " : "", there);
}

// --metric: the column by which rows are ordered.
static dt_status sweep_table_find_metric(table *t) {
    const sweep *s = t->s;
    const json_t *other = NULL;
    for (int r = 0; r < s->n_runs; r++) {
        const json_t *line = s->runs[r].lines[s->metric_part];
        if (is_metric(s->metric, json_object_get(line, s->metric))) {
            sweep_table_add_column(t, s->metric_part, s->metric);
            return DT_OK;
        }
        other = other ? other : line;
    }
    return dt_sweep_fail_metric(s, other);
}

// The metric that chose the best checkpoints comes first and orders the rows. Beside a test it is the only column of
// the validation.
static void sweep_table_find_columns(table *t) {
    const sweep *s = t->s;
    const dt_split by = sweep_table_has_part(s, DT_SPLIT_VAL) ? DT_SPLIT_VAL : DT_SPLIT_TEST;
    const dt_split rest = sweep_table_has_part(s, DT_SPLIT_TEST) ? DT_SPLIT_TEST : DT_SPLIT_VAL;
    for (int r = 0; r < s->n_runs && t->n_columns == 0; r++)
        if (s->runs[r].best && s->runs[r].lines[by]) sweep_table_add_column(t, by, s->runs[r].best);
    t->ordered = t->n_columns > 0;
    t->lower = t->ordered && dt_sweep_metric_is_lower(t->columns[0].name);
    for (int r = 0; r < s->n_runs; r++) {
        const char *name;
        json_t *value;
        json_object_foreach(s->runs[r].lines[rest], name, value) if (is_metric(name, value))
            sweep_table_add_column(t, rest, name);
    }
}

// Mean and sample standard deviation over the runs of a configuration that have the number.
static void sweep_table_measure(const table *t, int row, int at) {
    const sweep *s = t->s;
    double sum = 0, square = 0;
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < s->n_runs; r++) {
            const json_t *v = sweep_table_number(s, r, &t->columns[at]);
            if (!v || !dt_sweep_same_configuration(s, t->rows[row], r)) continue;
            double x = json_number_value(v);
            if (pass == 0)
                sum += x, n++;
            else
                square += (x - sum / n) * (x - sum / n);
        }
    }
    t->mean[row * t->n_columns + at] = n ? sum / n : NAN;
    t->std[row * t->n_columns + at] = n > 1 ? sqrt(square / (n - 1)) : NAN;
}

static void find_rows(table *t) {
    const sweep *s = t->s;
    t->rows = dt_xcalloc((size_t)s->n_runs, sizeof *t->rows);
    t->n_results = dt_xcalloc((size_t)s->n_runs, sizeof *t->n_results);
    for (int r = 0; r < s->n_runs; r++) {
        int row = 0;
        while (row < t->n_rows && !dt_sweep_same_configuration(s, t->rows[row], r)) row++;
        if (row == t->n_rows) t->rows[t->n_rows++] = r;
        t->n_results[row] += dt_sweep_has_result(&s->runs[r]);
    }
    size_t cells = (size_t)t->n_rows * (size_t)t->n_columns + 1;
    t->mean = dt_xcalloc(cells, sizeof *t->mean);
    t->std = dt_xcalloc(cells, sizeof *t->std);
    for (int i = 0; i < t->n_rows; i++)
        for (int m = 0; m < t->n_columns; m++) sweep_table_measure(t, i, m);
}

// Rows best first; those without a number last, others as they come.
static int *order_rows(const table *t) {
    int *order = dt_xcalloc((size_t)t->n_rows + 1, sizeof *order);
    for (int i = 0; i < t->n_rows; i++) {
        int at = i;
        for (; t->ordered && at > 0; at--) {
            double mine = t->mean[i * t->n_columns];
            double above = t->mean[order[at - 1] * t->n_columns];
            bool better = !isnan(mine) && (isnan(above) || (t->lower ? mine < above : mine > above));
            if (!better) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return order;
}

// ---- writing ---------------------------------------------------------------------------------------

static void sweep_table_print_number(FILE *out, double x) {
    char text[DT_REAL_CHARS];
    if (isfinite(x)) fputs(dt_real_text(text, x), out);
}

static void print_title(FILE *out, const char *title, const char *tail) {
    char *text = dt_xprintf("%s%s", title, tail);
    fputc(',', out);
    dt_text_print_cell(out, text);
    free(text);
}

static void print_configurations(const table *t, const int *order, FILE *out) {
    const sweep *s = t->s;
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i].n > 1 && !dt_sweep_is_repeat(&s->variables[i]))
            dt_text_print_cell(out, s->variables[i].key), fputc(',', out);
    fprintf(out, "runs");
    for (int m = 0; m < t->n_columns; m++) {
        print_title(out, t->columns[m].title, "_mean");
        print_title(out, t->columns[m].title, "_std");
    }
    fprintf(out, "\n");
    for (int k = 0; k < t->n_rows; k++) {
        int row = order[k];
        for (int i = 0; i < s->n_variables; i++) {
            if (s->variables[i].n < 2 || dt_sweep_is_repeat(&s->variables[i])) continue;
            dt_text_print_cell(out, dt_sweep_value(s, t->rows[row], i));
            fputc(',', out);
        }
        fprintf(out, "%d", t->n_results[row]);
        for (int m = 0; m < t->n_columns; m++) {
            fputc(',', out);
            sweep_table_print_number(out, t->mean[row * t->n_columns + m]);
            fputc(',', out);
            sweep_table_print_number(out, t->std[row * t->n_columns + m]);
        }
        fputc('\n', out);
    }
}

static void print_runs(const table *t, FILE *out) {
    const sweep *s = t->s;
    fprintf(out, "run");
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i].n > 1) print_title(out, s->variables[i].key, "");
    fprintf(out, ",code,step");
    for (int m = 0; m < t->n_columns; m++) print_title(out, t->columns[m].title, "");
    fprintf(out, "\n");
    for (int r = 0; r < s->n_runs; r++) {
        const dt_sweep_run *run = &s->runs[r];
        if (run->phase != SWEEP_ENDED) continue;
        dt_text_print_cell(out, run->name);
        for (int i = 0; i < s->n_variables; i++) {
            if (s->variables[i].n < 2) continue;
            fputc(',', out);
            dt_text_print_cell(out, dt_sweep_value(s, r, i));
        }
        const json_t *line = run->lines[DT_SPLIT_VAL] ? run->lines[DT_SPLIT_VAL] : run->lines[DT_SPLIT_TEST];
        fprintf(out, ",%d,", run->code);
        if (line) fprintf(out, "%" PRId64, dt_sweep_step_of(line));
        for (int m = 0; m < t->n_columns; m++) {
            const json_t *v = sweep_table_number(s, r, &t->columns[m]);
            fputc(',', out);
            if (v) sweep_table_print_number(out, json_number_value(v));
        }
        fputc('\n', out);
    }
}

// Whether a line shows a column: all in a pipe, in a window those of the metric that orders the rows.
static bool is_shown(const table *t, int m, bool in_window) {
    return !in_window || !t->ordered || strcmp(t->columns[m].name, t->columns[0].name) == 0;
}

// "lr=1e-3  val.accuracy 0.9431 ± 0.0021  test.accuracy 0.94  (5 of 5 runs)"
static void sweep_table_print_text(const table *t, const int *order, FILE *out) {
    static const dt_metric_id POOLED[] = {DT_METRIC_accuracy, DT_METRIC_macro_f1};
    const sweep *s = t->s;
    const bool in_window = isatty(fileno(out));
    int n_shown = 0;
    for (int m = 0; m < t->n_columns; m++) n_shown += is_shown(t, m, in_window);
    for (int k = 0; k < t->n_rows && (s->top == 0 || k < s->top); k++) {
        int row = order[k], n_runs = 0;
        for (int r = 0; r < s->n_runs; r++) n_runs += dt_sweep_same_configuration(s, t->rows[row], r);
        for (int i = 0; i < s->n_variables; i++)
            if (s->variables[i].n > 1 && !dt_sweep_is_repeat(&s->variables[i]))
                dt_text_printf(out, "%s=%s  ", s->variables[i].name, dt_sweep_value(s, t->rows[row], i));
        for (int m = 0; m < t->n_columns; m++) {
            const double mean = t->mean[row * t->n_columns + m], std = t->std[row * t->n_columns + m];
            if (!is_shown(t, m, in_window)) continue;
            dt_text_print(out, t->columns[m].title);
            fprintf(out, isnan(mean) ? " -" : " %.4g", mean);
            if (!isnan(std)) fprintf(out, " ± %.2g", std);
            fputs("  ", out);
        }
        const json_t *pooled = s->runs[t->rows[row]].pooled;
        for (size_t m = 0; pooled && m < sizeof POOLED / sizeof *POOLED; m++)
            dt_text_printf(out, "pooled.%s %.4g  ", dt_metric_name(POOLED[m]),
                           json_number_value(json_object_get(pooled, dt_metric_name(POOLED[m]))));
        if (s->runs[t->rows[row]].dropped)
            fprintf(out, "(dropped)\n");
        else
            fprintf(out, "(%d of %d runs)\n", t->n_results[row], n_runs);
    }
    if (n_shown < t->n_columns) dt_info("%s/sweep.csv has %d more columns", s->dir, t->n_columns - n_shown);
}

static dt_status sweep_table_write_file(const table *t, const int *order, const char *name) {
    char *path = dt_xprintf("%s/%s", t->s->dir, name), *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (order)
        print_configurations(t, order, out);
    else
        print_runs(t, out);
    fclose(out);
    dt_status st = dt_io_write_file(path, text, n);
    free(text);
    free(path);
    return st;
}

dt_status dt_sweep_write_table(const sweep *s, FILE *out) {
    table t = {.s = s};
    dt_status st = s->metric && has_results(s) ? sweep_table_find_metric(&t) : DT_OK;
    if (st != DT_OK) return st;
    sweep_table_find_columns(&t);
    find_rows(&t);
    // a test part that was used for choosing no longer estimates the error on new data
    if (t.ordered && t.columns[0].part == DT_SPLIT_TEST)
        dt_warn("%s: the order is by %s, which is not fit for choosing; %s",
                s->metric ? "--metric" : "no run has a validation split", t.columns[0].title,
                s->metric ? "take one of val" : "give data.split.val");
    int *order = order_rows(&t);
    st = sweep_table_write_file(&t, order, "sweep.csv");
    if (st == DT_OK) st = sweep_table_write_file(&t, NULL, "runs.csv");
    sweep_table_print_text(&t, order, out);
    free(order);
    for (int i = 0; i < t.n_columns; i++) free(t.columns[i].title);
    free(t.columns);
    free(t.rows);
    free(t.mean);
    free(t.std);
    free(t.n_results);
    return st;
}
