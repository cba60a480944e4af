// MDS sets that MosaicML's own writer made (tests/golden/make_mds.py), and shards that are damaged.
#define _GNU_SOURCE
#include "data/source/source.h"
#include "data/source/source_parts.h"
#include "data/verify.h"
#include "data_fixture.h"
#include "testing.h"

#include <sys/resource.h>
#include <unistd.h>

static const char *golden(const char *name) {
    const char *source = getenv("SOURCE");
    return dt_arena_printf(&folder_arena, "%s/tests/golden/%s", source ? source : ".", name);
}

static dt_status open_set(dt_reader **out, const char *path) {
    dt_reader_item item = {.path = path};
    dt_reader_options o = {.cache_dir = fixture_path("cache"), .cache_bytes = 1 << 24};
    return dt_reader_open_items(out, &item, 1, &o);
}

static dt_reader *open_ok(const char *path) {
    dt_reader *s = NULL;
    must(open_set(&s, path));
    return s;
}

static void expect_text(const dt_reader *s, const char *column, uint32_t r, const char *want) {
    int c = dt_catalog_find_column(s->catalog, column);
    if (c < 0) fail_msg("no column %s", column);
    assert_string_equal(dt_catalog_value(s->catalog, c, r), want);
}

static void expect_real(const dt_reader *s, const char *column, uint32_t r, double want) {
    int c = dt_catalog_find_real(s->catalog, column);
    if (c < 0) fail_msg("no number column %s", column);
    assert_true(dt_catalog_real(s->catalog, c, r) == want);
}

static void expect_member(dt_reader *s, uint32_t r, const char *ext, const void *data, size_t n) {
    const dt_record *rec = &s->catalog->records[r];
    int e = fixture_find_ext(s->catalog, ext);
    dt_buffer scratch = {0};
    dt_span b;
    if (e < 0) fail_msg("no member %s", ext);
    for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++) {
        if (s->catalog->members[m].ext != (uint32_t)e) continue;
        must(dt_reader_read(s, r, m, true, &scratch, &b));
        assert_int_equal(b.n_bytes, n);
        assert_memory_equal(b.data, data, n);
        dt_buffer_fini(&scratch);
        return;
    }
    fail_msg("record %u has no member %s", r, ext);
}

// As make_mds.py has them.
static void check_sample(dt_reader *s, uint32_t i) {
    char text[2000];
    uint8_t bytes[64];
    snprintf(text, sizeof text, "n\xc3\xa4me %u", i);
    expect_text(s, "name", i, text);
    snprintf(text, sizeof text, "%lld", i * 1000000007LL - 5);
    expect_text(s, "n", i, text);
    snprintf(text, sizeof text, "%d", -(int)i);
    expect_text(s, "small", i, text);
    snprintf(text, sizeof text, "1000000000000000000%02u", i);
    expect_text(s, "code", i, text);
    expect_real(s, "ratio", i, i / 8.0);
    expect_real(s, "half", i, i / 4.0);
    expect_real(s, "price", i, i + 0.25);
    expect_real(s, "angle", i, i * 1.5);
    snprintf(text, sizeof text, "p%u", i % 3);
    expect_text(s, "who", i, text);
    memset(bytes, (int)i, sizeof bytes);
    memcpy(bytes, "\xff\xd8\xff", 3);
    expect_member(s, i, "image.jpg", bytes, 13 + i);
    memset(bytes, (int)i, sizeof bytes);
    memcpy(bytes, "\x89PNG\r\n\x1a\n", 8);
    expect_member(s, i, "thumb.png", bytes, 13);
    memset(bytes, (int)i, sizeof bytes);
    memcpy(bytes, "fLaC", 4);
    expect_member(s, i, "raw.flac", bytes, 4 + i);
    float vec[4] = {(float)i, (float)i + 1, (float)i + 2, (float)i + 3};
    expect_member(s, i, "vec.f32", vec, sizeof vec);
    int16_t any[6];
    for (int k = 0; k < 6; k++) any[k] = (int16_t)(k + (int)i);
    expect_member(s, i, "any.i16", any, sizeof any);
    memset(bytes, (int)i, sizeof bytes);
    expect_member(s, i, "grid.u8", bytes, 3 * (1 + i % 2));
    size_t n = 0;
    for (int k = 0; k < 300; k++) n += (size_t)sprintf(text + n, "long ");
    n += (size_t)sprintf(text + n, "%u", i);
    expect_member(s, i, "note.txt", text, n);
}

