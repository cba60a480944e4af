// where.c: the expression language of the catalog (catalog/expression.h), on one record at a time.
//
// The same text means the same here as in `dtrain data query` on the finished set: it becomes the same SQL,
// evaluated by SQLite, with a parameter in the place of each column. A cast gives the parameter what the
// database's column would have: numbers if all values of the column are plain decimals, else text. That is
// known beforehand, as the list is. Each thread has a connection of its own, to no database.
#include "where.h"
#include "data/catalog/catalog_db.h"
#include "data/catalog/expression.h"

#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PARAMETER = DT_EXPR_MAX_LITERALS + 1, MAX_NAMES = 512 };

// Where a name's value comes from; what a transform found out goes before metadata of that name.
typedef enum fixed { NOT_FIXED, KEY, BYTES, SOURCE } fixed;
typedef struct name_use {
    const char *name;
    fixed fixed;
    int column;     // of the list, or -1
    int text, real; // of the source's catalog, or -1
    bool of_transform, is_text;
} name_use;

struct dt_where {
    dt_expr *e;
    char *sql;
    const dt_raw *raw;
    int n;
    name_use use[MAX_NAMES];
};

struct dt_where_scratch {
    const dt_where *w;
    sqlite3 *db;
    sqlite3_stmt *stmt;
    dt_buffer key;
};

// ---- names --------------------------------------------------------------------------------------------
static bool all_decimal(const char *const *values, const uint32_t *cell, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (cell[i] != DT_NO_VALUE && !dt_catalog_is_decimal(values[cell[i]])) return false;
    return true;
}

static bool set_column_is_text(const dt_catalog *c, int k) {
    const dt_column *col = &c->columns[k];
    for (uint32_t v = 0; v < col->n_values; v++)
        if (!dt_catalog_is_decimal(dt_catalog_str(c, col->values[v]))) return true;
    return false;
}

static bool find_in_transform(name_use *u, const dt_transform *t) {
    for (const char *const *n = dt_transform_columns(t); *n; n++)
        if (strcmp(*n + (**n == '='), u->name) == 0) {
            u->of_transform = true;
            u->is_text = **n == '=';
        }
    return u->of_transform;
}

static bool find_in_list(name_use *u, const dt_raw *raw) {
    for (int k = 0; k < raw->n_columns; k++) {
        const dt_raw_column *c = &raw->columns[k];
        if (c->kind == DT_RAW_JSON || strcmp(c->name, u->name) != 0) continue;
        u->column = k;
        u->is_text = u->is_text || (c->cell && !all_decimal(raw->values, c->cell, raw->n_rows));
    }
    if (raw->catalog) {
        const dt_catalog *c = raw->catalog;
        u->text = dt_catalog_find_column(c, u->name);
        u->real = dt_catalog_find_real(c, u->name);
        u->is_text = u->is_text || (u->text >= 0 && set_column_is_text(c, u->text));
    }
    return u->column >= 0 || u->text >= 0 || u->real >= 0;
}

static bool find_fixed(name_use *u) {
    static const char *const NAMES[] = {"", "key", "bytes", "source"};
    for (int i = KEY; i <= SOURCE; i++)
        if (strcmp(NAMES[i], u->name) == 0) {
            u->fixed = (fixed)i;
            u->is_text = i != BYTES;
        }
    return u->fixed != NOT_FIXED;
}

static dt_status resolve(dt_where *w, const dt_transform *t) {
    w->n = dt_expr_n_names(w->e);
    if (w->n > MAX_NAMES) return dt_fail(DT_E_USAGE, "--where: more than %d names", MAX_NAMES);
    for (int i = 0; i < w->n; i++) {
        name_use *u = &w->use[i];
        *u = (name_use){.name = dt_expr_name(w->e, i), .column = -1, .text = -1, .real = -1};
        bool found = find_in_transform(u, t);
        found = find_in_list(u, w->raw) || found;
        if (!found && !find_fixed(u))
            return dt_expr_fail_name(
                w->e, i,
                "no record has a column '%s': it is neither in names, tables or "
                "the set that is packed, nor found out while packing",
                u->name);
    }
    return DT_OK;
}

static void write_sql(dt_where *w) {
    dt_expr_column columns[MAX_NAMES];
    for (int i = 0; i < w->n; i++)
        columns[i] = (dt_expr_column){dt_xprintf("CAST(?%d AS %s)", FIRST_PARAMETER + i,
                                                 w->use[i].is_text ? "TEXT" : "NUMERIC"),
                                      w->use[i].is_text};
    char *condition = dt_expr_sql(w->e, columns);
    w->sql = dt_xprintf("SELECT %s", condition);
    free(condition);
    for (int i = 0; i < w->n; i++) free((void *)(uintptr_t)columns[i].sql);
}

