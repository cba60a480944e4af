// synth_pose.c: heads with known yaw, pitch and roll.
//
// A head is an ellipsoid with a face painted on it: hair, brows, eyes, nose, mouth, ears, in coordinates
// of the head. For each pixel the line of sight is turned into those coordinates and meets the ellipsoid or
// not; light falls from a random side. Skin, hair, size, place and background differ, so that only what is
// painted tells the angles. images/000017.jpg (160 x 160), and pose.csv with name, yaw, pitch, roll in
// degrees: x to the right, y up, z to the viewer; yaw turns about y to the viewer's right, pitch about x
// upwards, roll in the picture clockwise; applied roll, pitch, yaw from the head outwards.
#include "base/core.h"
#include "synth.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 160, QUALITY = 88 }; // pixels; quality of the JPEGs

typedef struct pose {
    float yaw, pitch, roll; // degrees
} pose;

typedef struct vec {
    float x, y, z;
} vec;

// Mostly ahead, as people are photographed: the mean of two uniform numbers.
static pose pose_of(const dt_synth_job *j, uint32_t i) {
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "pose");
    pose p;
    p.yaw = dt_synth_uniform(&d, -75, 75) / 2 + dt_synth_uniform(&d, -75, 75) / 2; // degrees
    p.pitch = dt_synth_uniform(&d, -40, 40) / 2 + dt_synth_uniform(&d, -40, 40) / 2;
    p.roll = dt_synth_uniform(&d, -30, 30) / 2 + dt_synth_uniform(&d, -30, 30) / 2;
    return p;
}

typedef struct head {
    float turn[9];                                // rows: picture -> head
    vec radius, light;                            // radius: half axes of the ellipsoid; light: unit vector
    float cx, cy, scale;                          // pixels
    float skin[3], hair[3], back[2][3], shirt[3]; // back: both ends of the background
    float hair_line, brow, mouth, noise;          // in units of the head; noise: in grey levels
    bool bald;
} head;

static void product(float out[9], const float a[9], const float b[9]) {
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++)
            out[3 * r + c] = a[3 * r] * b[c] + a[3 * r + 1] * b[3 + c] + a[3 * r + 2] * b[6 + c];
}

// Head -> picture is Ry(yaw) Rx(-pitch) Rz(-roll); its transpose is wanted.
static void rotation(float m[9], const pose *p) {
    const float deg = 3.14159265f / 180;
    float cy = cosf(p->yaw * deg), sy = sinf(p->yaw * deg), cp = cosf(p->pitch * deg);
    float sp = sinf(p->pitch * deg), cr = cosf(p->roll * deg), sr = sinf(p->roll * deg);
    const float rz[9] = {cr, sr, 0, -sr, cr, 0, 0, 0, 1};
    const float rx[9] = {1, 0, 0, 0, cp, sp, 0, -sp, cp};
    const float ry[9] = {cy, 0, sy, 0, 1, 0, -sy, 0, cy};
    float inner[9], all[9];
    product(inner, rx, rz);
    product(all, ry, inner);
    for (int r = 0; r < 3; r++)
        for (int c = 0; c < 3; c++) m[3 * r + c] = all[3 * c + r]; // transposed: a rotation's inverse
}

static vec turned(const float m[9], vec v) {
    return (vec){m[0] * v.x + m[1] * v.y + m[2] * v.z, m[3] * v.x + m[4] * v.y + m[5] * v.z,
                 m[6] * v.x + m[7] * v.y + m[8] * v.z};
}

