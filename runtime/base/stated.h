// stated.h: sizes that a server, a file's header or an archive states. None of them is added to, multiplied or allocated
// before it is known to be no more than what can be there: the bytes that are left, or the limit of the format.
#ifndef DT_BASE_STATED_H
#define DT_BASE_STATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Whether n items of `each` bytes (or elements) are no more than `most`; *out: how many they are, else unchanged.
static inline bool dt_stated_size(uint64_t n, uint64_t each, uint64_t most, size_t *out) {
    uint64_t all;
    if (__builtin_mul_overflow(n, each, &all) || all > most) return false;
    *out = (size_t)all;
    return true;
}

#endif
