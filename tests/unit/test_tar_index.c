// Indexes of other programs beside tars: the same rows as by walking, and left aside when they are not of
// the tar; lists of shards.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/file/tar.h"
#include "data/source/source.h"
#include "data/source/tar_index.h"
#include "data_fixture.h"

static dt_buffer tar_bytes, dali, energon;

static void put_member(const char *name, const char *text, bool in_index, bool first, bool names) {
    uint8_t header[DT_TAR_MAX_HEADER];
    static const uint8_t zeros[512];
    size_t n_header, n = strlen(text);
    if (first) {
        uint64_t at = tar_bytes.n_bytes;
        dt_buffer_append(&energon, &at, sizeof at);
    }
    assert_int_equal(dt_tar_write_header(header, &n_header, name, n), DT_OK);
    dt_buffer_append(&tar_bytes, header, n_header);
    if (in_index) {
        const char *ext = strchr(strrchr(name, '/'), '.') + 1;
        char *line =
            names
                ? dt_xprintf("%s%s %zu %zu %s", first ? "\n" : " ", ext, tar_bytes.n_bytes, n, name)
                : dt_xprintf("%s%s %zu %zu", first ? "\n" : " ", ext, tar_bytes.n_bytes, n);
        dt_buffer_append(&dali, line, strlen(line));
        free(line);
    }
    dt_buffer_append(&tar_bytes, text, n);
    dt_buffer_append(&tar_bytes, zeros, (size_t)(dt_tar_padded(n) - n));
}

enum { LONG = 1, EXTRA = 2, ONE_LONG = 4 };

