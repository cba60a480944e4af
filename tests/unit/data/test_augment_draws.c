// Augmentation's draws: what they may and may not depend on, their distributions, and lists of operations on any size.
#include "augment_case.h"
#include "data/augment/augment.h"
#include "random_list.h"
#include "testing.h"

static const char *const ALL =
    "[{rotate: 10}, {shift: 0.1}, {flip: both}, {zoom: 0.2}, {crop: 2}, {brightness: 0.3}, "
    "{contrast: 0.3}, {noise: 0.05}, {affine: {degrees: 5, shear: 4}}, perspective, {color_jitter: "
    "{brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}}, grayscale, {sharpness: 0.5}, "
    "{blur: 5}, {erase: {p: 1, fill: random}}, cutout, rand_augment]";

TEST(augmentation_is_a_function_of_its_key) {
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
TEST(draws_do_not_change) {
    uint8_t a[20 * 16 * 3];
    apply("[{rotate: 10}, {shift: 0.1}, {flip: both}, {zoom: 0.2}, {crop: 2}, {noise: 0.05}]", 5, 2, a, 20, 16, 3);
    uint64_t old = dt_hash64(a, sizeof a);
    apply(ALL, 5, 2, a, 20, 16, 3);
    uint64_t all = dt_hash64(a, sizeof a);
    apply("[auto_augment, {rand_augment: {n: 3}}, trivial_augment]", 5, 2, a, 20, 16, 3);
    uint64_t policies = dt_hash64(a, sizeof a);
    if (old != 0x406584db7bff34dbu || all != 0xfa95e055154f5ca3u || policies != 0xae03d874307dab2eu)
        fail_msg("0x%llxu 0x%llxu 0x%llxu", (unsigned long long)old, (unsigned long long)all,
                 (unsigned long long)policies);
}

TEST(a_flip_moves_bytes_only) {
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

TEST(a_flip_of_colour_moves_pixels) {
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

TEST(no_turn_is_no_change) {
    uint8_t a[9 * 7 * 3];
    apply("[{rotate: 0}, {shift: 0}, {zoom: 0}, {noise: 0}, {affine: 0}, {perspective: {distortion: "
          "0, p: 1}}, {brightness: 0}, {contrast: 0}, {saturation: 0}, {hue: 0}, {sharpness: 0}, "
          "{blur: {kernel: 1, p: 1}}, color_jitter, {invert: 0}, {solarize: {threshold: 256, p: "
          "1}}, {posterize: {bits: 8, p: 1}}, {rand_augment: {magnitude: 0, p: 0}}]",
          1, 1, a, 9, 7, 3);
    for (int i = 0; i < (int)sizeof a; i++) assert_int_equal(a[i], (uint8_t)(i * 7));
}

TEST(the_noise_is_normal) {
    for (int i = 0; i < 256; i++) {
        double p = (i + 0.5) / 256; // the quantile is between these
        assert_true(erf((dt_half_normal[i] - 0.501) / 64 / sqrt(2)) <= p);
        assert_true(erf((dt_half_normal[i] + 0.501) / 64 / sqrt(2)) >= p);
    }
}

TEST(noise_has_the_deviation_asked_for) {
    static uint8_t p[100 * 100];
    memset(p, 128, sizeof p);
    dt_augment *a = parse_good("[{noise: 0.05}]");
    dt_image image = {p, 100, 100, 1};
    dt_augment_key key = {11, 0, 0};
    must(dt_augment_apply(a, &key, &image, &scratch));
    double sum = 0, squares = 0;
    for (int i = 0; i < 10000; i++) sum += p[i] - 128, squares += (p[i] - 128) * (p[i] - 128);
    assert_true(sum / 1e4 > -0.5 && sum / 1e4 < 0.5);
    assert_true(squares / 1e4 > 11.5 * 11.5 && squares / 1e4 < 14 * 14); // 0.05 * 255 = 12.75
    dt_augment_destroy(a);
}

// The plain formula with clamping everywhere, which the fast paths must equal.
TEST(a_shift_is_bilinear) {
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
TEST(a_crop_copies_bytes) {
    enum { N_W = 7, N_H = 5, PAD = 9 };
    uint8_t got[N_W * N_H * 3];
    for (uint32_t s = 0; s < 300; s++) {
        bool filled = s % 2;
        apply(filled ? "[{crop: {padding: 9, fill: 33}}, {flip: horizontal}]" : "[{crop: 9}, {flip: horizontal}]", s, 0,
              got, N_W, N_H, 3);
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

TEST(a_resized_crop_stays_inside) {
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
TEST(p_is_how_often) {
    uint8_t a[8 * 8 * 3], plain[sizeof a];
    for (int i = 0; i < (int)sizeof a; i++) plain[i] = (uint8_t)(i * 7);
    static const char *const LISTS[] = {"[{invert: 0.25}]", "[{rotate: {degrees: [20, 30], p: 0.25}}]",
                                        "[{erase: {p: 0.25, scale: [0.3, 0.5], ratio: [0.9, 1.1]}}]",
                                        "[{grayscale: {p: 0.25}}]",
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
TEST(ranges_are_even) {
    dt_augment *a = parse_good("[{brightness: [0.5, 1.5]}]");
    int tenth[10] = {0};
    for (uint32_t s = 0; s < 5000; s++) {
        uint8_t p[1] = {100};
        dt_image image = {p, 1, 1, 1};
        dt_augment_key key = {3, s, 7};
        must(dt_augment_apply(a, &key, &image, &scratch));
        assert_in_range(p[0], 50, 150);
        int bin = (p[0] - 50) / 10;
        tenth[bin > 9 ? 9 : bin]++;
    }
    for (int i = 0; i < 10; i++) assert_in_range(tenth[i], 420, 580);
    dt_augment_destroy(a);
}

// All 24 orders of the jitter's four, seen through the results they leave on one pixel.
TEST(jitter_orders_are_even) {
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
        must(dt_augment_apply(a, &key, &image, &scratch));
        bool brightness_first = p[0] == 94 && p[1] == 201; // 40, 255, mean 148
        bool contrast_first = p[0] == 130 && p[1] == 255;  // 65, 155
        assert_true(brightness_first || contrast_first);
        first = first || brightness_first;
        second = second || contrast_first;
    }
    assert_true(first && second);
    dt_augment_destroy(a);
}

TEST(erasing_takes_its_share) {
    dt_augment *a = parse_good("[{erase: {p: 1, fill: 7}}]");
    double sum = 0;
    for (uint32_t s = 0; s < 1000; s++) {
        static uint8_t p[40 * 30];
        int n = 0;
        memset(p, 200, sizeof p);
        dt_image image = {p, 40, 30, 1};
        dt_augment_key key = {3, s, 7};
        must(dt_augment_apply(a, &key, &image, &scratch));
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
    must(dt_augment_split(a, k, image, &scratch, steps));
    for (; n_played < n && steps[n_played].kind != DT_PIXEL_END; n_played++)
        must(dt_pixels_play(image, &steps[n_played], &scratch));
    free(steps);
    return n_played;
}

static void mirror(dt_image *m) {
    size_t c = (size_t)m->channels;
    uint8_t swap[3];
    for (int y = 0; y < m->height; y++) {
        uint8_t *left = m->data + (size_t)y * (size_t)m->width * c;
        uint8_t *right = left + ((size_t)m->width - 1) * c;
        for (; left < right; left += c, right -= c) {
            memcpy(swap, left, c);
            memcpy(left, right, c);
            memcpy(right, swap, c);
        }
    }
}

// Twice the same; also if the flip that comes first is there already, as a resize leaves it, and if the end of the
// list is a device's.
TEST(any_list_on_any_size) {
    int n_mirrored = 0, n_played = 0;
    uint64_t all = 0;
    static const int SIZES[] = {1, 2, 3, 4, 5, 7, 16, 31, 64};
    const uint32_t rounds = getenv("STEPS") ? 600 : 3000; // fewer under a sanitizer
    for (uint32_t round = 0; round < rounds; round++) {
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
        for (size_t i = 0; i < n; i++) p[i] = again[i] = apart[i] = (uint8_t)dt_rng_u32(&r, e + (uint32_t)i);
        dt_buffer own = {0};
        dt_image image = {p, w, h, c}, image2 = {again, w, h, c}, image3 = {apart, w, h, c};
        dt_augment_key key = {5, round, 1};
        double box[4];
        if (dt_augment_box(a, &key, w, h, box)) assert_true(box[0] >= 0 && box[1] >= 0 && box[2] <= w && box[3] <= h);
        if (dt_augment_mirrors(a, &key)) {
            mirror(&image2);
            image2.mirrored = true;
            n_mirrored++;
        }
        must(dt_augment_apply(a, &key, &image, &own));
        must(dt_augment_apply(a, &key, &image2, &scratch));
        if (memcmp(p, again, n) != 0) fail_msg("%s on %dx%dx%d is not the same twice", list, w, h, c);
        n_played += play_split(a, &key, &image3);
        if (memcmp(p, apart, n) != 0) fail_msg("%s on %dx%dx%d is not the same apart", list, w, h, c);
        all = all * 31 + dt_hash64(p, n);
        dt_buffer_fini(&own);
        free(p);
        free(again);
        free(apart);
        dt_augment_destroy(a);
    }
    assert_true(n_mirrored > (int)rounds / 150 && n_played > (int)rounds);
    if (getenv("SHOW")) printf("all of them: %016llx\n", (unsigned long long)all);
}

TEST_MAIN(NULL, augment_tear_down)
