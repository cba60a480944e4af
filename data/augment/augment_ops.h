// augment_ops.h: what the files of augment/ share: the table of operations (augment_table.c), an
// operation with its parameters as parsed, and the image while a list of them walks over it.
#ifndef DT_DATA_AUGMENT_OPS_H
#define DT_DATA_AUGMENT_OPS_H

#include "augment.h"
#include "pixels.h"

#include "base/rng.h"

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

// Policies (augment_policy.c).
dt_augment_run dt_augment_run_auto, dt_augment_run_rand, dt_augment_run_trivial;

#endif
