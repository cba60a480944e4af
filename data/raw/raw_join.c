// raw_join.c: joins a table to the files: finds the row of each file.
//
// One column of the table identifies a row. It is compared with a file's name ("ok/a.wav" or "a.wav"), its stem
// ("a"), its key ("ok/a"), or a metadata column that it already has. Unless the user says which, it is the
// one of name, stem and key under which most files find a row. Two rows for one file are always an error.
#include "raw.h"
#include "table.h"

#include "base/hash.h"
#include "base/io.h"

#include <stdlib.h>
#include <string.h>

typedef struct row_index {
    const dt_table *t;
    int column;
    uint32_t *slot; // row + 1
    uint32_t cap;
} row_index;

// What is compared: a column of the files, or one of WAYS.
static const char *const WAYS[] = {"name", "stem", "key"};
enum { BY_NAME, BY_STEM, BY_KEY, N_WAYS, BY_COLUMN = N_WAYS };
typedef struct join_way {
    int way;
    const dt_raw_column *column; // BY_COLUMN
} join_way;

static const char *row_key(const row_index *x, uint32_t row) {
    return x->t->cell[row * x->t->n_columns + (size_t)x->column];
}

static uint32_t *find_slot(const row_index *x, const char *key, size_t n) {
    uint32_t mask = x->cap - 1, i = (uint32_t)dt_hash64(key, n) & mask;
    for (; x->slot[i]; i = (i + 1) & mask) {
        const char *have = row_key(x, x->slot[i] - 1);
        if (strncmp(have, key, n) == 0 && !have[n]) break;
    }
    return &x->slot[i];
}

static dt_status index_rows(row_index *x, const dt_table *t, int column) {
    *x = (row_index){.t = t, .column = column, .cap = 64};
    while (x->cap < 2 * t->n_rows) x->cap *= 2;
    x->slot = dt_xcalloc(x->cap, sizeof *x->slot);
    for (uint32_t i = 0; i < t->n_rows; i++) {
        const char *key = row_key(x, i);
        if (!key) continue; // counted as a row without a file
        uint32_t *slot = find_slot(x, key, strlen(key));
        if (*slot)
            return dt_fail(DT_E_DATA,
                           "%s:%u: a second row for '%s' (the first is in line %u); one "
                           "row a file is wanted: JSON can hold several boxes in one",
                           t->path, t->line[i], key, t->line[*slot - 1]);
        *slot = i + 1;
    }
    return DT_OK;
}

// The row of a file, or UINT32_MAX. A "name" in the table may be any tail of the path: images/ok/a.wav, ok/a.wav, or
// a.wav.
static uint32_t find_row(const row_index *x, const dt_raw *r, const dt_raw_item *item,
                         join_way by) {
    const char *key = by.way == BY_KEY ? item->key : item->name;
    if (by.way == BY_COLUMN) {
        uint32_t value = by.column->cell[item->row];
        if (value == DT_NO_VALUE) return UINT32_MAX;
        key = r->values[value];
    }
    size_t n = strlen(key);
    if (by.way == BY_STEM) {
        key = dt_path_base(key);
        const char *dot = strrchr(key, '.');
        n = dot && dot != key ? (size_t)(dot - key) : strlen(key);
    }
    uint32_t row = *find_slot(x, key, n);
    while (by.way == BY_NAME && row == 0 && (key = strchr(key, '/'))) {
        key++;
        row = *find_slot(x, key, strlen(key));
    }
    return row - 1;
}

// The way in which most files find a row.
static int best_way(const row_index *x, const dt_raw *r) {
    int best = BY_NAME; // no match at all: check_matches says so
    size_t most = 0;
    for (int way = 0; way < N_WAYS; way++) {
        size_t n = 0;
        for (size_t i = 0; i < r->n; i++)
            n += find_row(x, r, &r->items[i], (join_way){.way = way}) != UINT32_MAX;
        if (n > most) most = n, best = way;
    }
    return best;
}

static int table_column(const dt_table *t, const char *on) {
    static const char *const NAMES[] = {"name", "file",  "filename", "file_name", "path",
                                        "key",  "image", "id",       "stem"};
    int c = on ? dt_table_find(t, on) : -1;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES && c < 0; i++)
        c = dt_table_find(t, NAMES[i]);
    return c < 0 ? 0 : c;
}

