// split_config.c: data.split of the config: from keys to parts.
//
// Parts are given by a file or by expressions, or are shares. What is given comes first; shares are of the rest. All
// of it is a function of catalog and config and not of ranks. What contradicts itself is an error with the key's
// place: a test set that shares records with the training set shows in no loss curve.
#define _GNU_SOURCE // qsort_r
#include "data.h"
#include "data/raw/table.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TRAIN = DT_SPLIT_TRAIN, VAL = DT_SPLIT_VAL, TEST = DT_SPLIT_TEST, NOWHERE = DT_SPLIT_NOWHERE };

// ---- data.split.file ---------------------------------------------------------------------------------
typedef struct listing {
    const dt_catalog *c;
    const dt_table *t;
    uint32_t *by_key; // records, by hash of the key
    int key, part, set;
    int set_column; // of the catalog; -1: rows of any set fit
} listing;

static int split_config_compare_keys(const void *pa, const void *pb, void *catalog) {
    const dt_catalog *c = catalog;
    const uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
    const uint64_t x = c->records[a].key_hash, y = c->records[b].key_hash;
    if (x != y) return x < y ? -1 : 1;
    return (a > b) - (a < b);
}

static void sort_by_key(listing *l) {
    l->by_key = dt_xcalloc((size_t)l->c->n_records + 1, sizeof *l->by_key);
    for (uint32_t i = 0; i < l->c->n_records; i++) l->by_key[i] = i;
    qsort_r(l->by_key, l->c->n_records, sizeof *l->by_key, split_config_compare_keys, (void *)(uintptr_t)l->c);
}

