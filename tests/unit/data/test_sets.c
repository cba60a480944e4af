// Opening sets: which files a path stands for, indexes that are made, stale ones, compressed shards,
// mixed sets.
#include "base/log.h"
#include "data/file/tar.h"
#include "data/source/source.h"
#include "data/source/source_parts.h"
#include "data_fixture.h"
#include "testing.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

static dt_buffer tar_bytes;

static void put_member(const char *name, const void *data, size_t n) {
    uint8_t header[DT_TAR_MAX_HEADER];
    static const uint8_t zeros[512];
    size_t n_header;
    must(dt_tar_write_header(header, &n_header, name, n));
    dt_buffer_append(&tar_bytes, header, n_header);
    dt_buffer_append(&tar_bytes, data, n);
    dt_buffer_append(&tar_bytes, zeros, (size_t)(dt_tar_padded(n) - n));
}

// n records <prefix>0.txt + .cls, texts "<prefix>0".
static void make_tar(const char *prefix, int n) {
    static const uint8_t end[1024];
    tar_bytes.n_bytes = 0;
    for (int i = 0; i < n; i++) {
        char name[300], text[200], cls[16];
        snprintf(text, sizeof text, "%s%d", prefix, i);
        snprintf(name, sizeof name, "%s.txt", text);
        put_member(name, text, strlen(text));
        snprintf(name, sizeof name, "%s.cls", text);
        snprintf(cls, sizeof cls, "%d", i % 3);
        put_member(name, cls, strlen(cls));
    }
    dt_buffer_append(&tar_bytes, end, sizeof end);
}

static const char *write_tar(const char *name, const char *prefix, int n) {
    const char *path = fixture_path(name);
    make_tar(prefix, n);
    fixture_write(path, tar_bytes.data, tar_bytes.n_bytes);
    return path;
}

// A lack of descriptors says nothing of a file.
TEST(no_descriptor_is_no_bad_file) {
    const char *path = write_tar("few.tar", "few", 1);
    dt_blob b;
    char *data = NULL;
    size_t n;
    fixture_few_files(0);
    dt_status blob = dt_blob_open(&b, path);
    bool says = strstr(dt_error_message(), "few.tar: cannot open: ") &&
                strstr(dt_error_message(), "raise the limit on open files");
    dt_status file = dt_io_read_file(&data, &n, path, 0, DT_E_DATA);
    fixture_many_files();
    assert_true(says);
    assert_int_equal(blob, DT_E_STORAGE);
    assert_int_equal(file, DT_E_STORAGE);
    assert_int_equal(dt_blob_open(&b, fixture_path("none.tar")), DT_E_DATA);
}

// What every rank finds alike is said by one.
TEST(one_rank_tells_of_files_beside) {
    write_tar("alike/a.tar", "a", 1);
    fixture_write(fixture_path("alike/b.pgm"), "P5 1 1 255 a", 12);
    for (int rank = 0; rank < 2; rank++) {
        const char *log = fixture_path(rank ? "alike1.log" : "alike0.log");
        size_t n;
        dt_log_set_rank(rank, 2);
        must(dt_log_open(log));
        dt_reader_close(fixture_set(fixture_path("alike")));
        dt_log_close();
        dt_log_set_rank(0, 1);
        char *text = fixture_read(log, &n);
        assert_int_equal(strstr(text, "are left out") != NULL, rank == 0);
        free(text);
    }
}

static dt_reader *open_one(const char *path, const dt_reader_options *o) {
    dt_reader *s = NULL;
    dt_reader_item item = {.path = path};
    must(dt_reader_open_items(&s, &item, 1, o));
    return s;
}

