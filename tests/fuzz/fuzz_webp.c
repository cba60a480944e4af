// fuzz_webp.c: any bytes as a WebP.
// Parser: data/decode/decode_simple.c
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    fuzz_picture(&dt_image_webp, data, n_bytes);
    return 0;
}
