// warp.c: resampling an image through a map from output pixels to source pixels.
//
// Three ways, from cheap to expensive. A map that only flips or moves whole pixels copies bytes. An affine map
// steps through the source in 16.16 fixed point; in each row the pixels whose neighbours are all inside form an
// interval, so only its two sides need clamping, and a shift without rotation blends whole rows. A perspective
// map divides once per pixel.
//
// Geometry is computed in double and rounded to fixed point, and pixels are integers: the same bits on every
// ISA. Bilinear weights have 8 bits. Pillow uses double weights but truncates the result, so the two differ by
// about half a level on average.
//
// With a fill, a pixel whose centre maps outside the source takes the fill, as in Pillow. Inside, missing
// neighbours repeat the edge, so that borders do not darken.

#include "augment.h"

#include "base/bits.h"
#include "batch/pixel_math.h"

#include <math.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

static const double PI = 3.14159265358979323846;

// ---- maps --------------------------------------------------------------------------------------------
dt_map dt_map_then(const dt_map *a, const dt_map *b) {
    dt_map r;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            r.m[3 * i + j] = a->m[3 * i] * b->m[j] + a->m[3 * i + 1] * b->m[3 + j] + a->m[3 * i + 2] * b->m[6 + j];
    return r;
}

dt_map dt_map_rotate(double degrees, double scale, int w, int h) {
    double cx = (w - 1) / 2.0, cy = (h - 1) / 2.0, angle = degrees * (PI / 180);
    double c = cos(angle) / scale, s = sin(angle) / scale; // from output to source: the inverse scale
    return (dt_map){{c, -s, cx - c * cx + s * cy, s, c, cy - s * cx - c * cy, 0, 0, 1}};
}

dt_map dt_map_shift(double dx, double dy) {
    return (dt_map){{1, 0, dx, 0, 1, dy, 0, 0, 1}};
}

dt_map dt_map_flip(bool x, bool y, int w, int h) {
    return (dt_map){{x ? -1 : 1, 0, x ? w - 1 : 0, 0, y ? -1 : 1, y ? h - 1 : 0, 0, 0, 1}};
}

dt_map dt_map_affine(double degrees, double dx, double dy, double scale, double shear_x, double shear_y, int w, int h) {
    double cx = (w - 1) / 2.0, cy = (h - 1) / 2.0, angle = degrees * (PI / 180);
    double tx = tan(shear_x * (PI / 180)), ty = tan(shear_y * (PI / 180));
    double c = cos(angle), s = sin(angle);
    // forward, about the centre: turn * [1 0; -ty 1] * [1 -tx; 0 1], determinant 1
    double a = c + s * ty, b = -tx * a - s, d = s - c * ty, e = -tx * d + c;
    double i[4] = {e / scale, -b / scale, -d / scale, a / scale};
    return (dt_map){{i[0], i[1], cx - i[0] * (cx + dx) - i[1] * (cy + dy), i[2], i[3],
                     cy - i[2] * (cx + dx) - i[3] * (cy + dy), 0, 0, 1}};
}

dt_map dt_map_shear(double k, bool along_y) {
    if (along_y) return (dt_map){{1, 0, 0, k, 1, k / 2, 0, 0, 1}}; // k / 2: Pillow shears about the pixel's middle
    return (dt_map){{1, k, k / 2, 0, 1, 0, 0, 0, 1}};
}

// Unit square to a quadrilateral (Heckbert, "Fundamentals of texture mapping and image warping", 1989,
// section 2.2.3).
static bool square_to(dt_map *out, const double p[4][2]) {
    double dx1 = p[1][0] - p[2][0], dx2 = p[3][0] - p[2][0];
    double dy1 = p[1][1] - p[2][1], dy2 = p[3][1] - p[2][1];
    double sx = p[0][0] - p[1][0] + p[2][0] - p[3][0], sy = p[0][1] - p[1][1] + p[2][1] - p[3][1];
    double det = dx1 * dy2 - dx2 * dy1; // 0: three corners on a line
    if (fabs(det) < 1e-9) return false;
    double g = (sx * dy2 - dx2 * sy) / det, k = (dx1 * sy - sx * dy1) / det;
    *out = (dt_map){{p[1][0] - p[0][0] + g * p[1][0], p[3][0] - p[0][0] + k * p[3][0], p[0][0],
                     p[1][1] - p[0][1] + g * p[1][1], p[3][1] - p[0][1] + k * p[3][1], p[0][1], g, k, 1}};
    return true;
}

