// augment_policy.c: AutoAugment, RandAugment and TrivialAugment choose operations of a common space, by a
// learnt policy or at random.
//
// The space is torchvision's version of the papers': shears and translations about the corner, rotations up to
// 30 degrees, blends 1 ± magnitude. A magnitude is one of equal steps from 0 to the largest; signs are drawn.
// AutoAugment (Cubuk et al., "AutoAugment: learning augmentation strategies from data", CVPR 2019) takes one of
// 25 pairs of operations, each with a probability and one of 10 steps. RandAugment (Cubuk et al., 2020) takes n
// operations at one of 31 steps. TrivialAugment (Müller and Hutter, ICCV 2021) takes one operation at any step
// of a wider space.
#include "augment_ops.h"

#include <math.h>

typedef enum member {
    IDENTITY,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    ROTATE,
    BRIGHTNESS,
    COLOR,
    CONTRAST,
    SHARPNESS,
    POSTERIZE,
    SOLARIZE,
    AUTOCONTRAST,
    EQUALIZE,
    INVERT
} member;
enum { N_SPACE = INVERT }; // Invert is AutoAugment's alone

typedef struct space {
    double shear, degrees, blend, pixels; // largest magnitudes; pixels 0: 150/331 of the size
    int posterize;                        // bits taken away at most
} space;
static const space NORMAL = {0.3, 30, 0.9, 0, 4}, WIDE = {0.99, 135, 0.99, 32, 6};

// The magnitude of a step 0..last, from 0 to `most`: in single precision and counted from the nearer end, as in
// torchvision. Whether a blend hits a whole level depends on it.
typedef struct strength {
    int step, last;
    double sign; // for what goes either way
} strength;

static double augment_policy_magnitude(strength at, double most) {
    float delta = (float)most / (float)at.last;
    bool low = at.step < (at.last + 1) / 2;
    return low ? delta * (float)at.step : (float)most - delta * (float)(at.last - at.step);
}

static dt_status augment_policy_map(dt_canvas *c, dt_map m, dt_border border) {
    return dt_canvas_map(c, &m, border, true);
}

static dt_status apply_geometry(dt_canvas *c, const space *s, member what, strength at, dt_border border) {
    double w = c->image->width, h = c->image->height;
    if (what == SHEAR_X || what == SHEAR_Y)
        return augment_policy_map(c, dt_map_shear(augment_policy_magnitude(at, s->shear) * at.sign, what == SHEAR_Y),
                                  border);
    if (what == ROTATE)
        return augment_policy_map(
            c, dt_map_rotate(augment_policy_magnitude(at, s->degrees) * at.sign, 1, (int)w, (int)h), border);
    double reach = s->pixels > 0 ? s->pixels : 150.0 / 331 * (what == TRANSLATE_X ? w : h);
    double d = -trunc(augment_policy_magnitude(at, reach)) * at.sign;
    dt_map m = what == TRANSLATE_X ? dt_map_shift(d, 0) : dt_map_shift(0, d);
    return dt_canvas_map(c, &m, border, false);
}

static int step_of(member what) {
    static const int STEPS[] = {
        [BRIGHTNESS] = DT_PIXEL_BRIGHTNESS,     [COLOR] = DT_PIXEL_SATURATION,    [CONTRAST] = DT_PIXEL_CONTRAST,
        [SHARPNESS] = DT_PIXEL_SHARPNESS,       [POSTERIZE] = DT_PIXEL_POSTERIZE, [SOLARIZE] = DT_PIXEL_SOLARIZE,
        [AUTOCONTRAST] = DT_PIXEL_AUTOCONTRAST, [EQUALIZE] = DT_PIXEL_EQUALIZE,   [INVERT] = DT_PIXEL_INVERT};
    return STEPS[what];
}

static dt_status augment_policy_apply(dt_canvas *c, const space *s, member what, strength at, dt_border border) {
    if (what == IDENTITY) return DT_OK;
    if (what <= ROTATE) return apply_geometry(c, s, what, at, border);
    dt_pixel_step step = {.kind = step_of(what)};
    if (what <= SHARPNESS)
        step.as.factor = (float)(1 + augment_policy_magnitude(at, s->blend) * at.sign);
    else if (what == POSTERIZE)
        step.as.level = dt_posterize_mask(8 - (int)nearbyint((double)s->posterize * at.step / at.last));
    else if (what == SOLARIZE)
        step.as.level = dt_solarize_from(255 - augment_policy_magnitude(at, 255));
    return dt_canvas_step(c, &step);
}

