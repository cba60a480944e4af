// machine.c: see machine.h.
//
// A cgroup's usage includes the page cache, which the kernel drops before it denies memory. So what a cgroup
// has left is its limit, less its usage, plus the file pages on its LRU lists (shared memory is on other
// lists). Limits of the levels above count as well: often the job's own cgroup has no limit, and its parent,
// the allocation, has one.
#include "base/machine.h"

#include "base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>

static bool machine_read_number(const char *dir, const char *file, uint64_t *out) {
    char path[4500];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fscanf(f, "%" SCNu64, out) == 1; // false for "max"
    fclose(f);
    return ok;
}

// Sum of the lines "name number" whose name is a or b.
static uint64_t machine_sum_of(const char *path, const char *a, const char *b, uint64_t unit) {
    char name[64];
    uint64_t v, sum = 0;
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%63s %" SCNu64 "%*[^\n]", name, &v) == 2)
        if (strcmp(name, a) == 0 || strcmp(name, b) == 0) sum += v * unit;
    if (f) fclose(f);
    return sum;
}

static bool machine_has_word(const char *list, const char *word) { // "cpu,cpuacct"
    size_t n = strlen(word);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0')) return true;
    return false;
}

void dt_cgroup_walk(const char *controller, void (*visit)(void *ctx, const char *dir, bool v2), void *ctx) {
    char line[4096], dir[4400];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) { // "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        bool v2 = names[1] == '\0';
        if (!v2 && !machine_has_word(names + 1, controller)) continue;
        size_t n_mount = (size_t)snprintf(dir, sizeof dir, "/sys/fs/cgroup%s%s", v2 ? "" : "/", v2 ? "" : controller);
        snprintf(dir + n_mount, sizeof dir - n_mount, "%s", path);
        for (;;) {
            visit(ctx, dir, v2);
            char *slash = strrchr(dir, '/');
            if (strlen(dir) <= n_mount || !slash) break;
            *slash = '\0';
        }
    }
    if (f) fclose(f);
}

static void bound(void *ctx, const char *dir, bool v2) {
    dt_memory *m = ctx;
    uint64_t limit, used;
    char stat[4500];
    if (!machine_read_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", &limit) ||
        !machine_read_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", &used) || limit >= m->total_bytes)
        return;
    snprintf(stat, sizeof stat, "%s/memory.stat", dir);
    uint64_t files = v2 ? machine_sum_of(stat, "inactive_file", "active_file", 1)
                        : machine_sum_of(stat, "total_inactive_file", "total_active_file", 1);
    uint64_t left = limit + files > used ? limit + files - used : 0;
    if (left > limit) left = limit;
    m->total_bytes = limit;
    snprintf(stat, sizeof stat, "%s/%s", dir, v2 ? "memory.events" : "memory.oom_control");
    m->n_kills = machine_sum_of(stat, "oom_kill", "", 1);
    if (left < m->available_bytes) m->available_bytes = left;
}

void dt_memory_read(dt_memory *out) {
    *out = (dt_memory){machine_sum_of("/proc/meminfo", "MemTotal:", "", 1024),
                       machine_sum_of("/proc/meminfo", "MemAvailable:", "", 1024),
                       machine_sum_of("/proc/vmstat", "oom_kill", "", 1)};
    dt_cgroup_walk("memory", bound, out);
}

dt_status dt_memory_room(uint64_t n_bytes, const char *what) {
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return DT_OK;
    // counts against the limit like any mapping, but takes no memory
    void *p = mmap(NULL, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
        munmap(p, n_bytes);
        return DT_OK;
    }
    return dt_fail(DT_E_INTERNAL,
                   "out of memory: the limit on address space of %.0f MiB leaves no %.0f MiB for %s: "
                   "raise it (ulimit -v)",
                   (double)r.rlim_cur / 1048576.0, (double)n_bytes / 1048576.0, what);
}

uint64_t dt_memory_stack_bytes(void) {
    const uint64_t usual = UINT64_C(8) << 20;
    struct rlimit r;
    return getrlimit(RLIMIT_STACK, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? r.rlim_cur : usual;
}

double dt_memory_time_copy(void) {
    enum { BLOCK = 64 << 10, BLOCKS = 512 };
    uint8_t *from = malloc((size_t)BLOCKS * BLOCK), *to = malloc(BLOCK);
    double begin = 0, end = 0;
    if (from && to) {
        memset(from, 1, (size_t)BLOCKS * BLOCK);
        begin = dt_clock_s();
        for (size_t i = 0; i < BLOCKS; i++) {
            memcpy(to, from + i * BLOCK, BLOCK);
            from[i] = to[i]; // keeps the compiler from removing the copies
        }
        end = dt_clock_s();
    }
    free(from);
    free(to);
    return (end - begin) / ((double)BLOCKS * BLOCK);
}

// ---- the CPU -------------------------------------------------------------------------------------
static dt_cpu_isa read_isa(void) {
    const char *most = getenv("ONEDNN_MAX_CPU_ISA");
    if (!most) most = getenv("DNNL_MAX_CPU_ISA"); // oneDNN's older name
    const bool none = most && (strcasecmp(most, "SSE41") == 0 || strcasecmp(most, "AVX") == 0);
    const bool avx2 = most && strncasecmp(most, "AVX2", 4) == 0; // AVX2_VNNI
    if (none || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return DT_CPU_GENERIC;
    if (avx2 || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return DT_CPU_AVX2;
    return DT_CPU_AVX512;
}

static dt_cpu_isa isa;
static void detect_isa(void) {
    isa = read_isa();
}

dt_cpu_isa dt_cpu_isa_get(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect_isa);
    return isa;
}
