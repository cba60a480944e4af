// Augmentation: pixels against Pillow and torchvision (golden/augment.safetensors), what draws may and may
// not depend on, their distributions, and lists of operations on any size.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/rng.h"
#include "config/config.h"
#include "data/augment/augment.h"
#include "data/augment/augment_ops.h"
#include "data/augment/fit.h"
#include "data/augment/pixels.h"
#include "golden/golden.h"
#include "random_list.h"

static dt_config *config;
static dt_safetensors *goldens;
static dt_buffer scratch;

static dt_status parse(const char *list, dt_augment **out) {
    char *text =
        dt_xprintf("run: {name: t}\n"
                   "data: {path: x, fields: {a: {kind: image, size: [4, 4]}}, augment: {a: %s}}\n"
                   "model: {name: fusion}\ntrain: {global_batch: 8, micro_batch: 2}\n",
                   list);
    *out = NULL;
    dt_config_destroy(config);
    config = NULL;
    dt_status st = dt_config_parse(&config, "t.yaml", text, strlen(text), NULL, 0);
    free(text);
    if (st != DT_OK) return st;
    return dt_augment_parse(out, dt_cnode_get(dt_config_node(config, "data.augment"), "a"), "a");
}

static dt_augment *parse_good(const char *list) {
    dt_augment *a;
    if (parse(list, &a) != DT_OK) fail_msg("%s: %s", list, dt_error_message());
    return a;
}

static void apply(const char *list, uint32_t sample, uint32_t epoch, uint8_t *pixels, int w, int h,
                  int c) {
    dt_augment *a = parse_good(list);
    for (int i = 0; i < w * h * c; i++) pixels[i] = (uint8_t)(i * 7);
    dt_image image = {pixels, w, h, c};
    dt_augment_key key = {11, sample, epoch};
    assert_int_equal(dt_augment_apply(a, &key, &image, &scratch), DT_OK);
    dt_augment_destroy(a);
}

// The generator of the operation at place `at` of field a, as augment.c makes it.
static dt_rng rng_at(int at, uint32_t sample, uint32_t epoch) {
    char purpose[32];
    snprintf(purpose, sizeof purpose, "augment.a.%d", at);
    return (dt_rng){.seed = 11, .slot = sample, .step = epoch, .purpose = dt_hash32(purpose)};
}

// ---- pixels ------------------------------------------------------------------------------------------
typedef struct call {
    dt_image *image;
    double p[8];
    bool nearest;
} call;

static void warp(const call *k, const dt_map *m, bool whole) {
    dt_image *image = k->image;
    size_t n = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    uint8_t *src = malloc(n);
    memcpy(src, image->data, n);
    dt_image from = *image;
    from.data = src;
    dt_pixels_warp(&from, m, (dt_border){0, k->nearest}, whole, image->data);
    free(src);
}

static void do_brightness(const call *k) {
    dt_pixels_brightness(k->image, (float)k->p[0]);
}
static void do_contrast(const call *k) {
    dt_pixels_contrast(k->image, (float)k->p[0]);
}
static void do_saturation(const call *k) {
    dt_pixels_saturation(k->image, (float)k->p[0]);
}
static void do_sharpness(const call *k) {
    assert_int_equal(dt_pixels_sharpness(k->image, (float)k->p[0], &scratch), DT_OK);
}
static void do_hue(const call *k) {
    dt_pixels_hue(k->image, dt_hue_turn(k->p[0]));
}
static void do_grayscale(const call *k) {
    dt_pixels_grey(k->image);
}
static void do_invert(const call *k) {
    dt_pixels_invert(k->image);
}
static void do_solarize(const call *k) {
    dt_pixels_solarize(k->image, dt_solarize_from(k->p[0]));
}
static void do_posterize(const call *k) {
    dt_pixels_posterize(k->image, (uint8_t)dt_posterize_mask((int)k->p[0]));
}
static void do_equalize(const call *k) {
    dt_pixels_equalize(k->image);
}
static void do_autocontrast(const call *k) {
    dt_pixels_autocontrast(k->image);
}
static void do_blur(const call *k) {
    uint32_t weight[DT_MAX_BLUR + 1];
    int half = dt_blur_weights((int)k->p[0], k->p[1], weight);
    assert_int_equal(dt_pixels_blur(k->image, half, weight, &scratch), DT_OK);
}
static void do_rotate(const call *k) {
    dt_map m = dt_map_rotate(k->p[0], 1, k->image->width, k->image->height);
    warp(k, &m, false);
}
static void do_affine(const call *k) {
    dt_map m = dt_map_affine(k->p[0], k->p[1], k->p[2], k->p[3], k->p[4], k->p[5], k->image->width,
                             k->image->height);
    warp(k, &m, false);
}
static void do_perspective(const call *k) {
    double w = k->image->width - 1, h = k->image->height - 1;
    const double from[4][2] = {{0, 0}, {w, 0}, {w, h}, {0, h}};
    double to[4][2];
    dt_map m;
    memcpy(to, k->p, sizeof to);
    assert_true(dt_map_perspective(&m, from, (const double(*)[2])to));
    warp(k, &m, false);
}
static void do_flip_x(const call *k) {
    dt_map m = dt_map_flip(true, false, k->image->width, k->image->height);
    warp(k, &m, true);
}
static void do_flip_y(const call *k) {
    dt_map m = dt_map_flip(false, true, k->image->width, k->image->height);
    warp(k, &m, true);
}

