// bytes.c: buffers that grow. Reserving is for data and may fail. Appending is for lists and aborts if there is no
// memory.
#include "bytes.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

uint8_t *dt_buffer_reserve(dt_buffer *b, size_t n_bytes) {
    if (n_bytes > b->cap_bytes) {
        size_t cap = b->cap_bytes ? b->cap_bytes : 4096;
        while (cap < n_bytes) cap += cap / 2;
        uint8_t *p = realloc(b->data, cap);
        if (!p) return NULL;
        b->data = p;
        b->cap_bytes = cap;
    }
    return b->data;
}

void dt_buffer_append(dt_buffer *b, const void *data, size_t n_bytes) {
    if (b->n_bytes + n_bytes > b->cap_bytes) {
        size_t cap = (b->n_bytes + n_bytes) * 3 / 2 + 256;
        b->data = dt_xrealloc(b->data, cap);
        b->cap_bytes = cap;
    }
    if (n_bytes) memcpy(b->data + b->n_bytes, data, n_bytes);
    b->n_bytes += n_bytes;
}

void dt_buffer_fini(dt_buffer *b) {
    free(b->data);
    *b = (dt_buffer){0};
}
