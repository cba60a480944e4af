// pack_lmdb.c: writes OUT.lmdb/{data.mdb, data.mdb.index}.
//
// Entries arrive in key order, so they are appended (MDB_APPEND fills pages whole and makes the file
// sequential), in transactions of 32 MB that bound memory. No sync happens until the end. Then the file
// is closed and walked by our own reader, which checks that each entry is where and what it should be
// and gives the offsets for the index. All of it lies in OUT.lmdb.partial until one rename.
#include "data/catalog/index_file.h"
#include "data/source/blob.h"
#include "data/source/lmdb_tree.h"
#include "pack.h"

#include "base/arena.h"
#include "base/io.h"

#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TXN_BYTES = 32 << 20, MAX_KEY = 511 };

typedef struct written {
    const dt_raw_item *item;
    const char *ext; // lives as long as the item
    uint64_t hash, size;
} written;

typedef struct lmdb_pack {
    const dt_raw *raw;
    char *out, *partial, *file;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    size_t txn_bytes;
    written *done; // all entries, in key order
    size_t n_done, cap_done;
    // of the walk
    dt_catalog *catalog;
    size_t n_seen;
    uint32_t shard;
} lmdb_pack;

static bool lmdb_accepts_out(const char *out) {
    size_t n = strlen(out);
    return n > 5 && strcmp(out + n - 5, ".lmdb") == 0;
}

static dt_status lmdb_files(const char *out, char ***files, size_t *n) {
    *files = dt_xcalloc(1, sizeof **files);
    (*files)[0] = dt_xprintf("%s/data.mdb", out);
    *n = 1;
    return DT_OK;
}

// Positive codes are errno (a full disk, no permission); negative ones are the library's own. A write
// that the disk takes only a part of comes as EIO.
static dt_status lmdb_fail(const lmdb_pack *p, const char *what, int rc) {
    if (rc == EIO || rc == ENOSPC)
        return dt_fail(DT_E_STORAGE,
                       "%s: %s: the disk is full or failing (%s); free space or choose "
                       "another directory",
                       p->file, what, mdb_strerror(rc));
    return dt_fail(rc > 0 ? DT_E_STORAGE : DT_E_INTERNAL, "%s: %s: %s", p->file, what,
                   mdb_strerror(rc));
}

static size_t map_bytes(const dt_raw *raw) {
    uint64_t sum = 64 << 20;
    for (size_t i = 0; i < raw->n; i++)
        sum += (raw->items[i].size / 4096 + 2) * 4096 + 2 * strlen(raw->items[i].key) + 1024;
    return (size_t)((sum + sum / 16) / 4096 * 4096);
}

static dt_status open_env(lmdb_pack *p) {
    int rc = mdb_env_create(&p->env);
    if (rc == 0) rc = mdb_env_set_mapsize(p->env, map_bytes(p->raw));
    if (rc == 0)
        rc = mdb_env_open(p->env, p->partial, MDB_NOSYNC | MDB_NOLOCK | MDB_NORDAHEAD, 0644);
    if (rc == 0) rc = mdb_txn_begin(p->env, NULL, 0, &p->txn);
    if (rc == 0) rc = mdb_dbi_open(p->txn, NULL, 0, &p->dbi);
    return rc == 0 ? DT_OK : lmdb_fail(p, "cannot create", rc);
}

static dt_status lmdb_begin(void **self, const char *out, const dt_raw *raw) {
    lmdb_pack *p = dt_xcalloc(1, sizeof *p);
    *self = p;
    p->raw = raw;
    p->out = dt_xstrdup(out);
    p->partial = dt_xprintf("%s.partial", out);
    p->file = dt_xprintf("%s/data.mdb", p->partial);
    DT_TRY(dt_io_remove_tree(p->partial)); // of a run that was killed
    DT_TRY(dt_io_mkdir(p->partial));
    return open_env(p);
}

static dt_status commit(lmdb_pack *p) {
    MDB_txn *txn = p->txn;
    p->txn = NULL;
    p->txn_bytes = 0;
    int rc = mdb_txn_commit(txn);
    return rc == 0 ? DT_OK : lmdb_fail(p, "cannot write", rc);
}

static dt_status put(lmdb_pack *p, const dt_pack_record *r, int m) {
    char name[MAX_KEY + 1];
    dt_span bytes = r->member[m].bytes;
    int n = snprintf(name, sizeof name, "%s.%s", r->item->key, r->member[m].ext);
    if (n > MAX_KEY)
        return dt_fail(DT_E_DATA,
                       "%s: a name of %d bytes; LMDB holds keys of %d: shorten it or pack to .tar",
                       r->item->name, n, MAX_KEY);
    MDB_val key = {(size_t)n, name}, value = {bytes.n_bytes, (void *)(uintptr_t)bytes.data};
    int rc = mdb_put(p->txn, p->dbi, &key, &value, MDB_APPEND | MDB_NOOVERWRITE);
    if (rc != 0) return lmdb_fail(p, r->item->key, rc);
    if (p->n_done == p->cap_done) {
        p->cap_done = p->cap_done ? 2 * p->cap_done : 1024;
        p->done = dt_xrealloc(p->done, p->cap_done * sizeof *p->done);
    }
    p->done[p->n_done++] = (written){r->item, r->member[m].ext, r->member[m].hash, bytes.n_bytes};
    p->txn_bytes += bytes.n_bytes;
    return DT_OK;
}

