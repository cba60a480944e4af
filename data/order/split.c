// split.c: units, strata, parts.
//
// A unit is never divided: a sample, a record, or all records with one value of a column (a subject) or of several.
// Units whose part is given are set aside first; shares are of the rest.
// Units are grouped into strata: by the value of the stratify column and, for records, by which members
// they have, so that each field gets its shares. Within a stratum, units are ordered by a hash of (seed,
// key); the first ones test, the next validate, the rest train. Shares are counted over all strata so far
// and rounded once, so that ten strata of three records still give their 10 %: what one stratum is too
// small to give, the next one gives. Units that are alone in their stratum (a subject, stratified by
// subject) form one stratum together.
//
// A sample joins a part if all its records do. The others are counted as mixed.
#include "split.h"

#include "base/core.h"
#include "base/hash.h"
#include "batch/batch_source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAIN = DT_SPLIT_TRAIN, VAL = DT_SPLIT_VAL, TEST = DT_SPLIT_TEST, NOWHERE = DT_SPLIT_NOWHERE };

typedef struct unit {
    uint64_t signature; // kind of record, before the value
    uint32_t value;     // of the stratify column
    uint64_t hash;      // of seed and key: the order within a stratum
    uint64_t tie;       // of the key alone
    uint32_t index;
    uint8_t part; // given
} unit;

// Records by the columns of a unit. A group is an index into the sorted hashes of their values.
typedef struct groups {
    uint32_t *of; // by record, or DT_NO_VALUE
    uint64_t *hash;
    uint32_t n;
} groups;

static uint64_t hash_pair(uint64_t a, uint64_t b) {
    uint64_t v[2] = {a, b};
    return dt_hash64(v, sizeof v);
}

static int compare_units(const void *pa, const void *pb) {
    const unit *a = pa, *b = pb;
    if (a->signature != b->signature) return a->signature < b->signature ? -1 : 1;
    if (a->value != b->value) return a->value < b->value ? -1 : 1;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    if (a->tie != b->tie) return a->tie < b->tie ? -1 : 1; // copies have equal ties: they lie side by side
    return a->index < b->index ? -1 : a->index > b->index;
}

// Which extensions a record has, whatever their order.
static uint64_t record_signature(const dt_catalog *c, uint32_t r) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->records[r].n_members; i++) {
        const char *ext = dt_catalog_str(c, c->exts[c->members[c->records[r].first_member + i].ext]);
        sum += dt_hash64(ext, strlen(ext)); // a sum, so that the order of members has no part in it
    }
    return sum;
}

static uint32_t stratum_value(const dt_catalog *c, const dt_split_spec *s, uint32_t record) {
    return s->stratify < 0 ? 0 : dt_catalog_cell(c, s->stratify, record);
}

static uint8_t given_part(const dt_split_spec *s, uint32_t record) {
    return s->given ? s->given[record] : TRAIN;
}

static uint32_t make_record_units(unit *u, const dt_catalog *c, const dt_view *v, const dt_split_spec *s) {
    bool *used = dt_xcalloc(c->n_records + 1, 1);
    uint32_t n = 0;
    for (size_t i = 0; i < (size_t)v->n * (size_t)v->width; i++) used[v->record[i]] = true;
    for (uint32_t r = 0; r < c->n_records; r++)
        // a record that no sample needs takes no share
        if (used[r])
            u[n++] = (unit){.signature = record_signature(c, r),
                            .value = stratum_value(c, s, r),
                            .hash = hash_pair(s->seed, c->records[r].key_hash),
                            .tie = c->records[r].key_hash,
                            .index = r,
                            .part = given_part(s, r)};
    free(used);
    return n;
}

