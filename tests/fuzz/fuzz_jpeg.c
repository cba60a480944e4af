// fuzz_jpeg.c: any bytes as a JPEG: as a whole, and the part that a box asks for, whose place and size are drawn
// from the bytes themselves; the part is resized, so that all that a resize reads must be there.
// Parser: data/decode/decode_jpeg.c
#include "base/hash.h"
#include "fuzz_image.h"

static void choose(const void *ctx, int width, int height, double box[4]) {
    const uint32_t *r = ctx;
    uint32_t w = 1 + r[0] % (uint32_t)width, h = 1 + r[1] % (uint32_t)height;
    box[0] = r[2] % ((uint32_t)width - w + 1);
    box[1] = r[3] % ((uint32_t)height - h + 1);
    box[2] = box[0] + w;
    box[3] = box[1] + h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static dt_decoder *decoder;
    static dt_resizer *resizer;
    static uint8_t out[40 * 40 * 3];
    if (!decoder) decoder = dt_decoder_create(), resizer = dt_resizer_create();
    if (n_bytes < 3 || memcmp(data, "\xff\xd8\xff", 3) != 0) return 0; // told by kinds.def
    fuzz_picture(&dt_image_jpg, data, n_bytes);
    uint64_t h = dt_hash64(data, n_bytes), h2 = dt_hash64(&h, sizeof h);
    uint32_t r[4] = {(uint32_t)h, (uint32_t)(h >> 32), (uint32_t)h2, (uint32_t)(h2 >> 32)};
    dt_image_want want = {.channels = r[0] & 1 ? 3 : 1,
                          .height = 1 + (int)(r[1] >> 8) % 40,
                          .width = 1 + (int)(r[2] >> 8) % 40,
                          .box = choose,
                          .box_ctx = r,
                          .rows_above = r[0] & 2 ? 100 : 0,
                          .max_pixels = 16 << 20};
    dt_image image;
    if (dt_decode_image_part(decoder, (dt_span){data, n_bytes}, &want, &image) != DT_OK) return 0;
    fuzz_check(&image);
    const dt_status st = dt_resize(resizer, &image, image.box, out, want.height, want.width);
    if (st != DT_OK && (st != DT_E_DATA || !image.next)) abort(); // rows are decoded here
    return 0;
}
