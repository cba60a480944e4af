// columnar.h: tables that other programs keep by columns. The format stays in its file (parquet.c); a reader of
// tables sees columns of named types, and visits the values of one column after the other.
//
// Columns are flat, or fields of one level of structs ("image.bytes"). Other columns (lists, maps, structs in structs) are
// listed with what they are, and have no values. A value of a column of bytes may be many megabytes: it is visited once,
// and read again later by its place, a page and an offset, so that a set larger than the memory can be packed.
#ifndef DT_DATA_FILE_COLUMNAR_H
#define DT_DATA_FILE_COLUMNAR_H

#include "file.h"

#include "base/core.h"

#include <pthread.h>

typedef enum dt_columnar_type {
    DT_COLUMNAR_BOOL, // a byte
    DT_COLUMNAR_INT,
    DT_COLUMNAR_UINT,
    DT_COLUMNAR_FLOAT,
    DT_COLUMNAR_DECIMAL,
    DT_COLUMNAR_DATE, // days since 1970
    DT_COLUMNAR_TIME,
    DT_COLUMNAR_TIMESTAMP, // since 1970
    DT_COLUMNAR_TEXT,
    DT_COLUMNAR_BYTES,
    DT_COLUMNAR_NULL,  // a column without values
    DT_COLUMNAR_UNREAD // `what` names it
} dt_columnar_type;

typedef struct dt_columnar_column {
    const char *name;
    dt_columnar_type type;
    uint32_t width; // bytes of a value; 0: they vary
    int scale;      // decimal digits behind the point, of DECIMAL, TIME and TIMESTAMP (of seconds)
    bool utc, big_endian;
    const char *what;
    const char **classes; // names of a class label's numbers, as Hugging Face keeps them; or NULL
    uint32_t n_classes;
    uint32_t leaf, levels; // the format's own
} dt_columnar_column;

typedef enum dt_columnar_codec { DT_CODEC_NONE, DT_CODEC_SNAPPY, DT_CODEC_GZIP, DT_CODEC_ZSTD } dt_columnar_codec;

// Bytes of a file that are unpacked as a whole.
typedef struct dt_columnar_page {
    uint64_t at;
    uint32_t n_packed, n_bytes;
    dt_columnar_codec codec;
} dt_columnar_page;

typedef struct dt_columnar_value {
    const uint8_t *data; // NULL: no value
    size_t n_bytes;
    uint32_t page, at; // of a value of BYTES, for dt_columnar_read
} dt_columnar_value;

// A status other than DT_OK ends the visit.
typedef dt_status (*dt_columnar_visit)(void *arg, uint64_t row, const dt_columnar_value *v);

enum { DT_COLUMNAR_SLOTS = 64 };
typedef struct dt_columnar {
    dt_arena arena;
    dt_blob blob;
    dt_columnar_column *columns;
    uint32_t n_columns;
    uint64_t n_rows;
    void *format;            // the format's own
    dt_columnar_page *pages; // with values of BYTES
    uint32_t n_pages;
    // pages that were read again
    pthread_mutex_t lock;
    struct {
        dt_buffer bytes;
        uint32_t page;
        uint64_t used; // 0: empty
    } slot[DT_COLUMNAR_SLOTS];
    uint64_t n_used;
} dt_columnar;

// Whether a name, or a pattern, is one of such files, Arrow's with them, which are refused by name.
bool dt_columnar_is_name(const char *path);
// DT_E_DATA: damaged, or a kind of file that is not read.
dt_status dt_columnar_open(dt_columnar **out, const char *path);
// The same of bytes, for fuzzing.
dt_status dt_columnar_open_blob(dt_columnar **out, const dt_blob *blob);
void dt_columnar_close(dt_columnar *t); // NULL is fine

// Visits all values of a column that has some, row by row. One thread. A value's data lasts for its call.
dt_status dt_columnar_each(dt_columnar *t, const dt_columnar_column *c, dt_columnar_visit visit, void *arg);
// n_bytes from offset `at` of a page on. Any thread.
dt_status dt_columnar_read(dt_columnar *t, uint32_t page, uint64_t at, void *dst, size_t n_bytes);
// A value as text, in `out` (a buffer that is reused) with a NUL behind it; NULL: none, an empty text, or a number that is
// not finite. Numbers with a fraction are of the fewest digits that give them back; whole ones of FLOAT keep ".0". Dates and times are
// ISO 8601. DT_E_DATA: bytes that are no text.
dt_status dt_columnar_text(const dt_columnar *t, const dt_columnar_column *c, const dt_columnar_value *v,
                           dt_buffer *out, const char **text);

// The value of an IEEE 754 binary16.
double dt_f16_value(uint16_t h);

// ---- for formats --------------------------------------------------------------------------------------------------

dt_status dt_parquet_open(dt_columnar *t);
dt_status dt_parquet_each(dt_columnar *t, const dt_columnar_column *c, dt_columnar_visit visit, void *arg);
// Adds a column NAME or NAME.FIELD, which is copied; the pointer lasts until the next.
dt_columnar_column *dt_columnar_add(dt_columnar *t, dt_span name, const dt_span *field);
// Takes the names of classes from a file's metadata, if its key is "huggingface".
bool dt_columnar_name_classes(dt_columnar *t, dt_span key, dt_span json);
// After the columns. DT_E_DATA: more than 2^28 in all, or more values than a file of so few bytes may have.
dt_status dt_columnar_add_rows(dt_columnar *t, uint64_t n);
// DT_E_DATA with the file in front.
dt_status dt_columnar_damaged(const dt_columnar *t, const char *what);
// Reads and unpacks a page. DT_E_DATA: it is damaged, or unpacks to another size than `n_bytes`.
dt_status dt_columnar_load(const dt_columnar *t, const dt_columnar_page *p, dt_buffer *out);
// Keeps a page for dt_columnar_read; its number.
uint32_t dt_columnar_keep(dt_columnar *t, const dt_columnar_page *p);

#endif
