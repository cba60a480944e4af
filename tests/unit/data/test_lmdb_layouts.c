// LMDBs that others write, made here with the library: Caffe, LSUN, OCR, BasicSR, named databases,
// binary keys, pickles.
#define _GNU_SOURCE // memmem
#include "data/decode/decode.h"
#include "data/file/datum.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include <lmdb.h>

static MDB_env *env;
static MDB_txn *txn;
static MDB_dbi dbi;

static void db_begin(const char *dir, const char *name) {
    must(dt_io_mkdir_all(dir));
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_mapsize(env, 64 << 20);
    mdb_env_set_maxdbs(env, 8);
    assert_int_equal(mdb_env_open(env, dir, MDB_NOSYNC, 0644), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, name, name ? MDB_CREATE : 0, &dbi), 0);
}

static void put_bytes(const void *key, size_t n_key, const void *value, size_t n) {
    MDB_val k = {n_key, (void *)(uintptr_t)key}, v = {n, (void *)(uintptr_t)value};
    assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
}

static void put(const char *key, const void *value, size_t n) {
    put_bytes(key, strlen(key), value, n);
}

static void db_end(void) {
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

static void expect_member(dt_reader *s, uint32_t r, const char *ext, const void *data, size_t n) {
    const dt_record *rec = &s->catalog->records[r];
    dt_buffer scratch = {0};
    dt_span b;
    assert_int_equal(rec->n_members, 1);
    assert_string_equal(dt_catalog_str(s->catalog, s->catalog->exts[s->catalog->members[rec->first_member].ext]), ext);
    must(dt_reader_read(s, r, rec->first_member, true, &scratch, &b));
    assert_int_equal(b.n_bytes, n);
    assert_memory_equal(b.data, data, n);
    dt_buffer_fini(&scratch);
}

// ---- Datum -----------------------------------------------------------------------------------------
static uint8_t message[70000];
static size_t n_message;

static void byte(unsigned v) {
    message[n_message++] = (uint8_t)v;
}

static void varint(uint64_t v) {
    for (; v >= 128; v >>= 7) byte((unsigned)(v & 127) | 128);
    byte((unsigned)v);
}

static void int_field(int field, int64_t v) {
    varint((uint64_t)field << 3);
    varint((uint64_t)v);
}

static void bytes_field(int field, const void *data, size_t n) {
    varint((uint64_t)field << 3 | 2);
    varint(n);
    memcpy(message + n_message, data, n);
    n_message += n;
}

static void begin_datum(int c, int h, int w) {
    n_message = 0;
    int_field(1, c), int_field(2, h), int_field(3, w);
}

TEST(caffe_raw) {
    const char *dir = fixture_path("caffe_raw_lmdb");
    static uint8_t pixels[3 * 40 * 50];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 7);
    db_begin(dir, NULL);
    for (int i = 0; i < 4; i++) {
        char key[48];
        snprintf(key, sizeof key, "%08d_dir/img%d.jpg", i, i);
        begin_datum(3, 40, 50);
        bytes_field(4, pixels, sizeof pixels);
        int_field(5, i * 5 - 1);
        put(key, message, n_message);
    }
    db_end();
    dt_reader *s = fixture_set(dir);
    assert_int_equal(s->catalog->n_records, 4);
    assert_string_equal(fixture_key(s->catalog, 2), "00000002_dir/img2.jpg");
    assert_string_equal(fixture_value(s->catalog, "label", 0), "-1");
    assert_string_equal(fixture_value(s->catalog, "label", 3), "14");
    expect_member(s, 3, "datum", message, n_message);
    dt_reader_close(s);
}

TEST(caffe_encoded) {
    const char *dir = fixture_path("caffe_jpeg_lmdb");
    static const uint8_t jpeg[300] = {0xff, 0xd8, 0xff, 0xe0, 1, 2, 3};
    db_begin(dir, NULL);
    for (int i = 0; i < 3; i++) {
        char key[32];
        snprintf(key, sizeof key, "%08d", i);
        begin_datum(3, 40, 50);
        bytes_field(4, jpeg, sizeof jpeg);
        int_field(5, i);
        int_field(7, 1);
        put(key, message, n_message);
    }
    db_end();
    dt_reader *s = fixture_set(dir);
    assert_int_equal(s->catalog->n_records, 3);
    assert_string_equal(fixture_value(s->catalog, "label", 2), "2");
    expect_member(s, 1, "jpg", jpeg, sizeof jpeg); // the image itself, without its message
    dt_reader_close(s);
}

