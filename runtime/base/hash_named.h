// hash_named.h: hashes that other programs store beside their files, under the names of Python's xxhash:
// xxh32, xxh64, xxh3_64, xxh128 (xxh3_128). Seed 0, hexadecimal, most significant digit first.
#ifndef DT_BASE_HASH_NAMED_H
#define DT_BASE_HASH_NAMED_H

#include <stdbool.h>
#include <stddef.h>

enum { DT_NAMED_HASH_HEX = 33 }; // 32 digits and NUL

bool dt_named_hash_is_known(const char *name);

typedef struct dt_named_hash dt_named_hash;
dt_named_hash *dt_named_hash_create(const char *name); // NULL: unknown name
void dt_named_hash_update(dt_named_hash *h, const void *data, size_t n_bytes);
void dt_named_hash_hex(const dt_named_hash *h, char out[DT_NAMED_HASH_HEX]); // of all bytes so far
void dt_named_hash_destroy(dt_named_hash *h);

#endif
