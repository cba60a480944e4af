// Fields of arrays: from NPY files in a folder to batches: bands, layout, stretch, augmentation of floats; and
// the configs that cannot be.
#include "data_fixture.h"
#include "testing.h"

#include "base/io.h"
#include "base/log.h"
#include "data/augment/augment.h"

#include <math.h>

enum { BANDS = 4, SIDE = 6, N_FILES = 12 };

static float value(int file, int band, int y, int x) {
    return (float)(file * 1000 + band * 100 + y * 10 + x);
}

// (BANDS,SIDE,SIDE) for files a/0.npy, b/1.npy, …: f4, or f8 of values from `far` on.
static void write_arrays(const char *root, double far) {
    static char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 6, 6), }";
    const size_t size = far != 0 ? sizeof(double) : sizeof(float);
    header[13] = (char)('0' + size);
    for (int i = 0; i < N_FILES; i++) {
        uint8_t file[128 + BANDS * SIDE * SIDE * 8];
        memset(file, ' ', 128);
        memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
        memcpy(file + 10, header, sizeof header - 1);
        file[127] = '\n';
        for (int k = 0; k < BANDS * SIDE * SIDE; k++) {
            const float v = value(i, k / SIDE / SIDE, k / SIDE % SIDE, k % SIDE);
            const double from = far + (double)v / 1024;
            memcpy(file + 128 + (size_t)k * size, far != 0 ? (const void *)&from : &v, size);
        }
        char *path = dt_xprintf("%s/%c/%d.npy", root, 'a' + i % 2, i);
        fixture_write(path, file, 128 + BANDS * SIDE * SIDE * size);
        free(path);
    }
}

static const char *arrays = "arrays";

static dt_config *config_of(const char *field, const char *augment) {
    return fixture_parse("  path: \"%s\"\n  fields:\n    image: {kind: image, size: [6, 6]%s}\n"
                         "    label: {kind: class}\n  workers: 1\n%s",
                         fixture_path(arrays), field, augment);
}

// The first training batch: n images, and which file each is.
static void first_batch(const char *field, const char *augment, size_t bytes, void *images, int files[4]) {
    dt_config *c = config_of(field, augment);
    dt_dataset *d;
    dt_batch_source *s;
    const dt_batch *b;
    static const int micro;
    must(dt_data_open(&d, c, NULL, 1, NULL));
    dt_source_request r = {.split = DT_SPLIT_TRAIN,
                           .augment = true,
                           .global_batch = 4,
                           .micro_batch = 4,
                           .micros = &micro,
                           .n_micro = 1,
                           .end_step = 1};
    must(d->open(d, &r, &s));
    must(s->get(s, 0, 0, &b, NULL));
    memcpy(images, b->field[0], bytes);
    for (int i = 0; i < 4; i++) files[i] = ((const int32_t *)b->field[1])[i];
    s->release(s, b);
    s->close(s);
    d->close(d);
}

TEST(bands_become_channels) {
    float v[4][SIDE][SIDE][2];
    int label[4];
    first_batch(", dtype: f32, layout: chw, bands: [2, 0], channels: 2", "", sizeof v, v, label);
    for (int i = 0; i < 4; i++) {
        int file = (int)(v[i][0][0][1] / 1000);
        assert_int_equal(file % 2, label[i]);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                assert_true(v[i][y][x][0] == value(file, 2, y, x));
                assert_true(v[i][y][x][1] == value(file, 0, y, x));
            }
    }
}

// Values far from 0: the mean is subtracted before they are rounded to floats, which have steps of 0.5 here.
TEST(far_values_keep_their_digits) {
    float v[4][SIDE][SIDE];
    int label[4];
    write_arrays(fixture_path("far"), 5400000);
    arrays = "far";
    first_batch(", dtype: f32, layout: chw, bands: [1], channels: 1, normalize: {mean: [5400000], "
                "std: [4]}",
                "", sizeof v, v, label);
    arrays = "arrays";
    for (int i = 0; i < 4; i++) {
        const int file = (int)(v[i][0][0] * 1024 / 1000);
        assert_int_equal(file % 2, label[i]);
        for (int k = 0; k < SIDE * SIDE; k++)
            assert_true(fabsf(v[i][k / SIDE][k % SIDE] - value(file, 1, k / SIDE, k % SIDE) / 1024) < 1e-6f);
    }
}