// The first place of by_key with at least this hash.
static uint32_t find_hash(const listing *l, uint64_t hash) {
    uint32_t low = 0, high = l->c->n_records;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (l->c->records[l->by_key[mid]].key_hash < hash)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const char *split_config_cell(const listing *l, size_t row, int column) {
    const char *text = dt_table_cell(l->t, row, column);
    return text ? text : "";
}

static bool split_config_is_meant(const listing *l, size_t row, uint32_t record) {
    const dt_catalog *c = l->c;
    if (strcmp(dt_catalog_str(c, c->records[record].key), split_config_cell(l, row, l->key)) != 0) return false;
    if (l->set_column < 0) return true;
    const char *set = dt_catalog_value(c, l->set_column, record);
    return set && strcmp(set, split_config_cell(l, row, l->set)) == 0;
}

static dt_status split_config_read_row(const listing *l, size_t row, uint8_t *listed) {
    const dt_catalog *c = l->c;
    const char *key = split_config_cell(l, row, l->key), *name = split_config_cell(l, row, l->part);
    uint32_t line = l->t->line[row];
    int part = TRAIN;
    bool found = false;
    while (part < NOWHERE && strcmp(dt_split_name(part), name) != 0) part++;
    if (part == NOWHERE)
        return dt_fail(DT_E_USAGE, "%s:%u: part '%s' of '%s' is not train, val or test", l->t->path, line, name, key);
    uint64_t hash = dt_hash64(key, strlen(key));
    for (uint32_t i = find_hash(l, hash); i < c->n_records && c->records[l->by_key[i]].key_hash == hash; i++) {
        uint32_t r = l->by_key[i];
        if (!split_config_is_meant(l, row, r)) continue;
        if (listed[r] != NOWHERE && listed[r] != part)
            return dt_fail(DT_E_USAGE, "%s:%u: '%s' is %s here and %s in a line before", l->t->path, line, key, name,
                           dt_split_name(listed[r]));
        listed[r] = (uint8_t)part;
        found = true;
    }
    if (found) return DT_OK;
    return dt_fail(DT_E_USAGE,
                   "%s:%u: the data set has no record '%s'%s%s; its keys are like '%s' "
                   "(`dtrain data ls` lists them)",
                   l->t->path, line, key, l->set_column < 0 ? "" : " of set ",
                   l->set_column < 0 ? "" : split_config_cell(l, row, l->set), dt_catalog_str(c, c->records[0].key));
}

static dt_status split_config_read_rows(listing *l, uint8_t *listed) {
    l->key = dt_table_find(l->t, "key");
    l->part = dt_table_find(l->t, "part");
    l->set = dt_table_find(l->t, "set");
    if (l->key < 0 || l->part < 0)
        return dt_fail(DT_E_USAGE, "%s: has no column `%s`; expected `key` and `part`", l->t->path,
                       l->key < 0 ? "key" : "part");
    l->set_column = l->set >= 0 ? dt_catalog_find_column(l->c, "set") : -1;
    for (size_t i = 0; i < l->t->cells.n_rows; i++) DT_TRY(split_config_read_row(l, i, listed));
    return DT_OK;
}

dt_status dt_split_read_file(dt_data *d, const dt_config *c) {
    static const char KEY[] = "data.split.file";
    dt_catalog *catalog = d->reader->catalog;
    dt_table t;
    if (!c->data.split.file) return DT_OK;
    listing l = {.c = catalog, .t = &t};
    dt_status st = dt_table_read(&t, c->data.split.file);
    if (st == DT_OK) {
        d->listed = dt_xcalloc((size_t)catalog->n_records + 1, 1);
        memset(d->listed, NOWHERE, catalog->n_records);
        sort_by_key(&l);
        st = split_config_read_rows(&l, d->listed);
        free(l.by_key);
        dt_table_fini(&t);
    }
    if (st == DT_OK) return st;
    const dt_error_kept why = dt_error_keep();
    return dt_config_fail(c, KEY, "%s: %s", KEY, why.message);
}

// ---- copies ------------------------------------------------------------------------------------------
// Whether the bytes that the network reads of a record have hashes: of its pictures and sounds, else of its vectors.
static bool content_of(const dt_data *d, uint32_t record, uint64_t *out) {
    const dt_catalog *c = d->reader->catalog;
    uint64_t all[2 * DT_MAX_FIELDS];
    size_t n = 0;
    for (int vectors = 0; vectors < 2 && n == 0; vectors++)
        for (int i = 0; i < d->fields.n; i++) {
            const int64_t m = dt_field_member(&d->fields.f[i], c, record);
            if (m < 0 || (d->fields.f[i].kind == DT_FIELD_vector) != vectors) continue;
            if (!c->members[m].has_hash) return false;
            all[n++] = c->members[m].hash;
            all[n++] = c->members[m].size;
        }
    *out = dt_hash64(all, n * sizeof *all);
    return n > 0;
}

// The record of its set that column duplicate_of names, else the record itself.
static uint32_t find_original(const listing *l, int column, uint32_t record) {
    const dt_catalog *c = l->c;
    const char *key = dt_catalog_value(c, column, record);
    const uint64_t hash = key ? dt_hash64(key, strlen(key)) : 0;
    for (uint32_t i = key ? find_hash(l, hash) : c->n_records;
         i < c->n_records && c->records[l->by_key[i]].key_hash == hash; i++) {
        const uint32_t r = l->by_key[i];
        if (strcmp(dt_catalog_str(c, c->records[r].key), key) == 0 &&
            c->shards[c->records[r].shard].set == c->shards[c->records[record].shard].set)
            return r;
    }
    return record;
}

// By record: equal numbers for copies, 0 for a record of which neither hashes nor a column say what it repeats. Heap.
static uint64_t *find_contents(const dt_data *d, bool *any) {
    enum { MAX_HOPS = 32 };
    listing l = {.c = d->reader->catalog};
    const int column = dt_catalog_find_column(l.c, "duplicate_of");
    uint64_t *id = dt_xcalloc((size_t)l.c->n_records + 1, sizeof *id);
    if (column >= 0) sort_by_key(&l);
    *any = false;
    for (uint32_t r = 0; r < l.c->n_records; r++) {
        uint32_t first = r;
        for (int k = 0; column >= 0 && k < MAX_HOPS; k++) first = find_original(&l, column, first);
        if (!content_of(d, first, &id[r])) {
            const uint64_t name[2] = {l.c->records[first].key_hash, l.c->shards[l.c->records[first].shard].set};
            id[r] = column >= 0 ? dt_hash64(name, sizeof name) : 0;
        }
        *any |= id[r] != 0;
    }
    free(l.by_key);
    return id;
}

// data.split.unit: content: a column of that name.
static dt_status add_content_column(const dt_data *d, const dt_config *c) {
    enum { N_HEX = 17 };
    dt_catalog *catalog = d->reader->catalog;
    bool any;
    uint64_t *id = find_contents(d, &any);
    char *hex = dt_xcalloc((size_t)catalog->n_records + 1, N_HEX);
    const char **text = dt_xcalloc((size_t)catalog->n_records + 1, sizeof *text);
    for (uint32_t r = 0; r < catalog->n_records; r++) {
        snprintf(hex + (size_t)r * N_HEX, N_HEX, "%016llx", (unsigned long long)id[r]);
        text[r] = id[r] ? hex + (size_t)r * N_HEX : dt_catalog_str(catalog, catalog->records[r].key);
    }
    const dt_status st = any ? dt_columns_add_texts(&catalog->table, "content", text)
                             : dt_config_fail(c, "data.split.unit",
                                              "data.split.unit: content: the set has no hashes, which "
                                              "`dtrain pack` makes, and no column duplicate_of");
    free(text);
    free(hex);
    free(id);
    return st;
}

// By record: bit 1 if it trains, bit 2 if it is in another part.
static uint8_t *find_parts(const dt_data *d) {
    uint8_t *part = dt_xcalloc((size_t)d->reader->catalog->n_records + 1, 1);
    for (int p = TRAIN; p <= TEST; p++)
        for (uint32_t i = 0; i < d->splits.n[p]; i++)
            for (int k = 0; k < d->view.width; k++)
                part[d->view.record[(size_t)d->splits.sample[p][i] * (size_t)d->view.width + (size_t)k]] |=
                    p == TRAIN ? 1 : 2;
    return part;
}

void dt_split_warn_copies(const dt_data *d) {
    const dt_catalog *c = d->reader->catalog;
    if (d->splits.n[TRAIN] == 0 || d->splits.n[VAL] + d->splits.n[TEST] == 0) return;
    bool any;
    uint64_t *id = find_contents(d, &any), mask = 1;
    while (mask < 2 * (uint64_t)c->n_records) mask = 2 * mask + 1;
    uint8_t *part = find_parts(d);
    uint32_t *trains = dt_xcalloc(mask + 1, sizeof *trains), n = 0, copy = 0,
             of = 0; // record + 1, by id
    for (int pass = 1; pass <= 2 && any; pass++)
        for (uint32_t r = 0; r < c->n_records; r++) {
            if (part[r] != pass || !id[r]) continue; // in training and elsewhere: the split's own way
            uint64_t at = id[r] & mask;
            while (trains[at] && id[trains[at] - 1] != id[r]) at = (at + 1) & mask;
            if (pass == 1)
                trains[at] = r + 1;
            else if (trains[at] && n++ == 0)
                copy = r, of = trains[at] - 1;
        }
    if (n > 0)
        dt_warn_alike("%u records of val and test repeat records of training, such as %s (of %s): "
                      "data.split.unit: content keeps copies in one part, `dtrain pack --duplicates "
                      "drop` leaves them out",
                      n, dt_catalog_str(c, c->records[copy].key), dt_catalog_str(c, c->records[of].key));
    free(trains);
    free(part);
    free(id);
}

// ---- keys --------------------------------------------------------------------------------------------
// A share, or an expression whose records get the part.
static dt_status read_part(const dt_data *d, const dt_config *c, const char *key, const dt_cnode *node, uint8_t part,
                           double *share, uint8_t *given) {
    const dt_catalog *cat = d->reader->catalog;
    if (!node || dt_cnode_real(node, share)) return DT_OK;
    if (d->listed) return dt_config_fail(c, key, "%s: data.split.file gives the splits: use one of both", key);
    bool *keep = dt_xcalloc((size_t)cat->n_records + 1, sizeof *keep);
    uint32_t n, n_twice = 0, twice = 0;
    dt_status st = dt_data_select(d, c, key, dt_cnode_str(node), keep, &n);
    for (uint32_t r = 0; r < cat->n_records && st == DT_OK; r++) {
        if (!keep[r]) continue;
        if (given[r] != TRAIN && n_twice++ == 0) twice = r;
        given[r] = part;
    }
    free(keep);
    if (n_twice == 0) return st;
    return dt_config_fail(c, key, "%s: %u of its %u records are in data.split.val too, such as %s", key, n_twice, n,
                          dt_catalog_str(cat, cat->records[twice].key));
}

static dt_status split_config_read_unit(const dt_data *d, const dt_config *c, dt_split_spec *s) {
    static const char KEY[] = "data.split.unit";
    const dt_cnode *list = c->data.split.unit;
    size_t n = list ? dt_cnode_size(list) : 0;
    if (n == 0) return DT_OK;
    if (n > DT_SPLIT_MAX_COLUMNS)
        return dt_config_fail(c, KEY, "%s: expected at most %d columns", KEY, DT_SPLIT_MAX_COLUMNS);
    const int word = dt_word_index(DT_WORDS(DT_BY_WORDS), dt_cnode_str(dt_cnode_item(list, 0)));
    s->unit = word < 0 || n > 1 ? DT_BY_column : (dt_split_unit)word;
    for (size_t i = 0; i < n; i++)
        if (strcmp(dt_cnode_str(dt_cnode_item(list, i)), "content") == 0 &&
            dt_catalog_find_column(d->reader->catalog, "content") < 0)
            DT_TRY(add_content_column(d, c));
    for (size_t i = 0; i < n && s->unit == DT_BY_column; i++)
        DT_TRY(dt_data_find_column(d, c, KEY, dt_cnode_str(dt_cnode_item(list, i)),
                                   &s->unit_columns[s->n_unit_columns++]));
    return DT_OK;
}

// The number of a fold of data.split.folds.
static dt_status read_fold(const dt_config *c, dt_split_spec *s) {
    const char *text = c->data.split.fold;
    char *end;
    if (!text) return DT_OK;
    if (s->folds == 0)
        return dt_config_fail(c, "data.split.fold", "data.split.fold: of no folds: add data.split.folds, or folds_by");
    const long fold = strtol(text, &end, 10);
    if (end == text || *end || fold < 0 || fold > INT_MAX || (fold > 0 && fold >= s->folds))
        return dt_config_fail(c, "data.split.fold", "data.split.fold: %s of %d folds, from 0 on", text, s->folds);
    s->fold = (int)fold;
    return DT_OK;
}

// data.split.folds_by: the records of one value are the test part.
static dt_status read_official_fold(const dt_data *d, const dt_config *c, uint8_t *given) {
    const dt_catalog *cat = d->reader->catalog;
    int column;
    char names[256] = "";
    DT_TRY(dt_data_find_column(d, c, "data.split.folds_by", c->data.split.folds_by, &column));
    const dt_column *col = &cat->table.columns[column];
    const char *want = c->data.split.fold;
    uint32_t fold = 0;
    for (; fold < col->n_values; fold++) {
        const char *name = dt_catalog_str(cat, col->values[fold]);
        if (strcmp(name, "-1") == 0) continue; // always trains, as in PredefinedSplit
        if (!want || strcmp(name, want) == 0) break;
        dt_text_list(names, sizeof names, name);
    }
    if (fold == col->n_values)
        return dt_config_fail(c, "data.split.fold", "data.split.fold: column %s has no %s; it has %s",
                              c->data.split.folds_by, want ? want : "fold",
                              *names ? names : "only -1, whose records always train");
    for (uint32_t r = 0; r < cat->n_records; r++) {
        if (dt_catalog_cell(cat, column, r) != fold) continue;
        if (given[r] == VAL)
            return dt_config_fail(c, "data.split.val",
                                  "data.split.val: holds records of fold %s, which is the test split, such as %s",
                                  dt_catalog_str(cat, col->values[fold]), dt_catalog_str(cat, cat->records[r].key));
        given[r] = TEST;
    }
    return DT_OK;
}

// Folds take the place of a share of the test, so that `data.split.folds=5` makes folds of any config.
static dt_status read_folds(const dt_data *d, const dt_config *c, dt_split_spec *s, uint8_t *given) {
    double share;
    const bool official = c->data.split.folds_by != NULL;
    const char *key = official ? "data.split.folds_by" : "data.split.folds";
    if (c->data.split.folds.has) s->folds = (int)c->data.split.folds.value;
    if (official && s->folds > 0)
        return dt_config_fail(c, key, "%s: the data's own folds, or data.split.folds: one of both", key);
    if (!official) DT_TRY(read_fold(c, s));
    const dt_cnode *test = c->data.split.test;
    if (s->folds > 0 || official) {
        if (d->listed || (test && !dt_cnode_real(test, &share)))
            return dt_config_fail(c, key,
                                  "%s: a fold is the test split, and so is what data.split.%s says: take one of both",
                                  key, d->listed ? "file" : "test");
        if (s->test > 0) dt_info("%s: the fold is the test split, so the share of data.split.test is not used", key);
        s->test = 0;
    }
    return official ? read_official_fold(d, c, given) : DT_OK;
}

static dt_status split_config_read_one(const dt_data *d, const dt_config *c, dt_split_spec *s, uint8_t *given) {
    if (d->listed) memcpy(given, d->listed, d->reader->catalog->n_records);
    DT_TRY(read_part(d, c, "data.split.val", c->data.split.val, VAL, &s->val, given));
    DT_TRY(read_part(d, c, "data.split.test", c->data.split.test, TEST, &s->test, given));
    for (int k = VAL; k <= TEST; k++)
        if ((k == VAL ? s->val : s->test) > 0 && d->listed && memchr(d->listed, k, d->reader->catalog->n_records))
            return dt_config_fail(c, "data.split.file", "data.split.file lists a %s split: leave out data.split.%s",
                                  dt_split_name(k), dt_split_name(k));
    DT_TRY(read_folds(d, c, s, given));
    if (s->val + s->test > 1 + 1e-9) return dt_config_fail(c, "data.split", "data.split: val + test are more than 1");
    DT_TRY(split_config_read_unit(d, c, s));
    if (c->data.split.seed.has) s->seed = (uint64_t)c->data.split.seed.value;
    s->given = given;
    return c->data.split.stratify
               ? dt_data_find_column(d, c, "data.split.stratify", c->data.split.stratify, &s->stratify)
               : DT_OK;
}

// ---- an official split that is not used --------------------------------------------------------------
enum { MAX_NAME = 32 };
typedef struct found_parts {
    char name[3][MAX_NAME]; // by part: the folder or set, or ""
} found_parts;

static void note_part(found_parts *f, const char *name, size_t n) {
    static const char *const NAMES[][4] = {
        {"train", "training"}, {"val", "valid", "validation", "dev"}, {"test", "testing"}};
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < 4 && NAMES[p][i]; i++)
            if (strlen(NAMES[p][i]) == n && strncasecmp(NAMES[p][i], name, n) == 0)
                snprintf(f->name[p], MAX_NAME, "%.*s", (int)n, name);
}

