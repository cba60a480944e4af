// catalog_db.c: writes a catalog as an SQLite database, by prepared statements in one transaction.
//
// The database is written to a temporary file without a journal: if anything fails, the file is thrown away,
// which is what a journal would be for. SQLite takes no locks ("unix-none"), as nobody else knows the file and
// some network file systems have none. There are no indexes: they would double the file.
#include "catalog_db.h"
#include "select.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/text.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct filler {
    sqlite3 *db;
    const dt_catalog *c;
    int n_columns;
    dt_column_reader *readers; // by column
    char **names;              // in SQL, by column
    int rc;                    // first failure
} filler;

static void catalog_db_run(filler *f, const char *sql) {
    if (f->rc == SQLITE_OK) f->rc = sqlite3_exec(f->db, sql, NULL, NULL, NULL);
}

// Text that is not UTF-8 becomes a BLOB.
static void bind_text(sqlite3_stmt *s, int i, const char *text) {
    const char *p = dt_text_utf8_end(text);
    if (*p)
        sqlite3_bind_blob(s, i, text, (int)strlen(text), SQLITE_STATIC);
    else
        sqlite3_bind_text(s, i, text, (int)(p - text), SQLITE_STATIC);
}

// Whole numbers become integers in a NUMERIC column, and above 2^53 no double holds them all.
static void bind_number(sqlite3_stmt *s, int i, long double v) {
    if (v >= -0x1p63L && v < 0x1p63L && (long double)(int64_t)v == v)
        sqlite3_bind_int64(s, i, (int64_t)v);
    else
        sqlite3_bind_double(s, i, (double)v);
}

static bool is_taken(const filler *f, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcasecmp(f->names[i], name) == 0) return true;
    return strcasecmp(name, "id") == 0;
}

// Names in SQL know no case; a number makes them distinct. Heap.
static char *sql_name(const filler *f, int n, const char *name) {
    char clean[256];
    dt_text_clean(clean, sizeof clean, *name ? name : "column");
    char *out = dt_xstrdup(clean);
    for (int k = 2; is_taken(f, n, out); k++) {
        free(out);
        out = dt_xprintf("%s_%d", clean, k);
    }
    return out;
}

static void create_table(filler *f) {
    sqlite3_str *sql = sqlite3_str_new(f->db);
    sqlite3_str_appendall(sql, "CREATE TABLE catalog(id INTEGER PRIMARY KEY");
    for (int i = 0; i < f->n_columns; i++)
        sqlite3_str_appendf(sql, ", \"%w\" %s", f->names[i], f->readers[i].is_number ? "NUMERIC" : "TEXT");
    sqlite3_str_appendchar(sql, 1, ')');
    char *text = sqlite3_str_finish(sql);
    catalog_db_run(f, text);
    sqlite3_free(text);
}

static void fill_table(filler *f) {
    sqlite3_stmt *s = NULL;
    char *sql = dt_xprintf("INSERT INTO catalog VALUES(?");
    for (int i = 0; i < f->n_columns; i++) dt_xappend(&sql, ",?");
    dt_xappend(&sql, ")");
    if (f->rc == SQLITE_OK) f->rc = sqlite3_prepare_v2(f->db, sql, -1, &s, NULL);
    for (uint32_t r = 0; r < f->c->n_records && f->rc == SQLITE_OK; r++) {
        sqlite3_bind_int64(s, 1, r);
        for (int i = 0; i < f->n_columns; i++) {
            const dt_cell v = dt_column_reader_get(&f->readers[i], r);
            if (v.kind == DT_CELL_NUMBER)
                bind_number(s, i + 2, v.number);
            else if (v.kind == DT_CELL_TEXT)
                bind_text(s, i + 2, v.text);
            else
                sqlite3_bind_null(s, i + 2);
        }
        sqlite3_step(s);
        f->rc = sqlite3_reset(s);
    }
    sqlite3_finalize(s);
    free(sql);
}

// The cause of SQLite's last failure.
static dt_status fail_to_write(sqlite3 *db, const char *path) {
    const int rc = sqlite3_errcode(db), err = sqlite3_system_errno(db);
    if ((rc == SQLITE_IOERR || rc == SQLITE_FULL || rc == SQLITE_CANTOPEN) && err)
        return dt_io_read_error(path, "write", err, DT_E_STORAGE);
    return dt_fail(DT_E_STORAGE, "%s: cannot write: %s", path, sqlite3_errmsg(db));
}

// `file`: an empty one, which is an empty database.
static dt_status write_rows(const dt_io_file *file, const dt_catalog *c) {
    filler f = {.c = c, .n_columns = dt_catalog_n_names(c)};
    f.readers = dt_xcalloc((size_t)f.n_columns, sizeof *f.readers);
    f.names = dt_xcalloc((size_t)f.n_columns, sizeof *f.names);
    for (int i = 0; i < f.n_columns; i++) {
        dt_column_reader_init(&f.readers[i], c, i);
        f.names[i] = sql_name(&f, i, dt_catalog_name(c, i));
    }
    f.rc = sqlite3_open_v2(file->temporary, &f.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, "unix-none");
    catalog_db_run(&f, "PRAGMA journal_mode = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = OFF;"
                       "BEGIN");
    create_table(&f);
    fill_table(&f);
    catalog_db_run(&f, "COMMIT");
    const dt_status st = f.rc == SQLITE_OK ? DT_OK : fail_to_write(f.db, file->path);
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
