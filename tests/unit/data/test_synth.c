// test_synth.c: the synthetic sets: counts, names, BMP headers, the same bytes for the same
// seed whatever the number of threads, and pictures that are pictures.
#define _GNU_SOURCE
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/io.h"
#include "data/synth/synth.h"
#include "folder.h"
#include "testing.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dt_status synth(const char *name, int subjects, int impressions, uint64_t seed) {
    dt_synth_opts o = {"biometric", in_folder("%s", name), subjects, impressions, seed, false};
    return dt_data_synth(&o);
}

// Inlined at -O3, gcc 12 takes what it returns for a pointer to `data` itself (-Wdangling-pointer).
__attribute__((noinline)) static uint8_t *read_bytes(size_t *n, const char *name) {
    char *data;
    must(dt_io_read_file(&data, n, in_folder("%s", name), 0, DT_E_DATA));
    return (uint8_t *)data;
}

static uint64_t file_hash(const char *name) {
    size_t n;
    uint8_t *data = read_bytes(&n, name);
    uint64_t h = dt_hash64(data, n);
    free(data);
    return h;
}

// Names in a folder, and the XXH3 over all their bytes in order.
static uint64_t folder_hash(const char *name, size_t want_names) {
    char path[256], **names;
    size_t n;
    must(dt_io_list_dir(&names, &n, in_folder("%s", name), DT_E_DATA));
    assert_int_equal(n, want_names);
    uint64_t h = 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", name, names[i]);
        uint64_t pair[2] = {h, file_hash(path)};
        h = dt_hash64(pair, sizeof pair);
    }
    dt_io_free_list(names, n);
    return h;
}

static uint32_t u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void check_bmp(const char *name, uint32_t w, uint32_t h, uint32_t bits) {
    size_t n;
    uint8_t *p = read_bytes(&n, name);
    assert_int_equal(n, 54 + w * h * bits / 8);
    assert_memory_equal(p, "BM", 2);
    assert_int_equal(u32(p + 2), n);
    assert_int_equal(u32(p + 10), 54);
    assert_int_equal(u32(p + 14), 40);
    assert_int_equal(u32(p + 18), w);
    assert_int_equal(u32(p + 22), h);
    assert_int_equal(u32(p + 26), 1 | bits << 16);
    assert_int_equal(u32(p + 30), 0); // no compression
    double sum = 0, squares = 0;
    for (size_t i = 54; i < n; i++) sum += p[i], squares += (double)p[i] * p[i];
    double count = (double)(n - 54), mean = sum / count;
    assert_true(mean > 40 && mean < 240);
    assert_true(sqrt(squares / count - mean * mean) > 20); // not a flat picture
    free(p);
}

TEST_WITH(test_names_and_headers, folder_make, folder_remove) {
    must(synth("a", 5, 0, 42));
    static const char *const fingers[] = {"thumb", "index", "middle", "ring", "little"};
    for (int k = 0; k < 10; k++) {
        char name[128];
        snprintf(name, sizeof name, "a/fingerprint/1/1__M_%s_%s_finger.BMP", k < 5 ? "Left" : "Right", fingers[k % 5]);
        check_bmp(name, 96, 103, 32);
        snprintf(name, sizeof name, "a/iris/1/1_M_%c_%d.bmp", k < 5 ? 'L' : 'R', k % 5 + 1);
        check_bmp(name, 320, 240, 24);
    }
    folder_hash("a/fingerprint/5", 10);
}

// The fourth byte of a 32-bit pixel is 255 and the other three are one grey; the first stored row is the
// bottom one: the finger's tip leaves the corners white.
TEST_WITH(test_pixels, folder_make, folder_remove) {
    must(synth("a", 1, 0, 42));
    size_t n;
    uint8_t *p = read_bytes(&n, "a/fingerprint/1/1__M_Left_thumb_finger.BMP");
    for (size_t i = 54; i < n; i += 4) {
        assert_true(p[i] == p[i + 1] && p[i] == p[i + 2]);
        assert_int_equal(p[i + 3], 255);
    }
    assert_true(p[54] > 190 && p[n - 4] > 190);
    free(p);
}

TEST_WITH(test_same_seed_same_bytes, folder_make, folder_remove) {
    cpu_set_t all, one;
    must(synth("a", 3, 10, 42));
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0); // one thread
    must(synth("b", 3, 10, 42));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    must(synth("c", 3, 10, 43));
    for (int s = 1; s <= 3; s++) {
        char a[64], b[64], c[64];
        for (int k = 0; k < 2; k++) {
            const char *kind = k ? "iris" : "fingerprint";
            snprintf(a, sizeof a, "a/%s/%d", kind, s);
            snprintf(b, sizeof b, "b/%s/%d", kind, s);
            snprintf(c, sizeof c, "c/%s/%d", kind, s);
            assert_true(folder_hash(a, 10) == folder_hash(b, 10));
            assert_true(folder_hash(a, 10) != folder_hash(c, 10));
        }
    }
    // no two pictures are the same
    assert_true(file_hash("a/fingerprint/1/1__M_Left_thumb_finger.BMP") !=
                file_hash("a/fingerprint/1/1__M_Left_index_finger.BMP"));
    assert_true(file_hash("a/iris/1/1_M_L_1.bmp") != file_hash("a/iris/1/1_M_L_2.bmp"));
}