static dt_image golden_image(const char *name, uint8_t *buf, size_t cap) {
    int i = dt_safetensors_find(goldens, name);
    if (i < 0) fail_msg("no golden '%s'", name);
    dt_shape s;
    size_t n;
    dt_safetensors_shape(goldens, i, &s);
    const void *data = dt_safetensors_data(goldens, i, &n);
    assert_true(n <= cap && s.n == 3);
    memcpy(buf, data, n);
    return (dt_image){buf, (int)s.d[1], (int)s.d[0], (int)s.d[2]};
}

static void compare(const char *name, const uint8_t *got, const uint8_t *want, size_t n,
                    double equal, double within_one, int worst) {
    size_t n_equal = 0, n_near = 0;
    int most = 0;
    for (size_t i = 0; i < n; i++) {
        int d = abs(got[i] - want[i]);
        n_equal += d == 0;
        n_near += d <= 1;
        most = d > most ? d : most;
    }
    if (getenv("SHOW"))
        printf("%-44s equal %.4f within one %.4f worst %d\n", name, (double)n_equal / (double)n,
               (double)n_near / (double)n, most);
    if ((double)n_equal < equal * (double)n || (double)n_near < within_one * (double)n ||
        most > worst)
        fail_msg("%s: %.4f equal, %.4f within one, worst %d", name, (double)n_equal / (double)n,
                 (double)n_near / (double)n, most);
}

// "fit C SHORT H W": another size than the source's.
static void check_fit(const char *name, double short_side, int h, int w) {
    static uint8_t src[30 * 22 * 3], got[40 * 40 * 3], want[sizeof got];
    dt_resizer *r = dt_resizer_create();
    dt_fit fit = {DT_FIT_CROP, (int)short_side};
    double box[4];
    dt_image image = golden_image(name[4] == '3' ? "src3" : "src1", src, sizeof src);
    dt_image wanted = golden_image(name, want, sizeof want);
    assert_true(wanted.width == w && wanted.height == h);
    dt_fit_box(&fit, w, h, image.width, image.height, box);
    assert_int_equal(dt_resize(r, &image, box, got, h, w), DT_OK);
    compare(name, got, want, (size_t)(w * h * image.channels), 1, 1, 0);
    dt_resizer_destroy(r);
}

// Share of bytes that are equal, and that differ by at most one level; the largest difference.
static const struct {
    const char *name;
    void (*run)(const call *k);
    double equal, within_one;
    int worst;
} CALLS[] = {
    {"brightness", do_brightness, 1, 1, 0},
    {"contrast", do_contrast, 1, 1, 0},
    {"saturation", do_saturation, 1, 1, 0},
    {"sharpness", do_sharpness, 1, 1, 0},
    {"hue", do_hue, 0.7, 1, 1},
    {"grayscale", do_grayscale, 1, 1, 0},
    {"invert", do_invert, 1, 1, 0},
    {"solarize", do_solarize, 1, 1, 0},
    {"posterize", do_posterize, 1, 1, 0},
    {"equalize", do_equalize, 1, 1, 0},
    {"autocontrast", do_autocontrast, 1, 1, 0},
    {"blur", do_blur, 0.99, 1, 1},
    {"rotate_nearest", do_rotate, 1, 1, 0},
    {"affine_nearest", do_affine, 1, 1, 0},
    {"perspective_nearest", do_perspective, 0.99, 0.99, 255}, // a few lie on the line between two
    {"rotate_bilinear", do_rotate, 0.4, 0.99, 2},             // Pillow drops fractions, we round
    {"affine_bilinear", do_affine, 0.4, 0.99, 2},
    {"perspective_bilinear", do_perspective, 0.4, 0.99, 2},
    {"flip_x", do_flip_x, 1, 1, 0},
    {"flip_y", do_flip_y, 1, 1, 0},
};
enum { N_CALLS = sizeof CALLS / sizeof *CALLS };

