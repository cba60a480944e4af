// Tables: CSV by RFC 4180 with the line of every mistake, JSON with nested values, and joining them to
// files.
#include "data/raw/raw.h"
#include "data/raw/table.h"
#include "data_fixture.h"
#include "testing.h"

#include <sys/resource.h>

static dt_status parse(dt_table *t, const char *text) {
    DT_TRY(dt_table_parse_csv(t, "t.csv", text, strlen(text), 0));
    return dt_table_check(t);
}

static const char *cell(const dt_table *t, size_t row, const char *column) {
    int c = dt_table_find(t, column);
    assert_true(c >= 0);
    return dt_table_cell(t, row, c);
}

TEST(quotes_line_ends_and_separators) {
    dt_table t;
    must(parse(&t, "\xef\xbb\xbf"
                   "a,\"b \"\"x\"\"\"\r\n1,\"two\r\nlines, and \"\"more\"\"\"\r\n"
                   "\r\n,last"));
    assert_int_equal(t.cells.n_columns, 2);
    assert_int_equal(t.cells.n_rows, 2);
    assert_string_equal(dt_columns_name(&t.cells, 1), "b \"x\"");
    assert_string_equal(cell(&t, 0, "b \"x\""), "two\r\nlines, and \"more\"");
    assert_null(cell(&t, 1, "a"));
    assert_string_equal(cell(&t, 1, "b \"x\""), "last");
    assert_int_equal(t.line[0], 2);
    assert_int_equal(t.line[1], 5);
    dt_table_fini(&t);
    must(parse(&t, "a;b,c\n1;2,3\n")); // a comma goes first
    assert_string_equal(dt_columns_name(&t.cells, 0), "a;b");
    dt_table_fini(&t);
    must(parse(&t, "a;b\n1;2\n"));
    assert_string_equal(cell(&t, 0, "b"), "2");
    dt_table_fini(&t);
    must(parse(&t, "a,b\r1,2\r3,4"));
    assert_int_equal(t.cells.n_rows, 2);
    dt_table_fini(&t);
    must(parse(&t, ",b,\n0,x,\n1,y,,\n")); // pandas' index, a comma at the ends
    assert_int_equal(t.cells.n_rows, 2);
    assert_string_equal(cell(&t, 1, "column1"), "1");
    assert_null(cell(&t, 1, "column3"));
    dt_table_fini(&t);
}

TEST(mistakes_have_lines) {
    static const char *const WRONG[][2] = {
        {"a,b\n1,2\n3\n", "t.csv: 1 rows do not have 2 fields as the first line: line 3 has 1"},
        {"a,b\n1,2,3\n1\n1,2\n,,3\n5\n6\n",
         "t.csv: 5 rows do not have 2 fields as the first line: line 2 has 3, line 3 has 1, line 5 "
         "has 3, …"},
        {"a,b\n1,\"x\"y\n", "t.csv:2: text behind a closing quote"},
        {"a,b\n1,2\n3,\"x\ny", "t.csv:3: a quote that is never closed"},
        {"a,b\n1,\xc3\xa9\n3,caf\xe9\n", "t.csv:3: 'caf\xe9' is not UTF-8: save the table"},
        {"a,a\n1,2\n", "two columns are called 'a'"},
        {"column2,\n1,2\n", "two columns are called 'column2'"},
        {"", "empty"},
    };
    dt_table t;
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        assert_int_equal(parse(&t, WRONG[i][0]), DT_E_DATA);
        if (!strstr(dt_error_message(), WRONG[i][1])) fail_msg("%s: not '%s'", dt_error_message(), WRONG[i][1]);
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
    assert_int_equal(t.cells.columns[dt_table_find(&t, "box")].kind, DT_JSON_COLUMN);
    assert_string_equal(cell(&t, 0, "box.1"), "2.5");
    assert_string_equal(cell(&t, 1, "angles.yaw"), "-2");
    assert_true(t.cells.columns[dt_table_find(&t, "angles.yaw")].not_in_json);
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
    must_fail(DT_E_DATA, "'images' is no row", dt_table_parse_json(&t, "t.json", COCO, strlen(COCO), false));
    assert_non_null(strstr(dt_error_message(), "looks like COCO"));
    must_fail(DT_E_DATA, "expected [{\"file_name\": …}",
              dt_table_parse_json(&t, "t.json", OTHER, strlen(OTHER), false));
    assert_null(strstr(dt_error_message(), "COCO"));
}

