// slab.h: pieces of memory that live equally long, in one allocation. What has a lifetime (parameters, a
// plan's packed weights, an exec, a pair of input buffers) lists its pieces once their sizes are known,
// takes the slab, and gives it back whole. A device hands out memory slowly, in units of up to 2 MiB: a
// network of a hundred layers would otherwise make hundreds of allocations.
//
// A piece begins a multiple of 256 bytes behind the slab's own beginning, which is aligned to 256 on a GPU
// (CUDA's allocations are) and to 64 on the CPU (dt_backend.alloc). All bytes are zero when they are taken.
#ifndef DT_BACKEND_SLAB_H
#define DT_BACKEND_SLAB_H

#include "backend/backend.h"

typedef struct dt_slab {
    dt_backend *backend;
    void *memory;
    size_t n_bytes;
    struct dt_slab_piece *pieces; // until take
    int n, cap;
} dt_slab;

// *where is set by take: NULL before, and where n_bytes is 0.
void dt_slab_add(dt_slab *s, void **where, size_t n_bytes);
// One allocation for all pieces since the beginning; none where there is nothing. `what` names it in messages.
dt_status dt_slab_take(dt_slab *s, dt_backend *b, const char *what);
// The same in memory that ranks exchange (dt_device.alloc_shared), where the backend has such.
dt_status dt_slab_take_shared(dt_slab *s, dt_backend *b, const char *what);
void dt_slab_drop(dt_slab *s); // of a zeroed or failed one too

#endif
