// select.c: expressions on a catalog in memory.
//
// Values of metadata columns are made once for each distinct value, so a record costs a lookup for each name
// and a walk over the expression: a million records take 0.1 s.

#include "select.h"

#include "base/core.h"
#include "base/io.h"
#include "base/text.h"

#include <assert.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool dt_text_is_decimal(const char *s) {
    const char *digits = s + (*s == '-'), *p = digits + strspn(digits, "0123456789");
    size_t n = (size_t)(p - digits), most = 18; // in 64 bits
    if (n == 0 || (*digits == '0' && n > 1) || strcmp(s, "-0") == 0) return false;
    if (*p == '.') {
        size_t m = strspn(p + 1, "0123456789");
        if (m == 0) return false;
        n += m;
        p += 1 + m;
        most = 15; // in a double
    }
    return *p == '\0' && n <= most;
}

// ---- names -----------------------------------------------------------------------------------------
int dt_catalog_n_names(const dt_catalog *c) {
    return DT_N_FIXED_COLUMNS + (int)c->table.n_columns;
}

const char *dt_catalog_name(const dt_catalog *c, int column) {
    static const char *const FIXED[] = {"key", "shard", "bytes"};
    return column < DT_N_FIXED_COLUMNS ? FIXED[column] : dt_columns_name(&c->table, column - DT_N_FIXED_COLUMNS);
}

bool dt_catalog_has_name(const dt_catalog *c, const char *name) {
    for (int i = 0; i < (c ? dt_catalog_n_names(c) : DT_N_FIXED_COLUMNS); i++)
        if (strcmp(dt_catalog_name(c, i), name) == 0) return true;
    return false;
}

// The column, or -1 and in `why`: "the set has no column 'x'; …".
static int select_find(const dt_catalog *c, const char *name, char *why, size_t cap) {
    int n = dt_catalog_n_names(c), least = DT_TEXT_FAR;
    const char *near = NULL;
    for (int i = n - 1; i >= 0; i--)
        if (strcmp(dt_catalog_name(c, i), name) == 0) return i;
    for (int i = 0; i < n; i++) {
        const char *other = dt_catalog_name(c, i);
        int d = dt_text_closeness(other, strlen(other), name);
        if (d < least) least = d, near = other;
    }
    size_t at = (size_t)snprintf(why, cap, "the set has no column '%s'", name);
    if (near && at < cap) snprintf(why + at, cap - at, "; did you mean '%s'?", near);
    for (int i = 0; i < n && !near && at < cap; i++)
        at += (size_t)snprintf(why + at, cap - at, "%s%s", i ? ", " : "; it has ", dt_catalog_name(c, i));
    return -1;
}

int dt_catalog_find_name(const dt_catalog *c, const char *name) {
    char why[400];
    int i = select_find(c, name, why, sizeof why);
    if (i < 0) dt_fail(DT_E_USAGE, "%s", why);
    return i;
}

// ---- values ----------------------------------------------------------------------------------------
bool dt_catalog_is_decimal(const dt_catalog *c, int column) {
    const dt_column *col = &c->table.columns[column];
    for (uint32_t v = 0; v < col->n_values; v++)
        if (!dt_text_is_decimal(dt_catalog_str(c, col->values[v]))) return false;
    return true;
}

static void read_texts(dt_column_reader *r, int column) {
    const dt_column *col = &r->c->table.columns[column];
    r->is_number = dt_catalog_is_decimal(r->c, column);
    r->values = dt_xcalloc((size_t)col->n_values + 1, sizeof *r->values);
    for (uint32_t v = 0; v < col->n_values; v++) {
        const char *text = dt_catalog_str(r->c, col->values[v]);
        r->values[v] = r->is_number ? dt_cell_decimal(text) : dt_cell_text(text);
    }
}

void dt_column_reader_init(dt_column_reader *r, const dt_catalog *c, int column) {
    int text = column - DT_N_FIXED_COLUMNS;
    *r = (dt_column_reader){.c = c, .column = column, .is_number = column == DT_COLUMN_BYTES};
    if (column == DT_COLUMN_SHARD) {
        r->values = dt_xcalloc((size_t)c->n_shards + 1, sizeof *r->values);
        for (uint32_t s = 0; s < c->n_shards; s++) r->values[s] = dt_cell_text(dt_path_base(c->shards[s].path));
    } else if (text >= 0 && c->table.columns[text].number) {
        r->is_number = true;
    } else if (text >= 0) {
        read_texts(r, text);
    }
}

void dt_column_reader_fini(dt_column_reader *r) {
    free(r->values);
    r->values = NULL;
}

static dt_cell select_bytes_of(const dt_catalog *c, const dt_record *r) {
    uint64_t n = 0;
    for (uint32_t m = 0; m < r->n_members; m++) n += c->members[r->first_member + m].size;
    return (dt_cell){DT_CELL_NUMBER, NULL, n};
}