// Columns of a table may be numbers (pack --rows): the message does not call them metadata.
TEST(too_many_columns) {
    char *csv = dt_xstrdup("c");
    for (int i = 0; i < 4096; i++) dt_xappend(&csv, ",c%d", i);
    dt_table t;
    must_fail(DT_E_DATA, "t.csv: more than 4096 columns, c4095 among them", parse(&t, csv));
    free(csv);
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
    const int k = dt_columns_find(&r->table, column, DT_NUMBER_COLUMN);
    if (k < 0) fail_msg("no column %s", column);
    return r->table.columns[k].number[r->items[item].row];
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
        {"file,yaw\np/a.npy,1.5\nq/c.npy,-2\n", NULL, "name in column 'file'"},
        {"file,yaw\na.npy,1.5\nc.npy,-2\n", NULL, "name in column 'file'"},
        {"x,yaw\na,1.5\nc,-2\n", NULL, "stem in column 'x'"},
        {"x,yaw\np/a,1.5\nq/c,-2\n", NULL, "key in column 'x'"},
        {"yaw,key\n1.5,p/a\n-2,q/c\n", "key", "key in column 'key'"},
        {"name,yaw,picture\nMiller,1.5,a.npy\nSmith,-2,c.npy\n", NULL, "name in column 'picture'"},
        {"id,yaw,picture\na,1.5,p/a\nb,-2,q/c\n", "picture", "key in column 'picture'"},
    };
    const char *files = make_files();
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++) {
        write_text("join.csv", WAYS[i].text);
        dt_raw_opts o = {.join = fixture_path("join.csv"), .join_on = WAYS[i].on};
        dt_raw r;
        if (dt_raw_list(&r, files, NULL, &o) != DT_OK) fail_msg("%zu: %s", i, dt_error_message());
        assert_string_equal(r.join.on, WAYS[i].used);
        assert_int_equal(r.join.n_with, 2);
        assert_int_equal(r.join.without.n, 1);
        assert_string_equal(r.join.without.text, "p/b.npy");
        assert_true(number(&r, 0, "yaw") == 1.5 && number(&r, 2, "yaw") == -2);
        assert_true(number(&r, 1, "yaw") != number(&r, 1, "yaw"));
        if (i < 5) // a number with a point is one again
            expect_json(&r, 2, "{\"label\":\"q\",\"yaw\":-2.0}");
        dt_raw_fini(&r);
    }
}

TEST(a_join_by_a_column_of_the_names) {
    const char *files = make_files();
    write_text("people.csv", "age,who\n31,p\n40,q\n22,nobody\n");
    dt_raw_opts o = {.pattern = "{who}/{n}.npy", .join = fixture_path("people.csv"), .join_on = "who"};
    dt_raw r;
    must(dt_raw_list(&r, files, NULL, &o));
    assert_int_equal(r.join.n_with, 3);
    assert_int_equal(r.join.unused.n, 1);
    assert_string_equal(r.join.unused.text, "people.csv:4 'nobody'");
    expect_json(&r, 2, "{\"age\":40,\"n\":\"c\",\"who\":\"q\"}");
    dt_raw_fini(&r);
    o.join_strict = true;
    must_fail(DT_E_DATA, "1 rows have no file", dt_raw_list(&r, files, NULL, &o));
    o.join_on = "whom";
    assert_int_equal(dt_raw_list(&r, files, NULL, &o), DT_E_USAGE);
}

