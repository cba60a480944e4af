// parquet_write.c: a row group every GROUP_ROWS rows or GROUP_BYTES bytes; of each column one page of version 1: levels as
// one bit-packed run, values PLAIN, packed by zstd. All columns are optional. Dictionaries would save little behind zstd,
// and statistics are for readers that look for few rows of a large table: neither is written.
//
// Format: parquet-format 2.10; Thrift's compact protocol, of which a field is (number - the last one) << 4 | type.
#include "parquet_write.h"

#include "file.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { GROUP_ROWS = 1 << 16, GROUP_BYTES = 64 << 20, LEVEL = 3 };
enum { T_I32 = 5, T_I64 = 6, T_BINARY = 8, T_LIST = 9, T_STRUCT = 12 };
enum { PLAIN = 0, RLE = 3, ZSTD = 6, OPTIONAL = 1, UTF8 = 0 };

typedef struct column {
    char *name;
    dt_parquet_kind kind;
    dt_buffer bits, values; // of the group under way
    uint32_t n;
} column;

struct dt_parquet_writer {
    FILE *out;
    column *columns;
    uint32_t n_columns, n_rows, n_groups; // n_rows: of the group under way
    uint64_t at, n_all;                   // bytes and rows that were written
    dt_buffer groups, page, packed, head; // groups: as the footer has them
};

// ---- Thrift's compact protocol ------------------------------------------------------------------------
static void put_varint(dt_buffer *b, uint64_t v) {
    for (; v >= 128; v >>= 7) dt_buffer_append(b, &(uint8_t){(uint8_t)(v | 128)}, 1);
    dt_buffer_append(b, &(uint8_t){(uint8_t)v}, 1);
}

// `step`: behind the last field of the struct; 0: an element of a list.
static void put_head(dt_buffer *b, int step, int type) {
    if (step > 0) dt_buffer_append(b, &(uint8_t){(uint8_t)(step << 4 | type)}, 1);
}

static void put_number(dt_buffer *b, int step, int type, uint64_t v) {
    put_head(b, step, type);
    put_varint(b, v << 1); // zigzag of what is not negative
}

// Fields one after another.
static void put_numbers(dt_buffer *b, int type, int n, const uint64_t *v) {
    for (int i = 0; i < n; i++) put_number(b, 1, type, v[i]);
}

static void put_binary(dt_buffer *b, int step, const char *text) {
    put_head(b, step, T_BINARY);
    put_varint(b, strlen(text));
    dt_buffer_append(b, text, strlen(text));
}

static void put_list(dt_buffer *b, int step, uint32_t n, int type) {
    put_head(b, step, T_LIST);
    dt_buffer_append(b, &(uint8_t){(uint8_t)((n < 15 ? n : 15) << 4 | (uint32_t)type)}, 1);
    if (n >= 15) put_varint(b, n);
}

static void put_stop(dt_buffer *b) {
    dt_buffer_append(b, "", 1);
}

// ---- building -----------------------------------------------------------------------------------------
dt_parquet_writer *dt_parquet_writer_create(FILE *out) {
    dt_parquet_writer *w = dt_xcalloc(1, sizeof *w);
    w->out = out;
    return w;
}

void dt_parquet_writer_add_column(dt_parquet_writer *w, const char *name, dt_parquet_kind kind) {
    w->columns = dt_xgrow(w->columns, w->n_columns, sizeof *w->columns);
    w->columns[w->n_columns++] = (column){.name = dt_xstrdup(name), .kind = kind};
}

static void put_text(dt_buffer *b, const char *value) {
    const size_t at = b->n_bytes;
    uint32_t n = 0;
    dt_buffer_append(b, &n, sizeof n); // set below
    while (*value) {
        const size_t good = (size_t)(dt_text_utf8_end(value) - value);
        dt_buffer_append(b, value, good);
        value += good;
        if (!*value) break;
        dt_buffer_append(b, "\xef\xbf\xbd", 3);
        value++;
    }
    n = (uint32_t)(b->n_bytes - at - sizeof n);
    memcpy(b->data + at, &n, sizeof n);
}

void dt_parquet_writer_put(dt_parquet_writer *w, uint32_t i, const void *value) {
    column *c = &w->columns[i];
    if (c->n % 8 == 0) put_stop(&c->bits);
    c->bits.data[c->n / 8] |= (uint8_t)((value != NULL) << c->n % 8);
    c->n++;
    if (value && c->kind == DT_PARQUET_TEXT)
        put_text(&c->values, value);
    else if (value)
        dt_buffer_append(&c->values, value, 8);
}

// ---- writing ------------------------------------------------------------------------------------------
static dt_status write_bytes(dt_parquet_writer *w, const void *data, size_t n) {
    w->at += n;
    return fwrite(data, 1, n, w->out) == n ? DT_OK
                                           : dt_fail(DT_E_STORAGE, "cannot write the rows: %s", strerror(errno));
}

