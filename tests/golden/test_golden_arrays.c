// Arrays against numpy, astropy and Pillow: NPY of every type, order and version; FITS of every BITPIX, scaled,
// blank, in extensions; bands; zscale and asinh; the resize of floats. Cases by name of make_arrays.py.
#include "golden.h"

#include "base/io.h"
#include "data/decode/array.h"
#include "data/file/tar.h"
#include "store/blob.h"

#include <zlib.h>

static dt_safetensors *golden;
static dt_decoder *decoder;
static dt_resizer *resizer;

typedef struct array_case {
    const char *name;
    dt_array_spec spec;
    double tolerance; // of the largest value
    const char *file; // NULL: as the name
} array_case;

#define F32         .f32 = true
#define BANDS_20    F32, .n_bands = 2, .bands = {2, 0}
#define CURVE(r, a) F32, .stretch = DT_STRETCH_asinh, .range = DT_RANGE_##r, .softening = (a)

static const array_case CASES[] = {
    {"npy_b1", {F32}, 0},
    {"npy_u1", {F32}, 0},
    {"npy_i1", {F32}, 0},
    {"npy_u2", {F32}, 0},
    {"npy_be_u2", {F32}, 0},
    {"npy_i2", {F32}, 0},
    {"npy_be_i2", {F32}, 0},
    {"npy_u4", {F32}, 0},
    {"npy_be_u4", {F32}, 0},
    {"npy_i4", {F32}, 0},
    {"npy_be_i4", {F32}, 0},
    {"npy_u8", {F32}, 0},
    {"npy_be_i8", {F32}, 0},
    {"npy_f4", {F32}, 0},
    {"npy_be_f4", {F32}, 0},
    {"npy_f8", {F32}, 0},
    {"npy_be_f8", {F32}, 0},
    {"npy_hwc", {F32}, 0},
    {"npy_hwc_fortran", {F32}, 0},
    {"npy_hwc_bands_20", {BANDS_20}, 0},
    {"npy_one_more_axis", {F32}, 0},
    {"npy_chw", {F32, .chw = true}, 0},
    {"npy_chw_fortran", {F32, .chw = true}, 0},
    {"npy_version2", {F32, .chw = true}, 0},
    {"npy_version3", {F32, .chw = true}, 0},
    {"npy_bytes", {.f32 = false}, 0},
    {"npy_bytes_chw", {.chw = true}, 0},
    {"npy_cut_to_bytes", {.f32 = false}, 0},
    {"fits_8", {F32}, 0},
    {"fits_16", {F32}, 0},
    {"fits_32", {F32}, 0},
    {"fits_64", {F32}, 0},
    {"fits_m32", {F32}, 0},
    {"fits_m64", {F32}, 0},
    {"fits_unsigned_planes", {F32}, 0},
    {"fits_bands_20", {BANDS_20}, 0},
    {"fits_fourth_axis", {F32}, 0},
    {"fits_blank", {F32}, 0},
    {"fits_scaled", {F32}, 1e-7},
    {"fits_extension", {F32}, 0},
    {"fits_second_extension", {F32}, 0},
    {"zscale_sky", {F32, .stretch = DT_STRETCH_linear}, 1e-6, "sky"},
    {"zscale_asinh_sky", {CURVE(zscale, 0.1)}, 1e-6, "sky"},
    {"minmax_asinh_sky", {CURVE(minmax, 0.02)}, 1e-6, "sky"},
    {"given_asinh_sky", {CURVE(given, 0.5), .low = 5, .high = 400}, 1e-6, "sky"},
    {"zscale_small", {F32, .stretch = DT_STRETCH_linear}, 1e-6, "small"},
    {"zscale_asinh_small", {CURVE(zscale, 0.1)}, 1e-6, "small"},
    {"minmax_asinh_small", {CURVE(minmax, 0.02)}, 1e-6, "small"},
    {"given_asinh_small", {CURVE(given, 0.5), .low = 5, .high = 400}, 1e-6, "small"},
    {"minmax_bytes", {.stretch = DT_STRETCH_linear, .range = DT_RANGE_minmax}, 0, "sky"},
    {"zscale_flat", {F32, .stretch = DT_STRETCH_linear}, 0},
    {"zscale_ramp", {F32, .stretch = DT_STRETCH_linear}, 1e-6},
    {"zscale_steps", {F32, .stretch = DT_STRETCH_linear}, 1e-6},
};
enum { N_CASES = sizeof CASES / sizeof *CASES };

