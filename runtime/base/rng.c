// rng.c: Philox4x32-10; uniform, normal and integer numbers from its words.
//
// Normals come in Box-Muller pairs within a block (words 0,1 and 2,3): element 4k is the cosine and 4k+1
// the sine of the first pair. So any single element costs one block.
#include "base/rng.h"
#include "base/bits.h"

#include <math.h>

void dt_philox4x32(uint64_t key, const uint32_t ctr[4], uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
    for (int round = 0; round < 10; round++) { // ten rounds, as in the paper: passes BigCrush with a margin
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2; // the paper's multipliers
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; // key schedule: golden ratio and sqrt(3) - 1, as 32-bit fractions
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

VECTORIZED void dt_philox_eight(const dt_rng *r, uint32_t first, uint32_t w[4][DT_PHILOX_EIGHT]) {
    uint32_t k0 = (uint32_t)r->seed, k1 = (uint32_t)(r->seed >> 32);
    for (uint32_t i = 0; i < DT_PHILOX_EIGHT; i++) { // eight counters side by side: one lane each
        w[0][i] = first + i;
        w[1][i] = r->slot;
        w[2][i] = r->step;
        // lanes differ in the first word only
        w[3][i] = r->purpose;
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (uint32_t i = 0; i < DT_PHILOX_EIGHT; i++) {
            uint64_t a = (uint64_t)0xD2511F53u * w[0][i], b = (uint64_t)0xCD9E8D57u * w[2][i];
            w[0][i] = (uint32_t)(b >> 32) ^ w[1][i] ^ k0;
            w[2][i] = (uint32_t)(a >> 32) ^ w[3][i] ^ k1;
            w[1][i] = (uint32_t)b;
            w[3][i] = (uint32_t)a;
        }
}

static void rng_block(const dt_rng *r, uint32_t element, uint32_t out[4]) {
    const uint32_t ctr[4] = {element / 4, r->slot, r->step, r->purpose}; // four elements per block
    dt_philox4x32(r->seed, ctr, out);
}

uint32_t dt_rng_u32(const dt_rng *r, uint32_t element) {
    uint32_t w[4];
    rng_block(r, element, w);
    return w[element % 4]; // word of the block
}

static float uniform_of(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f; // 24 bits: exact in f32, below 1
}

static float radius_of(uint32_t word) {
    const float u = (float)((word >> 8) + 1) * 0x1p-24f; // (0, 1], so that the logarithm is finite
    return sqrtf(-2.0f * logf(u));
}

static float angle_of(uint32_t word) {
    return 6.28318530717958647692f * uniform_of(word); // 2 pi
}

float dt_rng_uniform(const dt_rng *r, uint32_t element) {
    return uniform_of(dt_rng_u32(r, element));
}

float dt_rng_normal(const dt_rng *r, uint32_t element) {
    uint32_t w[4];
    rng_block(r, element, w);
    const uint32_t *pair = w + (element % 4 / 2) * 2; // words 0, 1 or 2, 3
    const float radius = radius_of(pair[0]), angle = angle_of(pair[1]);
    return element % 2 ? radius * sinf(angle) : radius * cosf(angle); // even: cosine, odd: sine
}

void dt_rng_uniforms(const dt_rng *r, float *x, size_t n) {
    uint32_t w[4][DT_PHILOX_EIGHT];
    for (size_t i = 0; i < n; i++) {
        if (i % (4 * DT_PHILOX_EIGHT) == 0) dt_philox_eight(r, (uint32_t)(i / 4), w); // 32 elements per call
        x[i] = uniform_of(w[i % 4][i / 4 % DT_PHILOX_EIGHT]); // element i: word i % 4 of counter i / 4
    }
}

void dt_rng_normals(const dt_rng *r, float *x, size_t n) {
    uint32_t w[4][DT_PHILOX_EIGHT];
    for (size_t i = 0; i < n; i += 2) { // in pairs: both share radius and angle
        if (i % (4 * DT_PHILOX_EIGHT) == 0) dt_philox_eight(r, (uint32_t)(i / 4), w);
        const size_t pair = i % 4, at = i / 4 % DT_PHILOX_EIGHT;
        const float radius = radius_of(w[pair][at]), angle = angle_of(w[pair + 1][at]);
        x[i] = radius * cosf(angle);
        if (i + 1 < n) x[i + 1] = radius * sinf(angle); // odd n: the sine is dropped
    }
}

uint32_t dt_rng_below(const dt_rng *r, uint32_t element, uint32_t n) {
    return (uint32_t)((uint64_t)dt_rng_u32(r, element) * n >> 32); // multiply and shift (Lemire): bias below n / 2^32
}
