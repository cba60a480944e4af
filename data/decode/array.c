// array.c: planes of numbers to pixels.
//
// Planes are read, stretched and put into their channel one after another, so scratch holds one plane whatever
// the file holds. Floats go directly to the batch slot if the size is right.
#include "array.h"

#include <math.h>

const dt_array_spec *dt_array_spec_of(const dt_image_want *w) {
    static const dt_array_spec plain = {.f32 = false};
    return w->array ? w->array : &plain;
}

static dt_status check_bands(const dt_array_spec *spec, const dt_planes *p, int channels) {
    for (int i = 0; i < spec->n_bands; i++)
        if (spec->bands[i] >= p->n)
            return dt_fail(DT_E_DATA, "%s: no band %d: it has %lld, counted from 0", p->format,
                           spec->bands[i], (long long)p->n);
    int64_t n = spec->n_bands ? spec->n_bands : p->n;
    if (n == channels) return DT_OK;
    return dt_fail(DT_E_DATA,
                   "%s: %lld band%s where the field has channels: %d; choose with `bands`, or set "
                   "`channels` (and for NPY `layout`)",
                   p->format, (long long)n, n == 1 ? "" : "s", channels);
}

static void put_floats(const float *v, size_t n, float *out, int channels) {
    for (size_t i = 0; i < n; i++) out[i * (size_t)channels] = v[i];
}

static void put_bytes(const float *v, size_t n, float factor, uint8_t *out, int channels) {
    for (size_t i = 0; i < n; i++) {
        float x = v[i] * factor + 0.5f;
        out[i * (size_t)channels] = (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
    }
}

static dt_status fill(const dt_image_sink *sink, const dt_planes *p, dt_image *out) {
    const dt_array_spec *spec = dt_array_spec_of(sink->want);
    int channels = sink->want->channels;
    DT_TRY(dt_image_begin(sink, p->width, p->height, out));
    DT_TRY(dt_image_reserve(sink, out, spec->f32));
    size_t n = (size_t)p->width * (size_t)p->height;
    float *plane = (float *)dt_buffer_reserve(&sink->work[0], n * sizeof *plane);
    if (!plane) return dt_fail(DT_E_INTERNAL, "out of memory for an image");
    for (int c = 0; c < channels; c++) {
        DT_TRY(p->read(p->ctx, spec->n_bands ? spec->bands[c] : c, plane));
        DT_TRY(dt_stretch_plane(spec, plane, n, &sink->work[1]));
        if (spec->f32)
            put_floats(plane, n, out->real + c, channels);
        else
            put_bytes(plane, n, spec->stretch == DT_STRETCH_none ? 1 : 255, out->data + c,
                      channels);
    }
    return DT_OK;
}

dt_status dt_planes_to_image(const dt_image_sink *sink, const dt_planes *p, dt_image *out) {
    dt_image_want want = *sink->want;
    dt_image_sink natural = {&want, sink->scratch, sink->work};
    if (want.channels > 0) {
        DT_TRY(check_bands(dt_array_spec_of(&want), p, want.channels));
        return fill(sink, p, out);
    }
    want.channels = p->n < DT_MAX_CHANNELS ? (int)p->n : DT_MAX_CHANNELS;
    return fill(&natural, p, out);
}