dt_status dt_where_create(dt_where **out, const char *text, const dt_raw *raw,
                          const dt_transform *t) {
    dt_where *w = dt_xcalloc(1, sizeof *w);
    w->raw = raw;
    dt_status st = dt_expr_parse(&w->e, text);
    if (st == DT_OK) st = resolve(w, t);
    if (st != DT_OK) {
        dt_where_destroy(w);
        return dt_fail_context(st, "--where");
    }
    write_sql(w);
    *out = w;
    return DT_OK;
}

void dt_where_destroy(dt_where *w) {
    if (!w) return;
    dt_expr_destroy(w->e);
    free(w->sql);
    free(w);
}

// ---- one record ---------------------------------------------------------------------------------------
dt_where_scratch *dt_where_scratch_create(const dt_where *w) {
    if (!w) return NULL;
    dt_where_scratch *s = dt_xcalloc(1, sizeof *s);
    s->w = w;
    return s;
}

void dt_where_scratch_destroy(dt_where_scratch *s) {
    if (!s) return;
    sqlite3_finalize(s->stmt);
    sqlite3_close(s->db);
    dt_buffer_fini(&s->key);
    free(s);
}

static dt_status broken(const dt_where_scratch *s) {
    return dt_fail(DT_E_INTERNAL, "--where: %s", s->db ? sqlite3_errmsg(s->db) : "out of memory");
}

static dt_status open_scratch(dt_where_scratch *s) {
    if (sqlite3_open_v2(":memory:", &s->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        return broken(s);
    DT_TRY(dt_expr_prepare_db(s->db));
    if (sqlite3_prepare_v2(s->db, s->w->sql, -1, &s->stmt, NULL) != SQLITE_OK) return broken(s);
    dt_expr_bind(s->w->e, s->stmt);
    return DT_OK;
}

static void bind_number(dt_where_scratch *s, int at, double v) {
    if (isnan(v))
        sqlite3_bind_null(s->stmt, at);
    else
        sqlite3_bind_double(s->stmt, at, v);
}

static bool bind_transform(dt_where_scratch *s, int at, const name_use *u,
                           const dt_transform_record *r) {
    for (int i = 0; u->of_transform && i < r->n_columns; i++) {
        if (strcmp(r->column[i].name, u->name) != 0) continue;
        if (r->column[i].text)
            dt_catalog_db_bind(s->stmt, at, r->column[i].text);
        else
            bind_number(s, at, r->column[i].number);
        return true;
    }
    return false;
}

static void bind_list(dt_where_scratch *s, int at, const name_use *u, const dt_raw_item *item) {
    const dt_raw *raw = s->w->raw;
    if (u->column >= 0) {
        const dt_raw_column *c = &raw->columns[u->column];
        if (c->number)
            bind_number(s, at, c->number[item->row]);
        else if (c->cell[item->row] != DT_NO_VALUE)
            dt_catalog_db_bind(s->stmt, at, raw->values[c->cell[item->row]]);
        return;
    }
    if (u->real >= 0) bind_number(s, at, dt_catalog_real(raw->catalog, u->real, item->record));
    if (u->text >= 0) {
        const char *v = dt_catalog_value(raw->catalog, u->text, item->record);
        if (v) dt_catalog_db_bind(s->stmt, at, v);
    }
}

dt_status dt_where_keeps(dt_where_scratch *s, const dt_raw_item *item, const dt_transform_record *r,
                         uint64_t n_bytes, bool *keep) {
    if (!s->stmt) DT_TRY(open_scratch(s));
    s->key.n_bytes = 0;
    dt_buffer_append(&s->key, item->key, strlen(item->key));
    dt_buffer_append(&s->key, r->suffix, strlen(r->suffix) + 1);
    for (int i = 0; i < s->w->n; i++) {
        const name_use *u = &s->w->use[i];
        int at = FIRST_PARAMETER + i;
        sqlite3_bind_null(s->stmt, at);
        if (u->fixed == KEY)
            dt_catalog_db_bind(s->stmt, at, (const char *)s->key.data);
        else if (u->fixed == SOURCE)
            dt_catalog_db_bind(s->stmt, at, item->name);
        else if (u->fixed == BYTES)
            sqlite3_bind_int64(s->stmt, at, (int64_t)n_bytes);
        else if (!bind_transform(s, at, u, r))
            bind_list(s, at, u, item);
    }
    int rc = sqlite3_step(s->stmt);
    *keep = rc == SQLITE_ROW && sqlite3_column_int(s->stmt, 0) != 0;
    sqlite3_reset(s->stmt);
    return rc == SQLITE_ROW ? DT_OK : broken(s);
}