static dt_status read_message(dt_datum *d) {
    uint8_t *exact = malloc(n_message);
    dt_blob b;
    memcpy(exact, message, n_message);
    dt_blob_from_memory(&b, "m", exact, n_message);
    dt_status st = dt_datum_read(&b, 0, n_message, d);
    free(exact);
    return st;
}

TEST(datum_messages) {
    dt_datum d;
    uint8_t floats[24] = {0};
    begin_datum(1, 2, 3);
    for (int i = 0; i < 6; i++) byte(6 << 3 | 5), byte(0), byte(0), byte(0x80), byte(0x3f);
    must(read_message(&d));
    assert_int_equal(d.n_floats, 6);
    assert_false(d.packed || d.has_label);
    begin_datum(1, 2, 3);
    bytes_field(6, floats, sizeof floats);
    must(read_message(&d));
    assert_true(d.packed && d.n_floats == 6);
    size_t whole = n_message;
    for (n_message = 1; n_message < whole; n_message++) assert_int_equal(read_message(&d), DT_E_DATA);
    begin_datum(1, 2, 3), bytes_field(4, floats, 5); // not 6
    assert_int_equal(read_message(&d), DT_E_DATA);
    begin_datum(1, 1 << 30, 1 << 30), bytes_field(4, floats, 5);
    assert_int_equal(read_message(&d), DT_E_DATA);
    begin_datum(1, 2, 3), bytes_field(4, floats, 6), int_field(9, 1); // Datum has no field 9
    assert_int_equal(read_message(&d), DT_E_DATA);
}

// Planes of blue, green, red and of grey, as bytes and as floats of both kinds, to RGB and to grey.
TEST(raw_pixels_decode) {
    enum { H = 3, W = 5 };
    dt_decoder *decoder = dt_decoder_create();
    for (int kind = 0; kind < 3; kind++)
        for (int c = 1; c <= 3; c += 2)
            for (int channels = 1; channels <= 3; channels += 2) {
                uint8_t plane[3 * H * W], out[3 * H * W];
                float real[3 * H * W];
                for (int i = 0; i < c * H * W; i++) plane[i] = (uint8_t)(i * 5);
                for (int i = 0; i < c * H * W; i++) real[i] = plane[i] + (i % 2 ? 0.4f : -0.4f);
                real[0] = -7;
                begin_datum(c, H, W);
                if (kind == 0) bytes_field(4, plane, (size_t)(c * H * W));
                if (kind == 1) bytes_field(6, real, (size_t)(c * H * W) * 4);
                for (int i = 0; i < c * H * W && kind == 2; i++) {
                    byte(6 << 3 | 5);
                    memcpy(message + n_message, &real[i], 4);
                    n_message += 4;
                }
                dt_image image;
                dt_span m = {message, n_message};
                must(dt_decode_image(decoder, m, channels, H, W, out, &image));
                assert_int_equal(image.width, W);
                assert_int_equal(image.height, H);
                for (int i = 0; i < H * W; i++) {
                    uint8_t blue = plane[i], green = c == 3 ? plane[H * W + i] : blue;
                    uint8_t red = c == 3 ? plane[2 * H * W + i] : blue;
                    if (channels == 1) assert_int_equal(image.data[i], dt_luma(red, green, blue));
                    if (channels == 1) continue;
                    assert_int_equal(image.data[3 * i], red);
                    assert_int_equal(image.data[3 * i + 1], green);
                    assert_int_equal(image.data[3 * i + 2], blue);
                }
            }
    dt_image image;
    begin_datum(2, 1, 1), bytes_field(4, "ab", 2);
    dt_span m = {message, n_message};
    assert_int_equal(dt_decode_image(decoder, m, 3, 1, 1, NULL, &image), DT_E_DATA);
    dt_decoder_destroy(decoder);
}

// ---- others ----------------------------------------------------------------------------------------
static const uint8_t png[40] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 5};

