// shard_rows.c: rows of a shard, in memory and in its file rows-N.
//
//   u64 XXH3 of all that follows, n_items; n_items of {u64 source_hash, n_records}; the shard's index (index_file.h)
//
// Records follow the order of items, so counts say which record is of which item.

#include "pack_parts.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "data/catalog/index_file.h"
#include "store/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct item_row {
    uint64_t source_hash, n_records; // source_hash 0: the item gave no record
} item_row;

typedef struct header {
    uint64_t hash, n_items; // hash: of all behind it
} header;

struct dt_shard_rows {
    const dt_compose *c;
    size_t shard, first, n_items; // of the list
    dt_catalog *catalog;
    item_row *items;
    char *path;
};

// Items of a shard follow each other in the list.
static void items_of(const dt_plan *p, size_t shard, size_t *first, size_t *n) {
    *first = *n = 0;
    if (p->chunk_at[shard] < p->chunk_at[shard + 1]) *first = p->chunks[p->chunk_at[shard]].first;
    for (size_t i = p->chunk_at[shard]; i < p->chunk_at[shard + 1]; i++) *n += p->chunks[i].n;
}

// ---- in memory ----------------------------------------------------------------------------------------
dt_shard_rows *dt_shard_rows_create(const dt_compose *c, size_t shard, const char *path) {
    dt_shard_rows *r = dt_xcalloc(1, sizeof *r);
    r->c = c;
    r->shard = shard;
    items_of(c->plan, shard, &r->first, &r->n_items);
    r->items = dt_xcalloc(r->n_items + 1, sizeof *r->items);
    r->catalog = dt_catalog_create();
    r->path = dt_xstrdup(path);
    dt_catalog_add_shard(r->catalog, path, 0); // shard 0 of a catalog of its own
    return r;
}

void dt_shard_rows_destroy(dt_shard_rows *r) {
    if (!r) return;
    dt_catalog_destroy(r->catalog);
    free(r->items);
    free(r->path);
    free(r);
}

dt_status dt_shard_rows_add(dt_shard_rows *r, const dt_chunk_record *x, const uint64_t *offset) {
    const dt_raw_item *item = &r->c->raw->items[x->item];
    item_row *row = &r->items[x->item - r->first];
    dt_catalog *c = r->catalog;
    char *key = dt_xprintf("%s%s", item->key, x->suffix);
    dt_status st = dt_catalog_add_record(c, 0, key);
    free(key);
    for (int i = 0; i < x->n_members && st == DT_OK; i++)
        st = dt_catalog_add_member(c, x->member[i].ext, offset[i], x->member[i].size, &x->member[i].hash);
    if (st == DT_OK) st = dt_raw_put_row(r->c->raw, item, c);
    for (int i = 0; i < x->n_columns && st == DT_OK; i++)
        if (!dt_raw_has_value(r->c->raw, item, x->column[i].name))
            st = dt_catalog_set_real(c, x->column[i].name, x->column[i].number);
    row->source_hash = x->source_hash | (x->source_hash == 0); // 0: gave no record
    row->n_records++;
    return st;
}

dt_catalog *dt_shard_rows_catalog(dt_shard_rows *r) {
    return r->catalog;
}

// ---- on disk ------------------------------------------------------------------------------------------
static char *rows_path(const dt_work *w, size_t shard) {
    return dt_xprintf("%s/rows-%zu", w->plan->partial, shard);
}

// Size and stamp of a file.
static dt_status look_at(const char *path, uint64_t *n_bytes, uint64_t *stamp) {
    dt_blob blob;
    DT_TRY(dt_blob_open(&blob, path));
    dt_status st = dt_blob_stamp(&blob, stamp);
    *n_bytes = blob.n_bytes;
    dt_blob_close(&blob);
    return st;
}

