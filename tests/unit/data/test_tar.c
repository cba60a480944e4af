// Dialects of tar, keys and extensions, shards that are scanned; cut and damaged files.
#include "data/file/tar.h"
#include "data/raw/raw.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include "base/log.h"

#include <fcntl.h>
#include <sys/stat.h>

static uint8_t tar_bytes[1 << 16];
static size_t tar_n;

static void put_header(const char *name, char type, uint64_t size) {
    uint8_t *h = tar_bytes + tar_n;
    memset(h, 0, 512);
    memcpy(h, name, strlen(name) < 100 ? strlen(name) : 100);
    sprintf((char *)h + 100, "0000644");
    sprintf((char *)h + 124, "%011o", (unsigned)size);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
}

static void seal_header(void) {
    uint8_t *h = tar_bytes + tar_n;
    unsigned sum = 0;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += h[i];
    sprintf((char *)h + 148, "%06o", sum);
    tar_n += 512;
}

static void put_data(const void *data, size_t n) {
    memset(tar_bytes + tar_n, 0, dt_tar_padded(n));
    memcpy(tar_bytes + tar_n, data, n);
    tar_n += dt_tar_padded(n);
}

static void put_file(const char *name, const char *text) {
    put_header(name, '0', strlen(text));
    seal_header();
    put_data(text, strlen(text));
}

static void put_extension(char type, const char *text) {
    put_header("ext", type, strlen(text));
    seal_header();
    put_data(text, strlen(text));
}

static void put_end(void) {
    memset(tar_bytes + tar_n, 0, 1024);
    tar_n += 1024;
}

// Reads all entries as "name=text;".
static dt_status list(char *out, size_t n_bytes) {
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1); // exact, for AddressSanitizer
    memcpy(copy, tar_bytes, n_bytes);
    dt_blob b;
    dt_tar t;
    dt_tar_entry e;
    bool more = true;
    dt_status st = DT_OK;
    *out = '\0';
    dt_blob_from_memory(&b, "x.tar", copy, n_bytes);
    dt_tar_begin(&t, &b);
    while ((st = dt_tar_next(&t, &e, &more)) == DT_OK && more) {
        assert_true(e.offset <= n_bytes && e.size <= n_bytes - e.offset);
        if (e.is_regular && strlen(out) < 2000)
            sprintf(out + strlen(out), "%.400s=%.*s;", e.path, (int)(e.size < 50 ? e.size : 50),
                    (const char *)copy + e.offset);
    }
    free(copy);
    return st;
}

static void expect(const char *want) {
    char got[4096];
    must(list(got, tar_n));
    assert_string_equal(got, want);
}

TEST(plain_and_old_headers) {
    tar_n = 0;
    put_file("./a.txt", "one");
    put_header("dir/", '5', 0), seal_header();
    put_header("old", '\0', 3), memset(tar_bytes + tar_n + 257, 0, 8), seal_header(), put_data("two", 3);
    put_header("link", '2', 0), seal_header(); // to nowhere
    put_header("contiguous", '7', 2), seal_header(), put_data("hi", 2);
    put_end();
    expect("a.txt=one;old=two;contiguous=hi;");
}

static void put_link(const char *name, char type, const char *to) {
    put_header(name, type, 0);
    memcpy(tar_bytes + tar_n + 157, to, strlen(to));
    seal_header();
}

static void append_file(void *arg, const char *path, uint64_t offset, uint64_t size) {
    sprintf((char *)arg + strlen(arg), "%s=%.*s;", path, (int)size, (char *)tar_bytes + offset);
}

static void count_file(void *arg, const char *path, uint64_t offset, uint64_t size) {
    (void)path, (void)offset, (void)size;
    ++*(size_t *)arg;
}

