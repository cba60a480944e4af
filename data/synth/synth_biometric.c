// synth_biometric.c: fingerprints and irises of the same people.
//
// Identity is split between the modalities on purpose: subjects come in threes (a, b, c); a and b have
// nearly the same fingers, b and the next three's c nearly the same irises. So fingers alone cannot tell a
// from b, irises alone cannot tell b from c', and only both together name everyone.

#include "synth.h"

#include "base/core.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

// -- who everyone is ---------------------------------------------------------------------------
// ---- synth finger -------------------------------------------------------------------------------------------------

// Fingerprints from an orientation field, after the SFinGe method (Cappelli, Maio,
// Maltoni, "Synthetic fingerprint-database generation", ICPR 2002).
//
// The field comes from cores and deltas (Sherlock & Monro, "A model for interpreting fingerprint
// topology", 1993). White noise is filtered again and again with Gabor kernels turned along the field:
// ridges grow, and minutiae appear where they do not fit together, different in each finger. Ridges
// grow on a canvas where their period is always CANVAS_PERIOD, which is then scaled to the finger's.
//
// Traits: 0 pattern (arch, loops, whorl) · 1 ridge period · 2 ridge width · 3 darkness · 4 dryness
// (breaks in the ridges). A finger varies them a little; an impression moves, turns, presses, adds noise.

enum { N_ANGLES = 32, RADIUS = 6, SIDE = 2 * RADIUS + 1, GROWTH_STEPS = 6 };
static const float CANVAS_PERIOD = 7.0f;
static const float PI = 3.14159265358979f;

static float kernels[N_ANGLES][SIDE * SIDE];
static pthread_once_t kernels_once = PTHREAD_ONCE_INIT;

// Gabor kernels with zero mean and unit absolute sum; angle = direction along the ridge.
static void make_kernels(void) {
    const float sigma = 3.0f;
    for (int k = 0; k < N_ANGLES; k++) {
        // k-th direction of half a turn: ridges have no sense
        float angle = PI * (float)k / N_ANGLES, c = cosf(angle), s = sinf(angle), sum = 0, abs = 0;
        float window[SIDE * SIDE], weight = 0;
        for (int i = 0; i < SIDE * SIDE; i++) {
            float x = (float)(i % SIDE - RADIUS), y = (float)(i / SIDE - RADIUS);
            float across = -s * x + c * y; // distance from the ridge through the middle
            window[i] = expf(-(x * x + y * y) / (2 * sigma * sigma));
            kernels[k][i] = window[i] * cosf(2 * PI * across / CANVAS_PERIOD);
            sum += kernels[k][i];
            weight += window[i];
        }
        // zero mean: flat regions do not grow
        for (int i = 0; i < SIDE * SIDE; i++) kernels[k][i] -= window[i] * sum / weight;
        for (int i = 0; i < SIDE * SIDE; i++) abs += fabsf(kernels[k][i]);
        for (int i = 0; i < SIDE * SIDE; i++) kernels[k][i] /= abs; // unit absolute sum: values stay in -1..1
    }
}

// -- what this finger and impression are -------------------------------------------------------
typedef struct finger {
    float period, width, darkness, dryness;
    int n_singular;                // cores and deltas, each
    float core[2][2], delta[2][2]; // x, y in the finger's units
    bool arch;
    // shift in pixels; noise and light in grey levels
    float arch_height, tilt, shift_x, shift_y, noise, light_x, light_y;
    dt_synth_noise wave; // bends the field
} finger;

static void synth_finger_place(float p[2], dt_synth_draw *d, float x, float y) {
    p[0] = x + dt_synth_uniform(d, -0.04f, 0.04f);
    p[1] = y + dt_synth_uniform(d, -0.04f, 0.04f);
}

