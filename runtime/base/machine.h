// machine.h: what this machine, or the container we are in, has left.
#ifndef DT_BASE_MACHINE_H
#define DT_BASE_MACHINE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct dt_memory {
    uint64_t total_bytes,
        available_bytes; // available: without swapping; page cache counts as available
} dt_memory;

// The machine's memory (MemTotal, MemAvailable), or what the tightest memory cgroup (v1, v2) above this
// process allows, whichever is less. Zeros when the kernel does not say. Opens a few files: some 50 us.
void dt_memory_read(dt_memory *out);

// Calls visit for the directory of this process's cgroup and of each above it, up to the root: of the unified
// hierarchy (v2) and of the one with `controller` ("cpu", "memory"; v1), as far as they are there.
void dt_cgroup_walk(const char *controller, void (*visit)(void *ctx, const char *dir, bool v2),
                    void *ctx);

// Whether a limit on address space (ulimit -v) leaves n_bytes for `what` ("lanes"): for what a library takes without
// a way to say that there was none. oneDNN writes its kernels through a null pointer then, and libgomp ends the
// process. DT_OK where there is no limit; DT_E_INTERNAL. What other threads take meanwhile is not known.
dt_status dt_memory_room(uint64_t n_bytes, const char *what);
// The stack of a thread that a library starts.
uint64_t dt_memory_stack_bytes(void);

// Seconds to copy a byte that lies in memory, not in a core's cache: by one thread, from more than caches hold to a
// place in one, as pixels are copied that a cache in memory keeps. Takes 32 MiB, and some 20 ms. 0: no memory.
double dt_memory_time_copy(void);

#endif
