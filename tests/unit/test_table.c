// Tables: CSV by RFC 4180 with the line of every mistake, JSON with nested values, and joining them to
// files.
#include "data/raw/raw.h"
#include "data/raw/table.h"
#include "data_fixture.h"
#include "testing.h"

static dt_status parse(dt_table *t, const char *text) {
    return dt_table_parse_csv(t, "t.csv", text, strlen(text), 0);
}

static const char *cell(const dt_table *t, size_t row, const char *column) {
    int c = dt_table_find(t, column);
    assert_true(c >= 0);
    return t->cell[row * t->n_columns + (size_t)c];
}

TEST(quotes_line_ends_and_separators) {
    dt_table t;
    must(parse(&t, "\xef\xbb\xbf"
                   "a,\"b \"\"x\"\"\"\r\n1,\"two\r\nlines, and \"\"more\"\"\"\r\n"
                   "\r\n,last"));
    assert_int_equal(t.n_columns, 2);
    assert_int_equal(t.n_rows, 2);
    assert_string_equal(t.column[1], "b \"x\"");
    assert_string_equal(cell(&t, 0, "b \"x\""), "two\r\nlines, and \"more\"");
    assert_null(cell(&t, 1, "a"));
    assert_string_equal(cell(&t, 1, "b \"x\""), "last");
    assert_int_equal(t.line[0], 2);
    assert_int_equal(t.line[1], 5);
    dt_table_fini(&t);
    must(parse(&t, "a;b,c\n1;2,3\n")); // a comma goes first
    assert_string_equal(t.column[0], "a;b");
    dt_table_fini(&t);
    must(parse(&t, "a;b\n1;2\n"));
    assert_string_equal(cell(&t, 0, "b"), "2");
    dt_table_fini(&t);
    must(parse(&t, "a,b\r1,2\r3,4"));
    assert_int_equal(t.n_rows, 2);
    dt_table_fini(&t);
}

TEST(mistakes_have_lines) {
    static const char *const WRONG[][2] = {
        {"a,b\n1,2\n3\n", "t.csv:3: 1 fields"},
        {"a,b\n1,2,3\n", "t.csv:2: 3 fields"},
        {"a,b\n1,\"x\"y\n", "t.csv:2: text behind a closing quote"},
        {"a,b\n1,2\n3,\"x\ny", "t.csv:3: a quote that is never closed"},
        {"a,a\n1,2\n", "two columns are called 'a'"},
        {"a,\n1,2\n", "column 2 has no name"},
        {"", "empty"},
    };
    dt_table t;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        assert_int_equal(parse(&t, WRONG[i][0]), DT_E_DATA);
        if (!strstr(dt_error_message(), WRONG[i][1]))
            fail_msg("%s: not '%s'", dt_error_message(), WRONG[i][1]);
    }
    assert_int_equal(dt_table_parse_csv(&t, "t.csv", "a,b\n1,\0\n", 8, 0), DT_E_DATA);
}

TEST(json_keeps_and_flattens_what_is_nested) {
    static const char TEXT[] =
        "[{\"name\":\"a\",\"box\":[1,2.5],\"angles\":{\"yaw\":1.5,\"deep\":{\"x\":1}},\"ok\":true},"
        "{\"name\":\"b\",\"box\":[3,4],\"angles\":{\"yaw\":-2},\"tags\":[\"x\",1],\"none\":null}]";
    dt_table t;
    dt_status st = dt_table_parse_json(&t, "t.json", TEXT, strlen(TEXT), false);
    must(st);
    assert_string_equal(cell(&t, 0, "ok"), "true");
    assert_string_equal(cell(&t, 0, "box"), "[1,2.5]");
    assert_int_equal(t.kind[dt_table_find(&t, "box")], DT_TABLE_NESTED);
    assert_string_equal(cell(&t, 0, "box.1"), "2.5");
    assert_string_equal(cell(&t, 1, "angles.yaw"), "-2");
    assert_int_equal(t.kind[dt_table_find(&t, "angles.yaw")], DT_TABLE_FLAT);
    assert_int_equal(dt_table_find(&t, "angles.deep"), -1);
    assert_int_equal(dt_table_find(&t, "tags.0"), -1);
    assert_null(cell(&t, 1, "none"));
    dt_table_fini(&t);
    static const char BY_NAME[] = "{\"a.jpg\":{\"n\":3},\"b.jpg\":{\"n\":4}}";
    must(dt_table_parse_json(&t, "t.json", BY_NAME, strlen(BY_NAME), false));
    assert_string_equal(cell(&t, 1, "name"), "b.jpg");
    assert_string_equal(cell(&t, 1, "n"), "4");
    dt_table_fini(&t);
    assert_int_equal(dt_table_parse_json(&t, "t.json", "[1,", 3, false), DT_E_DATA);
    assert_int_equal(dt_table_parse_json(&t, "t.json", "[]", 2, false), DT_E_DATA);
}

