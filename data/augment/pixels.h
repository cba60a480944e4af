// pixels.h: what operations with given parameters do to pixels: (H,W,C) bytes, 1 or 3 channels, any size from
// 1x1. No randomness here. Tests compare these with Pillow and torchvision; each comment says how close they
// are. `scratch` grows and is reused; DT_E_INTERNAL: out of memory.
#ifndef DT_DATA_PIXELS_H
#define DT_DATA_PIXELS_H

#include "data/decode/decode.h"

#include "base/rng.h"
#include "batch/pixel_steps.h"

// ---- geometry (warp.c) -----------------------------------------------------------------------------
// Output pixel -> source pixel, homogeneous, rows of 3; pixel centres lie at whole numbers.
typedef struct dt_map {
    double m[9];
} dt_map;

// What lies outside, and how between pixels.
typedef struct dt_border {
    int fill;     // a grey level, or below 0: edges repeated
    bool nearest; // else bilinear
} dt_border;

// First a, then b, as operations on the image: c(x) = a(b(x)).
dt_map dt_map_then(const dt_map *a, const dt_map *b);
// Counter-clockwise by degrees, and scaled, about the centre of a w x h image.
dt_map dt_map_rotate(double degrees, double scale, int w, int h);
dt_map dt_map_shift(double dx, double dy); // source = out + (dx, dy)
dt_map dt_map_flip(bool x, bool y, int w, int h);
// torchvision's affine: about the centre: shear (degrees), scale, clockwise turn; then a translation.
dt_map dt_map_affine(double degrees, double dx, double dy, double scale, double shear_x, double shear_y, int w, int h);
// x' = x + k (y + 1/2) or y' = y + k (x + 1/2): about the corner, as AutoAugment's.
dt_map dt_map_shear(double k, bool along_y);
// The map that takes four output points `to` from four source points `from` (x, y), in order around the image,
// measured from the corner of the first pixel. False: there is no such map.
bool dt_map_perspective(dt_map *out, const double from[4][2], const double to[4][2]);
// The map as a step, DT_PIXEL_MOVE .. DT_PIXEL_PERSPECTIVE. `whole`: it moves whole pixels, flips included.
dt_pixel_step dt_map_step(const dt_map *m, dt_border border, bool whole);
// Plays it. dst has the size of src and does not overlap it. Bilinear uses 8-bit weights, within a level of the
// exact value; nearest is Pillow's transform.
void dt_pixels_warp_step(const dt_image *src, const dt_pixel_step *s, uint8_t *dst);

// Warps floats (src->real) of any number of channels, exact where the place is a whole pixel; a
// border's fill is a value of the image.
void dt_pixels_warp_real(const dt_image *src, const dt_map *m, dt_border border, float *dst);

// ---- values (colour.c), in place -------------------------------------------------------------------
// The steps BYTE, LUMA, RGB and TABLE of batch/pixel_steps.def; false if s is another. The same bytes as Pillow's
// ImageEnhance / ImageOps, which torchvision calls, but for the hue, which turns at constant value and chroma,
// exactly, rounded once: within a level of torchvision on tensors. (Pillow's detour through 8-bit hue and
// saturation is lossy.)
bool dt_pixels_values(dt_image *image, const dt_pixel_step *s);
int dt_hue_turn(double turn); // -0.5..0.5 of the circle
int dt_solarize_from(double threshold);
int dt_posterize_mask(int bits); // the upper ones, 0..8

// ---- neighbourhoods and rectangles (filter.c), in place ---------------------------------------------
// Factor 0: smoothed by [1 1 1; 1 5 1; 1 1 1] / 13, border pixels kept; 1: as it was; 2: sharpened.
// Pillow's bytes.
dt_status dt_pixels_sharpness(dt_image *image, float factor, dt_buffer *scratch);
// Gaussian, kernel x kernel taps (odd), mirrored at the borders: torchvision's within a level. Its weights, of 65536
// together: weight[0] the middle, weight[k] k to either side, up to the half that is returned.
enum { DT_MAX_BLUR = 128 };
int dt_blur_weights(int kernel, double sigma, uint32_t weight[DT_MAX_BLUR + 1]);
dt_status dt_pixels_blur(dt_image *image, int half, const uint32_t *weight, dt_buffer *scratch);
typedef struct dt_rect {
    int x, y, w, h;
} dt_rect;
// Gaussian noise, `deviation` in 0..1 of the range, from r's stream. A Philox block gives eight values: of each
// 16 bits, the lower byte chooses the quantile and the top bit the sign.
void dt_pixels_noise(dt_image *image, double deviation, const dt_rng *r);
// Fills a rectangle with a level, the image's mean, or random bytes of r numbered within it (`with`:
// pixel_steps.h).
void dt_pixels_patch(dt_image *image, dt_rect at, int with, const dt_rng *r);
void dt_pixels_mean(const dt_image *image, uint8_t mean[3]); // of each channel, rounded
void dt_pixels_fill(dt_image *image, dt_rect r, const uint8_t value[3]);

// ---- steps (play.c) --------------------------------------------------------------------------------
// Any step, in place.
dt_status dt_pixels_play(dt_image *image, const dt_pixel_step *s, dt_buffer *scratch);

#endif
