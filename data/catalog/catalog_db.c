// catalog_db.c: writes a catalog as an SQLite database.
//
// SQLite makes the file, with its schema and small tables, in one transaction; the rows of records, metadata
// and members, which are sorted and known, are laid out behind that page by page (catalog_tree.c). Two runs
// write the same bytes. There are no indexes: a query by expression looks at all records anyway (a
// million take 0.2 s), and an index on each column would double the file.
#include "catalog_db.h"
#include "catalog_columns.h"
#include "catalog_rows.h"
#include "catalog_table.h"
#include "catalog_vfs.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/text.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { APPLICATION_ID = 0x44546361, VERSION = 1 };

dt_status dt_catalog_db_fail(sqlite3 *db, const char *path, dt_status code, const char *doing) {
    if (dt_catalog_vfs_status() != DT_OK) return dt_catalog_vfs_status();
    bool none_left = !db || sqlite3_errcode(db) == SQLITE_NOMEM;
    return dt_fail(none_left ? DT_E_INTERNAL : code, "%s: %s: %s", path, doing,
                   db ? sqlite3_errmsg(db) : "out of memory");
}

void dt_catalog_db_bind(sqlite3_stmt *s, int i, const char *text) {
    const char *p = text;
    size_t n;
    while ((signed char)*p > 0) p++; // ASCII
    while (*p && (n = dt_text_utf8_length(p)) > 0) p += n;
    if (*p)
        sqlite3_bind_blob(s, i, text, (int)strlen(text), SQLITE_STATIC);
    else
        sqlite3_bind_text(s, i, text, (int)(p - text), SQLITE_STATIC);
}

// ---- where it lies ---------------------------------------------------------------------------------
static bool is_separator(char c) {
    return c == '-' || c == '_' || c == '.';
}

// "dir/photos-" of n bytes -> "dir/photos.catalog.sqlite"; nothing left of the name -> dir/catalog.sqlite
static char *named_after(const char *path, size_t n) {
    while (n > 0 && is_separator(path[n - 1])) n--;
    bool bare = n == 0 || path[n - 1] == '/';
    return dt_xprintf("%.*s%scatalog.sqlite", (int)n, path, bare ? "" : ".");
}

size_t dt_catalog_shard_stem(const char *path) {
    static const char *const ENDS[] = {".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++) {
        size_t k = strlen(ENDS[i]);
        if (n > k && strcasecmp(path + n - k, ENDS[i]) == 0) return n - k;
    }
    return 0;
}

char *dt_catalog_db_path(const char *set) {
    const char *slash = strrchr(set, '/'), *base = slash ? slash + 1 : set;
    size_t n = strlen(set), stem = dt_catalog_shard_stem(set);
    size_t brace = (size_t)(base - set) + strcspn(base, "{");
    if (stem) return named_after(set, brace < stem ? brace : stem);
    while (n > 1 && set[n - 1] == '/') n--;
    return dt_xprintf("%.*s/catalog.sqlite", (int)n, set);
}

static char *if_exists(char *path) {
    if (dt_io_exists(path)) return path;
    free(path);
    return NULL;
}

char *dt_catalog_db_find(const char *shard) {
    const char *slash = strrchr(shard, '/'), *base = slash ? slash + 1 : shard;
    size_t n = dt_catalog_shard_stem(shard), first = (size_t)(base - shard);
    if (n == 0) {
        const char *dot = strrchr(base, '.');
        if (!dot || strcmp(dot, ".mdb") != 0) return NULL;
        return if_exists(dt_xprintf("%.*scatalog.sqlite", (int)first, shard));
    }
    // the whole name, then what is before each run of digits, from the last to the first
    char *found = if_exists(named_after(shard, n));
    while (!found && n > first) {
        while (n > first && !isdigit((unsigned char)shard[n - 1])) n--;
        while (n > first && isdigit((unsigned char)shard[n - 1])) n--;
        found = if_exists(named_after(shard, n));
    }
    return found;
}

// ---- filling -----------------------------------------------------------------------------------------
typedef struct filler {
    sqlite3 *db;
    const dt_catalog *c;
    const bool *use;        // by shard, or NULL
    dt_sql_columns columns; // of `metadata`
    int rc;                 // first failure
} filler;

static void run(filler *f, const char *sql) {
    if (f->rc == SQLITE_OK) f->rc = sqlite3_exec(f->db, sql, NULL, NULL, NULL);
}

static sqlite3_stmt *prepare(filler *f, const char *sql) {
    sqlite3_stmt *s = NULL;
    if (f->rc == SQLITE_OK) f->rc = sqlite3_prepare_v2(f->db, sql, -1, &s, NULL);
    return s;
}

