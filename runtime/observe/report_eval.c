// report_eval.c: confusion, classes, curves, errors and the worst samples of the evaluations; see report_internal.h.
//
// They come from evaluation-<split>.json; for a run without that file, from what its records in metrics.jsonl have.
#include "observe/report_internal.h"

#include "base/core.h"
#include "base/io.h"

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
    fputs("<h3>Confusion matrix</h3>\n", out);
    dt_report_begin_table(out, "confusion", "true ↓ predicted →");
    json_object_foreach(confusion, predicted, unused)
        dt_page_put(out, "<th title=\"$t\">$t</th>", predicted, predicted);
    dt_report_begin_rows(out);
    json_object_foreach(confusion, truth, row) {
        const double sum = report_eval_sum_of(row);
        dt_page_put(out, "<tr><td title=\"$t\">$t</td>", truth, truth);
        json_object_foreach(confusion, predicted, unused) {
            const double n = json_number_value(json_object_get(row, predicted));
            if (n > 0)
                dt_page_put(out, "<td style=\"--h:var(--c$i);--p:$i\">$n</td>", strcmp(truth, predicted) == 0 ? 2 : 1,
                            (int)(12 + 60 * n / sum), n);
            else
                fputs("<td class=\"soft\" data-v=\"0\">·</td>", out);
        }
        fputs("</tr>\n", out);
    }
    dt_report_end_table(out);
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
    dt_page_put(out, "<h3>The most frequent mistakes, of $i classes</h3>\n", (int)json_object_size(confusion));
    dt_report_begin_table(out, "", "True");
    fputs("<th class=\"name\">Predicted</th><th>Samples</th><th>Share of the class</th>", out);
    dt_report_begin_rows(out);
    for (size_t i = 0; i < n && i < MOST_MISTAKES; i++)
        dt_page_put(out, "<tr><td>$t</td><td class=\"name\">$t</td><td>$n</td><td data-v=\"$g\">$p</td></tr>\n",
                    all[i].truth, all[i].predicted, all[i].n, all[i].share, all[i].share);
    dt_report_end_table(out);
    free(all);
}

static void write_classes(FILE *out, const json_t *report) {
    json_t *classes = json_object_get(report, "classes"), *row;
    const char *name;
    int n = 0;
    if (json_object_size(classes) == 0) return;
    const bool folded = json_object_size(classes) > FOLDED_ROWS;
    fputs("<h3>By class</h3>\n", out);
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
    if (folded) fputs("</details>\n", out);
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

static void write_eval_curves(FILE *out, const json_t *target) {
    dt_chart roc = {.title = "ROC", .x = "false positive rate", .unit_square = true},
             pr = {.title = "Precision over recall", .x = "recall", .unit_square = true};
    const json_t *curves = json_object_get(target, "curves"), *errors = json_object_get(target, "errors");
    if (json_array_size(curves) + json_array_size(errors) == 0) return;
    const int n = (int)json_array_size(curves),
              n_classes = (int)json_object_size(json_object_get(json_object_get(target, "report"), "classes"));
    if (n == DT_REPORT_CURVES && n < n_classes)
        dt_page_put(out, "<p class=\"soft\">Curves of the $i of $i classes that have the least recall.</p>\n", n,
                    n_classes);
    fputs("<div class=\"charts\">\n", out);
    for (size_t i = 0; i < json_array_size(curves); i++) {
        const json_t *c = json_array_get(curves, i);
        add_points(&roc, dt_report_text(c, "name"), json_object_get(c, "roc"), (int)i);
        add_points(&pr, dt_report_text(c, "name"), json_object_get(c, "pr"), (int)i);
    }
    dt_chart_write(out, &roc);
    dt_chart_write(out, &pr);
    for (size_t i = 0; i < json_array_size(errors); i++) write_histogram(out, json_array_get(errors, i));
    fputs("</div>\n", out);
}

// ---- the worst samples -----------------------------------------------------------------------------

// Base64 and nothing else goes into the attribute.
static bool is_base64(const char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    return *text && text[strspn(text, letters)] == '\0';
}

static void write_sample(FILE *out, const json_t *sample) {
    const char *image = dt_report_text(sample, "image"), *key = dt_report_text(sample, "key"),
               *predicted = dt_report_text(sample, "predicted"), *truth = dt_report_text(sample, "truth");
    const double p = dt_report_real(sample, "probability");
    fputs("<figure>", out);
    if (is_base64(image)) {
        fprintf(out, "<img src=\"data:image/png;base64,%s\"", image);
        dt_page_put(out, " alt=\"$t\">", key);
    }
    dt_page_put(out, "<span title=\"$t\"><b class=\"bad\">$t</b>", predicted, predicted);
    if (isfinite(p)) dt_page_put(out, " $p", p);
    dt_page_put(out,
                "</span><span title=\"$t\">is $t</span><span class=\"soft\" title=\"$t\">$t</span>"
                "<span class=\"soft\">loss $n</span></figure>\n",
                truth, truth, key, key, dt_report_real(sample, "loss"));
}

static void write_worst(FILE *out, const json_t *target) {
    const json_t *wrong = json_object_get(target, "wrong");
    if (json_array_size(wrong) == 0) return;
    const bool sure = json_object_get(json_array_get(wrong, 0), "probability") != NULL;
    dt_page_put(out, "<h3>$t</h3>\n<div class=\"wrong\">\n", sure ? "Most confident mistakes" : "Largest errors");
    for (size_t i = 0; i < json_array_size(wrong); i++) write_sample(out, json_array_get(wrong, i));
    fputs("</div>\n", out);
}

// ---- the evaluations -------------------------------------------------------------------------------

static void write_target(FILE *out, const json_t *target) {
    json_t *confusion = json_object_get(target, "confusion");
    if (*dt_report_text(target, "field")) dt_page_put(out, "<h3>Target $t</h3>\n", dt_report_text(target, "field"));
    write_worst(out, target);
    if (json_object_size(confusion) > MOST_CLASSES)
        write_mistakes(out, confusion);
    else if (json_object_size(confusion) > 0)
        write_matrix(out, confusion);
    write_classes(out, json_object_get(target, "report"));
    write_eval_curves(out, target);
}

// The content of evaluation-<split>.json, or of the record in its form; NULL: there is neither. The caller drops it.
static json_t *find_evaluation(const dt_run_log *r, const char *split) {
    char *path = dt_xprintf("%s/evaluation-%s.json", r->dir, split), *text = NULL;
    size_t n = 0;
    json_t *record = dt_run_log_eval(r, split), *found = NULL, *member;
    if (dt_io_exists(path) && dt_io_read_own(&text, &n, path, 64 << 20, DT_E_STORAGE) == DT_OK)
        found = json_loadb(text, n, 0, NULL);
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
    static const char *const members[] = {"confusion", "report", "curves", "errors", "wrong"};
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
            for (size_t k = 0; k < json_array_size(targets); k++) write_target(out, json_array_get(targets, k));
            if (n++ > 0) fputs("</details>\n", out);
        }
        json_decref(e);
    }
}
