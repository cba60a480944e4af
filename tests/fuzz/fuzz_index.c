// fuzz_index.c: any bytes as the payload of an index file, its header and hash made right so that the
// rows are reached. Must answer, never crash; every member of what it accepts lies inside the data
// file, every cell and number can be read.
// Parser: data/catalog/index_file.c
#include "base/hash.h"
#include "data/catalog/index_file.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check(const dt_catalog *c, uint64_t n_data) {
    static volatile size_t sum;
    for (uint32_t i = 0; i < c->n_members; i++)
        if (c->members[i].size > n_data || c->members[i].offset > n_data - c->members[i].size) abort();
    for (uint32_t r = 0; r < c->n_records; r++) {
        sum += strlen(dt_catalog_str(c, c->records[r].key));
        for (int k = 0; k < (int)c->table.n_columns; k++) {
            const char *value = dt_catalog_value(c, k, r);
            sum += value ? strlen(value) : dt_columns_has(&c->table, k, r);
        }
    }
    sum += dt_catalog_hash(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    uint64_t head[2] = {n_bytes, dt_hash64(data, n_bytes)}, stamp = 0, n_data = 0;
    uint8_t *file = malloc(24 + n_bytes);
    bool stale;
    if (n_bytes >= 16) memcpy(&n_data, data, 8), memcpy(&stamp, data + 8, 8);
    memcpy(file, "DTINDEX1", 8);
    memcpy(file + 8, head, 16);
    if (n_bytes) memcpy(file + 24, data, n_bytes);
    dt_catalog *c = dt_catalog_create();
    if (dt_index_parse(c, "x", "x.index", file, 24 + n_bytes, n_data, stamp, &stale) == DT_OK) {
        dt_catalog_finish(c);
        check(c, n_data);
    }
    dt_catalog_destroy(c);
    free(file);
    return 0;
}
