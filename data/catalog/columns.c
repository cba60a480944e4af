// columns.c: a table in memory, by columns.
//
// Equal strings have one number, found through a small open-addressing table.
#include "columns.h"

#include "base/core.h"
#include "base/hash.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void dt_columns_init(dt_columns *t, uint32_t most_columns, bool finds_equal) {
    *t = (dt_columns){.most = UINT32_MAX - 1, .most_columns = most_columns, .cap_intern = 256};
    if (finds_equal) t->intern = dt_xcalloc(t->cap_intern, sizeof *t->intern);
}

void dt_columns_fini(dt_columns *t) {
    for (uint32_t i = 0; i < t->n_columns; i++) {
        free(t->columns[i].values);
        free(t->columns[i].cell);
        free(t->columns[i].number);
    }
    free(t->columns);
    free(t->interned);
    free(t->intern);
    dt_buffer_fini(&t->strings);
    *t = (dt_columns){0};
}

// ---- strings ---------------------------------------------------------------------------------------
dt_status dt_columns_need_room(const dt_columns *t, const char *path, uint64_t n_string_bytes) {
    if (t->strings.n_bytes + n_string_bytes <= t->most) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "%s: with it there are more than %u bytes of keys and different values, which is what a catalog "
                   "holds: open fewer files at once, or pack with shorter keys and without the text columns that have "
                   "many values",
                   path, t->most);
}

uint32_t dt_columns_add_strings(dt_columns *t, const char *strings, size_t n_bytes) {
    assert(t->strings.n_bytes + n_bytes <= t->most);
    const uint32_t at = (uint32_t)t->strings.n_bytes;
    dt_buffer_append(&t->strings, strings, n_bytes);
    return at;
}

static uint32_t *intern_slot(const dt_columns *t, const char *s) {
    uint32_t mask = t->cap_intern - 1, i = (uint32_t)dt_hash64(s, strlen(s)) & mask;
    while (t->intern[i] && strcmp(dt_columns_str(t, t->interned[t->intern[i] - 1]), s) != 0) i = (i + 1) & mask;
    return &t->intern[i];
}

dt_status dt_columns_intern(dt_columns *t, const char *path, const char *s, uint32_t *id) {
    if (t->intern && t->n_interned * 2 >= t->cap_intern) {
        t->cap_intern *= 2;
        free(t->intern);
        t->intern = dt_xcalloc(t->cap_intern, sizeof *t->intern);
        for (uint32_t i = 0; i < t->n_interned; i++) *intern_slot(t, dt_columns_str(t, t->interned[i])) = i + 1;
    }
    uint32_t fresh = 0, *slot = t->intern ? intern_slot(t, s) : &fresh;
    if (!*slot) {
        DT_TRY(dt_columns_need_room(t, path, strlen(s) + 1));
        t->interned = dt_xgrow(t->interned, t->n_interned, sizeof *t->interned);
        t->interned[t->n_interned] = dt_columns_add_strings(t, s, strlen(s) + 1);
        *slot = ++t->n_interned;
    }
    *id = *slot - 1;
    return DT_OK;
}

// ---- columns ---------------------------------------------------------------------------------------
static void columns_fit_one(const dt_columns *t, dt_column *col) {
    if (col->cap >= t->n_rows) return;
    if (col->kind == DT_NUMBER_COLUMN) {
        col->number = dt_xrealloc(col->number, t->cap_rows * sizeof *col->number);
        for (uint32_t r = col->cap; r < t->cap_rows; r++) col->number[r] = NAN;
    } else {
        col->cell = dt_xrealloc(col->cell, t->cap_rows * sizeof *col->cell);
        memset(col->cell + col->cap, 0xff, (t->cap_rows - col->cap) * sizeof *col->cell);
    }
    col->cap = t->cap_rows;
}

void dt_columns_fit(dt_columns *t) {
    for (uint32_t i = 0; i < t->n_columns; i++) columns_fit_one(t, &t->columns[i]);
}

static dt_status columns_check_number(const dt_columns *t, const char *path, const char *name, dt_column_kind kind) {
    if (dt_columns_count(t, kind) < t->most_columns) return DT_OK;
    return dt_fail(DT_E_DATA, "%s: more than %u %scolumns, %s among them", path, t->most_columns,
                   kind == DT_NUMBER_COLUMN ? "number " : "", name);
}

static dt_column *columns_append(dt_columns *t, dt_column column) {
    t->columns = dt_xgrow(t->columns, t->n_columns, sizeof *t->columns);
    t->columns[t->n_columns] = column;
    return &t->columns[t->n_columns++];
}