static dt_status lmdb_add(void *self, const dt_pack_record *r) {
    lmdb_pack *p = self;
    if (!p->txn) {
        int rc = mdb_txn_begin(p->env, NULL, 0, &p->txn);
        if (rc != 0) return lmdb_fail(p, "cannot write", rc);
    }
    for (int m = 0; m < r->n_members; m++) DT_TRY(put(p, r, m));
    return p->txn_bytes >= TXN_BYTES ? commit(p) : DT_OK;
}

static dt_status see(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    lmdb_pack *p = arg;
    const written *w = p->n_seen < p->n_done ? &p->done[p->n_seen] : NULL;
    size_t n = w ? strlen(w->item->key) : 0;
    bool same = w && n_key > n && memcmp(key, w->item->key, n) == 0 && key[n] == '.' &&
                strcmp(key + n + 1, w->ext) == 0 && w->size == size;
    if (!same)
        return dt_fail(DT_E_INTERNAL, "%s: entry %zu reads back as '%s'", p->file, p->n_seen, key);
    if (p->n_seen == 0 || p->done[p->n_seen - 1].item != w->item)
        DT_TRY(dt_pack_add_row(p->catalog, p->shard, w->item));
    p->n_seen++;
    return dt_catalog_add_member(p->catalog, w->ext, offset, size, &w->hash);
}

static dt_status write_index(lmdb_pack *p) {
    dt_blob blob;
    uint64_t stamp = 0;
    DT_TRY(dt_blob_open(&blob, p->file));
    p->catalog = dt_catalog_create();
    p->shard = dt_catalog_add_shard(p->catalog, p->file, blob.n_bytes);
    p->catalog->shards[p->shard].source_hash = p->raw->hash;
    dt_status st = dt_lmdb_walk(&blob, see, p);
    if (st == DT_OK) st = dt_blob_stamp(&blob, &stamp);
    dt_blob_close(&blob);
    DT_TRY(st);
    if (p->n_seen != p->n_done)
        return dt_fail(DT_E_INTERNAL, "%s: %zu entries written, %zu read back", p->file, p->n_done,
                       p->n_seen);
    dt_catalog_finish(p->catalog);
    char *path = dt_xprintf("%s.index", p->file);
    st = dt_index_save(p->catalog, p->shard, stamp, path);
    free(path);
    return st;
}

static dt_status lmdb_finish(void *self) {
    lmdb_pack *p = self;
    if (p->txn) DT_TRY(commit(p));
    int rc = mdb_env_sync(p->env, 1);
    mdb_env_close(p->env);
    p->env = NULL;
    if (rc != 0) return lmdb_fail(p, "cannot write", rc);
    DT_TRY(write_index(p));
    DT_TRY(dt_io_fsync_dir(p->partial));
    DT_TRY(dt_io_rename_noreplace(p->partial, p->out));
    return dt_pack_sync_folder(p->out);
}

static void lmdb_end(void *self) {
    lmdb_pack *p = self;
    if (p->txn) mdb_txn_abort(p->txn);
    if (p->env) mdb_env_close(p->env);
    if (dt_io_exists(p->partial)) {
        char *why = dt_xstrdup(dt_error_message()); // stays the first error
        dt_io_remove_tree(p->partial);
        if (*why) dt_fail(DT_E_STORAGE, "%s", why);
        free(why);
    }
    dt_catalog_destroy(p->catalog);
    free(p->done);
    free(p->file);
    free(p->partial);
    free(p->out);
    free(p);
}

// Overwriting replaces a set, never a folder with something else in it.
static dt_status lmdb_remove(const char *out) {
    static const char *const OURS[] = {"data.mdb", "data.mdb.index", "lock.mdb"};
    char **names = NULL;
    size_t n = 0;
    dt_status st = dt_io_is_dir(out) ? dt_io_list_dir(&names, &n, out, DT_E_STORAGE) : DT_OK;
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        bool ours = false;
        for (size_t k = 0; k < sizeof OURS / sizeof *OURS; k++)
            ours = ours || strcmp(names[i], OURS[k]) == 0;
        if (!ours)
            st = dt_fail(DT_E_USAGE, "%s: holds %s, which is no part of an LMDB: not overwritten",
                         out, names[i]);
    }
    dt_io_free_list(names, n);
    DT_TRY(st);
    return dt_io_remove_tree(out);
}

const dt_packer dt_packer_lmdb = {"lmdb",   lmdb_accepts_out, lmdb_files, lmdb_begin,
                                  lmdb_add, lmdb_finish,      lmdb_end,   lmdb_remove};
