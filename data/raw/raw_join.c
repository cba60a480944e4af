// raw_join.c: joins tables to the files: finds the row of each file.
//
// One column of a table identifies a row. It is compared with a file's name ("ok/a.wav" or "a.wav"), its stem
// ("a"), its key ("ok/a"), or a metadata column that it already has. What the user leaves open, the column or what it is
// compared with, is that by which most files find a row.
//
// Several tables are joined one by one, and may hold more files or more columns: of a column that two have, a file has
// the value of the first that gives it one.
//
// What cannot be joined (rows of another length, a second row for a file, a row that fits several files) is collected
// and reported in one message: published tables have many mistakes of one kind.
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
    int column; // BY_COLUMN: of the list
} join_way;

static const char *row_key(const row_index *x, uint32_t row) {
    return dt_table_cell(x->t, row, x->column);
}

static uint32_t *raw_join_find_slot(const row_index *x, const char *key, size_t n) {
    uint32_t mask = x->cap - 1, i = (uint32_t)dt_hash64(key, n) & mask;
    for (; x->slot[i]; i = (i + 1) & mask) {
        const char *have = row_key(x, x->slot[i] - 1);
        if (strncmp(have, key, n) == 0 && !have[n]) break;
    }
    return &x->slot[i];
}

// `duplicates` may be NULL.
static void index_rows(row_index *x, const dt_table *t, int column, dt_examples *duplicates, bool last) {
    *x = (row_index){.t = t, .column = column, .cap = 64};
    while (x->cap < 2 * t->cells.n_rows) x->cap *= 2;
    x->slot = dt_xcalloc(x->cap, sizeof *x->slot);
    for (uint32_t i = 0; i < t->cells.n_rows; i++) {
        const char *key = row_key(x, i);
        if (!key) continue; // counted as a row without a file
        uint32_t *slot = raw_join_find_slot(x, key, strlen(key));
        if (*slot && duplicates)
            dt_examples_add(duplicates, "%s:%u and %u '%s'", dt_path_base(t->path), t->line[*slot - 1], t->line[i],
                            key);
        if (!*slot || last) *slot = i + 1;
    }
}

// The row of a file, or UINT32_MAX. A "name" in the table may be any tail of the path: images/ok/a.wav, ok/a.wav, or
// a.wav.
static uint32_t find_row(const row_index *x, const dt_raw *r, const dt_raw_item *item, join_way by) {
    const char *key = by.way == BY_KEY ? item->key : item->name;
    if (by.way == BY_COLUMN) {
        key = dt_columns_text(&r->table, by.column, item->row);
        if (!key) return UINT32_MAX;
    }
    size_t n = strlen(key);
    if (by.way == BY_STEM) {
        key = dt_path_base(key);
        const char *dot = strrchr(key, '.');
        n = dot && dot != key ? (size_t)(dot - key) : strlen(key);
    }
    uint32_t row = *raw_join_find_slot(x, key, n);
    while (by.way == BY_NAME && row == 0 && (key = strchr(key, '/'))) {
        key++;
        row = *raw_join_find_slot(x, key, strlen(key));
    }
    return row - 1;
}

// Of the columns and ways that are open (-1: any), those by which most files find a row. Of equal ones the first: columns
// of usual names, the first column, others.
static void choose_key(const dt_raw *r, const dt_table *t, int only_column, int only_way, int *column, int *best) {
    static const char *const NAMES[] = {"name", "file", "filename", "file_name", "path", "key", "image", "id", "stem"};
    enum { N_NAMES = sizeof NAMES / sizeof *NAMES };
    size_t most = 0;
    *column = -1;
    for (size_t i = 0; i < N_NAMES + t->cells.n_columns && (i == 0 || most < r->n); i++) {
        const int c = i < N_NAMES ? dt_table_find(t, NAMES[i]) : (int)(i - N_NAMES);
        if (c < 0 || (only_column >= 0 && c != only_column)) continue;
        row_index x;
        index_rows(&x, t, c, NULL, false);
        for (int way = 0; way < N_WAYS; way++) {
            size_t n = 0;
            // ages may be stems, too: of a column that is neither called so nor named, only whole names count
            if (only_way >= 0 ? way != only_way : i > N_NAMES && only_column < 0 && way != BY_NAME) continue;
            for (size_t k = 0; k < r->n; k++) n += find_row(&x, r, &r->items[k], (join_way){.way = way}) != UINT32_MAX;
            if (*column < 0 || n > most) most = n, *column = c, *best = way;
        }
        free(x.slot);
    }
}

