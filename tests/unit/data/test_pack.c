// Packing: the same bytes each time, the same records in each format, nothing half-made with a final name.
// What is there already: test_pack_again.c.
#include "testing.h"

#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "data/file/tar.h"
#include "data/raw/raw.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "store/blob.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static const char *raw;

static uint64_t fingerprint(const char *path) {
    dt_dataset *d = fixture_open(path, "", 1);
    uint64_t f = d->fingerprint;
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 7 * 7 * 4);
    d->close(d);
    return f;
}

TEST(the_same_bytes_each_time) {
    fixture_pack(raw, fixture_path("a.lmdb"));
    fixture_pack(raw, fixture_path("b.lmdb"));
    fixture_assert_same(fixture_path("a.lmdb/data.mdb"), fixture_path("b.lmdb/data.mdb"));
    fixture_assert_same(fixture_path("a.lmdb/data.mdb.index"), fixture_path("b.lmdb/data.mdb.index"));
    fixture_pack(raw, fixture_path("a-{00..02}.tar"));
    fixture_pack(raw, fixture_path("b-{00..02}.tar"));
    fixture_assert_same(fixture_path("a-01.tar"), fixture_path("b-01.tar"));
    fixture_assert_same(fixture_path("a-02.tar.index"), fixture_path("b-02.tar.index"));
}

TEST(all_formats_hold_the_same_records) {
    fixture_pack(raw, fixture_path("one.tar"));
    uint64_t want = fingerprint(fixture_path("a.lmdb"));
    assert_int_equal(fingerprint(fixture_path("one.tar")), want);
    assert_int_equal(fingerprint(fixture_path("a-{00..02}.tar")), want);
}

TEST(metadata_is_in_the_catalog_and_in_the_records) {
    const char *path = fixture_path("a.lmdb");
    dt_reader *s = fixture_set(path);
    const dt_catalog *c = s->catalog;
    assert_int_equal(c->n_records, 80);
    uint32_t r = 0;
    while (strcmp(fixture_key(c, r), "fingerprint/2/2__M_Right_ring_finger") != 0) r++;
    static const char *const WANT[][2] = {{"subject", "2"}, {"gender", "M"}, {"hand", "Right"}, {"finger", "ring"}};
    for (int i = 0; i < 4; i++) assert_string_equal(fixture_value(c, WANT[i][0], r), WANT[i][1]);
    assert_null(fixture_value(c, "n", r));
    uint32_t iris = 0;
    while (strncmp(fixture_key(c, iris), "iris/", 5) != 0) iris++;
    assert_non_null(fixture_value(c, "eye", iris));
    assert_null(fixture_value(c, "hand", iris));
    dt_buffer scratch = {0};
    dt_span bytes;
    assert_int_equal(c->records[r].n_members, 2);
    must(dt_reader_read(s, r, c->records[r].first_member + 1, true, &scratch, &bytes));
    const char *json = "{\"finger\":\"ring\",\"gender\":\"M\",\"hand\":\"Right\",\"subject\":2}";
    assert_int_equal(bytes.n_bytes, strlen(json));
    assert_memory_equal(bytes.data, json, strlen(json));
    dt_buffer_fini(&scratch);
    dt_reader_close(s);
}

// Without its index a set is scanned, and gives the same records without hashes.
TEST(the_index_may_be_lost) {
    static const char *const PATHS[] = {"lost.lmdb", "lost.tar"};
    static const char *const INDEXES[] = {"lost.lmdb/data.mdb.index", "lost.tar.index"};
    for (int i = 0; i < 2; i++) {
        const char *path = fixture_path(PATHS[i]);
        fixture_pack(raw, path);
        must(dt_io_unlink(fixture_path(INDEXES[i])));
        dt_reader *s = fixture_set(path);
        assert_int_equal(s->catalog->n_records, 80);
        assert_false(s->catalog->members[0].has_hash);
        assert_int_equal(s->catalog->table.columns[dt_catalog_find_column(s->catalog, "subject")].n_values, 4);
        dt_reader_close(s);
        assert_int_equal(fingerprint(path) != 0, 1);
    }
}

