// What packing may do to files: pictures resized and encoded anew, recordings cut and resampled, figures
// of quality; the same bytes with one thread and with four; bad options and files are named.
#include "data/decode/audio.h"
#include "data/decode/decode.h"
#include "data/decode/encode.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include "base/log.h"

#include <math.h>

static int n_packs;

static dt_reader *pack(const char *source, const dt_pack_opts *what) {
    dt_pack_opts o = *what;
    char *name = dt_xprintf("set-%d.lmdb", n_packs++);
    const char *path = fixture_path(name);
    free(name);
    o.source = source;
    o.out = path;
    must(dt_data_pack(&o));
    dt_reader *s = fixture_set(path);
    return s;
}

// Member `ext` of the record.
static dt_span member(dt_reader *s, uint32_t record, const char *ext, dt_buffer *scratch) {
    const dt_catalog *c = s->catalog;
    const dt_record *r = &c->records[record];
    for (uint32_t m = r->first_member; m < r->first_member + r->n_members; m++) {
        dt_span bytes;
        if (strcmp(dt_catalog_str(c, c->exts[c->members[m].ext]), ext) != 0) continue;
        must(dt_reader_read(s, record, m, true, scratch, &bytes));
        return bytes;
    }
    fail_msg("record %u has no member %s", record, ext);
    return (dt_span){0};
}

static double number(const dt_reader *s, uint32_t record, const char *column) {
    int k = dt_catalog_find_real(s->catalog, column);
    if (k < 0) fail_msg("no column %s", column);
    return dt_catalog_real(s->catalog, k, record);
}

// ---- pictures ----------------------------------------------------------------------------------------
enum { W = 60, H = 45 };

TEST(pictures_are_resized_and_encoded) {
    static const struct {
        const char *encode, *ext;
        int resize, w, h;
        bool exact;
    } CASES[] = {{"png", "png", 15, 20, 15, true},
                 {NULL, "png", 15, 20, 15, true},
                 {"jpeg:95", "jpg", 0, W, H, false},
                 {"png", "png", 45, W, H, true},
                 {NULL, "bmp", 100, W, H, true}};
    uint8_t file[16384], small[W * H * 3];
    size_t n = fixture_bmp(file, W, H, 24, 77);
    fixture_write(fixture_path("p/a/1.bmp"), file, n);
    fixture_write(fixture_path("p/b/2.bmp"), file, n);
    dt_decoder *d = dt_decoder_create();
    dt_resizer *resizer = dt_resizer_create();
    dt_buffer scratch = {0};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        dt_image want, got;
        dt_reader *s = pack(fixture_path("p"), &(dt_pack_opts){.resize = CASES[i].resize, .encode = CASES[i].encode});
        assert_int_equal(s->catalog->n_records, 2);
        assert_true(number(s, 0, "width") == CASES[i].w && number(s, 1, "height") == CASES[i].h);
        must(dt_decode_image(d, (dt_span){file, n}, 3, 0, 0, NULL, &want));
        must(dt_resize(resizer, &want, NULL, small, CASES[i].h, CASES[i].w));
        dt_span bytes = member(s, 1, CASES[i].ext, &scratch);
        must(dt_decode_image(d, bytes, 3, 0, 0, NULL, &got));
        assert_int_equal(got.width, CASES[i].w);
        assert_int_equal(got.height, CASES[i].h);
        double error = 0;
        for (int k = 0; k < got.width * got.height * 3; k++) error += abs(got.data[k] - small[k]);
        if (CASES[i].exact) assert_true(error == 0);
        assert_true(error / (got.width * got.height * 3) < 4);
        dt_reader_close(s);
    }
    dt_buffer_fini(&scratch);
    dt_decoder_destroy(d);
    dt_resizer_destroy(resizer);
}

TEST(quality_becomes_columns) {
    dt_reader *s =
        pack(fixture_path("p"), &(dt_pack_opts){.quality = true, .where = "brightness > 0 and quality <= 1"});
    assert_int_equal(s->catalog->n_records, 2);
    assert_true(number(s, 0, "sharpness") >= 0 && number(s, 0, "entropy") > 1);
    dt_buffer scratch = {0};
    member(s, 0, "bmp", &scratch); // stored as it was
    dt_buffer_fini(&scratch);
    dt_reader_close(s);
}

// ---- recordings --------------------------------------------------------------------------------------
enum { RATE = 8000, N = 20000 };
static float wave[2 * N];

