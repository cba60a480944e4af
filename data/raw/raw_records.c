// raw_records.c: lists the records of an existing dataset.
//
// Records keep their keys. The shards of a WebDataset often all count from 000000. That is fine for a reader that takes
// one shard after the other, but a dataset needs distinct keys. With --key-by-shard each key gets the name of its
// shard in front: all keys, not only repeated ones, so that a key does not depend on other records. If two shards
// share a name, all keys get the folder too. A number behind the key would not tell where a record comes from, and
// would change with the order of the shards.
#include "data/catalog/catalog.h"
#include "data/file/tar.h"
#include "raw.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- keys that shards repeat -------------------------------------------------------------------------
// Where the last name before path[*end] begins. Moves *end back over empty names and ".".
static size_t name_before(const char *path, size_t *end) {
    size_t n = *end, begin;
    for (;; n = begin) {
        while (n > 0 && path[n - 1] == '/') n--;
        for (begin = n; begin > 0 && path[begin - 1] != '/';) begin--;
        if (n - begin != 1 || path[begin] != '.') break;
    }
    *end = n;
    return begin;
}

// The last `depth` names of a path, without .tar and the like; for an LMDB those of its folder.
static const char *end_of_path(dt_arena *arena, const char *path, int depth) {
    static const char LMDB[] = "/data.mdb";
    size_t n = dt_tar_stem(path), k = strlen(LMDB);
    if (n == 0) n = strlen(path);
    if (n > k && strcmp(path + n - k, LMDB) == 0) n -= k;
    size_t begin = name_before(path, &n), end = begin;
    const char *name = dt_arena_printf(arena, "%.*s", (int)(n - begin), path + begin);
    if (depth < 2) return name;
    begin = name_before(path, &end);
    return end > begin ? dt_arena_printf(arena, "%.*s/%s", (int)(end - begin), path + begin, name) : name;
}

// "photos-000003"; if folders have shards of the same name, "val/000003". name[]: by shard.
static dt_status name_shards(dt_arena *arena, const dt_catalog *c, const char **name) {
    const char **sorted = dt_xcalloc(c->n_shards + 1, sizeof *sorted), *twin = NULL;
    for (int depth = 1; depth == 1 || (depth == 2 && twin); depth++) {
        twin = NULL;
        for (uint32_t i = 0; i < c->n_shards; i++) {
            sorted[i] = name[i] = end_of_path(arena, c->shards[i].path, depth);
            if (*name[i] == '\0' || *name[i] == '.') twin = name[i]; // no name to begin a key with
        }
        qsort(sorted, c->n_shards, sizeof *sorted, dt_text_compare);
        for (uint32_t i = 1; i < c->n_shards; i++)
            if (strcmp(sorted[i - 1], sorted[i]) == 0) twin = sorted[i];
    }
    free(sorted);
    if (!twin) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "--key-by-shard: shard %s: file and folder must be names, and not those of another "
                   "one: rename it",
                   twin);
}

static dt_status key_by_shard(dt_raw *r) {
    const dt_catalog *c = r->catalog;
    const char **name = dt_xcalloc(c->n_shards + 1, sizeof *name);
    dt_status st = name_shards(&r->arena, c, name);
    for (size_t i = 0; i < r->n && st == DT_OK; i++) {
        dt_raw_item *item = &r->items[i];
        item->key = item->name = dt_arena_printf(&r->arena, "%s/%s", name[c->records[item->record].shard], item->key);
    }
    free(name);
    return st;
}

// ---- the list -----------------------------------------------------------------------------------------
dt_status dt_raw_find_records(dt_raw_found *f, const dt_catalog *c, bool by_shard) {
    dt_raw *r = f->raw;
    r->kind = DT_RAW_SET;
    r->root = r->source;
    r->catalog = c;
    int64_t *mtime = dt_xcalloc(c->n_shards + 1, sizeof *mtime);
    for (uint32_t s = 0; s < c->n_shards; s++) {
        struct stat info;
        if (stat(c->shards[s].path, &info) == 0)
            mtime[s] = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    }
    for (uint32_t i = 0; i < c->n_records; i++) {
        const dt_record *rec = &c->records[i];
        uint64_t size = 0;
        for (uint32_t m = 0; m < rec->n_members; m++) size += c->members[rec->first_member + m].size;
        const char *key = dt_catalog_str(c, rec->key);
        dt_raw_add(f, key, 0, size, mtime[rec->shard]);
        r->items[i].key = key;
        r->items[i].record = i;
    }
    free(mtime);
    return by_shard ? key_by_shard(r) : DT_OK;
}