TEST(a_flip_of_floats_moves_pixels) {
    float v[4][SIDE][SIDE][4];
    int label[4], n_flipped = 0;
    first_batch(", dtype: f32, layout: chw, channels: 4", "  augment: {image: [{flip: horizontal}]}\n", sizeof v, v,
                label);
    for (int i = 0; i < 4; i++) {
        int file = (int)(v[i][0][0][0] / 1000);
        bool flipped = v[i][0][0][0] > v[i][0][1][0];
        n_flipped += flipped;
        for (int k = 0; k < SIDE * SIDE * 4; k++) {
            int y = k / 4 / SIDE, x = k / 4 % SIDE;
            assert_true(v[i][y][x][k % 4] == value(file, k % 4, y, flipped ? SIDE - 1 - x : x));
        }
    }
    assert_true(n_flipped > 0 && n_flipped < 4);
}

TEST(a_stretch_fills_bytes) {
    uint8_t v[4][SIDE][SIDE];
    int label[4];
    first_batch(", layout: chw, bands: [3], channels: 1, stretch: linear, range: minmax", "", sizeof v, v, label);
    for (int i = 0; i < 4; i++)
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) assert_int_equal(v[i][y][x], (int)((y * 10 + x) / 55.0 * 255 + 0.5));
    first_batch(", layout: chw, bands: [3], channels: 1, stretch: linear, range: [-1, 0]", "", sizeof v, v, label);
    assert_int_equal(v[0][0][0], 255);
}

// Values above 255 in bytes: said once, with what serves.
TEST(bytes_that_keep_little_are_a_warning) {
    uint8_t v[4][SIDE][SIDE];
    int label[4], n_warnings = 0;
    char *log;
    size_t n;
    must(dt_log_open(fixture_path("log")));
    for (int i = 0; i < 2; i++) first_batch(", layout: chw, bands: [3], channels: 1", "", sizeof v, v, label);
    dt_log_close();
    must(dt_io_read_file(&log, &n, fixture_path("log"), 0, DT_E_DATA));
    for (const char *at = log; (at = strstr(at, "dtype: f32 takes them as they are")); at++) n_warnings++;
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(log, "data.fields.image: values of "));
    free(log);
}

static void expect_refused(const char *field, const char *augment, const char *says) {
    dt_config *c = config_of(field, augment);
    dt_dataset *d;
    assert_int_equal(dt_data_open(&d, c, NULL, 1, NULL), DT_E_USAGE);
    if (!strstr(dt_error_message(), says)) fail_msg("%s", dt_error_message());
    assert_non_null(strstr(dt_error_message(), "t.yaml:"));
}

TEST(wrong_configs_are_named) {
    expect_refused(", channels: 4", "", "dtype: f32");
    expect_refused(", channels: 3, bands: [0, 1]", "", "2 bands, but channels: 3");
    expect_refused(", channels: 1, bands: [-1]", "", "counted from 0");
    expect_refused(", channels: 1, range: minmax", "", "stretch");
    expect_refused(", channels: 1, stretch: asinh, range: [3, 2]", "", "low first");
    expect_refused(", channels: 1, stretch: asinh, range: most", "", "zscale, minmax");
    expect_refused(", dtype: f32", "  augment: {image: [flip: both, noise: 0.1]}\n", "noise");
}

static float at(const dt_image *s, int x, int y, int c) {
    x = x < 0 ? 0 : x >= s->width ? s->width - 1 : x;
    y = y < 0 ? 0 : y >= s->height ? s->height - 1 : y;
    return s->real[(y * s->width + x) * s->channels + c];
}

TEST(floats_are_warped_bilinearly) {
    enum { N_W = 9, N_H = 7, N_C = 5 };
    float src[N_W * N_H * N_C], dst[N_W * N_H * N_C];
    for (int i = 0; i < N_W * N_H * N_C; i++) src[i] = (float)((i * 7919) % 1000) - 300;
    dt_image image = {NULL, N_W, N_H, N_C, .real = src};
    dt_map m = dt_map_shift(1.25, -0.5);
    dt_pixels_warp_real(&image, &m, (dt_border){.fill = -1}, dst);
    for (int i = 0; i < N_W * N_H * N_C; i++) {
        int c = i % N_C, x = i / N_C % N_W, y = i / N_C / N_W;
        double top = 0.75 * (double)at(&image, x + 1, y - 1, c) + 0.25 * (double)at(&image, x + 2, y - 1, c);
        double low = 0.75 * (double)at(&image, x + 1, y, c) + 0.25 * (double)at(&image, x + 2, y, c);
        assert_true(fabs((double)dst[i] - (top + low) / 2) < 1e-3);
    }
    dt_pixels_warp_real(&image, &m, (dt_border){.fill = 7}, dst);
    assert_true(dst[(N_W - 1) * N_C] == 7); // comes from outside
    m = dt_map_flip(true, true, N_W, N_H);
    dt_pixels_warp_real(&image, &m, (dt_border){.fill = -2}, dst);
    for (int i = 0; i < N_W * N_H; i++)
        for (int c = 0; c < N_C; c++) assert_true(dst[i * N_C + c] == src[(N_W * N_H - 1 - i) * N_C + c]);
}

