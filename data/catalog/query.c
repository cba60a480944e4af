// query.c: expressions on the databases of a set.
//
// A group is a database with the columns it has; a part is a data file: a run of ids in its group. Parts
// keep the order in which the files were given, so the i-th record of all parts is record i of the
// catalog that opens the same files. Expressions are parsed once and become SQL once a group, as the
// same name may be text here, a number there, and unknown to a third.
//
// A database that another program changed, or an old one, has no checksums that hold (catalog_vfs.c): it
// is compared with the indexes before it is asked, so that it says of a record what training reads.
#include "query.h"
#include "catalog_db.h"
#include "catalog_vfs.h"
#include "expression.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/text.h"
#include "data/source/blob.h"
#include "data/source/collection.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct group_shard {
    char *name;
    uint64_t n_bytes;
    char stamp[17];
    int64_t first, n;
} group_shard;

typedef struct group_column {
    char *name, *sql; // "m.""name"""
    bool is_text;
} group_column;

// Where several sets are mixed, the runs of ids that are of one.
typedef struct set_run {
    int64_t first, end;
    const char *name;
} set_run;

typedef struct set_runs {
    set_run *run; // sorted
    int n;
} set_runs;

typedef struct group {
    char *path; // of the database; NULL: in memory
    sqlite3 *db;
    group_shard *shards; // sorted by name
    group_column *columns;
    int n_shards, n_columns;
    int64_t n_ids;   // above all ids
    bool is_checked; // its pages are held against checksums; always so in memory
    set_runs *sets;  // or NULL
} group;

typedef struct part {
    int group;
    int64_t first, n; // ids
    char *set;        // its value in the column `set`, if that is not in the database; or NULL
} part;

struct dt_query {
    group *groups;
    part *parts;
    char **columns; // names of all groups, the fixed ones first
    int n_groups, n_parts, n_columns;
    uint64_t n_records;
    bool has_sets; // some part has `set`
};

static const struct {
    const char *name, *sql;
    bool is_text;
} FIXED[DT_QUERY_FIXED] = {
    {"key", "r.key", true},
    {"shard", "(SELECT s.path FROM shards s WHERE s.id = r.shard)", true},
    {"bytes", "r.bytes", false},
    {"source", "r.source", true},
};

// ---- groups ----------------------------------------------------------------------------------------
static dt_status damaged(const group *g) {
    return dt_catalog_db_fail(g->db, g->path ? g->path : "catalog in memory", DT_E_DATA,
                              "damaged catalog (remove it, or pack again)");
}

static char *text_of(sqlite3_stmt *s, int i) {
    const char *text = (const char *)sqlite3_column_text(s, i);
    return text ? dt_xstrdup(text) : NULL;
}

static int compare_shards(const void *a, const void *b) {
    return strcmp(((const group_shard *)a)->name, ((const group_shard *)b)->name);
}

static dt_status prepare(group *g, sqlite3_stmt **s, const char *sql) {
    return sqlite3_prepare_v2(g->db, sql, -1, s, NULL) == SQLITE_OK ? DT_OK : damaged(g);
}

static dt_status read_shards(group *g) {
    sqlite3_stmt *s;
    DT_TRY(prepare(g, &s, "SELECT path, bytes, stamp, first_record, n_records FROM shards"));
    int rc, cap = 0;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        if (g->n_shards == cap) {
            cap = cap ? cap * 2 : 16;
            g->shards = dt_xrealloc(g->shards, (size_t)cap * sizeof *g->shards);
        }
        group_shard *x = &g->shards[g->n_shards++];
        const char *name = (const char *)sqlite3_column_text(s, 0);
        const char *stamp = (const char *)sqlite3_column_text(s, 2);
        *x = (group_shard){.name = dt_xstrdup(name ? name : ""),
                           .n_bytes = (uint64_t)sqlite3_column_int64(s, 1),
                           .first = sqlite3_column_int64(s, 3),
                           .n = sqlite3_column_int64(s, 4)};
        snprintf(x->stamp, sizeof x->stamp, "%s", stamp ? stamp : "");
        if (x->first < 0 || x->n < 0 || x->first > UINT32_MAX || x->n > UINT32_MAX) {
            rc = SQLITE_CORRUPT;
            break;
        }
        if (x->first + x->n > g->n_ids) g->n_ids = x->first + x->n;
    }
    sqlite3_finalize(s);
    if (rc != SQLITE_DONE)
        return rc == SQLITE_CORRUPT
                   ? dt_fail(DT_E_DATA, "%s: damaged catalog: remove it, or pack again", g->path)
                   : damaged(g);
    if (g->n_shards > 1) qsort(g->shards, (size_t)g->n_shards, sizeof *g->shards, compare_shards);
    return DT_OK;
}

