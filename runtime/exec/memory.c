// memory.c: offsets of buffers with lifetimes in one flat buffer.
//
// Largest first, each at the lowest offset where it overlaps no placed buffer that lives at the
// same time ("greedy by size", Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020). Buffers are few (hundreds to some thousands), so the quadratic search is fine.
// Invariant, asserted: no two buffers that live at the same time overlap.

#include "base/core.h"
#include "exec/plan_internal.h"

#include <assert.h>
#include <stdlib.h>

// Scratch follows the buffers, and cuBLASLt's workspace in it must lie at a multiple of 256.
enum { ALIGN_BYTES = 64, ALIGN_TOTAL = 256 };

static _Thread_local const dt_plan_buffer *sort_base; // qsort has no context argument

static int by_size_then_index(const void *a, const void *b) {
    int i = *(const int *)a, j = *(const int *)b;
    if (sort_base[i].n_bytes != sort_base[j].n_bytes) return sort_base[i].n_bytes > sort_base[j].n_bytes ? -1 : 1;
    return i - j; // qsort is not stable: equal sizes keep their order, so that plans are the same everywhere
}

static bool live_together(const dt_plan_buffer *a, const dt_plan_buffer *b) {
    return a->first <= b->last && b->first <= a->last;
}

// placed: indices in ascending order of offset.
static size_t lowest_gap(const dt_plan_buffer *buffers, const int *placed, int n_placed, const dt_plan_buffer *b) {
    size_t at = 0;
    for (int k = 0; k < n_placed; k++) {
        const dt_plan_buffer *q = &buffers[placed[k]];
        if (!live_together(q, b)) continue;      // may share its bytes
        if (at + b->n_bytes <= q->offset) break; // fits in front of q; all that follow begin later
        if (q->offset + q->n_bytes > at) at = q->offset + q->n_bytes;
    }
    return at;
}

// Only asserted, so unused with NDEBUG.
__attribute__((unused)) static bool memory_is_disjoint(const dt_plan_buffer *b, int n) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            if (b[i].n_bytes && b[j].n_bytes && live_together(&b[i], &b[j]) &&
                b[i].offset < b[j].offset + b[j].n_bytes && b[j].offset < b[i].offset + b[i].n_bytes)
                return false;
    return true;
}

size_t dt_memory_assign(dt_plan_buffer *buffers, int n) {
    int *order = dt_xcalloc((size_t)n + 1, sizeof(int)), *placed = dt_xcalloc((size_t)n + 1, sizeof(int));
    for (int i = 0; i < n; i++) {
        order[i] = i;
        buffers[i].n_bytes = dt_align_up(buffers[i].n_bytes, ALIGN_BYTES);
    }
    sort_base = buffers;
    qsort(order, (size_t)n, sizeof(int), by_size_then_index);
    size_t total = 0;
    for (int k = 0; k < n; k++) {
        dt_plan_buffer *b = &buffers[order[k]];
        b->offset = lowest_gap(buffers, placed, k, b);
        int to = k; // insertion keeps `placed` in order of offsets
        for (; to > 0 && buffers[placed[to - 1]].offset > b->offset; to--) placed[to] = placed[to - 1];
        placed[to] = order[k];
        if (b->offset + b->n_bytes > total) total = b->offset + b->n_bytes; // the peak
    }
    assert(memory_is_disjoint(buffers, n));
    free(order);
    free(placed);
    return dt_align_up(total, ALIGN_TOTAL);
}
