// query_open.c: which databases describe a set, and which ids of theirs are its records.
//
// A group is a database with the columns it has; a part is a data file: a run of ids in its group. Parts
// keep the order in which the files were given, so the i-th record of all parts is record i of the
// catalog that opens the same files. Files that no database describes make a group in memory.
//
// A database that another program changed, or an old one, has no checksums that hold (catalog_vfs.c): it
// is compared with the indexes before it is asked, so that it says of a record what training reads.
#include "data/catalog/catalog_db.h"
#include "data/catalog/catalog_vfs.h"
#include "data/catalog/expression.h"
#include "query_internal.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "data/file/blob.h"
#include "data/source/collection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const query_fixed QUERY_FIXED[DT_QUERY_FIXED] = {
    {"key", "r.key", true},
    {"shard", "(SELECT s.path FROM shards s WHERE s.id = r.shard)", true},
    {"bytes", "r.bytes", false},
    {"source", "r.source", true},
};

// ---- groups ----------------------------------------------------------------------------------------
dt_status query_damaged(const group *g) {
    return dt_catalog_db_fail(g->db, g->path ? g->path : "catalog in memory", DT_E_DATA,
                              "damaged catalog (remove it, or pack again)");
}

char *query_text(sqlite3_stmt *s, int i) {
    const char *text = (const char *)sqlite3_column_text(s, i);
    return text ? dt_xstrdup(text) : NULL;
}

static int compare_shards(const void *a, const void *b) {
    return strcmp(((const group_shard *)a)->name, ((const group_shard *)b)->name);
}

dt_status query_prepare(group *g, sqlite3_stmt **s, const char *sql) {
    return sqlite3_prepare_v2(g->db, sql, -1, s, NULL) == SQLITE_OK ? DT_OK : query_damaged(g);
}

static dt_status read_shards(group *g) {
    sqlite3_stmt *s;
    DT_TRY(query_prepare(g, &s, "SELECT path, bytes, stamp, first_record, n_records FROM shards"));
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
                   : query_damaged(g);
    if (g->n_shards > 1) qsort(g->shards, (size_t)g->n_shards, sizeof *g->shards, compare_shards);
    return DT_OK;
}

// What `metadata` has, also columns that somebody added; under the names that `columns` gives them.
static dt_status read_columns(group *g) {
    sqlite3_stmt *s;
    DT_TRY(query_prepare(
        g, &s,
        "SELECT coalesce(c.name, t.name), t.name, upper(t.type) = 'TEXT' FROM "
        "pragma_table_info('metadata') t LEFT JOIN columns c ON c.column_name = t.name "
        "WHERE t.name <> 'id' ORDER BY t.cid"));
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        char *sql = sqlite3_mprintf("m.\"%w\"", sqlite3_column_text(s, 1));
        g->columns = dt_xrealloc(g->columns, (size_t)(g->n_columns + 1) * sizeof *g->columns);
        g->columns[g->n_columns++] = (group_column){.name = query_text(s, 0),
                                                    .sql = dt_xstrdup(sql ? sql : "NULL"),
                                                    .is_text = sqlite3_column_int(s, 2)};
        sqlite3_free(sql);
    }
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? DT_OK : query_damaged(g);
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
    char hex[17];
    dt_hash_hex(id.stamp, hex);
    if (id.stamp == 0 || strcmp(hex, x->stamp) != 0) {
        DT_TRY(identify(file, &id));
        dt_hash_hex(id.stamp, hex);
    }
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

bool query_has_column(const dt_query *q, const char *name, int from) {
    for (int i = from; i < q->n_columns; i++)
        if (strcmp(q->columns[i], name) == 0) return true;
    return false;
}

static void name_columns(dt_query *q) {
    int n = DT_QUERY_FIXED + 1;
    for (int g = 0; g < q->n_groups; g++) n += q->groups[g].n_columns;
    q->columns = dt_xcalloc((size_t)n, sizeof *q->columns);
    for (int i = 0; i < DT_QUERY_FIXED; i++)
        q->columns[q->n_columns++] = dt_xstrdup(QUERY_FIXED[i].name);
    for (int g = 0; g < q->n_groups; g++)
        for (int i = 0; i < q->groups[g].n_columns; i++)
            if (!query_has_column(q, q->groups[g].columns[i].name, DT_QUERY_FIXED))
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
    return rc == SQLITE_OK ? DT_OK : query_damaged(g);
}

static dt_status finish(dt_query *q) {
    name_columns(q);
    if (!q->has_sets) return DT_OK;
    if (!query_has_column(q, "set", 0)) q->columns[q->n_columns++] = dt_xstrdup("set");
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

dt_status dt_query_open_files(dt_query **out, const char *const *paths, size_t n_paths, bool tell) {
    dt_query *q = dt_xcalloc(1, sizeof *q);
    dt_found_list found = {0};
    bool mixed = false, all = true;
    *out = NULL;
    dt_status st = collect(&found, paths, n_paths, &mixed);
    for (size_t i = 0; i < found.n && st == DT_OK && all; i++)
        st = add_file(q, &found.f[i], mixed, &all);
    all = all && is_checked(q);
    if (st == DT_OK && all) st = finish(q);
    if (st == DT_OK && all && tell) dt_found_tell(&found);
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
