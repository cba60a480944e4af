// catalog_columns.h: the columns of a catalog as columns of SQL. Private to data/catalog.
#ifndef DT_DATA_CATALOG_COLUMNS_H
#define DT_DATA_CATALOG_COLUMNS_H

#include "catalog.h"

enum { DT_SQL_NAME_BYTES = 160 };

// Text columns first, number columns after them.
typedef struct dt_sql_column {
    const char *name; // in the catalog
    char sql[DT_SQL_NAME_BYTES];
    bool is_number; // a number column, or text that is nothing but plain decimal numbers
} dt_sql_column;

typedef struct dt_sql_columns {
    dt_sql_column column[2 * DT_MAX_COLUMNS];
    int n, n_text; // all; those of text
} dt_sql_columns;

// c is finished, and outlives it.
void dt_sql_columns_make(dt_sql_columns *out, const dt_catalog *c);

#endif
