// fuzz_lmdb.c: any bytes as an LMDB file, walked and read as a set of any layout. Must answer, never
// crash or loop, and every value and member must lie inside the file.
#include "data/source/lmdb_tree.h"
#include "data/source/source.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static dt_status visit(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    size_t n_bytes = *(const size_t *)arg;
    if (offset > n_bytes || size > n_bytes - offset || key[n_key] != '\0') abort();
    return DT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_blob b;
    dt_blob_from_memory(&b, "fuzz.mdb", data, n_bytes);
    dt_lmdb_walk(&b, visit, &n_bytes);
    dt_scan s = {.c = dt_catalog_create(), .blob = &b};
    dt_format_lmdb.scan(&s);
    for (uint32_t m = 0; m < s.c->n_members; m++)
        if (s.c->members[m].size > n_bytes ||
            s.c->members[m].offset > n_bytes - s.c->members[m].size)
            abort();
    dt_catalog_finish(s.c);
    dt_catalog_destroy(s.c);
    return 0;
}
