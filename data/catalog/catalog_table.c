// catalog_table.c: virtual tables over a catalog.
//
// A set without a database is queried too, and copying its rows into one took thirty times as long as
// the query. So SQLite is given tables whose rows are the catalog's: a cursor is a record number, and a
// cell is looked up when it is asked for. Conditions on id become a range of numbers, which is also what
// joins the two tables. Text is handed out without a copy; which values are numbers, and which are not
// UTF-8 (BLOBs), is found once a distinct value.
#include "catalog_table.h"
#include "catalog_value.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// What all tables read; freed with the connection.
typedef struct source {
    const dt_catalog *c;
    bool *use;       // by shard
    uint32_t *first; // record, by shard
    dt_sql_columns columns;
    dt_sql_value *values[DT_MAX_COLUMNS]; // of text columns, by distinct value
} source;

typedef enum table_kind { T_METADATA, T_RECORDS } table_kind;

typedef struct table {
    sqlite3_vtab base;
    source *s;
    table_kind kind;
} table;

typedef struct cursor {
    sqlite3_vtab_cursor base;
    int64_t at, end; // records
} cursor;

enum { R_ID, R_KEY, R_SHARD, R_ROW, R_BYTES };

// ---- values ----------------------------------------------------------------------------------------
static void put_text(sqlite3_context *ctx, const char *text, const dt_sql_value *v) {
    if (v->kind == DT_SQL_BLOB)
        sqlite3_result_blob(ctx, text, v->n_bytes, SQLITE_STATIC);
    else
        sqlite3_result_text(ctx, text, v->n_bytes, SQLITE_STATIC);
}

static void put_text_cell(sqlite3_context *ctx, const source *s, int k, uint32_t record) {
    uint32_t cell = dt_catalog_cell(s->c, k, record);
    if (cell == DT_NO_VALUE) return; // NULL
    const dt_sql_value *v = &s->values[k][cell];
    if (v->kind == DT_SQL_INT)
        sqlite3_result_int64(ctx, v->integer);
    else if (v->kind == DT_SQL_REAL)
        sqlite3_result_double(ctx, v->real);
    else
        put_text(ctx, dt_catalog_str(s->c, s->c->columns[k].values[cell]), v);
}

static void put_metadata(sqlite3_context *ctx, const source *s, int i, uint32_t record) {
    if (i == 0) {
        sqlite3_result_int64(ctx, record);
    } else if (i <= s->columns.n_text) {
        put_text_cell(ctx, s, i - 1, record);
    } else {
        double v = dt_catalog_real(s->c, i - 1 - s->columns.n_text, record);
        if (!isnan(v)) sqlite3_result_double(ctx, v);
    }
}

static void put_own_text(sqlite3_context *ctx, const char *text) {
    dt_sql_value v = dt_sql_text_value(text);
    put_text(ctx, text, &v);
}

static void put_record(sqlite3_context *ctx, source *s, int i, uint32_t record) {
    const dt_record *r = &s->c->records[record];
    uint64_t n_bytes = 0;
    switch (i) {
    case R_ID:
        sqlite3_result_int64(ctx, record);
        break;
    case R_KEY:
        put_own_text(ctx, dt_catalog_str(s->c, r->key));
        break;
    case R_SHARD:
        sqlite3_result_int64(ctx, r->shard);
        break;
    case R_ROW:
        sqlite3_result_int64(ctx, record - s->first[r->shard]);
        break;
    case R_BYTES:
        for (uint32_t m = 0; m < r->n_members; m++)
            n_bytes += s->c->members[r->first_member + m].size;
        sqlite3_result_int64(ctx, (sqlite3_int64)n_bytes);
        break;
    default: // hash and source: NULL
        break;
    }
}

// ---- tables ----------------------------------------------------------------------------------------
static int declare(sqlite3 *db, const source *s, table_kind kind) {
    if (kind == T_RECORDS)
        return sqlite3_declare_vtab(db, "CREATE TABLE x(id INTEGER, key TEXT, shard INTEGER, "
                                        "row INTEGER, bytes INTEGER, hash INTEGER, source TEXT)");
    sqlite3_str *sql = sqlite3_str_new(db);
    sqlite3_str_appendall(sql, "CREATE TABLE x(id INTEGER");
    for (int i = 0; i < s->columns.n; i++)
        sqlite3_str_appendf(sql, ", \"%w\" %s", s->columns.column[i].sql,
                            s->columns.column[i].is_number ? "NUMERIC" : "TEXT");
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    int rc = text ? sqlite3_declare_vtab(db, text) : SQLITE_NOMEM;
    sqlite3_free(text);
    return rc;
}

static int connect_table(sqlite3 *db, void *arg, int argc, const char *const *argv,
                         sqlite3_vtab **out, char **message) {
    const char *name = argv[2]; // of the table
    table_kind kind = strcmp(name, "metadata") == 0 ? T_METADATA : T_RECORDS;
    int rc = declare(db, arg, kind);
    if (rc != SQLITE_OK) return rc;
    table *t = dt_xcalloc(1, sizeof *t);
    t->s = arg;
    t->kind = kind;
    *out = &t->base;
    return SQLITE_OK;
}

static int disconnect_table(sqlite3_vtab *t) {
    free(t);
    return SQLITE_OK;
}