dt_status dt_shard_rows_save(dt_shard_rows *r, const dt_work *w, uint64_t fingerprint) {
    dt_shard *shard = &r->catalog->shards[0];
    dt_buffer index = {0}, out = {0};
    header h = {.n_items = r->n_items}; // its hash is known only when all is together
    shard->source_hash = fingerprint;   // the index says by which pack the shard was made
    DT_TRY(look_at(r->path, &shard->n_bytes, &shard->stamp));
    DT_TRY(dt_catalog_finish(r->catalog));
    dt_status st = dt_index_make(r->catalog, 0, shard->stamp, &index);
    if (st == DT_OK) {
        dt_buffer_append(&out, &h, sizeof h);
        dt_buffer_append(&out, r->items, r->n_items * sizeof *r->items);
        dt_buffer_append(&out, index.data, index.n_bytes);
        h.hash = dt_hash64(out.data + sizeof h.hash, out.n_bytes - sizeof h.hash);
        memcpy(out.data, &h, sizeof h);
        char *path = rows_path(w, r->shard);
        // written whole, renamed: the file's existence means that the shard is whole
        st = dt_io_write_file(path, out.data, out.n_bytes);
        free(path);
    }
    dt_buffer_fini(&out);
    dt_buffer_fini(&index);
    return st;
}

// A rows file in memory, and the data file that its rows describe.
typedef struct rows_file {
    char *path, *data_path, *data;
    const item_row *items;
    size_t first, n_items; // of the list
    const char *index;
    size_t n_index;
    uint64_t n_data, stamp; // of the data file
} rows_file;

static void close_rows(rows_file *f) {
    free(f->path);
    free(f->data_path);
    free(f->data);
}

static dt_status open_rows(rows_file *f, const dt_plan *p, const dt_work *w, size_t shard) {
    header h = {0};
    size_t n = 0;
    *f = (rows_file){.path = rows_path(w, shard), .data_path = dt_xprintf("%s/%s", w->set, p->name[shard])};
    items_of(p, shard, &f->first, &f->n_items);
    DT_TRY(dt_io_read_file(&f->data, &n, f->path, 0, DT_E_STORAGE));
    // as the plan has it: another number of items is another plan
    size_t n_head = sizeof h + f->n_items * sizeof *f->items;
    if (n >= sizeof h) memcpy(&h, f->data, sizeof h);
    // before any of the contents is used
    if (n < n_head || h.n_items != f->n_items || h.hash != dt_hash64(f->data + sizeof h.hash, n - sizeof h.hash))
        return dt_fail(DT_E_STORAGE, "%s: damaged; remove its folder and pack again", f->path);
    // aligned: dt_io_read_file returns heap memory, the header has 16 bytes
    f->items = (const item_row *)(const void *)(f->data + sizeof h);
    f->index = f->data + n_head;
    f->n_index = n - n_head;
    return look_at(f->data_path, &f->n_data, &f->stamp);
}

bool dt_shard_rows_are_there(const dt_compose *c, const dt_work *w, size_t shard, uint64_t fingerprint) {
    rows_file f;
    bool stale = true;
    uint64_t source_hash = 0;
    dt_status st = open_rows(&f, c->plan, w, shard);
    if (st == DT_OK)
        st = dt_index_check(f.data_path, f.path, f.index, f.n_index, f.n_data, &f.stamp, &stale, &source_hash);
    close_rows(&f);
    dt_error_clear(); // unreadable rows are an outcome: the shard is made again
    return st == DT_OK && !stale && source_hash == fingerprint;
}

void dt_all_rows_init(dt_all_rows *a, const dt_raw *raw) {
    *a = (dt_all_rows){.catalog = dt_catalog_create(), .hash = dt_xcalloc(raw->n + 1, 8)}; // 8: of a uint64_t
}

void dt_all_rows_fini(dt_all_rows *a) {
    dt_catalog_destroy(a->catalog);
    free(a->item);
    free(a->hash);
}

