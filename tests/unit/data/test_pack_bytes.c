// The bytes of a packed set: the same for any number of threads, after a kill at any moment, by any way
// there; read by liblmdb; very large, very many, oddly named and repeated records; shards by size.
#define _GNU_SOURCE
#include "base/failpoint.h"
#include "base/hash.h"
#include "data/file/tar.h"
#include "data/raw/raw.h"
#include "data/source/source.h"
#include "data_fixture.h"
#include "testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_FILES = 3000 };
static const char *raw; // files of all sizes, in classes

static void make_raw(const char *root) {
    uint8_t *bytes = malloc(70000);
    for (uint32_t i = 0; i < 70000; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < N_FILES; i++) {
        // small ones go into leaves of an LMDB, others to pages of their own; the last ones are 60 KB
        size_t n = i < 1500 ? i + 4 : i < 2900 ? 1900 + i % 300 : 60000 + i;
        char *path = dt_xprintf("%s/c%u/%s%u.npy", root, i % 3, i % 7 ? "f" : "long-name-", i);
        memcpy(bytes, &i, sizeof i);
        fixture_write(path, bytes, n);
        free(path);
    }
    free(bytes);
}

static uint64_t file_hash(const char *path) {
    size_t n;
    void *data = fixture_read(path, &n);
    uint64_t h = dt_hash64(data, n);
    free(data);
    return h;
}

// Of data and index of an LMDB, or of shards 0..1 of a pattern "NAME-{0..1}.tar".
static uint64_t set_hash(const char *name, bool lmdb) {
    static const char *const LMDB[] = {"%s.lmdb/data.mdb", "%s.lmdb/data.mdb.index"};
    static const char *const TAR[] = {"%s-0.tar", "%s-1.tar", "%s-1.tar.index"};
    uint64_t h[3] = {0};
    for (int i = 0; i < (lmdb ? 2 : 3); i++) {
        char *file = NULL;
        const char *form = lmdb ? LMDB[i] : TAR[i];
        file = dt_xprintf("%s%s", name, strstr(form, "%s") + 2);
        h[i] = file_hash(fixture_path(file));
        free(file);
    }
    return dt_hash64(h, sizeof h);
}

static dt_pack_opts options(const char *out, int n_threads) {
    return (dt_pack_opts){.source = raw, .out = out, .n_threads = n_threads};
}

// Machines whose pages have other sizes: liblmdb asks for it here.
static long page_bytes;
long sysconf(int name) {
    long (*real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE && page_bytes ? page_bytes : real(name);
}

static uint64_t good[2]; // tar, lmdb

TEST(any_number_of_threads) {
    static const int THREADS[] = {1, 2, 3, 8};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) {
            char *name = dt_xprintf("t%d", THREADS[i]);
            char *out = dt_xprintf(k ? "%s.lmdb" : "%s-{0..1}.tar", name);
            dt_pack_opts o = options(fixture_path(out), THREADS[i]);
            must(dt_data_pack(&o));
            uint64_t h = set_hash(name, k);
            if (i == 0) good[k] = h;
            assert_int_equal(h, good[k]);
            free(out);
            free(name);
        }
}

// Killed again and again, at calls that a fixed seed chooses: in the end the bytes are those of an undisturbed pack.
TEST(killed_and_killed_again) {
    static const char *const OUTS[] = {"killed/k-{0..1}.tar", "killed/k.lmdb"};
    static const char *const WORK[] = {"killed/k.tar.partial", "killed/k.lmdb.partial"};
    unsigned seed = 12345;
    for (int k = 0; k < 2; k++) {
        int n_killed = 0;
        for (int round = 0, code = -1; code != 0; round++) {
            seed = seed * 1103515245 + 12345;
            dt_pack_opts o = options(fixture_path(OUTS[k]), 1 + round % 3);
            code = fixture_pack_killed(&o, 1 + (int)(seed / 65536 % 20) + round);
            assert_true(code == 0 || code == -1);
            n_killed += code == -1;
        }
        assert_true(n_killed > 3);
        assert_int_equal(set_hash("killed/k", k), good[k]);
        assert_false(dt_io_exists(fixture_path(WORK[k])));
    }
}

