// catalog.c: rows of a dataset in memory.
//
// Values, extensions and column names are interned strings of its table. Keys are not, since they are distinct anyway.
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
    dt_columns_init(&c->table, DT_MAX_COLUMNS, true);
    return c;
}

void dt_catalog_destroy(dt_catalog *c) {
    if (!c) return;
    for (uint32_t i = 0; i < c->n_shards; i++) {
        free(c->shards[i].path);
        free(c->shards[i].file);
    }
    free(c->shards);
    free(c->records);
    free(c->members);
    dt_columns_fini(&c->table);
    free(c);
}

static void *grow_by(void *p, uint32_t *cap, uint32_t n, uint32_t more, size_t size) {
    uint64_t need = (uint64_t)n + more;
    if (need <= *cap) return p;
    *cap = need > UINT32_MAX / 3 ? (uint32_t)need : (uint32_t)(need * 3 / 2);
    return dt_xrealloc(p, *cap * size);
}

// Numbers of records, members and places of strings have 32 bits.
dt_status dt_catalog_need_room(const dt_catalog *c, const char *path, uint64_t n_records, uint64_t n_members,
                               uint64_t n_string_bytes) {
    const uint32_t most = c->table.most;
    DT_TRY(dt_columns_need_room(&c->table, path, n_string_bytes));
    if (c->n_records + n_records <= most && c->n_members + n_members <= most) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "%s: with it there are more than %u %s, which is what a catalog holds: open fewer files at once",
                   path, most, c->n_records + n_records > most ? "records" : "members");
}

dt_record *dt_catalog_new_records(dt_catalog *c, uint32_t n) {
    c->records = grow_by(c->records, &c->cap_records, c->n_records, n, sizeof *c->records);
    c->n_records += n;
    c->table.n_rows = c->n_records;
    c->table.cap_rows = c->cap_records;
    return n ? c->records + c->n_records - n : c->records;
}

dt_member *dt_catalog_new_members(dt_catalog *c, uint32_t n) {
    c->members = grow_by(c->members, &c->cap_members, c->n_members, n, sizeof *c->members);
    c->n_members += n;
    return n ? c->members + c->n_members - n : c->members;
}

uint32_t dt_catalog_add_shard(dt_catalog *c, const char *path, uint64_t n_bytes) {
    c->shards = dt_xgrow(c->shards, c->n_shards, sizeof *c->shards);
    c->shards[c->n_shards] = (dt_shard){.path = dt_xstrdup(path), .n_bytes = n_bytes};
    return c->n_shards++;
}

dt_status dt_catalog_add_record(dt_catalog *c, uint32_t shard, const char *key) {
    assert(!c->finished && (c->n_records == 0 || c->records[c->n_records - 1].shard <= shard));
    size_t n = strlen(key);
    DT_TRY(dt_catalog_need_room(c, c->shards[shard].path, 1, 0, n + 1));
    *dt_catalog_new_records(c, 1) = (dt_record){.key = dt_columns_add_strings(&c->table, key, n + 1),
                                                .shard = shard,
                                                .first_member = c->n_members,
                                                .key_hash = dt_hash64(key, n)};
    return DT_OK;
}

static dt_record *last_record(dt_catalog *c) {
    assert(c->n_records > 0 && !c->finished);
    return &c->records[c->n_records - 1];
}

dt_status dt_catalog_ext(dt_catalog *c, const char *path, const char *ext, uint32_t *out) {
    uint32_t id = 0;
    DT_TRY(dt_columns_intern(&c->table, path, ext, &id)); // may move the list
    const uint32_t s = c->table.interned[id];
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
    *dt_catalog_new_members(c, 1) =
        (dt_member){.ext = e, .has_hash = hash != NULL, .offset = offset, .size = size, .hash = hash ? *hash : 0};
    r->n_members++;
    return DT_OK;
}

dt_status dt_catalog_set_at(dt_catalog *c, uint32_t record, const char *column, const char *value) {
    const char *path = c->shards[c->records[record].shard].path;
    dt_column *col;
    DT_TRY(dt_columns_need(&c->table, path, column, DT_TEXT_COLUMN, &col));
    return dt_columns_intern(&c->table, path, value, &col->cell[record]);
}

dt_status dt_catalog_set(dt_catalog *c, const char *column, const char *value) {
    assert(c->n_records > 0 && !c->finished);
    return dt_catalog_set_at(c, c->n_records - 1, column, value);
}