// Conditions on id, a letter each in the order of their values: = >= > <= <.
static char letter_of(int op) {
    switch (op) {
    case SQLITE_INDEX_CONSTRAINT_EQ:
        return '=';
    case SQLITE_INDEX_CONSTRAINT_GE:
        return 'G';
    case SQLITE_INDEX_CONSTRAINT_GT:
        return 'g';
    case SQLITE_INDEX_CONSTRAINT_LE:
        return 'L';
    case SQLITE_INDEX_CONSTRAINT_LT:
        return 'l';
    default:
        return 0;
    }
}

static int best_index(sqlite3_vtab *base, sqlite3_index_info *info) {
    const table *t = (table *)base;
    double n = t->s->c->n_records;
    char *plan = sqlite3_malloc(info->nConstraint + 1);
    int used = 0;
    if (!plan) return SQLITE_NOMEM;
    info->estimatedCost = n;
    info->estimatedRows = (sqlite3_int64)n;
    for (int i = 0; i < info->nConstraint; i++) {
        char letter = letter_of(info->aConstraint[i].op);
        if (!letter || !info->aConstraint[i].usable || info->aConstraint[i].iColumn > 0) continue;
        plan[used++] = letter; // checked again by SQLite, so an odd value costs nothing but time
        info->aConstraintUsage[i].argvIndex = used;
        if (letter == '=') info->estimatedCost = info->estimatedRows = 1;
    }
    plan[used] = '\0';
    info->idxStr = plan;
    info->needToFreeIdxStr = 1;
    info->orderByConsumed =
        info->nOrderBy == 1 && info->aOrderBy[0].iColumn <= 0 && !info->aOrderBy[0].desc;
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *t, sqlite3_vtab_cursor **out) {
    *out = dt_xcalloc(1, sizeof(cursor));
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *c) {
    free(c);
    return SQLITE_OK;
}

static void skip_unused(cursor *c) {
    const table *t = (table *)c->base.pVtab;
    const source *s = t->s;
    while (c->at < c->end && !s->use[s->c->records[c->at].shard]) c->at++;
}

static int filter(sqlite3_vtab_cursor *base, int number, const char *plan, int argc,
                  sqlite3_value **argv) {
    cursor *c = (cursor *)base;
    int64_t low = 0, high = ((table *)base->pVtab)->s->c->n_records;
    for (int i = 0; i < argc; i++) {
        if (sqlite3_value_type(argv[i]) != SQLITE_INTEGER) continue;
        int64_t v = sqlite3_value_int64(argv[i]);
        if (v < -1) v = -1;
        if (v > UINT32_MAX) v = UINT32_MAX;
        int64_t from = plan[i] == '=' || plan[i] == 'G' ? v : plan[i] == 'g' ? v + 1 : low;
        int64_t to = plan[i] == '=' || plan[i] == 'L' ? v + 1 : plan[i] == 'l' ? v : high;
        if (from > low) low = from;
        if (to < high) high = to;
    }
    c->at = low;
    c->end = high;
    skip_unused(c);
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *base) {
    cursor *c = (cursor *)base;
    c->at++;
    skip_unused(c);
    return SQLITE_OK;
}

static int at_end(sqlite3_vtab_cursor *base) {
    const cursor *c = (cursor *)base;
    return c->at >= c->end;
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int i) {
    const table *t = (table *)base->pVtab;
    const cursor *c = (cursor *)base;
    if (t->kind == T_METADATA)
        put_metadata(ctx, t->s, i, (uint32_t)c->at);
    else
        put_record(ctx, t->s, i, (uint32_t)c->at);
    return SQLITE_OK;
}

static int row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *out) {
    *out = ((cursor *)base)->at;
    return SQLITE_OK;
}

static const sqlite3_module MODULE = {.xCreate = connect_table,
                                      .xConnect = connect_table,
                                      .xBestIndex = best_index,
                                      .xDisconnect = disconnect_table,
                                      .xDestroy = disconnect_table,
                                      .xOpen = open_cursor,
                                      .xClose = close_cursor,
                                      .xFilter = filter,
                                      .xNext = next_row,
                                      .xEof = at_end,
                                      .xColumn = column,
                                      .xRowid = row_id};

// ---- making them -----------------------------------------------------------------------------------
static void free_source(void *arg) {
    source *s = arg;
    for (int i = 0; i < s->columns.n_text; i++) free(s->values[i]);
    free(s->use);
    free(s->first);
    free(s);
}

// use NULL: all shards.
static source *make_source(const dt_catalog *c, const bool *use, const dt_sql_columns *columns) {
    source *s = dt_xcalloc(1, sizeof *s);
    s->c = c;
    s->columns = *columns;
    s->use = dt_xcalloc(c->n_shards + 1, sizeof *s->use);
    s->first = dt_xcalloc(c->n_shards + 1, sizeof *s->first);
    for (uint32_t i = 0; i < c->n_shards; i++) s->use[i] = !use || use[i];
    for (uint32_t r = c->n_records; r-- > 0;) s->first[c->records[r].shard] = r;
    for (int i = 0; i < columns->n_text; i++)
        s->values[i] = dt_sql_values_make(c, &c->columns[i], columns->column[i].is_number);
    return s;
}

int dt_catalog_table_create(sqlite3 *db, const dt_catalog *c, const bool *use,
                            const dt_sql_columns *columns) {
    source *s = make_source(c, use, columns);
    int rc =
        sqlite3_create_module_v2(db, "dt_catalog", &MODULE, s, free_source); // frees s if it fails
    if (rc != SQLITE_OK) return rc;
    return sqlite3_exec(db,
                        "CREATE VIRTUAL TABLE metadata USING dt_catalog;"
                        "CREATE VIRTUAL TABLE records USING dt_catalog",
                        NULL, NULL, NULL);
}
