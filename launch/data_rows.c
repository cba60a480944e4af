// data_rows.c: rows of a catalog as text.

#include "data_rows.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

dt_status launch_open_query(dt_query **q, dt_set **set, const char *const *paths, int n) {
    *set = NULL;
    DT_TRY(dt_query_open_files(q, paths, (size_t)n, true));
    if (*q) return DT_OK;
    DT_TRY(dt_set_open(set, paths, (size_t)n));
    dt_status st = dt_query_open(q, (*set)->catalog);
    if (st == DT_OK) return DT_OK;
    dt_set_close(*set);
    *set = NULL;
    return st;
}

typedef struct writer {
    launch_rows *rows;
    FILE *out;
    int *column; // of the query
    char **name;
    int n;
    dt_json json;
} writer;

// ---- columns ---------------------------------------------------------------------------------------
// A metadata column may have the name of one that every record has.
static char *title(const dt_query *q, int i) {
    const char *name = dt_query_column(q, i);
    for (int k = DT_QUERY_FIXED; i < DT_QUERY_FIXED && k < dt_query_n_columns(q); k++)
        if (strcmp(dt_query_column(q, k), name) == 0) return dt_xprintf("record.%s", name);
    return dt_xstrdup(name);
}

static void add_column(writer *w, const dt_query *q, int i) {
    w->column[w->n] = i;
    w->name[w->n++] = title(q, i);
}

static dt_status choose_columns(writer *w, const dt_query *q) {
    int all = dt_query_n_columns(q), cap = all;
    for (const char *p = w->rows->columns; p && *p; p++) cap += *p == ',';
    w->column = dt_xcalloc((size_t)cap + 2, sizeof *w->column);
    w->name = dt_xcalloc((size_t)cap + 2, sizeof *w->name);
    if (!w->rows->columns) {
        bool fixed = w->rows->format != LAUNCH_ROWS_PAIRS;
        for (int i = 0; i < all; i++)
            if (i == 0 || i >= DT_QUERY_FIXED || fixed) add_column(w, q, i);
        return DT_OK;
    }
    char *copy = dt_xstrdup(w->rows->columns), *save = NULL;
    dt_status st = DT_OK;
    for (char *p = strtok_r(copy, ",", &save); p && st == DT_OK; p = strtok_r(NULL, ",", &save)) {
        int i = dt_query_find_column(q, p);
        if (i >= 0)
            add_column(w, q, i);
        else
            st = dt_fail(DT_E_USAGE, "--columns: %s", dt_error_message());
    }
    if (st == DT_OK && w->n == 0) st = dt_fail(DT_E_USAGE, "--columns: expected names: a,b");
    free(copy);
    return st;
}

// ---- cells -----------------------------------------------------------------------------------------
static void put_cell(FILE *out, const dt_cell *c) {
    char text[DT_REAL_CHARS];
    if (c->kind == DT_CELL_INT) fputs(dt_int_text(text, c->integer), out);
    if (c->kind == DT_CELL_REAL) fputs(dt_real_text(text, c->real), out);
    if (c->kind == DT_CELL_TEXT) dt_text_print(out, c->text);
}

static void put_csv_text(FILE *out, const char *text) {
    size_t n = strlen(text);
    bool quote = n == 0 || strpbrk(text, ",\"\r\n") || text[0] == ' ' || text[n - 1] == ' ';
    if (!quote) {
        dt_text_print(out, text);
        return;
    }
    fputc('"', out);
    for (const char *p = text, *end; *p; p = end) {
        char piece[256];
        size_t k = strcspn(p, "\"");
        if (k >= sizeof piece)
            k = sizeof piece - 4; // may split a letter of UTF-8: only C1 is looked at
        while (k > 1 && ((unsigned char)p[k] & 0xc0) == 0x80) k--;
        memcpy(piece, p, k);
        piece[k] = '\0';
        dt_text_print(out, piece);
        end = p + k;
        if (*end == '"') {
            fputs("\"\"", out);
            end++;
        }
    }
    fputc('"', out);
}

static void put_csv(FILE *out, const dt_cell *c) {
    if (c->kind == DT_CELL_TEXT)
        put_csv_text(out, c->text);
    else
        put_cell(out, c);
}

static void put_json(writer *w, const dt_cell *cells) {
    dt_json_reset(&w->json);
    dt_json_begin_object(&w->json, NULL);
    for (int i = 0; i < w->n; i++) {
        const dt_cell *c = &cells[i];
        if (c->kind == DT_CELL_INT) dt_json_int(&w->json, w->name[i], c->integer);
        if (c->kind == DT_CELL_REAL) dt_json_real(&w->json, w->name[i], c->real);
        if (c->kind == DT_CELL_TEXT) dt_json_string(&w->json, w->name[i], c->text);
        if (c->kind == DT_CELL_NULL) dt_json_null(&w->json, w->name[i]);
    }
    dt_json_end_object(&w->json);
    fwrite(w->json.data, 1, w->json.n_bytes, w->out);
}

// ---- rows ------------------------------------------------------------------------------------------
static void put_pairs(writer *w, const dt_cell *cells) {
    bool keyed = !w->rows->columns;
    if (keyed) put_cell(w->out, &cells[0]);
    for (int i = keyed; i < w->n; i++) {
        if (cells[i].kind == DT_CELL_NULL) continue;
        fputc('\t', w->out);
        dt_text_print(w->out, w->name[i]);
        fputc('=', w->out);
        put_cell(w->out, &cells[i]);
    }
    fputc('\n', w->out);
}

static dt_status put_row(void *ctx, const dt_cell *cells, int n) {
    writer *w = ctx;
    launch_row_format f = w->rows->format;
    if (f == LAUNCH_ROWS_PAIRS) {
        put_pairs(w, cells);
    } else if (f == LAUNCH_ROWS_VALUES || f == LAUNCH_ROWS_CSV) {
        for (int i = 0; i < n; i++) {
            if (i) fputc(f == LAUNCH_ROWS_CSV ? ',' : '\t', w->out);
            (f == LAUNCH_ROWS_CSV ? put_csv : put_cell)(w->out, &cells[i]);
        }
        fputc('\n', w->out);
    } else {
        if (f == LAUNCH_ROWS_ARRAY) fputs(w->rows->n ? ",\n" : "[\n", w->out);
        put_json(w, cells);
        if (f == LAUNCH_ROWS_LINES) fputc('\n', w->out);
    }
    w->rows->n++;
    return ferror(w->out) ? dt_fail(DT_E_STORAGE, "cannot write the rows: %s", strerror(errno))
                          : DT_OK;
}

static void put_header(writer *w) {
    if (w->rows->format != LAUNCH_ROWS_CSV) return;
    for (int i = 0; i < w->n; i++) {
        if (i) fputc(',', w->out);
        put_csv_text(w->out, w->name[i]);
    }
    fputc('\n', w->out);
}

dt_status launch_write_rows(dt_query *q, const char *expression, launch_rows *rows, FILE *out) {
    writer w = {.rows = rows, .out = out};
    rows->n = 0;
    dt_json_init(&w.json);
    dt_status st = choose_columns(&w, q);
    if (st == DT_OK) {
        put_header(&w);
        st = dt_query_rows(q, expression, w.column, w.n, rows->limit, put_row, &w);
    }
    if (st == DT_OK && rows->format == LAUNCH_ROWS_ARRAY) fputs(rows->n ? "\n]\n" : "[]\n", out);
    for (int i = 0; i < w.n; i++) free(w.name[i]);
    free(w.name);
    free(w.column);
    dt_json_fini(&w.json);
    return st;
}
