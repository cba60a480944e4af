// view.c: samples of records, their weights, and the sampler's order.

#include "view.h"

#include "base/core.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- view ---------------------------------------------------------------------------------------------------------

// Lists of samples.
//
// A view is a plain array of record numbers: 4 or 8 bytes per sample. For pairs, the records of each side
// are sorted into buckets by their value of the column (a counting sort, so that catalog order holds within
// a bucket), and each value contributes the cross product of its two buckets.

enum { MAX_SAMPLES = 0x7fffffff };

static dt_status set_size(dt_view *v, int width, uint64_t n) {
    if (n > MAX_SAMPLES)
        return dt_fail(DT_E_DATA, "the view has %llu samples, more than 2^31: pair within a finer column",
                       (unsigned long long)n);
    *v = (dt_view){.width = width, .n = (uint32_t)n};
    v->record = malloc((n ? n : 1) * (size_t)width * sizeof *v->record);
    return v->record ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory for %llu samples", (unsigned long long)n);
}

dt_status dt_view_make_records(dt_view *v, const dt_catalog *c, const bool *keep) {
    uint64_t n = 0;
    for (uint32_t r = 0; r < c->n_records; r++) n += keep[r];
    DT_TRY(set_size(v, 1, n));
    uint32_t at = 0;
    for (uint32_t r = 0; r < c->n_records; r++)
        if (keep[r]) v->record[at++] = r;
    return DT_OK;
}

// The records with is[r] and value v: list[start[v] .. start[v+1]).
typedef struct buckets {
    uint32_t *start, *list;
} buckets;

static buckets view_make_buckets(const dt_catalog *c, const bool *is, int column) {
    uint32_t n_values = c->table.columns[column].n_values;
    buckets b = {dt_xcalloc(n_values + 2, sizeof(uint32_t)), dt_xcalloc(c->n_records + 1, sizeof(uint32_t))};
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint32_t v = dt_catalog_cell(c, column, r);
        // two ahead: start[v + 1] is where the next one of v goes, and ends as start of v + 1
        if (is[r] && v != DT_NO_VALUE) b.start[v + 2]++;
    }
    for (uint32_t v = 0; v < n_values; v++) b.start[v + 2] += b.start[v + 1];
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint32_t v = dt_catalog_cell(c, column, r);
        if (is[r] && v != DT_NO_VALUE) b.list[b.start[v + 1]++] = r;
    }
    return b;
}

static void free_buckets(buckets *b) {
    free(b->start);
    free(b->list);
}

dt_status dt_view_make_pairs(dt_view *v, const dt_catalog *c, const bool *is_a, const bool *is_b, int column) {
    uint32_t n_values = c->table.columns[column].n_values;
    buckets a = view_make_buckets(c, is_a, column), b = view_make_buckets(c, is_b, column);
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_values; i++)
        n += (uint64_t)(a.start[i + 1] - a.start[i]) * (b.start[i + 1] - b.start[i]);
    dt_status st = set_size(v, 2, n);
    uint32_t *to = v->record;
    for (uint32_t i = 0; i < n_values && st == DT_OK; i++)
        for (uint32_t x = a.start[i]; x < a.start[i + 1]; x++)
            for (uint32_t y = b.start[i]; y < b.start[i + 1]; y++) {
                *to++ = a.list[x];
                *to++ = b.list[y];
            }
    free_buckets(&a);
    free_buckets(&b);
    return st;
}

void dt_view_fini(dt_view *v) {
    free(v->record);
    *v = (dt_view){0};
}

// ---- weights ------------------------------------------------------------------------------------------------------

// Weights become running sums.
//
// A sample's weight is the product of its value in the weight column and a factor that gives the values of
// a column equal shares (or the datasets of data.path the shares that they ask for): one over the sum of
// its group. With both, each dataset is balanced within itself.
//
// Sums are integers: weights are scaled to a total of about 2^52 and rounded once, to at least 1 if they
// are above 0. So drawing is exact arithmetic, the same on every machine.

typedef struct groups {
    uint32_t *of; // by sample
    double *sum;  // of weights, by group
    uint32_t n;
} groups;

// The first of the sample's records that has a value, else its first.
static uint32_t record_with(const dt_catalog *c, const dt_view *v, uint32_t sample, int column) {
    const uint32_t *record = v->record + (size_t)sample * (size_t)v->width;
    for (int k = 0; k < v->width && column >= 0; k++)
        if (dt_columns_has(&c->table, column, record[k])) return record[k];
    return record[0];
}

