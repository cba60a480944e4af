// Packing: the same bytes each time, the same records in each format, nothing half-made with a final
// name, and what already exists is left alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "data/file/blob.h"
#include "data/file/tar.h"
#include "data/raw/pattern.h"
#include "data/source/source.h"
#include "data_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static const char *raw;

static void assert_same_file(const char *a, const char *b) {
    size_t n_a, n_b;
    void *x = fixture_read(a, &n_a), *y = fixture_read(b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    free(x);
    free(y);
}

static uint64_t fingerprint(const char *path) {
    dt_dataset *d = fixture_open(path, "", 1);
    uint64_t f = d->fingerprint;
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 7 * 7 * 4);
    d->close(d);
    return f;
}

static void the_same_bytes_each_time(void **state) {
    fixture_pack(raw, fixture_path("a.lmdb"));
    fixture_pack(raw, fixture_path("b.lmdb"));
    assert_same_file(fixture_path("a.lmdb/data.mdb"), fixture_path("b.lmdb/data.mdb"));
    assert_same_file(fixture_path("a.lmdb/data.mdb.index"), fixture_path("b.lmdb/data.mdb.index"));
    fixture_pack(raw, fixture_path("a-{00..02}.tar"));
    fixture_pack(raw, fixture_path("b-{00..02}.tar"));
    assert_same_file(fixture_path("a-01.tar"), fixture_path("b-01.tar"));
    assert_same_file(fixture_path("a-02.tar.index"), fixture_path("b-02.tar.index"));
}

static void all_formats_hold_the_same_records(void **state) {
    fixture_pack(raw, fixture_path("one.tar"));
    uint64_t want = fingerprint(fixture_path("a.lmdb"));
    assert_int_equal(fingerprint(fixture_path("one.tar")), want);
    assert_int_equal(fingerprint(fixture_path("a-{00..02}.tar")), want);
}

static void metadata_is_in_the_catalog_and_in_the_records(void **state) {
    const char *path = fixture_path("a.lmdb");
    dt_set *s;
    assert_int_equal(dt_set_open(&s, &path, 1), DT_OK);
    const dt_catalog *c = s->catalog;
    assert_int_equal(c->n_records, 80);
    uint32_t r = 0;
    while (strcmp(dt_catalog_str(c, c->records[r].key), "fingerprint/2/2__M_Right_ring_finger") !=
           0)
        r++;
    static const char *const WANT[][2] = {
        {"subject", "2"}, {"gender", "M"}, {"hand", "Right"}, {"finger", "ring"}};
    for (int i = 0; i < 4; i++)
        assert_string_equal(dt_catalog_value(c, dt_catalog_find_column(c, WANT[i][0]), r),
                            WANT[i][1]);
    assert_null(dt_catalog_value(c, dt_catalog_find_column(c, "n"), r));
    dt_buffer scratch = {0};
    dt_span bytes;
    assert_int_equal(c->records[r].n_members, 2);
    assert_int_equal(dt_set_read(s, r, c->records[r].first_member + 1, true, &scratch, &bytes),
                     DT_OK);
    const char *json = "{\"finger\":\"ring\",\"gender\":\"M\",\"hand\":\"Right\",\"subject\":2}";
    assert_int_equal(bytes.n_bytes, strlen(json));
    assert_memory_equal(bytes.data, json, strlen(json));
    dt_buffer_fini(&scratch);
    dt_set_close(s);
}

// Without its index a set is scanned, and gives the same records without hashes.
static void the_index_may_be_lost(void **state) {
    static const char *const PATHS[] = {"lost.lmdb", "lost.tar"};
    static const char *const INDEXES[] = {"lost.lmdb/data.mdb.index", "lost.tar.index"};
    for (int i = 0; i < 2; i++) {
        const char *path = fixture_path(PATHS[i]);
        fixture_pack(raw, path);
        assert_int_equal(dt_io_unlink(fixture_path(INDEXES[i])), DT_OK);
        dt_set *s;
        assert_int_equal(dt_set_open(&s, &path, 1), DT_OK);
        assert_int_equal(s->catalog->n_records, 80);
        assert_false(s->catalog->members[0].has_hash);
        assert_int_equal(
            s->catalog->columns[dt_catalog_find_column(s->catalog, "subject")].n_values, 4);
        dt_set_close(s);
        assert_int_equal(fingerprint(path) != 0, 1);
    }
}

