// evidence.c: see evidence.h. Everything here is a function of the table, but for the pictures, which the data set makes.
#include "metrics/evidence.h"

#include "base/arena.h"
#include "observe/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 60, MOST_ERRORS = 12, N_BINS = 31, MOST_WORST = 24 };

// ---- curves ----------------------------------------------------------------------------------------

typedef struct scored {
    double score;
    int64_t row;
    bool truth;
} scored;

static int evidence_from_highest(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : (x->row > y->row) - (x->row < y->row);
}

static void add_point(dt_json *j, double x, double y) {
    dt_json_begin_array(j, NULL);
    dt_json_real(j, NULL, rint(x * 1e4) / 1e4);
    dt_json_real(j, NULL, rint(y * 1e4) / 1e4);
    dt_json_end_array(j);
}

// Thresholds between samples of equal score are no points of a curve; of the others about CURVE_POINTS are kept.
static void add_curve(dt_json *j, const scored *s, int64_t n, int64_t n_true, bool roc) {
    int64_t above_true = 0, next = 0;
    dt_json_begin_array(j, roc ? "roc" : "pr");
    add_point(j, 0, roc ? 0 : 1); // as scikit-learn's begin
    for (int64_t i = 0; i < n;) {
        const double score = s[i].score;
        for (; i < n && s[i].score == score; i++) above_true += s[i].truth;
        if (i < next && i < n) continue;
        next = i + (n + CURVE_POINTS - 1) / CURVE_POINTS;
        const double recall = (double)above_true / (double)n_true;
        if (roc)
            add_point(j, (double)(i - above_true) / (double)(n - n_true), recall);
        else
            add_point(j, recall, (double)above_true / (double)i);
    }
    dt_json_end_array(j);
}

// By row, what the logits of a sample exceed its log-probabilities by; heap. Sigmoids are in the order of the logits.
static double *log_sums(const dt_eval_table *t) {
    double *out = dt_xcalloc((size_t)t->n + 1, sizeof *out);
    for (int64_t i = 0; i < t->n && t->labels; i++) {
        const float *x = t->logits + i * t->n_out;
        const double most = (double)x[dt_eval_predicted(t, i, NULL)];
        double sum = 0;
        for (int64_t k = 0; k < t->n_out; k++) sum += exp((double)x[k] - most);
        out[i] = most + log(sum);
    }
    return out;
}

// The classes or labels that can have a curve: at most DT_REPORT_CURVES of them, those of least recall. Of two classes there
// is one curve.
static int64_t choose_outs(const dt_eval_table *t, scored *out) {
    dt_eval_count *counts = dt_eval_counts(t);
    int64_t n = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
        const dt_eval_count *c = &counts[k];
        if (c->truths == 0 || c->truths == t->n || (t->labels && t->n_out == 2 && k != t->positive)) continue;
        out[n++] = (scored){-(double)c->hits / (double)c->truths, k, false};
    }
    free(counts);
    if (n <= DT_REPORT_CURVES) return n;
    qsort(out, (size_t)n, sizeof *out, evidence_from_highest);
    return DT_REPORT_CURVES;
}

static void add_curves(dt_json *j, const dt_eval_table *t, dt_eval_result *names) {
    double *sums = log_sums(t);
    scored *outs = dt_xcalloc((size_t)t->n_out + 1, sizeof *outs);
    scored *s = dt_xcalloc((size_t)t->n + 1, sizeof *s);
    const int64_t n = choose_outs(t, outs);
    dt_json_begin_array(j, "curves");
    for (int64_t c = 0; c < n; c++) {
        const int64_t k = outs[c].row;
        int64_t n_true = 0;
        for (int64_t i = 0; i < t->n; i++) {
            s[i] = (scored){(double)t->logits[i * t->n_out + k] - sums[i], i, dt_eval_is_true(t, i, k)};
            n_true += s[i].truth;
        }
        qsort(s, (size_t)t->n, sizeof *s, evidence_from_highest);
        dt_json_begin_object(j, NULL);
        dt_json_string(j, "name", dt_eval_name(t, k, names));
        add_curve(j, s, t->n, n_true, true);
        add_curve(j, s, t->n, n_true, false);
        dt_json_end_object(j);
    }
    dt_json_end_array(j);
    free(s);
    free(outs);
    free(sums);
}

static void add_errors(dt_json *j, const dt_eval_table *t, dt_eval_result *names) {
    dt_json_begin_array(j, "errors");
    for (int64_t k = 0; k < t->n_out && k < MOST_ERRORS; k++) {
        int64_t counts[N_BINS] = {0};
        double most = 0; // the histogram is as wide on both sides of 0
        for (int64_t i = 0; i < t->n; i++)
            most = fmax(most, fabs(dt_eval_number(t, i, k, true) - dt_eval_number(t, i, k, false)));
        for (int64_t i = 0; i < t->n && most > 0; i++) {
            const double e = dt_eval_number(t, i, k, true) - dt_eval_number(t, i, k, false);
            const int bin = (int)((e / most + 1) / 2 * N_BINS);
            counts[bin < N_BINS ? bin : N_BINS - 1]++;
        }
        dt_json_begin_object(j, NULL);
        dt_json_string(j, "name", dt_eval_name(t, k, names));
        dt_json_real(j, "from", -most);
        dt_json_real(j, "to", most);
        dt_json_begin_array(j, "counts");
        for (int b = 0; b < N_BINS && most > 0; b++) dt_json_int(j, NULL, counts[b]);
        dt_json_end_array(j);
        dt_json_end_object(j);
    }
    dt_json_end_array(j);
}

// ---- the worst samples -----------------------------------------------------------------------------

