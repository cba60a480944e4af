// test_text.c: numbers as text, the JSON writer's corners, durations, regular expressions with bounds, secrets in URLs.
#include "base/bits.h"
#include "base/json.h"
#include "base/regular.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/url.h"
#include "testing.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

TEST(sizes_in_their_unit) {
    static const struct {
        double n_bytes;
        const char *text;
    } CASES[] = {{0, "0 B"},          {999, "999 B"},  {1234, "1.2 kB"},
                 {4.56e7, "45.6 MB"}, {1e9, "1.0 GB"}, {2e15, "2000.0 TB"}};
    char text[DT_SIZE_CHARS];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_string_equal(dt_size_text(text, CASES[i].n_bytes), CASES[i].text);
}

// The fast way and printf's must agree.
TEST(shortest_texts) {
    static const double SOME[] = {0,
                                  -0.0,
                                  1,
                                  0.1,
                                  0.5,
                                  1.0 / 3,
                                  1e-4,
                                  99999.5,
                                  1e14,
                                  1e15,
                                  1e-5,
                                  5e-5,
                                  1e-320,
                                  1e308,
                                  123.456,
                                  0.3,
                                  2.5,
                                  1e13,
                                  -7,
                                  -0.07,
                                  0.0009999999999999999,
                                  0.09999999999999999,
                                  9.999999999999998,
                                  4503599627370497.5};
    uint64_t x = 1, n_some = sizeof SOME / sizeof *SOME;
    for (uint64_t i = 0; i < 300000; i++) {
        char text[DT_REAL_CHARS], want[DT_REAL_CHARS];
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double v = ldexp((double)(int64_t)x, (int)(x >> 7 & 63) - 80);
        if (i % 3 == 1) v = (double)(x >> 40) / (1 << 24);
        if (i % 3 == 2) v = (double)(int64_t)(x >> 20) / 1000 - 1e9;
        if (i < n_some) v = SOME[i];
        for (int digits = 15; digits <= 17; digits++) {
            snprintf(want, sizeof want, "%.*g", digits, v);
            if (strtod(want, NULL) == v) break;
        }
        assert_string_equal(dt_real_text(text, v), want);
        snprintf(want, sizeof want, "%" PRId64, (int64_t)x >> (i % 64));
        assert_string_equal(dt_int_text(text, (int64_t)x >> (i % 64)), want);
    }
    char text[DT_INT_CHARS];
    assert_string_equal(dt_int_text(text, INT64_MIN), "-9223372036854775808");
    assert_string_equal(dt_int_text(text, 0), "0");
}

// -- json ----------------------------------------------------------------------------------------
TEST(test_json) {
    dt_json j;
    dt_json_init(&j);
    dt_json_begin_object(&j, NULL);
    dt_json_int(&j, "i", INT64_MIN);
    dt_json_real(&j, "r", 0.1);
    dt_json_real(&j, "nan", NAN);
    dt_json_bool(&j, "b", true);
    dt_json_begin_array(&j, "a");
    dt_json_begin_array(&j, NULL);
    dt_json_end_array(&j);
    dt_json_begin_object(&j, NULL);
    dt_json_end_object(&j);
    dt_json_null(&j, NULL);
    dt_json_end_array(&j);
    dt_json_string(&j, "s", "q\" b\\ n\n \x01 \xC3\xA9 \xFF \xC0\x80 \xED\xA0\x80 \xF0\x9F\x98\x80");
    dt_json_raw(&j, "raw", "[1,\"\xC2\x9B\x1B\"]");
    dt_json_string(&j, "c1", "\x7F \xC2\x80 \xC2\x9F \xC2\xA0");
    dt_json_end_object(&j);
    dt_json_newline(&j);
    const char *bad = "\xEF\xBF\xBD";
    char want[512];
    snprintf(want, sizeof want,
             "{\"i\":-9223372036854775808,\"r\":0.1,\"nan\":null,\"b\":true,\"a\":[[],{},null],"
             "\"s\":\"q\\\" b\\\\ n\\n \\u0001 \xC3\xA9 %s %s%s %s%s%s \xF0\x9F\x98\x80\","
             "\"raw\":[1,\"\\u009b \"],\"c1\":\"\\u007f \\u0080 \\u009f \xC2\xA0\"}\n",
             bad, bad, bad, bad, bad, bad);
    assert_string_equal(j.data, want);
    assert_int_equal(j.n_bytes, strlen(want));
    const char *buffer = j.data;
    dt_json_reset(&j);
    dt_json_begin_array(&j, NULL);
    const double values[] = {1.0 / 3, 1e300, 5e-324, -0.0, 123456789.0, 1e22};
    for (size_t i = 0; i < 6; i++) dt_json_real(&j, NULL, values[i]);
    dt_json_end_array(&j);
    assert_ptr_equal(j.data, buffer);
    const char *at = j.data + 1;
    for (size_t i = 0; i < 6; i++) {
        char *end;
        assert_true(strtod(at, &end) == values[i]);
        at = end + 1;
    }
    const double seconds[] = {0, 0.03, 12, 1.0000000005, 0.9999999999, 20.000000012, 3e9, -1.5};
    dt_json_reset(&j);
    dt_json_begin_array(&j, NULL);
    for (size_t i = 0; i < 8; i++) dt_json_seconds(&j, NULL, seconds[i]);
    dt_json_seconds(&j, NULL, NAN);
    dt_json_end_array(&j);
    assert_string_equal(j.data, "[0,0.03,12,1.000000001,1,20.000000012,3000000000,-1.5,null]");
    dt_json_fini(&j);
}

