// fuzz_lmdb.c: any bytes as an LMDB file, walked and read as a set of any layout. Must answer, never
// crash or loop, and every value and member must lie inside the file.
// Parser: data/source/format_lmdb.c
#include "data/source/source_parts.h"
#include "fuzz_scan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static dt_status visit(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    size_t n_bytes = *(const size_t *)arg;
    if (offset > n_bytes || size > n_bytes - offset || key[n_key] != '\0') abort();
    return DT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_blob b;
    dt_blob_from_memory(&b, "fuzz.mdb", data, n_bytes);
    dt_lmdb_walk(&b, visit, &n_bytes);
    fuzz_scan(&dt_format_lmdb, &b, n_bytes, false);
    return 0;
}
