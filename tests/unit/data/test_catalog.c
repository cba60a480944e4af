// The catalog: text and number columns, what its hash covers, the index file there and back.
#include "data/catalog/index_file.h"
#include "data/loader/fields.h"
#include "data_fixture.h"
#include "store/blob.h"
#include "testing.h"

#include <math.h>

static const char WEIRD[] = "new\nline\ttab \"quote\" 'it''s' \x01 \xc3\xa9 \xff";

static void add(dt_catalog *c, uint32_t shard, const char *key, int i) {
    char text[16];
    uint64_t hash = 1000 + (uint64_t)i;
    snprintf(text, sizeof text, "%d", i % 3);
    must(dt_catalog_add_record(c, shard, key));
    must(dt_catalog_add_member(c, "jpg", (uint64_t)i, 1, i % 2 ? &hash : NULL));
    if (i != 1) must(dt_catalog_set(c, "class", text));
    must(dt_catalog_set(c, WEIRD, i ? WEIRD : ""));
    if (i != 2) must(dt_catalog_set_real(c, "yaw", i * 0.1));
    if (i == 2) must(dt_catalog_set_real(c, "late", -1e300));
}

static dt_catalog *small(const char *data_path) {
    static const char *const KEYS[] = {"a", "b", WEIRD, "d"};
    dt_catalog *c = dt_catalog_create();
    uint32_t shard = dt_catalog_add_shard(c, data_path, 100);
    for (int i = 0; i < 4; i++) add(c, shard, KEYS[i], i);
    return c;
}

static uint64_t write_data(const char *path) {
    uint8_t bytes[100] = {1, 2, 3};
    dt_blob b;
    uint64_t stamp;
    fixture_write(path, bytes, sizeof bytes);
    must(dt_blob_open(&b, path));
    must(dt_blob_stamp(&b, &stamp));
    dt_blob_close(&b);
    return stamp;
}

TEST(number_columns_hold_what_was_set) {
    dt_catalog *c = small("x");
    dt_catalog_finish(c);
    int yaw = dt_catalog_find_real(c, "yaw"), late = dt_catalog_find_real(c, "late");
    assert_true(yaw >= 0 && late >= 0);
    assert_int_equal(dt_catalog_find_column(c, "yaw"), -1);
    assert_true(dt_catalog_real(c, yaw, 0) == 0 && dt_catalog_real(c, yaw, 3) == 3 * 0.1);
    assert_true(isnan(dt_catalog_real(c, yaw, 2)));
    assert_true(isnan(dt_catalog_real(c, late, 0)) && isnan(dt_catalog_real(c, late, 3)));
    assert_true(dt_catalog_real(c, late, 2) == -1e300);
    dt_catalog_destroy(c);
}

TEST(the_hash_covers_numbers) {
    uint64_t hash[5];
    for (int k = 0; k < 5; k++) {
        dt_catalog *c = small("x");
        if (k == 2) dt_catalog_set_real(c, "yaw", nextafter(3 * 0.1, 1));
        if (k == 3) dt_catalog_set_real(c, "other", 1);
        if (k == 4) dt_catalog_set_real(c, "yaw", NAN);
        dt_catalog_finish(c);
        hash[k] = dt_catalog_hash(c);
        dt_catalog_destroy(c);
    }
    assert_int_equal(hash[0], hash[1]);
    for (int k = 2; k < 5; k++)
        for (int j = 1; j < k; j++) assert_int_not_equal(hash[j], hash[k]);
}

// -0 and 0, and every NaN, are the same number.
TEST(equal_numbers_hash_equal) {
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        dt_catalog *c = small("x");
        dt_catalog_set_real(c, "zero", k ? -0.0 : 0.0);
        dt_catalog_finish(c);
        hash[k] = dt_catalog_hash(c);
        dt_catalog_destroy(c);
    }
    assert_int_equal(hash[0], hash[1]);
}

