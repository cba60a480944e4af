// augment_table.c: the table of operations: names, parameters, defaults, and what each draws and does.
//
// The parser, the errors, the table of docs/reference/augmentation.md and `dtrain keys data.augment` come from
// dt_augment_kinds. run() draws an operation's parameters from the Philox stream of its place (element numbers are
// part of what a seed means: they never change) and makes steps of them (batch/pixel_steps.h). Geometry goes to the
// canvas, which resamples once for all operations that follow one another.
//
// A new operation on values is a line of dt_augment_kinds and one of batch/pixel_steps.def, from which host and
// device play it.

#include "augment.h"

#include <math.h>
#include <string.h>

// ---- geometry ----------------------------------------------------------------------------------------
static dt_border border_of(dt_value2 fill) {
    return (dt_border){.fill = fill.from < 0 ? -1 : (int)fill.from};
}

static dt_border border_of2(dt_value2 fill, dt_value2 interpolation) {
    dt_border b = border_of(fill);
    b.nearest = interpolation.from == 1;
    return b;
}

static dt_status run_rotate(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    dt_map m = dt_map_rotate(dt_draw(r, 0, o->v[0]), 1, c->image->width, c->image->height);
    return dt_canvas_map(c, &m, border_of2(o->v[1], o->v[2]), true);
}

static dt_status run_shift(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    dt_map m = dt_map_shift(dt_draw(r, 0, o->v[0]) * c->image->width, dt_draw(r, 1, o->v[0]) * c->image->height);
    return dt_canvas_map(c, &m, border_of(o->v[1]), true);
}

static dt_status run_zoom(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    dt_map m = dt_map_rotate(0, dt_draw(r, 0, o->v[0]), c->image->width, c->image->height);
    return dt_canvas_map(c, &m, border_of(o->v[1]), true);
}

static dt_status run_crop(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    int pad = (int)o->v[0].from;
    uint32_t n_places = 2 * (uint32_t)pad + 1;
    dt_map m = dt_map_shift((double)dt_rng_below(r, 0, n_places) - pad, (double)dt_rng_below(r, 1, n_places) - pad);
    return dt_canvas_map(c, &m, border_of(o->v[1]), false);
}

static void draw_flip(const dt_augment_op *o, const dt_rng *r, bool *x, bool *y) {
    enum { HORIZONTAL, VERTICAL, BOTH };
    int axis = (int)o->v[0].from;
    *x = axis != VERTICAL && dt_rng_uniform(r, 0) >= 1 - o->p;
    *y = axis != HORIZONTAL && dt_rng_uniform(r, 1) >= 1 - o->p;
}

static dt_status run_flip(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    bool x, y;
    draw_flip(o, r, &x, &y);
    if (!x && !y) return DT_OK;
    dt_map m = dt_map_flip(x, y, c->image->width, c->image->height);
    return dt_canvas_map(c, &m, (dt_border){DT_FILL_ANY, false}, false);
}

bool dt_augment_turns(const dt_augment_op *o, const dt_rng *r) {
    bool x, y;
    if (o->kind->run != run_flip) return false;
    draw_flip(o, r, &x, &y);
    return x;
}

bool dt_augment_is_mirror(const dt_augment_op *o, const dt_rng *r) {
    bool x, y;
    if (o->kind->run != run_flip) return false;
    draw_flip(o, r, &x, &y);
    return x && !y;
}

static dt_status run_affine(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    int w = c->image->width, h = c->image->height;
    dt_map m = dt_map_affine(dt_draw(r, 0, o->v[0]), dt_draw(r, 1, o->v[1]) * w, dt_draw(r, 2, o->v[1]) * h,
                             dt_draw(r, 3, o->v[2]), dt_draw(r, 4, o->v[3]), dt_draw(r, 5, o->v[4]), w, h);
    return dt_canvas_map(c, &m, border_of2(o->v[5], o->v[6]), true);
}

// Each corner moves inwards by up to distortion / 2 of the size.
static dt_status run_perspective(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    double w = c->image->width, h = c->image->height, reach = o->v[0].from / 2, to[4][2];
    const double from[4][2] = {{0, 0}, {w, 0}, {w, h}, {0, h}};
    for (uint32_t i = 0; i < 4; i++) {
        double dx = reach * w * (double)dt_rng_uniform(r, 2 * i);
        double dy = reach * h * (double)dt_rng_uniform(r, 2 * i + 1);
        to[i][0] = from[i][0] > 0 ? w - dx : dx;
        to[i][1] = from[i][1] > 0 ? h - dy : dy;
    }
    dt_map m;
    if (!dt_map_perspective(&m, from, to)) return DT_OK; // corners on a line: nothing to see
    return dt_canvas_map(c, &m, border_of2(o->v[1], o->v[2]), true);
}

