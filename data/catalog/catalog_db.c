// catalog_db.c: writes a catalog as an SQLite database, by prepared statements in one transaction; reads the
// lineage in one, and whether it says what the indexes say.
//
// The database is written to a temporary file without a journal: if anything fails, the file is thrown away,
// which is what a journal would be for. SQLite takes no locks ("unix-none"), as nobody else knows the file and
// some network file systems have none. There are no indexes: they would double the file.
#include "catalog_db.h"
#include "select.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/text.h"

#include <assert.h>
#include <ctype.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { KIND = 0x44546361, VERSION = 1 }; // application_id, user_version

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

// ---- reading ---------------------------------------------------------------------------------------
// With the cause of SQLite's last failure: "path: cannot <verb>: …".
static dt_status fail_of(sqlite3 *db, const char *path, const char *verb, dt_status code) {
    int rc = sqlite3_errcode(db), err = sqlite3_system_errno(db);
    bool of_system = rc == SQLITE_IOERR || rc == SQLITE_FULL || rc == SQLITE_CANTOPEN;
    if (rc == SQLITE_NOMEM) return dt_fail(DT_E_INTERNAL, "%s: out of memory", path);
    if (of_system && err) return dt_io_read_error(path, verb, err, code);
    return dt_fail(code, "%s: cannot %s: %s", path, verb, sqlite3_errmsg(db));
}

static dt_status damaged(sqlite3 *db, const char *path) {
    dt_status st = fail_of(db, path, "read", DT_E_DATA);
    return st == DT_E_DATA ? dt_fail(st, "%s; remove it, or pack again", dt_error_message()) : st;
}

static dt_status prepare(sqlite3 *db, const char *path, const char *sql, sqlite3_stmt **out) {
    return sqlite3_prepare_v2(db, sql, -1, out, NULL) == SQLITE_OK ? DT_OK : damaged(db, path);
}

// The first column of the first row, or -1.
static int64_t number_of(sqlite3 *db, const char *sql) {
    sqlite3_stmt *s = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return value;
}

static dt_status check_kind(sqlite3 *db, const char *path) {
    int64_t kind = number_of(db, "PRAGMA application_id");
    if (kind < 0) return damaged(db, path);
    if (kind != KIND)
        return dt_fail(DT_E_DATA, "%s: not a catalog of dtrain's; remove it or pack again", path);
    if (number_of(db, "PRAGMA user_version") != VERSION)
        return dt_fail(DT_E_DATA, "%s: a catalog of another version of dtrain; pack again", path);
    return DT_OK;
}

// Read only and without locks: many processes may read it on a network file system.
static dt_status open_db(sqlite3 **out, const char *path) {
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    dt_status st = DT_OK;
    if (sqlite3_open_v2(path, out, flags, "unix-none") != SQLITE_OK)
        st = fail_of(*out, path, "open", DT_E_DATA);
    if (st == DT_OK) {
        sqlite3_exec(*out, "PRAGMA trusted_schema = OFF", NULL, NULL, NULL);
        st = check_kind(*out, path);
    }
    if (st == DT_OK) return DT_OK;
    sqlite3_close(*out);
    *out = NULL;
    return st;
}

// ---- lineage ---------------------------------------------------------------------------------------
static char *text_of(sqlite3_stmt *s, int i) {
    const char *text = (const char *)sqlite3_column_text(s, i);
    return text ? dt_xstrdup(text) : NULL;
}

dt_status dt_catalog_db_lineage(const char *path, dt_lineage **steps, int *n) {
    sqlite3 *db;
    sqlite3_stmt *s;
    *steps = NULL;
    *n = 0;
    DT_TRY(open_db(&db, path));
    dt_status st = prepare(db, path,
                           "SELECT made_by, command, options, version, parent, parent_hash FROM "
                           "lineage ORDER BY step",
                           &s);
    while (st == DT_OK && sqlite3_step(s) == SQLITE_ROW) {
        const char *hash = (const char *)sqlite3_column_text(s, 5);
        *steps = dt_xrealloc(*steps, (size_t)(*n + 1) * sizeof **steps);
        (*steps)[(*n)++] = (dt_lineage){.made_by = text_of(s, 0),
                                        .command = text_of(s, 1),
                                        .options = text_of(s, 2),
                                        .version = text_of(s, 3),
                                        .parent = text_of(s, 4),
                                        .parent_hash = hash ? strtoull(hash, NULL, 16) : 0};
    }
    if (st == DT_OK && sqlite3_finalize(s) != SQLITE_OK) st = damaged(db, path);
    sqlite3_close(db);
    return st;
}

