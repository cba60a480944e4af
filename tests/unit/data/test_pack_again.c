// Packing where something is already: what exists is left alone or replaced as a whole, a set may be renewed in its own
// place, and who is killed meanwhile loses nothing.
#include "data_fixture.h"
#include "testing.h"

#include <unistd.h>

static const char *raw, *small; // of 80 records and of 12

TEST(what_exists_is_left_alone) {
    const char *out = fixture_path("keep.lmdb");
    fixture_pack(raw, out);
    fixture_pack(raw, out); // the same: done already
    dt_pack_opts o = {.source = small, .out = out};
    must_fail(DT_E_USAGE, "--overwrite", dt_data_pack(&o));
    assert_int_equal(fixture_count(out), 80);
    o.overwrite = true;
    // what else lies in the folder is not ours to remove
    fixture_write(fixture_path("keep.lmdb/letter.txt"), "x", 1);
    must(dt_data_pack(&o));
    assert_int_equal(fixture_count(out), 12);
    assert_true(dt_io_exists(fixture_path("keep.lmdb/letter.txt")));
    fixture_write(fixture_path("file.lmdb"), "x", 1);
    o.out = fixture_path("file.lmdb");
    must_fail(DT_E_USAGE, "is no folder", dt_data_pack(&o));
}

// The work of a run with --overwrite that was killed, and a call without it.
TEST(what_is_refused_removes_no_work) {
    static const char *const OUTS[] = {"work.lmdb", "work-{00..01}.tar"};
    static const char *const WORK[] = {"work.lmdb.partial/made-from", "work.tar.partial/made-from"};
    for (int k = 0; k < 2; k++) {
        fixture_pack(raw, fixture_path(OUTS[k]));
        fixture_write(fixture_path(WORK[k]), "work", 4);
        dt_pack_opts o = {.source = small, .out = fixture_path(OUTS[k])};
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
        assert_true(dt_io_exists(fixture_path(WORK[k])));
        o.overwrite = true;
        must(dt_data_pack(&o));
        assert_false(dt_io_exists(fixture_path(WORK[k])));
    }
}

// Who is told that a set was changed since it was packed, and to pack again, is not told that nothing is to do.
// A folder of the name that work has, in which somebody else's files lie, or which is a link to such a folder.
TEST(work_that_pack_did_not_make_is_refused) {
    static const struct {
        const char *work, *file, *link; // what lies there; a link to the folder theirs/
        const char *says;
    } CASES[] = {
        {"a.tar.partial", "mine/notes.txt", NULL, "mine is in it"},
        {"a.tar.partial", "notes.txt", NULL, "notes.txt is in it"},
        {"a.tar.partial", "rows-0/notes.txt", NULL, "rows-0 is in it"},
        {"a.tar.partial", "set/a.csv", NULL, "a.csv is in it"},
        {"a.tar.partial", "set/b.tar", NULL, "b.tar is in it"},
        {"a.tar.partial", "old/a.tar/notes.txt", NULL, "a.tar is in it"},
        {"a.lmdb.partial", "set/a.tar", NULL, "a.tar is in it"},
        {"a.lmdb.partial", NULL, "a.lmdb.partial", "is a link"},
        {"a.lmdb.partial", NULL, "a.lmdb.partial/set", "set is in it"},
        {"a.lmdb.partial", NULL, "a.lmdb.partial/rows-0", "rows-0 is in it"},
    };
    const char *theirs = fixture_path("theirs");
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char *work = dt_xstrdup(fixture_path(CASES[i].work)), *file = NULL;
        char *out = dt_xprintf("%.*s", (int)(strlen(work) - strlen(".partial")), work);
        char *claim = dt_xprintf("%s/made-from", CASES[i].link ? theirs : work);
        fixture_write(fixture_path("theirs/set/data.mdb"), "theirs", 6);
        fixture_write(fixture_path("theirs/data.mdb"), "theirs", 6);
        fixture_write(claim, "x", 1);
        if (CASES[i].file) file = dt_xprintf("%s/%s", work, CASES[i].file);
        if (file) fixture_write(file, "theirs", 6);
        if (CASES[i].link && strcmp(CASES[i].link, CASES[i].work) != 0) {
            char *own = dt_xprintf("%s/made-from", work);
            fixture_write(own, "x", 1);
            free(own);
        }
        if (CASES[i].link) assert_int_equal(symlink(theirs, fixture_path(CASES[i].link)), 0);
        dt_pack_opts o = {.source = small, .out = out};
        must_fail(DT_E_USAGE, CASES[i].says, dt_data_pack(&o));
        assert_true(dt_io_exists(file ? file : fixture_path("theirs/set/data.mdb")));
        assert_true(dt_io_exists(fixture_path("theirs/data.mdb")));
        assert_true(dt_io_exists(claim));
        assert_false(dt_io_exists(out));
        must(dt_io_remove_tree(work));
        must(dt_io_remove_tree(theirs));
        free(work), free(out), free(claim), free(file);
    }
    // what a kill before made-from leaves
    fixture_write(fixture_path("a.lmdb.partial/lock"), "", 0);
    fixture_write(fixture_path("a.lmdb.partial/made-from.tmp.77"), "x", 1);
    must(dt_io_mkdir(fixture_path("a.lmdb.partial/set")));
    fixture_pack(small, fixture_path("a.lmdb"));
    assert_false(dt_io_exists(fixture_path("a.lmdb.partial")));
    fixture_write(fixture_path("b.lmdb.partial/rows-0"), "theirs", 6); // without made-from
    dt_pack_opts o = {.source = small, .out = fixture_path("b.lmdb")};
    must_fail(DT_E_USAGE, "rows-0 is in it", dt_data_pack(&o));
    assert_true(dt_io_exists(fixture_path("b.lmdb.partial/rows-0")));
}