// ---- values --------------------------------------------------------------------------------------------
static dt_status change(dt_canvas *c, int kind, int level) {
    dt_pixel_step s = {.kind = kind};
    s.as.level = level;
    return dt_canvas_step(c, &s);
}

static dt_status blend(dt_canvas *c, int kind, double factor) {
    dt_pixel_step s = {.kind = kind};
    s.as.factor = (float)factor;
    return dt_canvas_step(c, &s);
}

static dt_status run_factor(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    return blend(c, o->kind->step, dt_draw(r, 0, o->v[0]));
}

static dt_status run_plain(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    return change(c, o->kind->step, 0);
}

static dt_status run_hue(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    return change(c, DT_PIXEL_HUE, dt_hue_turn(dt_draw(r, 0, o->v[0])));
}

// The four in random order: 24 orders, the draw's digits in the factorial system.
static dt_status run_color_jitter(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    enum { HUE = 3 };
    static const int WHAT[HUE] = {DT_PIXEL_BRIGHTNESS, DT_PIXEL_CONTRAST, DT_PIXEL_SATURATION};
    uint32_t left[4] = {0, 1, 2, HUE}, order = dt_rng_below(r, 4, 24);
    DT_TRY(dt_canvas_flush(c)); // whether there are any or not
    for (uint32_t n = 4; n > 0; n--) {
        uint32_t pick = order % n, k = left[pick];
        order /= n;
        for (uint32_t i = pick; i + 1 < n; i++) left[i] = left[i + 1];
        double none = k == HUE ? 0 : 1;
        if (o->v[k].from == none && o->v[k].to == none) continue; // the draw keeps its number, so that others stay
        double by = dt_draw(r, k, o->v[k]);
        DT_TRY(k == HUE ? change(c, DT_PIXEL_HUE, dt_hue_turn(by)) : blend(c, WHAT[k], by));
    }
    return DT_OK;
}

static dt_status run_solarize(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    return change(c, DT_PIXEL_SOLARIZE, dt_solarize_from(o->v[0].from));
}

static dt_status run_posterize(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    return change(c, DT_PIXEL_POSTERIZE, dt_posterize_mask((int)o->v[0].from));
}

// ---- neighbourhoods, noise, rectangles -----------------------------------------------------------------
// More taps than a step holds are played at once.
static dt_status run_blur(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    uint32_t weight[DT_MAX_BLUR + 1];
    dt_pixel_step s = {.kind = DT_PIXEL_BLUR};
    int half = dt_blur_weights((int)o->v[0].from, dt_draw(r, 0, o->v[1]), weight);
    if (!dt_augment_has_steps(o)) {
        DT_TRY(dt_canvas_flush(c));
        return dt_pixels_blur(c->image, half, weight, c->scratch);
    }
    s.as.blur.half = half;
    memcpy(s.as.blur.weight, weight, (size_t)(half + 1) * sizeof *weight);
    return dt_canvas_step(c, &s);
}

bool dt_augment_has_steps(const dt_augment_op *o) {
    return o->kind->run != run_blur || (int)o->v[0].from / 2 <= DT_BLUR_MOST;
}

static dt_status run_noise(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    dt_pixel_step s = {.kind = DT_PIXEL_NOISE};
    s.as.noise.deviation = o->v[0].from;
    s.as.noise.r = *r;
    return dt_canvas_step(c, &s);
}

static dt_status augment_table_patch(dt_canvas *c, const dt_rng *r, dt_rect at, dt_value2 with) {
    dt_pixel_step s = {.kind = DT_PIXEL_PATCH};
    s.as.patch.x = at.x, s.as.patch.y = at.y;
    s.as.patch.w = at.w, s.as.patch.h = at.h;
    s.as.patch.with = (int)with.from;
    s.as.patch.r = *r;
    return dt_canvas_step(c, &s);
}

static dt_status run_erase(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    dt_rect at;
    DT_TRY(dt_canvas_flush(c)); // whether there is one or not
    if (!dt_draw_part(r, o->v[0], o->v[1], c->image->width, c->image->height, &at)) return DT_OK;
    return augment_table_patch(c, r, at, o->v[2]);
}

