// finish.c: what is done once, by one process, when all shards are whole.
//
// Loads the rows of all shards into one catalog, finds duplicates, and writes the indexes and the database.
#include "finish.h"
#include "data/catalog/catalog_db.h"
#include "data/catalog/index_file.h"
#include "duplicates.h"
#include "shard_rows.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct finish {
    const dt_work *w;
    const dt_compose *c;
    const dt_pack_opts *o;
    dt_all_rows rows;
    uint32_t *first; // by item: what it repeats
    dt_finish_counts *counts;
} finish;

// ---- rows ---------------------------------------------------------------------------------------------
static dt_status load_rows(finish *f) {
    for (size_t s = 0; s < f->w->plan->n_shards; s++)
        DT_TRY(dt_all_rows_load(&f->rows, f->c, f->w, s));
    f->counts->n_records = f->rows.catalog->n_records;
    f->counts->n_bytes = f->rows.n_bytes;
    if (f->counts->n_records == 0)
        return dt_fail(DT_E_DATA, "%s: all %zu records were left out: nothing to pack",
                       f->o->source, f->c->raw->n);
    for (uint32_t i = 0; i < f->c->raw->n; i++)
        if (f->rows.hash[i] == 0 && !(f->c->drop && f->c->drop[i]) && f->counts->n_without++ == 0)
            f->counts->first_without = i;
    return DT_OK;
}

// Names in each record what it repeats, if there is a column left: the dataset is good without.
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
        return dt_fail(DT_E_DATA, "%zu records repeat others; the first: %s is the same as %s",
                       n->n_duplicates, raw->items[n->twin_b].name, raw->items[n->twin_a].name);
    n->named = c->n_columns < DT_MAX_COLUMNS || dt_catalog_find_column(c, "duplicate_of") >= 0;
    for (uint32_t r = 0; r < c->n_records && n->n_duplicates > 0 && n->named; r++) {
        uint32_t first = f->first[f->rows.item[r]];
        if (first != DT_NO_DUPLICATE)
            DT_TRY(dt_catalog_set_at(c, r, "duplicate_of", raw->items[first].key));
    }
    return DT_OK;
}

// Quality is measured of 8-bit pictures and of sounds only; the user is told of other records.
static void count_plain(const finish *f) {
    const dt_catalog *c = f->rows.catalog;
    int k = dt_catalog_find_real(c, "clipping"); // measured of both
    for (uint32_t r = 0; r < c->n_records; r++) {
        if (k >= 0 && !isnan(dt_catalog_real(c, k, r))) continue;
        if (f->counts->n_plain++ == 0) f->counts->first_plain = f->rows.item[r];
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

// ---- where it comes from ------------------------------------------------------------------------------
static void put_option(dt_json *j, dt_buffer *command, const char *name, const char *value) {
    char *word = dt_xprintf(" --%s '%s'", name, value);
    dt_json_string(j, name, value);
    dt_buffer_append(command, word, strlen(word));
    free(word);
}

static void put_number(dt_json *j, dt_buffer *command, const char *name, double value) {
    char text[DT_REAL_CHARS];
    if (value != 0) put_option(j, command, name, dt_real_text(text, value));
}

static void put_flag(dt_json *j, dt_buffer *command, const char *name, bool value) {
    if (!value) return;
    dt_json_bool(j, name, true);
    dt_buffer_append(command, " --", 3);
    dt_buffer_append(command, name, strlen(name));
}

// The options of transform.h.
static void put_transform(dt_json *j, dt_buffer *command, const dt_pack_opts *o) {
    put_number(j, command, "resize", o->resize);
    if (o->encode) put_option(j, command, "encode", o->encode);
    put_number(j, command, "segment", o->segment_s);
    put_number(j, command, "hop", o->hop_s);
    if (o->drop_tail) put_option(j, command, "tail", "drop");
    put_number(j, command, "rate", o->rate);
    put_flag(j, command, "mono", o->mono);
    put_flag(j, command, "quality", o->quality);
}

// Appends the options to both; the command ends in a NUL.
static void put_options(dt_json *j, dt_buffer *command, const dt_pack_opts *o) {
    static const char *const DUPLICATES[] = {"report", "drop", "report"};
    char number[32];
    dt_buffer_append(command, "dtrain pack ", 12);
    dt_buffer_append(command, o->source, strlen(o->source));
    if (o->pattern) put_option(j, command, "pattern", o->pattern);
    if (o->join) put_option(j, command, "join", o->join);
    if (o->join_on) put_option(j, command, "join-on", o->join_on);
    put_flag(j, command, "key-by-shard", o->key_by_shard);
    put_transform(j, command, o);
    if (o->where) put_option(j, command, "where", o->where);
    if (o->duplicates == DT_DUPLICATES_DROP)
        put_option(j, command, "duplicates", DUPLICATES[o->duplicates]);
    snprintf(number, sizeof number, "%llu", (unsigned long long)o->shard_bytes);
    if (o->shard_bytes) put_option(j, command, "shard-size", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)o->shard_records);
    if (o->shard_records) put_option(j, command, "shard-records", number);
    dt_buffer_append(command, "", 1);
}

uint64_t dt_finish_hash_command(const dt_pack_opts *o) {
    dt_buffer command = {0};
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    put_options(&j, &command, o);
    uint64_t hash = dt_hash64(command.data, command.n_bytes);
    dt_json_fini(&j);
    dt_buffer_fini(&command);
    return hash;
}

static dt_status write_database(const finish *f) {
    const dt_pack_opts *o = f->o;
    char *path = dt_xprintf("%s%s", f->w->set, strrchr(f->w->plan->catalog, '/'));
    dt_json j;
    dt_buffer command = {0};
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    put_options(&j, &command, o);
    dt_json_string(&j, "transform", dt_transform_describe(f->c->transform));
    dt_json_string(&j, "format", f->w->plan->format->name);
    dt_json_end_object(&j);
    dt_lineage l = {.made_by = "pack",
                    .command = (char *)command.data,
                    .options = j.data,
                    .version = o->version,
                    .parent = o->source,
                    .parent_hash =
                        f->c->raw->catalog ? dt_catalog_hash(f->c->raw->catalog) : f->c->raw->hash};
    const char **sources = dt_xcalloc(f->rows.catalog->n_records + 1, sizeof *sources); // by record
    for (uint32_t r = 0; r < f->rows.catalog->n_records; r++)
        sources[r] = f->c->raw->items[f->rows.item[r]].name;
    dt_status st = dt_catalog_db_write(path, f->rows.catalog, &l, sources);
    dt_buffer_fini(&command);
    dt_json_fini(&j);
    free(sources);
    free(path);
    return st;
}

// ---- the whole ----------------------------------------------------------------------------------------
static dt_status run(finish *f) {
    DT_TRY(load_rows(f));
    f->counts->n_duplicates = dt_duplicates_find(f->rows.hash, f->c->raw, &f->first);
    DT_TRY(name_duplicates(f));
    DT_TRY(dt_catalog_finish(f->rows.catalog));
    if (f->o->quality) count_plain(f);
    DT_TRY(write_indexes(f));
    return write_database(f);
}

dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o,
                            dt_finish_counts *out) {
    finish f = {.w = w, .c = c, .o = o, .counts = out};
    *out = (dt_finish_counts){0};
    dt_all_rows_init(&f.rows, c->raw);
    dt_status st = run(&f);
    dt_all_rows_fini(&f.rows);
    free(f.first);
    return st;
}
