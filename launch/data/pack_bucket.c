// pack_bucket.c: dtrain pack SRC s3://…: packed on this host, then uploaded.
//
// The set is packed into <cache>/packing/<command>, with a list of its shards, NAME.json, which is written when all of them
// are whole. Then each file is uploaded, an index in front of its shard, and removed here; the list comes last. So the same
// command goes on wherever it was killed, and who reads the list's URL finds a whole set. An LMDB needs no list.
// Of a set that is replaced the list (of an LMDB the data) goes before anything comes, and shards that the new one has
// not go at the end.
#include "pack_bucket.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/launcher.h"
#include "base/log.h"
#include "base/text.h"
#include "data/pack/pack_plan.h"
#include "data/source/source.h"
#include "store/blob_url.h"
#include "store/s3_objects.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// "photos-%06d.tar" -> "photos", as the set is named.
static char *pack_bucket_name_of(const char *base) {
    size_t n = strcspn(base, ".{%");
    while (n > 1 && strchr("-_", base[n - 1])) n--;
    return dt_xprintf("%.*s", (int)n, base);
}

// wids' list of the shards in `dir`.
static dt_status pack_bucket_write_list(const char *dir, const char *list) {
    dt_reader *s;
    DT_TRY(dt_reader_open(&s, &dir, 1));
    const dt_catalog *c = s->catalog;
    uint64_t *n = dt_xcalloc(c->n_shards + 1, sizeof *n);
    dt_json j;
    dt_json_init(&j);
    for (uint32_t r = 0; r < c->n_records; r++) n[c->records[r].shard]++;
    dt_json_begin_object(&j, NULL);
    dt_json_string(&j, "__kind__", "wids-shard-index-v1");
    dt_json_int(&j, "wids_version", 1);
    dt_json_begin_array(&j, "shardlist");
    for (uint32_t i = 0; i < c->n_shards; i++) {
        dt_json_begin_object(&j, NULL);
        dt_json_string(&j, "url", dt_path_base(c->shards[i].path));
        dt_json_int(&j, "nsamples", (int64_t)n[i]);
        dt_json_end_object(&j);
    }
    dt_json_end_array(&j);
    dt_json_end_object(&j);
    const dt_status st = dt_io_write_file(list, j.data, j.n_bytes);
    dt_json_fini(&j);
    free(n);
    dt_reader_close(s);
    return st;
}

// The files of a folder, and of an LMDB's folder in it, but for the list: indexes in front of their shards.
static dt_status upload_all(const char *dir, const char *to, const char *list) {
    char **names;
    size_t n;
    dt_status st = DT_OK;
    DT_TRY(dt_io_list_dir(&names, &n, dir, DT_E_STORAGE));
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        char *path = dt_xprintf("%s/%s", dir, names[i]), *index = dt_xprintf("%s.index", names[i]);
        char *index_path = dt_xprintf("%s/%s", dir, index);
        if (dt_io_is_dir(path)) {
            char *below = dt_xprintf("%s/%s", to, names[i]);
            st = upload_all(path, below, list);
            free(below);
        } else if (!dt_text_ends(path, ".index|/lock.mdb") && strcmp(path, list) != 0) {
            dt_info("%s/%s: uploading", to, names[i]);
            const char *const files[] = {index, names[i]};
            const size_t skip = !dt_io_exists(index_path);
            st = dt_s3_put_files(to, dir, files + skip, 2 - skip, true, NULL);
        }
        free(index_path);
        free(index);
        free(path);
    }
    dt_io_free_list(names, n);
    return st;
}

// An older set of that name is replaced only by --overwrite.
static dt_status refuse_older(const dt_pack_opts *o, const char *url) {
    dt_blob b;
    int absent;
    if (o->overwrite) return DT_OK;
    const dt_status st = dt_blob_open_url(&b, url, &absent);
    if (st == DT_OK) {
        dt_blob_close(&b);
        return dt_fail(DT_E_USAGE, "%s: is there already; --overwrite replaces the set", url);
    }
    if (!absent) return st;
    dt_error_clear();
    return DT_OK;
}

