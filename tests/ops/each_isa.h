// each_isa.h: runs a program's tests once an ISA that the machine has, in children with
// ONEDNN_MAX_CPU_ISA set, because the ISA is fixed at its first use. Where it is set already only that one
// runs, and TEST names the tests (test_bn*): an emulated CPU is slow (tests/fake_cpu.sh).
#ifndef DT_TESTS_OPS_EACH_ISA_H
#define DT_TESTS_OPS_EACH_ISA_H

#include "backend/cpu/dnnl_shim.h"
#include "backend/cpu/simd.h"
#include "testing.h"
#ifdef DT_ROWS_CUDA
#include "cuda/device_run.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct isa_of_test {
    const char *name;
    int level; // dt_cpu_isa; -1: the machine's own
    bool there, int8;
} isa_of_test;

// int8: also what only the products of 8 bits know
static inline int run_isas(bool int8) {
#if !defined(__x86_64__) // one ISA, whatever oneDNN is told
    cmocka_set_test_filter(getenv("TEST"));
    return run_all_tests(NULL, NULL);
#else
    const bool avx2 = __builtin_cpu_supports("avx2");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512bw");
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    // "ALL" where it has something that those before it have not
    const bool more = int8 ? vnni : avx512 && __builtin_cpu_supports("avx512bf16");
    const isa_of_test isas[] = {{"SSE41", DT_CPU_GENERIC, true, false},
                                {"AVX2", DT_CPU_AVX2, avx2, false},
                                {"AVX512_CORE", DT_CPU_AVX512, avx512, false},
                                {"AVX512_CORE_VNNI", DT_CPU_AVX512, vnni, true},
                                {"ALL", -1, more, false}};
    int failed = 0;
    cmocka_set_test_filter(getenv("TEST"));
    if (getenv("ONEDNN_MAX_CPU_ISA")) return run_all_tests(NULL, NULL);
    for (int i = 0; i < 5; i++) {
        if (!isas[i].there || (isas[i].int8 && !int8)) continue;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("ONEDNN_MAX_CPU_ISA", isas[i].name, 1);
            int rc = run_all_tests(NULL, NULL);
            // the variable must steer the ISA
            if (isas[i].level >= 0 && (int)dt_cpu_isa_get() != isas[i].level) rc = 1;
            if ((int)dt_cpu_isa_get() != dt_dnnl_isa_level()) rc = 1; // and oneDNN's own
            exit(rc != 0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        printf("%s: %s\n", isas[i].name, status == 0 ? "ok" : "FAILED");
        failed += status != 0;
    }
    return failed != 0;
#endif
}

// Rows of one program run so on the CPU, and once where they are built for a device (tests/cuda).
static inline int run_rows(void) {
#ifdef DT_ROWS_CUDA
    cmocka_set_test_filter(getenv("TEST"));
    const int rc = run_all_tests(NULL, NULL);
    device_close();
    return rc;
#else
    return run_isas(false);
#endif
}

#endif
