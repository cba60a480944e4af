// Decoders against pictures made here and by others, cut and damaged at every byte; resize against Pillow.
#include "base/core.h"
#include "base/io.h"
#include "data/decode/array.h"
#include "data/file/tar.h"
#include "golden/golden.h"
#include "store/blob.h"
#include "testing.h"

#include <jpeglib.h>
#include <spng.h>
#include <zlib.h>

static dt_decoder *decoder;

// What make_decode.py wrote.
typedef struct golden_file {
    const char *name;
    const uint8_t *data;
    size_t n;
    const int64_t *pixels; // width, height, CRC-32 as RGB, as grey
} golden_file;

static dt_safetensors *golden;
static golden_file files[100];
static int n_files;

static const void *golden_data(const char *name, size_t *n_bytes) {
    const int i = dt_safetensors_find(golden, name);
    if (i < 0) fail_msg("no '%s' among the golden values", name);
    return dt_safetensors_data(golden, i, n_bytes);
}

static void list_files(void) {
    size_t n;
    char pixels[128];
    for (int i = 0; i < dt_safetensors_count(golden); i++) {
        const char *name = dt_safetensors_name(golden, i);
        if (strncmp(name, "file/", 5) != 0) continue;
        assert_true(n_files < 100);
        golden_file *f = &files[n_files++];
        f->name = name + 5;
        f->data = dt_safetensors_data(golden, i, &f->n);
        snprintf(pixels, sizeof pixels, "pixels/%s", f->name);
        f->pixels = golden_data(pixels, &n);
    }
    assert_true(n_files > 0);
}

static dt_status decode(const uint8_t *data, size_t n, int channels, dt_image *out) {
    // an exact copy, so that AddressSanitizer sees a read past the end
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, data, n);
    dt_status st = dt_decode_image(decoder, (dt_span){copy, n}, channels, 0, 0, NULL, out);
    free(copy);
    return st;
}

// ---- BMP -------------------------------------------------------------------------------------------
enum { W = 5, H = 3 };

static void expected_pixel(int x, int y, uint8_t rgb[3]) {
    static const uint8_t COLOURS[4][3] = {{0, 0, 0}, {255, 255, 255}, {255, 0, 0}, {0, 255, 0}};
    memcpy(rgb, COLOURS[(x + y) % 2], 3); // two colours, so that 1 bit can say it
}

typedef struct bmp_kind {
    int bits, header, compression;
    int top_down;
} bmp_kind;

static void put(uint8_t *p, uint32_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

static size_t make_bmp(uint8_t *out, const bmp_kind *k) {
    int bits = k->bits, core = k->header == 12;
    size_t palette = bits <= 8 ? (size_t)(1 << bits) * (core ? 3u : 4u) : 0;
    size_t masks = k->compression == 3 && k->header == 40 ? 12 : 0;
    size_t at = 14 + (size_t)k->header + palette + masks, stride = ((size_t)W * (size_t)bits + 31) / 32 * 4;
    memset(out, 0, at + stride * H);
    memcpy(out, "BM", 2);
    put(out + 10, (uint32_t)at, 4);
    put(out + 14, (uint32_t)k->header, 4);
    if (core) {
        put(out + 18, W, 2), put(out + 20, H, 2), put(out + 22, 1, 2), put(out + 24, (uint32_t)bits, 2);
    } else {
        put(out + 18, W, 4), put(out + 22, (uint32_t)(k->top_down ? -H : H), 4), put(out + 26, 1, 2);
        put(out + 28, (uint32_t)bits, 2), put(out + 30, (uint32_t)k->compression, 4);
    }
    if (k->compression == 3) {
        uint32_t m16[3] = {0xf800, 0x07e0, 0x001f}, m32[3] = {0x000000ff, 0x0000ff00, 0x00ff0000};
        for (int i = 0; i < 3; i++) put(out + 54 + 4 * i, bits == 16 ? m16[i] : m32[i], 4);
    }
    if (palette) memset(out + 14 + k->header + (core ? 3 : 4), 255, 3); // colour 1 is white
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            uint8_t *row = out + at + stride * (size_t)(k->top_down ? y : H - 1 - y);
            int one = (x + y) % 2;
            if (bits <= 8)
                row[x * bits / 8] |= (uint8_t)(one << (8 - bits - x * bits % 8));
            else if (one)
                put(row + x * bits / 8, bits == 16 && k->compression == 0 ? 0x7fff : 0xffffffff, bits / 8);
        }
    return at + stride * H;
}

