// query.c: expressions on the databases of a set (query_open.c).
//
// Expressions are parsed once and become SQL once a group, as the same name may be text here, a number
// there, and unknown to a third. Groups are asked part by part, so rows come in the order of records.
#include "data/catalog/expression.h"
#include "query_internal.h"

#include "base/arena.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        if (strcmp(QUERY_FIXED[i].name, name) == 0) {
            *fixed = true;
            return (dt_expr_column){QUERY_FIXED[i].sql, QUERY_FIXED[i].is_text};
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
        if (query_has_column(q, dt_expr_name(*out, i), 0)) continue;
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
    dt_status st = query_prepare(g, out, sql);
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
    return rc == SQLITE_DONE ? DT_OK : query_damaged(g);
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
            st = query_damaged(g);
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
        dt_expr_column c =
            fixed ? (dt_expr_column){QUERY_FIXED[columns[i]].sql, QUERY_FIXED[columns[i]].is_text}
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
    if (st == DT_OK && rc != SQLITE_ROW && rc != SQLITE_DONE) st = query_damaged(g);
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
    DT_TRY(query_prepare(g, &s, "PRAGMA integrity_check(1)"));
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
    DT_TRY(
        query_prepare(g, &s,
                      "SELECT made_by, command, options, version, parent, parent_hash FROM lineage "
                      "ORDER BY step"));
    int rc;
    while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
        *out = dt_xrealloc(*out, (size_t)(*n + 1) * sizeof **out);
        (*out)[(*n)++] = (dt_query_step){query_text(s, 0), query_text(s, 1), query_text(s, 2),
                                         query_text(s, 3), query_text(s, 4), query_text(s, 5)};
    }
    sqlite3_finalize(s);
    return rc == SQLITE_DONE ? DT_OK : query_damaged(g);
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
