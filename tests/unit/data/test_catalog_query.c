// Expressions: what they mean, what is wrong with a wrong one; lists of datasets and subsets of shards;
// data.where and pack --where.
#include "data/catalog/select.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>

// Ten records: a mixed column, a text that looks like numbers, numbers, and what lacks values.
//   i        0      1      2     3     4     5     6     7     8     9
//   label    cat    dog    cat   -     Cat   dog   cat   it's  é     dog
//   age      5      40     old   5.0   -     9     10    100   007   -3
//   code     00     01     02    03    04    05    06    07    08    09
//   subject  0      1      2     0     1     2     0     1     2     0
//   q        0.0    0.1    0.2   -     0.4   0.5   0.6   0.7   0.8   0.9
static dt_catalog *ten(void) {
    static const char *const LABEL[] = {"cat", "dog", "cat", NULL, "Cat", "dog", "cat", "it's", "\xc3\xa9", "dog"};
    static const char *const AGE[] = {"5", "40", "old", "5.0", NULL, "9", "10", "100", "007", "-3"};
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x.bin", 100);
    for (int i = 0; i < 10; i++) {
        char key[16], code[16], subject[16];
        snprintf(key, sizeof key, "a_%d/r", i);
        snprintf(code, sizeof code, "%02d", i);
        snprintf(subject, sizeof subject, "%d", i % 3);
        dt_catalog_add_record(c, 0, key);
        dt_catalog_add_member(c, "jpg", (uint64_t)i, (uint64_t)i, NULL);
        if (LABEL[i]) dt_catalog_set(c, "label", LABEL[i]);
        if (AGE[i]) dt_catalog_set(c, "age", AGE[i]);
        dt_catalog_set(c, "code", code);
        dt_catalog_set(c, "subject", subject);
        dt_catalog_set(c, "left \"eye\"", i == 4 ? "a\nb" : "x");
        if (i != 3) dt_catalog_set_real(c, "q", i / 10.0);
    }
    dt_catalog_finish(c);
    return c;
}

// The chosen records as digits, or the message.
static const char *chosen(const dt_catalog *c, const char *expression) {
    static char out[600];
    bool keep[64];
    uint32_t n, found = 0;
    char *to = out;
    if (dt_catalog_select(c, expression, keep, &n) != DT_OK) return dt_error_message();
    for (uint32_t i = 0; i < c->n_records; i++)
        if (keep[i]) {
            *to++ = (char)('0' + i);
            found++;
        }
    *to = '\0';
    assert_int_equal(found, n);
    return out;
}