static void check_golden(const char *name) {
    static uint8_t got[30 * 22 * 3], want[sizeof got];
    int i = 0, c;
    size_t n_name = strcspn(name, " ");
    while (i < N_CALLS &&
           (strlen(CALLS[i].name) != n_name || strncmp(CALLS[i].name, name, n_name) != 0))
        i++;
    char *end;
    c = (int)strtol(name + n_name, &end, 10);
    if (strncmp(name, "fit ", 4) == 0) {
        double short_side = strtod(end, &end);
        int h = (int)strtol(end, &end, 10);
        check_fit(name, short_side, h, (int)strtol(end, &end, 10));
        return;
    }
    if (i == N_CALLS) fail_msg("golden '%s' has no call", name);
    dt_image image = golden_image(c == 3 ? "src3" : "src1", got, sizeof got);
    golden_image(name, want, sizeof want);
    call k = {.image = &image, .nearest = strstr(name, "nearest") != NULL};
    for (int p = 0; p < 8 && *end; p++) k.p[p] = strtod(end, &end);
    CALLS[i].run(&k);
    compare(name, got, want, (size_t)(image.width * image.height * c), CALLS[i].equal,
            CALLS[i].within_one, CALLS[i].worst);
}

static void pixels_agree_with_torchvision(void **state) {
    int n_checked = 0;
    for (int i = 0; i < dt_safetensors_count(goldens); i++) {
        const char *name = dt_safetensors_name(goldens, i);
        if (strncmp(name, "src", 3) == 0 || strcmp(name, "small") == 0 ||
            strncmp(name, "rand ", 5) == 0 || strncmp(name, "wide ", 5) == 0 ||
            strncmp(name, "auto ", 5) == 0 || strncmp(name, "chance ", 7) == 0 ||
            strncmp(name, "as drawn/", 9) == 0)
            continue;
        check_golden(name);
        n_checked++;
    }
    assert_true(n_checked > 50);
}

static void fits_are_where_they_should_be(void **state) {
    double box[4];
    dt_fit fit = {DT_FIT_CROP, 0};
    dt_fit_box(&fit, 10, 10, 300, 200, box); // the largest centred part
    assert_true(box[0] == 50 && box[1] == 0 && box[2] == 250 && box[3] == 200);
    dt_fit_box(&fit, 30, 10, 300, 200, box);
    assert_true(box[0] == 0 && box[1] == 50 && box[2] == 300 && box[3] == 150);
    fit.short_side = 16;
    for (int w = 1; w < 40; w++) // never outside, whatever the shape
        for (int h = 1; h < 40; h++) {
            dt_fit_box(&fit, 16, 9, w, h, box);
            assert_true(box[0] >= 0 && box[1] >= 0 && box[2] <= w && box[3] <= h);
            assert_true(box[0] < box[2] && box[1] < box[3]);
            dt_rect r = dt_fit_place(16, 9, w, h);
            assert_true(r.x >= 0 && r.y >= 0 && r.w >= 1 && r.h >= 1);
            assert_true(r.x + r.w <= 16 && r.y + r.h <= 9 && (r.w == 16 || r.h == 9));
        }
    dt_fit_box(&(dt_fit){DT_FIT_PAD, 0}, 4, 4, 7, 5, box);
    assert_true(box[0] == 0 && box[1] == 0 && box[2] == 7 && box[3] == 5);
}

static void a_rectangle_takes_its_mean(void **state) {
    uint8_t p[5 * 4 * 3], mean[3];
    dt_image image = {p, 5, 4, 3};
    for (int i = 0; i < 60; i++) p[i] = (uint8_t)(i % 3 * 50 + i / 3 % 2); // half of them 1 more
    dt_pixels_mean(&image, mean);
    assert_true(mean[0] == 1 && mean[1] == 51 && mean[2] == 101); // halves go up
    dt_pixels_fill(&image, (dt_rect){1, 2, 3, 1}, (const uint8_t[3]){7, 8, 9});
    for (int i = 0; i < 60; i++) {
        int x = i / 3 % 5, y = i / 15;
        bool in = y == 2 && x >= 1 && x < 4;
        assert_int_equal(p[i], in ? 7 + i % 3 : i % 3 * 50 + i / 3 % 2);
    }
}

// ---- policies ----------------------------------------------------------------------------------------
static void check_policy(const dt_augment *a, uint32_t sample, const char *name) {
    static uint8_t got[16 * 12 * 3], want[sizeof got];
    dt_image image = golden_image("small", got, sizeof got);
    golden_image(name, want, sizeof want);
    dt_augment_key key = {11, sample, 0};
    assert_int_equal(dt_augment_apply(a, &key, &image, &scratch), DT_OK);
    compare(name, got, want, sizeof got, 1, 1, 0);
}

static void rand_augment_is_torchvisions(void **state) {
    dt_augment *a =
        parse_good("[{rand_augment: {n: 1, magnitude: 9, fill: 0, interpolation: nearest}}]");
    bool seen[14][2] = {{false}};
    int n_seen = 0;
    for (uint32_t s = 0; s < 2000; s++) {
        dt_rng r = rng_at(0, s, 0);
        uint32_t what = dt_rng_below(&r, 0, 14), sign = dt_rng_u32(&r, 1) >> 31;
        if (seen[what][sign]) continue;
        char name[64];
        snprintf(name, sizeof name, "rand %u %d 9", what, sign ? 1 : -1);
        check_policy(a, s, name);
        seen[what][sign] = true;
        n_seen++;
    }
    assert_int_equal(n_seen, 28);
    dt_augment_destroy(a);
}

