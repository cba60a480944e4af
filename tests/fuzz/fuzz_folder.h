// fuzz_folder.h: a folder in memory for targets whose parser takes a path. It goes when the process exits.
#ifndef DT_TESTS_FUZZ_FOLDER_H
#define DT_TESTS_FUZZ_FOLDER_H

#include "base/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char fuzz_folder_path[] = "/dev/shm/dtrain-fuzz-XXXXXX";

static void fuzz_folder_remove(void) {
    if (dt_io_remove_tree(fuzz_folder_path) != DT_OK) fprintf(stderr, "%s\n", dt_error_message());
}

static inline const char *fuzz_folder(void) {
    static bool made;
    if (!made && (!mkdtemp(fuzz_folder_path) || atexit(fuzz_folder_remove) != 0)) abort();
    made = true;
    return fuzz_folder_path;
}

static inline void fuzz_write(const char *path, const void *data, size_t n_bytes) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes || close(fd) != 0) abort();
}

#endif