static const bmp_kind KINDS[] = {
    {1, 40, 0, 0},  {4, 40, 0, 0},  {8, 40, 0, 0},  {16, 40, 0, 0},  {24, 40, 0, 0},
    {32, 40, 0, 0}, {16, 40, 3, 0}, {32, 40, 3, 0}, {24, 108, 0, 0}, {32, 124, 3, 0},
    {8, 12, 0, 0},  {24, 12, 0, 0}, {24, 40, 0, 1}, {1, 12, 0, 0},   {32, 40, 0, 1},
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

TEST(bmp_of_all_kinds) {
    uint8_t file[8192], rgb[3];
    dt_image image;
    for (int k = 0; k < N_KINDS; k++) {
        size_t n = make_bmp(file, &KINDS[k]);
        for (int c = 1; c <= 3; c += 2) {
            if (decode(file, n, c, &image) != DT_OK)
                fail_msg("kind %d (%d bits): %s", k, KINDS[k].bits, dt_error_message());
            assert_int_equal(image.width, W);
            assert_int_equal(image.height, H);
            for (int i = 0; i < W * H * c; i++) {
                expected_pixel(i / c % W, i / c / W, rgb);
                if (image.data[i] != rgb[0]) fail_msg("kind %d: byte %d is %d", k, i, image.data[i]);
            }
        }
    }
}

TEST(bmp_colours_are_in_order) {
    uint8_t file[256];
    dt_image image;
    size_t n = make_bmp(file, &KINDS[4]);
    file[n - 16 + 0] = 10, file[n - 16 + 1] = 20, file[n - 16 + 2] = 30; // top left: B, G, R
    must(decode(file, n, 3, &image));
    assert_int_equal(image.data[0], 30);
    assert_int_equal(image.data[1], 20);
    assert_int_equal(image.data[2], 10);
    must(decode(file, n, 1, &image));
    assert_int_equal(image.data[0], (uint8_t)(0.299 * 30 + 0.587 * 20 + 0.114 * 10 + 0.5));
}

TEST(bmp_cut_anywhere_is_an_error) {
    uint8_t file[8192];
    dt_image image;
    for (int k = 0; k < N_KINDS; k++) {
        size_t n = make_bmp(file, &KINDS[k]), row = ((size_t)W * (size_t)KINDS[k].bits + 7) / 8;
        size_t last_padding = (row + 3) / 4 * 4 - row;
        for (size_t cut = 0; cut < n - last_padding; cut++) assert_int_equal(decode(file, cut, 3, &image), DT_E_DATA);
    }
}

TEST(bmp_damage_never_crashes) {
    uint8_t file[8192], bad[8192];
    dt_image image;
    uint32_t x = 1;
    for (int i = 0; i < 20000; i++) {
        size_t n = make_bmp(file, &KINDS[i % N_KINDS]);
        memcpy(bad, file, n);
        for (int k = 0; k < 3; k++) {
            x = x * 1664525u + 1013904223u;
            bad[(x >> 8) % (n < 140 ? n : 140)] = (uint8_t)(x >> 24);
        }
        dt_status st = decode(bad, n, 3, &image);
        assert_true(st == DT_OK || st == DT_E_DATA);
    }
}

TEST(a_bomb_is_refused) {
    uint8_t file[256];
    dt_image image;
    size_t n = make_bmp(file, &KINDS[0]);
    put(file + 18, 60000, 4), put(file + 22, 60000, 4);
    assert_int_equal(decode(file, n, 3, &image), DT_E_DATA);
}

// ---- JPEG ------------------------------------------------------------------------------------------
static uint8_t *make_jpeg(int w, int h, int components, bool progressive, size_t *n) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    uint8_t *out = NULL, row[3 * 256];
    unsigned long size = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &size);
    c.image_width = (JDIMENSION)w, c.image_height = (JDIMENSION)h;
    c.input_components = components;
    c.in_color_space = components == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    if (progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w * components; x++) row[x] = (uint8_t)(x * 255 / (w * components) / 2 + y);
        JSAMPROW p = row;
        jpeg_write_scanlines(&c, &p, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    *n = size;
    return out;
}

