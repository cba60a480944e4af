// compare.c: several runs on one page; see report.h.
//
// Runs are one configuration where their configs differ in folds and seeds, and in what changes no numbers, or nothing but
// their rounding: their results are a mean and a sample standard deviation, and their curves are shades of one colour
// (where all runs are one configuration, each has a colour of its own). The best run is the first. A run is named by the
// keys in which it differs, or by its own name where these are more than MOST_NAMED or name two runs alike.
#include "observe/report_internal.h"

#include "base/core.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_METRICS = 12, MOST_CHARTS = 8, MOST_NAMED = 4, MOST_VALUE = 24 };

typedef struct setting {
    char *path;
    const char **values;   // by run, of its config; NULL: the run has no such key
    bool of_configuration; // runs in which it differs are different configurations
} setting;

typedef struct comparison {
    const dt_run_log **runs; // best first
    int n;
    char **labels;       // by run
    dt_config **configs; // by run; NULL: it has none that this version reads
    setting *settings;   // keys in which the runs differ, after find_settings
    int n_settings;
    int at;              // the run whose values are taken
    int *group, *colour; // by run: its configuration
    int n_groups;
    const char *metrics[MOST_METRICS]; // columns
    const json_t *lower;               // of the first, which chose a run's best checkpoint
    bool chosen;                       // the first chose checkpoints
    bool tested;                       // a run has results of its test part: the columns are of it
    int n_metrics;
} comparison;

// Keys that say where a run lies, not what it is; and those that change numbers by the order of sums alone, and whose
// auto each machine answers in its own way.
static bool compare_is_name(const char *path) {
    return strcmp(path, "run.name") == 0 || strcmp(path, "run.dir") == 0 || strcmp(path, "run.resume") == 0;
}

static bool is_rounding(const char *path) {
    return strcmp(path, "device.threads") == 0 || strcmp(path, "device.replicas") == 0 ||
           strcmp(path, "eval.batch") == 0;
}

static void take_setting(void *ctx, const char *path, const char *value, const char *usual, bool is_default) {
    comparison *c = ctx;
    int i = 0;
    if (compare_is_name(path)) return;
    while (i < c->n_settings && strcmp(c->settings[i].path, path) != 0) i++;
    if (i == c->n_settings) {
        c->settings = dt_xgrow(c->settings, (size_t)c->n_settings++, sizeof *c->settings);
        c->settings[i] = (setting){dt_xstrdup(path), dt_xcalloc((size_t)c->n, sizeof(char *)), false};
    }
    c->settings[i].values[c->at] = value;
}

static void free_setting(setting *s) {
    free(s->values);
    free(s->path);
}

static bool same_setting(const comparison *c, const char *path, int a, int b, bool *numeric) {
    *numeric = false;
    if (!c->configs[a] || !c->configs[b]) return c->configs[a] == c->configs[b];
    return dt_config_same_at(c->configs[a], c->configs[b], path, numeric);
}

static void find_settings(comparison *c) {
    int n = 0;
    c->configs = dt_xcalloc((size_t)c->n, sizeof(dt_config *));
    for (c->at = 0; c->at < c->n; c->at++) {
        char *text;
        c->configs[c->at] = dt_report_config(c->runs[c->at], &text);
        if (c->configs[c->at]) dt_config_each(c->configs[c->at], take_setting, c);
        free(text);
    }
    for (int i = 0; i < c->n_settings; i++) {
        setting *s = &c->settings[i];
        bool differs = false, numeric = false;
        for (int r = 1; r < c->n; r++) {
            bool is_numeric;
            differs |= !same_setting(c, s->path, r, 0, &is_numeric);
            numeric |= is_numeric;
        }
        s->of_configuration = numeric && !dt_config_is_repeat(s->path) && !is_rounding(s->path);
        if (differs)
            c->settings[n++] = *s;
        else
            free_setting(s);
    }
    c->n_settings = n;
}

// A run without a readable config is a configuration of its own.
static bool same_configuration(const comparison *c, int a, int b) {
    bool same = c->configs[a] && c->configs[b], numeric;
    for (int i = 0; i < c->n_settings && same; i++)
        same = !c->settings[i].of_configuration || same_setting(c, c->settings[i].path, a, b, &numeric);
    return same;
}