TEST(what_expressions_mean) {
    static const char *const CASES[][2] = {
        {"label = 'cat'", "026"},
        {"label == 'cat'", "026"},
        {"LABEL = 'cat'", "expression, character 1: the set has no column 'LABEL'; it has key, shard, "
                          "bytes, label, age, code, subject, left \"eye\", q"},
        {"label != 'cat'", "145789"},
        {"label <> 'cat'", "145789"},
        {"label = 'it''s'", "7"},
        {"label = '\xc3\xa9'", "8"},
        {"label in ('cat', 'dog')", "012569"},
        {"label not in ('cat', 'dog')", "478"},
        {"label is null", "3"},
        {"label is not null", "012456789"},
        {"not label is null", "012456789"},
        {"label like 'c%'", "0246"},
        {"label not like 'c%'", "15789"},
        {"label > 'cat'", "15789"},
        // text that is a number where a number is asked
        {"age = 5", "03"},
        {"age = '5'", "0"},
        {"age > 9", "167"},
        {"age >= 9", "1567"},
        {"age < 9", "0389"},
        {"not age > 9", "03589"},
        {"age = 7", "8"},
        {"age between 5 and 10", "03568"},
        {"age not between 5 and 10", "179"},
        {"age in (5, 'old')", "023"},
        {"10 < age", "17"},
        {"code = '07'", "7"},
        {"code = 7", "7"},
        {"code < '03'", "012"},
        {"code = '7'", ""},
        // numbers
        {"subject = 1", "147"},
        {"subject = '1'", "147"},
        {"subject = 1.0", "147"},
        {"subject < 'abc'", "0123456789"},
        {"subject = 'abc'", ""},
        {"subject != 'abc'", "0123456789"},
        {"subject in (0, 2, 'x')", "0235689"},
        {"q > 0.4", "56789"},
        {"q > +4e-1", "56789"},
        {"q >= .4", "456789"},
        {"q < -1", ""},
        {"q = subject", "0"},
        {"q < subject", "124578"},
        {"age > subject", "0135678"},
        {"q is null or q > 0.75", "389"},
        {"not (q > 0.4)", "0124"},
        // what binds how
        {"label='cat' or label='dog' and q > 0.4", "02569"},
        {"(label='cat' or label='dog') and q > 0.4", "569"},
        {"not label='cat' and q > 0.4", "5789"},
        {"NOT label='cat' AND q>0.4", "5789"},
        {"not not q > 0.4", "56789"},
        // what every record has
        {"key like 'a\\_3/%'", "3"},
        {"key = 'a_5/r'", "5"},
        {"bytes >= 8", "89"},
        {"shard = 'x.bin'", "0123456789"},
        // numbers as text: as they are stored, or their shortest form
        {"q like '0._'", "12456789"},
        {"subject like '_'", "0123456789"},
        {"age like '5%'", "03"},
        {"bytes < 'x' and bytes like '7'", "7"},
        {"label like '%\\'", ""},
        {"label like '_'", "8"},
        {"label like '%a%'", "0246"},
        {"label like '%o%g'", "159"},
        {"label like ''", ""},
        {"code like '%0%_%'", "0123456789"},
        {"code not in ('00', '01', 2.0, '9')", "3456789"},
        {"age not in ('x', 5)", "156789"},
        {"\"left \"\"eye\"\"\" = 'a\nb'", "4"},
        {"'a' = label or 1 = 'true'", "expression, character 16 ('1 = 'true''): compares no column of "
                                      "the set (text is in 'single quotes', names are not)"},
        {"label = true", ""},
        // wrong ones
        {"", "expression, character 1 (its end): expected a column's name"},
        {"label", "expression, character 6 (its end): expected a comparison: = != < <= > >= in, like, "
                  "between, is null"},
        {"label = ", "expression, character 9 (its end): expected a value"},
        {"label = 'cat", "expression, character 9 (''cat'): the closing quote is missing"},
        {"label = 'cat''", "expression, character 9 (''cat'''): the closing quote is missing"},
        {"label = cat", "expression, character 9: the set has no column 'cat'; it has key, shard, bytes, "
                        "label, age, code, subject, left \"eye\", q; text is in 'single quotes'"},
        {"\xc3\xa9\xc3\xa9 = 1 and lable = 1",
         "expression, character 1: the set has no column '\xc3\xa9\xc3\xa9'; it has key, shard, "
         "bytes, "
         "label, age, code, subject, left \"eye\", q"},
        {"q > 1 and lable = 1", "expression, character 11: the set has no column 'lable'; did you mean 'label'?"},
        {"q > 0.4 subject = 1", "expression, character 9 ('subject'): expected `and`, `or` or the end"},
        {"q = null", "expression, character 5 ('null'): nothing equals null; write `is null` or `is not "
                     "null`"},
        {"(q > 1", "expression, character 7 (its end): expected `)`, `and` or `or`"},
        {"q > 1)", "expression, character 6 (')'): expected `and`, `or` or the end"},
        {"q in ()", "expression, character 7 (')'): expected a value"},
        {"q in (1, )", "expression, character 10 (')'): expected a value"},
        {"q in (1, label)", "expression, character 10 ('label'): expected a number or a text in 'single quotes'"},
        {"q + 1 > 1.45", "56789"},
        {"(q + 1) * 2 > 3.5", "89"},
        {"q +", "expression, character 4 (its end): expected a value"},
        {"q ^ 2 > 1", "expression, character 3 ('^'): not part of an expression; see docs/reference/catalog.md"},
        {"substr(label, 1, 1) = 'c' and q-0.1 >= -0.1", "026"},
        {"regex(key, '_(\\d+)/') in ('3', '5')", "35"},
        {"(label like 'c%') = 'true'", "0246"},
        {"case when q < 0.25 then 'low' else 'high' end = 'low'", "012"},
        {"case when q < 0.15 then 'True' when q > 0.75 then 'FALSE' end = true", "01"},
        {"case when q < 0.15 then 'True' when q > 0.75 then 'FALSE' end = 'true'", ""},
        {"number(age) + 0 > 9 or size(age) > 2",
         "expression, character 24 ('size'): no function; there are abs, ceil, exp, floor, length, log, log10, lower, "
         "max, min, number, regex, round, split, sqrt, substr, upper"},
        {"max(q) > 1", "expression, character 6 (')'): max takes 2 values"},
        {"min(q, 1, 2) > 1", "expression, character 9 (','): expected `)`: min takes 2 values at most"},
        {"length(label) > 3 or log(q + 1) > 0.55", "789"},
        {"log = 1", "expression, character 1: the set has no column 'log'; it has key, shard, bytes, label, age, code, "
                    "subject, left \"eye\", q"},
        {"regex(key, '(') is null",
         "expression, character 12 (''(''): not a POSIX extended regular expression: Unmatched ( "
         "or \\("},
        {"regex(key, label) is null", "expression, character 12 ('label'): expected a pattern in 'single quotes'"},
        {"substr(key) = 'a'", "expression, character 11 (')'): substr takes 2 values"},
        {"lower(key, 1) = 'a'", "expression, character 10 (','): expected `)`: lower takes 1 value at most"},
        {"case when q > 1 then 1", "expression, character 23 (its end): expected `when`, `else` or `end`"},
        {"case when q then 1 end = 1",
         "expression, character 13 ('then'): expected a comparison: = != < <= > >= in, like, "
         "between, is null"},
        {"q > 1; drop table x",
         "expression, character 6 (';'): not part of an expression; see docs/reference/catalog.md"},
        {"q > 1e999", "expression, character 5 ('1e999'): not a number; names that begin with a digit "
                      "want \"quotes\""},
        {"3d = 1", "expression, character 1 ('3d'): not a number; names that begin with a digit want "
                   "\"quotes\""},
        {"q between 1 or 2", "expression, character 13 ('or'): expected `and` and the upper value of between"},
        {"label like q", "expression, character 12 ('q'): expected a pattern in 'single quotes'"},
    };
    dt_catalog *c = ten();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *got = chosen(c, CASES[i][0]);
        if (strcmp(got, CASES[i][1]) != 0) fail_msg("%s\n  gives  %s\n  not    %s", CASES[i][0], got, CASES[i][1]);
    }
    dt_catalog_destroy(c);
}

