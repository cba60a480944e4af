// fuzz_scan.h: foreign bytes read by a file format: each member that it lists must lie inside them. Then the same from a server
// that states the largest size there is and has no more than these bytes.
#ifndef DT_TESTS_FUZZ_SCAN_H
#define DT_TESTS_FUZZ_SCAN_H

#include "data/source/source.h"

#include <stdlib.h>
#include <string.h>

static size_t fuzz_there;

static inline dt_status fuzz_read(const dt_blob *b, uint64_t at, void *dst, size_t n_bytes) {
    if (at > fuzz_there || n_bytes > fuzz_there - at) return dt_fail(DT_E_STORAGE, "not there");
    memcpy(dst, b->u.bytes + at, n_bytes);
    return DT_OK;
}

static inline void fuzz_close(dt_blob *b) {
    b->u.bytes = NULL;
}

static inline void fuzz_scan(const dt_file_format *format, const dt_blob *b, size_t n_bytes, bool lenient) {
    dt_scan s = {.c = dt_catalog_create(), .blob = b, .lenient = lenient};
    format->accepts("fuzz", b->u.bytes, n_bytes);
    format->scan(&s);
    for (uint32_t m = 0; m < s.c->n_members; m++)
        if (s.c->members[m].size > n_bytes || s.c->members[m].offset > n_bytes - s.c->members[m].size) abort();
    dt_catalog_finish(s.c);
    dt_catalog_destroy(s.c);
    static const dt_blob_store STORE = {fuzz_read, fuzz_close, true};
    dt_blob liar = *b;
    liar.store = &STORE;
    liar.n_bytes = DT_BLOB_MAX_BYTES;
    fuzz_there = n_bytes;
    s = (dt_scan){.c = dt_catalog_create(), .blob = &liar, .lenient = lenient};
    format->scan(&s);
    dt_catalog_destroy(s.c);
}

#endif
