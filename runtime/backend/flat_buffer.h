// flat_buffer.h: one allocation for many buffers with the same lifetime (parameters, a plan's packed weights, an exec,
// a pair of input buffers). The owner lists the buffers once it knows their sizes, allocates them together, and
// frees them together. A GPU allocates slowly and in units of up to 2 MiB, and a network of a hundred layers
// would otherwise make hundreds of allocations.
//
// Each buffer begins at a multiple of 256 bytes from the allocation's start, which is aligned to 256 on a GPU
// (as CUDA's allocations are) and to 64 on the CPU (dt_backend.alloc). Memory is zeroed.
#ifndef DT_BACKEND_FLAT_BUFFER_H
#define DT_BACKEND_FLAT_BUFFER_H

#include "backend/backend.h"

typedef struct dt_flat_buffer {
    dt_backend *backend;
    void *memory;
    size_t n_bytes;
    struct dt_flat_buffer_part *parts; // until dt_flat_buffer_alloc
    int n, cap;
} dt_flat_buffer;

// dt_flat_buffer_alloc sets *where; until then, and if n_bytes is 0, it is NULL.
void dt_flat_buffer_add(dt_flat_buffer *s, void **where, size_t n_bytes);
// Allocates all listed buffers at once. `what` names them in messages.
dt_status dt_flat_buffer_alloc(dt_flat_buffer *s, dt_backend *b, const char *what);
// The same, with dt_device.alloc_shared where the backend has it.
dt_status dt_flat_buffer_alloc_shared(dt_flat_buffer *s, dt_backend *b, const char *what);
void dt_flat_buffer_free(dt_flat_buffer *s); // also of a zeroed or failed one

#endif