// ---- units of a FITS file -----------------------------------------------------------------------------
enum { FITS_BLOCK = 2880 };

static size_t put_cards(uint8_t *to, const char *const *cards) {
    memset(to, ' ', FITS_BLOCK);
    for (int i = 0; cards[i]; i++) memcpy(to + 80 * i, cards[i], strlen(cards[i]));
    return FITS_BLOCK;
}

// A 6 x 6 image of one byte value, with a name.
static size_t put_unit(uint8_t *to, const char *name, const char *axis, uint8_t pixel) {
    const char *const cards[] = {"XTENSION= 'IMAGE   '",
                                 "BITPIX  =                    8",
                                 "NAXIS   =                    2",
                                 axis,
                                 "NAXIS2  =                    6",
                                 name,
                                 "END     ",
                                 NULL};
    size_t n = put_cards(to, cards);
    memset(to + n, pixel, FITS_BLOCK);
    return n + FITS_BLOCK;
}

static dt_status read_units(const char *hdu, uint8_t out[4][SIDE][SIDE][2], int channels) {
    dt_config *c = fixture_parse("  path: \"%s\"\n  fields:\n    image: {kind: image, size: [6, 6], "
                                 "channels: %d, dtype: f32%s}\n    label: {kind: class}\n",
                                 fixture_path("units"), channels, hdu);
    dt_dataset *d = fixture_open_config(c, 1);
    dt_batch_source *s;
    const dt_batch *b;
    static const int micro;
    dt_source_request r = {.global_batch = 4, .micro_batch = 4, .micros = &micro, .n_micro = 1, .end_step = 1};
    must(d->open(d, &r, &s));
    dt_status st = s->get(s, 0, 0, &b, NULL);
    for (int i = 0; i < 4 * SIDE * SIDE * channels && st == DT_OK; i++)
        (&out[0][0][0][0])[i] = (uint8_t)((const float *)b->field[0])[i];
    if (st == DT_OK) s->release(s, b);
    s->close(s);
    d->close(d);
    return st;
}

TEST(units_are_taken_by_name_or_number) {
    static const char *const PRIMARY[] = {"SIMPLE  =                    T", "BITPIX  =                    8",
                                          "NAXIS   =                    0", "END     ", NULL};
    static const char AXIS[] = "NAXIS1  =                    6", WIDE[] = "NAXIS1  =                    7";
    uint8_t file[7 * FITS_BLOCK], v[4][SIDE][SIDE][2];
    size_t n = put_cards(file, PRIMARY);
    n += put_unit(file + n, "EXTNAME = 'SCI     '", AXIS, 11);
    n += put_unit(file + n, "EXTNAME = 'ERR     '           / errors", AXIS, 22);
    n += put_unit(file + n, "EXTNAME = 'WIDE    '", WIDE, 33);
    for (int i = 0; i < 4; i++) {
        char *path = dt_xprintf("%s/%c/%d.fits", fixture_path("units"), 'a' + i % 2, i);
        fixture_write(path, file, n);
        free(path);
    }
    must(read_units("", v, 1)); // the first image
    assert_int_equal(v[0][0][0][0], 11);
    must(read_units(", hdu: err", v, 1));
    assert_int_equal(v[0][0][0][0], 22);
    must(read_units(", hdu: 2", v, 1));
    assert_int_equal(v[0][0][0][0], 22);
    must(read_units(", hdu: [ERR, 1]", v, 2));
    assert_int_equal(v[3][5][5][0], 22);
    assert_int_equal(v[3][5][5][1], 11);
    must_fail(DT_E_DATA, "no unit (HDU) 'DQ'; there are 0, 1 SCI, 2 ERR, 3 WIDE", read_units(", hdu: DQ", v, 1));
    must_fail(DT_E_DATA, "unit (HDU) '0' is no image", read_units(", hdu: 0", v, 1));
    must_fail(DT_E_DATA, "differ in size: 6 x 6 and 6 x 7", read_units(", hdu: [SCI, WIDE]", v, 2));
}

static int set_up(void **state) {
    folder_make(state);
    write_arrays(fixture_path("arrays"), 0);
    return 0;
}

TEST_MAIN(set_up, fixture_tear_down)
