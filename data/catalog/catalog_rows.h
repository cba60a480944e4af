// catalog_rows.h: the rows of a catalog's large tables into a database file. Private to data/catalog.
#ifndef DT_DATA_CATALOG_ROWS_H
#define DT_DATA_CATALOG_ROWS_H

#include "catalog_columns.h"

typedef struct dt_catalog_roots { // pages that SQLite made for the tables
    uint32_t records, metadata, members;
} dt_catalog_roots;

// Fills the tables, which are empty, and syncs the file, which nobody has open. sources: by record, or
// NULL. DT_E_STORAGE.
dt_status dt_catalog_rows_write(const char *path, const dt_catalog_roots *roots,
                                const dt_catalog *c, const dt_sql_columns *columns,
                                const char *const *sources);

#endif
