// bench_augment.c: what each augmentation costs: CPU microseconds an image of 224x224x3, one thread, p = 1.
//
//   bench_augment [list …]     lists as in data.augment.FIELD; none: one of each operation
//
// Prints a JSON line a list: the least of some rounds, each over different samples, so that draws average.
// bench_augment.py puts Pillow and torchvision beside it.
#include "base/arena.h"
#include "config/config.h"
#include "data/augment/augment.h"

#include "bench_short.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIDE = 224, ROUNDS = 7, IMAGES = 40 };

static const char *const LISTS[] = {
    "[{flip: {axis: horizontal, p: 1}}]",
    "[{flip: {axis: vertical, p: 1}}]",
    "[{crop: 4}]",
    "[{shift: 0.1}]",
    "[{rotate: 30}]",
    "[{rotate: {degrees: 30, interpolation: nearest}}]",
    "[{affine: {degrees: 10, translate: 0.1, scale: [0.9, 1.1], shear: 5}}]",
    "[{perspective: {p: 1}}]",
    "[{brightness: 0.4}]",
    "[{contrast: 0.4}]",
    "[{saturation: 0.4}]",
    "[{hue: 0.1}]",
    "[{color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}]",
    "[{grayscale: 1}]",
    "[{sharpness: [2, 2]}]",
    "[{blur: {kernel: 23, sigma: [1, 1], p: 1}}]",
    "[{noise: 0.05}]",
    "[{invert: 1}]",
    "[{solarize: {p: 1}}]",
    "[{posterize: {bits: 4, p: 1}}]",
    "[{equalize: 1}]",
    "[{autocontrast: 1}]",
    "[{erase: {p: 1, fill: 0}}]",
    "[auto_augment]",
    "[rand_augment]",
    "[trivial_augment]",
};

static double cpu_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

// Slopes and grain, about as smooth as a photograph.
static void paint(uint8_t *p) {
    uint32_t x = 1;
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        x = x * 1664525u + 1013904223u;
        int column = i / 3 % SIDE, row = i / 3 / SIDE;
        p[i] = (uint8_t)(20 + (column * (1 + i % 3) + row) * 200 / (4 * SIDE) + (int)(x >> 28));
    }
}

static dt_status run(const char *list) {
    dt_config *c;
    dt_augment *a;
    char *text =
        dt_xprintf("run: {name: t}\n"
                   "data: {path: x, fields: {a: {kind: image, size: 224}}, augment: {a: %s}}\n"
                   "model: {name: fusion}\ntrain: {global_batch: 8, micro_batch: 2}\n",
                   list);
    DT_TRY(dt_config_parse(&c, "bench", text, strlen(text), NULL, 0));
    DT_TRY(dt_augment_parse(&a, dt_cnode_get(dt_config_node(c, "data.augment"), "a"), "a"));
    static uint8_t photo[SIDE * SIDE * 3], pixels[sizeof photo];
    dt_buffer scratch = {0};
    const uint32_t n_images = (uint32_t)bench_count(IMAGES, 2);
    double best = 1e30;
    paint(photo);
    for (int round = 0; round < bench_count(ROUNDS, 1); round++) {
        double sum = 0;
        for (uint32_t i = 0; i < n_images; i++) {
            dt_image image = {pixels, SIDE, SIDE, 3};
            dt_augment_key key = {42, i, 0};
            memcpy(pixels, photo, sizeof photo);
            double t = cpu_us();
            DT_TRY(dt_augment_apply(a, &key, &image, &scratch));
            sum += cpu_us() - t;
        }
        best = sum < best ? sum : best;
    }
    printf("{\"list\": \"%s\", \"us_per_image\": %.1f}\n", list, best / n_images);
    dt_buffer_fini(&scratch);
    dt_augment_destroy(a);
    dt_config_destroy(c);
    free(text);
    return DT_OK;
}

int main(int argc, char **argv) {
    dt_status st = DT_OK;
    for (int i = 1; i < argc && st == DT_OK; i++) st = run(argv[i]);
    for (size_t i = 0; argc < 2 && i < sizeof LISTS / sizeof *LISTS && st == DT_OK; i++)
        st = run(LISTS[i]);
    if (st != DT_OK) fprintf(stderr, "%s\n", dt_error_message());
    return st;
}
