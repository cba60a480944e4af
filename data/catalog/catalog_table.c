// catalog_table.c: virtual tables over a catalog.
//
// A set without a database is queried too, and copying its rows into one took thirty times as long as
// the query. So SQLite is given tables whose rows are the catalog's: a cursor is a record number, and a
// cell is looked up when it is asked for. Conditions on id become a range of numbers, which is also what
// joins the two tables. Text is handed out without a copy; which values are numbers, and which are not
// UTF-8 (BLOBs), is found once a distinct value.
//
// The tables of a database file are filled from such tables too, one INSERT … SELECT each: half the time of
// an INSERT a row, whose values are bound one by one. Numbers that are text go there as text: the column's
// affinity makes them what they are in every such file.
#include "catalog_table.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum value_kind { V_TEXT, V_BLOB, V_INT, V_REAL } value_kind;

typedef struct value {
    value_kind kind;
    int n_bytes;
    double real;
    int64_t integer;
} value;

// What all tables read; freed with the connection.
typedef struct source {
    const dt_catalog *c;
    bool of_file;               // rows with their hash and source
    const char *const *sources; // by record, or NULL
    dt_buffer scratch;
    bool *use;       // by shard
    uint32_t *first; // record, by shard
    dt_sql_columns columns;
    value *values[DT_MAX_COLUMNS]; // of text columns, by distinct value
} source;

typedef enum table_kind { T_METADATA, T_RECORDS, T_MEMBERS } table_kind;

typedef struct table {
    sqlite3_vtab base;
    source *s;
    table_kind kind;
} table;

typedef struct cursor {
    sqlite3_vtab_cursor base;
    int64_t at, end; // records
    uint32_t member; // of the record
} cursor;

enum { R_ID, R_KEY, R_SHARD, R_ROW, R_BYTES, R_HASH, R_SOURCE };
enum { M_RECORD, M_EXT, M_OFFSET, M_BYTES, M_HASH };

// ---- values ----------------------------------------------------------------------------------------
static value text_value(const char *text) {
    const char *p = text;
    size_t n;
    while ((signed char)*p > 0) p++; // ASCII
    while (*p && (n = dt_text_utf8_length(p)) > 0) p += n;
    if (*p) return (value){.kind = V_BLOB, .n_bytes = (int)strlen(text)};
    return (value){.kind = V_TEXT, .n_bytes = (int)(p - text)};
}

static value number_value(const char *text) {
    return strchr(text, '.') ? (value){.kind = V_REAL, .real = strtod(text, NULL)}
                             : (value){.kind = V_INT, .integer = strtoll(text, NULL, 10)};
}

static value *make_values(const dt_catalog *c, const dt_column *col, bool is_number) {
    value *v = dt_xcalloc(col->n_values + 1, sizeof *v);
    for (uint32_t i = 0; i < col->n_values; i++) {
        const char *text = dt_catalog_str(c, col->values[i]);
        v[i] = is_number ? number_value(text) : text_value(text);
    }
    return v;
}

static void put_text(sqlite3_context *ctx, const char *text, const value *v) {
    if (v->kind == V_BLOB)
        sqlite3_result_blob(ctx, text, v->n_bytes, SQLITE_STATIC);
    else
        sqlite3_result_text(ctx, text, v->n_bytes, SQLITE_STATIC);
}

static void put_text_cell(sqlite3_context *ctx, const source *s, int k, uint32_t record) {
    uint32_t cell = dt_catalog_cell(s->c, k, record);
    if (cell == DT_NO_VALUE) return; // NULL
    const value *v = &s->values[k][cell];
    if (v->kind == V_INT)
        sqlite3_result_int64(ctx, v->integer);
    else if (v->kind == V_REAL)
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
    value v = text_value(text);
    put_text(ctx, text, &v);
}

// XXH3 over members' extension, size and hash; NULL if one has none.
static void put_record_hash(sqlite3_context *ctx, source *s, const dt_record *r) {
    bool all = r->n_members > 0;
    s->scratch.n_bytes = 0;
    for (uint32_t i = 0; i < r->n_members; i++) {
        const dt_member *m = &s->c->members[r->first_member + i];
        const char *ext = dt_catalog_str(s->c, s->c->exts[m->ext]);
        uint64_t numbers[2] = {m->size, m->hash};
        all = all && m->has_hash;
        dt_buffer_append(&s->scratch, ext, strlen(ext) + 1);
        dt_buffer_append(&s->scratch, numbers, sizeof numbers);
    }
    if (all)
        sqlite3_result_int64(ctx, (sqlite3_int64)dt_hash64(s->scratch.data, s->scratch.n_bytes));
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
    case R_HASH:
        if (s->of_file) put_record_hash(ctx, s, r);
        break;
    case R_SOURCE:
        if (s->sources) put_own_text(ctx, s->sources[record]);
        break;
    default:
        break;
    }
}

