// decode_webp.c: WebP, lossy (VP8) and lossless (VP8L), through libwebp, from memory.
//
// The library writes three channels directly to their place; one channel is the BT.601 luma of its RGB, because
// lossy luma is stored in 16..235 and lossless has none. Alpha is dropped, as of PNG. Animations are refused.
// The format has no checksums; a file that ends before its RIFF header says so is an error.
//
// The library allocates its working memory for every picture and offers no way to pass memory in. Regions are
// not decoded separately: rows of a lossy picture depend on those above, and the filter between blocks reaches
// across the edge of a crop.
// Format: RFC 9649.
#include "decode.h"

#include "base/endian.h"

#include <webp/decode.h>

// libwebp 1.5 says of a damaged alpha plane that memory is out, so that must be an error of the file.
static dt_status webp_fail(VP8StatusCode code) {
    const char *what = code == VP8_STATUS_UNSUPPORTED_FEATURE ? "uses a feature that libwebp lacks"
                       : code == VP8_STATUS_NOT_ENOUGH_DATA || code == VP8_STATUS_SUSPENDED
                           ? "the file ends before its pixels do"
                       : code == VP8_STATUS_OUT_OF_MEMORY ? "damaged, or memory is short"
                                                          : "damaged";
    return dt_fail(DT_E_DATA, "WebP: %s", what);
}

static dt_status webp_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    WebPDecoderConfig c;
    if (!WebPInitDecoderConfig(&c)) return dt_fail(DT_E_INTERNAL, "another libwebp than built for");
    if (bytes.n_bytes < 12 || 8 + (uint64_t)dt_le32(bytes.data + 4) > bytes.n_bytes)
        return webp_fail(VP8_STATUS_NOT_ENOUGH_DATA);
    VP8StatusCode code = WebPGetFeatures(bytes.data, bytes.n_bytes, &c.input);
    if (code != VP8_STATUS_OK) return webp_fail(code);
    if (c.input.has_animation) return dt_fail(DT_E_DATA, "WebP: an animation; only single pictures are read");
    DT_TRY(dt_image_place(sink, c.input.width, c.input.height, out));
    size_t n_pixels = (size_t)out->width * (size_t)out->height;
    bool grey = out->channels == 1;
    uint8_t *rgb = grey ? dt_buffer_reserve(sink->work, 3 * n_pixels) : out->data;
    if (!rgb) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    c.output.colorspace = MODE_RGB;
    c.output.is_external_memory = 1;
    c.output.u.RGBA = (WebPRGBABuffer){.rgba = rgb, .stride = 3 * out->width, .size = 3 * n_pixels};
    code = WebPDecode(bytes.data, bytes.n_bytes, &c);
    WebPFreeDecBuffer(&c.output);
    if (code != VP8_STATUS_OK) return webp_fail(code);
    for (size_t i = 0; grey && i < n_pixels; i++) out->data[i] = dt_luma(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
    return DT_OK;
}

const dt_image_driver dt_image_webp = {.decode = webp_decode};