static bool is_official(const found_parts *f) {
    return *f->name[TRAIN] && (*f->name[VAL] || *f->name[TEST]);
}

static void put_part(char *line, size_t cap, const found_parts *f, int part, bool sets) {
    size_t at = strlen(line);
    if (*f->name[part])
        snprintf(line + at, cap - at, sets ? "%s: \"set = '%s'\"" : "%s: \"key like '%s/%%'\"", dt_split_name(part),
                 f->name[part]);
    else if (part == VAL)
        snprintf(line + at, cap - at, "val: 0.1");
}

static void tell_official(const dt_data *d) {
    found_parts sets = {0}, folders = {0};
    char line[160] = "";
    const dt_catalog *c = d->reader->catalog;
    const int set = dt_catalog_find_column(c, "set");
    for (uint32_t v = 0; set >= 0 && v < c->table.columns[set].n_values; v++) {
        const char *name = dt_catalog_str(c, c->table.columns[set].values[v]);
        note_part(&sets, name, strlen(name));
    }
    // until all three parts are found
    for (uint32_t r = 0; r < c->n_records && !(*folders.name[VAL] && is_official(&folders) && *folders.name[TEST]);
         r++) {
        const char *key = dt_catalog_str(c, c->records[r].key), *slash = strchr(key, '/');
        if (slash) note_part(&folders, key, (size_t)(slash - key));
    }
    const bool by_set = is_official(&sets);
    if (!by_set && !is_official(&folders)) return;
    const found_parts *f = by_set ? &sets : &folders;
    put_part(line, sizeof line, f, VAL, by_set);
    if (*f->name[TEST]) strcat(line, ", ");
    put_part(line, sizeof line, f, TEST, by_set);
    dt_warn_alike("data.path: has %s %s%s%s%s%s at its top, but no split is given, so all of them "
                  "train; to keep them apart, add to data:  split: {%s}",
                  by_set ? "sets" : "folders", f->name[TRAIN], *f->name[VAL] ? ", " : "", f->name[VAL],
                  *f->name[TEST] ? ", " : "", f->name[TEST], line);
}

