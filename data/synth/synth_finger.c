// synth_finger.c: fingerprints from an orientation field, after the SFinGe method (Cappelli, Maio,
// Maltoni, "Synthetic fingerprint-database generation", ICPR 2002).
//
// The field comes from cores and deltas (Sherlock & Monro, "A model for interpreting fingerprint
// topology", 1993). White noise is filtered again and again with Gabor kernels turned along the field:
// ridges grow, and minutiae appear where they do not fit together, different in each finger. Ridges
// grow on a canvas where their period is always CANVAS_PERIOD, which is then scaled to the finger's.
//
// Traits: 0 pattern (arch, loops, whorl) · 1 ridge period · 2 ridge width · 3 darkness · 4 dryness
// (breaks in the ridges). A finger varies them a little; an impression moves, turns, presses, adds noise.
#include "base/arena.h"
#include "synth_kinds.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { N_ANGLES = 32, RADIUS = 6, SIDE = 2 * RADIUS + 1, GROWTH_STEPS = 6 };
static const float CANVAS_PERIOD = 7.0f;
static const float PI = 3.14159265358979f;

static float kernels[N_ANGLES][SIDE * SIDE];
static pthread_once_t kernels_once = PTHREAD_ONCE_INIT;

// Gabor kernels with zero mean and unit absolute sum; angle = direction along the ridge.
static void make_kernels(void) {
    const float sigma = 3.0f;
    for (int k = 0; k < N_ANGLES; k++) {
        float angle = PI * (float)k / N_ANGLES, c = cosf(angle), s = sinf(angle), sum = 0, abs = 0;
        float window[SIDE * SIDE], weight = 0;
        for (int i = 0; i < SIDE * SIDE; i++) {
            float x = (float)(i % SIDE - RADIUS), y = (float)(i / SIDE - RADIUS);
            float across = -s * x + c * y;
            window[i] = expf(-(x * x + y * y) / (2 * sigma * sigma));
            kernels[k][i] = window[i] * cosf(2 * PI * across / CANVAS_PERIOD);
            sum += kernels[k][i];
            weight += window[i];
        }
        for (int i = 0; i < SIDE * SIDE; i++) kernels[k][i] -= window[i] * sum / weight;
        for (int i = 0; i < SIDE * SIDE; i++) abs += fabsf(kernels[k][i]);
        for (int i = 0; i < SIDE * SIDE; i++) kernels[k][i] /= abs;
    }
}

// -- what this finger and impression are -------------------------------------------------------
typedef struct finger {
    float period, width, darkness, dryness;
    int n_singular; // cores and deltas, each
    float core[2][2], delta[2][2];
    bool arch;
    float arch_height, tilt, shift_x, shift_y, noise, light_x, light_y;
    dt_synth_noise wave; // bends the field
} finger;

static void synth_finger_place(float p[2], dt_synth_draw *d, float x, float y) {
    p[0] = x + dt_synth_uniform(d, -0.04f, 0.04f);
    p[1] = y + dt_synth_uniform(d, -0.04f, 0.04f);
}

// Positions in units of the finger's width and height, y down, (0, 0) the middle.
static void choose_pattern(finger *f, dt_synth_draw *d, float trait) {
    int kind = (int)(trait * 4);
    f->arch = kind == 0;
    f->arch_height = dt_synth_uniform(d, 0.9f, 1.1f);
    f->n_singular = f->arch ? 0 : kind == 3 ? 2 : 1;
    float side = kind == 1 ? -1.0f : 1.0f; // left and right loop
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
    choose_pattern(f, &d, t[0]);
    f->period = 5.2f * powf(2.0f, t[1]) * dt_synth_uniform(&d, 0.97f, 1.03f);
    f->width = 0.9f * (t[2] - 0.5f) + dt_synth_uniform(&d, -0.05f, 0.05f);
    f->darkness = 90.0f + 120.0f * t[3] + dt_synth_uniform(&d, -6, 6);
    f->dryness = 0.75f * t[4] + dt_synth_uniform(&d, -0.04f, 0.04f);
    f->tilt = dt_synth_uniform(&d, -0.12f, 0.12f);
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
        angle = atanf(1.5f * steep * sinf(2.6f * x));
    } else {
        angle = PI / 2;
        for (int i = 0; i < f->n_singular; i++) {
            angle += 0.5f * atan2f(y - f->core[i][1], x - f->core[i][0]);
            angle -= 0.5f * atan2f(y - f->delta[i][1], x - f->delta[i][0]);
        }
        if (f->n_singular == 2) angle += PI / 2;
    }
    return angle + 0.18f * dt_synth_noise_get(&f->wave, 6 * (x + 0.5f), 6 * (y + 0.5f));
}

