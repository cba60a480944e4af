// each_isa.h: runs a program's tests once an ISA that the machine has, in children with
// ONEDNN_MAX_CPU_ISA set, because the ISA is fixed at its first use.
#ifndef DT_TESTS_OPS_EACH_ISA_H
#define DT_TESTS_OPS_EACH_ISA_H

#include "backend/cpu/simd.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int run_each_isa(int (*run_all)(void)) {
    const char *isas[] = {"SSE41", "AVX2", "AVX512_CORE", "ALL"};
    int failed = 0;
    for (int i = 0; i < 4; i++) {
        if (i == 1 && !__builtin_cpu_supports("avx2")) break;
        if (i == 2 && !__builtin_cpu_supports("avx512bw")) break;
        if (i == 3 && !__builtin_cpu_supports("avx512bf16"))
            break; // nothing that the others have not
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
        failed += status != 0;
    }
    return failed != 0;
}

#endif