static void find_groups(comparison *c) {
    c->group = dt_xcalloc((size_t)c->n, sizeof *c->group);
    c->colour = dt_xcalloc((size_t)c->n, sizeof *c->colour);
    for (int r = 0; r < c->n; r++) {
        int same = 0;
        while (same < r && !same_configuration(c, same, r)) same++;
        c->group[r] = same < r ? c->group[same] : c->n_groups++;
    }
    for (int r = 0; r < c->n; r++) {
        int before = 0; // of the configuration
        for (int i = 0; i < r; i++) before += c->group[i] == c->group[r];
        c->colour[r] = c->n_groups == 1 ? r % 24 : c->group[r] % 8 + 8 * (before % 3);
    }
}

// "lr=1e-3 · resnet": the values in which runs differ, first those of the configuration, then fold and seed. The key is
// its last word, as long as no other differing key ends in it.
static char *describe_run(const comparison *c, int r, bool repeats) {
    char *text = dt_xstrdup("");
    for (int i = 0; i < 2 * c->n_settings; i++) {
        const setting *s = &c->settings[i % c->n_settings];
        const bool repeat = dt_config_is_repeat(s->path);
        if (repeat != (i >= c->n_settings) || !(repeat ? repeats : s->of_configuration) || !s->values[r]) continue;
        const char *key = strrchr(s->path, '.') + 1;
        int n_same = 0;
        for (int k = 0; k < c->n_settings; k++) n_same += strcmp(strrchr(c->settings[k].path, '.') + 1, key) == 0;
        if (n_same > 1) key = s->path;
        const bool bare = strcmp(key, "name") == 0 || strcmp(s->path, "model.name") == 0;
        dt_xappend(&text, "%s%s%s%s", *text ? " · " : "", bare ? "" : key, bare ? "" : "=", s->values[r]);
    }
    return text;
}

static void find_labels(comparison *c) {
    int n_named = 0, longest = 0;
    c->labels = dt_xcalloc((size_t)c->n, sizeof *c->labels);
    for (int i = 0; i < c->n_settings; i++) {
        n_named += c->settings[i].of_configuration;
        for (int r = 0; r < c->n && c->settings[i].of_configuration; r++)
            if (c->settings[i].values[r] && (int)strlen(c->settings[i].values[r]) > longest)
                longest = (int)strlen(c->settings[i].values[r]);
    }
    for (int r = 0; r < c->n; r++) {
        c->labels[r] = describe_run(c, r, true);
        if (*c->labels[r] && n_named <= MOST_NAMED && longest <= MOST_VALUE) continue;
        free(c->labels[r]);
        c->labels[r] = dt_xstrdup(c->runs[r]->name);
    }
    for (int r = 1; r < c->n; r++)
        for (int i = 0; i < r; i++)
            if (strcmp(c->labels[i], c->labels[r]) == 0) dt_xappend(&c->labels[r], " · %s", c->runs[r]->name);
}

// ---- results ---------------------------------------------------------------------------------------

static bool is_chosen(const comparison *c, int k) {
    return k == 0 && c->chosen;
}

// The best validation's where the metric chose checkpoints, else the test's, or the newest validation's if none is tested.
static double result_of(const comparison *c, const dt_run_log *r, int k) {
    const char *name = c->metrics[k];
    int64_t step;
    if (is_chosen(c, k)) return dt_run_log_best_value(r, name, c->lower, &step);
    if (c->tested) return dt_report_real(dt_result_of_split(r->results, dt_split_name(DT_SPLIT_TEST)), name);
    const dt_run_metric *m = dt_run_log_metric(r, dt_split_name(DT_SPLIT_VAL), name);
    return m ? m->series.newest : NAN;
}

static void find_metrics(comparison *c) {
    for (int r = 0; r < c->n; r++) {
        c->tested |= dt_result_of_split(c->runs[r]->results, dt_split_name(DT_SPLIT_TEST)) != NULL;
        const char *chosen = dt_run_log_chosen_by(c->runs[r]);
        if (!chosen || c->n_metrics > 0) continue;
        c->metrics[c->n_metrics++] = chosen;
        c->lower = dt_run_log_is_lower(c->runs[r]);
        c->chosen = true;
    }
    const int first = c->n_metrics; // the metric that chose has two columns: validation, test
    for (int r = 0; r < c->n; r++)
        for (int i = 0; i < c->runs[r]->n_metrics; i++) {
            const dt_run_metric *m = &c->runs[r]->metrics[i];
            int k = first;
            while (k < c->n_metrics && strcmp(c->metrics[k], m->name) != 0) k++;
            if (k < c->n_metrics || k == MOST_METRICS || dt_run_is_detail(c->runs[r], m->name)) continue;
            c->metrics[c->n_metrics++] = m->name;
        }
}

