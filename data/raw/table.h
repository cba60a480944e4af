// table.h: CSV and JSON tables that users have beside their files: labels, angles, boxes, lists of files.
#ifndef DT_DATA_TABLE_H
#define DT_DATA_TABLE_H

#include "base/core.h"
#include "base/text.h"
#include "data/catalog/columns.h"

// Cells are text as it stands in the file. Arrays and objects are JSON columns. A number or text out of one ("box.0",
// "angles.yaw") is a column of text that is not in the json member (dt_column.not_in_json): the catalog has no arrays.
typedef struct dt_table {
    dt_arena arena;
    const char *path;
    dt_columns cells;
    uint32_t *line;  // of each row: CSV line, or place in the JSON, from 1
    dt_examples odd; // CSV: rows of another number of fields than the first line, which are left out
} dt_table;

struct dt_columnar;

// Reads a table by its extension: .parquet, .json (an array of objects, or an object of objects whose keys become column "name"),
// .jsonl (an object a line), .tsv, else CSV. DT_E_DATA with path and line; DT_E_USAGE: cannot be opened.
dt_status dt_table_read(dt_table *t, const char *path);
// Reads as dt_table_read but, of CSV, also a table with odd rows.
dt_status dt_table_read_lenient(dt_table *t, const char *path);
// DT_E_DATA that says which rows are odd; the table is freed then.
dt_status dt_table_check(dt_table *t);
// One path a line, without header or quotes: column "path".
dt_status dt_table_read_lines(dt_table *t, const char *path);
void dt_table_fini(dt_table *t);

// An empty table.
void dt_table_init(dt_table *t, const char *path);
// Adds the rows of an open file of columns (data/file/columnar.h), and its columns of numbers, words and times, as text.
// Columns that cannot be read are left out with a warning. DT_E_DATA.
dt_status dt_table_add_columnar(dt_table *t, struct dt_columnar *c);

// RFC 4180 with CRLF or LF and an optional byte-order mark. The first row has the names; a row of another number of
// fields is odd. A column without a name is called by its place, column29. `separator` 0: the first of ',', ';' and tab
// that the first line has. Empty lines are skipped.
dt_status dt_table_parse_csv(dt_table *t, const char *path, const char *data, size_t n_bytes, char separator);
dt_status dt_table_parse_json(dt_table *t, const char *path, const char *data, size_t n_bytes, bool lines);
// Column of that name, or -1.
static inline int dt_table_find(const dt_table *t, const char *name) {
    return dt_columns_find(&t->cells, name, ~0u);
}
// NULL: no value (empty, null), or column is -1.
static inline const char *dt_table_cell(const dt_table *t, size_t row, int column) {
    return column < 0 ? NULL : dt_columns_text(&t->cells, column, (uint32_t)row);
}

#endif