TEST(a_name_that_is_both_becomes_text) {
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x", 1);
    static const char *const JSON[] = {"{\"w\": 1}", "{\"w\": 0.1}", "{\"w\": 2.5e3}", "{}"};
    for (int i = 0; i < 4; i++) {
        char key[2] = {(char)('a' + i), 0};
        must(dt_catalog_add_record(c, 0, key));
        must(dt_catalog_set_json(c, JSON[i], strlen(JSON[i])));
    }
    dt_catalog_finish(c);
    assert_int_equal(dt_columns_count(&c->table, DT_NUMBER_COLUMN), 0);
    int w = dt_catalog_find_column(c, "w");
    assert_int_equal(c->table.columns[w].n_values, 3);
    assert_string_equal(dt_catalog_value(c, w, 0), "1");
    assert_string_equal(dt_catalog_value(c, w, 1), "0.1");
    assert_string_equal(dt_catalog_value(c, w, 2), "2500");
    assert_null(dt_catalog_value(c, w, 3));
    dt_catalog_destroy(c);
}

// As json.dump writes them: only the value itself is text or missing.
TEST(numbers_that_JSON_cannot_hold) {
    static const struct {
        const char *json, *id; // id NULL: it has no value
    } ROWS[] = {{"{\"label\": \"a\", \"id\": 18446744073709551615, \"q\": 0.5}", "18446744073709551615"},
                {"{\"id\": -9223372036854775809, \"q\": 0.5, \"label\": \"a\"}", "-9223372036854775809"},
                {"{\"id\":9223372036854775807,\"deep\":[NaN,{\"x\":-Infinity}],\"q\":0.5,\"label\":\"a\"}",
                 "9223372036854775807"},
                {"{\"id\": NaN, \"label\": \"a\", \"q\": 0.5}", NULL},
                {"{\"id\": Infinity, \"label\": \"a\", \"q\": 0.5}", NULL},
                {"{\"q\": 0.5, \"label\": \"a\", \"id\": -Infinity}", NULL},
                {"{\"id\": 1e999, \"label\": \"a\", \"q\": 0.5}", NULL},
                {"{\"id\": \"NaN \\\" 1e999 \", \"more\": NaN, \"label\": \"a\", \"q\": 0.5}", "NaN \" 1e999 "},
                {"{\"label\": \"a\", \"q\": 0.5, \"id\": 123456789012345678901234567890123456789012}",
                 "123456789012345678901234567890123456789012"}};
    enum { N = sizeof ROWS / sizeof *ROWS };
    dt_catalog *c = dt_catalog_create();
    dt_catalog_add_shard(c, "x", 1);
    for (int i = 0; i < N; i++) {
        char key[2] = {(char)('a' + i), 0};
        must(dt_catalog_add_record(c, 0, key));
        must(dt_catalog_set_json(c, ROWS[i].json, strlen(ROWS[i].json)));
    }
    static const char *const BROKEN[] = {"{\"a\": NaN",  "{\"a\": Nan}", "{\"a\": 18446744073709551615",
                                         "{\"a\": \"\\", "NaN",          "-"};
    for (size_t i = 0; i < sizeof BROKEN / sizeof *BROKEN; i++)
        must_fail(DT_E_DATA, "not JSON", dt_catalog_set_json(c, BROKEN[i], strlen(BROKEN[i])));
    dt_catalog_finish(c);
    const int label = dt_catalog_find_column(c, "label"), id = dt_catalog_find_column(c, "id");
    for (uint32_t i = 0; i < N; i++) {
        assert_string_equal(dt_catalog_value(c, label, i), "a");
        assert_true(dt_catalog_real(c, dt_catalog_find_real(c, "q"), i) == 0.5);
        const char *value = dt_catalog_value(c, id, i);
        if (!ROWS[i].id) assert_null(value);
        if (ROWS[i].id) assert_string_equal(value, ROWS[i].id);
    }
    assert_int_equal(dt_catalog_find_column(c, "more"), -1);
    dt_catalog_destroy(c);
}

