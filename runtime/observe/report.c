// report.c: report.html of one run; see report.h. What an evaluation showed is written by report_eval.c.
#include "observe/report.h"

#include "base/core.h"
#include "base/io.h"
#include "base/text.h"
#include "observe/report_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const phase_names[] = {[DT_RUN_DATA_S] = "data",
                                          [DT_RUN_COMPUTE_S] = "compute",
                                          [DT_RUN_COMM_S] = "communication",
                                          [DT_RUN_OTHER_S] = "other"};

dt_bound dt_report_bound(double data, double comm, double gpu_util) {
    static const double data_limit = 0.10, comm_limit = 0.15; // a larger share limits the run
    if (data > data_limit && data - data_limit >= comm - comm_limit) return DT_BOUND_data;
    if (comm > comm_limit) return DT_BOUND_communication;
    return gpu_util < DT_GPU_BUSY ? DT_BOUND_host : DT_BOUND_compute; // NaN: compute
}

void dt_report_verdict(char *text, size_t cap, double data, double comm, double gpu_util, const char *data_verdict) {
    char gpu[64] = "";
    if (gpu_util < DT_GPU_BUSY) snprintf(gpu, sizeof gpu, "the GPU was busy %.0f%% of the time, ", 100 * gpu_util);
    switch (dt_report_bound(data, comm, gpu_util)) {
    case DT_BOUND_data:
        snprintf(text, cap, "limited by data: %sthe step waited %.0f%% of its time for input; %s", gpu, 100 * data,
                 data_verdict ? data_verdict
                              : "more data.workers, faster storage or smaller files (dtrain pack) would help");
        break;
    case DT_BOUND_communication:
        snprintf(text, cap,
                 "limited by communication: %s%.0f%% of the step was exposed all-reduce; a larger "
                 "train.global_batch, fewer ranks or a faster network would help",
                 gpu, 100 * comm);
        break;
    case DT_BOUND_host:
        snprintf(text, cap,
                 "limited by the host: %sthough data and communication keep up; a larger train.micro_batch would help, "
                 "or device.capture=true",
                 gpu);
        break;
    case DT_BOUND_compute:
        snprintf(text, cap, "limited by compute: data and communication keep up; more cores, hosts or GPUs would help");
        break;
    }
}

// ---- shared ----------------------------------------------------------------------------------------