static void trivial_augment_is_torchvisions(void **state) {
    dt_augment *a = parse_good("[{trivial_augment: {fill: 0, interpolation: nearest}}]");
    int n_seen = 0;
    for (uint32_t s = 0; s < 20000; s++) {
        dt_rng r = rng_at(0, s, 0);
        char name[64];
        snprintf(name, sizeof name, "wide %u %d %u", dt_rng_below(&r, 0, 14),
                 dt_rng_u32(&r, 1) >> 31 ? 1 : -1, dt_rng_below(&r, 2, 31));
        if (dt_safetensors_find(goldens, name) < 0) continue;
        check_policy(a, s, name);
        n_seen++;
    }
    assert_true(n_seen > 300);
    dt_augment_destroy(a);
}

// Samples where both operations of a pair happen with a positive sign, by the golden's chances.
static void auto_augment_is_torchvisions(void **state) {
    static const char *const POLICIES[] = {"imagenet", "cifar10", "svhn"};
    for (int k = 0; k < 3; k++) {
        char list[128], name[64];
        snprintf(list, sizeof list,
                 "[{auto_augment: {policy: %s, fill: 0, interpolation: nearest}}]", POLICIES[k]);
        dt_augment *a = parse_good(list);
        snprintf(name, sizeof name, "chance %d", k);
        size_t n;
        const float *chance = dt_safetensors_data(goldens, dt_safetensors_find(goldens, name), &n);
        bool seen[25] = {false};
        int n_seen = 0;
        for (uint32_t s = 0; s < 200000 && n_seen < 25; s++) {
            dt_rng r = rng_at(0, s, 0);
            uint32_t i = dt_rng_below(&r, 0, 25);
            bool usable = !seen[i];
            for (uint32_t j = 0; j < 2; j++) {
                float p = chance[2 * i + j];
                bool happens = dt_rng_uniform(&r, 1 + j) < p;
                usable = usable && (p == 0 || (happens && dt_rng_u32(&r, 3 + j) >> 31));
            }
            if (!usable) continue;
            snprintf(name, sizeof name, "auto %d %u", k, i);
            // two translations in a row are one map: nothing comes back black
            if (!(k == 1 && (i == 1 || i == 3 || i == 21))) check_policy(a, s, name);
            seen[i] = true;
            n_seen++;
        }
        assert_int_equal(n_seen, 25);
        dt_augment_destroy(a);
    }
}

// ---- draws -------------------------------------------------------------------------------------------
static const char *const ALL =
    "[{rotate: 10}, {shift: 0.1}, {flip: both}, {zoom: 0.2}, {crop: 2}, {brightness: 0.3}, "
    "{contrast: 0.3}, {noise: 0.05}, {affine: {degrees: 5, shear: 4}}, perspective, {color_jitter: "
    "{brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}, grayscale, {sharpness: 0.5}, "
    "{blur: 5}, {erase: {p: 1, fill: random}}, cutout, rand_augment]";

static void augmentation_is_a_function_of_its_key(void **state) {
    uint8_t a[20 * 16 * 3], b[sizeof a], c[sizeof a];
    apply(ALL, 5, 2, a, 20, 16, 3);
    apply(ALL, 5, 2, b, 20, 16, 3);
    assert_memory_equal(a, b, sizeof a);
    apply(ALL, 6, 2, c, 20, 16, 3);
    assert_memory_not_equal(a, c, sizeof a);
    apply(ALL, 5, 3, c, 20, 16, 3);
    assert_memory_not_equal(a, c, sizeof a);
}

// Bytes of one sample under each operation, hashed: what a seed means must not change by accident.
static void draws_do_not_change(void **state) {
    uint8_t a[20 * 16 * 3];
    apply("[{rotate: 10}, {shift: 0.1}, {flip: both}, {zoom: 0.2}, {crop: 2}, {noise: 0.05}]", 5, 2,
          a, 20, 16, 3);
    uint64_t old = dt_hash64(a, sizeof a);
    apply(ALL, 5, 2, a, 20, 16, 3);
    uint64_t all = dt_hash64(a, sizeof a);
    apply("[auto_augment, {rand_augment: {n: 3}}, trivial_augment]", 5, 2, a, 20, 16, 3);
    uint64_t policies = dt_hash64(a, sizeof a);
    if (old != 0x406584db7bff34dbu || all != 0xfa95e055154f5ca3u || policies != 0xae03d874307dab2eu)
        fail_msg("0x%llxu 0x%llxu 0x%llxu", (unsigned long long)old, (unsigned long long)all,
                 (unsigned long long)policies);
}