void dt_lineage_free(dt_lineage *steps, int n) {
    for (int i = 0; i < n; i++) {
        const dt_lineage *l = &steps[i];
        const char *text[] = {l->made_by, l->command, l->options, l->version, l->parent};
        for (int k = 0; k < 5; k++) free((void *)(uintptr_t)text[k]);
    }
    free(steps);
}

// ---- columns of other programs -----------------------------------------------------------------------
// `WHERE` continues it.
#define ADDED                                                                                      \
    "SELECT name FROM pragma_table_info('metadata') WHERE name <> 'id' AND lower(name) NOT IN "    \
    "(SELECT lower(column_name) FROM columns)"

bool dt_catalog_db_has_added(const dt_catalog *c, const char *column) {
    char *path = c->n_shards ? dt_catalog_db_find(c->shards[0].path) : NULL;
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    bool found = false;
    if (path && open_db(&db, path) == DT_OK &&
        prepare(db, path, ADDED " AND lower(name) = lower(?)", &s) == DT_OK) {
        sqlite3_bind_text(s, 1, column, -1, SQLITE_STATIC);
        found = sqlite3_step(s) == SQLITE_ROW;
    }
    sqlite3_finalize(s);
    sqlite3_close(db);
    free(path);
    dt_error_clear();
    return found;
}

static dt_status refuse_added(sqlite3 *db, const char *path) {
    sqlite3_stmt *s;
    dt_status st = DT_OK;
    DT_TRY(prepare(db, path, ADDED, &s));
    if (sqlite3_step(s) == SQLITE_ROW)
        st = dt_fail(DT_E_DATA, "%s: column %s was added by another program: " DT_ADDED_COLUMN,
                     path, sqlite3_column_text(s, 0));
    sqlite3_finalize(s);
    return st;
}

// ---- against the catalog ---------------------------------------------------------------------------
typedef struct comparison {
    const dt_catalog *c;
    char *path; // of the database that is open; or NULL
    sqlite3 *db;
    sqlite3_stmt *rows; // of a shard: key, then the columns that both know
    dt_column_reader readers[1 + 2 * DT_MAX_COLUMNS];
    int n;
} comparison;

static void close_db(comparison *x) {
    for (int i = 0; i < x->n; i++) dt_column_reader_fini(&x->readers[i]);
    sqlite3_finalize(x->rows);
    sqlite3_close(x->db);
    free(x->path);
    *x = (comparison){.c = x->c};
}

static dt_status check_pages(const comparison *x) {
    sqlite3_stmt *s;
    DT_TRY(prepare(x->db, x->path, "PRAGMA integrity_check(1)", &s));
    const char *text =
        sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    dt_status st = DT_OK;
    if (!text || strcmp(text, "ok") != 0)
        st = dt_fail(DT_E_DATA, "%s: damaged: %s; remove it, or pack again", x->path,
                     text ? text : "unreadable");
    sqlite3_finalize(s);
    return st;
}

