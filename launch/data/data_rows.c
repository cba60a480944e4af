// data_rows.c: rows of a catalog as text.

#include "base/core.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/catalog/select.h"
#include "data/file/parquet_write.h"
#include "data/source/source.h"
#include "launch/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum row_format {
    LAUNCH_ROWS_PAIRS,  // key, then name=value of what there is, separated by tabs
    LAUNCH_ROWS_VALUES, // values separated by tabs
    LAUNCH_ROWS_CSV,    // RFC 4180 with a header
    LAUNCH_ROWS_LINES,  // a JSON object a line
    LAUNCH_ROWS_ARRAY,  // a JSON array
    LAUNCH_ROWS_PARQUET
} row_format;

// Control characters are escaped (\n, \x1b; a backslash is doubled) in all but JSON, which has its own, and Parquet.
typedef struct chosen_rows {
    row_format format;
    const char *columns; // "a,b"; NULL: all
    uint64_t limit;      // 0: none
    uint64_t n;          // out: how many were written
} chosen_rows;

typedef struct writer {
    const dt_catalog *c;
    chosen_rows *rows;
    FILE *out;
    dt_column_accessor *column;
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
    dt_column_accessor_init(&w->column[w->n], w->c, i);
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
        int i = dt_catalog_find_name(w->c, p), n = w->n;
        if (i < 0) st = dt_fail_context(DT_E_USAGE, "--columns");
        if (i >= 0) data_rows_add_column(w, i);
        for (int k = 0; k < n && i >= 0 && st == DT_OK; k++)
            if (strcmp(w->name[k], w->name[n]) == 0) st = dt_fail(DT_E_USAGE, "--columns: %s is there twice", p);
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
    row_format f = w->rows->format;
    for (int i = 0; i < w->n; i++) w->cell[i] = dt_column_accessor_get(&w->column[i], record);
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

// The next record from r on that is written; n_records: none.
static uint32_t next_row(const writer *w, const bool *keep, uint32_t r) {
    while (r < w->c->n_records && keep && !keep[r]) r++;
    return w->rows->limit && w->rows->n >= w->rows->limit ? w->c->n_records : r;
}

// A column of whole numbers that are stored as text is one of integers; one of which a value is no number, of text.
static dt_status data_put_parquet(writer *w, const bool *keep) {
    const uint32_t n_records = w->c->n_records;
    dt_parquet_kind *kind = dt_xcalloc((size_t)w->n + 1, sizeof *kind);
    dt_parquet_writer *p = dt_parquet_writer_create(w->out);
    dt_status st = DT_OK;
    char text[DT_REAL_CHARS];
    for (int i = 0; i < w->n; i++) {
        bool any = false;
        for (uint32_t r = 0; (r = next_row(w, keep, r)) < n_records; r++) {
            const dt_cell c = dt_column_accessor_get(&w->column[i], r);
            const bool whole = dt_cell_is_whole(&c) && (c.text || !w->column[i].t);
            const dt_parquet_kind own = c.kind == DT_CELL_TEXT ? DT_PARQUET_TEXT
                                        : whole                ? DT_PARQUET_INT
                                                               : DT_PARQUET_REAL;
            if (c.kind != DT_CELL_NULL && own > kind[i]) kind[i] = own;
            any = any || c.kind != DT_CELL_NULL;
        }
        dt_parquet_writer_add_column(p, w->name[i], kind[i] = any ? kind[i] : DT_PARQUET_TEXT);
    }
    for (uint32_t r = 0; st == DT_OK && (r = next_row(w, keep, r)) < n_records; r++) {
        for (int i = 0; i < w->n; i++) {
            const dt_cell c = dt_column_accessor_get(&w->column[i], r);
            const bool any = c.kind != DT_CELL_NULL;
            const double real = (double)c.number;
            const int64_t whole = any && kind[i] == DT_PARQUET_INT ? (int64_t)c.number : 0; // else no such number
            const void *value = kind[i] == DT_PARQUET_TEXT  ? dt_cell_string(&c, text)
                                : kind[i] == DT_PARQUET_INT ? (const void *)&whole
                                                            : &real;
            dt_parquet_writer_put(p, (uint32_t)i, any ? value : NULL);
        }
        st = dt_parquet_writer_end_row(p);
        w->rows->n++;
    }
    const dt_status closed = dt_parquet_writer_close(p);
    free(kind);
    return st == DT_OK ? closed : st;
}

static dt_status data_put_rows(writer *w, const bool *keep) {
    chosen_rows *rows = w->rows;
    if (rows->format == LAUNCH_ROWS_PARQUET) return data_put_parquet(w, keep);
    put_header(w);
    for (uint32_t r = 0; (r = next_row(w, keep, r)) < w->c->n_records; r++) DT_TRY(data_rows_put_row(w, r));
    if (rows->format == LAUNCH_ROWS_ARRAY) fputs(rows->n ? "\n]\n" : "[]\n", w->out);
    return DT_OK;
}

// Writes the chosen rows to `out`. expression NULL: all. DT_E_STORAGE when `out` fails.
static dt_status write_rows(const dt_catalog *c, const char *expression, chosen_rows *rows, FILE *out) {
    writer w = {.c = c, .rows = rows, .out = out};
    bool *keep = expression ? dt_xcalloc((size_t)c->n_records + 1, sizeof *keep) : NULL;
    uint32_t n;
    rows->n = 0;
    dt_json_init(&w.json);
    dt_status st = choose_columns(&w);
    if (st == DT_OK && expression) st = dt_catalog_select(c, expression, keep, &n);
    if (st == DT_OK) st = data_put_rows(&w, keep);
    for (int i = 0; i < w.n; i++) {
        dt_column_accessor_fini(&w.column[i]);
        free(w.name[i]);
    }
    free(w.name);
    free(w.cell);
    free(w.column);
    free(keep);
    dt_json_fini(&w.json);
    return st;
}

// ---- data ls ------------------------------------------------------------------------------------------------------

// Dtrain data ls SET: the records of a set, from its catalog alone.

enum { LIMIT };
static const dt_cli_option options[] = {[LIMIT] = {"--limit", "N", "print at most N records (default: all)"}, {NULL}};

static void print_record(const dt_catalog *c, uint32_t r) {
    const dt_record *rec = &c->records[r];
    char text[DT_REAL_CHARS];
    dt_text_print(stdout, dt_catalog_str(c, rec->key));
    for (uint32_t m = 0; m < rec->n_members; m++) {
        const dt_member *member = &c->members[rec->first_member + m];
        putchar('\t');
        dt_text_print(stdout, dt_catalog_str(c, c->exts[member->ext]));
        printf(":%" PRIu64, member->size);
    }
    for (int k = 0; k < (int)c->table.n_columns; k++) {
        if (!dt_columns_has(&c->table, k, r)) continue;
        const char *value = dt_catalog_value(c, k, r);
        putchar('\t');
        dt_text_print(stdout, dt_columns_name(&c->table, k));
        putchar('=');
        dt_text_print(stdout, value ? value : dt_real_text(text, dt_catalog_real(c, k, r)));
    }
    putchar('\n');
}

static dt_status data_ls_run(const dt_cli_words *w) {
    int limit = 0;
    DT_TRY(dt_cli_expect_words(w, "data ls", 1, 1000000, "SET"));
    DT_TRY(dt_cli_option_int(w, LIMIT, 1000000000, &limit));
    dt_reader *s = NULL;
    DT_TRY(dt_reader_open(&s, w->words, (size_t)w->n_words));
    for (uint32_t r = 0; r < s->catalog->n_records && r < (uint32_t)limit; r++) print_record(s->catalog, r);
    dt_reader_close(s);
    return DT_OK;
}

const dt_cli_command dt_cli_data_ls = {
    .options = options,
    .text = "Prints key, members with their sizes, and metadata columns of each record, separated by tabs.\n\n"
            "  dtrain data ls 'datasets/biometric-{000000..000003}.tar' --limit 5\n",
    .run = data_ls_run};

// ---- data query ---------------------------------------------------------------------------------------------------

// Dtrain data query SET… EXPR: records by an expression.

enum { COUNT, COLUMNS, JSON, DATA_QUERY_LIMIT };
static const dt_cli_option data_query_options[] = {
    [COUNT] = {"--count", NULL, "print only the number of records"},
    [COLUMNS] = {"--columns", "A,B", "print only these columns, separated by tabs"},
    [JSON] = {"--json", NULL, "print a JSON object per line"},
    [DATA_QUERY_LIMIT] = {"--limit", "N", "print at most N records"},
    {NULL}};

static dt_status data_query_count(const dt_catalog *c, const char *expression) {
    bool *keep = dt_xcalloc((size_t)c->n_records + 1, sizeof *keep);
    uint32_t n;
    dt_status st = dt_catalog_select(c, expression, keep, &n);
    if (st == DT_OK) printf("%" PRIu32 "\n", n);
    free(keep);
    return st;
}

static dt_status data_query_run(const dt_cli_words *w) {
    dt_reader *reader;
    int limit = 0;
    DT_TRY(dt_cli_expect_words(w, "data query", 2, 1000000, "SET… EXPR"));
    DT_TRY(dt_cli_option_int(w, DATA_QUERY_LIMIT, 0, &limit));
    const char *expression = w->words[w->n_words - 1];
    chosen_rows rows = {.format = w->options[JSON]      ? LAUNCH_ROWS_LINES
                                  : w->options[COLUMNS] ? LAUNCH_ROWS_VALUES
                                                        : LAUNCH_ROWS_PAIRS,
                        .columns = w->options[COLUMNS],
                        .limit = (uint64_t)limit};
    DT_TRY(dt_reader_open(&reader, w->words, (size_t)w->n_words - 1));
    dt_status st = w->options[COUNT] ? data_query_count(reader->catalog, expression)
                                     : write_rows(reader->catalog, expression, &rows, stdout);
    dt_reader_close(reader);
    return st;
}

const dt_cli_command dt_cli_data_query = {
    .options = data_query_options,
    .text = "Prints the records for which EXPR is true, without reading their data. data.where of a config takes the "
            "same expressions; docs/reference/catalog.md describes the language.\n\n"
            "  dtrain data query datasets/biometric.lmdb \"finger = 'index' and subject <= 10\"\n"
            "  dtrain data query 'photos-{000000..000003}.tar' 'sharpness < 0.1' --columns key,sharpness\n"
            "  dtrain data query photos.lmdb \"label in ('glass', 'metal') or label is null\" --count\n"
            "  dtrain data query a.lmdb b.lmdb \"not (set = 'a' and key like '%test%')\" --json\n",
    .run = data_query_run};

// ---- data export --------------------------------------------------------------------------------------------------

// Dtrain data export SET… OUT: the catalog as CSV, JSON, Parquet or an SQLite database.

enum { WHERE, DATA_EXPORT_COLUMNS, DATA_EXPORT_JSON, DATA_EXPORT_LIMIT, SQLITE, OVERWRITE };
static const dt_cli_option data_export_options[] = {
    [WHERE] = {"--where", "EXPR", "only the records that match"},
    [DATA_EXPORT_COLUMNS] = {"--columns", "A,B", "only these columns"},
    [DATA_EXPORT_JSON] = {"--json", NULL, "with OUT = -: print a JSON object per line instead of CSV"},
    [DATA_EXPORT_LIMIT] = {"--limit", "N", "at most N records"},
    [SQLITE] = {"--sqlite", "OUT", "write an SQLite database; all other arguments are SETs"},
    [OVERWRITE] = {"--overwrite", NULL, "replace OUT"},
    {NULL}};

static dt_status data_export_format_of(const char *out, bool json, row_format *f) {
    if (strcmp(out, "-") == 0)
        *f = json ? LAUNCH_ROWS_LINES : LAUNCH_ROWS_CSV;
    else if (dt_text_ends(out, ".csv"))
        *f = LAUNCH_ROWS_CSV;
    else if (dt_text_ends(out, ".json"))
        *f = LAUNCH_ROWS_ARRAY;
    else if (dt_text_ends(out, ".jsonl"))
        *f = LAUNCH_ROWS_LINES;
    else if (dt_text_ends(out, ".parquet"))
        *f = LAUNCH_ROWS_PARQUET;
    else
        return dt_fail(DT_E_USAGE, "%s: expected a name that ends in .csv, .json, .jsonl or .parquet, or -", out);
    return DT_OK;
}

static dt_status data_export_write_file(const dt_catalog *c, const char *where, chosen_rows *rows, const char *path) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n); // of the size of the catalog, which is in memory as well
    if (!out) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_status st = write_rows(c, where, rows, out);
    fclose(out);
    if (st == DT_OK) st = dt_io_write_file(path, text, n);
    free(text);
    return st;
}