static dt_span file_of(const char *name) {
    char key[128];
    dt_span s;
    snprintf(key, sizeof key, "file/%s", name);
    int i = dt_safetensors_find(golden, key);
    if (i < 0) fail_msg("no golden file %s", key);
    s.data = dt_safetensors_data(golden, i, &s.n_bytes);
    return s;
}

static dt_status decode(dt_span s, const dt_array_spec *spec, int channels, dt_image *out) {
    // an exact copy, so that AddressSanitizer sees a read past the end
    uint8_t *copy = malloc(s.n_bytes ? s.n_bytes : 1);
    memcpy(copy, s.data, s.n_bytes);
    dt_image_want want = {.channels = channels, .array = spec};
    dt_status st = dt_decode_image_part(decoder, (dt_span){copy, s.n_bytes}, &want, out);
    free(copy);
    return st;
}

TEST(arrays_give_the_values_of_the_others) {
    for (int k = 0; k < N_CASES; k++) {
        dt_shape shape = golden_shape(golden, "want", CASES[k].name);
        int64_t n = 0;
        const float *want = golden_find(golden, "want", CASES[k].name, &n);
        dt_image image;
        if (decode(file_of(CASES[k].file ? CASES[k].file : CASES[k].name), &CASES[k].spec, (int)shape.d[2], &image) !=
            DT_OK)
            fail_msg("%s: %s", CASES[k].name, dt_error_message());
        assert_int_equal(image.height, shape.d[0]);
        assert_int_equal(image.width, shape.d[1]);
        assert_int_equal(CASES[k].spec.f32, image.real != NULL);
        float *got = malloc((size_t)n * sizeof *got);
        for (int64_t i = 0; i < n; i++) got[i] = image.real ? image.real[i] : image.data[i];
        golden_compare(CASES[k].name, got, want, n, CASES[k].tolerance);
        free(got);
    }
}

// A slice of a cube is a file with the values that astropy has there.
TEST(slices_of_cubes) {
    static const char *const NAMES[] = {"fits_unsigned_planes", "fits_extension", "fits_fourth_axis"};
    const dt_array_spec spec = {F32};
    for (int i = 0; i < 3; i++) {
        dt_shape shape = golden_shape(golden, "want", NAMES[i]);
        const float *want = golden_find(golden, "want", NAMES[i], NULL);
        const int channels = i == 2 ? (int)shape.d[2] : 1;
        int64_t n = 0;
        dt_buffer slice = {0};
        dt_image image;
        must(dt_fits_count_slices(file_of(NAMES[i]), &n));
        assert_int_equal(n, i == 2 ? 1 : shape.d[2]);
        for (int64_t k = 0; k < n; k++) {
            must(dt_fits_take_slice(file_of(NAMES[i]), k, &slice));
            must(decode((dt_span){slice.data, slice.n_bytes}, &spec, channels, &image));
            for (int64_t p = 0; p < shape.d[0] * shape.d[1] * channels; p++)
                assert_true(image.real[p] == want[i == 2 ? p : p * shape.d[2] + k]);
        }
        dt_buffer_fini(&slice);
    }
    int64_t n;
    must_fail(DT_E_DATA, "no image of three or four axes", dt_fits_count_slices(file_of("fits_16"), &n));
}

