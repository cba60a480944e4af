// decode.c: which decoder, and where its pixels go.
//
// The first bytes decide (kinds.def): a JPEG named .bmp is decoded as JPEG. A decoder parses its header, asks
// dt_image_place for memory (the batch slot itself if the size is the wanted one, so the common case copies
// nothing), and fills it. A decoder's state is made at the first file of its kind.
#include "decode.h"

#include "array.h"
#include "base/core.h"
#include "base/stated.h"
#include "data/file/file.h"

#include <stdlib.h>

static const dt_image_driver *const DRIVERS[DT_N_KINDS] = {
#define KIND(...)
#define UNREAD_KIND(...)
#define IMAGE_KIND(name, ...) [DT_KIND_ID_##name] = &dt_image_##name,
#include "data/file/kinds.def"
#undef KIND
#undef IMAGE_KIND
#undef UNREAD_KIND
};

struct dt_decoder {
    dt_buffer pixels, work[DT_IMAGE_WORK];
    void *state[DT_N_KINDS]; // by kind; NULL: the kind has no state, or no file of it has come
};

dt_decoder *dt_decoder_create(void) {
    return dt_xcalloc(1, sizeof(dt_decoder));
}

void dt_decoder_destroy(dt_decoder *d) {
    if (!d) return;
    for (int i = 0; i < DT_N_KINDS; i++)
        if (d->state[i]) DRIVERS[i]->destroy(d->state[i]);
    dt_buffer_fini(&d->pixels);
    for (int i = 0; i < DT_IMAGE_WORK; i++) dt_buffer_fini(&d->work[i]);
    free(d);
}

static dt_status check_size(const dt_image_want *w, int64_t width, int64_t height, int64_t most) {
    const uint64_t limit = (uint64_t)(w->max_pixels > 0 ? w->max_pixels : most);
    size_t n_pixels;
    if (width <= 0 || height <= 0)
        return dt_fail(DT_E_DATA, "an image of %lld x %lld pixels", (long long)width, (long long)height);
    if (!dt_stated_size((uint64_t)width, (uint64_t)height, limit, &n_pixels))
        return dt_fail(DT_E_DATA, "an image of %lld x %lld pixels: more than the limit of %llu%s%s", (long long)width,
                       (long long)height, (unsigned long long)limit,
                       w->max_pixels == 0 && most == DT_MAX_PIXELS
                           ? " for what is decoded as a whole (JPEG of one scan and PNG without interlacing that are "
                             "resized and have no side above 1048576 are not)"
                           : "",
                       w->limit_hint ? w->limit_hint : "");
    if (!dt_stated_size(n_pixels, (uint64_t)w->channels, 3 * limit, &n_pixels))
        return dt_fail(DT_E_DATA, "an image of %lld x %lld pixels and %d channels: too large", (long long)width,
                       (long long)height, w->channels);
    return DT_OK;
}

static dt_status image_begin(const dt_image_sink *s, int64_t width, int64_t height, int64_t most, dt_image *out) {
    const dt_image_want *w = s->want;
    DT_TRY(check_size(w, width, height, most));
    *out = (dt_image){.width = (int)width,
                      .height = (int)height,
                      .channels = w->channels,
                      .full_width = (int)width,
                      .full_height = (int)height,
                      .box = {0, 0, (double)width, (double)height}};
    if (w->box) w->box(w->box_ctx, (int)width, (int)height, out->box);
    return DT_OK;
}

dt_status dt_image_begin(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out) {
    return image_begin(s, width, height, DT_MAX_PIXELS, out);
}

dt_status dt_image_begin_rows(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out) {
    const bool is_long = width > DT_MAX_ROWS_SIDE || height > DT_MAX_ROWS_SIDE;
    return image_begin(s, width, height, is_long ? DT_MAX_PIXELS : DT_MAX_ROWS_PIXELS, out);
}

dt_status dt_image_reserve(const dt_image_sink *s, dt_image *out, bool f32) {
    const dt_image_want *w = s->want;
    DT_TRY(check_size(w, out->width, out->height, DT_MAX_PIXELS));
    size_t n = (size_t)out->width * (size_t)out->height * (size_t)w->channels;
    bool fits =
        w->dst && !w->box && out->width == w->width && out->height == w->height && dt_array_spec_of(w)->f32 == f32;
    void *pixels = fits ? w->dst : dt_buffer_reserve(s->scratch, n * (f32 ? sizeof(float) : 1));
    if (f32)
        out->real = pixels;
    else
        out->data = pixels;
    return pixels ? DT_OK : dt_fail(DT_E_INTERNAL, "out of memory for an image");
}

bool dt_image_is_deep(const dt_image_want *w, uint32_t greatest) {
    const dt_array_spec *s = dt_array_spec_of(w);
    return greatest > UINT8_MAX && (s->f32 || s->stretch != DT_STRETCH_none);
}

dt_status dt_image_place(const dt_image_sink *s, int64_t width, int64_t height, dt_image *out) {
    DT_TRY(dt_image_begin(s, width, height, out));
    return dt_image_reserve(s, out, false);
}

dt_status dt_decode_image_part(dt_decoder *d, dt_span bytes, const dt_image_want *want, dt_image *out) {
    const dt_kind *kind = dt_kind_of_bytes(bytes.data, bytes.n_bytes);
    char known[128];
    if (!kind)
        return dt_fail(DT_E_DATA, "not an image (its %zu bytes start like none that dtrain knows)", bytes.n_bytes);
    if (!kind->is_image)
        return dt_fail(DT_E_DATA, "a %s file: images are %s%s%s", kind->name, dt_kind_list_images(known, sizeof known),
                       kind->tool ? "; " : "", kind->tool ? kind->tool : "");
    if (!(kind->uses & DT_KIND_ARRAY) && want->channels != 1 && want->channels != 3)
        return dt_fail(DT_E_DATA, "a %s file: such images have 1 or 3 channels, the field has channels: %d", kind->name,
                       want->channels);
    dt_image_sink sink = {want, &d->pixels, d->work};
    const dt_image_driver *driver = DRIVERS[kind->id];
    void **state = &d->state[kind->id];
    if (!*state && driver->create) *state = driver->create();
    return driver->decode(*state, bytes, &sink, out);
}

dt_status dt_decode_check(dt_decoder *d, dt_span bytes) {
    const dt_kind *kind = dt_kind_of_bytes(bytes.data, bytes.n_bytes);
    dt_npy array;
    dt_image image;
    if (dt_npy_is(bytes)) return dt_npy_read(bytes, &array);
    dt_image_want want = {.channels = kind && kind->uses & DT_KIND_ARRAY ? 0 : 3, .rows_above = DT_MAX_PIXELS};
    DT_TRY(dt_decode_image_part(d, bytes, &want, &image));
    if (!image.next) return DT_OK;
    uint8_t *row = dt_buffer_reserve(&d->pixels, (size_t)image.width * (size_t)image.channels);
    if (!row) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    for (int y = 0; y < image.height; y++) DT_TRY(image.next(image.state, row));
    return image.next(image.state, NULL);
}

dt_status dt_decode_image(dt_decoder *d, dt_span bytes, int channels, int want_h, int want_w, uint8_t *dst,
                          dt_image *out) {
    dt_image_want want = {.channels = channels, .height = want_h, .width = want_w, .dst = dst};
    return dt_decode_image_part(d, bytes, &want, out);
}