static void a_damaged_index_or_cut_data_is_an_error(void **state) {
    const char *path = fixture_path("a-01.tar"), *index = fixture_path("a-01.tar.index");
    size_t n, n_data;
    uint8_t *good = fixture_read(index, &n), *data = fixture_read(path, &n_data), *bad = malloc(n);
    dt_set *s;
    for (size_t i = 0; i < n; i += 1 + n / 200) {
        memcpy(bad, good, n);
        bad[i] ^= 0x40;
        fixture_write(index, bad, n);
        assert_int_equal(dt_set_open(&s, &path, 1), DT_E_DATA);
        fixture_write(index, good, i);
        assert_int_equal(dt_set_open(&s, &path, 1), DT_E_DATA);
        assert_non_null(strstr(dt_error_message(), "a-01.tar.index"));
    }
    fixture_write(index, good, n);
    fixture_write(path, data, n_data - 512);
    assert_int_equal(dt_set_open(&s, &path, 1), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "cut"));
    fixture_write(path, data, n_data);
    assert_int_equal(dt_set_open(&s, &path, 1), DT_OK);
    dt_set_close(s);
    free(bad), free(good), free(data);
}

// `tar -r` writes over the zeros at the end; a small member leaves the size as it was.
static void what_tar_appends_is_noticed(void **state) {
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
        assert_int_equal(dt_blob_stamp(&b, &before), DT_OK);
        memcpy(tar + end, "added.txt", 9);
        assert_int_equal(dt_blob_stamp(&b, &after), DT_OK);
        assert_true(before != after);
        free(tar);
    }
    free(data);
}

static void a_missing_shard_is_named(void **state) {
    const char *pattern = fixture_path("a-{00..03}.tar");
    dt_set *s;
    assert_int_equal(dt_set_open(&s, &pattern, 1), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "a-03.tar"));
}

static void what_exists_is_left_alone(void **state) {
    const char *out = fixture_path("keep.lmdb"), *other = fixture_path("raw2");
    fixture_pack(raw, out);
    fixture_pack(raw, out); // the same: done already
    fixture_biometric(other, 2, 3);
    dt_pack_opts o = {.source = other, .out = out};
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "--overwrite"));
    assert_int_equal(fingerprint(out), fingerprint(fixture_path("a.lmdb")));
    o.overwrite = true;
    // a folder with something else in it is not ours to remove
    char *letter = dt_xprintf("%s/letter.txt", out);
    fixture_write(letter, "x", 1);
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "letter.txt"));
    unlink(letter);
    free(letter);
    assert_int_equal(dt_data_pack(&o), DT_OK);
    dt_set *s;
    assert_int_equal(dt_set_open(&s, &out, 1), DT_OK);
    assert_int_equal(s->catalog->n_records, 12);
    dt_set_close(s);
}

// The work of a run with --overwrite that was killed, and a call without it, or for another set's place.
static void what_is_refused_removes_no_work(void **state) {
    static const char *const OUTS[] = {"work.lmdb", "work-{00..01}.tar", "work.tar"};
    static const char *const WORK[] = {"work.lmdb.partial/made-from", "work.tar.partial/made-from",
                                       "work.tar.partial/made-from"};
    const char *other = fixture_path("work-raw");
    fixture_biometric(other, 2, 3);
    for (int k = 0; k < 3; k++) {
        if (k < 2) fixture_pack(raw, fixture_path(OUTS[k]));
        fixture_write(fixture_path(WORK[k]), "work", 4);
        dt_pack_opts o = {.source = other, .out = fixture_path(OUTS[k])};
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
        assert_true(dt_io_exists(fixture_path(WORK[k])));
        o.overwrite = true;
        assert_int_equal(dt_data_pack(&o), k < 2 ? DT_OK : DT_E_USAGE);
        assert_int_equal(dt_io_exists(fixture_path(WORK[k])), k == 2);
    }
}

// Who is told that a set was changed since it was packed, and to pack again, is not told that nothing is to do.
static void what_was_changed_is_not_packed_already(void **state) {
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
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
        assert_non_null(strstr(dt_error_message(), "was changed since"));
        assert_non_null(strstr(dt_error_message(), "--overwrite"));
        o.overwrite = true;
        assert_int_equal(dt_data_pack(&o), DT_OK);
        o.overwrite = false;
        assert_int_equal(dt_data_pack(&o), DT_OK); // done already
        uint8_t *again = fixture_read(file, &n);
        data[512] ^= 1;
        assert_memory_equal(again, data, n);
        free(again);
        free(data);
    }
}

