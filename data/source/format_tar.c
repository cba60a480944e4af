// format_tar.c: records in WebDataset shards: tar files whose consecutive members with one key make a
// record.
//
// The key is the path up to the first dot of the basename, the extension what follows, lower-cased;
// dotfiles, entries without extension, folders and top-level __x__ are skipped; a repeated extension within a record
// is an error. A link is the file that it leads to; one that leads to no file of the tar is skipped with a warning. Small `json` members and
// `cls`-like members become metadata columns, so that view, split and class fields work on sets made
// elsewhere.
#include "data/file/tar.h"
#include "source.h"

#include "base/log.h"
#include "base/text.h"

#include <string.h>

static bool tar_accepts(const char *path, const uint8_t *head, size_t n_bytes) {
    // an empty or damaged file of that name is meant to be a tar: its reader says what is wrong
    return dt_tar_starts(head, n_bytes) || dt_text_ends(path, ".tar");
}

static dt_status scan_entries(dt_scan *s, uint32_t shard, dt_tar *tar, dt_tar_links **links, dt_examples *lost) {
    dt_tar_entry e;
    char last[DT_TAR_MAX_PATH] = "", ext[64];
    bool more = true;
    for (;;) {
        size_t n_key;
        DT_TRY(dt_tar_next(tar, &e, &more));
        if (!more) return DT_OK;
        if (*e.link && !*links) DT_TRY(dt_tar_links_create(links, s->blob));
        if (*e.link) e.is_regular = dt_tar_links_find(*links, e.path, &e.offset, &e.size);
        if (*e.link && !e.is_regular) dt_examples_add(lost, "%s", e.path);
        if (!e.is_regular || !dt_split_key(e.path, &n_key, ext, sizeof ext)) continue;
        e.path[n_key] = '\0';
        if (strcmp(last, e.path) != 0) {
            DT_TRY(dt_catalog_add_record(s->c, shard, e.path));
            memcpy(last, e.path, n_key + 1);
        }
        DT_TRY(dt_catalog_add_member(s->c, ext, e.offset, e.size, NULL));
        DT_TRY(dt_scan_member(s, ext, e.offset, e.size));
    }
}

static dt_status tar_scan(dt_scan *s) {
    dt_tar tar;
    dt_tar_links *links = NULL;
    dt_examples lost = {0};
    uint32_t shard = dt_catalog_add_shard(s->c, s->blob->path, s->blob->n_bytes);
    dt_tar_begin(&tar, s->blob);
    s->peek = &tar.peek;
    dt_status st = scan_entries(s, shard, &tar, &links, &lost);
    dt_tar_links_destroy(links);
    s->peek = NULL;
    if (lost.n > 0) {
        dt_warn("%s: %zu links lead to no file of the tar and are left out: %s", s->blob->path, lost.n, lost.text);
        s->partial = true;
    }
    if (st == DT_E_DATA && s->lenient && s->c->n_records > 0) {
        dt_warn("%s; the %u records before that are used", dt_error_message(), s->c->n_records);
        s->partial = true;
        return DT_OK;
    }
    if (st == DT_OK && dt_tar_warn_end(&tar)) s->partial = true;
    return st;
}

const dt_file_format dt_format_tar = {"webdataset", tar_accepts, tar_scan};