TEST(jpeg_decodes) {
    for (int k = 0; k < 4; k++) {
        size_t n;
        dt_image image;
        uint8_t *file = make_jpeg(40, 30, k & 1 ? 3 : 1, k & 2, &n);
        for (int c = 1; c <= 3; c += 2) {
            must(decode(file, n, c, &image));
            assert_int_equal(image.width * 1000 + image.height, 40030);
            int mid = image.data[(15 * 40 + 20) * c], want = 255 / 4 + 15;
            assert_true(abs(mid - want) <= 6);
        }
        free(file);
    }
}

TEST(jpeg_cut_is_an_error) {
    size_t n;
    dt_image image;
    uint8_t *file = make_jpeg(64, 48, 3, false, &n);
    for (size_t cut = 0; cut + 2 < n; cut += 1 + cut / 97) // without its end marker it is whole
        assert_int_equal(decode(file, cut, 3, &image), DT_E_DATA);
    // and the decoder still works afterwards
    must(decode(file, n, 3, &image));
    free(file);
}

TEST(jpeg_damage_never_crashes) {
    size_t n;
    dt_image image;
    uint8_t *file = make_jpeg(32, 32, 3, true, &n), *bad = malloc(n);
    uint32_t x = 7;
    for (int i = 0; i < 2000; i++) {
        memcpy(bad, file, n);
        x = x * 1664525u + 1013904223u;
        bad[(x >> 8) % n] ^= (uint8_t)(x >> 24 | 1);
        dt_status st = decode(bad, n, 3, &image);
        assert_true(st == DT_OK || st == DT_E_DATA);
    }
    free(bad);
    free(file);
}

TEST(not_an_image_says_so) {
    dt_image image;
    must_fail(DT_E_DATA, "not an image", decode((const uint8_t *)"hello, world", 12, 3, &image));
    must_fail(DT_E_DATA, "PNG", decode((const uint8_t *)"\x89PNG\r\n\x1a\n....", 12, 3, &image));
    must_fail(DT_E_DATA, "gif", decode((const uint8_t *)"GIF89a......", 12, 3, &image));
    assert_non_null(strstr(dt_error_message(), "jpg"));
    must_fail(DT_E_DATA, "git lfs pull",
              decode((const uint8_t *)"version https://git-lfs.github.com/spec/v1", 42, 3, &image));
}

TEST(the_right_size_goes_straight_to_the_slot) {
    uint8_t file[256], slot[W * H * 3];
    dt_image image;
    size_t n = make_bmp(file, &KINDS[4]);
    dt_span s = {file, n};
    must(dt_decode_image(decoder, s, 3, H, W, slot, &image));
    assert_ptr_equal(image.data, slot);
    must(dt_decode_image(decoder, s, 3, H + 1, W, slot, &image));
    assert_ptr_not_equal(image.data, slot);
}

// ---- values above 255 --------------------------------------------------------------------------------
enum { N_DEEP = 8 };
static const uint16_t DEEP[3][N_DEEP] = {
    {0, 1, 257, 368, 1000, 4095, 4000, 3}, {7, 0, 2000, 5, 65, 12, 4001, 300}, {9, 8, 70, 600, 5, 43, 21, 10}};

