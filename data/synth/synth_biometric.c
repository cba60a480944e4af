// synth_biometric.c: fingerprints and irises of the same people.
//
// Identity is split between the modalities on purpose: subjects come in threes (a, b, c); a and b have
// nearly the same fingers, b and the next three's c nearly the same irises. So fingers alone cannot tell a
// from b, irises alone cannot tell b from c', and only both together name everyone.
#include "base/arena.h"
#include "synth_kinds.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// -- who everyone is ---------------------------------------------------------------------------
// Point g of a sequence that fills the unit cube evenly (Roberts's generalised golden ratio in five
// dimensions), so that groups are as far apart as their number allows.
static dt_synth_identity group_identity(uint64_t seed, uint32_t g, const char *purpose) {
    const double ratio = 1.1347241384015194; // the root of x^6 = x + 1
    dt_synth_identity who;
    dt_synth_draw d = dt_synth_begin(seed, 0, 0, purpose);
    double step = 1;
    for (int k = 0; k < SYNTH_TRAITS; k++) {
        step /= ratio;
        double v = dt_synth_uniform(&d, 0, 1) + step * (g + 1);
        who.trait[k] = (float)(v - floor(v));
    }
    return who;
}

// Fingers: the first two of three share a group. Irises: the second shares with the third of the
// three before (cyclic). Two groups a three; subjects beyond the last whole three stand alone.
static uint32_t synth_biometric_group_of(uint32_t subject, uint32_t n_subjects, bool iris) {
    uint32_t threes = n_subjects / 3, three = subject / 3, place = subject % 3;
    if (three >= threes) return 2 * threes + place;
    if (iris && place == 1) return 2 * ((three + threes - 1) % threes) + 1;
    return 2 * three + (place == 2);
}

static dt_synth_identity synth_biometric_identity(uint64_t seed, uint32_t subject, uint32_t n_subjects, bool iris) {
    uint32_t g = synth_biometric_group_of(subject, n_subjects, iris);
    dt_synth_identity who = group_identity(seed, g, iris ? "iris traits" : "finger traits");
    dt_synth_draw d = dt_synth_begin(seed, subject, 0, iris ? "iris twin" : "finger twin");
    for (int k = 0; k < SYNTH_TRAITS; k++) {
        float v = who.trait[k] + dt_synth_uniform(&d, -0.015f, 0.015f);
        who.trait[k] = v < 0 ? 0 : v > 0.999f ? 0.999f : v;
    }
    return who;
}

// 11 of 45 are female, evenly distributed, for any number.
static char gender(uint32_t subject) {
    return (subject + 1) * 11 / 45 > subject * 11 / 45 ? 'F' : 'M';
}

// -- files -------------------------------------------------------------------------------------
static dt_status write_fingers(const dt_synth_job *j, uint32_t subject) {
    static const char *const names[] = {"thumb", "index", "middle", "ring", "little"};
    char path[PATH_MAX], suffix[16] = "";
    uint8_t pixels[FINGER_W * FINGER_H];
    dt_synth_identity who = synth_biometric_identity(j->seed, subject, j->n, false);
    for (uint32_t k = 0; k < j->n_impressions; k++) {
        dt_synth_render_finger(pixels, &who, j->seed, subject, k);
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
    uint8_t *pixels = dt_xcalloc(3, IRIS_W * IRIS_H);
    dt_status st = DT_OK;
    for (int side = 0; side < 2 && st == DT_OK; side++) {
        dt_synth_eye *eye = dt_synth_eye_create(&who, j->seed, subject, side);
        for (uint32_t k = (uint32_t)side; k < j->n_impressions && st == DT_OK; k += 2) {
            dt_synth_render_iris(pixels, eye, j->seed, subject, k);
            snprintf(path, sizeof path, "%s/iris/%u/%u_%c_%c_%u.bmp", j->out, subject + 1, subject + 1, gender(subject),
                     side ? 'R' : 'L', k / 2 + 1);
            st = dt_synth_write_bmp(path, pixels, IRIS_W, IRIS_H, 3);
        }
        dt_synth_eye_destroy(eye);
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