// Best first, where it is known which value is better; runs without one keep their order, behind.
static void sort_runs(comparison *c) {
    if (!is_chosen(c, 0) || !c->lower) return;
    const double sign = json_is_true(c->lower) ? 1 : -1;
    for (int i = 1; i < c->n; i++)
        for (int k = i; k > 0; k--) {
            const double a = sign * result_of(c, c->runs[k - 1], 0), b = sign * result_of(c, c->runs[k], 0);
            if (!(b < a || (isfinite(b) && !isfinite(a)))) break;
            const dt_run_log *moved = c->runs[k];
            c->runs[k] = c->runs[k - 1];
            c->runs[k - 1] = moved;
        }
}

static void write_heads(FILE *out, const comparison *c, const char *first) {
    dt_report_begin_table(out, "", first);
    for (int k = 0; k < c->n_metrics; k++)
        dt_page_put(out, "<th$t>$t$t $t</th>",
                    !is_chosen(c, k) || !c->lower ? ""
                    : json_is_true(c->lower)      ? " aria-sort=ascending"
                                                  : " aria-sort=descending",
                    is_chosen(c, k) ? "best " : "",
                    dt_split_name(c->tested && !is_chosen(c, k) ? DT_SPLIT_TEST : DT_SPLIT_VAL), c->metrics[k]);
}

static void write_runs(FILE *out, const comparison *c) {
    write_heads(out, c, "Run");
    fputs("<th>Training loss</th><th>Epochs</th><th>Steps</th><th>Wall time</th><th>Samples/s</th>", out);
    dt_report_begin_rows(out);
    for (int r = 0; r < c->n; r++) {
        const dt_run_log *run = c->runs[r];
        const bool is_best = r == 0 && c->n > 1 && is_chosen(c, 0) && c->lower && isfinite(result_of(c, run, 0));
        const double wall_s = dt_report_wall_s(run);
        dt_page_put(out, "<tr$t><td title=\"$t\">", is_best ? " class=best" : "", run->dir);
        dt_page_put_key(out, c->colour[r], c->labels[r]);
        fputs(is_best ? "<br><small><b class=\"good\">Best</b> " : "<br><small>", out);
        if (strcmp(c->labels[r], run->name) != 0) dt_page_put(out, "<span class=\"soft\">$t</span> ", run->name);
        dt_report_state(out, run);
        fputs("</small></td>", out);
        for (int k = 0; k < c->n_metrics; k++) dt_report_cell(out, result_of(c, run, k));
        dt_report_cell(out, run->numbers[DT_RUN_LOSS].newest);
        dt_report_cell(out, run->epoch);
        dt_report_cell(out, (double)run->step);
        dt_page_put(out, "<td data-v=\"$g\">$s</td>", isfinite(wall_s) ? wall_s : -1, wall_s);
        dt_report_cell(out, dt_report_samples_per_s(run));
        fputs("</tr>\n", out);
    }
    dt_report_end_table(out);
}

static void write_mean(FILE *out, const comparison *c, int group, int k) {
    double sum = 0, squares = 0;
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < c->n; r++) {
            const double v = c->group[r] == group ? result_of(c, c->runs[r], k) : NAN;
            if (!isfinite(v)) continue;
            if (pass == 0)
                sum += v, n++;
            else
                squares += (v - sum / n) * (v - sum / n);
        }
    if (n < 2)
        dt_report_cell(out, n ? sum : NAN);
    else
        dt_page_put(out, "<td data-v=\"$g\">$n ± $n</td>", sum / n, sum / n, sqrt(squares / (n - 1)));
}

static void write_groups(FILE *out, const comparison *c) {
    if (c->n_groups == c->n) return;
    fputs("<h2>Mean ± standard deviation over folds and seeds</h2>\n", out);
    write_heads(out, c, "Configuration");
    fputs("<th>Runs</th>", out);
    dt_report_begin_rows(out);
    for (int g = 0; g < c->n_groups; g++) {
        int first = 0, n = 0;
        for (int r = c->n - 1; r >= 0; r--)
            if (c->group[r] == g) first = r, n++;
        char *text = describe_run(c, first, false);
        fputs("<tr><td>", out);
        dt_page_put_key(out, c->n_groups == 1 ? 0 : g % 8, c->n_groups == 1 ? "all" : text);
        free(text);
        fputs("</td>", out);
        for (int k = 0; k < c->n_metrics; k++) write_mean(out, c, g, k);
        dt_page_put(out, "<td>$i</td></tr>\n", n);
    }
    dt_report_end_table(out);
}

