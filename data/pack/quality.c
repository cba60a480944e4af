// quality.c: sums over pixels and samples. Pixels are summed as integers, so the figures are the same on every
// machine; samples as doubles, in order.
#include "quality.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DB = 99 };

// ---- pictures ----------------------------------------------------------------------------------------
static const uint8_t *quality_luma_of(const dt_image *m, dt_buffer *scratch) {
    if (m->channels == 1) return m->data;
    size_t n = (size_t)m->width * (size_t)m->height;
    uint8_t *y = dt_buffer_reserve(scratch, n);
    for (size_t i = 0; y && i < n; i++) y[i] = dt_luma(m->data[3 * i], m->data[3 * i + 1], m->data[3 * i + 2]);
    return y;
}

typedef struct image_sums {
    uint64_t histogram[256], n_inside;
    int64_t laplacian;
    uint64_t laplacian_squares, noise;
} image_sums;

static void quality_add_row(image_sums *s, const uint8_t *up, const uint8_t *y, const uint8_t *down, int w) {
    int64_t sum = 0;
    uint64_t squares = 0, noise = 0;
    for (int x = 1; x + 1 < w; x++) {
        int cross = up[x] + down[x] + y[x - 1] + y[x + 1], corners = up[x - 1] + up[x + 1] + down[x - 1] + down[x + 1];
        int l = cross - 4 * y[x];
        sum += l;
        squares += (uint64_t)(l * l);
        noise += (uint64_t)abs(corners - 2 * cross + 4 * y[x]);
    }
    s->laplacian += sum;
    s->laplacian_squares += squares;
    s->noise += noise;
    s->n_inside += (uint64_t)(w - 2);
}

static void quality_add_image(image_sums *s, const uint8_t *y, int w, int h) {
    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < (size_t)w * (size_t)h; i++) s->histogram[y[i]]++;
    for (int r = 1; r + 1 < h && w > 2; r++) {
        const uint8_t *row = y + (size_t)r * (size_t)w;
        quality_add_row(s, row - w, row, row + w, w);
    }
}

static double decibels(double ratio, double factor) {
    double db = ratio > 0 ? factor * log10(ratio) : -MOST_DB;
    return db > MOST_DB ? MOST_DB : db < -MOST_DB ? -MOST_DB : db;
}

dt_status dt_quality_of_image(dt_image_quality *out, const dt_image *image, dt_buffer *scratch) {
    image_sums s;
    const uint8_t *y = quality_luma_of(image, scratch);
    if (!y) return dt_fail(DT_E_INTERNAL, "out of memory for a picture's quality");
    quality_add_image(&s, y, image->width, image->height);
    double n = (double)image->width * image->height, sum = 0, squares = 0, entropy = 0;
    for (int v = 0; v < 256; v++) {
        double p = (double)s.histogram[v] / n;
        sum += p * v;
        squares += p * v * v;
        if (p > 0) entropy -= p * log2(p);
    }
    double deviation = sqrt(squares > sum * sum ? squares - sum * sum : 0);
    *out = (dt_image_quality){.brightness = sum / 255,
                              .contrast = deviation / 255,
                              .entropy = entropy,
                              .clipping = (double)(s.histogram[0] + s.histogram[255]) / n};
    if (s.n_inside > 0) {
        double inside = (double)s.n_inside, mean = (double)s.laplacian / inside;
        double noise = sqrt(acos(-1.0) / 2) * (double)s.noise / (6 * inside);
        out->sharpness = (double)s.laplacian_squares / inside - mean * mean;
        out->snr = deviation > 0 ? decibels(noise > 0 ? deviation / noise : HUGE_VAL, 20) : 0;
    }
    double contrast = out->contrast < 0.25 ? out->contrast / 0.25 : 1;
    out->quality = pow(out->sharpness / (out->sharpness + 100) * contrast * entropy / 8 * (1 - out->clipping), 0.25);
    return DT_OK;
}

// ---- recordings --------------------------------------------------------------------------------------
static int quality_by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void add_frames(dt_audio_quality *q, double *power, int64_t n_frames) {
    int64_t silent = 0;
    for (int64_t i = 0; i < n_frames; i++) silent += power[i] < 1e-6;
    qsort(power, (size_t)n_frames, sizeof *power, quality_by_value);
    double low = power[n_frames / 10], high = power[(n_frames * 95 - 1) / 100];
    q->silence = (double)silent / (double)n_frames;
    q->snr = high > 0 ? decibels(low > 0 ? high / low : HUGE_VAL, 10) : 0;
}

dt_status dt_quality_of_audio(dt_audio_quality *out, const float *x, int channels, int64_t n, int rate,
                              dt_buffer *scratch) {
    int64_t frame = rate / 50 > 0 ? rate / 50 : 1, each = n / frame > 0 ? n / frame : 1;
    double *power = (double *)(void *)dt_buffer_reserve(scratch, (size_t)(each * channels) * sizeof *power);
    if (!power) return dt_fail(DT_E_INTERNAL, "out of memory for a recording's quality");
    if (n < frame) frame = n;
    double sum = 0, peak = 0, clipped = 0;
    for (int c = 0; c < channels; c++)
        for (int64_t i = 0, f = 0; i < n; i++) {
            double v = fabs((double)x[c * n + i]), square = v * v;
            if (v > peak) peak = v;
            clipped += v >= 0.999;
            sum += square;
            f = i / frame;
            if (f >= each) continue; // the rest of a frame
            if (i % frame == 0) power[c * each + f] = 0;
            power[c * each + f] += square / (double)frame;
        }
    double all = (double)n * channels;
    *out = (dt_audio_quality){.level = decibels(sqrt(sum / all), 20), .peak = peak, .clipping = clipped / all};
    add_frames(out, power, each * channels);
    out->quality = cbrt((1 - out->silence) * (1 - out->clipping) * out->snr / (out->snr + 10));
    return DT_OK;
}