// Keys of three bytes between others, from few values, so that many are alike; and of sixteen.
TEST(a_radix_sort_is_in_order_and_stable) {
    enum { MOST = 3000 };
    typedef struct thing {
        uint32_t key, number;
        uint64_t low, high;
    } thing;
    thing *both = calloc(2 * MOST, sizeof *both);
    dt_rng rng = {.seed = 11};
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t n = round < 4 ? round : dt_rng_below(&rng, round, MOST);
        for (uint32_t i = 0; i < n; i++)
            both[i] = (thing){.key = dt_rng_below(&rng, 100 + i, 1u << round / 2 % 20) << 8 |
                                     dt_rng_below(&rng, 7000 + i, 256), // the lowest is no key
                              .number = i,
                              .low = dt_rng_below(&rng, 20000 + i, 3),
                              .high = (uint64_t)dt_rng_below(&rng, 40000 + i, 3) << 61};
        const thing *by_key = dt_radix_sort(both, both + MOST, n, sizeof *both, offsetof(thing, key) + 1, 3);
        for (uint32_t i = 1; i < n; i++) {
            uint32_t a = by_key[i - 1].key >> 8, b = by_key[i].key >> 8;
            assert_true(a < b || (a == b && by_key[i - 1].number < by_key[i].number));
        }
        thing *again = by_key == both ? both + MOST : both;
        const thing *by_two = dt_radix_sort((thing *)by_key, again, n, sizeof *both, offsetof(thing, low), 16);
        for (uint32_t i = 1; i < n; i++) {
            const thing *a = &by_two[i - 1], *b = &by_two[i];
            assert_true(a->high < b->high || (a->high == b->high && a->low <= b->low));
        }
    }
    free(both);
}

TEST(durations) {
    char text[32];
    dt_text_duration(text, sizeof text, 44.6);
    assert_string_equal(text, "0:45");
    dt_text_duration(text, sizeof text, 3723);
    assert_string_equal(text, "1:02:03");
    dt_text_duration(text, sizeof text, 3 * 86400 + 4 * 3600);
    assert_string_equal(text, "3d04h");
}