// ---- the whole ---------------------------------------------------------------------------------------
static bool is_wanted(const dt_config *c, const dt_split_spec *s, int part) {
    const dt_cnode *n = part == VAL ? c->data.split.val : c->data.split.test;
    double share = 0;
    if (part == TEST && (s->folds > 0 || c->data.split.folds_by)) return true;
    return n && (!dt_cnode_real(n, &share) || share > 0);
}

// An empty part that was asked for is an error: it would evaluate nothing.
static dt_status check_parts(const dt_data *d, const dt_config *c, const dt_split_spec *s) {
    char left_out[240];
    dt_splits_left_out(&d->splits, left_out, sizeof left_out);
    for (int k = VAL; k <= TEST; k++) {
        const char *name = dt_split_name(k);
        const bool of_folds = s->folds > 0 && k == TEST;
        if (d->splits.n[k] == 0 && is_wanted(c, s, k))
            return dt_config_fail(c, "data.split",
                                  "none of the %u samples falls into the %s split%s: %s data.split.%s, divide by "
                                  "something finer than data.split.unit, or set %s to 0 to go without",
                                  d->view.n, name, left_out, of_folds ? "lower" : "raise", of_folds ? "folds" : name,
                                  name);
    }
    return DT_OK;
}

static dt_status split_config_make(dt_data *d, const dt_config *c, const dt_split_spec *s) {
    dt_status st = dt_splits_make(&d->splits, d->reader->catalog, &d->view, s);
    if (st == DT_E_USAGE) { // the parts that are given divide a unit
        const dt_error_kept why = dt_error_keep();
        st = dt_config_fail(c, "data.split.unit",
                            "data.split.unit: %s: leave out data.split.unit, or give parts that "
                            "keep such records together",
                            why.message);
    }
    DT_TRY(st);
    return check_parts(d, c, s);
}

