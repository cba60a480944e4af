// sweep_table.c: see sweep_table.h.

#include "sweep_table.h"

#include "base/arena.h"
#include "base/io.h"
#include "config/config.h"
#include "train/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *sweep_value(const sweep *s, int run, int i) {
    for (int k = s->n_variables - 1; k > i; k--) run /= s->variables[k].n;
    return s->variables[i].values[run % s->variables[i].n];
}

// ---- results ---------------------------------------------------------------------------------------

// Lines of result.json: test before validation, the best checkpoint before the last.
static int worth(const json_t *line) {
    const char *split = json_string_value(json_object_get(line, "split"));
    const char *weights = json_string_value(json_object_get(line, "weights"));
    if (!split || !weights) return 0;
    return (strcmp(split, "test") == 0  ? 4
            : strcmp(split, "val") == 0 ? 2
                                        : 0) +
           (strstr(weights, "best") != NULL);
}

void sweep_read_result(sweep *s, int run) {
    char *path = dt_xprintf("%s/%s/result.json", s->dir, s->runs[run].name), *text = NULL;
    size_t n = 0;
    json_t **best = &s->runs[run].result;
    dt_status st = dt_io_exists(path) ? dt_io_read_file(&text, &n, path, 0, DT_E_CKPT) : DT_E_CKPT;
    for (char *p = text, *end; st == DT_OK && *p; p = end) {
        end = strchr(p, '\n') ? strchr(p, '\n') + 1 : p + strlen(p);
        json_t *line = json_loadb(p, (size_t)(end - p), 0, NULL);
        if (line && worth(line) > (*best ? worth(*best) : 0)) {
            json_t *worse = *best;
            *best = line;
            line = worse;
        }
        json_decref(line);
    }
    if (st != DT_OK) dt_error_clear();
    free(text);
    free(path);
}

// ---- configurations --------------------------------------------------------------------------------

// Folds and seeds repeat a configuration; every other key that varies makes another one.
static bool is_repeat(const sweep_variable *v) {
    return strcmp(v->key, "data.split.fold") == 0 || strcmp(v->key, "run.seed") == 0 ||
           strcmp(v->key, "data.split.seed") == 0;
}

static bool same_configuration(const sweep *s, int a, int b) {
    for (int i = 0; i < s->n_variables; i++)
        if (!is_repeat(&s->variables[i]) && strcmp(sweep_value(s, a, i), sweep_value(s, b, i)) != 0)
            return false;
    return true;
}

typedef struct table {
    const sweep *s;
    const char **metrics; // columns, as in the results
    int n_metrics;
    const char *by; // the metric that orders the rows
    bool lower;     // is better
    int *rows;      // the first run of each configuration
    int n_rows;
    double *mean, *std; // (n_rows, n_metrics)
    int *n_results;     // (n_rows)
} table;

static int find_metric(const table *t, const char *name) {
    for (int i = 0; i < t->n_metrics; i++)
        if (strcmp(t->metrics[i], name) == 0) return i;
    return -1;
}

static void find_columns(table *t) {
    for (int r = 0; r < t->s->n_runs; r++) {
        const char *name;
        json_t *value;
        json_object_foreach(t->s->runs[r].result, name, value) {
            if (!json_is_number(value) || find_metric(t, name) >= 0) continue;
            if (strcmp(name, "step") == 0 || strcmp(name, "samples") == 0) continue;
            t->metrics = dt_xrealloc(t->metrics, sizeof *t->metrics * (size_t)(t->n_metrics + 1));
            t->metrics[t->n_metrics++] = name;
        }
    }
}

