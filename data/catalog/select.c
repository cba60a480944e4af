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

static const char *const FIXED[] = {"key", "shard", "bytes"};

// ---- names -----------------------------------------------------------------------------------------
int dt_catalog_n_names(const dt_catalog *c) {
    return DT_N_FIXED_COLUMNS + (int)c->table.n_columns;
}

const char *dt_catalog_name(const dt_catalog *c, int column) {
    return column < DT_N_FIXED_COLUMNS ? FIXED[column] : dt_columns_name(&c->table, column - DT_N_FIXED_COLUMNS);
}

bool dt_catalog_has_name(const dt_catalog *c, const char *name) {
    for (int i = 0; i < (c ? dt_catalog_n_names(c) : DT_N_FIXED_COLUMNS); i++)
        if (strcmp(dt_catalog_name(c, i), name) == 0) return true;
    return false;
}

// "the set has no column 'x'; …": the nearest name, or all.
static void describe_missing(const dt_query_scope *scope, const char *name, char *why, size_t cap) {
    const dt_columns *t = scope->table[0];
    const int n = scope->n_given + (int)t->n_columns;
    int least = DT_TEXT_FAR;
    const char *near = NULL;
    size_t at = (size_t)snprintf(why, cap, "the set has no column '%s'", name);
    for (int pass = 0; pass < 2 && !near; pass++)
        for (int i = 0; i < n && at < cap; i++) {
            const char *other = i < scope->n_given ? scope->given[i] : dt_columns_name(t, i - scope->n_given);
            const int d = dt_text_closeness(other, strlen(other), name);
            if (pass == 0 && d < least) least = d, near = other;
            if (pass > 0) at += (size_t)snprintf(why + at, cap - at, "%s%s", i ? ", " : "; it has ", other);
        }
    if (near) snprintf(why + at, cap - at, "; did you mean '%s'?", near);
}

// ---- one column ------------------------------------------------------------------------------------
// Whether all values are plain decimals.
static bool is_decimal(const dt_columns *t, int column) {
    const dt_column *col = &t->columns[column];
    for (uint32_t v = 0; v < col->n_values; v++)
        if (!dt_text_is_decimal(dt_columns_str(t, col->values[v]))) return false;
    for (uint32_t r = 0; r < t->n_rows && col->cell && !col->values; r++)
        if (col->cell[r] != DT_NO_VALUE && !dt_text_is_decimal(dt_columns_text(t, column, r))) return false;
    return true;
}

static void reader_open(dt_column_accessor *r, const dt_columns *t, int column, bool is_number) {
    const dt_column *col = &t->columns[column];
    *r = (dt_column_accessor){.t = t, .column = column, .is_number = is_number};
    if (!col->values) return;
    r->values = dt_xcalloc((size_t)col->n_values + 1, sizeof *r->values);
    for (uint32_t v = 0; v < col->n_values; v++) {
        const char *text = dt_columns_str(t, col->values[v]);
        r->values[v] = is_number ? dt_cell_decimal(text) : dt_cell_text(text);
    }
}

void dt_column_accessor_init(dt_column_accessor *r, const dt_catalog *c, int column) {
    const int k = column - DT_N_FIXED_COLUMNS;
    if (k < 0)
        *r = (dt_column_accessor){.c = c, .column = column, .is_number = column == DT_COLUMN_BYTES};
    else
        reader_open(r, &c->table, k, is_decimal(&c->table, k));
}

void dt_column_accessor_fini(dt_column_accessor *r) {
    free(r->values);
    r->values = NULL;
}

static dt_cell fixed_cell(const dt_catalog *c, uint32_t record, int column) {
    const dt_record *x = &c->records[record];
    uint64_t n_bytes = 0;
    if (column == DT_COLUMN_KEY) return dt_cell_text(dt_catalog_str(c, x->key));
    if (column == DT_COLUMN_SHARD) return dt_cell_text(dt_path_base(c->shards[x->shard].path));
    for (uint32_t m = 0; m < x->n_members; m++) n_bytes += c->members[x->first_member + m].size;
    return (dt_cell){DT_CELL_NUMBER, NULL, n_bytes};
}

// A number as its column has it; its text lies in `buffer`.
static dt_cell number_cell(double v, bool is_number, char buffer[DT_REAL_CHARS]) {
    return is_number || isnan(v) ? dt_cell_real(v) : dt_cell_text(dt_real_text(buffer, v));
}

