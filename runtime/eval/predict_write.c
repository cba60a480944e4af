// predict_write.c: see the header. Rows gather in memory and are written a few at a time.
#include "eval/predict.h"

#include "base/core.h"
#include "base/io.h"
#include "base/json.h"
#include "base/text.h"
#include "config/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 16 }; // rows of about 64 KB per write

typedef enum format { CSV, JSONL, NPY, UNKNOWN } format;

struct dt_predict_writer {
    dt_predict_format f;
    format format;
    dt_io_file file; // not begun: stdout
    FILE *rows;      // in memory: text
    char *text;      // of rows: open_memstream moves it as it grows
    size_t n_text;
    dt_json json;
    int32_t *order;                           // of a row's classes
    const char *const *truth[DT_MAX_TARGETS]; // columns of the set with true values
    int n_truth[DT_MAX_TARGETS];
    char *also_text; // heap: also[] point into it
    const char *also[DT_PREDICT_SOURCES];
    int n_also;
};

static format predict_write_format_of(const char *path) {
    static const char *const EXTS[] = {".csv", ".jsonl", ".npy"};
    const char *dot = path ? strrchr(path, '.') : EXTS[CSV]; // without a path: CSV on stdout
    for (int i = 0; dot && i < UNKNOWN; i++)
        if (strcasecmp(dot, EXTS[i]) == 0) return (format)i; // .CSV is CSV
    return UNKNOWN;
}

dt_status dt_predict_check(const char *path, int n_columns, bool logits, bool embedding) {
    const format f = predict_write_format_of(path);
    const char *dot = path ? strrchr(path, '.') : NULL;
    if (f == UNKNOWN && dot && strcasecmp(dot, ".parquet") == 0)
        return dt_fail(DT_E_USAGE,
                       "%s: no Parquet: write .csv, then in Python pandas.read_csv(\"out.csv\")"
                       ".to_parquet(\"out.parquet\")",
                       path);
    if (f == UNKNOWN) return dt_fail(DT_E_USAGE, "%s: unknown extension; expected .csv, .jsonl or .npy", path);
    if (f != NPY) return DT_OK; // text formats hold any columns
    if (logits && embedding) return dt_fail(DT_E_USAGE, "%s holds one array: take --logits or --embeddings", path);
    if (n_columns > 1 && !embedding)
        return dt_fail(DT_E_USAGE,
                       "%s holds one array, and the run has %d targets: take .csv or "
                       ".jsonl",
                       path, n_columns);
    return DT_OK;
}

// ---- columns of the set ----------------------------------------------------------------------------

static dt_status predict_write_cell(const dt_predict_writer *w, const char *column, int64_t i, char **text,
                                    bool *number) {
    const dt_dataset *d = w->f.data;
    *text = NULL;
    return d && d->cell && w->f.n_samples > 0 ? d->cell(d, column, w->f.split, i, text, number) : DT_E_USAGE;
}

// Whether a column has true values: of classes it names one that the run knows. A folder of new photographs may be the
// label of all of them.
static bool has_truth(const dt_predict_writer *w, const dt_predict_column *c, const char *column) {
    bool found = false, number;
    dt_status st = DT_OK;
    for (int64_t i = 0; i < w->f.n_samples && st == DT_OK && !found; i++) {
        char *text;
        st = predict_write_cell(w, column, i, &text, &number);
        found = st == DT_OK && c->kind != DT_PREDICTS_CLASSES;
        for (int64_t k = 0; text && k < c->n && !found; k++) found = strcmp(text, c->name[k]) == 0;
        free(text);
    }
    if (st != DT_OK) dt_error_clear();
    return found;
}

static void find_truth(dt_predict_writer *w, int i) {
    const dt_predict_column *c = &w->f.columns[i];
    const bool classes = c->kind == DT_PREDICTS_CLASSES;
    int n = 0;
    while (n < c->n_sources && has_truth(w, c, c->source[n]) != classes) n++; // classes: the first that is there
    w->truth[i] = c->source + (classes ? n : 0);
    // of numbers: all elements, or none, as where they are of a member
    w->n_truth[i] = classes ? n < c->n_sources : n == c->n ? n : 0;
}

