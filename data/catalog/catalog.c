// catalog.c: rows of a dataset in memory.
//
// Strings lie in one buffer and are named by their offset. Values, extensions and column names are
// interned: equal strings have one number, found through a small open-addressing table. Keys are not,
// since they are distinct anyway. While a catalog is built, a cell is the number of its value; finish()
// sorts the distinct values of each column and turns cells into indexes.
#include "catalog.h"

#include "data/file/json_data.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/json.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dt_catalog *dt_catalog_create(void) {
    dt_catalog *c = dt_xcalloc(1, sizeof *c);
    c->most = UINT32_MAX - 1;
    c->cap_intern = 256;
    c->intern = dt_xcalloc(c->cap_intern, sizeof *c->intern);
    return c;
}

void dt_catalog_destroy(dt_catalog *c) {
    if (!c) return;
    for (uint32_t i = 0; i < c->n_shards; i++) {
        free(c->shards[i].path);
        free(c->shards[i].file);
    }
    for (uint32_t i = 0; i < c->n_columns; i++) {
        free(c->columns[i].values);
        free(c->columns[i].cell);
    }
    for (uint32_t i = 0; i < c->n_reals; i++) free(c->reals[i].value);
    free(c->shards);
    free(c->records);
    free(c->members);
    free(c->interned);
    free(c->intern);
    dt_buffer_fini(&c->strings);
    free(c);
}

static void *grow_by(void *p, uint32_t *cap, uint32_t n, uint32_t more, size_t size) {
    uint64_t need = (uint64_t)n + more;
    if (need <= *cap) return p;
    *cap = need > UINT32_MAX / 3 ? (uint32_t)need : (uint32_t)(need * 3 / 2);
    return dt_xrealloc(p, *cap * size);
}

static void *catalog_grow(void *p, uint32_t *cap, uint32_t n, size_t size) {
    return grow_by(p, cap, n, n < 16 ? 16 : 1, size);
}

// Numbers of records, members and places of strings have 32 bits.
dt_status dt_catalog_need_room(const dt_catalog *c, const char *path, uint64_t n_records, uint64_t n_members,
                               uint64_t n_string_bytes) {
    bool strings = c->strings.n_bytes + n_string_bytes > c->most;
    if (!strings && c->n_records + n_records <= c->most && c->n_members + n_members <= c->most) return DT_OK;
    return dt_fail(DT_E_DATA, "%s: with it there are more than %u %s, which is what a catalog holds: %s", path, c->most,
                   strings                              ? "bytes of keys and different values"
                   : c->n_records + n_records > c->most ? "records"
                                                        : "members",
                   strings ? "open fewer files at once, or pack with shorter keys and without the "
                             "text columns that have many values"
                           : "open fewer files at once");
}

static uint32_t add_string(dt_catalog *c, const char *s) {
    return dt_catalog_add_strings(c, s, strlen(s) + 1);
}

static const char *interned(const dt_catalog *c, uint32_t id) {
    return dt_catalog_str(c, c->interned[id]);
}

static uint32_t *intern_slot(dt_catalog *c, const char *s) {
    uint32_t mask = c->cap_intern - 1, i = (uint32_t)dt_hash64(s, strlen(s)) & mask;
    while (c->intern[i] && strcmp(interned(c, c->intern[i] - 1), s) != 0) i = (i + 1) & mask;
    return &c->intern[i];
}

dt_status dt_catalog_intern(dt_catalog *c, const char *path, const char *s, uint32_t *out) {
    if (c->n_interned * 2 >= c->cap_intern) {
        c->cap_intern *= 2;
        free(c->intern);
        c->intern = dt_xcalloc(c->cap_intern, sizeof *c->intern);
        for (uint32_t i = 0; i < c->n_interned; i++) *intern_slot(c, interned(c, i)) = i + 1;
    }
    uint32_t *slot = intern_slot(c, s);
    if (!*slot) {
        DT_TRY(dt_catalog_need_room(c, path, 0, 0, strlen(s) + 1));
        c->interned = catalog_grow(c->interned, &c->cap_interned, c->n_interned, sizeof *c->interned);
        c->interned[c->n_interned] = add_string(c, s);
        *slot = ++c->n_interned;
    }
    *out = *slot - 1;
    return DT_OK;
}