static void step(filler *f, sqlite3_stmt *s) {
    if (f->rc != SQLITE_OK) return;
    int rc = sqlite3_step(s);
    f->rc = rc == SQLITE_DONE ? SQLITE_OK : rc;
    sqlite3_reset(s);
}

static bool skips(const filler *f, uint32_t shard) {
    return f->use && !f->use[shard];
}

static const char TABLES[] =
    "CREATE TABLE shards(id INTEGER PRIMARY KEY, path TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " stamp TEXT, first_record INTEGER NOT NULL, n_records INTEGER NOT NULL);"
    "CREATE TABLE columns(name TEXT NOT NULL, column_name TEXT NOT NULL, kind TEXT NOT NULL);"
    "CREATE TABLE lineage(step INTEGER PRIMARY KEY, made_by TEXT, command TEXT, options TEXT,"
    " version TEXT, parent TEXT, parent_hash TEXT);";

// In memory these are the catalog itself.
static const char ROWS[] =
    "CREATE TABLE records(id INTEGER PRIMARY KEY, key TEXT NOT NULL, shard INTEGER NOT NULL,"
    " row INTEGER NOT NULL, bytes INTEGER NOT NULL, hash INTEGER, source TEXT);"
    "CREATE TABLE members(record INTEGER NOT NULL, ext TEXT NOT NULL, offset INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, hash INTEGER, PRIMARY KEY(record, ext)) WITHOUT ROWID;"
    "CREATE TABLE facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID;";

static const char VIEW[] =
    "CREATE VIEW catalog AS SELECT r.key AS key, s.path AS shard, r.row AS row, r.bytes AS bytes,"
    " r.source AS source, m.* FROM records r JOIN shards s ON s.id = r.shard"
    " JOIN metadata m ON m.id = r.id";

static void create_metadata(filler *f) {
    sqlite3_str *sql = sqlite3_str_new(f->db);
    sqlite3_str_appendall(sql, "CREATE TABLE metadata(id INTEGER PRIMARY KEY");
    for (int i = 0; i < f->columns.n; i++)
        sqlite3_str_appendf(sql, ", \"%w\" %s", f->columns.column[i].sql,
                            f->columns.column[i].is_number ? "NUMERIC" : "TEXT");
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    run(f, text ? text : "");
    sqlite3_free(text);
}

static void fill_columns(filler *f) {
    sqlite3_stmt *s = prepare(f, "INSERT INTO columns VALUES(?, ?, ?)");
    for (int i = 0; i < f->columns.n && f->rc == SQLITE_OK; i++) {
        dt_catalog_db_bind(s, 1, f->columns.column[i].name);
        dt_catalog_db_bind(s, 2, f->columns.column[i].sql);
        dt_catalog_db_bind(s, 3, f->columns.column[i].is_number ? "number" : "text");
        step(f, s);
    }
    sqlite3_finalize(s);
}

// Shards' own records lie together.
static void fill_shards(filler *f) {
    const dt_catalog *c = f->c;
    uint32_t *n = dt_xcalloc(c->n_shards + 1, sizeof *n), first = 0;
    for (uint32_t r = 0; r < c->n_records; r++) n[c->records[r].shard]++;
    sqlite3_stmt *s = prepare(f, "INSERT INTO shards VALUES(?, ?, ?, ?, ?, ?)");
    for (uint32_t i = 0; i < c->n_shards && f->rc == SQLITE_OK; i++) {
        const char *slash = strrchr(c->shards[i].path, '/');
        char stamp[17];
        dt_hash_hex(c->shards[i].stamp, stamp);
        if (!skips(f, i)) {
            sqlite3_bind_int64(s, 1, i);
            dt_catalog_db_bind(s, 2, slash ? slash + 1 : c->shards[i].path);
            sqlite3_bind_int64(s, 3, (sqlite3_int64)c->shards[i].n_bytes);
            sqlite3_bind_text(s, 4, stamp, -1, SQLITE_STATIC);
            sqlite3_bind_int64(s, 5, first);
            sqlite3_bind_int64(s, 6, n[i]);
            step(f, s);
        }
        first += n[i];
    }
    sqlite3_finalize(s);
    free(n);
}

static void fill_facts(filler *f) {
    char hash[17];
    dt_hash_hex(dt_catalog_hash(f->c), hash);
    char *sql = sqlite3_mprintf("INSERT INTO facts VALUES('hash', %Q), ('n_records', %u), "
                                "('n_shards', %u)",
                                hash, f->c->n_records, f->c->n_shards);
    run(f, sql ? sql : "");
    sqlite3_free(sql);
}

