// synth_lens.c: galaxies that bend the light of one behind them, and galaxies that do not.
//
// Every picture has a host: a Sersic profile, reddish. In a lens, a bluish source behind it is seen
// through a singular isothermal ellipsoid: the light at angle t comes from b(t) = t - E t / |t| (with
// |t| elliptical; Kormann, Schneider and Bartelmann, 1994, in its simplest form), so that arcs and
// counter-images appear by themselves. The others have what is mistaken for arcs: blue companions, a
// spiral, an edge-on disc. Then seeing and sky noise of each band.
// images/lens/000017.fits, images/other/000018.fits: (band, y, x) float32, 64 x 64, bands g, r, i, z;
// lens.csv: name, lens (0, 1), einstein_radius in pixels.
#include "base/core.h"
#include "synth.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 64, BANDS = 4, BLOCK = 2880, CARD = 80, FINE = 2 }; // FINE: points a pixel and direction

typedef struct blob {
    float x, y, q, angle, radius,
        n; // pixels from the centre; axis ratio; effective radius; Sersic index
    float flux[BANDS];
} blob;

typedef struct scene {
    bool lens;
    float einstein, q, angle;
    blob host, source, companion[3];
    int n_companions, arms; // arms: of a spiral host, 0 none
    float sky[BANDS], seeing;
} scene;

static blob draw_blob(dt_synth_draw *d, float reach, float radius_low, float radius_high, float index, float flux,
                      float redness) {
    blob b = {.x = dt_synth_uniform(d, -reach, reach), .y = dt_synth_uniform(d, -reach, reach)};
    b.q = dt_synth_uniform(d, 0.5f, 1); // 1: round
    b.angle = dt_synth_uniform(d, 0, 3.14159265f);
    b.radius = dt_synth_uniform(d, radius_low, radius_high);
    b.n = index;
    // redness: log of the flux ratio of neighbouring bands
    for (int k = 0; k < BANDS; k++) b.flux[k] = flux * expf(redness * ((float)k - 1.5f));
    return b;
}

static scene scene_of(const dt_synth_job *j, uint32_t i) {
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "scene"); // every item has its own scene, whichever thread makes it
    scene s = {.lens = dt_synth_uniform(&d, 0, 1) < 0.5f};
    s.einstein = s.lens ? dt_synth_uniform(&d, 5, 16) : 0; // pixels
    s.q = dt_synth_uniform(&d, 0.7f, 1);
    s.angle = dt_synth_uniform(&d, 0, 3.14159265f);
    // two draws are two statements: compilers for Arm take arguments in another order
    float flux = dt_synth_uniform(&d, 20, 60), index = dt_synth_uniform(&d, 2, 4);
    s.host = draw_blob(&d, 1, 3, 7, index, flux, 0.5f);
    // the mass follows the light: lens and host have one ellipse
    s.host.q = s.q;
    s.host.angle = s.angle;
    // near the optical axis, or no arcs appear
    s.source = draw_blob(&d, 0.35f * s.einstein, 1, 2.5f, 1, dt_synth_uniform(&d, 5, 20), -0.3f);
    s.n_companions = (int)dt_synth_uniform(&d, s.lens ? 0 : 1, 4);
    for (int k = 0; k < s.n_companions; k++) {
        const float redness = dt_synth_uniform(&d, -0.4f, 0.4f);
        flux = dt_synth_uniform(&d, 3, 15);
        s.companion[k] = draw_blob(&d, 22, 1, 3, 1, flux, redness);
    }
    // spirals only where there is no lens: what is mistaken for arcs
    s.arms = !s.lens && dt_synth_uniform(&d, 0, 1) < 0.35f ? 2 : 0;
    s.seeing = dt_synth_uniform(&d, 0.8f, 1.6f);
    for (int k = 0; k < BANDS; k++) s.sky[k] = dt_synth_uniform(&d, 0.15f, 0.4f);
    return s;
}

// Relative brightness of a Sersic profile, about 1 at the effective radius.
static float sersic(const blob *b, float x, float y) {
    float c = cosf(b->angle), s = sinf(b->angle), dx = x - b->x, dy = y - b->y;
    // rotated, then squeezed to a circle of the same area
    float u = (c * dx + s * dy) * sqrtf(b->q), v = (c * dy - s * dx) / sqrtf(b->q);
    float r = sqrtf(u * u + v * v + 0.05f) / b->radius;          // 0.05: no cusp at the centre
    return expf(-(2 * b->n - 0.327f) * (powf(r, 1 / b->n) - 1)); // b_n = 2 n - 0.327 (Capaccioli, 1989)
}

static void behind_lens(const scene *s, float x, float y, float *bx, float *by) {
    float c = cosf(s->angle), w = sinf(s->angle);
    float u = (c * x + w * y), v = (c * y - w * x);
    float r = sqrtf(s->q * u * u + v * v / s->q) + 1e-3f; // elliptical radius; 1e-3: no division by 0
    u -= s->einstein * u / r;
    v -= s->einstein * v / r;
    *bx = c * u - w * v;
    *by = w * u + c * v;
}