static dt_status intern_string(dt_catalog *c, const char *path, const char *s, uint32_t *out) {
    uint32_t id = 0;
    DT_TRY(dt_catalog_intern(c, path, s, &id)); // may move the list
    *out = c->interned[id];
    return DT_OK;
}

dt_record *dt_catalog_new_records(dt_catalog *c, uint32_t n) {
    c->records = grow_by(c->records, &c->cap_records, c->n_records, n, sizeof *c->records);
    c->n_records += n;
    return n ? c->records + c->n_records - n : c->records;
}

dt_member *dt_catalog_new_members(dt_catalog *c, uint32_t n) {
    c->members = grow_by(c->members, &c->cap_members, c->n_members, n, sizeof *c->members);
    c->n_members += n;
    return n ? c->members + c->n_members - n : c->members;
}

uint32_t dt_catalog_add_strings(dt_catalog *c, const char *strings, size_t n_bytes) {
    assert(c->strings.n_bytes + n_bytes <= c->most);
    uint32_t at = (uint32_t)c->strings.n_bytes;
    dt_buffer_append(&c->strings, strings, n_bytes);
    return at;
}

uint32_t dt_catalog_add_shard(dt_catalog *c, const char *path, uint64_t n_bytes) {
    c->shards = catalog_grow(c->shards, &c->cap_shards, c->n_shards, sizeof *c->shards);
    c->shards[c->n_shards] = (dt_shard){.path = dt_xstrdup(path), .n_bytes = n_bytes};
    return c->n_shards++;
}

dt_status dt_catalog_add_record(dt_catalog *c, uint32_t shard, const char *key) {
    assert(!c->finished && (c->n_records == 0 || c->records[c->n_records - 1].shard <= shard));
    size_t n = strlen(key);
    DT_TRY(dt_catalog_need_room(c, c->shards[shard].path, 1, 0, n + 1));
    c->records = catalog_grow(c->records, &c->cap_records, c->n_records, sizeof *c->records);
    c->records[c->n_records++] = (dt_record){
        .key = add_string(c, key), .shard = shard, .first_member = c->n_members, .key_hash = dt_hash64(key, n)};
    return DT_OK;
}

static dt_record *last_record(dt_catalog *c) {
    assert(c->n_records > 0 && !c->finished);
    return &c->records[c->n_records - 1];
}

dt_status dt_catalog_ext(dt_catalog *c, const char *path, const char *ext, uint32_t *out) {
    uint32_t s = 0;
    DT_TRY(intern_string(c, path, ext, &s));
    for (uint32_t i = 0; i < c->n_exts; i++)
        if (c->exts[i] == s) {
            *out = i;
            return DT_OK;
        }
    if (c->n_exts == DT_MAX_EXTENSIONS)
        return dt_fail(DT_E_DATA, "%s: more than %d different extensions, .%s among them", path, DT_MAX_EXTENSIONS,
                       ext);
    c->exts[c->n_exts] = s;
    *out = c->n_exts++;
    return DT_OK;
}

dt_status dt_catalog_add_member(dt_catalog *c, const char *ext, uint64_t offset, uint64_t size, const uint64_t *hash) {
    dt_record *r = last_record(c);
    uint32_t e = 0;
    DT_TRY(dt_catalog_need_room(c, c->shards[r->shard].path, 0, 1, 0));
    DT_TRY(dt_catalog_ext(c, c->shards[r->shard].path, ext, &e));
    for (uint32_t i = 0; i < r->n_members; i++)
        if (c->members[r->first_member + i].ext == e)
            return dt_fail(DT_E_DATA, "%s: record %s has two members .%s", c->shards[r->shard].path,
                           dt_catalog_str(c, r->key), ext);
    c->members = catalog_grow(c->members, &c->cap_members, c->n_members, sizeof *c->members);
    c->members[c->n_members++] =
        (dt_member){.ext = e, .has_hash = hash != NULL, .offset = offset, .size = size, .hash = hash ? *hash : 0};
    r->n_members++;
    return DT_OK;
}