// The data was removed by hand: a catalog and indexes without it keep nobody from packing again.
static void a_catalog_alone_is_replaced(void **state) {
    static const char *const OUTS[] = {"gone.lmdb", "gone-{00..01}.tar"};
    static const char *const DATA[] = {"gone.lmdb/data.mdb", "gone-00.tar", "gone-01.tar"};
    for (int k = 0; k < 2; k++) fixture_pack(raw, fixture_path(OUTS[k]));
    for (int k = 0; k < 3; k++) assert_int_equal(unlink(fixture_path(DATA[k])), 0);
    fixture_biometric(fixture_path("raw3"), 2, 3);
    for (int k = 0; k < 2; k++) {
        dt_pack_opts o = {.source = fixture_path("raw3"), .out = fixture_path(OUTS[k])};
        assert_int_equal(dt_data_pack(&o), DT_OK);
        dt_set *s;
        assert_int_equal(dt_set_open(&s, &o.out, 1), DT_OK);
        assert_int_equal(s->catalog->n_records, 12);
        dt_set_close(s);
    }
    // one shard is left: that is a set that lacks one, and not ours to remove
    assert_int_equal(unlink(fixture_path("gone-00.tar")), 0);
    dt_pack_opts o = {.source = raw, .out = fixture_path(OUTS[1])};
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
}

static bool complete(const char *out);

static void assert_refused(const char *out, const char *words) {
    for (int overwrite = 0; overwrite < 2; overwrite++) {
        dt_pack_opts o = {.source = raw, .out = out, .overwrite = overwrite};
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
        if (!strstr(dt_error_message(), words)) fail_msg("%s", dt_error_message());
        assert_false(dt_io_exists(out));
    }
}

// a.tar and a-%02d.tar have one catalog. It is of the set whose data is there, also under --overwrite.
static void a_catalog_of_another_set_stays(void **state) {
    fixture_pack(raw, fixture_path("twin-{00..01}.tar"));
    assert_refused(fixture_path("twin.tar"), "twin.catalog.sqlite is the catalog of another set");
    assert_false(dt_io_exists(fixture_path("twin.tar.partial")));
    assert_true(complete(fixture_path("twin-{00..01}.tar")));
    fixture_pack(raw, fixture_path("sole.tar"));
    dt_pack_opts many = {.source = raw, .out = fixture_path("sole-%02d.tar"), .overwrite = true};
    assert_int_equal(dt_data_pack(&many), DT_E_USAGE);
    assert_true(complete(fixture_path("sole.tar")));
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
    pid_t pid = fork();
    if (pid == 0) {
        char spec[32];
        snprintf(spec, sizeof spec, "io:%d:kill", kill_at);
        if (kill_at > 0) dt_failpoint_set(spec);
        dt_pack_opts o = renewal(source, out, by_shard);
        _exit(dt_data_pack(&o));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Its source is what it replaces: of a half that was put in place nothing is lost, whoever reads what there is.
static void a_set_renewed_in_place_is_killed_anywhere(void **state) {
    static const char *const SOURCES[] = {"renew/r-*.tar", "renew", "renew/r-{0..1}.tar"};
    const char *out = fixture_path("renew/r-{0..1}.tar");
    const int n_last = 30; // calls that put files in place, and some before
    fixture_pack(raw, out);
    dt_failpoint_set("io:1000000:kill");
    dt_pack_opts whole = renewal(out, out, false);
    assert_int_equal(dt_data_pack(&whole), DT_OK);
    int n_calls = (int)dt_failpoint_count(), n_half = 0;
    dt_failpoint_set(NULL);
    for (int n = n_calls - n_last; n <= n_calls; n++) {
        const char *source = fixture_path(SOURCES[n % 3]);
        assert_int_equal(renew(source, out, false, n), -1);
        n_half += !dt_io_exists(fixture_path("renew/r-0.tar"));
        assert_int_equal(renew(source, out, false, 0), DT_OK);
        if (!complete(out)) fail_msg("killed at %d of %d, from %s", n, n_calls, source);
        assert_false(dt_io_exists(fixture_path("renew/r.tar.partial")));
    }
    assert_true(n_half > 3);
}

// A kill while what was replaced is being removed comes when all is done: the same command does not do it again.
static void a_set_renewed_in_place_is_renewed_once(void **state) {
    static const char *const OUTS[] = {"once/s.lmdb", "once/s-{0..1}.tar"};
    static const char *const FILES[] = {"once/s.lmdb/data.mdb", "once/s-0.tar"};
    const int n_after = 2; // the folder of the work, without anything in it
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]), *copy = fixture_path("renewed-once");
        int n_calls = 0, n_killed = 0;
        for (int n = 0; n == 0 || n <= n_calls - n_after; n += 2) {
            if (n == 2) n = n_calls - n_after - 6;
            assert_int_equal(dt_io_remove_tree(fixture_path("once")), DT_OK);
            fixture_pack(fixture_path("raw2"), out);
            if (n == 0) { // undisturbed, here, where calls are counted
                dt_pack_opts o = renewal(out, out, true);
                dt_failpoint_set("io:1000000:kill");
                assert_int_equal(dt_data_pack(&o), DT_OK);
                n_calls = (int)dt_failpoint_count();
                dt_failpoint_set(NULL);
                assert_int_equal(rename(fixture_path(FILES[k]), copy), 0);
                continue;
            }
            n_killed += renew(out, out, true, n) == -1;
            assert_int_equal(renew(out, out, true, 0), DT_OK);
            assert_same_file(fixture_path(FILES[k]), copy);
        }
        assert_int_equal(n_killed, 4);
    }
}

