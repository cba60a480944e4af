// shard_rows.c: rows of a shard, in memory and in its file rows-N.
//
//   u64 XXH3 of all that follows, n_items; n_items of {u64 source_hash, n_records}; the shard's index (index_file.h)
//
// Records follow the order of items, so counts say which record is of which item.
#include "shard_rows.h"

#include "data/catalog/index_file.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "store/blob.h"

#include <stdlib.h>
#include <string.h>

typedef struct item_row {
    uint64_t source_hash, n_records;
} item_row;

typedef struct header {
    uint64_t hash, n_items;
} header;

struct dt_shard_rows {
    const dt_compose *c;
    size_t shard, first, n_items; // of the list
    dt_catalog *catalog;
    item_row *items;
    char *path;
};

static void items_of(const dt_plan *p, size_t shard, size_t *first, size_t *n) {
    *first = *n = 0;
    if (p->chunk_at[shard] < p->chunk_at[shard + 1]) *first = p->chunks[p->chunk_at[shard]].first;
    for (size_t i = p->chunk_at[shard]; i < p->chunk_at[shard + 1]; i++) *n += p->chunks[i].n;
}

// ---- in memory ----------------------------------------------------------------------------------------
dt_shard_rows *dt_shard_rows_create(const dt_compose *c, size_t shard, const char *path) {
    dt_shard_rows *r = dt_xcalloc(1, sizeof *r);
    r->c = c;
    r->shard = shard;
    items_of(c->plan, shard, &r->first, &r->n_items);
    r->items = dt_xcalloc(r->n_items + 1, sizeof *r->items);
    r->catalog = dt_catalog_create();
    r->path = dt_xstrdup(path);
    dt_catalog_add_shard(r->catalog, path, 0);
    return r;
}

void dt_shard_rows_destroy(dt_shard_rows *r) {
    if (!r) return;
    dt_catalog_destroy(r->catalog);
    free(r->items);
    free(r->path);
    free(r);
}

dt_status dt_shard_rows_add(dt_shard_rows *r, const dt_chunk_record *x, const uint64_t *offset) {
    const dt_raw_item *item = &r->c->raw->items[x->item];
    item_row *row = &r->items[x->item - r->first];
    dt_catalog *c = r->catalog;
    char *key = dt_xprintf("%s%s", item->key, x->suffix);
    dt_status st = dt_catalog_add_record(c, 0, key);
    free(key);
    for (int i = 0; i < x->n_members && st == DT_OK; i++)
        st = dt_catalog_add_member(c, x->member[i].ext, offset[i], x->member[i].size, &x->member[i].hash);
    if (st == DT_OK) st = dt_raw_put_row(r->c->raw, item, c);
    for (int i = 0; i < x->n_columns && st == DT_OK; i++)
        if (!dt_raw_has_value(r->c->raw, item, x->column[i].name))
            st = dt_catalog_set_real(c, x->column[i].name, x->column[i].number);
    row->source_hash = x->source_hash | (x->source_hash == 0); // 0: gave no record
    row->n_records++;
    return st;
}

dt_catalog *dt_shard_rows_catalog(dt_shard_rows *r) {
    return r->catalog;
}

// ---- on disk ------------------------------------------------------------------------------------------
static char *rows_path(const dt_work *w, size_t shard) {
    return dt_xprintf("%s/rows-%zu", w->plan->partial, shard);
}

static dt_status look_at(const char *path, uint64_t *n_bytes, uint64_t *stamp) {
    dt_blob blob;
    DT_TRY(dt_blob_open(&blob, path));
    dt_status st = dt_blob_stamp(&blob, stamp);
    *n_bytes = blob.n_bytes;
    dt_blob_close(&blob);
    return st;
}

dt_status dt_shard_rows_save(dt_shard_rows *r, const dt_work *w, uint64_t fingerprint) {
    dt_shard *shard = &r->catalog->shards[0];
    dt_buffer index = {0}, out = {0};
    header h = {.n_items = r->n_items};
    shard->source_hash = fingerprint;
    DT_TRY(look_at(r->path, &shard->n_bytes, &shard->stamp));
    DT_TRY(dt_catalog_finish(r->catalog));
    dt_status st = dt_index_make(r->catalog, 0, shard->stamp, &index);
    if (st == DT_OK) {
        dt_buffer_append(&out, &h, sizeof h);
        dt_buffer_append(&out, r->items, r->n_items * sizeof *r->items);
        dt_buffer_append(&out, index.data, index.n_bytes);
        h.hash = dt_hash64(out.data + sizeof h.hash, out.n_bytes - sizeof h.hash);
        memcpy(out.data, &h, sizeof h);
        char *path = rows_path(w, r->shard);
        st = dt_io_write_file(path, out.data, out.n_bytes);
        free(path);
    }
    dt_buffer_fini(&out);
    dt_buffer_fini(&index);
    return st;
}