static dt_status data_export_run(const dt_cli_words *w) {
    const char *db = w->options[SQLITE];
    chosen_rows rows = {.columns = w->options[DATA_EXPORT_COLUMNS]};
    int limit = 0;
    dt_reader *reader;
    for (int i = 0; db && i < SQLITE; i++)
        if (w->options[i])
            return dt_fail(DT_E_USAGE, "%s: --sqlite writes all records and columns", data_export_options[i].name);
    DT_TRY(dt_cli_expect_words(w, "data export", db ? 1 : 2, 1000000, db ? "SET…" : "SET… OUT"));
    const int n_sets = db ? w->n_words : w->n_words - 1;
    const char *out = db ? db : w->words[n_sets];
    const bool pipe = !db && strcmp(out, "-") == 0;
    if (!db) DT_TRY(data_export_format_of(out, w->options[DATA_EXPORT_JSON] != NULL, &rows.format));
    DT_TRY(dt_cli_option_int(w, DATA_EXPORT_LIMIT, 0, &limit));
    rows.limit = (uint64_t)limit;
    if (!pipe && !w->options[OVERWRITE] && dt_io_exists(out))
        return dt_fail(DT_E_USAGE, "%s exists: choose another name, or --overwrite", out);
    DT_TRY(dt_reader_open(&reader, w->words, (size_t)n_sets));
    const dt_catalog *c = reader->catalog;
    const dt_status st = db     ? dt_catalog_db_write(out, c)
                         : pipe ? write_rows(c, w->options[WHERE], &rows, stdout)
                                : data_export_write_file(c, w->options[WHERE], &rows, out);
    if (st == DT_OK && !pipe) dt_info("%s: %" PRIu64 " records", out, db ? (uint64_t)c->n_records : rows.n);
    dt_reader_close(reader);
    return st;
}

