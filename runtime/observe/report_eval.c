// report_eval.c: confusion, classes, curves, errors and the worst samples of the evaluations; see report_internal.h.
//
// They come from evaluation-<split>.json; for a run without that file, from what its records in metrics.jsonl have.
#include "observe/report_internal.h"

#include "base/core.h"
#include "base/formats.h"
#include "base/io.h"
#include "base/log.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CLASSES = 32, MOST_MISTAKES = 20, MOST_ROWS = 1000, FOLDED_ROWS = 40 };

// ---- classes ---------------------------------------------------------------------------------------

static double report_eval_sum_of(json_t *row) {
    const char *name;
    json_t *n;
    double sum = 0;
    json_object_foreach(row, name, n) sum += json_number_value(n);
    return sum;
}

static void write_matrix(FILE *out, json_t *confusion) {
    const char *truth, *predicted;
    json_t *row, *unused;
    size_t longest = 0;
    double *sums = dt_xcalloc(json_object_size(confusion) + 1, sizeof *sums), all = 0; // of columns
    json_object_foreach(confusion, truth, unused) if (strlen(truth) > longest) longest = strlen(truth);
    fputs("<section><h3>Confusion matrix</h3>\n", out);
    dt_report_begin_table(out, longest > 3 ? "confusion rotated" : "confusion", "true ↓ predicted →");
    json_object_foreach(confusion, predicted, unused)
        dt_page_put(out, "<th title=\"$t\"><span>$t</span></th>", predicted, predicted);
    fputs("<th class=\"soft\"><span>all</span></th>", out);
    dt_report_begin_rows(out);
    json_object_foreach(confusion, truth, row) {
        const double sum = report_eval_sum_of(row);
        size_t k = 0;
        dt_page_put(out, "<tr><td title=\"$t\">$t</td>", truth, truth);
        json_object_foreach(confusion, predicted, unused) {
            const double n = json_number_value(json_object_get(row, predicted));
            sums[k++] += n;
            if (n > 0)
                dt_page_put(out, "<td style=\"--h:var(--c$i);--p:$i\" title=\"$t → $t: $p\">$n</td>",
                            strcmp(truth, predicted) == 0 ? 2 : 1, (int)(12 + 60 * n / sum), truth, predicted, n / sum,
                            n);
            else
                fputs("<td class=\"soft\" data-v=\"0\">·</td>", out);
        }
        dt_page_put(out, "<td class=\"soft\">$n</td></tr>\n", sum);
        all += sum;
    }
    fputs("</tbody><tfoot><tr class=\"soft\"><td>all</td>", out);
    for (size_t k = 0; k < json_object_size(confusion); k++) dt_page_put(out, "<td>$n</td>", sums[k]);
    dt_page_put(out, "<td>$n</td></tr></tfoot></table></div></section>\n", all);
    free(sums);
}

typedef struct mistake {
    const char *truth, *predicted;
    double n, share; // samples of the class: how many, their share
} mistake;

static int by_count(const void *a, const void *b) {
    const double x = ((const mistake *)a)->n, y = ((const mistake *)b)->n;
    return (x < y) - (x > y);
}

static void write_mistakes(FILE *out, json_t *confusion) {
    mistake *all = NULL;
    size_t n = 0;
    const char *truth, *predicted;
    json_t *row, *value;
    json_object_foreach(confusion, truth, row) {
        const double sum = report_eval_sum_of(row);
        json_object_foreach(row, predicted, value) {
            if (strcmp(truth, predicted) == 0) continue;
            all = dt_xgrow(all, n, sizeof *all);
            all[n++] = (mistake){truth, predicted, json_number_value(value), json_number_value(value) / sum};
        }
    }
    if (n > 0) qsort(all, n, sizeof *all, by_count);
    dt_page_put(out, "<section><h3>The most frequent mistakes, of $i classes</h3>\n", (int)json_object_size(confusion));
    dt_report_begin_table(out, "", "True");
    fputs("<th class=\"name\">Predicted</th><th>Samples</th><th>Share of the class</th>", out);
    dt_report_begin_rows(out);
    for (size_t i = 0; i < n && i < MOST_MISTAKES; i++)
        dt_page_put(out, "<tr><td>$t</td><td class=\"name\">$t</td><td>$n</td><td data-v=\"$g\">$p</td></tr>\n",
                    all[i].truth, all[i].predicted, all[i].n, all[i].share, all[i].share);
    dt_report_end_table(out);
    fputs("</section>", out);
    free(all);
}

