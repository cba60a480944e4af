// source_wds.c: records in WebDataset shards: tar files whose consecutive members with one key make a
// record.
//
// The key is the path up to the first dot of the basename, the extension what follows, lower-cased;
// dotfiles, entries without extension, entries that are no regular files and top-level __x__ are
// skipped; a repeated extension within a record is an error. Shards that `dtrain pack` wrote have a
// index beside them ("x.tar.index"); others are scanned, header by header, which reads 512 bytes a
// member. While scanning, small `json` members and `cls`-like members become metadata columns, so that
// view, split and class fields work on sets made elsewhere.
#include "blob.h"
#include "data/catalog/index_file.h"
#include "source.h"
#include "tar.h"

#include "base/io.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_JSON_BYTES = 65536, MAX_CLS_BYTES = 20 };

static bool wds_accepts(const char *path) {
    size_t n = strlen(path);
    return !dt_io_is_dir(path) && n >= 4 && strcasecmp(path + n - 4, ".tar") == 0;
}

static bool is_class_member(const char *ext) {
    static const char *const NAMES[] = {"cls", "cls2", "index", "inx", "id"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(ext, NAMES[i]) == 0) return true;
    return false;
}

static dt_status add_columns(dt_catalog *c, const dt_blob *b, const char *ext, uint64_t offset,
                             uint64_t size) {
    char text[MAX_JSON_BYTES + 1];
    bool is_json = strcmp(ext, "json") == 0 && size <= MAX_JSON_BYTES;
    bool is_class = is_class_member(ext) && size <= MAX_CLS_BYTES;
    if (!is_json && !is_class) return DT_OK;
    DT_TRY(dt_blob_read(b, offset, text, size));
    if (is_json) return dt_catalog_set_json(c, text, size);
    text[size] = '\0';
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = '\0';
    return dt_catalog_set(c, ext, text + strspn(text, " \t\r\n"));
}

static dt_status scan_shard(dt_catalog *c, const dt_blob *b) {
    dt_tar tar;
    dt_tar_entry e;
    char last[DT_TAR_MAX_PATH] = "", ext[64];
    bool more = true;
    uint32_t shard = dt_catalog_add_shard(c, b->path, b->n_bytes);
    dt_tar_begin(&tar, b);
    for (;;) {
        size_t n_key;
        DT_TRY(dt_tar_next(&tar, &e, &more));
        if (!more) {
            dt_tar_warn_end(&tar);
            return DT_OK;
        }
        if (!e.is_regular || !dt_split_key(e.path, &n_key, ext, sizeof ext)) continue;
        e.path[n_key] = '\0';
        if (strcmp(last, e.path) != 0) {
            DT_TRY(dt_catalog_add_record(c, shard, e.path));
            memcpy(last, e.path, n_key + 1);
        }
        DT_TRY(dt_catalog_add_member(c, ext, e.offset, e.size, NULL));
        DT_TRY(add_columns(c, b, ext, e.offset, e.size));
    }
}

static dt_status wds_load(dt_catalog *c, const char *path) {
    bool found, stale;
    DT_TRY(dt_index_load(c, path, &found, &stale));
    if (found && !stale) return DT_OK;
    if (stale)
        dt_warn(
            "%s: changed since its index was written: scanned, and not checked by hash; pack it "
            "again",
            path);
    dt_blob b;
    DT_TRY(dt_blob_open(&b, path));
    dt_status st = scan_shard(c, &b);
    dt_blob_close(&b);
    return st;
}

const dt_source_driver dt_source_wds = {"webdataset", wds_accepts, wds_load};