static int64_t written_at(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 ? s.st_mtim.tv_sec * INT64_C(1000000000) + s.st_mtim.tv_nsec : 0;
}

// After a kill, shards that are whole are kept and the others are made again; also those whose rows are damaged.
TEST(whole_shards_are_kept) {
    dt_pack_opts o = options(fixture_path("keep/k-{0..4}.tar"), 2);
    const char *work = fixture_path("keep/k.tar.partial");
    char *data[5], *rows[5];
    int64_t before[3];
    int n_whole = 0;
    for (int i = 0; i < 5; i++) {
        data[i] = dt_xprintf("%s/set/k-%d.tar", work, i);
        rows[i] = dt_xprintf("%s/rows-%d", work, i);
    }
    for (int n = 20; n_whole != 3; n++) {
        must(dt_io_remove_tree(work));
        assert_int_equal(fixture_pack_killed(&o, n), -1);
        for (n_whole = 0; n_whole < 5 && dt_io_exists(rows[n_whole]);) n_whole++;
    }
    size_t n;
    char *damaged = fixture_read(rows[1], &n);
    damaged[24] ^= 1; // how many records the first item gave
    fixture_write(rows[1], damaged, n);
    fixture_write(data[2], "cut", 3);
    free(damaged);
    for (int i = 0; i < 3; i++) before[i] = written_at(data[i]);
    must(dt_data_pack(&o));
    assert_true(written_at(fixture_path("keep/k-0.tar")) == before[0]);
    assert_true(written_at(fixture_path("keep/k-1.tar")) > before[1]);
    assert_true(written_at(fixture_path("keep/k-2.tar")) > before[2]);
    o.out = fixture_path("kept/k-{0..4}.tar");
    must(dt_data_pack(&o));
    for (int i = 0; i < 5; i++) {
        const char *a = in_folder("keep/k-%d.tar", i);
        const char *b = in_folder("kept/k-%d.tar", i);
        fixture_assert_same(a, b);
        free(data[i]), free(rows[i]);
    }
}

TEST(two_packs_at_once) {
    const char *out = fixture_path("lock.lmdb");
    must(dt_io_mkdir(fixture_path("lock.lmdb.partial")));
    int fd = open(fixture_path("lock.lmdb.partial/lock"), O_RDWR | O_CREAT, 0644);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
    must(dt_io_write_file(fixture_path("lock.lmdb.partial/made-from"), "first", 5));
    must(dt_io_write_file(fixture_path("lock.lmdb.partial/rows-0"), "rows", 4));
    dt_pack_opts o = options(out, 1);
    must_fail(DT_E_USAGE, "another dtrain pack", dt_data_pack(&o));
    // what the first one has done so far is not the second one's to remove
    assert_true(dt_io_exists(fixture_path("lock.lmdb.partial/lock")));
    assert_true(dt_io_exists(fixture_path("lock.lmdb.partial/rows-0")));
    close(fd);
    must(dt_data_pack(&o));
}

