// pack_steps.h: the steps of pack.c: what is packed, duplicates, building, finishing.
#ifndef DT_DATA_PACK_STEPS_H
#define DT_DATA_PACK_STEPS_H

#include "compose.h"
#include "work.h"

#include "data/source/source.h"

#include "base/progress.h"

// ---- the source (pack_source.c) ----------------------------------------------------------------------
// Opens the dataset at a path. *out NULL: there are raw files, or nothing. Needs of `plan` what dt_plan_name sets.
// The output of an earlier pack into the folder that is packed is not part of the source, unless it is all there
// is. DT_E_DATA, also if a folder holds a dataset and other data; DT_E_USAGE if OUT would replace a part of a dataset.
dt_status dt_pack_source_open(dt_reader **out, const char *path, const dt_plan *plan);
// Whether files of the plan replace files of the dataset.
bool dt_pack_source_is_out(const dt_reader *s, const dt_plan *plan);

// ---- records whose source has the same content as an earlier one's (duplicates.c) --------------------
enum { DT_NO_DUPLICATE = UINT32_MAX };
// Before anything is written: hashes the items whose size another item has; the hashes of the others stay 0.
dt_status dt_duplicates_hash(const dt_compose *c, int n_threads, uint64_t *hash);
// first[i] = the first item of the list that item i repeats, or DT_NO_DUPLICATE. Heap. hash[i] 0: not known, so not a
// duplicate. Returns how many items repeat another.
size_t dt_duplicates_find(const uint64_t *hash, const dt_raw *raw, uint32_t **first);

// ---- a plan's chunks into data files: composed by several threads, written by one (pack_build.c) -----
typedef struct dt_build {
    const dt_compose *compose;
    const dt_work *work;
    uint64_t fingerprint; // of source and options
    const size_t *shards; // to be made, in this order
    size_t n_shards;
    int n_threads;
    dt_progress *progress;
} dt_build;
// Each shard is whole and on the disk, with its rows (shard_rows.h), before the next one is begun. The first error ends
// all threads and is returned; shards that are whole stay.
dt_status dt_build_run(const dt_build *b);

// ---- from whole shards to a dataset (finish.c) -------------------------------------------------------
typedef struct dt_finish_counts {
    size_t n_records, n_duplicates;
    uint64_t n_bytes;        // of members
    uint32_t twin_a, twin_b; // items of the first duplicate, if there is one
    size_t n_without;        // items that gave no record, not counting duplicates that were dropped
    uint32_t first_without;
    bool named;           // each record that repeats another has the other's key in a column
    size_t n_plain;       // records that have none of the figures that were asked for
    uint32_t first_plain; // the item of the first of them
    size_t n_clipped;     // recordings of which samples were cut at full scale
    uint32_t first_clipped;
} dt_finish_counts;
// Writes the index of each shard into w->set. DT_E_DATA: duplicates that are not
// allowed, or no record at all.
dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o, dt_finish_counts *out);

#endif