static void synth_pose_draw_head(head *h, const dt_synth_job *j, uint32_t i, const pose *p) {
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "head");
    float tone = dt_synth_uniform(&d, 0.35f, 1), dark = dt_synth_uniform(&d, 0.05f, 0.6f); // dark: of the hair
    rotation(h->turn, p);
    h->radius = (vec){dt_synth_uniform(&d, 0.7f, 0.8f), 1, dt_synth_uniform(&d, 0.8f, 0.92f)};
    h->scale = SIDE * dt_synth_uniform(&d, 0.3f, 0.42f);
    h->cx = SIDE * dt_synth_uniform(&d, 0.44f, 0.56f);
    h->cy = SIDE * dt_synth_uniform(&d, 0.42f, 0.54f);
    float side = dt_synth_uniform(&d, -1, 1), up = dt_synth_uniform(&d, -0.2f, 0.9f);
    float norm = 1 / sqrtf(side * side + up * up + 0.8f); // 0.8: the light never comes from behind
    h->light = (vec){side * norm, up * norm, sqrtf(0.8f) * norm};
    const float skin[3] = {235, 190, 165}, hair[3] = {120, 85, 60};
    for (int c = 0; c < 3; c++) {
        h->skin[c] = skin[c] * tone;
        h->hair[c] = hair[c] * dark * dt_synth_uniform(&d, 0.7f, 1.3f);
        h->back[0][c] = dt_synth_uniform(&d, 20, 235);
        h->back[1][c] = dt_synth_uniform(&d, 20, 235); // two colours blended by noise
        h->shirt[c] = dt_synth_uniform(&d, 20, 235);
    }
    h->hair_line = dt_synth_uniform(&d, 0.45f, 0.65f);
    h->brow = dt_synth_uniform(&d, 0.02f, 0.06f);
    h->mouth = dt_synth_uniform(&d, 0.12f, 0.22f);
    h->noise = dt_synth_uniform(&d, 1, 8);
    h->bald = dt_synth_uniform(&d, 0, 1) < 0.1f;
}

static float disc(float x, float y, float rx, float ry) { // 1 inside, 0 outside, soft edge
    float r = x * x / (rx * rx) + y * y / (ry * ry);      // squared distance in units of the radii
    return r < 0.8f ? 1 : r > 1.2f ? 0 : (1.2f - r) / 0.4f;
}

// The colour at a point of the head (unit sphere coordinates), x to its left as we see it.
static void paint(const head *h, vec p, float out[3]) {
    for (int c = 0; c < 3; c++) out[c] = h->skin[c];
    if (p.z > 0) {                                  // the face is in front alone
        for (int side = -1; side <= 1; side += 2) { // both halves alike
            float x = p.x - (float)side * 0.34f;
            synth_blend(out, h->hair[0], h->hair[1], h->hair[2], disc(x, p.y - 0.36f, 0.2f, h->brow));
            synth_blend(out, 245, 245, 245, disc(x, p.y - 0.2f, 0.15f, 0.075f));
            synth_blend(out, 30, 30, 40, disc(x, p.y - 0.2f, 0.06f, 0.07f)); // pupils
        }
        // the nose: lit on one side, a shadow below
        synth_blend(out, h->skin[0] * 0.7f, h->skin[1] * 0.65f, h->skin[2] * 0.65f,
                    disc(p.x - 0.07f, p.y + 0.05f, 0.05f, 0.22f));
        synth_blend(out, h->skin[0] * 0.5f, h->skin[1] * 0.4f, h->skin[2] * 0.4f, disc(p.x, p.y + 0.24f, 0.13f, 0.04f));
        synth_blend(out, 150, 50, 60, disc(p.x, p.y + 0.48f, h->mouth + 0.12f, 0.06f));
    }
    synth_blend(out, h->skin[0] * 0.75f, h->skin[1] * 0.65f, h->skin[2] * 0.65f,
                fabsf(p.x) > 0.5f ? disc(p.z, p.y - 0.1f, 0.14f, 0.24f) : 0); // ears
    // above a tilted line, and behind the ears
    bool hair = p.y > h->hair_line + 0.25f * (p.z - 0.6f) || (p.z < -0.15f && p.y > -0.45f);
    if (hair && !h->bald) synth_blend(out, h->hair[0], h->hair[1], h->hair[2], 1);
}

