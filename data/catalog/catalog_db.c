// catalog_db.c: writes a catalog as an SQLite database, by prepared statements in one transaction.
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
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { KIND = 0x44546361, VERSION = 2 }; // application_id, user_version

// Fails with the cause of SQLite's last failure: "path: cannot <verb>: …".
static dt_status fail_of(sqlite3 *db, const char *path, const char *verb, dt_status code) {
    int rc = sqlite3_errcode(db), err = sqlite3_system_errno(db);
    bool of_system = rc == SQLITE_IOERR || rc == SQLITE_FULL || rc == SQLITE_CANTOPEN;
    if (rc == SQLITE_NOMEM) return dt_fail(DT_E_INTERNAL, "%s: out of memory", path);
    if (of_system && err) return dt_io_read_error(path, verb, err, code);
    return dt_fail(code, "%s: cannot %s: %s", path, verb, sqlite3_errmsg(db));
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
    char *sql = dt_xprintf("INSERT INTO %s VALUES(", table);
    for (int i = 0; i < n; i++) dt_xappend(&sql, i + 1 < n ? "?," : "?)");
    if (f->rc == SQLITE_OK) f->rc = sqlite3_prepare_v2(f->db, sql, -1, &s, NULL);
    free(sql);
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

static const char TABLES[] =
    "CREATE TABLE shards(id INTEGER PRIMARY KEY, path TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " stamp TEXT, first_record INTEGER NOT NULL, n_records INTEGER NOT NULL);"
    "CREATE TABLE columns(name TEXT NOT NULL, column_name TEXT NOT NULL, kind TEXT NOT NULL);"
    "CREATE TABLE records(id INTEGER PRIMARY KEY, key TEXT NOT NULL, shard INTEGER NOT NULL,"
    " row INTEGER NOT NULL, bytes INTEGER NOT NULL);"
    "CREATE TABLE members(record INTEGER NOT NULL, ext TEXT NOT NULL, offset INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, hash INTEGER, PRIMARY KEY(record, ext)) WITHOUT ROWID;";

static const char VIEW[] =
    "CREATE VIEW catalog AS SELECT r.key AS key, s.path AS shard, r.row AS row, r.bytes AS bytes,"
    " m.* FROM records r JOIN shards s ON s.id = r.shard"
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
        char stamp[17];
        dt_hash_hex(c->shards[i].stamp, stamp);
        sqlite3_bind_int64(s, 1, i);
        bind_text(s, 2, dt_path_base(c->shards[i].path));
        sqlite3_bind_int64(s, 3, (sqlite3_int64)c->shards[i].n_bytes);
        bind_text(s, 4, stamp);
        sqlite3_bind_int64(s, 5, first);
        sqlite3_bind_int64(s, 6, n[i]);
        insert(f, s);
    }
    sqlite3_finalize(s);
    free(n);
}

static void fill_records(filler *f) {
    const dt_catalog *c = f->c;
    dt_column_reader bytes;
    dt_column_reader_init(&bytes, c, DT_COLUMN_BYTES);
    sqlite3_stmt *s = prepare_insert(f, "records", 5);
    uint32_t first = 0;
    for (uint32_t r = 0; r < c->n_records && f->rc == SQLITE_OK; r++) {
        const dt_record *x = &c->records[r];
        if (x->shard != c->records[first].shard) first = r;
        sqlite3_bind_int64(s, 1, r);
        bind_text(s, 2, dt_catalog_str(c, x->key));
        sqlite3_bind_int64(s, 3, x->shard);
        sqlite3_bind_int64(s, 4, r - first);
        sqlite3_bind_int64(s, 5, (sqlite3_int64)dt_column_reader_get(&bytes, r).number);
        insert(f, s);
    }
    sqlite3_finalize(s);
}

static void fill_metadata(filler *f) {
    sqlite3_stmt *s = prepare_insert(f, "metadata", f->n_columns + 1);
    for (uint32_t r = 0; r < f->c->n_records && f->rc == SQLITE_OK; r++) {
        sqlite3_bind_int64(s, 1, r);
        for (int i = 0; i < f->n_columns; i++) {
            dt_cell v = dt_column_reader_get(&f->readers[i], r);
            if (v.kind == DT_CELL_NUMBER) // into a NUMERIC column: whole numbers become integers
                sqlite3_bind_double(s, i + 2, (double)v.number);
            else
                bind_text(s, i + 2, v.text);
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

static void fill(filler *f) {
    run_text(f, sqlite3_mprintf("PRAGMA page_size = 16384; PRAGMA journal_mode = OFF;"
                                "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;"
                                "PRAGMA application_id = %d; PRAGMA user_version = %d; BEGIN",
                                KIND, VERSION));
    run(f, TABLES);
    create_metadata(f);
    run(f, VIEW);
    fill_columns(f);
    fill_shards(f);
    fill_records(f);
    fill_metadata(f);
    fill_members(f);
    run(f, "COMMIT");
}

// ---- writing -------------------------------------------------------------------------------------
// `file`: an empty one, which is an empty database.
static dt_status write_rows(const dt_io_file *file, const dt_catalog *c) {
    filler f = {.c = c, .n_columns = dt_catalog_n_names(c) - DT_N_FIXED_COLUMNS};
    f.readers = dt_xcalloc((size_t)f.n_columns + 1, sizeof *f.readers);
    f.names = dt_xcalloc((size_t)f.n_columns + 1, sizeof *f.names);
    for (int i = 0; i < f.n_columns; i++) {
        dt_column_reader_init(&f.readers[i], c, i + DT_N_FIXED_COLUMNS);
        f.names[i] = sql_name(&f, i, dt_catalog_name(c, i + DT_N_FIXED_COLUMNS));
    }
    f.rc = sqlite3_open_v2(file->temporary, &f.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                           "unix-none");
    if (f.rc == SQLITE_OK) fill(&f);
    dt_status st = f.rc == SQLITE_OK ? DT_OK : fail_of(f.db, file->path, "write", DT_E_STORAGE);
    sqlite3_close(f.db);
    for (int i = 0; i < f.n_columns; i++) {
        dt_column_reader_fini(&f.readers[i]);
        free(f.names[i]);
    }
    free(f.names);
    free(f.readers);
    return st;
}

dt_status dt_catalog_db_write(const char *path, const dt_catalog *c) {
    assert(c->finished);
    dt_io_file file;
    dt_status st = dt_io_begin(&file, path);
    if (st == DT_OK) st = write_rows(&file, c);
    return dt_io_end(&file, st);
}
