// fuzz_scan.h: foreign bytes read by a file format: each member that it lists must lie inside them.
#ifndef DT_TESTS_FUZZ_SCAN_H
#define DT_TESTS_FUZZ_SCAN_H

#include "data/source/source.h"

#include <stdlib.h>

static inline void fuzz_scan(const dt_file_format *format, const dt_blob *b, size_t n_bytes,
                             bool lenient) {
    dt_scan s = {.c = dt_catalog_create(), .blob = b, .lenient = lenient};
    format->scan(&s);
    for (uint32_t m = 0; m < s.c->n_members; m++)
        if (s.c->members[m].size > n_bytes ||
            s.c->members[m].offset > n_bytes - s.c->members[m].size)
            abort();
    dt_catalog_finish(s.c);
    dt_catalog_destroy(s.c);
}

#endif
