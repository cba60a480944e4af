// Preloaded by test_slow_rank.sh into one rank: computing a micro-batch takes 150 ms longer. A replica calls this first.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

void omp_set_num_threads(int n);

void omp_set_num_threads(int n) {
    void (*real)(int) = (void (*)(int))dlsym(RTLD_NEXT, "omp_set_num_threads");
    usleep(150000);
    real(n);
}