// A parent that is a set has lineage of its own, which comes first.
static void copy_lineage(filler *f, const char *parent) {
    char *path = dt_catalog_db_path(parent);
    sqlite3 *from = NULL;
    sqlite3_stmt *get = NULL;
    if (dt_io_exists(path) && dt_catalog_db_open(&from, path) == DT_OK)
        sqlite3_prepare_v2(from,
                           "SELECT made_by, command, options, version, parent, parent_hash "
                           "FROM lineage ORDER BY step",
                           -1, &get, NULL);
    sqlite3_stmt *put = prepare(f, "INSERT INTO lineage VALUES(NULL, ?, ?, ?, ?, ?, ?)");
    while (get && f->rc == SQLITE_OK && sqlite3_step(get) == SQLITE_ROW) {
        for (int i = 0; i < 6; i++) sqlite3_bind_value(put, i + 1, sqlite3_column_value(get, i));
        step(f, put);
    }
    sqlite3_finalize(put);
    sqlite3_finalize(get);
    sqlite3_close(from);
    free(path);
}

static void fill_lineage(filler *f, const dt_lineage *l) {
    const char *text[] = {l->made_by, l->command, l->options, l->version, l->parent};
    char hash[17];
    if (l->parent) copy_lineage(f, l->parent);
    sqlite3_stmt *s = prepare(f, "INSERT INTO lineage VALUES(NULL, ?, ?, ?, ?, ?, ?)");
    for (int i = 0; i < 5 && f->rc == SQLITE_OK; i++)
        if (text[i]) dt_catalog_db_bind(s, i + 1, text[i]);
    dt_hash_hex(l->parent_hash, hash);
    if (l->parent_hash) sqlite3_bind_text(s, 6, hash, -1, SQLITE_STATIC);
    step(f, s);
    sqlite3_finalize(s);
}

// What is a table also where the rows are read from the catalog.
static void begin(filler *f) {
    assert(f->c->finished);
    dt_sql_columns_make(&f->columns, f->c);
    run(f, "BEGIN");
    run(f, TABLES);
    fill_columns(f);
    fill_shards(f);
}

// ---- writing -------------------------------------------------------------------------------------
static void fill_file(filler *f, const dt_lineage *l) {
    char *pragmas = sqlite3_mprintf(
        "PRAGMA page_size = 16384; PRAGMA encoding = 'UTF-8'; PRAGMA journal_mode = OFF;"
        "PRAGMA temp_store = MEMORY; PRAGMA synchronous = OFF; PRAGMA application_id = %d; PRAGMA "
        "user_version = %d",
        APPLICATION_ID, VERSION);
    run(f, pragmas ? pragmas : "");
    sqlite3_free(pragmas);
    begin(f);
    run(f, ROWS);
    create_metadata(f);
    run(f, VIEW);
    fill_facts(f);
    if (l) fill_lineage(f, l);
    run(f, "COMMIT");
}

