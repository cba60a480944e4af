// synth_photos.c: textured scenes of ten classes, in the sizes in which photographs come.
//
// Sky and ground of fractal noise, and a few objects of one class before them: the class is the object's
// outline, surface (plain or striped disc, square, triangle, ring, cross) and, as of fruit, roughly its colour, never its
// size or place. The noise keeps JPEG files as large as photographs are (some 55 KB on average).
// <class>/000017.jpg.
#include "base/core.h"
#include "synth.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { OCTAVES = 4, MOST_OBJECTS = 4, LATTICE = 64 }; // LATTICE: points of the noise in each direction
static const char *const CLASSES[] = {"disc",     "disc-striped",     "square", "square-striped",
                                      "triangle", "triangle-striped", "ring",   "ring-striped",
                                      "cross",    "cross-striped"};
enum { N_CLASSES = sizeof CLASSES / sizeof *CLASSES };

typedef struct object {
    // size: share of the shorter side; period: of stripes, in units of the size
    float x, y, size, cos, sin, colour[3], stripe[3], period;
} object;

typedef struct photo {
    int width, height, class, n_objects;
    // horizon: share of the height; rough: grey levels of texture; light: factor
    float horizon, sky[3], ground[3], rough, light;
    object objects[MOST_OBJECTS];
} photo;

static int synth_photos_class_of(const dt_synth_job *j, uint32_t i) {
    // a purpose of its own: the class does not depend on how a photo is drawn
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "class");
    return (int)dt_synth_uniform(&d, 0, N_CLASSES);
}

// Sides as in the common large set of photographs: most 500 x 375, some upright, some smaller or larger.
static void draw_size(photo *p, dt_synth_draw *d) {
    float kind = dt_synth_uniform(d, 0, 1);
    int longer = kind < 0.6f ? 500 : (int)dt_synth_uniform(d, 240, 900);
    float ratio = dt_synth_uniform(d, 0, 1) < 0.7f ? 0.75f : dt_synth_uniform(d, 0.6f, 1);
    int shorter = (int)lrintf((float)longer * ratio);
    bool upright = dt_synth_uniform(d, 0, 1) < 0.25f;
    p->width = upright ? shorter : longer;
    p->height = upright ? longer : shorter;
}

static void draw_colour(float out[3], dt_synth_draw *d, float low, float high) {
    const float level = dt_synth_uniform(d, low, high); // grey of one level, tinted
    for (int c = 0; c < 3; c++) out[c] = level + dt_synth_uniform(d, -25, 25);
}

// A bright colour near the class's place on the circle of hues.
static void draw_hue(float out[3], dt_synth_draw *d, int class) {
    const float hue = (float)class / N_CLASSES + dt_synth_uniform(d, -0.02f, 0.02f);
    const float bright = dt_synth_uniform(d, 170, 250), pale = dt_synth_uniform(d, 0, 0.3f);
    for (int c = 0; c < 3; c++) { // thirds of the circle apart: red, green, blue
        const float wave = 0.5f + 0.5f * cosf(6.2831853f * (hue - (float)c / 3));
        out[c] = bright * (pale + (1 - pale) * wave);
    }
}

static photo photo_of(const dt_synth_job *j, uint32_t i) {
    photo p = {.class = synth_photos_class_of(j, i)};
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "photo");
    draw_size(&p, &d);
    p.horizon = dt_synth_uniform(&d, 0.2f, 0.7f);
    p.rough = dt_synth_uniform(&d, 25, 60);
    p.light = dt_synth_uniform(&d, 0.6f, 1.2f); // exposure
    draw_colour(p.sky, &d, 90, 220);
    draw_colour(p.ground, &d, 40, 170);
    p.n_objects = 1 + (int)dt_synth_uniform(&d, 0, MOST_OBJECTS);
    for (int k = 0; k < p.n_objects; k++) {
        object *o = &p.objects[k];
        o->x = dt_synth_uniform(&d, 0.15f, 0.85f);
        o->y = dt_synth_uniform(&d, 0.15f, 0.85f);
        o->size = dt_synth_uniform(&d, 0.12f, 0.3f);
        float turn = dt_synth_uniform(&d, 0, 6.2831853f); // radians
        o->cos = cosf(turn);
        o->sin = sinf(turn);
        o->period = dt_synth_uniform(&d, 0.25f, 0.5f);
        draw_hue(o->colour, &d, p.class);
        for (int c = 0; c < 3; c++) o->stripe[c] = 0.4f * o->colour[c];
    }
    return p;
}

