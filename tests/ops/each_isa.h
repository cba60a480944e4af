// each_isa.h: runs a program's tests once an ISA that the machine has, in children with
// ONEDNN_MAX_CPU_ISA set, because the ISA is fixed at its first use. Where it is set already only that one
// runs, and TEST names the tests (test_bn*): an emulated CPU is slow (tests/emulated).
#ifndef DT_TESTS_OPS_EACH_ISA_H
#define DT_TESTS_OPS_EACH_ISA_H

#include "backend/cpu/simd.h"
#ifdef DT_ROWS_CUDA
#include "cuda/device_run.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int run_each_isa(int (*run_all)(void)) {
    const char *isas[] = {"SSE41", "AVX2", "AVX512_CORE", "ALL"};
    const char *only = getenv("ONEDNN_MAX_CPU_ISA");
    int failed = 0, ran = 0;
    cmocka_set_test_filter(getenv("TEST"));
    for (int i = 0; i < 4; i++) {
        if (i == 1 && !__builtin_cpu_supports("avx2")) break;
        if (i == 2 && !__builtin_cpu_supports("avx512bw")) break;
        if (i == 3 && !__builtin_cpu_supports("avx512bf16"))
            break; // nothing that the others have not
        if (only && strcmp(only, isas[i]) != 0) continue;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("ONEDNN_MAX_CPU_ISA", isas[i], 1);
            int rc = run_all();
            if (i < 3 && (int)dt_cpu_isa_get() != i) rc = 1; // the variable did not steer the ISA
            exit(rc != 0);
        }
        int status = 1;
        waitpid(child, &status, 0);
        printf("%s: %s\n", isas[i], status == 0 ? "ok" : "FAILED");
        failed += status != 0, ran++;
    }
    if (!ran)
        printf("ONEDNN_MAX_CPU_ISA=%s: not one that is tested, or this CPU has it not\n", only);
    return failed != 0 || !ran;
}

// Rows of one program run so on the CPU, and once where they are built for a device (tests/cuda).
static inline int run_rows(int (*run_all)(void)) {
#ifdef DT_ROWS_CUDA
    const int rc = run_all();
    device_close();
    return rc;
#else
    return run_each_isa(run_all);
#endif
}

#endif
