// ckpt_file.c: writes one file of a checkpoint. Collects small writes into large ones, hashes everything and
// fsyncs before closing.
//
// After an error the file's state is unknown, so it is closed without another fsync, which could report
// success for pages that the kernel has dropped. The caller removes the whole temporary directory, and the
// next save writes new files.
#include "base/arena.h"
#include "base/io.h"
#include "base/watch.h"
#include "ckpt_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAGE_BYTES = 256 << 10, CHUNK_BYTES = 16 << 20 };

dt_status dt_ckpt_writer_open(dt_ckpt_writer *w, const char *path) {
    *w = (dt_ckpt_writer){.fd = -1, .path = path};
    DT_TRY(dt_io_create(&w->fd, path, false));
    w->stage = dt_xcalloc(1, STAGE_BYTES);
    w->hash = dt_hash_stream_create();
    return DT_OK;
}

static dt_status write_stage(dt_ckpt_writer *w) {
    size_t n = w->n_staged;
    w->n_staged = 0;
    return n ? dt_io_write(w->fd, w->path, w->stage, n) : DT_OK;
}

dt_status dt_ckpt_writer_put(dt_ckpt_writer *w, const void *data, size_t n_bytes) {
    dt_hash_stream_update(w->hash, data, n_bytes);
    w->n_bytes += n_bytes;
    if (w->n_staged + n_bytes > STAGE_BYTES) DT_TRY(write_stage(w));
    const char *p = data;
    while (n_bytes > STAGE_BYTES) {
        size_t chunk = n_bytes < CHUNK_BYTES ? n_bytes : CHUNK_BYTES;
        DT_TRY(dt_io_write(w->fd, w->path, p, chunk));
        dt_watch_begin(w->path, "write");
        dt_io_begin_sync(w->fd, 0, 0); // the whole file: fsync waits less
        dt_watch_end();
        p += chunk;
        n_bytes -= chunk;
    }
    if (n_bytes) memcpy(w->stage + w->n_staged, p, n_bytes);
    w->n_staged += n_bytes;
    return DT_OK;
}

dt_status dt_ckpt_writer_finish(dt_ckpt_writer *w, dt_status st, uint64_t *hash) {
    if (st == DT_OK) st = write_stage(w);
    if (st == DT_OK) st = dt_io_fsync(w->fd, w->path);
    if (st == DT_OK)
        st = dt_io_close(w->fd, w->path);
    else
        close(w->fd);
    *hash = dt_hash_stream_digest(w->hash);
    dt_hash_stream_destroy(w->hash);
    free(w->stage);
    return st;
}
