// collection.c: from paths to data files.
//
// A path of data.path is a file, several files (braces, wildcards, "::"), or a folder. What lies in a folder says
// what it is: an LMDB (data.mdb), several LMDBs (LSUN's way: each is a class), shards with or without a list
// of them (index.json), or raw files. A .json file is a list of shards; another list (.csv, .txt, …) is one of raw
// files, and a picture, a sound or an array is a raw file.
//
// The files of one item of data.path are one dataset, named after the item; each LMDB is a dataset of its own.
// The same file twice is an error, as its records would silently count twice. Files are compared by device and
// inode, not by name.
#include "source_parts.h"

#include "data/file/columnar.h"
#include "data/file/tar.h"
#include "data/raw/raw.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "store/blob.h"
#include "store/s3.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FOLDERS_BESIDE = 256 }; // that are listed

static bool is_shard_name(const char *name) {
    return name[0] != '.' && dt_tar_stem(name);
}

// "datasets/photos-{000..127}.tar" -> "photos", "lsun/church_train_lmdb/" -> "church_train_lmdb".
static char *set_name(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    size_t end = begin + strcspn(path + begin, ".{*?[");
    if (end > n) end = n;
    while (end > begin && strchr("-_", path[end - 1])) end--; // what joins a name to its number
    // a name that is all pattern is taken as it is
    return end > begin ? dt_xprintf("%.*s", (int)(end - begin), path + begin)
                       : dt_xprintf("%.*s", (int)(n - begin), path + begin);
}

static void collection_add(dt_found_list *l, uint32_t item, const char *name, bool is_raw, char *path) {
    l->f = dt_xgrow(l->f, l->n, sizeof *l->f);
    l->f[l->n++] = (dt_found){path, dt_xstrdup(name), item, is_raw, -1};
}

static void add_lmdb(dt_found_list *l, uint32_t item, const char *folder) {
    char *name = set_name(folder);
    collection_add(l, item, name, false, dt_xprintf("%s/data.mdb", folder));
    free(name);
}

// Adds the shards that a file lists. *is_list = false: it is another kind of file.
static dt_status add_listed(dt_found_list *l, uint32_t item, const char *name, const char *list, bool *is_list) {
    dt_listing shards = {0};
    dt_status st = dt_shard_list_read(&shards, list, is_list);
    for (size_t i = 0; i < shards.n && st == DT_OK; i++) {
        const dt_listed *s = &shards.shard[i];
        bool is_there = true;
        // objects are asked for when they are opened
        if (!dt_blob_is_url(s->path)) st = dt_io_find(&is_there, s->path, DT_E_DATA);
        if (st == DT_OK && !is_there) st = dt_fail(DT_E_DATA, "%s: lists %s, which is not there", list, s->path);
        collection_add(l, item, s->set ? s->set : name, false, dt_xstrdup(s->path));
        l->f[l->n - 1].n_records = s->n_records;
    }
    dt_shard_list_fini(&shards);
    return st;
}

static dt_status add_index_json(dt_found_list *l, uint32_t item, const char *name, const char *folder, bool *is_list) {
    char *path = dt_xprintf("%s/index.json", folder);
    bool is_there;
    *is_list = false;
    dt_status st = dt_io_find(&is_there, path, DT_E_DATA);
    if (st == DT_OK && is_there) st = add_listed(l, item, name, path, is_list);
    free(path);
    return st;
}

static dt_status find_lmdb(const char *folder, bool *is_lmdb) {
    char *file = dt_xprintf("%s/data.mdb", folder);
    dt_status st = dt_io_find(is_lmdb, file, DT_E_DATA);
    free(file);
    return st;
}

// The shards and LMDB folders directly in `path`, as sorted lists.
static dt_status look_into(const char *path, dt_names *shards, dt_names *lmdbs) {
    char **names;
    size_t n;
    dt_status st = DT_OK;
    DT_TRY(dt_io_list_dir(&names, &n, path, DT_E_DATA));
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        char *full = dt_xprintf("%s/%s", path, names[i]);
        bool is_lmdb = false;
        if (is_shard_name(names[i])) dt_names_add(shards, full);
        // LMDB folders have no extension, or .lmdb: no look into each of a million images
        else if ((!strrchr(names[i], '.') || dt_text_ends(names[i], ".lmdb")) && !dt_name_is_hidden(names[i], true))
            st = find_lmdb(full, &is_lmdb);
        if (st == DT_OK && is_lmdb) dt_names_add(lmdbs, full);
        free(full);
    }
    dt_io_free_list(names, n);
    return st;
}

