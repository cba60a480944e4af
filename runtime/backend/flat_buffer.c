// flat_buffer.c: see flat_buffer.h.
#include "backend/flat_buffer.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

enum { FLAT_ALIGN = 256 };

struct dt_flat_buffer_part {
    void **where;
    size_t offset;
};

void dt_flat_buffer_add(dt_flat_buffer *s, void **where, size_t n_bytes) {
    assert(!s->memory);
    *where = NULL;
    if (!n_bytes) return;
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 16;
        s->parts = dt_xrealloc(s->parts, sizeof *s->parts * (size_t)s->cap);
    }
    s->parts[s->n++] = (struct dt_flat_buffer_part){where, s->n_bytes};
    s->n_bytes += dt_align_up(n_bytes, FLAT_ALIGN);
}

static dt_status flat_buffer_take(dt_flat_buffer *s, dt_backend *b, bool shared, const char *what) {
    s->backend = b;
    if (!s->n_bytes) return DT_OK;
    if (shared && b->device && b->device->alloc_shared)
        DT_TRY(b->device->alloc_shared(b, &s->memory, s->n_bytes, what));
    else
        DT_TRY(b->alloc(b, &s->memory, s->n_bytes, what));
    for (int i = 0; i < s->n; i++) *s->parts[i].where = (char *)s->memory + s->parts[i].offset;
    free(s->parts);
    s->parts = NULL;
    s->n = s->cap = 0;
    return DT_OK;
}

dt_status dt_flat_buffer_alloc(dt_flat_buffer *s, dt_backend *b, const char *what) {
    return flat_buffer_take(s, b, false, what);
}

dt_status dt_flat_buffer_alloc_shared(dt_flat_buffer *s, dt_backend *b, const char *what) {
    return flat_buffer_take(s, b, true, what);
}

void dt_flat_buffer_free(dt_flat_buffer *s) {
    if (s->memory) s->backend->free(s->backend, s->memory, s->n_bytes);
    free(s->parts);
    *s = (dt_flat_buffer){0};
}