const dt_cli_command dt_cli_data_export = {
    .options = data_export_options,
    .text = "Writes keys, files and all metadata columns of a set for a spreadsheet or another program. In CSV, "
            "control characters are escaped as \\n, \\x1b and so on, and a backslash is doubled.\n\n"
            "  dtrain data export datasets/biometric.lmdb biometric.csv\n"
            "  dtrain data export photos.lmdb photos.parquet\n"
            "  dtrain data export photos.lmdb - --where 'sharpness < 0.1' --columns key,shard\n"
            "  dtrain data export photos.lmdb --sqlite photos.sqlite\n",
    .run = data_export_run};

// ---- data stat ----------------------------------------------------------------------------------------------------

// Dtrain data stat SET: what is in a set, from its catalog alone.

enum { COUNTS };
static const dt_cli_option data_stat_options[] = {
    [COUNTS] = {"--counts", "COLUMN[,COLUMN]",
                "print all values of a column with their counts; of two columns a table of both"},
    {NULL}};

static uint32_t *data_stat_count_values(const dt_catalog *c, uint32_t column) {
    uint32_t *n = dt_xcalloc((size_t)c->table.columns[column].n_values + 1, sizeof *n);
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint32_t v = dt_catalog_cell(c, (int)column, r);
        if (v != DT_NO_VALUE) n[v]++;
    }
    return n;
}