// The columns of the database that the catalog knows.
static dt_status prepare_rows(comparison *x) {
    sqlite3_stmt *s;
    DT_TRY(prepare(x->db, x->path, "SELECT name, column_name FROM columns", &s));
    sqlite3_str *sql = sqlite3_str_new(x->db);
    sqlite3_str_appendall(sql, "SELECT r.key");
    dt_column_reader_init(&x->readers[x->n++], x->c, DT_COLUMN_KEY);
    while (sqlite3_step(s) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(s, 0);
        int k = dt_catalog_n_names(x->c) - 1;
        while (k >= DT_N_FIXED_COLUMNS && (!name || strcmp(dt_catalog_name(x->c, k), name) != 0))
            k--;
        if (k < DT_N_FIXED_COLUMNS || x->n > 2 * DT_MAX_COLUMNS) continue;
        dt_column_reader_init(&x->readers[x->n++], x->c, k);
        sqlite3_str_appendf(sql, ", m.\"%w\"", sqlite3_column_text(s, 1));
    }
    sqlite3_finalize(s);
    sqlite3_str_appendall(sql, " FROM shards s JOIN records r ON r.id >= s.first_record AND "
                               "r.id < s.first_record + s.n_records JOIN metadata m ON m.id = r.id "
                               "WHERE s.path = ? ORDER BY r.id");
    char *text = sqlite3_str_finish(sql);
    dt_status st = prepare(x->db, x->path, text ? text : "", &x->rows);
    sqlite3_free(text);
    return st;
}

static bool same_cell(sqlite3_stmt *s, int i, const dt_cell *v) {
    int type = sqlite3_column_type(s, i);
    if (type == SQLITE_NULL || v->kind == DT_CELL_NULL)
        return type == SQLITE_NULL && v->kind == DT_CELL_NULL;
    if (type == SQLITE_INTEGER) return v->number == (long double)sqlite3_column_int64(s, i);
    if (type == SQLITE_FLOAT) return v->number == (long double)sqlite3_column_double(s, i);
    size_t n = (size_t)sqlite3_column_bytes(s, i);
    return v->text && strlen(v->text) == n && memcmp(v->text, sqlite3_column_blob(s, i), n) == 0;
}

static dt_status compare_row(const comparison *x, uint32_t record) {
    const dt_catalog *c = x->c;
    for (int i = 0; i < x->n; i++) {
        dt_cell v = dt_column_reader_get(&x->readers[i], record);
        if (!same_cell(x->rows, i, &v))
            return dt_fail(DT_E_DATA,
                           "%s: record %s: %s is not what the index says (changed by another "
                           "program, or damaged): remove it, or pack again",
                           x->path, dt_catalog_str(c, c->records[record].key),
                           dt_catalog_name(c, x->readers[i].column));
    }
    return DT_OK;
}

static dt_status compare_shard(comparison *x, uint32_t shard, uint32_t first, uint32_t end) {
    const char *path = x->c->shards[shard].path, *slash = strrchr(path, '/');
    dt_status st = DT_OK;
    uint32_t r = first;
    sqlite3_bind_text(x->rows, 1, slash ? slash + 1 : path, -1, SQLITE_STATIC);
    while (st == DT_OK && r < end && sqlite3_step(x->rows) == SQLITE_ROW) st = compare_row(x, r++);
    bool more = st == DT_OK && r == end && sqlite3_step(x->rows) == SQLITE_ROW;
    if (sqlite3_reset(x->rows) != SQLITE_OK) return damaged(x->db, x->path);
    if (st == DT_OK && r > first && (r < end || more)) // none: it does not know the shard
        st = dt_fail(DT_E_DATA, "%s: has not the records of %s: remove it, or pack again", x->path,
                     path);
    return st;
}

dt_status dt_catalog_db_check(const dt_catalog *c) {
    comparison *x = dt_xcalloc(1, sizeof *x);
    dt_status st = DT_OK;
    uint32_t end = 0;
    x->c = c;
    for (uint32_t s = 0, first = 0; s < c->n_shards && st == DT_OK; s++, first = end) {
        while (end < c->n_records && c->records[end].shard == s) end++;
        char *path = dt_catalog_db_find(c->shards[s].path);
        bool is_open = path && x->path && strcmp(path, x->path) == 0;
        if (is_open || !path) {
            free(path);
        } else {
            close_db(x);
            x->path = path;
            st = open_db(&x->db, path);
            if (st == DT_OK) st = check_pages(x);
            if (st == DT_OK) st = refuse_added(x->db, path);
            if (st == DT_OK) st = prepare_rows(x);
        }
        if (path && st == DT_OK) st = compare_shard(x, s, first, end);
    }
    close_db(x);
    free(x);
    return st;
}

