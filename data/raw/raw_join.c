// raw_join.c: joins a table to the files: finds the row of each file.
//
// One column of the table identifies a row. It is compared with a file's name ("ok/a.wav" or "a.wav"), its stem
// ("a"), its key ("ok/a"), or a metadata column that it already has. Unless the user says which, it is the
// one of name, stem and key under which most files find a row. Two rows for one file are always an error.
#include "raw.h"
#include "table.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct row_index {
    const dt_table *t;
    int column;
    uint32_t *slot; // row + 1
    uint32_t cap;
} row_index;

static const char *row_key(const row_index *x, uint32_t row) {
    return x->t->cell[row * x->t->n_columns + (size_t)x->column];
}

static uint32_t *find_slot(const row_index *x, const char *key) {
    uint32_t mask = x->cap - 1, i = (uint32_t)dt_hash64(key, strlen(key)) & mask;
    while (x->slot[i] && strcmp(row_key(x, x->slot[i] - 1), key) != 0) i = (i + 1) & mask;
    return &x->slot[i];
}

static dt_status index_rows(row_index *x, const dt_table *t, int column) {
    *x = (row_index){.t = t, .column = column, .cap = 64};
    while (x->cap < 2 * t->n_rows) x->cap *= 2;
    x->slot = dt_xcalloc(x->cap, sizeof *x->slot);
    for (uint32_t i = 0; i < t->n_rows; i++) {
        const char *key = row_key(x, i);
        if (!key) continue; // counted as a row without a file
        uint32_t *slot = find_slot(x, key);
        if (*slot)
            return dt_fail(DT_E_DATA,
                           "%s:%u: a second row for '%s' (the first is in line %u); one "
                           "row a file is wanted: JSON can hold several boxes in one",
                           t->path, t->line[i], key, t->line[*slot - 1]);
        *slot = i + 1;
    }
    return DT_OK;
}

static const char *base_of(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

// The text by which a file is looked up. It lives in the item or in `buf`.
static const char *lookup_name(const dt_raw *r, const dt_raw_item *item, const char *on,
                               const dt_raw_column *column, dt_buffer *buf) {
    if (column)
        return column->cell[item->row] == DT_NO_VALUE ? NULL : r->values[column->cell[item->row]];
    if (strcmp(on, "key") == 0) return item->key;
    if (strcmp(on, "name") == 0) return item->name;
    const char *base = base_of(item->name), *dot = strrchr(base, '.');
    size_t n = dot && dot != base ? (size_t)(dot - base) : strlen(base);
    buf->n_bytes = 0;
    dt_buffer_append(buf, base, n);
    dt_buffer_append(buf, "", 1);
    return (const char *)buf->data;
}

// A "name" in the table may be any tail of the path: images/ok/a.wav, ok/a.wav, or a.wav.
static uint32_t find_row(const row_index *x, const dt_raw *r, const dt_raw_item *item,
                         const char *on, const dt_raw_column *column, dt_buffer *buf) {
    const char *key = lookup_name(r, item, on, column, buf);
    uint32_t row = key ? *find_slot(x, key) : 0;
    bool by_name = !column && strcmp(on, "name") == 0;
    while (by_name && row == 0 && (key = strchr(key, '/'))) row = *find_slot(x, ++key);
    return row - 1; // none: UINT32_MAX
}

static size_t count_matches(const row_index *x, const dt_raw *r, const char *on) {
    dt_buffer buf = {0};
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += find_row(x, r, &r->items[i], on, NULL, &buf) != UINT32_MAX;
    dt_buffer_fini(&buf);
    return n;
}

static const char *best_way(const row_index *x, const dt_raw *r) {
    static const char *const WAYS[] = {"name", "stem", "key"};
    const char *best = NULL;
    size_t most = 0;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        size_t n = count_matches(x, r, WAYS[i]);
        if (n > most) most = n, best = WAYS[i];
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

// A row that was found by name must belong to one file.
static dt_status check_single(const dt_raw *r, const row_index *x, uint32_t row,
                              const uint32_t *user) {
    return dt_fail(DT_E_DATA,
                   "%s:%u: '%s' fits %s and %s: write as much of the path as tells them apart",
                   x->t->path, x->t->line[row], row_key(x, row), r->items[user[0]].name,
                   r->items[user[1]].name);
}

static dt_status match_rows(dt_raw *r, const row_index *x, const char *on,
                            const dt_raw_column *column, uint32_t *table_row) {
    uint32_t *user = dt_xcalloc(x->t->n_rows + 1, sizeof *user); // item + 1
    bool by_name = !column && strcmp(on, "name") == 0;
    dt_buffer buf = {0};
    dt_status st = DT_OK;
    for (uint32_t i = 0; i < r->n && st == DT_OK; i++) {
        uint32_t row = find_row(x, r, &r->items[i], on, column, &buf);
        table_row[r->items[i].row] = row;
        r->join.n_with += row != UINT32_MAX;
        if (row == UINT32_MAX && r->join.n_without++ == 0) r->join.first_without = r->items[i].name;
        if (row == UINT32_MAX) continue;
        if (by_name && user[row]) st = check_single(r, x, row, (uint32_t[]){user[row] - 1, i});
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
    dt_buffer_fini(&buf);
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

static dt_status find_way(dt_raw *r, const dt_raw_opts *o, const row_index *x, const char **on,
                          const dt_raw_column **column) {
    static const char *const WAYS[] = {"name", "stem", "key"};
    *column = NULL;
    *on = o->join_on ? o->join_on : best_way(x, r);
    if (!*on) *on = "name"; // no match at all: check_matches says so
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        if (strcmp(*on, WAYS[i]) == 0) return DT_OK;
    for (int i = 0; i < r->n_columns; i++)
        if (strcmp(r->columns[i].name, *on) == 0 && r->columns[i].cell) *column = &r->columns[i];
    if (*column && dt_table_find(x->t, *on) >= 0) return DT_OK;
    return dt_fail(
        DT_E_USAGE,
        "--join-on %s: neither name, stem or key, nor a column that both the files (from "
        "--pattern or a list) and %s have",
        *on, x->t->path);
}

dt_status dt_raw_join_table(dt_raw *r, const dt_raw_opts *o) {
    dt_table t;
    DT_TRY(dt_table_read(&t, o->join));
    row_index x = {0};
    const dt_raw_column *column = NULL;
    const char *on = NULL;
    uint32_t *table_row = dt_xcalloc(r->n_rows + 1, sizeof *table_row);
    dt_status st = index_rows(&x, &t, table_column(&t, o->join_on));
    if (st == DT_OK) st = find_way(r, o, &x, &on, &column);
    if (st == DT_OK) st = match_rows(r, &x, on, column, table_row);
    if (st == DT_OK) st = check_matches(r, o, &t);
    if (st == DT_OK) {
        r->join.on = dt_arena_strdup(&r->arena, on);
        st = dt_raw_add_table(r, &t, table_row, x.column);
    }
    free(table_row);
    free(x.slot);
    dt_table_fini(&t);
    return st;
}
