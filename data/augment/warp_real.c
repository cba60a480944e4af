// warp_real.c: resampling an image of floats through a map from output pixels to source pixels.
//
// For what an instrument gives (FITS, NPY): any number of channels, no rounding to levels. One plain loop,
// bilinear in float with the place in double, no fused operations: the same bits on every machine. Where
// the place is a whole pixel, as after flips and crops, the value is copied exactly.
#include "pixels.h"

#include <math.h>

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