static int data_stat_compare(const void *pa, const void *pb) {
    const long double a = *(const long double *)pa, b = *(const long double *)pb;
    return (a > b) - (a < b);
}

// Between neighbours on a line, as numpy.quantile.
static double quantile(const long double *sorted, uint32_t n, double share) {
    const double at = share * (n - 1);
    const uint32_t i = (uint32_t)at;
    const long double next = i + 1 < n ? sorted[i + 1] : sorted[i];
    return (double)(sorted[i] + (at - i) * (next - sorted[i]));
}

// Exact where it is whole.
static const char *data_stat_number_text(char buffer[DT_REAL_CHARS], long double v) {
    return dt_cell_string(&(dt_cell){.kind = DT_CELL_NUMBER, .number = v}, buffer);
}

// "1..45, mean 23, deviation 13, quartiles 12, 23, 34": of the numbers of a column; the deviation is divided by n. Sums
// are of distances from the least, so that whole numbers above 2^53 lose nothing. Nothing of a column of text.
static void print_distribution(const dt_catalog *c, int column, const char *begin) {
    dt_column_accessor r;
    char a[DT_REAL_CHARS], b[DT_REAL_CHARS];
    long double *v = dt_xcalloc((size_t)c->n_records + 1, sizeof *v), sum = 0, square = 0;
    uint32_t n = 0;
    dt_column_accessor_init(&r, c, column);
    for (uint32_t i = 0; i < c->n_records && r.is_number; i++) {
        const dt_cell cell = dt_column_accessor_get(&r, i);
        if (cell.kind != DT_CELL_NULL) v[n++] = cell.number;
    }
    dt_column_accessor_fini(&r);
    if (r.is_number) printf("%s", begin);
    qsort(v, n, sizeof *v, data_stat_compare);
    for (uint32_t i = 0; i < n; i++) sum += v[i] - v[0];
    for (uint32_t i = 0; i < n; i++) square += powl(v[i] - v[0] - sum / n, 2);
    if (r.is_number && n == 0) printf("no values");
    if (n > 0)
        printf("%s..%s, mean %.6g, deviation %.6g, quartiles %.6g, %.6g, %.6g", data_stat_number_text(a, v[0]),
               data_stat_number_text(b, v[n - 1]), (double)(v[0] + sum / n), sqrt((double)square / n),
               quantile(v, n, 0.25), quantile(v, n, 0.5), quantile(v, n, 0.75));
    if (n > 0 && c->table.columns[column - DT_N_FIXED_COLUMNS].number) printf(", of %u records", n);
    free(v);
}

