// Fields of kind audio: what is in a batch and what it may depend on; augmentation of sounds; wrong keys.
#include "base/hash.h"
#include "base/rng.h"
#include "data/augment/augment_audio.h"
#include "data/decode/audio.h"
#include "data_fixture.h"
#include "testing.h"

#include <math.h>

enum { N_CLIPS = 24, GLOBAL = 4, N = 400, ROWS = 10, COLUMNS = 11 };

// Clip i is a tone; even ones are 0.5 s at 8 kHz, odd ones 20 ms at 11,025 Hz.
static size_t clip(uint8_t *wav, int i) {
    static int16_t x[4000];
    uint32_t rate = i % 2 ? 11025 : 8000;
    size_t n = i % 2 ? 220 : 4000;
    for (size_t k = 0; k < n; k++) x[k] = (int16_t)(8000 * sin((double)k * (0.1 + 0.02 * i)) + (double)(k % 50) * 20);
    return fixture_wav(wav, rate, x, n);
}

static const char *write_clips(const char *name) {
    static uint8_t wav[8100];
    for (int i = 0; i < N_CLIPS; i++) {
        size_t n = clip(wav, i);
        const char *path = in_folder("%s/%s/%d.wav", name, i % 2 ? "short" : "long", i);
        fixture_write(path, wav, n);
    }
    return fixture_path(name);
}

#define MEL "features: logmel, n_fft: 80, hop: 40, n_mels: 10, pad: wrap"

static dt_status open_set(dt_dataset **d, const char *path, const char *field, const char *more, int workers) {
    char *text = dt_xprintf("run: {name: t, seed: 7}\n"
                            "data:\n"
                            "  path: \"%s\"\n"
                            "  fields:\n"
                            "    sound: {kind: audio, %s}\n"
                            "    label: {kind: class}\n"
                            "%s"
                            "  split: {unit: record, val: 0.2}\n"
                            "model: {name: resnet}\n"
                            "train: {global_batch: 4, micro_batch: 4}\n",
                            path, field, more);
    dt_config *c = NULL;
    dt_status st = dt_config_parse(&c, "test.yaml", text, strlen(text), NULL, 0);
    free(text);
    DT_TRY(st);
    assert_true(fixture_n_opened < 64);
    fixture_opened[fixture_n_opened++] = c;
    return dt_data_open(d, c, NULL, workers, NULL);
}

static dt_dataset *open_ok(const char *path, const char *field, const char *more, int workers) {
    dt_dataset *d = NULL;
    must(open_set(&d, path, field, more, workers));
    return d;
}

// The field of the samples of `steps` batches, by step and place.
static float *take(dt_dataset *d, dt_split split, int steps, size_t n, int64_t *sample) {
    static const int MICROS[] = {0};
    dt_source_request r = {.split = split,
                           .augment = split == DT_SPLIT_TRAIN,
                           .global_batch = GLOBAL,
                           .micro_batch = GLOBAL,
                           .micros = MICROS,
                           .n_micro = 1,
                           .end_step = -1};
    dt_batch_source *s = NULL;
    float *out = malloc((size_t)(steps * GLOBAL) * n * sizeof *out);
    must(d->open(d, &r, &s));
    for (int64_t step = 0; step < steps; step++) {
        const dt_batch *b;
        must(s->get(s, step, 0, &b, NULL));
        memcpy(out + (size_t)(step * GLOBAL) * n, b->field[0], GLOBAL * n * sizeof *out);
        memcpy(sample + step * GLOBAL, b->sample, GLOBAL * sizeof *sample);
        s->release(s, b);
    }
    s->close(s);
    return out;
}

