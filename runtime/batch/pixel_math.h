// pixel_math.h: what each step of pixel_steps.def does to a pixel. Host loops (data/augment) and the device's
// kernel (cuda/kernels/augment_kernels.h) are made of these functions, so both give the same bits.
//
// Most arithmetic is in integers. Blends are in single precision and perspectives in double, each operation
// rounded by itself: on a device by the _rn intrinsics, which are never fused; host files that include this are
// compiled with -ffp-contract=off (CMakeLists.txt).
#ifndef DT_BATCH_PIXEL_MATH_H
#define DT_BATCH_PIXEL_MATH_H

#include "batch/pixel_steps.h"

#include <math.h>

#ifdef __CUDACC__
#define DT_PIXEL_FN    static __device__ __forceinline__
#define DT_PIXEL_TABLE static __device__ const
DT_PIXEL_FN float dt_fmul(float a, float b) {
    return __fmul_rn(a, b);
}
DT_PIXEL_FN float dt_fadd(float a, float b) {
    return __fadd_rn(a, b);
}
DT_PIXEL_FN double dt_dmul(double a, double b) {
    return __dmul_rn(a, b);
}
DT_PIXEL_FN double dt_dadd(double a, double b) {
    return __dadd_rn(a, b);
}
#else
#define DT_PIXEL_FN    static inline __attribute__((always_inline, unused))
#define DT_PIXEL_TABLE static const __attribute__((unused))
DT_PIXEL_FN float dt_fmul(float a, float b) {
    return a * b;
}
DT_PIXEL_FN float dt_fadd(float a, float b) {
    return a + b;
}
DT_PIXEL_FN double dt_dmul(double a, double b) {
    return a * b;
}
DT_PIXEL_FN double dt_dadd(double a, double b) {
    return a + b;
}
#endif