// Positions in units of the finger's width and height, y down, (0, 0) the middle.
static void choose_pattern(finger *f, dt_synth_draw *d, float trait) {
    int kind = (int)(trait * 4); // four kinds: arch, left loop, right loop, whorl
    f->arch = kind == 0;
    f->arch_height = dt_synth_uniform(d, 0.9f, 1.1f);
    f->n_singular = f->arch ? 0 : kind == 3 ? 2 : 1; // a whorl has two of each
    float side = kind == 1 ? -1.0f : 1.0f;           // left and right loop
    if (kind == 3) {
        synth_finger_place(f->core[0], d, 0, -0.10f);
        synth_finger_place(f->core[1], d, 0, 0.10f);
        synth_finger_place(f->delta[0], d, -0.42f, 0.40f);
        synth_finger_place(f->delta[1], d, 0.42f, 0.40f);
    } else {
        synth_finger_place(f->core[0], d, 0.05f * side, -0.08f);
        synth_finger_place(f->delta[0], d, 0.40f * side, 0.38f);
    }
}

static void make_finger(finger *f, const dt_synth_identity *who, uint64_t seed, uint32_t subject, uint32_t impression) {
    dt_synth_draw d = dt_synth_begin(seed, subject, impression, "finger");
    const float *t = who->trait;
    choose_pattern(f, &d, t[0]); // the pattern varies little with the impression
    f->period = 5.2f * powf(2.0f, t[1]) * dt_synth_uniform(&d, 0.97f, 1.03f); // pixels from ridge to ridge
    f->width = 0.9f * (t[2] - 0.5f) + dt_synth_uniform(&d, -0.05f, 0.05f);    // added to the ridges: thicker or thinner
    f->darkness = 90.0f + 120.0f * t[3] + dt_synth_uniform(&d, -6, 6);        // grey levels between ridge and ground
    f->dryness = 0.75f * t[4] + dt_synth_uniform(&d, -0.04f, 0.04f);
    f->tilt = dt_synth_uniform(&d, -0.12f, 0.12f); // radians
    f->shift_x = dt_synth_uniform(&d, -4, 4);
    f->shift_y = dt_synth_uniform(&d, -4, 4);
    f->noise = dt_synth_uniform(&d, 4, 9);
    f->light_x = dt_synth_uniform(&d, -8, 8);
    f->light_y = dt_synth_uniform(&d, -8, 8);
    dt_synth_noise_init(&f->wave, &d, 7, 7);
}

// Direction of the ridge at (x, y), in the finger's units.
static float orientation(const finger *f, float x, float y) {
    float angle = 0;
    if (f->arch) {
        float steep = fmaxf(0, 1 - fabsf(y) * 1.4f) * f->arch_height;
        angle = atanf(1.5f * steep * sinf(2.6f * x)); // slopes rise towards the middle, and fall off to both sides
    } else {
        angle = PI / 2;
        for (int i = 0; i < f->n_singular; i++) {
            // a core adds half a turn around it, a delta takes half a turn away
            angle += 0.5f * atan2f(y - f->core[i][1], x - f->core[i][0]);
            angle -= 0.5f * atan2f(y - f->delta[i][1], x - f->delta[i][0]);
        }
        if (f->n_singular == 2) angle += PI / 2;
    }
    // a smooth bend: no two fingers follow the model exactly
    return angle + 0.18f * dt_synth_noise_get(&f->wave, 6 * (x + 0.5f), 6 * (y + 0.5f));
}

// -- ridges ------------------------------------------------------------------------------------
typedef struct canvas {
    int w, h;         // with a border of RADIUS
    float scale;      // canvas pixels a picture pixel
    float *from, *to; // from: state of the last growth step; to: of the next
    uint8_t *angle;   // index of the kernel
} canvas;