// Every cut and many damages of every file: an answer, never a crash.
TEST(cut_and_damaged_arrays_never_crash) {
    uint32_t x = 5;
    for (int k = 0; k < N_CASES; k++) {
        dt_span s = file_of(CASES[k].file ? CASES[k].file : CASES[k].name);
        int channels = (int)golden_shape(golden, "want", CASES[k].name).d[2];
        dt_image image;
        uint8_t *bad = malloc(s.n_bytes);
        bool npy = strncmp(CASES[k].name, "fits", 4) != 0;
        for (size_t cut = 0; cut < s.n_bytes; cut += npy ? 1 : 37) {
            dt_status st = decode((dt_span){s.data, cut}, &CASES[k].spec, channels, &image);
            assert_true(st == DT_E_DATA || (st == DT_OK && !npy)); // FITS pads its last block
        }
        for (int i = 0; i < 200; i++) {
            memcpy(bad, s.data, s.n_bytes);
            for (int j = 0; j < 2; j++) {
                x = x * 1664525u + 1013904223u;
                bad[(x >> 8) % (npy && i % 2 ? 128 : s.n_bytes)] = (uint8_t)(x >> 24);
            }
            dt_status st = decode((dt_span){bad, s.n_bytes}, &CASES[k].spec, channels, &image);
            assert_true(st == DT_OK || st == DT_E_DATA);
        }
        free(bad);
    }
}

TEST(what_is_wrong_is_named) {
    dt_image image;
    dt_array_spec spec = {.f32 = true}, bands = {.f32 = true, .n_bands = 1, .bands = {7}};
    must_fail(DT_E_DATA, "channels: 1", decode(file_of("npy_hwc"), &spec, 1, &image));
    must_fail(DT_E_DATA, "band 7", decode(file_of("npy_hwc"), &bands, 1, &image));
    must_fail(DT_E_DATA, "band 7", decode(file_of("fits_bands_20"), &bands, 1, &image));
    static const char object[] = "\x93NUMPY\x01\x00\x3a\x00{'descr': '|O', 'fortran_order': False, "
                                 "'shape': (3,), }   \n";
    dt_span pickle = {(const uint8_t *)object, sizeof object - 1};
    must_fail(DT_E_DATA, "pickle", decode(pickle, &spec, 1, &image));
    static const char none[] = "\x93NUMPY\x01\x00\x3c\x00"
                               "{'descr': '<f4', 'fortran_order': False, "
                               "'shape': (0, 4), }\n";
    dt_span nothing = {(const uint8_t *)none, sizeof none - 1};
    must_fail(DT_E_DATA, "without elements", decode(nothing, &spec, 4, &image));
    must_fail(DT_E_DATA, "compressed", decode(file_of("compressed"), &spec, 1, &image));
    assert_int_equal(dt_decode_image(decoder, file_of("fits_m32"), 3, 0, 0, NULL, &image), DT_E_DATA);
}

TEST(floats_are_resized_as_pillow_does) {
    static const struct {
        const char *name;
        double box[4];
    } RESIZES[] = {
        {"resize_smaller", {0, 0, 9, 13}}, {"resize_larger", {0, 0, 9, 13}}, {"resize_box", {1.5, 2, 8.25, 12}}};
    dt_array_spec spec = {.f32 = true};
    for (size_t k = 0; k < 3; k++) {
        dt_shape shape = golden_shape(golden, "want", RESIZES[k].name);
        int64_t n = 0;
        const float *want = golden_find(golden, "want", RESIZES[k].name, &n);
        dt_image image;
        must(decode(file_of(RESIZES[k].name), &spec, 1, &image));
        float *got = malloc((size_t)n * sizeof *got);
        must(dt_resize_real(resizer, &image, RESIZES[k].box, got, (int)shape.d[0], (int)shape.d[1]));
        golden_compare(RESIZES[k].name, got, want, n, 0);
        free(got);
    }
}