// What `metadata` has, also columns that somebody added; under the names that `columns` gives them.
static dt_status read_columns(group *g) {
    sqlite3_stmt *s;
    DT_TRY(prepare(g, &s,
                   "SELECT coalesce(c.name, t.name), t.name, upper(t.type) = 'TEXT' FROM "
                   "pragma_table_info('metadata') t LEFT JOIN columns c ON c.column_name = t.name "
                   "WHERE t.name <> 'id' ORDER BY t.cid"));
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        char *sql = sqlite3_mprintf("m.\"%w\"", sqlite3_column_text(s, 1));
        g->columns = dt_xrealloc(g->columns, (size_t)(g->n_columns + 1) * sizeof *g->columns);
        g->columns[g->n_columns++] = (group_column){.name = text_of(s, 0),
                                                    .sql = dt_xstrdup(sql ? sql : "NULL"),
                                                    .is_text = sqlite3_column_int(s, 2)};
        sqlite3_free(sql);
    }
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? DT_OK : damaged(g);
}

static dt_status read_group(group *g) {
    DT_TRY(dt_expr_prepare_db(g->db));
    DT_TRY(read_shards(g));
    return read_columns(g);
}

static group *add_group(dt_query *q) {
    q->groups = dt_xrealloc(q->groups, (size_t)(q->n_groups + 1) * sizeof *q->groups);
    group *g = &q->groups[q->n_groups++];
    *g = (group){0};
    return g;
}

// The group of a database; takes the path.
static dt_status group_of(dt_query *q, char *path, int *out) {
    for (int i = q->n_groups - 1; i >= 0; i--)
        if (strcmp(q->groups[i].path, path) == 0) {
            free(path);
            *out = i;
            return DT_OK;
        }
    group *g = add_group(q);
    g->path = path;
    *out = q->n_groups - 1;
    DT_TRY(dt_catalog_db_open(&g->db, path));
    g->is_checked = dt_catalog_vfs_is_checked(g->db);
    return read_group(g);
}

// ---- parts -----------------------------------------------------------------------------------------
// Why a database does not describe the file that it names.
static dt_status stale(const char *db, const char *file) {
    return dt_fail(
        DT_E_DATA,
        "%s: not of the bytes that %s has now: pack again, or remove it (the set is then "
        "asked without)",
        db, file);
}

// What a data file is now.
typedef struct identity {
    uint64_t n_bytes, stamp;
} identity;

static dt_status identify(const char *file, identity *id) {
    dt_blob b;
    DT_TRY(dt_blob_open(&b, file));
    dt_status st = dt_blob_stamp(&b, &id->stamp);
    id->n_bytes = b.n_bytes;
    dt_blob_close(&b);
    return st;
}

// The shard of a database that is `file`; NULL: it does not know it. id.stamp 0: not known yet.
static dt_status find_shard(dt_query *q, const char *file, identity id, int *group_index,
                            const group_shard **out) {
    char *path = dt_catalog_db_find(file);
    *out = NULL;
    if (!path) return DT_OK;
    DT_TRY(group_of(q, path, group_index));
    const group *g = &q->groups[*group_index];
    const char *slash = strrchr(file, '/');
    group_shard want = {.name = (char *)(slash ? slash + 1 : file)};
    const group_shard *x =
        g->n_shards ? bsearch(&want, g->shards, (size_t)g->n_shards, sizeof want, compare_shards)
                    : NULL;
    if (!x) return DT_OK;
    if (id.stamp == 0) DT_TRY(identify(file, &id));
    char hex[17];
    dt_hash_hex(id.stamp, hex);
    if (id.n_bytes != x->n_bytes || strcmp(hex, x->stamp) != 0) return stale(g->path, file);
    *out = x;
    return DT_OK;
}

