// hash_avx2.h: for hash.c only.
#ifndef DT_BASE_HASH_AVX2_H
#define DT_BASE_HASH_AVX2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern const bool hash_avx2_is_built;
uint64_t hash_avx2(const void *data, size_t n_bytes);
void *hash_avx2_create(void); // ready to update; NULL: out of memory
void hash_avx2_reset(void *state);
void hash_avx2_update(void *state, const void *data, size_t n_bytes);
uint64_t hash_avx2_digest(const void *state);
void hash_avx2_destroy(void *state);
uint64_t hash_avx2_copy(const uint8_t *src, uint8_t *head, size_t n_head, uint8_t *dst,
                        size_t n_bytes);

#endif
