// catalog_check.c: reads catalog databases: their lineage, and whether they say what the indexes say.
#include "catalog_db.h"
#include "catalog_db_internal.h"
#include "select.h"

#include "base/arena.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>

dt_status dt_catalog_db_fail(sqlite3 *db, const char *path, const char *verb, dt_status code) {
    int rc = sqlite3_errcode(db), err = sqlite3_system_errno(db);
    bool of_system = rc == SQLITE_IOERR || rc == SQLITE_FULL || rc == SQLITE_CANTOPEN;
    if (rc == SQLITE_NOMEM) return dt_fail(DT_E_INTERNAL, "%s: out of memory", path);
    if (of_system && err) return dt_io_read_error(path, verb, err, code);
    return dt_fail(code, "%s: cannot %s: %s", path, verb, sqlite3_errmsg(db));
}

static dt_status damaged(sqlite3 *db, const char *path) {
    dt_status st = dt_catalog_db_fail(db, path, "read", DT_E_DATA);
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
    if (kind != DT_CATALOG_DB_KIND)
        return dt_fail(DT_E_DATA, "%s: not a catalog of dtrain's; remove it or pack again", path);
    if (number_of(db, "PRAGMA user_version") != DT_CATALOG_DB_VERSION)
        return dt_fail(DT_E_DATA, "%s: a catalog of another version of dtrain; pack again", path);
    return DT_OK;
}

// Read only and without locks: many processes may read it on a network file system.
static dt_status open_db(sqlite3 **out, const char *path) {
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    dt_status st = DT_OK;
    if (sqlite3_open_v2(path, out, flags, "unix-none") != SQLITE_OK)
        st = dt_catalog_db_fail(*out, path, "open", DT_E_DATA);
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