// liblmdb walks the tree, finds each key, and may write to it.
TEST(the_library_reads_it) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_cursor *cursor;
    MDB_val k, v;
    MDB_stat stat;
    const char *path = fixture_path("t1.lmdb");
    dt_reader *s = fixture_set(path);
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_mapsize(env, 1 << 30);
    assert_int_equal(mdb_env_open(env, path, MDB_NOTLS, 0644), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    assert_int_equal(mdb_stat(txn, dbi, &stat), 0);
    assert_int_equal(stat.ms_entries, s->catalog->n_members);
    assert_true(stat.ms_depth >= 2 && stat.ms_branch_pages > 0 && stat.ms_overflow_pages > 0);
    assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
    size_t n = 0;
    while (mdb_cursor_get(cursor, &k, &v, MDB_NEXT) == 0) n++;
    assert_int_equal(n, s->catalog->n_members);
    mdb_cursor_close(cursor);
    dt_buffer scratch = {0};
    for (uint32_t r = 0; r < s->catalog->n_records; r++) {
        const dt_record *rec = &s->catalog->records[r];
        for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++) {
            char *name = dt_xprintf("%s.%s", dt_catalog_str(s->catalog, rec->key),
                                    dt_catalog_str(s->catalog, s->catalog->exts[s->catalog->members[m].ext]));
            dt_span bytes = {0};
            k = (MDB_val){strlen(name), name};
            assert_int_equal(mdb_get(txn, dbi, &k, &v), 0);
            assert_int_equal(v.mv_size, s->catalog->members[m].size);
            if (v.mv_size) must(dt_reader_read(s, r, m, true, &scratch, &bytes));
            assert_int_equal(memcmp(v.mv_data, bytes.n_bytes ? bytes.data : scratch.data, v.mv_size), 0);
            free(name);
        }
    }
    mdb_txn_abort(txn);
    dt_buffer_fini(&scratch);
    dt_reader_close(s);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    k = (MDB_val){3, "new"};
    v = (MDB_val){5, "value"};
    assert_int_equal(mdb_put(txn, dbi, &k, &v, 0), 0);
    k = (MDB_val){10, "c1/f1.json"};
    assert_int_equal(mdb_del(txn, dbi, &k, NULL), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    assert_int_equal(mdb_stat(txn, dbi, &stat), 0);
    assert_int_equal(stat.ms_entries, n);
    mdb_txn_abort(txn);
    mdb_env_close(env);
}

static uint64_t catalog_hash(const char *path) {
    dt_reader *s = fixture_set(path);
    uint64_t h = dt_catalog_hash(s->catalog);
    dt_reader_close(s);
    return h;
}

// Arm machines have pages of 16 or 64 KiB, and liblmdb makes its own as large, up to 32 KiB.
TEST(an_lmdb_of_larger_pages) {
    for (page_bytes = 16384; page_bytes <= 65536; page_bytes *= 2) {
        char *name = dt_xprintf("page%ld.lmdb", page_bytes);
        dt_pack_opts o = options(fixture_path(name), 2);
        must(dt_data_pack(&o));
        const long was = page_bytes;
        page_bytes = 0; // read where pages are small
        assert_int_equal(catalog_hash(fixture_path(name)), catalog_hash(fixture_path("t2.lmdb")));
        char *file = dt_xprintf("%s/data.mdb", name);
        assert_int_not_equal(file_hash(fixture_path(file)), file_hash(fixture_path("t2.lmdb/data.mdb")));
        free(file);
        page_bytes = was;
        free(name);
    }
    page_bytes = 0;
}

// From shards to an LMDB, to other shards, back: the same records with the same metadata.
TEST(conversions_keep_everything) {
    const char *a = fixture_path("t1-{0..1}.tar"), *b = fixture_path("conv.lmdb"), *c = fixture_path("conv-%03d.tar");
    dt_pack_opts o = {.source = a, .out = b};
    must(dt_data_pack(&o));
    o = (dt_pack_opts){.source = b, .out = c, .shard_records = 700};
    must(dt_data_pack(&o));
    const char *five = fixture_path("conv-{000..004}.tar");
    assert_true(dt_io_exists(fixture_path("conv-004.tar")));
    assert_false(dt_io_exists(fixture_path("conv-005.tar")));
    assert_int_equal(catalog_hash(a), catalog_hash(b));
    assert_int_equal(catalog_hash(a), catalog_hash(five));
    assert_int_equal(catalog_hash(a), catalog_hash(fixture_path("t2.lmdb")));
    // from one tar of one's own too, though it could be a tar of raw files
    o = (dt_pack_opts){.source = fixture_path("t1-0.tar"), .out = fixture_path("conv2.lmdb")};
    must(dt_data_pack(&o));
    assert_int_equal(catalog_hash(fixture_path("conv2.lmdb")), catalog_hash(fixture_path("t1-0.tar")));
}

