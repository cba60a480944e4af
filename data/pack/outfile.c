// outfile.c: large writes that do not go through the page cache.
//
// A packed set is written once and is often larger than memory. Through the page cache each byte is
// copied, a page is allocated for it (which costs more than the copy), and the flush at the end waits for
// all of it. So whole pages are written directly from the chunk's memory, which has the same place
// within a page as the file; a page that two chunks share is written by the second (pack_build.c), so that
// only ends of files go through the cache. The two ways never touch the same page. Where the file system is not
// known to do this well (network, FUSE, memory), everything is written the ordinary way.
#include "outfile.h"

#include "base/arena.h"
#include "base/io.h"

#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096, LEAST_BYTES = 128 << 10 };

dt_status dt_outfile_open(dt_outfile *f, const char *path) {
    *f = (dt_outfile){.path = dt_xstrdup(path), .fd = -1, .direct_fd = -1};
    DT_TRY(dt_io_open_update(&f->fd, path));
    f->direct_fd = dt_io_open_direct(path);
    return DT_OK;
}

dt_status dt_outfile_write(const dt_outfile *f, const void *data, size_t n_bytes, uint64_t at) {
    const uint8_t *p = data;
    size_t head = (size_t)(-at & (PAGE - 1));
    bool aligned = ((uintptr_t)(p + head) & (PAGE - 1)) == 0;
    if (f->direct_fd < 0 || !aligned || n_bytes < LEAST_BYTES)
        return dt_io_pwrite(f->fd, f->path, data, n_bytes, (off_t)at);
    size_t body = (n_bytes - head) & ~(size_t)(PAGE - 1), tail = n_bytes - head - body;
    if (head) DT_TRY(dt_io_pwrite(f->fd, f->path, p, head, (off_t)at));
    DT_TRY(dt_io_pwrite(f->direct_fd, f->path, p + head, body, (off_t)(at + head)));
    if (tail)
        DT_TRY(dt_io_pwrite(f->fd, f->path, p + head + body, tail, (off_t)(at + head + body)));
    return DT_OK;
}

dt_status dt_outfile_sync(const dt_outfile *f) {
    return dt_io_fsync(f->fd, f->path);
}

dt_status dt_outfile_close(dt_outfile *f) {
    dt_status st = DT_OK;
    if (f->direct_fd >= 0) close(f->direct_fd);
    if (f->fd >= 0) st = dt_io_close(f->fd, f->path);
    free(f->path);
    *f = (dt_outfile){.fd = -1, .direct_fd = -1};
    return st;
}
