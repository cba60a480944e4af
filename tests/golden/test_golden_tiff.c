// TIFF against Pillow and tifffile: every file of make_tiff.py; the same files cut; what is refused.
#include "golden.h"

#include "base/io.h"
#include "data/decode/array.h"

static dt_safetensors *golden;
static dt_decoder *decoder;

static dt_status decode(const void *data, size_t n, const dt_array_spec *spec, int channels, dt_image *out) {
    // an exact copy, so that AddressSanitizer sees a read past the end
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, data, n);
    dt_image_want want = {.channels = channels, .array = spec};
    dt_status st = dt_decode_image_part(decoder, (dt_span){copy, n}, &want, out);
    free(copy);
    return st;
}

typedef struct tiff_case {
    const char *name;
    const uint8_t *file;
    size_t n_file;
    const void *want; // (H,W,C): of uint8 three channels of a picture, else floats
    dt_shape shape;
    bool is_picture;
    dt_array_spec spec;
} tiff_case;

static bool find_case(int i, tiff_case *c) {
    static const char *const NUMBERS[] = {"0", "1", "2", "3"};
    size_t n_want, n_pages = 0;
    const char *name = dt_safetensors_name(golden, i);
    char key[128];
    if (strncmp(name, "file/", 5) != 0) return false;
    *c = (tiff_case){.name = name + 5};
    c->file = dt_safetensors_data(golden, i, &c->n_file);
    c->shape = golden_shape(golden, "want", c->name);
    snprintf(key, sizeof key, "want/%s", c->name);
    c->want = dt_safetensors_data(golden, dt_safetensors_find(golden, key), &n_want);
    c->is_picture = n_want == (size_t)dt_shape_elements(&c->shape);
    c->spec.f32 = !c->is_picture;
    snprintf(key, sizeof key, "pages/%s", c->name);
    const int k = dt_safetensors_find(golden, key);
    const int64_t *page = k < 0 ? NULL : dt_safetensors_data(golden, k, &n_pages);
    c->spec.n_hdus = (int)(n_pages / sizeof *page);
    for (int p = 0; p < c->spec.n_hdus; p++) c->spec.hdus[p] = NUMBERS[page[p]];
    return true;
}

static bool is_as_wanted(const tiff_case *c, const dt_image *m) {
    const size_t n = (size_t)dt_shape_elements(&c->shape);
    if (m->height != c->shape.d[0] || m->width != c->shape.d[1] || (m->data != NULL) != c->is_picture) return false;
    return memcmp(c->is_picture ? (void *)m->data : m->real, c->want, c->is_picture ? n : n * sizeof(float)) == 0;
}

TEST(tiffs_give_the_values_of_the_others) {
    int n_cases = 0;
    for (int i = 0; i < dt_safetensors_count(golden); i++) {
        tiff_case c;
        dt_image m;
        if (!find_case(i, &c)) continue;
        n_cases++;
        if (decode(c.file, c.n_file, &c.spec, (int)c.shape.d[2], &m) != DT_OK)
            fail_msg("%s: %s", c.name, dt_error_message());
        if (!is_as_wanted(&c, &m)) fail_msg("%s: other values", c.name);
        must(dt_decode_check(decoder, (dt_span){c.file, c.n_file}));
        if (!c.is_picture) continue;
        const uint8_t *rgb = c.want;
        must(decode(c.file, c.n_file, &c.spec, 1, &m));
        for (size_t p = 0; p < (size_t)(m.width * m.height); p++)
            if (m.data[p] != dt_luma(rgb[3 * p], rgb[3 * p + 1], rgb[3 * p + 2])) fail_msg("%s: as grey", c.name);
    }
    assert_true(n_cases > 60);
}

// A cut file is an error, or had no pixel behind the cut.
TEST(cut_tiffs_are_errors) {
    for (int i = 0; i < dt_safetensors_count(golden); i++) {
        tiff_case c;
        dt_image m;
        if (!find_case(i, &c)) continue;
        for (size_t cut = 0; cut < c.n_file; cut += c.n_file / 29) {
            const dt_status st = decode(c.file, cut, &c.spec, (int)c.shape.d[2], &m);
            if (st != DT_E_DATA && !(st == DT_OK && is_as_wanted(&c, &m)))
                fail_msg("%s cut to %zu of %zu bytes: status %d", c.name, cut, c.n_file, st);
        }
    }
}

// 16 bits as bytes are rounded, and noted.
TEST(deep_tiffs_as_bytes) {
    for (int i = 0; i < dt_safetensors_count(golden); i++) {
        tiff_case c;
        dt_image m;
        if (!find_case(i, &c) || (strcmp(c.name, "rgb16") != 0 && strcmp(c.name, "array_u2") != 0)) continue;
        const float *want = c.want;
        must(decode(c.file, c.n_file, NULL, (int)c.shape.d[2], &m));
        for (int64_t k = 0; k < dt_shape_elements(&c.shape); k++)
            assert_int_equal(m.data[k], ((int)want[k] * 255 + 32767) / 65535);
    }
}

// More rows than the strips that are listed have: no bytes of the header stand in for them.
TEST(strips_that_are_not_listed_are_an_error) {
    static const uint8_t LENGTH[12] = {1, 1, 4, 0, 1, 0, 0, 0, 21};
    for (int i = 0; i < dt_safetensors_count(golden); i++) {
        tiff_case c;
        dt_image m;
        if (!find_case(i, &c) || strcmp(c.name, "grey4_black") != 0) continue;
        uint8_t *longer = malloc(c.n_file), *at;
        memcpy(longer, c.file, c.n_file);
        assert_non_null(at = memmem(longer, c.n_file, LENGTH, sizeof LENGTH));
        at[8] = 210;
        must_fail(DT_E_DATA, "TIFF: damaged", decode(longer, c.n_file, &c.spec, 1, &m));
        free(longer);
    }
}

TEST(what_is_not_read_has_a_name) {
    static const struct {
        const char *file, *hdu, *message;
    } ROWS[] = {
        {"cmyk", NULL, "TIFF: colours of kind 5 (5: CMYK"},
        {"ycbcr", NULL, "TIFF: colours of kind 6 (5: CMYK, 6: YCbCr without JPEG"},
        {"half", NULL, "TIFF: real numbers of 16 bits"},
        {"bits12", NULL, "TIFF: whole numbers of 12 bits"},
        {"complex", NULL, "TIFF: complex numbers"},
        {"stack_310", "4", "TIFF: no page 4 (hdu): there are 4, counted from 0"},
        {"stack_310", "SCI", "its pages have numbers"},
        {"tiles_planes_u2", NULL, "TIFF: 5 bands where the field has channels: 3"},
    };
    const char *source = getenv("SOURCE");
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        char *path = dt_xprintf("%s/tests/fuzz/corpus_tif/%s.tif", source ? source : ".", ROWS[i].file), *text;
        size_t n;
        dt_image m;
        dt_array_spec spec = {.n_hdus = ROWS[i].hdu != NULL, .hdus = {ROWS[i].hdu}};
        must(dt_io_read_file(&text, &n, path, 1 << 20, DT_E_DATA));
        must_fail(DT_E_DATA, ROWS[i].message, decode(text, n, &spec, 3, &m));
        free(text);
        free(path);
    }
}

static int set_up(void **state) {
    golden = golden_open("tiff.safetensors");
    decoder = dt_decoder_create();
    return 0;
}

static int tear_down(void **state) {
    dt_decoder_destroy(decoder);
    dt_safetensors_close(golden);
    return 0;
}

TEST_MAIN(set_up, tear_down)