TEST(the_index_gives_the_catalog_back) {
    const char *data = fixture_path("x.tar"), *index = fixture_path("x.tar.index");
    uint64_t stamp = write_data(data);
    dt_catalog *c = small(data), *back = dt_catalog_create();
    bool found, stale;
    c->shards[0].source_hash = 77;
    dt_catalog_finish(c);
    must(dt_index_save(c, 0, stamp, index));
    must(dt_index_load(back, data, &found, &stale));
    assert_true(found && !stale);
    dt_catalog_finish(back);
    assert_int_equal(dt_catalog_hash(back), dt_catalog_hash(c));
    assert_int_equal(back->shards[0].source_hash, 77);
    assert_string_equal(dt_catalog_str(back, back->records[2].key), WEIRD);
    assert_string_equal(dt_catalog_value(back, dt_catalog_find_column(back, WEIRD), 3), WEIRD);
    assert_string_equal(dt_catalog_value(back, dt_catalog_find_column(back, WEIRD), 0), "");
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(back->members[i].offset, i);
        assert_int_equal(back->members[i].has_hash, i % 2);
    }
    dt_catalog_destroy(back);
    dt_catalog_destroy(c);
}

// Shards that know different columns are one catalog.
TEST(shards_join) {
    dt_catalog *all = dt_catalog_create();
    bool found, stale;
    for (int k = 0; k < 3; k++) {
        char name[32];
        snprintf(name, sizeof name, "s%d.tar", k);
        const char *data = fixture_path(name);
        uint64_t stamp = write_data(data);
        dt_catalog *c = dt_catalog_create();
        dt_catalog_add_shard(c, data, 100);
        for (int i = 0; i < 2; i++) {
            char key[16];
            snprintf(key, sizeof key, "r%d", k * 2 + i);
            must(dt_catalog_add_record(c, 0, key));
            if (k != 1) must(dt_catalog_set_real(c, "q", k + i * 0.25));
            if (k == 1) must(dt_catalog_set(c, "only", i ? "x" : "y"));
        }
        dt_catalog_finish(c);
        char *index = dt_xprintf("%s.index", data);
        must(dt_index_save(c, 0, stamp, index));
        free(index);
        dt_catalog_destroy(c);
        must(dt_index_load(all, data, &found, &stale));
    }
    dt_catalog_finish(all);
    assert_int_equal(all->n_records, 6);
    int q = dt_catalog_find_real(all, "q"), only = dt_catalog_find_column(all, "only");
    static const double WANT[] = {0, 0.25, NAN, NAN, 2, 2.25};
    for (uint32_t r = 0; r < 6; r++) {
        if (isnan(WANT[r]))
            assert_true(isnan(dt_catalog_real(all, q, r)));
        else
            assert_true(dt_catalog_real(all, q, r) == WANT[r]);
        assert_int_equal(dt_catalog_value(all, only, r) != NULL, r / 2 == 1);
    }
    dt_catalog_destroy(all);
}