// 4 x 2 pixels as PNG, PGM or PPM of bytes or as text, NPY.
static uint8_t *make_deep(const char *kind, int channels, size_t *n) {
    uint8_t *out = calloc(1, 4096);
    uint16_t v[N_DEEP * 3];
    for (int i = 0; i < N_DEEP * channels; i++) v[i] = DEEP[i % channels][i / channels];
    if (strcmp(kind, "png") == 0) {
        struct spng_ihdr h = {.width = 4, .height = 2, .bit_depth = 16};
        h.color_type = channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
        spng_ctx *c = spng_ctx_new(SPNG_CTX_ENCODER);
        int failed = spng_set_option(c, SPNG_ENCODE_TO_BUFFER, 1) + spng_set_ihdr(c, &h);
        failed += spng_encode_image(c, v, (size_t)(2 * N_DEEP * channels), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
        void *png = spng_get_png_buffer(c, n, &failed);
        assert_int_equal(failed, 0);
        memcpy(out, png, *n);
        free(png);
        spng_ctx_free(c);
        return out;
    }
    const int npy = strcmp(kind, "npy") == 0, text = strcmp(kind, "text") == 0;
    int at =
        npy ? sprintf((char *)out, "\x93NUMPY%c%c%c%c{'descr': '>u2', 'fortran_order': False, 'shape': (2, 4, %d)}", 1,
                      0, 1, 1, channels)
            : sprintf((char *)out, "P%d 4 2 %s ", (channels == 1 ? 2 : 3) + (text ? 0 : 3), "4095");
    if (npy) memcpy(out + 8, "\xf6", 2), at = 256;
    for (int i = 0; i < N_DEEP * channels; i++)
        if (text)
            at += sprintf((char *)out + at, "%d ", v[i]);
        else
            out[at++] = (uint8_t)(v[i] >> 8), out[at++] = (uint8_t)v[i];
    *n = (size_t)at;
    return out;
}

// f32: the values as they are, whatever the format; a stretch spreads them; bytes of a part of 16 bits are noted.
TEST(values_above_255_are_kept) {
    static const char *const KINDS_OF[] = {"png", "bytes", "text", "npy"};
    for (int k = 0; k < 8; k++) {
        const char *kind = KINDS_OF[k % 4];
        const int has = k < 4 ? 1 : 3, npy = k % 4 == 3;
        size_t n;
        uint8_t *file = make_deep(kind, has, &n);
        for (int channels = 1; channels <= 3; channels += 2) {
            if (npy && channels != has) continue;
            dt_array_spec f32 = {.f32 = true},
                          range = {.stretch = DT_STRETCH_linear, .range = DT_RANGE_given, .high = 4080};
            dt_image_want want = {.channels = channels, .array = &f32};
            dt_image image;
            must(dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image));
            assert_non_null(image.real);
            for (int i = 0; i < N_DEEP * channels; i++) {
                const int p = i / channels, c = has == 3 ? i % channels : 0;
                const double grey = 0.299 * DEEP[0][p] + 0.587 * DEEP[1][p] + 0.114 * DEEP[2][p];
                const double v = has > channels ? grey : DEEP[c][p];
                if (fabs((double)image.real[i] - v) > (has > channels ? 0.02 : 0))
                    fail_msg("%s: value %d is %g, not %g", kind, i, (double)image.real[i], v);
            }
            want.array = &range;
            must(dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image));
            if (has == channels) assert_int_equal(image.data[(N_DEEP - 2) * channels], 250); // of 4000
            want.array = NULL;
            must(dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image));
            assert_true(image.least == 0 && image.greatest == (k % 4 == 0 || npy ? 4095 : 0));
            if (k % 4) continue;
            uint8_t row[4 * 3]; // the first of two, which lacks the greatest value
            want.rows_above = 1;
            must(dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image));
            assert_true(image.next && image.greatest == 0);
            must(image.next(image.state, row));
            must(image.next(image.state, NULL));
            assert_true(image.least == 0 && image.greatest == 4095);
        }
        for (size_t cut = 0; cut < n; cut++) {
            dt_array_spec f32 = {.f32 = true};
            dt_image_want want = {.channels = has, .array = &f32};
            dt_image image;
            uint8_t *part = malloc(cut + 1);
            memcpy(part, file, cut);
            dt_status st = dt_decode_image_part(decoder, (dt_span){part, cut}, &want, &image);
            if (st != DT_E_DATA && cut + 4 < n) fail_msg("%s: %zu of %zu bytes", kind, cut, n);
            free(part);
        }
        free(file);
    }
}

