// journal.h: what has been written to a data file so far, beside it as long as it is unfinished.
//
// A frame a chunk, in order: where its bytes lie, the rows of its records, the format's marks. The
// journal is what makes an interrupted pack go on, and what the index and the catalog are made of at the
// end, so the rows of a large set are never all in memory while it is built.
//
//   frame: u64 MAGIC, chunk, base, n_bytes, n_records, n_members, n_rows, n_marks,
//          XXH3 of the chunk without its large members, XXH3 of all else
//          rows (n_rows bytes), marks (n_marks bytes)
//   row:   u64 item, source_hash; u16 n_members, n_columns; suffix
//          a member: extension, u64 offset (from the chunk's beginning), size, hash
//          a column: name, u8 is_text, text or f64
//   text:  u16 bytes with the NUL, bytes, NUL
//
// A large member's row has its hash, so the frame need not cover its bytes a second time.
#ifndef DT_DATA_JOURNAL_H
#define DT_DATA_JOURNAL_H

#include "chunk.h"
#include "transform.h"

enum { DT_ROW_MAX_MEMBERS = DT_TRANSFORM_MAX_MEMBERS + 2 };

typedef struct dt_row_member {
    const char *ext;
    uint64_t offset, size, hash;
} dt_row_member;

// Whether it is large: more than any format keeps among other bytes of its own. Such members lie in a chunk in the
// order of its rows.
static inline bool dt_row_is_large(const dt_row_member *m) {
    return m->size > DT_PACK_PAGE;
}

typedef struct dt_row {
    uint64_t item, source_hash; // of the list; of its bytes before any transform
    const char *suffix;
    int n_members, n_columns;
    dt_row_member member[DT_ROW_MAX_MEMBERS];
    dt_transform_column column[DT_TRANSFORM_MAX_COLUMNS];
} dt_row;

// Appends a row to the chunk's. For a member that is the gap its hash, and the row's source_hash, are set
// by dt_row_set_gap_hash later. DT_E_DATA: a text of 64 KiB.
dt_status dt_row_put(dt_chunk *c, const dt_row *r, int gap_member);
void dt_row_set_gap_hash(dt_chunk *c, uint64_t hash);
// XXH3 of the chunk's bytes, as they are now, but those of large members.
uint64_t dt_row_hash_rest(const dt_chunk *c);
// The row at *at, which moves on; false: none left, or not a row. Texts are borrowed.
bool dt_row_next(const uint8_t *rows, size_t n_bytes, size_t *at, dt_row *out);

typedef struct dt_frame {
    uint64_t chunk, base, n_bytes, n_records, n_members;
    uint64_t hash; // of its bytes in the file but those of large members
    const uint8_t *rows, *marks;
    size_t n_rows, n_marks;
} dt_frame;

typedef struct dt_journal {
    char *data;
    dt_frame *frames;
    size_t n_frames;
    size_t n_bytes; // of whole frames
} dt_journal;

// *n_bytes grows by those of the frame.
dt_status dt_journal_append(int fd, const char *path, const dt_chunk *c, uint64_t *n_bytes);
// The frame at *at, which moves on; false: what is there is no whole frame. Borrowed.
bool dt_frame_next(const char *data, size_t n_bytes, size_t *at, dt_frame *out);
// No file is an empty journal; what is not whole at its end (a kill while it was written) is left out.
dt_status dt_journal_read(dt_journal *j, const char *path);
void dt_journal_fini(dt_journal *j);

#endif
