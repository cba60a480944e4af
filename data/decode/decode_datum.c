// decode_datum.c: raw pixels in a Caffe Datum (data/file/datum.h): planes of bytes or floats, 1 channel (grey)
// or 3 (blue, green, red, as in OpenCV). Floats are rounded and clamped to 0..255; data sets with other numbers
// in them are not pictures. Encoded images never get here: the LMDB reader hands out the image inside the
// message.
#include "data/file/datum.h"
#include "decode.h"

#include <string.h>

static uint8_t float_pixel(const uint8_t *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return v > 0 ? v < 255 ? (uint8_t)(v + 0.5f) : 255 : 0; // NaN: 0
}

// Plane c of the row that begins at pixel `first`, as bytes; `skip` bytes from value to value.
static const uint8_t *plane_row(const dt_datum *d, const uint8_t *bytes, int64_t c, int64_t first, int64_t *skip) {
    int64_t at = c * d->height * d->width + first;
    if (d->n_data) {
        *skip = 1;
        return bytes + d->data_at + at;
    }
    *skip = d->packed ? 4 : 5;
    return bytes + d->float_at + at * *skip + (d->packed ? 0 : 1);
}

static void datum_fill_row(const dt_datum *d, const uint8_t *bytes, int64_t y, uint8_t *dst, int channels) {
    const uint8_t *plane[3];
    int64_t skip = 1;
    bool floats = d->n_data == 0;
    for (int c = 0; c < 3; c++) // red is the last plane
        plane[c] = plane_row(d, bytes, d->channels == 3 ? 2 - c : 0, y * d->width, &skip);
    for (int64_t x = 0; x < d->width; x++) {
        uint32_t v[3];
        for (int c = 0; c < 3; c++) v[c] = floats ? float_pixel(plane[c] + x * skip) : plane[c][x * skip];
        dt_put_pixel(dst, x, channels, v[0], v[1], v[2]);
    }
}

static dt_status datum_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    dt_blob b;
    dt_datum d;
    dt_blob_from_memory(&b, "Datum", bytes.data, bytes.n_bytes);
    DT_TRY(dt_datum_read(&b, 0, bytes.n_bytes, &d));
    if (d.encoded || (d.channels != 1 && d.channels != 3))
        return d.encoded ? dt_fail(DT_E_DATA, "a Datum with an encoded image in it")
                         : dt_fail(DT_E_DATA, "a Datum of %lld channels; 1 and 3 are pictures", (long long)d.channels);
    int channels = sink->want->channels;
    DT_TRY(dt_image_place(sink, d.width, d.height, out));
    for (int64_t y = 0; y < d.height; y++)
        datum_fill_row(&d, bytes.data, y, out->data + y * d.width * channels, channels);
    return DT_OK;
}

const dt_image_driver dt_image_datum = {.decode = datum_decode};