TEST(lsun_is_one_set_a_folder) {
    static const char *const CLASSES[] = {"church_train_lmdb", "bedroom_train_lmdb"};
    for (int c = 0; c < 2; c++) {
        db_begin(dt_arena_printf(&folder_arena, "%s/lsun/%s", folder_path, CLASSES[c]), NULL);
        for (int i = 0; i < 3; i++) {
            char key[64];
            snprintf(key, sizeof key, "%040x", i * 12345 + c);
            put(key, png, sizeof png);
        }
        db_end();
    }
    dt_reader *s = fixture_set(fixture_path("lsun"));
    assert_int_equal(s->catalog->n_records, 6);
    assert_string_equal(fixture_value(s->catalog, "set", 0), "bedroom_train_lmdb");
    assert_string_equal(fixture_value(s->catalog, "set", 5), "church_train_lmdb");
    expect_member(s, 4, "png", png, sizeof png);
    dt_reader_close(s);
    s = fixture_set(fixture_path("lsun/*_train_lmdb"));
    assert_string_equal(fixture_value(s->catalog, "set", 5), "church_train_lmdb");
    dt_reader_close(s);
}

TEST(ocr_has_texts) {
    const char *dir = fixture_path("ocr");
    char key[32], text[32];
    db_begin(dir, NULL);
    put("num-samples", "12", 2);
    for (int i = 1; i <= 12; i++) {
        snprintf(key, sizeof key, "image-%09d", i);
        put(key, png, sizeof png - (size_t)i);
        snprintf(key, sizeof key, "label-%09d", i);
        snprintf(text, sizeof text, "W\xc3\xb6rd %d", i);
        if (i != 7) put(key, text, strlen(text));
    }
    db_end();
    dt_reader *s = fixture_set(dir);
    assert_int_equal(s->catalog->n_records, 12);
    assert_string_equal(fixture_key(s->catalog, 11), "image-000000012");
    assert_string_equal(fixture_value(s->catalog, "label", 11), "W\xc3\xb6rd 12");
    assert_null(fixture_value(s->catalog, "label", 6));
    expect_member(s, 11, "png", png, sizeof png - 12);
    dt_reader_close(s);
    // packed, the texts are in the data, for who reads it without our index
    const char *tar = fixture_path("ocr.tar");
    fixture_pack(dir, tar);
    assert_int_equal(unlink(fixture_path("ocr.tar.index")), 0);
    s = fixture_set(tar);
    assert_string_equal(fixture_value(s->catalog, "label", 11), "W\xc3\xb6rd 12");
    assert_null(fixture_value(s->catalog, "label", 6));
    dt_reader_close(s);
}

TEST(basicsr_stems_may_have_dots) {
    const char *dir = fixture_path("DIV2K_sub.lmdb");
    db_begin(dir, NULL);
    put("0001_s001", png, 20), put("0002.v2_s001", png, 21), put("a/0003", png, 22);
    db_end();
    const char *meta = "0001_s001.png (480,480,3) 1\n";
    fixture_write(fixture_path("DIV2K_sub.lmdb/meta_info.txt"), meta, strlen(meta));
    dt_reader *s = fixture_set(dir);
    assert_int_equal(s->catalog->n_records, 3);
    assert_string_equal(fixture_key(s->catalog, 1), "0002.v2_s001");
    expect_member(s, 1, "png", png, 21);
    dt_reader_close(s);
}

TEST(names_with_extensions_stay) {
    const char *dir = fixture_path("named");
    db_begin(dir, NULL);
    put("a.left.png", png, 20), put("a.json", "{\"q\": 4}", 8), put("b.left.png", png, 21);
    db_end();
    dt_reader *s = fixture_set(dir);
    assert_int_equal(s->catalog->n_records, 2);
    assert_string_equal(fixture_value(s->catalog, "q", 0), "4");
    expect_member(s, 1, "left.png", png, 21);
    dt_reader_close(s);
}

TEST(binary_keys_become_text) {
    const char *dir = fixture_path("binary");
    db_begin(dir, NULL);
    for (int i = 0; i < 3; i++) {
        uint8_t key[4] = {0, 0, 1, (uint8_t)(i * 100)};
        put_bytes(key, 4, png, 20 + (size_t)i);
    }
    db_end();
    dt_reader *s = fixture_set(dir);
    assert_int_equal(s->catalog->n_records, 3);
    assert_string_equal(fixture_key(s->catalog, 2), "000001c8");
    expect_member(s, 2, "png", png, 22);
    dt_reader_close(s);
    dir = fixture_path("digests"); // no NUL among them
    db_begin(dir, NULL);
    put_bytes("\x01\xfe", 2, png, 20), put_bytes("ab", 2, png, 21), put_bytes("\xff\x02", 2, png, 22);
    db_end();
    s = fixture_set(dir);
    assert_string_equal(fixture_key(s->catalog, 1), "6162");
    dt_reader_close(s);
}