static const char *in_folder(const char *folder, const char *name) {
    return dt_arena_printf(&fixture_arena, "%s/%s", folder, name);
}

// Kills packs of `name`, each in a folder of its own, until one leaves the catalog in its place and `data` not.
static const char *pack_half(const char *name, const char *catalog, const char *data) {
    dt_pack_opts whole = {.source = raw, .out = in_folder(fixture_path("whole"), name)};
    dt_failpoint_set("io:1000000:kill");
    assert_int_equal(dt_data_pack(&whole), DT_OK);
    int n_calls = (int)dt_failpoint_count();
    dt_failpoint_set(NULL);
    for (int n = n_calls; n > 0; n--) { // places are taken at the end
        const char *folder = dt_arena_printf(&fixture_arena, "%s/%s.%d", fixture_dir, data, n);
        const char *out = in_folder(folder, name);
        pid_t pid = fork();
        if (pid == 0) {
            char spec[32];
            snprintf(spec, sizeof spec, "io:%d:kill", n);
            dt_failpoint_set(spec);
            dt_pack_opts o = {.source = raw, .out = out};
            _exit(dt_data_pack(&o));
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (dt_io_exists(in_folder(folder, catalog)) && !dt_io_exists(in_folder(folder, data)))
            return folder;
    }
    fail();
    return NULL;
}

// A set whose pack was killed between its catalog and its data is one: nobody's catalog looks the same.
static void a_set_that_comes_to_its_place_is_left_alone(void **state) {
    // another folder of unfinished work, and the same one
    static const char *const NAMES[][4] = {
        {"late_.tar", "late_.tar", "late.catalog.sqlite", "late.tar"},
        {"half-{00..01}.tar", "half-00.tar", "half.catalog.sqlite", "half.tar"}};
    static const char *const WORDS[] = {"late_.tar.partial is there",
                                        "holds a set of another name"};
    for (int k = 0; k < 2; k++) {
        const char *folder = pack_half(NAMES[k][0], NAMES[k][2], NAMES[k][1]);
        const char *out = in_folder(folder, NAMES[k][0]);
        assert_refused(in_folder(folder, NAMES[k][3]), WORDS[k]);
        dt_pack_opts o = {.source = raw, .out = out};
        assert_int_equal(dt_data_pack(&o), DT_OK); // goes on
        assert_true(complete(out));
    }
}

// Nobody's, as far as one can see: replaced, and said.
static void what_is_replaced_is_named(void **state) {
    fixture_pack(raw, fixture_path("away.tar"));
    assert_int_equal(unlink(fixture_path("away.tar")), 0);
    fixture_write(fixture_path("dim.catalog.sqlite"), "no catalog", 10);
    dt_pack_opts dim = {.source = raw, .out = fixture_path("dim.tar")};
    assert_int_equal(dt_data_pack(&dim), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "dim.catalog.sqlite: cannot be read"));
    int fd = open(fixture_path("said"), O_RDWR | O_CREAT | O_TRUNC, 0644), old = dup(2);
    dup2(fd, 2);
    dim.overwrite = true;
    dt_status a = dt_data_pack(&dim);
    dt_status b = dt_data_pack(&(dt_pack_opts){.source = raw, .out = fixture_path("away_.tar")});
    dup2(old, 2);
    close(old);
    assert_int_equal(a, DT_OK);
    assert_int_equal(b, DT_OK);
    char text[4096] = "";
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    close(fd);
    assert_non_null(strstr(text, "dim.catalog.sqlite"));
    assert_non_null(strstr(text, "away.catalog.sqlite is replaced"));
    assert_non_null(strstr(text, "the first away.tar, none is there"));
}

