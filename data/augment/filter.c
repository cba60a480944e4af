// filter.c: operations that look at neighbours, and rectangles.
//
// Blur is separable. Weights are computed in double and rounded to 16 fractional bits; the middle one takes
// what rounding left over, so that a flat image stays flat. Rows keep 8 fractional bits between the two passes;
// the sums fit unsigned 32 bits. Both passes run along memory.
#include "pixels.h"

#include "base/vectorize.h"
#include "batch/pixel_math.h"

#include <math.h>
#include <string.h>

// ---- sharpness -----------------------------------------------------------------------------------------
// Interior bytes of a row.
VECTORIZED static void sharpen_row(const uint8_t *restrict up, const uint8_t *restrict row,
                                   const uint8_t *restrict down, uint8_t *restrict dst, int n, int c, float factor) {
    for (int i = c; i < n - c; i++) dst[i] = dt_sharpen(up, row, down, i, c, factor);
}

dt_status dt_pixels_sharpness(dt_image *image, float factor, dt_buffer *scratch) {
    int w = image->width, h = image->height, c = image->channels;
    size_t stride = (size_t)w * (size_t)c;
    if (w < 3 || h < 3) return DT_OK;
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
        pdf[k] = exp(-0.5 * (k / sigma) * (k / sigma));
        sum += k ? 2 * pdf[k] : pdf[k];
    }
    uint32_t sides = 0;
    for (int k = 1; k <= half; k++) {
        weight[k] = (uint32_t)lround(pdf[k] / sum * (1 << DT_BLUR_BITS));
        sides += 2 * weight[k];
    }
    weight[0] = (1u << DT_BLUR_BITS) - sides;
    while (half > 0 && weight[half] == 0) half--;
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
    uint32_t *sums = (uint32_t *)p;
    uint16_t *rows = (uint16_t *)(p + n_sums);
    uint8_t *padded = p + n_sums + n_rows;
    for (int y = 0; y < h; y++) {
        filter_pad_row(image->data + (size_t)y * (size_t)n, w, c, half, padded);
        blur_row(padded, sums, rows + (size_t)y * (size_t)n, n, c, half, weight);
    }
    for (int y = 0; y < h; y++) {
        begin_row(sums, rows + (size_t)y * (size_t)n, n, weight[0]);
        for (int k = 1; k <= half; k++)
            add_rows(sums, rows + (size_t)dt_mirror_index(y - k, h) * (size_t)n,
                     rows + (size_t)dt_mirror_index(y + k, h) * (size_t)n, n, weight[k]);
        end_row(sums, image->data + (size_t)y * (size_t)n, n);
    }
    return DT_OK;
}

// ---- noise -----------------------------------------------------------------------------------------------
void dt_pixels_noise(dt_image *image, double deviation, const dt_rng *r) {
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    uint32_t words[4][DT_PHILOX_EIGHT];
    int16_t level[2][256];
    for (int i = 0; i < 256; i++) {
        level[0][i] = (int16_t)dt_noise_level(i, deviation);
        level[1][i] = (int16_t)-level[0][i];
    }
    for (size_t i = 0; i < n; i += 2) { // two values a word
        size_t word = i / 2, block = word / 4;
        if (word % (4 * DT_PHILOX_EIGHT) == 0) dt_philox_eight(r, (uint32_t)block, words);
        uint32_t v = words[word % 4][block % DT_PHILOX_EIGHT];
        for (size_t k = i; k < i + 2 && k < n; k++, v >>= 16)
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
    for (int y = 1; y < r.h; y++) memcpy(first + (size_t)y * stride, first, (size_t)r.w * c);
}

static void filter_fill_random(const dt_rng *r, dt_image *image, dt_rect at) {
    size_t c = (size_t)image->channels, n = (size_t)at.w * c;
    uint32_t block[4], n_blocks = 0;
    for (int y = 0; y < at.h; y++) {
        uint8_t *p = image->data + ((size_t)(at.y + y) * (size_t)image->width + (size_t)at.x) * c;
        for (size_t i = 0; i < n; i += sizeof block) {
            uint32_t counter[4] = {DT_PATCH_FIRST_BLOCK + n_blocks++, r->slot, r->step, r->purpose};
            dt_philox4x32(r->seed, counter, block);
            memcpy(p + i, block, n - i < sizeof block ? n - i : sizeof block);
        }
    }
}

void dt_pixels_patch(dt_image *image, dt_rect at, int with, const dt_rng *r) {
    uint8_t value[3];
    if (with == DT_PATCH_RANDOM) {
        filter_fill_random(r, image, at);
        return;
    }
    memset(value, with < 0 ? 0 : with, sizeof value);
    if (with == DT_PATCH_MEAN) dt_pixels_mean(image, value);
    dt_pixels_fill(image, at, value);
}