static void a_flip_moves_bytes_only(void **state) {
    uint8_t a[6 * 4], plain[6 * 4];
    int n_flipped = 0, n_often = 0;
    for (int i = 0; i < 24; i++) plain[i] = (uint8_t)(i * 7);
    for (uint32_t s = 0; s < 200; s++) {
        apply("[{flip: horizontal}]", s, 0, a, 6, 4, 1);
        bool same = memcmp(a, plain, sizeof a) == 0;
        n_flipped += !same;
        for (int i = 0; i < 24 && !same; i++) assert_int_equal(a[i], plain[i / 6 * 6 + 5 - i % 6]);
        apply("[{flip: {axis: horizontal, p: 0.9}}]", s, 0, a, 6, 4, 1);
        n_often += memcmp(a, plain, sizeof a) != 0;
    }
    assert_true(n_flipped > 70 && n_flipped < 130);
    assert_true(n_often > 165 && n_often < 195);
}

static void a_flip_of_colour_moves_pixels(void **state) {
    enum { N_W = 7, N_H = 3 };
    uint8_t a[N_W * N_H * 3];
    int n_flipped = 0;
    for (uint32_t s = 0; s < 40; s++) {
        apply("[{flip: horizontal}]", s, 0, a, N_W, N_H, 3);
        bool flipped = a[0] != 0;
        n_flipped += flipped;
        for (int i = 0; i < N_W * N_H * 3; i++) {
            int x = i / 3 % N_W, from = flipped ? i + 3 * (N_W - 1 - 2 * x) : i;
            assert_int_equal(a[i], (uint8_t)(from * 7));
        }
    }
    assert_true(n_flipped > 8 && n_flipped < 32);
}

static void no_turn_is_no_change(void **state) {
    uint8_t a[9 * 7 * 3];
    apply(
        "[{rotate: 0}, {shift: 0}, {zoom: 0}, {noise: 0}, {affine: 0}, {perspective: {distortion: "
        "0, p: 1}}, {brightness: 0}, {contrast: 0}, {saturation: 0}, {hue: 0}, {sharpness: 0}, "
        "{blur: {kernel: 1, p: 1}}, color_jitter, {invert: 0}, {solarize: {threshold: 256, p: "
        "1}}, {posterize: {bits: 8, p: 1}}, {rand_augment: {magnitude: 0, p: 0}}]",
        1, 1, a, 9, 7, 3);
    for (int i = 0; i < (int)sizeof a; i++) assert_int_equal(a[i], (uint8_t)(i * 7));
}

static void the_noise_is_normal(void **state) {
    for (int i = 0; i < 256; i++) {
        double p = (i + 0.5) / 256; // the quantile is between these
        assert_true(erf((dt_half_normal[i] - 0.501) / 64 / sqrt(2)) <= p);
        assert_true(erf((dt_half_normal[i] + 0.501) / 64 / sqrt(2)) >= p);
    }
}

static void noise_has_the_deviation_asked_for(void **state) {
    static uint8_t p[100 * 100];
    memset(p, 128, sizeof p);
    dt_augment *a = parse_good("[{noise: 0.05}]");
    dt_image image = {p, 100, 100, 1};
    dt_augment_key key = {11, 0, 0};
    assert_int_equal(dt_augment_apply(a, &key, &image, &scratch), DT_OK);
    double sum = 0, squares = 0;
    for (int i = 0; i < 10000; i++) sum += p[i] - 128, squares += (p[i] - 128) * (p[i] - 128);
    assert_true(sum / 1e4 > -0.5 && sum / 1e4 < 0.5);
    assert_true(squares / 1e4 > 11.5 * 11.5 && squares / 1e4 < 14 * 14); // 0.05 * 255 = 12.75
    dt_augment_destroy(a);
}

// The plain formula with clamping everywhere, which the fast paths must equal.
static void a_shift_is_bilinear(void **state) {
    enum { N_W = 23, N_H = 17, N_C = 3 };
    uint8_t got[N_W * N_H * N_C], src[sizeof got];
    for (int i = 0; i < (int)sizeof src; i++) src[i] = (uint8_t)(i * 7);
    for (uint32_t sample = 0; sample < 20; sample++) {
        apply("[{shift: 0.3}]", sample, 4, got, N_W, N_H, N_C);
        dt_rng r = rng_at(0, sample, 4);
        int64_t tx = llround((-0.3 + 0.6 * (double)dt_rng_uniform(&r, 0)) * N_W * 65536);
        int64_t ty = llround((-0.3 + 0.6 * (double)dt_rng_uniform(&r, 1)) * N_H * 65536);
        for (int i = 0; i < (int)sizeof got; i++) {
            int64_t fx = i / N_C % N_W * 65536 + tx, fy = i / N_C / N_W * 65536 + ty, p[4];
            for (int k = 0; k < 4; k++) {
                int64_t x = (fx >> 16) + k % 2, y = (fy >> 16) + k / 2;
                x = x < 0 ? 0 : x >= N_W ? N_W - 1 : x;
                y = y < 0 ? 0 : y >= N_H ? N_H - 1 : y;
                p[k] = src[(y * N_W + x) * N_C + i % N_C];
            }
            int64_t wx = fx >> 8 & 255, wy = fy >> 8 & 255;
            int64_t a = p[0] * (256 - wx) + p[1] * wx, b = p[2] * (256 - wx) + p[3] * wx;
            assert_int_equal(got[i], (a * (256 - wy) + b * wy + 32768) >> 16);
        }
    }
}

