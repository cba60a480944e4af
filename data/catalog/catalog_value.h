// catalog_value.h: what a text of the catalog is in SQL. Private to data/catalog.
#ifndef DT_DATA_CATALOG_VALUE_H
#define DT_DATA_CATALOG_VALUE_H

#include "catalog.h"

typedef enum dt_sql_kind { DT_SQL_TEXT, DT_SQL_BLOB, DT_SQL_INT, DT_SQL_REAL } dt_sql_kind;

typedef struct dt_sql_value {
    dt_sql_kind kind;
    int n_bytes; // TEXT, BLOB
    double real;
    int64_t integer;
} dt_sql_value;

dt_sql_value dt_sql_text_value(const char *text); // a BLOB when it is not UTF-8
// Of the distinct values of a text column; is_number: all are plain decimals, and numbers. Heap.
dt_sql_value *dt_sql_values_make(const dt_catalog *c, const dt_column *col, bool is_number);

#endif
