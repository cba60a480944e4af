// test_safetensors.c: files that we write read back and are a function of their tensors; files that
// Python wrote read; every kind of malformed header is refused with its reason.
// cmocka wants the four above
#include "base/io.h"
#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_internal.h"
#include "folder.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dt_status write_tensors(const char *path, const dt_ckpt_tensor *t, int n, const char *const *metadata) {
    dt_safetensors_layout l;
    dt_status st = dt_safetensors_layout_build(&l, t, n, NULL, metadata);
    if (st == DT_OK) st = dt_safetensors_layout_write(&l, path, NULL);
    dt_safetensors_layout_fini(&l);
    return st;
}

static float weight[6] = {1, 2, 3, 4, 5, -6.5f}, bias[2] = {0.25f, 1e-30f}, scalar[1] = {7};

static void make_tensors(dt_ckpt_tensor t[4]) {
    t[0] = (dt_ckpt_tensor){"layer.weight", "model", dt_shape2(2, 3), weight};
    t[1] = (dt_ckpt_tensor){"layer.bias", "model", dt_shape1(2), bias};
    t[2] = (dt_ckpt_tensor){"alpha", "model", dt_shape0(), scalar};
    t[3] = (dt_ckpt_tensor){"empty", "model", dt_shape2(0, 5), scalar};
}

TEST(test_round_trip) {
    static const char *const names[] = {"alpha", "empty", "layer.bias", "layer.weight"};
    static const char *const metadata[] = {"format", "pt", NULL};
    dt_ckpt_tensor t[4];
    dt_safetensors *s;
    dt_shape shape;
    size_t n_bytes;
    make_tensors(t);
    must(write_tensors(in_folder("a"), t, 4, metadata));
    must(dt_safetensors_open(&s, in_folder("a")));
    assert_int_equal(dt_safetensors_count(s), 4);
    for (int i = 0; i < 4; i++) assert_string_equal(dt_safetensors_name(s, i), names[i]);
    int k = dt_safetensors_find(s, "layer.weight");
    assert_int_equal(k, 3);
    assert_int_equal(dt_safetensors_find(s, "layer"), -1);
    dt_safetensors_shape(s, k, &shape);
    assert_true(dt_shape_equal(&shape, &t[0].shape));
    assert_int_equal(dt_safetensors_dtype(s, k), DT_F32);
    const void *data = dt_safetensors_data(s, k, &n_bytes);
    assert_int_equal(n_bytes, sizeof weight);
    assert_memory_equal(data, weight, sizeof weight);
    dt_safetensors_close(s);
}

TEST(test_bytes_depend_on_tensors_alone) {
    static const char *const metadata[] = {"format", "pt", NULL};
    dt_ckpt_tensor t[4], reversed[4];
    char *a, *b;
    size_t n_a, n_b;
    make_tensors(t);
    for (int i = 0; i < 4; i++) reversed[i] = t[3 - i];
    must(write_tensors(in_folder("a"), t, 4, metadata));
    must(write_tensors(in_folder("b"), reversed, 4, metadata));
    must(dt_io_read_file(&a, &n_a, in_folder("a"), 0, DT_E_CKPT));
    must(dt_io_read_file(&b, &n_b, in_folder("b"), 0, DT_E_CKPT));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, n_a);
    uint64_t head = (unsigned char)a[0] | (uint64_t)(unsigned char)a[1] << 8;
    assert_int_equal((8 + head) % 64, 0);
    assert_int_equal(n_a, 8 + head + sizeof weight + sizeof bias + sizeof scalar);
    assert_memory_equal(a + 8, "{\"__metadata__\":{\"format\":\"pt\"},\"alpha\":", 40);
    free(a);
    free(b);
}

TEST(test_large_tensor) {
    enum { N = 1 << 20 }; // larger than the writer's stage
    float *x = malloc(N * sizeof *x);
    dt_ckpt_tensor t[3] = {
        {"b", "model", dt_shape1(N), x}, {"a", "model", dt_shape1(2), bias}, {"c", "model", dt_shape1(6), weight}};
    dt_safetensors *s;
    for (int i = 0; i < N; i++) x[i] = (float)i;
    must(write_tensors(in_folder("large"), t, 3, NULL));
    must(dt_safetensors_open(&s, in_folder("large")));
    assert_memory_equal(dt_safetensors_data(s, 1, NULL), x, N * sizeof *x);
    assert_memory_equal(dt_safetensors_data(s, 2, NULL), weight, sizeof weight);
    dt_safetensors_close(s);
    free(x);
}

TEST(test_duplicate_names_are_refused) {
    dt_ckpt_tensor t[2] = {{"a", "model", dt_shape1(2), bias}, {"a", "model", dt_shape1(2), bias}};
    assert_int_equal(write_tensors(in_folder("twice"), t, 2, NULL), DT_E_INTERNAL);
}

