// peek.h: small reads near each other in a file (headers, sizes), few of which reach the file.
#ifndef DT_DATA_PEEK_H
#define DT_DATA_PEEK_H

#include "store/blob.h"

enum { DT_PEEK_BYTES = 4096 };

typedef struct dt_peek {
    const dt_blob *blob;
    uint64_t at;
    size_t n;
    uint8_t bytes[DT_PEEK_BYTES];
} dt_peek;

void dt_peek_init(dt_peek *w, const dt_blob *b);
// As dt_blob_read; the bytes after `at` come along.
dt_status dt_peek_read(dt_peek *w, uint64_t at, void *dst, size_t n_bytes);

#endif