// What a derived column holds, record by record, "-": no value.
static const char *derived(const char *expression) {
    static char out[600];
    dt_catalog *c = ten();
    size_t at = 0;
    *out = '\0';
    if (dt_catalog_derive(c, "new", expression) != DT_OK) {
        snprintf(out, sizeof out, "%s", dt_error_message());
    } else {
        const int real = dt_catalog_find_real(c, "new"), text = dt_catalog_find_column(c, "new");
        assert_true((real < 0) != (text < 0));
        for (uint32_t r = 0; r < c->n_records; r++) {
            const char *v = real < 0 ? dt_catalog_value(c, text, r) : NULL;
            if (v || real < 0)
                at += (size_t)sprintf(out + at, "%s%s", r ? " " : "", v ? v : "-");
            else
                at += (size_t)sprintf(out + at, "%s%.4g", r ? " " : "", dt_catalog_real(c, real, r));
        }
    }
    dt_catalog_destroy(c);
    return out;
}

TEST(columns_are_derived) {
    static const char *const CASES[][2] = {
        {"label = 'cat'", "true false true - false false true false false false"},
        {"number(substr(key, 3, 1))", "0 1 2 3 4 5 6 7 8 9"},
        {"substr(key, -3)", "0/r 1/r 2/r 3/r 4/r 5/r 6/r 7/r 8/r 9/r"},
        {"split(key, '_', 2)", "0/r 1/r 2/r 3/r 4/r 5/r 6/r 7/r 8/r 9/r"},
        {"split(key, '/', -1)", "r r r r r r r r r r"},
        {"split(key, '/', 3)", "- - - - - - - - - -"},
        {"upper(label)", "CAT DOG CAT - CAT DOG CAT IT'S \xc3\xa9 DOG"},
        {"regex(label, '^[a-z]{3}$')", "cat dog cat - - dog cat - - dog"},
        {"regex(key, '([\\d]+)/(x)?')", "0 1 2 3 4 5 6 7 8 9"},
        {"regex(key, '[0-9]/(x)?')", "- - - - - - - - - -"},
        {"age * 2", "10 80 - 10 - 18 20 200 14 -6"},
        {"age / 0", "- - - - - - - - - -"},
        {"age % 4", "1 0 - 1 - 1 2 0 3 -3"},
        {"7 / (subject + 2)", "3.5 2.333 1.75 3.5 2.333 1.75 3.5 2.333 1.75 3.5"},
        {"-subject - -1", "1 0 -1 1 0 -1 1 0 -1 1"},
        {"2 + 3 * subject", "2 5 8 2 5 8 2 5 8 2"},
        {"q", "0 0.1 0.2 nan 0.4 0.5 0.6 0.7 0.8 0.9"},
        {"floor(q * 4)", "0 0 0 - 1 2 2 2 3 3"},
        {"log(q)", "nan -2.303 -1.609 nan -0.9163 -0.6931 -0.5108 -0.3567 -0.2231 -0.1054"},
        {"log10(age - 5)", "nan 1.544 nan nan nan 0.6021 0.699 1.978 0.301 nan"},
        {"exp(age * 20)", "2.688e+43 nan nan 2.688e+43 nan 1.489e+78 7.226e+86 nan 6.327e+60 8.757e-27"},
        {"sqrt(age)", "2.236 6.325 nan 2.236 nan 3 3.162 10 2.646 nan"},
        {"abs(age)", "5 40 - 5 - 9 10 100 7 3"},
        {"abs(9007199254740993 - 2 * 9007199254740993 + subject * 0)",
         "9007199254740993 9007199254740993 "
         "9007199254740993 9007199254740993 9007199254740993 9007199254740993 9007199254740993 9007199254740993 "
         "9007199254740993 9007199254740993"},
        {"round(q * 5 - 2.5)", "-3 -2 -2 - -1 0 1 1 2 2"},
        {"ceil(q * 4)", "0 1 1 - 2 2 3 3 4 4"},
        {"length(label)", "3 3 3 - 3 3 3 4 1 3"},
        {"length(q)", "1 3 3 - 3 3 3 3 3 3"},
        {"min(number(age), 10)", "5 10 - 5 - 9 10 10 7 -3"},
        {"min(age, 10)", "expression: min of the text 'old' and the number 10; a text that is no number is missing in "
                         "min(number(x), y)"},
        {"max(q, '0.45')", "0.45 0.45 0.45 nan 0.45 0.5 0.6 0.7 0.8 0.9"},
        {"max(label, 'd')", "d dog d - d dog d it's \xc3\xa9 dog"},
        {"max(q, 'x')", "expression: max of the text 'x' and the number 0; a text that is no number is missing in "
                        "max(number(x), y)"},
        {"log(label)", "- - - - - - - - - -"},
        {"subject || '-' || label", "0-cat 1-dog 2-cat - 1-Cat 2-dog 0-cat 1-it's 2-\xc3\xa9 0-dog"},
        {"case when q < 0.3 then 'low' when q > 0.7 then 'high' end", "low low low - - - - - high high"},
        {"case when subject = 0 then 1.5 else q end", "1.5 0.1 0.2 1.5 0.4 0.5 1.5 0.7 0.8 1.5"},
        {"code", "00 01 02 03 04 05 06 07 08 09"},
        {"q subject", "expression, character 3 ('subject'): expected an operator or the end"},
        {"lable || 'x'", "expression, character 1: the set has no column 'lable'; did you mean 'label'?"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *got = derived(CASES[i][0]);
        if (strcmp(got, CASES[i][1]) != 0) fail_msg("%s\n  gives  %s\n  not    %s", CASES[i][0], got, CASES[i][1]);
    }
    dt_catalog *c = ten();
    must_fail(DT_E_USAGE, "the set has a column 'bytes' already", dt_catalog_derive(c, "bytes", "q"));
    assert_true(dt_catalog_has_name(c, "label") && !dt_catalog_has_name(c, "labels"));
    // a derived column is one like others: sorted values, of which expressions know that they are numbers
    must(dt_catalog_derive(c, "n", "10 - number(substr(key, 3, 1))"));
    assert_string_equal(chosen(c, "n > 9"), "0");
    assert_string_equal(dt_catalog_str(c, c->table.columns[dt_catalog_find_column(c, "n")].values[9]), "10");
    must(dt_catalog_derive(c, "m", "n * 0.5"));
    assert_string_equal(chosen(c, "m = 4.5"), "1");
    dt_catalog_destroy(c);
}

// Texts that an expression takes from the catalog, whose strings move while the new column's are added.
TEST(many_keys_become_a_column) {
    enum { N = 3000 };
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x.bin", 100);
    for (int i = 0; i < N; i++) {
        char key[16];
        snprintf(key, sizeof key, "key%07d", N - i);
        must(dt_catalog_add_record(c, 0, key));
    }
    must(dt_catalog_finish(c));
    must(dt_catalog_derive(c, "id", "case when key != '' then key end"));
    const int id = dt_catalog_find_column(c, "id");
    for (uint32_t r = 0; r < N; r++)
        assert_string_equal(dt_catalog_value(c, id, r), dt_catalog_str(c, c->records[r].key));
    dt_catalog_destroy(c);
}

// As in pandas and SQL a condition is 1 or 0 where it meets a number; pandas and R write True and TRUE.
TEST(truths_are_numbers) {
    static const char *const CASES[][2] = {
        {"yes = 1", "026"},       {"yes = 0", "145789"},    {"yes != 1", "145789"},
        {"yes > 0", "026"},       {"yes in (1)", "026"},    {"yes not in (1, 2)", "145789"},
        {"yes + 1 = 2", "026"},   {"yes = '1'", ""},        {"yes in (true)", "026"},
        {"big in (true)", "167"}, {"big in (TRUE)", "167"}, {"big = true", "167"},
        {"big = 1", "167"},       {"big = 'true'", ""},     {"big in ('true', 0)", "03589"},
        {"subject = true", "147"}};
    dt_catalog *c = ten();
    must(dt_catalog_derive(c, "yes", "label = 'cat'"));
    must(dt_catalog_derive(c, "big", "case when age > 9 then 'TRUE' when age <= 9 then 'False' end"));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *got = chosen(c, CASES[i][0]);
        if (strcmp(got, CASES[i][1]) != 0) fail_msg("%s: '%s', not '%s'", CASES[i][0], got, CASES[i][1]);
    }
    dt_catalog_destroy(c);
}