// A rows file in memory, and the data file that its rows describe.
typedef struct rows_file {
    char *path, *data_path, *data;
    const item_row *items;
    size_t first, n_items; // of the list
    const char *index;
    size_t n_index;
    uint64_t n_data, stamp; // of the data file
} rows_file;

static void close_rows(rows_file *f) {
    free(f->path);
    free(f->data_path);
    free(f->data);
}

static dt_status open_rows(rows_file *f, const dt_plan *p, const dt_work *w, size_t shard) {
    header h = {0};
    size_t n = 0;
    *f = (rows_file){.path = rows_path(w, shard), .data_path = dt_xprintf("%s/%s", w->set, p->name[shard])};
    items_of(p, shard, &f->first, &f->n_items);
    DT_TRY(dt_io_read_file(&f->data, &n, f->path, 0, DT_E_STORAGE));
    size_t n_head = sizeof h + f->n_items * sizeof *f->items;
    if (n >= sizeof h) memcpy(&h, f->data, sizeof h);
    if (n < n_head || h.n_items != f->n_items || h.hash != dt_hash64(f->data + sizeof h.hash, n - sizeof h.hash))
        return dt_fail(DT_E_STORAGE, "%s: damaged; remove its folder and pack again", f->path);
    f->items = (const item_row *)(const void *)(f->data + sizeof h);
    f->index = f->data + n_head;
    f->n_index = n - n_head;
    return look_at(f->data_path, &f->n_data, &f->stamp);
}

bool dt_shard_rows_are_there(const dt_compose *c, const dt_work *w, size_t shard, uint64_t fingerprint) {
    rows_file f;
    bool stale = true;
    uint64_t source_hash = 0;
    dt_status st = open_rows(&f, c->plan, w, shard);
    if (st == DT_OK)
        st = dt_index_check(f.data_path, f.path, f.index, f.n_index, f.n_data, &f.stamp, &stale, &source_hash);
    close_rows(&f);
    dt_error_clear();
    return st == DT_OK && !stale && source_hash == fingerprint;
}

void dt_all_rows_init(dt_all_rows *a, const dt_raw *raw) {
    *a = (dt_all_rows){.catalog = dt_catalog_create(), .hash = dt_xcalloc(raw->n + 1, 8)};
}

void dt_all_rows_fini(dt_all_rows *a) {
    dt_catalog_destroy(a->catalog);
    free(a->item);
    free(a->hash);
}

static dt_status shard_rows_append(dt_all_rows *a, const rows_file *f) {
    dt_catalog *c = a->catalog;
    bool stale = false;
    uint32_t r = c->n_records, m = c->n_members;
    DT_TRY(dt_index_parse(c, f->data_path, f->path, f->index, f->n_index, f->n_data, f->stamp, &stale));
    a->item = dt_xrealloc(a->item, (c->n_records + 1) * sizeof *a->item);
    for (size_t i = 0; i < f->n_items; i++) {
        a->hash[f->first + i] = f->items[i].source_hash;
        for (uint64_t k = 0; k < f->items[i].n_records && r < c->n_records; k++)
            a->item[r++] = (uint32_t)(f->first + i);
    }
    for (; m < c->n_members; m++) a->n_bytes += c->members[m].size;
    if (stale || r != c->n_records)
        return dt_fail(DT_E_STORAGE, "%s: is not of %s; remove its folder and pack again", f->path, f->data_path);
    return DT_OK;
}

dt_status dt_all_rows_load(dt_all_rows *a, const dt_compose *c, const dt_work *w, size_t shard) {
    rows_file f;
    dt_status st = open_rows(&f, c->plan, w, shard);
    if (st == DT_OK) st = shard_rows_append(a, &f);
    close_rows(&f);
    return st == DT_E_DATA ? DT_E_STORAGE : st;
}
