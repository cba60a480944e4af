// flat_buffer.c: see flat_buffer.h.

#include "backend/flat_buffer.h"

#include "optimizers_all.h"

#include "backend/optimizer.h"
#include "base/core.h"
#include "config/words.h"

#include <assert.h>
#include <stdlib.h>

enum { FLAT_ALIGN = 256 }; // bytes: what GPUs want for coalesced access

struct dt_flat_buffer_part {
    void **where; // pointer that receives the address
    size_t offset;
};

void dt_flat_buffer_add(dt_flat_buffer *s, void **where, size_t n_bytes) {
    assert(!s->memory);   // after alloc no part can be added
    *where = NULL;        // until alloc
    if (!n_bytes) return; // nothing: stays NULL
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
    if (shared && b->device && b->device->alloc_shared) // for registration with NCCL
        DT_TRY(b->device->alloc_shared(b, &s->memory, s->n_bytes, what));
    else
        DT_TRY(b->alloc(b, &s->memory, s->n_bytes, what));
    // all parts of one allocation
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

// ---- optimizer ----------------------------------------------------------------------------------------------------

#define WORD(id, ...)                                                                                                  \
    {#id, dt_##id##_n_slots, dt_##id##_slots, dt_##id##_factored, dt_##id##_norms, dt_##id##_begin, dt_##id##_ratio},
const dt_optimizer dt_optimizers[DT_N_OPTIMIZERS] = {
#include "config/optimizers.def"
};
#undef WORD

int64_t dt_optimizer_n_norms(const dt_optimizer_args *a) {
    // two doubles per piece: weights and direction
    int64_t n = 0;
    for (int i = 0; i < a->n_segments; i++)
        n += dt_segment_chunks(a->segments[i].offset, a->segments[i].length, a->segments[i].scaled);
    return n;
}

dt_update dt_optimizer_segment(const dt_optimizer_args *a, int i) {
    const dt_segment *g = &a->segments[i];
    // steps since the tensor's unfreezing, else without skipped ones
    const int64_t t = a->t - (g->start ? g->start : a->n_skipped);
    dt_update u = {.grad_scale = a->grad_scale,
                   .clip = dt_optimizers[a->kind].factored // clipped before
                               ? HUGE_VALF
                               : dt_clip_limit(a->clip_value, a->grad_scale),
                   .lr = a->lr * g->lr_scale,
                   .decay = g->decay, // rate of the segment's group
                   .ratio = a->ratios ? a->ratios[i] : 1.0f,
                   .first = t <= 1}; // momentum begins with the gradient
    for (int k = 0; k < DT_MAX_HYPER; k++) u.hyper[k] = a->hyper[k];
    dt_optimizers[a->kind].begin(&u, t);
    return u;
}

void dt_optimizer_find_ratios(const dt_optimizer_args *a) {
    const double *norms = a->norms;
    for (int i = 0; i < a->n_segments; i++) {
        const dt_segment *g = &a->segments[i];
        double weights = 0, direction = 0;
        int64_t n = dt_segment_chunks(g->offset, g->length, g->scaled);
        // pieces in order: neither threads nor ranks matter
        for (; n > 0; n--, norms += 2) weights += norms[0], direction += norms[1];
        a->ratios[i] = 1.0f;
        const dt_update u = dt_optimizer_segment(a, i);
        if (g->scaled) a->ratios[i] = dt_optimizers[a->kind].ratio(weights, direction, &u);
    }
}
