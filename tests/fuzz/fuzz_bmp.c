// fuzz_bmp.c: any bytes as a BMP.
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    fuzz_picture(&dt_image_bmp, data, n_bytes);
    return 0;
}
