// Features and rates against librosa and torchaudio (make_audio.py). Values are compared one by one: power
// to 1e-4 of each (beside 1e-7 of the largest, where both are rounding), decibels to 0.001.
#include "golden.h"

#include "data/decode/audio.h"

static dt_safetensors *values;

typedef struct golden_case {
    const char *name;
    dt_feature_opts o;
    double relative, absolute; // absolute: of the largest for powers, plain for logarithms
    bool is_log;
} golden_case;

#define SOUND   .rate = 8000, .channels = 1, .n_samples = 3000
#define CENTRED .center = true, .reflect = true
#define MEL32   .n_fft = 400, .window = 400, .hop = 160, .power = 2, .n_mels = 32, .f_max = 4000, .htk = true
#define MEL40                                                                                                          \
    .center = true, .n_fft = 512, .window = 512, .hop = 128, .power = 2, .n_mels = 40, .f_max = 4000,                  \
    .slaney_norm = true

static const golden_case CASES[] = {
    {"torch_power",
     {DT_FEATURE_spectrogram, SOUND, CENTRED, .n_fft = 256, .window = 256, .hop = 128, .power = 2},
     1e-4,
     1e-7},
    {"torch_odd", {DT_FEATURE_spectrogram, SOUND, .n_fft = 225, .window = 200, .hop = 90, .power = 1}, 1e-4, 1e-6},
    {"librosa_amplitude",
     {DT_FEATURE_spectrogram, SOUND, .center = true, .n_fft = 294, .window = 294, .hop = 200, .power = 1},
     1e-4,
     1e-6},
    {"torch_mel",
     {DT_FEATURE_mel, SOUND, CENTRED, .n_fft = 400, .window = 320, .hop = 160, .power = 2, .n_mels = 40, .f_min = 20,
      .f_max = 3800, .htk = true},
     1e-4,
     1e-7},
    {"torch_mel_slaney",
     {DT_FEATURE_mel, SOUND, CENTRED, .n_fft = 512, .window = 512, .hop = 128, .power = 2, .n_mels = 48, .f_max = 4000,
      .slaney_norm = true},
     1e-4,
     1e-7},
    {"librosa_mel", {DT_FEATURE_mel, SOUND, MEL40}, 1e-4, 1e-7},
    {"librosa_mel_htk",
     {DT_FEATURE_mel, SOUND, CENTRED, .n_fft = 256, .window = 256, .hop = 80, .power = 1, .n_mels = 24, .f_max = 4000,
      .htk = true},
     1e-4,
     1e-6},
    {"torch_ln", {DT_FEATURE_logmel, SOUND, CENTRED, MEL32, .floor = 1e-6}, 0, 1e-4, true},
    {"torch_db",
     {DT_FEATURE_logmel, SOUND, CENTRED, MEL32, .decibel = true, .floor = 1e-10, .top_db = 80},
     0,
     1e-3,
     true},
    {"torch_db_amplitude",
     {DT_FEATURE_logspectrogram, SOUND, CENTRED, .n_fft = 256, .window = 256, .hop = 300, .power = 1, .decibel = true,
      .floor = 1e-10},
     0,
     1e-3,
     true},
    {"librosa_db", {DT_FEATURE_logmel, SOUND, MEL40, .decibel = true, .floor = 1e-10, .top_db = 80}, 0, 1e-3, true},
    {"torch_mfcc",
     {DT_FEATURE_mfcc, SOUND, CENTRED, MEL32, .decibel = true, .floor = 1e-10, .top_db = 80, .n_mfcc = 13},
     0,
     1e-3,
     true},
    {"librosa_mfcc",
     {DT_FEATURE_mfcc, SOUND, MEL40, .decibel = true, .floor = 1e-10, .top_db = 80, .n_mfcc = 20},
     0,
     1e-3,
     true},
};

static const float *tensor(const char *name, int64_t *n) {
    int i = dt_safetensors_find(values, name);
    if (i < 0) fail_msg("no golden tensor %s", name);
    size_t n_bytes;
    const float *data = dt_safetensors_data(values, i, &n_bytes);
    *n = (int64_t)(n_bytes / sizeof(float));
    return data;
}

static void compare(const golden_case *c, const float *got, const float *want, int64_t n) {
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)want[i]));
    double slack = c->is_log ? c->absolute : c->absolute * largest;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        double allowed = c->relative * fabs((double)want[i]) + slack;
        worst = fmax(worst, d / allowed);
        if (!(d <= allowed))
            fail_msg("%s: element %lld is %.9g, golden %.9g", c->name, (long long)i, (double)got[i], (double)want[i]);
    }
    printf("%-20s at most %.3f of what is allowed\n", c->name, worst);
}

TEST(test_features) {
    int64_t n_x, n_want, rows, columns;
    const float *x = tensor("x", &n_x);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const golden_case *c = &CASES[i];
        const float *want = tensor(c->name, &n_want);
        dt_feature_scratch scratch = {.rows = NULL};
        dt_features *f;
        float *signal;
        size_t stride;
        must(dt_features_create(&f, &c->o));
        dt_features_shape(f, &rows, &columns);
        if (rows * columns != n_want)
            fail_msg("%s: %lld x %lld, golden %lld values", c->name, (long long)rows, (long long)columns,
                     (long long)n_want);
        float *got = malloc((size_t)n_want * sizeof *got);
        must(dt_features_begin(f, &scratch, &signal, &stride));
        memcpy(signal, x, (size_t)n_x * sizeof *x);
        must(dt_features_run(f, &scratch, got));
        compare(c, got, want, n_want);
        free(got);
        dt_feature_scratch_fini(&scratch);
        dt_features_destroy(f);
    }
}

// Whole, and in pieces that begin anywhere: the same bits.
TEST(test_rates) {
    static const int RATES[][2] = {{8000, 16000},  {16000, 8000}, {44100, 16000},
                                   {22050, 16000}, {8000, 11025}, {48000, 8000}};
    int64_t n_x, n_want;
    const float *x = tensor("x", &n_x);
    for (size_t i = 0; i < sizeof RATES / sizeof *RATES; i++) {
        char name[64];
        snprintf(name, sizeof name, "resample_%d_%d", RATES[i][0], RATES[i][1]);
        const float *want = tensor(name, &n_want);
        dt_resampler *r = dt_resampler_create(RATES[i][0], RATES[i][1]);
        assert_int_equal(dt_resampler_length(r, n_x), n_want);
        float *got = calloc((size_t)n_want, sizeof *got);
        for (int pieces = 1; pieces <= 7; pieces += 6) {
            float *whole = malloc((size_t)n_want * sizeof *whole);
            memcpy(whole, got, (size_t)n_want * sizeof *whole);
            for (int p = 0; p < pieces; p++) {
                int64_t first = n_want * p / pieces, n = n_want * (p + 1) / pieces - first;
                int64_t begin, end;
                dt_resampler_window(r, first, n, &begin, &end);
                float *in = calloc((size_t)(end - begin), sizeof *in);
                for (int64_t k = begin; k < end; k++)
                    if (k >= 0 && k < n_x) in[k - begin] = x[k];
                dt_resampler_run(r, in, first, n, got + first);
                free(in);
            }
            if (pieces > 1) assert_memory_equal(got, whole, (size_t)n_want * sizeof *got);
            free(whole);
        }
        golden_compare(name, got, want, n_want, 1e-6);
        free(got);
        dt_resampler_destroy(r);
    }
}

int main(void) {
    values = golden_open("audio.safetensors");
    int rc = run_all_tests(NULL, NULL);
    dt_safetensors_close(values);
    return rc;
}
