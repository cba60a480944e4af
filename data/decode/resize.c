// resize.c: bilinear resampling with antialiasing, separable, in fixed point.
//
// For each output position the filter is a triangle centred on its place in the source, as wide as the scale
// when shrinking (so that every source pixel counts) and one pixel wide when enlarging. Weights are normalised
// in double, rounded to 22 fractional bits, and applied along rows, then along columns, each pass rounding to 8
// bits. This is the procedure of Pillow's Image.resize, so the bytes are what a model trained under torchvision
// has seen (tests compare with Pillow's). Rows always come first here; Pillow 13 begins with columns where the
// height shrinks much more than the width, which now and then changes a byte by one.
//
// Positions are those of the full image, even if only a region of it was decoded: same weights, same bytes.
// Only the rows that the vertical pass needs are made, and they live in a small sliding window, so they stay in
// the L1 cache. The hot loops are in resize_avx2.c and resize_vectors.c; those here are for grey, and for rows
// at the very end of the memory.
//
// A mirrored result costs nothing: output position i takes the weights of position n - 1 - i.
//
// Of an image in rows one or two are in memory at a time, beside the window.
#include "decode.h"

#include "base/bits.h"
#include "base/core.h"
#include "resize_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct dt_resizer {
    const dt_resize_rows *fast; // or NULL
    dt_resize_axis x, y;
    dt_buffer rows, row_double, source; // source: rows of an image that comes in rows
};

dt_resizer *dt_resizer_create(void) {
    dt_resizer *r = dt_xcalloc(1, sizeof *r);
    r->fast = dt_resize_rows_avx2();
    if (!r->fast) r->fast = dt_resize_rows_vectors();
    return r;
}

static void axis_fini(dt_resize_axis *a) {
    dt_buffer_fini(&a->first);
    dt_buffer_fini(&a->weight);
    dt_buffer_fini(&a->packed);
    dt_buffer_fini(&a->offset);
}

void dt_resizer_destroy(dt_resizer *r) {
    if (!r) return;
    axis_fini(&r->x);
    axis_fini(&r->y);
    dt_buffer_fini(&r->rows);
    dt_buffer_fini(&r->row_double);
    dt_buffer_fini(&r->source);
    free(r);
}

// ---- weights -----------------------------------------------------------------------------------------
static int resize_clamp_int(int v, int low, int high) {
    return v < low ? low : v > high ? high : v;
}

// Source positions of output i; the filter's centre.
static double taps_of(double low, double scale, int i, int size, int *begin, int *end) {
    // a triangle of two source pixels, wider by the scale when shrinking
    double support = scale < 1 ? 1 : scale, center = low + (i + 0.5) * scale;
    // Pillow's rounding: a tap more or less would change bytes
    *begin = resize_clamp_int((int)(center - support + 0.5), 0, size - 1);
    *end = resize_clamp_int((int)(center + support + 0.5), *begin + 1, size);
    return center;
}

void dt_resize_reach(double low, double high, int n_out, int size, int *begin, int *end) {
    int unused;
    double scale = (high - low) / n_out;
    taps_of(low, scale, 0, size, begin, &unused);
    taps_of(low, scale, n_out - 1, size, &unused, end);
}

// Weights, which sum to 1, of output i and the positions [begin, end) that they are for.
static void weights_of(double low, double high, int n_out, int size, int i, double *w, int *begin, int *end) {
    double scale = (high - low) / n_out, center = taps_of(low, scale, i, size, begin, end);
    double inverse = 1.0 / (scale < 1 ? 1 : scale), sum = 0;
    int n = *end - *begin;
    for (int k = 0; k < n; k++) {
        double t = fabs((k + *begin - center + 0.5) * inverse);
        w[k] = t < 1 ? 1 - t : 0;
        sum += w[k];
    }
    for (int k = 0; k < n && sum != 0; k++) w[k] /= sum;
}

