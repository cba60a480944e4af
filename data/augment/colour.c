// colour.c: steps that change values, pixel by pixel, as loops that vectorise, one a line of pixel_steps.def. What
// they do to a pixel is in batch/pixel_math.h, which a device shares.
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

enum { BLOCK = 512 };

static size_t n_pixels(const dt_image *image) {
    return (size_t)image->width * (size_t)image->height;
}

// ---- the mean ------------------------------------------------------------------------------------------
VECTORIZED static void colour_luma_of(const uint8_t *restrict rgb, uint8_t *restrict luma, size_t n) {
    for (size_t i = 0; i < n; i++) luma[i] = dt_luma(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
}

VECTORIZED static uint64_t colour_sum_of(const uint8_t *p, size_t n) {
    uint64_t sum = 0;
    while (n > 0) { // 32 bits hold the sum of a block
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
    uint8_t luma[BLOCK];
    if (image->channels == 1) sum = colour_sum_of(image->data, n);
    for (size_t at = 0; image->channels == 3 && at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        colour_luma_of(image->data + 3 * at, luma, m);
        sum += colour_sum_of(luma, m);
    }
    return dt_mean_level(sum, n);
}

// ---- loops ---------------------------------------------------------------------------------------------
#define BYTE(id, reads_mean, e)                                                                                        \
    VECTORIZED static void loop_##id(uint8_t *restrict p, size_t n, const dt_pixel_step *restrict s, int m) {          \
        for (size_t i = 0; i < n; i++) p[i] = dt_step_##id(s, m, p[i]);                                                \
    }
#define LUMA(id, e)                                                                                                    \
    VECTORIZED static void loop_##id(uint8_t *restrict rgb, const uint8_t *restrict y, size_t n,                       \
                                     const dt_pixel_step *restrict s) {                                                \
        for (size_t i = 0; i < n; i++) {                                                                               \
            rgb[3 * i] = dt_step_##id(s, y[i], rgb[3 * i]);                                                            \
            rgb[3 * i + 1] = dt_step_##id(s, y[i], rgb[3 * i + 1]);                                                    \
            rgb[3 * i + 2] = dt_step_##id(s, y[i], rgb[3 * i + 2]);                                                    \
        }                                                                                                              \
    }
#define RGB(id, e)                                                                                                     \
    VECTORIZED static void loop_##id(uint8_t *restrict rgb, size_t n, const dt_pixel_step *restrict s) {               \
        for (size_t i = 0; i < n; i++) dt_step_##id(s, rgb + 3 * i);                                                   \
    }
#include "batch/pixel_steps.def"

int dt_hue_turn(double turn) {
    return (int)lround(turn * 6 * (1 << DT_HUE_BITS));
}

int dt_solarize_from(double threshold) {
    double from = ceil(threshold);
    return from < 0 ? 0 : from > 256 ? 256 : (int)from;
}

int dt_posterize_mask(int bits) {
    return 0xff00 >> bits & 0xff;
}

typedef void luma_loop(uint8_t *restrict rgb, const uint8_t *restrict y, size_t n, const dt_pixel_step *restrict s);

static void play_luma(dt_image *image, const dt_pixel_step *s, luma_loop *loop) {
    uint8_t luma[BLOCK];
    size_t n = n_pixels(image);
    for (size_t at = 0; image->channels == 3 && at < n; at += BLOCK) {
        size_t k = n - at < BLOCK ? n - at : BLOCK;
        colour_luma_of(image->data + 3 * at, luma, k);
        loop(image->data + 3 * at, luma, k, s);
    }
}

// ---- tables --------------------------------------------------------------------------------------------
typedef uint32_t histogram[3][256];

static void colour_count_values(const dt_image *image, histogram h) {
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

static void play_table(dt_image *image, void (*make)(const uint32_t *count, uint8_t *table)) {
    histogram h;
    uint8_t table[3][256];
    colour_count_values(image, h);
    for (int c = 0; c < image->channels; c++) make(h[c], table[c]);
    look_up(image, table);
}

bool dt_pixels_values(dt_image *image, const dt_pixel_step *s) {
    switch (s->kind) {
#define BYTE(id, reads_mean, e)                                                                                        \
    case DT_PIXEL_##id:                                                                                                \
        loop_##id(image->data, n_pixels(image) * (size_t)image->channels, s, (reads_mean) ? mean_luma(image) : 0);     \
        return true;
#define LUMA(id, e)                                                                                                    \
    case DT_PIXEL_##id:                                                                                                \
        play_luma(image, s, loop_##id);                                                                                \
        return true;
#define RGB(id, e)                                                                                                     \
    case DT_PIXEL_##id:                                                                                                \
        if (image->channels == 3) loop_##id(image->data, n_pixels(image), s);                                          \
        return true;
#define TABLE(id, f)                                                                                                   \
    case DT_PIXEL_##id:                                                                                                \
        play_table(image, f);                                                                                          \
        return true;
#include "batch/pixel_steps.def"
    }
    return false;
}