TEST(vectors_come_from_npy_text_and_raw_floats) {
    dt_buffer scratch = {0};
    double out[60];
    const float raw[3] = {1.5f, -2, 1e30f};
    for (int k = 0; k < 2; k++) { // rows would be glued together
        must_fail(DT_E_DATA, "are no vector",
                  dt_decode_numbers(file_of(k ? "npy_hwc" : "npy_hwc_fortran"), 60, out, &scratch));
        assert_non_null(strstr(dt_error_message(), "kind: audio"));
    }
    must(dt_decode_numbers((dt_span){(uint8_t *)raw, sizeof raw}, 3, out, &scratch));
    assert_true(out[0] == 1.5 && out[1] == -2 && out[2] == (double)raw[2]);
    static const char *const TEXTS[] = {"1.5,-2,1e30", " [1.5; -2]\n1e30\r\n", "1.5 -2.0\t+1E30,"};
    for (int i = 0; i < 3; i++) {
        dt_span s = {(const uint8_t *)TEXTS[i], strlen(TEXTS[i])};
        must(dt_decode_numbers(s, 3, out, &scratch));
        assert_true(out[0] == 1.5 && out[1] == -2 && out[2] == 1e30);
        assert_int_equal(dt_decode_numbers(s, 2, out, &scratch), DT_E_DATA);
        assert_int_equal(dt_decode_numbers(s, 4, out, &scratch), DT_E_DATA);
    }
    static const char *const ROWS[] = {"1,2,3\n4,5,6\n", "[[1, 2, 3], [4, 5, 6]]", "1 2\n3 4\n5 6"};
    for (int i = 0; i < 3; i++)
        must_fail(DT_E_DATA, "are no vector",
                  dt_decode_numbers((dt_span){(const uint8_t *)ROWS[i], strlen(ROWS[i])}, 6, out, &scratch));
    must(dt_decode_numbers((dt_span){(const uint8_t *)"[1 2 3\n 4 5 6]", 14}, 6, out, &scratch));
    static const char *const WRONG[] = {"1 2 x", "1-2 3 4", "", "one,two,three", "\x01\x02\x03"};
    for (int i = 0; i < 5; i++)
        assert_int_equal(dt_decode_numbers((dt_span){(const uint8_t *)WRONG[i], strlen(WRONG[i])}, 3, out, &scratch),
                         DT_E_DATA);
    dt_buffer_fini(&scratch);
}

// Real cubes, where the data is there.
TEST(cubes_of_the_dark_energy_survey) {
    static const struct {
        const char *name;
        uint32_t crc;
    } BANDS[] = {{"g.fits", 0xe255c2c2}, {"r.fits", 0x83396cde}, {"i.fits", 0x6b9059bd}, {"z.fits", 0xd658fed5}};
    char path[4096];
    const char *source = getenv("SOURCE");
    snprintf(path, sizeof path, "%s/../shared/data/lens_des.tar", source ? source : ".");
    if (!dt_io_exists(path)) skip();
    static dt_tar_entry e;
    dt_blob blob;
    dt_tar tar;
    bool more = true;
    int n_seen = 0;
    must(dt_blob_open(&blob, path));
    dt_tar_begin(&tar, &blob);
    while (dt_tar_next(&tar, &e, &more) == DT_OK && more)
        for (int k = 0; k < 4; k++) {
            const char *base = strrchr(e.path, '/');
            if (!base || strcmp(base + 1, BANDS[k].name) != 0) continue;
            dt_array_spec spec = {.f32 = true, .n_bands = 2, .bands = {45, 0}};
            uint8_t *bytes = malloc(e.size);
            dt_image image;
            must(dt_blob_read(&blob, e.offset, bytes, e.size));
            must(decode((dt_span){bytes, e.size}, &spec, 2, &image));
            assert_int_equal(image.width * 1000 + image.height, 91091);
            const size_t n_bytes = 91 * 91 * 2 * sizeof(float);
            assert_int_equal(crc32_z(0, (const uint8_t *)image.real, n_bytes), BANDS[k].crc);
            n_seen++;
            free(bytes);
        }
    assert_int_equal(n_seen, 4);
    dt_blob_close(&blob);
}

static int set_up(void **state) {
    golden = golden_open("arrays.safetensors");
    decoder = dt_decoder_create();
    resizer = dt_resizer_create();
    return 0;
}

static int tear_down(void **state) {
    dt_decoder_destroy(decoder);
    dt_resizer_destroy(resizer);
    dt_safetensors_close(golden);
    return 0;
}

TEST_MAIN(set_up, tear_down)
