// fuzz_tif.c: any bytes as a TIFF: as a picture, and pages as arrays.
// Parser: data/decode/decode_tiff.c
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const dt_array_spec spec = {.f32 = true, .n_hdus = 2, .hdus = {"1", "0"}};
    const dt_image_want want = {.channels = 0, .array = &spec};
    fuzz_picture(&dt_image_tif, data, n_bytes);
    fuzz_decode(&dt_image_tif, data, n_bytes, &want);
    return 0;
}