// What `eval.best: auto` takes: the first of these that the runs have.
static const char *automatic(const table *t) {
    static const char *const names[] = {"accuracy", "eer", "mae"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (find_metric(t, names[i]) >= 0) return names[i];
    return t->n_metrics ? t->metrics[0] : NULL;
}

// eval.best of a run.
static void find_order(table *t) {
    t->by = automatic(t);
    for (int r = 0; r < t->s->n_runs; r++) {
        if (!t->s->runs[r].result) continue;
        char *path = dt_xprintf("%s/%s/config.yaml", t->s->dir, t->s->runs[r].name);
        dt_config *c = NULL;
        dt_status st = dt_config_load(&c, path, NULL, 0);
        free(path);
        if (st == DT_OK && dt_config_has(c, "eval.best")) {
            const bool named = dt_config_has(c, "eval.target");
            char *name = dt_xprintf("%s%s%s", named ? dt_config_str(c, "eval.target") : "",
                                    named ? "." : "", dt_config_str(c, "eval.best"));
            int at = find_metric(t, name);
            free(name);
            if (at >= 0) t->by = t->metrics[at];
        }
        dt_config_destroy(c);
        dt_error_clear();
        break;
    }
    const char *dot = t->by ? strrchr(t->by, '.') : NULL;
    for (int i = 0; t->by && i < DT_N_METRICS; i++)
        if (strcmp(dt_metric_name((dt_metric_id)i), dot ? dot + 1 : t->by) == 0)
            t->lower = dt_metrics_table[i]->lower_is_better;
}

// Mean and sample standard deviation over the runs of a configuration that have the number.
static void measure(const table *t, int row, int metric) {
    const sweep *s = t->s;
    double sum = 0, square = 0;
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < s->n_runs; r++) {
            const json_t *v = json_object_get(s->runs[r].result, t->metrics[metric]);
            if (!json_is_number(v) || !same_configuration(s, t->rows[row], r)) continue;
            double x = json_number_value(v);
            if (pass == 0)
                sum += x, n++;
            else
                square += (x - sum / n) * (x - sum / n);
        }
    }
    t->mean[row * t->n_metrics + metric] = n ? sum / n : NAN;
    t->std[row * t->n_metrics + metric] = n > 1 ? sqrt(square / (n - 1)) : NAN;
}

static void find_rows(table *t) {
    const sweep *s = t->s;
    t->rows = dt_xcalloc((size_t)s->n_runs, sizeof *t->rows);
    t->n_results = dt_xcalloc((size_t)s->n_runs, sizeof *t->n_results);
    for (int r = 0; r < s->n_runs; r++) {
        int row = 0;
        while (row < t->n_rows && !same_configuration(s, t->rows[row], r)) row++;
        if (row == t->n_rows) t->rows[t->n_rows++] = r;
        t->n_results[row] += s->runs[r].result != NULL;
    }
    size_t cells = (size_t)t->n_rows * (size_t)t->n_metrics + 1;
    t->mean = dt_xcalloc(cells, sizeof *t->mean);
    t->std = dt_xcalloc(cells, sizeof *t->std);
    for (int i = 0; i < t->n_rows; i++)
        for (int m = 0; m < t->n_metrics; m++) measure(t, i, m);
}