// ---- values ------------------------------------------------------------------------------------------
// BT.601 luma as libjpeg and Pillow round it.
DT_PIXEL_FN uint8_t dt_luma(uint32_t r, uint32_t g, uint32_t b) {
    return (uint8_t)((19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16);
}

// base + factor * (v - base), the fraction dropped, as Pillow blends.
DT_PIXEL_FN uint8_t dt_blend(int base, int v, float factor) {
    float t = dt_fadd((float)base, dt_fmul(factor, (float)(v - base)));
    t = t > 0 ? t : 0;
    return (uint8_t)(int)(t < 255 ? t : 255);
}

// Of a sum of n bytes, rounded: of luma as Pillow does it, and of a channel.
DT_PIXEL_FN int dt_mean_level(uint64_t sum, uint64_t n) {
    return (int)((double)sum / (double)n + 0.5);
}

DT_PIXEL_FN uint8_t dt_mean_byte(uint64_t sum, uint64_t n) {
    return (uint8_t)((sum + n / 2) / n);
}

// With value V, chroma C and hue H in sixths a channel is V - clamp(min(k, 4 - k), 0, 1) C with k = n + H mod 6
// (n = 5, 3, 1 for R, G, B), and C H is a difference of channels: all is carried multiplied by C.
enum { DT_HUE_BITS = 12 };

// One channel: k = n C + H C, of which min(k, 4C - k) within 0..C goes off the value.
DT_PIXEL_FN int dt_hue_channel(int value, int c, int h, int n) {
    int k = h + n * c, round = 6 * c;
    k = k >= round ? k - round : k;
    int t = 4 * c - k < k ? 4 * c - k : k;
    t = t < 0 ? 0 : t > c ? c : t;
    return value - ((t + (1 << (DT_HUE_BITS - 1))) >> DT_HUE_BITS);
}

// A pixel in place; turn: of the circle, times 6 << DT_HUE_BITS, at most half of it.
DT_PIXEL_FN void dt_hue_pixel(uint8_t *rgb, int turn) {
    int r = rgb[0], g = rgb[1], b = rgb[2];
    int high = r > g ? r : g, low = r < g ? r : g;
    high = b > high ? b : high;
    low = b < low ? b : low;
    int c = high - low;
    int h = high == r ? g - b : high == g ? 2 * c + b - r : 4 * c + r - g;
    h = h * (1 << DT_HUE_BITS) + c * turn;
    c <<= DT_HUE_BITS;
    h = h < 0 ? h + 6 * c : h; // above -4C, below 8C
    h = h >= 6 * c ? h - 6 * c : h;
    rgb[0] = (uint8_t)dt_hue_channel(high, c, h, 5);
    rgb[1] = (uint8_t)dt_hue_channel(high, c, h, 3);
    rgb[2] = (uint8_t)dt_hue_channel(high, c, h, 1);
}

// Equal steps of the cumulated counts; a channel of one value, or of too few pixels, stays.
DT_PIXEL_FN void dt_equalize_table(const uint32_t *count, uint8_t *table) {
    uint64_t sum = 0, last = 0;
    int n_values = 0;
    for (int v = 0; v < 256; v++) {
        sum += count[v];
        n_values += count[v] > 0;
        last = count[v] ? count[v] : last;
    }
    uint64_t step = (sum - last) / 255, n = step / 2;
    for (int v = 0; v < 256; v++) {
        uint64_t to = n_values > 1 && step > 0 ? n / step : (uint64_t)v;
        table[v] = (uint8_t)(to > 255 ? 255 : to);
        n += count[v];
    }
}

DT_PIXEL_FN void dt_stretch_table(const uint32_t *count, uint8_t *table) {
    int low = 0, high = 255;
    while (low < 255 && count[low] == 0) low++;
    while (high > 0 && count[high] == 0) high--;
    double scale = high > low ? 255.0 / (high - low) : 1;
    double offset = high > low ? dt_dmul(-low, scale) : 0;
    for (int v = 0; v < 256; v++) {
        double to = dt_dadd(dt_dmul(v, scale), offset);
        table[v] = (uint8_t)(to < 0 ? 0 : to > 255 ? 255 : to);
    }
}

// ---- neighbours --------------------------------------------------------------------------------------
// Byte i of a row that is not at a border, between its neighbours of three rows: smoothed in integers
// ((s + 6) / 13 is the nearest), then blended.
DT_PIXEL_FN uint8_t dt_sharpen(const uint8_t *up, const uint8_t *row, const uint8_t *down, int i, int c, float factor) {
    int s = up[i - c] + up[i] + up[i + c] + row[i - c] + 5 * row[i] + row[i + c] + down[i - c] + down[i] + down[i + c];
    return dt_blend(((s + 6) * 20165) >> 18, row[i], factor); // / 13, exact to 3321
}

// i mirrored into 0..n-1, the border pixel not repeated.
DT_PIXEL_FN int dt_mirror_index(int i, int n) {
    int period = 2 * (n - 1);
    if (n == 1) return 0;
    i %= period;
    if (i < 0) i += period;
    return i < n ? i : period - i;
}

// Along a row bytes become 8.8, along a column bytes again; weights are 0.16, so sums fit without a sign.
enum { DT_BLUR_BITS = 16 };
#define DT_BLUR_ROW_HALF    (1u << 7)
#define DT_BLUR_COLUMN_HALF (1u << 23)
DT_PIXEL_FN uint16_t dt_blur_row_end(uint32_t sum) {
    return (uint16_t)(sum >> 8); // at most 255 * 256
}
DT_PIXEL_FN uint8_t dt_blur_column_end(uint32_t sum) {
    return (uint8_t)(sum >> 24);
}

// ---- noise -------------------------------------------------------------------------------------------
// Quantiles (i + 0.5) / 256 of |N(0,1)|, times 64.
DT_PIXEL_TABLE uint8_t dt_half_normal[256] = {
    0,   0,   1,   1,   1,   2,   2,   2,   3,   3,   3,   4,   4,   4,   5,   5,   5,   5,   6,   6,   6,   7,
    7,   7,   8,   8,   8,   9,   9,   9,   10,  10,  10,  11,  11,  11,  11,  12,  12,  12,  13,  13,  13,  14,
    14,  14,  15,  15,  15,  16,  16,  16,  17,  17,  17,  18,  18,  18,  19,  19,  19,  20,  20,  20,  21,  21,
    21,  22,  22,  22,  23,  23,  23,  24,  24,  24,  25,  25,  25,  26,  26,  26,  27,  27,  27,  28,  28,  28,
    29,  29,  29,  30,  30,  30,  31,  31,  31,  32,  32,  33,  33,  33,  34,  34,  34,  35,  35,  35,  36,  36,
    37,  37,  37,  38,  38,  38,  39,  39,  40,  40,  40,  41,  41,  41,  42,  42,  43,  43,  43,  44,  44,  45,
    45,  45,  46,  46,  47,  47,  47,  48,  48,  49,  49,  49,  50,  50,  51,  51,  52,  52,  52,  53,  53,  54,
    54,  55,  55,  56,  56,  57,  57,  57,  58,  58,  59,  59,  60,  60,  61,  61,  62,  62,  63,  63,  64,  64,
    65,  65,  66,  66,  67,  68,  68,  69,  69,  70,  70,  71,  72,  72,  73,  73,  74,  75,  75,  76,  76,  77,
    78,  78,  79,  80,  80,  81,  82,  83,  83,  84,  85,  85,  86,  87,  88,  89,  89,  90,  91,  92,  93,  94,
    95,  96,  97,  98,  99,  100, 101, 102, 103, 104, 105, 107, 108, 109, 111, 112, 113, 115, 117, 118, 120, 122,
    124, 126, 128, 131, 133, 136, 139, 143, 147, 152, 158, 165, 176, 198};

DT_PIXEL_FN int dt_noise_level(int quantile, double deviation) {
    return (int)lround(dt_dmul(dt_dmul(dt_half_normal[quantile] / 64.0, deviation), 255));
}

DT_PIXEL_FN uint8_t dt_clamp_byte(int v) {
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

// ---- geometry ----------------------------------------------------------------------------------------
typedef struct dt_pixel_source {
    const uint8_t *data;
    int width, height, channels;
    int fill; // of what lies outside: a level; below 0: edges repeated
    int nearest;
} dt_pixel_source;

DT_PIXEL_FN int dt_clamp_index(int64_t v, int high) {
    return v < 0 ? 0 : v > high ? high : (int)v;
}

// Whole place (x, y), which may be outside.
DT_PIXEL_FN void dt_take_pixel(const dt_pixel_source *s, int64_t x, int64_t y, uint8_t *out) {
    const int c = s->channels;
    if (s->fill >= 0 && (x < 0 || y < 0 || x >= s->width || y >= s->height)) {
        for (int i = 0; i < c; i++) out[i] = (uint8_t)s->fill;
        return;
    }
    const uint8_t *p =
        s->data + ((int64_t)dt_clamp_index(y, s->height - 1) * s->width + dt_clamp_index(x, s->width - 1)) * c;
    for (int i = 0; i < c; i++) out[i] = p[i];
}

// A place between pixels, 16.16: with a fill, what is outside by its centre takes it.
DT_PIXEL_FN void dt_sample_pixel(const dt_pixel_source *s, int64_t fx, int64_t fy, uint8_t *out) {
    const int c = s->channels, w = s->width, h = s->height;
    if (s->fill >= 0 || s->nearest) {
        const int64_t x = (fx + 32768) >> 16, y = (fy + 32768) >> 16;
        if (s->nearest || x < 0 || y < 0 || x >= w || y >= h) {
            dt_take_pixel(s, x, y, out);
            return;
        }
    }
    uint32_t wx = (uint32_t)(fx >> 8 & 255), wy = (uint32_t)(fy >> 8 & 255);
    int x0 = dt_clamp_index(fx >> 16, w - 1), x1 = dt_clamp_index((fx >> 16) + 1, w - 1);
    int y0 = dt_clamp_index(fy >> 16, h - 1), y1 = dt_clamp_index((fy >> 16) + 1, h - 1);
    const uint8_t *top = s->data + (int64_t)y0 * (w * c), *low = s->data + (int64_t)y1 * (w * c);
    for (int i = 0; i < c; i++) {
        uint32_t a = top[x0 * c + i] * (256 - wx) + top[x1 * c + i] * wx;
        uint32_t b = low[x0 * c + i] * (256 - wx) + low[x1 * c + i] * wx;
        out[i] = (uint8_t)((a * (256 - wy) + b * wy + (1u << 15)) >> 16);
    }
}

// A perspective goes along a row in pieces, each from its own beginning: a rounded value belongs to its place.
enum { DT_PERSPECTIVE_PIECE = 256 };

// m[0] x + m[1] y + m[2]
DT_PIXEL_FN double dt_line_begin(const double *m, int x, int y) {
    return dt_dadd(dt_dadd(dt_dmul(m[0], x), dt_dmul(m[1], y)), m[2]);
}
DT_PIXEL_FN double dt_line_at(double first, double step, int i) {
    return dt_dadd(first, dt_dmul(step, i));
}
DT_PIXEL_FN double dt_at_least(double v, double least) {
    return v > least ? v : least;
}
DT_PIXEL_FN double dt_at_most(double v, double most) {
    return v < most ? v : most;
}
#define DT_PERSPECTIVE_NEAR 1e-9              // of the denominator: what is behind the viewer is far away
#define DT_PERSPECTIVE_FAR  (20000 * 65536.0) // outside of any image, inside of 16.16
// 65536 p / q, rounded down, once it is within DT_PERSPECTIVE_FAR
DT_PIXEL_FN double dt_ratio(double p, double q) {
    return dt_dadd(dt_dmul(p, 65536) / q, 0.5);
}
DT_PIXEL_FN int32_t dt_floor_fixed(double v) {
    return (int32_t)v - (v < (int32_t)v);
}
// Source place of an output pixel, 16.16.
DT_PIXEL_FN void dt_perspective_place(const double *m, int x, int y, int32_t *fx, int32_t *fy) {
    const int i = x % DT_PERSPECTIVE_PIECE, x0 = x - i;
    const double q = dt_at_least(dt_line_at(dt_line_begin(m + 6, x0, y), m[6], i), DT_PERSPECTIVE_NEAR);
    const double px = dt_ratio(dt_line_at(dt_line_begin(m, x0, y), m[0], i), q);
    const double py = dt_ratio(dt_line_at(dt_line_begin(m + 3, x0, y), m[3], i), q);
    *fx = dt_floor_fixed(dt_at_most(dt_at_least(px, -DT_PERSPECTIVE_FAR), DT_PERSPECTIVE_FAR));
    *fy = dt_floor_fixed(dt_at_most(dt_at_least(py, -DT_PERSPECTIVE_FAR), DT_PERSPECTIVE_FAR));
}

// ---- the steps of values ------------------------------------------------------------------------------
#define BYTE(id, reads_mean, e)                                                                                        \
    DT_PIXEL_FN uint8_t dt_step_##id(const dt_pixel_step *s, int m, uint8_t v) {                                       \
        return (uint8_t)(e);                                                                                           \
    }
#define LUMA(id, e)                                                                                                    \
    DT_PIXEL_FN uint8_t dt_step_##id(const dt_pixel_step *s, uint8_t y, uint8_t v) {                                   \
        return (uint8_t)(e);                                                                                           \
    }
#define RGB(id, e)                                                                                                     \
    DT_PIXEL_FN void dt_step_##id(const dt_pixel_step *s, uint8_t *rgb) {                                              \
        e;                                                                                                             \
    }
#include "batch/pixel_steps.def"

#endif
