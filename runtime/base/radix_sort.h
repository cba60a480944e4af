// radix_sort.h: a stable LSD radix sort of many small elements, one pass a key byte. A byte that is the same
// in all keys costs no pass.
//
// Inline: a pass is fast only where the compiler knows `size`.
#ifndef DT_BASE_RADIX_SORT_H
#define DT_BASE_RADIX_SORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
