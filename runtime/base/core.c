// core.c: errors, arenas, shapes.

#include "base/core.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- status -------------------------------------------------------------------------------------------------------

// The message of the last failure, one buffer a thread.
//
// The buffer is fixed, so that reporting "out of memory" needs no memory. Text that is too long is cut at
// the end (messages begin with the place). The current message may be an argument of dt_fail, so text is
// formatted elsewhere and then copied.

static _Thread_local char message[DT_ERROR_BYTES];

dt_status dt_fail(dt_status code, const char *fmt, ...) {
    char text[DT_ERROR_BYTES]; // not into `message`: it may be an argument
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(message, text, sizeof message); // all bytes: texts need no length
    return code;
}

dt_status dt_fail_context(dt_status code, const char *fmt, ...) {
    char text[2 * DT_ERROR_BYTES + 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, DT_ERROR_BYTES, fmt, ap);
    va_end(ap);
    const size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, ": %s", message); // the origin's message comes last
    text[sizeof message - 1] = 0;
    memcpy(message, text, sizeof message);
    return code;
}

const char *dt_error_message(void) {
    return message;
}
void dt_error_clear(void) {
    message[0] = '\0';
}

dt_error_kept dt_error_keep(void) {
    dt_error_kept kept;
    memcpy(kept.message, message, sizeof message); // by value: may cross to another thread
    return kept;
}
void dt_error_restore(const dt_error_kept *kept) {
    memcpy(message, kept->message, sizeof message);
}

// ---- arena --------------------------------------------------------------------------------------------------------

// A chain of blocks of at least 64 KiB; an allocation bumps the newest block's pointer.
//
// A large allocation gets a block of its own, linked behind the newest one so that the rest of the newest
// block is still used. Invariant: allocations never move.

enum { ALIGN = 16, BLOCK_BYTES = 64 * 1024 };

typedef struct dt_arena_block {
    // blocks are freed together
    struct dt_arena_block *next;
    size_t used, cap;
    _Alignas(16) unsigned char data[];
} dt_arena_block;

// Like a kill at this place; nothing is cleaned up.
_Noreturn static void arena_out_of_memory(size_t n_bytes) {
    char line[128];
    int n = snprintf(line, sizeof line, "dtrain: error: out of memory: %zu bytes of metadata cannot be allocated\n",
                     n_bytes);
    const ssize_t written = write(STDERR_FILENO, line, (size_t)n); // write, not fprintf: stdio may allocate
    (void)written;
    _exit(DT_E_INTERNAL);
}

void *dt_xcalloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size ? size : 1); // at least one byte: calloc(0) may return NULL
    if (!p) arena_out_of_memory(n * size);
    return p;
}

void *dt_xrealloc(void *p, size_t n_bytes) {
    void *q = realloc(p, n_bytes ? n_bytes : 1);
    if (!q) arena_out_of_memory(n_bytes);
    return q;
}

void *dt_xgrow(void *list, size_t n, size_t size) {
    // n & (n - 1) is 0 for 0 and powers of two; the capacity is the next power of two above n
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
    if (vasprintf(&s, fmt, ap) < 0) arena_out_of_memory(strlen(fmt)); // GNU: allocates the text
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
    // text may hold `before` as an argument: formatted before the free
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
        next = b->next; // read before the block is gone
        free(b);
    }
    *a = (dt_arena){0};
}

void *dt_arena_alloc(dt_arena *a, size_t n_bytes) {
    if (n_bytes > SIZE_MAX / 2) arena_out_of_memory(n_bytes); // rounding up cannot wrap then
    size_t n = dt_align_up(n_bytes, ALIGN);                   // every type's alignment, AVX loads aside
    dt_arena_block *b = a->head;
    if (!b || b->cap - b->used < n) { // the rest of the block stays unused, except behind a large one
        const size_t cap = n > BLOCK_BYTES / 4 ? n : BLOCK_BYTES; // at most half of what there can be
        b = dt_xcalloc(1, sizeof *b + cap);                       // zeroed: callers rely on it
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
    a->used_bytes += n; // of all allocations, for reports; rounded up
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

// ---- tensor -------------------------------------------------------------------------------------------------------

// Sizes and names of element types and shapes. Pure functions.

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[DT_DTYPE_COUNT] = {
    [DT_F32] = {"f32", 4}, [DT_BF16] = {"bf16", 2}, [DT_F16] = {"f16", 2},
    [DT_I32] = {"i32", 4}, [DT_U8] = {"u8", 1},     [DT_I8] = {"i8", 1},
};

size_t dt_dtype_size(dt_dtype t) {
    return dtypes[t].n_bytes;
}

const char *dt_dtype_name(dt_dtype t) {
    return dtypes[t].name;
}

bool dt_dtype_is_float(dt_dtype t) {
    return t == DT_F32 || t == DT_BF16 || t == DT_F16;
}

int64_t dt_shape_elements(const dt_shape *s) {
    int64_t n = 1; // a scalar has one element; sizes were checked by dt_shape_is_sound
    for (int i = 0; i < s->n; i++) n *= s->d[i];
    return n;
}

bool dt_shape_is_sound(const dt_shape *s) {
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) {
        const int64_t d = s->d[i];
        // division instead of a product that may overflow; an empty dimension ends the growth
        if (d < 0 || d > DT_MAX_SIZE || (d > 0 && n > DT_MAX_ELEMENTS / d)) return false;
        n *= d;
    }
    return true;
}

bool dt_shape_equal(const dt_shape *a, const dt_shape *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) {
        if (a->d[i] != b->d[i]) return false;
    }
    return true;
}

const char *dt_shape_print(const dt_shape *s, char *buf, size_t cap) {
    size_t at = (size_t)snprintf(buf, cap, "("); // snprintf returns what would have been written, so `at` may pass cap
    for (int i = 0; i < s->n && at < cap; i++) {
        at += (size_t)snprintf(buf + at, cap - at, "%s%" PRId64, i ? "," : "", s->d[i]);
    }
    if (at < cap) snprintf(buf + at, cap - at, ")");
    return buf;
}
