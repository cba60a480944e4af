// chunk.h: a run of records as they will lie in a data file, built in memory by one thread.
//
//   room ->| pad |<- data: headers, members, padding ->|
//                 ^ begin (0..4095): so that memory and file have the same place within a page
//
// A chunk does not know where in the file it will lie: offsets in its rows count from its beginning, and
// what depends on the place (page numbers of an LMDB) is put right by the format's `relocate` once the
// chunks before it have their sizes. A very large member is not read into memory: it is the chunk's one
// gap, and goes from file to file.
//
// Beside the bytes a chunk has the rows of its records, in the form in which they are kept in the
// journal (journal.h), and what the format needs to finish the file (`marks`).
#ifndef DT_DATA_CHUNK_H
#define DT_DATA_CHUNK_H

#include "data/file/bytes.h"

#include "base/status.h"

#include <stdbool.h>

enum { DT_PACK_PAGE = 4096 };

typedef struct dt_chunk {
    uint8_t *room; // aligned to a page
    size_t cap_bytes;
    size_t begin, n_bytes; // of the data in memory
    bool has_gap;
    size_t gap_at;      // place in memory where the gap is
    uint64_t gap_bytes; // not in memory
    size_t leaf;        // format's own
    bool has_leaf;
    dt_buffer rows, marks;
    uint32_t n_records, n_members;
    size_t index;  // of the plan's chunks
    uint64_t base; // in the file, once known
    // what the gap holds, and where its hash goes in `rows` (0: nowhere)
    size_t gap_item;
    uint64_t hash; // of the bytes in their final form, but those of large members
    size_t gap_hash_at[2];
} dt_chunk;

void dt_chunk_init(dt_chunk *c);
void dt_chunk_fini(dt_chunk *c);
void dt_chunk_reset(dt_chunk *c, size_t begin);
// Room for n more bytes: pointers into the chunk are good until the next call. DT_E_INTERNAL: no memory.
dt_status dt_chunk_reserve(dt_chunk *c, size_t n_bytes);
static inline uint8_t *dt_chunk_data(const dt_chunk *c, size_t at) {
    return c->room + c->begin + at;
}
// n bytes behind the others, zeroed or as they are. Room was reserved.
uint8_t *dt_chunk_extend(dt_chunk *c, size_t n_bytes, bool zero);
// Offset in the file, from the chunk's beginning, of what comes next.
static inline uint64_t dt_chunk_end(const dt_chunk *c) {
    return c->n_bytes + (c->has_gap ? c->gap_bytes : 0);
}
// Moves the data so that it begins at `begin` within its page.
dt_status dt_chunk_shift(dt_chunk *c, size_t begin);

#endif
