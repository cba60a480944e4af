// preview.c: what the network gets of a sample, without augmentation, as an evaluation's page shows it: a panel of each
// field that is an image or a signal.
//
// Images, spectrograms and arrays are small PNGs: one or three channels as one picture, other numbers of channels in a
// grid, row by row. Floats that are no spectrogram are stretched by asinh about their noise, so that faint structure is seen
// beside bright cores. Waveforms, series and vectors of at least LEAST_SIGNAL numbers are lines.
#include "data_parts.h"

#include "base/core.h"
#include "base/sort.h"
#include "data/decode/encode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 96, MOST_PANELS = 6, GAP = 2, LEAST_SIGNAL = 8, LINE_POINTS = 160, MOST_SORTED = 4096 };

double dt_preview_stored(const dt_field_info *f, const void *x, int64_t at) {
    return f->dtype == DT_U8 ? ((const uint8_t *)x)[at] : (double)((const float *)x)[at];
}

bool dt_preview_of(const dt_fields *fields, int field, int least_signal, dt_preview *out) {
    const dt_field_info *f = &fields->info[field];
    const int64_t *of = f->sample_shape.d, n = dt_shape_elements(&f->sample_shape);
    *out = (dt_preview){
        .h = 1, .w = (int)n, .c = 1, .is_sound = fields->f[field].kind == DT_FIELD_audio, .is_u8 = f->dtype == DT_U8};
    if (f->is_image) // features of audio, too
        out->h = (int)of[0], out->w = (int)of[1], out->c = (int)of[2];
    else if (f->n_classes + f->n_categories > 0 || f->dtype != DT_F32 || n < least_signal)
        return false;
    else if (f->sample_shape.n == 2) // series of channels
        out->w = (int)of[0], out->c = (int)of[1];
    out->is_line = out->h == 1 && (out->is_sound || !f->is_image);
    return true;
}

// The noise is half the range of the middle 68 %.
dt_preview_range dt_preview_find_range(const dt_preview *v, int c, int n) {
    if (v->is_u8) return (dt_preview_range){0, 255, 0};
    const int64_t n_pixels = (int64_t)v->h * v->w, every = n_pixels / MOST_SORTED + 1;
    double *x = dt_xcalloc((size_t)(n * (n_pixels / every + 1)), sizeof *x), low = INFINITY, high = -INFINITY;
    int64_t n_sorted = 0;
    for (int64_t i = 0; i < n_pixels; i++)
        for (int k = c; k < c + n; k++) {
            const double here = v->x[i * v->c + k];
            low = fmin(low, here);
            high = fmax(high, here);
            if (i % every == 0) x[n_sorted++] = here;
        }
    qsort(x, (size_t)n_sorted, sizeof *x, dt_sort_reals);
    const double noise = (x[n_sorted * 84 / 100] - x[n_sorted * 16 / 100]) / 2, middle = x[n_sorted / 2];
    free(x);
    if (v->is_sound || v->is_line || !(noise > 0)) return (dt_preview_range){low, high, 0};
    return (dt_preview_range){fmax(low, middle - 2 * noise), high, 2 * noise};
}

uint8_t dt_preview_level(const dt_preview_range *r, double v) {
    const double span = r->high - r->low, x = r->soft > 0 ? asinh((v - r->low) / r->soft) / asinh(span / r->soft) * 255
                                              : span > 0  ? (v - r->low) / span * 255
                                                          : 0;
    return x > 0 ? (uint8_t)fmin(x + 0.5, 255) : 0; // NaN is black
}

double dt_preview_mean(const dt_preview *v, int out_h, int out_w, int y, int x, int channel) {
    if (v->is_sound) y = out_h - 1 - y;
    const int y0 = y * v->h / out_h, y1 = (int)fmax((y + 1) * v->h / out_h, y0 + 1); // one source pixel at least
    const int x0 = x * v->w / out_w, x1 = (int)fmax((x + 1) * v->w / out_w, x0 + 1);
    double sum = 0;
    for (int i = y0; i < y1; i++)
        for (int k = x0; k < x1; k++) sum += v->x[((int64_t)i * v->w + k) * v->c + channel];
    return sum / ((y1 - y0) * (x1 - x0));
}

// Base64 (RFC 4648): three bytes become four letters, = fills the last group.
static void add_base64(dt_json *j, const uint8_t *x, size_t n) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = dt_xcalloc(4 * (n / 3 + 1) + 1, 1), *out = text;
    for (size_t i = 0; i < n; i += 3) {
        // missing bytes of the last group are zero bits
        const uint32_t bits =
            (uint32_t)x[i] << 16 | (i + 1 < n ? (uint32_t)x[i + 1] << 8 : 0) | (i + 2 < n ? x[i + 2] : 0);
        *out++ = letters[bits >> 18];
        *out++ = letters[bits >> 12 & 63];
        *out++ = i + 1 < n ? letters[bits >> 6 & 63] : '=';
        *out++ = i + 2 < n ? letters[bits & 63] : '=';
    }
    dt_json_string(j, "png", text);
    free(text);
}