static dt_status shard_rows_append(dt_all_rows *a, const rows_file *f) {
    dt_catalog *c = a->catalog;
    bool stale = false;
    uint32_t r = c->n_records, m = c->n_members;
    DT_TRY(dt_index_parse(c, f->data_path, f->path, f->index, f->n_index, f->n_data, f->stamp, &stale));
    // records of this shard are behind those of the shards before
    a->item = dt_xrealloc(a->item, (c->n_records + 1) * sizeof *a->item);
    for (size_t i = 0; i < f->n_items; i++) {
        a->hash[f->first + i] = f->items[i].source_hash;
        // bounded: counts of a damaged file cannot write beyond
        for (uint64_t k = 0; k < f->items[i].n_records && r < c->n_records; k++)
            a->item[r++] = (uint32_t)(f->first + i);
    }
    for (; m < c->n_members; m++) a->n_bytes += c->members[m].size;
    if (stale || r != c->n_records)
        return dt_fail(DT_E_STORAGE, "%s: is not of %s; remove its folder and pack again", f->path, f->data_path);
    return DT_OK;
}

dt_status dt_all_rows_load(dt_all_rows *a, const dt_compose *c, const dt_work *w, size_t shard) {
    rows_file f;
    dt_status st = open_rows(&f, c->plan, w, shard);
    if (st == DT_OK) st = shard_rows_append(a, &f);
    close_rows(&f);
    return st == DT_E_DATA ? DT_E_STORAGE : st; // the rows are pack's own: not the user's data
}

// ---- work ---------------------------------------------------------------------------------------------------------

// Lock, claim and publish of unfinished work.
//
// A dataset appears whole or not at all. It is several files, which no system call renames at once, so:
//
//   1. all files are written, synced, and named in `publish`, itself synced;
//   2. files of the old dataset are moved to old/, so that from here on files are missing (which readers say)
//      rather than a mixture of two datasets, which would look whole;
//   3. new files are moved to their places, indexes before the data they describe;
//   4. the folder is synced, and OUT.partial with the old dataset removed.
//
// A kill anywhere in 2 and 3 leaves `publish`, and the next pack of whatever kind goes through the same
// steps first: what still lies in set/ has not been placed. The old dataset is removed last, so until the
// new one is complete it could be put back by hand.

char *dt_work_path(const dt_work *w, const char *name) {
    return dt_xprintf("%s/%s", w->plan->partial, name);
}

void dt_work_attach(dt_work *w, const dt_plan *plan) {
    *w = (dt_work){.plan = plan, .lock_fd = -1, .dir_fd = -1}; // -1: not open
    w->set = dt_work_path(w, "set");
}

void dt_work_close(dt_work *w) {
    if (w->lock_fd >= 0) close(w->lock_fd);
    if (w->dir_fd >= 0) close(w->dir_fd);
    free(w->set);
    *w = (dt_work){.lock_fd = -1, .dir_fd = -1};
}

// ---- names --------------------------------------------------------------------------------------------
// Whether pack makes such an entry of OUT.partial, or (sub) of a folder in it.
static bool work_is_own(const dt_work *w, const char *name, mode_t mode, bool sub) {
    if (S_ISDIR(mode)) return !sub && (strcmp(name, "set") == 0 || strcmp(name, "old") == 0);
    // temporary names of dt_io_write_file count as the file's
    char *plain = dt_xprintf("%.*s", (int)dt_io_stem(name), name);
    const char *digits = strncmp(plain, "rows-", 5) == 0 ? plain + 5 : "";
    const bool own = sub ? dt_plan_may_name(w->plan, plain)
                         : strcmp(plain, "lock") == 0 || strcmp(plain, "made-from") == 0 ||
                               strcmp(plain, "publish") == 0 || strcmp(plain, "drop") == 0 ||
                               (*digits && !digits[strspn(digits, "0123456789")]);
    free(plain);
    return own && S_ISREG(mode);
}