// What may not be read is not what is not there: it is named, by every way to it.
TEST(a_closed_set_is_said_to_be_closed) {
    static const struct {
        const char *path, *shut;
    } ALL[] = {{"shut/a.lmdb", "shut/a.lmdb"}, {"shut/a.lmdb", "shut/a.lmdb/data.mdb"},
               {"shut", "shut/a.lmdb"},        {"shut/a.*", "shut"},
               {"shut/b.tar", "shut/b.tar"},   {"shut/c.json", "shut/c.json"},
               {"shut/d.json", "shut/far"}};
    dt_reader *s = NULL;
    if (!fixture_has_user()) skip();
    fixture_write(fixture_path("shut/a.lmdb/data.mdb"), "x", 1);
    fixture_write(fixture_path("shut/c.json"), "{}", 2);
    fixture_write(fixture_path("shut/far/e.tar"), "x", 1);
    static const char LIST[] = "{\"wids_version\":1,\"shardlist\":[{\"url\":\"far/e.tar\"}]}";
    fixture_write(fixture_path("shut/d.json"), LIST, strlen(LIST));
    write_tar("shut/b.tar", "b", 1);
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        const char *path = fixture_path(ALL[i].path), *shut = fixture_path(ALL[i].shut);
        assert_int_equal(chmod(shut, 0), 0);
        fixture_begin_user();
        dt_status st = dt_reader_open(&s, &path, 1);
        fixture_end_user();
        assert_int_equal(chmod(shut, 0755), 0);
        assert_int_equal(st, DT_E_DATA);
        char *words = dt_xprintf("leave to read %s (", shut);
        if (!strstr(dt_error_message(), words)) fail_msg("%s: %s", path, dt_error_message());
        free(words);
    }
    // a disk's own folder beside the shards is no part of the set
    const char *disk = fixture_path("disk");
    write_tar("disk/a.tar", "a", 1);
    fixture_write(fixture_path("disk/lost+found/x"), "x", 1);
    assert_int_equal(chmod(fixture_path("disk/lost+found"), 0), 0);
    fixture_begin_user();
    dt_status st = dt_reader_open(&s, &disk, 1);
    fixture_end_user();
    must(st);
    dt_reader_close(s);
}

// Of `cat a.tar b.tar` only a.tar is read, which is said each time; zeros and rubbish behind a tar are nothing.
TEST(two_tars_in_one_file) {
    static const size_t PADDING[] = {0, 10240, 3};
    const char *path = fixture_path("two.tar"), *log = fixture_path("two.log");
    for (int k = 0; k < 4; k++) {
        dt_buffer all = {0};
        make_tar("a", 2);
        dt_buffer_append(&all, tar_bytes.data, tar_bytes.n_bytes);
        size_t at = all.n_bytes, n_padding = PADDING[k % 3];
        static const uint8_t zeros[10240];
        dt_buffer_append(&all, zeros, n_padding);
        make_tar("b", 1);
        bool is_told = k < 2;
        if (k < 3) dt_buffer_append(&all, tar_bytes.data, tar_bytes.n_bytes);
        fixture_write(path, all.data, all.n_bytes);
        dt_buffer_fini(&all);
        for (int run = 0; run < 2; run++) {
            size_t n;
            must(dt_log_open(log));
            dt_reader *s = fixture_set(path);
            dt_log_close();
            assert_int_equal(s->catalog->n_records, 2);
            dt_reader_close(s);
            char *text = fixture_read(log, &n);
            char *words = dt_xprintf("another tar that begins at byte %zu ", at + n_padding);
            assert_int_equal(strstr(text, words) != NULL, is_told);
            free(words);
            free(text);
            must(dt_io_unlink(log));
        }
        dt_io_remove_tree(fixture_path("two.tar.index"));
    }
}

// Every record's .txt holds its key.
static void check_texts(dt_reader *s) {
    dt_buffer scratch = {0};
    dt_span b;
    int ext = fixture_find_ext(s->catalog, "txt");
    for (uint32_t r = 0; r < s->catalog->n_records; r++) {
        const dt_record *rec = &s->catalog->records[r];
        for (uint32_t m = rec->first_member; m < rec->first_member + rec->n_members; m++) {
            if ((int)s->catalog->members[m].ext != ext) continue;
            must(dt_reader_read(s, r, m, true, &scratch, &b));
            assert_int_equal(b.n_bytes, strlen(fixture_key(s->catalog, r)));
            assert_memory_equal(b.data, fixture_key(s->catalog, r), b.n_bytes);
        }
    }
    dt_buffer_fini(&scratch);
}

