// slab.c: see slab.h.
#include "backend/slab.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>

enum { SLAB_ALIGN = 256 };

struct dt_slab_piece {
    void **where;
    size_t offset;
};

void dt_slab_add(dt_slab *s, void **where, size_t n_bytes) {
    assert(!s->memory);
    *where = NULL;
    if (!n_bytes) return;
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 16;
        s->pieces = dt_xrealloc(s->pieces, sizeof *s->pieces * (size_t)s->cap);
    }
    s->pieces[s->n++] = (struct dt_slab_piece){where, s->n_bytes};
    s->n_bytes += dt_align_up(n_bytes, SLAB_ALIGN);
}

static dt_status take(dt_slab *s, dt_backend *b, bool shared, const char *what) {
    s->backend = b;
    if (!s->n_bytes) return DT_OK;
    if (shared && b->device && b->device->alloc_shared)
        DT_TRY(b->device->alloc_shared(b, &s->memory, s->n_bytes, what));
    else
        DT_TRY(b->alloc(b, &s->memory, s->n_bytes, what));
    for (int i = 0; i < s->n; i++) *s->pieces[i].where = (char *)s->memory + s->pieces[i].offset;
    free(s->pieces);
    s->pieces = NULL;
    s->n = s->cap = 0;
    return DT_OK;
}

dt_status dt_slab_take(dt_slab *s, dt_backend *b, const char *what) {
    return take(s, b, false, what);
}

dt_status dt_slab_take_shared(dt_slab *s, dt_backend *b, const char *what) {
    return take(s, b, true, what);
}

void dt_slab_drop(dt_slab *s) {
    if (s->memory) s->backend->free(s->backend, s->memory, s->n_bytes);
    free(s->pieces);
    *s = (dt_slab){0};
}
