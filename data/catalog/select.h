// select.h: which records of a catalog an expression (expression.h) chooses, and its columns by name.
//
// A catalog's columns are numbered: key, shard (the name of its file) and bytes (of its members), which every
// record has, then metadata columns, then number columns. A metadata column of which every value is a plain
// decimal number is a column of numbers here. A metadata or number column hides one of the first three of
// the same name.
#ifndef DT_DATA_CATALOG_SELECT_H
#define DT_DATA_CATALOG_SELECT_H

#include "catalog.h"
#include "expression.h"

enum { DT_COLUMN_KEY, DT_COLUMN_SHARD, DT_COLUMN_BYTES, DT_N_FIXED_COLUMNS };

// Plain decimals, -12 and 0.5 but not 007 or 1e5: as numbers they lose nothing but trailing zeros.
bool dt_text_is_decimal(const char *s);

// Whether all values of a metadata column are plain decimals, so that it is a column of numbers.
bool dt_catalog_is_decimal(const dt_catalog *c, int column);

int dt_catalog_n_names(const dt_catalog *c);
const char *dt_catalog_name(const dt_catalog *c, int column);
// Whether a column has this name. c NULL: one that every catalog has.
bool dt_catalog_has_name(const dt_catalog *c, const char *name);
// -1 with DT_E_USAGE's message, which names the nearest column, when there is no such column.
int dt_catalog_find_name(const dt_catalog *c, const char *name);

// Reads one column of a finished catalog, which outlives it.
typedef struct dt_column_reader {
    const dt_catalog *c;
    int column;
    bool is_number;
    dt_cell *values; // of a metadata column or shard, by distinct value; else NULL
} dt_column_reader;

void dt_column_reader_init(dt_column_reader *r, const dt_catalog *c, int column);
void dt_column_reader_fini(dt_column_reader *r);
dt_cell dt_column_reader_get(const dt_column_reader *r, uint32_t record);

// keep[r]: whether the expression is true of record r; *n: how many. DT_E_USAGE for an expression that
// cannot be parsed or names a column that is not there.
dt_status dt_catalog_select(const dt_catalog *c, const char *expression, bool *keep, uint32_t *n);

// Adds a column to a finished catalog: what an expression gives of each record. Numbers of which some are not whole make
// a number column, all else a metadata column, as `dtrain pack --join` does of tables. DT_E_USAGE as
// dt_catalog_select, or where there is a column of that name.
dt_status dt_catalog_derive(dt_catalog *c, const char *name, const char *expression);
// Of n values: whether they make a number column. Else the text of each, NULL for none; texts that are made lie in
// `arena`.
bool dt_cells_are_reals(const dt_cell *v, size_t n);
const char *dt_cell_kept(const dt_cell *v, dt_arena *arena);

// ---- catalog db ---------------------------------------------------------------------------------------------------

// The catalog of a dataset as an SQLite database, for people and their tools (dtrain data export
// --sqlite; docs/reference/catalog.md describes the table). dtrain itself reads the index of each file (index_file.h).
// The same rows give the same bytes with one version of SQLite.

// Writes the database to `path`: to a temporary file beside it, which is synced and renamed. The catalog is
// finished. DT_E_STORAGE; no file is left then.
dt_status dt_catalog_db_write(const char *path, const dt_catalog *c);

#endif
