// behind.c: preloaded, a process's monotonic clock is 1000 s behind, as that of a host that was started later.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    const int rc = real(id, t);
    if (id == CLOCK_MONOTONIC) t->tv_sec -= 1000;
    return rc;
}
