// data_export.c: dtrain data export SET… OUT: the catalog as CSV, JSON or an SQLite database.
#include "launch/launch.h"

#include "data/catalog/catalog_db.h"
#include "data/source/source.h"
#include "data_rows.h"

#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WHERE, DATA_EXPORT_COLUMNS, DATA_EXPORT_JSON, DATA_EXPORT_LIMIT, SQLITE, OVERWRITE };
static const dt_cli_option data_export_options[] = {
    [WHERE] = {"--where", "EXPR", "only the records for which this is true"},
    [DATA_EXPORT_COLUMNS] = {"--columns", "A,B", "only these columns"},
    [DATA_EXPORT_JSON] = {"--json", NULL, "OUT is -: a JSON object a line instead of CSV"},
    [DATA_EXPORT_LIMIT] = {"--limit", "N", "at most so many records"},
    [SQLITE] = {"--sqlite", "OUT", "all of it as an SQLite database; the other words are SETs"},
    [OVERWRITE] = {"--overwrite", NULL, "replace OUT"},
    {NULL}};

static dt_status data_export_format_of(const char *out, bool json, dt_cli_row_format *f) {
    if (strcmp(out, "-") == 0)
        *f = json ? LAUNCH_ROWS_LINES : LAUNCH_ROWS_CSV;
    else if (dt_text_ends(out, ".csv"))
        *f = LAUNCH_ROWS_CSV;
    else if (dt_text_ends(out, ".json"))
        *f = LAUNCH_ROWS_ARRAY;
    else if (dt_text_ends(out, ".jsonl"))
        *f = LAUNCH_ROWS_LINES;
    else
        return dt_fail(DT_E_USAGE, "%s: expected a name that ends in .csv, .json or .jsonl, or -", out);
    return DT_OK;
}

static dt_status data_export_write_file(const dt_catalog *c, const char *where, dt_cli_rows *rows, const char *path) {
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n); // of the size of the catalog, which is in memory as well
    if (!out) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_status st = dt_cli_write_rows(c, where, rows, out);
    fclose(out);
    if (st == DT_OK) st = dt_io_write_file(path, text, n);
    free(text);
    return st;
}

static dt_status data_export_run(const dt_cli_words *w) {
    const char *db = w->options[SQLITE];
    dt_cli_rows rows = {.columns = w->options[DATA_EXPORT_COLUMNS]};
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
                         : pipe ? dt_cli_write_rows(c, w->options[WHERE], &rows, stdout)
                                : data_export_write_file(c, w->options[WHERE], &rows, out);
    if (st == DT_OK && !pipe) dt_info("%s: %" PRIu64 " records", out, db ? (uint64_t)c->n_records : rows.n);
    dt_reader_close(reader);
    return st;
}

const dt_cli_command dt_cli_data_export = {
    .options = data_export_options,
    .text = "Keys, files and all columns of a set's catalog, for a spreadsheet or another program.\n"
            "In CSV control characters are written as \\n, \\x1b and the like, and a backslash is\n"
            "doubled.\n\n"
            "  dtrain data export datasets/biometric.lmdb biometric.csv\n"
            "  dtrain data export photos.lmdb - --where 'sharpness < 0.1' --columns key,shard\n"
            "  dtrain data export photos.lmdb --sqlite photos.sqlite\n",
    .run = data_export_run};