// ---- data files ------------------------------------------------------------------------------------
dt_status dt_catalog_db_list_data(const char *path, char ***names, size_t *n) {
    const char *slash = strrchr(path, '/');
    sqlite3 *db;
    sqlite3_stmt *s;
    *names = NULL;
    *n = 0;
    DT_TRY(open_db(&db, path));
    dt_status st = prepare(db, path, "SELECT path FROM shards ORDER BY id", &s);
    while (st == DT_OK && sqlite3_step(s) == SQLITE_ROW) {
        char *name = text_of(s, 0);
        char *file =
            dt_xprintf("%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name ? name : "");
        if (name && dt_io_exists(file)) {
            *names = dt_xrealloc(*names, (*n + 1) * sizeof **names);
            (*names)[(*n)++] = dt_xstrdup(name);
        }
        free(file);
        free(name);
    }
    if (st == DT_OK && sqlite3_finalize(s) != SQLITE_OK) st = damaged(db, path);
    sqlite3_close(db);
    return st;
}

// ---- filling ---------------------------------------------------------------------------------------
typedef struct filler {
    sqlite3 *db;
    const dt_catalog *c;
    int n_columns;             // of `metadata`, without id
    dt_column_reader *readers; // by column
    char **names;              // in SQL, by column
    int rc;                    // first failure
} filler;

static void run(filler *f, const char *sql) {
    if (f->rc == SQLITE_OK) f->rc = sqlite3_exec(f->db, sql, NULL, NULL, NULL);
}

// Runs what sqlite3_mprintf or sqlite3_str_finish made, and frees it.
static void run_text(filler *f, char *sql) {
    if (!sql && f->rc == SQLITE_OK) f->rc = SQLITE_NOMEM;
    run(f, sql);
    sqlite3_free(sql);
}

// A statement with n parameters for all columns of a table.
static sqlite3_stmt *prepare_insert(filler *f, const char *table, int n) {
    sqlite3_stmt *s = NULL;
    char *marks = dt_xcalloc((size_t)n + 1, 2);
    for (int i = 0; i < n; i++) strcpy(marks + 2 * i, i + 1 < n ? "?," : "?");
    char *sql = dt_xprintf("INSERT INTO %s VALUES(%s)", table, marks);
    if (f->rc == SQLITE_OK) f->rc = sqlite3_prepare_v2(f->db, sql, -1, &s, NULL);
    free(sql);
    free(marks);
    return s;
}

static void insert(filler *f, sqlite3_stmt *s) {
    if (f->rc != SQLITE_OK) return;
    sqlite3_step(s);
    f->rc = sqlite3_reset(s);
}

static void bind_text(sqlite3_stmt *s, int i, const char *text) {
    const char *p = text;
    size_t n;
    if (!text) {
        sqlite3_bind_null(s, i);
        return;
    }
    while ((signed char)*p > 0) p++; // ASCII
    while (*p && (n = dt_text_utf8_length(p)) > 0) p += n;
    if (*p)
        sqlite3_bind_blob(s, i, text, (int)strlen(text), SQLITE_STATIC);
    else
        sqlite3_bind_text(s, i, text, (int)(p - text), SQLITE_STATIC);
}

static void bind_hex(sqlite3_stmt *s, int i, uint64_t v) {
    char text[17];
    dt_hash_hex(v, text);
    sqlite3_bind_text(s, i, text, -1, SQLITE_TRANSIENT);
}

// Columns of numbers are NUMERIC: SQLite stores whole numbers as integers.
static void bind_value(sqlite3_stmt *s, int i, const dt_cell *v) {
    if (v->kind == DT_CELL_NUMBER)
        sqlite3_bind_double(s, i, (double)v->number);
    else
        bind_text(s, i, v->text);
}

static const char TABLES[] =
    "CREATE TABLE shards(id INTEGER PRIMARY KEY, path TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " stamp TEXT, first_record INTEGER NOT NULL, n_records INTEGER NOT NULL);"
    "CREATE TABLE columns(name TEXT NOT NULL, column_name TEXT NOT NULL, kind TEXT NOT NULL);"
    "CREATE TABLE lineage(step INTEGER PRIMARY KEY, made_by TEXT, command TEXT, options TEXT,"
    " version TEXT, parent TEXT, parent_hash TEXT);"
    "CREATE TABLE records(id INTEGER PRIMARY KEY, key TEXT NOT NULL, shard INTEGER NOT NULL,"
    " row INTEGER NOT NULL, bytes INTEGER NOT NULL, hash INTEGER, source TEXT);"
    "CREATE TABLE members(record INTEGER NOT NULL, ext TEXT NOT NULL, offset INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, hash INTEGER, PRIMARY KEY(record, ext)) WITHOUT ROWID;"
    "CREATE TABLE facts(name TEXT PRIMARY KEY, value) WITHOUT ROWID;";

