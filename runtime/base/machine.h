// machine.h: memory that this machine, or this container, has left; cgroups; the CPU's vector instructions.
#ifndef DT_BASE_MACHINE_H
#define DT_BASE_MACHINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct dt_memory {
    uint64_t total_bytes,
        available_bytes; // without swapping; the page cache counts as available
    uint64_t n_kills;    // processes that the kernel has killed there for want of memory
} dt_memory;

// The machine's memory (MemTotal, MemAvailable) or the limit of the tightest memory cgroup (v1, v2) above
// this process, whichever is less. Zeros if the kernel does not tell. Opens a few files: about 50 us.
void dt_memory_read(dt_memory *out);

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

// Vector instructions of this CPU, at most those that ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE, ...) allows, which oneDNN obeys
// as well. Fixed at the first call; any thread.
typedef enum dt_cpu_isa { DT_CPU_GENERIC, DT_CPU_AVX2, DT_CPU_AVX512 } dt_cpu_isa;
dt_cpu_isa dt_cpu_isa_get(void);

#endif