static bool invert_map(dt_map *out, const dt_map *a) {
    const double *m = a->m;
    dt_map r = {{m[4] * m[8] - m[5] * m[7], m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
                 m[5] * m[6] - m[3] * m[8], m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
                 m[3] * m[7] - m[4] * m[6], m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]}};
    double det = m[0] * r.m[0] + m[1] * r.m[3] + m[2] * r.m[6];
    if (fabs(det) < 1e-9) return false;
    *out = r; // adjugate: a map has no scale, so nothing is divided by det
    return true;
}

bool dt_map_perspective(dt_map *out, const double from[4][2], const double to[4][2]) {
    dt_map source, square, place, half = dt_map_shift(.5, .5), back = dt_map_shift(-.5, -.5);
    if (!square_to(&source, from) || !square_to(&place, to) || !invert_map(&square, &place)) return false;
    *out = dt_map_then(&source, &square);
    *out = dt_map_then(out, &half); // points are counted from the corner of the first pixel
    *out = dt_map_then(&back, out);
    // the denominator is 1 amid the four points, above 0 on the seen side
    double x = (to[0][0] + to[1][0] + to[2][0] + to[3][0]) / 4 - .5;
    double y = (to[0][1] + to[1][1] + to[2][1] + to[3][1]) / 4 - .5;
    double z = out->m[6] * x + out->m[7] * y + out->m[8];
    for (int i = 0; i < 9; i++) out->m[i] /= z;
    return fabs(z) > 1e-12;
}

// ---- whole pixels ------------------------------------------------------------------------------------
// RGB goes a word at a time: the fourth byte is the next pixel's, which is written after it; the last pixel
// goes alone.
static void reverse_row(const uint8_t *restrict src, uint8_t *restrict dst, int n, int c) {
    if (c == 1) {
        for (int x = 0; x < n; x++) dst[x] = src[n - 1 - x];
        return;
    }
    const uint8_t *from = src + 3 * (n - 1), *last = src;
    if (n > 1) memcpy(dst, from, 3), dst += 3, from -= 3; // there may be no byte after the row
    for (; from > last; from -= 3, dst += 3) memcpy(dst, from, 4);
    memcpy(dst, last, 3);
}

static void move_pixels(const dt_image *src, const dt_pixel_step *s, uint8_t *dst) {
    int w = src->width, h = src->height, c = src->channels, fill = s->as.move.fill;
    int sx = s->as.move.sign_x, ox = s->as.move.from_x;
    int sy = s->as.move.sign_y, oy = s->as.move.from_y;
    // pixels begin..end of each row lie inside the source
    int begin = dt_clamp_index(sx > 0 ? -ox : ox - w + 1, w), end = dt_clamp_index(sx > 0 ? w - ox : ox + 1, w);
    if (end < begin) end = begin;
    size_t stride = (size_t)w * (size_t)c;
    for (int y = 0; y < h; y++) {
        int from = sy * y + oy;
        const uint8_t *row = src->data + (size_t)dt_clamp_index(from, h - 1) * stride;
        uint8_t *to = dst + (size_t)y * stride;
        if (fill >= 0 && (from < 0 || from >= h)) {
            memset(to, fill, stride); // above or below the source
            continue;
        }
        if (begin < end && sx > 0)
            memcpy(to + begin * c, row + (begin + ox) * c, (size_t)((end - begin) * c));
        else if (begin < end)
            reverse_row(row + (ox - end + 1) * c, to + begin * c, end - begin, c);
        for (int x = 0; x < w; x++) {
            if (x == begin) x = end; // only the border is left
            if (x >= w) break;
            if (fill >= 0)
                memset(to + x * c, fill, (size_t)c);
            else
                memcpy(to + x * c, row + dt_clamp_index(sx * x + ox, w - 1) * c, (size_t)c);
        }
    }
}