TEST(a_damaged_index_or_cut_data_is_an_error) {
    const char *path = fixture_path("a-01.tar"), *index = fixture_path("a-01.tar.index");
    size_t n, n_data;
    uint8_t *good = fixture_read(index, &n), *data = fixture_read(path, &n_data), *bad = malloc(n);
    dt_reader *s;
    for (size_t i = 0; i < n; i += 1 + n / 200) {
        memcpy(bad, good, n);
        bad[i] ^= 0x40;
        fixture_write(index, bad, n);
        assert_int_equal(dt_reader_open(&s, &path, 1), DT_E_DATA);
        fixture_write(index, good, i);
        must_fail(DT_E_DATA, "a-01.tar.index", dt_reader_open(&s, &path, 1));
    }
    fixture_write(index, good, n);
    fixture_write(path, data, n_data - 512);
    must_fail(DT_E_DATA, "truncated", dt_reader_open(&s, &path, 1));
    fixture_write(path, data, n_data);
    s = fixture_set(path);
    dt_reader_close(s);
    free(bad), free(good), free(data);
}

// `tar -r` writes over the zeros at the end; a small member leaves the size as it was.
TEST(what_tar_appends_is_noticed) {
    size_t n_data;
    uint8_t *data = fixture_read(fixture_path("a-01.tar"), &n_data);
    while (n_data > 0 && data[n_data - 1] == 0) n_data--;
    for (size_t more = 0; more < 20; more++) {
        size_t end = (n_data + 511) / 512 * 512 + more * 512;
        size_t n = (end + 1024 + 10239) / 10240 * 10240;
        uint8_t *tar = calloc(n, 1);
        memcpy(tar, data, n_data);
        memset(tar + n_data, 1, end - n_data); // as a longer set
        dt_blob b;
        uint64_t before, after;
        dt_blob_from_memory(&b, "x.tar", tar, n);
        must(dt_blob_stamp(&b, &before));
        memcpy(tar + end, "added.txt", 9);
        must(dt_blob_stamp(&b, &after));
        assert_true(before != after);
        free(tar);
    }
    free(data);
}

TEST(a_missing_shard_is_named) {
    const char *pattern = fixture_path("a-{00..03}.tar");
    dt_reader *s;
    must_fail(DT_E_DATA, "a-03.tar", dt_reader_open(&s, &pattern, 1));
}

// Dies at its n-th write call, for every n: what has a final name is whole, and a second run succeeds.
TEST(killed_anywhere) {
    static const char *const OUTS[] = {"kill.lmdb", "kill-{00..01}.tar"};
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]);
        bool finished = false;
        int n_killed = 0;
        for (int n = 1; !finished; n++) {
            dt_pack_opts o = {.source = raw, .out = out, .overwrite = true};
            int code = fixture_pack_killed(&o, n);
            finished = code != -1;
            n_killed += !finished;
            if (finished) assert_int_equal(code, 0);
            dt_reader *s;
            if (dt_reader_open(&s, &out, 1) == DT_OK) {
                assert_int_equal(s->catalog->n_records, 80);
                dt_reader_close(s);
            }
        }
        assert_true(n_killed > 5);
        assert_int_equal(fixture_count(out), 80);
    }
}