// A square whose centre is any pixel; what reaches over the border is lost.
static dt_status run_cutout(const dt_augment_op *o, const dt_rng *r, dt_canvas *c) {
    int w = c->image->width, h = c->image->height;
    int side = (int)lround(o->v[0].from * (w < h ? w : h));
    int x = (int)dt_rng_below(r, 0, (uint32_t)w) - side / 2;
    int y = (int)dt_rng_below(r, 1, (uint32_t)h) - side / 2;
    int right = x + side < w ? x + side : w, bottom = y + side < h ? y + side : h;
    x = x < 0 ? 0 : x;
    y = y < 0 ? 0 : y;
    return augment_table_patch(c, r, (dt_rect){x, y, right - x, bottom - y}, o->v[1]);
}

// RandAugment says how many itself.
int dt_augment_most_steps(const dt_augment_op *o) {
    if (o->kind->run == dt_augment_run_rand) return (int)o->v[0].from;
    return o->kind->n_steps > 0 ? o->kind->n_steps : 1;
}

// ---- the table -----------------------------------------------------------------------------------------
#define REAL(name, low, high, value)                                                                                   \
    { name, DT_AUGMENT_REAL, low, high, value, value, NULL }
#define WHOLE(name, low, high, value)                                                                                  \
    { name, DT_AUGMENT_WHOLE, low, high, value, value, NULL }
#define RANGE(name, low, high, from, to)                                                                               \
    { name, DT_AUGMENT_RANGE, low, high, from, to, NULL }
#define EITHER(name, high, value)                                                                                      \
    { name, DT_AUGMENT_EITHER, -(high), high, -(value), value, NULL }
#define FACTOR(name, low, high, value)                                                                                 \
    { name, DT_AUGMENT_FACTOR, low, high, 1 - (value), 1 + (value), NULL }
#define INTERPOLATION                                                                                                  \
    { "interpolation", DT_AUGMENT_WORD, 0, 0, 0, 0, "bilinear|nearest" }
#define FILL                                                                                                           \
    { "fill", DT_AUGMENT_WORD, 0, 255, -1, -1, "edge" }
#define PATCH                                                                                                          \
    { "fill", DT_AUGMENT_WORD, 0, 255, DT_PATCH_MEAN, DT_PATCH_MEAN, "mean|random" }

#define OP(id, text, does, probability, ...)                                                                           \
    { .name = id, .help = text, .run = does, .p = probability, __VA_ARGS__ }

