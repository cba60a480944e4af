// Series of EDF and BDF against pyedflib, of MATLAB files against scipy: every file of make_series.py; the same files cut; what is refused.
#include "golden.h"

#include "base/bits.h"
#include "base/io.h"
#include "data/decode/array.h"
#include "data/decode/audio.h"

static dt_safetensors *golden;
static dt_buffer scratch;

static dt_span bytes_of(const char *prefix, const char *name) {
    char key[128];
    dt_span s;
    snprintf(key, sizeof key, "%s/%s", prefix, name);
    s.data = dt_safetensors_data(golden, dt_safetensors_find(golden, key), &s.n_bytes);
    return s;
}

// Names that a case is read with.
static dt_series_names names_of(const char *name) {
    if (strcmp(name, "edf_plus_2") == 0) return (dt_series_names){2, {"EEG 1", "EEG 0"}};
    if (strcmp(name, "edf_mixed_2") == 0) return (dt_series_names){2, {"EEG 2", "EEG 0"}};
    if (strcmp(name, "mat_two_y") == 0) return (dt_series_names){1, {"y"}};
    return (dt_series_names){0};
}

static bool is_as_wanted(const dt_npy *a, const double *want, const dt_shape *shape) {
    double largest = 0, worst = 0;
    if (a->shape[0] != shape->d[0] || a->shape[1] != shape->d[1]) return false;
    for (int64_t t = 0; t < shape->d[0]; t++)
        for (int64_t c = 0; c < shape->d[1]; c++) {
            const double w = want[t * shape->d[1] + c];
            largest = fmax(largest, fabs(w));
            worst = fmax(worst, fabs(w - dt_npy_get(a, t * a->stride[0] + c * a->stride[1])));
        }
    return worst <= 1e-7 * largest; // EDF: floats
}

TEST(series_give_the_values_of_the_others) {
    int n_cases = 0;
    for (int i = 0; i < dt_safetensors_count(golden); i++) {
        const char *name = dt_safetensors_name(golden, i) + 5;
        if (strncmp(name - 5, "file/", 5) != 0) continue;
        const dt_span file = bytes_of("file", name);
        const dt_series_names names = names_of(name);
        const double *want = (const double *)(const void *)bytes_of("want", name).data;
        dt_shape shape = golden_shape(golden, "want", name);
        dt_npy a;
        double rate;
        if (dt_series_read(file, &names, &a, &rate, &scratch) != DT_OK) fail_msg("%s: %s", name, dt_error_message());
        assert_true(rate == *(const double *)(const void *)bytes_of("rate", name).data);
        if (!is_as_wanted(&a, want, &shape)) fail_msg("%s: other values", name);
        for (size_t cut = 20; cut < file.n_bytes - 20;
             cut += 7) { // an exact copy: AddressSanitizer sees a read behind it
            uint8_t *copy = malloc(cut ? cut : 1);
            memcpy(copy, file.data, cut);
            const dt_status st = dt_series_read((dt_span){copy, cut}, &names, &a, &rate, &scratch);
            const bool whole = st == DT_OK && is_as_wanted(&a, want, &shape); // cut between two variables
            free(copy);
            if (st != DT_E_DATA && !whole && strcmp(name, "edf_streamed") != 0)
                fail_msg("%s passes with %zu of %zu bytes", name, cut, file.n_bytes);
        }
        n_cases++;
    }
    assert_true(n_cases >= 21);
}

