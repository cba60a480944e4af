// simd_pool.c: pooling of one channel block of one image (see simd.h: dt_pool_image). A pixel is one vector, so a
// window is a loop over vectors. Backward accumulates in f32, since windows may overlap.
#include "backend/cpu/simd.h"
#include "backend/cpu/simd_vec.h"

// The part of a window that lies in the image, in input coordinates.
typedef struct span {
    int64_t row0, row1, col0, col1, top, left; // top, left: the window's corner (may be negative)
} span;

INLINE void clip(int64_t at, int kernel, int64_t size, int64_t *begin, int64_t *end) {
    *begin = at < 0 ? 0 : at;
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
    if (!p->count_include_pad) return (float)((s->row1 - s->row0) * (s->col1 - s->col0));
    const dt_window *w = p->win;
    int64_t row1 = s->top + w->kernel[0], col1 = s->left + w->kernel[1];
    if (row1 > p->in_h + w->pad_end[0]) row1 = p->in_h + w->pad_end[0];
    if (col1 > p->in_w + w->pad_end[1]) col1 = p->in_w + w->pad_end[1];
    return (float)((row1 - s->top) * (col1 - s->left));
}

INLINE void pool_max(const dt_pool_image *p, int bf16) {
    int kw = p->win->kernel[1];
    for (int64_t row = 0; row < p->out_h; row++)
        for (int64_t col = 0; col < p->out_w; col++) {
            span s = window_of(p, row, col);
            int32_t first = (int32_t)((s.row0 - s.top) * kw + (s.col0 - s.left));
            vf best = vload(p->x, (s.row0 * p->in_w + s.col0) * VW, bf16);
            vi index = vseti(first);
            for (int64_t r = s.row0; r < s.row1; r++)
                for (int64_t c = s.col0; c < s.col1; c++) {
                    vf v = vload(p->x, (r * p->in_w + c) * VW, bf16);
                    vm more = vm_or(vm_gt(v, best), vm_nan(v));
                    best = vsel(more, v, best);
                    index = vseli(more, vseti((int32_t)((r - s.top) * kw + (c - s.left))), index);
                }
            int64_t out = (row * p->out_w + col) * VW;
            vstore(p->y, out, best, bf16);
            if (p->argmax) vst_u8(p->argmax + out, index);
        }
}

INLINE void finish_sums(const dt_pool_image *p, int bf16) {
    for (int64_t i = 0; i < p->in_h * p->in_w * VW; i += VW)
        vstore(p->y, i, vld(p->row_sums + i), bf16);
}

INLINE void pool_max_bwd(const dt_pool_image *p, int bf16) {
    int kw = p->win->kernel[1];
    memset(p->row_sums, 0, (size_t)(p->in_h * p->in_w * VW) * sizeof(float));
    for (int64_t row = 0; row < p->out_h; row++)
        for (int64_t col = 0; col < p->out_w; col++) {
            span s = window_of(p, row, col);
            int64_t out = (row * p->out_w + col) * VW;
            vf g = vload(p->x, out, bf16);
            vi index = vld_u8(p->argmax + out);
            for (int64_t r = s.row0; r < s.row1; r++)
                for (int64_t c = s.col0; c < s.col1; c++) {
                    float *to = p->row_sums + (r * p->in_w + c) * VW;
                    vm mine = vm_eqi(index, vseti((int32_t)((r - s.top) * kw + (c - s.left))));
                    vst(to, vld(to) + vkeep(mine, g));
                }
        }
    finish_sums(p, bf16);
}

INLINE void pool_avg(const dt_pool_image *p, int bf16) {
    for (int64_t row = 0; row < p->out_h; row++)
        for (int64_t col = 0; col < p->out_w; col++) {
            span s = window_of(p, row, col);
            vf sum = {0};
            for (int64_t r = s.row0; r < s.row1; r++)
                for (int64_t c = s.col0; c < s.col1; c++)
                    sum += vload(p->x, (r * p->in_w + c) * VW, bf16);
            vstore(p->y, (row * p->out_w + col) * VW, sum / divisor(p, &s), bf16);
        }
}

INLINE void pool_avg_bwd(const dt_pool_image *p, int bf16) {
    memset(p->row_sums, 0, (size_t)(p->in_h * p->in_w * VW) * sizeof(float));
    for (int64_t row = 0; row < p->out_h; row++)
        for (int64_t col = 0; col < p->out_w; col++) {
            span s = window_of(p, row, col);
            vf g = vload(p->x, (row * p->out_w + col) * VW, bf16) / divisor(p, &s);
            for (int64_t r = s.row0; r < s.row1; r++)
                for (int64_t c = s.col0; c < s.col1; c++) {
                    float *to = p->row_sums + (r * p->in_w + c) * VW;
                    vst(to, vld(to) + g);
                }
        }
    finish_sums(p, bf16);
}

INLINE void mean(float *y, const void *x, int64_t n_pixels, int bf16) {
    vd total = {0};
    for (int64_t p = 0; p < n_pixels;) {
        int64_t end = p + 256 < n_pixels ? p + 256 : n_pixels;
        vf s = {0};
        for (; p < end; p++) s += vload(x, p * VW, bf16);
        total += vf_to_d(s);
    }
    vst(y, __builtin_convertvector(total / (double)n_pixels, vf));
}

INLINE void fill(void *y, const float *v, int64_t n_pixels, int bf16) {
    vf x = vld(v);
    for (int64_t p = 0; p < n_pixels; p++) vstore(y, p * VW, x, bf16);
}

#define IMAGE(name)                                                                                \
    static void name##_f32(const dt_pool_image *p) {                                               \
        name(p, 0);                                                                                \
    }                                                                                              \
    static void name##_bf16(const dt_pool_image *p) {                                              \
        name(p, 1);                                                                                \
    }
IMAGE(pool_max)
IMAGE(pool_max_bwd)
IMAGE(pool_avg)
IMAGE(pool_avg_bwd)
static void mean_f32(float *y, const void *x, int64_t n) {
    mean(y, x, n, 0);
}
static void mean_bf16(float *y, const void *x, int64_t n) {
    mean(y, x, n, 1);
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
