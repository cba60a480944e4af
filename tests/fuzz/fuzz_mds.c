// fuzz_mds.c: any bytes as an MDS shard, and as a list of shards. Must answer, never crash; every member
// lies inside the shard.
// Parser: data/source/format_mds.c
#include "data/source/source_parts.h"
#include "fuzz_scan.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_blob b;
    dt_listing list = {0};
    bool is_list;
    dt_blob_from_memory(&b, "fuzz.mds", data, n_bytes);
    fuzz_scan(&dt_format_mds, &b, n_bytes, false);
    dt_shard_list_parse(&list, "index.json", (const char *)data, n_bytes, &is_list);
    dt_shard_list_fini(&list);
    return 0;
}