TEST_WITH(test_genders, folder_make, folder_remove) {
    char **names;
    size_t n, female = 0, male = 0;
    must(synth("g", 45, 1, 1));
    for (int s = 1; s <= 45; s++) {
        must(dt_io_list_dir(&names, &n, in_folder("g/fingerprint/%d", s), DT_E_DATA));
        assert_int_equal(n, 1);
        female += strstr(names[0], "__F_") != NULL;
        male += strstr(names[0], "__M_") != NULL;
        dt_io_free_list(names, n);
    }
    assert_int_equal(female, 11);
    assert_int_equal(male, 34);
}

TEST_WITH(test_other_counts, folder_make, folder_remove) {
    must(synth("a", 2, 12, 7));
    folder_hash("a/fingerprint/2", 12);
    folder_hash("a/iris/2", 12);
    check_bmp("a/fingerprint/1/1__M_Left_thumb_finger_1.BMP", 96, 103, 32);
    check_bmp("a/fingerprint/1/1__M_Left_index_finger_12.BMP", 96, 103, 32);
    check_bmp("a/iris/1/1_M_R_6.bmp", 320, 240, 24);
}

TEST_WITH(test_refusals, folder_make, folder_remove) {
    must(synth("a", 1, 1, 1));
    must(synth("a", 1, 1, 1)); // the same again
    must_fail(DT_E_USAGE, "not empty", synth("a", 1, 1, 2));
    dt_synth_opts o = {"zebras", folder_path, 0, 0, 1, false};
    must_fail(DT_E_USAGE, "zebras", dt_data_synth(&o));
    o = (dt_synth_opts){"biometric", "/proc/none", 1, 1, 1, false};
    assert_int_equal(dt_data_synth(&o), DT_E_STORAGE);
    // a worker's failure comes back with its message
    must(dt_failpoint_set("io:12:enospc"));
    must_fail(DT_E_STORAGE, "No space left", synth("full", 2, 4, 1));
    must(dt_failpoint_set(""));
    assert_string_equal(dt_data_synth_kind(0)->name, "biometric");
}

static dt_status synth_kind_of(const char *kind, const char *name, int n, uint64_t seed) {
    dt_synth_opts o = {kind, in_folder("%s", name), n, 0, seed, false};
    return dt_data_synth(&o);
}

// XXH3 over names and bytes of everything below a folder, in order; *n counts files.
static uint64_t tree_hash(const char *name, int *n) {
    char **names;
    size_t n_names;
    uint64_t h = dt_hash64(name + strcspn(name, "/"), strlen(name + strcspn(name, "/")));
    must(dt_io_list_dir(&names, &n_names, in_folder("%s", name), DT_E_DATA));
    for (size_t i = 0; i < n_names; i++) {
        char below[256];
        snprintf(below, sizeof below, "%s/%s", name, names[i]);
        bool is_dir = dt_io_is_dir(in_folder("%s", below));
        uint64_t pair[2] = {h, is_dir ? tree_hash(below, n) : file_hash(below)};
        h = dt_hash64(pair, sizeof pair);
        *n += !is_dir;
    }
    dt_io_free_list(names, n_names);
    return h;
}

// Same seed same bytes on one core and on all, another seed others; so many files.
TEST_WITH(test_other_kinds, folder_make, folder_remove) {
    static const struct {
        const char *kind;
        int n_beside; // the note, and a table
    } CASES[] = {{"lens", 2}, {"acoustic", 1}, {"pose", 2}, {"photos", 1}};
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const char *kind = CASES[i].kind;
        char a[32], b[32], c[32];
        int n = 0, n_one = 0, n_other = 0, core = 0;
        snprintf(a, sizeof a, "%s-a/x", kind);
        snprintf(b, sizeof b, "%s-b/x", kind);
        snprintf(c, sizeof c, "%s-c/x", kind);
        must(synth_kind_of(kind, a, 5, 3));
        while (!CPU_ISSET(core, &all)) core++;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        must(synth_kind_of(kind, b, 5, 3));
        assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
        must(synth_kind_of(kind, c, 5, 4));
        uint64_t h = tree_hash(a, &n);
        assert_true(h == tree_hash(b, &n_one));
        assert_true(h != tree_hash(c, &n_other));
        assert_int_equal(n, 5 + CASES[i].n_beside);
    }
}

TEST_WITH(test_tables, folder_make, folder_remove) {
    must(synth_kind_of("pose", "p", 7, 1));
    must(synth_kind_of("lens", "l", 7, 1));
    size_t n;
    char *text = (char *)read_bytes(&n, "p/pose.csv");
    int rows = 0, last = -1;
    float yaw, pitch, roll;
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'), rows++) {
        assert_int_equal(sscanf(line, "\n%d.jpg,%f,%f,%f", &last, &yaw, &pitch, &roll), 4);
        assert_int_equal(last, rows);
        assert_true(fabsf(yaw) <= 75 && fabsf(pitch) <= 40 && fabsf(roll) <= 30);
    }
    assert_int_equal(rows, 7);
    free(text);
    text = (char *)read_bytes(&n, "l/lens.csv");
    char name[64];
    int lens;
    float radius;
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        assert_int_equal(sscanf(line, "\n%63[^,],%d,%f", name, &lens, &radius), 3);
        char path[128];
        snprintf(path, sizeof path, "l/images/%s", name);
        uint8_t *fits = read_bytes(&n, path);
        assert_memory_equal(fits, "SIMPLE  =", 9);
        assert_int_equal(n % 2880, 0);
        free(fits);
        assert_int_equal(lens, strncmp(name, "lens/", 5) == 0);
        assert_true((radius > 0) == lens);
    }
    free(text);
}

TEST_MAIN(NULL, NULL)
