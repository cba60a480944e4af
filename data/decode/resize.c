// resize.c: bilinear resampling with antialiasing, separable, in fixed point.
//
// For each output position the filter is a triangle centred on its place in the source, as wide as the
// scale when shrinking (so that every source pixel counts) and one pixel when enlarging. Weights are
// normalised in double, rounded to 22 fractional bits, and applied first along rows, then along
// columns, each pass rounding to 8 bits: the procedure of Pillow's Image.resize, so the bytes agree
// with what a model trained under torchvision has seen (tests compare with values that Pillow made).
//
// Only the rows that the vertical pass needs are made. The vertical pass runs along memory and
// vectorises; the horizontal one works on whole pixels of 1 or 3 channels.
#include "decode.h"

#include "base/arena.h"
#include "data/vectorize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRACTION_BITS = 22 };

// Weights of one axis.
typedef struct axis {
    int n_out, n_taps; // taps stored a position
    dt_buffer first;   // int[n_out][2]: first source position, count
    dt_buffer weight;  // int32[n_out][n_taps]
    int in_size;       // what they were made for
    double low, high;
} axis;

struct dt_resizer {
    axis x, y;
    dt_buffer rows, row_double, sums;
};

dt_resizer *dt_resizer_create(void) {
    return dt_xcalloc(1, sizeof(dt_resizer));
}

void dt_resizer_destroy(dt_resizer *r) {
    if (!r) return;
    dt_buffer_fini(&r->x.first);
    dt_buffer_fini(&r->x.weight);
    dt_buffer_fini(&r->y.first);
    dt_buffer_fini(&r->y.weight);
    dt_buffer_fini(&r->rows);
    dt_buffer_fini(&r->row_double);
    dt_buffer_fini(&r->sums);
    free(r);
}

static int clamp_int(int v, int low, int high) {
    return v < low ? low : v > high ? high : v;
}

static void fill_position(const axis *a, int i, double scale, double support, double *w, int *first,
                          int32_t *weight) {
    double center = a->low + (i + 0.5) * scale, inverse = 1.0 / (scale < 1 ? 1 : scale), sum = 0;
    int begin = clamp_int((int)(center - support + 0.5), 0, a->in_size - 1);
    int end = clamp_int((int)(center + support + 0.5), begin + 1, a->in_size);
    for (int k = begin; k < end; k++) {
        double t = fabs((k - center + 0.5) * inverse);
        w[k - begin] = t < 1 ? 1 - t : 0;
        sum += w[k - begin];
    }
    for (int k = 0; k < end - begin; k++) {
        double v = (sum != 0 ? w[k] / sum : w[k]) * (1 << FRACTION_BITS);
        weight[k] = (int32_t)(v + 0.5);
    }
    first[0] = begin;
    first[1] = end - begin;
}

// Makes the weights unless they are there already: a data set of one image size makes them once.
static bool prepare_axis(dt_resizer *r, axis *a, int in_size, double low, double high, int n_out) {
    if (a->n_out == n_out && a->in_size == in_size && a->low == low && a->high == high) return true;
    double scale = (high - low) / n_out, support = scale < 1 ? 1 : scale;
    a->n_taps = (int)ceil(support) * 2 + 1;
    a->n_out = 0;
    int *first = (int *)dt_buffer_reserve(&a->first, (size_t)n_out * 2 * sizeof(int));
    int32_t *weight = (int32_t *)dt_buffer_reserve(&a->weight, (size_t)n_out * (size_t)a->n_taps *
                                                                   sizeof(int32_t));
    double *w = (double *)dt_buffer_reserve(&r->row_double, (size_t)a->n_taps * sizeof(double));
    if (!first || !weight || !w) return false;
    a->in_size = in_size;
    a->low = low;
    a->high = high;
    for (int i = 0; i < n_out; i++)
        fill_position(a, i, scale, support, w, first + 2 * i,
                      weight + (size_t)i * (size_t)a->n_taps);
    a->n_out = n_out;
    return true;
}

static uint8_t clip(int32_t v) {
    v >>= FRACTION_BITS;
    return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v;
}

VECTORIZED static void resize_row(const axis *a, const uint8_t *restrict src, uint8_t *restrict dst,
                                  int channels) {
    const int *first = (const int *)a->first.data;
    const int32_t *weight = (const int32_t *)a->weight.data;
    const int32_t half = 1 << (FRACTION_BITS - 1);
    for (int i = 0; i < a->n_out; i++, first += 2, weight += a->n_taps) {
        const uint8_t *p = src + (size_t)first[0] * (size_t)channels;
        if (channels == 1) {
            int32_t s = half;
            for (int k = 0; k < first[1]; k++) s += weight[k] * p[k];
            dst[i] = clip(s);
        } else {
            int32_t s0 = half, s1 = half, s2 = half;
            for (int k = 0; k < first[1]; k++) {
                s0 += weight[k] * p[3 * k];
                s1 += weight[k] * p[3 * k + 1];
                s2 += weight[k] * p[3 * k + 2];
            }
            dst[3 * i] = clip(s0);
            dst[3 * i + 1] = clip(s1);
            dst[3 * i + 2] = clip(s2);
        }
    }
}

VECTORIZED static void add_row(int32_t *restrict sums, const uint8_t *restrict row, int32_t weight,
                               size_t n) {
    for (size_t i = 0; i < n; i++) sums[i] += weight * row[i];
}

VECTORIZED static void clip_row(const int32_t *restrict sums, uint8_t *restrict dst, size_t n) {
    for (size_t i = 0; i < n; i++) dst[i] = clip(sums[i]);
}

dt_status dt_resize(dt_resizer *r, const dt_image *src, const double box[4], uint8_t *dst,
                    int dst_h, int dst_w) {
    const double whole[4] = {0, 0, src->width, src->height};
    if (!box) box = whole;
    size_t n = (size_t)dst_w * (size_t)src->channels;
    bool ok = prepare_axis(r, &r->x, src->width, box[0], box[2], dst_w) &&
              prepare_axis(r, &r->y, src->height, box[1], box[3], dst_h);
    if (!ok) return dt_fail(DT_E_INTERNAL, "out of memory to resize an image");
    const int *first = (const int *)r->y.first.data;
    int top = first[0], bottom = first[2 * (dst_h - 1)] + first[2 * (dst_h - 1) + 1];
    uint8_t *rows = dt_buffer_reserve(&r->rows, n * (size_t)(bottom - top));
    int32_t *sums = (int32_t *)dt_buffer_reserve(&r->sums, n * sizeof *sums);
    if (!rows || !sums) return dt_fail(DT_E_INTERNAL, "out of memory to resize an image");
    size_t stride = (size_t)src->width * (size_t)src->channels;
    for (int y = top; y < bottom; y++)
        resize_row(&r->x, src->data + stride * (size_t)y, rows + n * (size_t)(y - top),
                   src->channels);
    const int32_t *weight = (const int32_t *)r->y.weight.data;
    for (int y = 0; y < dst_h; y++) {
        for (size_t i = 0; i < n; i++) sums[i] = 1 << (FRACTION_BITS - 1);
        for (int k = 0; k < first[2 * y + 1]; k++)
            add_row(sums, rows + n * (size_t)(first[2 * y] + k - top),
                    weight[(size_t)y * (size_t)r->y.n_taps + (size_t)k], n);
        clip_row(sums, dst + n * (size_t)y, n);
    }
    return DT_OK;
}