static void add_part(dt_query *q, int g, int64_t first, int64_t n, const char *set) {
    if ((q->n_parts & (q->n_parts - 1)) == 0)
        q->parts =
            dt_xrealloc(q->parts, (size_t)(q->n_parts ? 2 * q->n_parts : 1) * sizeof *q->parts);
    q->parts[q->n_parts++] = (part){g, first, n, set ? dt_xstrdup(set) : NULL};
    q->n_records += (uint64_t)n;
    q->has_sets = q->has_sets || set;
}

static bool has_column(const dt_query *q, const char *name, int from) {
    for (int i = from; i < q->n_columns; i++)
        if (strcmp(q->columns[i], name) == 0) return true;
    return false;
}

static void name_columns(dt_query *q) {
    int n = DT_QUERY_FIXED + 1;
    for (int g = 0; g < q->n_groups; g++) n += q->groups[g].n_columns;
    q->columns = dt_xcalloc((size_t)n, sizeof *q->columns);
    for (int i = 0; i < DT_QUERY_FIXED; i++) q->columns[q->n_columns++] = dt_xstrdup(FIXED[i].name);
    for (int g = 0; g < q->n_groups; g++)
        for (int i = 0; i < q->groups[g].n_columns; i++)
            if (!has_column(q, q->groups[g].columns[i].name, DT_QUERY_FIXED))
                q->columns[q->n_columns++] = dt_xstrdup(q->groups[g].columns[i].name);
}

// ---- the column `set` --------------------------------------------------------------------------------
static bool group_has(const group *g, const char *name) {
    for (int i = 0; i < g->n_columns; i++)
        if (strcmp(g->columns[i].name, name) == 0) return true;
    return false;
}

static int compare_runs(const void *a, const void *b) {
    int64_t x = ((const set_run *)a)->first, y = ((const set_run *)b)->first;
    return x < y ? -1 : x > y;
}

// dt_set(id): the set that a record is of.
static void set_of(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    const set_runs *s = sqlite3_user_data(ctx);
    int64_t id = sqlite3_value_int64(argv[0]);
    int low = 0, high = s->n;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (s->run[mid].first <= id)
            low = mid;
        else
            high = mid;
    }
    if (s->n == 0 || id < s->run[low].first || id >= s->run[low].end)
        sqlite3_result_null(ctx);
    else
        sqlite3_result_text(ctx, s->run[low].name, -1, SQLITE_STATIC);
}

static dt_status make_sets(dt_query *q, int index) {
    group *g = &q->groups[index];
    g->sets = dt_xcalloc(1, sizeof *g->sets);
    g->sets->run = dt_xcalloc((size_t)q->n_parts + 1, sizeof *g->sets->run);
    for (int i = 0; i < q->n_parts; i++) {
        const part *p = &q->parts[i];
        if (p->group == index && p->set)
            g->sets->run[g->sets->n++] = (set_run){p->first, p->first + p->n, p->set};
    }
    qsort(g->sets->run, (size_t)g->sets->n, sizeof *g->sets->run, compare_runs);
    int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
    int rc = sqlite3_create_function(g->db, "dt_set", 1, flags, g->sets, set_of, NULL, NULL);
    return rc == SQLITE_OK ? DT_OK : damaged(g);
}

static dt_status finish(dt_query *q) {
    name_columns(q);
    if (!q->has_sets) return DT_OK;
    if (!has_column(q, "set", 0)) q->columns[q->n_columns++] = dt_xstrdup("set");
    for (int g = 0; g < q->n_groups; g++)
        if (!group_has(&q->groups[g], "set")) DT_TRY(make_sets(q, g));
    return DT_OK;
}

// What no database describes, from the catalog: ids are record numbers.
static dt_status add_memory(dt_query *q, const dt_catalog *c, const bool *use, int *out) {
    group *g = add_group(q);
    *out = q->n_groups - 1;
    g->is_checked = true;
    DT_TRY(dt_catalog_db_in_memory(&g->db, c, use));
    return read_group(g);
}