TEST(what_was_changed_is_not_packed_already) {
    static const char *const OUTS[] = {"hurt.tar", "hurt.lmdb"};
    static const char *const FILES[] = {"hurt.tar", "hurt.lmdb/data.mdb"};
    for (int k = 0; k < 2; k++) {
        const char *file = fixture_path(FILES[k]);
        dt_pack_opts o = {.source = raw, .out = fixture_path(OUTS[k])};
        size_t n;
        fixture_pack(raw, o.out);
        uint8_t *data = fixture_read(file, &n);
        data[512] ^= 1;
        fixture_write(file, data, n);
        must_fail(DT_E_USAGE, "was changed since", dt_data_pack(&o));
        assert_non_null(strstr(dt_error_message(), "--overwrite"));
        o.overwrite = true;
        must(dt_data_pack(&o));
        o.overwrite = false;
        must(dt_data_pack(&o)); // done already
        uint8_t *again = fixture_read(file, &n);
        data[512] ^= 1;
        assert_memory_equal(again, data, n);
        free(again);
        free(data);
    }
}

// The data was removed by hand: indexes without it keep nobody from packing again.
TEST(an_index_alone_is_replaced) {
    static const char *const OUTS[] = {"gone.lmdb", "gone-{00..01}.tar"};
    static const char *const DATA[] = {"gone.lmdb/data.mdb", "gone-00.tar", "gone-01.tar"};
    for (int k = 0; k < 2; k++) fixture_pack(raw, fixture_path(OUTS[k]));
    for (int k = 0; k < 3; k++) assert_int_equal(unlink(fixture_path(DATA[k])), 0);
    for (int k = 0; k < 2; k++) {
        dt_pack_opts o = {.source = small, .out = fixture_path(OUTS[k])};
        must(dt_data_pack(&o));
        assert_int_equal(fixture_count(o.out), 12);
    }
    // one shard is left: that is a set that lacks one, and not ours to remove
    assert_int_equal(unlink(fixture_path("gone-00.tar")), 0);
    dt_pack_opts o = {.source = raw, .out = fixture_path(OUTS[1])};
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
}

// With --key-by-shard, what is done twice shows.
static dt_pack_opts renewal(const char *source, const char *out, bool by_shard) {
    return (dt_pack_opts){.source = source,
                          .out = out,
                          .where = "bytes > 1",
                          .overwrite = true,
                          .key_by_shard = by_shard,
                          .n_threads = 1};
}

static int renew(const char *source, const char *out, bool by_shard, int kill_at) {
    dt_pack_opts o = renewal(source, out, by_shard);
    return fixture_pack_killed(&o, kill_at);
}

// Its source is what it replaces: of a half that was put in place nothing is lost, whoever reads what there is.
TEST(a_set_renewed_in_place_is_killed_anywhere) {
    static const char *const SOURCES[2][3] = {{"renew/r-*.tar", "renew", "renew/r-{0..1}.tar"},
                                              {"renew.lmdb", "renew.lmdb/", "renew.lmdb"}};
    static const char *const OUTS[] = {"renew/r-{0..1}.tar", "renew.lmdb"};
    static const char *const DATA[] = {"renew/r-0.tar", "renew.lmdb/data.mdb"};
    static const char *const WORK[] = {"renew/r.tar.partial", "renew.lmdb.partial"};
    const int n_last = 30; // calls that put files in place, and some before
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]);
        fixture_pack(raw, out);
        dt_pack_opts whole = renewal(out, out, false);
        int n_calls = fixture_pack_counted(&whole), n_half = 0;
        for (int n = n_calls > n_last ? n_calls - n_last : 1; n <= n_calls; n++) {
            const char *source = fixture_path(SOURCES[k][n % 3]);
            assert_int_equal(renew(source, out, false, n), -1);
            n_half += !dt_io_exists(fixture_path(DATA[k]));
            must(renew(source, out, false, 0));
            if (fixture_count(out) != 80) fail_msg("killed at %d of %d, from %s", n, n_calls, source);
            assert_false(dt_io_exists(fixture_path(WORK[k])));
        }
        if (n_half < 2) fail_msg("%s: %d of the kills came while it had no data", out, n_half);
    }
}