// ---- between pixels ------------------------------------------------------------------------------------
static inline bool warp_is_inside(const dt_image *s, int64_t fx, int64_t fy) {
    return fx >= 0 && fy >= 0 && fx >> 16 < s->width - 1 && fy >> 16 < s->height - 1;
}

// Bilinear where all four neighbours are inside; (256 - w) a + w b as 256 a + w (b - a).
static inline void inside_pixel(const uint8_t *top, const uint8_t *bottom, int wx, int wy, int c, uint8_t *out) {
    for (int i = 0; i < c; i++) {
        int a = (top[i] << 8) + wx * (top[c + i] - top[i]);
        int b = (bottom[i] << 8) + wx * (bottom[c + i] - bottom[i]);
        out[i] = (uint8_t)(((a << 8) + wy * (b - a) + (1 << 15)) >> 16);
    }
}

#ifdef __SSE2__
// The three channels at once. Eight bytes of a row hold both pixels, and reach two beyond the second.
static inline __m128i blend_pair(const uint8_t *p, int w) {
    __m128i v = _mm_loadl_epi64((const __m128i *)p), zero = _mm_setzero_si128();
    __m128i pairs = _mm_unpacklo_epi8(_mm_unpacklo_epi8(v, _mm_srli_epi64(v, 24)), zero);
    return _mm_madd_epi16(pairs, _mm_set1_epi32((256 - w) | w << 16)); // at most 255 * 256
}

static inline uint32_t rgb_pixel(const uint8_t *top, const uint8_t *bottom, int wx, int wy) {
    const __m128i half = _mm_set1_epi32(1 << 15); // makes the sums signed words, and goes out again
    __m128i a = _mm_sub_epi32(blend_pair(top, wx), half);
    __m128i b = _mm_sub_epi32(blend_pair(bottom, wx), half);
    __m128i pairs = _mm_unpacklo_epi16(_mm_packs_epi32(a, a), _mm_packs_epi32(b, b));
    __m128i v = _mm_madd_epi16(pairs, _mm_set1_epi32((256 - wy) | wy << 16));
    v = _mm_srli_epi32(_mm_add_epi32(v, _mm_set1_epi32((1 << 23) + (1 << 15))), 16);
    v = _mm_packs_epi32(v, v);
    return (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(v, v));
}
#endif

static inline void sample_inside(const dt_image *s, int64_t fx, int64_t fy, int64_t dx, int64_t dy, int n, int c,
                                 uint8_t *restrict out) {
    ptrdiff_t stride = (ptrdiff_t)s->width * c;
    for (int x = 0; x < n; x++, fx += dx, fy += dy, out += c) {
        const uint8_t *top = s->data + (fy >> 16) * stride + (fx >> 16) * c, *bottom = top + stride;
        int wx = (int)(fx >> 8 & 255), wy = (int)(fy >> 8 & 255); // 8 of the 16 fractional bits: weights are bytes
#ifdef __SSE2__
        // eight bytes are read: not beyond the image
        if (c == 3 && bottom + 8 <= s->data + stride * s->height) {
            uint32_t v = rgb_pixel(top, bottom, wx, wy);
            memcpy(out, &v, x + 1 < n ? 4 : 3); // the fourth byte is the next pixel's
            continue;
        }
#endif
        inside_pixel(top, bottom, wx, wy, c, out);
    }
}

// n bytes at one fraction: a shift without rotation, which is most of what is asked for.
VECTORIZED static void blend_rows(const uint8_t *restrict top, const uint8_t *restrict bottom, uint8_t *restrict dst,
                                  int n, int c, int wx, int wy) {
    for (int i = 0; i < n; i++) {
        uint16_t a = (uint16_t)(top[i] * (256 - wx) + top[c + i] * wx);
        uint16_t b = (uint16_t)(bottom[i] * (256 - wx) + bottom[c + i] * wx);
        dst[i] = (uint8_t)(((uint32_t)a * (uint32_t)(256 - wy) + (uint32_t)b * (uint32_t)wy + (1u << 15)) >> 16);
    }
}

