// fuzz_ppm.c: any bytes as one of the netpbm formats.
// Parser: data/decode/decode_bitmaps.c
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (n_bytes < 2 || data[0] != 'P' || data[1] < '1' || data[1] > '6') return 0; // told by kinds.def
    fuzz_picture(&dt_image_ppm, data, n_bytes);
    return 0;
}
