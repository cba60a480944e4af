// decode.h: bytes of an image file -> rows of 8-bit pixels, (H,W,C), grey or RGB.
#ifndef DT_DATA_DECODE_H
#define DT_DATA_DECODE_H

#include "data/record.h"

#include "base/status.h"

enum { DT_MAX_PIXELS = 64 << 20, DT_MAX_SCANS = 64 }; // decompression bombs end here

// Pixels, rows dense. Borrowed: from the decoder's scratch or from where the caller wanted them.
typedef struct dt_image {
    uint8_t *data;
    int width, height, channels; // 1 or 3
} dt_image;

// A worker's scratch: nothing is allocated once its buffers have grown to the largest image.
typedef struct dt_decoder dt_decoder;
dt_decoder *dt_decoder_create(void);
void dt_decoder_destroy(dt_decoder *d);

// Decodes `bytes` to `channels` (1 = grey, BT.601 luma; 3 = RGB; alpha is dropped). If the image is
// want_h x want_w, straight into `dst` (want_h * want_w * channels bytes), else into scratch that the
// next decode overwrites. DT_E_DATA says what is wrong with the bytes. The kind is told by the first
// bytes, never by a name.
dt_status dt_decode_image(dt_decoder *d, dt_span bytes, int channels, int want_h, int want_w,
                          uint8_t *dst, dt_image *out);
// "bmp", "jpg", "png", … by the first bytes, or NULL.
const char *dt_image_extension(const uint8_t *head, size_t n_bytes);

// ---- the decoders behind it ------------------------------------------------------------------------
// Where pixels go once the size is known: dst when it fits, else scratch; checks the limits.
typedef struct dt_image_sink {
    int channels, want_h, want_w;
    uint8_t *dst;
    dt_buffer *scratch;
} dt_image_sink;
dt_status dt_image_place(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out);

dt_status dt_decode_bmp(dt_span bytes, const dt_image_sink *sink, dt_image *out);
typedef struct dt_jpeg dt_jpeg; // libjpeg's state, reused
dt_jpeg *dt_jpeg_create(void);
void dt_jpeg_destroy(dt_jpeg *j);
dt_status dt_decode_jpeg(dt_jpeg *j, dt_span bytes, const dt_image_sink *sink, dt_image *out);

// BT.601 luma as libjpeg and Pillow round it.
static inline uint8_t dt_luma(uint32_t r, uint32_t g, uint32_t b) {
    return (uint8_t)((19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16);
}

// ---- resize ------------------------------------------------------------------------------------------
typedef struct dt_resizer dt_resizer; // coefficients and scratch, reused
dt_resizer *dt_resizer_create(void);
void dt_resizer_destroy(dt_resizer *r);
// Bilinear with antialiasing (a triangle as wide as the scale), the same bytes as Pillow's
// Image.resize(BILINEAR, box): pixels of `box` {left, top, right, bottom} of src (NULL: all) to
// (dst_h, dst_w, channels). DT_E_INTERNAL: out of memory.
dt_status dt_resize(dt_resizer *r, const dt_image *src, const double box[4], uint8_t *dst,
                    int dst_h, int dst_w);

#endif
