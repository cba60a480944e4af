// decode.c: which decoder, and where its pixels go.
//
// The first bytes decide: a JPEG named .bmp decodes as what it is. A decoder parses its header, asks
// dt_image_place for memory (the batch slot itself when the size is the one wanted, so that the common
// case copies nothing), and fills it.
#include "decode.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

struct dt_decoder {
    dt_buffer pixels;
    dt_jpeg *jpeg; // made at the first JPEG
};

dt_decoder *dt_decoder_create(void) {
    return dt_xcalloc(1, sizeof(dt_decoder));
}

void dt_decoder_destroy(dt_decoder *d) {
    if (!d) return;
    dt_jpeg_destroy(d->jpeg);
    dt_buffer_fini(&d->pixels);
    free(d);
}

const char *dt_image_extension(const uint8_t *head, size_t n_bytes) {
    if (n_bytes >= 2 && memcmp(head, "BM", 2) == 0) return "bmp";
    if (n_bytes >= 3 && memcmp(head, "\xff\xd8\xff", 3) == 0) return "jpg";
    if (n_bytes >= 8 && memcmp(head, "\x89PNG\r\n\x1a\n", 8) == 0) return "png";
    if (n_bytes >= 2 && head[0] == 'P' && head[1] >= '1' && head[1] <= '6') return "ppm";
    if (n_bytes >= 12 && memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "WAVE", 4) == 0)
        return "wav";
    if (n_bytes >= 4 && memcmp(head, "fLaC", 4) == 0) return "flac";
    return NULL;
}

dt_status dt_image_place(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out) {
    if (width <= 0 || height <= 0)
        return dt_fail(DT_E_DATA, "an image of %lld x %lld pixels", (long long)width,
                       (long long)height);
    if (width > DT_MAX_PIXELS || height > DT_MAX_PIXELS || width * height > DT_MAX_PIXELS)
        return dt_fail(DT_E_DATA,
                       "an image of %lld x %lld pixels: more than the limit of %d million",
                       (long long)width, (long long)height, DT_MAX_PIXELS >> 20);
    *out = (dt_image){.width = (int)width, .height = (int)height, .channels = s->channels};
    if (s->dst && width == s->want_w && height == s->want_h) {
        out->data = s->dst;
        return DT_OK;
    }
    out->data = dt_buffer_reserve(s->scratch, (size_t)(width * height) * (size_t)s->channels);
    return out->data ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory for an image");
}

dt_status dt_decode_image(dt_decoder *d, dt_span bytes, int channels, int want_h, int want_w,
                          uint8_t *dst, dt_image *out) {
    dt_image_sink sink = {channels, want_h, want_w, dst, &d->pixels};
    const char *kind = dt_image_extension(bytes.data, bytes.n_bytes);
    if (!kind)
        return dt_fail(DT_E_DATA, "not an image (its %zu bytes start like none that dtrain knows)",
                       bytes.n_bytes);
    if (strcmp(kind, "bmp") == 0) return dt_decode_bmp(bytes, &sink, out);
    if (strcmp(kind, "jpg") == 0) {
        if (!d->jpeg) d->jpeg = dt_jpeg_create();
        return dt_decode_jpeg(d->jpeg, bytes, &sink, out);
    }
    return dt_fail(DT_E_DATA, "a %s file: this build decodes BMP and JPEG", kind);
}
