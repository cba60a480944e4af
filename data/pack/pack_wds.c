// pack_wds.c: writes WebDataset shards, name-{000000..000003}.tar, each with its index beside it.
//
// The brace pattern says how many shards; records go to them in contiguous runs of nearly equal count.
// Headers are USTAR with mode 0644, ids and times 0, so the same source gives the same bytes. Metadata
// is a `json` member, a class number a `cls` member, as Python's webdataset expects. Each shard is
// written to name.tar.partial; when all are written and synced, indexes and then shards are renamed:
// a kill before that leaves only partial files, one in between leaves shards missing, which readers of
// the pattern name.
#include "data/catalog/index_file.h"
#include "data/source/blob.h"
#include "data/source/source.h"
#include "data/source/tar.h"
#include "pack.h"

#include "base/arena.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FLUSH_BYTES = 1 << 20 };

typedef struct wds_pack {
    const dt_raw *raw;
    char **paths, **partials;
    size_t n_shards;
    size_t n_added;    // records
    size_t n_finished; // shards whole under their partial name
    int fd;            // of the open shard, or -1
    uint64_t at;       // bytes written to it, with those in `pending`
    dt_buffer pending;
    dt_catalog *catalog;
} wds_pack;

static bool wds_accepts_out(const char *out) {
    size_t n = strlen(out);
    return n > 4 && strcasecmp(out + n - 4, ".tar") == 0;
}

static dt_status wds_begin(void **self, const char *out, const dt_raw *raw) {
    wds_pack *p = dt_xcalloc(1, sizeof *p);
    *self = p;
    p->raw = raw;
    p->fd = -1;
    p->catalog = dt_catalog_create();
    DT_TRY(dt_expand_shards(out, &p->paths, &p->n_shards));
    p->partials = dt_xcalloc(p->n_shards, sizeof *p->partials);
    for (size_t i = 0; i < p->n_shards; i++) p->partials[i] = dt_xprintf("%s.partial", p->paths[i]);
    if (p->n_shards > raw->n)
        return dt_fail(DT_E_USAGE, "%s: %zu shards for %zu records", out, p->n_shards, raw->n);
    return DT_OK;
}

static dt_status flush(wds_pack *p) {
    dt_status st =
        dt_io_write(p->fd, p->partials[p->n_finished], p->pending.data, p->pending.n_bytes);
    p->pending.n_bytes = 0;
    return st;
}

static dt_status append(wds_pack *p, const void *data, size_t n_bytes) {
    dt_buffer_append(&p->pending, data, n_bytes);
    p->at += n_bytes;
    return p->pending.n_bytes >= FLUSH_BYTES ? flush(p) : DT_OK;
}

static dt_status open_shard(wds_pack *p) {
    p->at = 0;
    DT_TRY(dt_io_create(&p->fd, p->partials[p->n_finished], false));
    uint32_t shard = dt_catalog_add_shard(p->catalog, p->paths[p->n_finished], 0);
    p->catalog->shards[shard].source_hash = p->raw->hash;
    return DT_OK;
}

// Two zero blocks, and zeros up to a record of 20 blocks as tar writes them.
static dt_status close_shard(wds_pack *p) {
    static const uint8_t zeros[20 * DT_TAR_BLOCK];
    uint64_t end = (p->at + 2 * DT_TAR_BLOCK + sizeof zeros - 1) / sizeof zeros * sizeof zeros;
    while (p->at < end) {
        uint64_t n = end - p->at < sizeof zeros ? end - p->at : sizeof zeros;
        DT_TRY(append(p, zeros, (size_t)n));
    }
    DT_TRY(flush(p));
    DT_TRY(dt_io_fsync(p->fd, p->partials[p->n_finished]));
    int fd = p->fd;
    p->fd = -1;
    DT_TRY(dt_io_close(fd, p->partials[p->n_finished]));
    p->catalog->shards[p->n_finished].n_bytes = p->at;
    p->n_finished++;
    return DT_OK;
}

