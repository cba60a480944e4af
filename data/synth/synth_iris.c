// synth_iris.c: irises from a texture in polar coordinates.
//
// An eye has one texture, (radius, angle) -> brightness and colour: fibres that run outward, the
// collarette ring, furrows around the pupil, crypts (dark holes) and a dark rim. A picture unrolls it
// around a pupil of some dilation, turned and shifted, under some light, partly behind the lids, with
// a reflection and noise.
//
// Traits: 0 colour (blue .. grey-green .. amber .. brown) · 1 colour of the inner ring · 2 number of
// fibres and width of the rim · 3 where the collarette lies and how strong it is · 4 crypts and
// darkness.
#include "base/arena.h"
#include "synth_kinds.h"

#include <math.h>
#include <stdlib.h>

enum { N_RADII = 96, SYNTH_IRIS_N_ANGLES = 768 };
static const float SYNTH_IRIS_PI = 3.14159265358979f;

struct dt_synth_eye {
    dt_synth_identity who;
    int side;
    float texture[N_RADII * SYNTH_IRIS_N_ANGLES]; // brightness, about 0..1
    float edge[SYNTH_IRIS_N_ANGLES];              // radius of the collarette
};

// -- the eye -----------------------------------------------------------------------------------
static void add_fibres(dt_synth_eye *e, dt_synth_draw *d) {
    int fibres = 18 + (int)(72 * e->who.trait[2]);
    dt_synth_noise coarse, fine, bend;
    dt_synth_noise_init(&coarse, d, fibres, 5);
    dt_synth_noise_init(&fine, d, 2 * fibres, 9);
    dt_synth_noise_init(&bend, d, 9, 5);
    for (int r = 0; r < N_RADII; r++)
        for (int a = 0; a < SYNTH_IRIS_N_ANGLES; a++) {
            float u = (float)r / N_RADII, turn = (float)a / SYNTH_IRIS_N_ANGLES;
            float t = turn + 0.012f * dt_synth_noise_get(&bend, 9 * turn, 4 * u);
            float v = dt_synth_noise_get(&coarse, t * (float)fibres, 4 * u) +
                      0.5f * dt_synth_noise_get(&fine, 2 * t * (float)fibres, 8 * u);
            e->texture[r * SYNTH_IRIS_N_ANGLES + a] = 0.55f + 0.33f * v;
        }
    dt_synth_noise_fini(&coarse);
    dt_synth_noise_fini(&fine);
    dt_synth_noise_fini(&bend);
}

static void add_collarette(dt_synth_eye *e, dt_synth_draw *d) {
    float where = 0.18f + 0.48f * e->who.trait[3], strength = 0.15f + 0.30f * e->who.trait[3];
    float furrows = dt_synth_uniform(d, 18, 26);
    dt_synth_noise zigzag;
    dt_synth_noise_init(&zigzag, d, 23, 1);
    for (int a = 0; a < SYNTH_IRIS_N_ANGLES; a++) {
        e->edge[a] = where + 0.05f * dt_synth_noise_get(&zigzag, 23.0f * (float)a / SYNTH_IRIS_N_ANGLES, 0);
        for (int r = 0; r < N_RADII; r++) {
            float u = (float)r / N_RADII, off = (u - e->edge[a]) / 0.05f;
            float v = strength * expf(-off * off);
            if (u > e->edge[a]) v += 0.05f * sinf(furrows * u);
            e->texture[r * SYNTH_IRIS_N_ANGLES + a] += v;
        }
    }
    dt_synth_noise_fini(&zigzag);
}

static void add_crypts(dt_synth_eye *e, dt_synth_draw *d) {
    int n = (int)(90 * e->who.trait[4] + 0.5f);
    for (int i = 0; i < n; i++) {
        float r = dt_synth_uniform(d, 0.15f, 0.9f) * N_RADII, a = dt_synth_uniform(d, 0, SYNTH_IRIS_N_ANGLES);
        float hr = dt_synth_uniform(d, 3, 7), ha = dt_synth_uniform(d, 5, 13);
        float depth = dt_synth_uniform(d, 0.3f, 0.5f);
        for (int y = (int)(r - 2 * hr); y <= (int)(r + 2 * hr); y++)
            for (int x = (int)(a - 2 * ha); x <= (int)(a + 2 * ha); x++) {
                if (y < 0 || y >= N_RADII) continue;
                float dy = ((float)y - r) / hr, dx = ((float)x - a) / ha;
                float *p = &e->texture[y * SYNTH_IRIS_N_ANGLES + (x + SYNTH_IRIS_N_ANGLES) % SYNTH_IRIS_N_ANGLES];
                *p -= depth * expf(-1.5f * (dx * dx + dy * dy) * (dx * dx + dy * dy));
            }
    }
}