static void make_canvas(canvas *c, const finger *f, dt_synth_draw *d) {
    c->scale = CANVAS_PERIOD / f->period; // ridges grow at one period, so one set of kernels does
    c->w = (int)(FINGER_W * c->scale) + 2 + 2 * RADIUS;
    c->h = (int)(FINGER_H * c->scale) + 2 + 2 * RADIUS;
    size_t n = (size_t)c->w * (size_t)c->h;
    c->from = dt_xcalloc(n, sizeof *c->from);
    c->to = dt_xcalloc(n, sizeof *c->to);
    c->angle = dt_xcalloc(n, 1);
    float cs = cosf(f->tilt), sn = sinf(f->tilt);
    for (int y = 0; y < c->h; y++)
        for (int x = 0; x < c->w; x++) {
            float px = ((float)(x - RADIUS) / c->scale - f->shift_x) / FINGER_W - 0.5f;
            float py = ((float)(y - RADIUS) / c->scale - f->shift_y) / FINGER_H - 0.5f;
            // into the finger's own direction
            float a = orientation(f, cs * px + sn * py, -sn * px + cs * py) + f->tilt;
            int k = (int)floorf(a / PI * N_ANGLES + 0.5f) % N_ANGLES; // nearest of N_ANGLES directions
            size_t i = (size_t)y * (size_t)c->w + (size_t)x;
            c->angle[i] = (uint8_t)(k < 0 ? k + N_ANGLES : k);
            c->from[i] = dt_synth_uniform(d, -1, 1); // white noise: minutiae appear where it does not fit the field
        }
}

static void synth_finger_grow(canvas *c) {
    for (int y = RADIUS; y < c->h - RADIUS; y++)
        for (int x = RADIUS; x < c->w - RADIUS; x++) {
            size_t i = (size_t)y * (size_t)c->w + (size_t)x;
            const float *k = kernels[c->angle[i]];
            const float *p = c->from + i - (size_t)RADIUS * (size_t)c->w - RADIUS; // upper left of the kernel's window
            float sum[SIDE] = {0}, total = 0; // columns apart: the compiler can use vectors
            for (int v = 0; v < SIDE; v++, k += SIDE, p += c->w)
                for (int u = 0; u < SIDE; u++) sum[u] += k[u] * p[u];
            for (int u = 0; u < SIDE; u++) total += sum[u];
            total *= 6; // gain: the pattern saturates within GROWTH_STEPS steps
            c->to[i] = total > 1 ? 1 : total < -1 ? -1 : total;
        }
    float *t = c->from;
    c->from = c->to;
    c->to = t;
}

static float canvas_get(const canvas *c, float x, float y) {
    x = x * c->scale + RADIUS;
    y = y * c->scale + RADIUS;
    int x0 = (int)x, y0 = (int)y;
    float u = x - (float)x0, v = y - (float)y0; // bilinear between canvas pixels
    const float *p = c->from + (size_t)y0 * (size_t)c->w + (size_t)x0, *q = p + c->w;
    return (p[0] * (1 - u) + p[1] * u) * (1 - v) + (q[0] * (1 - u) + q[1] * u) * v;
}