// table_row[item.row]: the item's row. A row that fits several files by their names belongs to none of them; by their
// stems to all, which may be a picture and its mask, or two pictures called 1.jpg.
static void match_rows(dt_raw *r, const row_index *x, join_way by, uint32_t *table_row) {
    enum { NONE = 0, SEVERAL = UINT32_MAX };
    const dt_table *t = x->t;
    uint32_t *user = dt_xcalloc(t->cells.n_rows + 1, sizeof *user); // item + 1
    bool *used = dt_xcalloc(t->cells.n_rows + 1, sizeof *used);
    memset(table_row, 0xff, r->table.n_rows * sizeof *table_row);
    for (uint32_t i = 0; i < r->n; i++) {
        const uint32_t row = find_row(x, r, &r->items[i], by);
        if (row == UINT32_MAX) continue;
        table_row[r->items[i].row] = row;
        used[row] = true;
        if (user[row] == NONE) {
            user[row] = i + 1;
        } else if (by.way != BY_COLUMN && user[row] != SEVERAL) {
            dt_examples_add(by.way == BY_NAME ? &r->join.ambiguous : &r->join.shared, "%s:%u: '%s' fits %s and %s",
                            dt_path_base(t->path), t->line[row], row_key(x, row), r->items[user[row] - 1].name,
                            r->items[i].name);
            user[row] = SEVERAL;
        }
    }
    for (uint32_t i = 0; i < r->n && by.way == BY_NAME; i++) {
        uint32_t *row = &table_row[r->items[i].row];
        if (*row != UINT32_MAX && user[*row] == SEVERAL) *row = UINT32_MAX;
    }
    for (uint32_t i = 0; i < t->cells.n_rows; i++) {
        const char *key = row_key(x, i);
        const uint32_t of_key = key ? *raw_join_find_slot(x, key, strlen(key)) : 0; // of duplicates the one
        if (!used[i] && (of_key == 0 || !used[of_key - 1]))
            dt_examples_add(&r->join.unused, "%s:%u '%s'", dt_path_base(t->path), t->line[i], key ? key : "");
    }
    free(user);
    free(used);
}

static dt_status find_key(const dt_raw *r, const char *on, const dt_table *t, int *column, join_way *by) {
    const int named = on ? dt_table_find(t, on) : -1;
    int way = on ? 0 : N_WAYS;
    *by = (join_way){0};
    while (way < N_WAYS && strcmp(on, WAYS[way]) != 0) way++;
    const int own = on ? dt_columns_find(&r->table, on, DT_TEXT_COLUMN | DT_JSON_COLUMN) : -1;
    if (own >= 0 && named >= 0 && way == N_WAYS) {
        *by = (join_way){BY_COLUMN, own};
        *column = named;
        return DT_OK;
    }
    if (on && named < 0 && way == N_WAYS)
        return dt_fail(DT_E_USAGE, "--join-on %s: neither name, stem or key, nor a column of %s", on, t->path);
    choose_key(r, t, named, way < N_WAYS ? way : -1, column, &by->way);
    return DT_OK;
}

// Row i of a table of as many rows belongs to record i, which was row i: labels in a second file.
static dt_status join_by_row(dt_raw *r, const char *path) {
    dt_table t;
    DT_TRY(dt_raw_read_numbers(&t, path));
    DT_TRY(dt_table_check(&t));
    dt_status st = DT_OK;
    if (t.cells.n_rows != r->n)
        st = dt_fail(DT_E_DATA, "%s: has %u rows, and %s has %zu: row by row they must be as many", path,
                     t.cells.n_rows, r->source, r->n);
    if (st == DT_OK) st = dt_raw_add_table(r, &t, -1);
    r->join.on = "row";
    r->join.n_with = r->n;
    dt_table_fini(&t);
    return st;
}

// ---- several tables -------------------------------------------------------------------------------------
typedef struct joined {
    dt_table t;
    int key;             // the column that identifies its rows
    uint32_t *table_row; // by item.row
} joined;

static dt_status read_joined(dt_raw *r, const dt_raw_opts *o, const char *path, joined *one) {
    row_index x = {0};
    join_way by;
    DT_TRY(dt_table_read_lenient(&one->t, path));
    if (one->t.cells.n_rows == 0) DT_TRY(dt_table_check(&one->t)); // nothing is left to join
    if (one->t.odd.n)
        dt_examples_add(&r->join.odd, "%s: %zu (%s; the first line has %u)", dt_path_base(path), one->t.odd.n,
                        one->t.odd.text, one->t.cells.n_columns);
    one->table_row = dt_xcalloc(r->table.n_rows + 1, sizeof *one->table_row);
    dt_status st = find_key(r, o->join_on, &one->t, &one->key, &by);
    if (st == DT_OK) {
        index_rows(&x, &one->t, one->key, &r->join.duplicates, o->join_duplicates == DT_JOIN_LAST);
        const char *on = by.way == BY_COLUMN ? dt_arena_strdup(&r->arena, dt_columns_name(&r->table, by.column))
                                             : dt_arena_printf(&r->arena, "%s in column '%s'", WAYS[by.way],
                                                               dt_columns_name(&one->t.cells, one->key));
        match_rows(r, &x, by, one->table_row);
        r->join.on = r->join.on ? dt_arena_printf(&r->arena, "%s, %s", r->join.on, on) : on;
        bool any = false;
        for (size_t i = 0; i < r->n && !any; i++) any = one->table_row[r->items[i].row] != UINT32_MAX;
        if (!any && r->join.ambiguous.n == 0)
            st = dt_fail(DT_E_DATA,
                         "%s: no file of %s has a row: column '%s' has %s, files are called %s; "
                         "--join-on COLUMN takes another column, which must have names (a.jpg), "
                         "stems or keys (a) as the files have them",
                         path, r->source, dt_columns_name(&one->t.cells, one->key),
                         r->join.unused.n ? r->join.unused.text : "nothing", r->items[0].name);
    }
    free(x.slot);
    return st;
}