// value NULL: the record has none.
static dt_status weights_fail_value(const dt_catalog *c, uint32_t record, const char *column, const char *value) {
    const char *quote = value ? "'" : "";
    return dt_fail(DT_E_DATA, "%s: record %s has %s%s%s in column %s, the sampling weight%s",
                   c->shards[c->records[record].shard].path, dt_catalog_str(c, c->records[record].key), quote,
                   value ? value : "no value", quote, column,
                   value ? ": a weight is a number that is not negative" : "");
}

static dt_status column_weight(const dt_catalog *c, const dt_weight_spec *s, uint32_t record, double *out) {
    char number[32];
    *out = 1;
    if (s->column < 0) return DT_OK;
    const char *text = dt_catalog_value(c, s->column, record);
    if (c->table.columns[s->column].number) {
        *out = dt_catalog_real(c, s->column, record);
        snprintf(number, sizeof number, "%g", *out);
        if (!isnan(*out)) text = number; // NaN: the column has no value here
    } else {
        char *end = NULL;
        *out = text ? strtod(text, &end) : NAN;
        if (text && (end == text || *end)) *out = NAN; // not a number as a whole
    }
    return *out >= 0 && isfinite(*out) ? DT_OK
                                       : weights_fail_value(c, record, dt_columns_name(&c->table, s->column), text);
}

// One number for dataset and value of the balanced column.
static dt_status weights_group_of(const dt_catalog *c, const dt_weight_spec *s, uint32_t record, uint32_t *out) {
    uint32_t set = s->set_weight ? s->set_of_shard[c->records[record].shard] : 0, value = 0;
    if (s->balance >= 0) {
        value = dt_catalog_cell(c, s->balance, record);
        if (value == DT_NO_VALUE) return weights_fail_value(c, record, dt_columns_name(&c->table, s->balance), NULL);
    }
    *out = set * (s->balance >= 0 ? c->table.columns[s->balance].n_values : 1) + value;
    return DT_OK;
}

// weight[i]: the column's value, then scaled by the group's factor.
static dt_status weights_weigh(double *weight, groups *g, const dt_catalog *c, const dt_view *v,
                               const uint32_t *samples, uint32_t n, const dt_weight_spec *s) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t record = record_with(c, v, samples[i], s->column);
        DT_TRY(column_weight(c, s, record, &weight[i]));
        record = record_with(c, v, samples[i], s->balance);
        DT_TRY(weights_group_of(c, s, record, &g->of[i]));
        g->sum[g->of[i]] += weight[i];
    }
    if (s->balance < 0 && !s->set_weight) return DT_OK;
    uint32_t n_values = s->balance >= 0 ? c->table.columns[s->balance].n_values : 1;
    for (uint32_t set = 0; set * n_values < g->n; set++) {
        uint32_t n_present = 0; // groups of the set that have samples
        for (uint32_t k = 0; k < n_values; k++) n_present += g->sum[set * n_values + k] > 0;
        double share = s->set_weight ? s->set_weight[set] : 1;
        for (uint32_t k = 0; k < n_values; k++) {
            double *sum = &g->sum[set * n_values + k];
            *sum = *sum > 0 ? share / n_present / *sum : 0; // now a factor
        }
    }
    for (uint32_t i = 0; i < n; i++) weight[i] *= g->sum[g->of[i]];
    return DT_OK;
}

static dt_status weights_add_up(uint64_t **out, const double *weight, uint32_t n) {
    double total = 0;
    for (uint32_t i = 0; i < n; i++) total += weight[i];
    if (!(total > 0)) return dt_fail(DT_E_USAGE, "the weights of all %u training samples are 0", n);
    uint64_t *sums = dt_xcalloc(n, sizeof *sums), sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        double share = ldexp(weight[i] / total, 52); // doubles hold whole numbers up to 2^53
        sum += weight[i] > 0 ? (share < 1 ? 1 : (uint64_t)llround(share)) : 0;
        sums[i] = sum;
    }
    *out = sums;
    return DT_OK;
}

dt_status dt_weights_make(uint64_t **out, const dt_catalog *c, const dt_view *v, const uint32_t *samples, uint32_t n,
                          const dt_weight_spec *s) {
    *out = NULL;
    if (n == 0 || (s->balance < 0 && s->column < 0 && !s->set_weight)) return DT_OK;
    double *weight = dt_xcalloc(n, sizeof *weight);
    uint32_t n_values = s->balance >= 0 ? c->table.columns[s->balance].n_values : 1;
    groups g = {.n = (s->set_weight ? s->n_sets : 1) * n_values};
    g.of = dt_xcalloc(n, sizeof *g.of);
    g.sum = dt_xcalloc((size_t)g.n + 1, sizeof *g.sum);
    dt_status st = weights_weigh(weight, &g, c, v, samples, n, s);
    if (st == DT_OK) st = weights_add_up(out, weight, n);
    free(g.of);
    free(g.sum);
    free(weight);
    return st;
}