const dt_augment_kind dt_augment_kinds[] = {
    OP("random_resized_crop", "a part of the whole image, resized; must be first", NULL, 1, .maps = true, .first = true,
       .params = {RANGE("scale", 0, 1, 0.08, 1), RANGE("ratio", 0.01, 100, 3.0 / 4, 4.0 / 3)}),
    OP("flip", "each axis on its own with probability p", run_flip, 0.5, .maps = true, .custom_p = true,
       .params = {{"axis", DT_AUGMENT_WORD, 0, 0, NAN, 0, "horizontal|vertical|both"}}),
    OP("crop", "whole pixels: as if padded all around and cut to size", run_crop, 1, .maps = true,
       .params = {WHOLE("padding", 0, 1024, NAN), FILL}),
    OP("shift", "share of width and height", run_shift, 1, .maps = true, .params = {EITHER("by", 1, NAN), FILL}),
    OP("zoom", "about the centre", run_zoom, 1, .maps = true, .params = {FACTOR("by", 0.1, 10, NAN), FILL}),
    OP("rotate", "about the centre, counter-clockwise", run_rotate, 1, .maps = true,
       .params = {EITHER("degrees", 180, NAN), FILL, INTERPOLATION}),
    OP("affine", "turn (degrees), shift (share of the size), scale, shears (degrees) about the centre", run_affine, 1,
       .maps = true,
       .params = {EITHER("degrees", 180, NAN), EITHER("translate", 1, 0), RANGE("scale", 0.1, 10, 1, 1),
                  EITHER("shear", 80, 0), EITHER("shear_y", 80, 0), FILL, INTERPOLATION}),
    OP("perspective", "each corner moves inwards by up to half of this share of the size", run_perspective, 0.5,
       .maps = true, .params = {REAL("distortion", 0, 0.95, 0.5), FILL, INTERPOLATION}),
    OP("brightness", "factor on all values", run_factor, 1, .step = DT_PIXEL_BRIGHTNESS,
       .params = {FACTOR("by", 0, 10, NAN)}),
    OP("contrast", "factor on the distance from the mean grey level", run_factor, 1, .step = DT_PIXEL_CONTRAST,
       .params = {FACTOR("by", 0, 10, NAN)}),
    OP("saturation", "factor on the distance from the pixel's grey level; colour images", run_factor, 1,
       .step = DT_PIXEL_SATURATION, .params = {FACTOR("by", 0, 10, NAN)}),
    OP("hue", "turn of the colour circle; colour images", run_hue, 1, .params = {EITHER("by", 0.5, NAN)}),
    OP("color_jitter", "the four above in random order", run_color_jitter, 1, .n_steps = 4,
       .params = {FACTOR("brightness", 0, 10, 0), FACTOR("contrast", 0, 10, 0), FACTOR("saturation", 0, 10, 0),
                  EITHER("hue", 0.5, 0)}),
    OP("grayscale", "colour taken away", run_plain, 0.1, .step = DT_PIXEL_GREY),
    OP("sharpness", "0 smoothed, 1 as it is, 2 sharpened", run_factor, 1, .step = DT_PIXEL_SHARPNESS,
       .params = {FACTOR("by", 0, 10, NAN)}),
    OP("blur", "Gaussian: taps a side, standard deviation in pixels", run_blur, 0.5,
       .params = {{"kernel", DT_AUGMENT_ODD, 1, 255, 23, 23, NULL}, RANGE("sigma", 0.05, 100, 0.1, 2)}),
    OP("noise", "Gaussian: standard deviation, of a range of 0..1", run_noise, 1,
       .params = {REAL("deviation", 0, 1, NAN)}),
    OP("invert", "v becomes 255 - v", run_plain, 0.5, .step = DT_PIXEL_INVERT),
    OP("solarize", "inverts values from the threshold on", run_solarize, 0.5,
       .params = {REAL("threshold", 0, 256, 128)}),
    OP("posterize", "keeps so many bits of a value", run_posterize, 0.5, .params = {WHOLE("bits", 0, 8, NAN)}),
    OP("equalize", "even histogram, by channel", run_plain, 0.5, .step = DT_PIXEL_EQUALIZE),
    OP("autocontrast", "values stretched to 0..255, by channel", run_plain, 0.5, .step = DT_PIXEL_AUTOCONTRAST),
    OP("erase", "a rectangle: share of the area, width to height; fill: the mean, bytes at random or a level",
       run_erase, 0.5, .params = {RANGE("scale", 0, 1, 0.02, 0.33), RANGE("ratio", 0.01, 100, 0.3, 3.3), PATCH}),
    OP("cutout", "a square: share of the shorter side; its centre may be anywhere", run_cutout, 1,
       .params = {REAL("size", 0, 2, 0.5), PATCH}),
    OP("auto_augment", "Cubuk et al. 2019: a learnt pair of operations, of 25", dt_augment_run_auto, 1, .may_map = true,
       .n_steps = 2, .params = {{"policy", DT_AUGMENT_WORD, 0, 0, 0, 0, "imagenet|cifar10|svhn"}, FILL, INTERPOLATION}),
    OP("rand_augment", "Cubuk et al. 2020: n of 14 operations, all at one magnitude of 31", dt_augment_run_rand, 1,
       .may_map = true, .params = {WHOLE("n", 1, 14, 2), WHOLE("magnitude", 0, 30, 9), FILL, INTERPOLATION}),
    OP("trivial_augment", "Müller and Hutter 2021: one of 14 operations at any magnitude", dt_augment_run_trivial, 1,
       .may_map = true, .params = {FILL, INTERPOLATION}),
    {.name = NULL}};

// ---- augment policy -----------------------------------------------------------------------------------------------

// AutoAugment, RandAugment and TrivialAugment choose operations of a common space, by a
// learnt policy or at random.
//
// The space is torchvision's version of the papers': shears and translations about the corner, rotations up to
// 30 degrees, blends 1 ± magnitude. A magnitude is one of equal steps from 0 to the largest; signs are drawn.
// AutoAugment (Cubuk et al., "AutoAugment: learning augmentation strategies from data", CVPR 2019) takes one of
// 25 pairs of operations, each with a probability and one of 10 steps. RandAugment (Cubuk et al., 2020) takes n
// operations at one of 31 steps. TrivialAugment (Müller and Hutter, ICCV 2021) takes one operation at any step
// of a wider space.

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
