// arena.c: a chain of blocks of at least 64 KiB; an allocation bumps the newest block's pointer.
//
// A large allocation gets a block of its own, linked behind the newest one so that the rest of the newest
// block is still used. Invariant: allocations never move.
#define _GNU_SOURCE
#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 16, BLOCK_BYTES = 64 * 1024 };

typedef struct dt_arena_block {
    struct dt_arena_block *next;
    size_t used, cap;
    _Alignas(16) unsigned char data[];
} dt_arena_block;

// Like a kill at this place; nothing is cleaned up.
_Noreturn static void arena_out_of_memory(size_t n_bytes) {
    char line[128];
    int n = snprintf(line, sizeof line, "dtrain: error: out of memory: %zu bytes of metadata cannot be allocated\n",
                     n_bytes);
    const ssize_t said = write(STDERR_FILENO, line, (size_t)n);
    (void)said;
    _exit(DT_E_INTERNAL);
}

void *dt_xcalloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p) arena_out_of_memory(n * size);
    return p;
}

void *dt_xrealloc(void *p, size_t n_bytes) {
    void *q = realloc(p, n_bytes ? n_bytes : 1);
    if (!q) arena_out_of_memory(n_bytes);
    return q;
}

void *dt_xgrow(void *list, size_t n, size_t size) {
    bool full = (n & (n - 1)) == 0; // capacities are powers of two
    return full ? dt_xrealloc(list, (n ? 2 * n : 1) * size) : list;
}

char *dt_xstrdup(const char *s) {
    char *copy = strdup(s);
    if (!copy) arena_out_of_memory(strlen(s) + 1);
    return copy;
}

static char *arena_print(const char *fmt, va_list ap) {
    char *s = NULL;
    if (vasprintf(&s, fmt, ap) < 0) arena_out_of_memory(strlen(fmt));
    return s;
}

char *dt_xprintf(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *s = arena_print(fmt, ap);
    va_end(ap);
    return s;
}

void dt_xappend(char **text, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *more = arena_print(fmt, ap), *before = *text;
    va_end(ap);
    *text = dt_xprintf("%s%s", before ? before : "", more);
    free(before);
    free(more);
}

void dt_arena_init(dt_arena *a) {
    *a = (dt_arena){0};
}

void dt_arena_fini(dt_arena *a) {
    for (dt_arena_block *b = a->head, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (dt_arena){0};
}

void *dt_arena_alloc(dt_arena *a, size_t n_bytes) {
    if (n_bytes > SIZE_MAX / 2) arena_out_of_memory(n_bytes);
    size_t n = dt_align_up(n_bytes, ALIGN);
    dt_arena_block *b = a->head;
    if (!b || b->cap - b->used < n) {
        const size_t cap = n > BLOCK_BYTES / 4 ? n : BLOCK_BYTES; // at most half of what there can be
        b = dt_xcalloc(1, sizeof *b + cap);
        b->cap = cap;
        if (a->head && b->cap == n) { // its own block, behind the newest
            b->next = a->head->next;
            a->head->next = b;
        } else {
            b->next = a->head;
            a->head = b;
        }
    }
    void *p = b->data + b->used;
    b->used += n;
    a->used_bytes += n;
    return p;
}

char *dt_arena_strdup(dt_arena *a, const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(dt_arena_alloc(a, n), s, n);
}

char *dt_arena_printf(dt_arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *text = arena_print(fmt, ap), *s = dt_arena_strdup(a, text);
    va_end(ap);
    free(text);
    return s;
}
