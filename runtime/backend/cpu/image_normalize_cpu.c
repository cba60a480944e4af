// image_normalize_cpu.c: pixels (N,H,W,C) -> (N,C,H,W) f32 or bf16. Bytes: (x/255 - mean[c]) / std[c], as one
// multiply-add; RGB is split into planes in registers. Floats: (x - mean[c]) * (1 / std[c]), the difference
// first, since the mean may be large beside the deviation. Threads divide an image's pixels.
//
// With a mix plan (batch/mix_plan.h) a mixed sample goes through a small buffer: pixels are mixed there and
// normalized while they are in the L1 cache. The buffer's size does not change any bits, since each pixel is
// computed on its own.
#include "backend/cpu/custom_kernel.h"
#include "base/vectorize.h"
#include "batch/mix_plan.h"

#include <string.h>

typedef struct normalize_state {
    int type, channels;
    bool is_f32;
    int64_t n_images, n_pixels, parts; // ranges of pixels per image
    size_t pixel_bytes;
    int64_t width;
    float scale[64], shift[64]; // f32: shift holds the mean
    const dt_simd_elementwise *simd;
} normalize_state;

enum { PART_PIXELS = 16384, MIX_BYTES = 8192 };

static dt_status image_normalize_cpu_prepare(dt_kernel_instance *s) {
    const dt_value_info *x = dt_instance_in(s, 0), *y = dt_instance_out(s, 0);
    normalize_state *st = dt_custom_prepare(s, sizeof(*st));
    DT_TRY(dt_custom_type(s, &st->type, (const dt_value_info *[]){y}, 1));
    st->is_f32 = x->dtype == DT_F32;
    if ((x->dtype != DT_U8 && !st->is_f32) || x->shape.n != 4 || x->shape.d[3] > 64)
        return dt_custom_fail(s, "wants u8 or f32 (N,H,W,C) with at most 64 channels");
    st->channels = (int)x->shape.d[3];
    st->pixel_bytes = (size_t)st->channels * dt_dtype_size(x->dtype);
    st->width = x->shape.d[2];
    st->n_images = x->shape.d[0];
    st->n_pixels = x->shape.d[1] * x->shape.d[2];
    st->parts = (st->n_pixels + PART_PIXELS - 1) / PART_PIXELS;
    for (int c = 0; c < st->channels; c++) {
        double std = s->node->attrs.image_normalize.std[c];
        float mean = s->node->attrs.image_normalize.mean[c];
        st->scale[c] = (float)(1.0 / (st->is_f32 ? std : 255.0 * std));
        st->shift[c] = st->is_f32 ? mean : (float)(-(double)mean / std);
    }
    st->simd = dt_simd_get()->elementwise;
    return DT_OK;
}

typedef struct normalize_call {
    const normalize_state *st;
    void *y;
    const char *x;
    const dt_mix_row *plan; // or NULL
} normalize_call;

// n pixels from x; y: their place in the first channel's plane.
static void normalize(const normalize_state *st, void *y, const void *x, int64_t n) {
    if (!st->is_f32 && st->channels == 3) {
        st->simd->u8_rgb[st->type](y, st->n_pixels, x, st->scale, st->shift, n);
        return;
    }
    for (int k = 0; k < st->channels; k++) {
        void *plane = dt_row_at_mut(st->type, y, k * st->n_pixels);
        if (st->is_f32)
            st->simd->f32_plane[st->type](plane, x, st->channels, k, st->shift[k], st->scale[k], n);
        else
            st->simd->u8_plane[st->type](plane, x, st->channels, k, st->scale[k], st->shift[k], n);
    }
}

// ---- mixing ----------------------------------------------------------------------------------------
VECTORIZED static void blend_bytes(uint8_t *restrict v, const uint8_t *restrict a, const uint8_t *restrict b, size_t n,
                                   uint32_t own) {
    for (size_t i = 0; i < n; i++) v[i] = (uint8_t)((a[i] * own + b[i] * (DT_MIX_ONE - own) + DT_MIX_ONE / 2) >> 16);
}

