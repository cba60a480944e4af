// fuzz_csv.c: any bytes as a CSV or a JSON table, and as a list of paths. Must answer, never crash, and give a full rectangle of
// readable cells or an error with the file's name.
// Parser: data/raw/table.c
#define _GNU_SOURCE
#include "base/core.h"
#include "data/raw/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void look(dt_table *t, const char *path, dt_status st) {
    size_t n = 0;
    if (st != DT_OK) {
        if (!strstr(dt_error_message(), path)) abort();
        return;
    }
    for (int k = 0; k < (int)t->cells.n_columns; k++) {
        n += strlen(dt_columns_name(&t->cells, k));
        if (dt_table_find(t, dt_columns_name(&t->cells, k)) != k) abort();
        for (size_t i = 0; i < t->cells.n_rows; i++)
            if (dt_table_cell(t, i, k)) n += strlen(dt_table_cell(t, i, k));
    }
    for (size_t i = 0; i < t->cells.n_rows; i++)
        if (t->line[i] == 0) abort();
    dt_table_fini(t);
    if (n == SIZE_MAX) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_table t;
    char path[64];
    const char *text = (const char *)data;
    if (n_bytes > 1 << 16) return 0;
    int fd = memfd_create("table", 0);
    if (fd < 0 || write(fd, data, n_bytes) != (ssize_t)n_bytes) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    look(&t, path, dt_table_read(&t, path));
    look(&t, path, dt_table_read_lines(&t, path));
    close(fd);
    look(&t, "t.csv", dt_table_parse_csv(&t, "t.csv", text, n_bytes, '\t'));
    look(&t, "t.csv", dt_table_parse_json(&t, "t.csv", text, n_bytes, false));
    look(&t, "t.csv", dt_table_parse_json(&t, "t.csv", text, n_bytes, true));
    return 0;
}