// u, v in units of the object's size, -1..1.
static bool synth_photos_is_inside(int shape, float u, float v) {
    switch (shape) {
    case 0:
        return u * u + v * v < 1;
    case 1:
        return fabsf(u) < 0.85f && fabsf(v) < 0.85f;
    case 2:
        return v > -0.6f && v < 1 - 1.8f * fabsf(u); // upright triangle
    case 3:
        return u * u + v * v < 1 && u * u + v * v > 0.3f;
    default:
        return (fabsf(u) < 0.3f && fabsf(v) < 1) || (fabsf(v) < 0.3f && fabsf(u) < 1);
    }
}

static const float *object_colour(const photo *p, float x, float y) {
    float side = (float)(p->width < p->height ? p->width : p->height);
    for (int k = p->n_objects - 1; k >= 0; k--) { // the last drawn lies in front
        const object *o = &p->objects[k];
        float dx = (x - o->x * (float)p->width) / (o->size * side);
        float dy = (y - o->y * (float)p->height) / (o->size * side);
        if (dx * dx + dy * dy > 2) continue; // beyond the reach of every outline
        float u = o->cos * dx + o->sin * dy, v = o->cos * dy - o->sin * dx;
        if (!synth_photos_is_inside(p->class / 2, u, v)) continue; // two classes per outline: plain, striped
        bool stripe = p->class % 2 && fmodf(u + 8, o->period) < o->period / 2; // + 8: fmodf of a positive number
        return stripe ? o->stripe : o->colour;
    }
    return NULL;
}

static float fractal(const dt_synth_noise *n, float x, float y) {
    float sum = 0, weight = 0.5f, scale = 1 / 48.0f;
    for (int k = 0; k < OCTAVES; k++, weight *= 0.62f, scale *= 2.7f) // each octave finer and weaker
        // x wraps by itself, y by fmodf
        sum += weight * dt_synth_noise_get(n, x * scale, fmodf(y * scale, LATTICE - 1));
    return sum;
}

static void synth_photos_render(uint8_t *rgb, const dt_synth_job *j, uint32_t i, const photo *p) {
    dt_synth_noise field;
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "grain");
    dt_synth_noise_init(&field, &d, LATTICE, LATTICE);
    for (int y = 0; y < p->height; y++)
        for (int x = 0; x < p->width; x++) {
            float texture = fractal(&field, (float)x, (float)y);
            // the horizon is uneven
            float edge = p->horizon * (float)p->height + 12 * dt_synth_noise_get(&field, (float)x / 40, 3);
            const float *colour = object_colour(p, (float)x, (float)y);
            bool sky = !colour && (float)y < edge;
            if (!colour) colour = sky ? p->sky : p->ground;
            float grain = p->rough * texture * (sky ? 0.3f : 1) + 4 * dt_synth_normal(&d); // skies are smoother
            for (int c = 0; c < 3; c++) *rgb++ = synth_byte(p->light * colour[c] + grain);
        }
    dt_synth_noise_fini(&field);
}

static dt_status synth_photos_make(const dt_synth_job *j, uint32_t i) {
    char path[PATH_MAX];
    photo p = photo_of(j, i);
    uint8_t *rgb = dt_xcalloc((size_t)p.width * (size_t)p.height, 3);
    synth_photos_render(rgb, j, i, &p);
    snprintf(path, sizeof path, "%s/%s/%06u.jpg", j->out, CLASSES[p.class], i);
    dt_status st = dt_synth_write_jpeg(path, rgb, p.width, p.height, 90); // quality of the JPEG
    free(rgb);
    return st;
}

const dt_synth_kind synth_photos = {.name = "photos",
                                    .help = "textured scenes of ten classes, JPEG of 500 x 375 and others",
                                    .unit = "photos",
                                    .default_n = 10000,
                                    .make = synth_photos_make};