TEST(test_shapes) {
    static const struct {
        const char *field;
        int64_t shape[3];
    } CASES[] = {
        {MEL, {10, 11, 1}},
        {"features: waveform", {1, 400, 1}},
        {"features: waveform, channels: 2", {1, 400, 2}},
        {"features: spectrogram, n_fft: 60, hop: 20", {31, 21, 1}},
        {"features: mfcc, n_fft: 80, n_mels: 12, n_mfcc: 7, center: false, channels: 2", {7, 17, 2}},
        {"n_mels: 20", {20, 7, 1}}, // auto: 256, 64
    };
    const char *path = write_clips("shapes");
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char *field = dt_xprintf("rate: 8000, seconds: 0.05, %s", CASES[i].field);
        dt_dataset *d = open_ok(path, field, "", 1);
        free(field);
        const dt_field_info *f = &d->fields[0];
        assert_int_equal(f->dtype, DT_F32);
        assert_true(f->is_image);
        for (int k = 0; k < 3; k++) assert_int_equal(f->sample_shape.d[k], CASES[i].shape[k]);
        d->close(d);
    }
}

// Evaluation takes the middle, resampled and padded, and nothing random.
TEST(test_evaluation) {
    dt_dataset *d = open_ok(write_clips("eval"), "rate: 8000, seconds: 0.05, " MEL,
                            "  augment: {sound: [{gain: 6}, {freq_mask: 4}]}\n", 2);
    dt_feature_opts o = {DT_FEATURE_logmel, .rate = 8000,    .channels = 1,  .n_samples = N,
                         .n_fft = 80,       .window = 80,    .hop = 40,      .center = true,
                         .reflect = true,   .power = 2,      .n_mels = ROWS, .f_max = 4000,
                         .htk = true,       .decibel = true, .floor = 1e-10, .top_db = 80};
    dt_audio_clip want = {8000, 1, N, DT_PAD_wrap};
    dt_clipper *clipper = dt_clipper_create();
    dt_feature_scratch w = {.rows = NULL};
    dt_features *f;
    must(dt_features_create(&f, &o));
    int64_t sample[GLOBAL], n_found = 0;
    float *got = take(d, DT_SPLIT_VAL, 1, ROWS * COLUMNS, sample), out[ROWS * COLUMNS], *x;
    for (int i = 0; i < N_CLIPS; i++) {
        static uint8_t wav[8100];
        size_t n = clip(wav, i), stride;
        must(dt_features_begin(f, &w, &x, &stride));
        must(dt_clipper_run(clipper, (dt_span){wav, n}, &want, DT_CLIP_CENTRE, x, stride));
        must(dt_features_run(f, &w, out));
        for (int j = 0; j < GLOBAL; j++) n_found += memcmp(out, got + j * ROWS * COLUMNS, sizeof out) == 0;
    }
    assert_int_equal(n_found, GLOBAL);
    free(got);
    dt_features_destroy(f);
    dt_feature_scratch_fini(&w);
    dt_clipper_destroy(clipper);
    d->close(d);
}

// Training: the same bits for any number of workers; another part and other draws each epoch.
TEST(test_training) {
    static const char *const MORE[] = {"", "  augment: {sound: [{noise: [10, 40]}, {gain: [-3, "
                                           "3]}, {time_shift: 0.2}, {freq_mask: 3}, "
                                           "{time_mask: 4}]}\n"};
    const char *path = write_clips("train");
    enum { STEPS = 15 }; // three epochs
    for (int m = 0; m < 2; m++) {
        int64_t sample[2][STEPS * GLOBAL];
        dt_dataset *d = open_ok(path, "rate: 8000, seconds: 0.05, " MEL, MORE[m], 1);
        float *one = take(d, DT_SPLIT_TRAIN, STEPS, ROWS * COLUMNS, sample[0]);
        d->close(d);
        d = open_ok(path, "rate: 8000, seconds: 0.05, " MEL, MORE[m], 4);
        float *many = take(d, DT_SPLIT_TRAIN, STEPS, ROWS * COLUMNS, sample[1]);
        d->close(d);
        assert_memory_equal(sample[0], sample[1], sizeof sample[0]);
        assert_memory_equal(one, many, STEPS * GLOBAL * ROWS * COLUMNS * sizeof *one);
        int n_same = 0, n_other = 0;
        for (int i = 0; i < STEPS * GLOBAL; i++) {
            for (int k = 0; k < ROWS * COLUMNS; k++) assert_true(isfinite(one[i * ROWS * COLUMNS + k]));
            for (int j = 0; j < i; j++)
                if (sample[0][i] == sample[0][j]) {
                    bool same =
                        memcmp(one + i * ROWS * COLUMNS, one + j * ROWS * COLUMNS, ROWS * COLUMNS * sizeof *one) == 0;
                    n_same += same;
                    n_other += !same;
                }
        }
        assert_true(n_other > 10);
        // without augmentation clips that are too short are always the same
        assert_true(m == 0 ? n_same > 10 : n_same == 0);
        free(one);
        free(many);
    }
}