static dt_cell reader_cell(const dt_column_accessor *r, uint32_t row, char buffer[DT_REAL_CHARS]) {
    const dt_column *col = &r->t->columns[r->column];
    if (col->number) return number_cell(col->number[row], r->is_number, buffer);
    if (r->values) return col->cell[row] == DT_NO_VALUE ? dt_cell_text(NULL) : r->values[col->cell[row]];
    const char *text = dt_columns_text(r->t, r->column, row);
    return r->is_number ? dt_cell_decimal(text) : dt_cell_text(text);
}

dt_cell dt_column_accessor_get(const dt_column_accessor *r, uint32_t record) {
    return r->t ? reader_cell(r, record, NULL) : fixed_cell(r->c, record, r->column);
}

// ---- an expression on records of tables ----------------------------------------------------------------
struct dt_query_name {
    dt_column_accessor of[2]; // t NULL: the table has no such column
    bool is_number;
    int given; // or -1
};

dt_status dt_query_open(dt_query *q, dt_expr *e, const dt_query_scope *scope) {
    *q = (dt_query){.scope = *scope, .e = e};
    q->names = dt_xcalloc((size_t)dt_expr_n_names(e) + 1, sizeof *q->names);
    for (int i = 0; i < dt_expr_n_names(e); i++) {
        const char *name = dt_expr_name(e, i);
        struct dt_query_name *to = &q->names[i];
        int column[2] = {-1, -1};
        to->is_number = true;
        for (int k = 0; k < 2 && scope->table[k]; k++) {
            column[k] = dt_columns_find(scope->table[k], name, DT_TEXT_COLUMN | DT_NUMBER_COLUMN);
            if (column[k] >= 0) to->is_number = to->is_number && is_decimal(scope->table[k], column[k]);
        }
        for (int k = 0; k < 2; k++)
            if (column[k] >= 0) reader_open(&to->of[k], scope->table[k], column[k], to->is_number);
        for (to->given = scope->n_given - 1; to->given >= 0; to->given--)
            if (strcmp(scope->given[to->given], name) == 0) break;
        if (column[0] >= 0 || column[1] >= 0 || to->given >= 0) continue;
        if (scope->missing) return dt_expr_fail_name(e, i, "no record has a column '%s': %s", name, scope->missing);
        char why[400];
        describe_missing(scope, name, why, sizeof why);
        return dt_expr_fail_name(e, i, "%s", why);
    }
    return DT_OK;
}

void dt_query_close(dt_query *q) {
    for (int i = 0; q->e && i < 2 * dt_expr_n_names(q->e); i++) dt_column_accessor_fini(&q->names[i / 2].of[i % 2]);
    free(q->names);
    dt_expr_destroy(q->e);
    *q = (dt_query){0};
}

dt_cell *dt_query_buffer(const dt_query *q) {
    return dt_xcalloc((size_t)dt_expr_n_names(q->e) + 1, sizeof(dt_cell) + DT_REAL_CHARS);
}

const dt_cell *dt_query_values(const dt_query *q, dt_cell *cells, const uint32_t row[2], const void *record) {
    const int n = dt_expr_n_names(q->e);
    char(*text)[DT_REAL_CHARS] = (void *)(cells + n);
    for (int k = 0; k < n; k++) {
        const struct dt_query_name *from = &q->names[k];
        const bool measured = from->given >= 0 && from->given < q->scope.n_measured;
        dt_cell v = from->of[0].t ? reader_cell(&from->of[0], row[0], text[k]) : dt_cell_text(NULL);
        if (v.kind == DT_CELL_NULL && measured) {
            v = q->scope.value(record, from->given);
            if (v.kind != DT_CELL_NULL) v = number_cell((double)v.number, from->is_number, text[k]);
        }
        if (v.kind == DT_CELL_NULL && from->of[1].t) v = reader_cell(&from->of[1], row[1], text[k]);
        if (!from->of[0].t && !from->of[1].t && from->given >= 0 && !measured) v = q->scope.value(record, from->given);
        cells[k] = v;
    }
    return cells;
}

// ---- derived columns ---------------------------------------------------------------------------------
static dt_status add_cells(dt_columns *t, const char *name, const dt_cell *v, dt_arena *arena) {
    char buffer[DT_REAL_CHARS];
    bool texts = false, fraction = false;
    for (uint32_t r = 0; r < t->n_rows; r++) {
        texts = texts || v[r].kind == DT_CELL_TEXT;
        fraction = fraction || (v[r].kind == DT_CELL_NUMBER && !dt_cell_is_whole(&v[r]));
    }
    if (fraction && !texts) {
        double *real = dt_xcalloc((size_t)t->n_rows + 1, sizeof *real);
        for (uint32_t r = 0; r < t->n_rows; r++) real[r] = v[r].kind == DT_CELL_NULL ? NAN : (double)v[r].number;
        return dt_columns_add_numbers(t, name, real);
    }
    const char **text = dt_xcalloc((size_t)t->n_rows + 1, sizeof *text);
    for (uint32_t r = 0; r < t->n_rows; r++)
        if (v[r].kind != DT_CELL_NULL)
            text[r] = v[r].text ? v[r].text : dt_arena_strdup(arena, dt_cell_string(&v[r], buffer));
    const dt_status st = dt_columns_add_texts(t, name, text);
    free(text);
    return st;
}

