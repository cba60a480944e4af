// fuzz_npy.c: any bytes as an NPY array: as an image of any number of bands, in both layouts, as bytes and as
// stretched floats, and as a vector.
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static dt_buffer scratch;
    static double numbers[4096];
    const dt_array_spec specs[] = {
        {.f32 = false},
        {.chw = true},
        {.f32 = true, .stretch = DT_STRETCH_asinh, .softening = 0.1},
        {.f32 = true, .chw = true, .n_bands = 2, .bands = {1, 0}},
    };
    for (int i = 0; i < 4; i++) {
        dt_image_want want = {.channels = specs[i].n_bands, .array = &specs[i]};
        fuzz_decode(&dt_image_npy, data, n_bytes, &want);
    }
    dt_npy a;
    if (dt_npy_read((dt_span){data, n_bytes}, &a) != DT_OK || a.n > 4096) return 0;
    const dt_status st = dt_decode_numbers((dt_span){data, n_bytes}, a.n, numbers, &scratch);
    if (st != DT_OK && st != DT_E_DATA) abort(); // rows are no vector
    return 0;
}