static void fit_cells(const dt_catalog *c, dt_column *col) {
    if (col->cap_cells >= c->n_records) return;
    uint32_t cap = c->cap_records;
    col->cell = dt_xrealloc(col->cell, cap * sizeof *col->cell);
    memset(col->cell + col->cap_cells, 0xff, (cap - col->cap_cells) * sizeof *col->cell);
    col->cap_cells = cap;
}

dt_status dt_catalog_cells(dt_catalog *c, const char *path, const char *column, uint32_t **out) {
    int i = dt_catalog_find_column(c, column);
    if (i < 0) {
        if (c->n_columns == DT_MAX_COLUMNS)
            return dt_fail(DT_E_DATA, "%s: more than %d metadata columns, %s among them", path, DT_MAX_COLUMNS, column);
        uint32_t name = 0;
        DT_TRY(intern_string(c, path, column, &name));
        i = (int)c->n_columns++;
        c->columns[i] = (dt_column){.name = name};
    }
    fit_cells(c, &c->columns[i]);
    *out = c->columns[i].cell;
    return DT_OK;
}

dt_status dt_catalog_set_at(dt_catalog *c, uint32_t record, const char *column, const char *value) {
    const char *path = c->shards[c->records[record].shard].path;
    uint32_t *cell, id = 0;
    DT_TRY(dt_catalog_cells(c, path, column, &cell));
    DT_TRY(dt_catalog_intern(c, path, value, &id));
    cell[record] = id;
    return DT_OK;
}

dt_status dt_catalog_set(dt_catalog *c, const char *column, const char *value) {
    assert(c->n_records > 0 && !c->finished);
    return dt_catalog_set_at(c, c->n_records - 1, column, value);
}

dt_status dt_catalog_set_from(dt_catalog *c, uint32_t first, const char *column, const char *value) {
    if (first == c->n_records) return DT_OK;
    DT_TRY(dt_catalog_set(c, column, value));
    uint32_t *cell = c->columns[dt_catalog_find_column(c, column)].cell;
    for (uint32_t r = first; r + 1 < c->n_records; r++) cell[r] = cell[c->n_records - 1];
    return DT_OK;
}

static void fit_reals(const dt_catalog *c, dt_real_column *col) {
    if (col->cap_cells >= c->n_records) return;
    uint32_t cap = c->cap_records;
    col->value = dt_xrealloc(col->value, cap * sizeof *col->value);
    for (uint32_t i = col->cap_cells; i < cap; i++) col->value[i] = NAN;
    col->cap_cells = cap;
}

dt_status dt_catalog_numbers(dt_catalog *c, const char *path, const char *column, double **out) {
    int i = dt_catalog_find_real(c, column);
    if (i < 0) {
        if (c->n_reals == DT_MAX_COLUMNS)
            return dt_fail(DT_E_DATA, "%s: more than %d number columns, %s among them", path, DT_MAX_COLUMNS, column);
        uint32_t name = 0;
        DT_TRY(intern_string(c, path, column, &name));
        i = (int)c->n_reals++;
        c->reals[i] = (dt_real_column){.name = name};
    }
    fit_reals(c, &c->reals[i]);
    *out = c->reals[i].value;
    return DT_OK;
}

dt_status dt_catalog_set_real(dt_catalog *c, const char *column, double value) {
    double *at;
    DT_TRY(dt_catalog_numbers(c, c->shards[last_record(c)->shard].path, column, &at));
    // one NaN and one zero: equal values have equal bytes
    at[c->n_records - 1] = isnan(value) ? NAN : value == 0 ? 0 : value;
    return DT_OK;
}

static bool json_text(const json_t *v, char *buf, size_t cap, const char **out) {
    *out = buf;
    if (json_is_string(v))
        *out = json_string_value(v);
    else if (json_is_integer(v))
        snprintf(buf, cap, "%lld", (long long)json_integer_value(v));
    else if (json_is_boolean(v))
        snprintf(buf, cap, "%s", json_is_true(v) ? "true" : "false");
    else
        return false;
    return true;
}

