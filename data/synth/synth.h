// synth.h: invented data sets, as raw files.
#ifndef DT_DATA_SYNTH_SYNTH_H
#define DT_DATA_SYNTH_SYNTH_H

#include "base/core.h"
#include "base/rng.h"

// dtrain synth KIND OUT. DT_E_USAGE / DT_E_STORAGE.
typedef struct dt_synth_opts {
    const char *kind, *out;
    int n,
        impressions; // items (biometric: subjects, and images of each kind a subject); 0 = default
    uint64_t seed;
    bool progress;
} dt_synth_opts;
dt_status dt_data_synth(const dt_synth_opts *o);

// A kind of data. Any thread makes an item; what it writes depends on the job and the item only.
struct dt_synth_job;
typedef struct dt_synth_kind {
    const char *name, *help, *unit;
    uint32_t default_n;
    bool of_people; // items are subjects, of each of whom there are n_impressions
    dt_status (*make)(const struct dt_synth_job *j, uint32_t item);
    const char *table, *header; // a CSV in OUT, whose first line is the header; NULL: none
    void (*row)(const struct dt_synth_job *j, uint32_t item, char *text, size_t cap); // its line
} dt_synth_kind;
// What can be made: i = 0, 1, … until NULL.
const dt_synth_kind *dt_data_synth_kind(int i);

// ---- synth kinds --------------------------------------------------------------------------------------------------

// What the generators share. Not for others.

// One run of dtrain synth.
typedef struct dt_synth_job {
    const char *out;
    uint64_t seed;
    uint32_t n, n_impressions;
} dt_synth_job;

extern const dt_synth_kind synth_biometric, synth_lens, synth_acoustic, synth_pose, synth_photos;

enum { FINGER_W = 96, FINGER_H = 103, IRIS_W = 320, IRIS_H = 240, SYNTH_TRAITS = 5 };

// A sequence of random numbers of one purpose: a generator that counts its own elements.
typedef struct dt_synth_draw {
    dt_rng rng;
    uint32_t next, word[4]; // word: the block that element next - 1 is of
} dt_synth_draw;

dt_synth_draw dt_synth_begin(uint64_t seed, uint32_t subject, uint32_t impression, const char *purpose);
float dt_synth_uniform(dt_synth_draw *d, float lo, float hi);
float dt_synth_normal(dt_synth_draw *d); // sum of bytes: near enough to N(0, 1), and cheap

static inline uint8_t synth_byte(float v) {
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

// 0 up to lo, 1 from hi on, smooth between.
static inline float synth_step(float lo, float hi, float v) {
    float t = (v - lo) / (hi - lo);
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return t * t * (3 - 2 * t);
}

static inline void synth_blend(float rgb[3], float r, float g, float b, float share) {
    rgb[0] += (r - rgb[0]) * share;
    rgb[1] += (g - rgb[1]) * share;
    rgb[2] += (b - rgb[2]) * share;
}

// Smooth noise in about -1..1: a lattice of random values, interpolated; x wraps around.
typedef struct dt_synth_noise {
    int w, h;
    float *at; // w * h
} dt_synth_noise;
void dt_synth_noise_init(dt_synth_noise *n, dt_synth_draw *d, int w, int h);
void dt_synth_noise_fini(dt_synth_noise *n);
float dt_synth_noise_get(const dt_synth_noise *n, float x, float y); // in lattice units

// Who a subject is to one modality: five traits in [0, 1).
typedef struct dt_synth_identity {
    float trait[SYNTH_TRAITS];
} dt_synth_identity;

// ---- files -----------------------------------------------------------------------------------------
// Makes the folder that it lies in, too.
dt_status dt_synth_write_file(const char *path, const void *data, size_t n_bytes);
// (H,W,RGB), 4:2:0, quality 1..100.
dt_status dt_synth_write_jpeg(const char *path, uint8_t *rgb, int w, int h, int quality);
// A BMP file: BITMAPINFOHEADER (version 3), uncompressed, bottom row first. channels 1 -> 32 bits a
// pixel (grey in B, G and R, 255 in the fourth byte), 3 (RGB) -> 24 bits.
dt_status dt_synth_write_bmp(const char *path, const uint8_t *pixels, int w, int h, int channels);

#endif
