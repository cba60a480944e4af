// Lists of shards (wids).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/file/tar.h"
#include "data/source/source.h"
#include "data_fixture.h"

static dt_buffer tar_bytes;

static void put_member(const char *name, const char *text) {
    uint8_t header[DT_TAR_MAX_HEADER];
    static const uint8_t zeros[512];
    size_t n_header, n = strlen(text);
    assert_int_equal(dt_tar_write_header(header, &n_header, name, n), DT_OK);
    dt_buffer_append(&tar_bytes, header, n_header);
    dt_buffer_append(&tar_bytes, text, n);
    dt_buffer_append(&tar_bytes, zeros, (size_t)(dt_tar_padded(n) - n));
}

// n records d/<i>.txt + .cls.
static void make(int n) {
    static const uint8_t end[1024];
    char name[64], text[64];
    tar_bytes.n_bytes = 0;
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "text %d", i);
        snprintf(name, sizeof name, "d/%d.txt", i);
        put_member(name, text);
        snprintf(name, sizeof name, "d/%d.cls", i);
        snprintf(text, sizeof text, "%d", i % 5);
        put_member(name, text);
    }
    dt_buffer_append(&tar_bytes, end, sizeof end);
}

static void write_set(const char *folder) {
    const char *tar = dt_arena_printf(&fixture_arena, "%s/%s/a.v2.tar", fixture_dir, folder);
    fixture_write(tar, tar_bytes.data, tar_bytes.n_bytes);
}

// ---- lists -----------------------------------------------------------------------------------------
static dt_status open_list(dt_reader **s, const char *text) {
    const char *path = fixture_path("lists/set.json");
    fixture_write(path, text, strlen(text));
    return dt_reader_open(s, &path, 1);
}

static void wids_lists(void **state) {
    dt_reader *s = NULL;
    make(3);
    write_set("lists/x"), write_set("lists/y");
    const char *good =
        "{\"wids_version\": 1, \"shardlist\": [{\"url\": \"x/a.v2.tar\", \"nsamples\": "
        "3}, {\"url\": \"file:y/a.v2.tar\", \"nsamples\": 3}]}";
    if (open_list(&s, good) != DT_OK) fail_msg("%s", dt_error_message());
    assert_int_equal(s->catalog->n_records, 6);
    assert_int_equal(dt_catalog_find_column(s->catalog, "set"), -1);
    dt_reader_close(s);
    const char *sets = "{\"wids_version\": 1, \"datasets\": [{\"name\": \"one\", \"base\": \"x\", "
                       "\"shardlist\": [{\"url\": \"a.v2.tar\", \"nsamples\": 3}]}, {\"name\": "
                       "\"two\", \"shardlist\": [{\"url\": \"y/a.v2.tar\", \"nsamples\": 4}]}]}";
    if (open_list(&s, sets) != DT_OK) fail_msg("%s", dt_error_message());
    int set = dt_catalog_find_column(s->catalog, "set");
    assert_string_equal(dt_catalog_value(s->catalog, set, 0), "one");
    assert_string_equal(dt_catalog_value(s->catalog, set, 5), "two");
    dt_reader_close(s);
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
    fixture_end();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wids_lists),
    };
    return cmocka_run_group_tests(tests, fixture_set_up, end);
}