// -- the picture -------------------------------------------------------------------------------
// out: (FINGER_H, FINGER_W) grey, top row first.
static void render_finger(uint8_t *out, const dt_synth_identity *who, uint64_t seed, uint32_t subject,
                          uint32_t impression) {
    pthread_once(&kernels_once, make_kernels); // once for all threads
    finger f;
    canvas c;
    make_finger(&f, who, seed, subject, impression); // the same draws whenever this impression is made
    dt_synth_draw d = dt_synth_begin(seed, subject, impression, "finger pixels");
    make_canvas(&c, &f, &d);
    for (int i = 0; i < GROWTH_STEPS; i++) synth_finger_grow(&c);
    dt_synth_noise dry, press;
    // dryness varies over 3 pixels, pressure over a quarter of the finger
    dt_synth_noise_init(&dry, &d, FINGER_W / 3 + 2, FINGER_H / 3 + 2);
    dt_synth_noise_init(&press, &d, 4, 4);
    for (int y = 0; y < FINGER_H; y++)
        for (int x = 0; x < FINGER_W; x++) {
            float fx = (float)x, fy = (float)y;
            float px = (fx - f.shift_x) / FINGER_W - 0.5f, py = (fy - f.shift_y) / FINGER_H - 0.5f;
            float inside = 1 - synth_step(0.21f, 0.25f, px * px + 0.86f * py * py); // an ellipse of skin
            float pressure = 0.12f * dt_synth_noise_get(&press, fx / 36, fy / 38);
            // a soft edge: ridges are not black or white
            float ridge = synth_step(-0.45f, 0.45f, canvas_get(&c, fx, fy) + f.width + pressure);
            float gap = dt_synth_noise_get(&dry, fx / 3, fy / 3);
            // gaps in the ridges of a dry finger
            ridge *= 1 - 0.9f * synth_step(1 - 1.6f * f.dryness, 1.25f - 1.6f * f.dryness, gap);
            float grey = 232 - inside * ridge * f.darkness + f.light_x * px + f.light_y * py;
            grey += f.noise * dt_synth_normal(&d);
            out[y * FINGER_W + x] = synth_byte(grey);
        }
    dt_synth_noise_fini(&dry);
    dt_synth_noise_fini(&press);
    dt_synth_noise_fini(&f.wave);
    free(c.from);
    free(c.to);
    free(c.angle);
}

// ---- synth iris ---------------------------------------------------------------------------------------------------

// Irises from a texture in polar coordinates.
//
// An eye has one texture, (radius, angle) -> brightness and colour: fibres that run outward, the
// collarette ring, furrows around the pupil, crypts (dark holes) and a dark rim. A picture unrolls it
// around a pupil of some dilation, turned and shifted, under some light, partly behind the lids, with
// a reflection and noise.
//
// Traits: 0 colour (blue .. grey-green .. amber .. brown) · 1 colour of the inner ring · 2 number of
// fibres and width of the rim · 3 where the collarette lies and how strong it is · 4 crypts and
// darkness.

enum { N_RADII = 96, SYNTH_IRIS_N_ANGLES = 768 };
static const float SYNTH_IRIS_PI = 3.14159265358979f;

typedef struct eye {
    dt_synth_identity who;
    int side;
    float texture[N_RADII * SYNTH_IRIS_N_ANGLES]; // brightness, about 0..1
    float edge[SYNTH_IRIS_N_ANGLES];              // radius of the collarette
} eye;

// -- the eye -----------------------------------------------------------------------------------
static void add_fibres(eye *e, dt_synth_draw *d) {
    int fibres = 18 + (int)(72 * e->who.trait[2]); // 18 to 90 around the pupil
    dt_synth_noise coarse, fine, bend;
    dt_synth_noise_init(&coarse, d, fibres, 5);
    dt_synth_noise_init(&fine, d, 2 * fibres, 9);
    dt_synth_noise_init(&bend, d, 9, 5);
    for (int r = 0; r < N_RADII; r++)
        for (int a = 0; a < SYNTH_IRIS_N_ANGLES; a++) { // (radius, angle)
            // u: 0 at the pupil, 1 at the rim; turn: 0..1
            float u = (float)r / N_RADII, turn = (float)a / SYNTH_IRIS_N_ANGLES;
            float t = turn + 0.012f * dt_synth_noise_get(&bend, 9 * turn, 4 * u); // fibres bend a little
            float v = dt_synth_noise_get(&coarse, t * (float)fibres, 4 * u) +
                      0.5f * dt_synth_noise_get(&fine, 2 * t * (float)fibres, 8 * u);
            e->texture[r * SYNTH_IRIS_N_ANGLES + a] = 0.55f + 0.33f * v;
        }
    dt_synth_noise_fini(&coarse);
    dt_synth_noise_fini(&fine);
    dt_synth_noise_fini(&bend);
}