// ---- augmentation --------------------------------------------------------------------------------------
static dt_status parse(const char *list, bool masks, dt_augment **out) {
    char *text = dt_xprintf("run: {name: t}\n"
                            "data: {path: x, fields: {a: {kind: audio}}, augment: {a: %s}}\n"
                            "model: {name: resnet}\n"
                            "train: {global_batch: 4, micro_batch: 4}\n",
                            list);
    dt_config *c = NULL;
    dt_status st = dt_config_parse(&c, "test.yaml", text, strlen(text), NULL, 0);
    free(text);
    DT_TRY(st);
    st = dt_audio_augment_parse(out, dt_cnode_get(c->data.augment, "a"), "a", masks);
    dt_config_destroy(c);
    return st;
}

enum { LONG = 4000 };

static void apply(const char *list, uint32_t sample, uint32_t epoch, float *x) {
    dt_augment *a;
    dt_buffer scratch = {NULL};
    must(parse(list, true, &a));
    dt_augment_key key = {11, sample, epoch};
    must(dt_audio_augment_samples(a, &key, x, LONG, 2, LONG, &scratch));
    dt_augment_destroy(a);
    dt_buffer_fini(&scratch);
}

static void tone(float *x) {
    for (int i = 0; i < 2 * LONG; i++) x[i] = 0.3f * (float)sin(i * 0.21);
}

static double power(const float *x, const float *y, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += pow((double)x[i] - (y ? (double)y[i] : 0), 2);
    return sum / n;
}

TEST(test_noise) {
    static float x[2 * LONG], y[2 * LONG], z[2 * LONG];
    static const double SNR[] = {0, 20, 40};
    tone(x);
    for (int i = 0; i < 3; i++) {
        char *list = dt_xprintf("[{noise: %g}]", SNR[i]);
        tone(y);
        apply(list, 3, 4, y);
        double got = 10 * log10(power(x, NULL, 2 * LONG) / power(y, x, 2 * LONG));
        if (fabs(got - SNR[i]) > 0.15) fail_msg("%g dB, not %g", got, SNR[i]);
        double correlation = 0; // the channels have noises of their own
        for (int k = 0; k < LONG; k++) correlation += (double)(y[k] - x[k]) * (double)(y[k + LONG] - x[k + LONG]);
        assert_true(fabs(correlation / LONG / power(y, x, 2 * LONG)) < 0.06);
        tone(z);
        apply(list, 3, 5, z);
        assert_memory_not_equal(y, z, sizeof y);
        free(list);
    }
    // each value is a word of Philox where augment_audio.c says
    tone(y);
    apply("[{noise: 0}]", 3, 4, y);
    uint32_t sums[LONG];
    for (int i = 0; i < LONG; i++) {
        uint32_t counter[4] = {(uint32_t)(1 + i / 32 * 8 + i % 8), 3, 4, dt_hash32("augment.a.0")}, out[4];
        dt_philox4x32(11, counter, out);
        uint32_t w = out[i % 32 / 8];
        sums[i] = (w & 255) + (w >> 8 & 255) + (w >> 16 & 255) + (w >> 24);
    }
    double scale = ((double)y[5] - (double)x[5]) / ((double)sums[5] - 510);
    for (int i = 0; i < LONG; i++)
        assert_true(fabs((double)y[i] - (double)x[i] - ((double)sums[i] - 510) * scale) < 1e-5);
}