static void write_classes(FILE *out, const json_t *report) {
    json_t *classes = json_object_get(report, "classes"), *row;
    const char *name;
    int n = 0;
    if (json_object_size(classes) == 0) return;
    const bool folded = json_object_size(classes) > FOLDED_ROWS;
    fputs("<section><h3>By class</h3>\n", out);
    if (folded) dt_page_put(out, "<details><summary>$i classes</summary>", (int)json_object_size(classes));
    dt_report_begin_table(out, "", "Class");
    fputs("<th>Precision</th><th>Recall</th><th>F1</th><th>Samples</th>", out);
    dt_report_begin_rows(out);
    json_object_foreach(classes, name, row) {
        if (n++ == MOST_ROWS) break;
        dt_page_put(out, "<tr><td title=\"$t\">$t</td>", name, name);
        dt_report_cell(out, dt_report_real(row, "precision"));
        dt_report_cell(out, dt_report_real(row, "recall"));
        dt_report_cell(out, dt_report_real(row, "f1"));
        dt_report_cell(out, dt_report_real(row, "support"));
        fputs("</tr>\n", out);
    }
    dt_report_end_table(out);
    fputs(folded ? "</details></section>\n" : "</section>\n", out);
}

// ---- intervals and groups --------------------------------------------------------------------------

enum { MOST_WHISKERS = 32, MOST_MEASURED = 4 };

// The interval of a metric; without one both ends are NaN.
static dt_whisker whisker_of(const char *label, const json_t *values, const char *metric) {
    const json_t *interval = json_object_get(json_object_get(values, "interval"), metric);
    const json_t *low = json_array_get(interval, 0), *high = json_array_get(interval, 1);
    return (dt_whisker){label, dt_report_real(values, metric), json_is_number(low) ? json_number_value(low) : NAN,
                        json_is_number(high) ? json_number_value(high) : NAN};
}

// A metric of all samples, and of each group of eval.by.
static void write_whiskers(FILE *out, const json_t *values, const char *metric, double all) {
    dt_whisker rows[MOST_WHISKERS];
    int n = 1;
    const char *column, *value;
    json_t *groups, *group;
    rows[0] = whisker_of(dt_xstrdup("all"), values, metric);
    rows[0].value = all;
    json_object_foreach(json_object_get(values, "by"), column, groups) json_object_foreach(groups, value, group) {
        if (n == MOST_WHISKERS || !isfinite(dt_report_real(group, metric))) continue;
        rows[n++] = whisker_of(dt_xprintf("%s %s", column, value), group, metric);
    }
    if (isfinite(all) && (n > 1 || isfinite(rows[0].low))) dt_chart_write_whiskers(out, metric, rows, n);
    for (int i = 0; i < n; i++) free((char *)rows[i].label);
}

