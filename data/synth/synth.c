// synth.c: dtrain synth: data sets made from a seed, byte for byte the same on every run.
//
// A kind is a table entry that says what is written for an item. A team of threads takes items from one counter; a
// file depends on (seed, item) only, so the number of threads and a restart change nothing.

#include "synth.h"

#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/thread.h"
#include "data/decode/encode.h"
#include "data/file/file.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const dt_synth_kind *const KINDS[] = {&synth_biometric, &synth_lens, &synth_acoustic, &synth_pose,
                                             &synth_photos};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

const dt_synth_kind *dt_data_synth_kind(int i) {
    return i >= 0 && i < N_KINDS ? KINDS[i] : NULL;
}

// -- work --------------------------------------------------------------------------------------
typedef struct team_job {
    dt_synth_job job;
    const dt_synth_kind *kind;
    dt_progress progress;        // thread 0's
    _Atomic uint32_t next, done; // next: item that the next thread takes
    _Atomic int status;          // of the first failure
    dt_error_kept first;         // written by the thread that set it
} team_job;

static void synth_work(void *arg, int worker) {
    team_job *t = arg;
    for (;;) {
        // one counter for all threads: which thread makes an item leaves no trace
        uint32_t item = atomic_fetch_add(&t->next, 1);
        if (item >= t->job.n || atomic_load(&t->status) != DT_OK) break;
        dt_status st = t->kind->make(&t->job, item);
        int none = DT_OK;
        // the first failure wins; the others' messages are dropped
        if (st != DT_OK && atomic_compare_exchange_strong(&t->status, &none, (int)st)) t->first = dt_error_keep();
        atomic_fetch_add(&t->done, 1);
        if (worker > 0) continue; // only thread 0 prints: the progress line has one writer
        t->progress.n_items = t->done;
        dt_progress_tick(&t->progress);
    }
}

// -- the whole ---------------------------------------------------------------------------------
// A hidden note of the options lies in the directory while and after it is made: the same command again
// makes the same bytes, another one must not mix its files with these.
static dt_status claim_directory(const team_job *t, const char *note_path) {
    const dt_synth_job *j = &t->job;
    char note[256], *old = NULL, **names = NULL;
    size_t n = 0, n_names = 0;
    // whatever changes bytes is in the note; 1: version of the generators
    snprintf(note, sizeof note, "%s 1 %s %u impressions %u seed %llu\n", t->kind->name, t->kind->unit, j->n,
             j->n_impressions, (unsigned long long)j->seed);
    DT_TRY(dt_io_mkdir_all(j->out));
    if (dt_io_exists(note_path)) {
        DT_TRY(dt_io_read_file(&old, &n, note_path, 4096, DT_E_STORAGE));
        bool same = strcmp(old, note) == 0;
        free(old);
        if (same) return DT_OK; // an interrupted run goes on in the same directory
    }
    DT_TRY(dt_io_list_dir(&names, &n_names, j->out, DT_E_STORAGE));
    dt_io_free_list(names, n_names);
    if (n_names > 0)
        return dt_fail(DT_E_USAGE,
                       "%s: not empty and not made with these options; choose another directory or "
                       "remove it",
                       j->out);
    return dt_io_write_file(note_path, note, strlen(note));
}

// One row per item, in their order, whichever thread makes the files.
static dt_status write_table(const team_job *t) {
    const dt_synth_kind *k = t->kind;
    if (!k->table) return DT_OK;
    char *path = dt_xprintf("%s/%s", t->job.out, k->table), line[256];
    dt_buffer text = {0};
    dt_buffer_append(&text, k->header, strlen(k->header));
    for (uint32_t i = 0; i < t->job.n; i++) {
        k->row(&t->job, i, line, sizeof line);
        dt_buffer_append(&text, line, strlen(line));
    }
    dt_status st = dt_synth_write_file(path, text.data, text.n_bytes);
    dt_buffer_fini(&text);
    free(path);
    return st;
}

static dt_status synth_find_kind(const char *name, const dt_synth_kind **out) {
    char list[256] = "";
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(KINDS[i]->name, name) == 0) {
            *out = KINDS[i];
            return DT_OK;
        }
        dt_text_list(list, sizeof list, KINDS[i]->name);
    }
    return dt_fail(DT_E_USAGE, "no synthetic data of kind '%s'; expected one of %s", name, list);
}

