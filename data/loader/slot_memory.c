// slot_memory.c: the memory of batch slots outlives the loader that allocated it.
//
// Each evaluation opens a loader, with a ring of the same size as the one before. Pinned memory is slow to
// allocate (a millisecond and more for a few MB) and to free (that waits for the device), and the training
// thread does both. So blocks are kept until the dataset closes, and the next loader that wants this size takes
// them.
#include "data_parts.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

static dt_status get_new(dt_data *d, size_t n_bytes, void **out) {
    if (d->backend) return d->backend->alloc_host(d->backend, out, n_bytes, "batch ring");
    *out = aligned_alloc(ALIGN, n_bytes);
    return *out ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory for a batch of %zu bytes", n_bytes);
}

dt_status dt_slot_memory_take(dt_data *d, size_t n_bytes, void **out) {
    dt_slot_memory *m = &d->slot_memory;
    *out = NULL;
    pthread_mutex_lock(&m->lock);
    for (int i = m->n - 1; i >= 0 && !*out; i--) {
        if (m->blocks[i].n_bytes != n_bytes) continue;
        *out = m->blocks[i].p;
        m->blocks[i] = m->blocks[--m->n];
    }
    pthread_mutex_unlock(&m->lock);
    if (!*out) DT_TRY(get_new(d, n_bytes, out));
    memset(*out, 0, n_bytes);
    return DT_OK;
}

void dt_slot_memory_give(dt_data *d, void *p, size_t n_bytes) {
    dt_slot_memory *m = &d->slot_memory;
    pthread_mutex_lock(&m->lock);
    if (m->n == m->capacity) {
        m->capacity = m->capacity ? 2 * m->capacity : 16;
        m->blocks = dt_xrealloc(m->blocks, (size_t)m->capacity * sizeof *m->blocks);
    }
    m->blocks[m->n++] = (dt_slot_block){p, n_bytes};
    pthread_mutex_unlock(&m->lock);
}

void dt_slot_memory_open(dt_data *d) {
    pthread_mutex_init(&d->slot_memory.lock, NULL);
}

void dt_slot_memory_close(dt_data *d) {
    dt_slot_memory *m = &d->slot_memory;
    for (int i = 0; i < m->n; i++)
        if (d->backend)
            d->backend->free_host(d->backend, m->blocks[i].p, m->blocks[i].n_bytes);
        else
            free(m->blocks[i].p);
    free(m->blocks);
    pthread_mutex_destroy(&m->lock);
}