dt_status dt_catalog_set_json(dt_catalog *c, const char *json, size_t n_bytes) {
    json_error_t error;
    json_t *root = dt_json_load(json, n_bytes, 0, &error);
    if (!root) {
        const dt_record *r = last_record(c);
        return dt_fail(DT_E_DATA, "%s: record %s: metadata is not JSON: %s (line %d)", c->shards[r->shard].path,
                       dt_catalog_str(c, r->key), error.text, error.line);
    }
    const char *key, *text;
    json_t *value;
    char buf[64];
    dt_status st = DT_OK;
    json_object_foreach(root, key, value) {
        if (st == DT_OK && json_is_real(value))
            st = dt_catalog_set_real(c, key, json_real_value(value));
        else if (st == DT_OK && json_text(value, buf, sizeof buf, &text))
            st = dt_catalog_set(c, key, text);
    }
    json_decref(root);
    return st;
}

// ---- finish: sorted distinct values ----------------------------------------------------------------
typedef struct sort_value {
    const char *text;
    uint32_t id;
    double number;
    bool is_number;
} sort_value;

static bool catalog_parse_number(const char *s, double *out) {
    char *end;
    if (*s == '\0' || *s == ' ') return false;
    *out = strtod(s, &end);
    return *end == '\0' && isfinite(*out);
}

static int compare_values(const void *pa, const void *pb) {
    const sort_value *a = pa, *b = pb;
    if (a->is_number != b->is_number) return a->is_number ? -1 : 1;
    if (a->is_number && a->number != b->number) return a->number < b->number ? -1 : 1;
    return strcmp(a->text, b->text);
}

static void finish_column(dt_catalog *c, dt_column *col) {
    fit_cells(c, col);
    uint32_t *rank = dt_xcalloc(c->n_interned + 1, sizeof *rank), n = 0; // by id
    for (uint32_t r = 0; r < c->n_records; r++) {
        if (col->cell[r] == DT_NO_VALUE || rank[col->cell[r]]) continue;
        rank[col->cell[r]] = 1;
        n++;
    }
    sort_value *v = dt_xcalloc(n + 1, sizeof *v);
    uint32_t at = 0;
    for (uint32_t id = 0; id < c->n_interned && at < n; id++) {
        if (!rank[id]) continue;
        v[at] = (sort_value){.text = interned(c, id), .id = id};
        v[at].is_number = catalog_parse_number(v[at].text, &v[at].number);
        at++;
    }
    qsort(v, n, sizeof *v, compare_values);
    col->values = dt_xcalloc(n + 1, sizeof *col->values);
    col->n_values = n;
    for (uint32_t i = 0; i < n; i++) {
        col->values[i] = c->interned[v[i].id];
        rank[v[i].id] = i;
    }
    for (uint32_t r = 0; r < c->n_records; r++)
        if (col->cell[r] != DT_NO_VALUE) col->cell[r] = rank[col->cell[r]];
    free(rank);
    free(v);
}

static dt_status fold_real(dt_catalog *c, dt_column *col, dt_real_column *real) {
    char text[DT_REAL_CHARS];
    fit_reals(c, real);
    fit_cells(c, col);
    for (uint32_t r = 0; r < c->n_records; r++)
        if (col->cell[r] == DT_NO_VALUE && !isnan(real->value[r]))
            DT_TRY(dt_catalog_intern(c, c->shards[c->records[r].shard].path, dt_real_text(text, real->value[r]),
                                     &col->cell[r]));
    return DT_OK;
}

// Number columns whose name is also that of a text column join it.
static dt_status fold_reals(dt_catalog *c) {
    uint32_t n = 0;
    dt_status st = DT_OK;
    for (uint32_t i = 0; i < c->n_reals; i++) {
        dt_real_column *real = &c->reals[i];
        int k = dt_catalog_find_column(c, dt_catalog_str(c, real->name));
        if (k >= 0 && st == DT_OK) st = fold_real(c, &c->columns[k], real);
        if (k >= 0 && st == DT_OK) {
            free(real->value);
            continue;
        }
        fit_reals(c, real);
        c->reals[n++] = *real;
    }
    c->n_reals = n;
    return st;
}