TEST(what_is_not_read_has_a_name) {
    dt_npy a;
    double rate;
    dt_series_names all = {0}, other = {1, {"ECG"}};
    must_fail(DT_E_DATA, "'EEG 0' has 100 Hz, 'EEG 1' 1 Hz: choose signals of one rate (variable)",
              dt_series_read(bytes_of("file", "edf_mixed_2"), &all, &a, &rate, &scratch));
    must_fail(DT_E_DATA, "no signal 'ECG'", dt_series_read(bytes_of("file", "edf"), &other, &a, &rate, &scratch));
    static const struct {
        const char *file, *name, *message;
    } ROWS[] = {{"mat_complex", NULL, "MAT: variable 'x' is complex"},
                {"mat_none", NULL, "MAT: no variable is a matrix of numbers"},
                {"mat_cube", "x", "MAT: variable 'x' is no matrix of numbers with two axes"},
                {"mat_two_y", NULL, "MAT: 'x' and 'y' are matrices: choose (variable)"},
                {"mat_two_y", "z", "MAT: no variable 'z'"}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const char *source = getenv("SOURCE");
        char *path = dt_xprintf("%s/tests/fuzz/corpus_series/%s", source ? source : ".", ROWS[i].file), *text;
        const dt_series_names names = {ROWS[i].name != NULL, {ROWS[i].name}};
        size_t n;
        must(dt_io_read_file(&text, &n, path, 1 << 20, DT_E_DATA));
        must_fail(DT_E_DATA, ROWS[i].message,
                  dt_series_read((dt_span){(uint8_t *)text, n}, &names, &a, &rate, &scratch));
        memcpy(text, "MATLAB 7.3", 10);
        must_fail(DT_E_DATA, "save with -v7",
                  dt_series_read((dt_span){(uint8_t *)text, n}, &names, &a, &rate, &scratch));
        free(text);
        free(path);
    }
    uint8_t copy[8192];
    const dt_span plus = bytes_of("file", "edf_plus");
    memcpy(copy, plus.data, plus.n_bytes);
    memcpy(copy + 192, "EDF+D", 5);
    must_fail(DT_E_DATA, "have gaps", dt_series_read((dt_span){copy, plus.n_bytes}, &all, &a, &rate, &scratch));
    memcpy(copy + 192, "     ", 5);
    memcpy(copy + 256 + 112 * atoi((char *)copy + 252), "1e39    ", 8); // a physical maximum that is no float
    must_fail(DT_E_DATA, "no range", dt_series_read((dt_span){copy, plus.n_bytes}, &all, &a, &rate, &scratch));
    const dt_span two = bytes_of("file", "mat_two_y");
    memcpy(copy, two.data, two.n_bytes);
    copy[135 + dt_le32(copy + 132)] ^= 1; // the checksum of the first variable, which only its reader unpacks
    must(dt_series_read((dt_span){copy, two.n_bytes}, &(dt_series_names){1, {"y"}}, &a, &rate, &scratch));
    must_fail(DT_E_DATA, "a variable is cut",
              dt_series_read((dt_span){copy, two.n_bytes}, &(dt_series_names){1, {"x"}}, &a, &rate, &scratch));
}

// Its own rate: a field's other rate resamples it.
TEST(a_stated_rate_is_used) {
    dt_clipper *clipper = dt_clipper_create();
    dt_audio_clip clip = {.rate = 32, .channels = 3, .n_samples = 128};
    float own[3 * 128], half[3 * 64];
    must(dt_clipper_run(clipper, bytes_of("file", "edf"), &clip, 0, own, 128));
    const double *want = (const double *)(const void *)bytes_of("want", "edf").data;
    for (int i = 0; i < 128; i++) assert_true(own[128 + i] == (float)want[3 * i + 1]);
    clip.rate = 16, clip.n_samples = 64;
    must(dt_clipper_run(clipper, bytes_of("file", "edf"), &clip, 0, half, 64));
    double mean = 0, mean_half = 0;
    for (int i = 8; i < 120; i++) mean += (double)own[i] / 112;
    for (int i = 4; i < 60; i++) mean_half += (double)half[i] / 56;
    assert_true(fabs(mean - mean_half) < 15 && half[20] != own[20]); // all of it, at half the samples
    dt_clipper_destroy(clipper);
}

static int set_up(void **state) {
    golden = golden_open("series.safetensors");
    return 0;
}

static int tear_down(void **state) {
    dt_safetensors_close(golden);
    dt_buffer_fini(&scratch);
    return 0;
}

TEST_MAIN(set_up, tear_down)
