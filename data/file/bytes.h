// bytes.h: bytes that are borrowed, and bytes that grow: what everything in data/ hands on.
#ifndef DT_DATA_BYTES_H
#define DT_DATA_BYTES_H

#include <stddef.h>
#include <stdint.h>

// Borrowed bytes.
typedef struct dt_span {
    const uint8_t *data;
    size_t n_bytes;
} dt_span;

// Scratch memory that grows and is reused: no allocation in steady state.
typedef struct dt_buffer {
    uint8_t *data;
    size_t n_bytes, cap_bytes;
} dt_buffer;
uint8_t *dt_buffer_reserve(dt_buffer *b, size_t n_bytes); // contents undefined; NULL: out of memory
void dt_buffer_append(dt_buffer *b, const void *data, size_t n_bytes);
void dt_buffer_fini(dt_buffer *b);

#endif
