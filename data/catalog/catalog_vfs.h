// catalog_vfs.h: how SQLite reaches a catalog's file. Private to data/catalog.
#ifndef DT_DATA_CATALOG_VFS_H
#define DT_DATA_CATALOG_VFS_H

#include "base/status.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

// Opens `path`: write = a new file (what was there is emptied), to be closed whole or thrown away;
// otherwise an existing one, read only. For one thread at a time. *out is for sqlite3_close also on failure.
// SQLite code; dt_catalog_vfs_status() has the message when the cause was the file.
int dt_catalog_vfs_open(sqlite3 **out, const char *path, bool write);
// Whether every page that is read is held against its checksum: a file that we wrote and nobody changed.
bool dt_catalog_vfs_is_checked(sqlite3 *db);
// Puts the checksum at the end of a page of n bytes that will lie at `at`.
void dt_catalog_vfs_seal(uint8_t *page, int n, sqlite3_int64 at);
// The first failure of a file since this thread's last dt_catalog_vfs_open, its message still in place;
// DT_OK when there was none. Ask after sqlite3_close, which closes the file.
dt_status dt_catalog_vfs_status(void);

#endif
