// resize_real.c: the resize of resize.c for images of floats, any number of channels.
//
// The same filter and order; weights and sums in double, each pass rounded to float: the procedure of Pillow's
// mode F, to the bit. Scientific arrays mostly come in the wanted size, so this is plain code. Floats are never
// fused, so all machines agree.
#include "decode.h"

#include "base/arena.h"
#include "resize_rows.h"

#include <stdlib.h>
#include <string.h>

// out[j] = sum over taps of w[k] * in[(first + k) * step + j], j < n
static void weigh(const float *in, size_t step, const double *w, int n_taps, float *out, size_t n) {
    for (size_t j = 0; j < n; j++) {
        double s = 0;
        for (int k = 0; k < n_taps; k++) s += (double)in[(size_t)k * step + j] * w[k];
        out[j] = (float)s;
    }
}

dt_status dt_resize_real(dt_resizer *r, const dt_image *src, const double box[4], float *dst,
                         int dst_h, int dst_w) {
    const double whole[4] = {0, 0, src->width, src->height};
    size_t c = (size_t)src->channels, n = (size_t)dst_w * c, stride = (size_t)src->width * c;
    if (!box) box = whole;
    if (src->width == dst_w && src->height == dst_h && memcmp(box, whole, sizeof whole) == 0) {
        memcpy(dst, src->real, n * (size_t)dst_h * sizeof *dst);
        return DT_OK;
    }
    int top, bottom, begin, end;
    dt_resize_reach(box[1], box[3], dst_h, src->height, &top, &bottom);
    double *w = dt_resizer_taps(r, box, dst_w, dst_h);
    float *rows = dt_resizer_rows(r, n * (size_t)(bottom - top));
    if (!w || !rows) return dt_fail(DT_E_INTERNAL, "out of memory to resize an image");
    for (int x = 0; x < dst_w; x++) {
        dt_resize_taps(box[0], box[2], dst_w, src->width, x, w, &begin, &end);
        for (int y = top; y < bottom; y++)
            weigh(src->real + stride * (size_t)y + c * (size_t)begin, c, w, end - begin,
                  rows + n * (size_t)(y - top) + c * (size_t)x, c);
    }
    for (int y = 0; y < dst_h; y++) {
        dt_resize_taps(box[1], box[3], dst_h, src->height, y, w, &begin, &end);
        weigh(rows + n * (size_t)(begin - top), n, w, end - begin, dst + n * (size_t)y, n);
    }
    return DT_OK;
}