static const char VIEW[] =
    "CREATE VIEW catalog AS SELECT r.key AS key, s.path AS shard, r.row AS row, r.bytes AS bytes,"
    " r.source AS source, m.* FROM records r JOIN shards s ON s.id = r.shard"
    " JOIN metadata m ON m.id = r.id";

// SQL names know no case and must be UTF-8; a number behind them makes them distinct. Heap.
static char *sql_name(const filler *f, int n, const char *name) {
    char *base = dt_xstrdup(*name ? name : "column"), *out = dt_xstrdup(base);
    for (char *p = base; *p;) {
        size_t k = dt_text_utf8_length(p);
        if (k == 0) *p = '?';
        p += k ? k : 1;
    }
    for (int k = 1, taken = 1; taken; k++) {
        free(out);
        out = k == 1 ? dt_xstrdup(base) : dt_xprintf("%s_%d", base, k);
        taken = strcasecmp(out, "id") == 0;
        for (int i = 0; i < n && !taken; i++) taken = strcasecmp(f->names[i], out) == 0;
    }
    free(base);
    return out;
}

static void create_metadata(filler *f) {
    sqlite3_str *sql = sqlite3_str_new(f->db);
    sqlite3_str_appendall(sql, "CREATE TABLE metadata(id INTEGER PRIMARY KEY");
    for (int i = 0; i < f->n_columns; i++)
        sqlite3_str_appendf(sql, ", \"%w\" %s", f->names[i],
                            f->readers[i].is_number ? "NUMERIC" : "TEXT");
    sqlite3_str_appendall(sql, ")");
    run_text(f, sqlite3_str_finish(sql));
}

static void fill_columns(filler *f) {
    sqlite3_stmt *s = prepare_insert(f, "columns", 3);
    for (int i = 0; i < f->n_columns && f->rc == SQLITE_OK; i++) {
        bind_text(s, 1, dt_catalog_name(f->c, i + DT_N_FIXED_COLUMNS));
        bind_text(s, 2, f->names[i]);
        bind_text(s, 3, f->readers[i].is_number ? "number" : "text");
        insert(f, s);
    }
    sqlite3_finalize(s);
}

// A shard's records lie together.
static void fill_shards(filler *f) {
    const dt_catalog *c = f->c;
    uint32_t *n = dt_xcalloc(c->n_shards + 1, sizeof *n), first = 0;
    for (uint32_t r = 0; r < c->n_records; r++) n[c->records[r].shard]++;
    sqlite3_stmt *s = prepare_insert(f, "shards", 6);
    for (uint32_t i = 0; i < c->n_shards && f->rc == SQLITE_OK; first += n[i++]) {
        const char *slash = strrchr(c->shards[i].path, '/');
        sqlite3_bind_int64(s, 1, i);
        bind_text(s, 2, slash ? slash + 1 : c->shards[i].path);
        sqlite3_bind_int64(s, 3, (sqlite3_int64)c->shards[i].n_bytes);
        bind_hex(s, 4, c->shards[i].stamp);
        sqlite3_bind_int64(s, 5, first);
        sqlite3_bind_int64(s, 6, n[i]);
        insert(f, s);
    }
    sqlite3_finalize(s);
    free(n);
}

