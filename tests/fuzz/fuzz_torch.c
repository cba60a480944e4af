// fuzz_torch.c: any bytes as a .pth file: opening refuses, or each tensor whose size its storage bounds can be read.
#define _GNU_SOURCE
#include "ckpt/torch_file.h"
#include "ckpt/weights_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    dt_weights *w = NULL;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (dt_torch_file_is(data, size) && dt_weights_open(&w, path) == DT_OK) {
        for (int i = 0; i < dt_weights_count(w); i++) {
            dt_shape shape;
            dt_weights_shape(w, i, &shape);
            int64_t n = dt_shape_elements(&shape);
            if (n > 1 << 20) continue; // a view may repeat an element as often as it likes
            float *values = malloc((size_t)(n + 1) * sizeof *values);
            if (dt_weights_read(w, i, values) != DT_OK) n = 0;
            free(values);
        }
        dt_weights_close(w);
    }
    close(fd);
    return 0;
}
