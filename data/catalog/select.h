// select.h: expressions (expression.h) on tables in memory: the one adapter between them. It chooses records of a catalog
// and of a pack, and makes columns of others.
//
// A catalog's columns are numbered: key, shard (the name of its file) and bytes (of its members), which every
// record has, then the columns of its table. A metadata column of which every value is a plain
// decimal number is a column of numbers here. A metadata or number column hides one of the first three of
// the same name.
#ifndef DT_DATA_CATALOG_SELECT_H
#define DT_DATA_CATALOG_SELECT_H

#include "catalog.h"
#include "expression.h"

enum { DT_COLUMN_KEY, DT_COLUMN_SHARD, DT_COLUMN_BYTES, DT_N_FIXED_COLUMNS };

// Plain decimals, -12 and 0.5 but not 007 or 1e5: as numbers they lose nothing but trailing zeros.
bool dt_text_is_decimal(const char *s);

int dt_catalog_n_names(const dt_catalog *c);
const char *dt_catalog_name(const dt_catalog *c, int column);
// Whether a column has this name. c NULL: one that every catalog has.
bool dt_catalog_has_name(const dt_catalog *c, const char *name);
// -1 with DT_E_USAGE's message, which names the nearest column, when there is no such column.
int dt_catalog_find_name(const dt_catalog *c, const char *name);

// Reads one column of a finished catalog, which outlives it.
typedef struct dt_column_accessor {
    const dt_catalog *c; // of one that every record has
    const dt_columns *t; // else the table, and its column
    int column;
    bool is_number;
    dt_cell *values; // of a sorted column, by distinct value; else NULL
} dt_column_accessor;

void dt_column_accessor_init(dt_column_accessor *r, const dt_catalog *c, int column);
void dt_column_accessor_fini(dt_column_accessor *r);
dt_cell dt_column_accessor_get(const dt_column_accessor *r, uint32_t record);

// ---- an expression on records of tables ----------------------------------------------------------------
// What records are: rows of up to two tables, and values that the caller gives. A name is that of columns of the tables;
// its value is that of the first which has one. The values of a name are numbers if all of its columns hold plain decimals.
typedef struct dt_query_scope {
    const dt_columns *table[2]; // NULL: none
    const char *const *given;   // names of the values that the caller gives
    int n_given, n_measured;    // the first n_measured are numbers that go before those of the second table; the others
                                // are of names that no table has
    const char *missing;        // where a name was looked for, for the message; NULL: the message names the nearest
    dt_cell (*value)(const void *record, int given); // any thread
} dt_query_scope;

typedef struct dt_query {
    dt_query_scope scope;
    dt_expr *e;
    struct dt_query_name *names;
} dt_query;

// `e` becomes its own, also after an error. The tables outlive it and do not change. DT_E_USAGE: a name is nowhere.
dt_status dt_query_open(dt_query *q, dt_expr *e, const dt_query_scope *scope);
void dt_query_close(dt_query *q);
// A buffer for the values of a record, of one thread. Heap.
dt_cell *dt_query_buffer(const dt_query *q);
// The values of the expression's names on a record that has these rows, in `cells`, until the next record.
const dt_cell *dt_query_values(const dt_query *q, dt_cell *cells, const uint32_t row[2], const void *record);

// Record i of a list, and its rows of the tables.
typedef const void *dt_query_at(void *records, size_t i, uint32_t row[2]);
// Adds to `to`, the first table, a column of what an expression gives of n records. Numbers of which some are not whole
// make a number column, all else a metadata column, as `dtrain pack --join` does of tables. `any`: whether a record has a
// value; the column is added only then, or if `any` is NULL.
dt_status dt_query_derive(dt_columns *to, const char *name, const char *expression, const dt_query_scope *scope,
                          size_t n, dt_query_at *at, void *records, bool *any);

// keep[r]: whether the expression is true of record r; *n: how many. DT_E_USAGE for an expression that
// cannot be parsed or names a column that is not there.
dt_status dt_catalog_select(const dt_catalog *c, const char *expression, bool *keep, uint32_t *n);
// dt_query_derive for a finished catalog. DT_E_USAGE also where there is a column of that name.
dt_status dt_catalog_derive(dt_catalog *c, const char *name, const char *expression);

// ---- catalog db ---------------------------------------------------------------------------------------------------

// The catalog of a dataset as an SQLite database, for people and their tools (dtrain data export
// --sqlite; docs/reference/catalog.md describes the table). dtrain itself reads the index of each file (index_file.h).
// The same rows give the same bytes with one version of SQLite.

// Writes the database to `path`: to a temporary file beside it, which is synced and renamed. The catalog is
// finished. DT_E_STORAGE; no file is left then.
dt_status dt_catalog_db_write(const char *path, const dt_catalog *c);

#endif