// Where SQLite has the function, it gives the same.
TEST(values_are_those_of_sqlite) {
    static const char *const FORMS[] = {"substr('a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z' || q, %d, %d)",
                                        "substr('abcdef' || q, %d)",
                                        "lower('\xc3\x89' || 'Ab' || q) || upper('x\xc3\xa9' || %d)",
                                        "q + %d * (%d - 3)",
                                        "q %% %d",
                                        "case when q > %d then 'a' when q = %d then 'b' else 'c' end",
                                        "q between %d and %d",
                                        "min(q, %d) || max(q, %d)",
                                        "length('a\xc3\xa9\xe2\x82\xac' || q) + abs(%d) - abs(q) + %d"};
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    for (int k = 0; k < 1000; k++) {
        char text[256], sql[320];
        dt_expr *e;
        dt_arena scratch;
        const int q = k % 5 - 2, a = k % 13 - 6, b = k / 13 % 9;
        snprintf(text, sizeof text, FORMS[k % 9], a, b);
        snprintf(sql, sizeof sql, "SELECT %s FROM (SELECT %d AS q)", text, q);
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(s), SQLITE_ROW);
        must(dt_expr_parse_value(&e, text));
        dt_arena_init(&scratch);
        char buffer[DT_REAL_CHARS];
        const dt_cell value = dt_cell_real(q);
        dt_cell got;
        must(dt_expr_value(e, &value, &scratch, &got));
        const char *want = (const char *)sqlite3_column_text(s, 0);
        const char *have = got.kind == DT_CELL_NULL ? NULL : dt_cell_string(&got, buffer);
        if (k % 9 == 6 && want) want = *want == '1' ? "true" : "false";
        if (want ? !have || strcmp(want, have) != 0 : have != NULL)
            fail_msg("%s: %s, not %s", sql, have ? have : "null", want ? want : "null");
        dt_arena_fini(&scratch);
        dt_expr_destroy(e);
        sqlite3_finalize(s);
    }
    sqlite3_close(db);
}

