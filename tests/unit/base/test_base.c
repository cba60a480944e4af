// test_base.c: the lowest layer: known answers of the generators and hashes, every failpoint action
// on every kind of call, the team under several threads, the JSON writer's corners.
#include "base/bits.h"
#include "base/core.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/regular.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/thread.h"
#include "base/url.h"
#include "folder.h"
#include "store/ini.h"
#include "testing.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

// -- status --------------------------------------------------------------------------------------
static dt_status fails(void) {
    return dt_fail(DT_E_DATA, "record %d", 7);
}
static dt_status forwards(void) {
    DT_TRY(DT_OK);
    DT_TRY(fails());
    return DT_OK;
}

TEST(test_status) {
    dt_error_clear();
    assert_string_equal(dt_error_message(), "");
    assert_int_equal(forwards(), DT_E_DATA);
    assert_string_equal(dt_error_message(), "record 7");
    assert_int_equal(dt_fail_context(DT_E_DATA, "a.tar"), DT_E_DATA);
    assert_string_equal(dt_error_message(), "a.tar: record 7");
    dt_fail(DT_E_DATA, "again: %s", dt_error_message()); // its own message as an argument
    assert_string_equal(dt_error_message(), "again: a.tar: record 7");
    const dt_error_kept first = dt_error_keep();
    dt_fail(DT_E_STORAGE, "nor is it cleaned up");
    dt_error_restore(&first);
    assert_string_equal(dt_error_message(), "again: a.tar: record 7");
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    dt_fail(DT_E_DATA, "%s", big);
    dt_fail_context(DT_E_DATA, "%s", big);
    assert_in_range(strlen(dt_error_message()), 1000, sizeof big);
}

// -- arena ---------------------------------------------------------------------------------------
TEST(test_arena) {
    dt_arena a;
    dt_arena_init(&a);
    unsigned char *pieces[500];
    for (size_t i = 0; i < 500; i++) {
        size_t n = i % 50 == 49 ? 100000 : i * 3;
        pieces[i] = dt_arena_alloc(&a, n);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(pieces[i][k], 0);
            pieces[i][k] = (unsigned char)i;
        }
    }
    for (size_t i = 1; i < 500; i++) // nobody wrote into a neighbour
        assert_int_equal(pieces[i][(i % 50 == 49 ? 100000 : i * 3) - 1], i & 255);
    assert_string_equal(dt_arena_printf(&a, "%s-%d", dt_arena_strdup(&a, "x"), 5), "x-5");
    assert_true(a.used_bytes > 1000000);
    dt_arena_fini(&a);
    assert_null(a.head);
}

