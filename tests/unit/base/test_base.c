// test_base.c: the lowest layer: errors, arenas, known answers of the generators and hashes, the log, the team under
// several threads, libraries of Python wheels.
#include "base/hash.h"
#include "base/log.h"
#include "base/os.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/thread.h"
#include "folder.h"
#include "testing.h"

#include <dlfcn.h>
#include <math.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

// -- cores -----------
TEST(test_cores) {
    dt_cpu_use a, b;
    double got;
    dt_cpu_use_read(&a);
    do dt_cpu_use_read(&b); // which takes CPU time of its own
    while (b.own_s < a.own_s + 0.05);
    assert_true(a.n_cores >= 1 && a.n_cores == b.n_cores && b.at_s > a.at_s);
    static const struct {
        double s, own_s, idle_s;
        int threads, want;
    } rows[] = {{10, 5, 0.5, 2, 2},  // half a core of two, and none is free
                {10, 5, 0.5, 8, 4},  // it has four
                {10, 16, 0.5, 2, 0}, // what it can use
                {10, 5, 10, 2, 0},   // it waits for something else: a core of four is free
                {0.1, 0, 0, 2, 0},   // too short to tell
                {10, 5, 0.5, 0, 0}}; // a device computes
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        a = (dt_cpu_use){.at_s = 7, .own_s = 1, .idle_s = 3, .n_cores = 4};
        b = (dt_cpu_use){7 + rows[i].s, 1 + rows[i].own_s, 3 + rows[i].idle_s, 4};
        assert_int_equal(dt_cpu_short(&a, &b, rows[i].threads, &got), rows[i].want);
        assert_float_equal(got, rows[i].own_s / rows[i].s, 1e-9);
    }
}

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
    for (size_t n = 0; n < sizeof data - 64; n += n < 3000 ? 1 : 1237) {
        const uint8_t *p = data + n % 61;
        uint64_t want = XXH3_64bits(p, n);
        assert_true(dt_hash64(p, n) == want);
        dt_hash_stream *h = dt_hash_stream_create();
        for (size_t at = 0, piece = 1; at < n; at += piece, piece = piece * 5 % 1021 + 1)
            dt_hash_stream_update(h, p + at, n - at < piece ? n - at : piece);
        assert_true(dt_hash_stream_digest(h) == want);
        dt_hash_stream_destroy(h);
    }
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

// -- log -----------------------------------------------------------------------------------------
TEST(test_clean_fits) {
    static const char *const want[] = {"", "a", "a", "aé", "aé", "aé", "aé", "aé\\x1b", "aé\\x1bz"};
    for (size_t cap = 1; cap <= 9; cap++) {
        char out[16];
        assert_int_equal(dt_text_clean(out, cap, "a\xc3\xa9\x1bz"), strlen(want[cap - 1]));
        assert_string_equal(out, want[cap - 1]);
    }
}

static void write_under(const char *name, const char *text) {
    char *path = dt_xprintf("%s/%s", folder_path, name), *folder = dt_io_parent(path);
    must(dt_io_mkdir_all(folder));
    must(dt_io_write_file(path, text, strlen(text)));
    free(folder);
    free(path);
}

// GH200: memory of the host; of a GPU 96 MiB here, and nodes for its MIG instances that are empty. Memory on CXL is the host's.
TEST_WITH(test_memory_of_gpus_is_not_the_hosts, folder_make, folder_remove) {
    const uint64_t mib = 1 << 20;
    const dt_memory all = {.total_bytes = 600 * mib, .available_bytes = 550 * mib};
    dt_memory m = all;
    dt_memory_leave_gpus(&m, folder_path);
    write_under("sys/devices/system/node/node0/cpulist", "0-71\n");
    write_under("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 500000 kB\nNode 0 MemFree: 450000 kB\n");
    write_under("sys/devices/system/node/node2/cpulist", "\n");
    write_under("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 0 kB\nNode 2 MemFree: 0 kB\n");
    write_under("sys/devices/system/node/node11/cpulist", "\n");
    write_under("sys/devices/system/node/node11/meminfo",
                "Node 11 MemTotal:    98304 kB\nNode 11 MemFree:     81920 kB\nNode 11 MemUsed:     16384 kB\n"
                "Node 11 Active(file):     1024 kB\nNode 11 Inactive(file):     2048 kB\nNode 11 Mlocked: 0 kB\n");
    dt_memory_leave_gpus(&m, folder_path);
    write_under("proc/iomem", "00000000-00000000 : System RAM\n00000000-00000000 : dax0.0\n");
    dt_memory_leave_gpus(&m, folder_path);
    assert_memory_equal(&m, &all, sizeof m);
    write_under("proc/iomem", "00000000-00000000 : System RAM\n  00000000-00000000 : System RAM (NVIDIA)\n");
    dt_memory_leave_gpus(&m, folder_path);
    assert_int_equal(m.total_bytes, 504 * mib);
    assert_int_equal(m.available_bytes, 467 * mib);
    m = (dt_memory){.total_bytes = 90 * mib, .available_bytes = 10 * mib}; // numbers that were read apart
    dt_memory_leave_gpus(&m, folder_path);
    assert_true(m.total_bytes == 0 && m.available_bytes == 0);
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

// -- module --------------------------------------------------------------------------------------
static const char *program_dir;

dt_status dt_module_exe_dir(char *dir, size_t cap) {
    snprintf(dir, cap, "%s", program_dir);
    return DT_OK;
}

// Also below a folder with characters of patterns, and where Debian's system pip puts packages.
TEST_WITH(test_wheel_library, folder_make, folder_remove) {
    static const char *const envs[] = {"env", "my env [1]", "a*b?{c,d}\\"};
    static const char *const packages[] = {"site-packages", "dist-packages"};
    Dl_info library;
    assert_true(dladdr(dt_wheel_library, &library));
    for (int e = 0; e < 3; e++)
        for (int p = 0; p < 2; p++) {
            const char *folder = in_folder("%s%d/lib/python3.99/%s/nvidia/cu13/lib", envs[e], p, packages[p]);
            program_dir = in_folder("%s%d/bin", envs[e], p);
            must(dt_io_mkdir_all(program_dir));
            must(dt_io_mkdir_all(folder));
            assert_null(dt_wheel_library("cu*/lib/libx.so.*"));
            assert_int_equal(symlink(library.dli_fname, dt_arena_printf(&folder_arena, "%s/libx.so.1", folder)), 0);
            if (!dt_wheel_library("cu*/lib/libx.so.*")) fail_msg("not found in %s", folder);
        }
}

TEST_MAIN(NULL, NULL)