// Links lead to files of the tar over links and folders, forward too; the rest leads nowhere.
TEST(links_lead_to_files_of_the_tar) {
    static const struct {
        char type;
        const char *name, *to, *want;
    } CASES[] = {{'2', "b/soft", "../a/one", "b/soft=1;"},
                 {'1', "b/hard", "./a/one", "b/hard=1;"},
                 {'2', "b/chain", "soft", "b/chain=1;"},
                 {'2', "ahead", "z/last", "ahead=9;"},
                 {'2', "c", "a", "c/one=1;c/two=2;c/two2=2;"},
                 {'2', "d", "./c/", "d/one=1;d/two=2;d/two2=2;"},
                 {'2', "through", "d/../a/one", "through=1;"},
                 {'2', "out", "../x", ""},
                 {'2', "absolute", "/a/one", ""},
                 {'2', "round1", "round2", ""},
                 {'2', "round2", "round1", ""},
                 {'2', "root", ".", ""},
                 {'2', "y/self", ".", ""},
                 {'2', "y/up", "../y", ""},
                 {'2', "y/in/top", "../../y", ""},
                 {'2', "y/to", "../v", "y/to/a/one=1;y/to/a/two=2;y/to/a/two2=2;y/to/b=7;"},
                 {'2', "v/a", "../a", "v/a/one=1;v/a/two=2;v/a/two2=2;"},
                 {'2', "v/round", "../y", "v/round/f=8;"},
                 {'2', "none", "a/three", ""}};
    enum { N = sizeof CASES / sizeof *CASES };
    char name_101[102], want[256];
    memset(name_101, 'n', 101), name_101[101] = '\0';
    tar_n = 0;
    put_file("a/one", "1");
    put_file("a/two", "2");
    put_link("a/two2", '2', "two");
    put_file("v/b", "6"), put_file("v/b", "7"); // the later counts
    put_file("y/f", "8");
    for (size_t i = 0; i < N; i++) put_link(CASES[i].name, CASES[i].type, CASES[i].to);
    put_extension('K', name_101), put_link("gnu", '1', "cut");
    put_extension('x', "18 linkpath=a/one\n"), put_link("pax", '2', "cut");
    put_file("z/last", "9");
    put_extension('L', name_101), put_file("cut", "long");
    put_end();
    dt_blob b;
    dt_tar t;
    dt_tar_entry e;
    dt_tar_links *links;
    bool more = true, any;
    size_t n = 0;
    dt_blob_from_memory(&b, "x.tar", tar_bytes, tar_n);
    must(dt_tar_links_create(&links, &b));
    dt_tar_begin(&t, &b);
    for (;;) {
        char got[1024] = "";
        must(dt_tar_next(&t, &e, &more));
        if (!more) break;
        if (!*e.link || strcmp(e.path, "a/two2") == 0) continue;
        assert_false(e.is_regular);
        must(dt_tar_links_visit(links, e.path, append_file, got, &any));
        snprintf(want, sizeof want, "%s", n < N ? CASES[n].want : n == N ? "gnu=long;" : "pax=1;");
        assert_string_equal(got, want);
        assert_int_equal(any, *want != '\0');
        n++;
    }
    assert_int_equal(n, N + 2);
    dt_tar_links_destroy(links);
}

// Each of 24 folders has two links to the next: 2^24 names of one file.
TEST(links_name_files_a_bounded_number_of_times) {
    char name[16], to[16];
    size_t n = 0;
    tar_n = 0;
    for (int i = 0; i < 24; i++)
        for (int k = 0; k < 2; k++) {
            sprintf(name, "%d/%d", i, k), sprintf(to, "../%d", i + 1);
            put_link(name, '2', to);
        }
    put_file("24/f", "1");
    put_end();
    dt_blob b;
    dt_tar_links *links;
    bool any;
    dt_blob_from_memory(&b, "x.tar", tar_bytes, tar_n);
    must(dt_tar_links_create(&links, &b));
    must_fail(DT_E_DATA, "name files many times over", dt_tar_links_visit(links, "0/0", count_file, &n, &any));
    assert_true(n > 1 << 18 && n < 1 << 20);
    dt_tar_links_destroy(links);
}

TEST(ustar_prefix) {
    tar_n = 0;
    put_header("b.txt", '0', 1);
    memcpy(tar_bytes + tar_n + 345, "some/where", 10);
    seal_header();
    put_data("x", 1);
    put_end();
    expect("some/where/b.txt=x;");
}

TEST(pax_overrides_one_file) {
    tar_n = 0;
    put_extension('x', "18 path=long/name\n20 mtime=1.23456789\n");
    put_file("short", "a");
    put_file("next", "b");
    put_end();
    expect("long/name=a;next=b;");
}

TEST(pax_size_and_global) {
    tar_n = 0;
    put_extension('g', "17 comment=hello\n");
    put_extension('x', "9 size=4\n");
    put_header("f", '0', 0), seal_header(), put_data("abcd", 4);
    put_end();
    expect("f=abcd;");
    tar_n = 0;
    put_extension('g', "13 path=glob\n");
    put_file("a", "1");
    put_end();
    // the length must count itself: "13 path=glob\n" is 13 bytes
    expect("glob=1;");
}