// ---- resize ----------------------------------------------------------------------------------------
// Weights of a grey image serve for a colour one of its size, and a mirror image of the same size is one.
TEST(a_resizer_keeps_its_weights) {
    dt_resizer *kept = dt_resizer_create(), *fresh = dt_resizer_create();
    uint8_t src[40 * 30 * 3], dst[20 * 17 * 3], expected[20 * 17 * 3];
    for (size_t i = 0; i < sizeof src; i++) src[i] = (uint8_t)(i * i >> 3);
    dt_image grey = {src, 40, 30, 1}, colour = {src, 40, 30, 3};
    must(dt_resize(kept, &grey, NULL, dst, 17, 20));
    must(dt_resize(kept, &colour, NULL, dst, 17, 20));
    must(dt_resize(fresh, &colour, NULL, expected, 17, 20));
    assert_memory_equal(dst, expected, sizeof dst);
    uint8_t same[40 * 30 * 3];
    must(dt_resize_mirrored(kept, &colour, NULL, same, 30, 40));
    for (int y = 0; y < 30; y++)
        for (int x = 0; x < 40; x++) assert_memory_equal(same + (y * 40 + x) * 3, src + (y * 40 + 39 - x) * 3, 3);
    dt_resizer_destroy(kept);
    dt_resizer_destroy(fresh);
}

static void is_mirrored(const uint8_t *a, const uint8_t *b, int w, int h, int c) {
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) assert_memory_equal(a + (y * w + x) * c, b + (y * w + w - 1 - x) * c, (size_t)c);
}

// Sizes at which the fast loops take one, two and many groups of taps, and their edges.
TEST(resizes_agree_with_pillow) {
    dt_resizer *r = dt_resizer_create();
    size_t n_bytes;
    const double *row = golden_data("resize", &n_bytes), *end = row + n_bytes / sizeof *row;
    assert_true(row < end);
    for (; row < end; row += 10) { // channels, sizes before and after, box, CRC-32
        const int c = (int)row[0], w = (int)row[1], h = (int)row[2];
        const int out_w = (int)row[3], out_h = (int)row[4];
        const size_t n = (size_t)(out_w * out_h * c);
        // exact sizes, so that AddressSanitizer sees a step over the edge
        uint8_t *src = malloc((size_t)(w * h * c)), *dst = malloc(n);
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                for (int k = 0; k < c; k++)
                    src[(y * w + x) * c + k] =
                        (uint8_t)(x * 37 + y * 61 + k * 91 + x * y * 13 + (x / 7 + y / 5) % 2 * 90);
        dt_image image = {src, w, h, c};
        const bool whole = row[5] == 0 && row[6] == 0 && row[7] == w && row[8] == h;
        must(dt_resize(r, &image, whole ? NULL : row + 5, dst, out_h, out_w));
        if (crc32_z(0, dst, n) != (uint32_t)row[9]) fail_msg("%d x %d x %d to %d x %d", w, h, c, out_w, out_h);
        uint8_t *mirrored = malloc(n);
        must(dt_resize_mirrored(r, &image, row + 5, mirrored, out_h, out_w));
        is_mirrored(mirrored, dst, out_w, out_h, c);
        free(mirrored);
        free(src);
        free(dst);
    }
    dt_resizer_destroy(r);
}

// ---- files that other programs wrote or read -----------------------------------------------------------
TEST(files_decode_as_pillow_reads_them) {
    for (const golden_file *f = files; f < files + n_files; f++)
        for (int c = 1; c <= 3; c += 2) {
            dt_image image;
            if (decode(f->data, f->n, c, &image) != DT_OK) fail_msg("%s: %s", f->name, dt_error_message());
            assert_int_equal(image.width, f->pixels[0]);
            assert_int_equal(image.height, f->pixels[1]);
            uLong crc = crc32_z(0, image.data, (size_t)(image.width * image.height * c));
            if (crc != (uint32_t)f->pixels[c == 3 ? 2 : 3]) fail_msg("%s: other pixels, %d channels", f->name, c);
        }
}