TEST(test_gain_and_shift) {
    static float x[2 * LONG], y[2 * LONG];
    tone(x);
    tone(y);
    apply("[{gain: [6, 6]}]", 0, 0, y);
    for (int i = 0; i < 2 * LONG; i++) assert_true(fabsf(y[i] - x[i] * 1.9952623f) < 1e-6f);
    double least = 9, most = 0;
    for (uint32_t s = 0; s < 200; s++) {
        tone(y);
        apply("[{gain: 6}]", s, 0, y);
        double factor = (double)y[10] / (double)x[10];
        least = fmin(least, factor), most = fmax(most, factor);
    }
    assert_true(least > 0.501 && least < 0.53 && most < 1.996 && most > 1.9);
    int n_changed = 0;
    for (uint32_t s = 0; s < 200; s++) {
        tone(y);
        apply("[{gain: {db: [6, 6], p: 0.3}}]", s, 0, y);
        n_changed += memcmp(x, y, sizeof x) != 0;
    }
    assert_in_range(n_changed, 40, 80);
    tone(y);
    apply("[{time_shift: [0.25, 0.25]}]", 0, 0, y);
    for (int i = 0; i < LONG; i++) assert_true(y[(i + LONG / 4) % LONG] == x[i]);
    for (int i = 0; i < LONG; i++) assert_true(y[LONG + (i + LONG / 4) % LONG] == x[LONG + i]);
    tone(y);
    apply("[{time_shift: [-0.25, -0.25]}]", 0, 0, y);
    for (int i = 0; i < LONG; i++) assert_true(y[i] == x[(i + LONG / 4) % LONG]);
}

// Masks cover 0..width whole bands or frames with the mean, at any place.
TEST(test_masks) {
    enum { H = 12, W = 30, C = 2 };
    float x[H * W * C];
    for (int kind = 0; kind < 2; kind++) {
        dt_augment *a;
        int limit = kind ? 9 : 5, n = kind ? W : H, most = 0, first = n, last = 0;
        must(parse(kind ? "[{time_mask: 9}]" : "[{freq_mask: 5}]", true, &a));
        for (uint32_t s = 0; s < 400; s++) {
            double mean = 0;
            for (int i = 0; i < H * W * C; i++) mean += x[i] = (float)(1000 + i);
            mean /= H * W * C;
            dt_augment_key key = {5, s, 1};
            dt_audio_augment_features(a, &key, x, H, W, C);
            int n_masked = 0;
            for (int k = 0; k < n; k++) {
                int covered = 0, of = kind ? H : W;
                for (int j = 0; j < of; j++)
                    for (int c = 0; c < C; c++) {
                        int i = ((kind ? j : k) * W + (kind ? k : j)) * C + c;
                        covered += fabs((double)x[i] - mean) < 0.01 && x[i] != (float)(1000 + i);
                        assert_true(x[i] == (float)(1000 + i) || fabs((double)x[i] - mean) < 0.01);
                    }
                assert_true(covered == 0 || covered >= of * C - 1); // one value may be the mean
                if (covered) n_masked++, first = k < first ? k : first, last = k > last ? k : last;
            }
            most = n_masked > most ? n_masked : most;
        }
        assert_int_equal(most, limit);
        assert_int_equal(first, 0);
        assert_int_equal(last, n - 1);
        dt_augment_destroy(a);
    }
}

