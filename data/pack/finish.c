// finish.c: what is done once, by one process, when all shards are whole.
//
// Loads the rows of all shards into one catalog, finds duplicates, and writes the indexes.
#include "data/catalog/index_file.h"
#include "pack_steps.h"
#include "shard_rows.h"

#include "base/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct finish {
    const dt_work *w;
    const dt_compose *c;
    const dt_pack_opts *o;
    dt_all_rows rows;
    uint32_t *first; // by item: the item that it repeats
    dt_finish_counts *counts;
} finish;

// ---- rows ---------------------------------------------------------------------------------------------
static dt_status load_rows(finish *f) {
    for (size_t s = 0; s < f->w->plan->n_shards; s++) DT_TRY(dt_all_rows_load(&f->rows, f->c, f->w, s));
    f->counts->n_records = f->rows.catalog->n_records;
    f->counts->n_bytes = f->rows.n_bytes;
    if (f->counts->n_records == 0)
        return dt_fail(DT_E_DATA, "%s: all %zu records were left out: nothing to pack", f->o->source, f->c->raw->n);
    for (uint32_t i = 0; i < f->c->raw->n; i++)
        if (f->rows.hash[i] == 0 && !(f->c->drop && f->c->drop[i]) && f->counts->n_without++ == 0)
            f->counts->first_without = i;
    return DT_OK;
}

// Writes into each record that repeats another the other's key, if there is a column left: the dataset is good without
// that column.
static dt_status name_duplicates(const finish *f) {
    const dt_raw *raw = f->c->raw;
    dt_catalog *c = f->rows.catalog;
    dt_finish_counts *n = f->counts;
    for (uint32_t i = 0; i < raw->n && n->twin_b == 0; i++)
        if (f->first[i] != DT_NO_DUPLICATE) {
            n->twin_a = f->first[i];
            n->twin_b = i;
        }
    if (n->n_duplicates > 0 && f->o->duplicates == DT_DUPLICATES_FAIL)
        return dt_fail(DT_E_DATA, "%zu records repeat others; the first: %s is the same as %s", n->n_duplicates,
                       raw->items[n->twin_b].name, raw->items[n->twin_a].name);
    n->named = c->n_columns < DT_MAX_COLUMNS || dt_catalog_find_column(c, "duplicate_of") >= 0;
    for (uint32_t r = 0; r < c->n_records && n->n_duplicates > 0 && n->named; r++) {
        uint32_t first = f->first[f->rows.item[r]];
        if (first != DT_NO_DUPLICATE) DT_TRY(dt_catalog_set_at(c, r, "duplicate_of", raw->items[first].key));
    }
    return DT_OK;
}

// Quality is measured of 8-bit pictures and of sounds only; a warning counts the other records.
static void count_plain(const finish *f) {
    const dt_catalog *c = f->rows.catalog;
    int k = dt_catalog_find_real(c, "clipping"); // measured of pictures and of sounds
    for (uint32_t r = 0; r < c->n_records; r++) {
        if (k >= 0 && !isnan(dt_catalog_real(c, k, r))) continue;
        if (f->counts->n_plain++ == 0) f->counts->first_plain = f->rows.item[r];
    }
}

static void count_clipped(const finish *f) {
    const dt_catalog *c = f->rows.catalog;
    const int k = dt_catalog_find_real(c, "clipped");
    for (uint32_t r = 0; k >= 0 && r < c->n_records; r++) {
        if (!(dt_catalog_real(c, k, r) > 0)) continue;
        if (f->counts->n_clipped++ == 0) f->counts->first_clipped = f->rows.item[r];
    }
}

static dt_status write_indexes(const finish *f) {
    dt_catalog *c = f->rows.catalog;
    dt_status st = DT_OK;
    for (uint32_t s = 0; s < c->n_shards && st == DT_OK; s++) {
        char *path = dt_xprintf("%s.index", c->shards[s].path);
        st = dt_index_save(c, s, c->shards[s].stamp, path);
        free(path);
    }
    return st;
}

// ---- the whole ----------------------------------------------------------------------------------------
static dt_status finish_run(finish *f) {
    DT_TRY(load_rows(f));
    f->counts->n_duplicates = dt_duplicates_find(f->rows.hash, f->c->raw, &f->first);
    DT_TRY(name_duplicates(f));
    DT_TRY(dt_catalog_finish(f->rows.catalog));
    if (f->o->quality) count_plain(f);
    if (dt_transform_has_column(f->c->transform, "clipped")) count_clipped(f);
    return write_indexes(f);
}

dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o, dt_finish_counts *out) {
    finish f = {.w = w, .c = c, .o = o, .counts = out};
    *out = (dt_finish_counts){0};
    dt_all_rows_init(&f.rows, c->raw);
    dt_status st = finish_run(&f);
    dt_all_rows_fini(&f.rows);
    free(f.first);
    return st;
}
