// arena.h: many small allocations that are freed together.
//
// Blocks are added on demand; pointers stay valid until dt_arena_fini. Not thread-safe. Running out of
// memory ends the process with one line and exit code 70: metadata is small, and the backend, which
// returns a status, allocates the big buffers (flat buffers, batch rings).
#ifndef DT_BASE_ARENA_H
#define DT_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

typedef struct dt_arena {
    struct dt_arena_block *head; // newest block
    size_t used_bytes;           // over all blocks
} dt_arena;

void dt_arena_init(dt_arena *a);
void dt_arena_fini(dt_arena *a);
void *dt_arena_alloc(dt_arena *a, size_t n_bytes); // zeroed, 16-byte aligned
char *dt_arena_strdup(dt_arena *a, const char *s);
char *dt_arena_printf(dt_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Heap helpers that end the process in the same way instead of returning NULL, for small metadata.
void *dt_xcalloc(size_t n, size_t size);
void *dt_xrealloc(void *p, size_t n_bytes);
// Room for one more than n items of `size` bytes; doubles the list where it is full.
void *dt_xgrow(void *list, size_t n, size_t size);
char *dt_xstrdup(const char *s);
char *dt_xprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Replaces *text, a heap string or NULL, by itself and what is printed behind it.
void dt_xappend(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// The next multiple of `to`.
static inline size_t dt_align_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

#endif