// ---- what is wrong -------------------------------------------------------------------------------------
TEST(test_wrong_keys) {
    static const char *const BAD[][3] = {
        {"seconds: 0.05", "", "needs rate"},
        {"rate: 8000", "", "needs seconds"},
        {"rate: 8000, seconds: 0.05, n_fft: 1024", "", "too short to mirror"},
        {"rate: 8000, seconds: 0.05, n_fft: 262", "", "prime factor"},
        {"rate: 8000, seconds: 0.05, f_max: 5000", "", "half the rate"},
        {"rate: 8000, seconds: 0.05, features: melody", "", "waveform"},
        {"rate: 8000, seconds: 0.05, source: mp4", "", "no sounds 'mp4'"},
        {"rate: 8000, seconds: 0.05, " MEL, "  augment: {sound: [{rotate: 5}]}\n", "unknown augmentation 'rotate'"},
        {"rate: 8000, seconds: 0.05, " MEL, "  augment: {sound: [{noise: [40, 10]}]}\n", "noise: snr: expected"},
        {"rate: 8000, seconds: 0.05, " MEL, "  augment: {sound: [{freq_mask: [1, 2]}]}\n",
         "freq_mask: bands: expected"},
        {"rate: 8000, seconds: 0.05, features: waveform", "  augment: {sound: [{time_mask: 3}]}\n",
         "no bands or frames"},
        {"rate: 8000, seconds: 0.05, " MEL ", normalize: {mean: [1, 2]}", "", "expected a list of 1 numbers"},
    };
    const char *path = write_clips("wrong");
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        dt_dataset *d = NULL;
        assert_int_equal(open_set(&d, path, BAD[i][0], BAD[i][1], 1), DT_E_USAGE);
        if (!strstr(dt_error_message(), BAD[i][2]) || !strstr(dt_error_message(), "test.yaml:"))
            fail_msg("%s", dt_error_message());
    }
    // keys of audio and of images on another kind
    static const char VECTOR[] = "run: {name: t}\n"
                                 "data: {path: x, fields: {a: {kind: vector, size: 4, channels: 3}}}\n"
                                 "model: {name: resnet}\n"
                                 "train: {global_batch: 4, micro_batch: 4}\n";
    static const char TEXT[] = "run: {name: t}\n"
                               "data: {path: x, fields: {a: {kind: class, n_mels: 4}}}\n"
                               "model: {name: resnet}\n"
                               "train: {global_batch: 4, micro_batch: 4}\n";
    dt_config *c;
    must_fail(DT_E_USAGE, "test.yaml:2", dt_config_parse(&c, "test.yaml", TEXT, strlen(TEXT), NULL, 0));
    assert_non_null(strstr(dt_error_message(), "data.fields.a.n_mels is a key of audio, but data.fields.a.kind is"));
    must_fail(DT_E_USAGE, "data.fields.a.channels is a key of image, audio, but data.fields.a.kind is",
              dt_config_parse(&c, "test.yaml", VECTOR, strlen(VECTOR), NULL, 0));
    // as the config of an older run has it
    must(dt_config_parse(&c, "test.yaml", VECTOR, strlen(VECTOR), (const char *[]){"data.fields.a.channels=auto"}, 1));
    dt_config_destroy(c);
}

// ---- series --------------------------------------------------------------------------------------------
enum { T_SERIES = 6, C_SERIES = 3 };

static double series_at(int t, int c) {
    return 1000 * c + t + 0.5;
}