static void write_wave(const char *path, int channels, int rate) {
    dt_buffer file = {0};
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < N; i++) wave[c * N + i] = (float)((i * 7 + c * 1000) % 20000 - 10000) / 32768;
    must(dt_encode_wav(&file, wave, channels, N, N, rate));
    fixture_write(path, file.data, file.n_bytes);
    dt_buffer_fini(&file);
}

static int64_t read_wave(dt_reader *s, uint32_t record, float *out, int channels, int *rate) {
    dt_buffer scratch = {0};
    dt_audio_file *f = dt_audio_file_create();
    dt_audio_info info;
    must(dt_audio_file_open(f, member(s, record, "wav", &scratch), &info));
    assert_int_equal(info.channels, channels);
    must(dt_audio_file_read(f, 0, info.n_samples, channels, out, (size_t)info.n_samples));
    *rate = info.rate;
    dt_audio_file_destroy(f);
    dt_buffer_fini(&scratch);
    return info.n_samples;
}

TEST(recordings_are_cut) {
    static float got[2 * N];
    int rate;
    write_wave(fixture_path("w/x/1.wav"), 2, RATE);
    // 2.5 s in segments of 1 s every 0.75 s: 0, 0.75, 1.5 whole, and one of 0.25 s that is new from 2.25 on
    dt_reader *s = pack(fixture_path("w"), &(dt_pack_opts){.segment_s = 1, .hop_s = 0.75, .quality = true});
    assert_int_equal(s->catalog->n_records, 3);
    for (uint32_t k = 0; k < 3; k++) {
        const char *key = fixture_key(s->catalog, k);
        char want[32];
        snprintf(want, sizeof want, "x/1-%05u", k);
        assert_string_equal(key, want);
        assert_true(number(s, k, "begin_s") == 0.75 * k);
        assert_int_equal(read_wave(s, k, got, 2, &rate), RATE);
        assert_memory_equal(got, wave + k * 6000, RATE * sizeof *got);
        assert_memory_equal(got + RATE, wave + N + k * 6000, RATE * sizeof *got);
    }
    dt_reader_close(s);
    s = pack(fixture_path("w"), &(dt_pack_opts){.segment_s = 1, .quality = true}); // the tail is padded
    assert_int_equal(s->catalog->n_records, 3);
    read_wave(s, 2, got, 2, &rate);
    assert_memory_equal(got, wave + 2 * RATE, RATE / 2 * sizeof *got);
    for (int i = RATE / 2; i < RATE; i++) assert_true(got[i] == 0);
    assert_true(number(s, 2, "silence") == 0); // of what was heard
    dt_reader_close(s);
    s = pack(fixture_path("w"), &(dt_pack_opts){.segment_s = 1, .drop_tail = true});
    assert_int_equal(s->catalog->n_records, 2);
    dt_reader_close(s);
}

TEST(recordings_are_resampled_and_mixed) {
    static float got[4 * N];
    int rate;
    dt_reader *s = pack(fixture_path("w"), &(dt_pack_opts){.mono = true});
    assert_int_equal(read_wave(s, 0, got, 1, &rate), N);
    assert_true(fabsf(got[5] - (wave[5] + wave[N + 5]) / 2) < 1.0f / 32768);
    dt_reader_close(s);
    s = pack(fixture_path("w"), &(dt_pack_opts){.rate = 16000});
    assert_int_equal(read_wave(s, 0, got, 2, &rate), 2 * N);
    assert_int_equal(rate, 16000);
    assert_true(number(s, 0, "rate") == 16000 && number(s, 0, "seconds") == 2.5);
    dt_reader_close(s);
}