static bool exists(const char *path, const char *tail) {
    char *p = dt_xprintf("%s%s", path, tail);
    bool yes = dt_io_exists(p);
    free(p);
    return yes;
}

// ---- indexes ---------------------------------------------------------------------------------------
TEST(a_scan_leaves_an_index) {
    const char *path = write_tar("i/a.tar", "x", 5);
    dt_reader *s = fixture_set(path);
    uint64_t hash = dt_catalog_hash(s->catalog);
    check_texts(s);
    dt_reader_close(s);
    assert_true(exists(path, ".index"));
    // a broken member does not show, as the tar is not scanned
    s = fixture_set(path);
    assert_true(dt_catalog_hash(s->catalog) == hash);
    assert_int_equal(dt_columns_count(&s->catalog->table, DT_TEXT_COLUMN), 1);
    check_texts(s);
    dt_reader_close(s);
}

TEST(an_index_is_not_written_where_it_may_not) {
    const char *path = write_tar("ro/a.tar", "x", 2), *dir = fixture_path("ro");
    assert_int_equal(chmod(dir, 0555), 0);
    dt_reader_close(fixture_set(path));
    assert_false(exists(path, ".index"));
    assert_int_equal(chmod(dir, 0755), 0);
    dt_reader_options o = {.write_index = false};
    dt_reader_close(open_one(path, &o));
    assert_false(exists(path, ".index"));
}

TEST(a_stale_index_is_made_again) {
    const char *path = write_tar("s/a.tar", "x", 5);
    dt_reader_close(fixture_set(path));
    write_tar("s/a.tar", "other", 3); // shorter, too
    dt_reader *s = fixture_set(path);
    assert_int_equal(s->catalog->n_records, 3);
    check_texts(s);
    dt_reader_close(s);
    s = fixture_set(path);
    assert_int_equal(s->catalog->n_records, 3);
    dt_reader_close(s);
}

TEST(many_shards_keep_their_order) {
    for (int i = 0; i < 70; i++) {
        char name[32], prefix[32];
        snprintf(name, sizeof name, "m/s-%03d.tar", i);
        snprintf(prefix, sizeof prefix, "k%03d-", i);
        write_tar(name, prefix, 1 + i % 4);
    }
    uint64_t hash = 0;
    for (int round = 0; round < 2; round++) {
        dt_reader *s = fixture_set(fixture_path("m/s-{000..069}.tar"));
        for (uint32_t r = 1; r < s->catalog->n_records; r++)
            assert_true(strcmp(fixture_key(s->catalog, r - 1), fixture_key(s->catalog, r)) < 0);
        assert_int_equal(s->catalog->n_shards, 70);
        if (round) assert_true(hash == dt_catalog_hash(s->catalog));
        hash = dt_catalog_hash(s->catalog);
        check_texts(s);
        dt_reader_close(s);
    }
    // one bad shard among them: its name is told, whoever met it first
    const char *bad = fixture_path("m/s-033.tar");
    unlink(fixture_path("m/s-033.tar.index"));
    fixture_write(bad, "no tar at all", 13);
    fixture_no_set(fixture_path("m/s-*.tar"), DT_E_DATA, "s-033.tar");
}