static bool pack_bucket_is_listed(const json_t *list, const char *name) {
    const size_t n = strlen(name) - (dt_text_ends(name, ".index") ? strlen(".index") : 0);
    const json_t *shard;
    size_t i;
    json_array_foreach(json_object_get(list, "shardlist"), i, shard) {
        const char *url = json_string_value(json_object_get(shard, "url"));
        if (url && strlen(url) == n && strncmp(url, name, n) == 0) return true;
    }
    return false;
}

// Removes shards and indexes of an older set of this name.
static dt_status remove_surplus(const char *out, const char *to, const char *list) {
    dt_plan plan = {0};
    char **names = NULL, *prefix = dt_xprintf("%s/", to);
    size_t n = 0;
    json_t *l = json_load_file(list, 0, NULL);
    dt_status st = dt_plan_name(&plan, out);
    if (st == DT_OK && !l) st = dt_fail(DT_E_STORAGE, "%s: cannot be read, or is no JSON", list);
    if (st == DT_OK) st = dt_s3_list(&names, &n, prefix);
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        const bool own = dt_plan_belongs(&plan, names[i]) || dt_plan_is_companion(&plan, names[i]);
        if (!own || pack_bucket_is_listed(l, names[i])) continue;
        char *url = dt_xprintf("%s%s", prefix, names[i]);
        st = dt_s3_remove(url, NULL);
        free(url);
    }
    json_decref(l);
    dt_io_free_list(names, n);
    dt_plan_fini(&plan);
    free(prefix);
    return st;
}

dt_status dt_cli_pack_bucket(const dt_pack_opts *o, uint64_t command) {
    const char *base = dt_path_base(o->out);
    char hex[17], below[40];
    dt_hash_hex(command, hex);
    snprintf(below, sizeof below, "/packing/%s", hex);
    if (dt_launcher_rank() >= 0)
        return dt_fail(DT_E_USAGE, "%s: one process packs into a bucket, without mpirun", o->out);
    char *dir = dt_io_cache_folder(NULL, below);
    if (!dir) return dt_fail(DT_E_STORAGE, "no home folder to pack in: set XDG_CACHE_HOME");
    char *name = pack_bucket_name_of(base), *to = dt_xprintf("%.*s", (int)(base - 1 - o->out), o->out);
    const bool lmdb = dt_text_ends(base, ".lmdb");
    char *list = dt_xprintf("%s/%s.json", dir, name);
    char *last = lmdb ? dt_xprintf("%s/data.mdb", o->out) : dt_xprintf("%s/%s.json", to, name);
    dt_pack_opts here = *o;
    char *out = dt_xprintf("%s/%s", dir, base);
    here.out = out;
    here.overwrite = true;
    dt_status st = dt_io_exists(list) ? DT_OK : refuse_older(o, last); // there: goes on
    if (st == DT_OK) st = dt_io_mkdir_all(dir);
    if (st == DT_OK && !dt_io_exists(list)) {
        st = dt_data_pack(&here);
        if (st == DT_OK) st = lmdb ? dt_io_write_file(list, "", 0) : pack_bucket_write_list(dir, list);
    }
    if (st == DT_OK) st = dt_io_remove_leftovers(dir, NULL); // no file of the set
    if (st == DT_OK && o->overwrite) st = dt_s3_remove(last, NULL);
    if (st == DT_OK) st = upload_all(dir, to, list);
    if (st == DT_OK && !lmdb) st = dt_s3_put(last, list, NULL);
    if (st == DT_OK && !lmdb && o->overwrite) st = remove_surplus(o->out, to, list);
    if (st == DT_OK) st = dt_io_remove_tree(dir);
    if (st == DT_OK) dt_info("%s: uploaded; data.path: %s", o->out, lmdb ? o->out : last);
    free(out);
    free(last);
    free(list);
    free(to);
    free(name);
    free(dir);
    return st;
}
