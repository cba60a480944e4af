// catalog_db_internal.h: what the writer and the readers of catalog databases share. Private to data/catalog.
#ifndef DT_DATA_CATALOG_DB_INTERNAL_H
#define DT_DATA_CATALOG_DB_INTERNAL_H

#include "base/status.h"

#include <sqlite3.h>

enum { DT_CATALOG_DB_KIND = 0x44546361, DT_CATALOG_DB_VERSION = 1 }; // application_id, user_version

// dt_fail with the cause of SQLite's last failure: "path: cannot <verb>: …".
dt_status dt_catalog_db_fail(sqlite3 *db, const char *path, const char *verb, dt_status code);

#endif
