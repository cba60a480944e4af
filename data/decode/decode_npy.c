// decode_npy.c: NumPy arrays as images.
//
// Two axes are height and width; three have channels last, or first where the field says layout: chw; more
// are refused unless the outer ones have length 1. Bytes in the layout of the batch, wanted as bytes and
// unstretched, are copied as they lie; everything else goes through planes of floats (array.h), elements of 64
// bits after the origin of far values is subtracted.
#include "array.h"

#include <string.h>

typedef struct npy_view {
    dt_npy a;
    int64_t height, width, channels, row, column, channel; // strides in elements
} npy_view;

static dt_status view_of(npy_view *v, bool chw) {
    const dt_npy *a = &v->a;
    int n = a->n_axes, first = 0;
    while (n - first > 3 && a->shape[first] == 1) first++;
    n -= first;
    if (n != 2 && n != 3) return dt_fail(DT_E_DATA, "NPY: %d axes; an image has 2 or 3", a->n_axes);
    int h = first + (n == 3 && chw), c = n == 2 ? -1 : chw ? first : first + 2;
    v->height = a->shape[h], v->row = a->stride[h];
    v->width = a->shape[h + 1], v->column = a->stride[h + 1];
    v->channels = c < 0 ? 1 : a->shape[c];
    v->channel = c < 0 ? 0 : a->stride[c];
    return DT_OK;
}

static dt_status npy_read_plane(void *ctx, int64_t i, double origin, float *out) {
    const npy_view *v = ctx;
    const dt_npy *a = &v->a;
    bool f4 = a->kind == 'f' && a->size == 4 && !a->swapped;
    for (int64_t y = 0; y < v->height; y++) {
        int64_t at = i * v->channel + y * v->row;
        if (f4 && v->column == 1 && origin == 0)
            memcpy(out, a->data + 4 * at, (size_t)v->width * 4);
        else
            for (int64_t x = 0; x < v->width; x++) out[x] = (float)(dt_npy_get(a, at + x * v->column) - origin);
        out += v->width;
    }
    return DT_OK;
}

static bool is_as_wanted(const npy_view *v, const dt_array_spec *s, int channels) {
    return v->a.kind == 'u' && v->a.size == 1 && !s->f32 && s->stretch == DT_STRETCH_none && s->n_bands == 0 &&
           v->channels == channels && (channels == 1 || v->channel == 1) && v->column == channels &&
           v->row == v->width * channels;
}

static dt_status npy_decode(void *state, dt_span bytes, const dt_image_sink *sink, dt_image *out) {
    const dt_array_spec *spec = dt_array_spec_of(sink->want);
    npy_view v;
    DT_TRY(dt_npy_read(bytes, &v.a));
    DT_TRY(view_of(&v, spec->chw));
    if (is_as_wanted(&v, spec, sink->want->channels)) {
        DT_TRY(dt_image_place(sink, v.width, v.height, out));
        memcpy(out->data, v.a.data, (size_t)v.a.n);
        return DT_OK;
    }
    dt_planes p = {"NPY", v.width, v.height, v.channels, npy_read_plane, &v};
    return dt_planes_to_image(sink, &p, out);
}

static bool npy_is_raw(dt_span bytes, size_t n_head, const dt_image_want *want) {
    const dt_array_spec *spec = dt_array_spec_of(want);
    npy_view v;
    return dt_npy_read(bytes, &v.a) == DT_OK && v.a.data == bytes.data + n_head && view_of(&v, spec->chw) == DT_OK &&
           is_as_wanted(&v, spec, want->channels) && v.width == want->width && v.height == want->height;
}

const dt_image_driver dt_image_npy = {.decode = npy_decode, .is_raw = npy_is_raw};
