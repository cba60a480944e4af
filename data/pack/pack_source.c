// pack_source.c: tells datasets from raw files. The records of a dataset keep their members and metadata when they
// are converted or go to other shards.
//
// A tar may be a dataset or a collection of raw files. It is a dataset if pack has written it, if consecutive entries
// share a key (a.jpg, a.json), or if it has members that only datasets have (cls, json); otherwise each entry is a
// raw file. A JSON file is a dataset if it lists shards (wids, MDS). Patterns of shards, LMDBs and the like always are.
#include "data/catalog/index_file.h"
#include "data/file/tar.h"
#include "data/source/collection.h"
#include "data/source/shard_list.h"
#include "pack_steps.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/text.h"
#include "config/words.h"
#include "store/blob_cache.h"
#include "store/blob_url.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// An index that scanning has left proves nothing; one that pack has written does.
static bool has_own_index(const char *path) {
    dt_catalog *c = dt_catalog_create();
    bool found = false, stale = false;
    bool own = dt_index_load(c, path, &found, &stale) == DT_OK && found && !stale && c->n_shards > 0 &&
               c->shards[0].source_hash != 0;
    dt_catalog_destroy(c);
    dt_error_clear();
    return own;
}

// Looks at the first entries only.
static dt_status tar_is_set(const char *path, bool *out) {
    enum { LOOK = 64 };
    dt_blob blob;
    dt_tar tar;
    char last[DT_TAR_MAX_PATH] = "", ext[64];
    bool more = true;
    DT_TRY(dt_blob_open(&blob, path));
    dt_tar_entry *e = dt_xcalloc(1, sizeof *e);
    dt_status st = DT_OK;
    dt_tar_begin(&tar, &blob);
    for (int n = 0; n < LOOK && st == DT_OK && more && !*out; n++) {
        size_t n_key;
        st = dt_tar_next(&tar, e, &more);
        if (st != DT_OK || !more || (!e->is_regular && !*e->link)) continue;
        if (!dt_split_key(e->path, &n_key, ext, sizeof ext)) continue;
        *out = dt_word_index("cls|cls2|json|index|__key__", ext) >= 0 ||
               (strlen(last) == n_key && memcmp(last, e->path, n_key) == 0);
        memcpy(last, e->path, n_key);
        last[n_key] = '\0';
    }
    dt_blob_close(&blob);
    free(e);
    return st;
}