// Edges repeated or filled, flipped or not, whole pixels: against the place each byte must come from.
static void a_crop_copies_bytes(void **state) {
    enum { N_W = 7, N_H = 5, PAD = 9 };
    uint8_t got[N_W * N_H * 3];
    for (uint32_t s = 0; s < 300; s++) {
        bool filled = s % 2;
        apply(filled ? "[{crop: {padding: 9, fill: 33}}, {flip: horizontal}]"
                     : "[{crop: 9}, {flip: horizontal}]",
              s, 0, got, N_W, N_H, 3);
        dt_rng r = rng_at(0, s, 0), f = rng_at(1, s, 0);
        int dx = (int)dt_rng_below(&r, 0, 2 * PAD + 1) - PAD;
        int dy = (int)dt_rng_below(&r, 1, 2 * PAD + 1) - PAD;
        bool flip = dt_rng_uniform(&f, 0) >= 0.5f;
        for (int i = 0; i < N_W * N_H; i++) {
            int x = (flip ? N_W - 1 - i % N_W : i % N_W) + dx, y = i / N_W + dy;
            bool off = x < 0 || y < 0 || x >= N_W || y >= N_H;
            x = x < 0 ? 0 : x >= N_W ? N_W - 1 : x;
            y = y < 0 ? 0 : y >= N_H ? N_H - 1 : y;
            for (int c = 0; c < 3; c++) {
                int want = filled && off ? 33 : (uint8_t)(((y * N_W + x) * 3 + c) * 7);
                assert_int_equal(got[i * 3 + c], want);
            }
        }
    }
}

static void a_resized_crop_stays_inside(void **state) {
    dt_augment *a = parse_good("[random_resized_crop, {flip: horizontal}]");
    double area = 0;
    for (uint32_t s = 0; s < 500; s++) {
        double box[4];
        dt_augment_key key = {11, s, 0};
        assert_true(dt_augment_box(a, &key, 50, 40, box));
        assert_true(box[0] >= 0 && box[1] >= 0 && box[2] <= 50 && box[3] <= 40);
        assert_true(box[2] > box[0] && box[3] > box[1]);
        area += (box[2] - box[0]) * (box[3] - box[1]) / 2000 / 500;
    }
    assert_true(area > 0.4 && area < 0.65); // mean of 0.08..1
    dt_augment_destroy(a);
}

// p of every operation: it happens that often, and not happening changes nothing.
static void p_is_how_often(void **state) {
    uint8_t a[8 * 8 * 3], plain[sizeof a];
    for (int i = 0; i < (int)sizeof a; i++) plain[i] = (uint8_t)(i * 7);
    static const char *const LISTS[] = {
        "[{invert: 0.25}]", "[{rotate: {degrees: [20, 30], p: 0.25}}]",
        "[{erase: {p: 0.25, scale: [0.3, 0.5], ratio: [0.9, 1.1]}}]", "[{grayscale: {p: 0.25}}]",
        "[{random_resized_crop: {}}, {posterize: {bits: 2, p: 0.25}}]"};
    for (size_t l = 0; l < sizeof LISTS / sizeof *LISTS; l++) {
        int n = 0;
        for (uint32_t s = 0; s < 800; s++) {
            apply(LISTS[l], s, 0, a, 8, 8, 3);
            n += memcmp(a, plain, sizeof a) != 0;
        }
        if (n < 150 || n > 250) fail_msg("%s: %d of 800", LISTS[l], n);
    }
}

// One grey pixel tells the factor: brightness is even in its range.
static void ranges_are_even(void **state) {
    dt_augment *a = parse_good("[{brightness: [0.5, 1.5]}]");
    int tenth[10] = {0};
    for (uint32_t s = 0; s < 5000; s++) {
        uint8_t p[1] = {100};
        dt_image image = {p, 1, 1, 1};
        dt_augment_key key = {3, s, 7};
        assert_int_equal(dt_augment_apply(a, &key, &image, &scratch), DT_OK);
        assert_in_range(p[0], 50, 150);
        int bin = (p[0] - 50) / 10;
        tenth[bin > 9 ? 9 : bin]++;
    }
    for (int i = 0; i < 10; i++) assert_in_range(tenth[i], 420, 580);
    dt_augment_destroy(a);
}

