// view.c: lists of samples.
//
// A view is a plain array of record numbers: 4 or 8 bytes per sample. For pairs, the records of each side
// are sorted into buckets by their value of the column (a counting sort, so that catalog order holds within
// a bucket), and each value contributes the cross product of its two buckets.
#include "view.h"

#include "base/arena.h"

#include <stdlib.h>

enum { MAX_SAMPLES = 0x7fffffff };

static dt_status set_size(dt_view *v, int width, uint64_t n) {
    if (n > MAX_SAMPLES)
        return dt_fail(DT_E_DATA, "the view has %llu samples, more than 2^31: pair within a finer column",
                       (unsigned long long)n);
    *v = (dt_view){.width = width, .n = (uint32_t)n};
    v->record = malloc((n ? n : 1) * (size_t)width * sizeof *v->record);
    return v->record ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory for %llu samples", (unsigned long long)n);
}

dt_status dt_view_make_records(dt_view *v, const dt_catalog *c, const bool *keep) {
    uint64_t n = 0;
    for (uint32_t r = 0; r < c->n_records; r++) n += keep[r];
    DT_TRY(set_size(v, 1, n));
    uint32_t at = 0;
    for (uint32_t r = 0; r < c->n_records; r++)
        if (keep[r]) v->record[at++] = r;
    return DT_OK;
}

// The records with is[r] and value v: list[start[v] .. start[v+1]).
typedef struct buckets {
    uint32_t *start, *list;
} buckets;

static buckets view_make_buckets(const dt_catalog *c, const bool *is, int column) {
    uint32_t n_values = c->columns[column].n_values;
    buckets b = {dt_xcalloc(n_values + 2, sizeof(uint32_t)), dt_xcalloc(c->n_records + 1, sizeof(uint32_t))};
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint32_t v = dt_catalog_cell(c, column, r);
        if (is[r] && v != DT_NO_VALUE) b.start[v + 2]++;
    }
    for (uint32_t v = 0; v < n_values; v++) b.start[v + 2] += b.start[v + 1];
    for (uint32_t r = 0; r < c->n_records; r++) {
        uint32_t v = dt_catalog_cell(c, column, r);
        if (is[r] && v != DT_NO_VALUE) b.list[b.start[v + 1]++] = r;
    }
    return b;
}

static void free_buckets(buckets *b) {
    free(b->start);
    free(b->list);
}

dt_status dt_view_make_pairs(dt_view *v, const dt_catalog *c, const bool *is_a, const bool *is_b, int column) {
    uint32_t n_values = c->columns[column].n_values;
    buckets a = view_make_buckets(c, is_a, column), b = view_make_buckets(c, is_b, column);
    uint64_t n = 0;
    for (uint32_t i = 0; i < n_values; i++)
        n += (uint64_t)(a.start[i + 1] - a.start[i]) * (b.start[i + 1] - b.start[i]);
    dt_status st = set_size(v, 2, n);
    uint32_t *to = v->record;
    for (uint32_t i = 0; i < n_values && st == DT_OK; i++)
        for (uint32_t x = a.start[i]; x < a.start[i + 1]; x++)
            for (uint32_t y = b.start[i]; y < b.start[i + 1]; y++) {
                *to++ = a.list[x];
                *to++ = b.list[y];
            }
    free_buckets(&a);
    free_buckets(&b);
    return st;
}

void dt_view_fini(dt_view *v) {
    free(v->record);
    *v = (dt_view){0};
}