// ---- names -----------------------------------------------------------------------------------------
TEST(wildcards_and_folders) {
    write_tar("w/b.tar", "b", 1), write_tar("w/a.tar", "a", 1), write_tar("w/B.tar", "B", 1);
    static const char *const PATTERNS[] = {"w/*.tar", "w", "w/", "w/{B,a,b}.tar", "w/[A-z].tar"};
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++) {
        dt_reader *s = fixture_set(fixture_path(PATTERNS[i]));
        assert_int_equal(s->catalog->n_records, 3);
        assert_string_equal(fixture_key(s->catalog, 0), "B0"); // in the order of bytes
        assert_string_equal(fixture_key(s->catalog, 1), "a0");
        assert_int_equal(dt_columns_count(&s->catalog->table, DT_TEXT_COLUMN), 1);
        dt_reader_close(s);
    }
    write_tar("w/odd{1}*.tar", "o", 2);
    dt_reader *s = fixture_set(fixture_path("w/odd{1}*.tar"));
    assert_int_equal(s->catalog->n_records, 2);
    dt_reader_close(s);
    fixture_no_set(fixture_path("w/z*.tar"), DT_E_DATA, "no file matches");
    fixture_no_set(fixture_path("w/none.tar"), DT_E_DATA, "no such data set");
}

TEST(a_file_twice_is_an_error) {
    const char *path = write_tar("d/a.tar", "x", 2), *link = fixture_path("d/link.tar");
    const char *twice = dt_arena_printf(&folder_arena, "%s::%s", path, path);
    const char *linked = dt_arena_printf(&folder_arena, "%s::%s", path, link);
    assert_int_equal(symlink(path, link), 0);
    fixture_no_set(twice, DT_E_USAGE, "listed twice");
    fixture_no_set(linked, DT_E_USAGE, "the same file");
}

TEST(mixed_sets_have_a_column) {
    const char *a = write_tar("x/cats-00.tar", "c", 2), *b = write_tar("x/dogs-00.tar", "d", 3);
    dt_reader *s = NULL;
    dt_reader_item items[] = {{a, NULL, 2}, {b, "hounds", 0.5}};
    must(dt_reader_open_items(&s, items, 2, NULL));
    int set = dt_catalog_find_column(s->catalog, "set");
    assert_true(set >= 0);
    assert_string_equal(dt_catalog_value(s->catalog, set, 1), "cats-00");
    assert_string_equal(dt_catalog_value(s->catalog, set, 2), "hounds");
    assert_string_equal(dt_catalog_value(s->catalog, set, 4), "hounds");
    assert_int_equal(s->n_items, 2);
    assert_true(s->weight[0] == 2 && s->weight[1] == 0.5);
    assert_int_equal(s->catalog->shards[s->catalog->records[4].shard].set, 1);
    dt_reader_close(s);
}

TEST(a_config_mixes_sets) {
    const char *a = write_tar("y/a.tar", "a", 20), *b = write_tar("y/b.tar", "b", 20);
    dt_config *c = fixture_parse("  path: [{path: %s, weight: 3}, %s]\n"
                                 "  fields: {cls: {kind: class}, set: {kind: class}}\n",
                                 a, b);
    dt_dataset *d = fixture_open_config(c, 1);
    assert_int_equal(d->fields[1].n_classes, 2);
    assert_int_equal(d->n_samples(d, DT_SPLIT_TRAIN), 40);
    int n_of_a = 0; // 3 of 4 samples of an epoch come from the first
    for (uint64_t i = 0; i < 40; i++) n_of_a += dt_data_sample_at(d, 0, i) < 20;
    assert_in_range(n_of_a, 28, 32);
    d->close(d);
}

// "seg.cls" is a class member beside "cls".
TEST(class_members_may_have_more_dots) {
    static const uint8_t end[1024];
    const char *path = fixture_path("dots.tar");
    tar_bytes.n_bytes = 0;
    put_member("a.seg.cls", "4", 1), put_member("a.cls", "1", 1), put_member("b.seg.cls", "5\n", 2);
    dt_buffer_append(&tar_bytes, end, sizeof end);
    fixture_write(path, tar_bytes.data, tar_bytes.n_bytes);
    dt_reader *s = fixture_set(path);
    int seg = dt_catalog_find_column(s->catalog, "seg.cls");
    assert_true(seg >= 0 && dt_catalog_find_column(s->catalog, "cls") >= 0);
    assert_string_equal(dt_catalog_value(s->catalog, seg, 0), "4");
    assert_string_equal(dt_catalog_value(s->catalog, seg, 1), "5");
    dt_reader_close(s);
}