// Looks at the files of the folder first, then at the folders in it, at *n_left folders at most.
static char *find_data(const char *folder, int *n_left) {
    char **names, *first = NULL;
    size_t n;
    // a warning is not worth a walk through a large tree
    if (--*n_left < 0 || dt_io_list_dir(&names, &n, folder, DT_E_DATA) != DT_OK) {
        dt_error_clear(); // whoever reads the folder reports it
        return NULL;
    }
    for (size_t i = 0; i < n && !first; i++)
        if (names[i][0] != '.' && dt_kind_of_name(names[i])) first = dt_xprintf("%s/%s", folder, names[i]);
    for (size_t i = 0; i < n && !first; i++) {
        if (dt_name_is_hidden(names[i], true) || is_shard_name(names[i])) continue;
        char *inner = dt_xprintf("%s/%s", folder, names[i]);
        if (dt_io_is_dir(inner)) first = find_data(inner, n_left); // a loop of links ends as well
        free(inner);
    }
    dt_io_free_list(names, n);
    return first;
}

char *dt_collect_beside(const char *folder) {
    int n_left = MAX_FOLDERS_BESIDE;
    return find_data(folder, &n_left);
}

// A folder of the user that is read as the shards and LMDBs in it.
static void warn_of_folder(const char *path, size_t n_shards, size_t n_lmdbs) {
    if (n_shards > 0) dt_info("%s: a folder of %zu shards", path, n_shards);
    char *beside = dt_collect_beside(path);
    if (beside)
        dt_warn_alike("%s: is read as the %s in it; files that lie beside, %s the first, are left out", path,
                      n_shards ? n_lmdbs ? "shards and LMDBs" : "shards" : "LMDBs", beside);
    free(beside);
}

static dt_status collect_folder(dt_found_list *l, const char *path, const char *name, uint32_t item) {
    bool is_lmdb, is_list;
    DT_TRY(find_lmdb(path, &is_lmdb));
    if (is_lmdb) {
        add_lmdb(l, item, path);
        return DT_OK;
    }
    DT_TRY(add_index_json(l, item, name, path, &is_list));
    if (is_list) return DT_OK;
    // not a folder of images
    if (dt_text_ends(path, ".lmdb")) return dt_fail(DT_E_DATA, "%s: has no data.mdb in it", path);
    dt_names shards = {0}, lmdbs = {0};
    dt_status st = look_into(path, &shards, &lmdbs);
    for (size_t i = 0; i < shards.n && st == DT_OK; i++)
        collection_add(l, item, name, false, dt_xstrdup(shards.name[i]));
    for (size_t i = 0; i < lmdbs.n && st == DT_OK; i++) add_lmdb(l, item, lmdbs.name[i]);
    bool tell = st == DT_OK && shards.n + lmdbs.n > 0 && !l->quiet;
    if (tell) warn_of_folder(path, shards.n, lmdbs.n);
    // no shard: a folder of raw files
    if (st == DT_OK && shards.n + lmdbs.n == 0) collection_add(l, item, name, true, dt_xstrdup(path));
    dt_names_fini(&shards);
    dt_names_fini(&lmdbs);
    return st;
}

// What a bucket has directly under a prefix, as of a folder.
static dt_status collect_prefix(dt_found_list *l, const char *url, const char *name, uint32_t item) {
    char **names;
    size_t n, first = l->n;
    bool is_list = false;
    DT_TRY(dt_s3_list(&names, &n, url));
    dt_status st = DT_OK;
    for (size_t i = 0; i < n && st == DT_OK && !is_list; i++) {
        char *path = dt_xprintf("%s%s", url, names[i]);
        if (strcmp(names[i], "index.json") == 0) st = add_listed(l, item, name, path, &is_list);
        free(path);
    }
    for (size_t i = 0; i < n && st == DT_OK && !is_list; i++) {
        char *path = dt_xprintf("%s%s", url, names[i]);
        if (is_shard_name(names[i]) || strcmp(names[i], "data.mdb") == 0)
            collection_add(l, item, name, false, dt_xstrdup(path));
        else if (dt_text_ends(path, ".lmdb/")) {
            path[strlen(path) - 1] = '\0';
            add_lmdb(l, item, path);
        }
        free(path);
    }
    dt_io_free_list(names, n);
    if (st == DT_OK && l->n == first)
        st = dt_fail(DT_E_DATA, "%s: of its %zu objects none is a shard or lists some", url, n);
    return st;
}