// What is in an LMDB's folder and is neither it nor made for it is data: of somebody else.
static void a_strange_index_is_no_companion(void **state) {
    const char *out = fixture_path("strange.lmdb");
    assert_int_equal(dt_io_mkdir(out), DT_OK);
    fixture_write(fixture_path("strange.lmdb/notes.index"), "mine", 4);
    dt_pack_opts o = {.source = raw, .out = out};
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "exists and was made from")); // before any work
    o.overwrite = true;
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    assert_true(dt_io_exists(fixture_path("strange.lmdb/notes.index")));
}

static bool complete(const char *out) {
    dt_set *s;
    if (dt_set_open(&s, &out, 1) != DT_OK) return false;
    bool all = s->catalog->n_records == 80;
    dt_set_close(s);
    return all;
}

// Dies at its n-th write call, for every n: what has a final name is whole, and a second run succeeds.
static void killed_anywhere(void **state) {
    static const char *const OUTS[] = {"kill.lmdb", "kill-{00..01}.tar"};
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]);
        bool finished = false;
        int n_killed = 0;
        for (int n = 1; !finished; n++) {
            pid_t pid = fork();
            if (pid == 0) {
                char spec[32];
                snprintf(spec, sizeof spec, "io:%d:kill", n);
                dt_failpoint_set(spec);
                dt_pack_opts o = {.source = raw, .out = out, .overwrite = true};
                _exit(dt_data_pack(&o));
            }
            int status;
            assert_int_equal(waitpid(pid, &status, 0), pid);
            finished = WIFEXITED(status);
            n_killed += !finished;
            if (finished) assert_int_equal(WEXITSTATUS(status), 0);
            dt_set *s;
            if (dt_set_open(&s, &out, 1) == DT_OK) {
                assert_int_equal(s->catalog->n_records, 80);
                dt_set_close(s);
            }
        }
        assert_true(n_killed > 5);
        assert_true(complete(out));
    }
}

// Each write call fails once: what has its name is the old set or the new one, never half of one; packing
// again goes on, and ends with the bytes of a pack that nothing has disturbed.
static void a_full_disk_is_said_and_leaves_no_half_set(void **state) {
    static const char *const OUTS[] = {"full.lmdb", "full-{00..01}.tar"};
    static const char *const FILES[][2] = {
        {"full.lmdb/data.mdb", "full.lmdb/catalog.sqlite"},
        {"full-01.tar", "full-00.tar.index"},
    };
    static const char *const GOOD[][2] = {{"a.lmdb/data.mdb", "a.lmdb/catalog.sqlite"},
                                          {"whole-01.tar", "whole-00.tar.index"}};
    static const char *const ACTIONS[] = {"enospc", "eio", "short"};
    fixture_pack(raw, fixture_path("whole-{00..01}.tar"));
    for (int k = 0; k < 2; k++)
        for (int n = 1, failures = 0;; n++) {
            const char *out = fixture_path(OUTS[k]);
            char *spec = dt_xprintf("io:%d:%s", n, ACTIONS[n % 3]);
            assert_int_equal(dt_failpoint_set(spec), DT_OK);
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
            dt_set *s;
            if (dt_set_open(&s, &out, 1) == DT_OK) {
                assert_int_equal(s->catalog->n_records, 80);
                dt_set_close(s);
            }
            if (st != DT_OK && n % 5 == 0) { // at times it is mended, at times the next is hurt
                dt_status again = dt_data_pack(&o);
                if (again != DT_OK) fail_msg("%s", dt_error_message());
                for (int f = 0; f < 2; f++)
                    assert_same_file(fixture_path(FILES[k][f]), fixture_path(GOOD[k][f]));
            }
            if (n % 5 == 0 || st == DT_OK) assert_true(complete(out));
            assert_true(n < 1000 && (n < 20 || failures > 5));
        }
}