static uint32_t make_sample_units(unit *u, const dt_catalog *c, const dt_view *v, const dt_split_spec *s) {
    for (uint32_t i = 0; i < v->n; i++) {
        const uint32_t *record = v->record + (size_t)i * (size_t)v->width;
        uint64_t key = 0;
        uint8_t part = given_part(s, record[0]);
        for (int k = 0; k < v->width; k++) {
            // the fields' order counts: it is the same in every sample
            key = hash_pair(key, c->records[record[k]].key_hash);
            if (given_part(s, record[k]) != part) part = NOWHERE; // data.split.file divides the sample
        }
        u[i] = (unit){.value = stratum_value(c, s, record[0]),
                      .hash = hash_pair(s->seed, key),
                      .tie = key,
                      .index = i,
                      .part = part};
    }
    return v->n;
}

// ---- units of columns --------------------------------------------------------------------------------
// false: one of the columns has no value.
static bool hash_values(const dt_catalog *c, const dt_split_spec *s, uint32_t record, uint64_t *hash) {
    for (int k = 0; k < s->n_unit_columns; k++) {
        const char *text = dt_catalog_value(c, s->unit_columns[k], record);
        if (!text) return false;
        uint64_t h = dt_hash64(text, strlen(text));
        *hash = k ? hash_pair(*hash, h) : h;
    }
    return true;
}

static int compare_hashes(const void *pa, const void *pb) {
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a > b) - (a < b);
}

static groups split_make_groups(const dt_catalog *c, const dt_split_spec *s) {
    groups g = {dt_xcalloc(c->n_records + 1, sizeof *g.of), dt_xcalloc(c->n_records + 1, sizeof *g.hash), 0};
    uint64_t *of = dt_xcalloc(c->n_records + 1, sizeof *of);
    uint32_t n = 0;
    for (uint32_t r = 0; r < c->n_records; r++) {
        g.of[r] = DT_NO_VALUE;
        if (!hash_values(c, s, r, &of[r])) continue;
        g.of[r] = 0;
        g.hash[n++] = of[r];
    }
    qsort(g.hash, n, sizeof *g.hash, compare_hashes);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || g.hash[i] != g.hash[g.n - 1]) g.hash[g.n++] = g.hash[i];
    for (uint32_t r = 0; r < c->n_records; r++) {
        if (g.of[r] == DT_NO_VALUE) continue;
        // found always: the hash is one of the list
        const uint64_t *at = bsearch(&of[r], g.hash, g.n, sizeof of[r], compare_hashes);
        g.of[r] = (uint32_t)(at - g.hash);
    }
    free(of);
    return g;
}

static dt_status divided(const dt_catalog *c, const dt_split_spec *s, uint32_t a, uint32_t b) {
    char what[256] = "";
    for (int k = 0; k < s->n_unit_columns; k++) {
        size_t at = strlen(what);
        snprintf(what + at, sizeof what - at, "%s%s = '%s'", k ? ", " : "",
                 dt_columns_name(&c->table, s->unit_columns[k]), dt_catalog_value(c, s->unit_columns[k], a));
    }
    return dt_fail(DT_E_USAGE, "the records with %s are in two parts: %s in %s, %s in %s", what,
                   dt_catalog_str(c, c->records[a].key), dt_split_name(s->given[a]),
                   dt_catalog_str(c, c->records[b].key), dt_split_name(s->given[b]));
}

// A group's stratum is that of its record with the smallest key hash: the stratify column is usually
// constant within a unit, and any rule will do that does not depend on file order.
static dt_status make_column_units(unit *u, uint32_t *n, const groups *g, const dt_catalog *c, const dt_view *v,
                                   const dt_split_spec *s) {
    uint32_t *first = dt_xcalloc((size_t)g->n + 1, sizeof *first);
    dt_status st = DT_OK;
    *n = 0;
    memset(first, 0xff, ((size_t)g->n + 1) * sizeof *first); // UINT32_MAX: no record yet
    for (size_t i = 0; i < (size_t)v->n * (size_t)v->width && st == DT_OK; i++) {
        uint32_t r = v->record[i], group = g->of[r];
        if (group == DT_NO_VALUE || given_part(s, r) == NOWHERE) continue;
        if (first[group] == UINT32_MAX)
            first[group] = r;
        else if (given_part(s, r) != given_part(s, first[group]))
            st = divided(c, s, first[group], r);
        if (c->records[r].key_hash < c->records[first[group]].key_hash) first[group] = r;
    }
    for (uint32_t i = 0; i < g->n && st == DT_OK; i++)
        if (first[i] != UINT32_MAX)
            u[(*n)++] = (unit){.value = stratum_value(c, s, first[i]),
                               .hash = hash_pair(s->seed, g->hash[i]),
                               .tie = g->hash[i],
                               .index = i,
                               .part = given_part(s, first[i])};
    free(first);
    return st;
}