static void expect_keys(const char *path, size_t n, const char *const *want) {
    dt_reader *s = fixture_set(path);
    assert_int_equal(s->catalog->n_records, n);
    for (uint32_t i = 0; i < n; i++) assert_string_equal(fixture_key(s->catalog, i), want[i]);
    dt_reader_close(s);
}

// Sets whose shards count from 000000, each: refused, or told apart by the shard's name.
TEST(keys_that_shards_repeat) {
    static const char *const BY_NAME[] = {"s-0/x/000000", "s-0/x/000001", "s-1/x/000000", "s-1/x/000001"};
    static const char *const BY_FOLDER[] = {"a/s/x/000000", "a/s/x/000001", "b/s/x/000000", "b/s/x/000001"};
    static const char *const OUT[] = {"rk/s-0.tar", "rk/s-1.tar", "rk/a/s.tar", "rk/b/s.tar"};
    for (int i = 0; i < 4; i++) {
        const char *folder = fixture_path(i % 2 ? "rk/raw1" : "rk/raw0");
        char *path[2] = {dt_xprintf("%s/x/000000.npy", folder), dt_xprintf("%s/x/000001.npy", folder)};
        for (int k = 0; k < 2; k++) {
            fixture_write(path[k], i % 2 ? "abcd" : "012345", (size_t)(2 + k));
            free(path[k]);
        }
        dt_pack_opts o = {.source = folder, .out = fixture_path(OUT[i])};
        must(dt_io_mkdir_all(fixture_path(i < 2 ? "rk" : i == 2 ? "rk/a" : "rk/b")));
        must(dt_data_pack(&o));
    }
    dt_pack_opts o = {.source = fixture_path("rk/s-{0..1}.tar"), .out = fixture_path("rk1.lmdb")};
    for (int k = 0; k < 2; k++) { // in the set's order and sorted
        must_fail(DT_E_DATA, "both have a record x/000000: --key-by-shard", dt_data_pack(&o));
        o.out = fixture_path("rk1-{0..1}.tar");
    }
    o.key_by_shard = true;
    for (int k = 0; k < 2; k++)
        for (int threads = 1; threads <= 4; threads += 3) {
            char *name = dt_xprintf("rk%d", threads);
            char *out = dt_xprintf(k ? "%s.lmdb" : "%s-{0..1}.tar", name);
            o.out = fixture_path(out);
            o.n_threads = threads;
            must(dt_data_pack(&o));
            expect_keys(o.out, 4, BY_NAME);
            assert_int_equal(set_hash(name, k), set_hash("rk1", k));
            free(name), free(out);
        }
    char *two = dt_xprintf("%s::%s", fixture_path("rk/a/s.tar"), fixture_path("rk/b/s.tar"));
    o.source = two;
    o.out = fixture_path("rk2.lmdb");
    must(dt_data_pack(&o));
    expect_keys(o.out, 4, BY_FOLDER);
    free(two);
    // what is no name in a path is none in a key; and a name that readers skip is refused
    static const char *const BY_DEPTH[] = {"a/s/x/000000", "a/s/x/000001", "s-1/x/000000",
                                           "s-1/x/000001", "s/x/000000",   "s/x/000001"};
    static const char *const PATHS[] = {"./s.tar::a//s.tar::.//s-1.tar", "s.tar::./a/./s.tar::s-1.tar"};
    char cwd[4096];
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(chdir(fixture_path("rk")), 0);
    assert_int_equal(link("s-0.tar", "s.tar"), 0);
    assert_int_equal(link("s-1.tar", "__x__.tar"), 0);
    for (int k = 0; k < 2; k++) {
        o.source = PATHS[k];
        o.out = fixture_path(k ? "rk8.lmdb" : "rk7.lmdb");
        must(dt_data_pack(&o));
        expect_keys(o.out, 6, BY_DEPTH);
    }
    o.source = "__x__.tar";
    o.out = fixture_path("rk6.lmdb");
    must_fail(DT_E_DATA, "record __x__/x/000000: readers of WebDataset skip", dt_data_pack(&o));
    assert_int_equal(chdir(cwd), 0);
    o = (dt_pack_opts){.source = raw, .out = fixture_path("rk3.lmdb"), .key_by_shard = true};
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
}

