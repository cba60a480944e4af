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
void dt_hash_stream_reset(dt_hash_stream *h); // as new
void dt_hash_stream_update(dt_hash_stream *h, const void *data, size_t n_bytes);
uint64_t dt_hash_stream_digest(dt_hash_stream *h); // of all bytes so far; more may follow
void dt_hash_stream_destroy(dt_hash_stream *h);

void dt_hash_hex(uint64_t h, char out[17]); // 16 lower-case digits and NUL

#endif