static void add_collarette(eye *e, dt_synth_draw *d) {
    float where = 0.18f + 0.48f * e->who.trait[3], strength = 0.15f + 0.30f * e->who.trait[3];
    float furrows = dt_synth_uniform(d, 18, 26); // furrows: rings outside of the collarette, as radians over the radius
    dt_synth_noise zigzag;
    dt_synth_noise_init(&zigzag, d, 23, 1);
    for (int a = 0; a < SYNTH_IRIS_N_ANGLES; a++) {
        // the collarette zigzags
        e->edge[a] = where + 0.05f * dt_synth_noise_get(&zigzag, 23.0f * (float)a / SYNTH_IRIS_N_ANGLES, 0);
        for (int r = 0; r < N_RADII; r++) {
            float u = (float)r / N_RADII, off = (u - e->edge[a]) / 0.05f;
            float v = strength * expf(-off * off); // a bright ridge of Gaussian profile
            if (u > e->edge[a]) v += 0.05f * sinf(furrows * u);
            e->texture[r * SYNTH_IRIS_N_ANGLES + a] += v;
        }
    }
    dt_synth_noise_fini(&zigzag);
}

static void add_crypts(eye *e, dt_synth_draw *d) {
    int n = (int)(90 * e->who.trait[4] + 0.5f);
    for (int i = 0; i < n; i++) {
        float r = dt_synth_uniform(d, 0.15f, 0.9f) * N_RADII, a = dt_synth_uniform(d, 0, SYNTH_IRIS_N_ANGLES);
        float hr = dt_synth_uniform(d, 3, 7), ha = dt_synth_uniform(d, 5, 13); // half axes in texture points
        float depth = dt_synth_uniform(d, 0.3f, 0.5f);
        for (int y = (int)(r - 2 * hr); y <= (int)(r + 2 * hr); y++)
            for (int x = (int)(a - 2 * ha); x <= (int)(a + 2 * ha); x++) {
                if (y < 0 || y >= N_RADII) continue; // crypts end at pupil and rim, and wrap around the angle
                float dy = ((float)y - r) / hr, dx = ((float)x - a) / ha;
                float *p = &e->texture[y * SYNTH_IRIS_N_ANGLES + (x + SYNTH_IRIS_N_ANGLES) % SYNTH_IRIS_N_ANGLES];
                *p -= depth * expf(-1.5f * (dx * dx + dy * dy) * (dx * dx + dy * dy));
            }
    }
}

static eye *eye_create(const dt_synth_identity *who, uint64_t seed, uint32_t subject, int side) {
    eye *e = dt_xcalloc(1, sizeof *e);
    e->who = *who;
    e->side = side;
    // side: left and right eye of a subject differ
    dt_synth_draw d = dt_synth_begin(seed, subject, (uint32_t)side, "eye");
    add_fibres(e, &d);
    add_collarette(e, &d);
    add_crypts(e, &d);
    return e;
}

// -- colour ------------------------------------------------------------------------------------
// Eye colours in order; a trait picks a place between two of them.
static void eye_colour(float rgb[3], float trait) {
    static const float ramp[][3] = {{92, 132, 184}, {120, 150, 165}, {112, 140, 112},
                                    {150, 132, 80}, {142, 92, 48},   {92, 56, 34}};
    float t = trait * 5;
    int i = t >= 4.999f ? 4 : (int)t;
    for (int k = 0; k < 3; k++) rgb[k] = ramp[i][k] + (ramp[i + 1][k] - ramp[i][k]) * (t - (float)i);
}

// -- a picture ---------------------------------------------------------------------------------
typedef struct view {
    float cx, cy, radius, pupil, turn; // pupil: share of the radius
    float upper, lower;                // lids: height above and below the centre, in radii
    float gain[3], light_x, light_y, noise, glint_x, glint_y;
    float outer[3], inner[3];
    dt_synth_noise lashes;
} view;