dt_cell dt_column_reader_get(const dt_column_reader *r, uint32_t record) {
    const dt_catalog *c = r->c;
    const dt_record *x = &c->records[record];
    int text = r->column - DT_N_FIXED_COLUMNS;
    if (r->column == DT_COLUMN_KEY) return dt_cell_text(dt_catalog_str(c, x->key));
    if (r->column == DT_COLUMN_SHARD) return r->values[x->shard];
    if (r->column == DT_COLUMN_BYTES) return select_bytes_of(c, x);
    if (!r->values) return dt_cell_real(dt_catalog_real(c, text, record));
    uint32_t cell = dt_catalog_cell(c, text, record);
    return cell == DT_NO_VALUE ? (dt_cell){.kind = DT_CELL_NULL} : r->values[cell];
}

// ---- records ---------------------------------------------------------------------------------------
// An expression, and for each of its names the column that has the values.
typedef struct asker {
    dt_expr *e;
    int n;
    dt_column_reader *readers;
    dt_cell *values;
} asker;

static dt_status open_asker(asker *a, const dt_catalog *c, dt_expr *e) {
    char why[400];
    *a = (asker){.e = e, .n = dt_expr_n_names(e)};
    a->readers = dt_xcalloc((size_t)a->n + 1, sizeof *a->readers);
    a->values = dt_xcalloc((size_t)a->n + 1, sizeof *a->values);
    for (int i = 0; i < a->n; i++) {
        int column = select_find(c, dt_expr_name(e, i), why, sizeof why);
        if (column < 0) return dt_expr_fail_name(e, i, "%s", why);
        dt_column_reader_init(&a->readers[i], c, column);
    }
    return DT_OK;
}

static const dt_cell *values_of(const asker *a, uint32_t record) {
    for (int i = 0; i < a->n; i++) a->values[i] = dt_column_reader_get(&a->readers[i], record);
    return a->values;
}

static void close_asker(asker *a) {
    for (int i = 0; i < a->n; i++) dt_column_reader_fini(&a->readers[i]);
    free(a->readers);
    free(a->values);
    dt_expr_destroy(a->e);
}

dt_status dt_catalog_select(const dt_catalog *c, const char *expression, bool *keep, uint32_t *n) {
    dt_expr *e;
    asker a;
    *n = 0;
    DT_TRY(dt_expr_parse(&e, expression));
    dt_status st = open_asker(&a, c, e);
    for (uint32_t r = 0; r < c->n_records && st == DT_OK; r++) {
        keep[r] = dt_expr_is_true(e, values_of(&a, r));
        *n += keep[r];
    }
    close_asker(&a);
    return st;
}

// ---- derived columns ---------------------------------------------------------------------------------
bool dt_cells_are_reals(const dt_cell *v, size_t n) {
    bool fraction = false;
    for (size_t i = 0; i < n; i++) {
        if (v[i].kind == DT_CELL_TEXT) return false;
        fraction = fraction || (v[i].kind == DT_CELL_NUMBER && !dt_cell_is_whole(&v[i]));
    }
    return fraction;
}

const char *dt_cell_kept(const dt_cell *v, dt_arena *arena) {
    char text[DT_REAL_CHARS];
    if (v->kind == DT_CELL_NULL) return NULL;
    return v->text ? v->text : dt_arena_strdup(arena, dt_cell_string(v, text));
}

static dt_status select_add_cells(dt_catalog *c, const char *name, const dt_cell *v, dt_arena *arena) {
    const uint32_t n = c->n_records;
    if (dt_cells_are_reals(v, n)) {
        double *real = dt_xcalloc((size_t)n + 1, sizeof *real);
        for (uint32_t r = 0; r < n; r++) real[r] = v[r].kind == DT_CELL_NULL ? NAN : (double)v[r].number;
        return dt_columns_add_numbers(&c->table, name, real);
    }
    const char **text = dt_xcalloc((size_t)n + 1, sizeof *text);
    for (uint32_t r = 0; r < n; r++) text[r] = dt_cell_kept(&v[r], arena);
    const dt_status st = dt_columns_add_texts(&c->table, name, text);
    free(text);
    return st;
}

dt_status dt_catalog_derive(dt_catalog *c, const char *name, const char *expression) {
    dt_expr *e;
    asker a;
    dt_arena arena;
    if (dt_catalog_has_name(c, name))
        return dt_fail(DT_E_USAGE, "the set has a column '%s' already: choose another name", name);
    DT_TRY(dt_expr_parse_value(&e, expression));
    dt_arena_init(&arena);
    dt_cell *v = dt_xcalloc((size_t)c->n_records + 1, sizeof *v);
    dt_status st = open_asker(&a, c, e);
    for (uint32_t r = 0; r < c->n_records && st == DT_OK; r++) v[r] = dt_expr_value(e, values_of(&a, r), &arena);
    if (st == DT_OK) st = select_add_cells(c, name, v, &arena);
    close_asker(&a);
    free(v);
    dt_arena_fini(&arena);
    return st;
}

// ---- catalog db ---------------------------------------------------------------------------------------------------

// Writes a catalog as an SQLite database, by prepared statements in one transaction.
//
// The database is written to a temporary file without a journal: if anything fails, the file is thrown away,
// which is what a journal would be for. SQLite takes no locks ("unix-none"), as nobody else knows the file and
// some network file systems have none. There are no indexes: they would double the file.

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