TEST(several_tables_in_one_json_are_told) {
    static const char COCO[] = "{\"info\":{},\"images\":[{\"id\":1,\"file_name\":\"a.jpg\"}],"
                               "\"annotations\":[]}";
    static const char OTHER[] = "{\"rows\":[{\"file\":\"a.jpg\"}]}";
    dt_table t;
    must_fail(DT_E_DATA, "'images' is no row",
              dt_table_parse_json(&t, "t.json", COCO, strlen(COCO), false));
    assert_non_null(strstr(dt_error_message(), "looks like COCO"));
    must_fail(DT_E_DATA, "expected [{\"file_name\": …}",
              dt_table_parse_json(&t, "t.json", OTHER, strlen(OTHER), false));
    assert_null(strstr(dt_error_message(), "COCO"));
}

// ---- joining ------------------------------------------------------------------------------------------
static void write_text(const char *name, const char *text) {
    fixture_write(fixture_path(name), text, strlen(text));
}

static const char *make_files(void) {
    write_text("files/p/a.npy", "1");
    write_text("files/p/b.npy", "22");
    write_text("files/q/c.npy", "333");
    return fixture_path("files");
}

static double number(const dt_raw *r, size_t item, const char *column) {
    for (int i = 0; i < r->n_columns; i++)
        if (strcmp(r->columns[i].name, column) == 0)
            return r->columns[i].number[r->items[item].row];
    fail_msg("no column %s", column);
    return 0;
}

static void expect_json(const dt_raw *r, int i, const char *want) {
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    dt_raw_put_json(r, &r->items[i], &j);
    dt_json_end_object(&j);
    assert_string_equal(j.data, want);
    dt_json_fini(&j);
}

TEST(rows_find_their_files) {
    static const struct {
        const char *text, *on, *used;
    } WAYS[] = {
        {"file,yaw\np/a.npy,1.5\nq/c.npy,-2\n", NULL, "name"},
        {"file,yaw\na.npy,1.5\nc.npy,-2\n", NULL, "name"},
        {"x,yaw\na,1.5\nc,-2\n", NULL, "stem"},
        {"x,yaw\np/a,1.5\nq/c,-2\n", NULL, "key"},
        {"yaw,key\n1.5,p/a\n-2,q/c\n", "key", "key"},
    };
    const char *files = make_files();
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        write_text("join.csv", WAYS[i].text);
        dt_raw_opts o = {.join = fixture_path("join.csv"), .join_on = WAYS[i].on};
        dt_raw r;
        if (dt_raw_list(&r, files, NULL, &o) != DT_OK) fail_msg("%zu: %s", i, dt_error_message());
        assert_string_equal(r.join.on, WAYS[i].used);
        assert_int_equal(r.join.n_with, 2);
        assert_int_equal(r.join.n_without, 1);
        assert_string_equal(r.join.first_without, "p/b.npy");
        assert_true(number(&r, 0, "yaw") == 1.5 && number(&r, 2, "yaw") == -2);
        assert_true(number(&r, 1, "yaw") != number(&r, 1, "yaw"));
        expect_json(&r, 2, "{\"yaw\":-2.0}"); // a number with a point is one again
        dt_raw_fini(&r);
    }
}

TEST(a_join_by_a_column_of_the_names) {
    const char *files = make_files();
    write_text("people.csv", "age,who\n31,p\n40,q\n22,nobody\n");
    dt_raw_opts o = {
        .pattern = "{who}/{n}.npy", .join = fixture_path("people.csv"), .join_on = "who"};
    dt_raw r;
    must(dt_raw_list(&r, files, NULL, &o));
    assert_int_equal(r.join.n_with, 3);
    assert_int_equal(r.join.n_unused, 1);
    assert_non_null(strstr(r.join.first_unused, "nobody"));
    expect_json(&r, 2, "{\"age\":40,\"n\":\"c\",\"who\":\"q\"}");
    dt_raw_fini(&r);
    o.join_strict = true;
    must_fail(DT_E_DATA, "1 rows have no file", dt_raw_list(&r, files, NULL, &o));
    o.join_on = "whom";
    assert_int_equal(dt_raw_list(&r, files, NULL, &o), DT_E_USAGE);
}