TEST(shards_by_size_and_count) {
    dt_pack_opts o = options(fixture_path("size-{}.tar"), 2);
    o.shard_bytes = 2000000;
    must(dt_data_pack(&o));
    struct stat s;
    uint32_t n = 0;
    for (int i = 0;; i++) {
        char *name = dt_xprintf("size-%06d.tar", i);
        const char *path = fixture_path(name);
        free(name);
        if (stat(path, &s) != 0) break;
        assert_true(s.st_size <= 2000000 + 10240); // tar rounds up
        dt_reader *reader = fixture_set(path);
        n += reader->catalog->n_records;
        dt_reader_close(reader);
    }
    assert_int_equal(n, N_FILES);
    static const char *const WRONG[] = {"one.tar", "w-{0..3}.tar", "w.lmdb"};
    for (int i = 0; i < 3; i++) {
        o.out = fixture_path(WRONG[i]);
        assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    }
    o = options(fixture_path("w-{0.tar"), 1);
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    o = options(fixture_path("w-{0..9999}.tar"), 1);
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE); // more shards than records
}

// Fewer shards than before: those that are left over belong to the old set and go with it.
TEST(overwriting_leaves_no_shard_of_the_old_set) {
    dt_pack_opts o = options(fixture_path("over-%02d.tar"), 2);
    o.shard_records = 500;
    must(dt_data_pack(&o));
    assert_true(dt_io_exists(fixture_path("over-05.tar")));
    o.shard_records = 1500;
    assert_int_equal(dt_data_pack(&o), DT_E_USAGE);
    o.overwrite = true;
    must(dt_data_pack(&o));
    assert_true(dt_io_exists(fixture_path("over-01.tar")));
    assert_false(dt_io_exists(fixture_path("over-02.tar")));
    assert_false(dt_io_exists(fixture_path("over-05.tar.index")));
    assert_false(dt_io_exists(fixture_path("over.tar.partial")));
}

// 40 MB go from file to file, never through memory as a whole; its neighbours are not harmed.
TEST(a_very_large_record) {
    static const char *const OUTS[] = {"large.tar", "large.lmdb"};
    const char *root = fixture_path("large");
    enum { N = 40 << 20 };
    uint8_t *bytes = malloc(N);
    for (size_t i = 0; i < N; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 11);
    fixture_write(fixture_path("large/x/a.npy"), "small", 5);
    fixture_write(fixture_path("large/x/b.npy"), bytes, N);
    fixture_write(fixture_path("large/x/c.npy"), "also small", 10);
    for (int k = 0; k < 2; k++) {
        const char *out = fixture_path(OUTS[k]);
        fixture_pack(root, out);
        dt_buffer b = {0};
        dt_span span;
        dt_reader *s = fixture_set(out);
        assert_int_equal(s->catalog->n_records, 3);
        for (uint32_t r = 0; r < 3; r++)
            for (uint32_t m = 0; m < s->catalog->records[r].n_members; m++)
                must(dt_reader_read(s, r, s->catalog->records[r].first_member + m, true, &b, &span));
        const dt_record *rec = &s->catalog->records[1];
        uint32_t m = rec->first_member;
        while (s->catalog->members[m].size != N) m++;
        assert_int_equal(s->catalog->members[m].hash, dt_hash64(bytes, N));
        must(dt_reader_read(s, 1, m, true, &b, &span));
        assert_memory_equal(span.data, bytes, N);
        dt_buffer_fini(&b);
        dt_reader_close(s);
    }
    free(bytes);
}

