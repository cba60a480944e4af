// The part of a JPEG that a crop needs must give the bytes that the whole image gives, whatever the
// sampling, the scan and the box; a reduced transform must come close; a cut file must be an error whatever
// the box.
#include "base/hash.h"
#include "data/decode/decode.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

static dt_decoder *decoder;
static dt_resizer *resizer;
static uint64_t random_state = 1;

static uint32_t below(uint32_t n) { // splitmix64
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % n);
}

typedef struct shape {
    const char *name;
    int components, h, v; // sampling of the first component; the others have 1 x 1
    bool progressive;
    int restart;
    J_COLOR_SPACE space;
} shape;

static const shape SHAPES[] = {
    {"grey", 1, 1, 1, false, 0, JCS_GRAYSCALE},
    {"grey progressive", 1, 1, 1, true, 0, JCS_GRAYSCALE},
    {"4:4:4", 3, 1, 1, false, 0, JCS_YCbCr},
    {"4:2:2", 3, 2, 1, false, 0, JCS_YCbCr},
    {"4:2:0", 3, 2, 2, false, 0, JCS_YCbCr},
    {"4:2:0 restarts", 3, 2, 2, false, 3, JCS_YCbCr},
    {"4:2:0 progressive", 3, 2, 2, true, 0, JCS_YCbCr},
    {"4:2:2 progressive", 3, 2, 1, true, 0, JCS_YCbCr},
    {"4:4:0", 3, 1, 2, false, 0, JCS_YCbCr},
    {"4:1:1", 3, 4, 1, false, 0, JCS_YCbCr},
    {"4:1:0", 3, 4, 2, false, 0, JCS_YCbCr},
    {"RGB", 3, 1, 1, false, 0, JCS_RGB},
    {"CMYK", 4, 1, 1, false, 0, JCS_CMYK},
    {"YCCK", 4, 2, 2, false, 0, JCS_YCCK},
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

// Blobs and an edge or two, with some noise: neither flat nor hopeless.
static uint8_t texture(int x, int y, int c) {
    int v = (x * (3 + c) / 5 + y * (5 - c) / 7) % 200 + ((x / 23 + y / 17) & 1) * 40;
    return (uint8_t)(v + (int)(dt_hash64(&(int[3]){x, y, c}, 3 * sizeof(int)) % 12));
}

static uint8_t *make_jpeg(const shape *s, int w, int h, size_t *n) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    uint8_t *out = NULL, *row = malloc((size_t)w * 4);
    unsigned long size = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &size);
    c.image_width = (JDIMENSION)w, c.image_height = (JDIMENSION)h;
    c.input_components = s->components;
    c.in_color_space = s->components == 1 ? JCS_GRAYSCALE : s->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_colorspace(&c, s->space);
    jpeg_set_quality(&c, 85, TRUE);
    c.comp_info[0].h_samp_factor = s->h, c.comp_info[0].v_samp_factor = s->v;
    if (s->space == JCS_YCCK) c.comp_info[3].h_samp_factor = s->h;
    if (s->space == JCS_YCCK) c.comp_info[3].v_samp_factor = s->v;
    c.restart_interval = (unsigned)s->restart;
    if (s->progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < h; y++) {
        for (int i = 0; i < w * s->components; i++) row[i] = texture(i / s->components, y, i % s->components);
        JSAMPROW p = row;
        jpeg_write_scanlines(&c, &p, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    *n = size;
    return out;
}

typedef struct given_box {
    int left, top, width, height;
} given_box;

static void choose(const void *ctx, int width, int height, double box[4]) {
    const given_box *b = ctx;
    box[0] = b->left, box[1] = b->top;
    box[2] = b->left + b->width, box[3] = b->top + b->height;
    assert_true(box[2] <= width && box[3] <= height);
}

static given_box any_box(int w, int h) {
    given_box b = {.width = 1 + (int)below((uint32_t)w), .height = 1 + (int)below((uint32_t)h)};
    b.left = (int)below((uint32_t)(w - b.width + 1));
    b.top = (int)below((uint32_t)(h - b.height + 1));
    return b;
}

static uint8_t *crop_to(const uint8_t *file, size_t n, const given_box *b, int channels, int h, int w,
                        int64_t rows_above, dt_image *image) {
    dt_image_want want = {
        .channels = channels, .height = h, .width = w, .box = choose, .box_ctx = b, .rows_above = rows_above};
    uint8_t *out = malloc((size_t)w * (size_t)h * (size_t)channels);
    if (dt_decode_image_part(decoder, (dt_span){file, n}, &want, image) != DT_OK) fail_msg("%s", dt_error_message());
    must(dt_resize(resizer, image, image->box, out, h, w));
    return out;
}

static uint8_t *crop(const uint8_t *file, size_t n, const given_box *b, int channels, int h, int w, dt_image *image) {
    return crop_to(file, n, b, channels, h, w, 0, image);
}

static uint8_t *whole(const uint8_t *file, size_t n, const given_box *b, int channels, int h, int w) {
    dt_image image;
    double box[4] = {b->left, b->top, b->left + b->width, b->top + b->height};
    uint8_t *out = malloc((size_t)w * (size_t)h * (size_t)channels);
    if (dt_decode_image(decoder, (dt_span){file, n}, channels, 0, 0, NULL, &image) != DT_OK)
        fail_msg("%s", dt_error_message());
    must(dt_resize(resizer, &image, box, out, h, w));
    return out;
}

TEST(a_part_has_the_bytes_of_the_whole) {
    int n_smaller = 0;
    for (int k = 0; k < N_SHAPES; k++)
        for (int i = 0; i < 120; i++) {
            int w = 20 + (int)below(150), h = 20 + (int)below(150), channels = i & 1 ? 3 : 1;
            size_t n;
            uint8_t *file = make_jpeg(&SHAPES[k], w, h, &n);
            given_box b = any_box(w, h);
            // not so small that the transform is reduced
            int out_w = b.width / 3 + 1 + (int)below(40), out_h = b.height / 3 + 1 + (int)below(40);
            dt_image image;
            uint8_t *got = crop(file, n, &b, channels, out_h, out_w, &image);
            uint8_t *want = whole(file, n, &b, channels, out_h, out_w);
            n_smaller += image.width < w || image.height < h;
            for (int j = 0; j < out_w * out_h * channels; j++)
                if (got[j] != want[j])
                    fail_msg("%s, %d x %d, box %d %d %d %d to %d x %d: byte %d is %d, not %d", SHAPES[k].name, w, h,
                             b.left, b.top, b.width, b.height, out_w, out_h, j, got[j], want[j]);
            free(got);
            free(want);
            free(file);
        }
    assert_true(n_smaller > N_SHAPES * 60); // parts were decoded at all
}

// With and without the reduced transform.
TEST(rows_have_the_bytes_of_what_is_in_memory) {
    for (int k = 0; k < N_SHAPES; k++)
        for (int i = 0; i < 60; i++) {
            const int w = 20 + (int)below(300), h = 20 + (int)below(300), channels = i & 1 ? 3 : 1;
            size_t n;
            uint8_t *file = make_jpeg(&SHAPES[k], w, h, &n);
            const given_box b = any_box(w, h);
            const int out_w = 1 + (int)below(60), out_h = 1 + (int)below(60);
            dt_image image;
            uint8_t *want = crop(file, n, &b, channels, out_h, out_w, &image);
            uint8_t *got = crop_to(file, n, &b, channels, out_h, out_w, 1, &image);
            assert_true((image.next != NULL) == (!SHAPES[k].progressive && image.width * image.height > 1));
            if (memcmp(got, want, (size_t)(out_w * out_h * channels)) != 0)
                fail_msg("%s, %d x %d, box %d %d %d %d to %d x %d", SHAPES[k].name, w, h, b.left, b.top, b.width,
                         b.height, out_w, out_h);
            free(got);
            free(want);
            free(file);
        }
}

TEST(a_cut_file_is_an_error_in_rows_too) {
    size_t n;
    uint8_t *file = make_jpeg(&SHAPES[4], 90, 70, &n), out[8 * 8 * 3];
    for (size_t cut = 0; cut < n - 2; cut++) {
        dt_image_want want = {.channels = 3, .rows_above = 1};
        dt_image image;
        uint8_t *part = malloc(cut + 1);
        memcpy(part, file, cut);
        dt_status st = dt_decode_image_part(decoder, (dt_span){part, cut}, &want, &image);
        if (st == DT_OK) st = dt_resize(resizer, &image, (double[4]){10, 10, 30, 30}, out, 8, 8);
        if (st != DT_E_DATA) fail_msg("%zu of %zu bytes: %d", cut, n, st);
        free(part);
    }
    free(file);
}

TEST(a_reduced_transform_comes_close) {
    for (int k = 0; k < N_SHAPES; k++) {
        size_t n;
        int w = 700, h = 600, side = 64;
        uint8_t *file = make_jpeg(&SHAPES[k], w, h, &n);
        given_box b = {50, 40, 520, 540};
        dt_image image;
        uint8_t *got = crop(file, n, &b, 3, side, side, &image);
        uint8_t *want = whole(file, n, &b, 3, side, side);
        bool reduces = SHAPES[k].h == SHAPES[k].v;
        assert_int_equal(image.full_width, reduces ? 175 : 700);
        long sum = 0, worst = 0;
        for (int i = 0; i < side * side * 3; i++) {
            long d = labs((long)got[i] - want[i]);
            sum += d;
            worst = d > worst ? d : worst;
        }
        assert_true((double)sum / (side * side * 3) <= (reduces ? 1.0 : 0.0));
        assert_true(worst <= 12);
        free(got);
        free(want);
        free(file);
    }
}

TEST(a_cut_file_is_an_error_whatever_the_box) {
    for (int k = 0; k < N_SHAPES; k++) {
        size_t n;
        uint8_t *file = make_jpeg(&SHAPES[k], 128, 128, &n);
        for (size_t cut = n / 4; cut + 2 < n; cut += n / 40) {
            uint8_t *copy = malloc(cut);
            memcpy(copy, file, cut);
            given_box b = {8, 4, 40, 20}; // at the top: the pixels of the box are there
            dt_image image;
            dt_image_want want = {.channels = 3, .height = 20, .width = 20, .box = choose, .box_ctx = &b};
            assert_int_equal(dt_decode_image_part(decoder, (dt_span){copy, cut}, &want, &image), DT_E_DATA);
            free(copy);
        }
        free(file);
    }
}

// What is wrong below the box is not looked at; what is in it or above is.
TEST(damage_is_found_where_it_matters) {
    size_t n;
    uint8_t *file = make_jpeg(&SHAPES[4], 256, 256, &n);
    memset(file + n - 40, 0xff, 30);
    given_box top = {0, 0, 64, 64}, bottom = {0, 192, 64, 64};
    dt_image image;
    free(crop(file, n, &top, 3, 32, 32, &image));
    dt_image_want want = {.channels = 3, .height = 32, .width = 32, .box = choose, .box_ctx = &bottom};
    assert_int_equal(dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image), DT_E_DATA);
    free(file);
}

static int set_up(void **state) {
    decoder = dt_decoder_create();
    resizer = dt_resizer_create();
    return 0;
}

static int tear_down(void **state) {
    dt_decoder_destroy(decoder);
    dt_resizer_destroy(resizer);
    return 0;
}

TEST_MAIN(set_up, tear_down)