// Each write call fails once: what has its name is the old set or the new one, never half of one; packing
// again goes on, and ends with the bytes of a pack that nothing has disturbed.
TEST(a_full_disk_is_said_and_leaves_no_half_set) {
    static const char *const OUTS[] = {"full.lmdb", "full-{00..01}.tar"};
    static const char *const FILES[][2] = {
        {"full.lmdb/data.mdb", "full.lmdb/data.mdb.index"},
        {"full-01.tar", "full-00.tar.index"},
    };
    static const char *const GOOD[][2] = {{"a.lmdb/data.mdb", "a.lmdb/data.mdb.index"},
                                          {"whole-01.tar", "whole-00.tar.index"}};
    static const char *const ACTIONS[] = {"enospc", "eio", "short"};
    fixture_pack(raw, fixture_path("whole-{00..01}.tar"));
    for (int k = 0; k < 2; k++)
        for (int n = 1, failures = 0;; n++) {
            const char *out = fixture_path(OUTS[k]);
            char *spec = dt_xprintf("io:%d:%s", n, ACTIONS[n % 3]);
            must(dt_failpoint_set(spec));
            dt_pack_opts o = {.source = raw, .out = out, .overwrite = n % 2};
            dt_status st = dt_data_pack(&o);
            bool fired = dt_failpoint_count() >= (uint64_t)n;
            dt_failpoint_set(NULL);
            free(spec);
            if (!fired) break;
            failures += st != DT_OK;
            if (st != DT_OK) {
                assert_int_equal(st, DT_E_STORAGE);
                assert_true(strlen(dt_error_message()) > 10);
            }
            dt_reader *s;
            if (dt_reader_open(&s, &out, 1) == DT_OK) {
                assert_int_equal(s->catalog->n_records, 80);
                dt_reader_close(s);
            }
            if (st != DT_OK && n % 5 == 0) { // at times it is mended, at times the next is hurt
                dt_status again = dt_data_pack(&o);
                must(again);
                for (int f = 0; f < 2; f++) fixture_assert_same(fixture_path(FILES[k][f]), fixture_path(GOOD[k][f]));
            }
            if (n % 5 == 0 || st == DT_OK) assert_int_equal(fixture_count(out), 80);
            assert_true(n < 1000 && (n < 20 || failures > 5));
        }
}

TEST(classes_come_from_folders) {
    uint8_t bmp[4096];
    const char *root = fixture_path("photos");
    static const char *const CLASSES[] = {"glass", "cardboard", "paper"};
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 4; i++) {
            char *path = dt_xprintf("%s/set/%s/%s%d.BMP", root, CLASSES[c], CLASSES[c], i);
            size_t n = fixture_bmp(bmp, 4, 4, 24, c);
            fixture_write(path, bmp, n);
            free(path);
        }
    fixture_write(fixture_path("photos/LICENSE"), "x", 1);
    const char *out = fixture_path("photos-{0..1}.tar");
    fixture_pack(root, out);
    dt_reader *s = fixture_set(out);
    const dt_catalog *c = s->catalog;
    assert_int_equal(c->n_records, 12);
    assert_string_equal(fixture_key(c, 0), "cardboard/cardboard0");
    assert_string_equal(fixture_value(c, "label", 4), "glass");
    assert_int_equal(c->records[0].n_members, 3);
    assert_true(fixture_find_ext(c, "cls") >= 0 && fixture_find_ext(c, "bmp") >= 0);
    dt_reader_close(s);
    dt_config *cfg = fixture_parse("  path: \"%s\"\n  fields:\n    image: {kind: image, size: [4, 4]}\n"
                                   "    label: {kind: class, classes: 3}\n",
                                   out);
    dt_dataset *d = fixture_open_config(cfg, 2);
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 12);
    d->close(d);
}

// "a-b" sorts before "a" once an extension follows; a dot in a stem would end its key.
TEST(awkward_names_keep_one_order) {
    static const char *const NAMES[] = {"a", "a-b", "a b", "a0", "a.b", "a_"};
    static const char *const OUTS[] = {"awkward.lmdb", "awkward.tar"};
    uint8_t bmp[4096];
    size_t n = fixture_bmp(bmp, 4, 4, 24, 1);
    for (size_t i = 0; i < 6; i++) {
        const char *path = in_folder("awkward/c%d/%s.bmp", i < 3, NAMES[i]);
        fixture_write(path, bmp, n);
    }
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]);
        fixture_pack(fixture_path("awkward"), out);
        dt_reader *s = fixture_set(out);
        assert_int_equal(s->catalog->n_records, 6);
        hash[k] = dt_catalog_hash(s->catalog);
        dt_reader_close(s);
    }
    assert_int_equal(hash[0], hash[1]);
}

