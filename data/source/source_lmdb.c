// source_lmdb.c: records in an LMDB.
//
// What `dtrain pack` writes: an entry for each member, its key "<record key>.<extension>" by
// WebDataset's rule, its value the bytes as they were; metadata is the member "json". So any LMDB
// reader gets at the images without us, and since '.' ends each record's key, its members lie together
// in key order. Beside data.mdb lies data.mdb.index with offsets and hashes: with it, opening reads
// one small file and reading is a pread, the tree is not touched.
//
// Without an index, or when the data file has been replaced since, the tree is walked (lmdb_tree.c).
// Sets made by others whose keys have no extension (one encoded image an entry) get one from the first
// bytes of the value.
#include "blob.h"
#include "data/catalog/index_file.h"
#include "data/decode/decode.h"
#include "lmdb_tree.h"
#include "source.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char *data_file(const char *path) {
    return dt_io_is_dir(path) ? dt_xprintf("%s/data.mdb", path) : dt_xstrdup(path);
}

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcasecmp(s + n - k, tail) == 0;
}

static bool lmdb_accepts(const char *path) {
    char *file = data_file(path);
    bool yes = dt_io_is_dir(path) ? dt_io_exists(file)
                                  : ends_with(path, ".lmdb") || ends_with(path, ".mdb");
    free(file);
    // a folder named .lmdb without its data file is a damaged set, not a folder of images
    return yes || (dt_io_is_dir(path) && ends_with(path, ".lmdb"));
}

typedef struct scan {
    dt_catalog *c;
    const dt_blob *blob;
    uint32_t shard;
    char last[1024]; // key of the record being gathered
    bool any;
} scan;

static dt_status sniff(const scan *s, uint64_t offset, uint64_t size, char *ext, size_t cap) {
    uint8_t head[16] = {0};
    size_t n = size < sizeof head ? (size_t)size : sizeof head;
    DT_TRY(dt_blob_read(s->blob, offset, head, n));
    const char *name = dt_image_extension(head, n);
    snprintf(ext, cap, "%s", name ? name : "bin");
    return DT_OK;
}

static dt_status add_json(scan *s, uint64_t offset, uint64_t size) {
    char *text = malloc(size + 1);
    if (!text) return dt_fail(DT_E_INTERNAL, "out of memory");
    dt_status st = dt_blob_read(s->blob, offset, text, size);
    if (st == DT_OK) st = dt_catalog_set_json(s->c, text, size);
    free(text);
    return st;
}

static dt_status visit(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    scan *s = arg;
    char ext[64];
    size_t n = n_key;
    if (strlen(key) != n_key || n_key == 0)
        return dt_fail(DT_E_DATA, "%s: a key of binary numbers: not a data set of named records",
                       s->blob->path);
    if (strcmp(key, "__keys__") == 0 || strcmp(key, "__len__") == 0)
        return dt_fail(DT_E_DATA, "%s: made by folder2lmdb (pickled values), which is not read",
                       s->blob->path);
    if (!dt_split_key(key, &n, ext, sizeof ext)) DT_TRY(sniff(s, offset, size, ext, sizeof ext));
    if (!s->any || strlen(s->last) != n || memcmp(s->last, key, n) != 0) {
        memcpy(s->last, key, n);
        s->last[n] = '\0';
        s->any = true;
        DT_TRY(dt_catalog_add_record(s->c, s->shard, s->last));
    }
    DT_TRY(dt_catalog_add_member(s->c, ext, offset, size, NULL));
    return strcmp(ext, "json") == 0 && size <= 65536 ? add_json(s, offset, size) : DT_OK;
}

static dt_status scan_tree(dt_catalog *c, const char *file) {
    dt_blob blob;
    DT_TRY(dt_blob_open(&blob, file));
    scan s = {.c = c, .blob = &blob, .shard = dt_catalog_add_shard(c, file, blob.n_bytes)};
    dt_status st = dt_lmdb_walk(&blob, visit, &s);
    dt_blob_close(&blob);
    return st;
}

static dt_status lmdb_load(dt_catalog *c, const char *path) {
    char *file = data_file(path);
    bool found, stale;
    dt_status st = dt_index_load(c, file, &found, &stale);
    if (st == DT_OK && stale)
        dt_warn(
            "%s: changed since its index was written: scanned, and not checked by hash; pack it "
            "again",
            file);
    if (st == DT_OK && (!found || stale)) st = scan_tree(c, file);
    free(file);
    return st;
}

const dt_source_driver dt_source_lmdb = {"lmdb", lmdb_accepts, lmdb_load};