VECTORIZED static void blend_reals(float *restrict v, const float *restrict a, const float *restrict b, size_t n,
                                   float own) {
    for (size_t i = 0; i < n; i++) v[i] = a[i] * own + b[i] * (1 - own);
}

// Mixes pixels [first, first + n) of image a (the sample's own) and image b (the next one) into v.
static void image_normalize_cpu_mix(const normalize_state *st, const dt_mix_row *m, char *v, const char *a,
                                    const char *b, int64_t first, int64_t n) {
    const size_t at = (size_t)first * st->pixel_bytes, bytes = (size_t)n * st->pixel_bytes;
    if (m->own == DT_MIX_ONE)
        memcpy(v, a + at, bytes);
    else if (st->is_f32)
        blend_reals((float *)v, (const float *)(a + at), (const float *)(b + at), bytes / 4,
                    (float)m->own / DT_MIX_ONE);
    else
        blend_bytes((uint8_t *)v, (const uint8_t *)a + at, (const uint8_t *)b + at, bytes, (uint32_t)m->own);
    int64_t y = first / st->width, end = first + n;
    for (y = y < m->y0 ? m->y0 : y; y < m->y1 && y * st->width < end; y++) {
        int64_t from = y * st->width + m->x0, to = y * st->width + m->x1;
        from = from < first ? first : from;
        to = to > end ? end : to;
        if (from >= to) continue;
        memcpy(v + (size_t)(from - first) * st->pixel_bytes, b + (size_t)from * st->pixel_bytes,
               (size_t)(to - from) * st->pixel_bytes);
    }
}

static void mix_and_normalize(const normalize_call *c, void *y, int64_t image, int64_t first, int64_t n) {
    const normalize_state *st = c->st;
    _Alignas(64) char buffer[MIX_BYTES];
    const size_t image_bytes = (size_t)st->n_pixels * st->pixel_bytes;
    const int64_t most = (int64_t)(MIX_BYTES / st->pixel_bytes);
    const int64_t next = image + 1 < st->n_images ? image + 1 : 0;
    for (int64_t at = 0; at < n; at += most) {
        int64_t some = n - at < most ? n - at : most;
        image_normalize_cpu_mix(st, &c->plan[image], buffer, c->x + (size_t)image * image_bytes,
                                c->x + (size_t)next * image_bytes, first + at, some);
        normalize(st, dt_row_at_mut(st->type, y, at), buffer, some);
    }
}

static bool image_normalize_cpu_is_mixed(const dt_mix_row *m) {
    return m->own != DT_MIX_ONE || (m->y0 < m->y1 && m->x0 < m->x1);
}

static void image_normalize_cpu_item(const void *ctx, int64_t i, int64_t end) {
    const normalize_call *c = ctx;
    const normalize_state *st = c->st;
    int64_t image = i / st->parts, first = i % st->parts * PART_PIXELS;
    int64_t n = st->n_pixels - first < PART_PIXELS ? st->n_pixels - first : PART_PIXELS;
    void *y = dt_row_at_mut(st->type, c->y, image * st->n_pixels * st->channels + first);
    if (c->plan && image_normalize_cpu_is_mixed(&c->plan[image]))
        mix_and_normalize(c, y, image, first, n);
    else
        normalize(st, y, c->x + (size_t)(image * st->n_pixels + first) * st->pixel_bytes, n);
}

static void image_normalize_cpu_run(const dt_kernel_instance *s, const dt_run *r) {
    const normalize_state *st = s->state;
    normalize_call c = {st, r->out[0], r->in[0], s->node->n_in > 1 ? r->in[1] : NULL};
    dt_custom_items(s->threads, st->n_images * st->parts, image_normalize_cpu_item, &c);
}

const dt_kernel dt_cpu_image_normalize = {image_normalize_cpu_prepare, image_normalize_cpu_run, dt_custom_destroy};