// A list of shards is a set for `dtrain pack` too, and no list of files.
TEST(lists_of_shards_can_be_packed) {
    write_tar("wids/a.tar", "a", 5), write_tar("wids/b.tar", "b", 3);
    const char *list = fixture_path("wids/wids.json");
    const char *text = "{\"wids_version\": 1, \"shardlist\": [{\"url\": \"a.tar\", \"nsamples\": 5}, "
                       "{\"url\": \"b.tar\", \"nsamples\": 3}]}";
    fixture_write(list, text, strlen(text));
    fixture_pack(list, fixture_path("wids.lmdb"));
    dt_reader *s = fixture_set(fixture_path("wids.lmdb"));
    assert_int_equal(s->catalog->n_records, 8);
    assert_string_equal(fixture_key(s->catalog, 7), "b2");
    dt_reader_close(s);
    const char *gone = "{\"shardlist\": [{\"url\": \"gone.tar\"}]}", *rows = "[{\"path\": \"n.txt\"}]";
    fixture_write(list, gone, strlen(gone));
    dt_pack_opts o = {.source = list, .out = fixture_path("gone.lmdb")};
    must_fail(DT_E_DATA, "gone.tar", dt_data_pack(&o));
    fixture_write(fixture_path("wids/n.txt"), "1 2", 3);
    fixture_write(list, rows, strlen(rows));
    fixture_pack(list, fixture_path("rows.lmdb"));
}

static dt_status open_list(dt_reader **s, const char *text) {
    const char *path = fixture_path("lists/set.json");
    fixture_write(path, text, strlen(text));
    return dt_reader_open(s, &path, 1);
}

TEST(wids_lists) {
    dt_reader *s = NULL;
    write_tar("lists/x/a.v2.tar", "x", 3), write_tar("lists/y/a.v2.tar", "y", 3);
    const char *good = "{\"wids_version\": 1, \"shardlist\": [{\"url\": \"x/a.v2.tar\", \"nsamples\": "
                       "3}, {\"url\": \"file:y/a.v2.tar\", \"nsamples\": 3}]}";
    must(open_list(&s, good));
    assert_int_equal(s->catalog->n_records, 6);
    assert_int_equal(dt_catalog_find_column(s->catalog, "set"), -1);
    dt_reader_close(s);
    const char *sets = "{\"wids_version\": 1, \"datasets\": [{\"name\": \"one\", \"base\": \"x\", "
                       "\"shardlist\": [{\"url\": \"a.v2.tar\", \"nsamples\": 3}]}, {\"name\": "
                       "\"two\", \"shardlist\": [{\"url\": \"y/a.v2.tar\", \"nsamples\": 4}]}]}";
    must(open_list(&s, sets));
    int set = dt_catalog_find_column(s->catalog, "set");
    assert_string_equal(dt_catalog_value(s->catalog, set, 0), "one");
    assert_string_equal(dt_catalog_value(s->catalog, set, 5), "two");
    dt_reader_close(s);
    must_fail(DT_E_USAGE, "ftp://a/b.tar: only files, by their path, and http://",
              open_list(&s, "{\"shardlist\": [{\"url\": \"ftp://a/b.tar\"}]}"));
    must_fail(DT_E_DATA, "not there", open_list(&s, "{\"shardlist\": [{\"url\": \"z.tar\"}]}"));
    must_fail(DT_E_DATA, "lists no shards", open_list(&s, "{\"a\": 1}"));
    must_fail(DT_E_DATA, "not JSON", open_list(&s, "[1,"));
}

// ---- damage ----------------------------------------------------------------------------------------
TEST(a_cut_shard_is_used_up_to_there_when_lenient) {
    const char *path = write_tar("c/a.tar", "x", 10);
    fixture_write(path, tar_bytes.data, tar_bytes.n_bytes / 2 + 700);
    fixture_no_set(path, DT_E_DATA, "cut");
    dt_reader_options o = {.write_index = true, .lenient = true};
    dt_reader *s = open_one(path, &o);
    assert_in_range(s->catalog->n_records, 4, 6);
    dt_reader_close(s);
    assert_false(exists(path, ".index"));
}

