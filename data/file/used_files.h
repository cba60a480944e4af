// used_files.h: the files of a folder that several runs share, for whoever makes room in it.
#ifndef DT_DATA_USED_FILES_H
#define DT_DATA_USED_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef struct dt_used_file {
    char *path;
    uint64_t n_bytes;
    struct timespec used; // last, by its mtime
} dt_used_file;

// The regular files directly in `folder`, the longest unused first. Heap.
dt_status dt_used_files_list(dt_used_file **out, size_t *n, const char *folder);
void dt_used_files_free(dt_used_file *files, size_t n);

#endif