TEST(odd_names) {
    static const char *const NAMES[] = {"line\nbreak", "quote\"s, and commas", "tab\there", "\xc3\xbc",
                                        "not utf-8 \xff\xfe"};
    char *longest = dt_xprintf("%0240d", 7);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        const char *path = in_folder("odd/k\n1/%s.npy", NAMES[i]);
        fixture_write(path, NAMES[i], strlen(NAMES[i]));
    }
    const char *path = in_folder("odd/k\n1/%s.npy", longest);
    fixture_write(path, "long", 4);
    free(longest);
    fixture_pack(fixture_path("odd"), fixture_path("odd.tar"));
    fixture_pack(fixture_path("odd"), fixture_path("odd.lmdb"));
    assert_int_equal(catalog_hash(fixture_path("odd.tar")), catalog_hash(fixture_path("odd.lmdb")));
    // the same without index: what the headers say
    must(dt_io_unlink(fixture_path("odd.tar.index")));
    const char *out = fixture_path("odd.tar");
    dt_reader *s = fixture_set(out);
    assert_int_equal(s->catalog->n_records, 6);
    dt_reader_close(s);
}

TEST(none_and_one) {
    must(dt_io_mkdir_all(fixture_path("none/x")));
    dt_pack_opts o = {.source = fixture_path("none"), .out = fixture_path("none.tar")};
    must_fail(DT_E_DATA, "holds no data files", dt_data_pack(&o));
    assert_false(dt_io_exists(fixture_path("none.tar.partial")));
    fixture_write(fixture_path("none/x/empty.npy"), "", 0);
    assert_int_equal(dt_data_pack(&o), DT_E_DATA);
    fixture_write(fixture_path("none/x/a.npy"), "1", 1);
    must_fail(DT_E_DATA, "--on-error skip", dt_data_pack(&o));
    o.skip_bad = true;
    must(dt_data_pack(&o));
    o.out = fixture_path("none.lmdb");
    must(dt_data_pack(&o));
    assert_int_equal(catalog_hash(fixture_path("none.tar")), catalog_hash(o.out));
}

// Records of a table have nothing but their metadata: rows of equal lengths are no copies, equal rows are.
TEST(equal_rows) {
    static const char *const ROWS[] = {"{\"x\": 1, \"label\": \"a\"}", "{\"x\": 2, \"label\": \"a\"}",
                                       "{\"x\": 1, \"label\": \"a\"}", "{\"x\": 2, \"label\": \"b\"}"};
    const char *path = fixture_path("rows.tar");
    FILE *f = fopen(path, "wb");
    uint8_t head[DT_TAR_MAX_HEADER];
    static const char zeros[2 * DT_TAR_BLOCK];
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d.json", i);
        size_t n;
        must(dt_tar_write_header(head, &n, name, strlen(ROWS[i])));
        fwrite(head, 1, n, f);
        fwrite(ROWS[i], 1, strlen(ROWS[i]), f);
        fwrite(zeros, 1, DT_TAR_BLOCK - strlen(ROWS[i]), f);
    }
    fwrite(zeros, 1, sizeof zeros, f);
    fclose(f);
    const char *out = fixture_path("rows_out.tar");
    dt_pack_opts o = {.source = path, .out = out, .duplicates = DT_DUPLICATES_DROP};
    must(dt_data_pack(&o));
    dt_reader *s = fixture_set(out);
    assert_int_equal(s->catalog->n_records, 3);
    dt_reader_close(s);
}

