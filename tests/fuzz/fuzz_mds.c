// fuzz_mds.c: any bytes as an MDS shard, and as a list of shards. Must answer, never crash; every member
// lies inside the shard.
#include "data/source/shard_list.h"
#include "data/source/source.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_blob b;
    dt_listing list = {0};
    bool is_list;
    dt_blob_from_memory(&b, "fuzz.mds", data, n_bytes);
    dt_scan s = {.c = dt_catalog_create(), .blob = &b};
    dt_format_mds.scan(&s);
    for (uint32_t m = 0; m < s.c->n_members; m++)
        if (s.c->members[m].size > n_bytes ||
            s.c->members[m].offset > n_bytes - s.c->members[m].size)
            abort();
    dt_catalog_finish(s.c);
    dt_catalog_destroy(s.c);
    dt_shard_list_parse(&list, "index.json", (const char *)data, n_bytes, &is_list);
    dt_shard_list_fini(&list);
    return 0;
}
