// record.h: the small values that everything in data/ speaks in. A record is one stored item: a key,
// members (extension -> bytes in some file) and a row of metadata columns. Records of one data set
// live in a catalog (catalog.h); a set (source.h) reads their bytes.
#ifndef DT_DATA_RECORD_H
#define DT_DATA_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_NO_VALUE UINT32_MAX // a record's cell in a column that it does not have

// Borrowed bytes.
typedef struct dt_span {
    const uint8_t *data;
    size_t n_bytes;
} dt_span;

// A member's bytes: `size` bytes at `offset` of the record's shard.
typedef struct dt_member {
    uint32_t ext;  // index into the catalog's extensions
    bool has_hash; // false where the set was made by others
    uint64_t offset, size;
    uint64_t hash; // XXH3-64 of the bytes
} dt_member;

typedef struct dt_record {
    uint32_t key; // string of the catalog
    uint32_t shard;
    uint32_t first_member, n_members; // sorted as stored
    uint64_t key_hash;                // XXH3-64 of the key: what splits are made of
} dt_record;

// Scratch memory that grows and is reused: no allocation in steady state.
typedef struct dt_buffer {
    uint8_t *data;
    size_t n_bytes, cap_bytes;
} dt_buffer;
uint8_t *dt_buffer_reserve(dt_buffer *b, size_t n_bytes); // contents undefined; NULL: out of memory
void dt_buffer_append(dt_buffer *b, const void *data, size_t n_bytes);
void dt_buffer_fini(dt_buffer *b);

#endif
