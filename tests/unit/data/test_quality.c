// Figures of quality: known values of simple pictures and sounds, and that they order what is sharp,
// blurred, noisy, flat, clipped and silent as eyes and ears do.
#include "base/rng.h"
#include "data/pack/transform.h"
#include "testing.h"

#include <math.h>
#include <string.h>

enum { SIDE = 64, RATE = 8000 };
static uint8_t pixels[SIDE * SIDE * 3];
static dt_buffer scratch;

static dt_image_quality of_image(int channels) {
    dt_image m = {.data = pixels, .width = SIDE, .height = SIDE, .channels = channels};
    dt_image_quality q;
    must(dt_quality_of_image(&q, &m, &scratch));
    return q;
}

static void near(double got, double want, double tolerance) {
    if (fabs(got - want) > tolerance) fail_msg("got %.6f, expected %.6f", got, want);
}

TEST(flat_and_halves) {
    memset(pixels, 100, sizeof pixels);
    dt_image_quality q = of_image(1);
    near(q.brightness, 100 / 255.0, 1e-12);
    near(q.contrast, 0, 1e-12);
    near(q.sharpness, 0, 1e-12);
    near(q.entropy, 0, 1e-12);
    near(q.quality, 0, 1e-12);
    for (int i = 0; i < SIDE * SIDE; i++) pixels[i] = i % SIDE < SIDE / 2 ? 0 : 255;
    q = of_image(1);
    near(q.brightness, 0.5, 1e-12);
    near(q.contrast, 0.5, 1e-12);
    near(q.entropy, 1, 1e-12);
    near(q.clipping, 1, 1e-12);
    near(q.quality, 0, 1e-12);
    // the Laplacian is +-255 in two of the 62 inner columns and 0 elsewhere
    near(q.sharpness, 255.0 * 255 * 2 / 62, 1e-9);
}

// A texture, its 3x3 mean, the same with noise.
static void texture(int noise) {
    dt_rng r = {.seed = 4, .purpose = 1}, n = {.seed = 4, .purpose = 2};
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            double v = 128 + 60 * sin(x * 0.7) * cos(y * 0.5) +
                       20 * (dt_rng_uniform(&r, (uint32_t)(y / 2 * SIDE + x / 2)) - 0.5);
            v += noise * dt_rng_normal(&n, (uint32_t)(y * SIDE + x));
            pixels[y * SIDE + x] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
}

static void blur(void) {
    uint8_t old[SIDE * SIDE];
    memcpy(old, pixels, sizeof old);
    for (int y = 1; y < SIDE - 1; y++)
        for (int x = 1; x < SIDE - 1; x++) {
            int sum = 0;
            for (int k = 0; k < 9; k++) sum += old[(y + k / 3 - 1) * SIDE + x + k % 3 - 1];
            pixels[y * SIDE + x] = (uint8_t)(sum / 9);
        }
}

TEST(pictures_are_ordered) {
    texture(0);
    dt_image_quality sharp = of_image(1);
    blur();
    blur();
    dt_image_quality blurred = of_image(1);
    texture(25);
    dt_image_quality noisy = of_image(1);
    assert_true(blurred.sharpness < 0.5 * sharp.sharpness);
    assert_true(blurred.quality < sharp.quality);
    assert_true(noisy.snr < sharp.snr - 3);
    // the estimate of the noise itself: deviation / noise
    near(noisy.contrast * 255 / pow(10, noisy.snr / 20), 25, 5);
}

TEST(grey_as_colour_is_the_same) {
    texture(5);
    dt_image_quality grey = of_image(1);
    for (int i = SIDE * SIDE - 1; i >= 0; i--) memset(pixels + 3 * i, pixels[i], 3);
    dt_image_quality colour = of_image(3);
    assert_memory_equal(&grey, &colour, sizeof grey);
}

TEST(small_pictures_have_figures) {
    dt_image m = {.data = pixels, .width = 1, .height = 2, .channels = 1};
    dt_image_quality q;
    must(dt_quality_of_image(&q, &m, &scratch));
    assert_true(isfinite(q.quality) && q.sharpness == 0 && q.snr == 0);
}

// ---- sounds ------------------------------------------------------------------------------------------
static float sound[2 * RATE];

static dt_audio_quality of_sound(int channels, int64_t n) {
    dt_audio_quality q;
    must(dt_quality_of_audio(&q, sound, channels, n, RATE, &scratch));
    return q;
}

TEST(sounds) {
    for (int i = 0; i < 2 * RATE; i++) sound[i] = 0.5f * sinf(6.2831853f * 200 * (float)i / RATE);
    dt_audio_quality steady = of_sound(2, RATE);
    near(steady.level, 20 * log10(0.5 / sqrt(2)), 0.01);
    near(steady.peak, 0.5, 1e-4);
    near(steady.snr, 0, 0.1); // all frames alike: nothing stands out
    assert_true(steady.silence == 0 && steady.clipping == 0);
    for (int i = 0; i < RATE; i++) // a quarter is speech, 40 dB above the rest
        sound[i] *= i % RATE < RATE / 4 ? 1 : 0.01f;
    near(of_sound(1, RATE).snr, 40, 0.5);
    for (int i = RATE / 2; i < RATE; i++) sound[i] = 0;
    near(of_sound(1, RATE).silence, 0.5, 1e-9);
    for (int i = 0; i < RATE; i++) sound[i] = i % 4 ? 1 : 0.1f;
    near(of_sound(1, RATE).clipping, 0.75, 1e-9);
    memset(sound, 0, sizeof sound);
    dt_audio_quality silent = of_sound(1, RATE);
    assert_true(silent.silence == 1 && silent.quality == 0 && silent.level == -99);
    assert_true(isfinite(of_sound(1, 1).quality)); // shorter than a frame
}

int main(void) {
    int failed = run_all_tests(NULL, NULL);
    dt_buffer_fini(&scratch);
    return failed;
}
