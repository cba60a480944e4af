// synth.c: dtrain synth: data sets made from a seed, byte for byte the same on every run.
//
// biometric: fingerprints and irises of the same people. Identity is split between the modalities on
// purpose: subjects come in threes (a, b, c); a and b have nearly the same fingers, b and the next
// three's c nearly the same irises. So fingers alone cannot tell a from b, irises alone cannot tell b
// from c', and only both together name everyone.
//
// Work is one task a subject and modality, taken by a team of threads from one counter; a picture
// depends on (seed, subject, impression) only.
#include "data/data.h"

#include "base/arena.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "synth.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[] = {"biometric",
                                    "fingerprints (96 x 103, 32-bit BMP) and irises (320 x 240, "
                                    "24-bit BMP) of 45 subjects, 10 each",
                                    NULL};

const char *const *dt_data_synth_kinds(void) {
    return kinds;
}

// -- who everyone is ---------------------------------------------------------------------------
// Point g of a sequence that fills the unit cube evenly (Roberts's generalised golden ratio in five
// dimensions), so that groups are as far apart as their number allows.
static synth_identity group_identity(uint64_t seed, uint32_t g, const char *purpose) {
    const double ratio = 1.1347241384015194; // the root of x^6 = x + 1
    synth_identity who;
    synth_draw d = synth_begin(seed, 0, 0, purpose);
    double step = 1;
    for (int k = 0; k < SYNTH_TRAITS; k++) {
        step /= ratio;
        double v = synth_uniform(&d, 0, 1) + step * (g + 1);
        who.trait[k] = (float)(v - floor(v));
    }
    return who;
}

// Fingers: the first two of three share a group. Irises: the second shares with the third of the
// three before (cyclic). Two groups a three; subjects beyond the last whole three stand alone.
static uint32_t group_of(uint32_t subject, uint32_t n_subjects, bool iris) {
    uint32_t threes = n_subjects / 3, three = subject / 3, place = subject % 3;
    if (three >= threes) return 2 * threes + place;
    if (iris && place == 1) return 2 * ((three + threes - 1) % threes) + 1;
    return 2 * three + (place == 2);
}

static synth_identity identity(uint64_t seed, uint32_t subject, uint32_t n_subjects, bool iris) {
    uint32_t g = group_of(subject, n_subjects, iris);
    synth_identity who = group_identity(seed, g, iris ? "iris traits" : "finger traits");
    synth_draw d = synth_begin(seed, subject, 0, iris ? "iris twin" : "finger twin");
    for (int k = 0; k < SYNTH_TRAITS; k++) {
        float v = who.trait[k] + synth_uniform(&d, -0.015f, 0.015f);
        who.trait[k] = v < 0 ? 0 : v > 0.999f ? 0.999f : v;
    }
    return who;
}

// 11 of 45 are female, spread evenly, for any number.
static char gender(uint32_t subject) {
    return (subject + 1) * 11 / 45 > subject * 11 / 45 ? 'F' : 'M';
}

// -- writing -----------------------------------------------------------------------------------
typedef struct job {
    const char *out;
    uint64_t seed;
    uint32_t n_subjects, n_impressions;
    bool progress, terminal;
    _Atomic uint32_t next, done;
    _Atomic int status; // of the first failure
    char message[1024]; // written by the thread that set it
} job;

static dt_status write_fingers(const job *j, uint32_t subject) {
    static const char *const names[] = {"thumb", "index", "middle", "ring", "little"};
    char dir[PATH_MAX], path[PATH_MAX + 128], suffix[16] = "";
    uint8_t pixels[FINGER_W * FINGER_H];
    synth_identity who = identity(j->seed, subject, j->n_subjects, false);
    snprintf(dir, sizeof dir, "%s/fingerprint/%u", j->out, subject + 1);
    DT_TRY(dt_io_mkdir_all(dir));
    for (uint32_t k = 0; k < j->n_impressions; k++) {
        synth_render_finger(pixels, &who, j->seed, subject, k);
        if (j->n_impressions != 10) snprintf(suffix, sizeof suffix, "_%u", k + 1);
        snprintf(path, sizeof path, "%s/%u__%c_%s_%s_finger%s.BMP", dir, subject + 1,
                 gender(subject), k / 5 % 2 ? "Right" : "Left", names[k % 5], suffix);
        DT_TRY(synth_write_bmp(path, pixels, FINGER_W, FINGER_H, 1));
    }
    return DT_OK;
}

