// pack_lmdb.c: LMDB files, written by liblmdb.
//
// Records come in the order of their keys, so each entry is appended (MDB_APPEND): pages are filled completely and
// nothing is searched. A transaction ends after a fixed number of bytes, so the file depends on the entries alone. It
// is synced once, at the end: after a crash an unfinished file is thrown away.
// No MDB_WRITEMAP: a full disk would be a SIGBUS instead of an error. No MDB_NOMEMINIT: unused bytes must be the same
// in every run. No lock file: nobody else knows of the file yet.
//
// Where values lie is known only when all is committed. The tree is then read once (source_parts.h), as training will.
#include "data/source/source_parts.h"
#include "pack_parts.h"

#include "base/core.h"
#include "base/failpoint.h"
#include "base/io.h"
#include "base/text.h"

#include <errno.h>
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

// USUAL_PAGE: bytes of a page on x86; a file has its machine's, up to 32 KiB. MAX_KEY: LMDB's own limit (MDB_MAXKEYSIZE);
// SLACK: pages of room for the tree
enum { USUAL_PAGE = 4096, MAX_KEY = 511, TXN_BYTES = 16 << 20, SLACK = 256 };

struct dt_pack_writer {
    char *path;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    uint64_t page;      // bytes
    uint64_t map_bytes; // the file may grow so far
    uint64_t used;      // bytes of the file that the last commit may have used, at most
    uint64_t pending;   // of the transaction
    uint8_t *place;     // of the member's next byte
};

static bool pack_lmdb_accepts(const char *out) {
    return strlen(out) > strlen(".lmdb") && dt_text_ends(out, ".lmdb");
}

static uint64_t lmdb_estimate(uint64_t member_bytes, bool has_cls) {
    return dt_align_up(member_bytes, USUAL_PAGE) +
           256; // the same on every machine: whole pages, and about what a node and its branches take
}

static dt_status failed(const dt_pack_writer *w, int rc) {
    if (rc == 0) return DT_OK;
    struct statvfs v; // liblmdb calls a write that a full disk has cut EIO
    if (rc == EIO && statvfs(w->path, &v) == 0 && v.f_bavail * v.f_frsize < 1 << 20) rc = ENOSPC;
    dt_status st = rc == ENOMEM ? DT_E_INTERNAL : DT_E_STORAGE;
    return dt_fail(st, "%s: cannot write: %s%s", w->path, mdb_strerror(rc),
                   rc == ENOSPC ? "; free space or choose another directory" : "");
}

// A commit writes many pages; tests make it fail as one call.
static dt_status commit(dt_pack_writer *w) {
    int rc = dt_failpoint_visit_io();
    if (rc == 0)
        rc = mdb_txn_commit(w->txn);
    else
        mdb_txn_abort(w->txn);
    w->txn = NULL;
    return failed(w, rc == FAILPOINT_SHORT ? ENOSPC : rc);
}

static dt_status begin_txn(dt_pack_writer *w) {
    DT_TRY(failed(w, mdb_txn_begin(w->env, NULL, 0, &w->txn)));
    return failed(w, mdb_dbi_open(w->txn, NULL, 0, &w->dbi));
}

static dt_status lmdb_open(dt_pack_writer **out, const char *path) {
    dt_pack_writer *w = *out = dt_xcalloc(1, sizeof *w);
    w->path = dt_xstrdup(path);
    w->map_bytes = USUAL_PAGE * SLACK;
    if (dt_io_exists(path)) DT_TRY(dt_io_unlink(path)); // of an earlier run
    DT_TRY(failed(w, mdb_env_create(&w->env)));
    DT_TRY(failed(w, mdb_env_set_mapsize(w->env, w->map_bytes)));
    // NOLOCK: one process; NOSYNC: synced once, by lmdb_end
    DT_TRY(failed(w, mdb_env_open(w->env, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0644)));
    MDB_stat stat;
    DT_TRY(failed(w, mdb_env_stat(w->env, &stat)));
    w->page = stat.ms_psize;
    w->map_bytes = w->page * SLACK;
    DT_TRY(failed(w, mdb_env_set_mapsize(w->env, w->map_bytes)));
    return begin_txn(w);
}

// The most bytes that an entry takes: a leaf page is at least half full, a large value has pages of its own, and branch
// pages are less than an eighth of the leaves.
static uint64_t most_bytes(const dt_pack_writer *w, size_t n_key, uint64_t size) {
    uint64_t node = 32 + n_key, value = size < w->page ? size : 0;
    return (node + value) * 5 / 2 + (size - value ? size + 2 * w->page : 0);
}

