// peek.c: one read of 4 KiB instead of several of a few bytes. Scanning a tar from Python (a PAX header before each
// header) or an LMDB of messages is mostly such reads.
#include "peek.h"

#include <string.h>

void dt_peek_init(dt_peek *w, const dt_blob *b) {
    w->blob = b;
    w->at = 0;
    w->n = 0;
}

dt_status dt_peek_read(dt_peek *w, uint64_t at, void *dst, size_t n_bytes) {
    const dt_blob *b = w->blob;
    if (n_bytes > sizeof w->bytes || at > b->n_bytes || n_bytes > b->n_bytes - at)
        return dt_blob_read(b, at, dst, n_bytes); // says what is wrong, if something is
    if (at < w->at || at + n_bytes > w->at + w->n) {
        uint64_t left = b->n_bytes - at;
        w->n = 0;
        w->at = at;
        size_t n = left < sizeof w->bytes ? (size_t)left : sizeof w->bytes;
        DT_TRY(dt_blob_read(b, at, w->bytes, n));
        w->n = n;
    }
    memcpy(dst, w->bytes + (at - w->at), n_bytes);
    return DT_OK;
}