static dt_status write_irises(const job *j, uint32_t subject) {
    char dir[PATH_MAX], path[PATH_MAX + 128];
    synth_identity who = identity(j->seed, subject, j->n_subjects, true);
    snprintf(dir, sizeof dir, "%s/iris/%u", j->out, subject + 1);
    DT_TRY(dt_io_mkdir_all(dir));
    uint8_t *pixels = dt_xcalloc(3, IRIS_W * IRIS_H);
    dt_status st = DT_OK;
    for (int side = 0; side < 2 && st == DT_OK; side++) {
        synth_eye *eye = synth_eye_create(&who, j->seed, subject, side);
        for (uint32_t k = (uint32_t)side; k < j->n_impressions && st == DT_OK; k += 2) {
            synth_render_iris(pixels, eye, j->seed, subject, k);
            snprintf(path, sizeof path, "%s/%u_%c_%c_%u.bmp", dir, subject + 1, gender(subject),
                     side ? 'R' : 'L', k / 2 + 1);
            st = synth_write_bmp(path, pixels, IRIS_W, IRIS_H, 3);
        }
        synth_eye_destroy(eye);
    }
    free(pixels);
    return st;
}

static void report(const job *j, uint32_t done, bool last) {
    uint32_t total = 2 * j->n_subjects;
    if (!j->progress) return;
    if (j->terminal)
        fprintf(stderr, "\rdtrain: synth: %3u %%%s", done * 100 / total, last ? "\n" : "");
    else if (last)
        dt_info("synth: %u subjects done", j->n_subjects);
}

static void work(void *arg, int worker) {
    job *j = arg;
    for (;;) {
        uint32_t task = atomic_fetch_add(&j->next, 1);
        if (task >= 2 * j->n_subjects || atomic_load(&j->status) != DT_OK) break;
        uint32_t subject = task / 2;
        dt_status st = task % 2 ? write_irises(j, subject) : write_fingers(j, subject);
        int none = DT_OK;
        if (st != DT_OK && atomic_compare_exchange_strong(&j->status, &none, (int)st))
            snprintf(j->message, sizeof j->message, "%s", dt_error_message());
        uint32_t done = atomic_fetch_add(&j->done, 1) + 1;
        if (worker == 0 && st == DT_OK) report(j, done, false);
    }
}

// -- the whole ---------------------------------------------------------------------------------
// A hidden note of the options lies in the directory while and after it is made: the same command again
// makes the same bytes, another one must not mix its files with these.
static dt_status claim_directory(const dt_synth_opts *o, const job *j, const char *note_path) {
    char note[256], *old = NULL, **names = NULL;
    size_t n = 0, n_names = 0;
    snprintf(note, sizeof note, "biometric 1 subjects %u impressions %u seed %llu\n", j->n_subjects,
             j->n_impressions, (unsigned long long)o->seed);
    DT_TRY(dt_io_mkdir_all(o->out));
    if (dt_io_exists(note_path)) {
        DT_TRY(dt_io_read_file(&old, &n, note_path, 4096, DT_E_STORAGE));
        bool same = strcmp(old, note) == 0;
        free(old);
        if (same) return DT_OK;
    }
    DT_TRY(dt_io_list_dir(&names, &n_names, o->out, DT_E_STORAGE));
    dt_io_free_list(names, n_names);
    if (n_names > 0)
        return dt_fail(DT_E_USAGE,
                       "%s: not empty and not made with these options; choose another directory or "
                       "remove it",
                       o->out);
    return dt_io_write_file(note_path, note, strlen(note));
}

dt_status dt_data_synth(const dt_synth_opts *o) {
    char note_path[PATH_MAX];
    if (strcmp(o->kind, "biometric") != 0)
        return dt_fail(DT_E_USAGE, "no synthetic data of kind '%s'; expected biometric", o->kind);
    if (o->subjects < 0 || o->subjects > 1000000 || o->impressions < 0 || o->impressions > 10000)
        return dt_fail(DT_E_USAGE,
                       "%d subjects with %d impressions; expected 1..1000000 and "
                       "1..10000",
                       o->subjects, o->impressions);
    if (strlen(o->out) > PATH_MAX - 256) return dt_fail(DT_E_USAGE, "%s: too long a path", o->out);
    job j = {.out = o->out, .seed = o->seed, .progress = o->progress};
    j.n_subjects = o->subjects ? (uint32_t)o->subjects : 45;
    j.n_impressions = o->impressions ? (uint32_t)o->impressions : 10;
    j.terminal = isatty(STDERR_FILENO);
    snprintf(note_path, sizeof note_path, "%s/.synth", o->out);
    DT_TRY(claim_directory(o, &j, note_path));
    dt_team *team;
    DT_TRY(dt_team_create(&team, dt_usable_cores(), "synth"));
    dt_team_run(team, work, &j);
    dt_team_destroy(team);
    if (j.status != DT_OK) return dt_fail((dt_status)j.status, "%s", j.message);
    report(&j, 2 * j.n_subjects, true);
    return DT_OK;
}