dt_status dt_sampler_values_make(dt_sampler_values **out, const dt_catalog *c, const dt_view *v,
                                 const uint32_t *samples, uint32_t n, int column, uint32_t length) {
    const dt_weight_spec s = {.balance = column};
    const uint32_t n_values = c->table.columns[column].n_values;
    uint32_t *of = dt_xcalloc((size_t)n + 1, sizeof *of), present = 0, at = 0;
    dt_sampler_values *x = *out = dt_xcalloc(1, sizeof *x);
    dt_status st = DT_OK;
    x->length = length;
    x->begin = dt_xcalloc((size_t)n_values + 2, sizeof *x->begin);
    x->items = dt_xcalloc((size_t)n + 1, sizeof *x->items);
    for (uint32_t i = 0; i < n && st == DT_OK; i++)
        st = weights_group_of(c, &s, record_with(c, v, samples[i], column), &of[i]);
    uint32_t *count = dt_xcalloc((size_t)n_values + 1, sizeof *count);
    for (uint32_t i = 0; i < n; i++) count[of[i]]++;
    for (uint32_t k = 0; k < n_values; k++) { // values of no sample are left out
        const uint32_t n_here = count[k];
        count[k] = at; // now where the next one goes
        if (n_here) x->begin[++present] = at += n_here;
    }
    for (uint32_t i = 0; i < n; i++) x->items[count[of[i]]++] = i;
    x->n = present;
    free(count);
    free(of);
    return st;
}

void dt_sampler_values_free(dt_sampler_values *v) {
    if (!v) return;
    free(v->begin);
    free(v->items);
    free(v);
}

// ---- sampler ------------------------------------------------------------------------------------------------------

// Permutations without a table.
//
// A Feistel network over 2h bits, 4^h >= n, is a bijection of 0..4^h-1 whatever its round function is
// (Luby and Rackoff, 1988). Cycle walking makes it one of 0..n-1: it is applied again while the result is
// outside. This ends, since the orbit of a point inside comes back inside, after less than four
// applications on average, as 4^h < 4n (n >= 16). Eight rounds of a strong 64-bit mix leave no visible
// structure even where the halves have two or three bits.
//
// `block` keeps reads sequential: the samples in stored order are cut into blocks of 32, the blocks
// are permuted, and positions are shuffled within windows of 128 blocks of that order. So a reader
// touches 128 blocks of 32 neighbours at a time, and each epoch pairs other blocks. The last, shorter
// block may land anywhere; the inverse permutation says where, so that the position of every other
// block is known without a table.
//
// Weights: position p of n, wherever the shuffle put it, owns the p-th of n equal strata of the line of
// running sums and draws one point of it by hash; the sample under the point is drawn (stratified
// sampling). So a sample is drawn the floor or the ceiling of its share per epoch, without Poisson noise,
// and which of two rare neighbours is drawn differs from epoch to epoch.
//
// Rejected: Fisher-Yates (8 bytes a sample a rank and O(n) to resume) and an LCG (correlated).

enum { N_ROUNDS = 8 };

typedef struct feistel {
    uint64_t key[N_ROUNDS];
    uint64_t n;
    unsigned half; // bits
} feistel;