dt_status dt_split_open(dt_data *d, const dt_config *c) {
    dt_split_spec s = {.unit = DT_BY_record, .stratify = -1, .seed = 42};
    uint8_t *given = dt_xcalloc((size_t)d->reader->catalog->n_records + 1, 1);
    dt_status st = split_config_read_one(d, c, &s, given);
    if (st == DT_OK) st = split_config_make(d, c, &s);
    free(given);
    bool none = !d->listed && s.folds == 0;
    for (int k = VAL; k <= TEST && none; k++) none = !is_wanted(c, &s, k);
    if (st == DT_OK && none) tell_official(d);
    return st;
}

// ---- split.csv ---------------------------------------------------------------------------------------
static void split_config_put_text(dt_buffer *b, const char *text) {
    char *cell = dt_text_cell(text);
    dt_buffer_append(b, *cell ? cell : "\"\"", *cell ? strlen(cell) : 2);
    free(cell);
}

static void split_config_put_row(dt_buffer *b, const dt_data *d, const uint32_t *record, int n, int set, uint8_t part) {
    const dt_catalog *c = d->reader->catalog;
    const char *name = set >= 0 ? dt_catalog_value(c, set, record[0]) : NULL;
    for (int k = 0; k < n; k++) {
        split_config_put_text(b, dt_catalog_str(c, c->records[record[k]].key));
        dt_buffer_append(b, ",", 1);
    }
    if (set >= 0) split_config_put_text(b, name ? name : "");
    if (set >= 0) dt_buffer_append(b, ",", 1);
    dt_buffer_append(b, dt_split_name(part), strlen(dt_split_name(part)));
    dt_buffer_append(b, "\n", 1);
}

