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
// The options that change what is written, as members of a JSON object and as words of a command line.
typedef struct option_text {
    dt_json json;
    dt_buffer command;
} option_text;

static void put_word(option_text *t, const char *before, const char *text, const char *after) {
    char *word = dt_xprintf("%s%s%s", before, text, after);
    dt_buffer_append(&t->command, word, strlen(word));
    free(word);
}

// value NULL: not given.
static void put_option(option_text *t, const char *name, const char *value) {
    if (!value) return;
    dt_json_string(&t->json, name, value);
    put_word(t, " --", name, " '");
    put_word(t, "", value, "'");
}

static void put_number(option_text *t, const char *name, double value) {
    char text[DT_REAL_CHARS];
    if (value != 0) put_option(t, name, dt_real_text(text, value));
}

static void put_count(option_text *t, const char *name, uint64_t value) {
    char text[DT_INT_CHARS];
    if (value != 0) put_option(t, name, dt_int_text(text, (int64_t)value));
}

static void put_flag(option_text *t, const char *name, bool value) {
    if (!value) return;
    dt_json_bool(&t->json, name, true);
    put_word(t, " --", name, "");
}

// Begins the JSON object; the command is complete and ends in a NUL.
static void put_options(option_text *t, const dt_pack_opts *o) {
    *t = (option_text){0};
    dt_json_init(&t->json);
    dt_json_begin_object(&t->json, NULL);
    put_word(t, "dtrain pack ", o->source, "");
    put_option(t, "pattern", o->pattern);
    put_option(t, "group", o->group);
    put_option(t, "rows", o->rows);
    put_option(t, "join", o->join);
    put_option(t, "join-on", o->join_on);
    put_flag(t, "key-by-shard", o->key_by_shard);
    put_number(t, "resize", o->resize);
    put_option(t, "encode", o->encode);
    put_number(t, "segment", o->segment_s);
    put_number(t, "hop", o->hop_s);
    put_option(t, "tail", o->drop_tail ? "drop" : NULL);
    put_number(t, "rate", o->rate);
    put_flag(t, "mono", o->mono);
    put_flag(t, "quality", o->quality);
    put_option(t, "where", o->where);
    put_option(t, "on-error", o->skip_bad ? "skip" : NULL);
    put_option(t, "duplicates", o->duplicates == DT_DUPLICATES_DROP ? "drop" : NULL);
    put_count(t, "shard-size", o->shard_bytes);
    put_count(t, "shard-records", o->shard_records);
    dt_buffer_append(&t->command, "", 1);
}

static void free_options(option_text *t) {
    dt_json_fini(&t->json);
    dt_buffer_fini(&t->command);
}

char *dt_finish_command(const dt_pack_opts *o) {
    option_text t;
    put_options(&t, o);
    char *command = dt_xstrdup((char *)t.command.data);
    free_options(&t);
    return command;
}

uint64_t dt_finish_hash_command(const dt_pack_opts *o) {
    option_text t;
    put_options(&t, o);
    uint64_t hash = dt_hash64(t.command.data, t.command.n_bytes);
    free_options(&t);
    return hash;
}

static dt_status write_database(const finish *f) {
    const dt_pack_opts *o = f->o;
    char *path = dt_xprintf("%s%s", f->w->set, strrchr(f->w->plan->catalog, '/'));
    option_text t;
    put_options(&t, o);
    dt_json_string(&t.json, "transform", dt_transform_describe(f->c->transform));
    dt_json_string(&t.json, "format", f->w->plan->format->name);
    dt_json_end_object(&t.json);
    dt_lineage l = {.made_by = "pack",
                    .command = (char *)t.command.data,
                    .options = t.json.data,
                    .version = o->version,
                    .parent = o->source,
                    .parent_hash =
                        f->c->raw->catalog ? dt_catalog_hash(f->c->raw->catalog) : f->c->raw->hash};
    const char **sources = dt_xcalloc(f->rows.catalog->n_records + 1, sizeof *sources); // by record
    for (uint32_t r = 0; r < f->rows.catalog->n_records; r++)
        sources[r] = f->c->raw->items[f->rows.item[r]].name;
    dt_status st = dt_catalog_db_write(path, f->rows.catalog, &l, sources);
    free_options(&t);
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