static double probability_of(const dt_eval_table *t, int64_t i, int64_t class) {
    const float *x = t->logits + i * t->n_out;
    double sum = 0;
    for (int64_t k = 0; k < t->n_out; k++) sum += exp((double)x[k] - (double)x[class]);
    return 1 / sum;
}

// Of classes: the samples that are wrong, by how sure the network is; else all, by their loss.
static int64_t find_worst(const dt_eval_table *t, scored *out) {
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int64_t rank = 1, said = 0;
        if (t->labels) said = dt_eval_predicted(t, i, &rank);
        if (rank > 0) out[n++] = (scored){t->labels ? probability_of(t, i, said) : t->losses[i], i, false};
    }
    if (n > 0) qsort(out, (size_t)n, sizeof *out, evidence_from_highest);
    return n < MOST_WORST ? n : MOST_WORST;
}

// What is true of row i, or predicted: a class, numbers, or the labels that are true.
static void add_said(dt_json *j, const dt_eval_table *t, int64_t i, bool numbers, bool predicted,
                     dt_eval_result *names) {
    const float *x = (predicted ? t->logits : t->targets) + (t->labels ? 0 : i * t->n_out);
    char *text = dt_xstrdup("");
    if (t->labels)
        dt_xappend(&text, "%s", dt_eval_name(t, predicted ? dt_eval_predicted(t, i, NULL) : t->labels[i], names));
    for (int64_t k = 0; !t->labels && k < t->n_out && strlen(text) < 200; k++) {
        const double p = predicted && !numbers ? dt_eval_sigmoid((double)x[k]) : (double)x[k];
        if (numbers)
            dt_xappend(&text, "%s%.*g", *text ? ", " : "", t->field ? dt_field_digits(t->field, k, 4) : 4,
                       dt_eval_number(t, i, k, predicted));
        else if (predicted ? dt_eval_is_predicted(t, p, k) : dt_eval_is_true(t, i, k))
            dt_xappend(&text, "%s%s", *text ? ", " : "", dt_eval_name(t, k, names));
    }
    dt_json_string(j, predicted ? "predicted" : "truth", *text ? text : "none");
    free(text);
}

static void add_picture(dt_json *j, const uint8_t *x, size_t n) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = dt_xcalloc(4 * (n / 3 + 1) + 1, 1), *out = text;
    for (size_t i = 0; i < n; i += 3) {
        const uint32_t bits =
            (uint32_t)x[i] << 16 | (i + 1 < n ? (uint32_t)x[i + 1] << 8 : 0) | (i + 2 < n ? x[i + 2] : 0);
        *out++ = letters[bits >> 18];
        *out++ = letters[bits >> 12 & 63];
        *out++ = i + 1 < n ? letters[bits >> 6 & 63] : '=';
        *out++ = i + 2 < n ? letters[bits & 63] : '=';
    }
    dt_json_string(j, "image", text);
    free(text);
}

static void add_key(dt_json *j, const dt_dataset *d, dt_split split, int64_t sample) {
    uint32_t of[DT_MAX_WIDTH];
    const char *path;
    const int n = d->records && d->key ? d->records(d, split, sample, of) : 0;
    char *text = dt_xprintf("%lld", (long long)sample);
    for (int i = 0; i < n; i++) {
        if (i == 0) text[0] = '\0';
        dt_xappend(&text, "%s%s", i ? ", " : "", d->key(d, of[i], &path));
    }
    dt_json_string(j, "key", text);
    free(text);
}

static void add_worst(dt_json *j, const dt_eval_table *t, bool numbers, const dt_dataset *d, dt_split split,
                      const int64_t *samples, dt_eval_result *names) {
    scored *worst = dt_xcalloc((size_t)t->n + 1, sizeof *worst);
    const int64_t n = find_worst(t, worst);
    dt_json_begin_array(j, "wrong");
    for (int64_t w = 0; w < n; w++) {
        const int64_t i = worst[w].row;
        uint8_t *png = NULL;
        size_t n_bytes = 0;
        dt_json_begin_object(j, NULL);
        add_key(j, d, split, samples[i]);
        add_said(j, t, i, numbers, false, names);
        add_said(j, t, i, numbers, true, names);
        if (t->labels) dt_json_real(j, "probability", worst[w].score);
        dt_json_real(j, "loss", t->losses[i]);
        if (d->picture && d->picture(d, split, samples[i], &png, &n_bytes) != DT_OK) dt_error_clear();
        if (png) add_picture(j, png, n_bytes);
        dt_json_end_object(j);
        free(png);
    }
    dt_json_end_array(j);
    free(worst);
}

// ---- a target --------------------------------------------------------------------------------------

void dt_evidence_add(dt_json *j, const char *field, const dt_eval_table *t, bool numbers, const dt_dataset *data,
                     dt_split split, const int64_t *samples) {
    const unsigned of = t->labels ? DT_OF_CLASSES : numbers ? DT_OF_NUMBERS : DT_OF_LABELS;
    static const dt_metric_id tables[] = {DT_METRIC_confusion, DT_METRIC_report};
    dt_eval_result r; // of tables; and names live in it
    dt_eval_result_init(&r);
    dt_json_begin_object(j, NULL);
    if (field) dt_json_string(j, "field", field);
    add_worst(j, t, numbers, data, split, samples, &r);
    for (int i = 0; i < 2; i++) {
        const dt_metric *m = dt_metrics_table[tables[i]];
        if ((m->of & of) && t->n_out <= m->most_out) m->report(t, &r);
    }
    if (*dt_eval_result_members(&r)) dt_json_raw(j, NULL, dt_eval_result_members(&r));
    if (of == DT_OF_NUMBERS)
        add_errors(j, t, &r);
    else
        add_curves(j, t, &r);
    dt_json_end_object(j);
    dt_eval_result_fini(&r);
}