static void fill_facts(filler *f) {
    char hash[17];
    dt_hash_hex(dt_catalog_hash(f->c), hash);
    run_text(f, sqlite3_mprintf("INSERT INTO facts VALUES('hash', %Q), ('n_records', %u), "
                                "('n_shards', %u)",
                                hash, f->c->n_records, f->c->n_shards));
}

static void insert_lineage(filler *f, const dt_lineage *l) {
    const char *text[] = {l->made_by, l->command, l->options, l->version, l->parent};
    sqlite3_stmt *s = prepare_insert(f, "lineage", 7);
    for (int i = 0; i < 5 && f->rc == SQLITE_OK; i++) bind_text(s, i + 2, text[i]);
    if (l->parent_hash) bind_hex(s, 7, l->parent_hash);
    insert(f, s);
    sqlite3_finalize(s);
}

// A parent that is packed has lineage of its own, which comes first.
static void fill_lineage(filler *f, const dt_lineage *l) {
    char *path = l->parent ? dt_catalog_db_path(l->parent) : NULL;
    dt_lineage *steps = NULL;
    int n = 0;
    if (path && dt_io_exists(path) && dt_catalog_db_lineage(path, &steps, &n) != DT_OK)
        dt_error_clear();
    for (int i = 0; i < n; i++) insert_lineage(f, &steps[i]);
    insert_lineage(f, l);
    dt_lineage_free(steps, n);
    free(path);
}

// XXH3 over the members' extension, size and hash; NULL if one has none.
static void bind_record_hash(const filler *f, sqlite3_stmt *s, int i, const dt_record *r,
                             dt_buffer *scratch) {
    bool all = r->n_members > 0;
    scratch->n_bytes = 0;
    for (uint32_t k = 0; k < r->n_members; k++) {
        const dt_member *m = &f->c->members[r->first_member + k];
        const char *ext = dt_catalog_str(f->c, f->c->exts[m->ext]);
        uint64_t numbers[2] = {m->size, m->hash};
        all = all && m->has_hash;
        dt_buffer_append(scratch, ext, strlen(ext) + 1);
        dt_buffer_append(scratch, numbers, sizeof numbers);
    }
    if (all)
        sqlite3_bind_int64(s, i, (sqlite3_int64)dt_hash64(scratch->data, scratch->n_bytes));
    else
        sqlite3_bind_null(s, i);
}

static void fill_records(filler *f, const char *const *sources) {
    const dt_catalog *c = f->c;
    dt_buffer scratch = {0};
    dt_column_reader bytes;
    dt_column_reader_init(&bytes, c, DT_COLUMN_BYTES);
    sqlite3_stmt *s = prepare_insert(f, "records", 7);
    uint32_t first = 0;
    for (uint32_t r = 0; r < c->n_records && f->rc == SQLITE_OK; r++) {
        const dt_record *x = &c->records[r];
        if (x->shard != c->records[first].shard) first = r;
        sqlite3_bind_int64(s, 1, r);
        bind_text(s, 2, dt_catalog_str(c, x->key));
        sqlite3_bind_int64(s, 3, x->shard);
        sqlite3_bind_int64(s, 4, r - first);
        sqlite3_bind_int64(s, 5, (sqlite3_int64)dt_column_reader_get(&bytes, r).number);
        bind_record_hash(f, s, 6, x, &scratch);
        bind_text(s, 7, sources ? sources[r] : NULL);
        insert(f, s);
    }
    sqlite3_finalize(s);
    dt_buffer_fini(&scratch);
}