// A series has the rate that --rate gives; its values keep their type, text becomes doubles.
TEST(series_are_cut) {
    static const struct {
        const char *name, *text;
        char kind;
        int size;
    } ROWS[] = {{"csv", "0,10.5\n1,1e9\n2,-3\n3,7\n4,0.1\n", 'f', 8},
                {"txt", "0 10\n1 11\n2 12\n3 13\n4 14\n", 'f', 8},
                {"npy", NULL, 'i', 2}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        char path[64], npy[DT_NPY_HEAD + 20];
        const int16_t values[10] = {0, 10, 1, 11, 2, 12, 3, 13, 4, 14};
        dt_text_npy_head(npy, "<i2", 5, 2);
        memcpy(npy + DT_NPY_HEAD, values, sizeof values);
        snprintf(path, sizeof path, "series%zu/x/1.%s", i, ROWS[i].name);
        const dt_span whole = {ROWS[i].text ? (const uint8_t *)ROWS[i].text : (const uint8_t *)npy,
                               ROWS[i].text ? strlen(ROWS[i].text) : sizeof npy};
        fixture_write(fixture_path(path), whole.data, whole.n_bytes);
        *strchr(path, '/') = '\0';
        // 3 samples every 2: 0 1 2, 2 3 4; in segments of 4 s: 0 1 2 3, 4 0 0 0
        for (int padded = 0; padded < 2; padded++) {
            dt_reader *s = pack(fixture_path(path),
                                &(dt_pack_opts){.rate = 0.5, .segment_s = padded ? 8 : 6, .hop_s = padded ? 0 : 4});
            dt_buffer text = {0}, scratch = {0};
            dt_npy from, cut;
            double rate;
            must(dt_series_read(whole, &(dt_series_names){0}, &from, &rate, &text));
            assert_int_equal(s->catalog->n_records, 2);
            for (uint32_t k = 0; k < 2; k++) {
                assert_true(number(s, k, "begin_s") == (padded ? 8 : 4) * k && number(s, k, "rate") == 0.5);
                must(dt_npy_read(member(s, k, "npy", &scratch), &cut));
                assert_true(cut.kind == ROWS[i].kind && cut.size == ROWS[i].size && cut.shape[1] == 2);
                assert_int_equal(cut.shape[0], padded ? 4 : 3);
                for (int64_t p = 0; p < cut.n; p++) {
                    const int64_t at = (int64_t)k * (padded ? 8 : 4) + p;
                    assert_true(dt_npy_get(&cut, p) == (at < from.n ? dt_npy_get(&from, at) : 0));
                }
            }
            dt_reader_close(s);
            dt_buffer_fini(&text);
            dt_buffer_fini(&scratch);
        }
        dt_pack_opts o = {.source = fixture_path(path), .out = fixture_path("norate.lmdb"), .segment_s = 1};
        must_fail(DT_E_USAGE, "a series does not state its rate: give --rate", dt_data_pack(&o));
    }
}

// A cube of `n` slices of 2 x 1 numbers, 16 bits.
static void write_cube(const char *path, int n, int first) {
    char file[2 * 2880] = "";
    int at = 0;
    memset(file, ' ', 2880);
    const struct {
        const char *key, *value;
    } CARDS[] = {{"SIMPLE", "T"}, {"BITPIX", "16"}, {"NAXIS", "3"},
                 {"NAXIS1", "2"}, {"NAXIS2", "1"},  {"NAXIS3", n == 3 ? "3" : "2"}};
    for (size_t i = 0; i < sizeof CARDS / sizeof *CARDS; i++, at += 80)
        file[at + sprintf(file + at, "%-8s= %20s", CARDS[i].key, CARDS[i].value)] = ' ';
    memcpy(file + at, "END ", 4);
    for (int i = 0; i < 2 * n; i++) file[2880 + 2 * i + 1] = (char)(first + i); // big-endian
    fixture_write(path, file, sizeof file);
}

TEST(cubes_are_sliced) {
    write_cube(fixture_path("cubes/g/a.fits"), 3, 10);
    write_cube(fixture_path("cubes/r/a.fits"), 3, 50);
    dt_reader *s =
        pack(fixture_path("cubes"), &(dt_pack_opts){.pattern = "{member}/{id}.fits", .group = "id", .slices = true});
    dt_decoder *d = dt_decoder_create();
    assert_int_equal(s->catalog->n_records, 3);
    for (uint32_t k = 0; k < 3; k++) {
        assert_true(number(s, k, "slice") == k && number(s, k, "width") == 2);
        for (int band = 0; band < 2; band++) {
            dt_buffer scratch = {0};
            dt_image m;
            must(dt_decode_image(d, member(s, k, band ? "r.fits" : "g.fits", &scratch), 1, 0, 0, NULL, &m));
            assert_int_equal(m.data[1], (band ? 50 : 10) + 2 * (int)k + 1);
            dt_buffer_fini(&scratch);
        }
    }
    dt_decoder_destroy(d);
    dt_reader_close(s);
    write_cube(fixture_path("cubes/r/a.fits"), 2, 50);
    dt_pack_opts o = {.source = fixture_path("cubes"),
                      .out = fixture_path("uneven.tar"),
                      .pattern = "{member}/{id}.fits",
                      .group = "id",
                      .slices = true};
    must_fail(DT_E_DATA, "2 slices, another member has 3", dt_data_pack(&o));
    o = (dt_pack_opts){.source = fixture_path("w"), .out = o.out, .slices = true};
    must_fail(DT_E_DATA, "--slices: no FITS cube", dt_data_pack(&o));
}