static long peak_kib(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

// A row that many files have is held once: 100 times this text is 100 MiB.
TEST(a_row_of_many_files_takes_its_memory_once) {
    enum { N_FILES = 100, N_TEXT = 1 << 20 };
    char name[40], *csv = dt_xprintf("who,text\np,%*d\n", N_TEXT, 7);
    for (int i = 0; i < N_FILES; i++) {
        snprintf(name, sizeof name, "many/p/%d.npy", i);
        write_text(name, "1");
    }
    write_text("long.csv", csv);
    free(csv);
    dt_raw_opts o = {.pattern = "{who}/{n}.npy", .join = fixture_path("long.csv"), .join_on = "who"};
    dt_raw r;
    const long before = peak_kib();
    must(dt_raw_list(&r, fixture_path("many"), NULL, &o));
    assert_int_equal(r.join.n_with, N_FILES);
    assert_true(peak_kib() - before < 64 * 1024);
    dt_raw_fini(&r);
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
                "{\"hex\":\"0x10\",\"label\":\"p\",\"mass\":1000.0,\"person\":\"007\","
                "\"plate\":\"12345678901234567890\"}");
    dt_raw_fini(&r);
}

// As R, pandas and databases write them; among words they are words.
TEST(missing_numbers_are_no_value) {
    const char *files = make_files();
    write_text("join.csv", "file,yaw,age,country\na.npy,nan,NA,NA\nb.npy,1.5,31,DE\n"
                           "c.npy,<NA>,None,FR\n");
    dt_raw_opts o = {.join = fixture_path("join.csv")};
    dt_raw r;
    must(dt_raw_list(&r, files, NULL, &o));
    expect_json(&r, 0, "{\"country\":\"NA\",\"label\":\"p\"}");
    expect_json(&r, 1, "{\"age\":31,\"country\":\"DE\",\"label\":\"p\",\"yaw\":1.5}");
    expect_json(&r, 2, "{\"country\":\"FR\",\"label\":\"q\"}");
    dt_raw_fini(&r);
}

TEST(joins_that_are_wrong) {
    const char *files = make_files();
    dt_raw_opts o = {.join = fixture_path("join.csv")};
    dt_raw r;
    write_text("join.csv", "file,v\na.npy,1\nb.npy,2\na.npy,3\n");
    must_fail(DT_E_DATA, "1 second rows for a file: join.csv:2 and 4 'a.npy' (--join-duplicates",
              dt_raw_list(&r, files, NULL, &o));
    write_text("files/q/a.npy", "4444");
    write_text("join.csv", "file,v\na.npy,1\n");
    must_fail(DT_E_DATA, "'a.npy' fits p/a.npy and q/a.npy", dt_raw_list(&r, files, NULL, &o));
    unlink(fixture_path("files/q/a.npy"));
    write_text("join.csv", "file,v\nx.npy,1\n");
    must_fail(DT_E_DATA, "no file of", dt_raw_list(&r, files, NULL, &o));
    write_text("join.csv", "patient,grade\np1,a\np2,c\n"); // of which grade is no stem
    must_fail(DT_E_DATA, "no file of", dt_raw_list(&r, files, NULL, &o));
    write_text("join.csv", "\x1f\x8b compressed");
    must_fail(DT_E_DATA, "this table is compressed: gunzip it", dt_raw_list(&r, files, NULL, &o));
    write_text("join.csv", "\xff\xfe"
                           "f");
    must_fail(DT_E_DATA, "this table is UTF-16", dt_raw_list(&r, files, NULL, &o));
    o.join = fixture_path("missing.csv");
    assert_int_equal(dt_raw_list(&r, files, NULL, &o), DT_E_USAGE);
}

