// The tree walker against the library, and against files that are cut or damaged.
#include "base/hash.h"
#include "data/source/source.h"
#include "data/source/source_parts.h"
#include "data_fixture.h"
#include "testing.h"

#include <lmdb.h>

static uint8_t *file_bytes;
static size_t file_n;

enum { N_ENTRIES = 3000 };

// Entries of many sizes, some deleted again, so that the tree has three levels and free pages.
static void write_db(const char *dir) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    static uint8_t value[40000];
    must(dt_io_mkdir_all(dir));
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_mapsize(env, 512 << 20);
    assert_int_equal(mdb_env_open(env, dir, MDB_NOSYNC, 0644), 0);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
        assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
        for (int i = round; i < N_ENTRIES; i += 3) {
            char key[200];
            int n = snprintf(key, sizeof key, "record/%0*d.jpg", 20 + i % 100, i);
            size_t size = i % 50 == 0 ? 5000 + (size_t)i * 7 : (size_t)(i % 300);
            memset(value, i & 255, size);
            MDB_val k = {(size_t)n, key}, v = {size, value};
            assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
            if (i % 11 == 0) assert_int_equal(mdb_del(txn, dbi, &k, NULL), 0);
        }
        assert_int_equal(mdb_txn_commit(txn), 0);
    }
    mdb_env_close(env);
}

typedef struct seen {
    uint64_t hash;
    size_t n;
    const dt_blob *blob;
} seen;

static uint64_t entry_hash(const char *key, size_t n_key, const void *value, size_t size) {
    return dt_hash64(key, n_key) * 31 + dt_hash64(value, size);
}

static dt_status visit(void *arg, const char *key, size_t n_key, uint64_t offset, uint64_t size) {
    seen *s = arg;
    uint8_t *value = malloc(size ? size : 1);
    dt_status st = dt_blob_read(s->blob, offset, value, size);
    if (st == DT_OK) s->hash = s->hash * 7 + entry_hash(key, n_key, value, size);
    free(value);
    s->n++;
    return st;
}

static dt_status walk(const void *data, size_t n, seen *s) {
    dt_blob b;
    dt_blob_from_memory(&b, "data.mdb", data, n);
    *s = (seen){.blob = &b};
    return dt_lmdb_walk(&b, visit, s);
}

static seen by_library(const char *dir) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_cursor *cursor;
    MDB_val k, v;
    seen s = {0};
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_open(env, dir, MDB_RDONLY | MDB_NOLOCK, 0644), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
    while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) {
        s.hash = s.hash * 7 + entry_hash(k.mv_data, k.mv_size, v.mv_data, v.mv_size);
        s.n++;
    }
    mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return s;
}

TEST(the_walk_agrees_with_the_library) {
    const char *dir = fixture_path("db");
    seen want = by_library(dir), got;
    must(walk(file_bytes, file_n, &got));
    assert_int_equal(got.n, want.n);
    assert_true(got.n > 2500);
    assert_int_equal(got.hash, want.hash);
}

TEST(a_cut_file_is_an_error) {
    seen s;
    for (size_t cut = 0; cut < file_n; cut += 1 + cut / 3) {
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, file_bytes, cut);
        assert_int_equal(walk(copy, cut, &s), DT_E_DATA);
        free(copy);
    }
    must_fail(DT_E_DATA, "truncated", walk(file_bytes, file_n - 1, &s));
}

TEST(damage_never_crashes) {
    seen s;
    uint8_t *bad = malloc(file_n);
    uint32_t x = 99;
    int n_found = 0;
    memcpy(bad, file_bytes, file_n);
    for (int i = 0; i < 400; i++) {
        size_t at[8];
        for (int k = 0; k < 8; k++) {
            x = x * 1664525u + 1013904223u;
            // mostly where page headers and node tables are
            at[k] = (x >> 4) % (file_n / 4096) * 4096 + (x >> 20) % 64;
            bad[at[k]] ^= (uint8_t)(x >> 24 | 1);
        }
        dt_status st = walk(bad, file_n, &s);
        assert_true(st == DT_OK || st == DT_E_DATA);
        n_found += st != DT_OK;
        for (int k = 0; k < 8; k++) bad[at[k]] = file_bytes[at[k]];
    }
    assert_true(n_found > 100);
    free(bad);
}

TEST(a_cycle_ends) {
    uint8_t *bad = malloc(file_n);
    memcpy(bad, file_bytes, file_n);
    // every branch page's children become the root, which is a branch itself
    uint64_t root = 0;
    memcpy(&root, bad + 4096 + 128, 8);
    uint64_t txn0, txn1;
    memcpy(&txn0, bad + 144, 8), memcpy(&txn1, bad + 4096 + 144, 8);
    if (txn0 > txn1) memcpy(&root, bad + 128, 8);
    uint8_t *p = bad + root * 4096;
    assert_true(p[10] & 1);
    for (int i = 0; i < ((p[12] | p[13] << 8) - 16) / 2; i++) {
        uint8_t *node = p + (p[16 + 2 * i] | p[17 + 2 * i] << 8);
        node[0] = (uint8_t)root, node[1] = (uint8_t)(root >> 8), node[2] = (uint8_t)(root >> 16);
    }
    seen s;
    assert_int_equal(walk(bad, file_n, &s), DT_E_DATA);
    free(bad);
}

// Ten branch pages of 60 children that are all the next page: 60^10 visits if they were not counted.
TEST(a_page_is_visited_once) {
    enum { PAGE = 4096, LEVELS = 10, CHILDREN = 60 };
    uint8_t *f = calloc(LEVELS + 3, PAGE);
    uint32_t magic = 0xBEEFC0DE, version = 1, page = PAGE;
    uint64_t root = 2, last = LEVELS + 2;
    memcpy(f + 16, &magic, 4), memcpy(f + 20, &version, 4), memcpy(f + 40, &page, 4);
    memcpy(f + 128, &root, 8), memcpy(f + 136, &last, 8);
    f[10] = 8;
    for (int i = 2; i <= LEVELS + 2; i++) {
        uint8_t *p = f + i * PAGE;
        bool leaf = i == LEVELS + 2; // empty
        uint16_t lower = (uint16_t)(16 + (leaf ? 0 : 2 * CHILDREN)), at = PAGE - 64;
        p[0] = (uint8_t)i, p[10] = leaf ? 2 : 1;
        memcpy(p + 12, &lower, 2);
        for (int k = 0; k < CHILDREN && !leaf; k++) memcpy(p + 16 + 2 * k, &at, 2);
        p[at] = (uint8_t)(i + 1);
    }
    seen s;
    must_fail(DT_E_DATA, "cycle", walk(f, (LEVELS + 3) * PAGE, &s));
    free(f);
}

TEST(not_lmdb_says_so) {
    seen s;
    uint8_t zeros[8192] = {0};
    must_fail(DT_E_DATA, "not an LMDB", walk(zeros, sizeof zeros, &s));
}

TEST(a_foreign_set_is_scanned) {
    const char *dir = fixture_path("db");
    dt_reader *s = fixture_set(dir);
    assert_true(s->catalog->n_records > 2500);
    assert_int_equal(fixture_find_ext(s->catalog, "jpg"), 0);
    dt_reader_close(s);
}

static int set_up(void **state) {
    folder_make(state);
    write_db(fixture_path("db"));
    file_bytes = fixture_read(fixture_path("db/data.mdb"), &file_n);
    return 0;
}

static int tear_down(void **state) {
    free(file_bytes);
    return fixture_tear_down(state);
}

TEST_MAIN(set_up, tear_down)