static void light_at(const scene *s, float x, float y, float out[BANDS]) {
    float host = sersic(&s->host, x, y), source = 0, bx, by;
    if (s->arms > 0) {
        float r = sqrtf(x * x + y * y) + 0.1f, turn = atan2f(y, x) - 2.2f * logf(r);        // logarithmic spiral
        source += 0.8f * expf(-r / 9) * powf(0.5f + 0.5f * cosf((float)s->arms * turn), 4); // powf 4: narrow arms
    }
    if (s->lens) {
        behind_lens(s, x, y, &bx, &by);
        source += sersic(&s->source, bx, by);
    }
    // blue as the source
    for (int k = 0; k < BANDS; k++) out[k] = 0.05f * s->host.flux[k] * host + 0.1f * s->source.flux[k] * source;
    for (int i = 0; i < s->n_companions; i++) {
        float light = sersic(&s->companion[i], x, y);
        for (int k = 0; k < BANDS; k++) out[k] += 0.1f * s->companion[i].flux[k] * light;
    }
}

// One direction of the seeing: a Gaussian over `stride`-apart values.
static void blur_line(float *x, int stride, const float *w, int reach) {
    float old[SIDE];
    for (int i = 0; i < SIDE; i++) old[i] = x[i * stride]; // the line before: x is written in place
    for (int i = 0; i < SIDE; i++) {
        float sum = 0;
        for (int k = -reach; k <= reach; k++) {
            int at = i + k < 0 ? 0 : i + k >= SIDE ? SIDE - 1 : i + k; // borders repeat
            sum += w[k + reach] * old[at];
        }
        x[i * stride] = sum;
    }
}

static void blur(float *x, float sigma) {
    enum { REACH = 5 };
    float w[2 * REACH + 1], total = 0;
    // cut off at 5 pixels
    for (int k = -REACH; k <= REACH; k++) total += w[k + REACH] = expf(-(float)(k * k) / (2 * sigma * sigma));
    for (int k = 0; k <= 2 * REACH; k++) w[k] /= total;
    for (int i = 0; i < SIDE; i++) {
        blur_line(x + i * SIDE, 1, w, REACH);
        blur_line(x + i, SIDE, w, REACH);
    }
}

static void synth_lens_render(float *out, const dt_synth_job *j, uint32_t i, const scene *s) {
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "sky");
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            for (int p = 0; p < FINE * FINE; p++) { // FINE² points per pixel: the profile is steep at the centre
                float light[BANDS], half = SIDE / 2.0f;
                float fx = (float)x + ((float)(p % FINE) + 0.5f) / FINE - half;
                float fy = (float)y + ((float)(p / FINE) + 0.5f) / FINE - half; // from the image's centre
                light_at(s, fx, fy, light);
                for (int k = 0; k < BANDS; k++) out[(k * SIDE + y) * SIDE + x] += light[k] / (FINE * FINE);
            }
    for (int k = 0; k < BANDS; k++) {
        float *plane = out + k * SIDE * SIDE;
        blur(plane, s->seeing);
        // sky noise and photon noise
        for (int p = 0; p < SIDE * SIDE; p++) plane[p] += (s->sky[k] + 0.05f * sqrtf(plane[p])) * dt_synth_normal(&d);
    }
}

// ---- FITS (Pence et al., "Definition of the FITS, version 3.0", 2010) -----------------------------------
static void card(char *header, int *n, const char *key, const char *value) {
    char line[CARD + 1];
    snprintf(line, sizeof line, "%-8s= %20s", key, value); // fixed format: value right-aligned in column 30
    memcpy(header + *n * CARD, line, strlen(line));
    (*n)++;
}

static dt_status write_fits(const char *path, const float *x) {
    // header and data in whole blocks
    size_t n_data = sizeof(float) * SIDE * SIDE * BANDS, n_all = BLOCK + (n_data + BLOCK - 1) / BLOCK * BLOCK;
    char *file = dt_xcalloc(1, n_all);
    int n = 0;
    memset(file, ' ', BLOCK); // a header is padded with blanks
    card(file, &n, "SIMPLE", "T");
    card(file, &n, "BITPIX", "-32"); // IEEE float32
    card(file, &n, "NAXIS", "3");
    card(file, &n, "NAXIS1", "64");
    card(file, &n, "NAXIS2", "64");
    card(file, &n, "NAXIS3", "4");
    memcpy(file + n * CARD, "END", 3);
    for (size_t i = 0; i < n_data / sizeof(float); i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        for (int k = 0; k < 4; k++) file[BLOCK + 4 * i + (size_t)k] = (char)(bits >> (24 - 8 * k)); // big-endian
    }
    dt_status st = dt_synth_write_file(path, file, n_all);
    free(file);
    return st;
}

static dt_status synth_lens_make(const dt_synth_job *j, uint32_t i) {
    char path[PATH_MAX];
    scene s = scene_of(j, i);
    float *x = dt_xcalloc(SIDE * SIDE * BANDS, sizeof *x);
    synth_lens_render(x, j, i, &s);
    snprintf(path, sizeof path, "%s/images/%s/%06u.fits", j->out, s.lens ? "lens" : "other", i);
    dt_status st = write_fits(path, x);
    free(x);
    return st;
}

static void synth_lens_row(const dt_synth_job *j, uint32_t i, char *text, size_t cap) {
    const scene s = scene_of(j, i); // drawn again: row and file need no shared state
    snprintf(text, cap, "%s/%06u.fits,%d,%.3f\n", s.lens ? "lens" : "other", i, s.lens, (double)s.einstein);
}

const dt_synth_kind synth_lens = {.name = "lens",
                                  .help =
                                      "gravitational lenses and other galaxies, FITS of 4 bands 64 x 64, and lens.csv",
                                  .unit = "galaxies",
                                  .default_n = 20000,
                                  .table = "lens.csv",
                                  .header = "name,lens,einstein_radius\n",
                                  .row = synth_lens_row,
                                  .make = synth_lens_make};