// All pictures of a real set, one after another, where the data is there: the CRC of the pixels that
// Pillow 13 gives (its JPEG library is the same).
TEST(real_sets_decode_as_pillow_reads_them) {
    static const struct {
        const char *tar;
        int n, channels;
        uint32_t crc;
    } SETS[] = {{"mnist_png.tar", 10000, 3, 0xda95cad7},
                {"mnist_png.tar", 10000, 1, 0xf08db4a8},
                {"trashnet.tar", 300, 3, 0x0642ffbc}};
    static dt_tar_entry e;
    dt_buffer bytes = {0};
    const char *source = getenv("SOURCE");
    for (int k = 0; k < 3; k++) {
        char *path = dt_xprintf("%s/../shared/data/%s", source ? source : ".", SETS[k].tar);
        if (!dt_io_exists(path)) {
            free(path);
            skip();
        }
        dt_blob blob;
        dt_tar tar;
        bool more = true;
        uLong crc = 0;
        int n = 0;
        must(dt_blob_open(&blob, path));
        dt_tar_begin(&tar, &blob);
        while (dt_tar_next(&tar, &e, &more) == DT_OK && more) {
            uint8_t *p = dt_buffer_reserve(&bytes, e.size + 1);
            must(dt_blob_read(&blob, e.offset, p, e.size));
            const dt_kind *kind = dt_kind_of_bytes(p, e.size);
            dt_image m;
            if (!e.is_regular || !kind || !(kind->uses & DT_KIND_PICTURE)) continue;
            if (dt_decode_image(decoder, (dt_span){p, e.size}, SETS[k].channels, 0, 0, NULL, &m) != DT_OK)
                fail_msg("%s: %s", e.path, dt_error_message());
            crc = crc32_z(crc, m.data, (size_t)m.width * (size_t)m.height * (size_t)m.channels);
            n++;
        }
        assert_int_equal(n, SETS[k].n);
        assert_int_equal(crc, SETS[k].crc);
        dt_blob_close(&blob);
        free(path);
    }
    dt_buffer_fini(&bytes);
}

static bool is_png(const golden_file *f) {
    return f->n > 32 && memcmp(f->data, "\x89PNG", 4) == 0;
}

static dt_status resize_rows(const uint8_t *file, size_t n, int channels, bool mirror, uint8_t *out, bool *in_rows) {
    dt_image_want want = {.channels = channels, .rows_above = in_rows ? 1 : 0};
    dt_image image = {.data = NULL};
    dt_resizer *r = dt_resizer_create();
    dt_status st = dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image);
    if (in_rows) *in_rows = image.next != NULL;
    const double box[4] = {image.width * 0.1, image.height * 0.2, image.width * 0.9, image.height * 0.7};
    if (st == DT_OK) st = (mirror ? dt_resize_mirrored : dt_resize)(r, &image, box, out, 5, 7);
    dt_resizer_destroy(r);
    return st;
}

// All colour types and depths, interlaced or not.
TEST(rows_of_a_png_have_the_bytes_of_the_whole) {
    int n_in_rows = 0, n_whole = 0;
    for (const golden_file *f = files; f < files + n_files; f++)
        for (int k = 0; k < 4 && is_png(f); k++) {
            const int channels = k & 1 ? 3 : 1;
            uint8_t got[7 * 5 * 3], want[7 * 5 * 3];
            bool in_rows;
            must(resize_rows(f->data, f->n, channels, k / 2, want, NULL));
            must(resize_rows(f->data, f->n, channels, k / 2, got, &in_rows));
            if (memcmp(got, want, (size_t)(7 * 5 * channels)) != 0) fail_msg("%s", f->name);
            assert_int_equal(in_rows, f->data[28] == 0); // IHDR: interlace method
            *(in_rows ? &n_in_rows : &n_whole) += 1;
            for (size_t cut = 0; cut < f->n && k == 0 && f->n < 4096; cut++) {
                uint8_t *part = malloc(cut + 1);
                memcpy(part, f->data, cut);
                const dt_status st = resize_rows(part, cut, 3, false, got, &in_rows);
                if (st != DT_E_DATA && cut + 4 < f->n) fail_msg("%s: %zu of %zu bytes", f->name, cut, f->n);
                free(part);
            }
        }
    assert_true(n_in_rows > 0 && n_whole > 0);
}