// What the index of a shard has is what its own records have, whatever others do: their values alone, in order.
TEST(a_shard_has_its_own_rows) {
    enum { N = 900, SHARDS = 4 };
    static const uint32_t FIRST[SHARDS + 1] = {0, 300, 300, 301, N}; // the second has none
    dt_catalog *c = dt_catalog_create(), *all = dt_catalog_create();
    uint64_t stamp = 0;
    char text[32];
    for (uint32_t s = 0, i = 0; s < SHARDS; s++) {
        snprintf(text, sizeof text, "own%u.tar", s);
        stamp = write_data(fixture_path(text));
        dt_catalog_add_shard(c, fixture_path(text), 100);
        for (; i < FIRST[s + 1]; i++) {
            snprintf(text, sizeof text, "r%u", i);
            must(dt_catalog_add_record(c, s, text));
            snprintf(text, sizeof text, "%u", i * 7919 % 400);
            must(dt_catalog_set(c, "many", text));
            if (i % 5) must(dt_catalog_set(c, "few", i % 2 ? "x" : "y"));
            if (s == 2) must(dt_catalog_set(c, "here", "only"));
        }
    }
    dt_catalog_finish(c);
    for (uint32_t s = 0; s < SHARDS; s++) {
        dt_catalog *one = dt_catalog_create();
        bool found, stale;
        char *index = dt_xprintf("%s.index", c->shards[s].path);
        must(dt_index_save(c, s, stamp, index));
        must(dt_index_load(one, c->shards[s].path, &found, &stale));
        must(dt_index_load(all, c->shards[s].path, &found, &stale));
        dt_catalog_finish(one);
        uint32_t n = FIRST[s + 1] - FIRST[s];
        int many = dt_catalog_find_column(one, "many"), here = dt_catalog_find_column(one, "here");
        assert_int_equal(one->n_records, n);
        assert_int_equal(many >= 0, n > 0);
        assert_int_equal(here >= 0, s == 2);
        if (many >= 0) assert_int_equal(one->table.columns[many].n_values, n < 400 ? n : 400);
        free(index);
        dt_catalog_destroy(one);
    }
    dt_catalog_finish(all);
    assert_int_equal(dt_catalog_hash(all), dt_catalog_hash(c));
    dt_catalog_destroy(all);
    dt_catalog_destroy(c);
}

TEST(an_index_of_other_bytes_is_stale) {
    const char *data = fixture_path("old.tar"), *index = fixture_path("old.tar.index");
    for (int packed = 0; packed < 2; packed++) {
        uint64_t stamp = write_data(data);
        dt_catalog *c = small(data), *back = dt_catalog_create();
        uint32_t n = c->n_records;
        bool found, stale;
        c->shards[0].source_hash = packed ? 5 : 0;
        dt_catalog_finish(c);
        must(dt_index_save(c, 0, stamp, index));
        uint8_t bytes[101] = {9};
        // a scanned file is scanned again; of a packed one, hashes say what has changed
        fixture_write(data, bytes, 100);
        must(dt_index_load(back, data, &found, &stale));
        assert_true(found && stale == !packed);
        assert_int_equal(back->n_records, packed ? n : 0);
        // longer: another file
        fixture_write(data, bytes, 101);
        must(dt_index_load(back, data, &found, &stale));
        assert_true(found && stale);
        // shorter: a packed one never was
        fixture_write(data, bytes, 50);
        assert_int_equal(dt_index_load(back, data, &found, &stale), packed ? DT_E_DATA : DT_OK);
        dt_catalog_destroy(back);
        dt_catalog_destroy(c);
    }
}

TEST(no_records_and_one) {
    for (int n = 0; n < 2; n++) {
        const char *data = fixture_path("tiny.tar"), *index = fixture_path("tiny.tar.index");
        uint64_t stamp = write_data(data);
        dt_catalog *c = dt_catalog_create(), *back = dt_catalog_create();
        bool found, stale;
        dt_catalog_add_shard(c, data, 100);
        if (n) {
            must(dt_catalog_add_record(c, 0, ""));
            must(dt_catalog_set_real(c, "", 1));
        }
        dt_catalog_finish(c);
        must(dt_index_save(c, 0, stamp, index));
        must(dt_index_load(back, data, &found, &stale));
        dt_catalog_finish(back);
        assert_int_equal(back->n_records, n);
        assert_int_equal(dt_catalog_hash(back), dt_catalog_hash(c));
        dt_catalog_destroy(back);
        dt_catalog_destroy(c);
    }
}

