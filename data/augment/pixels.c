// pixels.c: augmentation of pixels: colours and filters.

#include "augment.h"

#include "base/bits.h"
#include "batch/pixel_math.h"

#include <math.h>
#include <string.h>

// ---- colour -------------------------------------------------------------------------------------------------------

// Steps that change values, pixel by pixel, as loops that vectorise, one a line of pixel_steps.def. What
// they do to a pixel is in batch/pixel_math.h, which a device shares.
//
// Brightness, contrast, saturation and sharpness are one blend, degenerate + factor * (image -
// degenerate), computed as Pillow does it: in single precision, each operation rounded, the fraction
// dropped at the end. Histogram operations become a table of 256 bytes a channel.
//
// RGB is taken apart into planes of a few hundred pixels on the stack, which is what vectorises.

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
    if (image->channels == 1) sum = colour_sum_of(image->data, n); // gray is its own luma
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
    return (int)lround(turn * 6 * (1 << DT_HUE_BITS)); // a turn has six sextants of 2^DT_HUE_BITS
}

int dt_solarize_from(double threshold) {
    double from = ceil(threshold);
    return from < 0 ? 0 : from > 256 ? 256 : (int)from; // 256: above every byte, nothing is inverted
}

int dt_posterize_mask(int bits) {
    return 0xff00 >> bits & 0xff; // the upper `bits` bits
}

typedef void luma_loop(uint8_t *restrict rgb, const uint8_t *restrict y, size_t n, const dt_pixel_step *restrict s);

