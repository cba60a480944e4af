// fuzz_lmdb.c: any bytes as an LMDB file, and as a catalog. Must answer, never crash or loop, and every
// value must lie inside the file.
#include "base/hash.h"
#include "data/catalog/catalog.h"
#include "data/source/lmdb_tree.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static dt_status visit(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    size_t n_bytes = *(const size_t *)arg;
    if (offset > n_bytes || size > n_bytes - offset || key[n_key] != '\0') abort();
    return DT_OK;
}

static void parse_catalog(const uint8_t *data, size_t n_bytes) {
    // header and hash made right, so that the rows are reached
    uint64_t head[2] = {n_bytes, dt_hash64(data, n_bytes)}, stamp = 0, n_data = 0;
    uint8_t *file = malloc(24 + n_bytes);
    bool stale;
    if (n_bytes >= 16) memcpy(&n_data, data, 8), memcpy(&stamp, data + 8, 8);
    memcpy(file, "DTCATLG1", 8);
    memcpy(file + 8, head, 16);
    if (n_bytes) memcpy(file + 24, data, n_bytes);
    dt_catalog *c = dt_catalog_create();
    if (dt_catalog_parse(c, "x", "x.catalog", file, 24 + n_bytes, n_data, stamp, &stale) == DT_OK) {
        dt_catalog_finish(c);
        for (uint32_t i = 0; i < c->n_members; i++)
            if (c->members[i].offset + c->members[i].size > n_data) abort();
    }
    dt_catalog_destroy(c);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_blob b;
    dt_blob_from_memory(&b, "fuzz.mdb", data, n_bytes);
    dt_lmdb_walk(&b, visit, &n_bytes);
    parse_catalog(data, n_bytes);
    return 0;
}
