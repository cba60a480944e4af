// decode.h: bytes of an image file -> rows of pixels, (H,W,C): bytes, grey or RGB, from pictures; bytes
// or floats of any number of channels from arrays (FITS, NPY). And the resampling that follows.
#ifndef DT_DATA_DECODE_H
#define DT_DATA_DECODE_H

#include "data/file/file.h"

#include "base/core.h"
#include "batch/pixel_math.h" // dt_luma

enum {
    DT_MAX_PIXELS = 64 << 20,     // of an image in memory: decompression bombs end here
    DT_MAX_ROWS_PIXELS = 1 << 30, // of one that comes in rows
    DT_MAX_ROWS_SIDE = 1 << 20,   // of such a one: a row and the resizer's tables grow with a side
    DT_MAX_SCANS = 64,
    DT_MAX_CHANNELS = 64,
    DT_IMAGE_WORK = 3
};

// Pixels, rows dense. Borrowed: from the decoder's scratch, or from where the caller wanted them. They may be a
// region of a larger image: left and top are its place in full_width x full_height.
typedef struct dt_image {
    uint8_t *data;
    int width, height, channels;
    float *real; // floats instead of data, or NULL
    int left, top, full_width, full_height;
    double box[4]; // the wanted region: {left, top, right, bottom}, in pixels of the full image
    bool mirrored; // the pixels are mirrored, as dt_augment_mirrors asked (dt_resize_mirrored)
    // The file's values, from the least to the greatest, where its bytes keep little of them; else both 0.
    double least, greatest;
    // An image in rows: data and real are NULL, and the next of `height` rows is written to `row` (NULL: no more are
    // wanted, the rest of the file is checked). It lives as long as the file's bytes and until the next decode. dt_resize
    // reads it once; least and greatest are set then, where this struct was decoded to.
    dt_status (*next)(void *state, uint8_t *row);
    void *state;
} dt_image;

// A worker's scratch: nothing is allocated once its buffers have grown to the largest image.
typedef struct dt_decoder dt_decoder;
dt_decoder *dt_decoder_create(void);
void dt_decoder_destroy(dt_decoder *d);

// What is wanted of an image.
typedef struct dt_image_want {
    // Pictures: 1 = grey, BT.601 luma; 3 = RGB, alpha dropped; arrays if dt_image_is_deep. Arrays: the number of bands, or 0: any number,
    // of which the first DT_MAX_CHANNELS are taken.
    int channels;
    int height, width; // of dst, and what the pixels will be resized to; 0: not known
    // Where pixels go if the image is height x width and no box is asked for; may be NULL. Floats if `array`
    // asks for them; bytes of pictures never go there then.
    void *dst;
    // The region to resize from, asked once the size is known; NULL: all. A decoder may skip what a resize of
    // the box to height x width (dt_resize) does not read.
    void (*box)(const void *ctx, int width, int height, double box[4]);
    const void *box_ctx;
    const struct dt_array_spec *array; // what to make of arrays (array.h); NULL: bytes
    // A picture of more pixels comes in rows (dt_image), where its format allows that: sequential JPEG, PNG that is
    // not interlaced. 0: none does.
    int64_t rows_above;
    int64_t max_pixels;     // 0: DT_MAX_PIXELS, and DT_MAX_ROWS_PIXELS of an image in rows
    const char *limit_hint; // behind the message of an image of more pixels: "; KEY sets another"; NULL: nothing
} dt_image_want;

// Decodes `bytes` into want->dst where it fits, else into scratch that the next decode overwrites. The first
// bytes tell the kind, never a name. DT_E_DATA says what is wrong with the bytes.
dt_status dt_decode_image_part(dt_decoder *d, dt_span bytes, const dt_image_want *want, dt_image *out);
// Decodes the whole image.
dt_status dt_decode_image(dt_decoder *d, dt_span bytes, int channels, int want_h, int want_w, uint8_t *dst,
                          dt_image *out);
// Whether `bytes` can be decoded, whatever the field: pictures and FITS as a whole, NPY by header and size (it
// may be a vector). DT_E_DATA otherwise.
dt_status dt_decode_check(dt_decoder *d, dt_span bytes);