static void synth_iris_make_view(view *v, const eye *e, dt_synth_draw *d) {
    v->cx = IRIS_W / 2 + dt_synth_uniform(d, -12, 12);
    v->cy = IRIS_H / 2 + dt_synth_uniform(d, -8, 8);
    v->radius = dt_synth_uniform(d, 92, 100);
    v->pupil = dt_synth_uniform(d, 0.28f, 0.46f); // dilation
    v->turn = dt_synth_uniform(d, -0.03f, 0.03f); // in turns
    v->upper = dt_synth_uniform(d, 0.55f, 0.95f);
    v->lower = dt_synth_uniform(d, 0.80f, 1.10f);
    float gain = dt_synth_uniform(d, 0.93f, 1.07f);
    for (int k = 0; k < 3; k++) v->gain[k] = gain * dt_synth_uniform(d, 0.98f, 1.02f);
    v->light_x = dt_synth_uniform(d, -0.09f, 0.09f);
    v->light_y = dt_synth_uniform(d, -0.09f, 0.09f);
    v->noise = dt_synth_uniform(d, 4, 9);
    v->glint_x = dt_synth_uniform(d, -0.2f, 0.2f);
    v->glint_y = dt_synth_uniform(d, -0.25f, 0.0f);
    eye_colour(v->outer, e->who.trait[0]);
    // the inner ring has a hue of its own
    eye_colour(v->inner, fmodf(e->who.trait[0] * 0.35f + 0.65f * e->who.trait[1] + 0.3f, 1.0f));
    dt_synth_noise_init(&v->lashes, d, 160, 3);
}

static float texture_get(const eye *e, float u, float turn) {
    float r = u * (N_RADII - 1), a = (turn - floorf(turn)) * SYNTH_IRIS_N_ANGLES; // wrapped to one turn
    int r0 = (int)r, a0 = (int)a % SYNTH_IRIS_N_ANGLES, a1 = (a0 + 1) % SYNTH_IRIS_N_ANGLES;
    int r1 = r0 + 1 < N_RADII ? r0 + 1 : r0;
    float v = r - (float)r0, w = a - floorf(a);
    const float *p = e->texture + r0 * SYNTH_IRIS_N_ANGLES, *q = e->texture + r1 * SYNTH_IRIS_N_ANGLES;
    return (p[a0] * (1 - w) + p[a1] * w) * (1 - v) + (q[a0] * (1 - w) + q[a1] * w) * v;
}

static void paint_iris(float rgb[3], const eye *e, const view *v, float rho, float turn) {
    float u = (rho - v->pupil) / (1 - v->pupil); // 0 at the pupil's edge, 1 at the rim
    u = u < 0 ? 0 : u > 1 ? 1 : u;
    turn += v->turn;
    turn -= floorf(turn);
    float bright = 0.45f + 0.9f * texture_get(e, u, turn);
    float edge = e->edge[(int)(turn * SYNTH_IRIS_N_ANGLES) % SYNTH_IRIS_N_ANGLES];
    float ring = 1 - synth_step(edge - 0.08f, edge + 0.08f, u); // inside of the collarette: the inner colour
    float rim = 0.92f - 0.30f * e->who.trait[2];                // the dark rim begins
    bright *= 1 - 0.6f * synth_step(rim - 0.04f, rim + 0.08f, u);
    bright *= 1.2f - 0.45f * e->who.trait[4];
    for (int k = 0; k < 3; k++) rgb[k] = bright * (v->outer[k] + (v->inner[k] - v->outer[k]) * ring);
}

// Lids are parabolas; the upper one throws a shadow and has lashes.
static void paint_lids(float rgb[3], const view *v, float dx, float dy) {
    float upper = -v->upper + 0.42f * dx * dx, lower = v->lower - 0.34f * dx * dx;
    float shade = 1 - synth_step(0, 0.22f, dy - upper);
    synth_blend(rgb, rgb[0] * 0.6f, rgb[1] * 0.6f, rgb[2] * 0.6f, shade);
    float lash = dt_synth_noise_get(&v->lashes, 40 * (dx + 2) + 4 * (dy - upper), 0);
    if (dy > upper && dy < upper + 0.16f && lash > 0.45f) synth_blend(rgb, 30, 24, 22, 0.75f);
    synth_blend(rgb, 205, 168, 146, 1 - synth_step(-0.02f, 0.02f, dy - upper));
    synth_blend(rgb, 208, 172, 150, synth_step(-0.02f, 0.02f, dy - lower));
}

