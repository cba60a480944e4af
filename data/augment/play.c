// play.c: a step of pixel_steps.h on the host: which loop it is.
#include "pixels.h"

#include <string.h>

static dt_status play_move(dt_image *image, const dt_pixel_step *s, dt_buffer *scratch) {
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    uint8_t *copy = dt_buffer_reserve(scratch, n);
    if (!copy) return dt_fail(DT_E_INTERNAL, "out of memory");
    memcpy(copy, image->data, n);
    dt_image src = *image;
    src.data = copy;
    dt_pixels_warp_step(&src, s, image->data);
    return DT_OK;
}

static void play_patch(dt_image *image, const dt_pixel_step *s) {
    dt_rect at = {s->as.patch.x, s->as.patch.y, s->as.patch.w, s->as.patch.h};
    dt_pixels_patch(image, at, s->as.patch.with, &s->as.patch.r);
}

dt_status dt_pixels_play(dt_image *image, const dt_pixel_step *s, dt_buffer *scratch) {
    if (dt_pixels_values(image, s)) return DT_OK;
    switch (s->kind) {
    case DT_PIXEL_END:
        return DT_OK;
    case DT_PIXEL_MOVE:
    case DT_PIXEL_WARP:
    case DT_PIXEL_PERSPECTIVE:
        return play_move(image, s, scratch);
    case DT_PIXEL_PATCH:
        play_patch(image, s);
        return DT_OK;
    case DT_PIXEL_NOISE:
        dt_pixels_noise(image, s->as.noise.deviation, &s->as.noise.r);
        return DT_OK;
    case DT_PIXEL_SHARPNESS:
        return dt_pixels_sharpness(image, s->as.factor, scratch);
    case DT_PIXEL_BLUR:
        return dt_pixels_blur(image, s->as.blur.half, s->as.blur.weight, scratch);
    }
    return dt_fail(DT_E_INTERNAL, "no step of pixels is %d", s->kind);
}