// ---- the decoders behind it ------------------------------------------------------------------------
typedef struct dt_image_sink {
    const dt_image_want *want;
    dt_buffer *scratch; // where the pixels go
    dt_buffer *work;    // DT_IMAGE_WORK more: two for arrays, one for a decoder's own use
} dt_image_sink;

// One kind's decoder: `state` is what create made for this worker, or NULL without create.
typedef struct dt_image_driver {
    dt_status (*decode)(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out);
    void *(*create)(void);
    void (*destroy)(void *state);
} dt_image_driver;
#define KIND(...)
#define UNREAD_KIND(...)
#define IMAGE_KIND(name, ...) extern const dt_image_driver dt_image_##name;
#include "data/file/kinds.def"
#undef KIND
#undef IMAGE_KIND
#undef UNREAD_KIND

// Once the size is known: checks the limits and sets all of `out`, box included, except where the pixels go.
dt_status dt_image_begin(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out);
// The same for a file that can be decoded in rows, or to less than its size.
dt_status dt_image_begin_rows(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out);
// Whether out->width x out->height pixels are to come in rows.
static inline bool dt_image_in_rows(const dt_image_sink *s, const dt_image *out) {
    return s->want->rows_above > 0 && (int64_t)out->width * out->height > s->want->rows_above;
}
// Sets where the pixels go, out->data or (f32) out->real: out->width x out->height, which may be less than the
// full size by now. DT_E_DATA: more than may be in memory.
dt_status dt_image_reserve(const dt_image_sink *s, dt_image *out, bool f32);
// dt_image_begin and dt_image_reserve, for a whole image of bytes.
dt_status dt_image_place(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out);

// Whether a picture with so many values a sample is to be decoded as an array is: values as they are, stretched.
bool dt_image_is_deep(const dt_image_want *w, uint32_t greatest);
// Channel c of a deep picture of `channels` 1 or 3.
static inline float dt_deep_value(int channels, int64_t c, const uint32_t v[3]) {
    return channels == 3 ? (float)v[c] : (float)(19595 * v[0] + 38470 * v[1] + 7471 * v[2]) * 0x1p-16f;
}
// Notes that so many levels are left of the file's values where they are few; bands are noted together.
static inline void dt_image_note_levels(dt_image *out, double least, double greatest, double levels) {
    if (greatest <= least || levels >= 64) return;
    const bool first = out->greatest <= out->least;
    if (first || least < out->least) out->least = least;
    if (first || greatest > out->greatest) out->greatest = greatest;
}

// One pixel of a row of `channels` 1 or 3.
static inline void dt_put_pixel(uint8_t *row, int64_t x, int channels, uint32_t r, uint32_t g, uint32_t b) {
    if (channels == 1) {
        row[x] = dt_luma(r, g, b);
        return;
    }
    row[3 * x] = (uint8_t)r;
    row[3 * x + 1] = (uint8_t)g;
    row[3 * x + 2] = (uint8_t)b;
}

// ---- resize ------------------------------------------------------------------------------------------
typedef struct dt_resizer dt_resizer; // coefficients and scratch, reused
dt_resizer *dt_resizer_create(void);
void dt_resizer_destroy(dt_resizer *r);
// Bilinear with antialiasing (a triangle as wide as the scale), the same bytes as Pillow's
// Image.resize(BILINEAR, box): pixels of `box` {left, top, right, bottom} of the full image (NULL: all)
// to (dst_h, dst_w, channels). DT_E_INTERNAL: out of memory; DT_E_DATA: rows that cannot be decoded.
dt_status dt_resize(dt_resizer *r, const dt_image *src, const double box[4], uint8_t *dst, int dst_h, int dst_w);
// dt_resize with left and right exchanged, at no cost.
dt_status dt_resize_mirrored(dt_resizer *r, const dt_image *src, const double box[4], uint8_t *dst, int dst_h,
                             int dst_w);
// dt_resize for floats (src->real, a whole image) of any number of channels: the bits of Pillow's mode F.
dt_status dt_resize_real(dt_resizer *r, const dt_image *src, const double box[4], float *dst, int dst_h, int dst_w);
// The positions [begin, end) of an axis of `size` that a resize of [low, high) to n_out reads.
void dt_resize_reach(double low, double high, int n_out, int size, int *begin, int *end);

#endif