static void paint_pixel(float rgb[3], const eye *e, const view *v, float dx, float dy) {
    float rho = sqrtf(dx * dx + dy * dy);
    rgb[0] = 226, rgb[1] = 218, rgb[2] = 212; // sclera
    if (rho < 1.03f) {
        float iris[3];
        paint_iris(iris, e, v, rho, atan2f(dy, dx) / (2 * SYNTH_IRIS_PI));              // angle in turns
        synth_blend(rgb, iris[0], iris[1], iris[2], 1 - synth_step(0.97f, 1.03f, rho)); // soft edges of rim and pupil
        synth_blend(rgb, 14, 12, 12, 1 - synth_step(v->pupil - 0.02f, v->pupil + 0.02f, rho));
    }
    float gx = dx - v->glint_x, gy = dy - v->glint_y;
    synth_blend(rgb, 250, 250, 250, 1 - synth_step(0.002f, 0.006f, gx * gx + gy * gy));
    paint_lids(rgb, v, dx, dy);
}

// out: (IRIS_H, IRIS_W, RGB).
static void render_iris(uint8_t *out, const eye *e, uint64_t seed, uint32_t subject, uint32_t impression) {
    view v;
    dt_synth_draw d = dt_synth_begin(seed, subject, impression, "iris");
    synth_iris_make_view(&v, e, &d);
    float mirror = e->side ? -1.0f : 1.0f; // the nose is on the other side
    for (int y = 0; y < IRIS_H; y++)
        for (int x = 0; x < IRIS_W; x++) {
            // in units of the iris's radius
            float dx = mirror * ((float)x - v.cx) / v.radius, dy = ((float)y - v.cy) / v.radius;
            float rgb[3], light = 1 + v.light_x * dx + v.light_y * dy;
            float grain = v.noise * dt_synth_normal(&d);
            paint_pixel(rgb, e, &v, dx, dy);
            // three channels of one grain: sensor noise is grey
            for (int k = 0; k < 3; k++) *out++ = synth_byte(rgb[k] * light * v.gain[k] + grain);
        }
    dt_synth_noise_fini(&v.lashes);
}

// Point g of a sequence that fills the unit cube evenly (Roberts's generalised golden ratio in five
// dimensions), so that groups are as far apart as their number allows.
static dt_synth_identity group_identity(uint64_t seed, uint32_t g, const char *purpose) {
    const double ratio = 1.1347241384015194; // the root of x^6 = x + 1
    dt_synth_identity who;
    dt_synth_draw d = dt_synth_begin(seed, 0, 0, purpose);
    double step = 1;
    for (int k = 0; k < SYNTH_TRAITS; k++) {
        step /= ratio; // 1/ratio, 1/ratio², ...
        // a random start per purpose: fingers and irises are unrelated
        double v = dt_synth_uniform(&d, 0, 1) + step * (g + 1);
        who.trait[k] = (float)(v - floor(v));
    }
    return who;
}

// Fingers: the first two of three share a group. Irises: the second shares with the third of the
// three before (cyclic). Two groups a three; subjects beyond the last whole three stand alone.
static uint32_t synth_biometric_group_of(uint32_t subject, uint32_t n_subjects, bool iris) {
    uint32_t threes = n_subjects / 3, three = subject / 3, place = subject % 3;
    if (three >= threes) return 2 * threes + place; // beyond the last whole three: alone in a group
    // cyclic: the first three's second subject shares with the last three's third
    if (iris && place == 1) return 2 * ((three + threes - 1) % threes) + 1;
    return 2 * three + (place == 2);
}

