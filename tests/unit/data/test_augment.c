// Augmentation: pixels and policies against Pillow and torchvision (golden/augment.safetensors), and what a config
// may say of it.
#include "augment_case.h"
#include "base/core.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/rng.h"
#include "config/config.h"
#include "data/augment/augment.h"
#include "data/augment/fit.h"
#include "golden/golden.h"
#include "testing.h"

static dt_safetensors *goldens;
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
    dt_pixel_step s = dt_map_step(m, (dt_border){0, k->nearest}, whole);
    dt_pixels_warp_step(&from, &s, image->data);
    free(src);
}

#define FACTOR(name, id)                                                                                               \
    static void do_##name(const call *k) {                                                                             \
        dt_pixel_step s = {.kind = DT_PIXEL_##id, .as.factor = (float)k->p[0]};                                        \
        assert_true(dt_pixels_values(k->image, &s));                                                                   \
    }
#define LEVEL(name, id, value)                                                                                         \
    static void do_##name(const call *k) {                                                                             \
        dt_pixel_step s = {.kind = DT_PIXEL_##id, .as.level = value};                                                  \
        assert_true(dt_pixels_values(k->image, &s));                                                                   \
    }
FACTOR(brightness, BRIGHTNESS)
FACTOR(contrast, CONTRAST)
FACTOR(saturation, SATURATION)
static void do_sharpness(const call *k) {
    must(dt_pixels_sharpness(k->image, (float)k->p[0], &scratch));
}
LEVEL(hue, HUE, dt_hue_turn(k->p[0]))
LEVEL(grayscale, GREY, 0)
LEVEL(invert, INVERT, 0)
LEVEL(solarize, SOLARIZE, dt_solarize_from(k->p[0]))
LEVEL(posterize, POSTERIZE, dt_posterize_mask((int)k->p[0]))
LEVEL(equalize, EQUALIZE, 0)
LEVEL(autocontrast, AUTOCONTRAST, 0)
static void do_blur(const call *k) {
    uint32_t weight[DT_MAX_BLUR + 1];
    int half = dt_blur_weights((int)k->p[0], k->p[1], weight);
    must(dt_pixels_blur(k->image, half, weight, &scratch));
}
static void do_rotate(const call *k) {
    dt_map m = dt_map_rotate(k->p[0], 1, k->image->width, k->image->height);
    warp(k, &m, false);
}
static void do_affine(const call *k) {
    dt_map m = dt_map_affine(k->p[0], k->p[1], k->p[2], k->p[3], k->p[4], k->p[5], k->image->width, k->image->height);
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

static void compare(const char *name, const uint8_t *got, const uint8_t *want, size_t n, double equal,
                    double within_one, int worst) {
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
    if ((double)n_equal < equal * (double)n || (double)n_near < within_one * (double)n || most > worst)
        fail_msg("%s: %.4f equal, %.4f within one, worst %d", name, (double)n_equal / (double)n,
                 (double)n_near / (double)n, most);
}

// "fit C SHORT H W": another size than the source's.
static void check_fit(const char *name, double short_side, int h, int w) {
    static uint8_t src[30 * 22 * 3], got[40 * 40 * 3], want[sizeof got];
    dt_resizer *r = dt_resizer_create();
    dt_fit fit = {DT_FIT_crop, (int)short_side};
    double box[4];
    dt_image image = golden_image(name[4] == '3' ? "src3" : "src1", src, sizeof src);
    dt_image wanted = golden_image(name, want, sizeof want);
    assert_true(wanted.width == w && wanted.height == h);
    dt_fit_box(&fit, w, h, image.width, image.height, box);
    must(dt_resize(r, &image, box, got, h, w));
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
    while (i < N_CALLS && (strlen(CALLS[i].name) != n_name || strncmp(CALLS[i].name, name, n_name) != 0)) i++;
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
    compare(name, got, want, (size_t)(image.width * image.height * c), CALLS[i].equal, CALLS[i].within_one,
            CALLS[i].worst);
}

TEST(pixels_agree_with_torchvision) {
    int n_checked = 0;
    for (int i = 0; i < dt_safetensors_count(goldens); i++) {
        const char *name = dt_safetensors_name(goldens, i);
        if (strncmp(name, "src", 3) == 0 || strcmp(name, "small") == 0 || strncmp(name, "rand ", 5) == 0 ||
            strncmp(name, "wide ", 5) == 0 || strncmp(name, "auto ", 5) == 0 || strncmp(name, "chance ", 7) == 0 ||
            strncmp(name, "as drawn/", 9) == 0)
            continue;
        check_golden(name);
        n_checked++;
    }
    assert_true(n_checked > 50);
}

TEST(fits_are_where_they_should_be) {
    double box[4];
    dt_fit fit = {DT_FIT_crop, 0};
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
    dt_fit_box(&(dt_fit){DT_FIT_pad, 0}, 4, 4, 7, 5, box);
    assert_true(box[0] == 0 && box[1] == 0 && box[2] == 7 && box[3] == 5);
}

TEST(a_rectangle_takes_its_mean) {
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
    must(dt_augment_apply(a, &key, &image, &scratch));
    compare(name, got, want, sizeof got, 1, 1, 0);
}

TEST(rand_augment_is_torchvisions) {
    dt_augment *a = parse_good("[{rand_augment: {n: 1, magnitude: 9, fill: 0, interpolation: nearest}}]");
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

TEST(trivial_augment_is_torchvisions) {
    dt_augment *a = parse_good("[{trivial_augment: {fill: 0, interpolation: nearest}}]");
    int n_seen = 0;
    for (uint32_t s = 0; s < 20000; s++) {
        dt_rng r = rng_at(0, s, 0);
        char name[64];
        snprintf(name, sizeof name, "wide %u %d %u", dt_rng_below(&r, 0, 14), dt_rng_u32(&r, 1) >> 31 ? 1 : -1,
                 dt_rng_below(&r, 2, 31));
        if (dt_safetensors_find(goldens, name) < 0) continue;
        check_policy(a, s, name);
        n_seen++;
    }
    assert_true(n_seen > 300);
    dt_augment_destroy(a);
}

// Samples where both operations of a pair happen with a positive sign, by the golden's chances.
TEST(auto_augment_is_torchvisions) {
    static const char *const POLICIES[] = {"imagenet", "cifar10", "svhn"};
    for (int k = 0; k < 3; k++) {
        char list[128], name[64];
        snprintf(list, sizeof list, "[{auto_augment: {policy: %s, fill: 0, interpolation: nearest}}]", POLICIES[k]);
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

// ---- config --------------------------------------------------------------------------------------------
TEST(wrong_augmentations_are_named) {
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

static int set_up(void **state) {
    goldens = golden_open("augment.safetensors");
    return 0;
}

static int tear_down(void **state) {
    dt_safetensors_close(goldens);
    return augment_tear_down(state);
}

TEST_MAIN(set_up, tear_down)
