// image_normalize_cpu.c: pixels (N,H,W,C) -> (N,C,H,W) f32 or bf16. Bytes: (x/255 - mean[c]) / std[c], as
// one multiply-add; RGB is taken apart in registers. Floats: (x - mean[c]) * (1 / std[c]), the difference
// first, as a mean may be large beside the deviation. Images are divided into runs of pixels for threads.
#include "backend/cpu/own_kernel.h"

typedef struct normalize_state {
    int type, channels;
    bool is_f32;
    int64_t n_images, n_pixels, parts; // parts an image
    float scale[64], shift[64];        // f32: shift holds the mean
    const dt_simd_elementwise *simd;
} normalize_state;

enum { PART_PIXELS = 16384 };

static dt_status prepare(dt_site *s) {
    const dt_value_info *x = dt_site_in(s, 0), *y = dt_site_out(s, 0);
    normalize_state *st = dt_own_prepare(s, sizeof(*st));
    DT_TRY(dt_own_type(s, &st->type, (const dt_value_info *[]){y}, 1));
    st->is_f32 = x->dtype == DT_F32;
    if ((x->dtype != DT_U8 && !st->is_f32) || x->shape.n != 4 || x->shape.d[3] > 64)
        return dt_own_fail(s, "wants u8 or f32 (N,H,W,C) with at most 64 channels");
    st->channels = (int)x->shape.d[3];
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
    const void *x;
} normalize_call;

static void item(const void *ctx, int64_t i, int64_t end) {
    const normalize_call *c = ctx;
    const normalize_state *st = c->st;
    int64_t image = i / st->parts, first = i % st->parts * PART_PIXELS;
    int64_t n = st->n_pixels - first < PART_PIXELS ? st->n_pixels - first : PART_PIXELS;
    int64_t at = (image * st->n_pixels + first) * st->channels;
    void *y = dt_row_at_mut(st->type, c->y, image * st->n_pixels * st->channels + first);
    for (int k = 0; st->is_f32 && k < st->channels; k++)
        st->simd->f32_plane[st->type](dt_row_at_mut(st->type, y, k * st->n_pixels),
                                      (const float *)c->x + at, st->channels, k, st->shift[k],
                                      st->scale[k], n);
    if (st->is_f32) return;
    const uint8_t *x = (const uint8_t *)c->x + at;
    if (st->channels == 3) {
        st->simd->u8_rgb[st->type](y, st->n_pixels, x, st->scale, st->shift, n);
        return;
    }
    for (int k = 0; k < st->channels; k++)
        st->simd->u8_plane[st->type](dt_row_at_mut(st->type, y, k * st->n_pixels), x, st->channels,
                                     k, st->scale[k], st->shift[k], n);
}

static void run(const dt_site *s, const dt_run *r) {
    const normalize_state *st = s->state;
    normalize_call c = {st, r->out[0], r->in[0]};
    dt_own_items(s->threads, st->n_images * st->parts, item, &c);
}

const dt_kernel dt_cpu_image_normalize = {prepare, run, dt_own_destroy};