static bool head_pixel(const head *h, float px, float py, float out[3]) {
    // line of sight: (x, y, t); in head coordinates scaled to the unit sphere
    // image y grows downward, the head's upward
    vec eye = turned(h->turn, (vec){(px - h->cx) / h->scale, (h->cy - py) / h->scale, 0});
    vec way = turned(h->turn, (vec){0, 0, 1});
    eye = (vec){eye.x / h->radius.x, eye.y / h->radius.y, eye.z / h->radius.z};
    way = (vec){way.x / h->radius.x, way.y / h->radius.y, way.z / h->radius.z};
    // quadratic equation |eye + t way|² = 1
    float a = way.x * way.x + way.y * way.y + way.z * way.z;
    float b = eye.x * way.x + eye.y * way.y + eye.z * way.z;
    float c = eye.x * eye.x + eye.y * eye.y + eye.z * eye.z - 1;
    float root = b * b - a * c;
    if (root < 0) return false;       // the line misses the head
    float t = (-b + sqrtf(root)) / a; // nearest to the viewer
    vec p = {eye.x + way.x * t, eye.y + way.y * t, eye.z + way.z * t};
    vec light = turned(h->turn, h->light);
    vec n = {p.x / h->radius.x, p.y / h->radius.y, p.z / h->radius.z}; // gradient of the ellipsoid: its normal
    float length = sqrtf(n.x * n.x + n.y * n.y + n.z * n.z);
    float shade = (n.x * light.x + n.y * light.y + n.z * light.z) / length;
    paint(h, p, out);
    // ambient light, then Lambert's cosine
    for (int k = 0; k < 3; k++) out[k] *= 0.45f + 0.6f * (shade > 0 ? shade : 0);
    return true;
}

static void synth_pose_render(uint8_t *rgb, const dt_synth_job *j, uint32_t i, const pose *p) {
    head h;
    dt_synth_noise field;
    synth_pose_draw_head(&h, j, i, p);
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "background");
    dt_synth_noise_init(&field, &d, 6, 6);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            float out[3], at = 0.5f + 0.5f * dt_synth_noise_get(&field, (float)x / 32, (float)y / 32);
            for (int c = 0; c < 3; c++) out[c] = h.back[0][c] + (h.back[1][c] - h.back[0][c]) * at;
            float below = ((float)y - h.cy) / h.scale, across = ((float)x - h.cx) / h.scale; // in units of the head
            bool neck = below > 0 && fabsf(across) < 0.4f;
            bool shirt = below > 1.15f && across * across < 1.6f * (below - 1.0f);
            // in front of the background, behind the head
            if (neck) synth_blend(out, h.skin[0] * 0.6f, h.skin[1] * 0.6f, h.skin[2] * 0.6f, 1);
            if (shirt) synth_blend(out, h.shirt[0], h.shirt[1], h.shirt[2], 1);
            head_pixel(&h, (float)x + 0.5f, (float)y + 0.5f, out);
            for (int c = 0; c < 3; c++) *rgb++ = synth_byte(out[c] + h.noise * dt_synth_normal(&d));
        }
    dt_synth_noise_fini(&field);
}

static dt_status synth_pose_make(const dt_synth_job *j, uint32_t i) {
    char path[PATH_MAX];
    pose p = pose_of(j, i);
    uint8_t *rgb = dt_xcalloc(SIDE * SIDE, 3);
    synth_pose_render(rgb, j, i, &p);
    snprintf(path, sizeof path, "%s/images/%06u.jpg", j->out, i);
    dt_status st = dt_synth_write_jpeg(path, rgb, SIDE, SIDE, QUALITY);
    free(rgb);
    return st;
}

static void synth_pose_row(const dt_synth_job *j, uint32_t i, char *text, size_t cap) {
    const pose p = pose_of(j, i);
    snprintf(text, cap, "%06u.jpg,%.3f,%.3f,%.3f\n", i, (double)p.yaw, (double)p.pitch, (double)p.roll);
}

const dt_synth_kind synth_pose = {.name = "pose",
                                  .help = "heads, 160 x 160 JPEG, with yaw, pitch and roll in pose.csv",
                                  .unit = "heads",
                                  .default_n = 104052,
                                  .table = "pose.csv",
                                  .header = "name,yaw,pitch,roll\n",
                                  .row = synth_pose_row,
                                  .make = synth_pose_make};
