// parquet_write.h: writes a table as Parquet, for pandas, polars, DuckDB and pyarrow.
#ifndef DT_DATA_FILE_PARQUET_WRITE_H
#define DT_DATA_FILE_PARQUET_WRITE_H

#include "base/core.h"

#include <stdio.h>

typedef enum dt_parquet_kind { DT_PARQUET_INT, DT_PARQUET_REAL, DT_PARQUET_TEXT } dt_parquet_kind; // 64 bits; UTF-8

typedef struct dt_parquet_writer dt_parquet_writer;

dt_parquet_writer *dt_parquet_writer_create(FILE *out);
// Before the first row.
void dt_parquet_writer_add_column(dt_parquet_writer *w, const char *name, dt_parquet_kind kind);
// The next value of a column, of its kind; NULL: none. Each column gets one for each row. Bytes that are no UTF-8 become U+FFFD.
void dt_parquet_writer_put_int(dt_parquet_writer *w, uint32_t column, const int64_t *value);
void dt_parquet_writer_put_real(dt_parquet_writer *w, uint32_t column, const double *value);
void dt_parquet_writer_put_text(dt_parquet_writer *w, uint32_t column, const char *value);
// DT_E_STORAGE, as dt_parquet_writer_close, which also frees the writer.
dt_status dt_parquet_writer_end_row(dt_parquet_writer *w);
dt_status dt_parquet_writer_close(dt_parquet_writer *w);

#endif