typedef struct shard_range {
    uint32_t first, n;
} shard_range;

static dt_status add_shards(dt_query *q, const dt_catalog *c, const shard_range *range, bool *use,
                            bool *any) {
    int column = dt_catalog_find_column(c, "set"); // which mixing sets has made, or a set's own
    for (uint32_t i = 0; i < c->n_shards; i++) {
        const group_shard *x;
        int g = -1;
        identity id = {c->shards[i].n_bytes, c->shards[i].stamp};
        DT_TRY(find_shard(q, c->shards[i].path, id, &g, &x));
        if (x && x->n != range[i].n) return stale(q->groups[g].path, c->shards[i].path);
        use[i] = !x;
        *any = *any || !x;
        const char *set = x && column >= 0 && range[i].n > 0 && !group_has(&q->groups[g], "set")
                              ? dt_catalog_value(c, column, range[i].first)
                              : NULL;
        add_part(q, x ? g : -1, x ? x->first : range[i].first, range[i].n, set);
    }
    return DT_OK;
}

static bool is_checked(const dt_query *q) {
    for (int i = 0; i < q->n_groups; i++)
        if (!q->groups[i].is_checked) return false;
    return true;
}

dt_status dt_query_open(dt_query **out, const dt_catalog *c) {
    dt_query *q = dt_xcalloc(1, sizeof *q);
    shard_range *range = dt_xcalloc(c->n_shards + 1, sizeof *range);
    bool *use = dt_xcalloc(c->n_shards + 1, 1), any = false;
    for (uint32_t r = c->n_records; r-- > 0;) {
        range[c->records[r].shard].first = r;
        range[c->records[r].shard].n++;
    }
    dt_status st = add_shards(q, c, range, use, &any);
    int memory = -1;
    if (st == DT_OK && any) st = add_memory(q, c, use, &memory);
    for (int i = 0; i < q->n_parts; i++)
        if (q->parts[i].group < 0) q->parts[i].group = memory;
    if (st == DT_OK) st = finish(q);
    if (st == DT_OK && !is_checked(q)) st = dt_query_check(q, c);
    free(range);
    free(use);
    *out = st == DT_OK ? q : NULL;
    if (st != DT_OK) dt_query_close(q);
    return st;
}

static dt_status add_file(dt_query *q, const dt_found *f, bool mixed, bool *all) {
    const group_shard *x = NULL;
    int g = -1;
    if (f->is_folder) {
        *all = false;
        return DT_OK;
    }
    DT_TRY(find_shard(q, f->path, (identity){0}, &g, &x));
    if (!x)
        *all = false;
    else
        add_part(q, g, x->first, x->n, mixed && !group_has(&q->groups[g], "set") ? f->name : NULL);
    return DT_OK;
}

static dt_status collect(dt_found_list *l, const char *const *paths, size_t n, bool *mixed) {
    for (size_t i = 0; i < n; i++) {
        dt_set_item item = {paths[i], NULL, 1};
        DT_TRY(dt_collect(l, &item, (uint32_t)i));
    }
    for (size_t i = 1; i < l->n; i++) *mixed = *mixed || strcmp(l->f[i].name, l->f[0].name) != 0;
    return dt_found_check(l);
}

dt_status dt_query_open_files(dt_query **out, const char *const *paths, size_t n_paths) {
    dt_query *q = dt_xcalloc(1, sizeof *q);
    dt_found_list found = {0};
    bool mixed = false, all = true;
    *out = NULL;
    dt_status st = collect(&found, paths, n_paths, &mixed);
    for (size_t i = 0; i < found.n && st == DT_OK && all; i++)
        st = add_file(q, &found.f[i], mixed, &all);
    all = all && is_checked(q);
    if (st == DT_OK && all) st = finish(q);
    dt_found_fini(&found);
    if (st == DT_OK && all)
        *out = q;
    else
        dt_query_close(q);
    return st;
}

