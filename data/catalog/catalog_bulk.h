// catalog_bulk.h: building a catalog by columns instead of record by record, for the reader of indexes.
// Private to data/catalog. Before finish, a cell is the id of its text.
#ifndef DT_DATA_CATALOG_BULK_H
#define DT_DATA_CATALOG_BULK_H

#include "catalog.h"

// Room for so many more, to be filled before anything else is added.
dt_record *dt_catalog_new_records(dt_catalog *c, uint32_t n);
dt_member *dt_catalog_new_members(dt_catalog *c, uint32_t n);
// Strings, each NUL-terminated; returns the place of the first. The caller has checked that they fit.
uint32_t dt_catalog_add_strings(dt_catalog *c, const char *strings, uint32_t n_bytes);

uint32_t dt_catalog_intern(dt_catalog *c, const char *text); // its id
// DT_E_DATA when there are too many.
dt_status dt_catalog_ext(dt_catalog *c, const char *path, const char *ext, uint32_t *out);
dt_status dt_catalog_cells(dt_catalog *c, const char *path, const char *column, uint32_t **out);
dt_status dt_catalog_numbers(dt_catalog *c, const char *path, const char *column, double **out);

#endif