// A column that has the name of one that every record has.
TEST(own_columns_hide_the_fixed_ones) {
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x.bin", 100);
    for (int i = 0; i < 3; i++) {
        dt_catalog_add_record(c, 0, "r");
        dt_catalog_add_member(c, "jpg", 0, 50, NULL);
        dt_catalog_set(c, "key", i ? "door" : "house");
        dt_catalog_set_real(c, "bytes", i + 0.5);
    }
    dt_catalog_finish(c);
    assert_string_equal(chosen(c, "key = 'door'"), "12");
    assert_string_equal(chosen(c, "bytes > 1"), "12");
    assert_string_equal(chosen(c, "shard = 'x.bin'"), "012");
    dt_catalog_destroy(c);
}

TEST(lengths_are_capped) {
    dt_expr *e;
    char *text = dt_xcalloc(1, DT_EXPR_MAX_BYTES + 10);
    memset(text, ' ', DT_EXPR_MAX_BYTES + 1);
    assert_int_equal(dt_expr_parse(&e, text), DT_E_USAGE);
    memset(text, '(', DT_EXPR_MAX_BYTES);
    text[DT_EXPR_MAX_BYTES] = '\0';
    must_fail(DT_E_USAGE, "nested too deeply", dt_expr_parse(&e, text));
    free(text);
}

// As long as the text allows, each way: a chain is a list and no recursion, and a list is searched.
TEST(long_ones_are_answered) {
    enum { N = 8000 };
    dt_catalog *c = ten();
    char *text = dt_xcalloc(1, DT_EXPR_MAX_BYTES + 100), *to = text;
    for (int i = 0; i < N; i++) to += sprintf(to, "%sq=%d", i ? " or " : "", i % 10 + 1);
    assert_string_equal(chosen(c, text), "");
    strcpy(to, " or q=0");
    assert_string_equal(chosen(c, text), "0");
    to = text + sprintf(text, "age not in ('old'");
    for (int i = 0; i < N; i++) to += sprintf(to, ",%d", i + 7);
    strcpy(to, ")");
    assert_string_equal(chosen(c, text), "039");
    free(text);
    dt_catalog_destroy(c);
}

