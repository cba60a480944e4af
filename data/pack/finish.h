// finish.h: from data files with all their chunks to a set: ends of files, indexes, catalog.
#ifndef DT_DATA_FINISH_H
#define DT_DATA_FINISH_H

#include "gather.h"
#include "pack_build.h"
#include "work.h"

// Writes what a format has besides its chunks, cuts the file to its length, syncs it: of a shard that is
// built, or of a set of one file.
dt_status dt_finish_shard(const dt_plan *plan, const dt_build_file *f);
dt_status dt_finish_parts(const dt_plan *plan, const char *path, const dt_gathered *g);
// Copies part `f` (made for base 0 of its own file) into `path` from `base` on, and writes a journal that
// says so to `rows_path`.
dt_status dt_finish_move_part(const dt_plan *plan, const dt_build_file *f, const char *path,
                              uint64_t base, const char *rows_path);
// End of the last chunk of a journal.
dt_status dt_finish_end_of(const char *rows_path, uint64_t *end);

typedef struct dt_finish_counts {
    size_t n_records, n_duplicates;
    uint64_t n_bytes;        // of members
    uint32_t twin_a, twin_b; // items of the first duplicate, if there is one
    size_t n_without;        // items that gave no record, duplicates that were dropped aside
    uint32_t first_without;
    bool named;           // rows that repeat others say which
    size_t n_plain;       // records that have none of the figures that were asked for
    uint32_t first_plain; // its item
} dt_finish_counts;

// Finishes the catalog; indexes are written beside the files in w->set, and the database. fail: duplicates are
// DT_E_DATA. fingerprint: of source and options.
dt_status dt_finish_catalog(const dt_work *w, const dt_compose *c, const dt_pack_opts *o,
                            const dt_gathered *g, uint64_t fingerprint, dt_finish_counts *out);

// Of the command that the lineage tells: source and options, without OUT, threads and ranks.
uint64_t dt_finish_hash_command(const dt_pack_opts *o);

#endif
