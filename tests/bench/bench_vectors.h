// bench_vectors.h: a tar of vectors, for benches.
#ifndef BENCH_VECTORS_H
#define BENCH_VECTORS_H

#include "base/arena.h"
#include "base/io.h"
#include "data/file/tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// n members 00000.vec, … of n_floats floats; on the disk when it returns.
static inline dt_status bench_make_vectors(const char *path, int n, size_t n_floats) {
    uint8_t head[DT_TAR_MAX_HEADER], end[1024] = {0};
    size_t n_head, n_bytes = n_floats * sizeof(float);
    float *v = dt_xcalloc(n_bytes, 1);
    int fd;
    dt_status st = dt_io_create(&fd, path, false);
    for (int i = 0; i < n && st == DT_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "%05d.vec", i);
        for (size_t k = 0; k < n_floats; k++) v[k] = (float)(i + (int)k);
        st = dt_tar_write_header(head, &n_head, name, n_bytes);
        if (st == DT_OK) st = dt_io_write(fd, path, head, n_head);
        if (st == DT_OK) st = dt_io_write(fd, path, v, n_bytes);
    }
    if (st == DT_OK) st = dt_io_write(fd, path, end, sizeof end);
    if (st == DT_OK && fsync(fd) != 0) st = dt_fail(DT_E_STORAGE, "%s: fsync", path);
    if (st == DT_OK) st = dt_io_close(fd, path);
    free(v);
    return st;
}

#endif
