// decode_png.c: PNG of every colour type and depth through libspng, from memory.
//
// The library makes RGB of up to 8 bits, or grey of grey, so that RGB and grey go directly to the batch slot.
// Colour becomes grey by luma. 16 bits are an array's values where floats or a stretch are wanted (array.h), else they are
// rounded here to 8 (v * 255 / 65535); Pillow truncates them, else its convert gives the same bytes. Alpha and transparent colours are dropped, gamma is ignored. The library checks
// the CRCs of critical chunks and the Adler sum of the pixels.
#include "array.h"

#include <string.h>

#include <spng.h>

enum {
    MAX_CHUNK_BYTES = 4 << 20, // text, profiles: kept by the library, not used
    MAX_CACHE_BYTES = 16 << 20
};

static dt_status png_fail(int code) {
    return dt_fail(DT_E_DATA, "PNG: %s", spng_strerror(code));
}

static uint32_t round16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v); // the host's order
    return (v * 255u + 32767u) / 65535u;
}

// RGBA of 16 bits.
static void convert_wide(const uint8_t *src, size_t n, dt_image *out) {
    uint16_t v, least = UINT16_MAX, greatest = 0;
    for (size_t i = 0; i < n; i++, src += 8) {
        dt_put_pixel(out->data, (int64_t)i, out->channels, round16(src), round16(src + 2), round16(src + 4));
        for (int c = 0; c < 3; c++) {
            memcpy(&v, src + 2 * c, sizeof v);
            least = v < least ? v : least;
            greatest = v > greatest ? v : greatest;
        }
    }
    dt_image_note_levels(out, least, greatest, (greatest - least) / 257);
}

typedef struct deep {
    const uint16_t *rgba;
    size_t n;
    int channels;
} deep;

static dt_status png_read_plane(void *ctx, int64_t c, double origin, float *out) {
    const deep *d = ctx;
    for (size_t i = 0; i < d->n; i++) {
        const uint16_t *p = d->rgba + 4 * i;
        out[i] = dt_deep_value(d->channels, c, (const uint32_t[]){p[0], p[1], p[2]}) - (float)origin;
    }
    return DT_OK;
}

static dt_status decode_deep(spng_ctx *png, const struct spng_ihdr *h, const dt_image_sink *sink, dt_image *out) {
    DT_TRY(dt_image_begin(sink, h->width, h->height, out)); // its limits, before memory is taken
    deep d = {.n = (size_t)h->width * h->height, .channels = sink->want->channels};
    uint8_t *pixels = dt_buffer_reserve(&sink->work[2], 8 * d.n);
    if (!pixels) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    const int code = spng_decode_image(png, pixels, 8 * d.n, SPNG_FMT_RGBA16, 0);
    if (code) return png_fail(code);
    d.rgba = (const uint16_t *)(const void *)pixels;
    const dt_planes p = {"PNG", h->width, h->height, d.channels, png_read_plane, &d};
    return dt_planes_to_image(sink, &p, out);
}

static dt_status read_pixels(spng_ctx *png, const struct spng_ihdr *h, const dt_image_sink *sink, dt_image *out) {
    bool wide = h->bit_depth == 16, to_grey = out->channels == 1;
    bool grey = to_grey && !wide && h->color_type == SPNG_COLOR_TYPE_GRAYSCALE;
    bool direct = grey || (!wide && !to_grey);
    int format = wide ? SPNG_FMT_RGBA16 : grey ? SPNG_FMT_G8 : SPNG_FMT_RGB8;
    size_t n_pixels = (size_t)out->width * (size_t)out->height;
    size_t n_bytes = n_pixels * (wide ? 8 : grey ? 1 : 3);
    uint8_t *pixels = direct ? out->data : dt_buffer_reserve(&sink->work[2], n_bytes);
    if (!pixels) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    int code = spng_decode_image(png, pixels, n_bytes, format, 0);
    if (code) return png_fail(code);
    if (wide)
        convert_wide(pixels, n_pixels, out);
    else if (!direct)
        for (size_t i = 0; i < n_pixels; i++)
            out->data[i] = dt_luma(pixels[3 * i], pixels[3 * i + 1], pixels[3 * i + 2]);
    return DT_OK;
}

static dt_status png_decode_image(spng_ctx *png, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    struct spng_ihdr h;
    spng_set_image_limits(png, DT_MAX_PIXELS, DT_MAX_PIXELS);
    spng_set_chunk_limits(png, MAX_CHUNK_BYTES, MAX_CACHE_BYTES);
    int code = spng_set_png_buffer(png, bytes.data, bytes.n_bytes);
    if (!code) code = spng_get_ihdr(png, &h);
    if (code) return png_fail(code);
    if (h.bit_depth == 16 && dt_image_is_deep(sink->want, UINT16_MAX)) {
        DT_TRY(decode_deep(png, &h, sink, out));
    } else {
        DT_TRY(dt_image_place(sink, h.width, h.height, out));
        DT_TRY(read_pixels(png, &h, sink, out));
    }
    code = spng_decode_chunks(png); // to the end: the last chunk's checksum
    return code ? png_fail(code) : DT_OK;
}

static dt_status png_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    spng_ctx *png = spng_ctx_new(0);
    dt_status st = png ? png_decode_image(png, bytes, sink, out) : dt_fail(DT_E_INTERNAL, "out of memory for a PNG");
    spng_ctx_free(png);
    return st;
}

const dt_image_driver dt_image_png = {.decode = png_decode};