static const char *text_of(const dt_raw *r, size_t item, const char *column) {
    const int k = dt_columns_find(&r->table, column, ~0u);
    const char *text = k < 0 ? "no column" : dt_columns_text(&r->table, k, r->items[item].row);
    return text ? text : "-";
}

// As published: a comma at the end of lines, rows that are longer, rows of one file twice, rows of other files.
TEST(all_that_is_wrong_with_a_table_is_told_at_once) {
    const char *files = make_files();
    write_text("files/r/c.npy", "4");
    write_text("join.csv", "file,finding,\n"
                           "a.npy,x,\n"
                           "b.npy,y,,7\n"
                           "a.npy,z\n"
                           "b.npy,w,\n"
                           "b.npy,v,\n"
                           "c.npy,u,\n"
                           "gone.npy,t,\n");
    dt_raw_opts o = {.join = fixture_path("join.csv")};
    dt_raw r;
    must_fail(
        DT_E_DATA,
        "--join: 1 table has rows of another number of fields: join.csv: 2 (line 3 has 4, line 4 has 2; the first line "
        "has 3); 1 second rows for a file: join.csv:5 and 6 'b.npy' (--join-duplicates first or last takes one; JSON "
        "can hold several boxes in one row); 1 rows fit several files: join.csv:7: 'c.npy' fits q/c.npy and r/c.npy "
        "(write enough of the path to distinguish them); --on-error skip leaves out rows that cannot be joined",
        dt_raw_list(&r, files, NULL, &o));
    o.join_duplicates = DT_JOIN_LAST;
    must_fail(DT_E_DATA, "rows fit several files", dt_raw_list(&r, files, NULL, &o));
    assert_null(strstr(dt_error_message(), "second rows"));
    o.skip_bad = true;
    for (o.join_duplicates = DT_JOIN_ERROR; o.join_duplicates <= DT_JOIN_LAST; o.join_duplicates++) {
        must(dt_raw_list(&r, files, NULL, &o));
        assert_string_equal(text_of(&r, 0, "finding"), "x");
        assert_string_equal(text_of(&r, 1, "finding"), o.join_duplicates == DT_JOIN_LAST ? "v" : "w");
        assert_string_equal(text_of(&r, 2, "finding"), "-");
        assert_int_equal(r.join.n_with, 2);
        assert_string_equal(r.join.without.text, "q/c.npy, r/c.npy");
        assert_string_equal(r.join.unused.text, "join.csv:8 'gone.npy'");
        assert_int_equal(r.join.odd.n, 1);
        dt_raw_fini(&r);
    }
    unlink(fixture_path("files/r/c.npy"));
}

// Tables of more files and of more columns; numbers are numbers whichever table shows it.
TEST(several_tables_are_joined) {
    const char *files = make_files();
    write_text("train.csv", "name,age,sex\na.npy,31,f\nc.npy,45,m\n");
    write_text("test.csv", "id,age\nb,62.5\nc,99\n");
    write_text("site.csv", "site,key\nx,p/a\ny,q/c\n");
    char *all = dt_xprintf("%s\n%s\n%s", fixture_path("train.csv"), fixture_path("test.csv"), fixture_path("site.csv"));
    dt_raw_opts o = {.join = all};
    dt_raw r;
    must(dt_raw_list(&r, files, NULL, &o));
    assert_true(number(&r, 0, "age") == 31 && number(&r, 1, "age") == 62.5);
    assert_true(number(&r, 2, "age") == 45); // of the first that has one
    assert_string_equal(text_of(&r, 1, "sex"), "-");
    assert_string_equal(text_of(&r, 2, "site"), "y");
    assert_string_equal(r.join.on, "name in column 'name', stem in column 'id', key in column 'key'");
    assert_int_equal(r.join.n_with, 3);
    assert_int_equal(r.join.without.n, 0);
    dt_raw_fini(&r);
    free(all);
}

