// shard_list.c: two JSON files that list shards.
//
//   wids   {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 100}, …],
//           "datasets": [{"name": "x", "base": "dir", "shardlist": […]}, …]}
//   MDS    {"version": 2, "shards": [{"format": "mds", "samples": 100,
//           "raw_data": {"basename": …, "hashes": {"xxh64": …}}, "zip_data": {"basename": …} or null}, …]}
// If an MDS shard is there both compressed and not, the latter is read.
#include "shard_list.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "store/blob_url.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST_BYTES = 256 << 20 };

static char *beside(const char *list, const char *base, const char *name) {
    const char *slash = strrchr(list, '/');
    int n = slash ? (int)(slash - list) + 1 : 0;
    if (name[0] == '/' || dt_blob_is_url(name)) return dt_xstrdup(name);
    if (base && (base[0] == '/' || dt_blob_is_url(base))) return dt_xprintf("%s/%s", base, name);
    return base && *base ? dt_xprintf("%.*s%s/%s", n, list, base, name) : dt_xprintf("%.*s%s", n, list, name);
}

// Takes `path` over. A list that a server has may not lead to files of this machine, nor to another server.
static dt_status shard_list_push(dt_listing *l, const char *list, char *path, const char *set, json_t *count) {
    const char *host = dt_blob_is_url(list) ? strstr(list, "://") + 3 : NULL;
    const size_t n = host ? (size_t)(host - list) + strcspn(host, "/") + 1 : 0;
    if (strncmp(list, path, n) != 0) {
        free(path);
        return dt_fail(DT_E_DATA,
                       "%s: shard %zu is a file of this machine or of another server: only those "
                       "of the list's own server are read; copy the list here to read it",
                       list, l->n);
    }
    l->shard = dt_xgrow(l->shard, l->n, sizeof *l->shard);
    l->shard[l->n++] = (dt_listed){.path = path,
                                   .set = set ? dt_xstrdup(set) : NULL,
                                   .n_records = json_is_integer(count) ? (int64_t)json_integer_value(count) : -1};
    return DT_OK;
}

// ---- wids ------------------------------------------------------------------------------------------
static const char *without_scheme(const char *url) {
    return strncmp(url, "file://", 7) == 0 ? url + 7 : strncmp(url, "file:", 5) == 0 ? url + 5 : url;
}

static dt_status add_wids(dt_listing *l, const char *path, json_t *spec, const char *set) {
    const char *base = json_string_value(json_object_get(spec, "base"));
    json_t *list = json_object_get(spec, "shardlist"), *item;
    size_t i;
    base = base ? without_scheme(base) : NULL;
    json_array_foreach(list, i, item) {
        const char *url = json_string_value(json_object_get(item, "url"));
        if (!url) return dt_fail(DT_E_DATA, "%s: shard %zu has no url", path, i);
        url = without_scheme(url);
        DT_TRY(shard_list_push(l, path, beside(path, base, url), set, json_object_get(item, "nsamples")));
    }
    return DT_OK;
}

static dt_status parse_wids(dt_listing *l, const char *path, json_t *root) {
    json_t *sets = json_object_get(root, "datasets"), *item;
    size_t i;
    DT_TRY(add_wids(l, path, root, NULL));
    json_array_foreach(sets, i, item) {
        if (!json_is_array(json_object_get(item, "shardlist")))
            return dt_fail(DT_E_DATA,
                           "%s: data set %zu is in another file, which is not followed: "
                           "name that file in data.path",
                           path, i);
        DT_TRY(add_wids(l, path, item, json_string_value(json_object_get(item, "name"))));
    }
    return DT_OK;
}

// ---- MDS -------------------------------------------------------------------------------------------
static const char *basename_of(json_t *shard, const char *which) {
    return json_string_value(json_object_get(json_object_get(shard, which), "basename"));
}

static void keep_hash(dt_listed *s, json_t *hashes) {
    const char *name;
    json_t *v;
    json_object_foreach(hashes, name, v) {
        bool known = json_is_string(v) && dt_named_hash_is_known(name);
        if (s->hash_name && !known) continue;
        free(s->hash_name);
        s->hash_name = dt_xstrdup(name);
        if (known) s->hash = dt_xstrdup(json_string_value(v));
        if (known) return;
    }
}

static dt_status add_mds(dt_listing *l, const char *path, json_t *shard, size_t i) {
    const char *format = json_string_value(json_object_get(shard, "format"));
    const char *raw = basename_of(shard, "raw_data"), *zip = basename_of(shard, "zip_data");
    const char *compression = json_string_value(json_object_get(shard, "compression"));
    if (!format || strcmp(format, "mds") != 0)
        return dt_fail(DT_E_DATA, "%s: shard %zu is of format %s; only mds is read", path, i, format ? format : "?");
    if (!raw) return dt_fail(DT_E_DATA, "%s: shard %zu has no name", path, i);
    char *file = beside(path, NULL, raw);
    if (zip && !dt_io_exists(file)) {
        free(file);
        if (compression && strncmp(compression, "zstd", 4) != 0 && strncmp(compression, "gz", 2) != 0)
            return dt_fail(DT_E_DATA,
                           "%s: %s is compressed with %s; zstd and gz are read: write the set with "
                           "one of those, or unpack it",
                           path, zip, compression);
        file = beside(path, NULL, zip);
    }
    DT_TRY(shard_list_push(l, path, file, NULL, json_object_get(shard, "samples")));
    keep_hash(&l->shard[l->n - 1], json_object_get(json_object_get(shard, "raw_data"), "hashes"));
    return DT_OK;
}

static dt_status parse_mds(dt_listing *l, const char *path, json_t *root) {
    json_t *shard;
    size_t i;
    json_array_foreach(json_object_get(root, "shards"), i, shard) {
        DT_TRY(add_mds(l, path, shard, i));
    }
    return DT_OK;
}

// ---- either ----------------------------------------------------------------------------------------
dt_status dt_shard_list_parse(dt_listing *l, const char *path, const char *text, size_t n_bytes, bool *is_list) {
    json_error_t error;
    json_t *root = json_loadb(text, n_bytes, 0, &error);
    dt_status st = DT_OK;
    *is_list = true;
    if (!root) return dt_fail(DT_E_DATA, "%s:%d: not JSON: %s", path, error.line, error.text);
    if (json_is_array(json_object_get(root, "shards")))
        st = parse_mds(l, path, root);
    else if (json_is_array(json_object_get(root, "shardlist")) || json_is_array(json_object_get(root, "datasets")))
        st = parse_wids(l, path, root);
    else
        *is_list = false;
    json_decref(root);
    return st;
}

dt_status dt_shard_list_read(dt_listing *l, const char *path, bool *is_list) {
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_blob_read_all(&text, &n, path, MAX_LIST_BYTES, false));
    if (!text) return dt_fail(DT_E_DATA, "%s: is not there", path);
    dt_status st = dt_shard_list_parse(l, path, text, n, is_list);
    free(text);
    return st;
}

void dt_shard_list_fini(dt_listing *l) {
    for (size_t i = 0; i < l->n; i++) {
        free(l->shard[i].path);
        free(l->shard[i].set);
        free(l->shard[i].hash_name);
        free(l->shard[i].hash);
    }
    free(l->shard);
    *l = (dt_listing){0};
}