TEST(equal_contents) {
    static const char *const NAMES[] = {"a", "b", "c", "d", "e"};
    static const char *const TEXTS[] = {"same", "else", "same", "more text", "same"};
    for (int i = 0; i < 5; i++) {
        const char *path = in_folder("twins/x/%s.npy", NAMES[i]);
        fixture_write(path, TEXTS[i], strlen(TEXTS[i]));
    }
    const char *out = fixture_path("twins.lmdb");
    dt_pack_opts o = {.source = fixture_path("twins"), .out = out};
    must(dt_data_pack(&o));
    dt_reader *s = fixture_set(out);
    int column = dt_catalog_find_column(s->catalog, "duplicate_of");
    assert_true(column >= 0);
    static const char *const WANT[] = {NULL, NULL, "x/a", NULL, "x/a"};
    for (uint32_t i = 0; i < 5; i++) {
        const char *v = dt_catalog_value(s->catalog, column, i);
        assert_true(v ? WANT[i] && strcmp(v, WANT[i]) == 0 : !WANT[i]);
    }
    dt_reader_close(s);
    o.duplicates = DT_DUPLICATES_FAIL;
    o.out = fixture_path("twins2.lmdb");
    must_fail(DT_E_DATA, "x/c.npy is the same as x/a.npy", dt_data_pack(&o));
    assert_false(dt_io_exists(o.out));
    assert_false(dt_io_exists(fixture_path("twins2.lmdb.partial")));
    o.duplicates = DT_DUPLICATES_DROP;
    must(dt_data_pack(&o));
    s = fixture_set(o.out);
    assert_int_equal(s->catalog->n_records, 3);
    assert_int_equal(dt_catalog_find_column(s->catalog, "duplicate_of"), -1);
    dt_reader_close(s);
    // of a set too, where the hashes are known
    o.source = out;
    o.out = fixture_path("twins3.tar");
    must(dt_data_pack(&o));
    s = fixture_set(o.out);
    assert_int_equal(s->catalog->n_records, 3);
    dt_reader_close(s);
}

static uint32_t kept(const char *source, const char *out, const char *where, dt_status want) {
    dt_pack_opts o = {.source = source, .out = fixture_path(out), .where = where, .overwrite = true};
    dt_status st = dt_data_pack(&o);
    if (st != want) fail_msg("%s: %s", where, dt_error_message());
    if (st != DT_OK) return 0;
    dt_reader *s = fixture_set(o.out);
    uint32_t n = s->catalog->n_records;
    dt_reader_close(s);
    return n;
}

// Which records repeat others is not worth a set that is whole but for that.
TEST(equal_contents_without_a_free_column) {
    char table[2048] = "stem";
    for (int i = 0; i < 64; i++) sprintf(table + strlen(table), ",c%d", i);
    strcat(table, "\na");
    for (int i = 0; i < 64; i++) strcat(table, ",text");
    strcat(table, "\n");
    fixture_write(fixture_path("crowd.csv"), table, strlen(table));
    fixture_write(fixture_path("crowd/x/a.npy"), "same", 4);
    fixture_write(fixture_path("crowd/x/b.npy"), "same", 4);
    const char *out = fixture_path("crowd.tar");
    dt_pack_opts o = {.source = fixture_path("crowd"), .out = out, .join = fixture_path("crowd.csv")};
    must(dt_data_pack(&o));
    dt_reader *s = fixture_set(out);
    assert_int_equal(s->catalog->n_records, 2);
    assert_int_equal(dt_columns_count(&s->catalog->table, DT_TEXT_COLUMN), 64);
    assert_int_equal(dt_catalog_find_column(s->catalog, "duplicate_of"), -1);
    dt_reader_close(s);
}

TEST(records_that_are_dropped_by_expression) {
    fixture_biometric(fixture_path("people"), 4, 10);
    const char *p = fixture_path("people");
    assert_int_equal(kept(p, "w.lmdb", "subject = 2", DT_OK), 20);
    assert_int_equal(kept(p, "w.lmdb", "subject > 2 and width = 16", DT_OK), 20);
    assert_int_equal(kept(p, "w.lmdb", "finger is null", DT_OK), 40);
    assert_int_equal(kept(p, "w.lmdb", "key like 'iris/%' and bytes > 10 and n <= 3", DT_OK), 12);
    assert_int_equal(kept(p, "w.lmdb", "source like '%Left_index%'", DT_OK), 4);
    assert_int_equal(kept(p, "w.lmdb", "gender in ('F')", DT_OK), 20);
    kept(p, "w2.lmdb", "subject = 77", DT_E_DATA);
    kept(p, "w2.lmdb", "subjct = 7", DT_E_USAGE);
    kept(p, "w2.lmdb", "subject = ", DT_E_USAGE);
    assert_false(dt_io_exists(fixture_path("w2.lmdb.partial")));
    // from a set: its columns
    assert_int_equal(kept(fixture_path("w.lmdb"), "w3.tar", "gender = 'F' and hand = 'Left'", DT_OK), 5);
}