static void fill_position(const dt_resize_axis *a, int i, double *w, int *first, int32_t *weight) {
    int begin, end, of = a->mirror ? a->n_out - 1 - i : i;
    weights_of(a->low, a->high, a->n_out, a->in_size, of, w, &begin, &end);
    for (int k = 0; k < end - begin; k++) weight[k] = (int32_t)(w[k] * (1 << DT_RESIZE_BITS) + 0.5);
    // so that each output has as many: the fast loop reads all
    for (int k = end - begin; k < a->n_taps; k++) weight[k] = 0;
    first[0] = begin;
    first[1] = end - begin;
}

static int max_taps(double low, double high, int n_out) {
    double scale = (high - low) / n_out;
    return (int)ceil(scale < 1 ? 1 : scale) * 2 + 1;
}

// Makes the weights unless they are there already: a data set of one image size makes them once.
static bool prepare_axis(dt_resizer *r, dt_resize_axis *a, int in_size, double low, double high, int n_out,
                         bool mirror) {
    if (a->n_out == n_out && a->in_size == in_size && a->low == low && a->high == high && a->mirror == mirror)
        return true;
    a->n_taps = max_taps(low, high, n_out);
    a->n_out = 0; // nothing is valid if memory fails
    int *first = (int *)dt_buffer_reserve(&a->first, (size_t)n_out * 2 * sizeof(int));
    int32_t *weight = (int32_t *)dt_buffer_reserve(&a->weight, (size_t)n_out * (size_t)a->n_taps * sizeof(int32_t));
    double *w = (double *)dt_buffer_reserve(&r->row_double, (size_t)a->n_taps * sizeof(double));
    if (!first || !weight || !w) return false;
    a->in_size = in_size;
    a->low = low;
    a->high = high;
    a->mirror = mirror;
    a->n_out = n_out;
    a->max_count = 0;
    a->is_packed = false;
    for (int i = 0; i < n_out; i++) {
        fill_position(a, i, w, first + 2 * i, weight + (size_t)i * (size_t)a->n_taps);
        if (first[2 * i + 1] > a->max_count) a->max_count = first[2 * i + 1];
    }
    return true;
}

// ---- passes ------------------------------------------------------------------------------------------
static uint8_t clip(int32_t v) {
    v >>= DT_RESIZE_BITS; // an arithmetic shift: sums below 0 stay below
    return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v;
}