dt_synth_eye *dt_synth_eye_create(const dt_synth_identity *who, uint64_t seed, uint32_t subject, int side) {
    dt_synth_eye *e = dt_xcalloc(1, sizeof *e);
    e->who = *who;
    e->side = side;
    dt_synth_draw d = dt_synth_begin(seed, subject, (uint32_t)side, "eye");
    add_fibres(e, &d);
    add_collarette(e, &d);
    add_crypts(e, &d);
    return e;
}

void dt_synth_eye_destroy(dt_synth_eye *e) {
    free(e);
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

static void synth_iris_make_view(view *v, const dt_synth_eye *e, dt_synth_draw *d) {
    v->cx = IRIS_W / 2 + dt_synth_uniform(d, -12, 12);
    v->cy = IRIS_H / 2 + dt_synth_uniform(d, -8, 8);
    v->radius = dt_synth_uniform(d, 92, 100);
    v->pupil = dt_synth_uniform(d, 0.28f, 0.46f);
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
    eye_colour(v->inner, fmodf(e->who.trait[0] * 0.35f + 0.65f * e->who.trait[1] + 0.3f, 1.0f));
    dt_synth_noise_init(&v->lashes, d, 160, 3);
}

static float texture_get(const dt_synth_eye *e, float u, float turn) {
    float r = u * (N_RADII - 1), a = (turn - floorf(turn)) * SYNTH_IRIS_N_ANGLES;
    int r0 = (int)r, a0 = (int)a % SYNTH_IRIS_N_ANGLES, a1 = (a0 + 1) % SYNTH_IRIS_N_ANGLES;
    int r1 = r0 + 1 < N_RADII ? r0 + 1 : r0;
    float v = r - (float)r0, w = a - floorf(a);
    const float *p = e->texture + r0 * SYNTH_IRIS_N_ANGLES, *q = e->texture + r1 * SYNTH_IRIS_N_ANGLES;
    return (p[a0] * (1 - w) + p[a1] * w) * (1 - v) + (q[a0] * (1 - w) + q[a1] * w) * v;
}

static void paint_iris(float rgb[3], const dt_synth_eye *e, const view *v, float rho, float turn) {
    float u = (rho - v->pupil) / (1 - v->pupil);
    u = u < 0 ? 0 : u > 1 ? 1 : u;
    turn += v->turn;
    turn -= floorf(turn);
    float bright = 0.45f + 0.9f * texture_get(e, u, turn);
    float edge = e->edge[(int)(turn * SYNTH_IRIS_N_ANGLES) % SYNTH_IRIS_N_ANGLES];
    float ring = 1 - synth_step(edge - 0.08f, edge + 0.08f, u);
    float rim = 0.92f - 0.30f * e->who.trait[2];
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

static void paint_pixel(float rgb[3], const dt_synth_eye *e, const view *v, float dx, float dy) {
    float rho = sqrtf(dx * dx + dy * dy);
    rgb[0] = 226, rgb[1] = 218, rgb[2] = 212; // sclera
    if (rho < 1.03f) {
        float iris[3];
        paint_iris(iris, e, v, rho, atan2f(dy, dx) / (2 * SYNTH_IRIS_PI));
        synth_blend(rgb, iris[0], iris[1], iris[2], 1 - synth_step(0.97f, 1.03f, rho));
        synth_blend(rgb, 14, 12, 12, 1 - synth_step(v->pupil - 0.02f, v->pupil + 0.02f, rho));
    }
    float gx = dx - v->glint_x, gy = dy - v->glint_y;
    synth_blend(rgb, 250, 250, 250, 1 - synth_step(0.002f, 0.006f, gx * gx + gy * gy));
    paint_lids(rgb, v, dx, dy);
}

void dt_synth_render_iris(uint8_t *out, const dt_synth_eye *e, uint64_t seed, uint32_t subject, uint32_t impression) {
    view v;
    dt_synth_draw d = dt_synth_begin(seed, subject, impression, "iris");
    synth_iris_make_view(&v, e, &d);
    float mirror = e->side ? -1.0f : 1.0f; // the nose is on the other side
    for (int y = 0; y < IRIS_H; y++)
        for (int x = 0; x < IRIS_W; x++) {
            float dx = mirror * ((float)x - v.cx) / v.radius, dy = ((float)y - v.cy) / v.radius;
            float rgb[3], light = 1 + v.light_x * dx + v.light_y * dy;
            float grain = v.noise * dt_synth_normal(&d);
            paint_pixel(rgb, e, &v, dx, dy);
            for (int k = 0; k < 3; k++) *out++ = synth_byte(rgb[k] * light * v.gain[k] + grain);
        }
    dt_synth_noise_fini(&v.lashes);
}