static double sign_of(const dt_rng *r, uint32_t element) {
    return dt_rng_u32(r, element) >> 31 ? 1 : -1;
}

static dt_border policy_border(const dt_value2 *fill_and_interpolation) {
    return (dt_border){.fill = (int)fill_and_interpolation[0].from, .nearest = fill_and_interpolation[1].from == 1};
}

// ---- AutoAugment ---------------------------------------------------------------------------------------
// Operation, probability in tenths, step 0..9 (-1: it has none).
typedef struct learnt {
    int8_t what, tenths, step;
} learnt;

static const learnt LEARNT[3][25][2] = {
    // ImageNet
    {{{POSTERIZE, 4, 8}, {ROTATE, 6, 9}},    {{SOLARIZE, 6, 5}, {AUTOCONTRAST, 6, -1}},
     {{EQUALIZE, 8, -1}, {EQUALIZE, 6, -1}}, {{POSTERIZE, 6, 7}, {POSTERIZE, 6, 6}},
     {{EQUALIZE, 4, -1}, {SOLARIZE, 2, 4}},  {{EQUALIZE, 4, -1}, {ROTATE, 8, 8}},
     {{SOLARIZE, 6, 3}, {EQUALIZE, 6, -1}},  {{POSTERIZE, 8, 5}, {EQUALIZE, 10, -1}},
     {{ROTATE, 2, 3}, {SOLARIZE, 6, 8}},     {{EQUALIZE, 6, -1}, {POSTERIZE, 4, 6}},
     {{ROTATE, 8, 8}, {COLOR, 4, 0}},        {{ROTATE, 4, 9}, {EQUALIZE, 6, -1}},
     {{EQUALIZE, 0, -1}, {EQUALIZE, 8, -1}}, {{INVERT, 6, -1}, {EQUALIZE, 10, -1}},
     {{COLOR, 6, 4}, {CONTRAST, 10, 8}},     {{ROTATE, 8, 8}, {COLOR, 10, 2}},
     {{COLOR, 8, 8}, {SOLARIZE, 8, 7}},      {{SHARPNESS, 4, 7}, {INVERT, 6, -1}},
     {{SHEAR_X, 6, 5}, {EQUALIZE, 10, -1}},  {{COLOR, 4, 0}, {EQUALIZE, 6, -1}},
     {{EQUALIZE, 4, -1}, {SOLARIZE, 2, 4}},  {{SOLARIZE, 6, 5}, {AUTOCONTRAST, 6, -1}},
     {{INVERT, 6, -1}, {EQUALIZE, 10, -1}},  {{COLOR, 6, 4}, {CONTRAST, 10, 8}},
     {{EQUALIZE, 8, -1}, {EQUALIZE, 6, -1}}},
    // CIFAR-10
    {{{INVERT, 1, -1}, {CONTRAST, 2, 6}},         {{ROTATE, 7, 2}, {TRANSLATE_X, 3, 9}},
     {{SHARPNESS, 8, 1}, {SHARPNESS, 9, 3}},      {{SHEAR_Y, 5, 8}, {TRANSLATE_Y, 7, 9}},
     {{AUTOCONTRAST, 5, -1}, {EQUALIZE, 9, -1}},  {{SHEAR_Y, 2, 7}, {POSTERIZE, 3, 7}},
     {{COLOR, 4, 3}, {BRIGHTNESS, 6, 7}},         {{SHARPNESS, 3, 9}, {BRIGHTNESS, 7, 9}},
     {{EQUALIZE, 6, -1}, {EQUALIZE, 5, -1}},      {{CONTRAST, 6, 7}, {SHARPNESS, 6, 5}},
     {{COLOR, 7, 7}, {TRANSLATE_X, 5, 8}},        {{EQUALIZE, 3, -1}, {AUTOCONTRAST, 4, -1}},
     {{TRANSLATE_Y, 4, 3}, {SHARPNESS, 2, 6}},    {{BRIGHTNESS, 9, 6}, {COLOR, 2, 8}},
     {{SOLARIZE, 5, 2}, {INVERT, 0, -1}},         {{EQUALIZE, 2, -1}, {AUTOCONTRAST, 6, -1}},
     {{EQUALIZE, 2, -1}, {EQUALIZE, 6, -1}},      {{COLOR, 9, 9}, {EQUALIZE, 6, -1}},
     {{AUTOCONTRAST, 8, -1}, {SOLARIZE, 2, 8}},   {{BRIGHTNESS, 1, 3}, {COLOR, 7, 0}},
     {{SOLARIZE, 4, 5}, {AUTOCONTRAST, 9, -1}},   {{TRANSLATE_Y, 9, 9}, {TRANSLATE_Y, 7, 9}},
     {{AUTOCONTRAST, 9, -1}, {SOLARIZE, 8, 3}},   {{EQUALIZE, 8, -1}, {INVERT, 1, -1}},
     {{TRANSLATE_Y, 7, 9}, {AUTOCONTRAST, 9, -1}}},
    // SVHN
    {{{SHEAR_X, 9, 4}, {INVERT, 2, -1}},       {{SHEAR_Y, 9, 8}, {INVERT, 7, -1}},
     {{EQUALIZE, 6, -1}, {SOLARIZE, 6, 6}},    {{INVERT, 9, -1}, {EQUALIZE, 6, -1}},
     {{EQUALIZE, 6, -1}, {ROTATE, 9, 3}},      {{SHEAR_X, 9, 4}, {AUTOCONTRAST, 8, -1}},
     {{SHEAR_Y, 9, 8}, {INVERT, 4, -1}},       {{SHEAR_Y, 9, 5}, {SOLARIZE, 2, 6}},
     {{INVERT, 9, -1}, {AUTOCONTRAST, 8, -1}}, {{EQUALIZE, 6, -1}, {ROTATE, 9, 3}},
     {{SHEAR_X, 9, 4}, {SOLARIZE, 3, 3}},      {{SHEAR_Y, 8, 8}, {INVERT, 7, -1}},
     {{EQUALIZE, 9, -1}, {TRANSLATE_Y, 6, 6}}, {{INVERT, 9, -1}, {EQUALIZE, 6, -1}},
     {{CONTRAST, 3, 3}, {ROTATE, 8, 4}},       {{INVERT, 8, -1}, {TRANSLATE_Y, 0, 2}},
     {{SHEAR_Y, 7, 6}, {SOLARIZE, 4, 8}},      {{INVERT, 6, -1}, {ROTATE, 8, 4}},
     {{SHEAR_Y, 3, 7}, {TRANSLATE_X, 9, 3}},   {{SHEAR_X, 1, 6}, {INVERT, 6, -1}},
     {{SOLARIZE, 7, 2}, {TRANSLATE_Y, 6, 7}},  {{SHEAR_Y, 8, 4}, {INVERT, 8, -1}},
     {{SHEAR_X, 7, 9}, {TRANSLATE_Y, 8, 3}},   {{SHEAR_Y, 8, 5}, {AUTOCONTRAST, 7, -1}},
     {{SHEAR_X, 7, 2}, {INVERT, 1, -1}}},
};