// ---- shares ------------------------------------------------------------------------------------------
// Units divided so far, over all strata.
typedef struct tally {
    uint64_t n, n_test, n_val;
    uint64_t n_distinct; // for folds
} tally;

// How many of the next n units go to a part that has `given` units and is due `fraction` of `total`.
static uint32_t due(uint64_t total, double fraction, uint64_t given, uint32_t n) {
    // rounded; 1e-9 for shares such as 0.15 that are a little less in binary
    uint64_t wanted = (uint64_t)floor((double)total * fraction + 0.5 + 1e-9);
    if (wanted <= given) return 0; // earlier strata were given more than their share
    return wanted - given < n ? (uint32_t)(wanted - given) : n;
}

// Copies of a record have equal keys, lie side by side, and stay together.
static uint32_t with_copies(const unit *u, uint32_t n, uint32_t end) {
    while (end > 0 && end < n && u[end].tie == u[end - 1].tie) end++;
    return end;
}

static void divide_stratum(const dt_split_spec *s, const unit *u, uint32_t n, tally *t, uint8_t *part) {
    uint32_t n_test = s->folds > 0 ? 0 : with_copies(u, n, due(t->n + n, s->test, t->n_test, n));
    for (uint32_t i = 0; i < n; i++) part[u[i].index] = i < n_test ? TEST : TRAIN;
    for (uint32_t i = 0, end; i < n && s->folds > 0; i = end) {
        end = with_copies(u, n, i + 1);
        // dealt like cards, on through all strata
        if (t->n_distinct++ % (uint64_t)s->folds != (uint64_t)s->fold) continue;
        for (uint32_t k = i; k < end; k++, n_test++) part[u[k].index] = TEST;
    }
    t->n += n;
    t->n_test += n_test;
    uint64_t of = s->folds > 0 ? t->n - t->n_test : t->n; // what val is a share of
    uint32_t n_val = due(of, s->val, t->n_val, n - n_test);
    for (uint32_t i = 0, end; i < n && n_val > 0; i = end) {
        end = with_copies(u, n, i + 1);
        for (uint32_t k = i; k < end && part[u[i].index] != TEST; k++) {
            part[u[k].index] = VAL;
            t->n_val++;
            n_val -= n_val > 0; // copies may exceed what is due
        }
    }
}

static uint32_t end_of_stratum(const unit *u, uint32_t n, uint32_t i) {
    uint32_t end = i + 1;
    while (end < n && u[i].signature == u[end].signature && u[i].value == u[end].value) end++;
    return end;
}

// Sorts units into strata.
static void stratify(unit *u, uint32_t n) {
    enum { ALONE = UINT32_MAX - 1 }; // no column has as many values
    bool any = false;
    qsort(u, n, sizeof *u, compare_units);
    for (uint32_t i = 0, end; i < n; i = end) {
        end = end_of_stratum(u, n, i);
        // strata of one unit are divided together, or each would round to no test
        if (end - i > 1) continue;
        u[i].value = ALONE;
        any = true;
    }
    if (any) qsort(u, n, sizeof *u, compare_units);
}

// Units of a given part leave the list.
static uint32_t set_aside(unit *u, uint32_t n, uint8_t *part) {
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < n; i++) {
        part[u[i].index] = u[i].part;
        if (u[i].part == TRAIN) u[n_left++] = u[i];
    }
    return n_left;
}