static dt_status match_rows(dt_raw *r, const row_index *x, join_way by, uint32_t *table_row) {
    uint32_t *user = dt_xcalloc(x->t->n_rows + 1, sizeof *user); // item + 1
    dt_status st = DT_OK;
    for (uint32_t i = 0; i < r->n && st == DT_OK; i++) {
        uint32_t row = find_row(x, r, &r->items[i], by);
        table_row[r->items[i].row] = row;
        r->join.n_with += row != UINT32_MAX;
        if (row == UINT32_MAX && r->join.n_without++ == 0) r->join.first_without = r->items[i].name;
        if (row == UINT32_MAX) continue;
        if (by.way == BY_NAME && user[row]) // it must belong to one file
            st =
                dt_fail(DT_E_DATA,
                        "%s:%u: '%s' fits %s and %s: write as much of the path as tells them apart",
                        x->t->path, x->t->line[row], row_key(x, row), r->items[user[row] - 1].name,
                        r->items[i].name);
        user[row] = i + 1;
    }
    for (size_t i = 0; i < x->t->n_rows && st == DT_OK; i++) {
        if (user[i]) continue;
        const char *key = row_key(x, (uint32_t)i);
        if (r->join.n_unused++ == 0)
            r->join.first_unused =
                dt_arena_printf(&r->arena, "line %u, '%s'", x->t->line[i], key ? key : "");
    }
    free(user);
    return st;
}

static dt_status check_matches(const dt_raw *r, const dt_raw_opts *o, const dt_table *t) {
    const dt_raw_join *m = &r->join;
    if (m->n_with == 0)
        return dt_fail(DT_E_DATA,
                       "%s: no file of %s has a row: column '%s' has %s, files are called %s; say "
                       "what to compare with --join-on name|stem|key|COLUMN",
                       t->path, r->source, t->column[table_column(t, o->join_on)],
                       m->first_unused ? m->first_unused : "nothing", r->items[0].name);
    if (o->join_strict && m->n_without)
        return dt_fail(DT_E_DATA, "%s: %zu files have no row, the first is %s", t->path,
                       m->n_without, m->first_without);
    if (o->join_strict && m->n_unused)
        return dt_fail(DT_E_DATA, "%s: %zu rows have no file, the first is %s", t->path,
                       m->n_unused, m->first_unused);
    return DT_OK;
}

static dt_status find_way(const dt_raw *r, const char *on, const row_index *x, join_way *by) {
    *by = (join_way){.way = on ? 0 : best_way(x, r)};
    if (!on) return DT_OK;
    while (by->way < N_WAYS && strcmp(on, WAYS[by->way]) != 0) by->way++;
    if (by->way < N_WAYS) return DT_OK;
    for (int i = 0; i < r->n_columns; i++)
        if (strcmp(r->columns[i].name, on) == 0 && r->columns[i].cell) by->column = &r->columns[i];
    if (by->column && dt_table_find(x->t, on) >= 0) return DT_OK;
    return dt_fail(
        DT_E_USAGE,
        "--join-on %s: neither name, stem or key, nor a column that both the files (from "
        "--pattern or a list) and %s have",
        on, x->t->path);
}

// Row i of a table of as many rows belongs to record i, which was row i: labels in a second file.
static dt_status join_by_row(dt_raw *r, const dt_raw_opts *o) {
    dt_table t;
    DT_TRY(dt_raw_read_numbers(&t, o->join));
    uint32_t *table_row = dt_xcalloc(r->n_rows + 1, sizeof *table_row);
    dt_status st = DT_OK;
    if (t.n_rows != r->n)
        st = dt_fail(DT_E_DATA, "%s: has %zu rows, and %s has %zu: row by row they must be as many",
                     o->join, t.n_rows, r->source, r->n);
    for (size_t i = 0; i < r->n; i++) table_row[r->items[i].row] = (uint32_t)r->items[i].offset;
    if (st == DT_OK) st = dt_raw_add_table(r, &t, table_row, -1);
    r->join.on = "row";
    r->join.n_with = r->n;
    free(table_row);
    dt_table_fini(&t);
    return st;
}

dt_status dt_raw_join_table(dt_raw *r, const dt_raw_opts *o) {
    dt_table t;
    if (r->kind == DT_RAW_ROWS && !o->join_on) return join_by_row(r, o);
    DT_TRY(dt_table_read(&t, o->join));
    row_index x = {0};
    join_way by;
    uint32_t *table_row = dt_xcalloc(r->n_rows + 1, sizeof *table_row);
    dt_status st = index_rows(&x, &t, table_column(&t, o->join_on));
    if (st == DT_OK) st = find_way(r, o->join_on, &x, &by);
    if (st == DT_OK) st = match_rows(r, &x, by, table_row);
    if (st == DT_OK) st = check_matches(r, o, &t);
    if (st == DT_OK) {
        r->join.on = by.way < N_WAYS ? WAYS[by.way] : by.column->name;
        st = dt_raw_add_table(r, &t, table_row, x.column);
    }
    free(table_row);
    free(x.slot);
    dt_table_fini(&t);
    return st;
}
