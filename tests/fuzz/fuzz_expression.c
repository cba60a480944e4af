// fuzz_expression.c: any text as an expression. Must say what is wrong, or become SQL that SQLite takes
// and runs: what the user writes is data there, whatever it looks like.
#include "data/catalog/expression.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static sqlite3 *open_table(void) {
    static sqlite3 *db;
    if (db) return db;
    if (sqlite3_open(":memory:", &db) != SQLITE_OK || dt_expr_prepare_db(db) != DT_OK ||
        sqlite3_exec(db,
                     "CREATE TABLE m(id INTEGER PRIMARY KEY, a TEXT, b NUMERIC);"
                     "INSERT INTO m VALUES(0, 'x', 1), (1, '2', NULL), (2, NULL, 0.5)",
                     NULL, NULL, NULL) != SQLITE_OK)
        abort();
    return db;
}

static void run(const dt_expr *e) {
    sqlite3 *db = open_table();
    int n = dt_expr_n_names(e), rc;
    dt_expr_column *columns = calloc((size_t)n + 1, sizeof *columns);
    for (int i = 0; i < n; i++)
        columns[i] = i % 3 == 0   ? (dt_expr_column){"m.a", true}
                     : i % 3 == 1 ? (dt_expr_column){"m.b", false}
                                  : (dt_expr_column){"NULL", false};
    char *condition = dt_expr_sql(e, columns);
    char *sql = sqlite3_mprintf("SELECT count(*) FROM m WHERE %s", condition);
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) abort();
    dt_expr_bind(e, s);
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
    }
    if (rc != SQLITE_DONE) abort();
    sqlite3_finalize(s);
    sqlite3_free(sql);
    free(condition);
    free(columns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    char *text = malloc(n_bytes + 1);
    dt_expr *e = NULL;
    memcpy(text, data, n_bytes);
    text[n_bytes] = '\0';
    if (dt_expr_parse(&e, text) == DT_OK)
        run(e);
    else if (e || !*dt_error_message())
        abort();
    dt_expr_destroy(e);
    free(text);
    return 0;
}