static dt_synth_identity synth_biometric_identity(uint64_t seed, uint32_t subject, uint32_t n_subjects, bool iris) {
    uint32_t g = synth_biometric_group_of(subject, n_subjects, iris);
    dt_synth_identity who = group_identity(seed, g, iris ? "iris traits" : "finger traits");
    // a subject's own deviation from the group
    dt_synth_draw d = dt_synth_begin(seed, subject, 0, iris ? "iris twin" : "finger twin");
    // smaller than the distance of groups: twins are alike, not the same
    for (int k = 0; k < SYNTH_TRAITS; k++) {
        float v = who.trait[k] + dt_synth_uniform(&d, -0.015f, 0.015f);
        who.trait[k] = v < 0 ? 0 : v > 0.999f ? 0.999f : v;
    }
    return who;
}

// 11 of 45 are female, evenly distributed, for any number.
static char gender(uint32_t subject) {
    return (subject + 1) * 11 / 45 > subject * 11 / 45 ? 'F' : 'M'; // Bresenham's rule: evenly spread
}

// -- files -------------------------------------------------------------------------------------
static dt_status write_fingers(const dt_synth_job *j, uint32_t subject) {
    static const char *const names[] = {"thumb", "index", "middle", "ring", "little"};
    char path[PATH_MAX], suffix[16] = "";
    uint8_t pixels[FINGER_W * FINGER_H];
    dt_synth_identity who = synth_biometric_identity(j->seed, subject, j->n, false);
    // five fingers of the left hand, five of the right, then again
    for (uint32_t k = 0; k < j->n_impressions; k++) {
        render_finger(pixels, &who, j->seed, subject, k);
        // names of the known layout have no number
        if (j->n_impressions != 10) snprintf(suffix, sizeof suffix, "_%u", k + 1);
        snprintf(path, sizeof path, "%s/fingerprint/%u/%u__%c_%s_%s_finger%s.BMP", j->out, subject + 1, subject + 1,
                 gender(subject), k / 5 % 2 ? "Right" : "Left", names[k % 5], suffix);
        DT_TRY(dt_synth_write_bmp(path, pixels, FINGER_W, FINGER_H, 1));
    }
    return DT_OK;
}

static dt_status write_irises(const dt_synth_job *j, uint32_t subject) {
    char path[PATH_MAX];
    dt_synth_identity who = synth_biometric_identity(j->seed, subject, j->n, true);
    uint8_t *pixels = dt_xcalloc(3, IRIS_W * IRIS_H); // (240, 320, RGB)
    dt_status st = DT_OK;
    for (int side = 0; side < 2 && st == DT_OK; side++) {
        // a texture is made once for all pictures of an eye
        eye *e = eye_create(&who, j->seed, subject, side);
        // odd impressions are of the right eye
        for (uint32_t k = (uint32_t)side; k < j->n_impressions && st == DT_OK; k += 2) {
            render_iris(pixels, e, j->seed, subject, k);
            snprintf(path, sizeof path, "%s/iris/%u/%u_%c_%c_%u.bmp", j->out, subject + 1, subject + 1, gender(subject),
                     side ? 'R' : 'L', k / 2 + 1);
            st = dt_synth_write_bmp(path, pixels, IRIS_W, IRIS_H, 3);
        }
        free(e);
    }
    free(pixels);
    return st;
}

static dt_status synth_biometric_make(const dt_synth_job *j, uint32_t subject) {
    DT_TRY(write_fingers(j, subject));
    return write_irises(j, subject);
}

const dt_synth_kind synth_biometric = {
    .name = "biometric",
    .help = "fingerprints (96 x 103, 32-bit BMP) and irises (320 x 240, 24-bit BMP), 10 each a person",
    .unit = "subjects",
    .default_n = 45,
    .of_people = true,
    .make = synth_biometric_make};
