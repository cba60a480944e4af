// simd_pool.c: pooling of one image (see simd.h: dt_pool_image). A vector is a channel block of a pixel, so a window is
// a loop over vectors. Backward gathers: a pixel's gradient is the sum over the windows that it lies in, in their order.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

// The part of a window that lies in the image, in input coordinates.
typedef struct span {
    int64_t row0, row1, col0, col1, top, left; // top, left: the window's corner (may be negative)
} span;

INLINE void clip(int64_t at, int kernel, int64_t size, int64_t *begin, int64_t *end) {
    *begin = at < 0 ? 0 : at; // the part inside [0, size)
    *end = at + kernel < size ? at + kernel : size;
}

INLINE span window_of(const dt_pool_image *p, int64_t row, int64_t col) {
    const dt_window *w = p->win;
    span s;
    s.top = row * w->stride[0] - w->pad_begin[0];
    s.left = col * w->stride[1] - w->pad_begin[1];
    clip(s.top, w->kernel[0], p->in_h, &s.row0, &s.row1);
    clip(s.left, w->kernel[1], p->in_w, &s.col0, &s.col1);
    return s;
}

// The number of elements that an average divides by. With count_include_pad the window is clipped to the padded
// image, as in PyTorch: it may reach beyond it if the output size was rounded up.
INLINE float divisor(const dt_pool_image *p, const span *s) {
    if (!p->count_include_pad) return (float)((s->row1 - s->row0) * (s->col1 - s->col0)); // elements inside the image
    const dt_window *w = p->win;
    int64_t row1 = s->top + w->kernel[0], col1 = s->left + w->kernel[1];
    if (row1 > p->in_h + w->pad_end[0]) row1 = p->in_h + w->pad_end[0]; // padded image, then clipped
    if (col1 > p->in_w + w->pad_end[1]) col1 = p->in_w + w->pad_end[1];
    return (float)((row1 - s->top) * (col1 - s->left));
}

// The windows along one axis that contain pixel `at`, which only grows.
typedef struct cover {
    int64_t begin, end;
} cover;

INLINE void cover_advance(cover *v, int64_t at, const dt_window *w, int axis, int64_t n_out) {
    at += w->pad_begin[axis];
    while (v->end < n_out && v->end * w->stride[axis] <= at) v->end++; // end: the first window that begins behind it
    // windows that end before it are left
    while (v->begin < v->end && v->begin * w->stride[axis] + w->kernel[axis] <= at) v->begin++;
}

INLINE void max_window(const dt_pool_image *p, int64_t row, int64_t col, int64_t b, int bf16) {
    const span s = window_of(p, row, col);
    const int kw = p->win->kernel[1];
    // the corner that exists, not -inf: NaN and -inf stay what they are
    vf best = vload(p->x, (s.row0 * p->in_w + s.col0) * p->pixel + b, bf16);
    vi index = vseti((int32_t)((s.row0 - s.top) * kw + (s.col0 - s.left)));
    for (int64_t r = s.row0; r < s.row1; r++)
        for (int64_t c = s.col0; c < s.col1; c++) {
            vf v = vload(p->x, (r * p->in_w + c) * p->pixel + b, bf16);
            vm more = vm_or(vm_gt(v, best), vm_nan(v)); // NaN wins, as in PyTorch
            best = vsel(more, v, best);
            // place in the window, padding counted
            index = vseli(more, vseti((int32_t)((r - s.top) * kw + (c - s.left))), index);
        }
    const int64_t out = (row * p->out_w + col) * p->pixel + b;
    vstore(p->y, out, best, bf16);
    if (p->argmax) vst_u8(p->argmax + out, index);
}

INLINE void avg_window(const dt_pool_image *p, int64_t row, int64_t col, int64_t b, int bf16) {
    const span s = window_of(p, row, col);
    vf sum = {0};
    for (int64_t r = s.row0; r < s.row1; r++)
        for (int64_t c = s.col0; c < s.col1; c++) sum += vload(p->x, (r * p->in_w + c) * p->pixel + b, bf16);
    vstore(p->y, (row * p->out_w + col) * p->pixel + b, sum / divisor(p, &s), bf16);
}