dt_status dt_data_synth(const dt_synth_opts *o) {
    char note_path[PATH_MAX];
    team_job t = {.progress = {.on = o->progress, .what = "synth"}};
    DT_TRY(synth_find_kind(o->kind, &t.kind));
    // bounds of the file names' digits
    if (o->n < 0 || o->n > 10000000 || o->impressions < 0 || o->impressions > 10000)
        return dt_fail(DT_E_USAGE, "%d %s with %d impressions; expected 1..10000000 and 1..10000", o->n, t.kind->unit,
                       o->impressions);
    if (o->impressions && !t.kind->of_people)
        return dt_fail(DT_E_USAGE, "synth %s: no impressions (of subjects) in this kind: --n is the number of %s",
                       t.kind->name, t.kind->unit);
    // 256: room for the longest name below OUT
    if (strlen(o->out) > PATH_MAX - 256) return dt_fail(DT_E_USAGE, "%s: too long a path", o->out);
    t.job = (dt_synth_job){.out = o->out, .seed = o->seed};
    t.job.n = o->n ? (uint32_t)o->n : t.kind->default_n;
    t.job.n_impressions = o->impressions ? (uint32_t)o->impressions : 10; // as many as fingers
    t.progress.items = t.kind->unit;
    t.progress.total_items = t.job.n;
    snprintf(note_path, sizeof note_path, "%s/.synth", o->out);
    DT_TRY(claim_directory(&t, note_path));
    DT_TRY(write_table(&t));
    dt_team *team;
    DT_TRY(dt_team_create(&team, dt_usable_cores(), "synth"));
    const double begin_s = dt_clock_s();
    dt_progress_begin(&t.progress);
    dt_team_run(team, synth_work, &t);
    dt_team_destroy(team);
    if (t.status != DT_OK) dt_error_restore(&t.first); // message of the thread that failed
    if (t.status != DT_OK) return (dt_status)t.status;
    t.progress.n_items = t.job.n;
    dt_progress_end(&t.progress);
    const double took_s = dt_clock_s() - begin_s;
    dt_info("%s: %u %s in %.1f s (%.0f %s/s)", o->out, t.job.n, t.kind->unit, took_s, t.job.n / took_s, t.kind->unit);
    return DT_OK;
}

// ---- synth files --------------------------------------------------------------------------------------------------

// The small file writers, and the random helpers of the generators.

dt_status dt_synth_write_file(const char *path, const void *data, size_t n_bytes) {
    int fd = -1;
    char *folder = dt_io_parent(path);
    dt_status made = dt_io_mkdir_all(folder); // files of a kind lie in folders by class or subject
    free(folder);
    DT_TRY(made);
    DT_TRY(dt_io_create(&fd, path, false));
    dt_status st = dt_io_write(fd, path, data, n_bytes);
    dt_status closed = dt_io_close(fd, path);
    return st == DT_OK ? closed : st; // a full disk may show only when closing
}

dt_status dt_synth_write_jpeg(const char *path, uint8_t *rgb, int w, int h, int quality) {
    dt_buffer file = {0};
    const dt_image image = {.data = rgb, .width = w, .height = h, .channels = 3};
    dt_status st = dt_encode_jpeg(&file, &image, quality);
    if (st == DT_OK) st = dt_synth_write_file(path, file.data, file.n_bytes);
    dt_buffer_fini(&file);
    return st;
}

// BMP files are little-endian, as dtrain's machines are.
static void synth_files_put_u32(uint8_t *p, uint32_t v) {
    memcpy(p, &v, sizeof v);
}

static void synth_files_put_row(uint8_t *to, const uint8_t *from, int w, int channels) {
    for (int x = 0; x < w; x++) {
        if (channels == 1) {
            memset(to + 4 * x, from[x], 3); // B, G and R alike
            to[4 * x + 3] = 255;
        } else { // BMP has B, G, R
            to[3 * x] = from[3 * x + 2];
            to[3 * x + 1] = from[3 * x + 1];
            to[3 * x + 2] = from[3 * x];
        }
    }
}

