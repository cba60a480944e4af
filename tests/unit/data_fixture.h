// data_fixture.h: small raw data sets in a temporary folder, for the tests of data/.
#ifndef DATA_FIXTURE_H
#define DATA_FIXTURE_H

#include "config/config.h"
#include "data/data.h"
#include "data/pack/pack.h"
#include "data/source/source.h"
#include "folder.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Of what fixture_parse made: data sets borrow names from them.
static dt_config *fixture_opened[64];
static int fixture_n_opened;

static inline int fixture_tear_down(void **state) {
    while (fixture_n_opened > 0) dt_config_destroy(fixture_opened[--fixture_n_opened]);
    return folder_remove(state);
}

static inline const char *fixture_path(const char *name) {
    return in_folder("%s", name);
}

static inline void fixture_write(const char *path, const void *data, size_t n) {
    char *dir = dt_xstrdup(path);
    *strrchr(dir, '/') = '\0';
    must(dt_io_mkdir_all(dir));
    free(dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void *fixture_read(const char *path, size_t *n) {
    char *data;
    must(dt_io_read_file(&data, n, path, 0, DT_E_DATA));
    return data;
}

// Between these no more than `n_more` files can be opened.
static inline int fixture_find_ext(const dt_catalog *c, const char *ext) { // -1: none
    int i = (int)c->n_exts - 1;
    while (i >= 0 && strcmp(dt_catalog_str(c, c->exts[i]), ext) != 0) i--;
    return i;
}

static struct rlimit fixture_files;
static inline void fixture_few_files(int n_more) {
    int next = dup(0);
    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &fixture_files), 0);
    struct rlimit few = {(rlim_t)(next + n_more), fixture_files.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static inline void fixture_many_files(void) {
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &fixture_files), 0);
}

// Between these the modes of files count, also where the tests are run by root.
static inline void fixture_begin_user(void) {
    if (getuid() == 0) assert_int_equal(seteuid(65534), 0);
}

static inline void fixture_end_user(void) {
    if (getuid() == 0) assert_int_equal(seteuid(0), 0);
}

// Not where root is the only user of a namespace, or has the tests' folder in one of its own.
static inline bool fixture_has_user(void) {
    assert_int_equal(chmod(folder_path, 0755), 0);
    if (getuid() != 0) return true;
    if (seteuid(65534) != 0) return false;
    bool may_enter = faccessat(AT_FDCWD, folder_path, X_OK, AT_EACCESS) == 0;
    fixture_end_user();
    return may_enter;
}

// A bottom-up BMP of 24 or 32 bits whose pixel (x, y) is (key, x, y).
static inline size_t fixture_bmp(uint8_t *out, int w, int h, int bits, int key) {
    size_t stride = ((size_t)w * (size_t)bits + 31) / 32 * 4, n = 54 + stride * (size_t)h;
    memset(out, 0, n);
    memcpy(out, "BM", 2);
    uint32_t v[] = {(uint32_t)n, 0, 54, 40, (uint32_t)w, (uint32_t)h, 1u | (uint32_t)bits << 16};
    memcpy(out + 2, v, sizeof v);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            uint8_t *p = out + 54 + stride * (size_t)(h - 1 - y) + (size_t)(x * bits / 8);
            p[2] = (uint8_t)key, p[1] = (uint8_t)x, p[0] = (uint8_t)y;
        }
    return n;
}

// A mono WAV of 16 bits; `out` has 44 + 2 n bytes.
static inline size_t fixture_wav(uint8_t *out, uint32_t rate, const int16_t *samples, size_t n) {
    uint32_t bytes = (uint32_t)(2 * n), v[] = {16, 1u | 1u << 16, rate, 2 * rate, 2u | 16u << 16};
    uint32_t all = 36 + bytes;
    memcpy(out, "RIFF", 4);
    memcpy(out + 4, &all, 4);
    memcpy(out + 8, "WAVEfmt ", 8);
    memcpy(out + 16, v, sizeof v);
    memcpy(out + 36, "data", 4);
    memcpy(out + 40, &bytes, 4);
    memcpy(out + 44, samples, bytes);
    return 44 + (size_t)bytes;
}

// fingerprint/S/S__G_Left_F_finger.BMP and iris/S/S_G_L_N.bmp, as the biometric set is laid out.
static inline void fixture_biometric(const char *root, int subjects, int impressions) {
    static const char *const FINGERS[] = {"thumb", "index", "middle", "ring", "little"};
    uint8_t bmp[8192];
    for (int s = 1; s <= subjects; s++)
        for (int i = 0; i < impressions; i++) {
            const char *gender = s % 4 == 0 ? "F" : "M";
            size_t n = fixture_bmp(bmp, 10, 12, 32, s * 10 + i);
            char *path = dt_xprintf("%s/fingerprint/%d/%d__%s_%s_%s_finger.BMP", root, s, s, gender,
                                    i < 5 ? "Left" : "Right", FINGERS[i % 5]);
            fixture_write(path, bmp, n);
            free(path);
            n = fixture_bmp(bmp, 16, 8, 24, s * 10 + i);
            path = dt_xprintf("%s/iris/%d/%d_%s_%s_%d.bmp", root, s, s, gender, i < 5 ? "L" : "R", i + 1);
            fixture_write(path, bmp, n);
            free(path);
        }
}