static void play_luma(dt_image *image, const dt_pixel_step *s, luma_loop *loop) {
    uint8_t luma[BLOCK];
    size_t n = n_pixels(image);
    for (size_t at = 0; image->channels == 3 && at < n; at += BLOCK) {
        size_t k = n - at < BLOCK ? n - at : BLOCK; // the luma of the block before it changes
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

// ---- filter -------------------------------------------------------------------------------------------------------

// Operations that look at neighbours, and rectangles.
//
// Blur is separable. Weights are computed in double and rounded to 16 fractional bits; the middle one takes
// what rounding left over, so that a flat image stays flat. Rows keep 8 fractional bits between the two passes;
// the sums fit unsigned 32 bits. Both passes run along memory.

// ---- sharpness -----------------------------------------------------------------------------------------
// Interior bytes of a row.
VECTORIZED static void sharpen_row(const uint8_t *restrict up, const uint8_t *restrict row,
                                   const uint8_t *restrict down, uint8_t *restrict dst, int n, int c, float factor) {
    for (int i = c; i < n - c; i++) dst[i] = dt_sharpen(up, row, down, i, c, factor);
}

dt_status dt_pixels_sharpness(dt_image *image, float factor, dt_buffer *scratch) {
    int w = image->width, h = image->height, c = image->channels;
    size_t stride = (size_t)w * (size_t)c;
    if (w < 3 || h < 3) return DT_OK; // no interior: Pillow leaves the border as it is
    uint8_t *copy = dt_buffer_reserve(scratch, stride * (size_t)h);
    if (!copy) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(copy, image->data, stride * (size_t)h);
    for (int y = 1; y < h - 1; y++) {
        const uint8_t *row = copy + (size_t)y * stride;
        sharpen_row(row - stride, row, row + stride, image->data + (size_t)y * stride, (int)stride, c, factor);
    }
    return DT_OK;
}

// ---- blur ------------------------------------------------------------------------------------------------
int dt_blur_weights(int kernel, double sigma, uint32_t weight[DT_MAX_BLUR + 1]) {
    double pdf[DT_MAX_BLUR + 1], sum = 0;
    int half = kernel / 2 < DT_MAX_BLUR ? kernel / 2 : DT_MAX_BLUR;
    for (int k = 0; k <= half; k++) {
        pdf[k] = exp(-0.5 * (k / sigma) * (k / sigma)); // of one side: the other is the same
        sum += k ? 2 * pdf[k] : pdf[k];
    }
    uint32_t sides = 0;
    for (int k = 1; k <= half; k++) {
        weight[k] = (uint32_t)lround(pdf[k] / sum * (1 << DT_BLUR_BITS));
        sides += 2 * weight[k];
    }
    weight[0] = (1u << DT_BLUR_BITS) - sides;     // what rounding left over
    while (half > 0 && weight[half] == 0) half--; // a narrow sigma in a wide kernel
    return half;
}

VECTORIZED static void blur_row(const uint8_t *restrict padded, uint32_t *restrict sums, uint16_t *restrict dst, int n,
                                int c, int half, const uint32_t *restrict weight) {
    const uint8_t *mid = padded + half * c;
    for (int i = 0; i < n; i++) sums[i] = DT_BLUR_ROW_HALF + weight[0] * mid[i];
    for (int k = 1; k <= half; k++) {
        const uint8_t *a = mid - k * c, *b = mid + k * c;
        uint32_t w = weight[k];
        for (int i = 0; i < n; i++) sums[i] += w * (uint32_t)(a[i] + b[i]);
    }
    for (int i = 0; i < n; i++) dst[i] = dt_blur_row_end(sums[i]);
}

VECTORIZED static void add_rows(uint32_t *restrict sums, const uint16_t *restrict a, const uint16_t *restrict b, int n,
                                uint32_t w) {
    for (int i = 0; i < n; i++) sums[i] += w * ((uint32_t)a[i] + b[i]);
}

VECTORIZED static void begin_row(uint32_t *restrict sums, const uint16_t *restrict a, int n, uint32_t w) {
    for (int i = 0; i < n; i++) sums[i] = DT_BLUR_COLUMN_HALF + w * a[i];
}

VECTORIZED static void end_row(const uint32_t *restrict sums, uint8_t *restrict dst, int n) {
    for (int i = 0; i < n; i++) dst[i] = dt_blur_column_end(sums[i]);
}

static void filter_pad_row(const uint8_t *row, int w, int c, int half, uint8_t *padded) {
    memcpy(padded + half * c, row, (size_t)(w * c));
    for (int k = 1; k <= half; k++) {
        memcpy(padded + (half - k) * c, row + dt_mirror_index(-k, w) * c, (size_t)c);
        memcpy(padded + (half + w - 1 + k) * c, row + dt_mirror_index(w - 1 + k, w) * c, (size_t)c);
    }
}

dt_status dt_pixels_blur(dt_image *image, int half, const uint32_t *weight, dt_buffer *scratch) {
    int w = image->width, h = image->height, c = image->channels, n = w * c;
    size_t n_sums = (size_t)n * sizeof(uint32_t), n_rows = (size_t)n * (size_t)h * sizeof(uint16_t);
    uint8_t *p = dt_buffer_reserve(scratch, n_sums + n_rows + (size_t)((w + 2 * half) * c));
    if (!p) return dt_fail(DT_E_INTERNAL, "out of memory");
    // scratch: sums of a row (4 bytes each), all rows (2 bytes each), one padded row
    uint32_t *sums = (uint32_t *)p;
    uint16_t *rows = (uint16_t *)(p + n_sums);
    uint8_t *padded = p + n_sums + n_rows;
    for (int y = 0; y < h; y++) {
        // pass one: along rows, into `rows` with 8 fractional bits
        filter_pad_row(image->data + (size_t)y * (size_t)n, w, c, half, padded);
        blur_row(padded, sums, rows + (size_t)y * (size_t)n, n, c, half, weight);
    }
    for (int y = 0; y < h; y++) {
        // pass two: along columns, a whole row at a time, as columns would miss the cache
        begin_row(sums, rows + (size_t)y * (size_t)n, n, weight[0]);
        for (int k = 1; k <= half; k++)
            add_rows(sums, rows + (size_t)dt_mirror_index(y - k, h) * (size_t)n,
                     rows + (size_t)dt_mirror_index(y + k, h) * (size_t)n, n, weight[k]);
        end_row(sums, image->data + (size_t)y * (size_t)n, n);
    }
    return DT_OK;
}

// ---- noise -----------------------------------------------------------------------------------------------
// Gaussian, `deviation` in 0..1 of the range, from r's stream. A Philox block gives eight values: of each
// 16 bits, the lower byte chooses the quantile and the top bit the sign.
static void add_noise(dt_image *image, double deviation, const dt_rng *r) {
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    uint32_t words[4][DT_PHILOX_EIGHT];
    int16_t level[2][256];
    for (int i = 0; i < 256; i++) {
        level[0][i] = (int16_t)dt_noise_level(i, deviation);
        level[1][i] = (int16_t)-level[0][i];
    }
    for (size_t i = 0; i < n; i += 2) {        // two values a word
        size_t word = i / 2, block = word / 4; // Philox gives four words a block
        // eight blocks at a time; words[w][b] is word w of block b
        if (word % (4 * DT_PHILOX_EIGHT) == 0) dt_philox_eight(r, (uint32_t)block, words);
        uint32_t v = words[word % 4][block % DT_PHILOX_EIGHT];
        for (size_t k = i; k < i + 2 && k < n; k++, v >>= 16)
            // a byte for the size, a bit for the sign
            image->data[k] = dt_clamp_byte(image->data[k] + level[v >> 15 & 1][v & 255]);
    }
}

// ---- rectangles --------------------------------------------------------------------------------------------
void dt_pixels_mean(const dt_image *image, uint8_t mean[3]) {
    uint64_t n = (uint64_t)image->width * (uint64_t)image->height, sum[3] = {0};
    const uint8_t *p = image->data;
    for (uint64_t i = 0; i < n; i++)
        for (int k = 0; k < image->channels; k++) sum[k] += *p++;
    for (int k = 0; k < image->channels; k++) mean[k] = dt_mean_byte(sum[k], n);
}

void dt_pixels_fill(dt_image *image, dt_rect r, const uint8_t value[3]) {
    size_t c = (size_t)image->channels, stride = (size_t)image->width * c;
    if (r.w <= 0 || r.h <= 0) return;
    uint8_t *first = image->data + (size_t)r.y * stride + (size_t)r.x * c;
    for (int x = 0; x < r.w; x++) memcpy(first + (size_t)x * c, value, c);
    // the first row is the pattern
    for (int y = 1; y < r.h; y++) memcpy(first + (size_t)y * stride, first, (size_t)r.w * c);
}

static void filter_fill_random(const dt_rng *r, dt_image *image, dt_rect at) {
    size_t c = (size_t)image->channels, n = (size_t)at.w * c;
    uint32_t block[4], n_blocks = 0;
    for (int y = 0; y < at.h; y++) {
        uint8_t *p = image->data + ((size_t)(at.y + y) * (size_t)image->width + (size_t)at.x) * c;
        for (size_t i = 0; i < n; i += sizeof block) {
            // behind the blocks that the draws of the rectangle take
            uint32_t counter[4] = {DT_PATCH_FIRST_BLOCK + n_blocks++, r->slot, r->step, r->purpose};
            dt_philox4x32(r->seed, counter, block);
            memcpy(p + i, block, n - i < sizeof block ? n - i : sizeof block);
        }
    }
}

// Fills a rectangle with a level, the image's mean, or random bytes of r numbered within it (`with`:
// pixel_steps.h).
static void fill_patch(dt_image *image, dt_rect at, int with, const dt_rng *r) {
    uint8_t value[3];
    if (with == DT_PATCH_RANDOM) {
        filter_fill_random(r, image, at);
        return;
    }
    memset(value, with < 0 ? 0 : with, sizeof value); // with: a byte, or one of the words below 0
    if (with == DT_PATCH_MEAN) dt_pixels_mean(image, value);
    dt_pixels_fill(image, at, value);
}

// ---- play ---------------------------------------------------------------------------------------------------------

// A step of pixel_steps.h on the host: which loop it is.

static dt_status play_move(dt_image *image, const dt_pixel_step *s, dt_buffer *scratch) {
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    uint8_t *copy = dt_buffer_reserve(scratch, n);
    if (!copy) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(copy, image->data, n);
    dt_image src = *image; // a move reads pixels that it has overwritten
    src.data = copy;
    dt_pixels_warp_step(&src, s, image->data);
    return DT_OK;
}

dt_status dt_pixels_play(dt_image *image, const dt_pixel_step *s, dt_buffer *scratch) {
    if (dt_pixels_values(image, s)) return DT_OK;
    switch (s->kind) {
    case DT_PIXEL_END:
        return DT_OK;
    case DT_PIXEL_MOVE:
    case DT_PIXEL_WARP:
    case DT_PIXEL_PERSPECTIVE:
        return play_move(image, s, scratch);
    case DT_PIXEL_PATCH:
        fill_patch(image, (dt_rect){s->as.patch.x, s->as.patch.y, s->as.patch.w, s->as.patch.h}, s->as.patch.with,
                   &s->as.patch.r);
        return DT_OK;
    case DT_PIXEL_NOISE:
        add_noise(image, s->as.noise.deviation, &s->as.noise.r);
        return DT_OK;
    case DT_PIXEL_SHARPNESS:
        return dt_pixels_sharpness(image, s->as.factor, scratch);
    case DT_PIXEL_BLUR:
        return dt_pixels_blur(image, s->as.blur.half, s->as.blur.weight, scratch);
    }
    return dt_fail(DT_E_INTERNAL, "no step of pixels is %d", s->kind);
}
