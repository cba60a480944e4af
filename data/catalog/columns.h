// columns.h: a table in memory, by columns. The catalog's rows, the list of raw files and a table that users have beside
// their files are such tables; pack fills them, an index stores one, expressions read them (select.h).
//
// There are three kinds of columns. TEXT is dictionary-encoded: a row holds the number of its text, or DT_NO_VALUE. So a
// class label is a cell, and grouping by a column is counting. While rows are added the texts of all columns have one
// numbering, in which equal ones are found (interned); a sorted column holds its own distinct values, numbers by value and
// then text by bytes, and rows hold indexes into them. Measurements (quality, angles, durations) differ in each row: a
// NUMBER column holds a double a row, NaN where there is none. JSON is like TEXT, of arrays and objects.
//
// Strings lie in one buffer and are named by their offset: pointers to them last until the next is added.
#ifndef DT_DATA_COLUMNS_H
#define DT_DATA_COLUMNS_H

#include "data/file/file.h"

#include "base/core.h"

#define DT_NO_VALUE UINT32_MAX // the cell of a row without a value
enum { DT_MAX_COLUMNS = 64 };  // of a kind, in a catalog

typedef enum dt_column_kind { DT_TEXT_COLUMN = 1, DT_NUMBER_COLUMN = 2, DT_JSON_COLUMN = 4 } dt_column_kind;

typedef struct dt_column {
    uint32_t name; // string
    dt_column_kind kind;
    bool not_in_json; // a part of a JSON column, for expressions and the catalog only
    uint32_t n_values;
    uint32_t *values; // of a sorted column: strings, distinct
    uint32_t *cell;   // by row; of a NUMBER column NULL
    double *number;   // by row, of a NUMBER column
    uint32_t cap;
} dt_column;

typedef struct dt_columns {
    dt_column *columns;
    uint32_t n_columns, n_rows, cap_rows; // the owner's to set: columns get room for cap_rows
    dt_buffer strings;                    // NUL-terminated, one after another
    uint32_t *interned;                   // strings by number
    uint32_t *intern;                     // hash table of numbers + 1
    uint32_t n_interned, cap_interned, cap_intern;
    uint32_t most_columns; // of a kind
    uint32_t most;         // bytes of strings; below 2^32 - 1 only in tests
} dt_columns;

// finds_equal: equal texts get one number, which costs a search for each.
void dt_columns_init(dt_columns *t, uint32_t most_columns, bool finds_equal);
void dt_columns_fini(dt_columns *t);

// ---- building ------------------------------------------------------------------------------------
// `path`: what the strings come from, for the message of DT_E_DATA when there are too many.
dt_status dt_columns_need_room(const dt_columns *t, const char *path, uint64_t n_string_bytes);
// Strings, each NUL-terminated; the place of the first. The caller has checked that they fit.
uint32_t dt_columns_add_strings(dt_columns *t, const char *strings, size_t n_bytes);
dt_status dt_columns_intern(dt_columns *t, const char *path, const char *text, uint32_t *id);
// Finds or adds a column of that kind, with room for all rows. The pointer lasts until the next column is added.
// DT_E_DATA: there are most_columns of its kind.
dt_status dt_columns_need(dt_columns *t, const char *path, const char *name, dt_column_kind kind, dt_column **out);
// Gives every column room for all rows.
void dt_columns_fit(dt_columns *t);
// Sorts the distinct values of each TEXT column; from then on only whole columns are added.
void dt_columns_sort(dt_columns *t);
// A sorted column of texts by row (NULL: no value; copied), or a column of numbers; `values` becomes the table's. The
// name must be new.
dt_status dt_columns_add_texts(dt_columns *t, const char *name, const char *const *text);
dt_status dt_columns_add_numbers(dt_columns *t, const char *name, double *values);
// Drops the rows with !keep[r], and the values of sorted columns that no row has then.
void dt_columns_keep(dt_columns *t, const bool *keep);

// ---- reading -------------------------------------------------------------------------------------
static inline const char *dt_columns_str(const dt_columns *t, uint32_t s) {
    return (const char *)t->strings.data + s;
}
static inline const char *dt_columns_name(const dt_columns *t, int column) {
    return dt_columns_str(t, t->columns[column].name);
}
// How many columns of a kind there are.
uint32_t dt_columns_count(const dt_columns *t, dt_column_kind kind);
// The column of that name and one of the kinds (a sum of dt_column_kind); -1: none.
int dt_columns_find(const dt_columns *t, const char *name, unsigned kinds);
// The text of a cell; NULL: no value, or a number.
const char *dt_columns_text(const dt_columns *t, int column, uint32_t row);
// Whether the cell has a value.
bool dt_columns_has(const dt_columns *t, int column, uint32_t row);
// A sum over columns of XXH3 of names, values and cells: it does not depend on their order, nor on columns without values.
uint64_t dt_columns_hash(const dt_columns *t);

#endif