TEST(what_mosaicml_writes) {
    uint64_t hash = 0;
    static const char *const SETS[] = {"mds_plain", "mds_zstd", "mds_plain/index.json",
                                       "mds_plain/shard.0000{0,1}.mds"};
    for (size_t k = 0; k < sizeof SETS / sizeof *SETS; k++) {
        dt_reader *s = open_ok(golden(SETS[k]));
        assert_string_equal(s->kind, "mds");
        assert_int_equal(s->catalog->n_records, 20);
        assert_int_equal(s->catalog->n_shards, 2);
        const char *key = fixture_key(s->catalog, 3);
        assert_string_equal(key, "shard.00000/000003");
        for (uint32_t i = 0; i < 20; i++) check_sample(s, i);
        if (k > 0) assert_true(hash == dt_catalog_hash(s->catalog));
        hash = dt_catalog_hash(s->catalog);
        dt_reader_close(s);
    }
}

TEST(what_is_not_read_is_said) {
    dt_reader *s;
    must_fail(DT_E_DATA, "zstd and gz are read", open_set(&s, golden("mds_br")));
    const char *list = fixture_path("gone/index.json");
    const char *text = "{\"version\": 2, \"shards\": [{\"format\": \"mds\", \"samples\": 3, "
                       "\"raw_data\": {\"basename\": \"a.mds\"}, \"zip_data\": null}]}";
    fixture_write(list, text, strlen(text));
    must_fail(DT_E_DATA, "a.mds, which is not there", open_set(&s, fixture_path("gone")));
}

// Every kind by itself; a flipped byte of a text, which nothing else would find.
TEST(hashes_of_shards_are_compared) {
    static const char *const KINDS[] = {"xxh32", "xxh64", "xxh3_64", "xxh128", "xxh3_128", "none"};
    static const char *const SETS[][2] = {{"mds_hashed", "shard.00000.mds"},
                                          {"mds_hashed_zstd", "shard.00000.mds.zstd"}};
    for (int k = 0; k < 2 * 6; k++) {
        const char *kind = KINDS[k / 2], *folder = dt_arena_printf(&folder_arena, "h%d", k);
        const char *set = SETS[k % 2][0], *shard = SETS[k % 2][1];
        size_t n, n_list;
        char *list = fixture_read(golden(dt_arena_printf(&folder_arena, "%s/index.json", set)), &n_list);
        char *bytes = fixture_read(golden(dt_arena_printf(&folder_arena, "%s/%s", set, shard)), &n);
        for (char *p = list; (p = memmem(p, n_list - (size_t)(p - list), "\"xxh", 4)); p++)
            if (strncmp(p + 1, kind, strlen(kind)) != 0 || p[1 + strlen(kind)] != '"') p[1] = 'y';
        const char *path = fixture_path(dt_arena_printf(&folder_arena, "%s/%s", folder, shard));
        fixture_write(fixture_path(dt_arena_printf(&folder_arena, "%s/index.json", folder)), list, n_list);
        for (int bad = 0; bad < 2; bad++) {
            if (bad && k % 2) { // other bytes that unpack as well: of the plain set
                free(bytes);
                bytes = fixture_read(golden("mds_hashed/shard.00000.mds"), &n);
            } else if (bad) {
                *(char *)memmem(bytes, n, "long long", 9) = 'L';
            }
            if (bad && k % 2) path = fixture_path(dt_arena_printf(&folder_arena, "%s/shard.00000.mds", folder));
            fixture_write(path, bytes, n);
            dt_reader *s = open_ok(fixture_path(folder));
            dt_verify_result r;
            must(dt_reader_verify(s, &(dt_verify_opts){.n_threads = 1 + k % 3}, &r));
            assert_int_equal(r.n_shards, strcmp(kind, "none") != 0);
            assert_int_equal(r.n_bad_shards, bad && r.n_shards);
            if (r.n_bad_shards) assert_non_null(strstr(r.bad_shards[0].reason, kind));
            dt_verify_result_fini(&r);
            dt_reader_close(s);
        }
        free(list);
        free(bytes);
    }
}

// No descriptor is left: that says nothing of records and shards, and lists none of them as bad.
TEST(no_descriptor_is_no_bad_record) {
    dt_reader *s = open_ok(golden("mds_hashed{,_zstd}/index.json"));
    uint32_t n_records = s->catalog->n_records;
    for (int k = 0; k < 2; k++) { // at the records, and at the shards
        dt_verify_result r;
        for (uint32_t i = 0; i < s->catalog->n_shards; i++) {
            if (s->blobs[i]) dt_blob_close(s->blobs[i]);
            free(s->blobs[i]);
            s->blobs[i] = NULL;
        }
        if (k) s->catalog->n_records = 0;
        fixture_few_files(1); // one for the list of hashes, and then the first shard
        dt_status st = dt_reader_verify(s, &(dt_verify_opts){.n_threads = 2}, &r);
        fixture_many_files();
        must_fail(DT_E_STORAGE, "shard.00000.mds", st);
        assert_non_null(strstr(dt_error_message(), "raise the limit on open files"));
        assert_true(r.n_bad == 0 && r.n_bad_shards == 0);
    }
    s->catalog->n_records = n_records;
    dt_reader_close(s);
}