void dt_query_close(dt_query *q) {
    if (!q) return;
    for (int i = 0; i < q->n_groups; i++) {
        group *g = &q->groups[i];
        for (int k = 0; k < g->n_shards; k++) free(g->shards[k].name);
        for (int k = 0; k < g->n_columns; k++) {
            free(g->columns[k].name);
            free(g->columns[k].sql);
        }
        free(g->shards);
        free(g->columns);
        sqlite3_close(g->db);
        if (g->sets) free(g->sets->run);
        free(g->sets);
        free(g->path);
    }
    for (int i = 0; i < q->n_parts; i++) free(q->parts[i].set);
    for (int i = 0; i < q->n_columns; i++) free(q->columns[i]);
    free(q->columns);
    free(q->groups);
    free(q->parts);
    free(q);
}

uint64_t dt_query_n_records(const dt_query *q) {
    return q->n_records;
}

int dt_query_n_columns(const dt_query *q) {
    return q->n_columns;
}

const char *dt_query_column(const dt_query *q, int i) {
    return q->columns[i];
}

// ---- names -----------------------------------------------------------------------------------------
static const char *nearest(const dt_query *q, const char *name) {
    const char *best = NULL;
    int least = DT_TEXT_FAR;
    for (int i = 0; i < q->n_columns; i++) {
        int d = dt_text_closeness(q->columns[i], strlen(q->columns[i]), name);
        if (d < least) least = d, best = q->columns[i];
    }
    return best;
}

// "no column 'x'; …", for whoever knows the place.
static const char *no_column(const dt_query *q, const char *name, char *buf, size_t cap) {
    const char *near = nearest(q, name);
    size_t at = (size_t)snprintf(buf, cap, "the set has no column '%s'", name);
    if (near) {
        snprintf(buf + at, at < cap ? cap - at : 0, "; did you mean '%s'?", near);
        return buf;
    }
    for (int i = 0; i < q->n_columns && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? ", " : "; it has ", q->columns[i]);
    return buf;
}

int dt_query_find_column(const dt_query *q, const char *name) {
    char text[400];
    for (int i = q->n_columns - 1; i >= 0; i--) // metadata before the fixed ones
        if (strcmp(q->columns[i], name) == 0) return i;
    dt_fail(DT_E_USAGE, "%s", no_column(q, name, text, sizeof text));
    return -1;
}

// What a name is in a group; *fixed: it is of the table of records.
static dt_expr_column column_in(const group *g, const char *name, bool *fixed) {
    *fixed = false;
    for (int i = 0; i < g->n_columns; i++)
        if (strcmp(g->columns[i].name, name) == 0)
            return (dt_expr_column){g->columns[i].sql, g->columns[i].is_text};
    for (int i = 0; i < DT_QUERY_FIXED; i++)
        if (strcmp(FIXED[i].name, name) == 0) {
            *fixed = true;
            return (dt_expr_column){FIXED[i].sql, FIXED[i].is_text};
        }
    if (g->sets && strcmp(name, "set") == 0) return (dt_expr_column){"dt_set(m.id)", true};
    return (dt_expr_column){"NULL", false};
}

static dt_status parse(const dt_query *q, const char *expression, dt_expr **out) {
    *out = NULL;
    if (!expression) return DT_OK;
    DT_TRY(dt_expr_parse(out, expression));
    for (int i = 0; i < dt_expr_n_names(*out); i++) {
        char text[400];
        if (has_column(q, dt_expr_name(*out, i), 0)) continue;
        dt_status st = dt_expr_fail_name(*out, i, "%s",
                                         no_column(q, dt_expr_name(*out, i), text, sizeof text));
        dt_expr_destroy(*out);
        *out = NULL;
        return st;
    }
    return DT_OK;
}

// ---- statements --------------------------------------------------------------------------------------
// The condition of a group, and whether it looks at the table of records. Heap.
static char *condition_of(const group *g, const dt_expr *e, bool *records) {
    if (!e) return dt_xstrdup("1");
    int n = dt_expr_n_names(e);
    dt_expr_column *columns = dt_xcalloc((size_t)n + 1, sizeof *columns);
    for (int i = 0; i < n; i++) {
        bool fixed;
        columns[i] = column_in(g, dt_expr_name(e, i), &fixed);
        *records = *records || fixed;
    }
    char *sql = dt_expr_sql(e, columns);
    free(columns);
    return sql;
}

