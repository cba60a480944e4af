// fuzz_png.c: any bytes as a PNG.
// Parser: data/decode/decode_simple.c
#include "fuzz_image.h"

#include <zlib.h>

// Checksums are made right first, so that damage gets past them.
static void seal(uint8_t *p, size_t n) {
    for (size_t at = 8; n - at >= 12 && at < n;) {
        size_t length = (size_t)p[at] << 24 | (size_t)p[at + 1] << 16 | (size_t)p[at + 2] << 8 | p[at + 3];
        if (length > n - at - 12) return;
        const uLong crc = crc32_z(0, p + at + 4, length + 4);
        for (int i = 0; i < 4; i++) p[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        at += 12 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    fuzz_picture(&dt_image_png, data, n_bytes);
    if (n_bytes < 20 || n_bytes > 1 << 16) return 0;
    uint8_t *copy = malloc(n_bytes);
    memcpy(copy, data, n_bytes);
    seal(copy, n_bytes);
    fuzz_picture(&dt_image_png, copy, n_bytes);
    free(copy);
    return 0;
}
