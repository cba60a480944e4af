// pack_wds.c: WebDataset shards.
//
// Headers are USTAR with mode 0644, ids and times 0, so the same source gives the same bytes. Metadata
// is a `json` member, a class number a `cls` member, as Python's webdataset expects. A file ends in two
// zero blocks, and zeros up to a record of 20 blocks, as tar writes them.
//
// A shard is written once and is often larger than memory. So whole buffers go past the page cache where the file
// system is known to do that well (ext4, XFS): the page cache would cost more than reading and hashing together.
#include "data/file/tar.h"
#include "pack_parts.h"

#include "base/core.h"
#include "base/io.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 4 << 20 }; // bytes; a multiple of what O_DIRECT aligns to

struct dt_pack_writer {
    char *path;
    int fd, direct_fd; // -1: none
    uint8_t *buffer;
    size_t n;          // bytes in it
    uint64_t at, left; // bytes in the file; of the member that are still to come
};

static bool wds_accepts(const char *out) {
    return strlen(out) > strlen(".tar") && dt_text_ends(out, ".tar");
}

// Each member is a header and whole blocks; the json member nearly always fits one block.
static uint64_t wds_estimate(uint64_t member_bytes, bool has_cls) {
    return DT_TAR_BLOCK + dt_tar_padded(member_bytes) + (has_cls ? 4 : 2) * DT_TAR_BLOCK;
}

static dt_status wds_open(dt_pack_writer **out, const char *path) {
    dt_pack_writer *w = *out = dt_xcalloc(1, sizeof *w);
    *w = (dt_pack_writer){.path = dt_xstrdup(path), .fd = -1, .direct_fd = -1};
    w->buffer = aligned_alloc(4096, BUFFER); // O_DIRECT needs aligned memory
    if (!w->buffer) return dt_fail(DT_E_INTERNAL, "out of memory");
    DT_TRY(dt_io_create(&w->fd, path, false));
    w->direct_fd = dt_io_open_direct(path); // -1: the file system does not do direct writes well
    return DT_OK;
}

static dt_status pack_wds_flush(dt_pack_writer *w) {
    bool direct = w->direct_fd >= 0 && w->n == BUFFER; // only whole buffers keep the file's offset aligned
    DT_TRY(dt_io_pwrite(direct ? w->direct_fd : w->fd, w->path, w->buffer, w->n, (off_t)w->at));
    // the kernel writes in the background: the last fsync has little left
    if (!direct) dt_io_begin_sync(w->fd, (off_t)w->at, w->n);
    w->at += w->n;
    w->n = 0;
    return DT_OK;
}

static dt_status pack_wds_append(dt_pack_writer *w, const uint8_t *data, uint64_t n_bytes) {
    while (n_bytes > 0) {
        size_t n = n_bytes < BUFFER - w->n ? (size_t)n_bytes : BUFFER - w->n;
        memcpy(w->buffer + w->n, data, n);
        w->n += n;
        data += n;
        n_bytes -= n;
        if (w->n == BUFFER) DT_TRY(pack_wds_flush(w));
    }
    return DT_OK;
}

static dt_status pad(dt_pack_writer *w, uint64_t block) {
    static const uint8_t zeros[20 * DT_TAR_BLOCK];
    uint64_t over = (w->at + w->n) % block;
    return over ? pack_wds_append(w, zeros, block - over) : DT_OK;
}

static dt_status wds_begin(dt_pack_writer *w, const char *name, uint64_t size, uint64_t *offset) {
    uint8_t header[DT_TAR_MAX_HEADER];
    size_t n_header;
    DT_TRY(dt_tar_write_header(header, &n_header, name, size));
    DT_TRY(pack_wds_append(w, header, n_header));
    *offset = w->at + w->n; // of the member's first byte
    w->left = size;
    return DT_OK;
}

static dt_status wds_put(dt_pack_writer *w, const void *data, size_t n_bytes) {
    DT_TRY(pack_wds_append(w, data, n_bytes));
    w->left -= n_bytes;
    return w->left == 0 ? pad(w, DT_TAR_BLOCK) : DT_OK; // the member is complete: its last block is filled up
}

static dt_status wds_end(dt_pack_writer *w, dt_catalog *c) {
    static const uint8_t zeros[2 * DT_TAR_BLOCK];
    DT_TRY(pack_wds_append(w, zeros, sizeof zeros)); // the end of an archive
    DT_TRY(pad(w, 20 * DT_TAR_BLOCK));               // tar's record of 20 blocks
    if (w->n > 0) DT_TRY(pack_wds_flush(w));
    DT_TRY(dt_io_fsync(w->fd, w->path));
    // fd is closed once, even where closing fails
    int fd = w->fd;
    w->fd = -1;
    return dt_io_close(fd, w->path);
}

static void wds_close(dt_pack_writer *w) {
    if (!w) return;
    if (w->direct_fd >= 0) close(w->direct_fd);
    if (w->fd >= 0) close(w->fd);
    free(w->buffer);
    free(w->path);
    free(w);
}

const dt_pack_format dt_pack_wds = {.name = "webdataset",
                                    .accepts = wds_accepts,
                                    .estimate = wds_estimate,
                                    .open = wds_open,
                                    .begin = wds_begin,
                                    .put = wds_put,
                                    .end = wds_end,
                                    .close = wds_close};