dt_status dt_catalog_finish(dt_catalog *c) {
    assert(!c->finished);
    DT_TRY(fold_reals(c));
    for (uint32_t i = 0; i < c->n_columns; i++) finish_column(c, &c->columns[i]);
    c->finished = true;
    free(c->intern);
    free(c->interned);
    c->intern = c->interned = NULL;
    return DT_OK;
}

// ---- one more column -------------------------------------------------------------------------------
static dt_status column_room(const dt_catalog *c, const char *name, uint32_t n) {
    assert(c->finished && dt_catalog_find_column(c, name) < 0 && dt_catalog_find_real(c, name) < 0);
    if (n == DT_MAX_COLUMNS)
        return dt_fail(DT_E_DATA, "column %s: there are %d columns of its kind already", name, DT_MAX_COLUMNS);
    return dt_catalog_need_room(c, name, 0, 0, strlen(name) + 1);
}

dt_status dt_catalog_add_numbers(dt_catalog *c, const char *name, double *values) {
    dt_status st = column_room(c, name, c->n_reals);
    if (st != DT_OK) {
        free(values);
        return st;
    }
    c->reals[c->n_reals++] = (dt_real_column){.name = add_string(c, name), .value = values, .cap_cells = c->n_records};
    return DT_OK;
}

dt_status dt_catalog_add_texts(dt_catalog *c, const char *name, const char *const *text) {
    DT_TRY(column_room(c, name, c->n_columns));
    sort_value *v = dt_xcalloc((size_t)c->n_records + 1, sizeof *v);
    uint32_t n = 0;
    for (uint32_t r = 0; r < c->n_records; r++) {
        if (!text[r]) continue;
        v[n] = (sort_value){.text = text[r], .id = r};
        v[n].is_number = catalog_parse_number(text[r], &v[n].number);
        n++;
    }
    qsort(v, n, sizeof *v, compare_values);
    dt_column col = {.name = add_string(c, name), .cap_cells = c->n_records};
    col.values = dt_xcalloc((size_t)n + 1, sizeof *col.values);
    col.cell = dt_xcalloc((size_t)c->n_records + 1, sizeof *col.cell);
    memset(col.cell, 0xff, (size_t)c->n_records * sizeof *col.cell);
    dt_status st = DT_OK;
    for (uint32_t i = 0; i < n && st == DT_OK; i++) {
        if (i == 0 || strcmp(v[i - 1].text, v[i].text) != 0) {
            st = dt_catalog_need_room(c, name, 0, 0, strlen(v[i].text) + 1);
            if (st == DT_OK) col.values[col.n_values++] = add_string(c, v[i].text);
        }
        col.cell[v[i].id] = col.n_values - 1;
    }
    free(v);
    c->columns[c->n_columns++] = col;
    return st;
}

// ---- fewer records -------------------------------------------------------------------------------
static uint32_t keep_records(dt_catalog *c, const bool *keep) {
    uint32_t n = 0, n_members = 0;
    for (uint32_t r = 0; r < c->n_records; r++) {
        dt_record *x = &c->records[r];
        if (!keep[r]) continue;
        memmove(&c->members[n_members], &c->members[x->first_member], x->n_members * sizeof *c->members);
        c->records[n] = *x;
        c->records[n++].first_member = n_members;
        n_members += x->n_members;
    }
    c->n_members = n_members;
    return n;
}

// The values that are left keep their order, so cells only move down.
static void keep_values(dt_column *col, const bool *keep, uint32_t n_records) {
    uint32_t *rank = dt_xcalloc(col->n_values + 1, sizeof *rank), n = 0, n_values = 0;
    for (uint32_t r = 0; r < n_records; r++) {
        if (!keep[r]) continue;
        col->cell[n++] = col->cell[r];
        if (col->cell[r] != DT_NO_VALUE) rank[col->cell[r]] = 1;
    }
    for (uint32_t v = 0; v < col->n_values; v++) {
        if (!rank[v]) continue;
        col->values[n_values] = col->values[v];
        rank[v] = n_values++;
    }
    for (uint32_t r = 0; r < n; r++)
        if (col->cell[r] != DT_NO_VALUE) col->cell[r] = rank[col->cell[r]];
    col->n_values = n_values;
    free(rank);
}