TEST(bad_metadata_costs_its_columns_only) {
    static const uint8_t end[1024];
    const char *path = fixture_path("j/a.tar");
    tar_bytes.n_bytes = 0;
    put_member("a.json", "{\"q\": 1}", 8), put_member("b.json", "{broken", 7);
    put_member("c.json", "", 0);
    dt_buffer_append(&tar_bytes, end, sizeof end);
    fixture_write(path, tar_bytes.data, tar_bytes.n_bytes);
    dt_reader *s = fixture_set(path);
    int q = dt_catalog_find_column(s->catalog, "q");
    assert_int_equal(s->catalog->n_records, 3);
    assert_string_equal(dt_catalog_value(s->catalog, q, 0), "1");
    assert_null(dt_catalog_value(s->catalog, q, 1));
    dt_reader_close(s);
    assert_false(exists(path, ".index"));
}

// ---- compressed ------------------------------------------------------------------------------------
static void gzip_to(dt_buffer *out, const void *data, size_t n, bool fresh) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)n};
    if (fresh) out->n_bytes = 0;
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, 0), Z_OK);
    uint8_t *buf = malloc(n + 1000);
    z.next_out = buf;
    z.avail_out = (uInt)n + 1000;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    dt_buffer_append(out, buf, n + 1000 - z.avail_out);
    deflateEnd(&z);
    free(buf);
}

static void zstd_to(dt_buffer *out, const void *data, size_t n, bool fresh) {
    size_t cap = ZSTD_compressBound(n);
    uint8_t *buf = malloc(cap);
    if (fresh) out->n_bytes = 0;
    size_t k = ZSTD_compress(buf, cap, data, n, 3);
    dt_buffer_append(out, buf, k);
    free(buf);
}

static dt_status gather(void *arg, const void *data, size_t n) {
    dt_buffer_append(arg, data, n);
    return DT_OK;
}

static dt_status unpack_bytes(const dt_buffer *in, size_t n, uint64_t max, dt_buffer *out) {
    dt_blob b;
    uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, in->data, n);
    dt_blob_from_memory(&b, "x.gz", exact, n);
    out->n_bytes = 0;
    dt_status st = dt_unpack(&b, max, gather, out);
    free(exact);
    return st;
}

TEST(streams_unpack_and_cuts_are_told) {
    dt_buffer packed = {0}, out = {0};
    size_t n = 5000000;
    uint8_t *data = malloc(n);
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = i % 4096 < 2000 ? 0 : (uint8_t)(x >> 24);
    }
    for (int kind = 0; kind < 2; kind++) {
        void (*pack)(dt_buffer *, const void *, size_t, bool) = kind ? zstd_to : gzip_to;
        pack(&packed, data, n, true);
        must(unpack_bytes(&packed, packed.n_bytes, n, &out));
        assert_int_equal(out.n_bytes, n);
        assert_memory_equal(out.data, data, n);
        // a limit is a limit
        assert_int_equal(unpack_bytes(&packed, packed.n_bytes, n - 1, &out), DT_E_DATA);
        // members, frames one after another
        pack(&packed, data, n / 3, true);
        pack(&packed, data + n / 3, n - n / 3, false);
        if (kind == 0) dt_buffer_append(&packed, "\0\0\0\0", 4); // padding of gzip
        must(unpack_bytes(&packed, packed.n_bytes, n, &out));
        assert_int_equal(out.n_bytes, n);
        assert_memory_equal(out.data, data, n);
        for (size_t cut = 5; cut < packed.n_bytes; cut += packed.n_bytes / 17) {
            dt_status st = unpack_bytes(&packed, cut, n, &out);
            assert_true(st == DT_E_DATA || (st == DT_OK && out.n_bytes == n / 3));
        }
        pack(&packed, data, n, true);
        for (int i = 0; i < 40; i++) {
            x = x * 1664525u + 1013904223u;
            size_t at = 20 + x % (packed.n_bytes - 20);
            packed.data[at] ^= 1;
            dt_status st = unpack_bytes(&packed, packed.n_bytes, 2 * n, &out);
            if (kind == 0) assert_int_equal(st, DT_E_DATA); // gzip has a CRC
            packed.data[at] ^= 1;
        }
    }
    free(data);
    dt_buffer_fini(&packed);
    dt_buffer_fini(&out);
}