// What is_own denies; without made-from also what pack makes after made-from. NULL: nothing. Heap.
static char *find_foreign(const dt_work *w, int at, const char *folder, bool is_claimed, bool sub) {
    const int fd = openat(at, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char *found = dir || errno == ENOENT ? NULL : dt_xprintf("%s (%s)", folder, strerror(errno));
    struct stat s;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        const char *name = e->d_name; // .nfs…: what NFS keeps while a removed file is open
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strncmp(name, ".nfs", 4) == 0) continue;
        if (fstatat(fd, name, &s, AT_SYMLINK_NOFOLLOW) != 0) continue; // removed meanwhile
        const bool early = strcmp(name, "lock") == 0 || strncmp(name, "made-from", 9) == 0;
        if (!work_is_own(w, name, s.st_mode, sub) || !(is_claimed || early || S_ISDIR(s.st_mode)))
            found = dt_xstrdup(name);
        else if (S_ISDIR(s.st_mode))
            found = find_foreign(w, fd, name, is_claimed, true);
    }
    if (dir) closedir(dir);
    return found;
}

// A folder of that name that pack did not make is the user's.
static dt_status check_folder(dt_work *w) {
    const char *path = w->plan->partial;
    w->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (w->dir_fd < 0)
        return dt_fail(DT_E_USAGE,
                       "%s: is a link or no folder, and dtrain pack needs a folder of that name "
                       "for its work: move it, or choose another OUT",
                       path);
    const bool is_claimed = faccessat(w->dir_fd, "made-from", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    char *foreign = find_foreign(w, w->dir_fd, ".", is_claimed, false);
    if (!foreign) return DT_OK;
    const dt_status st = dt_fail(DT_E_USAGE,
                                 "%s: was not made by dtrain pack, which would remove it: %s is in it: move it, or "
                                 "choose another OUT",
                                 path, foreign);
    free(foreign);
    return st;
}

// ---- lock ---------------------------------------------------------------------------------------------
// Whether the locked file still has its name: whoever held the lock before may have removed it.
static bool still_there(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static dt_status take_lock(dt_work *w, const char *path) {
    // whole file; the lock belongs to the open file, not to the process
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    DT_TRY(dt_io_open_update(&w->lock_fd, path));
    if (fcntl(w->lock_fd, F_OFD_SETLK, &whole) == 0) return DT_OK;
    if (errno == EAGAIN || errno == EACCES) {
        close(w->lock_fd); // an open lock means that the work is ours, and may be removed
        w->lock_fd = -1;
        return dt_fail(DT_E_USAGE,
                       "%s: another dtrain pack is writing this set; wait for it, or choose another "
                       "OUT",
                       w->plan->out);
    }
    dt_warn("%s: this file system has no locks (%s): make sure that no second pack writes this set", path,
            strerror(errno));
    return DT_OK;
}

dt_status dt_work_open(dt_work *w, const dt_plan *plan) {
    dt_work_attach(w, plan);
    char *path = dt_work_path(w, "lock"), *parent = dt_io_parent(plan->partial);
    dt_status st = dt_io_mkdir_all(parent);
    for (int i = 0; i < 100 && st == DT_OK; i++) { // another pack may remove the folder between mkdir and lock: again
        if (w->lock_fd >= 0) close(w->lock_fd);
        if (w->dir_fd >= 0) close(w->dir_fd);
        w->lock_fd = w->dir_fd = -1;
        st = dt_io_mkdir(plan->partial);
        if (st == DT_OK) st = check_folder(w);
        if (st == DT_OK) st = take_lock(w, path);
        if (st == DT_OK && still_there(w->lock_fd, path)) break;
    }
    free(parent);
    free(path);
    return st;
}

// ---- claim --------------------------------------------------------------------------------------------
// Removes what pack made: a file, or the files of a folder and then the folder if nothing else is in it.
static dt_status remove_own(const dt_work *w, int at, const char *name, bool sub) {
    struct stat s;
    dt_status st = DT_OK;
    // never an entry that pack does not make
    if (fstatat(at, name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !work_is_own(w, name, s.st_mode, sub)) return DT_OK;
    const int fd = S_ISDIR(s.st_mode) ? openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW) : -1;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; dir && st == DT_OK && (e = readdir(dir));) st = remove_own(w, fd, e->d_name, true);
    if (dir) closedir(dir);
    return st == DT_OK ? dt_io_remove_at(at, name, w->plan->partial) : st;
}

// What tells whose work this is goes last: removing a large old dataset takes time, and a kill may come.
static dt_status clear(const dt_work *w) {
    static const char *const LATE[] = {"publish", "set", "made-from"};
    enum { N_LATE = sizeof LATE / sizeof *LATE };
    char **names;
    size_t n;
    DT_TRY(dt_io_list_dir(&names, &n, w->plan->partial, DT_E_STORAGE));
    dt_status st = DT_OK;
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        bool waits = strcmp(names[i], "lock") == 0; // the lock goes last, by dt_work_remove
        for (size_t k = 0; k < N_LATE; k++) waits = waits || strcmp(names[i], LATE[k]) == 0;
        if (!waits) st = remove_own(w, w->dir_fd, names[i], false);
    }
    for (size_t k = 0; k < N_LATE && st == DT_OK; k++) st = remove_own(w, w->dir_fd, LATE[k], false);
    dt_io_free_list(names, n);
    return st;
}