void dt_catalog_keep(dt_catalog *c, const bool *keep) {
    assert(c->finished);
    for (uint32_t i = 0; i < c->n_columns; i++) keep_values(&c->columns[i], keep, c->n_records);
    for (uint32_t i = 0; i < c->n_reals; i++)
        for (uint32_t r = 0, n = 0; r < c->n_records; r++)
            if (keep[r]) c->reals[i].value[n++] = c->reals[i].value[r];
    c->n_records = keep_records(c, keep);
}

// ---- reading -----------------------------------------------------------------------------------------
int dt_catalog_find_column(const dt_catalog *c, const char *name) {
    for (uint32_t i = 0; i < c->n_columns; i++)
        if (strcmp(dt_catalog_str(c, c->columns[i].name), name) == 0) return (int)i;
    return -1;
}

int dt_catalog_find_real(const dt_catalog *c, const char *name) {
    for (uint32_t i = 0; i < c->n_reals; i++)
        if (strcmp(dt_catalog_str(c, c->reals[i].name), name) == 0) return (int)i;
    return -1;
}

bool dt_catalog_has(const dt_catalog *c, int column, uint32_t first, uint32_t end) {
    const dt_column *col = &c->columns[column];
    for (uint32_t r = first; r < end && r < col->cap_cells; r++)
        if (col->cell[r] != DT_NO_VALUE) return true;
    return false;
}

const char *dt_catalog_value(const dt_catalog *c, int column, uint32_t record) {
    uint32_t v = dt_catalog_cell(c, column, record);
    return v == DT_NO_VALUE ? NULL : dt_catalog_str(c, c->columns[column].values[v]);
}

static void hash_text(dt_hash_stream *h, const char *text) {
    dt_hash_stream_update(h, text, strlen(text) + 1);
}

static uint64_t digest(dt_hash_stream *h) {
    uint64_t out = dt_hash_stream_digest(h);
    dt_hash_stream_destroy(h);
    return out;
}

// Of a column without values as if it were not there.
static uint64_t column_hash(const dt_catalog *c, const dt_column *col) {
    if (col->n_values == 0) return 0;
    dt_hash_stream *h = dt_hash_stream_create();
    hash_text(h, dt_catalog_str(c, col->name));
    for (uint32_t v = 0; v < col->n_values; v++) hash_text(h, dt_catalog_str(c, col->values[v]));
    dt_hash_stream_update(h, col->cell, c->n_records * sizeof *col->cell);
    return digest(h);
}

static uint64_t real_column_hash(const dt_catalog *c, const dt_real_column *col) {
    uint32_t r = 0;
    while (r < c->n_records && isnan(col->value[r])) r++;
    if (r == c->n_records) return 0;
    dt_hash_stream *h = dt_hash_stream_create();
    hash_text(h, "real");
    hash_text(h, dt_catalog_str(c, col->name));
    dt_hash_stream_update(h, col->value, c->n_records * sizeof *col->value);
    return digest(h);
}

uint64_t dt_catalog_hash(const dt_catalog *c) {
    dt_hash_stream *h = dt_hash_stream_create();
    for (uint32_t i = 0; i < c->n_records; i++) {
        const dt_record *r = &c->records[i];
        dt_hash_stream_update(h, &r->key_hash, sizeof r->key_hash);
        for (uint32_t m = 0; m < r->n_members; m++) {
            const dt_member *x = &c->members[r->first_member + m];
            uint64_t numbers[2] = {x->size, x->hash};
            hash_text(h, dt_catalog_str(c, c->exts[x->ext]));
            dt_hash_stream_update(h, numbers, sizeof numbers);
        }
    }
    // a sum, as the order of columns depends on which shard was read first
    uint64_t columns = 0;
    for (uint32_t i = 0; i < c->n_columns; i++) columns += column_hash(c, &c->columns[i]);
    for (uint32_t i = 0; i < c->n_reals; i++) columns += real_column_hash(c, &c->reals[i]);
    dt_hash_stream_update(h, &columns, sizeof columns);
    return digest(h);
}