TEST(names_that_do_not_fit_the_pattern) {
    const char *files = make_files();
    dt_raw_opts o = {.pattern = "p/{n}.npy"};
    dt_raw r;
    must_fail(DT_E_USAGE,
              "1 of 3 names do not fit the pattern 'p/{n}.npy': q/c.npy; --on-error skip leaves "
              "such files out",
              dt_raw_list(&r, files, NULL, &o));
    o.skip_bad = true;
    must(dt_raw_list(&r, files, NULL, &o));
    assert_int_equal(r.n, 2);
    assert_int_equal(r.unfit.n, 1);
    assert_string_equal(text_of(&r, 1, "n"), "b");
    dt_raw_fini(&r);
    o.pattern = "z{n}.npy";
    must_fail(DT_E_USAGE, "3 of 3 names do not fit", dt_raw_list(&r, files, NULL, &o));
}

TEST(columns_are_made_of_others) {
    const char *files = make_files();
    write_text("join.csv", "file,finding,age\na.npy,Pneumonia/COVID-19,30.5\nb.npy,,41\n");
    dt_raw_opts o = {.join = fixture_path("join.csv"),
                     .columns = "covid=finding like '%COVID%'\n"
                                "half=age / 2\n"
                                "folder=substr(source, 1, 1)\n"
                                "both=folder || '-' || key"};
    dt_raw r;
    must(dt_raw_list(&r, files, NULL, &o));
    expect_json(&r, 0,
                "{\"age\":30.5,\"both\":\"p-p/a\",\"covid\":\"true\",\"finding\":\"Pneumonia/"
                "COVID-19\",\"folder\":\"p\",\"half\":15.25,\"label\":\"p\"}");
    expect_json(&r, 1, "{\"age\":41.0,\"both\":\"p-p/b\",\"folder\":\"p\",\"half\":20.5,\"label\":\"p\"}");
    dt_raw_fini(&r);
    o.columns = "age=1 + number('2')";
    must_fail(DT_E_USAGE, "--column age: there is a column 'age' already", dt_raw_list(&r, files, NULL, &o));
    o.columns = "x=number(finding)";
    must_fail(DT_E_DATA, "--column x: number(finding) gives no record a value", dt_raw_list(&r, files, NULL, &o));
    o.columns = "x=agee + 1";
    must_fail(DT_E_USAGE, "no record has a column 'agee'", dt_raw_list(&r, files, NULL, &o));
    o.columns = "x";
    must_fail(DT_E_USAGE, "expected NAME=EXPRESSION", dt_raw_list(&r, files, NULL, &o));
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
    must_fail(DT_E_DATA, "/files: line 2 'p/missing.npy'; dtrain pack --on-error skip",
              dt_raw_list(&r, fixture_path("files/list.txt"), NULL, NULL));
    dt_raw_opts o = {.skip_bad = true};
    must(dt_raw_list(&r, fixture_path("files/list.txt"), NULL, &o));
    assert_int_equal(r.n, 1);
    assert_int_equal(r.bad_rows.n, 1);
    dt_raw_fini(&r);
    write_text("files/list.txt", "p/a.npy\nhttps://joe:hush@host/a.npy\n");
    must_fail(DT_E_DATA, "list.txt:2: https://…@host: a name and a password",
              dt_raw_list(&r, fixture_path("files/list.txt"), NULL, &o));
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
    assert_int_equal(r.left_out[DT_RAW_NO_SAMPLE].n, 2);
    assert_int_equal(r.left_out[DT_RAW_UNREAD_KIND].n, 1);
    assert_int_equal(r.n_classes, 0); // no folders, no classes
    assert_string_equal(r.items[0].key, "numbers");
    assert_string_equal(r.items[0].ext, "txt");
    assert_string_equal(r.items[1].ext, "bmp");
    assert_string_equal(r.items[2].ext, "bmp");
    dt_raw_fini(&r);
}

TEST_MAIN(folder_make, fixture_tear_down)
