// catalog_db.h: the catalog of a dataset as an SQLite database, for people and their tools (dtrain data export
// --sqlite; docs/reference/catalog.md describes the table). dtrain itself reads the index of each file (index_file.h).
// The same rows give the same bytes with one version of SQLite.
#ifndef DT_DATA_CATALOG_DB_H
#define DT_DATA_CATALOG_DB_H

#include "catalog.h"

// Writes the database to `path`: to a temporary file beside it, which is synced and renamed. The catalog is
// finished. DT_E_STORAGE; no file is left then.
dt_status dt_catalog_db_write(const char *path, const dt_catalog *c);

#endif
