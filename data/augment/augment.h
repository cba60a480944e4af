// augment.h: augmentation: the interface, the table of changes, and their work on pixels.
#ifndef DT_DATA_AUGMENT_AUGMENT_H
#define DT_DATA_AUGMENT_AUGMENT_H

#include "base/rng.h"
#include "batch/pixel_steps.h"
#include "config/config.h"
#include "data/decode/decode.h"

// ---- augment ------------------------------------------------------------------------------------------------------

// Random changes to training images: a list of operations, parsed once from the config. What a
// sample gets is a function of (seed, epoch, sample or draw, operation), never of the thread.

typedef struct dt_augment dt_augment; // immutable: shared by workers

// data.augment names images and sounds of data.fields, or DT_E_USAGE with the place in the file.
dt_status dt_augment_check_fields(const dt_config *c);
// `list`: the list under data.augment.<field>. DT_E_USAGE with the place in the file.
dt_status dt_augment_parse(dt_augment **out, const dt_cnode *list, const char *field);
void dt_augment_destroy(dt_augment *a);

typedef struct dt_augment_key {
    uint64_t seed;
    // sample: its view index, or its position in the epoch where it may be drawn several times
    uint32_t sample, epoch;
} dt_augment_key;

// Whether the list starts with random_resized_crop.
bool dt_augment_crops(const dt_augment *a);
// The part of the decoded image to resize from, {left, top, right, bottom}. False: there is no such operation,
// or it does not happen (p).
bool dt_augment_box(const dt_augment *a, const dt_augment_key *k, int width, int height, double box[4]);
// The first operation that cannot change floats (dt_image.real), or NULL. Operations that only move pixels can.
const char *dt_augment_of_bytes(const dt_augment *a);
// Whether this sample begins with a left-right flip that the resize may do (dt_resize_mirrored,
// image->mirrored). The resulting bytes are the same either way.
bool dt_augment_mirrors(const dt_augment *a, const dt_augment_key *k);
// Whether its flips together turn left and right.
bool dt_augment_flips(const dt_augment *a, const dt_augment_key *k);
// Applies the other operations in place to (H,W,C) bytes or floats, through `scratch`; without that flip if
// image->mirrored.
dt_status dt_augment_apply(const dt_augment *a, const dt_augment_key *k, dt_image *image, dt_buffer *scratch);

// dt_augment_apply for bytes only, but leaves the tail of the list to a device: `steps` receives
// dt_augment_device_steps steps for it (batch/pixel_steps.h), unused ones DT_PIXEL_END. Host and device
// together give the same bytes. 0: nothing can be left.
int dt_augment_device_steps(const dt_augment *a);
dt_status dt_augment_split(const dt_augment *a, const dt_augment_key *k, dt_image *image, dt_buffer *scratch,
                           dt_pixel_step *steps);

// The i-th operation of the table with its parameters, as a line of a Markdown table or as plain text, into
// buf; NULL beyond the last.
const char *dt_augment_describe(int i, bool markdown, char *buf, size_t cap);

// ---- pixels -------------------------------------------------------------------------------------------------------

// What operations with given parameters do to pixels: (H,W,C) bytes, 1 or 3 channels, any size from
// 1x1. No randomness here. Tests compare these with Pillow and torchvision; each comment says how close they
// are. `scratch` grows and is reused; DT_E_INTERNAL: out of memory.

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

// ---- values (pixels.c), in place -------------------------------------------------------------------
// The steps BYTE, LUMA, RGB and TABLE of batch/pixel_steps.def; false if s is another. The same bytes as Pillow's
// ImageEnhance / ImageOps, which torchvision calls, but for the hue, which turns at constant value and chroma,
// exactly, rounded once: within a level of torchvision on tensors. (Pillow's detour through 8-bit hue and
// saturation is lossy.)
bool dt_pixels_values(dt_image *image, const dt_pixel_step *s);
int dt_hue_turn(double turn); // -0.5..0.5 of the circle
int dt_solarize_from(double threshold);
int dt_posterize_mask(int bits); // the upper ones, 0..8

// ---- neighbourhoods and rectangles (pixels.c), in place ---------------------------------------------
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
void dt_pixels_mean(const dt_image *image, uint8_t mean[3]); // of each channel, rounded
void dt_pixels_fill(dt_image *image, dt_rect r, const uint8_t value[3]);

// ---- steps (pixels.c) --------------------------------------------------------------------------------
// Any step, in place.
dt_status dt_pixels_play(dt_image *image, const dt_pixel_step *s, dt_buffer *scratch);

// ---- augment ops --------------------------------------------------------------------------------------------------

// What the files of augment/ share: the table of operations (augment_table.c), an
// operation with its parameters as parsed, and the image while a list of them walks over it.

// ---- parameters ------------------------------------------------------------------------------------
typedef enum dt_augment_type {
    DT_AUGMENT_NONE,   // ends the list
    DT_AUGMENT_REAL,   // a number
    DT_AUGMENT_WHOLE,  // a whole number
    DT_AUGMENT_ODD,    // an odd whole number
    DT_AUGMENT_RANGE,  // [from, to]
    DT_AUGMENT_EITHER, // a, for [-a, a]; or [from, to]
    DT_AUGMENT_FACTOR, // a, for [1 - a, 1 + a] but not below 0; or [from, to]
    DT_AUGMENT_WORD,   // one of `words`; or, where `high` > 0, a number in low..high
} dt_augment_type;