// An object is a shard, or lists some; whether it is there shows when it is opened. An LMDB may be a folder, which servers
// do not have: then only the file in it has a name.
static dt_status collect_url(dt_found_list *l, const char *url, const char *name, uint32_t item) {
    bool is_list = false;
    int absent = 0;
    if (dt_s3_is_url(url) && dt_text_ends(url, "/")) return collect_prefix(l, url, name, item);
    if (dt_text_ends(url, ".json")) DT_TRY(add_listed(l, item, name, url, &is_list));
    if (dt_text_ends(url, ".lmdb")) {
        dt_blob b;
        const dt_status st = dt_blob_open_url(&b, url, &absent);
        if (st == DT_OK)
            dt_blob_close(&b);
        else if (!absent)
            return st;
        else
            dt_error_clear();
    }
    if (absent)
        add_lmdb(l, item, url);
    else if (!is_list)
        collection_add(l, item, name, false, dt_xstrdup(url));
    return DT_OK;
}

static dt_status collect_path(dt_found_list *l, const char *path, const char *name, uint32_t item) {
    bool is_there;
    if (dt_blob_is_url(path)) return collect_url(l, path, name, item);
    DT_TRY(dt_io_find(&is_there, path, DT_E_DATA));
    if (!is_there)
        return dt_fail(DT_E_DATA,
                       "%s: no such data set; make it with `dtrain pack` (`dtrain synth` makes synthetic data), or "
                       "correct data.path",
                       path);
    if (!dt_io_is_dir(path) && dt_columnar_is_name(path))
        return dt_fail(DT_E_DATA, "%s: a table, of which `dtrain pack` makes a data set", path);
    if (!dt_io_is_dir(path) && dt_text_ends(path, ".json")) {
        bool is_list;
        DT_TRY(add_listed(l, item, name, path, &is_list));
        return is_list ? DT_OK
                       : dt_fail(DT_E_DATA, "%s: lists no shards: neither wids (shardlist) nor MDS (shards)", path);
    }
    if (!dt_io_is_dir(path)) {
        collection_add(l, item, name, dt_raw_is_list(path) || dt_raw_is_file(path), dt_xstrdup(path));
        return DT_OK;
    }
    char *folder = dt_xstrdup(path);
    // the name of a set is its last part
    for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--) folder[n - 1] = '\0';
    dt_status st = collect_folder(l, folder, name, item);
    free(folder);
    return st;
}

dt_status dt_collect(dt_found_list *l, const dt_reader_item *item, uint32_t i) {
    dt_names files = {0};
    char *name = item->name ? dt_xstrdup(item->name) : set_name(item->path);
    size_t first = l->n;
    dt_status st = dt_expand_files(item->path, &files);
    for (size_t k = 0; k < files.n && st == DT_OK; k++) st = collect_path(l, files.name[k], name, i);
    for (size_t k = first; item->name && k < l->n; k++) { // given: for LMDBs too
        free(l->f[k].name);
        l->f[k].name = dt_xstrdup(item->name);
    }
    free(name);
    dt_names_fini(&files);
    return st;
}

// ---- the same file twice ---------------------------------------------------------------------------
typedef struct inode {
    uint64_t device, number;
    size_t at;
} inode;

static int compare_inodes(const void *pa, const void *pb) {
    const inode *a = pa, *b = pb;
    if (a->device != b->device) return a->device < b->device ? -1 : 1;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return a->at < b->at ? -1 : 1;
}

dt_status dt_found_check(const dt_found_list *l) {
    inode *all = dt_xcalloc(l->n + 1, sizeof *all);
    dt_status st = DT_OK;
    for (size_t i = 0; i < l->n && st == DT_OK; i++) {
        struct stat s = {0};
        const char *path = l->f[i].path;
        if (dt_blob_is_url(path)) // no device has the number 0
            s.st_ino = (ino_t)dt_hash64(path, strlen(path));
        else if (stat(path, &s) != 0)
            st = dt_io_read_error(path, "look at", errno, DT_E_DATA);
        if (st == DT_OK) all[i] = (inode){s.st_dev, s.st_ino, i};
    }
    if (st == DT_OK) qsort(all, l->n, sizeof *all, compare_inodes);
    for (size_t i = 1; i < l->n && st == DT_OK; i++) {
        const char *a = l->f[all[i - 1].at].path, *b = l->f[all[i].at].path;
        if (all[i].device != all[i - 1].device || all[i].number != all[i - 1].number) continue;
        st = strcmp(a, b) == 0 ? dt_fail(DT_E_USAGE,
                                         "%s: listed twice in data.path: its records would count twice; to draw "
                                         "from it more often, mix with {path: …, weight: 2}",
                                         a)
                               : dt_fail(DT_E_USAGE, "%s and %s of data.path are the same file", a, b);
    }
    free(all);
    return st;
}

void dt_found_fini(dt_found_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        free(l->f[i].path);
        free(l->f[i].name);
    }
    free(l->f);
    *l = (dt_found_list){0};
}