// Adds a kind of problem to the list of them; `way_out` without one is only said where nothing is skipped.
static void put_problem(char **list, const dt_examples *e, const char *what, const char *way_out) {
    if (e->n == 0) return;
    dt_xappend(list, "%s%zu %s: %s%s", *list ? "; " : "", e->n, what, e->text, way_out);
}

static dt_status check_rows(const dt_raw *r, const dt_raw_opts *o) {
    const dt_raw_join *j = &r->join;
    char *list = NULL;
    if (!o->skip_bad) {
        put_problem(&list, &j->odd,
                    j->odd.n == 1 ? "table has rows of another number of fields"
                                  : "tables have rows of another number of fields",
                    "");
        if (o->join_duplicates == DT_JOIN_ERROR)
            put_problem(&list, &j->duplicates, "second rows for a file",
                        " (--join-duplicates first or last takes one; JSON can hold several boxes "
                        "in one row)");
        put_problem(&list, &j->ambiguous, "rows fit several files", " (write enough of the path to distinguish them)");
    }
    const bool skippable = list != NULL;
    if (o->join_strict) {
        put_problem(&list, &j->without, "files have no row", "");
        put_problem(&list, &j->unused, "rows have no file", "");
        put_problem(&list, &j->shared, "rows went to several files",
                    " (where that is meant, --join-on a column of --pattern)");
    }
    if (!list) return DT_OK;
    dt_status st = dt_fail(DT_E_DATA, "--join: %s%s", list,
                           skippable ? "; --on-error skip leaves out rows that cannot be joined" : "");
    free(list);
    return st;
}

static dt_status join_column(dt_columns *sum, const joined *from, int c) {
    const dt_columns *t = &from->t.cells;
    const char *name = dt_columns_name(t, c);
    const int have = dt_columns_find(sum, name, ~0u);
    dt_column *to;
    DT_TRY(dt_columns_need(sum, from->t.path, name, have < 0 ? t->columns[c].kind : sum->columns[have].kind, &to));
    if (have < 0) to->not_in_json = t->columns[c].not_in_json;
    for (uint32_t i = 0; i < sum->n_rows; i++) {
        const char *text = from->table_row[i] == UINT32_MAX ? NULL : dt_columns_text(t, c, from->table_row[i]);
        if (text && to->cell[i] == DT_NO_VALUE) DT_TRY(dt_columns_intern(sum, from->t.path, text, &to->cell[i]));
    }
    return DT_OK;
}

// All tables as one of a row an item: so that a column has one kind, whichever tables it comes from.
static dt_status add_joined(dt_raw *r, const joined *all, size_t n) {
    dt_table sum = {.path = n == 1 ? all[0].t.path : "--join"};
    dt_status st = DT_OK;
    dt_columns_init(&sum.cells, UINT32_MAX, true);
    sum.cells.n_rows = sum.cells.cap_rows = r->table.n_rows;
    for (size_t k = 0; k < n; k++)
        for (int c = 0; c < (int)all[k].t.cells.n_columns && st == DT_OK; c++)
            if (c != all[k].key) st = join_column(&sum.cells, &all[k], c);
    if (st == DT_OK) st = dt_raw_add_table(r, &sum, -1);
    dt_columns_fini(&sum.cells);
    return st;
}

static void count_items(dt_raw *r, const joined *all, size_t n) {
    for (size_t i = 0; i < r->n; i++) {
        bool has = false;
        for (size_t k = 0; k < n; k++) has = has || all[k].table_row[r->items[i].row] != UINT32_MAX;
        r->join.n_with += has;
        if (!has) dt_examples_add(&r->join.without, "%s", r->items[i].name);
    }
}

dt_status dt_raw_join_tables(dt_raw *r, const dt_raw_opts *o) {
    char *paths = dt_xstrdup(o->join), *save = NULL;
    joined *all = NULL;
    size_t n = 0;
    dt_status st = DT_OK;
    for (char *path = strtok_r(paths, "\n", &save); path && st == DT_OK; path = strtok_r(NULL, "\n", &save)) {
        if (r->kind == DT_RAW_ROWS && !o->join_on) {
            st = join_by_row(r, path);
            continue;
        }
        all = dt_xgrow(all, n, sizeof *all);
        all[n] = (joined){0};
        st = read_joined(r, o, path, &all[n++]);
    }
    if (st == DT_OK && n > 0) count_items(r, all, n);
    if (st == DT_OK) st = check_rows(r, o);
    if (st == DT_OK && n > 0) st = add_joined(r, all, n);
    for (size_t k = 0; k < n; k++) {
        free(all[k].table_row);
        dt_table_fini(&all[k].t);
    }
    free(all);
    free(paths);
    return st;
}
