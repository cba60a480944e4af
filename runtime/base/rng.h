// rng.h: counter-based random numbers. There is no state to save, order or share.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
// key = seed (64 bit). counter = (element / 4, slot in the global batch, step, XXH32(purpose)), and
// element % 4 picks the word. uniform = (word >> 8) * 2^-24, in [0, 1). Elements are counted in NCHW order
// within their sample, so numbers do not depend on memory layout, threads or ranks.
#ifndef DT_BASE_RNG_H
#define DT_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

// A stream of numbers for one purpose, one sample and one step. A plain value.
typedef struct dt_rng {
    uint64_t seed;
    uint32_t slot;    // sample's slot in the global batch (or sample index, for augmentation)
    uint32_t step;    // optimizer step (or epoch, for augmentation)
    uint32_t purpose; // dt_hash32(name) of the node or purpose
} dt_rng;

// The raw block function: ctr -> out under key.
void dt_philox4x32(uint64_t key, const uint32_t ctr[4], uint32_t out[4]);
// dt_philox4x32 of eight counters, (first + i, slot, step, purpose), at once: w[k][i] is word k of the i-th.
enum { DT_PHILOX_EIGHT = 8 };
void dt_philox_eight(const dt_rng *r, uint32_t first, uint32_t w[4][DT_PHILOX_EIGHT]);

uint32_t dt_rng_u32(const dt_rng *r, uint32_t element);
float dt_rng_uniform(const dt_rng *r, uint32_t element);              // [0, 1)
float dt_rng_normal(const dt_rng *r, uint32_t element);               // N(0, 1), Box-Muller
uint32_t dt_rng_below(const dt_rng *r, uint32_t element, uint32_t n); // 0 .. n-1, n > 0

// The first n elements of a stream at once.
void dt_rng_uniforms(const dt_rng *r, float *x, size_t n);
void dt_rng_normals(const dt_rng *r, float *x, size_t n);

#endif