// Whether the file is what an earlier pack has made of this folder, in this folder.
static bool is_of_out(const dt_plan *out, const char *path) {
    const char *base = dt_path_base(path);
    struct stat a, b;
    if (!dt_plan_resembles(out, base)) return false;
    char *folder = dt_xprintf("%.*s.", (int)(base - path), path);
    bool same = stat(folder, &a) == 0 && stat(out->folder, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
    free(folder);
    return same;
}

static dt_status check_alone(const char *folder, const char *shard) {
    char *beside = dt_collect_beside(folder);
    if (!beside) return DT_OK;
    dt_fail(DT_E_DATA,
            "%s: holds a set (%s) and other data (%s): give what is meant, the set by its name or "
            "its pattern, or a folder that has nothing else in it",
            folder, shard, beside);
    free(beside);
    return DT_E_DATA;
}

// The output of an earlier pack is a dataset that is renewed in place, unless its source lies beside it.
static dt_status open_folder(dt_reader **out, const char *path, const dt_plan *plan) {
    dt_found_list l = {.quiet = true}; // opening the set tells
    dt_reader_item item = {.path = path, .weight = 1};
    dt_status st = dt_collect(&l, &item, 0);
    dt_reader_item *items = dt_xcalloc(l.n + 1, sizeof *items);
    size_t n = 0, n_out = 0;
    for (size_t i = 0; st == DT_OK && i < l.n; i++) {
        if (l.f[i].is_raw) continue;
        if (is_of_out(plan, l.f[i].path))
            n_out++;
        else
            items[n++] = (dt_reader_item){.path = l.f[i].path, .name = l.f[i].name};
    }
    bool has_files = true;
    if (st == DT_OK && n == 0 && n_out > 0) st = dt_raw_holds_files(path, &has_files);
    if (st == DT_OK && !has_files) st = dt_reader_open(out, &path, 1);
    if (st == DT_OK && n > 0) st = check_alone(path, items[0].path);
    if (st == DT_OK && n > 0) st = n_out ? dt_reader_open_items(out, items, n, NULL) : dt_reader_open(out, &path, 1);
    free(items);
    dt_found_fini(&l);
    return st;
}

// Whether the JSON file is a list of shards (wids, MDS) and not a list of files.
static dt_status json_is_set(const char *path, bool *out) {
    dt_listing shards = {0};
    dt_status st = dt_shard_list_read(&shards, path, out);
    dt_shard_list_fini(&shards);
    if (st == DT_OK || *out) return st;
    dt_error_clear(); // too large for a list of shards
    return DT_OK;
}

static dt_status path_is_set(const char *path, bool *out) {
    *out = dt_blob_is_url(path) || dt_text_ends(path, ".lmdb|.lmdb/|.mdb|.tgz|.tar.gz|.tar.zst") ||
           (!dt_io_exists(path) && (strstr(path, "::") || strpbrk(path, "{*?[")));
    if (*out || !dt_io_exists(path) || dt_io_is_dir(path)) return DT_OK;
    if (dt_text_ends(path, ".json")) return json_is_set(path, out);
    if (!dt_text_ends(path, ".tar")) return DT_OK;
    *out = has_own_index(path);
    if (*out || tar_is_set(path, out) == DT_OK) return DT_OK;
    *out = true; // who opens it as one says what it is
    dt_error_clear();
    return DT_OK;
}

// A dataset that is renewed in place must be replaced as a whole: whoever reads the folder or a pattern would see the
// records of a shard that stays twice.
static dt_status check_replaced(const dt_reader *s, const dt_plan *plan, bool is_folder) {
    const char *stays = NULL;
    bool any = is_folder;
    for (uint32_t i = 0; i < s->catalog->n_shards; i++) {
        const char *path = s->catalog->shards[i].path;
        if (!is_of_out(plan, path)) continue;
        if (dt_plan_belongs(plan, dt_path_base(path)))
            any = true;
        else if (!stays)
            stays = path;
    }
    if (!any || !stays) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%s: %s is of what it is made of and would stay beside it, and its records "
                   "would be there twice: give OUT as many shards or a number to be filled in "
                   "(name-%%06d.tar), or choose another folder",
                   plan->out, stays);
}

bool dt_pack_source_is_out(const dt_reader *s, const dt_plan *plan) {
    for (uint32_t i = 0; i < s->catalog->n_shards; i++)
        if (is_of_out(plan, s->catalog->shards[i].path)) return true;
    return false;
}

// Records are read one by one, and of a URL by blocks, which the host keeps.
static void keep_blocks(dt_reader *s) {
    char *dir = dt_io_cache_folder(NULL, "");
    dt_blob_cache *cache;
    if (dir && dt_blob_cache_open(&cache, dir, 0) == DT_OK)
        dt_reader_keep(s, cache, false);
    else
        dt_error_clear();
    free(dir);
}

dt_status dt_pack_source_open(dt_reader **out, const char *path, const dt_plan *plan) {
    bool is_set = false;
    *out = NULL;
    DT_TRY(path_is_set(path, &is_set));
    const bool is_folder = !is_set && dt_io_is_dir(path);
    if (is_set) DT_TRY(dt_reader_open(out, &path, 1));
    if (is_set && dt_blob_is_url(path)) keep_blocks(*out);
    if (is_folder) DT_TRY(open_folder(out, path, plan));
    return *out ? check_replaced(*out, plan, is_folder) : DT_OK;
}
