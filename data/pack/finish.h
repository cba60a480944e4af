// finish.h: from whole shards to a dataset: indexes.
#ifndef DT_DATA_FINISH_H
#define DT_DATA_FINISH_H

#include "compose.h"
#include "work.h"

typedef struct dt_finish_counts {
    size_t n_records, n_duplicates;
    uint64_t n_bytes;        // of members
    uint32_t twin_a, twin_b; // items of the first duplicate, if there is one
    size_t n_without;        // items that gave no record, not counting duplicates that were dropped
    uint32_t first_without;
    bool named;           // records that repeat others say which
    size_t n_plain;       // records that have none of the figures that were asked for
    uint32_t first_plain; // its item
} dt_finish_counts;

// Writes the index of each shard into w->set. DT_E_DATA: duplicates that are not
// allowed, or no record at all.
dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o,
                            dt_finish_counts *out);

#endif
