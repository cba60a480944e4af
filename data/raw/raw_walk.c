// raw_walk.c: from a folder, a list, a tar or a packed set to records.

#include "raw.h"
#include "table.h"

#include "base/io.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/url.h"
#include "data/catalog/catalog.h"
#include "data/file/tar.h"
#include "store/blob.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- raw walk -----------------------------------------------------------------------------------------------------

// Finds raw files in a folder, a list or a tar.
//
// Links are followed, to folders too, in a folder and in a tar; one that leads to a folder above it is refused. A tar
// is listed, never unpacked. A list is a table: one column names the files, relative to the list; the others become
// metadata. Files are asked for their sizes by threads: on a cold or distant disk each waits for its own. What is left
// out is counted by reason (dt_raw_reason).
//
// A file is data if its extension or, failing that, its first bytes say so; text (.txt, .csv, .tsv, .dat) only if it
// begins with numbers, so that label tables and notes are left out. Numbers below a line of names are series where
// nothing else is data, and a table of the other files elsewhere. A table that is joined is none of the data.

// bytes that kinds are told by; threads; items that a thread takes at once; folders in folders
enum { SNIFF_BYTES = 512, MAX_STAT_THREADS = 16, STAT_AT_ONCE = 64, MAX_DEPTH = 64 };

