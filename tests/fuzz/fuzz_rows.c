// fuzz_rows.c: any bytes as a table whose rows are records (dtrain pack --rows), alone and with itself joined row by
// row. Must answer, never crash, and give rows of one length of finite numbers, or an error that names the file.
// Parser: data/raw/table.c data/raw/raw_rows.c
#define _GNU_SOURCE
#include "data/raw/raw.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEAD = 128 };

static void look(const char *path, const char *rows, const char *join) {
    const dt_raw_opts o = {.rows = rows, .join = join};
    dt_raw r;
    if (dt_raw_list(&r, path, NULL, &o) != DT_OK) {
        if (!strstr(dt_error_message(), path) && !strstr(dt_error_message(), "--rows")) abort();
        return;
    }
    const size_t size = r.wide ? sizeof(double) : sizeof(float), n = r.row_length * size;
    uint8_t *bytes = malloc(HEAD + n);
    for (size_t i = 0; i < r.n; i++) {
        if (r.items[i].size != HEAD + n) abort();
        dt_raw_read_row(&r, &r.items[i], 0, bytes, HEAD + n);
        if (memcmp(bytes, "\x93NUMPY", 6) != 0) abort();
        for (size_t k = 0; k < r.row_length; k++) {
            float x;
            double wide;
            memcpy(&x, bytes + HEAD + k * size, sizeof x);
            memcpy(&wide, bytes + HEAD + k * size, r.wide ? sizeof wide : 0);
            if (!isfinite(r.wide ? wide : (double)x)) abort();
        }
    }
    free(bytes);
    dt_raw_fini(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    char path[64];
    if (n_bytes > 1 << 14) return 0;
    int fd = memfd_create("rows", 0);
    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    look(path, "-", NULL);
    look(path, "0", NULL);
    look(path, "label", path);
    close(fd);
    return 0;
}