dt_status dt_query_derive(dt_columns *to, const char *name, const char *expression, const dt_query_scope *scope,
                          size_t n, dt_query_at *at, void *records, bool *any) {
    dt_expr *e;
    dt_query q;
    dt_arena arena;
    uint32_t row[2] = {0};
    bool some = !any;
    DT_TRY(dt_expr_parse_value(&e, expression));
    dt_arena_init(&arena);
    dt_cell *v = dt_xcalloc((size_t)to->n_rows + 1, sizeof *v);
    dt_status st = dt_query_open(&q, e, scope);
    dt_cell *cells = dt_query_buffer(&q);
    for (size_t i = 0; i < n && st == DT_OK; i++) {
        const void *record = at(records, i, row);
        dt_cell one;
        st = dt_expr_value(e, dt_query_values(&q, cells, row, record), &arena, &one);
        if (one.text) one.text = dt_arena_strdup(&arena, one.text); // else of the table, where it moves, or of `cells`
        v[row[0]] = one;
        some = some || one.kind != DT_CELL_NULL;
    }
    if (st == DT_OK && some) st = add_cells(to, name, v, &arena);
    if (any) *any = some;
    dt_query_close(&q);
    free(cells);
    free(v);
    dt_arena_fini(&arena);
    return st;
}

// ---- records of a catalog ------------------------------------------------------------------------------
typedef struct catalog_row {
    const dt_catalog *c;
    uint32_t record;
} catalog_row;

static const void *select_at(void *records, size_t i, uint32_t row[2]) {
    catalog_row *x = records;
    row[0] = x->record = (uint32_t)i;
    return x;
}

static dt_cell select_value(const void *arg, int given) {
    const catalog_row *x = arg;
    return fixed_cell(x->c, x->record, given);
}

static dt_query_scope catalog_scope(const dt_catalog *c) {
    return (dt_query_scope){.table = {&c->table}, .given = FIXED, .n_given = DT_N_FIXED_COLUMNS, .value = select_value};
}

int dt_catalog_find_name(const dt_catalog *c, const char *name) {
    char why[400];
    int i = dt_catalog_n_names(c);
    while (i > 0)
        if (strcmp(dt_catalog_name(c, --i), name) == 0) return i; // own columns hide the fixed ones
    const dt_query_scope scope = catalog_scope(c);
    describe_missing(&scope, name, why, sizeof why);
    dt_fail(DT_E_USAGE, "%s", why);
    return -1;
}

dt_status dt_catalog_select(const dt_catalog *c, const char *expression, bool *keep, uint32_t *n) {
    const dt_query_scope scope = catalog_scope(c);
    catalog_row at = {.c = c};
    uint32_t row[2] = {0};
    dt_expr *e;
    dt_query q;
    *n = 0;
    DT_TRY(dt_expr_parse(&e, expression));
    dt_status st = dt_query_open(&q, e, &scope);
    dt_cell *cells = dt_query_buffer(&q);
    for (uint32_t r = 0; r < c->n_records && st == DT_OK; r++) {
        st = dt_expr_is_true(e, dt_query_values(&q, cells, row, select_at(&at, r, row)), &keep[r]);
        *n += keep[r];
    }
    free(cells);
    dt_query_close(&q);
    return st;
}

dt_status dt_catalog_derive(dt_catalog *c, const char *name, const char *expression) {
    const dt_query_scope scope = catalog_scope(c);
    if (dt_catalog_has_name(c, name))
        return dt_fail(DT_E_USAGE, "the set has a column '%s' already: choose another name", name);
    return dt_query_derive(&c->table, name, expression, &scope, c->n_records, select_at, &(catalog_row){.c = c}, NULL);
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
    dt_column_accessor *readers; // by column
    char **names;                // in SQL, by column
    int rc;                      // first failure
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
            const dt_cell v = dt_column_accessor_get(&f->readers[i], r);
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
        dt_column_accessor_init(&f.readers[i], c, i);
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
        dt_column_accessor_fini(&f.readers[i]);
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
