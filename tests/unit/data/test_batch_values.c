// What a batch holds of a picture or a vector: element types, parts that fit, and records that lie in their file as
// in the batch.
#include "data/file/tar.h"
#include "loader_case.h"
#include "testing.h"

TEST(an_f32_image_holds_the_same_values) {
    const dt_batch *b[2];
    dt_batch_source *s[2];
    dt_dataset *d[2];
    for (int k = 0; k < 2; k++) {
        dt_config *c = fixture_parse("  path: \"%s\"\n  fields:\n    iris: {kind: image, size: [8, 16], dtype: "
                                     "%s}\n    subject: {kind: class}\n  augment: {iris: [{rotate: 10}]}\n",
                                     packed, k ? "f32" : "u8");
        d[k] = fixture_open_config(c, 1);
        s[k] = open_source(d[k], DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
        must(s[k]->get(s[k], 0, 0, &b[k], NULL));
    }
    assert_int_equal(d[1]->fields[0].dtype, DT_F32);
    const uint8_t *bytes = b[0]->field[0];
    const float *values = b[1]->field[0];
    for (int i = 0; i < MICRO * 8 * 16 * 3; i++) assert_true(values[i] == (float)bytes[i]);
    for (int k = 0; k < 2; k++) {
        s[k]->release(s[k], b[k]);
        s[k]->close(s[k]);
        d[k]->close(d[k]);
    }
}

// Irises are 16 x 8 with pixel (x, y) = (key, x, y): what lies where tells the part.
static void check_fit(const char *field, bool is_real, int w, int first, const int bar[3]) {
    const dt_batch *b;
    dt_config *c = fixture_parse("  path: \"%s\"\n  fields:\n    iris: {kind: image, %s}\n    "
                                 "subject: {kind: class}\n",
                                 packed, field);
    dt_dataset *d = fixture_open_config(c, 1);
    static const int R0[] = {0};
    dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, R0, 1, 0);
    must(s->get(s, 0, 0, &b, NULL));
    for (int i = 0; i < MICRO * 8 * w * 3; i++) {
        int x = i / 3 % w + first, y = i / 3 / w % 8, k = i % 3;
        float got = is_real ? ((const float *)b->field[0])[i] : (float)((const uint8_t *)b->field[0])[i];
        if (x < 0 || x >= 16)
            assert_true(got == (float)bar[k]);
        else if (k > 0)
            assert_true(got == (float)(k == 1 ? x : y));
    }
    s->release(s, b);
    s->close(s);
    d->close(d);
}

TEST(a_picture_of_another_shape_is_made_to_fit) {
    check_fit("size: [8, 8], fit: crop", false, 8, 4, NULL);
    check_fit("size: [8, 10], fit: crop, short_side: 10", false, 0, 0, NULL); // resized: opens
    check_fit("size: [8, 8], fit: crop, short_side: 8", false, 8, 4, NULL);
    check_fit("size: [8, 16], fit: crop", false, 16, 0, NULL);
    check_fit("size: [8, 24], fit: pad, normalize: {mean: [0.5, 0.2, 0.1]}", false, 24, -4,
              (const int[3]){128, 51, 26});
    check_fit("size: [8, 24], fit: pad, dtype: f32, normalize: {mean: [9, 8, 7]}", true, 24, -4,
              (const int[3]){9, 8, 7});
}

// ---- uncompressed records --------------------------------------------------------------------------
enum { RAW_W = 9, RAW_H = 7, RAW_BYTES = RAW_W * RAW_H * 3, RAW_N = 24, VEC_N = 50 };

static void tar_member(FILE *f, const char *name, const void *data, size_t n) {
    uint8_t head[DT_TAR_MAX_HEADER], zeros[512] = {0};
    size_t n_head;
    must(dt_tar_write_header(head, &n_head, name, n));
    assert_int_equal(fwrite(head, 1, n_head, f), n_head);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fwrite(zeros, 1, (512 - n % 512) % 512, f);
}

