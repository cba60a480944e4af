// fuzz_tar.c: any bytes as a tar file, walked and read as a set. Must answer, never crash, and every entry
// and member must lie inside the file. The header checksum is made right first, so that damage gets past it.
// Parser: data/file/tar.c!dt_tar_stem|put_octal|finish_header|split_name|pax_record|dt_tar_write_header data/source/format_tar.c
#include "data/file/tar.h"
#include "fuzz_scan.h"

#include "base/log.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void seal(uint8_t *h) {
    unsigned sum = 0;
    char text[8];
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += h[i];
    snprintf(text, sizeof text, "%06o", sum & 0777777);
    memcpy(h + 148, text, 7);
}

static void check_file(void *n_bytes, const char *path, uint64_t offset, uint64_t size) {
    const size_t n = *(const size_t *)n_bytes;
    if (offset > n || size > n - offset || strlen(path) >= DT_TAR_MAX_PATH) abort();
}

static void list(const uint8_t *data, size_t n_bytes) {
    static dt_tar_entry e;
    dt_blob b;
    dt_tar t;
    dt_tar_links *links;
    bool more = true, any;
    dt_blob_from_memory(&b, "fuzz.tar", data, n_bytes);
    if (dt_tar_links_create(&links, &b) != DT_OK) abort();
    dt_tar_begin(&t, &b);
    while (dt_tar_next(&t, &e, &more) == DT_OK && more) {
        check_file(&n_bytes, e.path, e.offset, e.size);
        if (*e.link) dt_tar_links_visit(links, e.path, check_file, &n_bytes, &any);
    }
    dt_tar_links_destroy(links);
    fuzz_scan(&dt_format_tar, &b, n_bytes, n_bytes % 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    dt_log_set_level(DT_LOG_ERROR);
    list(data, n_bytes);
    if (n_bytes == 0 || n_bytes > 1 << 20) return 0;
    uint8_t *copy = malloc(n_bytes);
    memcpy(copy, data, n_bytes);
    for (size_t at = 0; at + 512 <= n_bytes; at += 512)
        if (memcmp(copy + at + 257, "ustar", 5) == 0) seal(copy + at);
    list(copy, n_bytes);
    free(copy);
    return 0;
}