// A hash of 64 bits, say.
TEST(an_unsigned_number_is_not_below_zero) {
    static const char COLUMNS[] = "{\"column_encodings\": [\"uint64\"], \"column_names\": [\"id\"], "
                                  "\"column_sizes\": [8]}";
    const uint32_t n = sizeof COLUMNS - 1, head[3] = {1, 12 + n, 12 + n + 8};
    uint8_t shard[12 + sizeof COLUMNS - 1 + 8];
    memcpy(shard, head, 12);
    memcpy(shard + 12, COLUMNS, n);
    memset(shard + 12 + n, 0xff, 8);
    dt_blob b;
    dt_blob_from_memory(&b, "x.mds", shard, sizeof shard);
    dt_scan scan = {.c = dt_catalog_create(), .blob = &b};
    must(dt_format_mds.scan(&scan));
    must(dt_catalog_finish(scan.c));
    assert_string_equal(dt_catalog_value(scan.c, 0, 0), "18446744073709551615");
    dt_catalog_destroy(scan.c);
}

TEST(cuts_and_damage) {
    size_t n;
    uint8_t *good = fixture_read(golden("mds_plain/shard.00001.mds"), &n);
    uint32_t x = 5, n_bad = 0;
    for (int i = 0; i < 600; i++) {
        bool cut = i % 2;
        x = x * 1664525u + 1013904223u;
        size_t keep = cut ? (x >> 4) % n : n, at = (x >> 4) % (i % 3 ? 1200 : n);
        uint8_t *copy = malloc(keep ? keep : 1);
        memcpy(copy, good, keep);
        if (!cut) copy[at] ^= (uint8_t)(x >> 24 | 1);
        dt_blob b;
        dt_blob_from_memory(&b, "x.mds", copy, keep);
        dt_scan scan = {.c = dt_catalog_create(), .blob = &b};
        dt_status st = dt_format_mds.scan(&scan);
        assert_true(st == DT_E_DATA || (st == DT_OK && !cut));
        n_bad += st != DT_OK;
        for (uint32_t m = 0; m < scan.c->n_members; m++)
            assert_true(scan.c->members[m].offset + scan.c->members[m].size <= keep);
        dt_catalog_finish(scan.c);
        dt_catalog_destroy(scan.c);
        free(copy);
    }
    assert_true(n_bad > 350);
    free(good);
}

TEST(a_list_of_a_server_names_its_own_shards) {
    static const struct {
        const char *list, *shard, *path; // NULL: refused
    } CASES[] = {
        {"/set/index.json", "a.mds", "/set/a.mds"},
        {"/set/index.json", "/b/a.mds", "/b/a.mds"},
        {"/set/index.json", "https://h/a.mds", "https://h/a.mds"},
        {"https://h/set/index.json", "a.mds", "https://h/set/a.mds"},
        {"https://h/set/index.json", "https://h/b/a.mds", "https://h/b/a.mds"},
        {"https://h/set/index.json", "/etc/passwd", NULL},
        {"https://h/set/index.json", "https://h.evil/a.mds", NULL},
        {"https://h/set/index.json", "https://h:80/a.mds", NULL},
        {"https://h/set/index.json", "http://h/a.mds", NULL},
        {"s3://bucket/index.json", "s3://bucket2/a.mds", NULL},
        {"s3://bucket/index.json", "file:///etc/passwd", NULL},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int wids = 0; wids < 2; wids++) {
            dt_listing l = {0};
            bool is_list;
            char *json = dt_xprintf(wids ? "{\"shardlist\":[{\"url\":\"%s\"}]}"
                                         : "{\"shards\":[{\"format\":\"mds\",\"raw_data\":"
                                           "{\"basename\":\"%s\"}}]}",
                                    CASES[i].shard);
            const dt_status st = dt_shard_list_parse(&l, CASES[i].list, json, strlen(json), &is_list);
            if (CASES[i].path && (st != DT_OK || strcmp(l.shard[0].path, CASES[i].path) != 0))
                fail_msg("%s in %s: %s", CASES[i].shard, CASES[i].list, dt_error_message());
            if (!CASES[i].path && st != DT_E_DATA) fail_msg("%s in %s: taken", CASES[i].shard, CASES[i].list);
            dt_shard_list_fini(&l);
            free(json);
        }
}

TEST_MAIN(folder_make, fixture_tear_down)
