// colour.c: operations on values, pixel by pixel, as loops that vectorise; what they do to a pixel is in
// batch/pixel_math.h, which a device shares.
//
// Brightness, contrast, saturation and sharpness are one blend, degenerate + factor * (image -
// degenerate), computed as Pillow does it: in single precision, each operation rounded, the fraction
// dropped at the end. Histogram operations become a table of 256 bytes a channel.
//
// RGB is taken apart into planes of a few hundred pixels on the stack, which is what vectorises.
#include "pixels.h"

#include "base/vectorize.h"
#include "batch/pixel_math.h"

#include <math.h>
#include <string.h>

enum { PIECE = 512 };

static size_t n_pixels(const dt_image *image) {
    return (size_t)image->width * (size_t)image->height;
}

static size_t n_bytes(const dt_image *image) {
    return n_pixels(image) * (size_t)image->channels;
}

// ---- blends --------------------------------------------------------------------------------------------
VECTORIZED static void blend_level(uint8_t *p, size_t n, int base, float factor) {
    for (size_t i = 0; i < n; i++) p[i] = dt_blend(base, p[i], factor);
}

VECTORIZED static void luma_of(const uint8_t *restrict rgb, uint8_t *restrict luma, size_t n) {
    for (size_t i = 0; i < n; i++) luma[i] = dt_luma(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
}

VECTORIZED static uint64_t sum_of(const uint8_t *p, size_t n) {
    uint64_t sum = 0;
    while (n > 0) { // 32 bits hold the sum of a piece
        size_t m = n < 65536 ? n : 65536;
        uint32_t part = 0;
        for (size_t i = 0; i < m; i++) part += p[i];
        sum += part;
        p += m;
        n -= m;
    }
    return sum;
}

static int mean_luma(const dt_image *image) {
    uint64_t sum = 0;
    size_t n = n_pixels(image);
    uint8_t luma[PIECE];
    if (image->channels == 1) sum = sum_of(image->data, n);
    for (size_t at = 0; image->channels == 3 && at < n; at += PIECE) {
        size_t m = n - at < PIECE ? n - at : PIECE;
        luma_of(image->data + 3 * at, luma, m);
        sum += sum_of(luma, m);
    }
    return dt_mean_level(sum, n);
}

void dt_pixels_brightness(dt_image *image, float factor) {
    blend_level(image->data, n_bytes(image), 0, factor);
}

void dt_pixels_contrast(dt_image *image, float factor) {
    blend_level(image->data, n_bytes(image), mean_luma(image), factor);
}

VECTORIZED static void saturate(uint8_t *restrict rgb, const uint8_t *restrict luma, size_t n,
                                float factor) {
    for (size_t i = 0; i < n; i++) {
        rgb[3 * i] = dt_blend(luma[i], rgb[3 * i], factor);
        rgb[3 * i + 1] = dt_blend(luma[i], rgb[3 * i + 1], factor);
        rgb[3 * i + 2] = dt_blend(luma[i], rgb[3 * i + 2], factor);
    }
}

VECTORIZED static void spread(const uint8_t *restrict luma, uint8_t *restrict rgb, size_t n) {
    for (size_t i = 0; i < n; i++) rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = luma[i];
}

void dt_pixels_saturation(dt_image *image, float factor) {
    uint8_t luma[PIECE];
    size_t n = n_pixels(image);
    for (size_t at = 0; image->channels == 3 && at < n; at += PIECE) {
        size_t m = n - at < PIECE ? n - at : PIECE;
        luma_of(image->data + 3 * at, luma, m);
        saturate(image->data + 3 * at, luma, m, factor);
    }
}

void dt_pixels_grey(dt_image *image) {
    uint8_t luma[PIECE];
    size_t n = n_pixels(image);
    for (size_t at = 0; image->channels == 3 && at < n; at += PIECE) {
        size_t m = n - at < PIECE ? n - at : PIECE;
        luma_of(image->data + 3 * at, luma, m);
        spread(luma, image->data + 3 * at, m);
    }
}

// ---- hue -----------------------------------------------------------------------------------------------
VECTORIZED static void turn_hue(uint8_t *restrict rgb, size_t n, int turn) {
    for (size_t i = 0; i < n; i++) dt_hue_pixel(rgb + 3 * i, turn);
}

int dt_hue_turn(double turn) {
    return (int)lround(turn * 6 * (1 << DT_HUE_BITS));
}

void dt_pixels_hue(dt_image *image, int turn) {
    if (image->channels == 3) turn_hue(image->data, n_pixels(image), turn);
}

// ---- tables --------------------------------------------------------------------------------------------
VECTORIZED static void invert(uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(255 - p[i]);
}

VECTORIZED static void solarize(uint8_t *p, size_t n, int from) {
    for (size_t i = 0; i < n; i++) p[i] = dt_solarize(p[i], from);
}

VECTORIZED static void mask(uint8_t *p, size_t n, uint8_t bits) {
    for (size_t i = 0; i < n; i++) p[i] &= bits;
}

void dt_pixels_invert(dt_image *image) {
    invert(image->data, n_bytes(image));
}

int dt_solarize_from(double threshold) {
    double from = ceil(threshold);
    return from < 0 ? 0 : from > 256 ? 256 : (int)from;
}

void dt_pixels_solarize(dt_image *image, int from) {
    solarize(image->data, n_bytes(image), from);
}

int dt_posterize_mask(int bits) {
    return 0xff00 >> bits & 0xff;
}

void dt_pixels_posterize(dt_image *image, uint8_t bits) {
    mask(image->data, n_bytes(image), bits);
}

typedef uint32_t histogram[3][256];

static void count_values(const dt_image *image, histogram h) {
    size_t n = n_pixels(image);
    const uint8_t *p = image->data;
    memset(h, 0, sizeof(histogram));
    if (image->channels == 1) // three counters, so that equal neighbours do not wait for each other
        for (size_t i = 0; i < n; i++) h[i % 3][p[i]]++;
    else
        for (size_t i = 0; i < n; i++, p += 3) h[0][p[0]]++, h[1][p[1]]++, h[2][p[2]]++;
    for (int v = 0; v < 256 && image->channels == 1; v++) h[0][v] += h[1][v] + h[2][v];
}

static void look_up(dt_image *image, uint8_t table[3][256]) {
    size_t n = n_pixels(image);
    uint8_t *p = image->data;
    if (image->channels == 1)
        for (size_t i = 0; i < n; i++) p[i] = table[0][p[i]];
    else
        for (size_t i = 0; i < n; i++, p += 3) {
            p[0] = table[0][p[0]];
            p[1] = table[1][p[1]];
            p[2] = table[2][p[2]];
        }
}

void dt_pixels_equalize(dt_image *image) {
    histogram h;
    uint8_t table[3][256];
    count_values(image, h);
    for (int c = 0; c < image->channels; c++) dt_equalize_table(h[c], table[c]);
    look_up(image, table);
}

void dt_pixels_autocontrast(dt_image *image) {
    histogram h;
    uint8_t table[3][256];
    count_values(image, h);
    for (int c = 0; c < image->channels; c++) dt_stretch_table(h[c], table[c]);
    look_up(image, table);
}
