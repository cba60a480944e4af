// catalog_table.h: a catalog as tables of SQLite that read it where it is. Private to data/catalog.
#ifndef DT_DATA_CATALOG_TABLE_H
#define DT_DATA_CATALOG_TABLE_H

#include "catalog_columns.h"

#include <sqlite3.h>

// Makes `metadata` and `records` of `db`, with the columns of catalog_db.h (hash and source are NULL): the
// records of shards with use[i], under their numbers. The catalog outlives the connection; columns and
// use are copied. SQLite code.
int dt_catalog_table_create(sqlite3 *db, const dt_catalog *c, const bool *use,
                            const dt_sql_columns *columns);

#endif