// ---- curves and configs ----------------------------------------------------------------------------

// Of a metric of the validation, or of a number of the steps.
static void write_chart(FILE *out, const comparison *c, const char *metric, dt_run_number number) {
    char *title = dt_xprintf(metric ? "Validation %s" : "Training loss, smoothed", metric);
    dt_chart chart = dt_report_chart(number, 0);
    if (number == DT_RUN_LOSS) chart.title = title;
    for (int r = 0; r < c->n && r < DT_CHART_CURVES; r++) { // whose axes the switch has
        const dt_run_metric *m = metric ? dt_run_log_metric(c->runs[r], dt_split_name(DT_SPLIT_VAL), metric) : NULL;
        const dt_series *s = metric ? (m ? &m->series : NULL) : &c->runs[r]->numbers[number];
        dt_curve *k = dt_chart_add_series(&chart, c->labels[r], s, c->colour[r]);
        chart.x_to = fmax(chart.x_to, (double)c->runs[r]->step);
        if (!k) continue;
        k->run = r;
        if (!metric && number == DT_RUN_LOSS) dt_curve_smooth(k);
        for (int i = 0; i < k->n; i++) k->points[i].low = k->points[i].high = k->points[i].y; // bands hide each other
    }
    dt_chart_write(out, &chart);
    free(title);
}

static void compare_write_curves(FILE *out, const comparison *c) {
    fputs("<h2>Curves</h2>\n", out);
    if (c->n > DT_CHART_CURVES)
        dt_page_put(out, "<p class=\"soft\">The charts have the first $i of $i runs.</p>\n", (int)DT_CHART_CURVES,
                    c->n);
    dt_report_write_axes(out, c->runs, c->n < DT_CHART_CURVES ? c->n : DT_CHART_CURVES);
    fputs("<div class=\"charts\">\n", out);
    write_chart(out, c, NULL, DT_RUN_LOSS);
    for (int k = is_chosen(c, 0), n = 0; k < c->n_metrics && n < MOST_CHARTS; k++, n++)
        write_chart(out, c, c->metrics[k], DT_RUN_LOSS);
    for (int i = DT_RUN_LR; i <= DT_RUN_RATE; i++) write_chart(out, c, NULL, i);
    fputs("</div>\n", out);
}

static void write_settings(FILE *out, const comparison *c) {
    fputs("<h2>Differences between the configs</h2>\n", out);
    if (c->n_settings == 0) fputs("<p class=\"soft\">Nothing but names.</p>\n", out);
    if (c->n_settings == 0) return;
    dt_report_begin_table(out, "words", "Key");
    for (int r = 0; r < c->n; r++) dt_page_put(out, "<th class=\"name\">$t</th>", c->labels[r]);
    dt_report_begin_rows(out);
    for (int i = 0; i < c->n_settings; i++) {
        dt_page_put(out, "<tr><td>$k</td>", c->settings[i].path);
        for (int r = 0; r < c->n; r++) dt_page_put(out, "<td>$T</td>", c->settings[i].values[r]);
        fputs("</tr>\n", out);
    }
    dt_report_end_table(out);
}

dt_status dt_report_compare(dt_run_log *const *runs, int n, const char *path) {
    comparison c = {.runs = dt_xcalloc((size_t)n, sizeof *c.runs), .n = n};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    memcpy(c.runs, runs, sizeof *c.runs * (size_t)n);
    find_metrics(&c);
    sort_runs(&c);
    find_settings(&c);
    find_groups(&c);
    find_labels(&c);
    char *title = dt_xprintf("%d runs", n);
    dt_page_begin(out, title);
    dt_page_put(out, "<h1>$t</h1>\n", title);
    write_runs(out, &c);
    write_groups(out, &c);
    compare_write_curves(out, &c);
    write_settings(out, &c);
    dt_page_end(out);
    fclose(out);
    const dt_status st = dt_report_save(text, size, path);
    for (int i = 0; i < c.n_settings; i++) free_setting(&c.settings[i]);
    for (int r = 0; r < n; r++) dt_config_destroy(c.configs[r]), free(c.labels[r]);
    free(c.configs);
    free(c.labels);
    free(c.colour);
    free(c.runs);
    free(c.settings);
    free(c.group);
    free(title);
    return st;
}