// n records d/<i>.txt + .cls; with LONG names that need PAX (ONE_LONG: of the middle record), with EXTRA a
// record that the index lacks.
static void make(int n, const char *version, int with) {
    static const uint8_t end[1024];
    char name[400], text[64], deep[200];
    memset(deep, 'q', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    tar_bytes.n_bytes = dali.n_bytes = energon.n_bytes = 0;
    snprintf(text, sizeof text, "%s %d", version, n);
    dt_buffer_append(&dali, text, strlen(text));
    bool names = strcmp(version, "v1.1") != 0;
    for (int i = 0; i < n + ((with & EXTRA) != 0); i++) {
        const char *more = with & LONG || (with & ONE_LONG && i == n / 2) ? deep : "";
        snprintf(text, sizeof text, "text %d", i);
        snprintf(name, sizeof name, "d/%s%d.txt", more, i);
        put_member(name, text, i < n, true, names);
        snprintf(name, sizeof name, "d/%s%d.cls", more, i);
        snprintf(text, sizeof text, "%d", i % 5);
        put_member(name, text, i < n, false, names);
    }
    uint64_t at = tar_bytes.n_bytes;
    dt_buffer_append(&energon, &at, sizeof at);
    dt_buffer_append(&dali, "\n", 1);
    dt_buffer_append(&tar_bytes, end, sizeof end);
}

static const char *write_set(const char *folder) {
    const char *tar = dt_arena_printf(&fixture_arena, "%s/%s/a.v2.tar", fixture_dir, folder);
    fixture_write(tar, tar_bytes.data, tar_bytes.n_bytes);
    return tar;
}

static void write_index(const char *tar, const char *name, const dt_buffer *b) {
    char *path = dt_xprintf("%.*s%s", (int)(strrchr(tar, '/') - tar) + 1, tar, name);
    fixture_write(path, b->data, b->n_bytes);
    free(path);
}

// The catalog's hash, and whether the index beside it was used.
static uint64_t scan(const char *tar, bool *used, uint32_t *n) {
    dt_blob b;
    assert_int_equal(dt_blob_open(&b, tar), DT_OK);
    dt_scan s = {.c = dt_catalog_create(), .blob = &b};
    uint32_t shard = dt_catalog_add_shard(s.c, tar, b.n_bytes);
    if (dt_tar_index_load(&s, shard, used) != DT_OK) fail_msg("%s", dt_error_message());
    if (!*used) {
        assert_int_equal(s.c->n_records, 0);
        dt_catalog_destroy(s.c);
        s.c = dt_catalog_create();
        if (dt_format_tar.scan(&s) != DT_OK) fail_msg("%s", dt_error_message());
    }
    dt_catalog_finish(s.c);
    uint64_t hash = dt_catalog_hash(s.c);
    *n = s.c->n_records;
    assert_true(dt_catalog_find_column(s.c, "cls") >= 0);
    dt_catalog_destroy(s.c);
    dt_blob_close(&b);
    return hash;
}

static void the_same_rows_as_by_walking(void **state) {
    static const char *const VERSIONS[] = {"v1.2", "v1.1"};
    for (int v = 0; v < 2; v++)
        for (int with = 0; with <= LONG; with++)
            for (int variant = 0; variant < 2; variant++) {
                char folder[40];
                bool used;
                uint32_t n;
                snprintf(folder, sizeof folder, "f%d%d%d", v, with, variant);
                make(100, VERSIONS[v], with);
                const char *tar = write_set(folder);
                uint64_t want = scan(tar, &used, &n);
                assert_false(used);
                write_index(tar, variant ? "a.v2.idx" : "a.idx", &dali);
                uint64_t got = scan(tar, &used, &n);
                assert_int_equal(used, !(v == 1 && with)); // v1.1 cannot know long names
                assert_int_equal(n, 100);
                assert_true(got == want);
            }
}

static void an_index_of_another_tar_is_left_aside(void **state) {
    bool used;
    uint32_t n;
    make(100, "v1.2", 0);
    dt_buffer old = dali;
    dali = (dt_buffer){0};
    // another number of records, one more, other sizes
    static const struct { int n, with; } CASES[] = {{90, 0}, {110, 0}, {100, EXTRA}, {100, LONG}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        make(CASES[i].n, "v1.2", CASES[i].with);
        const char *tar = write_set("other");
        if (CASES[i].with != EXTRA)
            dali.n_bytes = 0, dt_buffer_append(&dali, old.data, old.n_bytes);
        write_index(tar, "a.idx", &dali);
        scan(tar, &used, &n);
        assert_false(used);
        assert_int_equal(n, CASES[i].n + (CASES[i].with == EXTRA));
    }
    dt_buffer_fini(&old);
}

// What DALI's tools/wds2idx.py (commit 0aa2ef5, with GNU tar 1.34) wrote beside the tars of make(4, "v1.2", 0)
// and make(4, "v1.2", ONE_LONG), written to a file and given to it. In the second the two members before
// those with PAX records are placed too late, so that it must not be believed.
static void the_tool_of_dali(void **state) {
    static const char PLAIN[] = "v1.2 4\n"
                                "txt 512 6 d/0.txt cls 1536 1 d/0.cls\n"
                                "txt 2560 6 d/1.txt cls 3584 1 d/1.cls\n"
                                "txt 4608 6 d/2.txt cls 5632 1 d/2.cls\n"
                                "txt 6656 6 d/3.txt cls 7680 1 d/3.cls\n";
    static const char ONE_IS_LONG[] =
        "v1.2 4\n"
        "txt 512 6 d/0.txt cls 1536 1 d/0.cls\n"
        "txt 2560 6 d/1.txt cls 4608 1 d/1.cls\n"
        "txt 6656 6 "
        "d/qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
        "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
        "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq2.txt cls 7680 1 "
        "d/qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
        "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
        "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq2.cls\n"
        "txt 8704 6 d/3.txt cls 9728 1 d/3.cls\n";
    bool used;
    uint32_t n;
    make(4, "v1.2", 0);
    const char *tar = write_set("tool");
    uint64_t want = scan(tar, &used, &n);
    dali.n_bytes = 0, dt_buffer_append(&dali, PLAIN, sizeof PLAIN - 1);
    write_index(tar, "a.idx", &dali);
    assert_true(scan(tar, &used, &n) == want);
    assert_true(used);
    assert_int_equal(n, 4);
    make(4, "v1.2", ONE_LONG);
    write_set("tool");
    dali.n_bytes = 0, dt_buffer_append(&dali, ONE_IS_LONG, sizeof ONE_IS_LONG - 1);
    write_index(tar, "a.idx", &dali);
    scan(tar, &used, &n);
    assert_false(used);
    assert_int_equal(n, 4);
}

// The same mistake among so many members that looking at some would not find it: 199 are right.
static void one_wrong_place_among_many(void **state) {
    bool used;
    uint32_t n;
    make(100, "v1.2", 0);
    dali.n_bytes = 0;
    char *line = dt_xprintf("v1.2 100");
    for (int i = 0; i < 200; i++) {
        dt_buffer_append(&dali, line, strlen(line));
        free(line);
        line = dt_xprintf("%s%s %d %d d/%d.%s", i % 2 ? " " : "\n", i % 2 ? "cls" : "txt",
                          512 + i * 1024 + (i == 101 ? 1024 : 0), i % 2 ? 1 : 6 + (i >= 20), i / 2,
                          i % 2 ? "cls" : "txt");
    }
    dt_buffer_append(&dali, line, strlen(line));
    free(line);
    dt_buffer_append(&dali, "\n", 1);
    const char *tar = write_set("many");
    write_index(tar, "a.idx", &dali);
    scan(tar, &used, &n);
    assert_false(used);
    assert_int_equal(n, 100);
}

static dt_status no_visit(void *arg, bool first, const char *ext, uint64_t offset, uint64_t size,
                          const char *name) {
    return DT_OK;
}

static void texts_that_are_no_index(void **state) {
    static const char *const BAD[] = {"",
                                      "v1.2",
                                      "v1.3 0\n",
                                      "v1.2 1\n",
                                      "v1.2 1\njpg 512 10\n",
                                      "v1.2 1\njpg 512 10 a b\n",
                                      "v1.2 1\njpg 500 10 a\n",
                                      "v1.2 1\njpg 512 9999 a\n",
                                      "v1.2 1\njpg 0 10 a\n",
                                      "v1.2 1\njpg -512 10 a\n",
                                      "v1.2 1\njpg 512 99999999999999999999 a\n",
                                      "v1.2 1\n\njpg 512 10 a\n",
                                      "v1.2 1 x\njpg 512 10 a\n"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        if (dt_dali_parse("x.idx", BAD[i], strlen(BAD[i]), 2000, no_visit, NULL) != DT_E_DATA)
            fail_msg("accepted: %s", BAD[i]);
    static const char *const GOOD[] = {"v1.2 0\n", "v1.2 0", "v1.2 1\njpg 512 10 a",
                                       "v1.1 1\njpg 512 10 cls 1024 1\n"};
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++)
        if (dt_dali_parse("x.idx", GOOD[i], strlen(GOOD[i]), 2000, no_visit, NULL) != DT_OK)
            fail_msg("%s", dt_error_message());
}

static void an_energon_index_disturbs_nothing(void **state) {
    bool used;
    uint32_t n;
    make(20, "v1.2", 0);
    const char *tar = write_set("energon");
    write_index(tar, "a.v2.tar.idx", &energon);
    scan(tar, &used, &n);
    assert_false(used);
    assert_int_equal(n, 20);
    energon.n_bytes -= 8; // warns
    write_index(tar, "a.v2.tar.idx", &energon);
    scan(tar, &used, &n);
    assert_int_equal(n, 20);
}

// ---- lists -----------------------------------------------------------------------------------------
static dt_status open_list(dt_set **s, const char *text) {
    const char *path = fixture_path("lists/set.json");
    fixture_write(path, text, strlen(text));
    return dt_set_open(s, &path, 1);
}

static void wids_lists(void **state) {
    dt_set *s = NULL;
    make(3, "v1.2", 0);
    write_set("lists/x"), write_set("lists/y");
    const char *good =
        "{\"wids_version\": 1, \"shardlist\": [{\"url\": \"x/a.v2.tar\", \"nsamples\": "
        "3}, {\"url\": \"file:y/a.v2.tar\", \"nsamples\": 3}]}";
    if (open_list(&s, good) != DT_OK) fail_msg("%s", dt_error_message());
    assert_int_equal(s->catalog->n_records, 6);
    assert_int_equal(dt_catalog_find_column(s->catalog, "set"), -1);
    dt_set_close(s);
    const char *sets = "{\"wids_version\": 1, \"datasets\": [{\"name\": \"one\", \"base\": \"x\", "
                       "\"shardlist\": [{\"url\": \"a.v2.tar\", \"nsamples\": 3}]}, {\"name\": "
                       "\"two\", \"shardlist\": [{\"url\": \"y/a.v2.tar\", \"nsamples\": 4}]}]}";
    if (open_list(&s, sets) != DT_OK) fail_msg("%s", dt_error_message());
    int set = dt_catalog_find_column(s->catalog, "set");
    assert_string_equal(dt_catalog_value(s->catalog, set, 0), "one");
    assert_string_equal(dt_catalog_value(s->catalog, set, 5), "two");
    dt_set_close(s);
    assert_int_equal(open_list(&s, "{\"shardlist\": [{\"url\": \"http://a/b.tar\"}]}"), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "not a local file"));
    assert_int_equal(open_list(&s, "{\"shardlist\": [{\"url\": \"z.tar\"}]}"), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "not there"));
    assert_int_equal(open_list(&s, "{\"a\": 1}"), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "lists no shards"));
    assert_int_equal(open_list(&s, "[1,"), DT_E_DATA);
    assert_non_null(strstr(dt_error_message(), "not JSON"));
}

static int end(void **state) {
    dt_buffer_fini(&tar_bytes);
    dt_buffer_fini(&dali);
    dt_buffer_fini(&energon);
    fixture_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_rows_as_by_walking),
        cmocka_unit_test(an_index_of_another_tar_is_left_aside),
        cmocka_unit_test(the_tool_of_dali),
        cmocka_unit_test(one_wrong_place_among_many),
        cmocka_unit_test(texts_that_are_no_index),
        cmocka_unit_test(an_energon_index_disturbs_nothing),
        cmocka_unit_test(wids_lists),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, end);
}