INLINE void pool(const dt_pool_image *p, int max, int bf16) {
    for (int64_t row = 0; row < p->out_h; row++)
        for (int64_t b = 0; b < p->n_blocks * VW; b += VW) // blocks inside rows: columns are neighbours in memory
            for (int64_t col = 0; col < p->out_w; col++) {
                if (max)
                    max_window(p, row, col, b, bf16);
                else
                    avg_window(p, row, col, b, bf16);
            }
}

// The part of a pixel's gradient that comes through one window; row, col: of the pixel in the window.
INLINE vf through(const dt_pool_image *p, int64_t r, int64_t c, int64_t b, int64_t row, int64_t col, int max,
                  int bf16) {
    const int64_t at = (r * p->out_w + c) * p->pixel + b;
    const vf g = vload(p->x, at, bf16);
    if (max) {
        const vi mine = vseti((int32_t)(row * p->win->kernel[1] + col));
        return vkeep(vm_eqi(vld_u8(p->argmax + at), mine), g); // only the winning element
    }
    const span s = window_of(p, r, c);
    return g / divisor(p, &s);
}

INLINE void pool_bwd(const dt_pool_image *p, int max, int bf16) {
    const dt_window *w = p->win;
    cover rows = {0, 0}; // windows of a row: only grow
    for (int64_t row = 0; row < p->in_h; row++) {
        cover_advance(&rows, row, w, 0, p->out_h);
        for (int64_t b = 0; b < p->n_blocks * VW; b += VW) {
            cover cols = {0, 0};
            for (int64_t col = 0; col < p->in_w; col++) {
                cover_advance(&cols, col, w, 1, p->out_w);
                vf sum = {0};
                for (int64_t r = rows.begin; r < rows.end; r++) // sum in window order: deterministic
                    for (int64_t c = cols.begin; c < cols.end; c++)
                        sum += through(p, r, c, b, row + w->pad_begin[0] - r * w->stride[0],
                                       col + w->pad_begin[1] - c * w->stride[1], max, bf16);
                vstore(p->y, (row * p->in_w + col) * p->pixel + b, sum, bf16);
            }
        }
    }
}

INLINE void mean(float *y, const void *x, int64_t n_pixels, int64_t pixel, int bf16) {
    vd total = {0};
    for (int64_t p = 0; p < n_pixels;) {
        int64_t end = p + 256 < n_pixels ? p + 256 : n_pixels;
        vf s = {0};
        for (; p < end; p++) s += vload(x, p * pixel, bf16);
        total += vf_to_d(s);
    }
    vst(y, __builtin_convertvector(total / (double)n_pixels, vf)); // one division, in double
}

INLINE void fill(void *y, const float *v, int64_t n_pixels, int bf16) {
    vf x = vld(v);
    for (int64_t p = 0; p < n_pixels; p++) vstore(y, p * VW, x, bf16);
}

#define IMAGE(name, fn, max)                                                                                           \
    static void name##_f32(const dt_pool_image *p) {                                                                   \
        fn(p, max, 0);                                                                                                 \
    }                                                                                                                  \
    static void name##_bf16(const dt_pool_image *p) {                                                                  \
        fn(p, max, 1);                                                                                                 \
    }
IMAGE(pool_max, pool, 1)
IMAGE(pool_max_bwd, pool_bwd, 1)
IMAGE(pool_avg, pool, 0)
IMAGE(pool_avg_bwd, pool_bwd, 0)
static void mean_f32(float *y, const void *x, int64_t n, int64_t pixel) {
    mean(y, x, n, pixel, 0);
}
static void mean_bf16(float *y, const void *x, int64_t n, int64_t pixel) {
    mean(y, x, n, pixel, 1);
}
static void fill_f32(void *y, const float *v, int64_t n) {
    fill(y, v, n, 0);
}
static void fill_bf16(void *y, const float *v, int64_t n) {
    fill(y, v, n, 1);
}

const dt_simd_pool DT_SIMD(dt_simd_pool) = {
    .max = {pool_max_f32, pool_max_bf16},
    .max_bwd = {pool_max_bwd_f32, pool_max_bwd_bf16},
    .avg = {pool_avg_f32, pool_avg_bf16},
    .avg_bwd = {pool_avg_bwd_f32, pool_avg_bwd_bf16},
    .mean = {mean_f32, mean_bf16},
    .fill = {fill_f32, fill_bf16},
};