TEST(gnu_long_name_and_base256) {
    tar_n = 0;
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    put_extension('K', "some link");
    put_extension('L', name);
    put_header("n", '0', 0);
    memset(tar_bytes + tar_n + 124, 0, 12);
    tar_bytes[tar_n + 124] = 0x80;
    tar_bytes[tar_n + 135] = 2; // two bytes
    seal_header();
    put_data("ok", 2);
    put_end();
    char want[256];
    snprintf(want, sizeof want, "%s=ok;", name);
    expect(want);
}

TEST(a_global_record_holds_for_all) {
    tar_n = 0;
    put_extension('g', "9 size=2\n");
    put_header("a", '0', 0), seal_header(), put_data("xy", 2);
    put_header("b", '0', 0), seal_header(), put_data("zw", 2);
    put_extension('x', "9 size=1\n");
    put_header("c", '0', 0), seal_header(), put_data("q", 1);
    put_end();
    expect("a=xy;b=zw;c=q;");
}

TEST(links_folders_and_empty_members) {
    tar_n = 0;
    put_file("empty.txt", "");
    put_header("hard.txt", '1', 5), seal_header(); // its size is of the file it links to
    put_header("soft.txt", '2', 0), seal_header();
    put_header("label", 'V', 0), seal_header();
    put_file("last.txt", "x");
    put_end();
    expect("empty.txt=;last.txt=x;");
}

TEST(sparse_and_volumes_are_refused) {
    char got[4096];
    tar_n = 0;
    put_header("s", 'S', 0), seal_header(), put_end();
    must_fail(DT_E_DATA, "sparse", list(got, tar_n));
    tar_n = 0;
    put_extension('x', "22 GNU.sparse.major=1\n");
    put_file("s", "x"), put_end();
    must_fail(DT_E_DATA, "sparse", list(got, tar_n));
    tar_n = 0;
    put_header("m", 'M', 0), seal_header(), put_end();
    must_fail(DT_E_DATA, "volume", list(got, tar_n));
}

TEST(bad_archives_are_errors) {
    static const char *const PAX[] = {"5 path\n",   "99 path=a\n", "x path=a\n", "11 path=a\n",
                                      "9 size=x\n", "0 a=b\n",     "3=\n"};
    char got[4096];
    for (size_t i = 0; i < sizeof PAX / sizeof *PAX; i++) {
        tar_n = 0;
        put_extension('x', PAX[i]);
        put_file("a", "1");
        put_end();
        assert_int_equal(list(got, tar_n), DT_E_DATA);
    }
    tar_n = 0;
    put_header("neg", '0', 0), tar_bytes[tar_n + 124] = 0xff, seal_header();
    assert_int_equal(list(got, tar_n), DT_E_DATA);
    tar_n = 0;
    put_file("a", "1");
    tar_bytes[3] ^= 1;
    must_fail(DT_E_DATA, "checksum", list(got, tar_n));
}

TEST(cut_anywhere_is_an_error_or_a_shorter_list) {
    char got[4096];
    tar_n = 0;
    put_file("a.txt", "one");
    put_extension('x', "18 path=long/name\n");
    put_file("b.txt", "two");
    size_t end = tar_n;
    for (size_t cut = 0; cut < end; cut++) {
        dt_status st = list(got, cut);
        // a cut in the padding of the last member loses nothing; any other is an error
        if (cut == 0)
            assert_string_equal(got, "");
        else if (cut >= 515 && cut <= 1024)
            assert_string_equal(got, "a.txt=one;");
        else if (cut >= end - 509)
            assert_string_equal(got, "a.txt=one;long/name=two;");
        else if (cut == 2048)
            must(st); // between the extension and its file
        else
            assert_true(st == DT_E_DATA || (cut >= 1554 && cut <= 2048));
    }
}

TEST(damage_never_crashes) {
    char got[4096];
    uint32_t x = 3;
    for (int i = 0; i < 3000; i++) {
        tar_n = 0;
        put_extension('x', "18 path=long/name\n20 mtime=1.23456789\n");
        put_file("short", "a");
        put_extension('L', "another name");
        put_file("b", "c");
        put_end();
        for (int k = 0; k < 4; k++) {
            x = x * 1664525u + 1013904223u;
            tar_bytes[(x >> 8) % tar_n] = (uint8_t)(x >> 24);
        }
        // make the checksums right again, so that the damage gets further in
        for (size_t at = 0; at + 512 <= tar_n; at += 512) {
            unsigned sum = 0;
            if (memcmp(tar_bytes + at + 257, "ustar", 5) != 0) continue;
            memset(tar_bytes + at + 148, ' ', 8);
            for (int b = 0; b < 512; b++) sum += tar_bytes[at + (size_t)b];
            sprintf((char *)tar_bytes + at + 148, "%06o", sum);
        }
        dt_status st = list(got, tar_n);
        assert_true(st == DT_OK || st == DT_E_DATA);
    }
}

