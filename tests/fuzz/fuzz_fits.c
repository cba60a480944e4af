// fuzz_fits.c: any bytes as a FITS file: pixels within the limits or DT_E_DATA; the slices of a cube are files.
// Parser: data/decode/decode_fits.c
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    const dt_array_spec spec = {.f32 = true, .stretch = DT_STRETCH_linear};
    dt_image_want want = {.channels = 0, .array = &spec};
    static dt_buffer slice;
    int64_t n = 0;
    fuzz_decode(&dt_image_fits, data, n_bytes, &want);
    const dt_array_spec units = {.f32 = true, .n_hdus = 2, .hdus = {"1", "sci"}}; // by number and by name
    want.array = &units;
    fuzz_decode(&dt_image_fits, data, n_bytes, &want);
    want.array = &spec;
    if (dt_fits_count_slices((dt_span){data, n_bytes}, &n) == DT_OK) {
        if (n < 1 || dt_fits_take_slice((dt_span){data, n_bytes}, n - 1, &slice) != DT_OK) abort();
        fuzz_decode(&dt_image_fits, slice.data, slice.n_bytes, &want);
    }
    return 0;
}
