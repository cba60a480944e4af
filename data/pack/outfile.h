// outfile.h: a large file that is written by several threads, each at its own place.
#ifndef DT_DATA_OUTFILE_H
#define DT_DATA_OUTFILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct dt_outfile {
    char *path;
    int fd, direct_fd; // -1: none
} dt_outfile;

// Creates it, or opens it as it is. DT_E_STORAGE.
dt_status dt_outfile_open(dt_outfile *f, const char *path);
// Memory and file at the same place within a page: then whole pages go past the page cache.
dt_status dt_outfile_write(const dt_outfile *f, const void *data, size_t n_bytes, uint64_t at);
dt_status dt_outfile_sync(const dt_outfile *f);
dt_status dt_outfile_close(dt_outfile *f); // after an error too; frees

#endif
