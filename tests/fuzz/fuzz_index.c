// fuzz_index.c: any bytes as the payload of an index file, its header and hash made right so that the
// rows are reached. Must answer, never crash; every member of what it accepts lies inside the data
// file, every cell and number can be read, and the index that is made of it gives the same catalog.
// Parser: data/catalog/index_file.c!dt_index_(save|load)
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
    (void)sum;
}

static void check_again(const dt_catalog *c, uint64_t n_data, uint64_t stamp) {
    dt_buffer again = {0};
    dt_catalog *d = dt_catalog_create();
    bool stale;
    if (dt_index_make(c, 0, stamp, &again) == DT_OK &&
        (dt_index_parse(d, "x", "x.index", again.data, again.n_bytes, n_data, stamp, &stale) != DT_OK || stale ||
         dt_catalog_finish(d) != DT_OK || dt_catalog_hash(d) != dt_catalog_hash(c)))
        abort();
    dt_catalog_destroy(d);
    dt_buffer_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    uint64_t head[2] = {n_bytes, dt_hash64(data, n_bytes)}, stamp = 0, n_data = 0, source_hash;
    uint8_t *file = malloc(24 + n_bytes);
    bool stale;
    if (n_bytes >= 16) memcpy(&n_data, data, 8), memcpy(&stamp, data + 8, 8);
    memcpy(file, "DTINDEX1", 8);
    memcpy(file + 8, head, 16);
    if (n_bytes) memcpy(file + 24, data, n_bytes);
    dt_catalog *c = dt_catalog_create();
    if (dt_index_parse(c, "x", "x.index", file, 24 + n_bytes, n_data, stamp, &stale) == DT_OK) {
        const bool whole = dt_catalog_finish(c) == DT_OK;
        check(c, n_data);
        if (whole && !stale) check_again(c, n_data, stamp);
    }
    dt_index_check("x", "x.index", file, 24 + n_bytes, n_data, &stamp, &stale, &source_hash);
    dt_catalog_destroy(c);
    free(file);
    return 0;
}
