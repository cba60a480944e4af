// fake_memory.h: the fake device's memory. A block lies between guard pages, ends at the second of them (rounded to 256
// bytes), starts as 0xff bytes (NaN) and has a canary around it, which fake_memory_drop checks. The host can access
// device blocks only between open and close; pinned blocks are always open.
#ifndef DT_TESTS_CUDA_FAKE_MEMORY_H
#define DT_TESTS_CUDA_FAKE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fake_block {
    char *base, *p;
    size_t n_mapped, n_bytes;
    bool pinned;
    struct fake_block *next;
} fake_block;

typedef struct fake_memory {
    fake_block *blocks;
    int open; // how often device memory has been opened
} fake_memory;

void fake_memory_open(fake_memory *m);
void fake_memory_close(fake_memory *m);
// The block in which all of [p, p + n) lies, or NULL.
fake_block *fake_memory_find(fake_memory *m, const void *p, size_t n);
// The block that begins at p, or NULL.
fake_block *fake_memory_at(fake_memory *m, const void *p, bool pinned);
fake_block *fake_memory_add(fake_memory *m, size_t n, bool pinned); // NULL: no memory
void fake_memory_drop(fake_memory *m, fake_block *b);

// Prints what rule was broken and aborts.
__attribute__((noreturn, format(printf, 1, 2))) void fake_breach(const char *fmt, ...);

#endif
