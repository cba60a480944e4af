// fuzz_unpack.c: any bytes as gzip or zstd. Must answer, never crash, and never hand out more than it was
// allowed to.
// Parser: data/source/unpack.c!unpack_make_room|write_block|write_unpacked|lock_byte|unpack_identity|unpack_plain_name|unpack_locked|dt_unpack_open
#include "data/source/source_parts.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 1 << 20 };

static dt_status sink(void *arg, const void *data, size_t n_bytes) {
    static volatile unsigned sum;
    size_t *total = arg;
    *total += n_bytes;
    if (*total > LIMIT) abort();
    sum += ((const uint8_t *)data)[n_bytes - 1];
    (void)sum;
    return DT_OK;
}

static void unpack(const uint8_t *data, size_t n_bytes) {
    dt_blob b;
    size_t total = 0;
    dt_blob_from_memory(&b, "fuzz", data, n_bytes);
    dt_unpack(&b, LIMIT, sink, &total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static const char magic[2][4] = {"\x1f\x8b\x08", "\x28\xb5\x2f\xfd"};
    unpack(data, n_bytes);
    if (n_bytes < 5 || dt_packing_of(data, n_bytes) != DT_PACKING_NONE) return 0;
    uint8_t *copy = malloc(n_bytes);
    memcpy(copy, data, n_bytes);
    memcpy(copy, magic[data[0] & 1], (data[0] & 1) ? 4 : 3); // either kind of stream
    unpack(copy, n_bytes);
    free(copy);
    return 0;
}
