// synth_acoustic.c: pipes with and without a leak, as a microphone on the pipe hears them.
//
// Each of 24 pipes has its own length, material and recorder (8 to 48 kHz). What is always there: mains
// hum, the flow (noise that falls with frequency), the pipe's resonances, knocks now and then. A leak adds a
// hiss: noise in a band that pressure moves between 700 Hz and 3 kHz, strengthened by the resonances,
// with a slow flutter. Its level goes from plain to barely there.
// leak1_pipe03_22050_000017.wav: leak (0, 1), pipe, samples/s, number; 1 s, 16 bits, mono.
#include "base/core.h"
#include "data/decode/encode.h"
#include "synth.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_PIPES = 24 };
static const int RATES[] = {8000, 11025, 16000, 22050, 44100, 48000}; // Hz, of recorders that are in use

// Two poles, two zeros (the usual audio formulas for a band-pass of unit peak gain).
typedef struct band {
    float b0, b2, a1, a2, x1, x2, y1, y2; // x and y: the last two inputs and outputs
} band;

static band band_pass(float hz, float q, float rate) {
    // R. Bristow-Johnson, "Cookbook formulae": band-pass of 0 dB peak gain
    float w = 2 * 3.14159265f * hz / rate, alpha = sinf(w) / (2 * q), a0 = 1 + alpha;
    return (band){.b0 = alpha / a0, .b2 = -alpha / a0, .a1 = -2 * cosf(w) / a0, .a2 = (1 - alpha) / a0};
}

static float band_next(band *f, float x) {
    float y = f->b0 * x + f->b2 * f->x2 - f->a1 * f->y1 - f->a2 * f->y2;
    f->x2 = f->x1;
    f->x1 = x;
    f->y2 = f->y1;
    f->y1 = y;
    return y;
}

typedef struct pipe_sound {
    int rate;              // samples/s
    float resonance[3], q; // Hz
} pipe_sound;

static pipe_sound pipe_of(uint64_t seed, uint32_t pipe) {
    // one sequence per pipe: all recordings of a pipe have the same resonances
    dt_synth_draw d = dt_synth_begin(seed, pipe, 0, "pipe");
    // the rate goes round with the pipe's number
    pipe_sound p = {.rate = RATES[(pipe + (uint32_t)dt_synth_uniform(&d, 0, 6)) % 6]};
    float first = dt_synth_uniform(&d, 90, 400);
    // about harmonic: 1, 2, 3
    for (int i = 0; i < 3; i++) p.resonance[i] = first * ((float)i + 1) * dt_synth_uniform(&d, 0.95f, 1.05f);
    p.q = dt_synth_uniform(&d, 6, 20);
    return p;
}

static void synth_acoustic_render(float *out, int n, const pipe_sound *p, bool leak, dt_synth_draw *d) {
    const float tau = 2 * 3.14159265f; // a full turn
    float rate = (float)p->rate, hum = dt_synth_uniform(d, 0.005f, 0.05f), phase = dt_synth_uniform(d, 0, tau);
    // falling: pole of a low-pass at 150 Hz
    float flow = dt_synth_uniform(d, 0.02f, 0.12f), pink = 0, falling = expf(-tau * 150 / rate);
    float level = leak ? dt_synth_uniform(d, 0.15f, 0.9f) * flow : 0; // from barely audible to plain, beside the flow
    float centre = dt_synth_uniform(d, 700, 3000), flutter = dt_synth_uniform(d, 2, 9);
    // in three of ten recordings; n: none
    int knock = dt_synth_uniform(d, 0, 1) < 0.3f ? (int)dt_synth_uniform(d, 0, (float)n) : n;
    band hiss = band_pass(centre, 1.2f, rate), ring[3]; // Q of 1.2: nearly two octaves
    for (int i = 0; i < 3; i++) ring[i] = band_pass(p->resonance[i], p->q, rate);
    for (int i = 0; i < n; i++) {
        float t = (float)i / rate, x = dt_synth_normal(d), y = dt_synth_normal(d);
        pink = falling * pink + (1 - falling) * x; // one pole: noise that falls with frequency
        float v = flow * (6 * pink + 0.08f * x);
        // the leak: modulated by its flutter
        v += level * (1 + 0.3f * sinf(tau * flutter * t + phase)) * 2.5f * band_next(&hiss, y);
        // decays within 20 ms
        if (i >= knock) v += 0.5f * expf(-(float)(i - knock) / (0.02f * rate)) * dt_synth_normal(d);
        float resonant = 0;
        for (int k = 0; k < 3; k++) resonant += band_next(&ring[k], v);
        v += 1.5f * resonant;
        // mains of 50 Hz with two harmonics
        for (int k = 1; k <= 3; k++) v += hum / (float)k * sinf(tau * 50 * (float)k * t + phase * (float)k);
        out[i] = v;
    }
}

static dt_status synth_acoustic_make(const dt_synth_job *j, uint32_t i) {
    char path[PATH_MAX];
    dt_synth_draw d = dt_synth_begin(j->seed, i, 0, "sound");
    uint32_t pipe = (uint32_t)dt_synth_uniform(&d, 0, N_PIPES); // which pipe an item is of follows from the seed alone
    bool leak = dt_synth_uniform(&d, 0, 1) < 0.5f;
    pipe_sound p = pipe_of(j->seed, pipe);
    float *x = dt_xcalloc((size_t)p.rate, sizeof *x); // one second
    synth_acoustic_render(x, p.rate, &p, leak, &d);
    snprintf(path, sizeof path, "%s/leak%d_pipe%02u_%d_%06u.wav", j->out, leak, pipe, p.rate, i);
    // Scaled by 32767, not 32768: 1 is the loudest sample. Dividing by a power of two is exact.
    for (int k = 0; k < p.rate; k++) x[k] = x[k] * 32767 / 32768;
    dt_buffer file = {0};
    dt_status st = dt_encode_wav(&file, x, 1, p.rate, (size_t)p.rate, p.rate);
    if (st == DT_OK) st = dt_synth_write_file(path, file.data, file.n_bytes);
    dt_buffer_fini(&file);
    free(x);
    return st;
}

const dt_synth_kind synth_acoustic = {.name = "acoustic",
                                      .help = "pipes with and without a leak, 1 s WAV at 8 to 48 kHz",
                                      .unit = "sounds",
                                      .default_n = 39563,
                                      .make = synth_acoustic_make};