// ---- whole numbers of 64 bits ------------------------------------------------------------------------
// Near the places where a double or an int64_t ends; a sixteenth are beyond one, or have a fraction or an exponent.
static void write_number(char *out, size_t cap, uint64_t *seed) {
    static const int64_t NEAR[] = {
        0, INT64_C(1) << 53, -(INT64_C(1) << 53), INT64_C(1) << 60, INT64_MAX - 4, INT64_MIN + 4};
    static const char *const OTHERS[] = {"9007199254740992.0",
                                         "-9007199254740994.0",
                                         "1152921504606846976.",
                                         "9223372036854775808",
                                         "-9223372036854775808",
                                         "1e19",
                                         "0.5",
                                         "-2.5"};
    uint64_t r = *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    if (r >> 60 == 0)
        snprintf(out, cap, "%s", OTHERS[(r >> 33) % (sizeof OTHERS / sizeof *OTHERS)]);
    else
        snprintf(out, cap, "%" PRId64, NEAR[(r >> 33) % (sizeof NEAR / sizeof *NEAR)] + ((int64_t)(r >> 40) % 9 - 4));
}

static int64_t bits_of(sqlite3 *db, const char *condition) {
    char *sql = dt_xprintf("SELECT coalesce(sum(1 << i), 0) FROM t WHERE %s", condition);
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int64_t bits = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    free(sql);
    return bits;
}

// SQLite reads the same text as SQL; to us the column is text, as such numbers are in catalogs.
TEST(whole_numbers_compare_exactly) {
    enum { N = 48, ROUNDS = 1000 };
    static const char *const FORMS[] = {"v = %s",
                                        "v != %s",
                                        "v < %s",
                                        "v <= %s",
                                        "%s < v",
                                        "v >= %s",
                                        "v > %s",
                                        "v between %s and 9007199254740995",
                                        "v in (3, %s, 9007199254740993)",
                                        "not v < %s"};
    uint64_t seed = 1;
    uint32_t n;
    char number[32], text[128];
    sqlite3 *db;
    dt_catalog *c = dt_catalog_create();
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE t(i, v NUMERIC)", NULL, NULL, NULL), SQLITE_OK);
    dt_catalog_add_shard(c, "x.bin", 100);
    for (int i = 0; i < N; i++) {
        write_number(number, sizeof number, &seed);
        snprintf(text, sizeof text, "INSERT INTO t VALUES(%d, CAST('%s' AS NUMERIC))", i, number);
        assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
        snprintf(text, sizeof text, "r%02d", i);
        dt_catalog_add_record(c, 0, text);
        dt_catalog_add_member(c, "jpg", (uint64_t)i, 1, NULL);
        dt_catalog_set(c, "v", number);
    }
    dt_catalog_finish(c);
    for (int k = 0; k < ROUNDS; k++) {
        bool keep[N];
        int64_t bits = 0;
        write_number(number, sizeof number, &seed);
        snprintf(text, sizeof text, FORMS[k % (int)(sizeof FORMS / sizeof *FORMS)], number);
        must(dt_catalog_select(c, text, keep, &n));
        for (int i = 0; i < N; i++) bits |= (int64_t)keep[i] << i;
        if (bits != bits_of(db, text)) fail_msg("%s: not as in SQLite", text);
    }
    dt_catalog_destroy(c);
    sqlite3_close(db);
}

// Identifiers and times in nanoseconds have more digits than a double holds.
TEST(columns_of_long_whole_numbers_compare) {
    static const char *const X[] = {"9999999999999999", "5", "123456789012345679"},
                             *const HASH[] = {"18446744073709551615", "18446744073709551614", "-1"},
                             *const Y[] = {"10000000000000000", "10000000000000001", "123456789012345678"};
    bool keep[3];
    uint32_t n;
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x.bin", 100);
    for (int i = 0; i < 3; i++) {
        char key[16];
        snprintf(key, sizeof key, "r%d", i);
        dt_catalog_add_record(c, 0, key);
        dt_catalog_add_member(c, "jpg", (uint64_t)i, 1, NULL);
        dt_catalog_set(c, "x", X[i]);
        dt_catalog_set(c, "y", Y[i]);
        dt_catalog_set(c, "hash", HASH[i]);
    }
    dt_catalog_finish(c);
    must(dt_catalog_select(c, "x < y", keep, &n));
    assert_true(keep[0] && keep[1] && !keep[2]);
    must(dt_catalog_select(c, "hash = 18446744073709551615", keep, &n));
    assert_true(keep[0] && n == 1);
    dt_catalog_destroy(c);
}

// ---- sets ------------------------------------------------------------------------------------------
static dt_reader *open_set(const char *const *paths, size_t n) {
    dt_reader *s;
    must(dt_reader_open(&s, paths, n));
    return s;
}

