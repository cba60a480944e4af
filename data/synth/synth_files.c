// synth_files.c: the small file writers, and the random helpers of the generators.
#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "data/decode/encode.h"
#include "synth_kinds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

dt_status dt_synth_write_file(const char *path, const void *data, size_t n_bytes) {
    int fd = -1;
    char *folder = dt_io_parent(path);
    dt_status made = dt_io_mkdir_all(folder);
    free(folder);
    DT_TRY(made);
    DT_TRY(dt_io_create(&fd, path, false));
    dt_status st = dt_io_write(fd, path, data, n_bytes);
    dt_status closed = dt_io_close(fd, path);
    return st == DT_OK ? closed : st;
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
            memset(to + 4 * x, from[x], 3);
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
    size_t pixel = channels == 1 ? 4 : 3, row = ((size_t)w * pixel + 3) / 4 * 4;
    size_t n = HEADERS + row * (size_t)h;
    uint8_t *file = dt_xcalloc(1, n);
    memcpy(file, "BM", 2);
    synth_files_put_u32(file + 2, (uint32_t)n);
    synth_files_put_u32(file + 10, HEADERS);
    synth_files_put_u32(file + 14, 40);
    synth_files_put_u32(file + 18, (uint32_t)w);
    synth_files_put_u32(file + 22, (uint32_t)h);                   // positive: bottom row first
    synth_files_put_u32(file + 26, 1 | (uint32_t)pixel * 8 << 16); // planes, bits a pixel
    synth_files_put_u32(file + 34, (uint32_t)(n - HEADERS));
    synth_files_put_u32(file + 38, 19685); // 500 dots an inch, as fingerprint readers have
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
    return (dt_synth_draw){.rng = {seed, impression, subject, dt_hash32(purpose)}};
}

// Element next of the sequence, as dt_rng_u32 has it; a block is computed once for its four.
static uint32_t next_word(dt_synth_draw *d) {
    if (d->next % 4 == 0) {
        const uint32_t counter[4] = {d->next / 4, d->rng.slot, d->rng.step, d->rng.purpose};
        dt_philox4x32(d->rng.seed, counter, d->word);
    }
    return d->word[d->next++ % 4];
}

float dt_synth_uniform(dt_synth_draw *d, float lo, float hi) {
    return lo + (hi - lo) * ((float)(next_word(d) >> 8) * 0x1p-24f);
}

float dt_synth_normal(dt_synth_draw *d) {
    uint32_t w = next_word(d);
    int sum = (int)(w & 255) + (int)(w >> 8 & 255) + (int)(w >> 16 & 255) + (int)(w >> 24);
    return (float)(sum - 510) * (1.0f / 147.8f);
}

void dt_synth_noise_init(dt_synth_noise *n, dt_synth_draw *d, int w, int h) {
    n->w = w;
    n->h = h;
    n->at = dt_xcalloc((size_t)w * (size_t)h, sizeof *n->at);
    for (int i = 0; i < w * h; i++) n->at[i] = dt_synth_uniform(d, -1, 1);
}

void dt_synth_noise_fini(dt_synth_noise *n) {
    free(n->at);
    n->at = NULL;
}

float dt_synth_noise_get(const dt_synth_noise *n, float x, float y) {
    float fx = floorf(x), fy = floorf(y), u = synth_step(0, 1, x - fx), v = synth_step(0, 1, y - fy);
    int x0 = (int)fx % n->w, y0 = (int)fy;
    if (x0 < 0) x0 += n->w;
    if (y0 < 0) y0 = 0, v = 0;
    if (y0 >= n->h - 1) y0 = n->h - 1, v = 0;
    int x1 = x0 + 1 == n->w ? 0 : x0 + 1, y1 = y0 + 1 < n->h ? y0 + 1 : y0;
    const float *p = n->at + (size_t)y0 * (size_t)n->w, *q = n->at + (size_t)y1 * (size_t)n->w;
    float top = p[x0] + (p[x1] - p[x0]) * u, bottom = q[x0] + (q[x1] - q[x0]) * u;
    return top + (bottom - top) * v;
}