// (T,C) and (T) as NPY of either order and of several types, and as text: each value where it belongs, unscaled.
TEST(test_series) {
    static const char *const TYPES[] = {"<f4", "<f8", ">f8", "<i2"};
    float want[C_SERIES * 4], got[C_SERIES * 4];
    dt_clipper *s = dt_clipper_create();
    dt_audio_clip clip = {0.5, C_SERIES, 4, DT_PAD_zero};
    for (int k = 0; k < 10; k++) {
        dt_buffer file = {0};
        const bool text = k >= 8, fortran = k / 4 == 1, whole = k % 4 == 3 && !text;
        char head[256];
        if (!text) {
            const int n = snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': %s, 'shape': (6, 3), }",
                                   TYPES[k % 4], fortran ? "True" : "False");
            dt_buffer_append(&file, "\x93NUMPY\x01\x00", 8);
            dt_buffer_append(&file, &(uint16_t){(uint16_t)n}, 2);
            dt_buffer_append(&file, head, (size_t)n);
        }
        for (int i = 0; i < T_SERIES * C_SERIES; i++) {
            const double v = fortran ? series_at(i % T_SERIES, i / T_SERIES) : series_at(i / C_SERIES, i % C_SERIES);
            uint64_t bits;
            memcpy(&bits, &v, 8);
            if (text) {
                const int n = snprintf(head, sizeof head, "%g%s", v,
                                       i % 3 == 2 ? k == 8 ? "\n" : " \r\n"
                                       : k == 8   ? ","
                                                  : "\t");
                dt_buffer_append(&file, head, (size_t)n);
            } else if (k % 4 == 0) {
                dt_buffer_append(&file, &(float){(float)v}, 4);
            } else if (whole) {
                dt_buffer_append(&file, &(int16_t){(int16_t)v}, 2);
            } else {
                bits = k % 4 == 2 ? __builtin_bswap64(bits) : bits;
                dt_buffer_append(&file, &bits, 8);
            }
        }
        for (int c = 0; c < C_SERIES; c++)
            for (int t = 0; t < 4; t++)
                want[c * 4 + t] = (float)(series_at(t + 1, c) - (whole ? 0.5 : 0)); // the middle
        must(dt_clipper_run(s, (dt_span){file.data, file.n_bytes}, &clip, DT_CLIP_CENTRE, got, 4));
        assert_memory_equal(got, want, sizeof want);
        clip.channels = 1; // never averaged
        must_fail(DT_E_DATA, "a series of (6, 3), rows are samples and columns channels: the field has channels: 1",
                  dt_clipper_run(s, (dt_span){file.data, file.n_bytes}, &clip, 0, got, 4));
        clip.channels = C_SERIES;
        dt_buffer_fini(&file);
    }
    static const char *const TEXTS[][2] = {{"1\n2\n3\n", NULL},
                                           {"5", NULL},
                                           {"time\r\n1\n2\n", NULL},
                                           {"x,y\n1,2\nx,y\n", "not audio"},
                                           {"1,2\n3\n", "not all as many"},
                                           {"\n", "0 rows"},
                                           {"1,2\n3,4e\n", "is not a number"},
                                           {"1,2\n3,nan\n", "are no signal"}};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        clip.channels = i < 3 ? 1 : 2;
        const dt_status st =
            dt_clipper_run(s, (dt_span){(const uint8_t *)TEXTS[i][0], strlen(TEXTS[i][0])}, &clip, 0, got, 4);
        if (TEXTS[i][1]) must_fail(DT_E_DATA, TEXTS[i][1], st);
        if (!TEXTS[i][1]) must(st);
        if (i == 0) assert_true(got[0] == 1 && got[2] == 3 && got[3] == 0);
    }
    dt_clipper_destroy(s);
}

// A folder of series trains without further keys than rate and seconds; a rate need not be whole.
TEST(test_series_field) {
    int64_t sample[GLOBAL];
    for (int i = 0; i < N_CLIPS; i++) {
        char text[400] = "";
        for (int t = 0; t < 20; t++) sprintf(text + strlen(text), "%d,%d\n", t, -100 * i);
        fixture_write(in_folder("series/%s/%d.csv", i % 2 ? "walk" : "run", i), text, strlen(text));
    }
    const char *path = fixture_path("series");
    dt_dataset *d = open_ok(path, "rate: 12.5, seconds: 0.8, channels: 2, features: waveform", "", 2);
    float *x = take(d, DT_SPLIT_TRAIN, 1, 20, sample); // 10 samples of 2 channels
    for (int j = 0; j < GLOBAL; j++)
        for (int t = 0; t < 10; t++) {
            assert_true(x[j * 20 + t * 2] == x[j * 20] + (float)t);
            assert_true(x[j * 20 + t * 2 + 1] == x[j * 20 + 1]);
        }
    free(x);
    d->close(d);
    must_fail(DT_E_USAGE, "below 1000 Hz n_fft: auto",
              open_set(&d, path, "rate: 100, seconds: 0.2, channels: 2", "", 1));
    d = open_ok(path, "rate: 100, seconds: 0.2, channels: 2, n_fft: 16, n_mels: 4", "", 1);
    d->close(d);
}