// A header with `n_data` bytes behind it, in memory.
static dt_status parse(const char *header, size_t n_data) {
    size_t n = strlen(header), total = 8 + n + n_data;
    unsigned char *p = calloc(1, total);
    dt_safetensors *s;
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(p + 8, header, n);
    dt_status st = dt_safetensors_open_memory(&s, p, total, "memory");
    dt_safetensors_close(s);
    free(p);
    return st;
}

#define F32_AT(b, e) "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[" #b "," #e "]}"

TEST(test_good_headers) {
    must(parse("{}", 0));
    must(parse("{\"a\":" F32_AT(0, 8) "}   ", 8));
    must(parse("{\"b\":" F32_AT(8, 16) ",\"a\":" F32_AT(0, 8) "}", 16));
    must(parse("{\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8));
    must(parse("{\"__metadata__\":{\"format\":\"pt\"}}", 0));
}

TEST(test_bad_headers) {
    static const struct {
        const char *header;
        size_t n_data;
        const char *reason;
    } bad[] = {
        {"", 0, "no JSON object"},
        {" {}", 0, "no JSON object"},
        {"[]", 0, "no JSON object"},
        {"{\"a\":", 0, "bad safetensors header"},
        {"{} x", 0, "bad safetensors header"},
        {"{\"a\":" F32_AT(0, 8) ",\"a\":" F32_AT(0, 8) "}", 8, "duplicate"},
        {"{\"a\":" F32_AT(0, 8) ",\"b\":" F32_AT(12, 20) "}", 20, "a hole"},
        {"{\"a\":" F32_AT(4, 12) "}", 12, "a hole"},
        {"{\"a\":" F32_AT(0, 8) ",\"b\":" F32_AT(4, 12) "}", 12, "overlap"},
        {"{\"a\":" F32_AT(0, 8) ",\"b\":" F32_AT(0, 8) "}", 8, "overlap"},
        {"{\"a\":" F32_AT(0, 8) "}", 9, "after the last tensor"},
        {"{\"a\":" F32_AT(0, 8) "}", 7, "truncated"},
        {"{\"a\":" F32_AT(8, 0) "}", 8, "data_offsets"},
        {"{\"a\":" F32_AT(-8, 0) "}", 8, "data_offsets"},
        {"{\"a\":" F32_AT(0, 4) "}", 4, "do not fit"},
        {"{\"a\":" F32_AT(0, 8.0) "}", 8, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "not a count"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "not an array"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,2],\"data_offsets\":[0,8]}}", 8, "overflows"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387906],\"data_offsets\":[0,8]}}", 8, "do not fit"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "is not {dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "is not {dtype"},
        {"{\"a\":7}", 0, "is not {dtype"},
        {"{\"__metadata__\":{\"format\":1}}", 0, "not a string"},
        {"{\"__metadata__\":[]}", 0, "not an object"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(parse(bad[i].header, bad[i].n_data), DT_E_CKPT);
        if (!strstr(dt_error_message(), bad[i].reason))
            fail_msg("%s: says '%s', expected '%s'", bad[i].header, dt_error_message(), bad[i].reason);
    }
}

TEST(test_bad_lengths) {
    static const unsigned char huge[16] = {1, 225, 245, 5, 0, 0, 0, 0, '{', '}'}; // 100,000,001
    static const unsigned char past[16] = {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    static const unsigned char all[16] = {255, 255, 255, 255, 255, 255, 255, 255};
    dt_safetensors *s;
    must_fail(DT_E_CKPT, "header of 100000001 bytes", dt_safetensors_open_memory(&s, huge, 16, "m"));
    must_fail(DT_E_CKPT, "truncated", dt_safetensors_open_memory(&s, past, 16, "m"));
    assert_int_equal(dt_safetensors_open_memory(&s, all, 16, "m"), DT_E_CKPT);
    for (size_t n = 0; n < 8; n++) assert_int_equal(dt_safetensors_open_memory(&s, past, n, "m"), DT_E_CKPT);
    assert_int_equal(dt_safetensors_open(&s, in_folder("missing")), DT_E_CKPT);
    must_fail(DT_E_CKPT, "not a regular file", dt_safetensors_open(&s, folder_path));
}

// A file of Python's safetensors.
TEST(test_python_file) {
    const char *source = getenv("SOURCE");
    char path[4096];
    dt_safetensors *s;
    if (!source) skip();
    snprintf(path, sizeof path, "%s/tests/golden/ops.safetensors", source);
    if (!dt_io_exists(path)) skip();
    must(dt_safetensors_open(&s, path));
    assert_true(dt_safetensors_count(s) > 0);
    dt_safetensors_close(s);
}

// `test_safetensors write FILE`: a file for Python's reader.
static int write_example(const char *path) {
    static const char *const metadata[] = {"format", "pt", NULL};
    dt_ckpt_tensor t[4];
    make_tensors(t);
    return write_tensors(path, t, 4, metadata);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "write") == 0) return write_example(argv[2]);
    return run_all_tests(folder_make, folder_remove);
}
