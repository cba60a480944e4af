// sort.c: see sort.h.
#include "base/sort.h"

#include <stdint.h>
#include <string.h>

// A difference may overflow an int.
#define SORT_COMPARE(name, type)                                                                                       \
    int name(const void *a, const void *b) {                                                                           \
        const type x = *(const type *)a, y = *(const type *)b;                                                         \
        return (x > y) - (x < y);                                                                                      \
    }
SORT_COMPARE(dt_sort_reals, double)
SORT_COMPARE(dt_sort_floats, float)
SORT_COMPARE(dt_sort_ints, int64_t)

int dt_sort_strings(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}
