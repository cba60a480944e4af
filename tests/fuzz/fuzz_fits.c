// fuzz_fits.c: any bytes as a FITS file. Most of what runs is cfitsio; what must hold is ours: pixels within the
// limits or DT_E_DATA.
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const dt_array_spec spec = {.f32 = true, .stretch = DT_STRETCH_linear};
    dt_image_want want = {.channels = 0, .array = &spec};
    fuzz_decode(&dt_image_fits, data, n_bytes, &want);
    return 0;
}