// A field of kind real comes from a number column.
// Every kind of thing that takes room, and a number column that becomes text at the end.
static dt_status build_limited(dt_catalog *c, const char *data, uint64_t stamp, uint32_t most) {
    static const char *const KEYS[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    uint32_t shard = dt_catalog_add_shard(c, data, 100);
    c->table.most = most;
    for (int i = 0; i < 8; i++) {
        DT_TRY(dt_catalog_add_record(c, shard, KEYS[i]));
        for (int k = 0; k < 40; k++) {
            char ext[4] = {(char)('a' + k % 26), (char)('a' + k / 26)};
            DT_TRY(dt_catalog_add_member(c, ext, 1, 1, NULL));
        }
        DT_TRY(dt_catalog_set(c, "name", KEYS[i]));
        DT_TRY(i == 2 ? dt_catalog_set(c, "both", "text") : dt_catalog_set_real(c, "both", i + 0.25));
    }
    DT_TRY(dt_catalog_finish(c));
    return dt_index_save(c, 0, stamp, fixture_path("full.tar.index"));
}

// Numbers of 32 bits never wrap: whatever does not fit is told once, and what is there can be given back.
TEST(what_does_not_fit_is_told) {
    const char *data = fixture_path("full.tar");
    uint32_t most = 0, n_refused = 0;
    dt_status st;
    uint64_t stamp = write_data(data);
    do { // up to the least that fits
        dt_catalog *c = dt_catalog_create();
        st = build_limited(c, data, stamp, most++);
        if (st != DT_OK) {
            must_fail(DT_E_DATA, "full.tar: ", st);
            assert_non_null(strstr(dt_error_message(), "holds"));
            n_refused++;
        }
        assert_true(c->table.strings.n_bytes < most && c->n_members < most && c->n_records < most);
        dt_catalog_destroy(c);
    } while (st != DT_OK && most < 1000);
    must(st);
    assert_true(n_refused > 160);                                  // members alone are so many
    for (uint32_t limit = 1; st != DT_OK || limit == 1; limit++) { // and by who reads it
        dt_catalog *all = dt_catalog_create();
        bool found, stale;
        all->table.most = limit;
        st = dt_index_load(all, data, &found, &stale);
        assert_true(found && !stale && limit < 1000);
        assert_int_equal(st, st == DT_OK ? DT_OK : DT_E_DATA);
        if (st == DT_OK) assert_int_equal(dt_index_load(all, data, &found, &stale), DT_E_DATA);
        dt_catalog_destroy(all);
    }
}

TEST(a_real_field_reads_numbers) {
    const char *data = fixture_path("pose.tar");
    dt_catalog *c = small(data);
    dt_config *cfg;
    dt_fields f;
    static const char TEXT[] = "run: {name: t}\ndata:\n  path: x\n  fields:\n    yaw: {kind: real}\n"
                               "model: {name: fusion}\ntrain: {global_batch: 4, micro_batch: 4}\n";
    dt_catalog_finish(c);
    must(dt_config_parse(&cfg, "t.yaml", TEXT, strlen(TEXT), NULL, 0));
    must(dt_fields_resolve(&f, cfg, c, NULL, NULL));
    for (uint32_t r = 0; r < 4; r++) assert_int_equal(dt_field_present(&f.f[0], c, r), r != 2);
    dt_fields_fini(&f);
    dt_catalog_destroy(c);
    static const char *const BAD[] = {"nan", "-inf", "1e39", "1e400"};
    for (size_t i = 0; i < 2 * (sizeof BAD / sizeof *BAD); i++) { // as text and as a number
        c = small(data);
        bool text = i % 2 == 0;
        if (text)
            must(dt_catalog_set(c, "yaw", BAD[i / 2]));
        else
            must(dt_catalog_set_real(c, "yaw", strtod(BAD[i / 2], NULL)));
        dt_catalog_finish(c);
        bool missing = !text && i / 2 == 0;
        assert_int_equal(dt_fields_resolve(&f, cfg, c, NULL, NULL), missing ? DT_OK : DT_E_USAGE);
        if (missing) dt_fields_fini(&f);
        if (!missing) assert_non_null(strstr(dt_error_message(), "column yaw holds"));
        dt_catalog_destroy(c);
    }
    dt_config_destroy(cfg);
}

TEST_MAIN(folder_make, fixture_tear_down)