static void fill_metadata(filler *f) {
    sqlite3_stmt *s = prepare_insert(f, "metadata", f->n_columns + 1);
    for (uint32_t r = 0; r < f->c->n_records && f->rc == SQLITE_OK; r++) {
        sqlite3_bind_int64(s, 1, r);
        for (int i = 0; i < f->n_columns; i++) {
            dt_cell v = dt_column_reader_get(&f->readers[i], r);
            bind_value(s, i + 2, &v);
        }
        insert(f, s);
    }
    sqlite3_finalize(s);
}

static void fill_members(filler *f) {
    const dt_catalog *c = f->c;
    sqlite3_stmt *s = prepare_insert(f, "members", 5);
    for (uint32_t r = 0; r < c->n_records; r++) {
        const dt_record *x = &c->records[r];
        for (uint32_t i = 0; i < x->n_members && f->rc == SQLITE_OK; i++) {
            const dt_member *m = &c->members[x->first_member + i];
            sqlite3_bind_int64(s, 1, r);
            bind_text(s, 2, dt_catalog_str(c, c->exts[m->ext]));
            sqlite3_bind_int64(s, 3, (sqlite3_int64)m->offset);
            sqlite3_bind_int64(s, 4, (sqlite3_int64)m->size);
            if (m->has_hash)
                sqlite3_bind_int64(s, 5, (sqlite3_int64)m->hash);
            else
                sqlite3_bind_null(s, 5);
            insert(f, s);
        }
    }
    sqlite3_finalize(s);
}

static void fill(filler *f, const dt_lineage *l, const char *const *sources) {
    run_text(f, sqlite3_mprintf("PRAGMA page_size = 16384; PRAGMA journal_mode = OFF;"
                                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;"
                                "PRAGMA application_id = %d; PRAGMA user_version = %d; BEGIN",
                                KIND, VERSION));
    run(f, TABLES);
    create_metadata(f);
    run(f, VIEW);
    fill_columns(f);
    fill_shards(f);
    fill_facts(f);
    if (l) fill_lineage(f, l);
    fill_records(f, sources);
    fill_metadata(f);
    fill_members(f);
    run(f, "COMMIT");
}

// ---- writing -------------------------------------------------------------------------------------
static dt_status write_partial(const char *path, const dt_catalog *c, const dt_lineage *l,
                               const char *const *sources) {
    int fd;
    DT_TRY(dt_io_create(&fd, path, false)); // an empty file is an empty database
    filler f = {.c = c, .n_columns = dt_catalog_n_names(c) - DT_N_FIXED_COLUMNS};
    f.readers = dt_xcalloc((size_t)f.n_columns + 1, sizeof *f.readers);
    f.names = dt_xcalloc((size_t)f.n_columns + 1, sizeof *f.names);
    for (int i = 0; i < f.n_columns; i++) {
        dt_column_reader_init(&f.readers[i], c, i + DT_N_FIXED_COLUMNS);
        f.names[i] = sql_name(&f, i, dt_catalog_name(c, i + DT_N_FIXED_COLUMNS));
    }
    f.rc = sqlite3_open_v2(path, &f.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, "unix-none");
    if (f.rc == SQLITE_OK) fill(&f, l, sources);
    dt_status st = f.rc == SQLITE_OK ? DT_OK : fail_of(f.db, path, "write", DT_E_STORAGE);
    sqlite3_close(f.db);
    if (st == DT_OK) st = dt_io_fsync(fd, path);
    dt_status closed = dt_io_close(fd, path);
    if (st == DT_OK) st = closed;
    for (int i = 0; i < f.n_columns; i++) {
        dt_column_reader_fini(&f.readers[i]);
        free(f.names[i]);
    }
    free(f.names);
    free(f.readers);
    return st;
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
    assert(c->finished);
    char *partial = dt_xprintf("%s.partial", path);
    dt_status st = write_partial(partial, c, l, sources);
    if (st == DT_OK) st = dt_io_rename(partial, path);
    if (st == DT_OK) {
        st = sync_folder(path);
    } else if (dt_io_exists(partial)) {
        const dt_error_kept first = dt_error_keep();
        dt_io_unlink(partial);
        dt_error_restore(&first);
    }
    free(partial);
    return st;
}
