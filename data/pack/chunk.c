// chunk.c: memory of a chunk. It grows to the largest and stays; 1 MiB and a record more is usual.
//
// Huge pages where the system gives them: a direct write holds fast each page that it writes from, and 256
// small ones a chunk are a twentieth of the CPU time of packing small files.
#define _GNU_SOURCE
#include "chunk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

void dt_chunk_init(dt_chunk *c) {
    *c = (dt_chunk){0};
}

void dt_chunk_fini(dt_chunk *c) {
    free(c->room);
    dt_buffer_fini(&c->rows);
    dt_buffer_fini(&c->marks);
    *c = (dt_chunk){0};
}

void dt_chunk_reset(dt_chunk *c, size_t begin) {
    c->begin = begin;
    c->n_bytes = 0;
    c->has_gap = c->has_leaf = false;
    c->gap_bytes = 0;
    c->gap_at = 0;
    c->rows.n_bytes = c->marks.n_bytes = 0;
    c->n_records = c->n_members = 0;
    c->gap_hash_at[0] = c->gap_hash_at[1] = 0;
}

dt_status dt_chunk_reserve(dt_chunk *c, size_t n_bytes) {
    // a page at either end: for `begin`, and so that a write may be rounded up to whole pages
    size_t need = c->n_bytes + n_bytes + 2 * DT_PACK_PAGE;
    if (need <= c->cap_bytes) return DT_OK;
    size_t cap = c->cap_bytes ? c->cap_bytes : HUGE_PAGE;
    while (cap < need) cap += cap / 2;
    cap = (cap + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    uint8_t *room = aligned_alloc(HUGE_PAGE, cap);
    if (!room) return dt_fail(DT_E_INTERNAL, "no memory for %zu bytes of records", cap);
    madvise(room, cap, MADV_HUGEPAGE);
    if (c->room) memcpy(room, c->room, c->begin + c->n_bytes);
    free(c->room);
    c->room = room;
    c->cap_bytes = cap;
    return DT_OK;
}

uint8_t *dt_chunk_extend(dt_chunk *c, size_t n_bytes, bool zero) {
    assert(c->begin + c->n_bytes + n_bytes <= c->cap_bytes);
    uint8_t *p = dt_chunk_data(c, c->n_bytes);
    if (zero) memset(p, 0, n_bytes);
    c->n_bytes += n_bytes;
    return p;
}

dt_status dt_chunk_shift(dt_chunk *c, size_t begin) {
    if (begin == c->begin) return DT_OK;
    DT_TRY(dt_chunk_reserve(c, 0));
    memmove(c->room + begin, c->room + c->begin, c->n_bytes);
    c->begin = begin;
    return DT_OK;
}
