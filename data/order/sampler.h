// sampler.h: the order of samples, as a function. Sample i of epoch e is index(e, i): O(1), no state,
// nothing to save but a cursor; rank, worker and shard count never enter it.
#ifndef DT_DATA_SAMPLER_H
#define DT_DATA_SAMPLER_H

#include "config/words.h"

#include <stdint.h>

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
    // (n) or NULL: running sums of the samples' weights (weights.h). Then an epoch has n draws with
    // replacement, and a sample of weight w is drawn n*w/sum times, give or take one.
    const uint64_t *cumulative;
    // NULL, or (data.m_per_class) positions are runs of `length` samples of one value. Each value gets equally many
    // runs, give or take one, of an epoch and of all epochs so far, in random order, and within an epoch no sample
    // again before all of its value.
    const dt_sampler_values *values;
} dt_sampler;

// 0 <= i < n. Without weights a bijection of 0..n-1 for each epoch. O(1); with weights O(log n).
uint64_t dt_sampler_index(const dt_sampler *s, uint64_t epoch, uint64_t i);

#endif
