// fuzz_dali.c: any bytes as DALI's index of a tar. Must answer, never crash; every member it gives is a
// block-aligned part of the tar.
#include "data/file/tar.h"
#include "data/source/tar_index.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { N_DATA = 1 << 20 };

static dt_status visit(void *arg, bool first, const char *ext, uint64_t offset, uint64_t size,
                       const char *name) {
    if (offset % 512 || offset > N_DATA || size > N_DATA - offset || strlen(ext) >= 64 ||
        (name && strlen(name) >= DT_TAR_MAX_PATH))
        abort();
    return DT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_dali_parse("x.idx", (const char *)data, n_bytes, N_DATA, visit, NULL);
    return 0;
}
