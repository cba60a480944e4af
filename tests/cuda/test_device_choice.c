// test_device_choice.c: which device a rank uses, under the launchers that bind devices and those that do not.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cuda/device_choice.h"
#include "backend/cuda/device_near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int chosen(int n, int rank, int size, const char *visible) {
    int index = -1;
    assert_int_equal(dt_cuda_choose_device(&index, n, rank, size, visible), DT_OK);
    return index;
}

static void test_chosen(void **state) {
    (void)state;
    assert_int_equal(chosen(1, 0, 1, NULL), 0);
    assert_int_equal(chosen(8, 0, 0, NULL), 0);
    for (int rank = 0; rank < 8; rank++) assert_int_equal(chosen(8, rank, 8, NULL), rank);
    assert_int_equal(chosen(4, 1, 2, "4,5,6,7"), 1);
    assert_int_equal(chosen(1, 3, 4, "3"), 0); // Slurm or Kubernetes bound it
    assert_int_equal(chosen(1, 3, 4, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"), 0);
}

static void test_refused(void **state) {
    (void)state;
    int index;
    assert_int_equal(dt_cuda_choose_device(&index, 0, 0, 1, ""), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "CUDA_VISIBLE_DEVICES"));
    assert_int_equal(dt_cuda_choose_device(&index, 4, 0, 8, NULL), DT_E_USAGE);
    assert_non_null(strstr(dt_error_message(), "8 ranks on this host, but 4 GPUs"));
    assert_non_null(strstr(dt_error_message(), "mpirun -np 4"));
    assert_int_equal(dt_cuda_choose_device(&index, 1, 1, 2, NULL), DT_E_USAGE);
    assert_int_equal(dt_cuda_choose_device(&index, 2, 1, 4, "0,1"), DT_E_USAGE);
}

// Another machine's topology: hwloc binds nothing then, and says what it would.
static void test_near(void **state) {
    (void)state;
    char text[256];
    assert_false(dt_cuda_bind_near("ffff:ff:1f.7", text, sizeof text)); // no such device
    assert_string_equal(text, "");
    setenv("HWLOC_XMLFILE", DTRAIN_TOPOLOGY, 1);
    if (!dt_cuda_bind_near("0000:1b:00.0", text, sizeof text)) {
        puts("skipped: no libhwloc, at build time or now");
        return;
    }
    assert_string_equal(text, "cores 0-1, memory of NUMA node 0");
    assert_true(dt_cuda_bind_near("0000:9c:00.0", text, sizeof text));
    assert_string_equal(text, "cores 2-3, memory of NUMA node 1");
    assert_false(dt_cuda_bind_near("0000:9d:00.0", text, sizeof text)); // not there
    unsetenv("HWLOC_XMLFILE");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chosen),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
