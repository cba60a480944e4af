// expression.h: the little language in which records are chosen: `dtrain data query SET EXPR`,
// `data.where`, dropping while packing.
//
//   modality = 'iris' and quality > 0.4
//   not (label in ('glass', 'metal') or sharpness is null)
//   key like 'fingerprint/%' and subject between 1 and 10
//   "left eye" != 'closed'
//
// expr      := and {"or" and};  and := not {"and" not};  not := "not" not | test | "(" expr ")"
// test      := value op value | value ["not"] "in" "(" literal {"," literal} ")"
//            | value ["not"] "like" text | value ["not"] "between" literal "and" literal
//            | value "is" ["not"] "null"
// op        := = != < <= > >=   (== and <> are read as well)
// value     := name | literal;  literal := number | text | "true" | "false"
// name      := letters, digits, _ and . not beginning with a digit, or "anything" ("" for a quote)
// text      := 'anything' ('' for a quote);  words like `and` in any case
//
// What it means is what SQL means by it, as SQLite evaluates it: a record without a value passes no test
// of that column but `is null`, and neither does it pass the test's negation. A number and a column of
// text compare as numbers, and values that are none do not match; otherwise text compares by bytes.
// Whole numbers of 64 bits compare as such, exactly, with each other and with others.
// `like` takes % and _, escaped by \, and ignores the case of ASCII letters. true and false are the
// texts 'true' and 'false', as JSON metadata has them.
//
// An expression is parsed by ourselves and becomes SQL with a parameter for every literal and a name for
// every column: nothing that the user wrote is ever part of the SQL.
#ifndef DT_DATA_EXPRESSION_H
#define DT_DATA_EXPRESSION_H

#include "base/status.h"

#include <sqlite3.h>
#include <stdbool.h>

enum {
    DT_EXPR_MAX_BYTES = 65536,
    DT_EXPR_MAX_DEPTH = 24,
    DT_EXPR_MAX_TESTS = 500,
    DT_EXPR_MAX_LITERALS = 10000,
    DT_EXPR_MAX_PATTERN = 1000 // bytes of a `like`
};

typedef struct dt_expr dt_expr;

// DT_E_USAGE: "expression, character 14 ('and'): expected …".
dt_status dt_expr_parse(dt_expr **out, const char *text);
void dt_expr_destroy(dt_expr *e);

// The names it uses, each once.
int dt_expr_n_names(const dt_expr *e);
const char *dt_expr_name(const dt_expr *e, int i);
// dt_fail(DT_E_USAGE) with the place where name i stands.
dt_status dt_expr_fail_name(const dt_expr *e, int i, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// What a name is in a database: an SQL expression, and whether its values are text.
typedef struct dt_expr_column {
    const char *sql;
    bool is_text;
} dt_expr_column;
// The condition as SQL; columns[i] is that of name i. Its parameters are ?1 and up; a connection that
// runs it has dt_expr_prepare_db behind it. Heap.
char *dt_expr_sql(const dt_expr *e, const dt_expr_column *columns);
dt_status dt_expr_prepare_db(sqlite3 *db);
void dt_expr_bind(const dt_expr *e, sqlite3_stmt *s); // e must outlive the statement

#endif