// values: the evaluation's record, or its member of a named target, whose single numbers are "field.metric" of the record.
static void write_intervals(FILE *out, const dt_run_log *r, json_t *record, const char *field) {
    json_t *values = *field ? json_object_get(record, field) : record, *value;
    const char *name;
    int n = 0;
    const size_t skip = *field ? strlen(field) + 1 : 0;
    if (!json_object_get(values, "interval") && !json_object_get(values, "by")) return;
    fputs(json_object_get(values, "interval") ? "<h3>Intervals of 95 %</h3>\n<div class=\"charts\">\n"
                                              : "<h3>Groups</h3>\n<div class=\"charts\">\n",
          out);
    json_object_foreach(record, name, value) {
        if (n == MOST_MEASURED || !dt_run_is_metric(name, value)) continue;
        if (skip && (strncmp(name, field, skip - 1) != 0 || name[skip - 1] != '.')) continue;
        if (dt_run_is_detail(r, name + skip)) continue;
        write_whiskers(out, values, name + skip, json_number_value(value));
        n++;
    }
    fputs("</div>\n", out);
}

// ---- curves ----------------------------------------------------------------------------------------

static void add_points(dt_chart *c, const char *label, const json_t *points, int colour) {
    dt_curve *k = dt_chart_add(c, label, (int)json_array_size(points), colour);
    for (int i = 0; k && i < k->n; i++) {
        const json_t *p = json_array_get(points, (size_t)i);
        const double y = json_number_value(json_array_get(p, 1));
        k->points[i] = (dt_xy){json_number_value(json_array_get(p, 0)), y, y, y};
    }
}

// Steps of a histogram: two points a bin.
static void write_histogram(FILE *out, const json_t *h) {
    const json_t *counts = json_object_get(h, "counts");
    const double from = dt_report_real(h, "from"), to = dt_report_real(h, "to");
    const int n = (int)json_array_size(counts);
    char *title = dt_xprintf("Errors of %s", dt_report_text(h, "name"));
    dt_chart c = {.title = title, .x = "predicted − true", .kind = DT_CHART_AREAS, .bare = true};
    dt_curve *k = dt_chart_add(&c, "samples", 2 * n, 0);
    for (int i = 0; k && i < 2 * n; i++) {
        const double y = json_number_value(json_array_get(counts, (size_t)(i / 2)));
        k->points[i] = (dt_xy){from + (to - from) * ((i + 1) / 2) / n, y, 0, 0};
    }
    dt_chart_write(out, &c);
    free(title);
}

// Predicted over true, with the diagonal on which both are equal.
static void write_scatter(FILE *out, const json_t *h) {
    const json_t *points = json_object_get(h, "points");
    double low = INFINITY, high = -INFINITY;
    char *title = dt_xprintf("Predicted %s", dt_report_text(h, "name"));
    dt_chart c = {.title = title, .x = "true", .bare = true};
    add_points(&c, dt_report_text(h, "name"), points, 0);
    if (c.n > 0) c.curves[0].look = DT_CURVE_DOTS;
    for (int i = 0; c.n > 0 && i < c.curves[0].n; i++) {
        low = fmin(low, c.curves[0].points[i].x);
        high = fmax(high, c.curves[0].points[i].x);
    }
    dt_curve *equal = c.n > 0 ? dt_chart_add(&c, "equal", 2, 0) : NULL;
    if (equal) {
        equal->look = DT_CURVE_GUIDE;
        equal->points[0] = (dt_xy){low, low, low, low};
        equal->points[1] = (dt_xy){high, high, high, high};
        c.x_from = low - 0.03 * (high - low);
        c.x_to = high + 0.03 * (high - low);
    }
    dt_chart_write(out, &c);
    free(title);
}

// The part of the unit square in which curves differ, without the ends that all curves have: a ROC curve leaves x = 0
// at some rate and reaches 1 at some other, a precision ends where the recall becomes 1.
static void fit_unit_square(dt_chart *c, bool is_roc) {
    double x = 0, y = 1;
    for (int k = 0; k < c->n; k++) {
        const dt_xy *p = c->curves[k].points, *last = p + c->curves[k].n - 1;
        while (is_roc && p < last && p[1].x <= 0) p++;
        while (!is_roc && last > c->curves[k].points && last[-1].x >= 1) last--;
        for (const dt_xy *q = p; q <= last; q++) y = fmin(y, q->y);
        while (p < last && p->y < 0.999) p++;
        x = fmax(x, p->x);
    }
    if (is_roc) c->x_to = x > 0.5 ? 1 : fmax(ceil(x * 1.1 * 20) / 20, 0.05);
    c->y_from = fmax(fmin(floor((y - 0.02) * 20) / 20, 0.95), 0);
}

