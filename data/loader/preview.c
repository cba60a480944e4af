// preview.c: a small picture of a sample, as an evaluation's page shows it: its images side by side, as the network gets
// them without augmentation. Sounds are spectrograms with low frequencies at the bottom, or envelopes of waveforms.
#include "data_parts.h"

#include "base/core.h"
#include "data/decode/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 96, WAVE_HEIGHT = 32, GAP = 2 };

typedef struct panel {
    int field, h, w, c, out_h, out_w, left;
    bool sound, wave;
    double low, high; // values from black to white
} panel;

static double picture_value_at(const dt_field_info *f, const void *x, int64_t at) {
    return f->dtype == DT_U8 ? ((const uint8_t *)x)[at] : (double)((const float *)x)[at];
}

static int picture_lay_out(const dt_data *d, panel *all, int *height, int *width) {
    int n = 0;
    *height = *width = 0;
    for (int i = 0; i < d->fields.n; i++) {
        const dt_field_info *f = &d->fields.info[i];
        if (!f->is_image) continue; // features of audio are images, too
        panel *p = &all[n++];
        *p = (panel){.field = i,
                     .h = (int)f->sample_shape.d[0],
                     .w = (int)f->sample_shape.d[1],
                     .c = (int)f->sample_shape.d[2],
                     .sound = d->fields.f[i].kind == DT_FIELD_audio};
        p->wave = p->sound && p->h == 1; // a waveform has one row
        const double by = fmin(1, (double)MOST_SIDE / fmax(p->wave ? 1 : p->h, p->w));
        p->out_h = p->wave ? WAVE_HEIGHT : (int)fmax(1, p->h * by);
        p->out_w = (int)fmax(1, p->w * by);
        p->left = *width + (n > 1 ? GAP : 0);
        *width = p->left + p->out_w;
        if (p->out_h > *height) *height = p->out_h;
    }
    return n;
}

static void picture_find_range(const dt_field_info *f, const void *x, panel *p) {
    p->low = 0, p->high = 255;
    if (f->dtype == DT_U8) return;
    p->low = INFINITY, p->high = -INFINITY; // floats have no range of their own
    for (int64_t i = 0; i < (int64_t)p->h * p->w * p->c; i++) {
        p->low = fmin(p->low, picture_value_at(f, x, i));
        p->high = fmax(p->high, picture_value_at(f, x, i));
    }
}

static uint8_t picture_level(const panel *p, double v) {
    const double x = p->high > p->low ? (v - p->low) / (p->high - p->low) * 255 : 0;
    return (uint8_t)fmin(fmax(x + 0.5, 0), 255);
}

// The mean of the pixels that fall on one of the picture.
static uint8_t mean_at(const dt_field_info *f, const void *x, const panel *p, int y, int at, int channel) {
    const int y0 = y * p->h / p->out_h, y1 = (int)fmax((y + 1) * p->h / p->out_h, y0 + 1); // one source pixel at least
    const int x0 = at * p->w / p->out_w, x1 = (int)fmax((at + 1) * p->w / p->out_w, x0 + 1);
    double sum = 0;
    for (int i = y0; i < y1; i++)
        for (int k = x0; k < x1; k++) sum += picture_value_at(f, x, ((int64_t)i * p->w + k) * p->c + channel);
    return picture_level(p, sum / ((y1 - y0) * (x1 - x0)));
}

// Whether the waveform passes height y in the samples of column `at`.
static bool passes(const dt_field_info *f, const void *x, const panel *p, int y, int at) {
    const int64_t from = (int64_t)at * p->w / p->out_w, to = (int64_t)(at + 1) * p->w / p->out_w;
    int top = WAVE_HEIGHT, bottom = -1;
    for (int64_t i = from; i < to || i == from; i++) { // a sample at least, where columns are more than samples
        const int here = (255 - picture_level(p, picture_value_at(f, x, i * p->c))) * (WAVE_HEIGHT - 1) / 255;
        if (here < top) top = here;
        if (here > bottom) bottom = here;
    }
    return y >= top && y <= bottom;
}

static void picture_draw(const dt_data *d, const void *x, panel *p, uint8_t *rgb, int width) {
    const dt_field_info *f = &d->fields.info[p->field];
    picture_find_range(f, x, p);
    for (int y = 0; y < p->out_h; y++)
        for (int at = 0; at < p->out_w; at++)
            for (int c = 0; c < 3; c++) {
                const int from = p->sound ? p->out_h - 1 - y : y; // low frequencies at the bottom
                rgb[((size_t)y * (size_t)width + (size_t)(p->left + at)) * 3 + (size_t)c] =
                    p->wave ? (passes(f, x, p, y, at) ? 60 : 250) : mean_at(f, x, p, from, at, p->c == 3 ? c : 0);
            }
}

dt_status dt_data_picture(const dt_dataset *base, dt_split split, int64_t i, uint8_t **png, size_t *n_bytes) {
    const dt_data *d = base->self;
    void *fields[DT_MAX_FIELDS] = {0};
    panel panels[DT_MAX_FIELDS];
    int height, width;
    const int n = picture_lay_out(d, panels, &height, &width);
    *png = NULL;
    *n_bytes = 0;
    if (n == 0) return DT_OK;
    dt_sample_scratch scratch;
    dt_bad_sample bad;
    dt_sample_scratch_init(&scratch);
    for (int k = 0; k < d->fields.n; k++) fields[k] = dt_xcalloc(d->fields.f[k].sample_bytes + 64, 1);
    const dt_sample_place place = {.sample = d->splits.sample[split][i], .field = fields};
    dt_status st = dt_sample_fill(d, &scratch, &place, &bad);
    if (st == DT_OK) {
        const size_t size = (size_t)height * (size_t)width * 3;
        uint8_t *rgb = dt_xcalloc(size, 1);
        dt_buffer out = {0};
        memset(rgb, 255, size); // white between images
        for (int k = 0; k < n; k++) picture_draw(d, fields[panels[k].field], &panels[k], rgb, width);
        st = dt_encode_png(&out, &(dt_image){.data = rgb, .width = width, .height = height, .channels = 3});
        free(rgb);
        *png = out.data;
        *n_bytes = out.n_bytes;
    }
    for (int k = 0; k < d->fields.n; k++) free(fields[k]);
    dt_sample_scratch_fini(&scratch);
    return st;
}
