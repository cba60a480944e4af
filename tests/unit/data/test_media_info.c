// Shapes from headers, of files that other tools wrote (tests/fuzz/corpus_media: Pillow, libsndfile,
// astropy), and what the transform makes of them.
#define _GNU_SOURCE // memmem
#include "base/core.h"
#include "base/io.h"
#include "data/pack/transform.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double NONE = NAN;
static const struct {
    const char *file;
    double width, height, channels, samples, rate;
} WANT[] = {
    {"rgb.jpg", 7, 5, 3, NONE, NONE},         {"rgb.png", 7, 5, 3, NONE, NONE},
    {"la.png", 7, 5, 2, NONE, NONE},          {"palette.png", 7, 5, 3, NONE, NONE},
    {"rgb.bmp", 7, 5, 3, NONE, NONE},         {"rgb.ppm", 7, 5, 3, NONE, NONE},
    {"grey.pgm", 7, 5, 1, NONE, NONE},        {"comment.pgm", 7, 5, 1, NONE, NONE},
    {"stereo.wav", NONE, NONE, 2, 30, 16000}, {"mono.flac", NONE, NONE, 1, 31, 8000},
    {"rgb.webp", 7, 5, 3, NONE, NONE},        {"rgba.webp", 7, 5, 4, NONE, NONE},
    {"lossless.webp", 7, 5, 3, NONE, NONE},   {"cube.fits", 7, 5, 3, NONE, NONE},
    {"extension.fits", 7, 5, 1, NONE, NONE},  {"vorbis.ogg", NONE, NONE, 2, 1001, 16000},
    {"opus.ogg", NONE, NONE, 1, 2000, 48000}, {"low.ogg", NONE, NONE, 1, 2000, 16000},
    {"rgb.tif", 7, 5, 3, NONE, NONE},         {"grey_be.tif", 7, 5, 1, NONE, NONE},
};
enum { N_WANT = sizeof WANT / sizeof *WANT };

static char *read_sample(const char *file, size_t *n) {
    const char *source = getenv("SOURCE");
    char *path = dt_xprintf("%s/tests/fuzz/corpus_media/%s", source ? source : ".", file), *data;
    must(dt_io_read_file(&data, n, path, 0, DT_E_DATA));
    free(path);
    return data;
}

static bool same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

TEST(headers_tell_the_shape) {
    for (int i = 0; i < N_WANT; i++) {
        size_t n;
        char *data = read_sample(WANT[i].file, &n);
        dt_media_info m;
        if (!dt_media_info_read(&m, (dt_span){(uint8_t *)data, n}, n)) fail_msg("%s", WANT[i].file);
        if (!same(m.width, WANT[i].width) || !same(m.height, WANT[i].height) || !same(m.channels, WANT[i].channels) ||
            !same(m.samples, WANT[i].samples) || !same(m.rate, WANT[i].rate))
            fail_msg("%s: %g x %g x %g, %g samples of %g Hz", WANT[i].file, m.width, m.height, m.channels, m.samples,
                     m.rate);
        assert_false(dt_media_info_read(&m, (dt_span){(uint8_t *)data, 8}, n));
        free(data);
    }
}

// The beginning is enough, and a recording that is cut has the samples that are there.
TEST(a_beginning_is_enough) {
    size_t n;
    char *data = read_sample("stereo.wav", &n);
    dt_media_info m;
    assert_true(dt_media_info_read(&m, (dt_span){(uint8_t *)data, 60}, n));
    assert_true(m.samples == 30);
    assert_true(dt_media_info_read(&m, (dt_span){(uint8_t *)data, 60}, n - 8));
    assert_true(m.samples == 28);
    free(data);
}

// A table has rows and columns, but is no picture; nor is what has four axes.
TEST(axes_of_a_table_are_no_shape) {
    static const struct {
        const char *file, *from, *to;
    } TURN[] = {{"extension.fits", "'IMAGE   '", "'BINTABLE'"},
                {"cube.fits", "NAXIS   =                    3", "NAXIS   =                    4"}};
    for (size_t i = 0; i < sizeof TURN / sizeof *TURN; i++) {
        size_t n;
        char *data = read_sample(TURN[i].file, &n);
        char *at = memmem(data, n, TURN[i].from, strlen(TURN[i].from));
        assert_non_null(at);
        memcpy(at, TURN[i].to, strlen(TURN[i].to));
        dt_media_info m;
        assert_false(dt_media_info_read(&m, (dt_span){(uint8_t *)data, n}, n));
        free(data);
    }
}

static dt_status see(void *arg, const dt_transform_record *r) {
    const dt_transform_record **out = arg;
    *out = r;
    return DT_OK;
}

TEST(storing_keeps_the_bytes) {
    size_t n;
    char *data = read_sample("rgb.jpg", &n);
    dt_pack_opts o = {.source = "x", .out = "y"};
    dt_transform *t;
    must(dt_transform_create(&t, &o));
    assert_true(dt_transform_keeps_bytes(t) && !dt_transform_divides(t));
    assert_string_equal(dt_transform_describe(t), "store as is");
    dt_transform_scratch *s = dt_transform_scratch_create();
    dt_transform_record item = {.n_members = 1};
    item.member[0] = (dt_transform_member){"jpg", {(uint8_t *)data, n}, n};
    const dt_transform_record *r = NULL;
    must(dt_transform_apply(t, s, &item, see, &r));
    assert_non_null(r);
    assert_string_equal(r->suffix, "");
    assert_int_equal(r->n_members, 1);
    assert_ptr_equal(r->member[0].bytes.data, data);
    assert_int_equal(r->n_columns, 3);
    assert_string_equal(r->column[0].name, "width");
    assert_true(r->column[0].number == 7 && !r->column[0].in_json);
    dt_transform_scratch_destroy(s);
    dt_transform_destroy(t);
    free(data);
}

TEST_MAIN(NULL, NULL)