static void write_eval_curves(FILE *out, const json_t *target) {
    dt_chart roc = {.title = "ROC", .x = "false positive rate", .unit_square = true},
             pr = {.title = "Precision over recall", .x = "recall", .unit_square = true};
    char *labels[DT_CHART_CURVES][2];
    const json_t *curves = json_object_get(target, "curves"), *errors = json_object_get(target, "errors");
    if (json_array_size(curves) + json_array_size(errors) == 0) return;
    const int n = (int)json_array_size(curves),
              n_classes = (int)json_object_size(json_object_get(json_object_get(target, "report"), "classes"));
    if (n == DT_REPORT_CURVES && n < n_classes)
        dt_page_put(out, "<p class=\"soft\">Curves of the $i of $i classes that have the least recall.</p>\n", n,
                    n_classes);
    fputs("<div class=\"charts\">\n", out);
    for (int i = 0; i < n && i < DT_CHART_CURVES; i++) {
        const json_t *c = json_array_get(curves, (size_t)i);
        const double auc = dt_report_real(c, "auc"), ap = dt_report_real(c, "ap");
        char **label = labels[i];
        label[0] = dt_xprintf(isfinite(auc) ? "%s · AUC %.3f" : "%s", dt_report_text(c, "name"), auc);
        label[1] = dt_xprintf(isfinite(ap) ? "%s · AP %.3f" : "%s", dt_report_text(c, "name"), ap);
        add_points(&roc, label[0], json_object_get(c, "roc"), i);
        add_points(&pr, label[1], json_object_get(c, "pr"), i);
    }
    fit_unit_square(&roc, true);
    fit_unit_square(&pr, false);
    dt_chart_write(out, &roc);
    dt_chart_write(out, &pr);
    for (int i = 0; i < n && i < DT_CHART_CURVES; i++) free(labels[i][0]), free(labels[i][1]);
    for (size_t i = 0; i < json_array_size(errors); i++) {
        write_scatter(out, json_array_get(errors, i));
        write_histogram(out, json_array_get(errors, i));
    }
    fputs("</div>\n", out);
}

// ---- samples ---------------------------------------------------------------------------------------

// Base64 and nothing else goes into the attribute.
static bool is_base64(const char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    return *text && text[strspn(text, letters)] == '\0';
}

// Channels of a signal, on the range of them all.
static void write_lines(FILE *out, const json_t *lines) {
    enum { W = 160, H = 64 };
    double low = INFINITY, high = -INFINITY;
    for (int pass = 0; pass < 2; pass++) {
        const double by = high > low ? (H - 4) / (high - low) : 0;
        if (pass == 1) dt_page_put(out, "<svg viewBox=\"0 0 $i $i\" class=\"signal\">", (int)W, (int)H);
        for (size_t c = 0; c < json_array_size(lines); c++) {
            const json_t *line = json_array_get(lines, c);
            const size_t n = json_array_size(line);
            if (pass == 1) dt_page_put(out, "<g class=\"k$i\"><polyline points=\"", (int)c % 8);
            for (size_t i = 0; i < n; i++) {
                const double y = json_number_value(json_array_get(line, i));
                low = fmin(low, y);
                high = fmax(high, y);
                if (pass == 1) fprintf(out, "%.1f,%.1f ", W * (i + 0.5) / (double)n, H - 2 - (y - low) * by);
            }
            if (pass == 1) fputs("\"/></g>", out);
        }
        if (pass == 1) fputs("</svg>", out);
    }
}