dt_status dt_catalog_set_from(dt_catalog *c, uint32_t first, const char *column, const char *value) {
    if (first == c->n_records) return DT_OK;
    DT_TRY(dt_catalog_set(c, column, value));
    uint32_t *cell = c->table.columns[dt_catalog_find_column(c, column)].cell;
    for (uint32_t r = first; r + 1 < c->n_records; r++) cell[r] = cell[c->n_records - 1];
    return DT_OK;
}

dt_status dt_catalog_set_real(dt_catalog *c, const char *column, double value) {
    dt_column *col;
    DT_TRY(dt_columns_need(&c->table, c->shards[last_record(c)->shard].path, column, DT_NUMBER_COLUMN, &col));
    // one NaN and one zero: equal values have equal bytes
    col->number[c->n_records - 1] = isnan(value) ? NAN : value == 0 ? 0 : value;
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

// ---- finish ----------------------------------------------------------------------------------------
static dt_status fold_real(dt_catalog *c, dt_column *col, const dt_column *real) {
    char text[DT_REAL_CHARS];
    for (uint32_t r = 0; r < c->n_records; r++)
        if (col->cell[r] == DT_NO_VALUE && !isnan(real->number[r]))
            DT_TRY(dt_columns_intern(&c->table, c->shards[c->records[r].shard].path,
                                     dt_real_text(text, real->number[r]), &col->cell[r]));
    return DT_OK;
}

// Columns of text first. Number columns whose name is also that of a text column join it.
static dt_status order_columns(dt_catalog *c) {
    dt_columns *t = &c->table;
    dt_column *sorted = dt_xcalloc(t->n_columns + 1, sizeof *sorted);
    uint32_t n = 0;
    dt_status st = DT_OK;
    for (uint32_t i = 0; i < t->n_columns; i++)
        if (t->columns[i].cell) sorted[n++] = t->columns[i];
    for (uint32_t i = 0; i < t->n_columns; i++) {
        dt_column *real = &t->columns[i];
        if (!real->number) continue;
        const int k = dt_catalog_find_column(c, dt_columns_name(t, (int)i));
        if (k >= 0 && st == DT_OK) st = fold_real(c, &t->columns[k], real);
        if (k < 0)
            sorted[n++] = *real;
        else
            free(real->number);
    }
    if (n) memcpy(t->columns, sorted, n * sizeof *sorted);
    t->n_columns = n;
    free(sorted);
    return st;
}

dt_status dt_catalog_finish(dt_catalog *c) {
    assert(!c->finished);
    dt_columns_fit(&c->table);
    DT_TRY(order_columns(c));
    dt_columns_sort(&c->table);
    c->finished = true;
    return DT_OK;
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

void dt_catalog_keep(dt_catalog *c, const bool *keep) {
    assert(c->finished);
    dt_columns_keep(&c->table, keep);
    c->n_records = keep_records(c, keep);
}

// ---- reading -----------------------------------------------------------------------------------------
bool dt_catalog_has(const dt_catalog *c, int column, uint32_t first, uint32_t end) {
    for (uint32_t r = first; r < end && r < c->table.columns[column].cap; r++)
        if (dt_columns_has(&c->table, column, r)) return true;
    return false;
}

uint64_t dt_catalog_hash(const dt_catalog *c) {
    dt_hash_stream *h = dt_hash_stream_create();
    for (uint32_t i = 0; i < c->n_records; i++) {
        const dt_record *r = &c->records[i];
        dt_hash_stream_update(h, &r->key_hash, sizeof r->key_hash);
        for (uint32_t m = 0; m < r->n_members; m++) {
            const dt_member *x = &c->members[r->first_member + m];
            uint64_t numbers[2] = {x->size, x->hash};
            const char *ext = dt_catalog_str(c, c->exts[x->ext]);
            dt_hash_stream_update(h, ext, strlen(ext) + 1);
            dt_hash_stream_update(h, numbers, sizeof numbers);
        }
    }
    const uint64_t columns = dt_columns_hash(&c->table); // whatever their order, which shards make
    dt_hash_stream_update(h, &columns, sizeof columns);
    const uint64_t out = dt_hash_stream_digest(h);
    dt_hash_stream_destroy(h);
    return out;
}
