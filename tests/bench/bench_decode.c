// bench_decode.c: what a training photograph costs on one thread, beside a plain decode of it.
//
//   bench_decode FILE.tar [SECONDS]
//
// For every JPEG of the tar, in turn: (a) libjpeg's full decode to RGB and nothing else; (b) our way to a
// batch slot: RandomResizedCrop(224), region decode, resize, flip; (c) the same from a full decode; (d) the
// region decode of (b) alone. Each with another box in every round. The pieces alternate image by
// image, so what else runs on the machine hits all alike; times are CPU seconds of the thread. A round's
// rate is images by the sum of its times; the medians over rounds are printed as one JSON line.
#include "base/core.h"
#include "base/os.h"
#include "base/rng.h"
#include "config/config.h"
#include "data/augment/augment.h"
#include "data/decode/decode.h"
#include "data/file/tar.h"
#include "store/blob.h"

#include "bench_short.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { SIDE = 224, MAX_IMAGES = 4096, MAX_ROUNDS = 1000, N_WAYS = 4 };

static dt_blob blob;
static dt_span images[MAX_IMAGES];
static int n_images;
static double rate[N_WAYS][MAX_ROUNDS];

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void plain_decode(dt_span s, dt_buffer *out) {
    static struct jpeg_decompress_struct d;
    static struct jpeg_error_mgr errors;
    if (!d.err) {
        d.err = jpeg_std_error(&errors);
        jpeg_create_decompress(&d);
    }
    jpeg_mem_src(&d, s.data, s.n_bytes);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d);
    size_t stride = 3 * (size_t)d.output_width;
    uint8_t *pixels = dt_buffer_reserve(out, stride * d.output_height);
    while (d.output_scanline < d.output_height) {
        JSAMPROW row = pixels + stride * d.output_scanline;
        jpeg_read_scanlines(&d, &row, 1);
    }
    jpeg_finish_decompress(&d);
}

typedef struct choice {
    const dt_augment *augment;
    dt_augment_key key;
} choice;

static void choose(const void *ctx, int width, int height, double box[4]) {
    const choice *c = ctx;
    dt_augment_box(c->augment, &c->key, width, height, box);
}

typedef struct worker {
    dt_decoder *decoder;
    dt_resizer *resizer;
    dt_buffer plain, scratch;
    dt_augment *augment;
    uint8_t slot[SIDE * SIDE * 3];
} worker;

static dt_status run(worker *w, int way, int i, int round) {
    choice c = {w->augment, {1, (uint32_t)i, (uint32_t)round}};
    dt_image_want want = {.channels = 3, .height = SIDE, .width = SIDE};
    dt_image image;
    if (way == 0) {
        plain_decode(images[i], &w->plain);
        return DT_OK;
    }
    if (way != 2) want.box = choose, want.box_ctx = &c;
    DT_TRY(dt_decode_image_part(w->decoder, images[i], &want, &image));
    if (way == 3) return DT_OK;
    if (way == 2) choose(&c, image.full_width, image.full_height, image.box);
    dt_image slot = {w->slot, SIDE, SIDE, 3, .mirrored = dt_augment_mirrors(w->augment, &c.key)};
    DT_TRY((slot.mirrored ? dt_resize_mirrored : dt_resize)(w->resizer, &image, image.box, w->slot, SIDE, SIDE));
    return dt_augment_apply(w->augment, &c.key, &slot, &w->scratch);
}

static dt_status load(const char *path) {
    static dt_tar_entry e;
    dt_tar tar;
    bool more = true;
    DT_TRY(dt_blob_open(&blob, path));
    dt_tar_begin(&tar, &blob);
    while (n_images < bench_count(MAX_IMAGES, 20)) {
        DT_TRY(dt_tar_next(&tar, &e, &more));
        if (!more) break;
        uint8_t *bytes = malloc(e.size + 1);
        DT_TRY(dt_blob_read(&blob, e.offset, bytes, e.size));
        const char *kind = e.is_regular ? dt_image_extension(bytes, e.size) : NULL;
        if (kind && strcmp(kind, "jpg") == 0) images[n_images++] = (dt_span){bytes, e.size};
    }
    return n_images ? DT_OK : dt_fail(DT_E_DATA, "%s: no JPEG in it", path);
}

static dt_status make_augment(dt_augment **out) {
    static const char *const text = "run: {name: t}\n"
                                    "data: {path: x, fields: {a: {kind: image, size: 224}}, augment: {a: "
                                    "[random_resized_crop, {flip: horizontal}]}}\n"
                                    "model: {name: resnet}\ntrain: {global_batch: 8, micro_batch: 8}\n";
    dt_config *c;
    DT_TRY(dt_config_parse(&c, "bench", text, strlen(text), NULL, 0));
    return dt_augment_parse(out, dt_cnode_get(c->data.augment, "a"), "a");
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static dt_status bench(const char *path, double seconds) {
    static worker w;
    int n_rounds = 0;
    w.decoder = dt_decoder_create();
    w.resizer = dt_resizer_create();
    DT_TRY(make_augment(&w.augment));
    DT_TRY(load(path));
    double end = dt_clock_s() + bench_most(seconds, 0);
    for (; n_rounds < bench_count(3, 1) || (dt_clock_s() < end && n_rounds < MAX_ROUNDS); n_rounds++) {
        double spent[N_WAYS] = {0};
        for (int i = 0; i < n_images; i++)
            for (int way = 0; way < N_WAYS; way++) {
                double begin = cpu_s();
                DT_TRY(run(&w, way, i, n_rounds));
                spent[way] += cpu_s() - begin;
            }
        for (int way = 0; way < N_WAYS; way++) rate[way][n_rounds] = n_images / spent[way];
    }
    double median[N_WAYS];
    for (int way = 0; way < N_WAYS; way++) {
        qsort(rate[way], (size_t)n_rounds, sizeof(double), compare);
        median[way] = rate[way][n_rounds / 2];
    }
    printf("{\"images\": %d, \"rounds\": %d, \"plain_decode_per_s\": %.0f, \"crop_to_slot_per_s\": "
           "%.0f, \"full_decode_crop_per_s\": %.0f, \"crop_decode_per_s\": %.0f, "
           "\"crop_to_plain_ratio\": %.3f}\n",
           n_images, n_rounds, median[0], median[1], median[2], median[3], median[1] / median[0]);
    return DT_OK;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_decode FILE.tar [SECONDS]\n");
        return 2;
    }
    dt_status st = bench(argv[1], argc > 2 ? atof(argv[2]) : 10);
    if (st != DT_OK) fprintf(stderr, "%s\n", dt_error_message());
    return (int)st;
}
