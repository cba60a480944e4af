// view.h: samples of records, their weights, and the sampler's order.
#ifndef DT_DATA_ORDER_VIEW_H
#define DT_DATA_ORDER_VIEW_H

#include "config/words.h"
#include "data/catalog/catalog.h"

// ---- view ---------------------------------------------------------------------------------------------------------

// Which samples a catalog's records make. A sample names `width` records: one, or one of each
// field of a pair.

typedef struct dt_view {
    int width;        // records a sample: 1 or 2
    uint32_t n;       // samples
    uint32_t *record; // (n, width)
} dt_view;

// One record = one sample, in catalog order; keep[r] false leaves record r out.
dt_status dt_view_make_records(dt_view *v, const dt_catalog *c, const bool *keep);
// All pairs (a, b) of records with is_a and is_b that share their value of `column`, ordered by value,
// then a, then b, both in catalog order. DT_E_DATA when there are more than 2^31.
dt_status dt_view_make_pairs(dt_view *v, const dt_catalog *c, const bool *is_a, const bool *is_b, int column);
void dt_view_fini(dt_view *v);

// ---- sampler ------------------------------------------------------------------------------------------------------

// The order of samples, as a function. Sample i of epoch e is index(e, i): O(1), no state,
// nothing to save but a cursor; rank, worker and shard count never enter it.

// A keyed bijection of 0..n-1 and its inverse. `stream` makes independent permutations of one seed
// (an epoch, a block).
uint64_t dt_perm_apply(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i);
uint64_t dt_perm_invert(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i);

enum { DT_SHUFFLE_BLOCK_SAMPLES = 32, DT_SHUFFLE_WINDOW_BLOCKS = 128 };

// Samples by the value of a column: those of value k are items[begin[k] .. begin[k + 1]), and there are some.
typedef struct dt_sampler_values {
    uint32_t n, length; // values; samples of one value that follow each other
    uint32_t *begin, *items;
} dt_sampler_values;

typedef struct dt_sampler {
    dt_shuffle shuffle;
    uint64_t seed;
    uint64_t n; // samples of the split, > 0
    // (n) or NULL: running sums of the samples' weights. Then an epoch has n draws with
    // replacement, and a sample of weight w is drawn n*w/sum times, give or take one.
    const uint64_t *cumulative;
    // NULL, or (data.m_per_class) positions are runs of `length` samples of one value. Each value gets equally many
    // runs, give or take one, of an epoch and of all epochs so far, in random order, and within an epoch no sample
    // again before all of its value.
    const dt_sampler_values *values;
} dt_sampler;

// 0 <= i < n. Without weights a bijection of 0..n-1 for each epoch. O(1); with weights O(log n).
uint64_t dt_sampler_index(const dt_sampler *s, uint64_t epoch, uint64_t i);

// ---- weights ------------------------------------------------------------------------------------------------------

// How often each sample of the training split is drawn, from columns of the catalog.

typedef struct dt_weight_spec {
    int balance;                  // column whose values get equal shares of an epoch, or -1
    int column;                   // metadata or number column of weights; -1: equal weights
    const double *set_weight;     // share of an epoch that each dataset gets, or NULL
    const uint32_t *set_of_shard; // by shard of the catalog, with set_weight
    uint32_t n_sets;
} dt_weight_spec;

// Running sums for dt_sampler, (n) on the heap; NULL when the spec asks for nothing. A sample's value is
// that of the first of its records that has one. With `balance` and a weight column, the weights divide
// the share of each value. DT_E_DATA names a record without a value or with a weight below 0; DT_E_USAGE
// when all weights are 0.
dt_status dt_weights_make(uint64_t **out, const dt_catalog *c, const dt_view *v, const uint32_t *samples, uint32_t n,
                          const dt_weight_spec *spec);

// The samples by the value of a column, on the heap (values and its arrays; free with dt_sampler_values_free).
// DT_E_DATA names a record without a value.
dt_status dt_sampler_values_make(dt_sampler_values **out, const dt_catalog *c, const dt_view *v,
                                 const uint32_t *samples, uint32_t n, int column, uint32_t length);
void dt_sampler_values_free(dt_sampler_values *v);

#endif