// Writes the column's page, and appends its ColumnChunk to the groups.
static dt_status write_column(dt_parquet_writer *w, column *c) {
    dt_buffer *g = &w->groups;
    const uint64_t at = w->at;
    uint32_t n_levels;
    w->page.n_bytes = w->head.n_bytes = 0;
    dt_buffer_append(&w->page, &n_levels, sizeof n_levels); // set below
    put_varint(&w->page, (uint64_t)c->bits.n_bytes << 1 | 1);
    dt_buffer_append(&w->page, c->bits.data, c->bits.n_bytes);
    n_levels = (uint32_t)(w->page.n_bytes - sizeof n_levels);
    memcpy(w->page.data, &n_levels, sizeof n_levels);
    dt_buffer_append(&w->page, c->values.data, c->values.n_bytes);
    const size_t cap = ZSTD_compressBound(w->page.n_bytes);
    if (!dt_buffer_reserve(&w->packed, cap)) return dt_fail(DT_E_INTERNAL, "no memory for a page of %zu bytes", cap);
    const size_t n_packed = ZSTD_compress(w->packed.data, cap, w->page.data, w->page.n_bytes, LEVEL);
    if (ZSTD_isError(n_packed)) return dt_fail(DT_E_INTERNAL, "zstd: %s", ZSTD_getErrorName(n_packed));
    put_numbers(&w->head, T_I32, 3, (uint64_t[]){0, w->page.n_bytes, n_packed}); // PageHeader: a data page
    put_head(&w->head, 2, T_STRUCT);
    put_numbers(&w->head, T_I32, 4, (uint64_t[]){c->n, PLAIN, RLE, RLE});
    put_stop(&w->head);
    put_stop(&w->head);
    DT_TRY(write_bytes(w, w->head.data, w->head.n_bytes));
    DT_TRY(write_bytes(w, w->packed.data, n_packed));
    put_number(g, 2, T_I64, at); // ColumnChunk: file_offset, meta_data
    put_head(g, 1, T_STRUCT);
    put_number(g, 1, T_I32, c->kind);
    put_list(g, 1, 2, T_I32);
    put_number(g, 0, T_I32, PLAIN);
    put_number(g, 0, T_I32, RLE);
    put_list(g, 1, 1, T_BINARY);
    put_binary(g, 0, c->name);
    put_number(g, 1, T_I32, ZSTD);
    put_numbers(g, T_I64, 3, (uint64_t[]){c->n, w->head.n_bytes + w->page.n_bytes, w->at - at});
    put_number(g, 2, T_I64, at); // data_page_offset
    put_stop(g);
    put_stop(g);
    c->n = 0;
    c->bits.n_bytes = c->values.n_bytes = 0;
    return DT_OK;
}

static dt_status write_group(dt_parquet_writer *w) {
    const uint64_t at = w->at;
    if (at == 0) DT_TRY(write_bytes(w, "PAR1", 4));
    if (w->n_rows == 0) return DT_OK;
    put_list(&w->groups, 1, w->n_columns, T_STRUCT);
    for (uint32_t i = 0; i < w->n_columns; i++) DT_TRY(write_column(w, &w->columns[i]));
    put_numbers(&w->groups, T_I64, 2, (uint64_t[]){w->at - at, w->n_rows});
    put_stop(&w->groups);
    w->n_all += w->n_rows;
    w->n_groups++;
    w->n_rows = 0;
    return DT_OK;
}

dt_status dt_parquet_writer_end_row(dt_parquet_writer *w) {
    uint64_t n = 0;
    w->n_rows++;
    for (uint32_t i = 0; i < w->n_columns; i++) n += w->columns[i].values.n_bytes;
    return w->n_rows == GROUP_ROWS || n > GROUP_BYTES ? write_group(w) : DT_OK;
}

static dt_status write_footer(dt_parquet_writer *w) {
    dt_buffer *b = &w->head;
    DT_TRY(write_group(w));
    b->n_bytes = 0;
    put_number(b, 1, T_I32, 1); // version
    put_list(b, 1, w->n_columns + 1, T_STRUCT);
    put_binary(b, 4, "schema");
    put_number(b, 1, T_I32, w->n_columns);
    put_stop(b);
    for (uint32_t i = 0; i < w->n_columns; i++) {
        const column *c = &w->columns[i];
        put_number(b, 1, T_I32, c->kind);
        put_number(b, 2, T_I32, OPTIONAL);
        put_binary(b, 1, c->name);
        if (c->kind == DT_PARQUET_TEXT) {
            put_number(b, 2, T_I32, UTF8); // converted type, and LogicalType STRING: {1: {}}
            put_head(b, 4, T_STRUCT);
            put_head(b, 1, T_STRUCT);
            put_stop(b);
            put_stop(b);
        }
        put_stop(b);
    }
    put_number(b, 1, T_I64, w->n_all);
    put_list(b, 1, w->n_groups, T_STRUCT);
    dt_buffer_append(b, w->groups.data, w->groups.n_bytes);
    put_binary(b, 2, "dtrain");
    put_stop(b);
    const uint32_t n = (uint32_t)b->n_bytes;
    dt_buffer_append(b, &n, sizeof n);
    dt_buffer_append(b, "PAR1", 4);
    return write_bytes(w, b->data, b->n_bytes);
}

dt_status dt_parquet_writer_close(dt_parquet_writer *w) {
    const dt_status st = write_footer(w);
    for (uint32_t i = 0; i < w->n_columns; i++) {
        free(w->columns[i].name);
        dt_buffer_fini(&w->columns[i].bits);
        dt_buffer_fini(&w->columns[i].values);
    }
    free(w->columns);
    dt_buffer_fini(&w->groups);
    dt_buffer_fini(&w->page);
    dt_buffer_fini(&w->packed);
    dt_buffer_fini(&w->head);
    free(w);
    return st;
}
