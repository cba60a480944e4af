// rng.c: Philox4x32-10; uniform, normal and integer numbers from its words.
//
// Normals come in Box-Muller pairs within a block (words 0,1 and 2,3): element 4k is the cosine and 4k+1
// the sine of the first pair. So any single element costs one block.
#include "base/rng.h"

#include <math.h>

void dt_philox4x32(uint64_t key, const uint32_t ctr[4], uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

static void block(const dt_rng *r, uint32_t element, uint32_t out[4]) {
    const uint32_t ctr[4] = {element / 4, r->slot, r->step, r->purpose};
    dt_philox4x32(r->seed, ctr, out);
}

uint32_t dt_rng_u32(const dt_rng *r, uint32_t element) {
    uint32_t w[4];
    block(r, element, w);
    return w[element % 4];
}

float dt_rng_uniform(const dt_rng *r, uint32_t element) {
    return (float)(dt_rng_u32(r, element) >> 8) * 0x1p-24f;
}

float dt_rng_normal(const dt_rng *r, uint32_t element) {
    uint32_t w[4];
    block(r, element, w);
    const uint32_t *pair = w + (element % 4 / 2) * 2;
    float u = (float)((pair[0] >> 8) + 1) * 0x1p-24f; // (0, 1], so that the logarithm is finite
    float angle = 6.28318530717958647692f * ((float)(pair[1] >> 8) * 0x1p-24f);
    float radius = sqrtf(-2.0f * logf(u));
    return element % 2 ? radius * sinf(angle) : radius * cosf(angle);
}

uint32_t dt_rng_below(const dt_rng *r, uint32_t element, uint32_t n) {
    return (uint32_t)((uint64_t)dt_rng_u32(r, element) * n >> 32);
}
