// sampler.c: permutations without a table.
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
#include "sampler.h"

#include <assert.h>

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
    while (f.half < 32 && (UINT64_C(1) << (2 * f.half)) < n) f.half++;
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
    uint64_t low = (uint64_t)((wide)total * p / s->n), high = (uint64_t)((wide)total * (p + 1) / s->n);
    uint64_t hash = mix64(mix64(mix64(s->seed ^ 0x776569676874u) ^ epoch) ^ p);
    uint64_t point = low + (uint64_t)((wide)(high - low) * hash >> 64);
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
