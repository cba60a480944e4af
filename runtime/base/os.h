// os.h: what the operating system gives: clocks, memory, the launcher's variables, modules.
#ifndef DT_BASE_OS_H
#define DT_BASE_OS_H

#include "base/core.h"

#include <time.h>

// ---- clock --------------------------------------------------------------------------------------------------------

// Monotonic time for durations, wall time for file names and events.

double dt_clock_s(void); // CLOCK_MONOTONIC, seconds
// For timing work of `threads` threads that begins and ends in this one: this thread's CPU time if it works alone, so
// that what else the machine does counts little; else dt_clock_s.
double dt_clock_work_s(int threads);
double
dt_clock_process_s(void); // since this process was started, by the kernel's count; 0 where the kernel has no count
// CLOCK_REALTIME, seconds since the epoch. It may be set, so it is for time stamps only, never for waiting.
double dt_clock_wall_s(void);

// Time spent waiting, for the deadlines of polling loops; start with {0} and call once per poll. A gap between
// two calls counts at most a quarter of a second: a process that was suspended, paused or got no core in that
// time did not wait, and those it waits for were probably stopped too.
typedef struct dt_waited {
    double last_s, sum_s;
} dt_waited;
double dt_clock_waited_s(dt_waited *w, double now_s); // now_s: dt_clock_s()

// What this process had of the cores that it may use.
typedef struct dt_cpu_use {
    double at_s, own_s,
        idle_s;  // dt_clock_s; CPU seconds of its threads; seconds in which one of the cores had nothing to do
    int n_cores; // 0: the kernel does not say
} dt_cpu_use;
void dt_cpu_use_read(dt_cpu_use *out); // allocates nothing
// How many cores `threads` could use, if between two readings they got less than three quarters of these and none was
// free; *got: so many. 0: otherwise.
int dt_cpu_short(const dt_cpu_use *a, const dt_cpu_use *b, int threads, double *got);
uint64_t dt_rss_bytes(void); // current resident set of this process
uint64_t dt_rss_peak_bytes(void);

// ---- machine ------------------------------------------------------------------------------------------------------

// Memory that this machine, or this container, has left; cgroups; the CPU's vector instructions.

typedef struct dt_memory {
    uint64_t total_bytes,
        available_bytes; // without swapping; the page cache counts as available
    uint64_t n_kills;    // processes that the kernel has killed there for want of memory
} dt_memory;

// The processor's name as the kernel has it, "AMD EPYC 9654 96-Core Processor"; "" where it has none.
void dt_cpu_name(char *out, size_t cap);
// The machine's memory (MemTotal, MemAvailable) or the limit of the tightest memory cgroup (v1, v2) above
// this process, whichever is less. Zeros if the kernel has no limits. Opens a few files: about 50 us.
void dt_memory_read(dt_memory *out);
// Takes the memory of GPUs out of *m. Where it is coherent with the host's (GH200), NVIDIA's driver gives it to the kernel
// as NUMA nodes without cores, which MemTotal and MemAvailable include. root: of /proc and /sys, "".
void dt_memory_leave_gpus(dt_memory *m, const char *root);

// Calls visit for the directory of this process's cgroup and of each one above it, up to the root. Walks the
// unified hierarchy (v2) and that of `controller` ("cpu", "memory"; v1), where they exist.
void dt_cgroup_walk(const char *controller, void (*visit)(void *ctx, const char *dir, bool v2), void *ctx);

// Whether a limit on address space (ulimit -v) leaves n_bytes for `what`; DT_OK without a limit, else
// DT_E_INTERNAL. For memory that a library takes without reporting failure: oneDNN then writes its kernels
// through a null pointer, and libgomp ends the process. Other threads may allocate after the check.
dt_status dt_memory_room(uint64_t n_bytes, const char *what);
// Stack size of a thread that a library starts.
uint64_t dt_memory_stack_bytes(void);

// Seconds to copy one byte from main memory into a core's cache, by one thread: the cost of a cached sample's
// pixels. Uses 32 MiB and about 20 ms. 0: out of memory.
double dt_memory_time_copy(void);

// Vector instructions of this CPU: on x86 at most those that ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE, ...) allows, which oneDNN
// obeys as well; on arm64 NEON, which each has, or SVE where its registers have 256 bits (Neoverse V1). Fixed at the first
// call; any thread.
typedef enum dt_cpu_isa { DT_CPU_GENERIC, DT_CPU_AVX2, DT_CPU_AVX512, DT_CPU_NEON, DT_CPU_SVE256 } dt_cpu_isa;
dt_cpu_isa dt_cpu_isa_get(void);

// ---- launcher -----------------------------------------------------------------------------------------------------

// What mpirun or srun passes, in the environment, to each process that it starts.

// The rank of this process; -1: no launcher that MPI knows (mpirun, srun with PMI) started it.
int dt_launcher_rank(void);
// How many processes the launcher started, with or without PMI; 0: none did, or it is not known.
int dt_launcher_size(void);
// Whether this is the first of the launcher's processes on its host.
bool dt_launcher_is_first_of_host(void);
// Whether this process may start ranks itself: not as one of several, nor under mpirun, which does not nest.
bool dt_launcher_may_start_ranks(void);
// Programs that this one starts from now on are no ranks of its launcher.
void dt_launcher_leave(void);

// An MPI is an ABI, for which there is a module: Intel MPI, MVAPICH2 and Cray MPICH have MPICH's.
typedef enum dt_mpi { DT_MPI_OPEN, DT_MPI_MPICH, DT_N_MPI } dt_mpi;
typedef struct dt_mpi_names {
    const char *name, *module, *package; // package: Debian's, for the message of a missing module
} dt_mpi_names;
extern const dt_mpi_names dt_mpis[DT_N_MPI];
// Whose launcher started this process; *sure: by its environment no other one can have. srun's ranks have PMIx, which
// Open MPI expects, or PMI alone, which MPICH does; either may be built for the other.
dt_mpi dt_launcher_mpi(bool *sure);

// ---- module -------------------------------------------------------------------------------------------------------

// Finds the program's modules, such as dtrain_mpi.so and dtrain_cuda.so. They are loaded only when needed,
// so that the program itself depends on no library that a machine may lack.

// Folder of the executable, without a trailing slash.
dt_status dt_module_exe_dir(char *dir, size_t cap);
// Path of the module, beside the executable or in ../lib/dtrain; empty if it is in neither.
dt_status dt_module_find(const char *name, char *path, size_t cap);
// Opens a library of NVIDIA's Python wheels in the environment that the program is installed in (pip install dtrain[cuda]),
// RTLD_LOCAL and for the life of the process. `pattern` (glob) is below nvidia/ of its packages. NULL: there is none.
void *dt_wheel_library(const char *pattern);

#endif