static size_t npy_head(char *out, const char *descr, const char *shape) {
    char text[119];
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memcpy(out, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(out + 10, ' ', 118);
    memcpy(out + 10, text, (size_t)n);
    out[127] = '\n';
    return 128;
}

// Pictures that lie in their file as in the batch, and others of about that size that only look so; vectors
// raw, as NPY, and as text that is as long as raw would be.
static const char *make_raw_tar(void) {
    static const char *const HEADS[] = {"P6\n9 7\n255\n", "P6 # a comment\n9\n7 255 ", "P5\n27 7\n255\n",
                                        "P6\n7 9\n255\n", "P6\n9 7\n254\n"};
    const char *path = fixture_path("raw.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < RAW_N; i++) {
        char name[32], picture[RAW_BYTES + 256], vec[VEC_N * 4 + 256];
        size_t n = 0, n_vec = 0;
        if (i % 6 == 5)
            n = npy_head(picture, "|u1", "(7, 9, 3)");
        else
            n = (size_t)sprintf(picture, "%s", HEADS[i % 6]);
        for (int k = 0; k < RAW_BYTES; k++) picture[n++] = (char)((i * 37 + k * 11) % 250);
        if (i % 3 == 0) n_vec = npy_head(vec, "<f4", i % 2 ? "(50,)" : "(1, 50)");
        for (int k = 0; k < VEC_N; k++) {
            float v = (float)(i * 100 + k) / 7;
            if (i % 3 == 2)
                n_vec += (size_t)sprintf(vec + n_vec, "%03d ", (i * 7 + k) % 1000);
            else
                memcpy(vec + n_vec, &v, 4), n_vec += 4;
        }
        snprintf(name, sizeof name, "%02d.ppm", i); // told by its bytes
        tar_member(f, name, picture, n);
        snprintf(name, sizeof name, "%02d.vec", i);
        tar_member(f, name, vec, n_vec);
    }
    static const char END[1024];
    fwrite(END, 1, sizeof END, f);
    assert_int_equal(fclose(f), 0);
    return path;
}

TEST(raw_records_are_read_to_their_place) {
    const char *tar = make_raw_tar();
    static const char *const HOW[] = {"readers: 0", "readers: 2", "cache: ram",
                                      "augment: {image: [{flip: horizontal}]}"};
    static uint8_t pictures[4][RAW_N][RAW_BYTES];
    static float vectors[4][RAW_N][VEC_N];
    for (int k = 0; k < 4; k++) {
        dt_config *c =
            fixture_parse("  path: \"%s\"\n  shuffle: none\n  write_index: false\n  fields:\n"
                          "    image: {kind: image, size: [7, 9]}\n    vec: {kind: vector, size: 50}\n  %s\n",
                          tar, HOW[k]);
        dt_dataset *d = fixture_open_config(c, 2);
        dt_batch_source *s = open_source(d, DT_SPLIT_TRAIN, ALL, N_MICRO, 0);
        for (int64_t step = 0; step < RAW_N / GLOBAL; step++)
            for (int micro = 0; micro < N_MICRO; micro++) {
                const dt_batch *b;
                must(s->get(s, step, micro, &b, NULL));
                for (int j = 0; j < MICRO; j++) {
                    memcpy(pictures[k][b->sample[j]], (uint8_t *)b->field[0] + j * RAW_BYTES, RAW_BYTES);
                    memcpy(vectors[k][b->sample[j]], (float *)b->field[1] + j * VEC_N, VEC_N * 4);
                }
                s->release(s, b);
            }
        s->close(s);
        d->close(d);
    }
    assert_memory_equal(pictures[0], pictures[1], sizeof pictures[0]);
    assert_memory_equal(pictures[0], pictures[2], sizeof pictures[0]);
    for (int k = 1; k < 4; k++) assert_memory_equal(vectors[0], vectors[k], sizeof vectors[0]);
    int n_mirrored = 0;
    for (int i = 0; i < RAW_N; i++) {
        for (int k = 0; k < RAW_BYTES && i % 6 % 4 < 2 && i % 6 != 4; k++)
            assert_int_equal(pictures[0][i][k], (i * 37 + k * 11) % 250);
        for (int k = 0; k < VEC_N; k++)
            assert_true(vectors[0][i][k] == (i % 3 == 2 ? (float)((i * 7 + k) % 1000) : (float)(i * 100 + k) / 7));
        n_mirrored += memcmp(pictures[0][i], pictures[3][i], RAW_BYTES) != 0;
    }
    assert_true(n_mirrored > 4 && n_mirrored < 20);
}

TEST_MAIN(loader_set_up, fixture_tear_down)