static int n_files(const char *dir, const char *tail) {
    char **names;
    size_t n, count = 0;
    must(dt_io_list_dir(&names, &n, dir, DT_E_DATA));
    for (size_t i = 0; i < n; i++) {
        size_t k = strlen(names[i]), t = strlen(tail);
        count += k >= t && strcmp(names[i] + k - t, tail) == 0;
    }
    dt_io_free_list(names, n);
    return (int)count;
}

static int n_temporaries(const char *dir) {
    char **names;
    size_t n, count = 0;
    must(dt_io_list_dir(&names, &n, dir, DT_E_DATA));
    for (size_t i = 0; i < n; i++) count += strstr(names[i], ".tmp.") != NULL;
    dt_io_free_list(names, n);
    return (int)count;
}

TEST(compressed_shards_are_read) {
    dt_buffer packed = {0};
    const char *cache = fixture_path("cache"), *unpacked = fixture_path("cache/unpacked");
    static const char *const NAMES[] = {"z/a.tar.gz", "z/b.tgz", "z/c.tar.zst", "z/d.tar", "z/e"};
    dt_reader_options o = {.cache_dir = cache, .cache_bytes = 1 << 30, .write_index = true};
    for (int i = 0; i < 5; i++) {
        make_tar((char[2]){(char)('a' + i), 0}, 50);
        (i % 2 ? gzip_to : zstd_to)(&packed, tar_bytes.data, tar_bytes.n_bytes, true);
        fixture_write(fixture_path(NAMES[i]), packed.data, packed.n_bytes);
    }
    for (int round = 0; round < 2; round++) {
        dt_reader *s = open_one(fixture_path("z/{a.tar.gz,b.tgz,c.tar.zst,d.tar,e}"), &o);
        assert_int_equal(s->catalog->n_records, 250);
        assert_string_equal(s->catalog->shards[0].path, fixture_path(NAMES[0]));
        check_texts(s);
        dt_reader_close(s);
    }
    assert_int_equal(n_files(unpacked, ".tar") + n_files(unpacked, "-e"), 5);
    assert_int_equal(n_temporaries(unpacked), 0);
    assert_false(exists(fixture_path(NAMES[0]), ".index"));
    assert_int_equal(n_files(unpacked, ".index"), 5);
    // replaced: unpacked anew
    make_tar("new", 7);
    gzip_to(&packed, tar_bytes.data, tar_bytes.n_bytes, true);
    fixture_write(fixture_path(NAMES[0]), packed.data, packed.n_bytes);
    dt_reader *s = open_one(fixture_path(NAMES[0]), &o);
    assert_int_equal(s->catalog->n_records, 7);
    check_texts(s);
    dt_reader_close(s);
    // damaged
    packed.data[packed.n_bytes / 2] ^= 0x55;
    fixture_write(fixture_path("z/bad.tgz"), packed.data, packed.n_bytes);
    dt_reader_item item = {fixture_path("z/bad.tgz"), NULL, 0};
    must_fail(DT_E_DATA, "bad.tgz", dt_reader_open_items(&s, &item, 1, &o));
    assert_int_equal(n_temporaries(unpacked), 0);
    dt_buffer_fini(&packed);
}