static uint64_t mix64(uint64_t z) { // the finaliser of SplitMix64 (Steele, Lea, Flood, 2014)
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static feistel feistel_make(uint64_t seed, uint64_t stream, uint64_t n) {
    feistel f = {.n = n, .half = 2};
    while (f.half < 32 && (UINT64_C(1) << (2 * f.half)) < n) f.half++; // the smallest 4^half >= n
    uint64_t k = mix64(seed) ^ mix64(stream ^ 0x5851f42d4c957f2du);
    for (int r = 0; r < N_ROUNDS; r++) f.key[r] = k = mix64(k);
    return f;
}

static uint64_t forward_once(const feistel *f, uint64_t x) {
    uint64_t mask = (UINT64_C(1) << f->half) - 1, left = x >> f->half, right = x & mask;
    for (int r = 0; r < N_ROUNDS; r++) {
        uint64_t next = left ^ (mix64(right ^ f->key[r]) & mask);
        left = right;
        right = next;
    }
    return left << f->half | right;
}

static uint64_t backward_once(const feistel *f, uint64_t x) {
    uint64_t mask = (UINT64_C(1) << f->half) - 1, left = x >> f->half, right = x & mask;
    for (int r = N_ROUNDS - 1; r >= 0; r--) {
        uint64_t prev = right ^ (mix64(left ^ f->key[r]) & mask);
        right = left;
        left = prev;
    }
    return left << f->half | right;
}

uint64_t dt_perm_apply(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i) {
    assert(i < n);
    feistel f = feistel_make(seed, stream, n);
    do i = forward_once(&f, i);
    while (i >= n);
    return i;
}

uint64_t dt_perm_invert(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i) {
    assert(i < n);
    feistel f = feistel_make(seed, stream, n);
    do i = backward_once(&f, i);
    while (i >= n);
    return i;
}

static uint64_t block_seed(const dt_sampler *s) {
    return mix64(s->seed ^ 0x626c6f636bu);
}

// What lies at position i before its window is shuffled: the positions of a window, from its first
// on, hold its samples, as blocks of stored neighbours.
static uint64_t in_blocks(const dt_sampler *s, uint64_t epoch, uint64_t i) {
    const uint64_t block = DT_SHUFFLE_BLOCK_SAMPLES;
    uint64_t n_blocks = (s->n + block - 1) / block, rest = s->n - (n_blocks - 1) * block;
    uint64_t at_last = dt_perm_invert(block_seed(s), epoch, n_blocks, n_blocks - 1);
    uint64_t position, within;
    if (i < at_last * block) {
        position = i / block;
        within = i % block;
    } else if (i < at_last * block + rest) {
        position = at_last;
        within = i - at_last * block;
    } else {
        uint64_t after = i - at_last * block - rest;
        position = at_last + 1 + after / block;
        within = after % block;
    }
    return dt_perm_apply(block_seed(s), epoch, n_blocks, position) * block + within;
}

static uint64_t block_index(const dt_sampler *s, uint64_t epoch, uint64_t i) {
    const uint64_t window = DT_SHUFFLE_BLOCK_SAMPLES * DT_SHUFFLE_WINDOW_BLOCKS;
    uint64_t w = i / window, base = w * window;
    uint64_t n_window = s->n - base < window ? s->n - base : window;
    i = base + dt_perm_apply(mix64(block_seed(s) + w), epoch, n_window, i - base);
    return in_blocks(s, epoch, i);
}

static uint64_t sampler_place_of(const dt_sampler *s, uint64_t epoch, uint64_t i) {
    switch (s->shuffle) {
    case DT_SHUFFLE_none:
        return i;
    case DT_SHUFFLE_block:
        return block_index(s, epoch, i);
    case DT_SHUFFLE_global:
        return dt_perm_apply(s->seed, epoch, s->n, i);
    }
    return i;
}

// The sample under a point of stratum p.
static uint64_t weighted_index(const dt_sampler *s, uint64_t epoch, uint64_t p) {
    typedef unsigned __int128 wide;
    uint64_t total = s->cumulative[s->n - 1];
    // total is about 2^52: the product needs 128 bits
    uint64_t low = (uint64_t)((wide)total * p / s->n), high = (uint64_t)((wide)total * (p + 1) / s->n);
    uint64_t hash = mix64(mix64(mix64(s->seed ^ 0x776569676874u) ^ epoch) ^ p);
    uint64_t point = low + (uint64_t)((wide)(high - low) * hash >> 64); // in [low, high)
    uint64_t first = 0, last = s->n - 1; // the first sample whose running sum is above the point
    while (first < last) {
        uint64_t mid = first + (last - first) / 2;
        if (s->cumulative[mid] > point)
            last = mid;
        else
            first = mid + 1;
    }
    return first;
}

// Values take turns: an epoch begins with the one behind the last of the epoch before.
static uint64_t run_index(const dt_sampler *s, uint64_t epoch, uint64_t i) {
    const dt_sampler_values *v = s->values;
    const uint64_t n_runs = (s->n + v->length - 1) / v->length;
    // reduced first: the product of counts below 2^32 fits
    const uint64_t begin = (epoch % v->n) * (n_runs % v->n) % v->n;
    const uint64_t draw = begin + dt_perm_apply(s->seed, epoch, n_runs, i / v->length);
    const uint64_t k = draw % v->n, first = v->begin[k], n = v->begin[k + 1] - first;
    const uint64_t at = (draw / v->n * v->length + i % v->length) % n;
    const uint64_t seed = mix64(mix64(s->seed ^ 0x76616c756573u) ^ epoch);
    return v->items[first + dt_perm_apply(seed, k, n, at)];
}

uint64_t dt_sampler_index(const dt_sampler *s, uint64_t epoch, uint64_t i) {
    assert(i < s->n);
    if (s->values) return run_index(s, epoch, i);
    uint64_t p = sampler_place_of(s, epoch, i);
    return s->cumulative ? weighted_index(s, epoch, p) : p;
}