// Makes room for one more entry. The size of the map is a function of the entries, too, because the file stores it.
static dt_status pack_lmdb_make_room(dt_pack_writer *w, uint64_t n_bytes) {
    // grow: the map must be larger before the entry comes
    bool grow = w->used + w->pending + n_bytes + w->page * SLACK > w->map_bytes;
    if (!grow && (w->pending == 0 || w->pending + n_bytes <= TXN_BYTES)) {
        w->pending += n_bytes;
        return DT_OK;
    }
    MDB_envinfo info;
    mdb_filehandle_t fd;
    // a map may only grow between transactions
    DT_TRY(commit(w));
    if (mdb_env_get_fd(w->env, &fd) == 0) dt_io_begin_sync(fd, (off_t)w->used, 0); // to its end
    DT_TRY(failed(w, mdb_env_info(w->env, &info)));
    w->used = ((uint64_t)info.me_last_pgno + 1) * w->page; // pages are numbered from 0
    w->pending = n_bytes;
    // doubled: the size depends on the entries alone
    while (w->used + n_bytes + w->page * SLACK > w->map_bytes) w->map_bytes *= 2;
    DT_TRY(failed(w, mdb_env_set_mapsize(w->env, w->map_bytes)));
    return begin_txn(w);
}

static dt_status lmdb_begin(dt_pack_writer *w, const char *name, uint64_t size, uint64_t *offset) {
    MDB_val key = {strlen(name), (void *)(uintptr_t)name}, value = {(size_t)size, NULL};
    if (key.mv_size > MAX_KEY)
        return dt_fail(DT_E_DATA, "%.60s…: a name of %zu bytes; LMDB holds keys of %d: shorten it or pack to .tar",
                       name, key.mv_size, MAX_KEY);
    // LMDB stores 32-bit sizes
    if (size > UINT32_MAX) return dt_fail(DT_E_DATA, "%s: LMDB holds no values of 4 GiB or more: pack to .tar", name);
    DT_TRY(pack_lmdb_make_room(w, most_bytes(w, key.mv_size, size)));
    // RESERVE: the value is written straight into its page
    int rc = mdb_put(w->txn, w->dbi, &key, &value, MDB_APPEND | MDB_RESERVE);
    if (rc == MDB_KEYEXIST)
        return dt_fail(DT_E_DATA,
                       "%s: its name and the one before it interleave once segments are numbered, "
                       "which an LMDB does not allow: rename one, or pack to .tar",
                       name);
    w->place = value.mv_data;
    *offset = 0; // known after the commit: fill_offset
    return failed(w, rc);
}

static dt_status lmdb_put(dt_pack_writer *w, const void *data, size_t n_bytes) {
    memcpy(w->place, data, n_bytes);
    w->place += n_bytes;
    return DT_OK;
}

typedef struct filler {
    dt_catalog *c;
    uint32_t member;
} filler;

// Entries of the tree come in the order in which they were appended.
static dt_status fill_offset(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    filler *f = arg;
    if (f->member == f->c->n_members || f->c->members[f->member].size != size)
        return dt_fail(DT_E_INTERNAL, "entry %s is not what was written", key);
    f->c->members[f->member++].offset = offset;
    return DT_OK;
}

static dt_status lmdb_end(dt_pack_writer *w, dt_catalog *c) {
    dt_blob blob;
    filler f = {.c = c};
    DT_TRY(commit(w));
    int rc = dt_failpoint_visit_io(); // tests make the sync fail as one call
    DT_TRY(failed(w, rc < 0 ? ENOSPC : rc ? rc : mdb_env_sync(w->env, 1)));
    DT_TRY(dt_blob_open(&blob, w->path));
    dt_status st = dt_lmdb_walk(&blob, fill_offset, &f);
    dt_blob_close(&blob);
    if (st == DT_OK && f.member != c->n_members) st = dt_fail(DT_E_INTERNAL, "%s: entries are missing", w->path);
    return st;
}

static void lmdb_close(dt_pack_writer *w) {
    if (!w) return;
    if (w->txn) mdb_txn_abort(w->txn);
    if (w->env) mdb_env_close(w->env);
    free(w->path);
    free(w);
}

const dt_pack_format dt_pack_lmdb = {.name = "lmdb",
                                     .one_file = true,
                                     .accepts = pack_lmdb_accepts,
                                     .estimate = lmdb_estimate,
                                     .open = lmdb_open,
                                     .begin = lmdb_begin,
                                     .put = lmdb_put,
                                     .end = lmdb_end,
                                     .close = lmdb_close};
