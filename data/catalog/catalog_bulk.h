// catalog_bulk.h: builds a catalog by columns instead of record by record, for the reader of indexes.
// Private to data/catalog. Before finish, a cell is the number of its interned text.
#ifndef DT_DATA_CATALOG_BULK_H
#define DT_DATA_CATALOG_BULK_H

#include "catalog.h"

// DT_E_DATA if so many more do not fit. path: the file that they come from, for the message.
dt_status dt_catalog_need_room(const dt_catalog *c, const char *path, uint64_t n_records,
                               uint64_t n_members, uint64_t n_string_bytes);
// Room for n more, to be filled before anything else is added. The caller has checked that they fit.
dt_record *dt_catalog_new_records(dt_catalog *c, uint32_t n);
dt_member *dt_catalog_new_members(dt_catalog *c, uint32_t n);
// Strings, each NUL-terminated; returns the place of the first. The caller has checked that they fit.
uint32_t dt_catalog_add_strings(dt_catalog *c, const char *strings, size_t n_bytes);

// DT_E_DATA when there are too many.
dt_status dt_catalog_intern(dt_catalog *c, const char *path, const char *text, uint32_t *id);
dt_status dt_catalog_ext(dt_catalog *c, const char *path, const char *ext, uint32_t *out);
dt_status dt_catalog_cells(dt_catalog *c, const char *path, const char *column, uint32_t **out);
dt_status dt_catalog_numbers(dt_catalog *c, const char *path, const char *column, double **out);

#endif