TEST(records_of_several_kinds_of_metadata) {
    fixture_biometric(fixture_path("meta"), 2, 2);
    static const char TABLE[] = "stem,score,box,site\n1_M_L_1,0.25,7,north\n2_M_L_2,1,8,south\n";
    fixture_write(fixture_path("meta.csv"), TABLE, strlen(TABLE));
    const char *out = fixture_path("meta.lmdb");
    dt_pack_opts o = {.source = fixture_path("meta"), .out = out, .join = fixture_path("meta.csv")};
    must(dt_data_pack(&o));
    for (int without = 0; without < 2; without++) { // the json members say the same as the index
        if (without) must(dt_io_unlink(fixture_path("meta.lmdb/data.mdb.index")));
        dt_reader *s = fixture_set(out);
        const dt_catalog *c = s->catalog;
        int site = dt_catalog_find_column(c, "site"), score = dt_catalog_find_real(c, "score");
        assert_true(site >= 0 && score >= 0 && dt_catalog_find_column(c, "box") >= 0);
        uint32_t r = 0;
        while (strcmp(fixture_key(c, r), "iris/2/2_M_L_2") != 0) r++;
        assert_string_equal(dt_catalog_value(c, site, r), "south");
        assert_true(dt_catalog_real(c, score, r) == 1);
        assert_true(dt_catalog_real(c, score, 0) != dt_catalog_real(c, score, 0));
        dt_reader_close(s);
    }
}

static int set_up(void **state) {
    folder_make(state);
    raw = fixture_path("raw");
    make_raw(raw);
    return 0;
}

// Files are read whole to aligned places and to others, and no byte behind the one that shows growth is touched.
// A read that is broken may as well never end, so a signal ends the test.
TEST(a_file_that_changes_meanwhile_is_told) {
    alarm(20);
    enum { MOST = 131073, ROOM = MOST + 256 };
    static const size_t SIZES[] = {1, 4095, 65535, 65536, 65537, 131072, MOST};
    const char *dir = fixture_path("grows"), *path = fixture_path("grows/a.wav");
    uint8_t *bytes = malloc(MOST + 1), *room = aligned_alloc(64, (ROOM + 63) / 64 * 64);
    for (size_t i = 0; i <= MOST; i++) bytes[i] = (uint8_t)(i * 131 >> 3);
    for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++)
        for (size_t at = 0; at <= 16; at += 16) {
            size_t n = SIZES[k];
            dt_raw list;
            fixture_write(path, bytes, n);
            must(dt_raw_list(&list, dir, NULL, NULL));
            memset(room, 0xa5, ROOM);
            must(dt_raw_read(&list, &list.items[0], 0, room + at, n));
            assert_memory_equal(room + at, bytes, n);
            assert_int_equal(room[at + n], 0xa5);
            fixture_write(path, bytes, n + 1);
            assert_int_equal(dt_raw_read(&list, &list.items[0], 0, room + at, n), DT_E_DATA);
            assert_int_equal(room[at + n + 1], 0xa5);
            fixture_write(path, bytes, n - 1);
            must_fail(DT_E_DATA, "changed while it was packed", dt_raw_read(&list, &list.items[0], 0, room + at, n));
            dt_raw_fini(&list);
        }
    alarm(0);
    free(bytes);
    free(room);
}

TEST_MAIN(set_up, fixture_tear_down)