dt_status dt_columns_need(dt_columns *t, const char *path, const char *name, dt_column_kind kind, dt_column **out) {
    int i = dt_columns_find(t, name, kind);
    if (i < 0) {
        uint32_t id = 0;
        DT_TRY(columns_check_number(t, path, name, kind));
        DT_TRY(dt_columns_intern(t, path, name, &id));
        columns_append(t, (dt_column){.name = t->interned[id], .kind = kind});
        i = (int)t->n_columns - 1;
    }
    *out = &t->columns[i];
    columns_fit_one(t, *out);
    return DT_OK;
}

// ---- sorted distinct values ------------------------------------------------------------------------
typedef struct sort_value {
    const char *text;
    uint32_t id; // of the text, or a row that has it
    double number;
    bool is_number;
} sort_value;

static sort_value columns_value_of(const char *text, uint32_t id) {
    char none[] = "x", *end = none;
    sort_value v = {.text = text, .id = id};
    if (*text != '\0' && *text != ' ') v.number = strtod(text, &end);
    v.is_number = *end == '\0' && isfinite(v.number);
    return v;
}

static int compare_values(const void *pa, const void *pb) {
    const sort_value *a = pa, *b = pb;
    if (a->is_number != b->is_number) return a->is_number ? -1 : 1;
    if (a->is_number && a->number != b->number) return a->number < b->number ? -1 : 1;
    return strcmp(a->text, b->text);
}

static void columns_sort_one(const dt_columns *t, dt_column *col) {
    uint32_t *rank = dt_xcalloc(t->n_interned + 1, sizeof *rank), n = 0; // by id
    for (uint32_t r = 0; r < t->n_rows; r++) {
        if (col->cell[r] == DT_NO_VALUE || rank[col->cell[r]]) continue;
        rank[col->cell[r]] = 1;
        n++;
    }
    sort_value *v = dt_xcalloc(n + 1, sizeof *v);
    for (uint32_t id = 0, at = 0; id < t->n_interned && at < n; id++)
        if (rank[id]) v[at++] = columns_value_of(dt_columns_str(t, t->interned[id]), id);
    qsort(v, n, sizeof *v, compare_values);
    col->values = dt_xcalloc(n + 1, sizeof *col->values);
    col->n_values = n;
    for (uint32_t i = 0; i < n; i++) {
        col->values[i] = t->interned[v[i].id];
        rank[v[i].id] = i;
    }
    for (uint32_t r = 0; r < t->n_rows; r++)
        if (col->cell[r] != DT_NO_VALUE) col->cell[r] = rank[col->cell[r]];
    free(rank);
    free(v);
}

void dt_columns_sort(dt_columns *t) {
    for (uint32_t i = 0; i < t->n_columns; i++)
        if (t->columns[i].cell) columns_sort_one(t, &t->columns[i]);
    free(t->intern);
    free(t->interned);
    t->intern = t->interned = NULL;
}

// ---- one more column -------------------------------------------------------------------------------
static dt_status columns_check_room(const dt_columns *t, const char *name, dt_column_kind kind) {
    assert(dt_columns_find(t, name, DT_TEXT_COLUMN | DT_NUMBER_COLUMN) < 0);
    DT_TRY(columns_check_number(t, "column", name, kind));
    return dt_columns_need_room(t, name, strlen(name) + 1);
}

dt_status dt_columns_add_numbers(dt_columns *t, const char *name, double *values) {
    const dt_status st = columns_check_room(t, name, DT_NUMBER_COLUMN);
    if (st != DT_OK) {
        free(values);
        return st;
    }
    const uint32_t place = dt_columns_add_strings(t, name, strlen(name) + 1);
    columns_append(t, (dt_column){place, DT_NUMBER_COLUMN, .number = values, .cap = t->n_rows});
    return DT_OK;
}