static const char *packed(const char *raw, const char *name) {
    const char *path = fixture_path(name);
    fixture_pack(raw, path);
    return path;
}

static const char *raw, *lmdb, *shards;

static uint32_t ask(const char *const *paths, size_t n_paths, const char *expression) {
    uint32_t n;
    dt_reader *s = open_set(paths, n_paths);
    bool *keep = dt_xcalloc(s->catalog->n_records, 1);
    must(dt_catalog_select(s->catalog, expression, keep, &n));
    // each chosen record is of gender F, each other is not
    int gender = dt_catalog_find_column(s->catalog, "gender");
    for (uint32_t r = 0; r < s->catalog->n_records && strcmp(expression, "gender = 'F'") == 0; r++)
        assert_int_equal(keep[r], strcmp(dt_catalog_value(s->catalog, gender, r), "F") == 0);
    free(keep);
    dt_reader_close(s);
    return n;
}

TEST(sets_lists_and_subsets) {
    const char *one = fixture_path("s-01.tar"), *folder = fixture_path("raw");
    assert_int_equal(ask(&lmdb, 1, "gender = 'F'"), 20);
    assert_int_equal(ask(&shards, 1, "gender = 'F'"), 20);
    uint32_t in_one = ask(&one, 1, "gender = 'F'");
    assert_true(in_one > 0 && in_one < 20);
    const char *two = fixture_path("s-02.tar"), *list[] = {two, lmdb, one};
    uint32_t in_two = ask(&two, 1, "gender = 'F'");
    assert_int_equal(ask(list, 3, "gender = 'F'"), 20 + in_one + in_two);
    assert_int_equal(ask(&folder, 1, "gender = 'F'"), 20);
    const char *mixed[] = {folder, one};
    assert_int_equal(ask(mixed, 2, "gender = 'F'"), 20 + in_one);
    assert_int_equal(ask(mixed, 2, "shard = 's-01.tar' and gender = 'F'"), in_one);
    assert_int_equal(ask(&lmdb, 1, "subject between 2 and 3"), 40);
    assert_int_equal(ask(&shards, 1, "n is null"), 40);
}

TEST(whole_numbers_while_packing) {
    static const char LIST[] = "path,id\na.bmp,9007199254740992\nb.bmp,9007199254740993\n"
                               "c.bmp,9007199254740994\n";
    uint8_t bmp[4096];
    for (int i = 0; i < 3; i++) {
        const char *path = in_folder("ids/%c.bmp", 'a' + i);
        fixture_write(path, bmp, fixture_bmp(bmp, 4, 4, 24, i));
    }
    const char *list = fixture_path("ids/list.csv"), *out = fixture_path("ids.tar");
    fixture_write(list, LIST, strlen(LIST));
    dt_pack_opts o = {.source = list, .out = out, .where = "id > 9007199254740992"};
    must(dt_data_pack(&o));
    assert_int_equal(ask(&out, 1, "id > 0"), 2);
    assert_int_equal(ask(&out, 1, "id = 9007199254740993"), 1);
    assert_int_equal(ask(&out, 1, "id in (9007199254740993, 1)"), 1);
    assert_int_equal(ask(&out, 1, "id = 9007199254740992"), 0);
}

// Columns that only one of the sets has are null in the other.
TEST(sets_of_other_columns) {
    uint8_t bmp[4096];
    for (int i = 0; i < 6; i++) {
        const char *path = in_folder("photos/c%d/p%d.bmp", i % 2, i);
        fixture_write(path, bmp, fixture_bmp(bmp, 4, 4, 24, i));
    }
    const char *photos = packed(fixture_path("photos"), "photos.tar");
    const char *both[] = {photos, lmdb};
    assert_int_equal(ask(both, 2, "label = 'c1'"), 3);
    assert_int_equal(ask(both, 2, "label is null"), 80);
    assert_int_equal(ask(both, 2, "label = 'c1' or subject = 1"), 23);
    // the column that mixing makes
    assert_int_equal(ask(both, 2, "set = 'photos'"), 6);
    assert_int_equal(ask(both, 2, "set != 'photos' and hand = 'Left'"), 20);
    const char *three[] = {photos, lmdb, fixture_path("photos-raw.tar")};
    fixture_pack(fixture_path("photos"), fixture_path("photos-raw.tar"));
    assert_int_equal(ask(three, 3, "set = 'photos' and label = 'c1'"), 3);
    assert_int_equal(ask(three, 3, "label = 'c1'"), 6);
    assert_int_equal(ask(three, 3, "set in ('photos', 's')"), 86);
}

// ---- data.where ------------------------------------------------------------------------------------
static dt_status open_where(const char *where, dt_dataset **d) {
    dt_config *c = fixture_parse("  path: \"%s\"\n  where: \"%s\"\n  fields:\n    image: {kind: image, "
                                 "size: [4, 4]}\n    subject: {kind: class}\n",
                                 shards, where);
    return dt_data_open(d, c, NULL, 1, NULL);
}

