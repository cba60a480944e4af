// fuzz_npy.c: any bytes as an NPY array: as an image of any number of bands, in both layouts, as bytes and as
// stretched floats, as a vector and as a series.
// Parser: data/decode/array.c
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
    const dt_span file = {data, n_bytes};
    dt_npy a;
    int n_long = 0;
    double sum = 0, rate;
    if (dt_series_is(file) && dt_series_read(file, &(dt_series_names){0}, &a, &rate, &scratch) == DT_OK)
        for (int64_t t = 0; t < a.shape[0] && t < 4096; t++) // its ends lie inside
            sum += dt_npy_get(&a, t * a.stride[0]) +
                   dt_npy_get(&a, (a.shape[0] - 1) * a.stride[0] + (a.shape[1] - 1) * a.stride[1]);
    if (dt_npy_read(file, &a) != DT_OK || a.n > 4096) return 0;
    for (int k = 0; k < a.n_axes; k++) n_long += a.shape[k] > 1;
    numbers[0] = sum;
    const dt_status st = dt_decode_numbers(file, a.n, numbers, &scratch);
    if ((st == DT_OK) != (n_long <= 1)) abort();
    return 0;
}