// All 24 orders of the jitter's four, seen through the results they leave on one pixel.
static void jitter_orders_are_even(void **state) {
    int count[24] = {0};
    for (uint32_t s = 0; s < 4800; s++) {
        dt_rng r = rng_at(0, s, 0);
        count[dt_rng_below(&r, 4, 24)]++;
    }
    for (int i = 0; i < 24; i++) assert_in_range(count[i], 140, 260);
    // brightness and contrast do not commute: both results occur
    dt_augment *a = parse_good("[{color_jitter: {brightness: [2, 2], contrast: [0.5, 0.5]}}]");
    bool first = false, second = false;
    for (uint32_t s = 0; s < 50; s++) {
        uint8_t p[2] = {20, 200}; // mean 110
        dt_image image = {p, 2, 1, 1};
        dt_augment_key key = {3, s, 7};
        assert_int_equal(dt_augment_apply(a, &key, &image, &scratch), DT_OK);
        bool brightness_first = p[0] == 94 && p[1] == 201; // 40, 255, mean 148
        bool contrast_first = p[0] == 130 && p[1] == 255;  // 65, 155
        assert_true(brightness_first || contrast_first);
        first = first || brightness_first;
        second = second || contrast_first;
    }
    assert_true(first && second);
    dt_augment_destroy(a);
}

static void erasing_takes_its_share(void **state) {
    dt_augment *a = parse_good("[{erase: {p: 1, fill: 7}}]");
    double sum = 0;
    for (uint32_t s = 0; s < 1000; s++) {
        static uint8_t p[40 * 30];
        int n = 0;
        memset(p, 200, sizeof p);
        dt_image image = {p, 40, 30, 1};
        dt_augment_key key = {3, s, 7};
        assert_int_equal(dt_augment_apply(a, &key, &image, &scratch), DT_OK);
        for (int i = 0; i < 1200; i++) n += p[i] == 7;
        assert_in_range(n, 16, 430);
        sum += n / 1200.0 / 1000;
    }
    assert_true(sum > 0.155 && sum < 0.195); // mean of 0.02..0.33
    dt_augment_destroy(a);
}

// ---- any list on any size ----------------------------------------------------------------------------
// What is left to a device, played here: the steps that it gets are all that is missing.
static int play_split(const dt_augment *a, const dt_augment_key *k, dt_image *image) {
    int n = dt_augment_device_steps(a), n_played = 0;
    dt_pixel_step *steps = malloc((size_t)(n + 1) * sizeof *steps);
    assert_int_equal(dt_augment_split(a, k, image, &scratch, steps), DT_OK);
    for (; n_played < n && steps[n_played].kind != DT_PIXEL_END; n_played++)
        assert_int_equal(dt_pixels_play(image, &steps[n_played], &scratch), DT_OK);
    free(steps);
    return n_played;
}

// Twice the same; also if the flip that comes first is there already, as a resize leaves it, and if the end of the
// list is a device's.
static void any_list_on_any_size(void **state) {
    int n_mirrored = 0, n_played = 0;
    uint64_t all = 0;
    static const int SIZES[] = {1, 2, 3, 4, 5, 7, 16, 31, 64};
    for (uint32_t round = 0; round < 3000; round++) {
        dt_rng r = {.seed = 99, .slot = round, .purpose = 1};
        uint32_t e = 0;
        char list[4096];
        random_list(&r, &e, list, sizeof list);
        dt_augment *a = parse_good(list);
        int w = SIZES[dt_rng_below(&r, e++, 9)], h = SIZES[dt_rng_below(&r, e++, 9)];
        int c = dt_rng_below(&r, e++, 2) ? 3 : 1;
        size_t n = (size_t)w * (size_t)h * (size_t)c;
        uint8_t *p = malloc(n), *again = malloc(n),
                *apart = malloc(n); // exact, for AddressSanitizer
        for (size_t i = 0; i < n; i++)
            p[i] = again[i] = apart[i] = (uint8_t)dt_rng_u32(&r, e + (uint32_t)i);
        dt_buffer own = {0};
        dt_image image = {p, w, h, c}, image2 = {again, w, h, c}, image3 = {apart, w, h, c};
        dt_augment_key key = {5, round, 1};
        double box[4];
        if (dt_augment_box(a, &key, w, h, box))
            assert_true(box[0] >= 0 && box[1] >= 0 && box[2] <= w && box[3] <= h);
        if (dt_augment_mirrors(a, &key)) {
            assert_int_equal(dt_pixels_mirror(&image2, &scratch), DT_OK);
            image2.mirrored = true;
            n_mirrored++;
        }
        assert_int_equal(dt_augment_apply(a, &key, &image, &own), DT_OK);
        assert_int_equal(dt_augment_apply(a, &key, &image2, &scratch), DT_OK);
        if (memcmp(p, again, n) != 0)
            fail_msg("%s on %dx%dx%d is not the same twice", list, w, h, c);
        n_played += play_split(a, &key, &image3);
        if (memcmp(p, apart, n) != 0)
            fail_msg("%s on %dx%dx%d is not the same apart", list, w, h, c);
        all = all * 31 + dt_hash64(p, n);
        dt_buffer_fini(&own);
        free(p);
        free(again);
        free(apart);
        dt_augment_destroy(a);
    }
    assert_true(n_mirrored > 20 && n_played > 3000);
    if (getenv("SHOW")) printf("all of them: %016llx\n", (unsigned long long)all);
}