static dt_status add_pixels(dt_json *j, const dt_preview *v) {
    const int n_colours = v->c == 3 ? 3 : 1, n = v->c == 3 ? 1 : v->c < MOST_PANELS ? v->c : MOST_PANELS;
    const int n_across = (int)ceil(sqrt(n)), n_down = (n + n_across - 1) / n_across;
    const double by = fmin(1, (double)MOST_SIDE / (n_across * fmax(v->h, v->w)));
    const int out_h = (int)fmax(1, v->h * by), out_w = (int)fmax(1, v->w * by);
    const int width = n_across * (out_w + GAP) - GAP, height = n_down * (out_h + GAP) - GAP;
    uint8_t *rgb = dt_xcalloc((size_t)height * (size_t)width, 3);
    memset(rgb, 128, (size_t)height * (size_t)width * 3); // grey between bands
    for (int b = 0; b < n; b++) {
        const dt_preview_range r = dt_preview_find_range(v, b, n_colours);
        for (int y = 0; y < out_h; y++)
            for (int x = 0; x < out_w; x++)
                for (int c = 0; c < 3; c++) {
                    const size_t top = (size_t)(b / n_across * (out_h + GAP) + y),
                                 left = (size_t)(b % n_across * (out_w + GAP) + x);
                    rgb[(top * (size_t)width + left) * 3 + (size_t)c] =
                        dt_preview_level(&r, dt_preview_mean(v, out_h, out_w, y, x, n_colours == 3 ? c : b));
                }
    }
    dt_buffer out = {0};
    const dt_status st = dt_encode_png(&out, &(dt_image){.data = rgb, .width = width, .height = height, .channels = 3});
    if (st == DT_OK) add_base64(j, out.data, out.n_bytes);
    free(out.data);
    free(rgb);
    return st;
}

static void add_number(dt_json *j, double v) { // four digits: finer than a pixel of the drawing
    char text[32];
    snprintf(text, sizeof text, "%.4g", v);
    dt_json_raw(j, NULL, isfinite(v) ? text : "null");
}

// A line of each channel: all of its values, or the least and the greatest of each part of them in turn.
static void add_lines(dt_json *j, const dt_field_info *f, const dt_preview *v) {
    dt_json_begin_array(j, "lines");
    for (int c = 0; c < v->c && c < MOST_PANELS; c++) {
        const int n = v->w <= LINE_POINTS ? v->w : LINE_POINTS / 2;
        dt_json_begin_array(j, NULL);
        for (int i = 0; i < n; i++) {
            double low = INFINITY, high = -INFINITY;
            for (int64_t k = (int64_t)i * v->w / n; k < (int64_t)(i + 1) * v->w / n; k++) {
                const int64_t at = k * v->c + c;
                const double here = f->is_image ? v->x[at] : dt_field_value(f, at, v->x[at]);
                low = fmin(low, here);
                high = fmax(high, here);
            }
            add_number(j, low);
            if (n < v->w) add_number(j, high);
        }
        dt_json_end_array(j);
    }
    dt_json_end_array(j);
}

static dt_status add_panel(dt_json *j, const dt_field *field, const dt_field_info *f, const dt_preview *v) {
    const dt_audio_field *a = field->audio;
    dt_status st = DT_OK;
    dt_json_begin_object(j, NULL);
    dt_json_string(j, "field", field->name);
    if (v->is_line)
        add_lines(j, f, v);
    else
        st = add_pixels(j, v);
    if (v->is_sound && a->clip.rate > 0) dt_json_real(j, "seconds", (double)a->clip.n_samples / a->clip.rate);
    if (v->is_sound && !v->is_line && isfinite(dt_features_hz(a->features, 0))) { // at bottom, middle and top
        dt_json_begin_array(j, "hz");
        for (int i = 0; i < 3; i++) add_number(j, dt_features_hz(a->features, 0.5 * i));
        dt_json_end_array(j);
    }
    dt_json_end_object(j);
    return st;
}

dt_status dt_data_picture(const dt_dataset *base, dt_split split, int64_t i, dt_json *j) {
    const dt_data *d = base->self;
    void *fields[DT_MAX_FIELDS] = {0};
    dt_sample_scratch scratch;
    dt_bad_sample bad;
    dt_sample_scratch_init(&scratch);
    for (int k = 0; k < d->fields.n; k++) fields[k] = dt_xcalloc(d->fields.f[k].sample_bytes + 64, 1);
    const dt_sample_place place = {.sample = d->splits.sample[split][i], .field = fields};
    dt_status st = dt_sample_fill(d, &scratch, &place, &bad);
    for (int k = 0; k < d->fields.n && st == DT_OK; k++) {
        const dt_field_info *f = &d->fields.info[k];
        dt_preview v;
        if (!dt_preview_of(&d->fields, k, LEAST_SIGNAL, &v)) continue;
        const int64_t n = (int64_t)v.h * v.w * v.c;
        double *x = dt_xcalloc((size_t)n, sizeof *x);
        for (int64_t at = 0; at < n; at++) x[at] = dt_preview_stored(f, fields[k], at);
        v.x = x;
        st = add_panel(j, &d->fields.f[k], f, &v);
        free(x);
    }
    for (int k = 0; k < d->fields.n; k++) free(fields[k]);
    dt_sample_scratch_fini(&scratch);
    return st;
}