static void print_columns(const dt_catalog *c) {
    for (uint32_t k = 0; k < c->table.n_columns; k++) {
        const dt_column *col = &c->table.columns[k];
        printf("%s ", col->number ? "number" : "column");
        dt_text_print(stdout, dt_catalog_str(c, col->name));
        if (col->number) {
            print_distribution(c, DT_N_FIXED_COLUMNS + (int)k, ": ");
            printf("\n");
            continue;
        }
        printf(": %u value%s:", col->n_values, col->n_values == 1 ? "" : "s");
        uint32_t *n = data_stat_count_values(c, k);
        for (uint32_t v = 0; v < col->n_values && v < 8; v++) {
            putchar(' ');
            dt_text_print(stdout, dt_catalog_str(c, col->values[v]));
            printf(" (%u)", n[v]);
        }
        printf("%s", col->n_values > 8 ? " …" : "");
        free(n);
        if (col->n_values > 1) print_distribution(c, DT_N_FIXED_COLUMNS + (int)k, "; as numbers ");
        printf("\n");
    }
}

static dt_status data_stat_find(const dt_catalog *c, const char *name, int *k) {
    *k = dt_catalog_find_column(c, name);
    return *k >= 0 ? DT_OK
                   : dt_fail(DT_E_USAGE,
                             "--counts %s: the set has no such metadata column; `dtrain data "
                             "stat SET` lists them",
                             name);
}

// Each value of one column with its count.
static dt_status data_stat_print_counts(const dt_catalog *c, const char *name) {
    int k;
    DT_TRY(data_stat_find(c, name, &k));
    uint32_t *n = data_stat_count_values(c, (uint32_t)k), n_with = 0;
    for (uint32_t v = 0; v < c->table.columns[k].n_values; v++) {
        dt_text_print(stdout, dt_catalog_str(c, c->table.columns[k].values[v]));
        printf("\t%u\n", n[v]);
        n_with += n[v];
    }
    if (n_with < c->n_records) printf("(no value)\t%u\n", c->n_records - n_with);
    free(n);
    return DT_OK;
}

// The value's name; behind the last: that there is none.
static void data_stat_print_value(const dt_catalog *c, int column, uint32_t v) {
    const dt_column *k = &c->table.columns[column];
    dt_text_print(stdout, v < k->n_values ? dt_catalog_str(c, k->values[v]) : "(no value)");
}