static void classes_come_from_folders(void **state) {
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
    dt_set *s;
    assert_int_equal(dt_set_open(&s, &out, 1), DT_OK);
    const dt_catalog *c = s->catalog;
    assert_int_equal(c->n_records, 12);
    assert_string_equal(dt_catalog_str(c, c->records[0].key), "cardboard/cardboard0");
    assert_string_equal(dt_catalog_value(c, dt_catalog_find_column(c, "label"), 4), "glass");
    assert_int_equal(c->records[0].n_members, 3);
    assert_true(dt_catalog_find_ext(c, "cls") >= 0 && dt_catalog_find_ext(c, "bmp") >= 0);
    dt_set_close(s);
    dt_config *cfg;
    dt_dataset *d;
    char *text = dt_xprintf(
        "run: {name: t}\ndata:\n  path: \"%s\"\n  fields:\n    image: {kind: image, size: [4, 4]}\n"
        "    label: {kind: class, classes: 3}\nmodel: {name: fusion}\n"
        "train: {global_batch: 4, micro_batch: 4}\n",
        out);
    assert_int_equal(dt_config_parse(&cfg, "t.yaml", text, strlen(text), NULL, 0), DT_OK);
    if (dt_data_open(&d, cfg, NULL, 2, NULL) != DT_OK) fail_msg("%s", dt_error_message());
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 12);
    d->close(d);
    dt_config_destroy(cfg);
    free(text);
}

// "a-b" sorts before "a" once an extension follows; a dot in a stem would end its key.
static void awkward_names_keep_one_order(void **state) {
    static const char *const NAMES[] = {"a", "a-b", "a b", "a0", "a.b", "a_"};
    static const char *const OUTS[] = {"awkward.lmdb", "awkward.tar"};
    uint8_t bmp[4096];
    size_t n = fixture_bmp(bmp, 4, 4, 24, 1);
    for (size_t i = 0; i < 6; i++) {
        char *path = dt_xprintf("%s/awkward/c%d/%s.bmp", fixture_dir, i < 3, NAMES[i]);
        fixture_write(path, bmp, n);
        free(path);
    }
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]);
        dt_set *s;
        fixture_pack(fixture_path("awkward"), out);
        assert_int_equal(dt_set_open(&s, &out, 1), DT_OK);
        assert_int_equal(s->catalog->n_records, 6);
        hash[k] = dt_catalog_hash(s->catalog);
        dt_set_close(s);
    }
    assert_int_equal(hash[0], hash[1]);
}

// An output in the folder that is packed is not what is packed, and other sets in it are not taken for it.
static void a_set_beside_its_files(void **state) {
    const char *folder = fixture_path("beside");
    static const char *const OUTS[] = {"beside/a.tar", "beside/a-{0..1}.tar", "beside/a.lmdb"};
    fixture_write(fixture_path("beside/c/1.pgm"), "P5 1 1 255 a", 12);
    for (size_t k = 0; k < sizeof OUTS / sizeof *OUTS; k++) {
        dt_pack_opts o = {.source = folder, .out = fixture_path(OUTS[k]), .overwrite = false};
        const char *now = fixture_path(k == 1 ? "beside/a-0.tar" : OUTS[k]);
        assert_int_equal(dt_data_pack(&o), DT_OK);
        assert_int_equal(dt_data_pack(&o), DT_OK); // nothing to do
        fixture_write(fixture_path(k == 0   ? "beside/c/2.pgm"
                                   : k == 1 ? "beside/d/3.pgm"
                                            : "beside/d/4.pgm"),
                      "P5 1 1 255 b", 12);
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE); // of other files
        o.overwrite = true;
        assert_int_equal(dt_data_pack(&o), DT_OK);
        o.out = fixture_path("elsewhere.tar");
        assert_int_equal(dt_data_pack(&o), DT_E_DATA);
        assert_non_null(strstr(dt_error_message(), "holds a set"));
        assert_non_null(strstr(dt_error_message(), now));
        assert_int_equal(dt_io_remove_tree(now), DT_OK);
        if (k == 1) assert_int_equal(dt_io_remove_tree(fixture_path("beside/a-1.tar")), DT_OK);
    }
    assert_int_equal(dt_io_remove_tree(folder), DT_OK);
}

static uint32_t count_records(const char *path) {
    dt_set *s;
    if (dt_set_open(&s, &path, 1) != DT_OK) fail_msg("%s", dt_error_message());
    uint32_t n = s->catalog->n_records;
    dt_set_close(s);
    return n;
}

// New files below a folder with an old set of it: packed under another name they are no part that is not looked at.
static void a_set_above_its_files(void **state) {
    const char *folder = fixture_path("above"), *set = fixture_path("above/a.tar");
    fixture_write(fixture_path("above/b/c/d/1.pgm"), "P5 1 1 255 a", 12);
    fixture_pack(folder, set);
    fixture_write(fixture_path("above/b/c/d/2.pgm"), "P5 1 1 255 b", 12);
    assert_int_equal(symlink("..", fixture_path("above/b/up")), 0); // no way to go on for ever
    dt_pack_opts o = {.source = folder, .out = fixture_path("above.lmdb")};
    assert_int_equal(dt_data_pack(&o), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "above/a.tar) and other data ("));
    assert_non_null(strstr(dt_error_message(), "above/b/c/d/1.pgm)"));
    o.source = set;
    assert_int_equal(dt_data_pack(&o), DT_OK);
}