dt_status dt_columns_add_texts(dt_columns *t, const char *name, const char *const *text) {
    DT_TRY(columns_check_room(t, name, DT_TEXT_COLUMN));
    sort_value *v = dt_xcalloc((size_t)t->n_rows + 1, sizeof *v);
    uint32_t n = 0;
    for (uint32_t r = 0; r < t->n_rows; r++)
        if (text[r]) v[n++] = columns_value_of(text[r], r);
    qsort(v, n, sizeof *v, compare_values);
    dt_column col = {dt_columns_add_strings(t, name, strlen(name) + 1), DT_TEXT_COLUMN, .cap = t->n_rows};
    col.values = dt_xcalloc((size_t)n + 1, sizeof *col.values);
    col.cell = dt_xcalloc((size_t)t->n_rows + 1, sizeof *col.cell);
    memset(col.cell, 0xff, (size_t)t->n_rows * sizeof *col.cell);
    dt_status st = DT_OK;
    for (uint32_t i = 0; i < n && st == DT_OK; i++) {
        const size_t n_bytes = strlen(v[i].text) + 1;
        if (i == 0 || strcmp(v[i - 1].text, v[i].text) != 0) {
            st = dt_columns_need_room(t, name, n_bytes);
            if (st == DT_OK) col.values[col.n_values++] = dt_columns_add_strings(t, v[i].text, n_bytes);
        }
        col.cell[v[i].id] = col.n_values - 1;
    }
    free(v);
    columns_append(t, col);
    return st;
}

// ---- fewer rows --------------------------------------------------------------------------------------
// The values that are left keep their order, so cells only move down.
static void drop_values(dt_column *col, uint32_t n_rows) {
    uint32_t *rank = dt_xcalloc(col->n_values + 1, sizeof *rank), n_values = 0;
    for (uint32_t r = 0; r < n_rows; r++)
        if (col->cell[r] != DT_NO_VALUE) rank[col->cell[r]] = 1;
    for (uint32_t v = 0; v < col->n_values; v++) {
        if (!rank[v]) continue;
        col->values[n_values] = col->values[v];
        rank[v] = n_values++;
    }
    for (uint32_t r = 0; r < n_rows; r++)
        if (col->cell[r] != DT_NO_VALUE) col->cell[r] = rank[col->cell[r]];
    col->n_values = n_values;
    free(rank);
}

void dt_columns_keep(dt_columns *t, const bool *keep) {
    uint32_t n = 0;
    for (uint32_t r = 0; r < t->n_rows; r++) n += keep[r];
    for (uint32_t i = 0; i < t->n_columns; i++) {
        dt_column *col = &t->columns[i];
        for (uint32_t r = 0, to = 0; r < t->n_rows; r++) {
            if (!keep[r]) continue;
            if (col->number) col->number[to] = col->number[r];
            if (col->cell) col->cell[to] = col->cell[r];
            to++;
        }
        if (col->values) drop_values(col, n);
    }
    t->n_rows = n;
}

// ---- reading -----------------------------------------------------------------------------------------
uint32_t dt_columns_count(const dt_columns *t, dt_column_kind kind) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_columns; i++) n += t->columns[i].kind == kind;
    return n;
}

int dt_columns_find(const dt_columns *t, const char *name, unsigned kinds) {
    for (uint32_t i = 0; i < t->n_columns; i++)
        if ((t->columns[i].kind & kinds) && strcmp(dt_columns_name(t, (int)i), name) == 0) return (int)i;
    return -1;
}

const char *dt_columns_text(const dt_columns *t, int column, uint32_t row) {
    const dt_column *col = &t->columns[column];
    if (!col->cell || col->cell[row] == DT_NO_VALUE) return NULL;
    return dt_columns_str(t, (col->values ? col->values : t->interned)[col->cell[row]]);
}

bool dt_columns_has(const dt_columns *t, int column, uint32_t row) {
    const dt_column *col = &t->columns[column];
    return col->cell ? col->cell[row] != DT_NO_VALUE : !isnan(col->number[row]);
}

static void hash_text(dt_hash_stream *h, const char *text) {
    dt_hash_stream_update(h, text, strlen(text) + 1);
}

uint64_t dt_columns_hash(const dt_columns *t) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->n_columns; i++) {
        const dt_column *col = &t->columns[i];
        uint32_t r = 0;
        while (r < t->n_rows && !dt_columns_has(t, (int)i, r)) r++;
        if (r == t->n_rows) continue;
        dt_hash_stream *h = dt_hash_stream_create();
        if (col->number) hash_text(h, "real");
        hash_text(h, dt_columns_name(t, (int)i));
        for (uint32_t v = 0; v < col->n_values; v++) hash_text(h, dt_columns_str(t, col->values[v]));
        if (col->number)
            dt_hash_stream_update(h, col->number, t->n_rows * sizeof *col->number);
        else
            dt_hash_stream_update(h, col->cell, t->n_rows * sizeof *col->cell);
        sum += dt_hash_stream_digest(h);
        dt_hash_stream_destroy(h);
    }
    return sum;
}
