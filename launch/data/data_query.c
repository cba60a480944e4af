// data_query.c: dtrain data query SET… EXPR: records by an expression.

#include "launch/launch.h"

#include "base/arena.h"
#include "data/catalog/select.h"
#include "data/source/source.h"
#include "data_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT, COLUMNS, JSON, DATA_QUERY_LIMIT };
static const dt_cli_option data_query_options[] = {
    [COUNT] = {"--count", NULL, "only how many"},
    [COLUMNS] = {"--columns", "A,B", "only these columns, separated by tabs"},
    [JSON] = {"--json", NULL, "a JSON object a line"},
    [DATA_QUERY_LIMIT] = {"--limit", "N", "at most so many records"},
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
    dt_cli_rows rows = {.format = w->options[JSON]      ? LAUNCH_ROWS_LINES
                                  : w->options[COLUMNS] ? LAUNCH_ROWS_VALUES
                                                        : LAUNCH_ROWS_PAIRS,
                        .columns = w->options[COLUMNS],
                        .limit = (uint64_t)limit};
    DT_TRY(dt_reader_open(&reader, w->words, (size_t)w->n_words - 1));
    dt_status st = w->options[COUNT] ? data_query_count(reader->catalog, expression)
                                     : dt_cli_write_rows(reader->catalog, expression, &rows, stdout);
    dt_reader_close(reader);
    return st;
}

const dt_cli_command dt_cli_data_query = {
    .options = data_query_options,
    .text = "The records for which EXPR is true; the data is not read. The same expressions are\n"
            "data.where of a config; docs/reference/catalog.md has the language.\n\n"
            "  dtrain data query datasets/biometric.lmdb \"finger = 'index' and subject <= 10\"\n"
            "  dtrain data query 'photos-{000000..000003}.tar' 'sharpness < 0.1' --columns "
            "key,sharpness\n"
            "  dtrain data query photos.lmdb \"label in ('glass', 'metal') or label is null\" --count\n"
            "  dtrain data query a.lmdb b.lmdb \"not (set = 'a' and key like '%test%')\" --json\n",
    .run = data_query_run};