dt_status dt_synth_write_bmp(const char *path, const uint8_t *pixels, int w, int h, int channels) {
    enum { HEADERS = 14 + 40 };
    size_t pixel = channels == 1 ? 4 : 3, row = ((size_t)w * pixel + 3) / 4 * 4; // rows are padded to 4 bytes
    size_t n = HEADERS + row * (size_t)h;
    uint8_t *file = dt_xcalloc(1, n); // zeros: every header field that is not set below
    memcpy(file, "BM", 2);
    synth_files_put_u32(file + 2, (uint32_t)n); // size of the file
    synth_files_put_u32(file + 10, HEADERS);    // where pixels begin
    synth_files_put_u32(file + 14, 40);         // bytes of the BITMAPINFOHEADER
    synth_files_put_u32(file + 18, (uint32_t)w);
    synth_files_put_u32(file + 22, (uint32_t)h);                   // positive: bottom row first
    synth_files_put_u32(file + 26, 1 | (uint32_t)pixel * 8 << 16); // planes, bits a pixel
    synth_files_put_u32(file + 34, (uint32_t)(n - HEADERS));       // bytes of the pixels
    synth_files_put_u32(file + 38, 19685);                         // 500 dots an inch, as fingerprint readers have
    synth_files_put_u32(file + 42, 19685);
    for (int y = 0; y < h; y++)
        synth_files_put_row(file + HEADERS + row * (size_t)(h - 1 - y),
                            pixels + (size_t)y * (size_t)w * (size_t)channels, w, channels);
    dt_status st = dt_synth_write_file(path, file, n);
    free(file);
    return st;
}

// -- random helpers ----------------------------------------------------------------------------
dt_synth_draw dt_synth_begin(uint64_t seed, uint32_t subject, uint32_t impression, const char *purpose) {
    // counters of Philox: items are independent of the order in which they are made
    return (dt_synth_draw){.rng = {seed, impression, subject, dt_hash32(purpose)}};
}

// Element next of the sequence, as dt_rng_u32 has it; a block is computed once for its four.
static uint32_t next_word(dt_synth_draw *d) {
    if (d->next % 4 == 0) {
        // one block gives four words
        const uint32_t counter[4] = {d->next / 4, d->rng.slot, d->rng.step, d->rng.purpose};
        dt_philox4x32(d->rng.seed, counter, d->word);
    }
    return d->word[d->next++ % 4];
}

float dt_synth_uniform(dt_synth_draw *d, float lo, float hi) {
    return lo + (hi - lo) * ((float)(next_word(d) >> 8) * 0x1p-24f); // 24 bits: exact in a float
}

float dt_synth_normal(dt_synth_draw *d) {
    uint32_t w = next_word(d);
    // the sum of four bytes: mean 510, deviation 147.8
    int sum = (int)(w & 255) + (int)(w >> 8 & 255) + (int)(w >> 16 & 255) + (int)(w >> 24);
    return (float)(sum - 510) * (1.0f / 147.8f);
}

void dt_synth_noise_init(dt_synth_noise *n, dt_synth_draw *d, int w, int h) {
    n->w = w;
    n->h = h;
    n->at = dt_xcalloc((size_t)w * (size_t)h, sizeof *n->at);
    for (int i = 0; i < w * h; i++) n->at[i] = dt_synth_uniform(d, -1, 1); // values at the lattice's points
}

void dt_synth_noise_fini(dt_synth_noise *n) {
    free(n->at);
    n->at = NULL;
}

float dt_synth_noise_get(const dt_synth_noise *n, float x, float y) {
    // smooth steps: no kinks at the lattice's lines
    float fx = floorf(x), fy = floorf(y), u = synth_step(0, 1, x - fx), v = synth_step(0, 1, y - fy);
    int x0 = (int)fx % n->w, y0 = (int)fy;
    if (x0 < 0) x0 += n->w;    // x wraps around
    if (y0 < 0) y0 = 0, v = 0; // y does not: the first row, the last row
    if (y0 >= n->h - 1) y0 = n->h - 1, v = 0;
    int x1 = x0 + 1 == n->w ? 0 : x0 + 1, y1 = y0 + 1 < n->h ? y0 + 1 : y0;
    const float *p = n->at + (size_t)y0 * (size_t)n->w, *q = n->at + (size_t)y1 * (size_t)n->w;
    float top = p[x0] + (p[x1] - p[x0]) * u, bottom = q[x0] + (q[x1] - q[x0]) * u;
    return top + (bottom - top) * v;
}
