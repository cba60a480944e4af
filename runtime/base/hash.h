// hash.h: hashes of files and names: XXH3 and XXH32 from libxxhash, and CRC32C (Castagnoli; SSE4.2 where
// available) for tfevents.
#ifndef DT_BASE_HASH_H
#define DT_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t dt_hash32(const char *name);                               // XXH32(name, seed 0)
uint64_t dt_hash64(const void *data, size_t n_bytes);               // XXH3-64, seed 0
uint32_t dt_crc32c(uint32_t crc, const void *data, size_t n_bytes); // start with crc = 0

// Streaming XXH3-64, for files.
typedef struct dt_hash_stream dt_hash_stream;
dt_hash_stream *dt_hash_stream_create(void);
void dt_hash_stream_update(dt_hash_stream *h, const void *data, size_t n_bytes);
uint64_t dt_hash_stream_digest(dt_hash_stream *h); // of all bytes so far; more may follow
void dt_hash_stream_destroy(dt_hash_stream *h);

void dt_hash_hex(uint64_t h, char out[17]); // 16 lower-case digits and NUL

// Hashes that other programs store beside their files (hash.c), under the names of Python's xxhash: xxh32,
// xxh64, xxh3_64, xxh128 (xxh3_128). Seed 0, hexadecimal, most significant digit first.
enum { DT_NAMED_HASH_HEX = 33 }; // 32 digits and NUL

bool dt_named_hash_is_known(const char *name);

typedef struct dt_named_hash dt_named_hash;
dt_named_hash *dt_named_hash_create(const char *name); // NULL: unknown name
void dt_named_hash_update(dt_named_hash *h, const void *data, size_t n_bytes);
void dt_named_hash_hex(const dt_named_hash *h, char out[DT_NAMED_HASH_HEX]); // of all bytes so far
void dt_named_hash_destroy(dt_named_hash *h);

#endif