// SELECT what FROM … WHERE condition, of the ids of a part.
static dt_status prepare_select(group *g, const dt_expr *e, const char *what, bool records,
                                const part *p, sqlite3_stmt **out) {
    char *condition = condition_of(g, e, &records);
    const char *join = records ? " JOIN records r ON r.id = m.id" : "";
    char *sql =
        dt_xprintf("SELECT %s FROM metadata m%s WHERE %s AND m.id >= %lld AND m.id < %lld "
                   "ORDER BY m.id",
                   what, join, condition, (long long)p->first, (long long)(p->first + p->n));
    dt_status st = prepare(g, out, sql);
    if (st == DT_OK && e) dt_expr_bind(e, *out);
    free(sql);
    free(condition);
    return st;
}

// Parts that follow each other in their database, from i on: one run of ids. Returns the next part.
static int run_of(const dt_query *q, int i, part *run) {
    *run = q->parts[i++];
    while (i < q->n_parts && q->parts[i].group == run->group &&
           q->parts[i].first == run->first + run->n)
        run->n += q->parts[i++].n;
    return i;
}

static dt_status select_group(group *g, const dt_expr *e, uint8_t *chosen) {
    sqlite3_stmt *s;
    part all = {.first = 0, .n = g->n_ids};
    DT_TRY(prepare_select(g, e, "m.id", false, &all, &s));
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) chosen[sqlite3_column_int64(s, 0)] = 1;
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? DT_OK : damaged(g);
}

dt_status dt_query_select(dt_query *q, const char *expression, bool *keep, uint64_t *n) {
    dt_expr *e;
    uint64_t base = 0;
    *n = 0;
    DT_TRY(parse(q, expression, &e));
    dt_status st = DT_OK;
    uint8_t **chosen = dt_xcalloc((size_t)q->n_groups + 1, sizeof *chosen);
    for (int i = 0; i < q->n_groups && st == DT_OK; i++) {
        chosen[i] = dt_xcalloc((size_t)q->groups[i].n_ids + 1, 1);
        st = select_group(&q->groups[i], e, chosen[i]);
    }
    for (int i = 0; i < q->n_parts && st == DT_OK; i++) {
        const part *p = &q->parts[i];
        for (int64_t k = 0; k < p->n; k++) {
            keep[base + (uint64_t)k] = chosen[p->group][p->first + k];
            *n += keep[base + (uint64_t)k];
        }
        base += (uint64_t)p->n;
    }
    for (int i = 0; i < q->n_groups; i++) free(chosen[i]);
    free(chosen);
    dt_expr_destroy(e);
    return st;
}

dt_status dt_query_count(dt_query *q, const char *expression, uint64_t *n) {
    dt_expr *e;
    part run;
    *n = 0;
    DT_TRY(parse(q, expression, &e));
    dt_status st = DT_OK;
    for (int i = 0; i < q->n_parts && st == DT_OK;) {
        sqlite3_stmt *s;
        i = run_of(q, i, &run);
        group *g = &q->groups[run.group];
        DT_TRY_GOTO(st, prepare_select(g, e, "count(*)", false, &run, &s), out);
        if (sqlite3_step(s) == SQLITE_ROW)
            *n += (uint64_t)sqlite3_column_int64(s, 0);
        else
            st = damaged(g);
        sqlite3_finalize(s);
    }
out:
    dt_expr_destroy(e);
    return st;
}

// ---- rows ------------------------------------------------------------------------------------------
static dt_cell cell_of(sqlite3_stmt *s, int i, char **copy) {
    int type = sqlite3_column_type(s, i);
    dt_cell c = {.kind = DT_CELL_NULL};
    if (type == SQLITE_INTEGER) {
        c = (dt_cell){.kind = DT_CELL_INT, .integer = sqlite3_column_int64(s, i)};
    } else if (type == SQLITE_FLOAT) {
        c = (dt_cell){.kind = DT_CELL_REAL, .real = sqlite3_column_double(s, i)};
    } else if (type == SQLITE_TEXT) {
        c = (dt_cell){.kind = DT_CELL_TEXT, .text = (const char *)sqlite3_column_text(s, i)};
    } else if (type == SQLITE_BLOB) { // text that is not UTF-8
        int n = sqlite3_column_bytes(s, i);
        *copy = dt_xprintf("%.*s", n, n ? (const char *)sqlite3_column_blob(s, i) : "");
        c = (dt_cell){.kind = DT_CELL_TEXT, .text = *copy};
    }
    if (c.kind == DT_CELL_TEXT && !c.text) c.text = "";
    return c;
}