static void put_member(sqlite3_context *ctx, const source *s, int i, const cursor *c) {
    const dt_member *m = &s->c->members[s->c->records[c->at].first_member + c->member];
    switch (i) {
    case M_RECORD:
        sqlite3_result_int64(ctx, c->at);
        break;
    case M_EXT:
        put_own_text(ctx, dt_catalog_str(s->c, s->c->exts[m->ext]));
        break;
    case M_OFFSET:
        sqlite3_result_int64(ctx, (sqlite3_int64)m->offset);
        break;
    case M_BYTES:
        sqlite3_result_int64(ctx, (sqlite3_int64)m->size);
        break;
    case M_HASH:
        if (m->has_hash) sqlite3_result_int64(ctx, (sqlite3_int64)m->hash);
        break;
    default:
        break;
    }
}

// ---- tables ----------------------------------------------------------------------------------------
static int declare(sqlite3 *db, const source *s, table_kind kind) {
    if (kind == T_MEMBERS)
        return sqlite3_declare_vtab(db, "CREATE TABLE x(record INTEGER, ext TEXT, offset INTEGER, "
                                        "bytes INTEGER, hash INTEGER)");
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
    table_kind kind = strstr(name, "metadata")  ? T_METADATA
                      : strstr(name, "members") ? T_MEMBERS
                                                : T_RECORDS;
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
    while (c->at < c->end && (!s->use[s->c->records[c->at].shard] ||
                              (t->kind == T_MEMBERS && s->c->records[c->at].n_members == 0)))
        c->at++;
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
    c->member = 0;
    skip_unused(c);
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *base) {
    cursor *c = (cursor *)base;
    const table *t = (table *)base->pVtab;
    if (t->kind == T_MEMBERS && ++c->member < t->s->c->records[c->at].n_members) return SQLITE_OK;
    c->member = 0;
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
    else if (t->kind == T_RECORDS)
        put_record(ctx, t->s, i, (uint32_t)c->at);
    else
        put_member(ctx, t->s, i, c);
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
    dt_buffer_fini(&s->scratch);
    free(s->use);
    free(s->first);
    free(s);
}

// use NULL: all shards. of_file: values that are numbers stay text.
static source *make_source(const dt_catalog *c, const bool *use, const dt_sql_columns *columns,
                           bool of_file) {
    source *s = dt_xcalloc(1, sizeof *s);
    s->c = c;
    s->of_file = of_file;
    s->columns = *columns;
    s->use = dt_xcalloc(c->n_shards + 1, sizeof *s->use);
    s->first = dt_xcalloc(c->n_shards + 1, sizeof *s->first);
    for (uint32_t i = 0; i < c->n_shards; i++) s->use[i] = !use || use[i];
    for (uint32_t r = c->n_records; r-- > 0;) s->first[c->records[r].shard] = r;
    for (int i = 0; i < columns->n_text; i++)
        s->values[i] = make_values(c, &c->columns[i], columns->column[i].is_number && !of_file);
    return s;
}

int dt_catalog_table_create(sqlite3 *db, const dt_catalog *c, const bool *use,
                            const dt_sql_columns *columns) {
    source *s = make_source(c, use, columns, false);
    int rc =
        sqlite3_create_module_v2(db, "dt_catalog", &MODULE, s, free_source); // frees s if it fails
    if (rc != SQLITE_OK) return rc;
    return sqlite3_exec(db,
                        "CREATE VIRTUAL TABLE metadata USING dt_catalog;"
                        "CREATE VIRTUAL TABLE records USING dt_catalog",
                        NULL, NULL, NULL);
}

// Tables that are named like their module need no CREATE, so nothing of them is in the file.
int dt_catalog_table_fill(sqlite3 *db, const dt_catalog *c, const dt_sql_columns *columns,
                          const char *const *sources) {
    source *s = make_source(c, NULL, columns, true);
    s->sources = sources;
    int rc = sqlite3_create_module_v2(db, "from_records", &MODULE, s, free_source);
    if (rc == SQLITE_OK) rc = sqlite3_create_module(db, "from_metadata", &MODULE, s);
    if (rc == SQLITE_OK) rc = sqlite3_create_module(db, "from_members", &MODULE, s);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db,
                          "INSERT INTO records SELECT * FROM from_records;"
                          "INSERT INTO metadata SELECT * FROM from_metadata;"
                          "INSERT INTO members SELECT * FROM from_members",
                          NULL, NULL, NULL);
    return rc;
}
