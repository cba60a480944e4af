// clock.c: time and memory use from the kernel.
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double read_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double dt_clock_s(void) {
    return read_clock(CLOCK_MONOTONIC);
}
double dt_clock_work_s(int threads) {
    return read_clock(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC);
}
double dt_clock_wall_s(void) {
    return read_clock(CLOCK_REALTIME);
}

double dt_clock_process_s(void) {
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "re");
    // the name may hold anything; behind its last bracket are the state and 18 numbers
    const int n = f ? fscanf(f,
                             "%*[^)]%*[)] %*c%*d%*d%*d%*d%*d%*u%*u%*u%*u%*u%*u%*u%*d%*d%*d%*d"
                             "%*d%*d%llu",
                             &ticks)
                    : 0;
    if (f) fclose(f);
    const double s = read_clock(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return n == 1 && s > 0 ? s : 0;
}

double dt_clock_waited_s(dt_waited *w, double now_s) {
    const double most_s = 0.25, gap_s = now_s - w->last_s;
    if (w->last_s > 0 && gap_s > 0) w->sum_s += gap_s < most_s ? gap_s : most_s;
    w->last_s = now_s;
    return w->sum_s;
}

uint64_t dt_rss_bytes(void) {
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    int n = fscanf(f, "%llu %llu", &size, &resident);
    fclose(f);
    return n == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

// VmHWM, not ru_maxrss: the latter survives exec, so it may be the launcher's peak instead of ours.
uint64_t dt_rss_peak_bytes(void) {
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtoull(line + 6, NULL, 10);
    if (f) fclose(f);
    if (kib == 0) {
        struct rusage u;
        if (getrusage(RUSAGE_SELF, &u) == 0) kib = (uint64_t)u.ru_maxrss;
    }
    return kib * 1024;
}