// The same of a folder that is a set.
static void a_set_beside_its_shards(void **state) {
    const char *folder = fixture_path("shards"), *shards = fixture_path("shards/s-{0..2}.tar");
    static const char *const OUTS[] = {"shards/a.tar", "shards/a-{0..1}.tar", "shards/a.lmdb"};
    fixture_biometric(fixture_path("shards-raw"), 2, 3);
    assert_int_equal(dt_io_mkdir_all(folder), DT_OK);
    fixture_pack(fixture_path("shards-raw"), shards);
    for (size_t k = 0; k < sizeof OUTS / sizeof *OUTS; k++) {
        dt_pack_opts o = {.source = folder, .out = fixture_path(OUTS[k]), .key_by_shard = k == 1};
        for (int run = 0; run < 3; run++) {
            o.overwrite = run == 2;
            if (dt_data_pack(&o) != DT_OK) fail_msg("%s", dt_error_message());
            assert_int_equal(count_records(o.out), 12);
        }
        assert_int_equal(dt_io_remove_tree(fixture_path(k == 1 ? "shards/a-0.tar" : OUTS[k])),
                         DT_OK);
        if (k == 1) assert_int_equal(dt_io_remove_tree(fixture_path("shards/a-1.tar")), DT_OK);
    }
    // renewed in place: by its folder, and by its pattern
    dt_pack_opts o = {.source = folder, .out = shards, .where = "bytes > 1"};
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "pack with --overwrite"));
    o.overwrite = true;
    for (int k = 0; k < 2; k++) {
        if (dt_data_pack(&o) != DT_OK) fail_msg("%s", dt_error_message());
        assert_int_equal(count_records(shards), 12);
        o.source = shards;
    }
    assert_int_equal(dt_io_remove_tree(folder), DT_OK);
}

// What a folder has that is no sample is told where one might expect it to be one.
static void what_is_left_out_is_told(void **state) {
    const char *log = fixture_path("left.log");
    uint8_t bmp[4096];
    size_t n = fixture_bmp(bmp, 8, 8, 24, 1);
    fixture_write(fixture_path("left/x/a.bmp"), bmp, n);
    fixture_write(fixture_path("left/x/b.gif"), "GIF89a", 6);
    fixture_write(fixture_path("left/x/c.tiff"), "II*\0", 4);
    fixture_write(fixture_path("left/x/README"), "words", 5);
    assert_int_equal(symlink("nowhere.bmp", fixture_path("left/x/d.bmp")), 0);
    assert_int_equal(symlink("e.bmp", fixture_path("left/x/e.bmp")), 0); // itself
    assert_int_equal(symlink("nowhere", fixture_path("left/x/latest")), 0);
    assert_int_equal(symlink("a.bmp", fixture_path("left/x/z.bmp")), 0);
    assert_int_equal(dt_log_open(log), DT_OK);
    fixture_pack(fixture_path("left"), fixture_path("left.lmdb"));
    dt_log_close();
    char *text = fixture_read(log, &n);
    if (!strstr(text, "2 links lead to no file and were left out, the first is x/d.bmp") ||
        !strstr(text, "packed 2 records") ||
        !strstr(text, "4 files are no samples and were left out, 2 of kinds that are not read (") ||
        !strstr(text, "gif") || !strstr(text, "tif"))
        fail_msg("%s", text);
    free(text);
    fixture_write(fixture_path("left/x/s.wav"),
                  "RIFF\46\0\0\0WAVEfmt \20\0\0\0\1\0\1\0@\37\0\0"
                  "\200>\0\0\2\0\20\0data\2\0\0\0\0\1",
                  46);
    dt_pack_opts o = {.source = fixture_path("left"),
                      .out = fixture_path("long.lmdb"),
                      .segment_s = 1,
                      .drop_tail = true};
    assert_int_equal(dt_log_open(log), DT_OK);
    if (dt_data_pack(&o) != DT_OK) fail_msg("%s", dt_error_message());
    dt_log_close();
    text = fixture_read(log, &n);
    if (!strstr(text, "1 of 3 files gave no record (--tail drop), the first is x/s.wav"))
        fail_msg("%s", text);
    free(text);
}

