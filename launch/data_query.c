// data_query.c: dtrain data query SET… EXPR: records by an expression.

#include "launch.h"

#include "data_rows.h"

#include <inttypes.h>
#include <string.h>

enum { COUNT, COLUMNS, JSON, LIMIT };
static const launch_option options[] = {
    [COUNT] = {"--count", NULL, "only how many"},
    [COLUMNS] = {"--columns", "A,B", "only these columns, separated by tabs"},
    [JSON] = {"--json", NULL, "a JSON object a line"},
    [LIMIT] = {"--limit", "N", "at most so many records"},
    {NULL}};

extern const launch_command launch_data_query;

static dt_status answer(const launch_words *w, dt_query *q, const char *expression) {
    int limit = 0;
    DT_TRY(launch_option_int(w, &launch_data_query, LIMIT, 0, &limit));
    if (w->options[COUNT]) {
        uint64_t n;
        DT_TRY(dt_query_count(q, expression, &n));
        printf("%" PRIu64 "\n", n);
        return DT_OK;
    }
    launch_rows rows = {.format = w->options[JSON]      ? LAUNCH_ROWS_LINES
                                  : w->options[COLUMNS] ? LAUNCH_ROWS_VALUES
                                                        : LAUNCH_ROWS_PAIRS,
                        .columns = w->options[COLUMNS],
                        .limit = (uint64_t)limit};
    return launch_write_rows(q, expression, &rows, stdout);
}

static dt_status run(const launch_words *w) {
    dt_set *set;
    dt_query *q;
    DT_TRY(launch_expect_words(w, "data query", 2, 1000000, "SET… EXPR"));
    DT_TRY(launch_open_query(&q, &set, w->words, w->n_words - 1));
    dt_status st = answer(w, q, w->words[w->n_words - 1]);
    dt_query_close(q);
    dt_set_close(set);
    return st;
}

const launch_command launch_data_query = {
    .options = options,
    .text =
        "The records for which EXPR is true, from the set's catalog; the data is not read. The "
        "same\n"
        "expressions are data.where of a config; docs/reference/catalog.md has the language.\n\n"
        "  dtrain data query datasets/biometric.lmdb \"finger = 'index' and subject <= 10\"\n"
        "  dtrain data query 'photos-{000000..000003}.tar' 'sharpness < 0.1' --columns "
        "key,sharpness\n"
        "  dtrain data query photos.lmdb \"label in ('glass', 'metal') or label is null\" --count\n"
        "  dtrain data query a.lmdb b.lmdb \"not (set = 'a' and key like '%test%')\" --json\n",
    .run = run};
