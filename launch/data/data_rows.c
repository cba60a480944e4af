// data_rows.c: rows of a catalog as text.

#include "data_rows.h"

#include "data/catalog/select.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    const dt_catalog *c;
    dt_cli_rows *rows;
    FILE *out;
    dt_column_reader *column;
    char **name;
    dt_cell *cell;
    int n;
    dt_json json;
} writer;

// ---- columns ---------------------------------------------------------------------------------------
// A metadata column may have the name of one that every record has.
static void data_rows_add_column(writer *w, int i) {
    const char *name = dt_catalog_name(w->c, i);
    bool hidden = false;
    for (int k = DT_N_FIXED_COLUMNS; i < DT_N_FIXED_COLUMNS && k < dt_catalog_n_names(w->c); k++)
        hidden = hidden || strcmp(dt_catalog_name(w->c, k), name) == 0;
    dt_column_reader_init(&w->column[w->n], w->c, i);
    w->name[w->n++] = hidden ? dt_xprintf("record.%s", name) : dt_xstrdup(name);
}

static dt_status choose_columns(writer *w) {
    int all = dt_catalog_n_names(w->c), cap = all;
    for (const char *p = w->rows->columns; p && *p; p++) cap += *p == ',';
    w->column = dt_xcalloc((size_t)cap + 2, sizeof *w->column);
    w->cell = dt_xcalloc((size_t)cap + 2, sizeof *w->cell);
    w->name = dt_xcalloc((size_t)cap + 2, sizeof *w->name);
    if (!w->rows->columns) {
        bool fixed = w->rows->format != LAUNCH_ROWS_PAIRS;
        for (int i = 0; i < all; i++)
            if (i == DT_COLUMN_KEY || i >= DT_N_FIXED_COLUMNS || fixed) data_rows_add_column(w, i);
        return DT_OK;
    }
    char *copy = dt_xstrdup(w->rows->columns), *save = NULL;
    dt_status st = DT_OK;
    for (char *p = strtok_r(copy, ",", &save); p && st == DT_OK; p = strtok_r(NULL, ",", &save)) {
        int i = dt_catalog_find_name(w->c, p);
        if (i >= 0)
            data_rows_add_column(w, i);
        else
            st = dt_fail_context(DT_E_USAGE, "--columns");
    }
    if (st == DT_OK && w->n == 0) st = dt_fail(DT_E_USAGE, "--columns: expected names: a,b");
    free(copy);
    return st;
}

// ---- cells -----------------------------------------------------------------------------------------
static void put_cell(FILE *out, const dt_cell *c) {
    char text[DT_REAL_CHARS];
    if (c->kind != DT_CELL_NULL) dt_text_print(out, dt_cell_string(c, text));
}

// An empty text is in quotes: without them there is no value.
static void data_rows_put_csv(FILE *out, const dt_cell *c) {
    if (c->kind != DT_CELL_TEXT)
        put_cell(out, c);
    else if (*c->text)
        dt_text_print_cell(out, c->text);
    else
        fputs("\"\"", out);
}

static void data_rows_put_json(writer *w) {
    char text[DT_REAL_CHARS];
    dt_json_reset(&w->json);
    dt_json_begin_object(&w->json, NULL);
    for (int i = 0; i < w->n; i++) {
        const dt_cell *c = &w->cell[i];
        if (c->kind == DT_CELL_TEXT)
            dt_json_string(&w->json, w->name[i], c->text);
        else if (c->kind == DT_CELL_NUMBER && isfinite(c->number))
            dt_json_raw(&w->json, w->name[i], dt_cell_string(c, text));
        else
            dt_json_null(&w->json, w->name[i]);
    }
    dt_json_end_object(&w->json);
    fwrite(w->json.data, 1, w->json.n_bytes, w->out);
}

// ---- rows ------------------------------------------------------------------------------------------
static void put_pairs(writer *w) {
    bool keyed = !w->rows->columns;
    if (keyed) put_cell(w->out, &w->cell[0]);
    for (int i = keyed; i < w->n; i++) {
        if (w->cell[i].kind == DT_CELL_NULL) continue;
        fputc('\t', w->out);
        dt_text_print(w->out, w->name[i]);
        fputc('=', w->out);
        put_cell(w->out, &w->cell[i]);
    }
    fputc('\n', w->out);
}

static dt_status data_rows_put_row(writer *w, uint32_t record) {
    dt_cli_row_format f = w->rows->format;
    for (int i = 0; i < w->n; i++) w->cell[i] = dt_column_reader_get(&w->column[i], record);
    if (f == LAUNCH_ROWS_PAIRS) {
        put_pairs(w);
    } else if (f == LAUNCH_ROWS_VALUES || f == LAUNCH_ROWS_CSV) {
        for (int i = 0; i < w->n; i++) {
            if (i) fputc(f == LAUNCH_ROWS_CSV ? ',' : '\t', w->out);
            (f == LAUNCH_ROWS_CSV ? data_rows_put_csv : put_cell)(w->out, &w->cell[i]);
        }
        fputc('\n', w->out);
    } else {
        if (f == LAUNCH_ROWS_ARRAY) fputs(w->rows->n ? ",\n" : "[\n", w->out);
        data_rows_put_json(w);
        if (f == LAUNCH_ROWS_LINES) fputc('\n', w->out);
    }
    w->rows->n++;
    return ferror(w->out) ? dt_fail(DT_E_STORAGE, "cannot write the rows: %s", strerror(errno)) : DT_OK;
}

static void put_header(writer *w) {
    if (w->rows->format != LAUNCH_ROWS_CSV) return;
    for (int i = 0; i < w->n; i++) {
        if (i) fputc(',', w->out);
        dt_text_print_cell(w->out, w->name[i]);
    }
    fputc('\n', w->out);
}

static dt_status data_put_rows(writer *w, const bool *keep) {
    dt_cli_rows *rows = w->rows;
    put_header(w);
    for (uint32_t r = 0; r < w->c->n_records && (!rows->limit || rows->n < rows->limit); r++)
        if (!keep || keep[r]) DT_TRY(data_rows_put_row(w, r));
    if (rows->format == LAUNCH_ROWS_ARRAY) fputs(rows->n ? "\n]\n" : "[]\n", w->out);
    return DT_OK;
}

dt_status dt_cli_write_rows(const dt_catalog *c, const char *expression, dt_cli_rows *rows, FILE *out) {
    writer w = {.c = c, .rows = rows, .out = out};
    bool *keep = expression ? dt_xcalloc((size_t)c->n_records + 1, sizeof *keep) : NULL;
    uint32_t n;
    rows->n = 0;
    dt_json_init(&w.json);
    dt_status st = choose_columns(&w);
    if (st == DT_OK && expression) st = dt_catalog_select(c, expression, keep, &n);
    if (st == DT_OK) st = data_put_rows(&w, keep);
    for (int i = 0; i < w.n; i++) {
        dt_column_reader_fini(&w.column[i]);
        free(w.name[i]);
    }
    free(w.name);
    free(w.cell);
    free(w.column);
    free(keep);
    dt_json_fini(&w.json);
    return st;
}
