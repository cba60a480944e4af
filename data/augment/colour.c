// colour.c: operations on values, pixel by pixel.
//
// Brightness, contrast, saturation and sharpness are one blend, degenerate + factor * (image -
// degenerate), computed as Pillow does it: in single precision, each operation rounded, the fraction
// dropped at the end. data/ is compiled without fused multiply-add, so these floats are the same on
// every ISA. Histogram operations become a table of 256 bytes a channel.
//
// Hue needs no division: with value V, chroma C and hue H in sixths, a channel is V - clamp(min(k, 4 - k),
// 0, 1) C with k = n + H mod 6 (n = 5, 3, 1 for R, G, B), and C H is a difference of channels. So all
// is carried multiplied by C, in integers of 12 fractional bits.
//
// RGB is taken apart into planes of a few hundred pixels on the stack, which is what vectorises.
#include "pixels.h"

#include "base/vectorize.h"

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
static inline uint8_t blend(int base, int v, float factor) {
    float t = (float)base + factor * (float)(v - base);
    t = t > 0 ? t : 0;
    return (uint8_t)(int)(t < 255 ? t : 255);
}

VECTORIZED static void blend_level(uint8_t *p, size_t n, int base, float factor) {
    for (size_t i = 0; i < n; i++) p[i] = blend(base, p[i], factor);
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
    return (int)((double)sum / (double)n + 0.5);
}

void dt_pixels_brightness(dt_image *image, double factor) {
    blend_level(image->data, n_bytes(image), 0, (float)factor);
}

void dt_pixels_contrast(dt_image *image, double factor) {
    blend_level(image->data, n_bytes(image), mean_luma(image), (float)factor);
}

VECTORIZED static void saturate(uint8_t *restrict rgb, const uint8_t *restrict luma, size_t n,
                                float factor) {
    for (size_t i = 0; i < n; i++) {
        rgb[3 * i] = blend(luma[i], rgb[3 * i], factor);
        rgb[3 * i + 1] = blend(luma[i], rgb[3 * i + 1], factor);
        rgb[3 * i + 2] = blend(luma[i], rgb[3 * i + 2], factor);
    }
}

VECTORIZED static void spread(const uint8_t *restrict luma, uint8_t *restrict rgb, size_t n) {
    for (size_t i = 0; i < n; i++) rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = luma[i];
}

void dt_pixels_saturation(dt_image *image, double factor) {
    uint8_t luma[PIECE];
    size_t n = n_pixels(image);
    for (size_t at = 0; image->channels == 3 && at < n; at += PIECE) {
        size_t m = n - at < PIECE ? n - at : PIECE;
        luma_of(image->data + 3 * at, luma, m);
        saturate(image->data + 3 * at, luma, m, (float)factor);
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
enum { HUE_BITS = 12 };

// One channel: k = n C + H C, of which min(k, 4C - k) within 0..C goes off the value.
static inline int hue_channel(int value, int c, int h, int n) {
    int k = h + n * c, round = 6 * c;
    k = k >= round ? k - round : k;
    int t = 4 * c - k < k ? 4 * c - k : k;
    t = t < 0 ? 0 : t > c ? c : t;
    return value - ((t + (1 << (HUE_BITS - 1))) >> HUE_BITS);
}

VECTORIZED static void turn_hue(uint8_t *restrict rgb, size_t n, int turn) {
    for (size_t i = 0; i < n; i++) {
        int r = rgb[3 * i], g = rgb[3 * i + 1], b = rgb[3 * i + 2];
        int high = r > g ? r : g, low = r < g ? r : g;
        high = b > high ? b : high;
        low = b < low ? b : low;
        int c = high - low;
        int h = high == r ? g - b : high == g ? 2 * c + b - r : 4 * c + r - g;
        h = h * (1 << HUE_BITS) + c * turn;
        c <<= HUE_BITS;
        h = h < 0 ? h + 6 * c : h; // above -4C, below 8C
        h = h >= 6 * c ? h - 6 * c : h;
        rgb[3 * i] = (uint8_t)hue_channel(high, c, h, 5);
        rgb[3 * i + 1] = (uint8_t)hue_channel(high, c, h, 3);
        rgb[3 * i + 2] = (uint8_t)hue_channel(high, c, h, 1);
    }
}

void dt_pixels_hue(dt_image *image, double turn) {
    if (image->channels == 3)
        turn_hue(image->data, n_pixels(image), (int)lround(turn * 6 * (1 << HUE_BITS)));
}

// ---- tables --------------------------------------------------------------------------------------------
VECTORIZED static void invert(uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(255 - p[i]);
}

VECTORIZED static void solarize(uint8_t *p, size_t n, int from) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(p[i] < from ? p[i] : 255 - p[i]);
}

VECTORIZED static void mask(uint8_t *p, size_t n, uint8_t bits) {
    for (size_t i = 0; i < n; i++) p[i] &= bits;
}

void dt_pixels_invert(dt_image *image) {
    invert(image->data, n_bytes(image));
}

void dt_pixels_solarize(dt_image *image, double threshold) {
    double from = ceil(threshold);
    solarize(image->data, n_bytes(image), from < 0 ? 0 : from > 256 ? 256 : (int)from);
}

void dt_pixels_posterize(dt_image *image, int bits) {
    mask(image->data, n_bytes(image), (uint8_t)(0xff00 >> bits));
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

// Equal steps of the cumulated counts; a channel of one value, or of too few pixels, stays.
static void equalize_table(const uint32_t h[256], uint8_t table[256]) {
    uint64_t sum = 0, last = 0;
    int n_values = 0;
    for (int v = 0; v < 256; v++) {
        sum += h[v];
        n_values += h[v] > 0;
        last = h[v] ? h[v] : last;
    }
    uint64_t step = (sum - last) / 255, n = step / 2;
    for (int v = 0; v < 256; v++) {
        uint64_t to = n_values > 1 && step > 0 ? n / step : (uint64_t)v;
        table[v] = (uint8_t)(to > 255 ? 255 : to);
        n += h[v];
    }
}

static void stretch_table(const uint32_t h[256], uint8_t table[256]) {
    int low = 0, high = 255;
    while (low < 255 && h[low] == 0) low++;
    while (high > 0 && h[high] == 0) high--;
    double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
    for (int v = 0; v < 256; v++) {
        double to = v * scale + offset;
        table[v] = (uint8_t)(to < 0 ? 0 : to > 255 ? 255 : to);
    }
}

static void by_histogram(dt_image *image, void (*make)(const uint32_t h[256], uint8_t t[256])) {
    histogram h;
    uint8_t table[3][256];
    count_values(image, h);
    for (int c = 0; c < image->channels; c++) make(h[c], table[c]);
    look_up(image, table);
}

void dt_pixels_equalize(dt_image *image) {
    by_histogram(image, equalize_table);
}

void dt_pixels_autocontrast(dt_image *image) {
    by_histogram(image, stretch_table);
}
