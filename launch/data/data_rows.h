// data_rows.h: what the verbs of dtrain data and pack share.
#ifndef DT_LAUNCH_DATA_DATA_ROWS_H
#define DT_LAUNCH_DATA_DATA_ROWS_H

#include "data/catalog/catalog.h"

#include <stdio.h>

// ---- data rows ----------------------------------------------------------------------------------------------------

// Rows of a catalog as text, for the verbs that print them.

typedef enum dt_cli_row_format {
    LAUNCH_ROWS_PAIRS,  // key, then name=value of what there is, separated by tabs
    LAUNCH_ROWS_VALUES, // values separated by tabs
    LAUNCH_ROWS_CSV,    // RFC 4180 with a header
    LAUNCH_ROWS_LINES,  // a JSON object a line
    LAUNCH_ROWS_ARRAY   // a JSON array
} dt_cli_row_format;

// Control characters are escaped (\n, \x1b; a backslash is doubled) in all but JSON, which has its own.
typedef struct dt_cli_rows {
    dt_cli_row_format format;
    const char *columns; // "a,b"; NULL: all
    uint64_t limit;      // 0: none
    uint64_t n;          // out: how many were written
} dt_cli_rows;
// Writes the chosen rows to `out`. expression NULL: all. DT_E_STORAGE when `out` fails.
dt_status dt_cli_write_rows(const dt_catalog *c, const char *expression, dt_cli_rows *rows, FILE *out);

// ---- pack bucket --------------------------------------------------------------------------------------------------

// Dtrain pack SRC s3://….

#ifndef LAUNCH_PACK_BUCKET_H
#define LAUNCH_PACK_BUCKET_H

#include "data/pack/pack.h"

#include <stdint.h>

// Packs into a folder of data.cache_dir's default, uploads what came of it, and removes it. o->out is the URL; `command`: a
// hash of all that was asked for, by which the same command goes on after a kill.
dt_status dt_cli_pack_bucket(const dt_pack_opts *o, uint64_t command);

#endif

// ---- pack fetch ---------------------------------------------------------------------------------------------------

// Dtrain pack s3://bucket/raw/ OUT: files in a bucket are fetched to this host, then packed as a folder is.

#ifndef LAUNCH_PACK_FETCH_H
#define LAUNCH_PACK_FETCH_H

#include "base/core.h"

// Fetches all objects whose keys begin as the URL does, which ends with '/', into a folder of data.cache_dir's default, *out
// (heap, also after an error), which the caller removes.
dt_status dt_cli_fetch_folder(char **out, const char *url);

#endif

#endif