// Draws: 0 the pair, 1 and 2 whether, 3 and 4 signs.
dt_status dt_augment_run_auto(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    const learnt *pair = LEARNT[(int)o->v[0].from][dt_rng_below(r, 0, 25)];
    dt_border border = policy_border(&o->v[1]);
    for (uint32_t i = 0; i < 2; i++) {
        if ((double)dt_rng_uniform(r, 1 + i) >= pair[i].tenths / 10.0) continue;
        strength at = {pair[i].step < 0 ? 0 : pair[i].step, 9, sign_of(r, 3 + i)};
        DT_TRY(augment_policy_apply(c, &NORMAL, (member)pair[i].what, at, border));
    }
    return DT_OK;
}

// Draws: 2 i which, 2 i + 1 sign.
dt_status dt_augment_run_rand(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    dt_border border = policy_border(&o->v[2]);
    for (uint32_t i = 0; i < (uint32_t)o->v[0].from; i++) {
        member what = (member)dt_rng_below(r, 2 * i, N_SPACE);
        strength at = {(int)o->v[1].from, 30, sign_of(r, 2 * i + 1)};
        DT_TRY(augment_policy_apply(c, &NORMAL, what, at, border));
    }
    return DT_OK;
}

// Draws: 0 which, 1 sign, 2 step.
dt_status dt_augment_run_trivial(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    member what = (member)dt_rng_below(r, 0, N_SPACE);
    strength at = {(int)dt_rng_below(r, 2, 31), 30, sign_of(r, 1)};
    return augment_policy_apply(c, &WIDE, what, at, policy_border(&o->v[0]));
}
