// pixel_steps.h: random changes to the pixels of an image, already drawn: a list of steps with their numbers.
// data/augment draws them and either plays them or leaves them to the network's first op, image_augment, as i32
// (N, n_steps * DT_PIXEL_STEP_WORDS). The bits are the same wherever a step is played: the arithmetic is in
// pixel_math.h, the list of steps in pixel_steps.def.
//
// Pixels are bytes (H,W,C), C 1 or 3. DT_PIXEL_END ends a list that is shorter than its memory.
#ifndef DT_BATCH_PIXEL_STEPS_H
#define DT_BATCH_PIXEL_STEPS_H

#include "base/rng.h"

#include <stdint.h>

enum dt_pixel_step_kind {
#define BYTE(id, reads_mean, e) DT_PIXEL_##id,
#define LUMA(id, e)             DT_PIXEL_##id,
#define RGB(id, e)              DT_PIXEL_##id,
#define TABLE(id, f)            DT_PIXEL_##id,
#define OTHER(id)               DT_PIXEL_##id,
#include "batch/pixel_steps.def"
    DT_N_PIXEL_STEPS
};

enum {
    DT_PATCH_MEAN = -1,
    DT_PATCH_RANDOM = -2,
    DT_PATCH_FIRST_BLOCK = 1024, // of the generator's, for random bytes
    DT_BLUR_MOST = 19            // taps to either side
};

typedef struct dt_pixel_step {
    int32_t kind;
    union {
        float factor;
        int32_t level;
        struct { // source = sign * out + offset; fill: of what lies outside, below 0: edges repeated
            int32_t fill, sign_x, from_x, sign_y, from_y;
        } move;
        struct { // out pixel -> source pixel, rows of 3 in 16.16
            int32_t fill, nearest;
            int64_t m[6];
        } warp;
        struct { // homogeneous
            int32_t fill, nearest;
            double m[9];
        } perspective;
        struct { // with: a level, DT_PATCH_MEAN or DT_PATCH_RANDOM (bytes of r)
            int32_t x, y, w, h, with;
            dt_rng r;
        } patch;
        struct { // deviation: in 0..1 of the range
            double deviation;
            dt_rng r;
        } noise;
        struct { // weight[k]: k to either side, of 65536 together
            int32_t half;
            uint32_t weight[DT_BLUR_MOST + 1];
        } blur;
    } as;
} dt_pixel_step;

enum { DT_PIXEL_STEP_WORDS = sizeof(dt_pixel_step) / sizeof(int32_t) };

#endif
