// Sets that other programs write (foreign_sets.py), member by member. PYTHON names an interpreter; what
// it has no module for is left out, and without one all is skipped.
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

static const char *name; // of the set, for messages

static void check_member(dt_reader *s, uint32_t r, const char *ext, const char *hex) {
    const dt_record *rec = &s->catalog->records[r];
    int e = fixture_find_ext(s->catalog, ext);
    dt_buffer scratch = {0};
    dt_span b = {0};
    for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++) {
        if (e < 0 || s->catalog->members[m].ext != (uint32_t)e) continue;
        assert_int_equal(s->catalog->members[m].size, strlen(hex) / 2);
        if (*hex && dt_reader_read(s, r, m, true, &scratch, &b) != DT_OK) fail_msg("%s: %s", name, dt_error_message());
        for (size_t i = 0; i < b.n_bytes; i++) {
            char byte[3];
            snprintf(byte, sizeof byte, "%02x", b.data[i]);
            assert_memory_equal(byte, hex + 2 * i, 2);
        }
        dt_buffer_fini(&scratch);
        return;
    }
    fail_msg("%s: record %u has no member %s", name, r, ext);
}

static void check_column(const dt_reader *s, uint32_t r, const char *column, const char *want) {
    int text = dt_catalog_find_column(s->catalog, column);
    int real = dt_catalog_find_real(s->catalog, column);
    if (real >= 0)
        assert_true(dt_catalog_real(s->catalog, real, r) == atof(want));
    else if (text < 0)
        fail_msg("%s: no column %s", name, column);
    else
        assert_string_equal(dt_catalog_value(s->catalog, text, r), want);
}

// The record of `key` at or after *at: keys come in order of records.
static uint32_t find_record(const dt_reader *s, uint32_t *at, const char *key) {
    const dt_catalog *c = s->catalog;
    for (uint32_t r = *at; r < c->n_records; r++)
        if (strcmp(fixture_key(c, r), key) == 0) return *at = r;
    fail_msg("%s: no record %s after record %u", name, key, *at);
    return 0;
}

static void check_set(char *text) {
    dt_reader *s = NULL;
    uint32_t at = 0, last = UINT32_MAX, n_records = 0, n_members = 0;
    dt_status st = DT_OK;
    bool failed = false, columns = false;
    dt_reader_options o = {.cache_dir = fixture_path("cache"), .cache_bytes = 1 << 30};
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char *word[4] = {"", "", "", ""}, *p = line;
        for (int i = 0; i < 4 && p; i++) {
            word[i] = p;
            p = strchr(p, '\t');
            if (p) *p++ = '\0';
        }
        if (strcmp(word[0], "set") == 0) {
            dt_reader_item item = {.path = word[1]};
            st = dt_reader_open_items(&s, &item, 1, &o);
        } else if (strcmp(word[0], "error") == 0) {
            must_fail(DT_E_DATA, word[1], st);
            failed = true;
        } else if (st != DT_OK) {
            fail_msg("%s: %s", name, dt_error_message());
        } else if (strcmp(word[0], "member") == 0) {
            uint32_t r = find_record(s, &at, word[1]);
            n_records += r != last;
            last = r;
            n_members++;
            check_member(s, r, word[2], word[3]);
        } else {
            if (!columns) at = 0; // from the first record again
            columns = true;
            check_column(s, find_record(s, &at, word[1]), word[2], word[3]);
        }
    }
    assert_true(failed || s);
    if (s) assert_int_equal(s->catalog->n_records, n_records);
    if (s) assert_true(s->catalog->n_members >= n_members);
    dt_reader_close(s);
}

TEST(sets_of_other_programs) {
    const char *python = getenv("PYTHON"), *source = getenv("SOURCE");
    char *command = dt_xprintf("'%s' '%s/tests/unit/data/foreign_sets.py' '%s' 2>'%s/log'", python ? python : "python3",
                               source ? source : ".", folder_path, folder_path);
    FILE *p = popen(command, "r");
    char line[200];
    int n = 0;
    while (p && fgets(line, sizeof line, p)) {
        line[strcspn(line, "\n")] = '\0';
        name = line;
        const char *path = in_folder("%s.expect", line);
        size_t size;
        char *text = fixture_read(path, &size);
        check_set(text);
        free(text);
        n++;
    }
    int status = p ? pclose(p) : -1;
    free(command);
    print_message("%d sets\n", n);
    if (status == 127 << 8) { // no such program
        skip();
    }
    assert_int_equal(status, 0);
    assert_true(n >= 3);
}

TEST_MAIN(folder_make, fixture_tear_down)