// "label,who": a row for each value of the first column, a column for each of the second, and totals; tabs between.
static dt_status data_stat_print_cross(const dt_catalog *c, const char *names) {
    enum { MOST = 1 << 20 };
    char *first = dt_xstrdup(names), *second = strchr(first, ',');
    int of[2];
    *second++ = '\0';
    dt_status st = data_stat_find(c, first, &of[0]);
    if (st == DT_OK) st = data_stat_find(c, second, &of[1]);
    free(first);
    DT_TRY(st);
    // + 1: without a value; the last row and column are totals
    const uint64_t n[2] = {c->table.columns[of[0]].n_values + 1ull, c->table.columns[of[1]].n_values + 1ull};
    if (n[0] * n[1] > MOST)
        return dt_fail(DT_E_USAGE, "--counts %s: %llu by %llu values: take columns of fewer", names,
                       (unsigned long long)n[0] - 1, (unsigned long long)n[1] - 1);
    uint32_t *count = dt_xcalloc((n[0] + 1) * (n[1] + 1), sizeof *count);
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint64_t at[2];
        for (int i = 0; i < 2; i++) {
            const uint32_t v = dt_catalog_cell(c, of[i], r);
            at[i] = v == DT_NO_VALUE ? n[i] - 1 : v;
        }
        for (int i = 0; i < 4; i++) count[(i & 1 ? n[0] : at[0]) * (n[1] + 1) + (i & 2 ? n[1] : at[1])]++;
    }
    const uint32_t *total = count + n[0] * (n[1] + 1);
    dt_text_print(stdout, names);
    for (uint64_t k = 0; k < n[1]; k++) // what no record has is left out
        if (k + 1 < n[1] || total[k]) putchar('\t'), data_stat_print_value(c, of[1], (uint32_t)k);
    printf("\ttotal\n");
    for (uint64_t i = 0; i <= n[0]; i++) {
        const uint32_t *row = count + i * (n[1] + 1);
        if (i + 1 == n[0] && !row[n[1]]) continue;
        if (i < n[0])
            data_stat_print_value(c, of[0], (uint32_t)i);
        else
            printf("total");
        for (uint64_t k = 0; k <= n[1]; k++)
            if (k + 1 != n[1] || total[k]) printf("\t%u", row[k]);
        putchar('\n');
    }
    free(count);
    return DT_OK;
}

static void print_statistics(const dt_reader *s) {
    const dt_catalog *c = s->catalog;
    uint64_t n_bytes = 0, by_ext[DT_MAX_EXTENSIONS] = {0}, count[DT_MAX_EXTENSIONS] = {0};
    for (uint32_t m = 0; m < c->n_members; m++) {
        n_bytes += c->members[m].size;
        by_ext[c->members[m].ext] += c->members[m].size;
        count[c->members[m].ext]++;
    }
    printf("%s: %u records, %u members, %.1f MiB in %u file%s\n", s->kind, c->n_records, c->n_members,
           (double)n_bytes / 1048576.0, c->n_shards, c->n_shards == 1 ? "" : "s");
    for (uint32_t e = 0; e < c->n_exts; e++) {
        printf("member ");
        dt_text_print(stdout, dt_catalog_str(c, c->exts[e]));
        printf(": %" PRIu64 ", %.1f MiB\n", count[e], (double)by_ext[e] / 1048576.0);
    }
    print_columns(c);
}

static dt_status data_stat_run(const dt_cli_words *w) {
    DT_TRY(dt_cli_expect_words(w, "data stat", 1, 1000000, "SET"));
    dt_reader *s = NULL;
    DT_TRY(dt_reader_open(&s, w->words, (size_t)w->n_words));
    dt_status st = DT_OK;
    const char *counts = w->options[COUNTS];
    if (counts && strchr(counts, ',') && dt_catalog_find_column(s->catalog, counts) < 0) {
        st = data_stat_print_cross(s->catalog, counts);
    } else if (counts) {
        st = data_stat_print_counts(s->catalog, counts);
    } else {
        print_statistics(s);
    }
    dt_reader_close(s);
    return st;
}

const dt_cli_command dt_cli_data_stat = {
    .options = data_stat_options,
    .text = "Prints the number of records, the kinds of members, and the metadata columns with the count of each "
            "value; for numbers range, mean, standard deviation and quartiles.\n\n"
            "  dtrain data stat datasets/biometric.lmdb\n"
            "  dtrain data stat datasets/acoustic.lmdb --counts digit\n"
            "  dtrain data stat datasets/acoustic.lmdb --counts digit,speaker\n",
    .run = data_stat_run};