static void one_number_a_pattern(void **state) {
    static const char *const OUTS[] = {"x-%d-%d.tar", "x-{}-{}.tar", "x-{0..3}-%06d.tar",
                                       "x-%06d-{0..3}.tar"};
    for (size_t i = 0; i < sizeof OUTS / sizeof *OUTS; i++) {
        dt_pack_opts o = {.source = raw, .out = fixture_path(OUTS[i]), .shard_records = 9};
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
        if (!strstr(dt_error_message(), "one number")) fail_msg("%s", dt_error_message());
    }
}

// A set of any tool that is cut into fewer shards in its own place: those that stay would repeat its records.
static void a_set_is_replaced_as_a_whole(void **state) {
    const char *folder = fixture_path("fewer"), *few = fixture_path("fewer/w-{0..1}.tar");
    fixture_pack(fixture_path("raw2"), fixture_path("fewer/w-{0..2}.tar"));
    assert_int_equal(dt_io_unlink(fixture_path("fewer/w.catalog.sqlite")), DT_OK);
    const char *const SOURCES[] = {folder, fixture_path("fewer/w-*.tar")};
    for (int k = 0; k < 2; k++) {
        dt_pack_opts o = renewal(SOURCES[k], few, false);
        if (dt_data_pack(&o) != DT_E_USAGE) fail_msg("%s", dt_error_message());
        assert_non_null(strstr(dt_error_message(), "fewer/w-2.tar is of what it is made of"));
        assert_int_equal(count_records(folder), 12);
    }
    dt_pack_opts o = renewal(folder, fixture_path("fewer/w-%d.tar"), false);
    assert_int_equal(dt_data_pack(&o), DT_OK);
    assert_int_equal(count_records(folder), 12);
}

// What a folder is called is no part of the pattern: catalog and unfinished work are named by the file.
static void a_folder_with_a_number_in_its_name(void **state) {
    static const char *const FOLDERS[] = {"100%", "a%06d", "b{0..1}"};
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        dt_pack_opts o = {.source = fixture_path("raw2"), .shard_records = 9, .n_threads = 1};
        o.out = dt_arena_printf(&fixture_arena, "%s/p-%%06d.tar", fixture_path(FOLDERS[i]));
        if (dt_data_pack(&o) != DT_OK) fail_msg("%s", dt_error_message());
        assert_true(dt_io_exists(
            dt_arena_printf(&fixture_arena, "%s/p.catalog.sqlite", fixture_path(FOLDERS[i]))));
    }
}

static void patterns(void **state) {
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
    assert_int_equal(dt_pattern_check("{n}_{nn}.jpg|{n}.jpg"), DT_OK);
}

static int set_up(void **state) {
    fixture_begin();
    raw = fixture_path("raw");
    fixture_biometric(raw, 4, 10);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_each_time),
        cmocka_unit_test(all_formats_hold_the_same_records),
        cmocka_unit_test(metadata_is_in_the_catalog_and_in_the_records),
        cmocka_unit_test(the_index_may_be_lost),
        cmocka_unit_test(a_damaged_index_or_cut_data_is_an_error),
        cmocka_unit_test(what_tar_appends_is_noticed),
        cmocka_unit_test(a_missing_shard_is_named),
        cmocka_unit_test(what_exists_is_left_alone),
        cmocka_unit_test(what_is_refused_removes_no_work),
        cmocka_unit_test(what_was_changed_is_not_packed_already),
        cmocka_unit_test(a_catalog_alone_is_replaced),
        cmocka_unit_test(a_catalog_of_another_set_stays),
        cmocka_unit_test(a_set_that_comes_to_its_place_is_left_alone),
        cmocka_unit_test(what_is_replaced_is_named),
        cmocka_unit_test(a_strange_index_is_no_companion),
        cmocka_unit_test(killed_anywhere),
        cmocka_unit_test(a_full_disk_is_said_and_leaves_no_half_set),
        cmocka_unit_test(classes_come_from_folders),
        cmocka_unit_test(awkward_names_keep_one_order),
        cmocka_unit_test(a_set_beside_its_files),
        cmocka_unit_test(a_set_above_its_files),
        cmocka_unit_test(a_set_beside_its_shards),
        cmocka_unit_test(a_set_renewed_in_place_is_killed_anywhere),
        cmocka_unit_test(a_set_renewed_in_place_is_renewed_once),
        cmocka_unit_test(what_is_left_out_is_told),
        cmocka_unit_test(one_number_a_pattern),
        cmocka_unit_test(a_folder_with_a_number_in_its_name),
        cmocka_unit_test(a_set_is_replaced_as_a_whole),
        cmocka_unit_test(patterns),
    };
    return cmocka_run_group_tests(tests, set_up, fixture_tear_down);
}