// -- rng, hash -----------------------------------------------------------------------------------
static void check_philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, const uint32_t want[4]) {
    uint32_t out[4], ctr[4] = {c0, c1, c2, c3};
    dt_philox4x32(key, ctr, out);
    assert_memory_equal(out, want, sizeof out);
}

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(test_philox) {
    check_philox(0, 0, 0, 0, 0, (const uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    check_philox(~0ull, ~0u, ~0u, ~0u, ~0u, (const uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    check_philox(0x299f31d0a4093822ull, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344,
                 (const uint32_t[]){0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(test_rng) {
    dt_rng r = {.seed = 42, .slot = 3, .step = 9, .purpose = dt_hash32("dropout")};
    uint32_t out[4], ctr[4] = {5, 3, 9, r.purpose};
    dt_philox4x32(42, ctr, out);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(dt_rng_u32(&r, 20 + i), out[i]);
        assert_true(dt_rng_uniform(&r, 20 + i) == (float)(out[i] >> 8) * 0x1p-24f);
    }
    float all[2][70];
    for (size_t n_all = 0; n_all <= 70; n_all += 23) { // whole blocks and parts of one
        memset(all, 0, sizeof all);
        dt_rng_uniforms(&r, all[0], n_all);
        dt_rng_normals(&r, all[1], n_all);
        for (uint32_t i = 0; i < 70; i++) {
            assert_true(all[0][i] == (i < n_all ? dt_rng_uniform(&r, i) : 0));
            assert_true(fabsf(all[1][i] - (i < n_all ? dt_rng_normal(&r, i) : 0)) < 1e-6f);
        }
    }
    double sum = 0, squares = 0, uniform = 0;
    const uint32_t n = 200000;
    uint32_t seen[7] = {0};
    for (uint32_t i = 0; i < n; i++) {
        double x = dt_rng_normal(&r, i);
        sum += x;
        squares += x * x;
        float u = dt_rng_uniform(&r, i);
        assert_true(u >= 0 && u < 1);
        uniform += u;
        uint32_t k = dt_rng_below(&r, i, 7);
        assert_in_range(k, 0, 6);
        seen[k]++;
    }
    assert_true(fabs(sum / n) < 0.01 && fabs(squares / n - 1) < 0.02);
    assert_true(fabs(uniform / n - 0.5) < 0.005);
    for (int k = 0; k < 7; k++) assert_in_range(seen[k], n / 7 - 1000, n / 7 + 1000);
}

// Whatever the CPU: the library's values, at once and in pieces.
TEST(test_hash_is_the_librarys) {
    static uint8_t data[70000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 131 ^ i >> 8);
    dt_hash_stream *h = dt_hash_stream_create();
    for (size_t n = 0; n < sizeof data - 64; n += n < 3000 ? 1 : 1237) {
        const uint8_t *p = data + n % 61;
        uint64_t want = XXH3_64bits(p, n);
        assert_true(dt_hash64(p, n) == want);
        dt_hash_stream_reset(h);
        for (size_t at = 0, piece = 1; at < n; at += piece, piece = piece * 5 % 1021 + 1)
            dt_hash_stream_update(h, p + at, n - at < piece ? n - at : piece);
        assert_true(dt_hash_stream_digest(h) == want);
    }
    dt_hash_stream_destroy(h);
}

TEST(test_hash) {
    assert_int_equal(dt_hash32(""), 0x02CC5D05); // xxHash's specification
    assert_true(dt_hash64("", 0) == 0x2D06800538D394C2ull);
    assert_int_equal(dt_crc32c(0, "123456789", 9), 0xE3069283u); // RFC 3720's check value
    unsigned char data[1000];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 31);
    // in pieces, at odd offsets
    assert_int_equal(dt_crc32c(dt_crc32c(0, data, 13), data + 13, 987), dt_crc32c(0, data, 1000));
    dt_hash_stream *h = dt_hash_stream_create();
    for (size_t i = 0; i < sizeof data; i += 40) dt_hash_stream_update(h, data + i, 40);
    assert_true(dt_hash_stream_digest(h) == dt_hash64(data, sizeof data));
    dt_hash_stream_destroy(h);
    char hex[17];
    dt_hash_hex(0x0123456789abcdefull, hex);
    assert_string_equal(hex, "0123456789abcdef");
}

TEST(test_clock) {
    double a = dt_clock_s(), b = dt_clock_s();
    assert_true(b >= a);
    assert_true(dt_clock_wall_s() > 1.6e9);
    assert_true(dt_rss_bytes() > 100000 && dt_rss_peak_bytes() >= dt_rss_bytes() / 2);
}

// Time in which nobody looked is not waited, and a clock that goes back takes nothing away.
TEST(test_waited) {
    dt_waited w = {0};
    assert_true(dt_clock_waited_s(&w, 1000) == 0);
    for (int i = 1; i <= 8; i++) assert_true(dt_clock_waited_s(&w, 1000 + i * 0.125) == i * 0.125);
    assert_true(dt_clock_waited_s(&w, 5000) == 1.25);
    assert_true(dt_clock_waited_s(&w, 4000) == 1.25);
    assert_true(dt_clock_waited_s(&w, 4000.125) == 1.375);
}

// -- io ------------------------------------------------------------------------------------------
static void check_file(const char *path, const char *want) {
    char *data;
    size_t n;
    must(dt_io_read_file(&data, &n, path, 0, DT_E_DATA));
    assert_int_equal(n, strlen(want));
    assert_string_equal(data, want);
    free(data);
}

TEST_WITH(test_io_files, folder_make, folder_remove) {
    const char *path = in_folder("a/b/c");
    must(dt_io_mkdir_all(path));
    must(dt_io_mkdir_all(path)); // again is fine
    assert_true(dt_io_is_dir(path));
    const char *file = in_folder("a/b/c/file");
    must(dt_io_write_file(file, "hello", 5));
    must(dt_io_write_file(file, "other", 5));
    check_file(file, "other");
    int fd;
    assert_int_equal(dt_io_create(&fd, file, true), DT_E_STORAGE); // exclusive
    assert_non_null(strstr(dt_error_message(), file));
    must(dt_io_open_append(&fd, file));
    must(dt_io_write(fd, file, " end", 4));
    must(dt_io_fsync(fd, file));
    must(dt_io_close(fd, file));
    check_file(file, "other end");
    must(dt_io_truncate(file, 3));
    check_file(file, "oth");

    char **names, *data;
    size_t n;
    must(dt_io_list_dir(&names, &n, path, DT_E_DATA));
    assert_int_equal(n, 1); // no temporary is left
    assert_string_equal(names[0], "file");
    dt_io_free_list(names, n);
    assert_int_equal(dt_io_read_file(&data, &n, file, 2, DT_E_CKPT), DT_E_CKPT);
    assert_int_equal(dt_io_read_file(&data, &n, in_folder("none"), 0, DT_E_DATA), DT_E_DATA);
    assert_int_equal(dt_io_mkdir(file), DT_E_STORAGE); // a file is in the way
}

TEST_WITH(test_io_pread, folder_make, folder_remove) {
    const char *file = in_folder("p");
    int fd;
    char got[8] = "";
    must(dt_io_create(&fd, file, true));
    must(dt_io_pwrite(fd, file, "0123", 4, 2));
    must(dt_io_close(fd, file));
    FILE *f = fopen(file, "r");
    must(dt_io_pread(fileno(f), file, got, 4, 2, DT_E_DATA));
    assert_string_equal(got, "0123");
    must_fail(DT_E_DATA, "only 2 there", dt_io_pread(fileno(f), file, got, 4, 4, DT_E_DATA));
    char head[4] = "";
    memset(got, 0, sizeof got);
    must(dt_io_pread_parts(fileno(f), file, head, 1, got, 3, 2, DT_E_DATA));
    assert_string_equal(head, "0");
    assert_string_equal(got, "123");
    must_fail(DT_E_DATA, "3 bytes wanted at byte 4, only 2 there",
              dt_io_pread_parts(fileno(f), file, head, 1, got, 3, 3, DT_E_DATA));
    fclose(f);
}

TEST_WITH(test_io_rename, folder_make, folder_remove) {
    const char *a = in_folder("ra"), *b = in_folder("rb");
    must(dt_io_write_file(a, "A", 1));
    must(dt_io_write_file(b, "B", 1));
    assert_int_equal(dt_io_rename_noreplace(a, b), DT_E_STORAGE);
    check_file(b, "B");
    must(dt_io_unlink(b));
    must(dt_io_rename_noreplace(a, b));
    check_file(b, "A");
    assert_false(dt_io_exists(a));
}

TEST_WITH(test_io_remove_tree, folder_make, folder_remove) {
    must(dt_io_mkdir_all(in_folder("t/u/v")));
    must(dt_io_write_file(in_folder("t/u/f"), "x", 1));
    must(dt_io_write_file(in_folder("kept"), "x", 1));
    assert_int_equal(symlink(folder_path, in_folder("t/link")), 0); // points at our parent
    must(dt_io_remove_tree(in_folder("t")));
    assert_false(dt_io_exists(in_folder("t")));
    check_file(in_folder("kept"), "x");
    must(dt_io_remove_tree(in_folder("t"))); // missing is fine
}

// Each failpoint of a write_file leaves the old content and no temporary, whichever call fails.
TEST_WITH(test_failpoint_each_call, folder_make, folder_remove) {
    const char *file = in_folder("f");
    must(dt_io_write_file(file, "old", 3));
    must(dt_failpoint_set("io:0:count"));
    must(dt_io_write_file(file, "old", 3));
    uint64_t calls = dt_failpoint_count();
    assert_int_equal(calls, 6); // create, write, fsync, rename, close, fsync of the directory
    const char *actions[] = {"eio", "enospc", "short"};
    for (size_t a = 0; a < 3; a++)
        for (uint64_t n = 1; n <= calls; n++) {
            char spec[64];
            snprintf(spec, sizeof spec, "io:%d:%s", (int)n, actions[a]);
            must(dt_failpoint_set(spec));
            const bool renamed = n > 4;
            must_fail(DT_E_STORAGE, a == 0 ? strerror(EIO) : strerror(ENOSPC),
                      dt_io_write_file(file, renamed ? "old" : "new!", renamed ? 3 : 4));
            check_file(file, "old");
            must(dt_failpoint_set(""));
            char **names;
            size_t n_names;
            must(dt_io_list_dir(&names, &n_names, folder_path, DT_E_DATA));
            for (size_t i = 0; i < n_names; i++) assert_null(strstr(names[i], ".tmp"));
            dt_io_free_list(names, n_names);
        }
}

static int n_names(void) {
    char **names;
    size_t n;
    must(dt_io_list_dir(&names, &n, folder_path, DT_E_DATA));
    dt_io_free_list(names, n);
    return (int)n;
}

// Of two that write a file at once, here with the same number, each has all of its own.
TEST_WITH(test_io_file_twice, folder_make, folder_remove) {
    const char *file = in_folder("twice");
    dt_io_file a, b;
    must(dt_io_begin(&a, file));
    must(dt_io_begin(&b, file));
    must(dt_io_write(a.fd, file, "all of", 6));
    must(dt_io_write(b.fd, file, "b", 1));
    must(dt_io_write(a.fd, file, " a", 2));
    assert_false(dt_io_exists(file));
    must(dt_io_end(&b, DT_OK));
    check_file(file, "b");
    must(dt_io_end(&a, DT_OK));
    check_file(file, "all of a");
    must(dt_io_begin(&a, file));
    assert_int_equal(dt_io_end(&a, DT_E_DATA), DT_E_DATA); // given up
    check_file(file, "all of a");
    assert_int_equal(n_names(), 1);
    const char *inner = in_folder("a folder"), *pipe = in_folder("a pipe");
    must(dt_io_mkdir(inner));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(dt_io_begin(&a, inner), DT_E_STORAGE);
    assert_int_equal(dt_io_end(&a, DT_E_STORAGE), DT_E_STORAGE);
    assert_int_equal(dt_io_write_file(pipe, "x", 1), DT_E_STORAGE); // nor renamed over
    assert_int_equal(n_names(), 3);
}

// A signal takes what is unfinished; a kill leaves it, until somebody looks who may remove it.
TEST_WITH(test_io_file_ended_by_a_signal, folder_make, folder_remove) {
    const char *file = in_folder("cut");
    dt_io_file f;
    int status;
    for (int killed = 0; killed < 2; killed++) {
        pid_t pid = fork();
        if (pid == 0) {
            dt_io_begin(&f, file);
            if (!killed) dt_io_remove_unfinished();
            raise(SIGKILL);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(n_names(), killed);
    }
    must(dt_io_begin(&f, file));
    must(dt_io_mkdir(in_folder("thesis.tmp.2024"))); // somebody's
    must(dt_io_remove_leftovers(folder_path, NULL));
    assert_int_equal(n_names(), 2); // ours, and theirs
    must(dt_io_end(&f, DT_OK));
    check_file(file, "");
}

TEST_WITH(test_failpoint_short_write, folder_make, folder_remove) {
    const char *file = in_folder("short");
    int fd;
    must(dt_io_create(&fd, file, false));
    must(dt_failpoint_set("io:1:short"));
    assert_int_equal(dt_io_write(fd, file, "12345678", 8), DT_E_STORAGE);
    must(dt_io_close(fd, file));
    check_file(file, "1234");
}

TEST_WITH(test_failpoint_scopes, folder_make, folder_remove) {
    const char *file = in_folder("scope");
    int fd;
    must(dt_failpoint_set("ckpt:2:eio,blink:3:eio"));
    must(dt_io_create(&fd, file, false));
    must(dt_io_write(fd, file, "a", 1));
    dt_io_scope_push("ckpt");
    dt_io_scope_push("inner");
    must(dt_io_write(fd, file, "b", 1));
    assert_int_equal(dt_io_write(fd, file, "c", 1), DT_E_STORAGE);
    must(dt_io_write(fd, file, "d", 1)); // only the n-th
    dt_io_scope_pop();
    dt_io_scope_pop();
    assert_int_equal(dt_failpoint_count(), 3);
    must(dt_io_close(fd, file));
    assert_int_equal(dt_failpoint_count(), 3);
    assert_false(dt_failpoint("blink"));
    assert_false(dt_failpoint("blink"));
    assert_true(dt_failpoint("blink"));
    assert_false(dt_failpoint("blink"));
    assert_false(dt_failpoint("other"));
    const char *wrong[] = {"io", "io:1", "io:x:eio", ":1:eio", "io:1:explode", "io:1:eio,zzz"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_int_equal(dt_failpoint_set(wrong[i]), DT_E_USAGE);
    dt_failpoint_set(NULL);
}

TEST_WITH(test_failpoint_kill, folder_make, folder_remove) {
    const char *file = in_folder("killed");
    pid_t pid = fork();
    if (pid == 0) {
        int fd;
        dt_failpoint_set("io:2:kill");
        dt_io_create(&fd, file, false);
        dt_io_write(fd, file, "x", 1);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    check_file(file, "");
}

// It stops before the call, and makes it when it is let go on.
TEST_WITH(test_failpoint_stop, folder_make, folder_remove) {
    const char *file = in_folder("stopped");
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int fd;
        dt_failpoint_set("io:2:stop");
        dt_io_create(&fd, file, false);
        dt_io_write(fd, file, "x", 1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    check_file(file, "");
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    check_file(file, "x");
}

// -- log -----------------------------------------------------------------------------------------
TEST(test_clean_fits) {
    static const char *const want[] = {"", "a", "a", "aé", "aé", "aé", "aé", "aé\\x1b", "aé\\x1bz"};
    for (size_t cap = 1; cap <= 9; cap++) {
        char out[16];
        assert_int_equal(dt_text_clean(out, cap, "a\xc3\xa9\x1bz"), strlen(want[cap - 1]));
        assert_string_equal(out, want[cap - 1]);
    }
}

TEST_WITH(test_log, folder_make, folder_remove) {
    const char *file = in_folder("log");
    must(dt_log_open(file));
    dt_log_set_level(DT_LOG_WARN);
    dt_info("hidden");
    dt_log_set_level(DT_LOG_INFO);
    dt_log_set_rank(1, 2);
    dt_info("of another rank");
    dt_warn("warning %d of rank 1", 5);
    dt_log_set_rank(0, 1);
    dt_warn("name \x1b[2J\n\r\xc2\x9b\xff \a? back\\slash é\n"); // a foreign name
    dt_log_close();
    dt_info("after close");
    char *data;
    size_t n;
    must(dt_io_read_file(&data, &n, file, 0, DT_E_DATA));
    assert_null(strstr(data, "hidden"));
    assert_non_null(strstr(data, "Z W name \\x1b[2J\\n\\r\\x9b\\xff \\a? back\\slash é\n")); // one line
    assert_null(strstr(data, "another"));
    assert_null(strstr(data, "after close"));
    assert_non_null(strstr(data, "Z W warning 5 of rank 1\n"));
    free(data);
    assert_int_equal(dt_log_open("/nonexistent/dir/log"), DT_E_STORAGE);
    // a full disk drops lines and goes on
    if (dt_log_open("/dev/full") == DT_OK) {
        dt_info("to a full disk");
        dt_log_close();
    }
}

// -- threads -------------------------------------------------------------------------------------
static void count_worker(void *arg, int worker) {
    ((int *)arg)[worker * 16]++;
}

static void ini_is(const char *path, const char *section, const char *name, const char *value) {
    char *got = dt_ini_get(path, section, name);
    if (value)
        assert_string_equal(got, value);
    else
        assert_null(got);
    free(got);
}

TEST_WITH(test_ini, folder_make, folder_remove) {
    // by `aws configure`, `aws configure --profile 'a lab'` and `aws configure set s3.max_concurrent_requests 20`; some
    // lines by hand
    static const char config[] = "[default]\nregion = eu-central-1\noutput = json\n"
                                 "s3 =\n    max_concurrent_requests = 20\n    region = nested\n"
                                 "[profile 'a lab']\nregion = us-east-2\n"
                                 "; of a colleague\n[ profile\t\"x\"  ]  \n"
                                 "  # region = no\n  Region: us-west-1\r\n  empty =\n  word\n"
                                 "  endpoint_url=http://h:9000/?a=b #c \t\n";
    const char *path = in_folder("config");
    must(dt_io_write_file(path, config, sizeof config - 1));
    ini_is(path, "default", "region", "eu-central-1");
    ini_is(path, "default", "output", "json");
    ini_is(path, "default", "max_concurrent_requests", NULL);
    ini_is(path, "profile a lab", "region", "us-east-2");
    ini_is(path, "profile a lab", "output", NULL);
    ini_is(path, "profile x", "region", "us-west-1");
    ini_is(path, "profile x", "empty", NULL);
    ini_is(path, "profile x", "word", NULL);
    ini_is(path, "profile x", "endpoint_url", "http://h:9000/?a=b #c");
    ini_is(path, "x", "region", NULL);
    ini_is(in_folder("missing"), "default", "region", NULL);
    // longer than any buffer
    char *token = dt_xcalloc(1, 9001);
    memset(token, 'x', 9000);
    char *text = dt_xprintf("[%s]\naws_session_token = %s", token, token);
    must(dt_io_write_file(path, text, strlen(text)));
    ini_is(path, token, "aws_session_token", token);
    free(text);
    free(token);
}

TEST(test_team) {
    for (int n = 1; n <= 4; n++) {
        int counts[64] = {0};
        dt_team *t;
        must(dt_team_create(&t, n, "test"));
        assert_int_equal(dt_team_size(t), n);
        for (int i = 0; i < 1000; i++) {
            dt_team_run(t, count_worker, counts);
            for (int w = 0; w < 4; w++) assert_int_equal(counts[w * 16], w < n ? i + 1 : 0);
        }
        dt_team_destroy(t);
    }
    assert_in_range(dt_usable_cores(), 1, 1 << 20);
}

// One thread sets texts of up to 39 equal letters, of which 23 have room; the other copies them.
static _Atomic char shared_text[24];
static atomic_uint shared_count;
static const char *equal_letters(char out[64], unsigned count, size_t most) {
    const size_t n = count / 2 % 40;
    memset(out, 'a' + (int)(count / 2 % 26), n);
    out[n < most ? n : most] = '\0';
    return out;
}
static void set_or_get(void *any, int worker) {
    char text[64], out[sizeof shared_text];
    while (worker == 1 && atomic_load(&shared_count) < 20000) {
        const unsigned count = atomic_fetch_add(&shared_count, 1);
        dt_thread_set_text(shared_text, sizeof shared_text, equal_letters(text, count, 63));
        atomic_fetch_add_explicit(&shared_count, 1, memory_order_release);
        sched_yield();
    }
    for (unsigned count = 0; worker == 0 && count < 20000;) {
        count = atomic_load(&shared_count);
        dt_thread_get_text(out, shared_text, sizeof out);
        const bool whole = count > 0 && count % 2 == 0 && atomic_load(&shared_count) == count;
        if (whole) assert_string_equal(out, equal_letters(text, count - 2, sizeof out - 1));
        *(bool *)any |= whole;
    }
}

TEST(a_text_is_copied_while_it_is_set) {
    bool any = false;
    dt_team *t;
    must(dt_team_create(&t, 2, "test"));
    dt_team_run(t, set_or_get, &any);
    dt_team_destroy(t);
    assert_true(any);
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

// -- lines -----------------------------------------------------------------------------------------
TEST_WITH(test_lines, folder_make, folder_remove) {
    enum { LONG = 5 << 20 }; // of which several parts are read
    dt_lines l;
    size_t n;
    const char *path = in_folder("grows");
    char *text = malloc(LONG + 16), *line;
    assert_false(dt_lines_open(&l, path, 0));
    assert_null(dt_lines_next(&l, &n));
    dt_lines_close(&l);
    assert_false(dt_lines_open(&l, folder_path, 0)); // no regular file
    memset(text, 'x', LONG);
    strcpy(text + LONG, "\n\ntail");
    must(dt_io_write_file(path, text, LONG + 6));
    assert_int_equal(symlink(path, in_folder("link")), 0);
    assert_false(dt_lines_open(&l, in_folder("link"), 0));
    assert_true(dt_lines_open(&l, path, 1));
    line = dt_lines_next(&l, &n);
    assert_int_equal(n, LONG - 1);
    assert_int_equal(strlen(line), n);
    assert_int_equal(l.at, LONG + 1);
    assert_string_equal(dt_lines_next(&l, &n), "");
    assert_null(dt_lines_next(&l, &n)); // its end is still to come
    FILE *f = fopen(path, "ae");
    fputs("!\n", f);
    fclose(f);
    assert_string_equal(dt_lines_next(&l, &n), "tail!");
    assert_int_equal(l.at, LONG + 8);
    assert_null(dt_lines_next(&l, &n));
    dt_lines_close(&l);
    free(text);
}

// Of address space: whether there is so much depends on nothing but the limit.
TEST(test_room) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); // they have terabytes of it
#endif
    must(dt_memory_room(UINT64_C(1) << 40, "all")); // no limit
    struct rlimit old, few;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    few = (struct rlimit){(rlim_t)64 << 30, old.rlim_max};
    if (setrlimit(RLIMIT_AS, &few) != 0) skip();
    dt_status st = dt_memory_room(UINT64_C(64) << 30, "kernels");
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    must_fail(DT_E_INTERNAL, "of 65536 MiB leaves no 65536 MiB for kernels", st);
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