// One file name with a line break in it does not change what the other keys mean.
TEST(one_odd_key_changes_nothing_else) {
    const char *dir = fixture_path("odd_named"), *whole = fixture_path("odd_whole"), *pickled = fixture_path("odd_f2l"),
               *ocr = fixture_path("odd_ocr");
    db_begin(dir, NULL);
    put("a\nb.png", png, 20), put("a\nb.json", "{\"q\": 4}", 8);
    put("c.png", png, 21), put("c.json", "{\"q\": 5}", 8), put("d\te.png", png, 22);
    db_end();
    dt_reader *s = fixture_set(dir);
    assert_int_equal(s->catalog->n_records, 3);
    assert_string_equal(fixture_key(s->catalog, 0), "a\nb");
    assert_string_equal(fixture_value(s->catalog, "q", 0), "4");
    assert_string_equal(fixture_key(s->catalog, 1), "c");
    assert_string_equal(fixture_value(s->catalog, "q", 1), "5");
    expect_member(s, 2, "png", png, 22);
    dt_reader_close(s);
    db_begin(whole, NULL);
    put("a\nb", png, 20), put("c", png, 21), put("d", png, 22);
    db_end();
    s = fixture_set(whole);
    assert_int_equal(s->catalog->n_records, 3);
    assert_string_equal(fixture_key(s->catalog, 0), "a\nb");
    assert_string_equal(fixture_key(s->catalog, 2), "d");
    expect_member(s, 2, "png", png, 22);
    dt_reader_close(s);
    db_begin(pickled, NULL);
    put("0", "\x80\x04pickle", 8), put("__keys__", "x", 1), put("a\tb", "x", 1);
    db_end();
    fixture_no_set(pickled, DT_E_DATA, "dtrain pack");
    db_begin(ocr, NULL);
    put("num-samples", "1", 1), put("image-000000001", png, 20), put("label-000000001", "w", 1);
    put("note\n", "x", 1);
    db_end();
    s = fixture_set(ocr);
    assert_int_equal(s->catalog->n_records, 1);
    assert_string_equal(fixture_value(s->catalog, "label", 0), "w");
    dt_reader_close(s);
}

TEST(named_databases) {
    const char *one = fixture_path("sub1"), *two = fixture_path("sub2"), *mix = fixture_path("sub3");
    db_begin(one, "images");
    put("x", png, 20), put("y", png, 30);
    db_end();
    dt_reader *s = fixture_set(one);
    assert_int_equal(s->catalog->n_records, 2);
    expect_member(s, 1, "png", png, 30);
    dt_reader_close(s);
    db_begin(two, "images"), put("x", png, 20), db_end();
    db_begin(two, "masks"), put("x", png, 20), db_end();
    fixture_no_set(two, DT_E_DATA, "images, masks");
    db_begin(mix, "images"), put("x", png, 20), db_end();
    db_begin(mix, NULL), put("zz", png, 20), db_end();
    fixture_no_set(mix, DT_E_DATA, "beside other entries");
}

// An entry of 48 bytes that says that its value lies elsewhere has only 8 in its page.
TEST(a_named_database_lies_in_its_page) {
    static const char node[] = "\x30\0\0\0\2\0\6\0images";
    const char *dir = fixture_path("sub4"), *file = fixture_path("sub4/data.mdb");
    char *data, *at;
    size_t n;
    db_begin(dir, "images"), put("x", png, 20), db_end();
    must(dt_io_read_file(&data, &n, file, 0, DT_E_DATA));
    while ((at = memmem(data, n, node, sizeof node - 1))) at[4] = 3; // F_SUBDATA | F_BIGDATA
    must(dt_io_write_file(file, data, n));
    free(data);
    fixture_no_set(dir, DT_E_DATA, "a named database that is none");
}

TEST(several_values_a_key_are_refused) {
    const char *dir = fixture_path("dup");
    db_begin(dir, "d");
    mdb_txn_abort(txn);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, MDB_DUPSORT, &dbi), 0);
    put("a", "1", 1), put("a", "2", 1);
    db_end();
    fixture_no_set(dir, DT_E_DATA, "dupsort");
}

TEST(pickles_are_refused) {
    const char *dir = fixture_path("f2l");
    db_begin(dir, NULL);
    put("0", "\x80\x04pickle", 8), put("__keys__", "x", 1), put("__len__", "x", 1);
    db_end();
    fixture_no_set(dir, DT_E_DATA, "dtrain pack");
}

TEST_MAIN(folder_make, fixture_tear_down)