TEST(where_leaves_records_out) {
    dt_dataset *d;
    must(open_where("hand = 'Left' and subject in (2, 4)", &d));
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 10);
    assert_int_equal(d->fields[1].n_classes, 2); // of what is left
    assert_non_null(strstr(d->describe(d), ": 10 records of 80 (data.where), 10 samples"));
    uint64_t fingerprint = d->fingerprint;
    d->close(d);
    must(open_where("subject in (2, 4)", &d));
    assert_int_not_equal(d->fingerprint, fingerprint);
    d->close(d);
}

TEST(where_that_is_wrong) {
    static const char *const CASES[][2] = {
        {"subject = 99", "t.yaml:4:10: data.where: none of the 80 records fits subject = 99"},
        {"subject >", "t.yaml:4:10: data.where: expression, character 10 (its end): expected a value"},
        {"subjekt = 1", "t.yaml:4:10: data.where: expression, character 1: the set has no column "
                        "'subjekt'; did you mean 'subject'?"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        dt_dataset *d;
        assert_int_equal(open_where(CASES[i][0], &d), DT_E_USAGE);
        assert_string_equal(dt_error_message(), CASES[i][1]);
    }
}

// Keeping all changes nothing; keeping some is as if the others had never been there.
TEST(keeping_is_as_if_never_added) {
    dt_catalog *c = ten(), *few = dt_catalog_create();
    bool keep[10];
    uint64_t before = dt_catalog_hash(c);
    for (int i = 0; i < 10; i++) keep[i] = true;
    dt_catalog_keep(c, keep);
    assert_int_equal(dt_catalog_hash(c), before);
    for (int i = 0; i < 10; i++) keep[i] = i == 1 || i == 3 || i == 7;
    dt_catalog_keep(c, keep);
    dt_catalog_add_shard(few, "x.bin", 100);
    static const char *const LABEL[] = {"dog", NULL, "it's"}, *const AGE[] = {"40", "5.0", "100"};
    for (int k = 0; k < 3; k++) {
        int i = 1 + 2 * k + (k == 2 ? 2 : 0);
        char text[16];
        snprintf(text, sizeof text, "a_%d/r", i);
        dt_catalog_add_record(few, 0, text);
        dt_catalog_add_member(few, "jpg", (uint64_t)i, (uint64_t)i, NULL);
        if (LABEL[k]) dt_catalog_set(few, "label", LABEL[k]);
        dt_catalog_set(few, "age", AGE[k]);
        snprintf(text, sizeof text, "%02d", i);
        dt_catalog_set(few, "code", text);
        snprintf(text, sizeof text, "%d", i % 3);
        dt_catalog_set(few, "subject", text);
        dt_catalog_set(few, "left \"eye\"", "x");
        if (i != 3) dt_catalog_set_real(few, "q", i / 10.0);
    }
    dt_catalog_finish(few);
    assert_int_equal(c->n_records, 3);
    assert_int_equal(c->n_members, 3);
    assert_int_equal(c->members[c->records[2].first_member].offset, 7);
    assert_int_equal(dt_catalog_hash(c), dt_catalog_hash(few));
    for (int i = 0; i < 3; i++) keep[i] = i == 1;
    dt_catalog_keep(c, keep);
    // columns stay without values, and count as if they were not there
    assert_int_equal(c->table.columns[dt_catalog_find_column(c, "label")].n_values, 0);
    assert_true(isnan(dt_catalog_real(c, dt_catalog_find_real(c, "q"), 0)));
    dt_catalog_destroy(few);
    few = dt_catalog_create();
    dt_catalog_add_shard(few, "x.bin", 100);
    dt_catalog_add_record(few, 0, "a_3/r");
    dt_catalog_add_member(few, "jpg", 3, 3, NULL);
    static const char *const LEFT[][2] = {{"age", "5.0"}, {"code", "03"}, {"subject", "0"}, {"left \"eye\"", "x"}};
    for (int k = 0; k < 4; k++) dt_catalog_set(few, LEFT[k][0], LEFT[k][1]);
    dt_catalog_finish(few);
    assert_int_equal(dt_catalog_hash(c), dt_catalog_hash(few));
    dt_catalog_destroy(few);
    dt_catalog_destroy(c);
}

static int set_up(void **state) {
    folder_make(state);
    raw = fixture_path("raw");
    fixture_biometric(raw, 4, 10);
    lmdb = packed(raw, "s.lmdb");
    shards = packed(raw, "s-{00..02}.tar");
    return 0;
}

TEST_MAIN(set_up, fixture_tear_down)