// part[r]: that of record r. false: a record is in samples of several parts.
static bool find_record_parts(const dt_data *d, uint8_t *part) {
    const dt_view *v = &d->view;
    memset(part, NOWHERE, d->reader->catalog->n_records);
    for (uint32_t i = 0; i < v->n; i++)
        for (int k = 0; k < v->width && d->splits.part[i] != NOWHERE; k++) {
            uint8_t *p = &part[v->record[(size_t)i * (size_t)v->width + (size_t)k]];
            if (*p != NOWHERE && *p != d->splits.part[i]) return false;
            *p = d->splits.part[i];
        }
    return true;
}

dt_status dt_split_write(const dt_dataset *base, const char *path) {
    const dt_data *d = base->self;
    const dt_catalog *c = d->reader->catalog;
    const dt_view *v = &d->view;
    uint8_t *part = dt_xcalloc((size_t)c->n_records + 1, 1);
    dt_buffer b = {0};
    const bool by_record = find_record_parts(d, part);
    const int set = dt_catalog_find_column(c, "set");
    const char *header = by_record ? set < 0 ? "key,part\n" : "key,set,part\n"
                         : set < 0 ? "key,key2,part\n"
                                   : "key,key2,set,part\n";
    dt_buffer_append(&b, header, strlen(header));
    for (uint32_t r = 0; r < c->n_records && by_record; r++)
        if (part[r] != NOWHERE) split_config_put_row(&b, d, &r, 1, set, part[r]);
    for (uint32_t i = 0; i < v->n && !by_record; i++)
        if (d->splits.part[i] != NOWHERE)
            split_config_put_row(&b, d, v->record + (size_t)i * (size_t)v->width, v->width, set, d->splits.part[i]);
    dt_status st = dt_io_update_file(path, b.data, b.n_bytes);
    dt_buffer_fini(&b);
    free(part);
    return st;
}