static inline void fixture_pack(const char *source, const char *out) {
    dt_pack_opts o = {.source = source, .out = out};
    must(dt_data_pack(&o));
}

// Packs in a process of its own, which is killed at its n-th call that changes files; 0: is not. Its exit code, or -1.
static inline int fixture_pack_killed(const dt_pack_opts *o, int n) {
    pid_t pid = fork();
    if (pid == 0) {
        char spec[32];
        snprintf(spec, sizeof spec, "io:%d:kill", n);
        if (n > 0) dt_failpoint_set(spec);
        _exit(dt_data_pack(o));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Packs, and counts such calls.
static inline int fixture_pack_counted(const dt_pack_opts *o) {
    must(dt_failpoint_set("io:1000000:kill"));
    must(dt_data_pack(o));
    int n = (int)dt_failpoint_count();
    dt_failpoint_set(NULL);
    return n;
}

static inline dt_reader *fixture_set(const char *path) {
    dt_reader *s = NULL;
    must(dt_reader_open(&s, &path, 1));
    return s;
}

// A set that is refused, with these words.
static inline void fixture_no_set(const char *path, dt_status code, const char *words) {
    dt_reader *s = NULL;
    must_fail(code, words, dt_reader_open(&s, &path, 1));
}

static inline const char *fixture_key(const dt_catalog *c, uint32_t record) {
    return dt_catalog_str(c, c->records[record].key);
}

// NULL: no such column, or no value.
static inline const char *fixture_value(const dt_catalog *c, const char *column, uint32_t record) {
    const int k = dt_catalog_find_column(c, column);
    return k < 0 ? NULL : dt_catalog_value(c, k, record);
}

static inline uint32_t fixture_count(const char *set) {
    dt_reader *s = fixture_set(set);
    uint32_t n = s->catalog->n_records;
    dt_reader_close(s);
    return n;
}

static inline void fixture_assert_same(const char *a, const char *b) {
    size_t n_a, n_b;
    void *x = fixture_read(a, &n_a), *y = fixture_read(b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a);
    free(x);
    free(y);
}

// A packed set of such images; its path.
static inline const char *fixture_packed(int subjects, int impressions) {
    fixture_biometric(fixture_path("raw"), subjects, impressions);
    fixture_pack(fixture_path("raw"), fixture_path("set.lmdb"));
    return fixture_path("set.lmdb");
}

// A config whose lines under data: are `data`; lives until fixture_tear_down. Batches of 8, in micro-batches of 2.
__attribute__((format(printf, 1, 2))) static inline dt_config *fixture_parse(const char *data, ...) {
    char lines[4096], text[4400];
    va_list args;
    va_start(args, data);
    assert_in_range(vsnprintf(lines, sizeof lines, data, args), 1, sizeof lines - 1);
    va_end(args);
    snprintf(text, sizeof text,
             "run: {name: t, seed: 7}\ndata:\n%smodel: {name: fusion}\n"
             "train: {global_batch: 8, micro_batch: 2}\n",
             lines);
    dt_config *c = NULL;
    must(dt_config_parse(&c, "t.yaml", text, strlen(text), NULL, 0));
    assert_true(fixture_n_opened < 64);
    return fixture_opened[fixture_n_opened++] = c;
}

// A config for such a set; `extra`: more lines under data:, or "".
static inline dt_config *fixture_config(const char *path, const char *extra) {
    return fixture_parse("  path: \"%s\"\n"
                         "  view: {pairs: {fields: [fingerprint, iris], within: subject}}\n"
                         "  fields:\n"
                         "    fingerprint: {kind: image, channels: 1, size: [12, 10]}\n"
                         "    iris: {kind: image, channels: 3, size: [8, 16], normalize: imagenet}\n"
                         "    subject: {kind: class}\n"
                         "  split: {unit: record, stratify: subject, val: 0.1, test: 0.2, seed: 7}\n"
                         "%s",
                         path, extra);
}

static inline dt_dataset *fixture_open_config(dt_config *c, int workers) {
    dt_dataset *d = NULL;
    must(dt_data_open(&d, c, NULL, workers, NULL));
    return d;
}

static inline dt_dataset *fixture_open(const char *path, const char *extra, int workers) {
    return fixture_open_config(fixture_config(path, extra), workers);
}

#endif