// A picture or signal with its axes, where it has some: seconds from left to right, frequencies from the bottom.
static void write_panel(FILE *out, const json_t *panel, const char *key) {
    const char *png = dt_report_text(panel, "png");
    const json_t *lines = json_object_get(panel, "lines"), *hz = json_object_get(panel, "hz");
    const double seconds = dt_report_real(panel, "seconds");
    dt_page_put(out, "<div class=\"panel$t\">", json_array_size(hz) == 3 ? " spectrum" : "");
    for (int i = 2; i >= 0 && json_array_size(hz) == 3; i--) {
        const double f = json_number_value(json_array_get(hz, (size_t)i));
        fprintf(out, f >= 1000 ? "<i>%.2g kHz</i>" : "<i>%.3g Hz</i>", f >= 1000 ? f / 1000 : f);
    }
    if (is_base64(png)) {
        fprintf(out, "<img src=\"data:image/png;base64,%s\"", png);
        dt_page_put(out, " alt=\"$t\">", key);
    } else if (json_array_size(lines) > 0) {
        write_lines(out, lines);
    }
    if (isfinite(seconds)) dt_page_put(out, "<small><i>0</i><i>$s</i></small>", seconds);
    fputs("</div>", out);
}

static void write_sample(FILE *out, const json_t *sample) {
    const char *key = dt_report_text(sample, "key"), *predicted = dt_report_text(sample, "predicted"),
               *truth = dt_report_text(sample, "truth");
    const json_t *panels = json_object_get(sample, "panels");
    const double p = dt_report_real(sample, "probability");
    fputs("<figure>", out);
    for (size_t i = 0; i < json_array_size(panels); i++) write_panel(out, json_array_get(panels, i), key);
    dt_page_put(out, "<figcaption>$t → <b class=\"$t\">$t</b>", truth, strcmp(truth, predicted) == 0 ? "good" : "bad",
                predicted);
    if (isfinite(p)) dt_page_put(out, " <span class=\"nowrap\">$p</span>", p);
    dt_page_put(
        out, "</figcaption><span class=\"soft\" title=\"$t\">$t</span><span class=\"soft\">loss $n</span></figure>\n",
        key, key, dt_report_real(sample, "loss"));
}

enum { SAMPLE_COLUMNS = 8, LEAST_COLUMNS = 2 }; // of both grids; of one

static void write_samples(FILE *out, const json_t *samples, const char *title, int columns) {
    if (json_array_size(samples) == 0) return;
    dt_page_put(out,
                "<section style=\"--n:$i\"><h3>$t <span class=\"soft\">truth → prediction</span></h3>\n"
                "<div class=\"wrong\">\n",
                columns, title);
    for (size_t i = 0; i < json_array_size(samples); i++) write_sample(out, json_array_get(samples, i));
    fputs("</div></section>\n", out);
}

// Two grids side by side have columns by their samples, so that the higher one is as low as can be.
static void write_both_samples(FILE *out, const json_t *wrong, const json_t *uncertain) {
    const int n_wrong = (int)json_array_size(wrong), n_uncertain = (int)json_array_size(uncertain);
    const bool sure = json_object_get(json_array_get(wrong, 0), "probability") != NULL;
    int columns = SAMPLE_COLUMNS, least = INT_MAX;
    for (int k = LEAST_COLUMNS; n_uncertain > 0 && k <= SAMPLE_COLUMNS - LEAST_COLUMNS; k++) {
        const int others = SAMPLE_COLUMNS - k, rows = (n_wrong + k - 1) / k,
                  below = (n_uncertain + others - 1) / others;
        if ((rows > below ? rows : below) < least) least = rows > below ? rows : below, columns = k;
    }
    fputs("<div class=\"beside samples\">\n", out);
    write_samples(out, wrong, sure ? "Most confident mistakes" : "Largest errors", columns);
    write_samples(out, uncertain, "Least certain samples", SAMPLE_COLUMNS - (n_wrong > 0 ? columns : 0));
    fputs("</div>\n", out);
}