// -- regular expressions ---------------------------------------------------------------------------
TEST(a_regular_expression_has_bounds) {
    static const struct {
        const char *text, *why; // NULL: taken
    } CASES[] = {
        {"layer[1-3]\\..*", NULL},
        {"(a|b)+[0-9]{4}-[0-9]{2}", NULL},
        {"x{1,255}_.{1,255}[]{}]{3}[^]]", NULL},
        {"a{1000}", NULL},
        {"((a{255}){255}){255}", "its repeats come to more than 2000 parts"},
        {"a{255}{255}", "its repeats come to"},
        {"((a?b?c?d?e?){255}){64}", "its repeats come to"},
        {"((a+b*)+){1,32000}", "its repeats come to"},
        {"a{,4000}", "its repeats come to"},
        {"((((((((((((((((((((a+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+)+", "its repeats come to"},
        {"a++++++++++++++++++++++++", "its repeats come to"},
        {"a{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}{1,}", "its repeats come to"},
        {"(a{1500}|b{1500})", "its repeats come to"},
        {"(a*)*\\1b", "back-references are not read"},
        {"((((((((((((((((((((((((((((((((((a", "more than 31 groups"},
        {"(a", "Unmatched ("},
        {"[a", "Unmatched ["},
        {"[", "Invalid regular expression"},
        {"a{2", "Unmatched"},
        {"a\\", "Trailing backslash"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char why[DT_REGULAR_WHY] = "";
        regex_t r;
        const bool good = dt_regular_compile(&r, CASES[i].text, REG_NOSUB, why);
        if (good) regfree(&r);
        if (good != !CASES[i].why || !strstr(why, CASES[i].why ? CASES[i].why : ""))
            fail_msg("%s: %s", CASES[i].text, why);
    }
    char *longest = dt_xcalloc(1, 8192);
    memset(longest, 'a', 8191);
    regex_t r;
    char why[DT_REGULAR_WHY];
    assert_true(dt_regular_compile(&r, longest, REG_NOSUB, why));
    regfree(&r);
    free(longest);
}

// -- secrets in URLs -------------------------------------------------------------------------------
// The word that must not be shown is hush, in parts.
TEST(a_url_with_a_secret_is_refused_unprinted) {
    static const char *const REFUSED[] = {
        "http://joe:hush@host/set.tar",
        "https://hush@host/set.tar",
        "HTTP://joe:hush@host/set.tar",
        "ftp://joe:hush@host/set.tar",
        "s3://KEY:hush@bucket/set.tar",
        "S3://KEY:hush@bucket/set.tar",
        "gs://hush@bucket/set.tar",
        "http://joe:pa@hush@host/set.tar",
        "http://joe:pa@hush@host:8000/a@b.tar",
        "http://joe:pa/hush@host/set.tar",
        "http://joe:pa#hush@host/set.tar",
        "http://joe:pa?hush@host/set.tar",
        "http://joe:12/hush@host/set.tar",
        "http://joe@pa/hush@host/set.tar",
        "s3://KEY:se/cr+hush@bucket/set.tar",
        "http://host/set.tar?sig=hush",
        "http://host/set.tar?%73ig=hush",
        "http://host/set.tar?%53%49%47=hush",
        "http://host/set.tar?a=1&X-Amz-Signature=hush",
        "http://host/set.tar?a=1;sig=hush",
        "http://host/set.tar;jsessionid=hush",
        "http://host/set.tar#access_token=hush",
        "http://host/set.tar?a-parameter-whose-name-is-of-more-than-sixty-three-bytes-in-front-of-its-token=hush",
        "http://host/set.tar?%00token=hush",
        "http://host/set.tar?code=hush",
        "http://host/set.tar?Code=hush",
        "http://host/set.tar?pwd=hush",
        "http://host/set.tar?pw=hush",
        "http://host/set.tar?jwt=hush",
        "http://host/set.tar?session=hush",
        "http://host/set.tar?a=1#b=2&PHPSESSION=hush",
        "http://host/set.tar?next=https://joe:hush@host/",
        "HTTPS://host/set.tar?api_key=hush",
        "a.tar::http://joe:hush@host/b.tar",
        "data.path=[a.tar, http://joe:hush@host/b.tar]",
        "--join=http://joe:hush@host:80",
        "pipe+http://joe:hush@host/",
        "http://joe:pa hush@host/set.tar",
        "http://joe:pa\thush@ho@st/set.tar",
    };
    static const char *const FINE[] = {
        "",
        "set.tar",
        "runs/fusion@5",
        "a@b:c",
        "://",
        "host:80/a@b",
        "http://host/a: ask joe@host",
        "http://host, joe@host",
        "http://host/set.tar",
        "http://[::1]:9000/set.tar",
        "http://host:9000/set-{00..11}.tar::http://host:9000/b.tar",
        "https://host/resolve/v1@main/set.tar?download=1",
        "https://host/set.tar?encoding=a&postcode=1&codec=x",
        "s3://bucket/runs/a@5/",
        "s3://bucket/key-*?-pass*.tar",
        "s3://bucket/a&token=b/c;sig=d",
        "/data/author=Smith/a.jpg",
    };
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        if (dt_url_check(REFUSED[i]) != DT_E_USAGE) fail_msg("taken: %s", REFUSED[i]);
        if (strstr(dt_error_message(), "hush")) fail_msg("printed: %s", dt_error_message());
    }
    for (size_t i = 0; i < sizeof FINE / sizeof *FINE; i++)
        if (dt_url_check(FINE[i]) != DT_OK) fail_msg("refused: %s", dt_error_message());
}

TEST_MAIN(NULL, NULL)
