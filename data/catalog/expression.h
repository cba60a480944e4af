// expression.h: the little language in which records are chosen: by data.where and `dtrain data query` from the
// columns of a catalog (select.h), by `dtrain pack --where` from what is known while packing.
//
//   modality = 'iris' and quality > 0.4
//   not (label in ('glass', 'metal') or sharpness is null)
//   key like 'fingerprint/%' and subject between 1 and 10
//   "left eye" != 'closed'
//
// and in which new columns are written (data.columns, `dtrain pack --column`):
//
//   finding like '%COVID%'
//   substr(key, 1, 1)
//   case when age < 18 then 'child' else 'adult' end
//
// expr      := and {"or" and};  and := not {"and" not};  not := "not" not | test
// test      := value | value op value | value ["not"] "in" "(" literal {"," literal} ")"
//            | value ["not"] "like" text | value ["not"] "between" value "and" value
//            | value "is" ["not"] "null"
// op        := = != < <= > >=   (== and <> are read as well)
// value     := product {("+" | "-" | "||") product};  product := factor {("*" | "/" | "%") factor}
// factor    := {"+" | "-"} (name | literal | "(" expr ")" | function "(" expr {"," expr} ")" | case)
// case      := "case" "when" expr "then" value {"when" expr "then" value} ["else" value] "end"
// literal   := number | text | "true" | "false"
// name      := letters, digits, _ and . not beginning with a digit, or "anything" ("" for a quote)
// text      := 'anything' ('' for a quote);  words like `and` in any case
//
// Where a condition is wanted, a value alone is an error; a condition as a value is the text true or false.
// An expression means what SQL means by it; docs/reference/catalog.md says what that is for missing values, numbers
// and text. true and false are the texts 'true' and 'false', as in JSON metadata.
//
// Rejected: SQLite's expression language, although SQLite is linked. Of the 76 meanings that the reference and its tests
// fix, 20 would change without an error, and with them selections and splits of existing runs: text in arithmetic is 0
// there and missing here; a condition is 1 or 0 and not true or false; whole numbers that are classes, and columns of
// which only some values are numbers, compare otherwise; names know no case; `set` is a keyword; % and || of other
// types; -- begins a comment (here two signs); LIKE has no escape unless it is named.
#ifndef DT_DATA_EXPRESSION_H
#define DT_DATA_EXPRESSION_H

#include "base/core.h"
#include "base/json.h"

enum { DT_EXPR_MAX_BYTES = 65536, DT_EXPR_MAX_DEPTH = 24 };

typedef struct dt_expr dt_expr;

// DT_E_USAGE: "expression, character 14 ('and'): expected …".
dt_status dt_expr_parse(dt_expr **out, const char *text);
// dt_expr_parse for an expression that may be a value as well as a condition.
dt_status dt_expr_parse_value(dt_expr **out, const char *text);
void dt_expr_destroy(dt_expr *e);

// The names it uses, each once.
int dt_expr_n_names(const dt_expr *e);
const char *dt_expr_name(const dt_expr *e, int i);
// dt_fail(DT_E_USAGE) with the place where name i stands.
dt_status dt_expr_fail_name(const dt_expr *e, int i, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// ---- values --------------------------------------------------------------------------------------
typedef enum dt_cell_kind { DT_CELL_NULL, DT_CELL_NUMBER, DT_CELL_TEXT } dt_cell_kind;

// What a record has in a column. The column decides whether its values are numbers or text.
typedef struct dt_cell {
    dt_cell_kind kind;
    const char *text;   // of TEXT, and of a NUMBER that is stored as text; borrowed
    long double number; // of NUMBER, and of a TEXT that can be read as one; else NaN
} dt_cell;

dt_cell dt_cell_text(const char *text);    // NULL: no value
dt_cell dt_cell_decimal(const char *text); // a number that is stored as text; NULL: no value
dt_cell dt_cell_real(double value);        // NaN: no value
// Whether the cell is a number that a signed 64-bit integer holds.
bool dt_cell_is_whole(const dt_cell *v);
// The text of a value that is not null, in `buffer` if it has none.
const char *dt_cell_string(const dt_cell *v, char buffer[DT_REAL_CHARS]);

// Whether the expression is true of a record; values[i] is that of name i. Any thread. DT_E_USAGE: min or max of a text
// and a number.
dt_status dt_expr_is_true(const dt_expr *e, const dt_cell *values, bool *yes);
// The expression's value. Its text lies in `scratch` if the expression makes it, else where a value or literal has it.
dt_status dt_expr_value(const dt_expr *e, const dt_cell *values, dt_arena *scratch, dt_cell *out);

#endif
