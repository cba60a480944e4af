// known_slopes.h: central differences of a reference, kept by what they are made of. A row wants the same ones for
// each layout, thread count and ISA. ISAs are children that run one after another (each_isa.h), so the memory is one that
// they share.
#ifndef DT_TESTS_OPS_KNOWN_SLOPES_H
#define DT_TESTS_OPS_KNOWN_SLOPES_H

#include "base/hash.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { SLOPES = 1 << 20, SLOPE_TRIES = 64 };
typedef struct slope {
    uint64_t key; // 0: free
    double value;
} slope;
static slope *slopes;

__attribute__((constructor)) static void slopes_map(void) {
    slopes =
        mmap(NULL, SLOPES * sizeof *slopes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert(slopes != MAP_FAILED);
}

static uint64_t slope_key(uint64_t key, const void *bytes, size_t n) {
    const uint64_t both[2] = {key, dt_hash64(bytes, n)};
    return dt_hash64(both, sizeof both);
}

// The place of a key's value; *known: it is there, else the caller writes it. A full neighbourhood gives a place that is
// forgotten.
static double *slope_at(uint64_t key, bool *known) {
    static double forgotten;
    key += key == 0;
    for (uint64_t i = 0; i < SLOPE_TRIES; i++) {
        slope *s = &slopes[(key + i) % SLOPES];
        *known = s->key == key;
        if (s->key != 0 && !*known) continue;
        s->key = key;
        return &s->value;
    }
    return &forgotten;
}

#endif