char *dt_work_made_from(const dt_work *w) {
    char *path = dt_work_path(w, "made-from"), *text = NULL;
    size_t n;
    // absent or too long: of no pack
    if (dt_io_read_file(&text, &n, path, 4096, DT_E_STORAGE) != DT_OK) dt_error_clear();
    free(path);
    return text;
}

dt_status dt_work_claim(const dt_work *w, const char *text) {
    char *path = dt_work_path(w, "made-from"), *have = dt_work_made_from(w);
    dt_status st = DT_OK;
    bool same = have && strcmp(have, text) == 0;
    if (!same) st = clear(w);
    if (st == DT_OK) st = dt_io_mkdir(w->set);
    // last: from here on the folder is claimed
    if (st == DT_OK && !same) st = dt_io_write_file(path, text, strlen(text));
    free(have);
    free(path);
    return st;
}

// ---- publish ------------------------------------------------------------------------------------------
bool dt_work_is_publishing(const dt_work *w) {
    char *path = dt_work_path(w, "publish");
    bool yes = dt_io_exists(path);
    free(path);
    return yes;
}

static dt_status work_move(const char *from_dir, const char *to_dir, const char *name) {
    char *from = dt_xprintf("%s/%s", from_dir, name), *to = dt_xprintf("%s/%s", to_dir, name);
    dt_status st = dt_io_rename_noreplace(from, to);
    free(from);
    free(to);
    return st;
}

static bool lies_in(const char *dir, const char *name) {
    char *path = dt_xprintf("%s/%s", dir, name);
    bool yes = dt_io_exists(path);
    free(path);
    return yes;
}

// Indexes first: they are in place before the data.
static dt_status work_write_list(const dt_work *w) {
    char *path = dt_work_path(w, "publish"), **names;
    size_t n;
    dt_buffer b = {0};
    DT_TRY(dt_io_list_dir(&names, &n, w->set, DT_E_STORAGE));
    for (size_t i = 0; i < n; i++)
        if (dt_plan_is_companion(w->plan, names[i])) dt_buffer_append(&b, names[i], strlen(names[i]) + 1);
    for (size_t i = 0; i < n; i++)
        if (dt_plan_belongs(w->plan, names[i])) dt_buffer_append(&b, names[i], strlen(names[i]) + 1);
    dt_status st = dt_io_fsync_dir(w->set); // renames in set/ are on disk before the list
    if (st == DT_OK) st = dt_io_write_file(path, b.data, b.n_bytes);
    dt_io_free_list(names, n);
    dt_buffer_fini(&b);
    free(path);
    return st;
}