const char *dt_report_text(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

double dt_report_real(const json_t *object, const char *name) {
    const json_t *v = json_object_get(object, name);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

void dt_report_begin_table(FILE *out, const char *classes, const char *first_head) {
    dt_page_put(out, "<div class=\"scroll\"><table class=\"sort $t\"><thead><tr><th>$t</th>", classes, first_head);
}
void dt_report_begin_rows(FILE *out) {
    fputs("</tr></thead><tbody>\n", out);
}
void dt_report_end_table(FILE *out) {
    fputs("</tbody></table></div>\n", out);
}

void dt_report_cell(FILE *out, double value) {
    if (isfinite(value))
        dt_page_put(out, "<td data-v=\"$g\">$n</td>", value, value);
    else
        fputs("<td></td>", out);
}

void dt_report_write_axes(FILE *out, const dt_run_log *const *runs, int n) {
    enum { KNOTS = 64 }; // points of the time over steps
    fputs("<nav class=\"axes\" hidden data-runs=\"[", out);
    for (int k = 0; k < n; k++) {
        const dt_run_log *r = runs[k];
        const dt_series *s = &r->numbers[DT_RUN_STEP_S];
        const double last = fmax((double)r->step, 1), epoch = isfinite(r->epoch) ? r->epoch : 0;
        double sum = 0;
        dt_page_put(out, "$t{&quot;last&quot;:$d,&quot;epoch&quot;:$g,&quot;samples&quot;:$g,&quot;at&quot;:[",
                    k ? "," : "", r->step, epoch / last, (double)r->samples / last);
        for (int i = 0; i < s->n; i++) {
            sum += s->points[i].sum;
            if (i % (s->n / KNOTS + 1) == 0 || i + 1 == s->n)
                dt_page_put(out, "$t[$d,$g]", i ? "," : "", s->points[i].last, sum);
        }
        fputs("]}", out);
    }
    fputs(
        "]\">Horizontal axis <button aria-pressed=\"true\">step</button><button>epoch</button><button>samples</button>"
        "<button title=\"in steps, without evaluations and pauses\">time</button></nav>\n",
        out);
}

void dt_report_state(FILE *out, const dt_run_log *r) {
    static const char *const classes[] = {[DT_RUN_GOES_ON] = "on",
                                          [DT_RUN_SILENT] = "warn",
                                          [DT_RUN_FINISHED] = "good",
                                          [DT_RUN_STOPPED] = "warn",
                                          [DT_RUN_FAILED] = "bad"};
    char text[DT_PAGE_TEXT_BYTES];
    const dt_run_status state = dt_run_log_state(r, text, sizeof text);
    dt_page_put(out, "<span class=\"state $t\">$t</span>", classes[state], text);
}

double dt_report_wall_s(const dt_run_log *r) {
    json_t *parts = json_object_get(dt_run_log_event(r, "goodput"), "seconds"), *value;
    const char *name;
    double sum = 0;
    json_object_foreach(parts, name, value) sum += json_number_value(value);
    return sum > 0 ? sum : NAN;
}

double dt_report_samples_per_s(const dt_run_log *r) {
    const double each = (double)r->samples / (double)r->step;
    return r->n_steps > 1 ? each * (double)(r->n_steps - 1) / r->phase_s[DT_RUN_STEP_S] : NAN;
}

dt_config *dt_report_config(const dt_run_log *r, char **text) {
    char *path = dt_xprintf("%s/config.yaml", r->dir);
    dt_config *c = NULL;
    size_t n = 0;
    *text = NULL;
    if (!dt_io_exists(path) || dt_io_read_own(text, &n, path, 1 << 20, DT_E_USAGE) != DT_OK ||
        dt_config_parse(&c, path, *text, n, NULL, 0) != DT_OK) // of another version
        dt_error_clear();
    free(path);
    return c;
}

dt_status dt_report_save(char *text, size_t n, const char *path) {
    const dt_status st = dt_io_write_file(path, text, n);
    free(text);
    return st;
}

// ---- did it work -----------------------------------------------------------------------------------

static double began_s(const dt_run_log *r) {
    for (int i = 0; i < r->n_events; i++)
        if (strcmp(dt_report_text(r->events[i].record, "kind"), "start") == 0)
            return dt_report_real(r->events[i].record, "time");
    return NAN;
}

static void write_head(FILE *out, const dt_run_log *r) {
    static const char tile[] = "<div class=\"tile\"><b>$n</b><small>$t$t</small></div>\n";
    const json_t *start = dt_run_log_event(r, "start"),
                 *test = dt_result_of_split(r->results, dt_split_name(DT_SPLIT_TEST));
    const char *chosen = dt_run_log_chosen_by(r);
    const double goodput = dt_report_real(dt_run_log_event(r, "goodput"), "goodput"), rate = dt_report_samples_per_s(r),
                 began = began_s(r);
    const int64_t total = dt_run_log_total_steps(r);
    int64_t step = 0;
    const double best = chosen ? dt_run_log_best_value(r, chosen, dt_run_log_is_lower(r), &step) : NAN;
    dt_page_put(out, "<h1>$t</h1>\n<p>", r->name);
    dt_report_state(out, r);
    fputs("<span class=\"soft\">", out);
    if (*dt_report_text(start, "data")) dt_page_put(out, "<br>$t", dt_report_text(start, "data"));
    if (isfinite(began)) dt_page_put(out, "<br>began $w", began);
    fputs("</span></p>\n<div class=\"tiles\">\n", out);
    if (isfinite(best))
        dt_page_put(out, "<div class=\"tile\"><b>$n</b><small>validation $t, step $d</small></div>\n", best, chosen,
                    step);
    if (chosen && isfinite(dt_report_real(test, chosen))) {
        const char *weights = strstr(dt_report_text(test, "weights"), "best") ? ", best weights" : ", last weights";
        dt_page_put(out, "<div class=\"tile\"><b>$n</b><small>test $t$t</small></div>\n", dt_report_real(test, chosen),
                    chosen, weights);
    }
    dt_page_put(out, tile, r->numbers[DT_RUN_LOSS].newest, "training loss, last step", "");
    dt_page_put(out, "<div class=\"tile\"><b>$n</b><small>steps", (double)r->step);
    if (total) dt_page_put(out, " of $n", (double)total);
    dt_page_put(out, ", $n epochs</small></div>\n", r->epoch);
    if (isfinite(rate)) dt_page_put(out, tile, rate, "samples/s", "");
    dt_page_put(out, "<div class=\"tile\"><b>$s</b><small>in steps</small></div>\n",
                r->phase_s[DT_RUN_STEP_S] + r->phase_first_s[DT_RUN_STEP_S]);
    if (isfinite(goodput)) dt_page_put(out, "<div class=\"tile\"><b>$p</b><small>goodput</small></div>\n", goodput);
    fputs("</div>\n", out);
}

// ---- how well --------------------------------------------------------------------------------------

enum { MOST_COLUMNS = 14, MOST_CHARTS = 10 };

// Names of the records' numbers, without those of single classes, in the order in which they come.
static int report_find_columns(const dt_run_log *r, const json_t *lines, const char *columns[MOST_COLUMNS]) {
    int n = 0;
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *name;
        json_t *value;
        json_object_foreach(json_array_get(lines, i), name, value) {
            int k = 0;
            while (k < n && strcmp(columns[k], name) != 0) k++;
            const bool wanted = dt_run_is_metric(name, value) && !dt_run_is_detail(r, name);
            if (k == n && n < MOST_COLUMNS && wanted) columns[n++] = name;
        }
    }
    return n;
}

static void write_results(FILE *out, const dt_run_log *r) {
    const char *columns[MOST_COLUMNS];
    json_t *lines = json_array();
    if (json_array_size(r->results) > 0)
        json_array_extend(lines, r->results);
    else
        for (int i = 0; i < r->n_evals; i++) json_array_append(lines, r->evals[i]);
    const int n = report_find_columns(r, lines, columns);
    if (n > 0) {
        dt_report_begin_table(out, "", "Split");
        fputs("<th>Weights</th><th>Step</th>", out);
        for (int k = 0; k < n; k++) dt_page_put(out, "<th class=\"name\">$t</th>", columns[k]);
        dt_report_begin_rows(out);
        for (size_t i = 0; i < json_array_size(lines); i++) {
            const json_t *line = json_array_get(lines, i);
            dt_page_put(out, "<tr><td>$t</td><td>$t</td><td>$d</td>", dt_report_text(line, "split"),
                        dt_report_text(line, "weights"), (int64_t)json_integer_value(json_object_get(line, "step")));
            for (int k = 0; k < n; k++) dt_report_cell(out, dt_report_real(line, columns[k]));
            fputs("</tr>\n", out);
        }
        dt_report_end_table(out);
    }
    json_decref(lines);
}

static void mark_restarts(dt_chart *c, const dt_run_log *r) {
    for (int i = 0; i < r->n_events && c->n_marks < DT_CHART_MARKS; i++) {
        const json_t *record = r->events[i].record;
        const double from = dt_report_real(record, "from_step");
        if (strcmp(dt_report_text(record, "kind"), "start") != 0 || !(from > 0)) continue;
        c->marks[c->n_marks].x = from;
        c->marks[c->n_marks++].restart = true;
    }
}

dt_chart dt_report_chart(dt_run_number number, double x_to) {
    static const struct {
        const char *title;
        bool from_zero, cut_peaks;
    } charts[DT_RUN_N_NUMBERS] = {[DT_RUN_LOSS] = {"Loss"},
                                  [DT_RUN_LR] = {"Learning rate", .from_zero = true},
                                  [DT_RUN_GRAD_NORM] = {"Gradient norm"},
                                  [DT_RUN_RATE] = {"Samples a second", .from_zero = true, .cut_peaks = true},
                                  [DT_RUN_GPU_UTIL] = {"GPU utilization", .from_zero = true},
                                  [DT_RUN_GPU_POWER] = {"GPU power, W", .from_zero = true},
                                  [DT_RUN_GPU_MEM] = {"GPU memory, bytes", .from_zero = true}};
    return (dt_chart){.title = charts[number].title,
                      .x = "step",
                      .x_to = x_to,
                      .from_zero = charts[number].from_zero,
                      .cut_peaks = charts[number].cut_peaks};
}

// Nothing where the run has no such number, as of a GPU.
static void write_number(FILE *out, const dt_run_log *r, dt_run_number number, int colour) {
    dt_chart c = dt_report_chart(number, (double)r->step);
    dt_chart_add_series(&c, c.title, &r->numbers[number], colour);
    mark_restarts(&c, r);
    dt_chart_write(out, &c);
}

static void report_write_curves(FILE *out, const dt_run_log *r) {
    dt_chart loss = dt_report_chart(DT_RUN_LOSS, (double)r->step);
    const dt_run_metric *val = dt_run_log_metric(r, dt_split_name(DT_SPLIT_VAL), "loss");
    dt_report_write_axes(out, &r, 1);
    fputs("<div class=\"charts\">\n", out);
    dt_curve_smooth(dt_chart_add_series(&loss, "training, smoothed", &r->numbers[DT_RUN_LOSS], 0));
    dt_chart_add_series(&loss, "validation", val ? &val->series : NULL, 1);
    dt_curve *raw = dt_chart_add_series(&loss, "training", &r->numbers[DT_RUN_LOSS], 0);
    if (raw) raw->look = DT_CURVE_FAINT;
    mark_restarts(&loss, r);
    dt_chart_write(out, &loss);
    for (int i = 0, n = 0; i < r->n_metrics && n < MOST_CHARTS; i++) {
        const dt_run_metric *m = &r->metrics[i];
        if (strcmp(m->split, dt_split_name(DT_SPLIT_VAL)) != 0 || strcmp(m->name, "loss") == 0 ||
            dt_run_is_detail(r, m->name))
            continue;
        dt_chart c = {.title = m->name, .x = "step", .x_to = (double)r->step};
        dt_chart_add_series(&c, "validation", &m->series, 1);
        mark_restarts(&c, r);
        dt_chart_write(out, &c);
        n++;
    }
    write_number(out, r, DT_RUN_LR, 3);
    write_number(out, r, DT_RUN_GRAD_NORM, 2);
    fputs("</div>\n", out);
}

// ---- what went wrong -------------------------------------------------------------------------------

enum { MOST_WARNINGS = 12 };

// The last lines of the log between two times that are warnings or errors: "2026-11-25T22:25:26Z W text". Without the
// failure's, `but`.
static int write_warnings(FILE *out, const dt_run_log *r, const char *but, double from_s, double to_s) {
    char *path = dt_xprintf("%s/log", r->dir), *lines[MOST_WARNINGS] = {NULL}, *line;
    dt_lines log;
    size_t size = 0;
    int n = 0;
    const bool is_there = dt_lines_open(&log, path, 0);
    while (is_there && (line = dt_lines_next(&log, &size))) {
        const char *level = strchr(line, ' ');
        struct tm tm = {0};
        if (!level || (level[1] != 'W' && level[1] != 'E') || level[2] != ' ' || (*but && strstr(level, but))) continue;
        const double s = strptime(line, "%Y-%m-%dT%H:%M:%SZ", &tm) ? (double)timegm(&tm) : from_s;
        if (s < from_s || s >= to_s) continue;
        char **at = &lines[n++ % MOST_WARNINGS];
        free(*at);
        *at = dt_xstrdup(line);
    }
    dt_lines_close(&log);
    for (int i = n > MOST_WARNINGS ? n - MOST_WARNINGS : 0; i < n; i++) {
        line = lines[i % MOST_WARNINGS];
        char *level = strchr(line, ' ');
        *level = '\0';
        dt_page_put(out, "<li><span class=\"soft\">$t</span> $t</li>\n", line, level + 3);
    }
    for (int i = 0; i < MOST_WARNINGS; i++) free(lines[i]);
    free(path);
    return n;
}

static int write_events(FILE *out, const dt_run_log *r) {
    int n = 0;
    for (int i = 0; i < r->n_events; i++) {
        const json_t *e = r->events[i].record;
        if (strcmp(dt_report_text(e, "kind"), "slow_rank") != 0) continue;
        n++;
        dt_page_put(out,
                    "<li>Step $d: rank $n on $t took $n times as long as the median rank, most of "
                    "it for $t; all "
                    "ranks waited for it.</li>\n",
                    r->events[i].step, dt_report_real(e, "rank"), dt_report_text(e, "host"), dt_report_real(e, "times"),
                    dt_report_text(e, "phase"));
    }
    for (int i = 0; i < r->n_evals; i++) {
        const double bad = dt_report_real(r->evals[i], "n_not_finite");
        if (!(bad > 0)) continue;
        n++;
        dt_page_put(out, "<li>$n predictions of the $t split are not finite and count in no metric.</li>\n", bad,
                    dt_report_text(r->evals[i], "split"));
    }
    return n;
}

static void write_problems(FILE *out, const dt_run_log *r) {
    const int64_t n_empty = r->numbers[DT_RUN_LOSS].n_empty - r->n_skipped;
    char state[8], *text = NULL;
    size_t size;
    FILE *earlier = open_memstream(&text, &size);
    // the log is in seconds; without the member, of an earlier version, all warnings are of this attempt
    const double attempt = floor(dt_report_real(dt_run_log_event(r, "start"), "began"));
    const double began = isfinite(attempt) ? attempt : -INFINITY;
    const bool failed = dt_run_log_state(r, state, sizeof state) == DT_RUN_FAILED;
    const char *why = failed ? dt_report_text(r->end, "message") : "";
    fputs("<h2>Problems</h2>\n<ul>\n", out);
    int n = failed + (r->n_skipped > 0) + (n_empty > 0) + (r->n_bad > 0);
    if (failed) // the page may be older than the error's line in the log
        dt_page_put(out, "<li class=\"bad\">The run failed at step $d: $T</li>\n",
                    (int64_t)json_integer_value(json_object_get(r->end, "step")), why);
    if (r->n_skipped > 0) dt_page_put(out, "<li>$d steps overflowed in fp16 and were skipped.</li>\n", r->n_skipped);
    if (n_empty > 0) dt_page_put(out, "<li>$d steps have a loss that is not finite.</li>\n", n_empty);
    if (r->n_bad > 0) dt_page_put(out, "<li>$d lines of metrics.jsonl are damaged.</li>\n", r->n_bad);
    n += write_events(out, r);
    n += write_warnings(out, r, why, began, INFINITY);
    fputs("</ul>\n", out);
    if (n == 0) fputs("<p class=\"soft\">None: no warning, no skipped step, no straggler.</p>\n", out);
    const int n_earlier = write_warnings(earlier, r, "", -INFINITY, began);
    fclose(earlier);
    if (n_earlier > 0)
        fprintf(out, "<details><summary>%d warning%s of earlier attempts</summary><ul>\n%s</ul></details>\n", n_earlier,
                n_earlier > 1 ? "s" : "", text);
    free(text);
}

// ---- where the time went ---------------------------------------------------------------------------

static void add_phases(dt_chart *c, const dt_run_log *r) {
    for (int i = DT_RUN_DATA_S; i <= DT_RUN_OTHER_S; i++) {
        const dt_series *s = &r->numbers[i];
        const dt_curve *below = c->n > 0 ? &c->curves[c->n - 1] : NULL;
        if (r->phase_s[i] <= 0 || (below && below->n != s->n)) continue;
        dt_curve *k = dt_chart_add(c, phase_names[i], s->n, i - DT_RUN_DATA_S);
        for (int p = 0; k && p < s->n; p++) {
            const double low = below ? below->points[p].y : 0;
            k->points[p] = (dt_xy){0.5 * (double)(s->points[p].first + s->points[p].last),
                                   low + dt_series_mean(&s->points[p]), low, low};
        }
    }
}

static void mark_evaluations(dt_chart *c, const dt_run_log *r) {
    for (int i = 0; i < r->n_metrics; i++) {
        const dt_series *s = &r->metrics[i].series;
        if (strcmp(r->metrics[i].split, dt_split_name(DT_SPLIT_VAL)) != 0 || s->n > DT_CHART_MARKS / 2) continue;
        for (int k = 0; k < s->n; k++) c->marks[c->n_marks++].x = (double)s->points[k].last;
        return;
    }
}

static void write_ledger(FILE *out, const dt_run_log *r) {
    const json_t *ledger = dt_run_log_event(r, "goodput");
    json_t *parts = json_object_get(ledger, "seconds"), *value;
    const char *name;
    const double sum = dt_report_wall_s(r);
    if (!(sum > 0)) return;
    dt_page_put(out, "<h3>Goodput</h3>\n<p>$p of the time since the first start went into steps that count.",
                dt_report_real(ledger, "goodput"));
    if (*dt_report_text(ledger, "raise"))
        dt_page_put(out, " Most of the lost time: $t.", dt_report_text(ledger, "raise"));
    fputs("</p>\n", out);
    dt_report_begin_table(out, "", "Phase");
    fputs("<th>Time</th><th>Share</th>", out);
    dt_report_begin_rows(out);
    json_object_foreach(parts, name, value) {
        const double s = json_number_value(value);
        dt_page_put(out, "<tr><td>$t</td><td data-v=\"$g\">$s</td><td data-v=\"$g\">$p</td></tr>\n", name, s, s, s,
                    s / sum);
    }
    dt_report_end_table(out);
}

static void write_ranks(FILE *out, const dt_run_log *r) {
    enum { MOST_RANKS = 256 };
    const json_t *ranks = dt_run_log_event(r, "ranks"), *data = json_object_get(ranks, "data_s"),
                 *compute = json_object_get(ranks, "compute_s"), *rss = json_object_get(ranks, "rss_bytes");
    const int n = (int)json_array_size(compute), slowest = (int)dt_report_real(ranks, "slowest");
    if (n < 2) return;
    dt_page_put(out,
                "<h3>Ranks</h3>\n<p>At step $d the slowest took $n times as long for a step as the "
                "mean.</p>\n",
                (int64_t)json_integer_value(json_object_get(ranks, "step")), dt_report_real(ranks, "imbalance"));
    dt_report_begin_table(out, "", "Rank");
    fputs("<th>Own time of a step</th><th>Waiting for data</th><th>Memory, MiB</th>", out);
    dt_report_begin_rows(out);
    for (int i = 0; i < n && i < MOST_RANKS; i++) {
        const double own = dt_run_own_s(data, compute, i), wait = json_number_value(json_array_get(data, (size_t)i));
        dt_page_put(out, "<tr><td>$i</td><td data-v=\"$g\"$t>$s</td><td data-v=\"$g\">$s</td><td>$n</td></tr>\n", i,
                    own, i == slowest ? " class=warn" : "", own, wait, wait,
                    rint(json_number_value(json_array_get(rss, (size_t)i)) / 1048576));
    }
    dt_report_end_table(out);
}

static void write_verdict(FILE *out, const dt_run_log *r) {
    char verdict[1024];
    const double all = r->phase_s[DT_RUN_STEP_S];
    const char *recorded = dt_report_text(dt_run_log_event(r, "verdict"), "text");
    dt_report_verdict(verdict, sizeof verdict, r->phase_s[DT_RUN_DATA_S] / all, r->phase_s[DT_RUN_COMM_S] / all, NAN,
                      NULL);
    if (*recorded) snprintf(verdict, sizeof verdict, "%s", recorded);
    char *advice = strchr(verdict, ';');
    if (advice) *advice++ = '\0';
    dt_page_put(out, "<div class=\"verdict\"><p><b>$t</b></p><p>$t</p></div>\n", verdict, advice);
}

static void write_time(FILE *out, const dt_run_log *r) {
    dt_chart phases = {.title = "Time of a step",
                       .x = "step",
                       .x_to = (double)r->step,
                       .kind = DT_CHART_AREAS,
                       .seconds = true,
                       .cut_peaks = true};
    const double all = r->phase_s[DT_RUN_STEP_S];
    if (!(all > 0)) return;
    fputs("<h2>Time budget</h2>\n", out);
    write_verdict(out, r);
    fputs("<div class=\"charts\">\n", out);
    add_phases(&phases, r);
    mark_evaluations(&phases, r);
    mark_restarts(&phases, r);
    dt_chart_write(out, &phases);
    write_number(out, r, DT_RUN_RATE, 5);
    fputs("</div>\n<div class=\"charts small\">\n", out);
    write_number(out, r, DT_RUN_GPU_UTIL, 4);
    write_number(out, r, DT_RUN_GPU_POWER, 5);
    write_number(out, r, DT_RUN_GPU_MEM, 6);
    fputs("</div>\n<p class=\"soft\">", out);
    for (int i = DT_RUN_DATA_S; i <= DT_RUN_OTHER_S; i++)
        dt_page_put(out, "$t $p, ", phase_names[i], r->phase_s[i] / all);
    if (r->phase_s[DT_RUN_FORWARD_S] > 0)
        dt_page_put(out, "of it forward $p, backward $p, optimizer $p, ", r->phase_s[DT_RUN_FORWARD_S] / all,
                    r->phase_s[DT_RUN_BACKWARD_S] / all, r->phase_s[DT_RUN_OPTIMIZER_S] / all);
    fputs("without the first step. Dotted lines are evaluations, red ones restarts.</p>\n", out);
    write_ranks(out, r);
    write_ledger(out, r);
}

// ---- how it was made -------------------------------------------------------------------------------

static void write_fact(FILE *out, const char *what, const char *text) {
    if (*text) dt_page_put(out, "<tr><td>$t</td><td>$T</td></tr>\n", what, text);
}

static void write_facts(FILE *out, const dt_run_log *r) {
    const json_t *start = dt_run_log_event(r, "start"), *samples = json_object_get(start, "samples");
    fputs("<h2>Setup</h2>\n<div class=\"scroll\"><table class=\"words\"><tbody>\n", out);
    write_fact(out, "Directory", r->dir);
    write_fact(out, "Command", dt_report_text(start, "command"));
    write_fact(out, "Data", dt_report_text(start, "data"));
    if (samples)
        dt_page_put(out, "<tr><td>Samples</td><td>$n training, $n validation, $n test</td></tr>\n",
                    dt_report_real(samples, dt_split_name(DT_SPLIT_TRAIN)),
                    dt_report_real(samples, dt_split_name(DT_SPLIT_VAL)),
                    dt_report_real(samples, dt_split_name(DT_SPLIT_TEST)));
    write_fact(out, "Machine", dt_report_text(start, "machine"));
    if (isfinite(dt_report_real(start, "cores")))
        dt_page_put(out, "<tr><td>CPU</td><td>$t, $n cores, $n GiB of memory</td></tr>\n", dt_report_text(start, "cpu"),
                    dt_report_real(start, "cores"), rint(dt_report_real(start, "memory_bytes") / 1073741824));
    if (start)
        dt_page_put(out, "<tr><td>Ranks</td><td>$n, the first on $t</td></tr>\n", dt_report_real(start, "world_size"),
                    dt_report_text(start, "host"));
    write_fact(out, "dtrain", dt_report_text(start, "version"));
    dt_report_end_table(out);
}

typedef struct differences {
    FILE *out;
    const json_t *given; // what the user set; NULL: not known, every difference
} differences;

static void write_difference(void *ctx, const char *path, const char *value, const char *usual, bool is_default) {
    const differences *d = ctx;
    if (d->given ? !json_object_get(d->given, path) : is_default) return;
    dt_page_put(d->out, "<tr><td>$k</td><td>$T</td><td class=\"soft\">$t</td></tr>\n", path,
                d->given ? dt_report_text(d->given, path) : value,
                usual && strcmp(usual, "required") != 0 ? usual : "");
}

static void write_config(FILE *out, const dt_run_log *r) {
    char *text = NULL;
    dt_config *c = dt_report_config(r, &text);
    if (c) {
        fputs("<h3>Changed from the defaults</h3>\n", out);
        dt_report_begin_table(out, "words", "Key");
        fputs("<th>Value</th><th>Default</th>", out);
        dt_report_begin_rows(out);
        dt_config_each(c, write_difference,
                       &(differences){out, json_object_get(dt_run_log_event(r, "start"), "given")});
        dt_report_end_table(out);
        dt_config_destroy(c);
    }
    if (text)
        fputs("<details><summary>The whole config, with all defaults and resolved auto values</summary><pre>", out);
    for (char *at = text, *end; at && *at; at = end) {
        end = at + strcspn(at, "\n");
        if (*end) *end++ = '\0';
        dt_page_put(out, "$T\n", at);
    }
    if (text) fputs("</pre></details>\n", out);
    free(text);
}

dt_status dt_report_write(const dt_run_log *r, const char *path) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    dt_page_begin(out, r->name);
    write_head(out, r);
    fputs("<h2>Results</h2>\n", out);
    write_results(out, r);
    report_write_curves(out, r);
    dt_report_evaluations(out, r);
    write_problems(out, r);
    write_time(out, r);
    write_facts(out, r);
    write_config(out, r);
    dt_page_end(out);
    fclose(out);
    return dt_report_save(text, n, path);
}