static dt_status find_also(dt_predict_writer *w) {
    char *rest = NULL;
    w->also_text = dt_xstrdup(w->f.also ? w->f.also : "");
    for (char *at = strtok_r(w->also_text, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
        char *text;
        bool number;
        if (w->n_also == DT_PREDICT_SOURCES) return dt_fail(DT_E_USAGE, "--columns: more than %d", DT_PREDICT_SOURCES);
        bool is_there = dt_word_index("key|path|key2|path2|error", at) >= 0;
        for (int k = 0; k < w->n_also; k++) is_there |= strcmp(at, w->also[k]) == 0;
        if (is_there) return dt_fail(DT_E_USAGE, "--columns: rows have %s already", at);
        for (int i = 0; i < w->f.n_columns; i++)
            if (strcmp(at, w->f.columns[i].field) == 0)
                return dt_fail(DT_E_USAGE, "--columns: %s is what is predicted; its true value is %s.truth", at, at);
        const dt_status st = w->f.n_samples > 0 ? predict_write_cell(w, at, 0, &text, &number) : DT_OK;
        if (st != DT_OK) return dt_fail_context(st, "--columns");
        if (w->f.n_samples > 0) free(text);
        w->also[w->n_also++] = at;
    }
    return DT_OK;
}

static void put_cell_of(const dt_predict_writer *w, const char *column, int64_t i) {
    char *text;
    bool number;
    putc(',', w->rows);
    if (predict_write_cell(w, column, i, &text, &number) == DT_OK && text) dt_text_print_cell(w->rows, text);
    free(text);
}

static void put_json_cell_of(dt_predict_writer *w, const char *key, const char *column, int64_t i, bool as_number) {
    char *text, *end = NULL;
    bool number;
    const dt_status st = predict_write_cell(w, column, i, &text, &number);
    const double v = text ? strtod(text, &end) : NAN;
    if (st != DT_OK || !text)
        dt_json_null(&w->json, key);
    else if ((number || as_number) && end != text && !*end)
        dt_json_real(&w->json, key, v);
    else
        dt_json_string(&w->json, key, text);
    free(text);
}

// ---- text ------------------------------------------------------------------------------------------

static dt_status predict_write_flush(dt_predict_writer *w) {
    fflush(w->rows);
    const bool is_file = w->file.path != NULL;
    dt_status st =
        // stdout gets the same bytes, without a temporary file
        dt_io_write(is_file ? w->file.fd : STDOUT_FILENO, is_file ? w->file.path : "stdout", w->text, w->n_text);
    rewind(w->rows); // fflush has set n_text; the buffer is used again
    return st;
}

static void predict_write_put_number(FILE *out, double v) {
    fprintf(out, isfinite(v) ? ",%.9g" : ",", v); // an empty cell stands for NaN, as pandas reads it
}

static int digits_of(const dt_predict_column *c, int64_t k) {
    // numbers far from 0 need more digits for the same resolution (dt_field_digits)
    return c->kind == DT_PREDICTS_NUMBERS ? dt_field_digits(c->info, k, 9) : 9;
}

// "<field>.<name>", or the field alone where it has one number.
static void put_title(FILE *out, const dt_predict_column *c, const char *infix, int64_t k) {
    // infix: ".logit", ".variance"
    char *text = c->name ? dt_xprintf("%s%s.%s", c->field, infix, c->name[k]) : dt_xprintf("%s%s", c->field, infix);
    putc(',', out);
    dt_text_print_cell(out, text);
    free(text);
}

static void put_plain_title(FILE *out, const dt_predict_column *c, const char *what) {
    char *text = dt_xprintf("%s.%s", c->field, what);
    putc(',', out);
    dt_text_print_cell(out, text);
    free(text);
}

static int n_listed(const dt_predict_writer *w, const dt_predict_column *c) {
    return c->n < w->f.top ? (int)c->n : w->f.top; // classes of a row: top, or all
}

static void put_deviation_titles(FILE *out, const dt_predict_column *c) {
    static const char *const OF_CLASSES[] = {"variance", "entropy", "mutual_information"};
    for (int64_t k = 0; k < c->n && c->kind != DT_PREDICTS_CLASSES; k++) put_title(out, c, ".variance", k);
    for (int k = 0; k < 3 && c->kind == DT_PREDICTS_CLASSES; k++) put_plain_title(out, c, OF_CLASSES[k]);
}

static void put_titles(dt_predict_writer *w, int n_records) {
    FILE *out = w->rows;
    fputs(n_records > 1 ? "key,path,key2,path2" : "key,path", out);
    for (int i = 0; i < w->n_also; i++) putc(',', out), dt_text_print_cell(out, w->also[i]);
    for (int i = 0; i < w->f.n_columns; i++) {
        const dt_predict_column *c = &w->f.columns[i];
        if (c->kind == DT_PREDICTS_CLASSES && w->n_truth[i]) put_plain_title(out, c, "truth");
        for (int k = 0; c->kind != DT_PREDICTS_CLASSES && k < w->n_truth[i]; k++) put_title(out, c, ".truth", k);
        // "<field>", "<field>.probability", "<field>.2", "<field>.2.probability", …
        for (int k = 0; c->kind == DT_PREDICTS_CLASSES && k < n_listed(w, c); k++) {
            char *rank = k ? dt_xprintf(".%d", k + 1) : dt_xstrdup("");
            char *text = dt_xprintf("%s%s", c->field, rank);
            putc(',', out);
            dt_text_print_cell(out, text);
            putc(',', out);
            char *probability = dt_xprintf("%s.probability", text);
            dt_text_print_cell(out, probability);
            free(probability);
            free(text);
            free(rank);
        }
        // labels and numbers: a column for each
        for (int64_t k = 0; c->kind != DT_PREDICTS_CLASSES && k < c->n; k++) put_title(out, c, "", k);
        if (c->kind == DT_PREDICTS_LABELS) put_plain_title(out, c, "predicted");
        for (int64_t k = 0; w->f.logits && k < c->n; k++) put_title(out, c, ".logit", k);
        if (w->f.deviates) put_deviation_titles(out, c);
    }
    for (int64_t k = 0; k < w->f.n_embedding; k++) fprintf(out, ",embedding.%lld", (long long)k);
    fputs(",error\n", out);
}

// The most probable classes, the first of equal ones first.
// Insertion into the n best so far, for n far below the number of classes.
static void sort_classes(dt_predict_writer *w, const dt_predict_column *c, const double *p) {
    int n = 0;
    for (int32_t i = 0; i < c->n; i++) {
        // at n == n_listed the last place is compared, but never written behind
        int at = n < n_listed(w, c) ? n++ : n;
        // strictly greater: equal ones keep their order
        for (; at > 0 && p[i] > p[w->order[at - 1]]; at--)
            if (at < n) w->order[at] = w->order[at - 1];
        if (at < n) w->order[at] = i;
    }
}

static int records_of(const dt_predict_writer *w, int64_t index, uint32_t of[DT_MAX_WIDTH]) {
    const dt_dataset *d = w->f.data;
    return d->records && d->key ? d->records(d, w->f.split, index, of) : 0;
}

static void put_predicted(FILE *out, const dt_predict_column *c, const double *p) {
    char *text = dt_xstrdup("");
    for (int64_t k = 0; p && k < c->n; k++) // p is NULL in a row without prediction
        if (p[k] >= c->thresholds[k]) dt_xappend(&text, "%s%s", *text ? "|" : "", c->name ? c->name[k] : c->field);
    putc(',', out);
    dt_text_print_cell(out, text);
    free(text);
}

static void predict_write_put_csv(dt_predict_writer *w, const dt_predict_row *r) {
    uint32_t of[DT_MAX_WIDTH];
    FILE *out = w->rows;
    const int n = records_of(w, r->index, of);
    for (int i = 0; i < n; i++) {
        // key and path are the data set's: valid until the next call
        const char *path, *key = w->f.data->key(w->f.data, of[i], &path);
        if (i) putc(',', out);
        dt_text_print_cell(out, key);
        putc(',', out);
        dt_text_print_cell(out, path);
    }
    for (int i = 0; i < w->n_also; i++) put_cell_of(w, w->also[i], r->index);
    for (int i = 0; i < w->f.n_columns; i++) {
        const dt_predict_column *c = &w->f.columns[i];
        const double *p = r->value[i];
        for (int k = 0; k < w->n_truth[i]; k++) put_cell_of(w, w->truth[i][k], r->index);
        const bool classes = c->kind == DT_PREDICTS_CLASSES;
        if (classes && p) sort_classes(w, c, p);
        for (int k = 0; classes && k < n_listed(w, c); k++) {
            // a class name may hold commas: quoted as a cell
            putc(',', out);
            if (p) dt_text_print_cell(out, c->name[w->order[k]]);
            // without a prediction the cells are empty, so that columns stay aligned
            predict_write_put_number(out, p ? p[w->order[k]] : NAN);
        }
        for (int64_t k = 0; !classes && k < c->n; k++)
            fprintf(out, p && isfinite(p[k]) ? ",%.*g" : ",", digits_of(c, k), p ? p[k] : NAN);
        if (c->kind == DT_PREDICTS_LABELS) put_predicted(out, c, p);
        for (int64_t k = 0; w->f.logits && k < c->n; k++)
            predict_write_put_number(out, p ? (double)r->logits[i][k] : NAN);
        for (int64_t k = 0; w->f.deviates && !classes && k < c->n; k++)
            predict_write_put_number(out, p ? r->variance[i][k] : NAN);
        if (!w->f.deviates || !classes) continue;
        predict_write_put_number(out, p ? r->variance[i][w->order[0]] : NAN); // of the first class
        predict_write_put_number(out, p ? r->entropy[i] : NAN);
        predict_write_put_number(out, p ? r->information[i] : NAN);
    }
    for (int64_t k = 0; k < w->f.n_embedding; k++)
        predict_write_put_number(out, r->why ? NAN : (double)r->embedding[k]);
    putc(',', out);
    dt_text_print_cell(out, r->why ? r->why : "");
    putc('\n', out);
}

// ---- JSON ------------------------------------------------------------------------------------------

static void put_json_numbers(dt_json *j, const char *key, const float *v, int64_t n) {
    char text[32];
    // JSON has no NaN: null
    dt_json_begin_array(j, key);
    for (int64_t k = 0; k < n; k++) {
        snprintf(text, sizeof text, isfinite(v[k]) ? "%.9g" : "null", (double)v[k]); // 9 digits: a float survives
        dt_json_raw(j, NULL, text);
    }
    dt_json_end_array(j);
}

static void put_json_digits(dt_json *j, const char *key, int digits, double v) {
    char text[32];
    snprintf(text, sizeof text, isfinite(v) ? "%.*g" : "null", digits, v);
    dt_json_raw(j, key, text);
}

static void put_json_number(dt_json *j, const char *key, double v) {
    put_json_digits(j, key, 9, v);
}

static void put_json_value(dt_json *j, const dt_predict_column *c, const char *key, int64_t k, double v) {
    put_json_digits(j, key, digits_of(c, k), v);
}

static void put_json_deviation(dt_predict_writer *w, const dt_predict_row *r, int i) {
    const dt_predict_column *c = &w->f.columns[i];
    dt_json *j = &w->json;
    if (c->kind == DT_PREDICTS_CLASSES) {
        put_json_number(j, "variance", r->variance[i][w->order[0]]);
        put_json_number(j, "entropy", r->entropy[i]);
        put_json_number(j, "mutual_information", r->information[i]);
        return;
    }
    dt_json_begin_array(j, "variance");
    for (int64_t k = 0; k < c->n; k++) put_json_number(j, NULL, r->variance[i][k]);
    dt_json_end_array(j);
}

static void put_json_target(dt_predict_writer *w, const dt_predict_row *r, int i) {
    const dt_predict_column *c = &w->f.columns[i];
    const double *p = r->value[i];
    dt_json *j = &w->json;
    const bool labels = c->kind == DT_PREDICTS_LABELS;
    // a single number is a member rather than an object
    if (!c->name && !labels && !w->f.logits && !w->f.deviates) {
        put_json_value(j, c, c->field, 0, *p);
        return;
    }
    dt_json_begin_object(j, c->field);
    if (c->kind == DT_PREDICTS_CLASSES) {
        sort_classes(w, c, p);
        dt_json_string(j, "class", c->name[w->order[0]]);
        put_json_number(j, "probability", p[w->order[0]]);
        dt_json_begin_array(j, "top");
        for (int k = 0; k < n_listed(w, c); k++) {
            dt_json_begin_array(j, NULL);
            dt_json_string(j, NULL, c->name[w->order[k]]);
            put_json_number(j, NULL, p[w->order[k]]);
            dt_json_end_array(j);
        }
        dt_json_end_array(j);
    }
    for (int64_t k = 0; c->kind != DT_PREDICTS_CLASSES && k < c->n; k++)
        put_json_value(j, c, c->name ? c->name[k] : "value", k, p[k]); // a label without a name of its own
    if (labels) dt_json_begin_array(j, "predicted");
    for (int64_t k = 0; labels && k < c->n; k++)
        if (p[k] >= c->thresholds[k]) dt_json_string(j, NULL, c->name ? c->name[k] : c->field);
    if (labels) dt_json_end_array(j);
    if (w->f.logits) put_json_numbers(j, "logits", r->logits[i], c->n);
    if (w->f.deviates) put_json_deviation(w, r, i);
    dt_json_end_object(j);
}

// "<field>.truth": a class or number, or an object of them by element.
static void put_json_truth(dt_predict_writer *w, int64_t sample, int i) {
    const dt_predict_column *c = &w->f.columns[i];
    const bool classes = c->kind == DT_PREDICTS_CLASSES, several = !classes && c->name;
    char *key = dt_xprintf("%s.truth", c->field);
    if (several) dt_json_begin_object(&w->json, key);
    for (int k = 0; k < w->n_truth[i]; k++)
        put_json_cell_of(w, several ? c->name[k] : key, w->truth[i][k], sample, !classes);
    if (several) dt_json_end_object(&w->json);
    free(key);
}

static void predict_write_put_json(dt_predict_writer *w, const dt_predict_row *r) {
    // records of a sample: at most two (data.view.pairs)
    static const char *const KEYS[] = {"key", "key2"}, *const PATHS[] = {"path", "path2"};
    uint32_t of[DT_MAX_WIDTH];
    dt_json *j = &w->json;
    const int n = records_of(w, r->index, of);
    dt_json_reset(j);
    dt_json_begin_object(j, NULL);
    for (int i = 0; i < n; i++) {
        const char *path;
        dt_json_string(j, KEYS[i], w->f.data->key(w->f.data, of[i], &path));
        dt_json_string(j, PATHS[i], path);
    }
    for (int i = 0; i < w->n_also; i++) put_json_cell_of(w, w->also[i], w->also[i], r->index, false);
    for (int i = 0; i < w->f.n_columns; i++) {
        if (w->n_truth[i]) put_json_truth(w, r->index, i);
        if (!r->why) put_json_target(w, r, i); // an error has no prediction
    }
    if (w->f.n_embedding && !r->why) put_json_numbers(j, "embedding", r->embedding, w->f.n_embedding);
    if (r->why) dt_json_string(j, "error", r->why);
    dt_json_end_object(j);
    dt_json_newline(j);
    fwrite(j->data, 1, j->n_bytes, w->rows);
}

// ---- NPY -------------------------------------------------------------------------------------------

static int64_t row_of_npy(const dt_predict_writer *w) {
    return w->f.n_embedding ? w->f.n_embedding : w->f.columns[0].n;
}

static bool predict_write_is_wide(const dt_predict_writer *w) {
    bool wide = false;
    for (int64_t k = 0; !w->f.n_embedding && !w->f.logits && k < w->f.columns[0].n; k++)
        wide |= digits_of(&w->f.columns[0], k) > 9; // 9 digits no longer tell neighbouring values apart: float64
    return wide;
}

static void put_npy_header(dt_predict_writer *w) {
    char head[DT_NPY_HEAD];
    dt_text_npy_head(head, predict_write_is_wide(w) ? "<f8" : "<f4", (long long)w->f.n_samples,
                     (long long)row_of_npy(w));
    fwrite(head, 1, sizeof head, w->rows);
}

static void put_npy(dt_predict_writer *w, const dt_predict_row *r) {
    const bool wide = predict_write_is_wide(w); // not once a value: of K classes that is K² a row
    for (int64_t k = 0; k < row_of_npy(w); k++) {
        const double v = r->why             ? NAN
                         : w->f.n_embedding ? (double)r->embedding[k]
                         : w->f.logits      ? (double)r->logits[0][k]
                                            : r->value[0][k];
        // numbers of the unit are doubles; files of float32 are half as large
        const float rounded = (float)v;
        wide ? fwrite(&v, sizeof v, 1, w->rows) : fwrite(&rounded, sizeof rounded, 1, w->rows);
    }
}

// ---- life ------------------------------------------------------------------------------------------

dt_status dt_predict_writer_put(dt_predict_writer *w, const dt_predict_row *row) {
    if (w->format == CSV) predict_write_put_csv(w, row);
    if (w->format == JSONL) predict_write_put_json(w, row);
    if (w->format == NPY) put_npy(w, row);
    return ftello(w->rows) >= FLUSH_BYTES ? predict_write_flush(w) : DT_OK; // bounds memory; the last rows go at close
}

static void predict_write_destroy(dt_predict_writer *w) {
    if (w->rows) fclose(w->rows);
    free(w->text);
    free(w->order);
    free(w->also_text);
    dt_json_fini(&w->json);
    free(w);
}

// nothing of the file is visible until close renames it
dt_status dt_predict_writer_open(dt_predict_writer **out, const dt_predict_format *f) {
    dt_predict_writer *w = dt_xcalloc(1, sizeof *w);
    dt_status st = DT_OK;
    uint32_t of[DT_MAX_WIDTH];
    w->f = *f;
    w->format = predict_write_format_of(f->path);
    w->order = dt_xcalloc((size_t)f->top + 1, sizeof *w->order);
    dt_json_init(&w->json);
    for (int i = 0; i < f->n_columns; i++) find_truth(w, i);
    st = find_also(w);
    if (st == DT_OK && f->path) st = dt_io_begin(&w->file, f->path);
    if (st == DT_OK && !(w->rows = open_memstream(&w->text, &w->n_text))) st = dt_fail(DT_E_INTERNAL, "out of memory");
    if (st != DT_OK) {
        dt_io_end(&w->file, st); // st is an error: the temporary file goes
        predict_write_destroy(w);
        return st;
    }
    // the first row's records: every sample has as many
    if (w->format == CSV) put_titles(w, records_of(w, 0, of));
    if (w->format == NPY) put_npy_header(w);
    *out = w;
    return DT_OK;
}

dt_status dt_predict_writer_close(dt_predict_writer *w, dt_status st) {
    // after a failure the temporary file is dropped, and its name stays free
    if (!w) return st;
    if (st == DT_OK) st = predict_write_flush(w);
    st = dt_io_end(&w->file, st);
    predict_write_destroy(w);
    return st;
}