static bool work_is_listed(const char *list, size_t n_list, const char *name) {
    for (const char *p = list; p < list + n_list; p += strlen(p) + 1)
        if (strcmp(p, name) == 0) return true;
    return false;
}

static dt_status move_one_away(const dt_work *w, const char *name) {
    char *old = dt_work_path(w, "old"), *path = dt_xprintf("%s/%s", old, name);
    dt_status st = dt_io_mkdir(old);
    if (st == DT_OK && dt_io_exists(path)) st = dt_io_unlink(path); // left by a kill
    if (st == DT_OK) st = work_move(w->plan->folder, old, name);
    free(path);
    free(old);
    return st;
}

// Step 2. A file in the folder is old unless it is a new one that has left set/ already.
static dt_status move_old_away(const dt_work *w, const char *list, size_t n_list) {
    char **names;
    size_t n;
    dt_status st = DT_OK;
    // in set/: not placed yet; in the folder: of the old dataset
    for (const char *p = list; p < list + n_list && st == DT_OK; p += strlen(p) + 1)
        if (lies_in(w->set, p) && lies_in(w->plan->folder, p)) st = move_one_away(w, p);
    DT_TRY(st);
    DT_TRY(dt_plan_existing(w->plan, &names, &n)); // the old dataset may have had more shards
    for (size_t i = 0; i < n && st == DT_OK; i++)
        if (!work_is_listed(list, n_list, names[i])) st = move_one_away(w, names[i]);
    dt_io_free_list(names, n);
    return st;
}

// Step 3.
static dt_status place_new(const dt_work *w, const char *list, size_t n_list) {
    dt_status st = DT_OK;
    for (const char *p = list; p < list + n_list && st == DT_OK; p += strlen(p) + 1)
        if (lies_in(w->set, p)) st = work_move(w->set, w->plan->folder, p);
    return st == DT_OK ? dt_io_fsync_dir(w->plan->folder) : st; // before OUT.partial goes
}

// For an LMDB.
static dt_status work_make_folder(const char *path) {
    char *parent = dt_io_parent(path);
    dt_status st = dt_io_mkdir(path);
    if (st == DT_OK) st = dt_io_fsync_dir(parent); // the folder's name is on disk before its files move
    free(parent);
    return st;
}

// a.tar and a-%03d.tar share a folder of unfinished work, so the list may belong to the other one.
static dt_status work_check_owner(const dt_work *w, const char *list, size_t n_list) {
    for (const char *p = list; p < list + n_list; p += strlen(p) + 1)
        if (dt_plan_belongs(w->plan, p)) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%s holds a set of another name, whose pack was stopped while it put its "
                   "files in place: run that pack again, or choose another OUT",
                   w->plan->partial);
}

dt_status dt_work_publish(const dt_work *w) {
    char *path = dt_work_path(w, "publish"), *list = NULL;
    size_t n = 0;
    dt_status st = dt_io_exists(path) ? DT_OK : work_write_list(w); // a list: the publish goes on
    if (st == DT_OK) st = dt_io_read_file(&list, &n, path, 0, DT_E_STORAGE);
    if (st == DT_OK) st = work_check_owner(w, list, n);
    if (st == DT_OK && !dt_io_is_dir(w->plan->folder)) st = work_make_folder(w->plan->folder);
    if (st == DT_OK) st = move_old_away(w, list, n);
    if (st == DT_OK) st = place_new(w, list, n);
    free(list);
    free(path);
    return st;
}

dt_status dt_work_remove(dt_work *w) {
    // the lock goes last: while it is there, the folder is ours. It is closed before the folder is removed, as NFS
    // keeps an open file in its folder under another name; from then on another pack may take the folder.
    DT_TRY(clear(w));
    DT_TRY(remove_own(w, w->dir_fd, "lock", false));
    close(w->lock_fd);
    w->lock_fd = -1;
    return dt_io_remove_empty(w->plan->partial);
}
