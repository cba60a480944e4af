// The catalog as an SQLite database: what is in it, the same bytes each time, nothing half-made under its name.
#include "base/failpoint.h"
#include "data/catalog/select.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include <sqlite3.h>
#include <sys/resource.h>

static const char WEIRD[] = "new\nline \"quote\" 'it''s' \x01 \xc3\xa9";

static dt_catalog *make(int n) {
    dt_catalog *c = dt_catalog_create();
    for (int s = 0; s < 2; s++) {
        dt_catalog_add_shard(c, s ? "somewhere/x-1.tar" : "somewhere/x-0.tar", 1000);
        c->shards[s].stamp = 0xfedcba9876543210u + (uint64_t)s;
        for (int i = s * n / 2; i < (s + 1) * n / 2; i++) {
            char key[32], text[32];
            uint64_t hash = UINT64_MAX - (uint64_t)i;
            snprintf(key, sizeof key, "r%05d", i);
            must(dt_catalog_add_record(c, (uint32_t)s, i == 3 ? WEIRD : key));
            dt_catalog_add_member(c, "jpg", (uint64_t)i, 10, i == 2 ? NULL : &hash);
            dt_catalog_add_member(c, "json", (uint64_t)i, 5, &hash);
            snprintf(text, sizeof text, "%d", i % 7);
            if (i % 5) dt_catalog_set(c, "subject", text);
            dt_catalog_set(c, "Subject", i % 2 ? "007" : "7");
            dt_catalog_set(c, "id", i % 2 ? "\xff\xfe" : WEIRD);
            dt_catalog_set(c, WEIRD, "");
            if (i % 3) dt_catalog_set_real(c, "quality", i / 10.0);
            dt_catalog_set_real(c, "width", 640);
            dt_catalog_set(c, "scan", i % 2 ? "9007199254740993" : "-90071992547409931");
        }
    }
    dt_catalog_finish(c);
    return c;
}

static void write_db(const char *path, int n) {
    dt_catalog *c = make(n);
    must(dt_catalog_db_write(path, c));
    dt_catalog_destroy(c);
}

// The first row of a statement, columns joined by '|'.
static const char *ask(const char *path, const char *sql) {
    static char out[4096];
    sqlite3 *db;
    sqlite3_stmt *s;
    out[0] = '\0';
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(s) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(s); i++) {
            const char *text = (const char *)sqlite3_column_text(s, i);
            snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", i ? "|" : "", text ? text : "NULL");
        }
    sqlite3_finalize(s);
    sqlite3_close(db);
    return out;
}

TEST(rows_are_as_set) {
    const char *p = fixture_path("x.catalog.sqlite");
    write_db(p, 100);
    assert_string_equal(ask(p, "PRAGMA integrity_check"), "ok");
    assert_string_equal(ask(p, "SELECT count(*), min(id), max(id) FROM catalog"), "100|0|99");
    assert_string_equal(ask(p, "SELECT key, shard, bytes, width FROM catalog WHERE id = 60"), "r00060|x-1.tar|15|640");
    assert_string_equal(ask(p, "SELECT key = 'new' || char(10) || 'line \"quote\" ''it''''s'' ' || "
                               "char(1) || ' ' || char(233) FROM catalog WHERE id = 3"),
                        "1");
}

// Names that SQL takes for one another, values of each type.
TEST(columns_have_names_and_types) {
    const char *p = fixture_path("x.catalog.sqlite");
    assert_string_equal(ask(p, "SELECT group_concat(name || ' ' || type) FROM pragma_table_info('catalog') "
                               "WHERE name NOT LIKE 'new%'"),
                        "id INTEGER,key TEXT,shard TEXT,bytes NUMERIC,Subject TEXT,id_2 TEXT,scan NUMERIC,"
                        "subject_2 NUMERIC,width NUMERIC,quality NUMERIC");
    assert_string_equal(ask(p, "SELECT min(scan), max(scan) FROM catalog"), "-90071992547409931|9007199254740993");
    assert_string_equal(ask(p, "SELECT subject, typeof(subject), subject_2, typeof(subject_2), quality, width, "
                               "typeof(width) FROM catalog WHERE id = 11"),
                        "007|text|4|integer|1.1|640|integer");
    assert_string_equal(ask(p, "SELECT quality, subject_2, typeof(id_2) FROM catalog WHERE id = 15"), "NULL|NULL|blob");
}

TEST(the_same_bytes_each_time) {
    const char *a = fixture_path("a.catalog.sqlite"), *b = fixture_path("b.catalog.sqlite");
    size_t n, n_b;
    write_db(a, 5000);
    write_db(b, 5000);
    void *x = fixture_read(a, &n), *y = fixture_read(b, &n_b);
    assert_int_equal(n, n_b);
    assert_memory_equal(x, y, n);
    free(x), free(y);
}

TEST(few_records) {
    for (int n = 0; n < 3; n++) {
        const char *p = fixture_path("few.catalog.sqlite");
        char want[2] = {(char)('0' + n), 0};
        write_db(p, n);
        assert_string_equal(ask(p, "PRAGMA integrity_check"), "ok");
        assert_string_equal(ask(p, "SELECT count(*) FROM catalog"), want);
    }
}

// Files whose names begin so.
static int n_called(const char *dir, const char *begin) {
    char **names;
    size_t n, count = 0;
    must(dt_io_list_dir(&names, &n, dir, DT_E_STORAGE));
    for (size_t i = 0; i < n; i++) count += strncmp(names[i], begin, strlen(begin)) == 0;
    dt_io_free_list(names, n);
    return (int)count;
}

// Each of our calls that write fails in turn, then SQLite's own: an error with the file's name, nothing there.
TEST(a_full_disk_leaves_nothing) {
    const char *path = fixture_path("full.catalog.sqlite");
    dt_catalog *c = make(3000);
    for (int n = 1;; n++) {
        char *spec = dt_xprintf("io:%d:%s", n, n % 2 ? "enospc" : "eio");
        dt_failpoint_set(spec);
        free(spec);
        dt_status st = dt_catalog_db_write(path, c);
        dt_failpoint_set(NULL);
        if (st == DT_OK && n > 3) break;
        must_fail(DT_E_STORAGE, folder_path, st);
        assert_int_equal(n_called(folder_path, "full.catalog.sqlite"), dt_io_exists(path));
        if (dt_io_exists(path)) { // the folder's fsync failed: it is whole
            assert_string_equal(ask(path, "PRAGMA integrity_check"), "ok");
            must(dt_io_unlink(path));
        }
    }
    assert_string_equal(ask(path, "PRAGMA integrity_check"), "ok");
    must(dt_io_unlink(path));
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t most = 0; most < 150000; most += 25000) {
        struct rlimit was, now;
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
        now = (struct rlimit){most, was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
        dt_status st = dt_catalog_db_write(path, c);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        must_fail(DT_E_STORAGE, "full.catalog.sqlite: cannot write: ", st);
        assert_int_equal(n_called(folder_path, "full.catalog.sqlite"), 0);
    }
    dt_catalog_destroy(c);
}

TEST_MAIN(folder_make, fixture_tear_down)