int64_t dt_raw_mtime_ns(const struct stat *s) {
    return (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec;
}

// Only characters of numbers (with "nan" and "inf") and separators.
static bool looks_numeric(const uint8_t *p, size_t n) {
    bool digit = false;
    for (size_t i = 0; i < n; i++) {
        digit = digit || (p[i] >= '0' && p[i] <= '9');
        if (!p[i] || !strchr("0123456789+-.eE,; \t\r\nnaifNAIF", p[i])) return false; // strchr finds the ending 0 too
    }
    return digit;
}

static const char NAMED_COLUMNS[] =
    "numbers below a line of names"; // in the place of an extension, until all are known

// The extension that a file should have by its first bytes; NULL: it is not data.
static const char *raw_walk_sniff(const char *ext, const uint8_t *head, size_t n, const dt_kind **kind) {
    *kind = NULL;
    // ext - 1: with its dot
    if (ext && dt_text_ends(ext - 1, ".txt|.csv|.tsv|.dat")) {
        const uint8_t *line = memchr(head, '\n', n);
        if (looks_numeric(head, n)) return ext;
        return line && dt_text_ends(ext - 1, ".csv|.tsv") && looks_numeric(line, (size_t)(head + n - line))
                   ? NAMED_COLUMNS
                   : NULL;
    }
    const dt_kind *k = *kind = dt_kind_of_bytes(head, n);
    // a kind that dtrain knows but cannot read: *kind says which
    return k && k->uses ? k->name : NULL;
}

// ---- folder -------------------------------------------------------------------------------------------
static bool is_nowhere(int err) {
    return err == ENOENT || err == ENOTDIR || err == ELOOP; // ELOOP: links in circles, or too many of them
}

static dt_status cannot(const dt_raw *r, const char *prefix, const char *name, const char *operation, int err) {
    char *path = dt_xprintf("%s/%s%s", r->root, prefix, name);
    dt_status st = dt_io_read_error(path, operation, err, DT_E_DATA);
    free(path);
    return st;
}

// The type of an entry if readdir does not say, or of what a symlink leads to. One that leads nowhere passes as a file
// until stat_all looks at it.
static dt_status find_type(const dt_raw *r, int fd, const char *prefix, const struct dirent *e, unsigned char *type) {
    struct stat s;
    // d_type costs no system call; some file systems have DT_UNKNOWN
    bool link = e->d_type == DT_LNK;
    *type = e->d_type;
    if (*type != DT_UNKNOWN && !link) return DT_OK;
    // the entry itself
    if (!link && fstatat(fd, e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0)
        return cannot(r, prefix, e->d_name, "look at", errno);
    link = link || S_ISLNK(s.st_mode);
    // what it leads to
    if (link && fstatat(fd, e->d_name, &s, 0) != 0) {
        *type = DT_REG;
        return is_nowhere(errno) ? DT_OK : cannot(r, prefix, e->d_name, "look at", errno);
    }
    *type = S_ISREG(s.st_mode) ? DT_REG : S_ISDIR(s.st_mode) ? DT_DIR : DT_UNKNOWN; // DT_UNKNOWN: sockets, devices
    return DT_OK;
}

typedef struct walked_folder {
    const char *prefix;                // path from the root, ending in '/'; or ""
    const struct walked_folder *above; // towards the root; on the stacks of the calls
    int depth;
    dev_t device; // device and number: the folder whatever path led there
    ino_t number;
} walked_folder;

static dt_status list_folder(dt_raw_found *f, walked_folder *w);

static dt_status list_entry(dt_raw_found *f, int fd, const walked_folder *w, const struct dirent *e) {
    dt_raw *r = f->raw;
    unsigned char type;
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) return DT_OK;
    // in the arena: names of items live as long as the list
    const char *name = dt_arena_printf(&r->arena, "%s%s", w->prefix, e->d_name);
    if (dt_name_is_hidden(e->d_name, w->depth == 0)) { // the folder that the user named may be hidden itself
        dt_raw_leave_out(r, DT_RAW_HIDDEN, name);
        return DT_OK;
    }
    DT_TRY(find_type(r, fd, w->prefix, e, &type));
    if (type == DT_REG) dt_raw_add(f, name, 0, 0, 0); // size and time by stat_all, in parallel
    if (type != DT_REG && type != DT_DIR) dt_raw_leave_out(r, DT_RAW_NO_SAMPLE, name);
    if (type != DT_DIR) return DT_OK;
    char *below = dt_xprintf("%s/", name);
    // recursion: at most MAX_DEPTH open folders
    const dt_status st = list_folder(f, &(walked_folder){.prefix = below, .above = w, .depth = w->depth + 1});
    free(below);
    return st;
}

static dt_status check_loop(const dt_raw *r, int fd, walked_folder *w) {
    // links to folders are followed: only one to a folder above makes the walk endless
    struct stat s;
    if (fstat(fd, &s) != 0) return cannot(r, w->prefix, "", "look at", errno);
    w->device = s.st_dev;
    w->number = s.st_ino;
    for (const walked_folder *a = w->above; a; a = a->above)
        if (a->device == w->device && a->number == w->number)
            return dt_fail(DT_E_DATA,
                           "%s/%.*s: a link to %s/%s, the folder that it lies in, which makes a "
                           "loop: remove the link",
                           r->root, (int)strlen(w->prefix) - 1, w->prefix, r->root, a->prefix);
    return DT_OK;
}

static dt_status list_folder(dt_raw_found *f, walked_folder *w) {
    const dt_raw *r = f->raw;
    struct dirent *e;
    if (w->depth > MAX_DEPTH) return dt_fail(DT_E_DATA, "%s/%s: folders nested too deeply", r->root, w->prefix);
    // relative to root_fd, which stays the same folder
    int fd = openat(r->root_fd, *w->prefix ? w->prefix : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        dt_status st = cannot(r, w->prefix, "", "list", errno);
        if (fd >= 0) close(fd); // fdopendir failed: closedir would not close it
        return st;
    }
    dt_status st = check_loop(r, fd, w);
    // errno = 0: readdir's NULL means the end or an error
    while (st == DT_OK && (errno = 0, e = readdir(dir))) st = list_entry(f, fd, w, e);
    if (st == DT_OK && errno) st = cannot(r, w->prefix, "", "list", errno);
    closedir(dir);
    return st;
}

// ---- sizes --------------------------------------------------------------------------------------------
typedef struct stat_job {
    dt_raw *raw;
    atomic_size_t next;   // the next item, taken by threads in steps of STAT_AT_ONCE
    atomic_int error;     // errno
    atomic_size_t failed; // index of an item with `error`
} stat_job;

static void stat_some(void *arg, int worker) {
    stat_job *j = arg;
    dt_raw *r = j->raw;
    struct stat s;
    for (size_t at; (at = atomic_fetch_add(&j->next, STAT_AT_ONCE)) < r->n;)
        for (size_t i = at; i < at + STAT_AT_ONCE && i < r->n; i++) {
            dt_raw_item *item = &r->items[i];
            int err = fstatat(r->root_fd, item->name, &s, 0) != 0 ? errno : 0;
            // a link that leads nowhere: left out and counted, no error
            if (is_nowhere(err) && r->kind == DT_RAW_FOLDER &&
                fstatat(r->root_fd, item->name, &s, AT_SYMLINK_NOFOLLOW) == 0)
                err = S_ISLNK(s.st_mode) ? 0 : err;
            if (is_nowhere(err) && r->kind == DT_RAW_LIST) {
                item->row = UINT32_MAX; // marks for keep_data and for lists
                continue;
            }
            if (err) {
                // before error, which the caller reads after all threads have ended
                atomic_store(&j->failed, i);
                atomic_store(&j->error, err); // of several the last to be stored
                return;
            }
            item->size = (uint64_t)s.st_size;
            item->mtime_ns = dt_raw_mtime_ns(&s);
            if (!S_ISREG(s.st_mode)) item->row = UINT32_MAX;
        }
}

// What is not a file, a link that leads nowhere and a missing file of a list get row UINT32_MAX.
static dt_status stat_all(dt_raw *r) {
    stat_job j = {.raw = r};
    int n = dt_usable_cores();
    dt_team *team = NULL;
    if (n > MAX_STAT_THREADS) n = MAX_STAT_THREADS;
    if (r->n < 4 * STAT_AT_ONCE) n = 1;          // few items: not worth threads
    DT_TRY(dt_team_create(&team, n, "dt-list")); // of this call only
    dt_team_run(team, stat_some, &j);
    dt_team_destroy(team);
    return j.error ? dt_raw_cannot(r, &r->items[j.failed], "look at", j.error) : DT_OK;
}

// sniff of an item. *found NULL: it is not data; *unread: of a kind that cannot be read. A file that cannot be opened is
// an error.
static dt_status sniff_item(const dt_raw *r, const dt_raw_item *item, const char *ext, const char **found,
                            const dt_kind **unread) {
    const dt_kind *kind = NULL;
    uint8_t head[SNIFF_BYTES];
    size_t n = item->size < SNIFF_BYTES ? (size_t)item->size : SNIFF_BYTES; // a shorter file is read whole
    int fd = r->kind == DT_RAW_TAR ? r->root_fd : openat(r->root_fd, item->name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return dt_raw_cannot(r, item, "open", errno);
    // an item of a tar lies at its offset; pread moves no position that others use
    ssize_t got = pread(fd, head, n, (off_t)item->offset);
    dt_status st = got < 0 ? dt_raw_cannot(r, item, "read", errno) : DT_OK;
    if (fd != r->root_fd) close(fd);
    *found = st == DT_OK ? raw_walk_sniff(ext, head, (size_t)got, &kind) : NULL;
    // by bytes where they tell, else by extension; a kind that stands in for others is read
    *unread = kind && kind->tool && !dt_kind_stands_in(kind) ? kind : dt_kind_unread(item->name);
    return st;
}

// Counts a file that is left out; of a kind that one might expect to be read, k names the kind.
// the list is sorted by name, and each kind is in it once
static void leave_out_kind(dt_raw *r, const char *name, const dt_kind *k) {
    size_t i = 0, most = sizeof r->unread / sizeof *r->unread;
    dt_raw_leave_out(r, k ? DT_RAW_UNREAD_KIND : DT_RAW_NO_SAMPLE, name);
    if (!k) return;
    while (i < most && r->unread[i] && strcmp(r->unread[i]->name, k->name) < 0) i++;
    if (i == most || r->unread[i] == k) return; // full, or known
    memmove(&r->unread[i + 1], &r->unread[i], (most - i - 1) * sizeof *r->unread);
    r->unread[i] = k;
}

// Counts an empty file, which holds nothing to learn from; whether it is left out.
static bool leaves_out_empty(const dt_raw_found *f, const dt_raw_item *item) {
    if (item->size > 0) return false;
    dt_raw_leave_out(f->raw, DT_RAW_EMPTY, item->name); // counted also where the file is kept
    return !f->keep_empty;
}

// Keeps what is data, and sets ext where the name does not tell.
// in place: n <= i
static dt_status keep_data(const dt_raw_found *f) {
    dt_raw *r = f->raw;
    size_t n = 0, n_named = 0;
    for (size_t i = 0; i < r->n; i++) {
        dt_raw_item *item = &r->items[i];
        const char *base = dt_path_base(item->name);
        const char *dot = strrchr(base, '.'), *ext = dot && dot != base ? dot + 1 : NULL;
        const dt_kind *kind = ext ? dt_kind_of_ext(ext) : NULL;
        bool keep = kind && kind->uses;
        if (keep && item->row != UINT32_MAX && leaves_out_empty(f, item)) continue; // known by its name: not opened
        // of a folder: only links that lead nowhere
        if (item->row == UINT32_MAX) {
            dt_raw_leave_out(r, DT_RAW_DANGLING, item->name);
            continue;
        }
        const dt_kind *unread = NULL;
        if (!keep) {
            const char *found;
            // opens the file: only those that the name does not tell
            DT_TRY(sniff_item(r, item, ext, &found, &unread));
            keep = found != NULL;
            n_named += found == NAMED_COLUMNS;
            // the name has no extension, or another kind's
            if (keep && (!ext || strcasecmp(found, ext) != 0)) item->ext = found;
        }
        if (!keep) {
            leave_out_kind(r, item->name, unread);
            continue;
        }
        r->items[n++] = *item; // one array: items move down
    }
    r->n = 0;
    for (size_t i = 0; i < n; i++) {
        dt_raw_item item = r->items[i];
        item.row = (uint32_t)r->n;
        if (item.ext == NAMED_COLUMNS && n_named < n) {
            leave_out_kind(r, item.name, NULL);
            continue;
        }
        if (item.ext == NAMED_COLUMNS) item.ext = NULL; // its own
        r->items[r->n++] = item;
    }
    return DT_OK;
}

static dt_status open_root(dt_raw *r, const char *path, int flags) {
    r->root = dt_arena_strdup(&r->arena, path);
    r->root_fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    return r->root_fd >= 0 ? DT_OK : dt_io_read_error(path, "open", errno, DT_E_DATA);
}

static void leave_out_joined(dt_raw *r, const char *join) {
    char *root = realpath(r->root, NULL), *paths = dt_xstrdup(join), *save = NULL;
    const size_t n = root ? strlen(root) : 0;
    for (char *p = strtok_r(paths, "\n", &save); p && root; p = strtok_r(NULL, "\n", &save)) {
        char *at = realpath(p, NULL);
        const bool inside = at && strncmp(at, root, n) == 0 && at[n] == '/';
        for (size_t i = 0; i < r->n && inside; i++)
            if (strcmp(r->items[i].name, at + n + 1) == 0) {
                dt_raw_leave_out(r, DT_RAW_NO_SAMPLE, r->items[i].name);
                r->items[i] = r->items[--r->n]; // they are sorted later
            }
        free(at);
    }
    free(root);
    free(paths);
}

dt_status dt_raw_find_folder(dt_raw_found *f, const char *path) {
    dt_raw *r = f->raw;
    char *root = dt_arena_strdup(&r->arena, path);
    // "photos/" and "photos" give the same paths
    for (size_t n = strlen(root); n > 1 && root[n - 1] == '/'; n--) root[n - 1] = '\0';
    r->kind = DT_RAW_FOLDER;
    DT_TRY(open_root(r, root, O_DIRECTORY));
    // a walk in the order of the file system: sorted later
    DT_TRY(list_folder(f, &(walked_folder){.prefix = ""}));
    if (f->join) leave_out_joined(r, f->join);
    DT_TRY(stat_all(r));
    return keep_data(f);
}

// Root and name of a list with one line.
// root_fd and one name: reading goes as for lists
static dt_status add_one(dt_raw_found *f, const char *path) {
    dt_raw_add(f, dt_arena_strdup(&f->raw->arena, dt_path_base(path)), 0, 0, 0);
    DT_TRY(stat_all(f->raw));
    return keep_data(f);
}

dt_status dt_raw_find_file(dt_raw_found *f, const char *path) {
    dt_raw *r = f->raw;
    char *folder = dt_io_parent(path);
    r->kind = DT_RAW_LIST;
    dt_status st = open_root(r, folder, O_DIRECTORY);
    free(folder);
    return st == DT_OK ? add_one(f, path) : st;
}

// ---- tar ----------------------------------------------------------------------------------------------
// Bytes of the path to its first hidden folder or file, with its name; 0: there is none.
static size_t hidden_part(const char *path) {
    char name[DT_TAR_MAX_PATH]; // DT_TAR_MAX_PATH includes the 0
    for (const char *p = path; *p;) {
        const size_t n = strcspn(p, "/");
        memcpy(name, p, n);
        name[n] = '\0';
        // p == path: the first component
        if (n > 0 && dt_name_is_hidden(name, p == path)) return (size_t)(p - path) + n;
        p += n + (p[n] == '/');
    }
    return 0;
}

// also a callback of dt_tar_links_visit
static void raw_walk_add_entry(void *arg, const char *path, uint64_t offset, uint64_t size) {
    dt_raw_found *f = arg;
    const char *name = dt_arena_strdup(&f->raw->arena, path);
    const size_t n_hidden = hidden_part(path); // > 0: bytes up to the hidden component
    if (n_hidden == 0) {
        dt_raw_add(f, name, offset, size, f->tar_mtime_ns);
        return;
    }
    // the hidden folder stands for all in it
    name = dt_arena_printf(&f->raw->arena, "%.*s", (int)n_hidden, name);
    // entries of a folder are neighbours: counted once
    if (!f->hidden || strcmp(f->hidden, name) != 0) dt_raw_leave_out(f->raw, DT_RAW_HIDDEN, name);
    f->hidden = name;
}

dt_status dt_raw_find_tar(dt_raw_found *f, const char *path) {
    dt_raw *r = f->raw;
    dt_blob blob;
    dt_tar tar;
    struct stat s = {0};
    bool more = true;
    r->kind = DT_RAW_TAR;
    DT_TRY(open_root(r, path, 0));
    DT_TRY(dt_blob_open(&blob, r->root));
    dt_tar_entry *e = dt_xcalloc(1, sizeof *e); // several KiB: not on the stack
    dt_tar_links *links = NULL;                 // made at the first link
    dt_status st = DT_OK;
    fstat(r->root_fd, &s);
    f->tar_mtime_ns = dt_raw_mtime_ns(&s);
    dt_tar_begin(&tar, &blob);
    while (st == DT_OK && more) {
        st = dt_tar_next(&tar, e, &more);
        if (st != DT_OK || !more) break;
        if (*e->link && !links) st = dt_tar_links_create(&links, &blob);
        if (st == DT_OK && e->is_regular) raw_walk_add_entry(f, e->path, e->offset, e->size);
        bool any = true; // false: the link led to nothing in the tar
        if (st == DT_OK && *e->link) st = dt_tar_links_visit(links, e->path, raw_walk_add_entry, f, &any);
        if (st == DT_OK && !any) dt_raw_leave_out(r, DT_RAW_OUTSIDE, dt_arena_strdup(&r->arena, e->path));
    }
    if (st == DT_OK) dt_tar_warn_end(&tar); // no end mark, or another tar behind it
    dt_tar_links_destroy(links);
    dt_blob_close(&blob);
    free(e);
    DT_TRY(st); // after all was freed
    return keep_data(f);
}

// ---- list ---------------------------------------------------------------------------------------------
// names of the path's column in tables of others, in the order of preference
static int path_column(const dt_table *t) {
    static const char *const NAMES[] = {"path", "file", "filename", "file_name", "image", "name"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        int c = dt_table_find(t, NAMES[i]);
        if (c >= 0) return c;
    }
    return 0; // none: the first column
}

dt_status dt_raw_find_list(dt_raw_found *f, const char *path, dt_table *t) {
    dt_raw *r = f->raw;
    char *dir = dt_arena_strdup(&r->arena, path), *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0'; // the root's slash stays
    r->kind = DT_RAW_LIST;
    DT_TRY(open_root(r, slash ? dir : ".", O_DIRECTORY));
    // .txt and .lst: a path on each line, no header
    DT_TRY(dt_text_ends(path, ".txt|.lst") ? dt_table_read_lines(t, path) : dt_table_read(t, path));
    f->list = t;
    f->list_column = path_column(t);
    // item i is row i until rows are left out below
    for (size_t i = 0; i < t->cells.n_rows; i++) {
        const char *name = dt_table_cell(t, i, f->list_column);
        // a URL with a password is refused before it is printed
        if (name && dt_url_check(name) != DT_OK) return dt_fail_context(DT_E_DATA, "%s:%u", path, t->line[i]);
        dt_raw_add(f, dt_arena_strdup(&r->arena, name ? name : ""), 0, 0, 0);
    }
    dt_status st = stat_all(r);
    if (st != DT_OK) return dt_fail_context(st, "%s: column '%s'", path, dt_columns_name(&t->cells, f->list_column));
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        dt_raw_item *item = &r->items[i];
        const char *dot = strrchr(dt_path_base(item->name), '.'); // of the name, not of its folders
        // the table's own line: header and comments count
        if (item->row == UINT32_MAX) {
            dt_examples_add(&r->bad_rows, "line %u '%s'", t->line[i], item->name);
            continue;
        }
        if (leaves_out_empty(f, item)) continue; // data.on_error decides where empty files are kept
        // by extension at first
        const dt_kind *unread = dt_kind_unread(item->name);
        if (!dot) DT_TRY(sniff_item(r, item, NULL, &item->ext, &unread));
        if (unread)
            return dt_fail(DT_E_DATA, "%s:%u: %s is of kind %s, which is not read: %s", path, t->line[i], item->name,
                           unread->name, unread->tool);
        if (!dot && !item->ext)
            return dt_fail(DT_E_DATA,
                           "%s:%u: %s has no extension, and does not begin like a file "
                           "that dtrain knows",
                           path, t->line[i], item->name);
        r->items[n] = *item;
        r->items[n++].row = (uint32_t)i; // the row of the table: others are left out
    }
    r->n = n;
    const bool none = r->bad_rows.n > 0 && r->bad_rows.n == t->cells.n_rows;
    if (none && dt_text_ends(path, ".csv|.tsv")) { // no list, but one series?
        const dt_examples bad = r->bad_rows;
        r->bad_rows = (dt_examples){0};
        DT_TRY(add_one(f, path));
        if (r->n > 0) {
            f->list = NULL;
            return DT_OK;
        }
        r->bad_rows = bad;
    }
    // with --on-error skip they are counted and printed by the caller
    if (r->bad_rows.n == 0 || f->skip_bad) return DT_OK;
    const char *help = none ? dt_arena_printf(&r->arena, "FOLDER OUT --join %s finds files elsewhere", path)
                            : "--on-error skip leaves them out";
    return dt_fail(DT_E_DATA, "%s: column '%s': %zu rows name no file in %s: %s; dtrain pack %s", path,
                   dt_columns_name(&t->cells, f->list_column), r->bad_rows.n, slash ? dir : ".", r->bad_rows.text,
                   help);
}

// ---- raw records --------------------------------------------------------------------------------------------------

// Lists the records of an existing dataset.
//
// Records keep their keys. The shards of a WebDataset often all count from 000000. That is fine for a reader that takes
// one shard after the other, but a dataset needs distinct keys. With --key-by-shard each key gets the name of its
// shard in front: all keys, not only repeated ones, so that a key does not depend on other records. If two shards
// share a name, all keys get the folder too. A number behind the key would not tell where a record comes from, and
// would change with the order of the shards.

// ---- keys that shards repeat -------------------------------------------------------------------------
// Where the last name before path[*end] begins. Moves *end back over empty names and ".".
static size_t name_before(const char *path, size_t *end) {
    size_t n = *end, begin;
    for (;; n = begin) {
        while (n > 0 && path[n - 1] == '/') n--;
        // "a//b/./c": empty names and "." are no folders
        for (begin = n; begin > 0 && path[begin - 1] != '/';) begin--;
        if (n - begin != 1 || path[begin] != '.') break;
    }
    *end = n;
    return begin;
}

// The last `depth` names of a path, without .tar and the like; for an LMDB those of its folder.
static const char *end_of_path(dt_arena *arena, const char *path, int depth) {
    static const char LMDB[] = "/data.mdb";
    size_t n = dt_tar_stem(path), k = strlen(LMDB); // bytes without .tar, .tar.gz
    if (n == 0) n = strlen(path);
    if (n > k && strcmp(path + n - k, LMDB) == 0) n -= k; // photos.lmdb/data.mdb: the folder's name
    size_t begin = name_before(path, &n), end = begin;
    const char *name = dt_arena_printf(arena, "%.*s", (int)(n - begin), path + begin); // (end, n]: the last name
    if (depth < 2) return name;
    begin = name_before(path, &end);
    // no folder above
    return end > begin ? dt_arena_printf(arena, "%.*s/%s", (int)(end - begin), path + begin, name) : name;
}

// "photos-000003"; if folders have shards of the same name, "val/000003". name[]: by shard.
static dt_status name_shards(dt_arena *arena, const dt_catalog *c, const char **name) {
    // twin: a name that two shards have, or that is none
    const char **sorted = dt_xcalloc(c->n_shards + 1, sizeof *sorted), *twin = NULL;
    // with folders only where names alone are not enough
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
        // of a set the name is the key
        item->key = item->name = dt_arena_printf(&r->arena, "%s/%s", name[c->records[item->record].shard], item->key);
    }
    free(name);
    return st;
}

// ---- the list -----------------------------------------------------------------------------------------
dt_status dt_raw_find_records(dt_raw_found *f, const dt_catalog *c, bool by_shard) {
    dt_raw *r = f->raw;
    // records of a set: nothing is walked
    r->kind = DT_RAW_SET;
    r->root = r->source;
    r->catalog = c;
    int64_t *mtime = dt_xcalloc(c->n_shards + 1, sizeof *mtime);
    for (uint32_t s = 0; s < c->n_shards; s++) {
        struct stat info;
        if (stat(c->shards[s].path, &info) == 0) // a URL has no time here: 0
            mtime[s] = dt_raw_mtime_ns(&info);
    }
    for (uint32_t i = 0; i < c->n_records; i++) {
        const dt_record *rec = &c->records[i];
        uint64_t size = 0;
        // bytes of all members
        for (uint32_t m = 0; m < rec->n_members; m++) size += c->members[rec->first_member + m].size;
        const char *key = dt_catalog_str(c, rec->key);
        dt_raw_add(f, key, 0, size, mtime[rec->shard]); // offset 0: members are read through the catalog
        r->items[i].key = key;
        r->items[i].record = i;
    }
    free(mtime);
    return by_shard ? key_by_shard(r) : DT_OK;
}