static uint32_t root_of(filler *f, const char *table) {
    sqlite3_stmt *s = prepare(f, "SELECT rootpage FROM sqlite_schema WHERE name = ?");
    uint32_t root = 0;
    sqlite3_bind_text(s, 1, table, -1, SQLITE_STATIC);
    if (f->rc == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        root = (uint32_t)sqlite3_column_int64(s, 0);
    if (f->rc == SQLITE_OK && root == 0) f->rc = SQLITE_INTERNAL;
    sqlite3_finalize(s);
    return root;
}

static dt_catalog_roots find_roots(filler *f) {
    return (dt_catalog_roots){.records = root_of(f, "records"),
                              .metadata = root_of(f, "metadata"),
                              .members = root_of(f, "members")};
}

static dt_status sync_folder(const char *path) {
    char *dir = dt_xstrdup(path), *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0';
    dt_status st = dt_io_fsync_dir(slash ? dir : ".");
    free(dir);
    return st;
}

dt_status dt_catalog_db_write(const char *path, const dt_catalog *c, const dt_lineage *l,
                              const char *const *sources) {
    char *partial = dt_xprintf("%s.partial", path);
    filler *f = dt_xcalloc(1, sizeof *f);
    f->c = c;
    f->rc = dt_catalog_vfs_open(&f->db, partial, true);
    if (f->rc == SQLITE_OK) fill_file(f, l);
    dt_catalog_roots roots = find_roots(f);
    dt_status st = DT_OK;
    if (f->rc != SQLITE_OK)
        st = dt_catalog_db_fail(f->db, partial, DT_E_INTERNAL, "cannot be written");
    sqlite3_close(f->db);
    if (st == DT_OK) st = dt_catalog_vfs_status();
    if (st == DT_OK) st = dt_catalog_rows_write(partial, &roots, c, &f->columns, sources);
    if (st == DT_OK) st = dt_io_rename(partial, path);
    if (st == DT_OK) {
        st = sync_folder(path);
    } else if (dt_io_exists(partial)) {
        const dt_error_kept first = dt_error_keep();
        dt_io_unlink(partial);
        dt_error_restore(&first);
    }
    free(f);
    free(partial);
    return st;
}

// ---- opening -------------------------------------------------------------------------------------
static int64_t pragma(sqlite3 *db, const char *sql) {
    sqlite3_stmt *s = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return value;
}

static dt_status check_kind(sqlite3 *db, const char *path) {
    int64_t id = pragma(db, "PRAGMA application_id");
    if (id < 0) return dt_catalog_db_fail(db, path, DT_E_DATA, "damaged catalog");
    if (id != APPLICATION_ID)
        return dt_fail(DT_E_DATA, "%s: not a catalog of dtrain's; remove it or pack again", path);
    if (pragma(db, "PRAGMA user_version") != VERSION)
        return dt_fail(DT_E_DATA, "%s: a catalog of another version of dtrain; pack again", path);
    return DT_OK;
}

// Somebody is at it with another program, or was cut off: what the file alone holds is not the whole.
static dt_status check_quiet(const char *path) {
    static const char *const TAILS[] = {"-wal", "-journal"};
    dt_status st = DT_OK;
    for (int i = 0; i < 2 && st == DT_OK; i++) {
        char *other = dt_xprintf("%s%s", path, TAILS[i]);
        if (dt_io_exists(other))
            st = dt_fail(DT_E_DATA, "%s: being changed by another program (%s is there)", path,
                         other);
        free(other);
    }
    return st;
}

dt_status dt_catalog_db_open(sqlite3 **out, const char *path) {
    *out = NULL;
    DT_TRY(check_quiet(path));
    sqlite3 *db = NULL;
    int rc = dt_catalog_vfs_open(&db, path, false);
    dt_status st = rc == SQLITE_OK ? DT_OK : dt_catalog_db_fail(db, path, DT_E_DATA, "cannot open");
    if (st == DT_OK) {
        sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_exec(db, "PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY", NULL, NULL,
                     NULL);
        st = check_kind(db, path);
    }
    if (st == DT_OK)
        *out = db;
    else
        sqlite3_close(db);
    return st;
}

static bool is_beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    char *file = dt_xprintf("%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
    bool yes = dt_io_exists(file);
    free(file);
    return yes;
}

dt_status dt_catalog_db_list_data(const char *path, char ***names, size_t *n, size_t *n_there) {
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    char **list = NULL;
    size_t cap = 0;
    *n = *n_there = 0;
    DT_TRY(dt_catalog_db_open(&db, path));
    int rc = sqlite3_prepare_v2(db, "SELECT path FROM shards ORDER BY id", -1, &s, NULL);
    while (rc == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(s, 0);
        if (!name) continue;
        if (*n == cap) list = dt_xrealloc(list, (cap = 2 * cap + 64) * sizeof *list);
        list[*n] = dt_xstrdup(name);
        if (is_beside(path, name)) {
            char *there = list[*n];
            list[*n] = list[*n_there];
            list[(*n_there)++] = there;
        }
        ++*n;
    }
    if (rc == SQLITE_OK) rc = sqlite3_reset(s); // what the last step said
    dt_status st = rc == SQLITE_OK ? DT_OK : dt_catalog_db_fail(db, path, DT_E_DATA, "cannot read");
    sqlite3_finalize(s);
    sqlite3_close(db);
    if (st != DT_OK) dt_io_free_list(list, *n);
    *names = st == DT_OK ? list : NULL;
    return st;
}

dt_status dt_catalog_db_in_memory(sqlite3 **out, const dt_catalog *c, const bool *use) {
    filler *f = dt_xcalloc(1, sizeof *f);
    f->c = c;
    f->use = use;
    *out = NULL;
    f->rc = sqlite3_open_v2(":memory:", &f->db,
                            SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (f->rc == SQLITE_OK) begin(f);
    run(f, "COMMIT");
    if (f->rc == SQLITE_OK) f->rc = dt_catalog_table_create(f->db, c, use, &f->columns);
    dt_status st = DT_OK;
    if (f->rc == SQLITE_OK) {
        *out = f->db;
    } else {
        st = dt_fail(DT_E_INTERNAL, "a catalog in memory: %s",
                     f->db ? sqlite3_errmsg(f->db) : "out of memory");
        sqlite3_close(f->db);
    }
    free(f);
    return st;
}
