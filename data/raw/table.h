// table.h: CSV and JSON tables that users have beside their files: labels, angles, boxes, lists of files.
#ifndef DT_DATA_TABLE_H
#define DT_DATA_TABLE_H

#include "base/core.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// PLAIN: text or a number, for json member and catalog. NESTED: JSON text of an array or object, for the json
// member. FLAT: a number or text out of a nested column ("box.0", "angles.yaw"), for the catalog, which has no arrays.
typedef enum dt_table_kind { DT_TABLE_PLAIN, DT_TABLE_NESTED, DT_TABLE_FLAT } dt_table_kind;

typedef struct dt_table {
    dt_arena arena;
    const char *path;
    size_t n_columns, n_rows;
    const char **column;
    dt_table_kind *kind;
    const char **cell; // row * n_columns + column; NULL: no value (empty, null)
    uint32_t *line;    // of each row: CSV line, or place in the JSON, from 1
    dt_examples odd;   // CSV: rows of another number of fields than the first line, which are left out
} dt_table;

// Reads a table by its extension: .json (an array of objects, or an object of objects whose keys become column "name"),
// .jsonl (an object a line), .tsv, else CSV. DT_E_DATA with path and line; DT_E_USAGE: cannot be opened.
dt_status dt_table_read(dt_table *t, const char *path);
// Reads as dt_table_read but, of CSV, also a table with odd rows.
dt_status dt_table_read_lenient(dt_table *t, const char *path);
// DT_E_DATA that says which rows are odd; the table is freed then.
dt_status dt_table_check(dt_table *t);
// One path a line, without header or quotes: column "path".
dt_status dt_table_read_lines(dt_table *t, const char *path);
void dt_table_fini(dt_table *t);

// RFC 4180 with CRLF or LF and an optional byte-order mark. The first row has the names; a row of another number of
// fields is odd. A column without a name is called by its place, column29. `separator` 0: the first of ',', ';' and tab
// that the first line has. Empty lines are skipped.
dt_status dt_table_parse_csv(dt_table *t, const char *path, const char *data, size_t n_bytes, char separator);
dt_status dt_table_parse_json(dt_table *t, const char *path, const char *data, size_t n_bytes, bool lines);
// Column of that name, or -1.
int dt_table_find(const dt_table *t, const char *name);

#endif
