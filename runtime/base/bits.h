// bits.h: byte order, vector types and sorting of integers.
#ifndef DT_BASE_BITS_H
#define DT_BASE_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// ---- endian -------------------------------------------------------------------------------------------------------

// Reads unaligned numbers from the bytes of a file. Compilers turn each into one load.

static inline uint16_t dt_le16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t dt_le32(const uint8_t *p) {
    return dt_le16(p) | (uint32_t)dt_le16(p + 2) << 16;
}
static inline uint64_t dt_le64(const uint8_t *p) {
    return dt_le32(p) | (uint64_t)dt_le32(p + 4) << 32;
}
static inline uint16_t dt_be16(const uint8_t *p) {
    return (uint16_t)(p[0] << 8 | p[1]);
}
static inline uint32_t dt_be32(const uint8_t *p) {
    return (uint32_t)dt_be16(p) << 16 | dt_be16(p + 2);
}
static inline uint64_t dt_be64(const uint8_t *p) {
    return (uint64_t)dt_be32(p) << 32 | dt_be32(p + 4);
}

// ---- vectorize ----------------------------------------------------------------------------------------------------

// Marks loops that the compiler vectorizes for several ISAs; the one for this CPU is picked at
// load time. Bits must be the same on every ISA, so it is for integers, for floats that are computed
// elementwise, and for sums in an order that the code fixes. Files that include this are compiled with
// -ffp-contract=off (CMakeLists.txt), so a*b+c is never fused.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
#define VECTORIZED __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VECTORIZED // ifunc resolvers would run before a sanitizer is initialized
#endif

// ---- radix sort ---------------------------------------------------------------------------------------------------

// A stable LSD radix sort of many small elements, one pass a key byte. A byte that is the same
// in all keys costs no pass.
//
// Inline: a pass is fast only where the compiler knows `size`.

enum { DT_RADIX_MOST_BYTES = 16 };

// Sorts n elements of `size` bytes (n < 2^32) in `from`; `spare` has room for as many. The key is the n_key
// bytes (at most DT_RADIX_MOST_BYTES) at offset `key_at`, little-endian. Returns `from` or `spare`, whichever
// holds the result.
static inline void *dt_radix_sort(void *from, void *spare, size_t n, size_t size, size_t key_at, int n_key) {
    uint32_t count[DT_RADIX_MOST_BYTES][256];
    uint8_t *a = from, *b = spare;
    if (n == 0) return a;
    memset(count, 0, (size_t)n_key * sizeof *count);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < n_key; k++) count[k][a[i * size + key_at + k]]++;
    for (int k = 0; k < n_key; k++) {
        uint32_t at[256], sum = 0;
        if (count[k][a[key_at + k]] == n) continue;
        for (int v = 0; v < 256; v++) {
            at[v] = sum;
            sum += count[k][v];
        }
        for (size_t i = 0; i < n; i++) memcpy(b + size * at[a[i * size + key_at + k]]++, a + i * size, size);
        uint8_t *sorted = b;
        b = a;
        a = sorted;
    }
    return a;
}

#endif