// ---- all ---------------------------------------------------------------------------------------------
// A square wave at full scale overshoots at another rate: 16 bits cannot hold that, which is counted.
TEST(what_resampling_clips_is_counted) {
    const char *log = fixture_path("clip.log");
    size_t n;
    for (int quiet = 0; quiet < 2; quiet++) {
        dt_buffer file = {0};
        for (int i = 0; i < N; i++) wave[i] = (i / 40 % 2 ? -1.0f : 1.0f) * (quiet ? 0.5f : 0.999f);
        must(dt_encode_wav(&file, wave, 1, N, N, RATE));
        fixture_write(fixture_path(quiet ? "clip/b/2.wav" : "clip/a/1.wav"), file.data, file.n_bytes);
        dt_buffer_fini(&file);
    }
    must(dt_log_open(log));
    dt_reader *s = pack(fixture_path("clip"), &(dt_pack_opts){.rate = 12000});
    dt_log_close();
    assert_true(number(s, 0, "clipped") > 100 && number(s, 1, "clipped") == 0);
    char *text = fixture_read(log, &n);
    if (!strstr(text, "1 of 2 records have samples beyond full scale") || !strstr(text, "a/1.wav"))
        fail_msg("%s", text);
    free(text);
    dt_reader_close(s);
    s = pack(fixture_path("clip"), &(dt_pack_opts){.segment_s = 1, .rate = 12000, .where = "clipped = 0"});
    assert_int_equal(s->catalog->n_records, 3);
    dt_reader_close(s);
}

TEST(threads_do_not_matter) {
    char name[64];
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "m/x/%02d.wav", i);
        write_wave(fixture_path(name), 1 + i % 2, RATE + i);
    }
    size_t n[2];
    void *bytes[2];
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(k ? "four.tar" : "one.tar");
        dt_pack_opts o = {.source = fixture_path("m"),
                          .out = out,
                          .n_threads = k ? 4 : 1,
                          .segment_s = 0.3,
                          .mono = true,
                          .quality = true};
        must(dt_data_pack(&o));
        bytes[k] = fixture_read(out, &n[k]);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
}

TEST(bad_options_and_files_are_named) {
    static const struct {
        dt_pack_opts o;
        const char *says;
    } CASES[] = {{{.encode = "webp"}, "--encode"}, {{.encode = "jpeg:0"}, "--encode"},
                 {{.hop_s = 1}, "--segment"},      {{.segment_s = 1, .slices = true}, "one of them"},
                 {{.rate = 1e6}, "--rate"},        {{.rate = 3}, "--rate: audio becomes"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        dt_pack_opts o = CASES[i].o;
        o.source = fixture_path("w");
        o.out = fixture_path("bad.lmdb");
        must_fail(DT_E_USAGE, CASES[i].says, dt_data_pack(&o));
    }
    fixture_write(fixture_path("broken/x/1.bmp"), "BM and nothing", 14);
    dt_pack_opts o = {.source = fixture_path("broken"), .out = fixture_path("broken.lmdb"), .resize = 10};
    must_fail(DT_E_DATA, "1.bmp", dt_data_pack(&o));
}

// A file whose name or bytes say picture or sound is not passed on as it is because it cannot be decoded.
TEST(nothing_is_passed_on_unread) {
    static const struct {
        const char *name, *bytes, *says;
        dt_pack_opts o;
    } CASES[] = {{"text.png", "no picture at all", "not an image", {.encode = "png"}},
                 {"text.jpg", "no picture at all", "not an image", {.quality = true}},
                 {"named.jpg", "GIF89a and so on", "like kind gif", {.resize = 8}},
                 {"text.wav", "no sound at all", "text.wav", {.segment_s = 0.5}}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char name[64];
        snprintf(name, sizeof name, "unread%zu/x/%s", i, CASES[i].name);
        fixture_write(fixture_path(name), CASES[i].bytes, strlen(CASES[i].bytes));
        *strchr(name, '/') = '\0';
        dt_pack_opts o = CASES[i].o;
        o.source = fixture_path(name);
        o.out = fixture_path("unread.lmdb");
        assert_int_equal(dt_data_pack(&o), DT_E_DATA);
        if (!strstr(dt_error_message(), CASES[i].says)) fail_msg("%s", dt_error_message());
    }
}

TEST_MAIN(folder_make, fixture_tear_down)
