// parquet_write.h: writes a table as Parquet, for pandas, polars, DuckDB and pyarrow.
#ifndef DT_DATA_FILE_PARQUET_WRITE_H
#define DT_DATA_FILE_PARQUET_WRITE_H

#include "base/core.h"

#include <stdio.h>

// Of 64 bits, and UTF-8; the numbers are those of Parquet's types.
typedef enum dt_parquet_kind { DT_PARQUET_INT = 2, DT_PARQUET_REAL = 5, DT_PARQUET_TEXT = 6 } dt_parquet_kind;

typedef struct dt_parquet_writer dt_parquet_writer;

dt_parquet_writer *dt_parquet_writer_create(FILE *out);
// Before the first row.
void dt_parquet_writer_add_column(dt_parquet_writer *w, const char *name, dt_parquet_kind kind);
// The next value of a column, by its kind an int64_t, a double or a string; NULL: none. Each column gets one for each row.
// Bytes that are no UTF-8 become U+FFFD.
void dt_parquet_writer_put(dt_parquet_writer *w, uint32_t column, const void *value);
// DT_E_STORAGE, as dt_parquet_writer_close, which also frees the writer.
dt_status dt_parquet_writer_end_row(dt_parquet_writer *w);
dt_status dt_parquet_writer_close(dt_parquet_writer *w);

#endif