// Series that state no rate have that of a column: walks of 20 Hz have half as many samples at 10, twice as steep.
TEST(test_series_rate_column) {
    int64_t sample[GLOBAL];
    dt_dataset *d =
        open_ok(fixture_path("series"), "rate: 10, rate_column: hz, seconds: 0.4, channels: 2, features: waveform",
                "  columns: {hz: \"case when label = 'walk' then 20 else 10 end\"}\n", 2);
    float *x = take(d, DT_SPLIT_TRAIN, 1, 8, sample);
    int n_steep = 0;
    for (int j = 0; j < GLOBAL; j++) {
        const float step = x[j * 8 + 4] - x[j * 8 + 2]; // in the middle, away from the filter's ends
        assert_true(fabsf(step - 1) < 0.3f || fabsf(step - 2) < 0.6f);
        n_steep += step > 1.4f;
    }
    assert_true(n_steep > 0 && n_steep < GLOBAL);
    free(x);
    d->close(d);
    must_fail(DT_E_USAGE, "column 'herz'",
              open_set(&d, fixture_path("series"),
                       "rate: 10, rate_column: herz, seconds: 0.4, channels: 2, features: waveform", "", 1));
    must_fail(DT_E_USAGE, "which is not a number",
              open_set(&d, fixture_path("series"),
                       "rate: 10, rate_column: label, seconds: 0.4, channels: 2, features: waveform", "", 1));
}

// Times in seconds as a channel: the mean is subtracted before they are rounded to floats, which have steps of 128 here.
TEST(test_far_series) {
    int64_t sample[GLOBAL];
    for (int i = 0; i < N_CLIPS; i++) {
        char text[800] = "";
        for (int t = 0; t < 20; t++) sprintf(text + strlen(text), "%.2f,%d\n", 1.7e9 + t * 0.25, t);
        fixture_write(in_folder("far/%s/%d.csv", i % 2 ? "walk" : "run", i), text, strlen(text));
    }
    dt_dataset *d = open_ok(fixture_path("far"),
                            "rate: 10, seconds: 2, channels: 2, features: waveform, normalize: "
                            "{mean: [1.7e9, 5], std: [10, 2]}",
                            "", 1);
    float *x = take(d, DT_SPLIT_TRAIN, 1, 40, sample);
    for (int t = 0; t < 20; t++) assert_true(x[2 * t] == (float)t * 0.25f && x[2 * t + 1] == (float)t);
    assert_true(d->fields[0].mean[0] == 0 && d->fields[0].mean[1] == 5);
    free(x);
    d->close(d);
}

TEST(test_cut_member) {
    const char *path = write_clips("cut");
    char *one = dt_xprintf("%s/long/4.wav", path);
    assert_int_equal(truncate(one, 300), 0);
    dt_dataset *d = open_ok(path, "rate: 8000, seconds: 0.05, " MEL, "", 1);
    static const int MICROS[] = {0};
    dt_source_request r = {
        .split = DT_SPLIT_TRAIN, .global_batch = 4, .micro_batch = 4, .micros = MICROS, .n_micro = 1, .end_step = -1};
    dt_batch_source *s;
    dt_status st = DT_OK;
    must(d->open(d, &r, &s));
    for (int64_t step = 0; step < 12 && st == DT_OK; step++) {
        const dt_batch *b;
        st = s->get(s, step, 0, &b, NULL);
        if (st == DT_OK) s->release(s, b);
    }
    must_fail(DT_E_DATA, "long/4", st);
    assert_non_null(strstr(dt_error_message(), "WAV: cut"));
    s->close(s);
    d->close(d);
    free(one);
}

TEST_MAIN(folder_make, fixture_tear_down)