// An output in the folder that is packed is not what is packed, and other sets in it are not taken for it.
TEST(a_set_beside_its_files) {
    const char *folder = fixture_path("beside");
    static const char *const OUTS[] = {"beside/a.tar", "beside/a-{0..1}.tar", "beside/a.lmdb"};
    fixture_write(fixture_path("beside/c/1.pgm"), "P5 1 1 255 a", 12);
    for (size_t k = 0; k < sizeof OUTS / sizeof *OUTS; k++) {
        dt_pack_opts o = {.source = folder, .out = fixture_path(OUTS[k]), .overwrite = false};
        const char *now = fixture_path(k == 1 ? "beside/a-0.tar" : OUTS[k]);
        must(dt_data_pack(&o));
        must(dt_data_pack(&o)); // nothing to do
        fixture_write(fixture_path(k == 0   ? "beside/c/2.pgm"
                                   : k == 1 ? "beside/d/3.pgm"
                                            : "beside/d/4.pgm"),
                      "P5 1 1 255 b", 12);
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE); // of other files
        o.overwrite = true;
        must(dt_data_pack(&o));
        o.out = fixture_path("elsewhere.tar");
        must_fail(DT_E_DATA, "holds a set", dt_data_pack(&o));
        assert_non_null(strstr(dt_error_message(), now));
        must(dt_io_remove_tree(now));
        if (k == 1) must(dt_io_remove_tree(fixture_path("beside/a-1.tar")));
    }
    must(dt_io_remove_tree(folder));
}

// New files below a folder with an old set of it: packed under another name they are no part that is not looked at.
TEST(a_set_above_its_files) {
    const char *folder = fixture_path("above"), *set = fixture_path("above/a.tar");
    fixture_write(fixture_path("above/b/c/d/1.pgm"), "P5 1 1 255 a", 12);
    fixture_pack(folder, set);
    fixture_write(fixture_path("above/b/c/d/2.pgm"), "P5 1 1 255 b", 12);
    assert_int_equal(symlink("..", fixture_path("above/b/up")), 0); // no way to go on for ever
    dt_pack_opts o = {.source = folder, .out = fixture_path("above.lmdb")};
    must_fail(DT_E_DATA, "above/a.tar) and other data (", dt_data_pack(&o));
    assert_non_null(strstr(dt_error_message(), "above/b/c/d/1.pgm)"));
    o.source = set;
    must(dt_data_pack(&o));
}

// The same of a folder that is a set.
TEST(a_set_beside_its_shards) {
    const char *folder = fixture_path("shards"), *shards = fixture_path("shards/s-{0..2}.tar");
    static const char *const OUTS[] = {"shards/a.tar", "shards/a-{0..1}.tar", "shards/a.lmdb"};
    fixture_biometric(fixture_path("shards-raw"), 2, 3);
    must(dt_io_mkdir_all(folder));
    fixture_pack(fixture_path("shards-raw"), shards);
    for (size_t k = 0; k < sizeof OUTS / sizeof *OUTS; k++) {
        dt_pack_opts o = {.source = folder, .out = fixture_path(OUTS[k]), .key_by_shard = k == 1};
        for (int run = 0; run < 3; run++) {
            o.overwrite = run == 2;
            must(dt_data_pack(&o));
            assert_int_equal(fixture_count(o.out), 12);
        }
        must(dt_io_remove_tree(fixture_path(k == 1 ? "shards/a-0.tar" : OUTS[k])));
        if (k == 1) must(dt_io_remove_tree(fixture_path("shards/a-1.tar")));
    }
    // renewed in place: by its folder, and by its pattern
    dt_pack_opts o = {.source = folder, .out = shards, .where = "bytes > 1"};
    must_fail(DT_E_USAGE, "pack with --overwrite", dt_data_pack(&o));
    o.overwrite = true;
    for (int k = 0; k < 2; k++) {
        must(dt_data_pack(&o));
        assert_int_equal(fixture_count(shards), 12);
        o.source = shards;
    }
    must(dt_io_remove_tree(folder));
}

