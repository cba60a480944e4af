// blob.h: a read-only file (or bytes in memory, for tests and fuzzing) that is read by range, each
// range checked against the size.
#ifndef DT_DATA_BLOB_H
#define DT_DATA_BLOB_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct dt_blob {
    const char *path; // borrowed
    int fd;           // -1: `mem`
    const uint8_t *mem;
    uint64_t n_bytes;
} dt_blob;

dt_status dt_blob_open(dt_blob *b, const char *path); // DT_E_DATA; as dt_io_open_error
void dt_blob_from_memory(dt_blob *b, const char *name, const void *data, size_t n_bytes);
void dt_blob_close(dt_blob *b);
// Exactly n_bytes at `at`, or DT_E_DATA that says what the file has.
dt_status dt_blob_read(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes);
// A cheap identity of a file: XXH3 of its size, its first 8 KiB and its last 12 KiB. By it an index knows that its
// file was replaced, or that a tar was appended to within its padding. Hashes of members find other changes.
dt_status dt_blob_stamp(const dt_blob *b, uint64_t *out);

#endif
