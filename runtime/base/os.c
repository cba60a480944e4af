// os.c: what the operating system gives: clocks, memory, the launcher's variables, modules.

#include "base/os.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#endif

// ---- clock --------------------------------------------------------------------------------------------------------

// Time and memory use from the kernel.

static double read_clock(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double dt_clock_s(void) {
    return read_clock(CLOCK_MONOTONIC); // not affected by settimeofday, nor by suspend
}
double dt_clock_work_s(int threads) {
    // one thread: its own CPU time, as others may use the core
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
    // boot time includes suspend, like the kernel's start time
    const double s = read_clock(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
    return n == 1 && s > 0 ? s : 0;
}

double dt_clock_waited_s(dt_waited *w, double now_s) {
    const double most_s = 0.25, gap_s = now_s - w->last_s;
    // the first call sets the beginning only
    if (w->last_s > 0 && gap_s > 0) w->sum_s += gap_s < most_s ? gap_s : most_s;
    w->last_s = now_s;
    return w->sum_s;
}

void dt_cpu_use_read(dt_cpu_use *out) {
    char text[1 << 16], *p = text; // the lines of cores come first
    cpu_set_t mine;
    double ticks = 0;
    *out = (dt_cpu_use){.at_s = dt_clock_s(), .own_s = read_clock(CLOCK_PROCESS_CPUTIME_ID)};
    const int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    while (fd >= 0 && p + 1 < text + sizeof text && (n = read(fd, p, (size_t)(text + sizeof text - 1 - p))) > 0) p += n;
    *p = '\0';
    if (fd >= 0) close(fd);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return;
    for (p = text; (p = strstr(p, "\ncpu"));) { // cpu0 user nice system idle iowait …
        const long core = strtol(p + 4, &p, 10);
        if (core < 0 || core >= CPU_SETSIZE || !CPU_ISSET((int)core, &mine)) continue;
        out->n_cores++;
        for (int i = 0; i < 5; i++) {
            const double t = strtod(p, &p);
            if (i > 2) ticks += t;
        }
    }
    out->idle_s = ticks / (double)sysconf(_SC_CLK_TCK);
}

int dt_cpu_short(const dt_cpu_use *a, const dt_cpu_use *b, int threads, double *got) {
    const double s = b->at_s - a->at_s;
    const int cores = threads < b->n_cores ? threads : b->n_cores;
    *got = s > 0 ? (b->own_s - a->own_s) / s : 0;
    // 0.2 s: the kernel counts idle time in ticks of 10 ms
    const bool is_short = s >= 0.2 && *got < 0.75 * cores && b->idle_s - a->idle_s < 0.1 * b->n_cores * s;
    return is_short ? cores : 0;
}

uint64_t dt_rss_bytes(void) {
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re"); // in pages: size, resident
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
        if (getrusage(RUSAGE_SELF, &u) == 0) kib = (uint64_t)u.ru_maxrss; // KiB on Linux
    }
    return kib * 1024;
}

// ---- machine ------------------------------------------------------------------------------------------------------

// See os.h.
//
// A cgroup's usage includes the page cache, which the kernel drops before it denies memory. So what a cgroup
// has left is its limit, less its usage, plus the file pages on its LRU lists (shared memory is on other
// lists). Limits of the levels above count as well: often the job's own cgroup has no limit, and its parent,
// the allocation, has one.

static bool machine_read_number(const char *dir, const char *file, uint64_t *out) {
    char path[4500]; // 4,096 of the cgroup's path and a file's name
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fscanf(f, "%" SCNu64, out) == 1; // false for "max"
    fclose(f);
    return ok;
}

// Sum of the lines "name number" whose name is a or b.
// names of meminfo and vmstat keep their colon
static uint64_t machine_sum_of(const char *path, const char *a, const char *b, uint64_t unit) {
    char name[64];
    uint64_t v, sum = 0;
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%63s %" SCNu64 "%*[^\n]", name, &v) == 2) // a unit behind the number is skipped
        if (strcmp(name, a) == 0 || strcmp(name, b) == 0) sum += v * unit;
    if (f) fclose(f);
    return sum;
}

static bool machine_has_word(const char *list, const char *word) { // "cpu,cpuacct"
    size_t n = strlen(word);
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') // whole words: "cpu" is not in "cpuacct"
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0')) return true;
    return false;
}

// /proc/self/cgroup(5)
void dt_cgroup_walk(const char *controller, void (*visit)(void *ctx, const char *dir, bool v2), void *ctx) {
    char line[4096], dir[4400];
    FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof line, f)) { // "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue; // a line that is no record
        *path++ = '\0';
        bool v2 = names[1] == '\0'; // v2: no controller is named
        if (!v2 && !machine_has_word(names + 1, controller)) continue;
        // where systemd and Docker mount them
        size_t n_mount = (size_t)snprintf(dir, sizeof dir, "/sys/fs/cgroup%s%s", v2 ? "" : "/", v2 ? "" : controller);
        snprintf(dir + n_mount, sizeof dir - n_mount, "%s", path);
        for (;;) {
            visit(ctx, dir, v2); // leaf first
            char *slash = strrchr(dir, '/');
            if (strlen(dir) <= n_mount || !slash) break; // up to the mount itself
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
        // unlimited: "max", or more than the machine has
        !machine_read_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", &used) || limit >= m->total_bytes)
        return;
    snprintf(stat, sizeof stat, "%s/memory.stat", dir);
    uint64_t files = v2 ? machine_sum_of(stat, "inactive_file", "active_file", 1) // v1: total_ includes groups below
                        : machine_sum_of(stat, "total_inactive_file", "total_active_file", 1);
    // files may exceed usage for a moment: counters are read apart
    uint64_t left = limit + files > used ? limit + files - used : 0;
    if (left > limit) left = limit; // never more than the limit
    m->total_bytes = limit;
    snprintf(stat, sizeof stat, "%s/%s", dir, v2 ? "memory.events" : "memory.oom_control");
    // memory.events counts kills of this group; 0 where the file is missing
    m->n_kills = machine_sum_of(stat, "oom_kill", "", 1);
    if (left < m->available_bytes) m->available_bytes = left;
}

void dt_cpu_name(char *out, size_t cap) {
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");
    *out = '\0';
    while (f && !*out && fgets(line, sizeof line, f)) {
        const char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (value) snprintf(out, cap, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
    }
    if (f) fclose(f);
}

// Adds the memory of a NUMA node without cores.
static void read_node(const char *folder, uint64_t *total, uint64_t *available) {
    char path[512], line[256] = "", name[64];
    uint64_t kib;
    snprintf(path, sizeof path, "%s/cpulist", folder);
    FILE *f = fopen(path, "re");
    const bool is_bare = f && fgets(line, sizeof line, f) && line[0] == '\n';
    if (f) fclose(f);
    snprintf(path, sizeof path, "%s/meminfo", folder);
    f = is_bare ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) { // "Node 1 MemFree: 98304 kB"
        if (sscanf(line, "Node %*d %63s %" SCNu64, name, &kib) != 2) continue;
        if (strcmp(name, "MemTotal:") == 0) *total += kib * 1024;
        // about what the kernel calls available
        if (machine_has_word("MemFree:,Active(file):,Inactive(file):", name)) *available += kib * 1024;
    }
    if (f) fclose(f);
}

void dt_memory_leave_gpus(dt_memory *m, const char *root) {
    char path[512], line[256];
    uint64_t total = 0, available = 0;
    bool is_gpu = false;
    glob_t nodes;
    snprintf(path, sizeof path, "%s/sys/devices/system/node/node[0-9]*", root);
    if (glob(path, 0, NULL, &nodes) != 0) return;
    for (size_t i = 0; i < nodes.gl_pathc; i++) read_node(nodes.gl_pathv[i], &total, &available);
    globfree(&nodes);
    // else memory on CXL or in the package, which is the host's; its driver names the GPU's
    snprintf(path, sizeof path, "%s/proc/iomem", root);
    FILE *f = total > 0 ? fopen(path, "re") : NULL;
    while (f && !is_gpu && fgets(line, sizeof line, f)) is_gpu = strstr(line, "System RAM (NVIDIA)");
    if (f) fclose(f);
    if (!is_gpu) return;
    m->total_bytes -= total < m->total_bytes ? total : m->total_bytes;
    m->available_bytes -= available < m->available_bytes ? available : m->available_bytes;
}

void dt_memory_read(dt_memory *out) {
    *out = (dt_memory){machine_sum_of("/proc/meminfo", "MemTotal:", "", 1024),
                       machine_sum_of("/proc/meminfo", "MemAvailable:", "", 1024),
                       machine_sum_of("/proc/vmstat", "oom_kill", "", 1)};
    dt_memory_leave_gpus(out, "");
    dt_cgroup_walk("memory", bound, out);
}

dt_status dt_memory_room(uint64_t n_bytes, const char *what) {
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return DT_OK;
    // counts against the limit like any mapping, but takes no memory
    // NORESERVE: overcommit does not count the mapping, RLIMIT_AS does
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
    // glibc's default for a thread is the soft limit
    return getrlimit(RLIMIT_STACK, &r) == 0 && r.rlim_cur != RLIM_INFINITY ? r.rlim_cur : usual;
}

double dt_memory_time_copy(void) {
    enum { BLOCK = 64 << 10, BLOCKS = 512 }; // 32 MiB: more than a core's share of the last-level cache
    uint8_t *from = malloc((size_t)BLOCKS * BLOCK), *to = malloc(BLOCK);
    double begin = 0, end = 0;
    if (from && to) {
        memset(from, 1, (size_t)BLOCKS * BLOCK); // touches each page: page faults are not measured
        begin = dt_clock_s();
        for (size_t i = 0; i < BLOCKS; i++) {
            memcpy(to, from + i * BLOCK, BLOCK);
            from[i] = to[i]; // keeps the compiler from removing the copies
        }
        end = dt_clock_s();
    }
    free(from);
    free(to);
    return (end - begin) / ((double)BLOCKS * BLOCK); // seconds per byte
}

// ---- the CPU -------------------------------------------------------------------------------------
static dt_cpu_isa read_isa(void) {
#if defined(__x86_64__)
    const char *most = getenv("ONEDNN_MAX_CPU_ISA");
    if (!most) most = getenv("DNNL_MAX_CPU_ISA"); // oneDNN's older name
    // "SSE41" and "AVX" are oneDNN's words
    const bool none = most && (strcasecmp(most, "SSE41") == 0 || strcasecmp(most, "AVX") == 0);
    const bool avx2 = most && strncasecmp(most, "AVX2", 4) == 0; // AVX2_VNNI
    if (none || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return DT_CPU_GENERIC;
    // AVX-512 as oneDNN's avx512_core requires
    if (avx2 || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return DT_CPU_AVX2;
    return DT_CPU_AVX512;
#elif defined(__aarch64__)
    const bool sve = getauxval(AT_HWCAP) & HWCAP_SVE;
    return sve && (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) == 32 ? DT_CPU_SVE256 : DT_CPU_NEON;
#else
    return DT_CPU_GENERIC;
#endif
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

// ---- launcher -----------------------------------------------------------------------------------------------------

// set by Open MPI, PMIx (srun --mpi=pmix) and PMI (MPICH, Slurm)
static const char *const RANK[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
enum { N_RANK = sizeof RANK / sizeof *RANK };

static int launcher_number(const char *name, int otherwise) {
    const char *v = getenv(name);
    return v && *v ? atoi(v) : otherwise;
}

int dt_launcher_rank(void) {
    int rank = -1;
    for (int i = 0; i < N_RANK && rank < 0; i++) rank = launcher_number(RANK[i], -1);
    return rank;
}

// A Slurm batch script has SLURM_NTASKS as well, for tasks not yet started, so the variable counts only inside a job
// step.
int dt_launcher_size(void) {
    const int n = launcher_number("OMPI_COMM_WORLD_SIZE", launcher_number("PMI_SIZE", 0)); // MPICH's Hydra: PMI_SIZE
    if (n > 0 || launcher_number("SLURM_PROCID", -1) < 0 || launcher_number("SLURM_STEP_ID", -1) < 0) return n;
    return launcher_number("SLURM_STEP_NUM_TASKS", launcher_number("SLURM_NTASKS", 0));
}

bool dt_launcher_is_first_of_host(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
    int rank = -1; // no launcher, so not the first of several
    for (size_t i = 0; i < sizeof names / sizeof *names && rank < 0; i++) rank = launcher_number(names[i], -1);
    return rank == 0;
}

bool dt_launcher_may_start_ranks(void) {
    // mpirun -n 1 sets it too: such a job has a launcher already
    return dt_launcher_size() < 2 && launcher_number("OMPI_COMM_WORLD_SIZE", 0) == 0;
}

void dt_launcher_leave(void) {
    for (int i = 0; i < N_RANK; i++) unsetenv(RANK[i]); // a child is a process of its own
}

const dt_mpi_names dt_mpis[DT_N_MPI] = {[DT_MPI_OPEN] = {"Open MPI", "dtrain_mpi.so", "libopenmpi-dev"},
                                        [DT_MPI_MPICH] = {"MPICH", "dtrain_mpich.so", "libmpich-dev"}};

dt_mpi dt_launcher_mpi(bool *sure) {
    const bool by_open = getenv("OMPI_COMM_WORLD_RANK") != NULL;
    const bool by_hydra = !by_open && getenv("MPI_LOCALNRANKS"); // mpirun of MPICH and Intel MPI
    *sure = by_open || by_hydra;
    return !by_hydra && (by_open || getenv("PMIX_RANK") || !getenv("PMI_RANK")) ? DT_MPI_OPEN : DT_MPI_MPICH;
}

// ---- module -------------------------------------------------------------------------------------------------------

// See os.h. Only two folders that belong to the program are searched, because a module runs
// with the program's rights.

dt_status dt_module_exe_dir(char *dir, size_t cap) {
    // no terminator; cut names are refused by the open that follows
    const ssize_t n = readlink("/proc/self/exe", dir, cap - 1);
    if (n <= 0) return dt_fail(DT_E_INTERNAL, "/proc/self/exe cannot be read: is /proc mounted?");
    dir[n] = 0;
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
    return DT_OK;
}

dt_status dt_module_find(const char *name, char *path, size_t cap) {
    static const char *const places[] = {"", "/../lib/dtrain"}; // build folder, installation
    char dir[PATH_MAX];
    path[0] = 0;
    DT_TRY(dt_module_exe_dir(dir, sizeof dir));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, cap, "%s%s/%s", dir, places[i], name);
        if (access(path, R_OK) == 0) return DT_OK; // readable is enough for dlopen
    }
    path[0] = 0;
    return DT_OK; // an empty path: not found; callers word the error
}

void *dt_wheel_library(const char *pattern) {
    char dir[PATH_MAX], plain[2 * PATH_MAX], *to = plain;
    glob_t found;
    if (dt_module_exe_dir(dir, sizeof dir) != DT_OK) return NULL;
    for (const char *from = dir; *from; *to++ = *from++)
        if (strchr("*?[\\", *from)) *to++ = '\\'; // the folder is no pattern
    *to = '\0';
    // Debian's system pip has dist-packages
    char *path = dt_xprintf("%s/../lib/python3*/*-packages/nvidia/%s", plain, pattern);
    void *library = glob(path, 0, NULL, &found) == 0 ? dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_LOCAL) : NULL;
    globfree(&found);
    free(path);
    return library;
}