static void warp_row(const dt_image *src, const dt_pixel_source *any, const int64_t m[6], int y, uint8_t *dst) {
    int64_t fx = m[1] * y + m[2], fy = m[4] * y + m[5];
    int w = src->width, c = src->channels, begin = 0, end = w;
    // a line of a convex source: what lies inside is one run
    while (begin < w && (any->nearest || !warp_is_inside(src, fx + m[0] * begin, fy + m[3] * begin))) begin++;
    while (end > begin && !warp_is_inside(src, fx + m[0] * (end - 1), fy + m[3] * (end - 1))) end--;
    for (int x = 0; x < begin; x++) dt_sample_pixel(any, fx + m[0] * x, fy + m[3] * x, dst + x * c);
    for (int x = end; x < w; x++) dt_sample_pixel(any, fx + m[0] * x, fy + m[3] * x, dst + x * c);
    if (begin == end) return;
    int64_t ix = fx + m[0] * begin, iy = fy + m[3] * begin;
    uint8_t *to = dst + begin * c;
    if (m[0] == 65536 && m[3] == 0) { // no rotation, no scale: one weight for the whole row
        const uint8_t *top = src->data + ((iy >> 16) * w + (ix >> 16)) * c;
        blend_rows(top, top + w * c, to, (end - begin) * c, c, (int)(ix >> 8 & 255), (int)(iy >> 8 & 255));
    } else if (c == 1)
        sample_inside(src, ix, iy, m[0], m[3], end - begin, 1, to);
    else
        sample_inside(src, ix, iy, m[0], m[3], end - begin, 3, to);
}

enum { BLOCK = DT_PERSPECTIVE_PIECE };

// 65536 p / q, rounded down, of n positions: far away what is behind the viewer. Loops of one thing each,
// which is what vectorises.
VECTORIZED static void divide_fixed(const double *restrict p, const double *restrict q, int n, double *restrict v,
                                    int32_t *restrict out) {
    for (int i = 0; i < n; i++) v[i] = dt_ratio(p[i], q[i]);
    for (int i = 0; i < n; i++) v[i] = dt_at_least(v[i], -DT_PERSPECTIVE_FAR);
    for (int i = 0; i < n; i++) v[i] = dt_at_most(v[i], DT_PERSPECTIVE_FAR);
    for (int i = 0; i < n; i++) out[i] = dt_floor_fixed(v[i]);
}

VECTORIZED static void ramp(double first, double step, int n, double *restrict v) {
    for (int i = 0; i < n; i++) v[i] = dt_line_at(first, step, i);
}

VECTORIZED static void keep_near(int n, double *restrict v) {
    for (int i = 0; i < n; i++) v[i] = dt_at_least(v[i], DT_PERSPECTIVE_NEAR);
}

// Source places of n pixels of a row, 16.16.
static void perspective_places(const double m[9], int x, int y, int n, int32_t *fx, int32_t *fy) {
    double p[BLOCK], q[BLOCK], v[BLOCK];
    ramp(dt_line_begin(m + 6, x, y), m[6], n, q);
    keep_near(n, q); // what is behind the viewer has a denominator below 0
    ramp(dt_line_begin(m, x, y), m[0], n, p);
    divide_fixed(p, q, n, v, fx);
    ramp(dt_line_begin(m + 3, x, y), m[3], n, p);
    divide_fixed(p, q, n, v, fy);
}

static void perspective_row(const dt_image *src, const dt_pixel_source *any, const double m[9], int y, uint8_t *dst) {
    int32_t fx[BLOCK], fy[BLOCK];
    int w = src->width, c = src->channels;
    for (int x = 0; x < w; x++) {
        int i = x % BLOCK;
        if (i == 0) perspective_places(m, x, y, w - x < BLOCK ? w - x : BLOCK, fx, fy);
        if (any->nearest || !warp_is_inside(src, fx[i], fy[i]))
            dt_sample_pixel(any, fx[i], fy[i], dst + x * c);
        else if (c == 3)
            sample_inside(src, fx[i], fy[i], 0, 0, 1, 3, dst + 3 * x);
        else
            sample_inside(src, fx[i], fy[i], 0, 0, 1, 1, dst + x);
    }
}