// ---- the evaluations -------------------------------------------------------------------------------

static void write_target(FILE *out, const dt_run_log *r, const json_t *target, json_t *record) {
    json_t *confusion = json_object_get(target, "confusion");
    if (*dt_report_text(target, "field")) dt_page_put(out, "<h3>Target $t</h3>\n", dt_report_text(target, "field"));
    write_intervals(out, r, record, dt_report_text(target, "field"));
    write_both_samples(out, json_object_get(target, "wrong"), json_object_get(target, "uncertain"));
    fputs("<div class=\"beside\">\n", out);
    if (json_object_size(confusion) > MOST_CLASSES)
        write_mistakes(out, confusion);
    else if (json_object_size(confusion) > 0)
        write_matrix(out, confusion);
    write_classes(out, json_object_get(target, "report"));
    fputs("</div>\n", out);
    write_eval_curves(out, target);
}

// The content of evaluation-<split>.json, or of the record in its form; NULL: there is neither. The caller drops it.
static json_t *find_evaluation(const dt_run_log *r, const char *split) {
    char *path = dt_xprintf("%s/evaluation-%s.json", r->dir, split), *text = NULL;
    size_t n = 0;
    json_t *record = dt_run_log_eval(r, split), *found = NULL, *member;
    if (dt_io_exists(path) && dt_io_read_own(&text, &n, path, 64 << 20, DT_E_STORAGE) == DT_OK)
        found = json_loadb(text, n, 0, NULL);
    if (dt_format_check(path, json_integer_value(json_object_get(found, "schema")), DT_FORMAT_EVALUATION, NULL) !=
        DT_OK) {
        dt_warn("%s", dt_error_message());
        json_decref(found);
        found = NULL;
    }
    dt_error_clear();
    free(text);
    free(path);
    // the file is of another step where the run was resumed from an earlier one
    if (found && record && dt_report_real(found, "step") == dt_report_real(record, "step")) return found;
    json_decref(found);
    if (!record) return NULL;
    found = json_pack("{s:O,s:[O]}", "step", json_object_get(record, "step"), "targets", record);
    const char *name;
    json_object_foreach(record, name,
                        member) if (json_object_get(member, "confusion") || json_object_get(member, "report")) {
        json_t *target = json_copy(member);
        json_object_set_new(target, "field", json_string(name));
        json_array_append_new(json_object_get(found, "targets"), target);
    }
    return found;
}

static bool has_something(const json_t *targets) {
    static const char *const members[] = {"confusion", "report", "curves", "errors", "wrong", "interval", "by"};
    for (size_t i = 0; i < json_array_size(targets); i++)
        for (size_t k = 0; k < sizeof members / sizeof *members; k++)
            if (json_object_get(json_array_get(targets, i), members[k])) return true;
    return false;
}

void dt_report_evaluations(FILE *out, const dt_run_log *r) {
    const struct {
        const char *split, *title;
    } parts[] = {{DT_TEST_BEST, "Test split, best weights"},
                 {dt_split_name(DT_SPLIT_TEST), "Test split"},
                 {dt_split_name(DT_SPLIT_VAL), "Validation split"}};
    int n = 0;
    for (int i = 0; i < 3; i++) {
        json_t *e = find_evaluation(r, parts[i].split);
        const json_t *targets = json_object_get(e, "targets");
        if (has_something(targets)) {
            dt_page_put(out,
                        n == 0 ? "<h2>Evaluation</h2>\n<p class=\"soft\">$t, step $d</p>\n"
                               : "<details><summary>$t, step $d</summary>\n",
                        parts[i].title, (int64_t)json_integer_value(json_object_get(e, "step")));
            for (size_t k = 0; k < json_array_size(targets); k++)
                write_target(out, r, json_array_get(targets, k), dt_run_log_eval(r, parts[i].split));
            if (n++ > 0) fputs("</details>\n", out);
        }
        json_decref(e);
    }
}