static dt_status send_row(sqlite3_stmt *s, int n, dt_cell *cells, char **copies, dt_query_row row,
                          void *ctx) {
    for (int i = 0; i < n; i++) cells[i] = cell_of(s, i, &copies[i]);
    dt_status st = row(ctx, cells, n);
    for (int i = 0; i < n; i++) {
        free(copies[i]);
        copies[i] = NULL;
    }
    return st;
}

// "m.a, r.key, …"
static char *list_of(const dt_query *q, const group *g, const int *columns, int n, bool *records) {
    char *list = dt_xstrdup("");
    for (int i = 0; i < n; i++) {
        bool fixed = columns[i] < DT_QUERY_FIXED; // said by its number: nothing hides it
        dt_expr_column c = fixed
                               ? (dt_expr_column){FIXED[columns[i]].sql, FIXED[columns[i]].is_text}
                               : column_in(g, q->columns[columns[i]], &fixed);
        char *longer = dt_xprintf("%s%s%s", list, i ? ", " : "", c.sql);
        *records = *records || fixed;
        free(list);
        list = longer;
    }
    return list;
}

typedef struct row_job {
    const dt_expr *e;
    const int *columns;
    int n;
    uint64_t limit, sent;
    dt_query_row row;
    void *ctx;
} row_job;

static dt_status send_run(dt_query *q, const part *run, row_job *j) {
    group *g = &q->groups[run->group];
    bool records = false;
    sqlite3_stmt *s;
    char *list = list_of(q, g, j->columns, j->n, &records);
    dt_status st = prepare_select(g, j->e, list, records, run, &s);
    free(list);
    DT_TRY(st);
    dt_cell *cells = dt_xcalloc((size_t)j->n + 1, sizeof *cells);
    char **copies = dt_xcalloc((size_t)j->n + 1, sizeof *copies);
    int rc = SQLITE_DONE;
    while (st == DT_OK && (j->limit == 0 || j->sent < j->limit) &&
           (rc = sqlite3_step(s)) == SQLITE_ROW) {
        st = send_row(s, j->n, cells, copies, j->row, j->ctx);
        j->sent++;
    }
    if (st == DT_OK && rc != SQLITE_ROW && rc != SQLITE_DONE) st = damaged(g);
    sqlite3_finalize(s);
    free(copies);
    free(cells);
    return st;
}

dt_status dt_query_rows(dt_query *q, const char *expression, const int *columns, int n,
                        uint64_t limit, dt_query_row row, void *ctx) {
    dt_expr *e;
    part run;
    DT_TRY(parse(q, expression, &e));
    row_job j = {e, columns, n, limit, 0, row, ctx};
    dt_status st = DT_OK;
    for (int i = 0; i < q->n_parts && st == DT_OK && (limit == 0 || j.sent < limit);) {
        i = run_of(q, i, &run);
        st = send_run(q, &run, &j);
    }
    dt_expr_destroy(e);
    return st;
}

// ---- against the catalog -----------------------------------------------------------------------------
typedef struct comparison {
    const dt_catalog *c;
    int *column, *real; // of the catalog, by cell; -1
    uint32_t record;
} comparison;

static bool same_cell(const dt_cell *cell, const char *text, double number) {
    if (cell->kind == DT_CELL_NULL) return !text && isnan(number);
    if (text && cell->kind == DT_CELL_TEXT) return strcmp(text, cell->text) == 0;
    if (text) number = strtod(text, NULL);
    return cell->kind == DT_CELL_INT    ? (double)cell->integer == number
           : cell->kind == DT_CELL_REAL ? cell->real == number
                                        : false;
}