// Rows best first; those without a number last, others as they come.
static int *order_rows(const table *t) {
    int *order = dt_xcalloc((size_t)t->n_rows + 1, sizeof *order);
    int by = t->by ? find_metric(t, t->by) : -1;
    for (int i = 0; i < t->n_rows; i++) {
        int at = i;
        for (; by >= 0 && at > 0; at--) {
            double mine = t->mean[i * t->n_metrics + by];
            double above = t->mean[order[at - 1] * t->n_metrics + by];
            bool better =
                !isnan(mine) && (isnan(above) || (t->lower ? mine < above : mine > above));
            if (!better) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    return order;
}

// ---- writing ---------------------------------------------------------------------------------------

static void print_csv(FILE *out, const char *text) {
    if (!strpbrk(text, ",\"\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}

static void print_number(FILE *out, double x) {
    char text[DT_REAL_CHARS];
    if (isfinite(x)) fputs(dt_real_text(text, x), out);
}

static void print_configurations(const table *t, const int *order, FILE *out) {
    const sweep *s = t->s;
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i].n > 1 && !is_repeat(&s->variables[i]))
            fprintf(out, "%s,", s->variables[i].key);
    fprintf(out, "runs");
    for (int m = 0; m < t->n_metrics; m++)
        fprintf(out, ",%s_mean,%s_std", t->metrics[m], t->metrics[m]);
    fprintf(out, "\n");
    for (int k = 0; k < t->n_rows; k++) {
        int row = order[k];
        for (int i = 0; i < s->n_variables; i++) {
            if (s->variables[i].n < 2 || is_repeat(&s->variables[i])) continue;
            print_csv(out, sweep_value(s, t->rows[row], i));
            fputc(',', out);
        }
        fprintf(out, "%d", t->n_results[row]);
        for (int m = 0; m < t->n_metrics; m++) {
            fputc(',', out);
            print_number(out, t->mean[row * t->n_metrics + m]);
            fputc(',', out);
            print_number(out, t->std[row * t->n_metrics + m]);
        }
        fputc('\n', out);
    }
}

static void print_runs(const table *t, FILE *out) {
    const sweep *s = t->s;
    fprintf(out, "run");
    for (int i = 0; i < s->n_variables; i++)
        if (s->variables[i].n > 1) fprintf(out, ",%s", s->variables[i].key);
    fprintf(out, ",code,split,step");
    for (int m = 0; m < t->n_metrics; m++) fprintf(out, ",%s", t->metrics[m]);
    fprintf(out, "\n");
    for (int r = 0; r < s->n_runs; r++) {
        const json_t *result = s->runs[r].result;
        if (!s->runs[r].ended) continue;
        print_csv(out, s->runs[r].name);
        for (int i = 0; i < s->n_variables; i++) {
            if (s->variables[i].n < 2) continue;
            fputc(',', out);
            print_csv(out, sweep_value(s, r, i));
        }
        const char *split = json_string_value(json_object_get(result, "split"));
        fprintf(out, ",%d,%s,", s->runs[r].code, split ? split : "");
        if (result)
            fprintf(out, "%lld", (long long)json_integer_value(json_object_get(result, "step")));
        for (int m = 0; m < t->n_metrics; m++) {
            const json_t *v = json_object_get(result, t->metrics[m]);
            fputc(',', out);
            if (json_is_number(v)) print_number(out, json_number_value(v));
        }
        fputc('\n', out);
    }
}

// "lr=1e-3  0.9431 ± 0.0021 (5 of 5)": the metric that orders, then the rest.
static void print_text(const table *t, const int *order, FILE *out) {
    const sweep *s = t->s;
    int by = t->by ? find_metric(t, t->by) : -1;
    for (int k = 0; k < t->n_rows; k++) {
        int row = order[k], n_runs = 0;
        for (int r = 0; r < s->n_runs; r++) n_runs += same_configuration(s, t->rows[row], r);
        for (int i = 0; i < s->n_variables; i++)
            if (s->variables[i].n > 1 && !is_repeat(&s->variables[i]))
                fprintf(out, "%s=%s  ", s->variables[i].name, sweep_value(s, t->rows[row], i));
        for (int m = 0; m < t->n_metrics; m++) {
            int metric = m == 0 ? by : m <= by ? m - 1 : m;
            double std = t->std[row * t->n_metrics + metric];
            fprintf(out, "%s %.4g", t->metrics[metric], t->mean[row * t->n_metrics + metric]);
            if (!isnan(std)) fprintf(out, " ± %.2g", std);
            fprintf(out, "  ");
        }
        fprintf(out, "(%d of %d runs)\n", t->n_results[row], n_runs);
    }
}

static dt_status write_file(const table *t, const int *order, const char *name) {
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

dt_status sweep_write_table(const sweep *s, FILE *out) {
    table t = {.s = s};
    find_columns(&t);
    find_order(&t);
    find_rows(&t);
    int *order = order_rows(&t);
    dt_status st = write_file(&t, order, "sweep.csv");
    if (st == DT_OK) st = write_file(&t, NULL, "runs.csv");
    print_text(&t, order, out);
    free(order);
    free(t.metrics);
    free(t.rows);
    free(t.mean);
    free(t.std);
    free(t.n_results);
    return st;
}
