// pack_wds.c: WebDataset shards.
//
// Headers are USTAR with mode 0644, ids and times 0, so the same source gives the same bytes. Metadata
// is a `json` member, a class number a `cls` member, as Python's webdataset expects. A file ends in two
// zero blocks, and zeros up to a record of 20 blocks as tar writes them. A chunk is a whole number of
// blocks and holds nothing that depends on its place.
#include "data/file/tar.h"
#include "pack_format.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool wds_accepts(const char *out) {
    size_t n = strlen(out);
    return n > 4 && strcasecmp(out + n - 4, ".tar") == 0;
}

// Each member a header and whole blocks; the json member fits one nearly always.
static uint64_t wds_estimate(uint64_t member_bytes, bool has_cls) {
    return DT_TAR_BLOCK + dt_tar_padded(member_bytes) + (has_cls ? 4 : 2) * DT_TAR_BLOCK;
}

static size_t wds_most(size_t n_name, uint64_t in_memory) {
    return DT_TAR_MAX_HEADER + (size_t)dt_tar_padded(in_memory);
}

static dt_status wds_add(dt_chunk *c, const char *name, size_t n_name, uint64_t size,
                         bool in_memory, uint64_t *offset, uint8_t **place) {
    size_t n_header;
    DT_TRY(dt_tar_write_header(dt_chunk_data(c, c->n_bytes), &n_header, name, size));
    dt_chunk_extend(c, n_header, false);
    *offset = dt_chunk_end(c);
    if (in_memory) {
        *place = dt_chunk_extend(c, (size_t)size, false);
    } else {
        *place = NULL;
        c->has_gap = true;
        c->gap_at = c->n_bytes;
        c->gap_bytes = size;
    }
    dt_chunk_extend(c, (size_t)(dt_tar_padded(size) - size), true);
    return DT_OK;
}

static void wds_relocate(dt_chunk *c) {}

static dt_status wds_finish(const dt_pack_file *f, dt_pack_put put, void *arg, uint64_t *n_bytes) {
    static const uint8_t zeros[22 * DT_TAR_BLOCK];
    const uint64_t record = 20 * DT_TAR_BLOCK;
    *n_bytes = (f->n_bytes + 2 * DT_TAR_BLOCK + record - 1) / record * record;
    return put(arg, zeros, (size_t)(*n_bytes - f->n_bytes), f->n_bytes);
}

const dt_pack_format dt_pack_wds = {.name = "webdataset",
                                    .accepts = wds_accepts,
                                    .estimate = wds_estimate,
                                    .most = wds_most,
                                    .add = wds_add,
                                    .relocate = wds_relocate,
                                    .finish = wds_finish};
