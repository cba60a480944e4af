// view.h: which samples a catalog's records make. A sample names `width` records: one, or one of each
// field of a pair.
#ifndef DT_DATA_VIEW_H
#define DT_DATA_VIEW_H

#include "data/catalog/catalog.h"

typedef struct dt_view {
    int width;        // records a sample: 1 or 2
    uint32_t n;       // samples
    uint32_t *record; // (n, width)
} dt_view;

// One record = one sample, in catalog order; keep[r] false leaves record r out.
dt_status dt_view_make_records(dt_view *v, const dt_catalog *c, const bool *keep);
// All pairs (a, b) of records with is_a and is_b that share their value of `column`, ordered by value,
// then a, then b, both in catalog order. DT_E_DATA when there are more than 2^31.
dt_status dt_view_make_pairs(dt_view *v, const dt_catalog *c, const bool *is_a, const bool *is_b, int column);
void dt_view_fini(dt_view *v);

#endif