// ---- config and docs -----------------------------------------------------------------------------------
static void wrong_augmentations_are_named(void **state) {
    dt_augment *a;
    static const char *const BAD[][2] = {
        {"[{fliip: horizontal}]", "unknown augmentation 'fliip'; did you mean 'flip'"},
        {"[{fotograf: 1}]", "trivial_augment"},
        {"[{rotate: 500}]", "degrees"},
        {"[{rotate: -5}]", "[-a, a], or [from, to] in -180..180"},
        {"[{rotate: [5, -5]}]", "degrees"},
        {"[rotate]", "rotate: degrees: expected"},
        {"[{rotate: {p: 0.5}}]", "rotate: degrees: expected"},
        {"[{rotate: {degrees: 5, p: 2}}]", "p: expected a number in 0..1"},
        {"[{rotate: {degree: 5}}]", "unknown parameter 'degree' of rotate; it has degrees, fill, "
                                    "interpolation, p"},
        {"[{rotate: {degrees: 5, fill: red}}]", "fill: expected edge or 0..255"},
        {"[{rotate: {degrees: 5, interpolation: cubic}}]", "expected bilinear, nearest"},
        {"[{zoom: 0.95}]", "zoom: by"},
        {"[{blur: 4}]", "an odd number in 1..255"},
        {"[{posterize: 2.5}]", "a whole number in 0..8"},
        {"[{flip: sideways}]", "horizontal"},
        {"[{invert: 2}]", "p: expected"},
        {"[{flip: both}, random_resized_crop]", "first"},
        {"[{random_resized_crop: {scale: [0.5, 1.5]}}]", "scale: expected [from, to] in 0..1"},
        {"[[1]]", "one augmentation"},
        {"{rotate: 1}", "list"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        assert_int_equal(parse(BAD[i][0], &a), DT_E_USAGE);
        if (!strstr(dt_error_message(), BAD[i][1]) || !strstr(dt_error_message(), "t.yaml:2"))
            fail_msg("%s: %s", BAD[i][0], dt_error_message());
    }
}

static void the_docs_list_every_operation(void **state) {
    char path[4096], line[1024], *text;
    const char *source = getenv("SOURCE");
    size_t n;
    snprintf(path, sizeof path, "%s/docs/data.md", source ? source : ".");
    assert_int_equal(dt_io_read_file(&text, &n, path, 0, DT_E_DATA), DT_OK);
    for (int i = 0; dt_augment_describe(i, true, line, sizeof line); i++)
        if (!strstr(text, line)) fail_msg("docs/data.md lacks this line:\n%s", line);
    free(text);
}

static int set_up(void **state) {
    goldens = golden_open("augment.safetensors");
    return 0;
}

static int tear_down(void **state) {
    dt_safetensors_close(goldens);
    dt_config_destroy(config);
    dt_buffer_fini(&scratch);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_agree_with_torchvision),
        cmocka_unit_test(fits_are_where_they_should_be),
        cmocka_unit_test(a_rectangle_takes_its_mean),
        cmocka_unit_test(rand_augment_is_torchvisions),
        cmocka_unit_test(trivial_augment_is_torchvisions),
        cmocka_unit_test(auto_augment_is_torchvisions),
        cmocka_unit_test(augmentation_is_a_function_of_its_key),
        cmocka_unit_test(draws_do_not_change),
        cmocka_unit_test(a_flip_moves_bytes_only),
        cmocka_unit_test(a_flip_of_colour_moves_pixels),
        cmocka_unit_test(no_turn_is_no_change),
        cmocka_unit_test(the_noise_is_normal),
        cmocka_unit_test(noise_has_the_deviation_asked_for),
        cmocka_unit_test(a_shift_is_bilinear),
        cmocka_unit_test(a_crop_copies_bytes),
        cmocka_unit_test(a_resized_crop_stays_inside),
        cmocka_unit_test(p_is_how_often),
        cmocka_unit_test(ranges_are_even),
        cmocka_unit_test(jitter_orders_are_even),
        cmocka_unit_test(erasing_takes_its_share),
        cmocka_unit_test(any_list_on_any_size),
        cmocka_unit_test(wrong_augmentations_are_named),
        cmocka_unit_test(the_docs_list_every_operation),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
