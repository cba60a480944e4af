// fit.c: see fit.h. A crop is chosen before resizing: resizing the cropped part at the scale of the whole image
// gives the same pixels as resizing everything and cropping, and the rest is never made (a decoder may skip it
// too).
#include "fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

dt_status dt_fit_read(dt_fit *out, const dt_config *c, const dt_config_field *f, int w, int h) {
    char key[320];
    snprintf(key, sizeof key, "data.fields.%s.short_side", f->id);
    *out = (dt_fit){.kind = f->fit, .short_side = (int)dt_value_or(f->short_side, 0)};
    if (!f->short_side.has) return DT_OK;
    if (out->kind != DT_FIT_crop) return dt_config_fail(c, key, "short_side goes with fit: crop");
    int least = w > h ? w : h;
    if (out->short_side >= least) return DT_OK;
    return dt_config_fail(c, key, "short_side %d is less than the size: expected at least %d", out->short_side, least);
}

// One axis: `size` pixels are resized to `resized`, of which the middle n are kept.
static void middle(int64_t size, int64_t resized, int n, double *low, double *high) {
    // half to even, as Python's round in torchvision's CenterCrop
    double scale = (double)size / (double)resized, first = nearbyint((double)(resized - n) / 2);
    *low = first * scale;
    *high = fmin((first + n) * scale, (double)size);
}

void dt_fit_box(const dt_fit *f, int w, int h, int width, int height, double box[4]) {
    box[0] = box[1] = 0;
    box[2] = width;
    box[3] = height;
    if (f->kind != DT_FIT_crop) return;
    if (f->short_side > 0) {
        int64_t s = f->short_side, least = width < height ? width : height;
        middle(width, s * width / least, w, &box[0], &box[2]);
        middle(height, s * height / least, h, &box[1], &box[3]);
        return;
    }
    double scale = fmin((double)width / w, (double)height / h); // the largest box of the field's shape, in the middle
    box[0] = (width - scale * w) / 2;
    box[1] = (height - scale * h) / 2;
    box[2] = width - box[0];
    box[3] = height - box[1];
}

dt_rect dt_fit_place(int w, int h, int width, int height) {
    double scale = fmin((double)w / width, (double)h / height);
    int nw = (int)lround(width * scale), nh = (int)lround(height * scale);
    nw = nw < 1 ? 1 : nw > w ? w : nw; // a very long image keeps a pixel across
    nh = nh < 1 ? 1 : nh > h ? h : nh;
    return (dt_rect){(w - nw) / 2, (h - nh) / 2, nw, nh};
}

static void fill_rows(const double *fill, float scale, dt_image *to) {
    size_t c = (size_t)to->channels, n = (size_t)to->width * (size_t)to->height * c;
    for (size_t i = 0; i < n; i++) {
        float v = (float)fill[i % c] * scale;
        if (to->real)
            to->real[i] = v;
        else
            to->data[i] = (uint8_t)(v > 0 ? v < 255 ? v + 0.5f : 255 : 0);
    }
}

void dt_fit_frame(const dt_image *small, dt_rect at, const double *fill, float scale, dt_image *to) {
    size_t c = (size_t)to->channels, row = (size_t)at.w * c;
    dt_image whole = *to;
    if (!small->real) whole.real = NULL; // bytes, also for a field of floats, which are widened later
    fill_rows(fill, scale, &whole);
    for (int y = 0; y < at.h; y++) {
        size_t to_at = ((size_t)(at.y + y) * (size_t)to->width + (size_t)at.x) * c;
        if (small->real)
            memcpy(to->real + to_at, small->real + (size_t)y * row, row * sizeof(float));
        else
            memcpy(to->data + to_at, small->data + (size_t)y * row, row);
    }
}