VECTORIZED static void row_across(const dt_resize_axis *a, int left, const uint8_t *restrict src, uint8_t *restrict dst,
                                  int channels) {
    const int *first = (const int *)a->first.data;
    const int32_t *weight = (const int32_t *)a->weight.data;
    const int32_t half = 1 << (DT_RESIZE_BITS - 1); // rounds
    for (int i = 0; i < a->n_out; i++, first += 2, weight += a->n_taps) {
        const uint8_t *p = src + (size_t)(first[0] - left) * (size_t)channels;
        if (channels != 3) {
            for (int c = 0; c < channels; c++) {
                int32_t s = half;
                for (int k = 0; k < first[1]; k++) s += weight[k] * p[k * channels + c];
                dst[i * channels + c] = clip(s);
            }
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

// 64 columns at a time, so that their sums stay in registers.
VECTORIZED static void row_down(const uint8_t *restrict rows, size_t stride, const int32_t *restrict weight, int n_taps,
                                uint8_t *restrict dst, size_t n) {
    enum { BLOCK = 64 };
    for (size_t x = 0; x < n; x += BLOCK) {
        int32_t sum[BLOCK];
        size_t m = n - x < BLOCK ? n - x : BLOCK;
        for (size_t i = 0; i < BLOCK; i++) sum[i] = 1 << (DT_RESIZE_BITS - 1);
        for (int k = 0; k < n_taps; k++) {
            const uint8_t *row = rows + (size_t)k * stride + x;
            for (size_t i = 0; i < m; i++) sum[i] += weight[k] * row[i];
        }
        for (size_t i = 0; i < m; i++) dst[x + i] = clip(sum[i]);
    }
}

enum { WINDOW = 16 }; // rows that are made before those still needed move to the front

typedef struct passes {
    dt_resizer *r;
    const dt_image *src;
    size_t src_stride;
    int n_fast;    // rows of src that have enough memory behind them for the fast loop; 0: none
    uint8_t *rows; // the window: rows of the full image, across, from `top` on
    size_t stride; // of one
    int top, made, bottom, capacity;
    int read; // rows of an image that comes in rows
} passes;

static bool begin_passes(passes *p, int top, int bottom, size_t n) {
    const dt_image *src = p->src;
    dt_resizer *r = p->r;
    p->src_stride = (size_t)src->width * (size_t)src->channels;
    p->stride = n + DT_RESIZE_SLACK;
    p->top = p->made = top;
    p->bottom = bottom;
    p->capacity = r->y.max_count + WINDOW;
    p->read = src->top;
    p->rows = dt_buffer_reserve(&r->rows, p->stride * (size_t)p->capacity);
    const size_t reads = 3 * (size_t)r->x.max_count + 16; // the fast loop loads 16 bytes where it needs 3
    if (!p->rows || (src->next && !dt_buffer_reserve(&r->source, 2 * p->src_stride + reads))) return false;
    if (!r->fast || src->channels != 3 || r->x.n_taps > 2 * DT_RESIZE_MAX_PAIRS) return true;
    if (!r->x.is_packed && !r->fast->pack(&r->x)) return false;
    r->x.is_packed = true;
    size_t behind = src->next ? reads : 0;
    p->n_fast = src->height;
    for (; p->n_fast > 0 && behind < reads; p->n_fast--) behind += p->src_stride;
    r->fast->place(&r->x, src->left);
    return true;
}

// Rows made.. of an image that comes in rows.
static dt_status read_rows(passes *p, int n) {
    const dt_image *src = p->src;
    for (; p->read < p->made; p->read++) DT_TRY(src->next(src->state, p->r->source.data)); // above what is needed
    for (int i = 0; i < n; i++, p->read++) DT_TRY(src->next(src->state, p->r->source.data + p->src_stride * (size_t)i));
    return DT_OK;
}

// The next row, or two, across.
static dt_status make_row(passes *p) {
    int y = p->made - p->src->top;
    bool two = y + 1 < p->n_fast && p->made + 1 < p->bottom; // two rows share the loads of the weights
    if (p->src->next) DT_TRY(read_rows(p, 1 + two));
    const uint8_t *from = p->src->next ? p->r->source.data : p->src->data + p->src_stride * (size_t)y;
    uint8_t *to = p->rows + p->stride * (size_t)(p->made - p->top);
    if (y >= p->n_fast) {
        row_across(&p->r->x, p->src->left, from, to, p->src->channels);
        p->made++;
        return DT_OK;
    }
    const uint8_t *both[2] = {from, two ? from + p->src_stride : from};
    uint8_t *to_both[2] = {to, two ? to + p->stride : to};
    p->r->fast->across(&p->r->x, both, to_both);
    p->made += 1 + two;
    return DT_OK;
}

// Rows first..end - 1 of the full image, across; both never fall. They are made right before they are needed, so that
// they are still near.
static dt_status resize_make_rows(passes *p, int first, int end, const uint8_t **rows) {
    if (end + 1 - p->top > p->capacity) { // one more may be made than is asked for
        if (p->made > first)
            memmove(p->rows, p->rows + p->stride * (size_t)(first - p->top), p->stride * (size_t)(p->made - first));
        else
            p->made = first; // rows between are not needed: the window jumps
        p->top = first;
    }
    while (p->made < end) DT_TRY(make_row(p));
    *rows = p->rows + p->stride * (size_t)(first - p->top);
    return DT_OK;
}

static dt_status resize_pixels(dt_resizer *r, const dt_image *src, const double box[4], bool mirror, uint8_t *dst,
                               int dst_h, int dst_w) {
    int full_w = src->full_width ? src->full_width : src->width;
    int full_h = src->full_height ? src->full_height : src->height;
    const double whole[4] = {0, 0, full_w, full_h};
    if (!box) box = whole;
    size_t n = (size_t)dst_w * (size_t)src->channels;
    if (!mirror && !src->next && src->width == dst_w && src->height == dst_h && memcmp(box, whole, sizeof whole) == 0) {
        memcpy(dst, src->data, n * (size_t)dst_h); // as Pillow's resize to the same size copies
        return DT_OK;
    }
    bool ok = prepare_axis(r, &r->x, full_w, box[0], box[2], dst_w, mirror) &&
              prepare_axis(r, &r->y, full_h, box[1], box[3], dst_h, false);
    if (!ok) return dt_fail(DT_E_INTERNAL, "out of memory to resize an image");
    const int *first = (const int *)r->y.first.data, *last = first + 2 * (dst_h - 1);
    passes p = {.r = r, .src = src};
    if (!begin_passes(&p, first[0], last[0] + last[1], n))
        return dt_fail(DT_E_INTERNAL, "out of memory to resize an image");
    const int32_t *weight = (const int32_t *)r->y.weight.data;
    bool fast = r->fast && r->y.n_taps <= 2 * DT_RESIZE_MAX_PAIRS && n >= DT_RESIZE_COLUMNS;
    for (int y = 0; y < dst_h; y++, first += 2, weight += r->y.n_taps, dst += n) {
        const uint8_t *rows;
        DT_TRY(resize_make_rows(&p, first[0], first[0] + first[1], &rows));
        (fast ? r->fast->down : row_down)(rows, p.stride, weight, first[1], dst, n);
    }
    return src->next ? src->next(src->state, NULL) : DT_OK;
}

dt_status dt_resize(dt_resizer *r, const dt_image *src, const double box[4], uint8_t *dst, int dst_h, int dst_w) {
    return resize_pixels(r, src, box, false, dst, dst_h, dst_w);
}

dt_status dt_resize_mirrored(dt_resizer *r, const dt_image *src, const double box[4], uint8_t *dst, int dst_h,
                             int dst_w) {
    return resize_pixels(r, src, box, true, dst, dst_h, dst_w);
}

// ---- floats ------------------------------------------------------------------------------------------
// Floats: the same filter and order for any number of channels; weights and sums in double, each pass rounded to float:
// Pillow's mode F, to the bit. Scientific arrays mostly come in the wanted size, so this is plain code.
// out[j] = sum over taps of w[k] * in[(first + k) * step + j], j < n
static void resize_weigh(const float *in, size_t step, const double *w, int n_taps, float *out, size_t n) {
    for (size_t j = 0; j < n; j++) {
        double s = 0;
        for (int k = 0; k < n_taps; k++) s += (double)in[(size_t)k * step + j] * w[k];
        out[j] = (float)s;
    }
}

dt_status dt_resize_real(dt_resizer *r, const dt_image *src, const double box[4], float *dst, int dst_h, int dst_w) {
    const double whole[4] = {0, 0, src->width, src->height};
    size_t c = (size_t)src->channels, n = (size_t)dst_w * c, stride = (size_t)src->width * c;
    if (!box) box = whole;
    if (src->width == dst_w && src->height == dst_h && memcmp(box, whole, sizeof whole) == 0) {
        memcpy(dst, src->real, n * (size_t)dst_h * sizeof *dst);
        return DT_OK;
    }
    int top, bottom, begin, end;
    dt_resize_reach(box[1], box[3], dst_h, src->height, &top, &bottom);
    // one buffer for the weights of both passes
    int x_taps = max_taps(box[0], box[2], dst_w), y_taps = max_taps(box[1], box[3], dst_h);
    int n_taps = x_taps > y_taps ? x_taps : y_taps;
    double *w = (double *)dt_buffer_reserve(&r->row_double, (size_t)n_taps * sizeof *w);
    float *rows = (float *)dt_buffer_reserve(&r->rows, n * (size_t)(bottom - top) * sizeof *rows);
    if (!w || !rows) return dt_fail(DT_E_INTERNAL, "out of memory to resize an image");
    for (int x = 0; x < dst_w; x++) {
        weights_of(box[0], box[2], dst_w, src->width, x, w, &begin, &end);
        for (int y = top; y < bottom; y++)
            resize_weigh(src->real + stride * (size_t)y + c * (size_t)begin, c, w, end - begin,
                         // column by column: weights are made once for all rows
                         rows + n * (size_t)(y - top) + c * (size_t)x, c);
    }
    for (int y = 0; y < dst_h; y++) {
        weights_of(box[1], box[3], dst_h, src->height, y, w, &begin, &end);
        resize_weigh(rows + n * (size_t)(begin - top), n, w, end - begin, dst + n * (size_t)y, n);
    }
    return DT_OK;
}