TEST(the_cache_is_bounded) {
    dt_buffer packed = {0};
    const char *cache = fixture_path("small"), *unpacked = fixture_path("small/unpacked");
    dt_reader_options o = {.cache_dir = cache, .write_index = true};
    char name[32], prefix[16];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "b/%d.tgz", i);
        snprintf(prefix, sizeof prefix, "p%d-", i);
        make_tar(prefix, 100);
        gzip_to(&packed, tar_bytes.data, tar_bytes.n_bytes, true);
        fixture_write(fixture_path(name), packed.data, packed.n_bytes);
    }
    o.cache_bytes = tar_bytes.n_bytes * 7 / 2; // three and a bit
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "b/%d.tgz", i);
        dt_reader *s = open_one(fixture_path(name), &o);
        check_texts(s);
        dt_reader_close(s);
        assert_true(n_files(unpacked, ".tar") <= 3);
        assert_int_equal(n_files(unpacked, ".tar"), n_files(unpacked, ".index"));
    }
    // a set that is open is not removed under its reader
    dt_reader *held = open_one(fixture_path("b/0.tgz"), &o);
    for (int i = 1; i < 6; i++) {
        snprintf(name, sizeof name, "b/%d.tgz", i);
        dt_reader_close(open_one(fixture_path(name), &o));
    }
    check_texts(held);
    dt_reader_close(held);
    // more at once than there is room for
    dt_reader *s;
    dt_reader_item item = {fixture_path("b/{0..5}.tgz"), NULL, 0};
    must_fail(DT_E_STORAGE, "data.cache_size", dt_reader_open_items(&s, &item, 1, &o));
    dt_buffer_fini(&packed);
}

TEST(processes_share_the_work) {
    dt_buffer packed = {0};
    const char *cache = fixture_path("shared"), *path = fixture_path("p/a.tgz");
    dt_reader_options o = {.cache_dir = cache, .cache_bytes = 1 << 30};
    make_tar("p", 3000);
    gzip_to(&packed, tar_bytes.data, tar_bytes.n_bytes, true);
    fixture_write(path, packed.data, packed.n_bytes);
    pid_t child[4];
    for (int i = 0; i < 4; i++) {
        child[i] = fork();
        if (child[i] != 0) continue;
        dt_unpack_cache c = {.dir = cache, .max_bytes = o.cache_bytes};
        char *file;
        dt_blob copy;
        if (dt_unpack_open(&c, path, &file, &copy) != DT_OK) _exit(100);
        _exit((int)c.n_files);
    }
    int made = 0;
    for (int i = 0; i < 4; i++) {
        int status = 0;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 100);
        made += WEXITSTATUS(status);
    }
    assert_int_equal(made, 1);
    dt_buffer_fini(&packed);
}

// What a killed process left half unpacked goes; what one that lives is writing stays.
TEST(leftovers_of_unpacking_go) {
    dt_buffer packed = {0};
    dt_unpack_cache c = {.dir = fixture_path("left"), .max_bytes = 1 << 30};
    const char *path = fixture_path("l/a.tgz");
    char *file, *left, *lives;
    dt_blob copy;
    make_tar("l", 10);
    gzip_to(&packed, tar_bytes.data, tar_bytes.n_bytes, true);
    fixture_write(path, packed.data, packed.n_bytes);
    must(dt_unpack_open(&c, path, &file, &copy));
    dt_blob_close(&copy);
    assert_int_equal(unlink(file), 0);
    left = dt_xprintf("%s.tmp.%d", file, (int)getpid()); // our own number, too
    lives = dt_xprintf("%s.tmp.4", file);
    fixture_write(left, "left", 4);
    fixture_write(lives, "live", 4);
    int held = open(lives, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(held, LOCK_EX), 0);
    free(file);
    must(dt_unpack_open(&c, path, &file, &copy));
    dt_blob_close(&copy);
    assert_int_equal(access(file, R_OK), 0);
    assert_int_not_equal(access(left, F_OK), 0);
    assert_int_equal(access(lives, F_OK), 0);
    close(held);
    free(left), free(lives), free(file);
    dt_buffer_fini(&packed);
}

static int end(void **state) {
    dt_buffer_fini(&tar_bytes);
    return fixture_tear_down(state);
}

TEST_MAIN(folder_make, end)