TEST(what_we_write_we_read) {
    static const size_t LENGTHS[] = {1, 50, 99, 100, 101, 150, 255, 256, 257, 300, 1000};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
        for (int slash = 0; slash < 2; slash++) {
            char name[1100];
            size_t n = LENGTHS[i], n_header;
            memset(name, 'a' + (int)i, n);
            name[n] = '\0';
            if (slash && n > 2) name[n / 2] = '/';
            uint8_t header[DT_TAR_MAX_HEADER];
            must(dt_tar_write_header(header, &n_header, name, 3));
            memcpy(tar_bytes, header, n_header);
            tar_n = n_header;
            put_data("abc", 3);
            put_end();
            dt_blob b;
            dt_tar t;
            dt_tar_entry e;
            bool more;
            dt_blob_from_memory(&b, "x", tar_bytes, tar_n);
            dt_tar_begin(&t, &b);
            must(dt_tar_next(&t, &e, &more));
            assert_string_equal(e.path, name);
            assert_int_equal(e.size, 3);
            assert_int_equal(e.offset, n_header);
        }
}

TEST(keys_and_extensions) {
    static const struct {
        const char *path, *key, *ext;
    } CASES[] = {{"a/b.c/d.seg.JPG", "a/b.c/d", "seg.jpg"},
                 {"x.cls", "x", "cls"},
                 {"a/.hidden", NULL, NULL},
                 {"noext", NULL, NULL},
                 {"a/__x__.json", "a/__x__", "json"},
                 {"__meta__.json", NULL, NULL},
                 {"__meta__/a.json", NULL, NULL},
                 {"__a.json", "__a", "json"},
                 {"a.b/c", NULL, NULL}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        size_t n = 0;
        char ext[64];
        bool ok = dt_split_key(CASES[i].path, &n, ext, sizeof ext);
        assert_int_equal(ok, CASES[i].key != NULL);
        if (!ok) continue;
        assert_int_equal(n, strlen(CASES[i].key));
        assert_string_equal(ext, CASES[i].ext);
    }
}

TEST(a_foreign_shard_is_scanned) {
    folder_make(state);
    tar_n = 0;
    put_file("s/1.jpg", "img1");
    put_file("s/1.cls", " 3\n");
    put_file("s/1.json", "{\"who\": \"ann\", \"age\": 7, \"deep\": {\"x\": 1}}");
    put_file("README", "x");
    put_link("s/2.jpg", '2', "../README2");
    put_file("s/2.cls", "11");
    put_file("README2", "img2");
    put_end();
    const char *path = fixture_path("f.tar");
    fixture_write(path, tar_bytes, tar_n);
    dt_reader *s = fixture_set(path);
    const dt_catalog *c = s->catalog;
    assert_int_equal(c->n_records, 2);
    assert_string_equal(fixture_key(c, 1), "s/2");
    assert_int_equal(c->records[0].n_members, 3);
    assert_string_equal(fixture_value(c, "cls", 0), "3");
    assert_string_equal(fixture_value(c, "cls", 1), "11");
    assert_string_equal(fixture_value(c, "who", 0), "ann");
    assert_string_equal(fixture_value(c, "age", 0), "7");
    assert_null(fixture_value(c, "who", 1));
    assert_int_equal(dt_catalog_find_column(c, "deep"), -1);
    dt_buffer scratch = {0};
    dt_span bytes;
    must(dt_reader_read(s, 1, c->records[1].first_member, true, &scratch, &bytes));
    assert_int_equal(bytes.n_bytes, 4);
    assert_memory_equal(bytes.data, "img2", 4);
    dt_reader_close(s);
    // first read after the shard was touched, replaced by one of the same size, and by a longer one
    for (int k = 0; k < 3; k++) {
        s = fixture_set(path);
        if (k == 1) memset(tar_bytes + 512, 'x', 512);
        fixture_write(path, tar_bytes, tar_n + (k == 2 ? 512 : 0));
        must(utimensat(AT_FDCWD, path, (struct timespec[2]){{k + 1, 0}, {k + 1, 0}}, 0));
        const dt_status st = dt_reader_read(s, 1, s->catalog->records[1].first_member, true, &scratch, &bytes);
        if (k == 0) must(st);
        if (k > 0) must_fail(DT_E_STORAGE, "f.tar: is another file than when it was opened", st);
        dt_reader_close(s);
        memset(tar_bytes + 512, 0, 512), memcpy(tar_bytes + 512, "img1", 4);
        fixture_write(path, tar_bytes, tar_n);
    }
    dt_buffer_fini(&scratch);
    // a repeated extension in one record
    tar_n = 0;
    put_file("1.jpg", "a"), put_file("1.JPG", "b"), put_end();
    fixture_write(path, tar_bytes, tar_n);
    must_fail(DT_E_DATA, "two members", dt_reader_open(&s, &path, 1));
    fixture_tear_down(state);
}

