// fuzz_bmp.c: any bytes as a BMP, grey and colour. Must decode or say why not; sizes must be within the
// limits and all pixels written (the sum is read, for the memory sanitizers).
#include "data/decode/decode.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static dt_buffer scratch;
    static volatile unsigned sum;
    static void *state;
    if (!state) state = dt_image_bmp.create();
    for (int channels = 1; channels <= 3; channels += 2) {
        dt_image image = {NULL, 0, 0, 0};
        dt_image_want want = {.channels = channels};
        dt_image_sink sink = {&want, &scratch};
        if (dt_image_bmp.decode(state, (dt_span){data, n_bytes}, &sink, &image) != DT_OK) continue;
        if (image.width <= 0 || image.height <= 0 ||
            (int64_t)image.width * image.height > DT_MAX_PIXELS || image.channels != channels)
            abort();
        size_t n = (size_t)image.width * (size_t)image.height * (size_t)channels;
        for (size_t i = 0; i < n; i++) sum += image.data[i];
    }
    (void)sum;
    return 0;
}