// ---- large images --------------------------------------------------------------------------------------
enum { LARGE_W = 10000, LARGE_H = 10400 }; // 104 megapixels

static void large_row(uint8_t *row, int y) {
    memset(row, y * 255 / LARGE_H, LARGE_W);
}

static uint8_t *make_large_jpeg(bool progressive, size_t *n) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    uint8_t *out = NULL, *row = malloc(LARGE_W);
    unsigned long size = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &size);
    c.image_width = LARGE_W, c.image_height = LARGE_H;
    c.input_components = 1, c.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    if (progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < LARGE_H; y++) {
        large_row(row, y);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    *n = size;
    return out;
}

static uint8_t *make_large_png(uint32_t width, uint32_t height, size_t *n) {
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr h = {.width = width, .height = height, .bit_depth = 8};
    uint8_t *row = calloc(width, 1), *out;
    int code;
    spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1);
    spng_set_option(png, SPNG_IMG_COMPRESSION_LEVEL, 1);
    assert_int_equal(spng_set_ihdr(png, &h), 0);
    assert_int_equal(spng_encode_image(png, NULL, 0, SPNG_FMT_PNG, SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE), 0);
    for (uint32_t y = 0; y < height; y++) {
        if (width == LARGE_W) large_row(row, (int)y);
        code = spng_encode_row(png, row, width);
        assert_true(code == 0 || code == SPNG_EOI);
    }
    out = spng_get_png_buffer(png, n, &code);
    assert_non_null(out);
    spng_ctx_free(png);
    free(row);
    return out;
}

static void has_large_rows(const uint8_t *out, int h, int w) {
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) assert_true(abs(out[y * w + x] - (2 * y + 1) * 255 / (2 * h)) <= 2);
}

TEST(a_hundred_megapixels) {
    static uint8_t out[50 * 40];
    dt_resizer *r = dt_resizer_create();
    dt_image image;
    for (int k = 0; k < 2; k++) {
        size_t n;
        uint8_t *file = k ? make_large_png(LARGE_W, LARGE_H, &n) : make_large_jpeg(false, &n);
        const dt_span bytes = {file, n};
        dt_image_want exact = {.channels = 1, .rows_above = DT_MAX_PIXELS}, field = exact;
        field.height = 50, field.width = 40;
        must(dt_decode_image_part(decoder, bytes, &exact, &image));
        assert_true(image.next && image.width == LARGE_W && image.height == LARGE_H);
        must(dt_resize(r, &image, NULL, out, 50, 40));
        has_large_rows(out, 50, 40);
        must(dt_decode_image_part(decoder, bytes, &field, &image));
        assert_true(k ? image.next != NULL : !image.next && image.width == LARGE_W / 8); // the reduced transform
        must(dt_resize(r, &image, image.box, out, 50, 40));
        has_large_rows(out, 50, 40);
        must(dt_decode_check(decoder, bytes));
        field.max_pixels = 100000000;
        assert_int_equal(dt_decode_image_part(decoder, bytes, &field, &image), DT_E_DATA);
        assert_non_null(strstr(dt_error_message(), "more than the limit of 100000000"));
        exact.rows_above = 0; // as pack --encode wants it
        assert_int_equal(dt_decode_image_part(decoder, bytes, &exact, &image), DT_E_DATA);
        assert_non_null(strstr(dt_error_message(), "67108864 for what is decoded as a whole"));
        // in memory, if that is asked for
        exact.max_pixels = LARGE_W * LARGE_H;
        must(dt_decode_image_part(decoder, bytes, &exact, &image));
        assert_true(image.data && image.data[LARGE_W * LARGE_H - 1] >= 253);
        free(file);
    }
    dt_resizer_destroy(r);
}