static dt_status compare_row(void *ctx, const dt_cell *cells, int n) {
    comparison *x = ctx;
    const dt_catalog *c = x->c;
    uint32_t r = x->record++;
    const char *key = r < c->n_records ? dt_catalog_str(c, c->records[r].key) : "";
    if (r >= c->n_records || cells[0].kind != DT_CELL_TEXT || strcmp(cells[0].text, key) != 0)
        return dt_fail(DT_E_DATA, "the catalog has other records than the index: pack again");
    for (int i = 1; i < n; i++) {
        const char *text = x->column[i] >= 0 ? dt_catalog_value(c, x->column[i], r) : NULL;
        double number = x->real[i] >= 0 ? dt_catalog_real(c, x->real[i], r) : NAN;
        uint32_t name =
            x->column[i] >= 0 ? c->columns[x->column[i]].name : c->reals[x->real[i]].name;
        if (!same_cell(&cells[i], text, number))
            return dt_fail(DT_E_DATA,
                           "record %s: column %s has one value in the catalog and another in the "
                           "index (changed by another program, or damaged): pack again",
                           key, dt_catalog_str(c, name));
    }
    return DT_OK;
}

static dt_status check_integrity(group *g) {
    sqlite3_stmt *s;
    if (!g->path) return DT_OK;
    DT_TRY(prepare(g, &s, "PRAGMA integrity_check(1)"));
    dt_status st = DT_OK;
    const char *text =
        sqlite3_step(s) == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    if (!text || strcmp(text, "ok") != 0)
        st = dt_fail(DT_E_DATA, "%s: damaged: %s: remove it, or pack again", g->path,
                     text ? text : "unreadable");
    sqlite3_finalize(s);
    return st;
}

dt_status dt_query_check(dt_query *q, const dt_catalog *c) {
    int cap = 1 + q->n_columns, n = 1;
    int *columns = dt_xcalloc((size_t)cap, 3 * sizeof *columns);
    comparison x = {c, columns + cap, columns + 2 * cap, 0};
    dt_status st = DT_OK;
    for (int i = 0; i < q->n_groups && st == DT_OK; i++) st = check_integrity(&q->groups[i]);
    for (int i = DT_QUERY_FIXED; i < q->n_columns; i++) {
        x.column[n] = dt_catalog_find_column(c, q->columns[i]);
        x.real[n] = dt_catalog_find_real(c, q->columns[i]);
        columns[n] = i;
        n += x.column[n] >= 0 || x.real[n] >= 0; // others were added by hand
    }
    if (st == DT_OK) st = dt_query_rows(q, NULL, columns, n, 0, compare_row, &x);
    if (st == DT_OK && x.record != c->n_records)
        st = dt_fail(DT_E_DATA, "the catalog has other records than the index: pack again");
    free(columns);
    const char *path = q->n_groups > 0 && q->groups[0].path ? q->groups[0].path : "catalog";
    return st == DT_E_DATA && !strstr(dt_error_message(), path) ? dt_fail_context(st, "%s", path)
                                                                : st;
}

// ---- lineage ---------------------------------------------------------------------------------------
dt_status dt_query_lineage(dt_query *q, dt_query_step **out, int *n) {
    sqlite3_stmt *s;
    *out = NULL;
    *n = 0;
    if (q->n_parts == 0) return DT_OK;
    group *g = &q->groups[q->parts[0].group];
    DT_TRY(prepare(g, &s,
                   "SELECT made_by, command, options, version, parent, parent_hash FROM lineage "
                   "ORDER BY step"));
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        *out = dt_xrealloc(*out, (size_t)(*n + 1) * sizeof **out);
        (*out)[(*n)++] = (dt_query_step){text_of(s, 0), text_of(s, 1), text_of(s, 2),
                                         text_of(s, 3), text_of(s, 4), text_of(s, 5)};
    }
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? DT_OK : damaged(g);
}

void dt_query_free_lineage(dt_query_step *steps, int n) {
    for (int i = 0; i < n; i++) {
        free(steps[i].made_by);
        free(steps[i].command);
        free(steps[i].options);
        free(steps[i].version);
        free(steps[i].parent);
        free(steps[i].parent_hash);
    }
    free(steps);
}