// ---- samples -----------------------------------------------------------------------------------------
static uint8_t sample_part(const dt_view *v, const dt_split_spec *s, const groups *g, const uint8_t *part, uint32_t i) {
    if (s->unit == DT_BY_sample) return part[i];
    uint8_t all = NOWHERE;
    for (int k = 0; k < v->width; k++) {
        uint32_t r = v->record[(size_t)i * (size_t)v->width + (size_t)k];
        uint32_t u = s->unit == DT_BY_record ? r : g->of[r];
        uint8_t p = u == DT_NO_VALUE || given_part(s, r) == NOWHERE ? NOWHERE : part[u];
        if (k > 0 && p != all) return NOWHERE; // its records are in different parts
        all = p;
    }
    return all;
}

static bool is_unlisted(const dt_view *v, const dt_split_spec *s, uint32_t i) {
    bool any = false;
    for (int k = 0; k < v->width; k++)
        any = any || given_part(s, v->record[(size_t)i * (size_t)v->width + (size_t)k]) == NOWHERE;
    return any;
}

static bool lacks_unit(const dt_view *v, const groups *g, uint32_t i) {
    bool any = false;
    for (int k = 0; k < v->width && g->of; k++)
        any = any || g->of[v->record[(size_t)i * (size_t)v->width + (size_t)k]] == DT_NO_VALUE;
    return any;
}

static void list_samples(dt_splits *out, const dt_view *v, const dt_split_spec *s, const groups *g,
                         const uint8_t *part) {
    for (int k = 0; k < 3; k++) out->sample[k] = dt_xcalloc((size_t)v->n + 1, sizeof(uint32_t));
    out->part = dt_xcalloc((size_t)v->n + 1, 1);
    for (uint32_t i = 0; i < v->n; i++) {
        uint8_t p = out->part[i] = sample_part(v, s, g, part, i);
        if (p != NOWHERE)
            out->sample[p][out->n[p]++] = i;
        else if (is_unlisted(v, s, i))
            out->n_unlisted++;
        else if (lacks_unit(v, g, i))
            out->n_no_unit++;
        else
            out->n_mixed++;
    }
}

dt_status dt_splits_make(dt_splits *out, const dt_catalog *c, const dt_view *v, const dt_split_spec *s) {
    *out = (dt_splits){0};
    size_t cap = v->n > c->n_records ? v->n : c->n_records; // units are samples, records, or groups of records
    unit *u = dt_xcalloc(cap + 1, sizeof *u);
    uint8_t *part = dt_xcalloc(cap + 1, 1);
    groups g = {0};
    uint32_t n = 0;
    dt_status st = DT_OK;
    if (s->unit == DT_BY_sample) {
        n = make_sample_units(u, c, v, s);
    } else if (s->unit == DT_BY_record) {
        n = make_record_units(u, c, v, s);
    } else {
        g = split_make_groups(c, s);
        st = make_column_units(u, &n, &g, c, v, s);
    }
    if (st == DT_OK) {
        tally t = {0};
        n = set_aside(u, n, part);
        stratify(u, n);
        for (uint32_t i = 0, end; i < n; i = end) {
            end = end_of_stratum(u, n, i);
            divide_stratum(s, u + i, end - i, &t, part);
        }
        list_samples(out, v, s, &g, part);
    }
    free(g.of);
    free(g.hash);
    free(part);
    free(u);
    return st;
}

void dt_splits_left_out(const dt_splits *s, char *buf, size_t cap) {
    const struct {
        uint32_t n;
        const char *why;
    } all[] = {{s->n_mixed, "have records in several splits"},
               {s->n_unlisted, "are not in data.split.file"},
               {s->n_no_unit, "have no value of data.split.unit"}};
    *buf = '\0';
    for (size_t i = 0, at = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].n && at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "; %u %s and are left out", all[i].n, all[i].why);
}

void dt_splits_fini(dt_splits *s) {
    for (int k = 0; k < 3; k++) free(s->sample[k]);
    free(s->part);
    *s = (dt_splits){0};
}