// A row and the tables of a resize would take the memory of a whole image.
TEST(a_very_long_side_has_the_limit_of_a_whole_image) {
    enum { LONG = DT_MAX_ROWS_SIDE + 1, SHORT = DT_MAX_PIXELS / DT_MAX_ROWS_SIDE };
    for (int k = 0; k < 3; k++) {
        size_t n;
        const bool fits = k == 2;
        uint8_t *file = k == 1 ? make_large_png(SHORT, LONG, &n) : make_large_png(LONG - fits, SHORT + fits, &n);
        const dt_image_want want = {.channels = 1, .rows_above = DT_MAX_PIXELS};
        dt_image image;
        assert_int_equal(dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image), fits ? DT_OK : DT_E_DATA);
        if (!fits) assert_non_null(strstr(dt_error_message(), "more than the limit of 67108864"));
        free(file);
    }
}

TEST(a_progressive_jpeg_is_decoded_as_a_whole) {
    size_t n;
    uint8_t *file = make_large_jpeg(true, &n);
    dt_image_want want = {.channels = 1, .height = 50, .width = 40, .rows_above = DT_MAX_PIXELS};
    dt_image image;
    assert_int_equal(dt_decode_image_part(decoder, (dt_span){file, n}, &want, &image), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "more than the limit of 67108864"));
    free(file);
}

// Anything may happen to a file; what must not: a crash, or pixels from a file that ends too early.
TEST(files_cut_or_damaged_never_crash) {
    uint32_t x = 3;
    for (const golden_file *f = files; f < files + n_files; f++) {
        size_t n = f->n;
        dt_image image;
        uint8_t *bad = malloc(n);
        for (size_t cut = 0; cut < n; cut++) {
            dt_status st = decode(f->data, cut, 3, &image);
            assert_true(st == DT_OK || st == DT_E_DATA);
            // the end mark and what a text or row's padding leaves over may be missing
            if (cut + 14 < n && st == DT_OK) fail_msg("%s cut at %zu", f->name, cut);
        }
        for (int k = 0; k < 300; k++) {
            memcpy(bad, f->data, n);
            for (int j = 0; j < 2; j++) {
                x = x * 1664525u + 1013904223u;
                bad[(x >> 8) % n] = (uint8_t)(x >> 24);
            }
            dt_status st = decode(bad, n, 3, &image);
            if (st != DT_OK && st != DT_E_DATA) fail_msg("%s damaged: %d, %s", f->name, (int)st, dt_error_message());
        }
        free(bad);
    }
}

TEST(an_animation_is_refused) {
    dt_image image;
    size_t n;
    const uint8_t *data = golden_data("animation", &n);
    must_fail(DT_E_DATA, "animation", decode(data, n, 3, &image));
}

// Behind a PNG's checksum nothing changes unseen.
TEST(a_changed_png_is_an_error) {
    for (const golden_file *f = files; f < files + n_files; f++) {
        if (strncmp(f->name, "png", 3) != 0) continue;
        dt_image image;
        uint8_t *bad = malloc(f->n);
        for (size_t at = 16; at + 20 < f->n; at += 3) {
            memcpy(bad, f->data, f->n);
            bad[at] ^= 0x10;
            dt_status st = decode(bad, f->n, 3, &image);
            // an ancillary chunk may be wrong, the pixels are not
            if (st == DT_OK)
                assert_int_equal(crc32_z(0, image.data, (size_t)(image.width * image.height * 3)),
                                 (uint32_t)f->pixels[2]);
        }
        free(bad);
    }
}

static int set_up(void **state) {
    decoder = dt_decoder_create();
    golden = golden_open("decode.safetensors");
    list_files();
    return 0;
}

static int tear_down(void **state) {
    dt_decoder_destroy(decoder);
    dt_safetensors_close(golden);
    return 0;
}

TEST_MAIN(set_up, tear_down)