// ---- steps ---------------------------------------------------------------------------------------------
dt_pixel_step dt_map_step(const dt_map *m, dt_border border, bool whole) {
    const double *a = m->m;
    dt_pixel_step s = {.kind = DT_PIXEL_MOVE};
    if (whole) {
        s.as.move.fill = border.fill;
        s.as.move.sign_x = (int)a[0], s.as.move.from_x = (int)a[2];
        s.as.move.sign_y = (int)a[4], s.as.move.from_y = (int)a[5];
    } else if (a[6] == 0 && a[7] == 0 && a[8] == 1) { // affine: no division
        s.kind = DT_PIXEL_WARP;
        s.as.warp.fill = border.fill, s.as.warp.nearest = border.nearest;
        for (int i = 0; i < 6; i++) s.as.warp.m[i] = llround(a[i] * 65536); // 16.16, the same on every machine
    } else {
        s.kind = DT_PIXEL_PERSPECTIVE;
        s.as.perspective.fill = border.fill, s.as.perspective.nearest = border.nearest;
        memcpy(s.as.perspective.m, a, sizeof s.as.perspective.m);
    }
    return s;
}

void dt_pixels_warp_step(const dt_image *src, const dt_pixel_step *s, uint8_t *dst) {
    if (s->kind == DT_PIXEL_MOVE) {
        move_pixels(src, s, dst);
        return;
    }
    bool affine = s->kind == DT_PIXEL_WARP;
    size_t stride = (size_t)src->width * (size_t)src->channels;
    dt_pixel_source any = {.data = src->data,
                           .width = src->width,
                           .height = src->height,
                           .channels = src->channels,
                           .fill = affine ? s->as.warp.fill : s->as.perspective.fill,
                           .nearest = affine ? s->as.warp.nearest : s->as.perspective.nearest};
    for (int y = 0; y < src->height; y++) {
        if (affine)
            warp_row(src, &any, s->as.warp.m, y, dst + (size_t)y * stride);
        else
            perspective_row(src, &any, s->as.perspective.m, y, dst + (size_t)y * stride);
    }
}

// ---- warp real ----------------------------------------------------------------------------------------------------

// Resampling an image of floats through a map from output pixels to source pixels.
//
// For what an instrument gives (FITS, NPY): any number of channels, no rounding to levels. One plain loop,
// bilinear in float with the place in double, no fused operations: the same bits on every machine. Where
// the place is a whole pixel, as after flips and crops, the value is copied exactly.

static int warp_real_clamp_int(double v, int high) {
    return v < 0 ? 0 : v > high ? high : (int)v;
}

static void pixel(const dt_image *s, double x, double y, dt_border border, float *out) {
    int c = s->channels;
    double nx = floor(x + 0.5), ny = floor(y + 0.5);
    if (border.fill >= 0 && !(nx >= 0 && ny >= 0 && nx < s->width && ny < s->height)) {
        for (int i = 0; i < c; i++) out[i] = (float)border.fill;
        return;
    }
    double fx = border.nearest ? nx : floor(x), fy = border.nearest ? ny : floor(y);
    float wx = border.nearest ? 0 : (float)(x - fx), wy = border.nearest ? 0 : (float)(y - fy);
    int64_t x0 = warp_real_clamp_int(fx, s->width - 1), x1 = warp_real_clamp_int(fx + 1, s->width - 1);
    int64_t y0 = warp_real_clamp_int(fy, s->height - 1), y1 = warp_real_clamp_int(fy + 1, s->height - 1);
    const float *top = s->real + y0 * s->width * c, *bottom = s->real + y1 * s->width * c;
    for (int i = 0; i < c; i++) {
        float a = top[x0 * c + i], b = bottom[x0 * c + i];
        if (wx > 0) a += (top[x1 * c + i] - a) * wx, b += (bottom[x1 * c + i] - b) * wx;
        out[i] = wy > 0 ? a + (b - a) * wy : a;
    }
}

void dt_pixels_warp_real(const dt_image *src, const dt_map *m, dt_border border, float *dst) {
    const double *a = m->m;
    for (int y = 0; y < src->height; y++)
        for (int x = 0; x < src->width; x++, dst += src->channels) {
            double z = a[6] * x + a[7] * y + a[8];
            bool seen = z > 1e-9; // else behind the one who looks
            pixel(src, seen ? (a[0] * x + a[1] * y + a[2]) / z : -INFINITY,
                  seen ? (a[3] * x + a[4] * y + a[5]) / z : -INFINITY, border, dst);
        }
}