static dt_status add_file(wds_pack *p, const dt_pack_record *r, int m) {
    static const uint8_t zeros[DT_TAR_BLOCK];
    uint8_t header[DT_TAR_MAX_HEADER];
    size_t n_header;
    dt_span bytes = r->member[m].bytes;
    char *name = dt_xprintf("%s.%s", r->item->key, r->member[m].ext);
    dt_status st = dt_tar_write_header(header, &n_header, name, bytes.n_bytes);
    free(name);
    DT_TRY(st);
    DT_TRY(append(p, header, n_header));
    DT_TRY(dt_catalog_add_member(p->catalog, r->member[m].ext, p->at, bytes.n_bytes,
                                 &r->member[m].hash));
    DT_TRY(append(p, bytes.data, bytes.n_bytes));
    return append(p, zeros, (size_t)(dt_tar_padded(bytes.n_bytes) - bytes.n_bytes));
}

static dt_status wds_add(void *self, const dt_pack_record *r) {
    wds_pack *p = self;
    if (p->fd < 0) DT_TRY(open_shard(p));
    DT_TRY(dt_pack_add_row(p->catalog, (uint32_t)p->n_finished, r->item));
    for (int m = 0; m < r->n_members; m++) DT_TRY(add_file(p, r, m));
    p->n_added++;
    size_t end = p->raw->n * (p->n_finished + 1) / p->n_shards; // of this shard's records
    return p->n_added == end ? close_shard(p) : DT_OK;
}

static dt_status write_index(wds_pack *p, size_t i) {
    dt_blob blob;
    uint64_t stamp = 0;
    DT_TRY(dt_blob_open(&blob, p->partials[i]));
    dt_status st = dt_blob_stamp(&blob, &stamp);
    dt_blob_close(&blob);
    DT_TRY(st);
    char *partial = dt_xprintf("%s.index.partial", p->paths[i]);
    char *path = dt_xprintf("%s.index", p->paths[i]);
    st = dt_index_save(p->catalog, (uint32_t)i, stamp, partial);
    if (st == DT_OK) st = dt_io_rename(partial, path);
    free(partial);
    free(path);
    return st;
}

static dt_status wds_finish(void *self) {
    wds_pack *p = self;
    dt_catalog_finish(p->catalog);
    for (size_t i = 0; i < p->n_shards; i++) DT_TRY(write_index(p, i));
    for (size_t i = 0; i < p->n_shards; i++)
        DT_TRY(dt_io_rename_noreplace(p->partials[i], p->paths[i]));
    return dt_pack_sync_folder(p->paths[0]);
}

static void wds_end(void *self) {
    wds_pack *p = self;
    char *why = dt_xstrdup(dt_error_message()); // stays the first error
    if (p->fd >= 0) dt_io_close(p->fd, p->partials[p->n_finished]);
    for (size_t i = 0; p->partials && i < p->n_shards; i++) {
        if (dt_io_exists(p->partials[i])) dt_io_unlink(p->partials[i]);
        free(p->partials[i]);
    }
    if (*why) dt_fail(DT_E_STORAGE, "%s", why);
    free(why);
    dt_io_free_list(p->paths, p->n_shards);
    free(p->partials);
    dt_buffer_fini(&p->pending);
    dt_catalog_destroy(p->catalog);
    free(p);
}

static dt_status wds_remove(const char *out) {
    char **files;
    size_t n;
    DT_TRY(dt_expand_shards(out, &files, &n));
    dt_status st = DT_OK;
    for (size_t i = 0; i < n && st == DT_OK; i++)
        if (dt_io_exists(files[i])) st = dt_io_unlink(files[i]);
    dt_io_free_list(files, n);
    return st;
}

const dt_packer dt_packer_wds = {"webdataset", wds_accepts_out, dt_expand_shards, wds_begin,
                                 wds_add,      wds_finish,      wds_end,          wds_remove};