// What a folder has that is no sample is told where one might expect it to be one.
TEST(what_is_left_out_is_told) {
    const char *log = fixture_path("left.log");
    uint8_t bmp[4096];
    size_t n = fixture_bmp(bmp, 8, 8, 24, 1);
    fixture_write(fixture_path("left/x/a.bmp"), bmp, n);
    fixture_write(fixture_path("left/x/b.gif"), "GIF89a", 6);
    fixture_write(fixture_path("left/x/c.jxl"), "\0\0\0\fJXL ", 8);
    fixture_write(fixture_path("left/x/README"), "words", 5);
    assert_int_equal(symlink("nowhere.bmp", fixture_path("left/x/d.bmp")), 0);
    assert_int_equal(symlink("e.bmp", fixture_path("left/x/e.bmp")), 0); // itself
    assert_int_equal(symlink("nowhere", fixture_path("left/x/latest")), 0);
    assert_int_equal(symlink("a.bmp", fixture_path("left/x/z.bmp")), 0);
    must(dt_log_open(log));
    fixture_pack(fixture_path("left"), fixture_path("left.lmdb"));
    dt_log_close();
    char *text = fixture_read(log, &n);
    if (!strstr(text, "left out: 1 no samples (x/README), 2 of kinds that are not read (x/b.gif; "
                      "gif: ") ||
        !strstr(text, "; jxl: ") || !strstr(text, ", 3 links that lead to no file (x/d.bmp)") ||
        !strstr(text, "packed 2 records"))
        fail_msg("%s", text);
    free(text);
    fixture_write(fixture_path("left/x/s.wav"),
                  "RIFF\46\0\0\0WAVEfmt \20\0\0\0\1\0\1\0@\37\0\0"
                  "\200>\0\0\2\0\20\0data\2\0\0\0\0\1",
                  46);
    dt_pack_opts o = {
        .source = fixture_path("left"), .out = fixture_path("long.lmdb"), .segment_s = 1, .drop_tail = true};
    must(dt_log_open(log));
    must(dt_data_pack(&o));
    dt_log_close();
    text = fixture_read(log, &n);
    if (!strstr(text, "1 of 3 files gave no record (--tail drop), the first is x/s.wav")) fail_msg("%s", text);
    free(text);
}

TEST(one_number_a_pattern) {
    static const char *const OUTS[] = {"x-%d-%d.tar", "x-{}-{}.tar", "x-{0..3}-%06d.tar", "x-%06d-{0..3}.tar"};
    for (size_t i = 0; i < sizeof OUTS / sizeof *OUTS; i++) {
        dt_pack_opts o = {.source = raw, .out = fixture_path(OUTS[i]), .shard_records = 9};
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
        if (!strstr(dt_error_message(), "one number")) fail_msg("%s", dt_error_message());
    }
}

// What a folder is called is no part of the pattern.
TEST(a_folder_with_a_number_in_its_name) {
    static const char *const FOLDERS[] = {"100%", "a%06d", "b{0..1}"};
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        dt_pack_opts o = {.source = raw, .shard_records = 9, .n_threads = 1};
        o.out = dt_arena_printf(&folder_arena, "%s/p-%%06d.tar", fixture_path(FOLDERS[i]));
        must(dt_data_pack(&o));
        assert_true(dt_io_exists(dt_arena_printf(&folder_arena, "%s/p-000000.tar.index", fixture_path(FOLDERS[i]))));
    }
}

TEST(patterns) {
    dt_capture cap[DT_MAX_CAPTURES];
    assert_int_equal(dt_pattern_match("{a}__{b}_{c}.BMP", "x/y/7__M_Left_index.bmp", cap), 3);
    assert_string_equal(cap[0].value, "7");
    assert_string_equal(cap[1].value, "M");
    assert_string_equal(cap[2].value, "Left_index");
    assert_int_equal(dt_pattern_match("{dir}/{n}.jpg", "a/b/3.jpg", cap), 2);
    assert_string_equal(cap[0].value, "b");
    assert_int_equal(dt_pattern_match("{n}.jpg", "a/.jpg", cap), -1);
    assert_int_equal(dt_pattern_match("{n}_{m}.jpg", "a/3.jpg", cap), -1);
    assert_int_equal(dt_pattern_check("{a}{b}"), DT_E_USAGE);
    assert_int_equal(dt_pattern_check("{a"), DT_E_USAGE);
    assert_int_equal(dt_pattern_check("a}"), DT_E_USAGE);
    assert_int_equal(dt_pattern_check("{}"), DT_E_USAGE);
    assert_int_equal(dt_pattern_check("{n}_{n}.jpg"), DT_E_USAGE); // one would be lost
    must(dt_pattern_check("{n}_{nn}.jpg|{n}.jpg"));
}

static int set_up(void **state) {
    folder_make(state);
    raw = fixture_path("raw");
    fixture_biometric(raw, 4, 10);
    return 0;
}

TEST_MAIN(set_up, fixture_tear_down)