typedef struct dt_augment_param {
    const char *name;
    dt_augment_type type;
    double low, high;  // of the values
    double from, to;   // default; `from` NAN: must be given
    const char *words; // "a|b": the value is the index; beside numbers -1 - index
} dt_augment_param;

enum { DT_MAX_PARAMS = 7 };

typedef struct dt_value2 {
    double from, to; // single numbers: twice the same
} dt_value2;

// ---- operations ------------------------------------------------------------------------------------
typedef struct dt_canvas dt_canvas;
typedef struct dt_augment_op dt_augment_op;
typedef dt_status dt_augment_run(const dt_augment_op *o, const dt_rng *r, dt_canvas *c);

// A change to sounds: n_channels rows of n samples, stride apart, changed by v, which is draw 0.
typedef dt_status dt_sound_change(const dt_rng *r, double v, float *x, size_t n, size_t n_channels, size_t stride,
                                  dt_buffer *scratch);

// A line of the table. In the config a bare word takes all defaults, a bare value is the first parameter, and a
// map names parameters, including `p`.
typedef struct dt_augment_kind {
    const char *name, *help;
    int step;                // DT_PIXEL_…: of a run() that several operations share
    dt_augment_run *run;     // NULL: chooses a box before the resize (dt_augment_box)
    double p;                // default probability
    bool custom_p;           // run() sees to p itself
    bool first;              // must be the first of the list
    bool maps;               // only moves pixels: works on floats too
    bool may_map;            // one of several things, some of which move pixels
    int n_steps;             // of pixel_steps.h that it takes at most; 0: one
    dt_sound_change *change; // of sounds: changes samples; NULL: masks features,
    bool masks_bands;        // bands, else frames
    dt_augment_param params[DT_MAX_PARAMS + 1];
} dt_augment_kind;

extern const dt_augment_kind dt_augment_kinds[]; // a NULL name ends it

struct dt_augment_op {
    const dt_augment_kind *kind;
    uint32_t purpose; // of its random numbers: dt_hash32("augment.<field>.<position>")
    double p;
    dt_value2 v[DT_MAX_PARAMS];
};

struct dt_augment {
    dt_augment_op *ops;
    int n_ops;
};

// A list of operations of `kinds`, which a NULL name ends; `example` is of one. DT_E_USAGE with the place.
dt_status dt_augment_parse_list(dt_augment **out, const dt_augment_kind *kinds, const char *example,
                                const dt_cnode *list, const char *field);
dt_rng dt_augment_rng(const dt_augment_op *o, const dt_augment_key *k);
bool dt_augment_happens(const dt_augment_op *o, const dt_rng *r); // by p

// ---- the image -------------------------------------------------------------------------------------
// Geometric operations are held back, so that consecutive ones are one resampling. Maps go from output to
// source pixels.
enum { DT_FILL_ANY = -2 }; // of a border that the map never looks at

struct dt_canvas {
    dt_image *image;
    dt_buffer *scratch;
    dt_pixel_step *steps; // where they are left for a device to play; NULL: they are played here
    int n_steps, cap_steps;
    dt_map map;
    dt_border border; // of the map, if it is not the identity
    bool moves, interpolates;
};

// Composes n with the map that waits; `interpolates`: false if n moves whole pixels only.
dt_status dt_canvas_map(dt_canvas *c, const dt_map *n, dt_border border, bool interpolates);
// Resamples by the map that waits, if any.
dt_status dt_canvas_flush(dt_canvas *c);
// Flushes, then plays the step or leaves it. Every change of a pixel comes through here.
dt_status dt_canvas_step(dt_canvas *c, const dt_pixel_step *s);

// Whether steps can express o, and how many steps it takes at most.
bool dt_augment_has_steps(const dt_augment_op *o);
int dt_augment_most_steps(const dt_augment_op *o);

// Whether o, with these draws, is a flip that turns left and right.
bool dt_augment_turns(const dt_augment_op *o, const dt_rng *r);
// Whether o, with these draws, is a left-right flip and nothing else.
bool dt_augment_is_mirror(const dt_augment_op *o, const dt_rng *r);

// ---- draws -----------------------------------------------------------------------------------------
static inline double dt_draw(const dt_rng *r, uint32_t element, dt_value2 v) {
    return v.from + (v.to - v.from) * (double)dt_rng_uniform(r, element);
}

// A random rectangle: `scale` is its share of the area, `ratio` its width to height (uniform in the logarithm).
// Ten tries; try i uses draws 4 i .. 4 i + 3. False: none fits.
bool dt_draw_part(const dt_rng *r, dt_value2 scale, dt_value2 ratio, int w, int h, dt_rect *out);

// Policies (augment_table.c).
dt_augment_run dt_augment_run_auto, dt_augment_run_rand, dt_augment_run_trivial;

#endif
