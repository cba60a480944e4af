// raw_expression.h: raw items as the records of expressions (catalog/expression.h).
#ifndef DT_DATA_RAW_EXPRESSION_H
#define DT_DATA_RAW_EXPRESSION_H

#include "data/catalog/expression.h"
#include "raw.h"

// Where the value of a name comes from: a column of the list (for an item that has no value there, the set that is
// packed), or what every item has: its key, and its name in the source.
typedef struct dt_raw_name {
    enum { DT_RAW_COLUMN, DT_RAW_KEY, DT_RAW_SOURCE } of;
    int column;     // of the list, or -1
    int text, real; // of the source's catalog, or -1
    bool is_text;
} dt_raw_name;

// false: there is nothing of this name.
bool dt_raw_find_name(dt_raw_name *out, const dt_raw *raw, const char *name);
// The item's value; `buffer` holds the text of a number in a column of text. Any thread.
dt_cell dt_raw_cell(const dt_raw_name *u, const dt_raw *raw, const dt_raw_item *item, char buffer[DT_REAL_CHARS]);
// A number of the name, as its column has it.
dt_cell dt_raw_number(const dt_raw_name *u, double value, char buffer[DT_REAL_CHARS]);

// Adds columns, "NAME=EXPRESSION" a line; NULL: none. DT_E_USAGE.
dt_status dt_raw_derive(dt_raw *r, const char *columns);

#endif
