// gather.h: the rows of all journals, in order, into a catalog: while the journals are still being written
// (by one process), or when they are there (parts of several ranks).
#ifndef DT_DATA_GATHER_H
#define DT_DATA_GATHER_H

#include "compose.h"
#include "journal.h"

// A journal: of a data file, or of a part of one.
typedef struct dt_gather_journal {
    const char *path; // borrowed
    size_t n_frames;  // that it will have
    uint32_t shard;   // in order
} dt_gather_journal;

typedef struct dt_gather dt_gather;

// What has come of it, after dt_gather_end. The catalog is not finished; its shards have neither size nor
// stamp yet.
typedef struct dt_gathered {
    dt_catalog *catalog;
    dt_buffer marks;  // of all chunks, in order
    uint64_t end;     // of the last chunk, in its file; 0: there is none
    uint32_t *item;   // by record: of the list
    uint64_t *hash;   // by item: of its source; 0: gave no record
    uint64_t n_bytes; // of members
} dt_gathered;

// folder: where the shards lie. follow: a thread of its own reads what dt_gather_note says is there.
dt_status dt_gather_create(dt_gather **out, const dt_compose *c, const char *folder,
                           const dt_gather_journal *journals, size_t n_journals, bool follow);
// The first n_bytes of a journal are whole frames. Any thread.
void dt_gather_note(dt_gather *g, size_t journal, uint64_t n_bytes);
// Reads what is left, which is all there now. DT_E_STORAGE: a journal is damaged or cut; DT_E_DATA: names
// that interleave.
dt_status dt_gather_end(dt_gather *g);
dt_gathered *dt_gather_result(dt_gather *g); // borrowed
void dt_gather_destroy(dt_gather *g);        // NULL is fine; ends the thread

#endif