// What is written as digits is text, as it may be a name.
TEST(names_of_digits_stay_as_they_are) {
    const char *files = make_files();
    write_text("join.csv", "file,person,plate,mass,hex\n"
                           "a.npy,007,12345678901234567890,1e3,0x10\n"
                           "c.npy,08,1,2,2.5\n");
    dt_raw_opts o = {.join = fixture_path("join.csv")};
    dt_raw r;
    must(dt_raw_list(&r, files, NULL, &o));
    expect_json(&r, 0,
                "{\"hex\":\"0x10\",\"mass\":1000.0,\"person\":\"007\","
                "\"plate\":\"12345678901234567890\"}");
    dt_raw_fini(&r);
}

TEST(joins_that_are_wrong) {
    const char *files = make_files();
    dt_raw_opts o = {.join = fixture_path("join.csv")};
    dt_raw r;
    write_text("join.csv", "file,v\na.npy,1\nb.npy,2\na.npy,3\n");
    must_fail(DT_E_DATA, "join.csv:4: a second row for 'a.npy'", dt_raw_list(&r, files, NULL, &o));
    write_text("files/q/a.npy", "4444");
    write_text("join.csv", "file,v\na.npy,1\n");
    must_fail(DT_E_DATA, "'a.npy' fits p/a.npy and q/a.npy", dt_raw_list(&r, files, NULL, &o));
    unlink(fixture_path("files/q/a.npy"));
    write_text("join.csv", "file,v\nx.npy,1\n");
    must_fail(DT_E_DATA, "no file of", dt_raw_list(&r, files, NULL, &o));
    o.join = fixture_path("missing.csv");
    assert_int_equal(dt_raw_list(&r, files, NULL, &o), DT_E_USAGE);
}

// ---- lists ----------------------------------------------------------------------------------------------
TEST(a_list_names_files_and_says_what_they_are) {
    make_files();
    write_text("files/list.csv", "label,path,x\ncat,p/a.npy,0.5\ndog,./q/c.npy,1\n");
    dt_raw r;
    must(dt_raw_list(&r, fixture_path("files/list.csv"), NULL, NULL));
    assert_int_equal(r.n, 2);
    assert_string_equal(r.items[1].key, "q/c");
    assert_int_equal(r.items[1].size, 3);
    assert_true(number(&r, 1, "x") == 1);
    assert_int_equal(r.items[1].label, -1);
    dt_raw_fini(&r);
    write_text("files/list.txt", "p/a.npy\r\nq/c.npy\n\n");
    must(dt_raw_list(&r, fixture_path("files/list.txt"), NULL, NULL));
    assert_int_equal(r.n, 2);
    assert_int_equal(r.n_classes, 2); // as in a folder
    dt_raw_fini(&r);
    write_text("files/list.txt", "p/a.npy\np/missing.npy\n");
    must_fail(DT_E_DATA, "p/missing.npy",
              dt_raw_list(&r, fixture_path("files/list.txt"), NULL, NULL));
}

TEST(what_is_data_is_told_by_name_or_bytes) {
    uint8_t bmp[4096];
    size_t n = fixture_bmp(bmp, 4, 4, 24, 1);
    fixture_write(fixture_path("mixed/scan001"), bmp, n);
    fixture_write(fixture_path("mixed/picture.raw"), bmp, n);
    write_text("mixed/numbers.txt", "1.5 2\n-3e4 nan\n");
    write_text("mixed/README.txt", "hello\n");
    write_text("mixed/labels.csv", "file,label\nx,1\n");
    write_text("mixed/tool.gif", "GIF89a");
    dt_raw r;
    must(dt_raw_list(&r, fixture_path("mixed"), NULL, NULL));
    assert_int_equal(r.n, 3);
    assert_int_equal(r.n_ignored, 3);
    assert_int_equal(r.n_classes, 0); // no folders, no classes
    assert_string_equal(r.items[0].key, "numbers");
    assert_string_equal(r.items[0].ext, "txt");
    assert_string_equal(r.items[1].ext, "bmp");
    assert_string_equal(r.items[2].ext, "bmp");
    dt_raw_fini(&r);
}

TEST_MAIN(folder_make, fixture_tear_down)
