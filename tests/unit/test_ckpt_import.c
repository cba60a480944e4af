// test_ckpt_import.c: weights from safetensors files of other programs: types, what is missing, what is extra.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/ckpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// F32 a (2), F16 b.weight (6), BF16 b.bias (2), I64 b.num_batches_tracked, F32 other (1), F8_E4M3 eight (1)
static const char header[] =
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"b.weight\":{\"dtype\":\"F16\",\"shape\":[6],\"data_offsets\":[8,20]},"
    "\"b.bias\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[20,24]},"
    "\"b.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]},"
    "\"other\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]},"
    "\"eight\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[36,37]}}";

static char path[] = "/tmp/dtrain-import-XXXXXX";

static int write_file(void **state) {
    const float a[2] = {1.5f, -3.0f}, other = 1;
    const uint16_t weight[6] = {0x3c00, 0xc100, 0x0001, 0x83ff, 0x7bff, 0xfc00};
    const uint16_t bias[2] = {0x3f80, 0xc040};
    const uint64_t n = sizeof header - 1, counter = 7;
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f) return -1;
    fwrite(&n, 8, 1, f);
    fwrite(header, n, 1, f);
    fwrite(a, sizeof a, 1, f);
    fwrite(weight, sizeof weight, 1, f);
    fwrite(bias, sizeof bias, 1, f);
    fwrite(&counter, 8, 1, f);
    fwrite(&other, 4, 1, f);
    fputc(0, f);
    return fclose(f);
}

static int remove_file(void **state) {
    return unlink(path);
}

static dt_status import(dt_ckpt_tensor *t, int n, const char *keep, int *n_taken) {
    return dt_ckpt_import(path, &(dt_ckpt_import_opts){.keep = &keep, .n_keep = keep != NULL}, t, n,
                          n_taken);
}

static void floats_of_all_kinds(void **state) {
    float a[2] = {0}, weight[6] = {0}, bias[2] = {0};
    dt_ckpt_tensor t[3] = {{"a", "model", dt_shape1(2), a},
                           {"b.weight", "model", dt_shape1(6), weight},
                           {"b.bias", "model", dt_shape1(2), bias}};
    int n = 0;
    assert_int_equal(import(t, 3, NULL, &n), DT_OK);
    assert_int_equal(n, 3);
    const float want[6] = {1.0f, -2.5f, 0x1p-24f, -1023 * 0x1p-24f, 65504.0f, -INFINITY};
    for (int i = 0; i < 6; i++) assert_true(weight[i] == want[i]);
    assert_true(a[0] == 1.5f && a[1] == -3.0f && bias[0] == 1.0f && bias[1] == -3.0f);
}

static void what_does_not_fit_is_named(void **state) {
    float a[4] = {5, 5, 5, 5}, c[2] = {6, 6};
    dt_ckpt_tensor wide[2] = {{"a", "model", dt_shape1(4), a}, {"eight", "model", dt_shape1(1), c}};
    int n = 0;
    assert_int_equal(import(wide, 1, NULL, &n), DT_E_CKPT);
    assert_non_null(strstr(dt_error_message(), "'a' is (2), this model wants (4)"));
    assert_int_equal(import(wide + 1, 1, NULL, &n), DT_E_CKPT);
    assert_non_null(strstr(dt_error_message(), "'eight' is F8_E4M3, which is not read"));
    dt_ckpt_tensor missing[2] = {{"a", "model", dt_shape1(2), a},
                                 {"head.weight", "model", dt_shape1(2), c}};
    assert_int_equal(import(missing, 2, NULL, &n), DT_E_CKPT);
    assert_non_null(strstr(dt_error_message(), "head.weight"));
    assert_true(a[0] == 5 && n == 0);                            // nothing was copied
    assert_int_equal(import(missing, 2, "hea", &n), DT_E_USAGE); // a module's whole name
    assert_int_equal(import(missing, 2, "head", &n), DT_OK);
    assert_true(n == 1 && a[0] == 1.5f && c[0] == 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(floats_of_all_kinds),
                                       cmocka_unit_test(what_does_not_fit_is_named)};
    return cmocka_run_group_tests(tests, write_file, remove_file);
}