TEST(shard_patterns) {
    char **list_;
    size_t n;
    must(dt_expand_shards("a-{008..010}.tar::b.tar", &list_, &n));
    assert_int_equal(n, 4);
    assert_string_equal(list_[0], "a-008.tar");
    assert_string_equal(list_[2], "a-010.tar");
    assert_string_equal(list_[3], "b.tar");
    dt_io_free_list(list_, n);
    must(dt_expand_shards("{a,b{1..2},}-{00..01}.tar", &list_, &n));
    static const char *const WANT[] = {"a-00.tar",  "a-01.tar",  "b1-00.tar", "b1-01.tar",
                                       "b2-00.tar", "b2-01.tar", "-00.tar",   "-01.tar"};
    assert_int_equal(n, 8);
    for (size_t i = 0; i < n; i++) assert_string_equal(list_[i], WANT[i]);
    dt_io_free_list(list_, n);
    static const char *const BAD[] = {"a{3..1}",        "a{x..y}",  "a{1}", "a{1..2",
                                      "a{0..99999999}", "a{1..2}{", "{}",   "{0..9999}{0..9999}"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        assert_int_equal(dt_expand_shards(BAD[i], &list_, &n), DT_E_USAGE);
}

// A link that leads out of a shard gives no record, and says so at each opening.
TEST(a_lost_link_is_told) {
    folder_make(state);
    const char *path = fixture_path("lost.tar"), *log = fixture_path("lost.log");
    tar_n = 0;
    put_file("1.jpg", "a"), put_link("2.jpg", '2', "../other/2.jpg"), put_end();
    fixture_write(path, tar_bytes, tar_n);
    must(dt_log_open(log));
    for (int k = 0; k < 2; k++) {
        dt_reader *s = fixture_set(path);
        assert_int_equal(s->catalog->n_records, 1);
        dt_reader_close(s);
    }
    dt_log_close();
    size_t n;
    int n_told = 0;
    char *text = fixture_read(log, &n);
    for (const char *p = text; (p = strstr(p, "1 links lead to no file of the tar and are left out: 2.jpg")); p++)
        n_told++;
    free(text);
    assert_int_equal(n_told, 2);
    fixture_tear_down(state);
}

// Cut between two members a tar is still a tar: only the end mark tells.
TEST(the_end_mark_is_noticed) {
    uint8_t data[2 * DT_TAR_BLOCK + 1024] = {0}, header[DT_TAR_MAX_HEADER];
    size_t n = 0;
    must(dt_tar_write_header(header, &n, "a.bin", 3));
    memcpy(data, header, n);
    for (int whole = 0; whole < 2; whole++) {
        dt_blob b;
        dt_tar t;
        dt_tar_entry e;
        bool more = true;
        dt_blob_from_memory(&b, "x.tar", data, whole ? sizeof data : n + DT_TAR_BLOCK);
        dt_tar_begin(&t, &b);
        must(dt_tar_next(&t, &e, &more));
        assert_true(more);
        must(dt_tar_next(&t, &e, &more));
        assert_false(more);
        assert_int_equal(t.has_end, whole);
    }
}

// A tar that is packed is another one if it was written again within the same second.
TEST(a_tar_written_again_is_another) {
    const char *path = fixture_path("again.tar");
    uint64_t hash[2];
    tar_n = 0;
    put_file("1.jpg", "a"), put_end();
    for (int k = 0; k < 2; k++) {
        dt_raw r;
        fixture_write(path, tar_bytes, tar_n);
        must(utimensat(AT_FDCWD, path, (struct timespec[2]){{9, k}, {9, k}}, 0));
        must(dt_raw_list(&r, path, NULL, NULL));
        hash[k] = r.hash;
        dt_raw_fini(&r);
    }
    assert_true(hash[0] != hash[1]);
    fixture_tear_down(state);
}

TEST_MAIN(NULL, NULL)
