// data_rows.h: rows of a catalog as text, for the verbs that print them.
#ifndef DT_LAUNCH_DATA_ROWS_H
#define DT_LAUNCH_DATA_ROWS_H

#include "data/catalog/catalog.h"

#include <stdio.h>

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

#endif