// A kill while what was replaced is being removed comes when all is done: the same command does not do it again.
TEST(a_set_renewed_in_place_is_renewed_once) {
    static const char *const OUTS[] = {"once/s.lmdb", "once/s-{0..1}.tar"};
    static const char *const FILES[] = {"once/s.lmdb/data.mdb", "once/s-0.tar"};
    const int n_after = 2; // the folder of the work, without anything in it
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]), *copy = fixture_path("renewed-once");
        int n_calls = 0, n_killed = 0;
        for (int n = 0; n == 0 || n <= n_calls - n_after; n += 2) {
            if (n == 2) n = n_calls - n_after - 6;
            must(dt_io_remove_tree(fixture_path("once")));
            fixture_pack(small, out);
            if (n == 0) { // undisturbed, here, where calls are counted
                dt_pack_opts o = renewal(out, out, true);
                n_calls = fixture_pack_counted(&o);
                assert_int_equal(rename(fixture_path(FILES[k]), copy), 0);
                continue;
            }
            n_killed += renew(out, out, true, n) == -1;
            must(renew(out, out, true, 0));
            fixture_assert_same(fixture_path(FILES[k]), copy);
        }
        assert_int_equal(n_killed, 4);
    }
}

static const char *path_in(const char *folder, const char *name) {
    return dt_arena_printf(&folder_arena, "%s/%s", folder, name);
}

// Kills packs of `name`, each in a folder of its own, until one leaves `index` in its place and `data` not.
static const char *pack_half(const char *name, const char *index, const char *data) {
    dt_pack_opts whole = {.source = raw, .out = path_in(fixture_path("whole"), name)};
    for (int n = fixture_pack_counted(&whole); n > 0; n--) { // places are taken at the end
        const char *folder = in_folder("%s.%d", data, n);
        fixture_pack_killed(&(dt_pack_opts){.source = raw, .out = path_in(folder, name)}, n);
        if (dt_io_exists(path_in(folder, index)) && !dt_io_exists(path_in(folder, data))) return folder;
    }
    fail();
    return NULL;
}

// The folder of unfinished work may be of another dataset, whose pack was killed while it put its files in place.
TEST(a_set_that_comes_to_its_place_is_left_alone) {
    const char *folder = pack_half("half-{00..01}.tar", "half-00.tar.index", "half-00.tar");
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        dt_pack_opts o = {.source = raw, .out = path_in(folder, "half.tar"), .overwrite = overwrite};
        must_fail(DT_E_USAGE, "holds a set of another name", dt_data_pack(&o));
        assert_false(dt_io_exists(o.out));
    }
    dt_pack_opts o = {.source = raw, .out = path_in(folder, "half-{00..01}.tar")};
    must(dt_data_pack(&o)); // goes on
    assert_int_equal(fixture_count(o.out), 80);
}

// A set of any tool that is cut into fewer shards in its own place: those that stay would repeat its records.
TEST(a_set_is_replaced_as_a_whole) {
    const char *folder = fixture_path("fewer"), *few = fixture_path("fewer/w-{0..1}.tar");
    fixture_pack(small, fixture_path("fewer/w-{0..2}.tar"));
    const char *const SOURCES[] = {folder, fixture_path("fewer/w-*.tar")};
    for (int k = 0; k < 2; k++) {
        dt_pack_opts o = renewal(SOURCES[k], few, false);
        if (dt_data_pack(&o) != DT_E_USAGE) fail_msg("%s", dt_error_message());
        assert_non_null(strstr(dt_error_message(), "fewer/w-2.tar is of what it is made of"));
        assert_int_equal(fixture_count(folder), 12);
    }
    dt_pack_opts o = renewal(folder, fixture_path("fewer/w-%d.tar"), false);
    must(dt_data_pack(&o));
    assert_int_equal(fixture_count(folder), 12);
}

static int set_up(void **state) {
    folder_make(state);
    raw = fixture_path("raw");
    small = fixture_path("raw2");
    fixture_biometric(raw, 4, 10);
    fixture_biometric(small, 2, 3);
    return 0;
}

TEST_MAIN(set_up, fixture_tear_down)