// -- ridges ------------------------------------------------------------------------------------
typedef struct canvas {
    int w, h;    // with a border of RADIUS
    float scale; // canvas pixels a picture pixel
    float *from, *to;
    uint8_t *angle;
} canvas;

static void make_canvas(canvas *c, const finger *f, dt_synth_draw *d) {
    c->scale = CANVAS_PERIOD / f->period;
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
            float a = orientation(f, cs * px + sn * py, -sn * px + cs * py) + f->tilt;
            int k = (int)floorf(a / PI * N_ANGLES + 0.5f) % N_ANGLES;
            size_t i = (size_t)y * (size_t)c->w + (size_t)x;
            c->angle[i] = (uint8_t)(k < 0 ? k + N_ANGLES : k);
            c->from[i] = dt_synth_uniform(d, -1, 1);
        }
}

static void synth_finger_grow(canvas *c) {
    for (int y = RADIUS; y < c->h - RADIUS; y++)
        for (int x = RADIUS; x < c->w - RADIUS; x++) {
            size_t i = (size_t)y * (size_t)c->w + (size_t)x;
            const float *k = kernels[c->angle[i]];
            const float *p = c->from + i - (size_t)RADIUS * (size_t)c->w - RADIUS;
            float sum[SIDE] = {0}, total = 0; // columns apart: the compiler can use vectors
            for (int v = 0; v < SIDE; v++, k += SIDE, p += c->w)
                for (int u = 0; u < SIDE; u++) sum[u] += k[u] * p[u];
            for (int u = 0; u < SIDE; u++) total += sum[u];
            total *= 6;
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
    float u = x - (float)x0, v = y - (float)y0;
    const float *p = c->from + (size_t)y0 * (size_t)c->w + (size_t)x0, *q = p + c->w;
    return (p[0] * (1 - u) + p[1] * u) * (1 - v) + (q[0] * (1 - u) + q[1] * u) * v;
}

// -- the picture -------------------------------------------------------------------------------
void dt_synth_render_finger(uint8_t *out, const dt_synth_identity *who, uint64_t seed, uint32_t subject,
                            uint32_t impression) {
    pthread_once(&kernels_once, make_kernels);
    finger f;
    canvas c;
    make_finger(&f, who, seed, subject, impression);
    dt_synth_draw d = dt_synth_begin(seed, subject, impression, "finger pixels");
    make_canvas(&c, &f, &d);
    for (int i = 0; i < GROWTH_STEPS; i++) synth_finger_grow(&c);
    dt_synth_noise dry, press;
    dt_synth_noise_init(&dry, &d, FINGER_W / 3 + 2, FINGER_H / 3 + 2);
    dt_synth_noise_init(&press, &d, 4, 4);
    for (int y = 0; y < FINGER_H; y++)
        for (int x = 0; x < FINGER_W; x++) {
            float fx = (float)x, fy = (float)y;
            float px = (fx - f.shift_x) / FINGER_W - 0.5f, py = (fy - f.shift_y) / FINGER_H - 0.5f;
            float inside = 1 - synth_step(0.21f, 0.25f, px * px + 0.86f * py * py);
            float pressure = 0.12f * dt_synth_noise_get(&press, fx / 36, fy / 38);
            float ridge = synth_step(-0.45f, 0.45f, canvas_get(&c, fx, fy) + f.width + pressure);
            float gap = dt_synth_noise_get(&dry, fx / 3, fy / 3);
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
