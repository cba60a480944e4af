// Preloaded by test_trials.sh and test_remote.sh: on the host that LATE_HOST names, the time of day is an hour behind.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    static int late = -1;
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (late < 0) {
        const char *named = getenv("LATE_HOST");
        char host[64] = "";
        gethostname(host, sizeof host - 1);
        late = named && strcmp(named, host) == 0;
    }
    int rc = real(id, t);
    if (late && id == CLOCK_REALTIME) t->tv_sec -= 3600;
    return rc;
}

time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
