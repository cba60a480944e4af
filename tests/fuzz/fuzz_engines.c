// fuzz_engines.c: any bytes as a list of chosen engines, as it comes out of checkpoints, from other ranks and
// (behind its checksum) from the file. Lines that are none are skipped; what is taken must come out as text that
// gives the same again.
// Parser: runtime/backend/choices.c
#include "backend/cuda/cuda_plans.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *taken(const char *text, int *n) {
    const dt_cuda_plans_opts o = {.machine = "any"};
    dt_cuda_plans *p = NULL;
    if (dt_cuda_plans_create(&p, NULL, &o) != DT_OK) abort();
    *n = dt_cuda_plans_take(p, text);
    char *out = dt_cuda_plans_text(p);
    dt_cuda_plans_destroy(p);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    int n_first = 0, n_second = 0, n_lines = 0;
    if (n_bytes > 1 << 16) return 0; // look-ups are linear
    char *text = malloc(n_bytes + 1);
    if (n_bytes) memcpy(text, data, n_bytes);
    text[n_bytes] = 0;
    char *first = taken(text, &n_first), *second = taken(first, &n_second);
    for (const char *c = first; *c; c++) n_lines += *c == '\n';
    if (strcmp(first, second) != 0 || n_second != n_lines || n_lines > n_first) {
        fprintf(stderr, "fuzz_engines: %d taken, %d lines, %d again:\n%s---\n%s", n_first, n_lines, n_second, first,
                second);
        abort();
    }
    free(second);
    free(first);
    free(text);
    return 0;
}
