// fuzz_bmp.c: any bytes as a BMP.
// Parser: data/decode/decode_bitmaps.c
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    fuzz_picture(&dt_image_bmp, data, n_bytes);
    return 0;
}
